//! Effort: how deep a value may be for all its faults to be listed.
//!
//! Whether a value is valid is decided quickly, because the validator remembers outcomes. Listing the faults it cannot
//! remember: a schema that describes the same part twice, and is recursive, doubles the list on every level. So the
//! growth is worked out once, and a refused value deeper than what it allows gets one general message instead of a list.
//!
//! For one place in the value, `effort(schema, depth) = in place + max over parts of Σ effort(part's schemas, depth - 1)`:
//! an upper bound on the evaluations along the dearest way down.
//!
//! The same table bounds what one check may cost at all: evaluations of the dearest place, times the places of the value. A
//! schema of ten thousand parts over an array of a hundred thousand items is small on both sides and large as a product.
//!
//! Not here: refusing schemas (`admit` bounds what happens in one place), where a long check is made (`kernel`).

use std::collections::HashMap;

use serde_json::Value;

use super::document::{ReferenceTarget, SchemaDocument, SubschemaKey, SubschemaPlace, references, subschemas};

/// Evaluations along one way down a value that are acceptable for the sake of a good message.
const EFFORT_MAX: u64 = 20_000;
/// The depth that callers bound values to; beyond it nothing needs to be known.
const DEPTH_MAX: usize = 64;
/// Entries of the whole table before the schema counts as too tangled to tell.
const ENTRIES_MAX: usize = 200_000;

/// Options of an `enum` that are compared in the time of one evaluation.
const OPTIONS_PER_STEP: usize = 4;
/// Bytes of a text that are looked at in the time of one evaluation.
const BYTES_PER_STEP: usize = 16;

/// What a schema asks of a check.
#[derive(Debug)]
pub(super) struct Effort {
    /// The greatest depth of a value whose faults may all be listed.
    pub(super) listing_depth_max: usize,
    /// Evaluations along the dearest way down a value, by its depth; deeper ones cost as much as the last.
    by_depth: Vec<u64>,
}

impl Effort {
    pub(super) fn of(schema: &Value) -> Self {
        let document = SchemaDocument::new(schema);
        let positions = document.positions();
        let index: HashMap<&str, usize> =
            positions.iter().enumerate().map(|(at, (pointer, _))| (pointer.as_str(), at)).collect();
        let all = positions.len() as u64;
        let Some(table) = Table::of(&document, &positions, &index) else {
            return Self { listing_depth_max: 2, by_depth: vec![all] };
        };
        let Some(&root) = index.get("") else { return Self { listing_depth_max: 0, by_depth: vec![all] } };
        // Outcomes are remembered, so no part of the value is held against the same schema more often than this.
        let most = table.in_place.iter().copied().max().unwrap_or(0).max(all);
        let of_root = |effort: &[u64]| effort.get(root).copied().unwrap_or(u64::MAX);
        let mut effort = table.in_place.clone();
        let mut by_depth = vec![of_root(&effort).min(most)];
        let mut listing_depth_max = usize::MAX;
        for depth in 1..=DEPTH_MAX {
            let next: Vec<u64> = (0..positions.len()).map(|at| table.step(at, &effort)).collect();
            if next == effort {
                break;
            }
            effort = next;
            if of_root(&effort) > EFFORT_MAX {
                listing_depth_max = listing_depth_max.min(depth - 1);
            }
            by_depth.push(of_root(&effort).min(most));
            if listing_depth_max != usize::MAX && of_root(&effort) >= most {
                break;
            }
        }
        Self { listing_depth_max, by_depth }
    }

    /// Evaluations that a check of this value takes at the most.
    pub(super) fn of_value(&self, value: &Value) -> u64 {
        let (places, depth) = extent(value);
        let each = self.by_depth.get(depth).or_else(|| self.by_depth.last()).copied().unwrap_or(0);
        places.saturating_mul(each)
    }
}

/// Parts of a value, long texts counting for more than one, and its depth.
fn extent(value: &Value) -> (u64, usize) {
    let of_text = |text: &str| 1 + (text.len() / BYTES_PER_STEP) as u64;
    let deeper = |(places, depth): (u64, usize), (more, below): (u64, usize)| (places + more, depth.max(below + 1));
    // Recursion is as deep as the value, and that is bounded by the caller.
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0),
        Value::String(text) => (of_text(text), 0),
        Value::Array(items) => items.iter().map(extent).fold((1, 0), deeper),
        Value::Object(map) => map
            .iter()
            .map(|(name, member)| {
                let (places, depth) = extent(member);
                (places + of_text(name), depth)
            })
            .fold((1, 0), deeper),
    }
}

/// The depth of a value, scalars being 0.
pub(super) fn depth(value: &Value) -> usize {
    // Recursion is as deep as the value, and that is bounded by the caller.
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Which schemas describe a part, and how often: by the part's name, and those that describe any part.
type Parts = HashMap<Option<String>, HashMap<usize, u64>>;

struct Table {
    /// Evaluations in place, by position.
    in_place: Vec<u64>,
    parts: Vec<Parts>,
}

impl Table {
    /// None if it grows too large. INVARIANT: ADM-2, what leads on in place leads to an end.
    fn of(document: &SchemaDocument<'_>, positions: &[(String, &Value)], index: &HashMap<&str, usize>) -> Option<Self> {
        let mut done: Vec<Option<(u64, Parts)>> = positions.iter().map(|_| None).collect();
        let mut entries = 0_usize;
        for start in 0..positions.len() {
            let mut stack = vec![start];
            while let Some(&at) = stack.last() {
                let (pointer, schema) = positions.get(at)?;
                let (here, own) = edges(document, pointer, schema, index);
                let open: Vec<usize> =
                    here.iter().copied().filter(|next| done.get(*next).is_some_and(Option::is_none)).collect();
                if done.get(at)?.is_some() || open.is_empty() {
                    stack.pop();
                    if done.get(at)?.is_none() {
                        let summed = summed(options(schema), &here, own, &done);
                        entries += summed.1.values().map(HashMap::len).sum::<usize>();
                        *done.get_mut(at)? = Some(summed);
                    }
                } else {
                    stack.extend(open);
                }
                if entries > ENTRIES_MAX || stack.len() > ENTRIES_MAX {
                    return None;
                }
            }
        }
        let (in_place, parts) = done.into_iter().flatten().unzip();
        Some(Self { in_place, parts })
    }

    fn step(&self, at: usize, effort: &[u64]) -> u64 {
        let cost = |schemas: &HashMap<usize, u64>| {
            schemas.iter().fold(0_u64, |sum, (schema, times)| {
                sum.saturating_add(times.saturating_mul(effort.get(*schema).copied().unwrap_or(0)))
            })
        };
        let Some(parts) = self.parts.get(at) else { return 0 };
        let any = parts.get(&None).map_or(0, cost);
        let dearest =
            parts.iter().filter(|(name, _)| name.is_some()).map(|(_, schemas)| cost(schemas)).max().unwrap_or(0);
        let in_place = self.in_place.get(at).copied().unwrap_or(0);
        in_place.saturating_add(any).saturating_add(dearest)
    }
}

/// Where evaluation goes from one schema: in place, and into parts.
fn edges(
    document: &SchemaDocument<'_>,
    pointer: &str,
    schema: &Value,
    index: &HashMap<&str, usize>,
) -> (Vec<usize>, Parts) {
    let (mut here, mut parts) = (Vec::new(), Parts::new());
    let Value::Object(map) = schema else { return (here, parts) };
    for sub in subschemas(map) {
        let Some(&to) = index.get(sub.pointer(pointer).as_str()) else { continue };
        let part = match (sub.place, sub.key) {
            (SubschemaPlace::Here | SubschemaPlace::Question, _) => {
                here.push(to);
                continue;
            }
            (SubschemaPlace::Child, SubschemaKey::Name(name)) if sub.keyword == "properties" => Some(name.to_owned()),
            (SubschemaPlace::Child | SubschemaPlace::ChildQuestion | SubschemaPlace::Name, _) => None,
            (SubschemaPlace::Definition, _) => continue,
        };
        *parts.entry(part).or_default().entry(to).or_default() += 1;
    }
    for (_, reference) in references(map) {
        if let ReferenceTarget::Local(target, _) = document.resolve(reference) {
            here.extend(index.get(target.as_str()));
        }
    }
    (here, parts)
}

/// What comparing with the options of an `enum` costs.
fn options(schema: &Value) -> u64 {
    let options = schema.get("enum").and_then(Value::as_array).map_or(0, Vec::len);
    (options / OPTIONS_PER_STEP) as u64
}

fn summed(options: u64, here: &[usize], own: Parts, done: &[Option<(u64, Parts)>]) -> (u64, Parts) {
    let (mut count, mut parts) = (1 + options, own);
    for (more, theirs) in here.iter().filter_map(|next| done.get(*next)?.as_ref()) {
        count = count.saturating_add(*more);
        for (name, schemas) in theirs {
            let known = parts.entry(name.clone()).or_default();
            for (schema, times) in schemas {
                let sum = known.entry(*schema).or_default();
                *sum = sum.saturating_add(*times);
            }
        }
    }
    (count, parts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn plain_recursion_is_listed_to_any_depth_and_doubling_is_not() {
        let tree = json!({ "properties": { "v": { "type": "integer" }, "children": { "items": { "$ref": "#" } } } });
        let logic = json!({ "anyOf": [{ "properties": { "and": { "items": { "$ref": "#" } } } }, { "properties": { "or": { "items": { "$ref": "#" } } } }] });
        let listing_depth_max = |schema: &Value| Effort::of(schema).listing_depth_max;
        assert_eq!((listing_depth_max(&tree), listing_depth_max(&logic)), (usize::MAX, usize::MAX));
        let part = json!({ "properties": { "a": { "$ref": "#" } } });
        let doubling = json!({ "allOf": [part, part] });
        let found = listing_depth_max(&doubling);
        assert!((8..20).contains(&found), "{found}");
    }

    #[test]
    fn what_a_check_costs_is_the_product_of_schema_and_value() {
        let scalar = Effort::of(&json!({ "type": "string" }));
        assert_eq!(scalar.of_value(&json!("short")), 1);
        assert_eq!(scalar.of_value(&json!("x".repeat(1600))), 101);
        let kinds: Vec<Value> = (0..1000).map(|kind| json!({ "contains": { "const": kind } })).collect();
        let dear = Effort::of(&json!({ "properties": { "l": { "type": "array", "allOf": kinds } } }));
        let of_items = |items: usize| dear.of_value(&json!({ "l": vec![-1; items] }));
        assert!(of_items(60_000) >= 60_000_000, "{}", of_items(60_000));
        assert!(of_items(2) < 20_000, "{}", of_items(2));
        let options: Vec<String> = (0..4000).map(|option| option.to_string()).collect();
        let choice = Effort::of(&json!({ "items": { "enum": options } }));
        assert!(choice.of_value(&json!(vec!["x"; 1000])) >= 1_000_000);
    }

    #[test]
    fn a_value_that_is_deep_costs_no_more_than_its_places_times_the_schemas() {
        let part = json!({ "properties": { "a": { "$ref": "#" } } });
        let doubling = Effort::of(&json!({ "allOf": [part, part] }));
        let deep = (0..60).fold(json!({}), |inner, _| json!({ "a": inner }));
        assert!(doubling.of_value(&deep) < 10_000, "{}", doubling.of_value(&deep));
    }
}
