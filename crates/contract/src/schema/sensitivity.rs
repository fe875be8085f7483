//! What a schema says about the sensitivity of each part of a value: its `x-sensitivity` marks, whichever way leads to them.
//! (VALID-014)
//!
//! The marks are made ready once for each schema and then asked from the whole value downwards, part by part. Keywords and
//! references mean what they mean to the validator, because both ask `document`: what is accepted as a reference marks.
//!
//! Invariants
//! - SENS-1: a part of a value that satisfies a sub-schema with a mark is marked. Where only the value can tell which of the
//!   sub-schemas describe it (branches, `contains`, `unevaluated…`), all of them do.
//! - SENS-2: no bound ends the marking early. A part that more than [`PLACES_MAX`] sub-schemas describe, or one whose schema has
//!   a reference that cannot be followed, is marked.
//! - SENS-3: a schema of an older draft marks as its translation does. What its draft ignores, beside `$ref` or because it came
//!   later, is not checked, and marks all the same: who wrote the mark meant to hide something.
//!
//! Under `not` nothing is marked: no value that is let through satisfies what stands there. Under two of them it is.
//!
//! Not here: what is done with a marked part, and names that say by themselves what they hold (`redaction`).

use std::collections::{HashMap, HashSet};

use jsonschema::Validator;
use serde_json::{Map, Value, json};

use super::dialect::with_ignored;
use super::document::{
    ReferenceTarget, SchemaDocument, Subschema, SubschemaKey, SubschemaPlace, join, references, subschemas,
};
use super::{SchemaLimits, modern, place_validator};

/// Sub-schemas that are followed for one part of a value.
const PLACES_MAX: usize = 1_024;
/// The annotation.
const MARK: &str = "x-sensitivity";

/// What is said about one part of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Sensitivity {
    /// Nothing.
    #[default]
    Unsaid,
    /// It may be seen, whatever its name sounds like.
    Open,
    /// It must not be seen.
    Sensitive,
}

impl Sensitivity {
    /// What an annotation says; `none`, `public`, `false` and `null` say that the part is open.
    fn of(annotation: Option<&Value>) -> Self {
        match annotation {
            None => Self::Unsaid,
            Some(Value::Null | Value::Bool(false)) => Self::Open,
            Some(Value::String(level))
                if level.eq_ignore_ascii_case("none") || level.eq_ignore_ascii_case("public") =>
            {
                Self::Open
            }
            Some(_) => Self::Sensitive,
        }
    }
}

/// The marks of one schema, ready to be asked.
#[derive(Debug)]
pub struct SchemaMarks {
    places: Vec<MarkedPlace>,
    /// The places that describe the whole value: one for each way in which the schema is read.
    roots: Vec<usize>,
}

/// How a schema is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// As values are checked by it: translated, if it is of an older draft.
    Validated,
    /// With what its draft ignores (SENS-3). A reference that leads nowhere now leads somewhere in the other reading.
    WithIgnored,
}

/// One part of a value, as far as the marks of its schema are concerned.
#[derive(Debug, Clone)]
pub struct PartMarks<'m> {
    marks: &'m SchemaMarks,
    /// The sub-schemas that describe the part and from which a mark can be reached.
    places: Vec<usize>,
    /// SENS-2: there were too many of them.
    overfull: bool,
}

/// One sub-schema: its mark, and where it leads. A way to nowhere that matters is `None`; that it is there still counts.
#[derive(Debug, Default)]
struct MarkedPlace {
    says: Sensitivity,
    /// Of the same part: branches and references, if a mark can be reached through them.
    here: Vec<usize>,
    /// Of the same part, and they describe it for sure: `allOf` and references.
    surely: Vec<usize>,
    properties: HashMap<String, Option<usize>>,
    patterns: Vec<NamePattern>,
    additional: Option<Leads>,
    unevaluated: Option<Leads>,
    first_items: Vec<Option<usize>>,
    items: Option<Leads>,
    unevaluated_items: Option<Leads>,
    contains: Option<usize>,
    names: Option<usize>,
    content: Option<usize>,
}

/// Where a keyword that is there leads; nowhere that matters if `None`.
#[derive(Debug, Clone, Copy)]
struct Leads(Option<usize>);

/// Names of members that a sub-schema describes.
#[derive(Debug)]
struct NamePattern {
    /// None if it cannot be compiled: nobody knows then which names it fits.
    fits: Option<Validator>,
    to: Option<usize>,
}

impl SchemaMarks {
    /// The marks of a schema; `None` if it has none, as most do.
    pub fn of(schema: &Value) -> Option<Self> {
        if !mentions(schema) {
            return None;
        }
        let mut marks = Self { places: Vec::new(), roots: Vec::new() };
        let schema = modern(schema);
        marks.read(&schema, Reading::Validated);
        if let Some(schema) = with_ignored(&schema) {
            marks.read(&schema, Reading::WithIgnored);
        }
        (!marks.roots.is_empty()).then_some(marks)
    }

    /// Adds the places of a schema, if a mark can be reached from its root.
    fn read(&mut self, schema: &Value, reading: Reading) {
        let document = SchemaDocument::new(schema);
        let positions = document.positions();
        let first = self.places.len();
        let index: HashMap<&str, usize> =
            positions.iter().enumerate().map(|(number, (pointer, _))| (pointer.as_str(), number)).collect();
        let edges: Vec<Vec<Edge<'_>>> =
            positions.iter().map(|(pointer, schema)| edges(&document, &index, pointer, schema)).collect();
        let says: Vec<Sensitivity> =
            positions.iter().zip(&edges).map(|((_, schema), edges)| said(schema, edges, reading)).collect();
        let matters = reaching(&says, &edges);
        let Some(root) = index.get("").copied().filter(|root| matters.get(*root) == Some(&true)) else { return };
        self.roots.push(first + root);
        let places = says.iter().zip(edges).map(|(says, edges)| MarkedPlace::new(*says, edges, &matters, first));
        self.places.extend(places);
    }

    /// The whole value.
    pub fn whole(&self) -> PartMarks<'_> {
        PartMarks::closed(self, self.roots.clone(), false)
    }

    /// Every place that describes a part for sure if `place` does: itself, and what it refers to.
    fn sure(&self, place: usize) -> impl Iterator<Item = &MarkedPlace> {
        let mut seen = HashSet::from([place]);
        let mut work = vec![place];
        std::iter::from_fn(move || {
            let next = self.places.get(work.pop()?)?;
            work.extend(next.surely.iter().copied().filter(|to| seen.insert(*to)));
            Some(next)
        })
    }
}

impl<'m> PartMarks<'m> {
    /// The places and everything they refer to on the same part.
    fn closed(marks: &'m SchemaMarks, mut waiting: Vec<usize>, overfull: bool) -> Self {
        let mut part = Self { marks, places: Vec::new(), overfull };
        let mut seen = HashSet::new();
        while let Some(number) = waiting.pop() {
            if !seen.insert(number) {
                continue;
            }
            if part.places.len() >= PLACES_MAX {
                part.overfull = true;
                break;
            }
            waiting.extend(marks.places.get(number).into_iter().flat_map(|place| &place.here));
            part.places.push(number);
        }
        part
    }

    fn next(&self, mut step: impl FnMut(usize, &'m MarkedPlace, &mut Vec<usize>)) -> Self {
        let mut found = Vec::new();
        for number in &self.places {
            if let Some(place) = self.marks.places.get(*number) {
                step(*number, place, &mut found);
            }
        }
        // What is below of a part that is marked is not asked about, but whoever does hears the same.
        Self::closed(self.marks, found, self.overfull)
    }

    /// What is said about the part.
    pub fn says(&self) -> Sensitivity {
        if self.overfull {
            return Sensitivity::Sensitive;
        }
        self.places.iter().filter_map(|number| Some(self.marks.places.get(*number)?.says)).max().unwrap_or_default()
    }

    /// Can anything be said about the part or what is in it?
    pub fn is_silent(&self) -> bool {
        self.places.is_empty() && !self.overfull
    }

    /// The member with this name.
    #[must_use]
    pub fn member(&self, name: &str) -> Self {
        // Made only where a pattern is asked.
        let mut text = None;
        self.next(|number, place, found| {
            let declared = place.describe(name, &mut text, |to| found.extend(to));
            if declared {
                return;
            }
            if let Some(Leads(to)) = place.additional {
                found.extend(to);
            } else if let Some(Leads(Some(to))) = place.unevaluated {
                let is_evaluated = self.marks.sure(number).skip(1).any(|other| {
                    other.additional.is_some() || other.unevaluated.is_some() || other.describe(name, &mut text, |_| {})
                });
                if !is_evaluated {
                    found.push(to);
                }
            }
        })
    }

    /// The item of a list at this index.
    #[must_use]
    pub fn item(&self, index: usize) -> Self {
        self.next(|number, place, found| {
            found.extend(place.contains);
            if let Some(to) = place.first_items.get(index) {
                found.extend(to);
            } else if let Some(Leads(to)) = place.items {
                found.extend(to);
            } else if let Some(Leads(Some(to))) = place.unevaluated_items {
                let is_evaluated = self.marks.sure(number).skip(1).any(|other| {
                    other.items.is_some() || other.unevaluated_items.is_some() || index < other.first_items.len()
                });
                if !is_evaluated {
                    found.push(to);
                }
            }
        })
    }

    /// The part under one token of a path, which is a name or an index.
    pub(super) fn step(&self, token: &str) -> Self {
        let mut next = self.member(token);
        if let Ok(index) = token.parse() {
            let item = self.item(index);
            next.overfull |= item.overfull;
            next.places.extend(item.places);
        }
        next
    }

    /// The document that stands in a text.
    #[must_use]
    pub fn content(&self) -> Self {
        self.next(|_, place, found| found.extend(place.content))
    }

    /// The names of members.
    #[must_use]
    pub fn names(&self) -> Self {
        self.next(|_, place, found| found.extend(place.names))
    }
}

impl MarkedPlace {
    /// `first` is the number of the first place of the same schema.
    fn new(says: Sensitivity, edges: Vec<Edge<'_>>, matters: &[bool], first: usize) -> Self {
        let limits = SchemaLimits::default();
        let mut place = Self { says, ..Self::default() };
        for Edge { way, to } in edges {
            let kept = matters.get(to).copied().unwrap_or_default().then(|| first + to);
            match way {
                Way::Maybe => place.here.extend(kept),
                Way::Surely => {
                    place.here.extend(kept);
                    place.surely.push(first + to);
                }
                Way::Property(name) => drop(place.properties.insert(name.to_owned(), kept)),
                Way::Pattern(pattern) => {
                    let fits = place_validator(&json!({ "pattern": pattern }), &limits).ok();
                    place.patterns.push(NamePattern { fits, to: kept });
                }
                Way::Additional => place.additional = Some(Leads(kept)),
                Way::Unevaluated => place.unevaluated = Some(Leads(kept)),
                Way::FirstItem(index) => {
                    if place.first_items.len() <= index {
                        place.first_items.resize(index + 1, None);
                    }
                    place.first_items.get_mut(index).into_iter().for_each(|at| *at = kept);
                }
                Way::Items => place.items = Some(Leads(kept)),
                Way::UnevaluatedItems => place.unevaluated_items = Some(Leads(kept)),
                Way::Contains => place.contains = kept,
                Way::Names => place.names = kept,
                Way::Content => place.content = kept,
                Way::Nowhere => {}
            }
        }
        place
    }

    /// Hands on where `properties` and `patternProperties` lead from a member; says whether they describe it for sure.
    fn describe(&self, name: &str, text: &mut Option<Value>, mut found: impl FnMut(Option<usize>)) -> bool {
        let own = self.properties.get(name);
        own.into_iter().for_each(|to| found(*to));
        let mut declared = own.is_some();
        for NamePattern { fits, to } in &self.patterns {
            let text = text.get_or_insert_with(|| Value::String(name.to_owned()));
            let fits = fits.as_ref().map(|pattern| pattern.is_valid(text));
            if fits != Some(false) {
                found(*to);
            }
            declared |= fits == Some(true);
        }
        declared
    }
}

// -------------------------------------------------------------------------------------------------------- edges

/// How a sub-schema is reached from another.
#[derive(Debug, Clone, Copy)]
enum Way<'a> {
    Maybe,
    Surely,
    Property(&'a str),
    Pattern(&'a str),
    Additional,
    Unevaluated,
    FirstItem(usize),
    Items,
    UnevaluatedItems,
    Contains,
    Names,
    Content,
    /// A reference that cannot be followed.
    Nowhere,
}

#[derive(Debug, Clone, Copy)]
struct Edge<'a> {
    way: Way<'a>,
    to: usize,
}

fn edges<'a>(
    document: &SchemaDocument<'_>,
    index: &HashMap<&str, usize>,
    pointer: &str,
    schema: &'a Value,
) -> Vec<Edge<'a>> {
    let Value::Object(map) = schema else { return Vec::new() };
    let mut edges: Vec<Edge<'a>> = Vec::new();
    for sub in subschemas(map) {
        // Denied twice is demanded: that is how `contains` of 2019-09 is said in our words.
        if sub.keyword == "not"
            && let Some(to) = index.get(join(&sub.pointer(pointer), "not").as_str())
        {
            edges.push(Edge { way: Way::Maybe, to: *to });
        }
        if let (Some(way), Some(to)) = (way(&sub), index.get(sub.pointer(pointer).as_str())) {
            edges.push(Edge { way, to: *to });
        }
    }
    for (_, reference) in references(map) {
        match document.resolve(reference) {
            ReferenceTarget::Local(target, _) => match index.get(target.as_str()) {
                Some(to) => edges.push(Edge { way: Way::Surely, to: *to }),
                None => edges.push(Edge { way: Way::Nowhere, to: usize::MAX }),
            },
            // It marks nothing.
            ReferenceTarget::Meta => {}
            ReferenceTarget::Missing | ReferenceTarget::Remote => {
                edges.push(Edge { way: Way::Nowhere, to: usize::MAX })
            }
        }
    }
    edges
}

fn way<'a>(sub: &Subschema<'a>) -> Option<Way<'a>> {
    Some(match (sub.place, sub.keyword, sub.key) {
        (SubschemaPlace::Here, "allOf", _) => Way::Surely,
        (SubschemaPlace::Here, _, _) | (SubschemaPlace::Question, "if", _) => Way::Maybe,
        (_, "properties", SubschemaKey::Name(name)) => Way::Property(name),
        (_, "patternProperties", SubschemaKey::Name(pattern)) => Way::Pattern(pattern),
        (_, "additionalProperties", _) => Way::Additional,
        (_, "unevaluatedProperties", _) => Way::Unevaluated,
        (_, "prefixItems", SubschemaKey::Index(index)) => Way::FirstItem(index),
        (_, "items", _) => Way::Items,
        (_, "unevaluatedItems", _) => Way::UnevaluatedItems,
        (SubschemaPlace::ChildQuestion, _, _) => Way::Contains,
        (SubschemaPlace::Name, _, _) => Way::Names,
        (_, "contentSchema", _) => Way::Content,
        // `not`, and what is only kept for reference.
        _ => return None,
    })
}

/// SENS-2.
fn said(schema: &Value, edges: &[Edge<'_>], reading: Reading) -> Sensitivity {
    if reading == Reading::Validated && edges.iter().any(|edge| matches!(edge.way, Way::Nowhere)) {
        return Sensitivity::Sensitive;
    }
    Sensitivity::of(schema.get(MARK))
}

/// From which places a mark can be reached.
fn reaching(says: &[Sensitivity], edges: &[Vec<Edge<'_>>]) -> Vec<bool> {
    let mut from: Vec<Vec<usize>> = vec![Vec::new(); says.len()];
    for (number, edges) in edges.iter().enumerate() {
        for edge in edges {
            from.get_mut(edge.to).into_iter().for_each(|list| list.push(number));
        }
    }
    let mut matters = vec![false; says.len()];
    let mut work: Vec<usize> =
        (0..says.len()).filter(|number| says.get(*number) != Some(&Sensitivity::Unsaid)).collect();
    while let Some(number) = work.pop() {
        if matters.get(number) != Some(&false) {
            continue;
        }
        matters.get_mut(number).into_iter().for_each(|it| *it = true);
        work.extend(from.get(number).into_iter().flatten());
    }
    matters
}

/// Is there a mark anywhere, even where none counts?
pub(super) fn mentions(schema: &Value) -> bool {
    let in_map = |map: &Map<String, Value>| map.contains_key(MARK) || map.values().any(mentions);
    match schema {
        Value::Object(map) => in_map(map),
        Value::Array(items) => items.iter().any(mentions),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::schema::{Coercion, CompiledSchema};

    fn part<'m>(marks: &'m SchemaMarks, path: &[&str]) -> PartMarks<'m> {
        path.iter().fold(marks.whole(), |part, token| part.step(token))
    }

    #[test]
    fn a_mark_counts_whichever_way_leads_to_it() {
        let secret = json!({ "x-sensitivity": "secret" });
        let chain: Map<String, Value> = (0..50)
            .map(|step| (format!("c{step}"), json!({ "$ref": format!("#/$defs/c{}", step + 1) })))
            .chain([("c50".to_owned(), secret.clone())])
            .collect();
        let many: Vec<Value> = (0..500).map(|number| json!({ "const": number })).chain([secret.clone()]).collect();
        for (schema, hidden, shown) in [
            (
                json!({ "properties": { "a": { "$ref": "#p" } }, "$defs": { "p": { "$anchor": "p", "x-sensitivity": "secret" } } }),
                vec!["a"],
                vec!["b"],
            ),
            (
                json!({ "properties": { "a": { "$dynamicRef": "#d" } }, "$defs": { "d": { "$dynamicAnchor": "d", "x-sensitivity": true } } }),
                vec!["a"],
                vec![],
            ),
            (
                json!({ "properties": { "a": { "$ref": "#/$defs/x%20y" } }, "$defs": { "x y": secret } }),
                vec!["a"],
                vec!["b"],
            ),
            (
                json!({ "$id": "https://example.com/s.json", "properties": { "a": { "$ref": "s.json#/$defs/p" } }, "$defs": { "p": secret } }),
                vec!["a"],
                vec!["b"],
            ),
            (json!({ "properties": { "a": { "$ref": "#/$defs/c0" } }, "$defs": chain }), vec!["a"], vec!["b"]),
            (json!({ "properties": { "a": { "anyOf": many } } }), vec!["a"], vec!["b"]),
            (
                json!({ "properties": { "x-a": {} }, "patternProperties": { "^x-": secret } }),
                vec!["x-a", "x-b"],
                vec!["a"],
            ),
            (
                json!({ "properties": { "b": {} }, "patternProperties": { "^x-": {} }, "additionalProperties": secret }),
                vec!["a"],
                vec!["b", "x-a"],
            ),
            (json!({ "dependentSchemas": { "b": { "properties": { "a": secret } } } }), vec!["a"], vec!["b"]),
            (
                json!({ "if": { "properties": { "a": secret } }, "then": { "properties": { "c": secret } } }),
                vec!["a", "c"],
                vec!["b"],
            ),
            (json!({ "properties": { "b": {} }, "unevaluatedProperties": secret }), vec!["a"], vec!["b"]),
            (
                json!({ "$ref": "#/$defs/p", "unevaluatedProperties": secret, "$defs": { "p": { "properties": { "b": {} } } } }),
                vec!["a"],
                vec!["b"],
            ),
            (
                json!({ "anyOf": [{ "properties": { "a": {} } }, {}], "unevaluatedProperties": secret }),
                vec!["a"],
                vec![],
            ),
            (json!({ "prefixItems": [{}, secret], "items": {} }), vec!["1"], vec!["0", "2"]),
            (json!({ "prefixItems": [{}], "items": secret }), vec!["1", "9"], vec!["0"]),
            (json!({ "prefixItems": [{}], "unevaluatedItems": secret }), vec!["1"], vec!["0"]),
            (json!({ "contains": secret }), vec!["0", "7"], vec!["a"]),
            (json!({ "not": { "properties": { "a": secret } }, "properties": { "b": secret } }), vec!["b"], vec!["a"]),
            (json!({ "properties": { "next": { "$ref": "#" }, "a": secret } }), vec!["a"], vec!["next"]),
        ] {
            let marks = SchemaMarks::of(&schema).unwrap();
            for name in hidden {
                assert_eq!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
            }
            for name in shown {
                assert_ne!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
            }
        }
        let nested = json!({ "properties": { "next": { "$ref": "#" }, "a": secret } });
        let marks = SchemaMarks::of(&nested).unwrap();
        assert_eq!(part(&marks, &["next", "next", "next", "a"]).says(), Sensitivity::Sensitive);
    }

    #[test]
    fn schemas_of_older_drafts_mark_what_they_mean_and_what_they_ignore() {
        let secret = json!({ "x-sensitivity": "secret" });
        let (four, seven) = ("http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#");
        let nineteen = "https://json-schema.org/draft/2019-09/schema";
        for (schema, hidden, shown) in [
            (json!({ "items": [{}, secret], "additionalItems": {} }), vec!["1"], vec!["0", "2"]),
            (json!({ "$schema": seven, "items": [{}], "additionalItems": secret }), vec!["1", "2"], vec!["0"]),
            (
                json!({ "$schema": seven, "dependencies": { "b": { "properties": { "a": secret } }, "c": ["b"] } }),
                vec!["a"],
                vec!["b", "c"],
            ),
            (
                json!({ "$schema": seven, "properties": { "a": { "$ref": "#p" }, "b": { "$ref": "#q" } },
                    "definitions": { "p": { "$id": "#p", "x-sensitivity": "secret" }, "q": { "$id": "#q" } } }),
                vec!["a"],
                vec!["b"],
            ),
            (
                json!({ "$schema": four, "properties": { "a": { "$ref": "#/dependencies/x/properties/y" }, "b": {} },
                    "dependencies": { "x": { "properties": { "y": secret } } } }),
                vec!["a", "y"],
                vec!["b", "x"],
            ),
            (
                json!({ "$schema": nineteen, "properties": { "again": { "$recursiveRef": "#" }, "a": secret } }),
                vec!["a"],
                vec!["again"],
            ),
            (json!({ "$schema": nineteen, "contains": secret, "unevaluatedItems": {} }), vec!["0", "7"], vec!["a"]),
            (
                json!({ "$schema": nineteen, "contains": secret, "unevaluatedItems": {}, "not": { "maxItems": 0 } }),
                vec!["0", "7"],
                vec!["a"],
            ),
            // Ignored by their drafts.
            (
                json!({ "$schema": seven, "$ref": "#/definitions/p", "properties": { "a": secret },
                    "definitions": { "p": { "$id": "#p", "properties": { "b": {}, "c": { "$ref": "#p" } } } } }),
                vec!["a"],
                vec!["b", "c"],
            ),
            (json!({ "$schema": four, "if": {}, "then": { "properties": { "a": secret } } }), vec!["a"], vec!["b"]),
        ] {
            // As it was written, and as it is kept if it comes from a server.
            for schema in [schema.clone(), modern(&schema).into_owned()] {
                let marks = SchemaMarks::of(&schema).unwrap_or_else(|| panic!("no marks: {schema}"));
                for name in &hidden {
                    assert_eq!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
                }
                for name in &shown {
                    assert_ne!(part(&marks, &[name]).says(), Sensitivity::Sensitive, "{name}: {schema}");
                }
            }
        }
    }

    #[test]
    fn a_refusal_quotes_nothing_marked_even_under_a_pattern_that_is_not_checked() {
        let schema = json!({ "type": "object", "properties": { "pin": { "type": "integer" }, "note": { "type": "integer" } },
            "patternProperties": { "^(?!note)": { "x-sensitivity": "secret" } } });
        let compiled = CompiledSchema::input(&schema, &SchemaLimits::default(), Coercion::Off).unwrap();
        assert_eq!(compiled.unchecked().len(), 1);
        let refused = |value: Value| compiled.prepare(value).unwrap_err().violations.remove(0).message;
        assert!(!refused(json!({ "pin": "tail9" })).contains("tail9"));
        assert!(refused(json!({ "note": "tail9" })).contains("tail9"));
    }

    #[test]
    fn no_bound_and_no_broken_reference_lets_a_part_pass() {
        let wide: Vec<Value> =
            (0..=PLACES_MAX).map(|_| json!({ "properties": { "b": { "x-sensitivity": "none" } } })).collect();
        let marks = SchemaMarks::of(&json!({ "anyOf": wide })).unwrap();
        assert_eq!(marks.whole().says(), Sensitivity::Sensitive);
        assert_eq!(part(&marks, &["b", "c"]).says(), Sensitivity::Sensitive);
        let broken = json!({ "properties": { "a": { "$ref": "#/nowhere" }, "b": { "x-sensitivity": "none" } } });
        let marks = SchemaMarks::of(&broken).unwrap();
        assert_eq!(part(&marks, &["a"]).says(), Sensitivity::Sensitive);
        assert_eq!(part(&marks, &["b"]).says(), Sensitivity::Open);
    }

    #[test]
    fn a_schema_without_marks_that_count_has_none() {
        for schema in [
            json!({ "properties": { "a": {} } }),
            json!({ "$defs": { "p": { "x-sensitivity": "secret" } } }),
            json!({ "default": { "x-sensitivity": "secret" } }),
            json!(true),
        ] {
            assert!(SchemaMarks::of(&schema).is_none(), "{schema}");
        }
    }

    /// Schemas of a few keywords, with marks here and there.
    fn schemas() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({})),
            Just(json!({ "x-sensitivity": "secret" })),
            Just(json!({ "type": "string" })),
            Just(json!({ "type": "string", "x-sensitivity": "pii" })),
            Just(json!({ "$ref": "#/$defs/p" })),
            Just(json!({ "$ref": "#q" })),
            Just(json!({ "$dynamicRef": "#r" })),
        ];
        leaf.prop_recursive(3, 24, 3, |inner| {
            let list = prop::collection::vec(inner.clone(), 1..3);
            let named = prop::collection::hash_map("[abx]", inner.clone(), 1..3);
            prop_oneof![
                named.clone().prop_map(|named| json!({ "properties": named })),
                (named.clone(), inner.clone(), inner.clone()).prop_map(|(named, pattern, other)| {
                    json!({ "properties": named, "patternProperties": { "^[ax]": pattern }, "additionalProperties": other })
                }),
                (list.clone(), inner.clone()).prop_map(|(list, rest)| json!({ "anyOf": list, "unevaluatedProperties": rest })),
                (list.clone(), named.clone(), inner.clone()).prop_map(|(list, named, rest)| {
                    json!({ "allOf": list, "properties": named, "unevaluatedProperties": rest })
                }),
                list.clone().prop_map(|list| json!({ "allOf": list })),
                list.clone().prop_map(|list| json!({ "oneOf": list })),
                (list, inner.clone(), inner.clone()).prop_map(|(list, items, one)| {
                    json!({ "prefixItems": list, "items": items, "contains": one })
                }),
                (inner.clone(), inner.clone(), inner.clone()).prop_map(|(a, b, c)| json!({ "if": a, "then": b, "else": c })),
                (named, inner).prop_map(|(named, items)| json!({ "dependentSchemas": named, "unevaluatedItems": items })),
            ]
        })
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!("word")), Just(json!(7))];
        leaf.prop_recursive(3, 16, 3, |inner| {
            prop_oneof![
                prop::collection::hash_map("[abx]", inner.clone(), 0..4).prop_map(|members| json!(members)),
                prop::collection::vec(inner, 0..4).prop_map(Value::from),
            ]
        })
    }

    /// The places of sub-schemas with a mark that a value satisfies, by the validator's own account of what it went through.
    fn annotated(schema: &Value, value: &Value) -> Vec<String> {
        let validator = place_validator(schema, &SchemaLimits::default()).unwrap();
        if !validator.is_valid(value) {
            return Vec::new();
        }
        let evaluation = validator.evaluate(value);
        let all = evaluation.iter_annotations();
        let marked = all.filter(|entry| entry.annotations.value().get(MARK).is_some());
        marked.map(|entry| entry.instance_location.as_str().to_owned()).collect()
    }

    #[test]
    fn the_validator_tells_which_marks_it_met() {
        let schema = json!({ "properties": { "a": { "$ref": "#/$defs/p" }, "b": { "anyOf": [{ "type": "string", "x-sensitivity": 1 }, {}] } },
            "$defs": { "p": { "x-sensitivity": "secret" } } });
        assert_eq!(annotated(&schema, &json!({ "a": 1, "b": 2 })), ["/a"]);
        assert_eq!(annotated(&schema, &json!({ "b": "word" })), ["/b"]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn whatever_part_the_validator_annotates_with_a_mark_is_marked(p in schemas(), q in schemas(), schema in schemas(), value in values()) {
            let mut schema = schema;
            let anchored = |schema: &Value, keyword: &str, name: &str| {
                let mut schema = schema.clone();
                schema[keyword] = json!(name);
                schema
            };
            schema["$defs"] = json!({ "p": p, "q": anchored(&q, "$anchor", "q"),
                "r": { "$dynamicAnchor": "r", "x-sensitivity": "secret" } });
            // References back to themselves are refused.
            if CompiledSchema::output(&schema, &SchemaLimits::default()).is_err() {
                return Ok(());
            }
            let marks = SchemaMarks::of(&schema);
            for path in annotated(&schema, &value) {
                let tokens: Vec<&str> = path.split('/').skip(1).collect();
                let mut parts = (0..=tokens.len()).map(|end| part(marks.as_ref().unwrap(), &tokens[..end]));
                prop_assert!(parts.any(|part| part.says() == Sensitivity::Sensitive), "{path} of {value} by {schema}");
            }
        }
    }
}
