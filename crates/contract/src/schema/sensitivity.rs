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
mod tests;
