//! Admission: whether a schema from a third party may be compiled at all. (VALID-001, MAN-007)
//!
//! A schema is a small program that runs on every call, written by someone else. Before it is compiled it must be of a
//! draft that is understood, valid by its meta-schema, bounded in every direction, and closed: nothing in it may lead to the network or to
//! a file. All reasons are collected, because an author who gets one at a time gives up at the third.
//!
//! Invariants
//! - ADM-1: depth and node count are checked first and without recursion; only then may anything recurse over the tree.
//! - ADM-2: an admitted tool schema has no way from a schema back to itself on the same instance, and no more than
//!   `expansion_max` evaluations of one instance location without entering a part of it.
//!
//! Not here: whether the schema is a good one (the registry's lint), what it accepts (`jsonschema`).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use jsonschema::PatternOptions;
use serde_json::{Map, Value, json};

use super::document::{ReferenceTarget, SchemaDocument, SubschemaPlace, join, references, subschemas};
use super::look_around::{self, LookAround, PatternFault};
use super::{SchemaError, SchemaLimits, UncheckedPart, dialect};

/// The schema in the words of 2020-12 with what its draft ignores, or every reason why it is none of a draft that is
/// understood. `documents` are the addresses that `$schema` may name besides.
pub(super) fn dialect<'s>(
    schema: &'s Value,
    limits: &SchemaLimits,
    documents: &[&str],
) -> Result<(Cow<'s, Value>, Vec<UncheckedPart>), Vec<SchemaError>> {
    let mut reasons = Vec::new();
    measure(schema, limits, &mut reasons);
    if !reasons.is_empty() {
        // ADM-1: what is too deep or too large is not looked into any further.
        return Err(reasons);
    }
    let named = schema.get("$schema").and_then(Value::as_str);
    if named.is_some_and(|named| documents.contains(&named.trim_end_matches('#'))) {
        return Ok((Cow::Borrowed(schema), Vec::new()));
    }
    if !schema.is_object() && !schema.is_boolean() {
        refuse(&mut reasons, "", "a schema is an object, `true` or `false`");
        return Err(reasons);
    }
    let draft = dialect::draft_of(schema).map_err(|reason| vec![reason])?;
    let faults = draft.faults(schema);
    if faults.is_empty() { Ok(dialect::translated(schema, draft)) } else { Err(faults) }
}

/// Every reason why `schema`, which is of our draft, may not be compiled; empty if it may. `documents` are the addresses
/// that references may lead to besides the schema itself.
pub(super) fn reasons(schema: &Value, limits: &SchemaLimits, documents: &[&str], tool: bool) -> Vec<SchemaError> {
    let reasons = Vec::new();
    let document = SchemaDocument::new(schema);
    let positions = document.positions();
    let mut checks = Checks { limits, documents, tool, reasons, references: 0, patterns: HashMap::new() };
    for (pointer, schema) in &positions {
        checks.position(&document, pointer, schema);
    }
    checks.totals();
    let mut reasons = checks.reasons;
    // With embedded resources `#` is not what this file takes it for; only `plain` lets them through, and there the
    // validator's own guard stands.
    let embedded = positions.iter().any(|(pointer, schema)| !pointer.is_empty() && schema.get("$id").is_some());
    if !embedded {
        cycles(&document, &positions, limits, &mut reasons);
        if tool && reasons.is_empty() {
            unevaluated(&document, &positions, &mut reasons);
        }
    }
    reasons
}

fn refuse(reasons: &mut Vec<SchemaError>, path: &str, message: impl Into<String>) {
    reasons.push(SchemaError { path: path.to_owned(), message: message.into() });
}

/// Size, depth and number of values, with a work list instead of recursion.
fn measure(schema: &Value, limits: &SchemaLimits, reasons: &mut Vec<SchemaError>) {
    let mut nodes = 0_usize;
    let mut too_deep = false;
    let mut work = vec![(schema, 1_usize)];
    while let Some((value, depth)) = work.pop() {
        nodes += 1;
        if depth > limits.depth_max {
            too_deep = true;
            continue;
        }
        match value {
            Value::Array(items) => work.extend(items.iter().map(|item| (item, depth + 1))),
            Value::Object(map) => work.extend(map.values().map(|item| (item, depth + 1))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        if nodes > limits.nodes_max {
            refuse(reasons, "", format!("the schema has more than {} values: split the tool", limits.nodes_max));
            break;
        }
    }
    if too_deep {
        refuse(reasons, "", format!("the schema is nested more than {} levels deep: use `$defs`", limits.depth_max));
    }
    if reasons.is_empty() {
        let bytes = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
        if bytes > limits.bytes_max {
            refuse(reasons, "", format!("the schema has {bytes} bytes, allowed are {}", limits.bytes_max));
        }
    }
}

// ------------------------------------------------------------------------------------------------------ Checks

struct Checks<'a> {
    limits: &'a SchemaLimits,
    documents: &'a [&'a str],
    tool: bool,
    reasons: Vec<SchemaError>,
    references: usize,
    /// Pattern to its verdict, so that a pattern used a hundred times is compiled once.
    patterns: HashMap<String, Option<String>>,
}

impl Checks<'_> {
    fn position(&mut self, document: &SchemaDocument<'_>, pointer: &str, schema: &Value) {
        let Value::Object(map) = schema else { return };
        for (keyword, reference) in references(map) {
            self.references += 1;
            self.reference(document, &join(pointer, keyword), reference);
        }
        if let Some(pattern) = map.get("pattern").and_then(Value::as_str) {
            self.pattern(&join(pointer, "pattern"), pattern);
        }
        if let Some(Value::Object(named)) = map.get("patternProperties") {
            for pattern in named.keys() {
                self.pattern(&join(&join(pointer, "patternProperties"), pattern), pattern);
            }
        }
        if self.tool && !pointer.is_empty() {
            self.nested_identity(pointer, map);
        }
    }

    fn reference(&mut self, document: &SchemaDocument<'_>, at: &str, reference: &str) {
        let shown = shortened(reference);
        match document.resolve(reference) {
            ReferenceTarget::Local(_, Value::Object(_) | Value::Bool(_)) | ReferenceTarget::Meta => {}
            ReferenceTarget::Local(..) => {
                refuse(&mut self.reasons, at, format!("`{shown}` leads to something that is no schema"))
            }
            // Only the validator knows the bases of embedded resources; a tool schema has none.
            ReferenceTarget::Missing | ReferenceTarget::Remote if !self.tool && !self.documents.is_empty() => {}
            ReferenceTarget::Missing => {
                refuse(
                    &mut self.reasons,
                    at,
                    format!("`{shown}` leads nowhere: there is no such place in this schema"),
                );
            }
            ReferenceTarget::Remote => refuse(
                &mut self.reasons,
                at,
                format!(
                    "`{shown}` is outside this schema and is not fetched: copy it under `$defs` and refer to it there"
                ),
            ),
        }
    }

    fn nested_identity(&mut self, pointer: &str, map: &Map<String, Value>) {
        for keyword in ["$id", "$schema"] {
            if map.get(keyword).is_some_and(Value::is_string) {
                let at = join(pointer, keyword);
                refuse(
                    &mut self.reasons,
                    &at,
                    format!("`{keyword}` is only allowed at the top: refer by `#/$defs/…` instead"),
                );
            }
        }
    }

    fn pattern(&mut self, at: &str, pattern: &str) {
        let limits = self.limits;
        let verdict =
            self.patterns.entry(pattern.to_owned()).or_insert_with(|| pattern_trouble(pattern, limits)).clone();
        if let Some(trouble) = verdict {
            refuse(&mut self.reasons, at, trouble);
        }
    }

    fn totals(&mut self) {
        let limits = self.limits;
        if self.references > limits.refs_max {
            let message = format!("the schema has {} references, allowed are {}", self.references, limits.refs_max);
            refuse(&mut self.reasons, "", message);
        }
        if self.patterns.len() > limits.patterns_max {
            let message =
                format!("the schema has {} patterns, allowed are {}", self.patterns.len(), limits.patterns_max);
            refuse(&mut self.reasons, "", message);
        }
    }
}

/// Why a pattern cannot be used, with what to do about it. Only engines that run in linear time are ever used.
fn pattern_trouble(pattern: &str, limits: &SchemaLimits) -> Option<String> {
    let shown = shortened(pattern);
    if pattern.len() > limits.pattern_bytes_max {
        let (length, allowed) = (pattern.len(), limits.pattern_bytes_max);
        return Some(format!(
            "the pattern `{shown}` has {length} bytes, allowed are {allowed}: use `enum` or shorten it"
        ));
    }
    let schema = json!({ "pattern": pattern });
    let compiles = |size| {
        let engine = PatternOptions::regex().size_limit(size);
        jsonschema::draft202012::options().offline().with_pattern_options(engine).build(&schema).is_ok()
    };
    if compiles(limits.pattern_compiled_bytes_max) {
        return None;
    }
    if look_around::is_needed(pattern) {
        return match LookAround::compile(pattern) {
            // `unchecked` says so of a pattern that refers back.
            Ok(_) | Err(PatternFault::BackReference) => None,
            Err(PatternFault::Syntax) => Some(format!("the pattern `{shown}` is no regular expression of ECMA-262")),
            Err(PatternFault::TooLarge) => Some(format!(
                "the pattern `{shown}` is too large once compiled: lower its repeat counts or use `maxLength`"
            )),
        };
    }
    Some(if compiles(limits.pattern_compiled_bytes_max.saturating_mul(16)) {
        format!("the pattern `{shown}` is too large once compiled: lower its repeat counts or use `maxLength`")
    } else {
        format!("the pattern `{shown}` is no regular expression that can be run in linear time")
    })
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= 80 { text.to_owned() } else { text.chars().take(79).chain(['…']).collect() }
}

// ------------------------------------------------------------------------------------------------------ cycles

/// ADM-2: schemas that never get to a part of the instance, and schemas that grow without bound on the spot.
fn cycles(
    document: &SchemaDocument<'_>,
    positions: &[(String, &Value)],
    limits: &SchemaLimits,
    reasons: &mut Vec<SchemaError>,
) {
    let edges: HashMap<&str, Vec<String>> = positions
        .iter()
        .map(|(pointer, schema)| (pointer.as_str(), same_instance(document, pointer, schema)))
        .collect();
    let mut cost: HashMap<&str, u64> = HashMap::new();
    let mut open: HashSet<&str> = HashSet::new();
    let mut worst = 0;
    for (start, _) in positions {
        // Depth first with an explicit stack: enter a node once, add it up when all it leads to is known.
        let mut stack = vec![(start.as_str(), false)];
        while let Some((node, leaving)) = stack.pop() {
            let Some((&node, next)) = edges.get_key_value(node) else { continue };
            if leaving {
                open.remove(node);
                let sum =
                    next.iter().filter_map(|to| cost.get(to.as_str())).fold(1_u64, |sum, one| sum.saturating_add(*one));
                worst = worst.max(sum);
                cost.insert(node, sum);
            } else if !cost.contains_key(node) && open.insert(node) {
                stack.push((node, true));
                for to in next {
                    if open.contains(to.as_str()) {
                        let message =
                            "this schema leads back to itself without entering a part of the value: it says nothing";
                        refuse(reasons, node, message);
                    } else {
                        stack.push((to, false));
                    }
                }
            }
        }
    }
    if worst > limits.expansion_max {
        let allowed = limits.expansion_max;
        refuse(
            reasons,
            "",
            format!("references multiply to {worst} checks of one value, allowed are {allowed}: flatten them"),
        );
    }
}

/// How many branching schemas with `unevaluated…` may be inside one another: each doubles the work of the next.
const UNEVALUATED_DEEP_MAX: usize = 4;

/// `unevaluatedProperties` over branches that come again further down takes time exponential in the depth of the value.
fn unevaluated(document: &SchemaDocument<'_>, positions: &[(String, &Value)], reasons: &mut Vec<SchemaError>) {
    let asks = |schema: &Value| {
        ["unevaluatedProperties", "unevaluatedItems"]
            .iter()
            .any(|keyword| schema.get(keyword).is_some_and(|asked| *asked != Value::Bool(true)))
    };
    // A place counts if something in place of it asks, since it is the place that is evaluated.
    let sites: HashMap<&str, HashMap<String, &Value>> = positions
        .iter()
        .filter(|(pointer, schema)| asks(schema) && document.is_conditional(pointer, schema))
        .map(|(pointer, schema)| (pointer.as_str(), document.below(pointer, schema)))
        .collect();
    let reaches = |below: &HashMap<String, &Value>| -> Vec<&str> {
        let mut found = Vec::new();
        for (pointer, schema) in below {
            let members = document.in_place(pointer, schema).0;
            found.extend(members.iter().filter_map(|(at, _)| sites.get_key_value(at.as_str()).map(|(site, _)| *site)));
        }
        found
    };
    let next: HashMap<&str, Vec<&str>> = sites.iter().map(|(site, below)| (*site, reaches(below))).collect();
    let mut deep: HashMap<&str, usize> = next.keys().map(|site| (*site, 1)).collect();
    for _ in 0..=UNEVALUATED_DEEP_MAX {
        let step = |site: &str| {
            1 + next.get(site).into_iter().flatten().filter_map(|to| deep.get(to)).max().copied().unwrap_or(0)
        };
        deep = next.keys().map(|site| (*site, step(site))).collect();
    }
    let mut too_deep: Vec<&str> =
        deep.iter().filter(|(_, deep)| **deep > UNEVALUATED_DEEP_MAX).map(|(site, _)| *site).collect();
    too_deep.sort_unstable();
    for site in too_deep {
        let message = "`unevaluatedProperties` over branches that repeat further down takes too long: write `additionalProperties` into each branch";
        refuse(reasons, site, message);
    }
}

fn same_instance(document: &SchemaDocument<'_>, pointer: &str, schema: &Value) -> Vec<String> {
    let Value::Object(map) = schema else { return Vec::new() };
    let mut next: Vec<String> = subschemas(map)
        .iter()
        .filter(|sub| matches!(sub.place, SubschemaPlace::Here | SubschemaPlace::Question))
        .map(|sub| sub.pointer(pointer))
        .collect();
    next.extend(references(map).filter_map(|(_, reference)| match document.resolve(reference) {
        ReferenceTarget::Local(target, _) => Some(target),
        ReferenceTarget::Meta | ReferenceTarget::Missing | ReferenceTarget::Remote => None,
    }));
    next
}

#[cfg(test)]
mod tests {
    use super::super::document::META_SCHEMA;
    use super::super::readable;
    use super::*;

    fn refused(schema: &Value) -> Vec<SchemaError> {
        readable(schema, &SchemaLimits::default(), &[], true).err().map_or_else(Vec::new, |errors| errors.0)
    }

    #[test]
    fn each_trouble_is_named_with_its_place_and_its_remedy() {
        let doubling: serde_json::Map<String, Value> = (0..40)
            .map(|n| (format!("d{n}"), json!({ "allOf": [{ "$ref": format!("#/$defs/d{}", n + 1) }, { "$ref": format!("#/$defs/d{}", n + 1) }] })))
            .chain([("d40".to_owned(), json!(true))])
            .collect();
        for (schema, path, part) in [
            (json!({ "$schema": "http://json-schema.org/draft-03/schema#" }), "/$schema", "2020-12"),
            (json!({ "$schema": "http://json-schema.org/draft-07/schema#", "type": "strin" }), "/type", "of draft-07"),
            (json!({ "type": "strin" }), "/type", "meta-schema"),
            (json!({ "$ref": "https://example.com/x.json" }), "/$ref", "under `$defs`"),
            (json!({ "$ref": "other.json#/a" }), "/$ref", "not fetched"),
            (json!({ "$ref": "#/$defs/x" }), "/$ref", "leads nowhere"),
            (json!({ "$ref": "#" }), "", "leads back to itself"),
            (
                json!({ "$ref": "#/$defs/a", "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "not": { "$ref": "#/$defs/a" } } } }),
                "/$defs/b/not",
                "leads back",
            ),
            (json!({ "pattern": "^(?=a" }), "/pattern", "no regular expression of ECMA-262"),
            (json!({ "pattern": "(?=(a{1000}){1000})" }), "/pattern", "too large"),
            (
                json!({ "patternProperties": { "(\\w{200}){200}": true } }),
                "/patternProperties/(\\w{200}){200}",
                "too large",
            ),
            (
                json!({ "properties": { "a": { "$id": "https://example.com/" } } }),
                "/properties/a/$id",
                "only allowed at the top",
            ),
            (json!({ "$ref": "#/$defs/d0", "$defs": doubling }), "", "multiply"),
            (
                json!({ "anyOf": [{ "properties": { "a": { "$ref": "#" } } }, true], "unevaluatedProperties": false }),
                "",
                "into each branch",
            ),
            (json!(7), "", "a schema is an object"),
        ] {
            let found = refused(&schema);
            assert!(found.iter().any(|one| one.path == path && one.message.contains(part)), "{schema}: {found:?}");
        }
    }

    #[test]
    fn every_bound_is_kept() {
        let deep = (0..70).fold(json!(true), |inner, _| json!({ "items": inner }));
        let wide: Map<String, Value> = (0..20_000).map(|n| (format!("p{n}"), json!({}))).collect();
        let long = json!({ "description": "x".repeat(600_000) });
        let many: Vec<Value> = (0..600).map(|_| json!({ "$ref": "#/$defs/a" })).collect();
        for (schema, part) in [
            (deep, "levels deep"),
            (json!({ "properties": wide }), "more than"),
            (long, "bytes"),
            (json!({ "$defs": { "a": true }, "prefixItems": many }), "references"),
            (json!({ "pattern": "a".repeat(3_000) }), "bytes"),
        ] {
            let found = refused(&schema);
            assert!(found.iter().any(|one| one.message.contains(part)), "{part}: {found:?}");
        }
    }

    #[test]
    fn recursion_through_a_part_of_the_value_is_fine() {
        for schema in [
            json!({ "properties": { "next": { "$ref": "#" } } }),
            json!({ "$ref": "#/$defs/node", "$defs": { "node": { "items": { "$dynamicRef": "#n" }, "$dynamicAnchor": "n" } } }),
            json!({ "$ref": META_SCHEMA }),
            json!(true),
        ] {
            assert_eq!(refused(&schema), []);
        }
    }
}
