//! The annotated places of a schema, and the walk over the texts of a value that are in them.
//!
//! A place is one schema object. A value is described by several at once (`allOf`, branches, references), so the walk
//! carries a set of places down the value, as a finite automaton does; recursive schemas are cycles in the graph and the
//! value bounds the walk. Places that lead to no annotation are cut off when the graph is made.
//!
//! Invariants
//! - GPLACE-1: every place that may describe a value is in its set. Branches count whether they hold or not (GUARD-4).
//! - GPLACE-2: a guard reaches down: once a place has one, all texts below have it, undeclared property names included.
//!
//! Not here: `if`, `not`, `contains` and `propertyNames`, which ask and do not describe. `annotation` refuses guards there.

use std::collections::{HashMap, HashSet};

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use super::GuardSet;
use super::annotation::guards_of;
use crate::schema::defaults::unconditional;
use crate::schema::document::{SchemaDocument, Subschema, SubschemaKey, SubschemaPlace as Relation, join, subschemas};
use crate::schema::modern;

/// Largest compiled pattern; what does not fit counts as matching every name.
const PATTERN_COMPILED_BYTES_MAX: usize = 1 << 20;

/// The graph; empty if nothing is annotated. The first place is the whole value's.
#[derive(Debug, Default)]
pub(super) struct Places {
    places: Vec<Place>,
}

/// A text in an annotated place.
#[derive(Debug)]
pub(super) struct Found<'v> {
    pub(super) path: &'v str,
    pub(super) text: &'v str,
    pub(super) guards: GuardSet,
    /// A property name of the object at `path`, not a value.
    pub(super) is_name: bool,
}

#[derive(Debug, Default)]
struct Place {
    guards: GuardSet,
    /// The other places that describe the same value.
    with: Vec<usize>,
    /// Declared names, also those that lead nowhere: they are not the rest.
    properties: HashMap<String, Option<usize>>,
    patterns: Vec<(Pattern, Option<usize>)>,
    rest: Vec<Rest>,
    prefix: Vec<Option<usize>>,
    /// For the elements from this index on.
    items: Vec<(usize, usize)>,
}

/// `additionalProperties` and `unevaluatedProperties`: every name but these.
#[derive(Debug)]
struct Rest {
    names: HashSet<String>,
    patterns: Vec<Pattern>,
    place: usize,
}

/// A pattern that cannot be compiled is `None` and matches: too strict, never too lax.
#[derive(Debug, Clone)]
struct Pattern(Option<Regex>);

impl Pattern {
    fn new(pattern: &str) -> Self {
        Self(RegexBuilder::new(pattern).size_limit(PATTERN_COMPILED_BYTES_MAX).build().ok())
    }

    fn matches(&self, name: &str) -> bool {
        self.0.as_ref().is_none_or(|regex| regex.is_match(name))
    }

    /// For the exceptions of the rest, where being strict means not to match.
    fn surely_matches(&self, name: &str) -> bool {
        self.0.as_ref().is_some_and(|regex| regex.is_match(name))
    }
}

// ------------------------------------------------------------------------------------------------------------- walk

impl Places {
    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Shows `visit` every text in an annotated place. As deep as the value, and that is bounded by its reader.
    pub(super) fn walk(&self, value: &Value, visit: &mut dyn FnMut(&Found<'_>)) {
        if !self.is_empty() {
            self.enter(value, &[0], GuardSet::default(), &mut String::new(), visit);
        }
    }

    fn enter(
        &self,
        value: &Value,
        entered: &[usize],
        inherited: GuardSet,
        path: &mut String,
        visit: &mut dyn FnMut(&Found<'_>),
    ) {
        let here = self.described_by(entered);
        let guards = here.iter().fold(inherited, |sum, place| sum | place.guards);
        if here.is_empty() && guards.is_empty() {
            return;
        }
        match value {
            Value::String(text) if !guards.is_empty() => visit(&Found { path, text, guards, is_name: false }),
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    let next = sorted(here.iter().flat_map(|place| place.at_index(index)));
                    self.descend(item, &index.to_string(), &next, guards, path, visit);
                }
            }
            Value::Object(members) => {
                for (name, member) in members {
                    let declared = here.iter().any(|place| place.properties.contains_key(name));
                    if !guards.is_empty() && !declared {
                        visit(&Found { path, text: name, guards, is_name: true });
                    }
                    let next = sorted(here.iter().flat_map(|place| place.at_name(name)));
                    self.descend(member, name, &next, guards, path, visit);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn descend(
        &self,
        value: &Value,
        step: &str,
        next: &[usize],
        guards: GuardSet,
        path: &mut String,
        visit: &mut dyn FnMut(&Found<'_>),
    ) {
        if next.is_empty() && guards.is_empty() {
            return;
        }
        let length = path.len();
        path.push_str(&join("", step));
        self.enter(value, next, guards, path, visit);
        path.truncate(length);
    }

    fn described_by(&self, entered: &[usize]) -> Vec<&Place> {
        let with =
            entered.iter().filter_map(|index| self.places.get(*index)).flat_map(|place| place.with.iter().copied());
        sorted(entered.iter().copied().chain(with)).into_iter().filter_map(|index| self.places.get(index)).collect()
    }
}

impl Place {
    fn at_name(&self, name: &str) -> impl Iterator<Item = usize> {
        let declared = self.properties.get(name).copied().flatten();
        let matched =
            self.patterns.iter().filter(move |(pattern, _)| pattern.matches(name)).filter_map(|(_, place)| *place);
        let rest = self.rest.iter().filter(move |rest| rest.covers(name)).map(|rest| rest.place);
        declared.into_iter().chain(matched).chain(rest)
    }

    fn at_index(&self, index: usize) -> impl Iterator<Item = usize> {
        let first = self.prefix.get(index).copied().flatten();
        first.into_iter().chain(self.items.iter().filter(move |(from, _)| index >= *from).map(|(_, place)| *place))
    }
}

impl Rest {
    fn covers(&self, name: &str) -> bool {
        !self.names.contains(name) && !self.patterns.iter().any(|pattern| pattern.surely_matches(name))
    }
}

fn sorted(indices: impl Iterator<Item = usize>) -> Vec<usize> {
    let mut indices: Vec<usize> = indices.collect();
    indices.sort_unstable();
    indices.dedup();
    indices
}

// ------------------------------------------------------------------------------------------------------------- plan

impl Places {
    /// Reads the graph off a schema.
    pub(super) fn plan(schema: &Value) -> Self {
        let schema = modern(schema);
        let document = SchemaDocument::new(&schema);
        let annotated = document.positions().iter().any(|(_, schema)| !guards_of(schema).is_empty());
        if !annotated {
            return Self::default();
        }
        let mut planner = Planner::of(&document);
        planner.prune();
        let useful = planner.places.first().is_some_and(|root| !root.leads_nowhere());
        if useful { Self { places: planner.places } } else { Self::default() }
    }
}

/// The pointers of the schema objects that describe values, and so of those where an annotation has an effect.
pub(super) fn describing(document: &SchemaDocument<'_>) -> HashSet<String> {
    Planner::of(document).known.into_keys().collect()
}

impl Place {
    fn leads_nowhere(&self) -> bool {
        self.guards.is_empty() && self.with.is_empty() && self.targets().next().is_none()
    }

    fn targets(&self) -> impl Iterator<Item = usize> {
        let properties = self.properties.values().chain(self.prefix.iter()).filter_map(|place| *place);
        let patterns = self.patterns.iter().filter_map(|(_, place)| *place);
        let rest = self.rest.iter().map(|rest| rest.place);
        properties.chain(patterns).chain(rest).chain(self.items.iter().map(|(_, place)| *place))
    }
}

struct Planner<'d, 'a> {
    document: &'d SchemaDocument<'a>,
    places: Vec<Place>,
    known: HashMap<String, usize>,
    work: Vec<(usize, String, &'a Value)>,
}

impl<'d, 'a> Planner<'d, 'a> {
    fn of(document: &'d SchemaDocument<'a>) -> Self {
        let mut planner = Self { document, places: Vec::new(), known: HashMap::new(), work: Vec::new() };
        planner.place(String::new(), document.root());
        while let Some((index, pointer, schema)) = planner.work.pop() {
            let place = planner.describe(index, &pointer, schema);
            if let Some(slot) = planner.places.get_mut(index) {
                *slot = place;
            }
        }
        planner
    }

    /// The index of a schema's place, which is queued if it is new.
    fn place(&mut self, pointer: String, schema: &'a Value) -> usize {
        if let Some(index) = self.known.get(&pointer) {
            return *index;
        }
        let index = self.places.len();
        self.places.push(Place::default());
        self.work.push((index, pointer.clone(), schema));
        self.known.insert(pointer, index);
        index
    }

    fn describe(&mut self, index: usize, pointer: &str, schema: &'a Value) -> Place {
        let mut place = Place { guards: guards_of(schema), ..Place::default() };
        let Value::Object(map) = schema else { return place };
        for (at, _) in self.document.in_place(pointer, schema).0 {
            if let Some(member) = self.document.root().pointer(&at) {
                place.with.push(self.place(at, member));
            }
        }
        place.with.retain(|other| *other != index);
        for sub in subschemas(map).into_iter().filter(|sub| sub.place == Relation::Child) {
            self.child(&mut place, pointer, schema, &sub);
        }
        place
    }

    fn child(&mut self, place: &mut Place, pointer: &str, schema: &'a Value, sub: &Subschema<'a>) {
        let below = self.place(sub.pointer(pointer), sub.schema);
        match (sub.keyword, sub.key) {
            ("properties", SubschemaKey::Name(name)) => {
                place.properties.insert(name.to_owned(), Some(below));
            }
            ("patternProperties", SubschemaKey::Name(pattern)) => {
                place.patterns.push((Pattern::new(pattern), Some(below)))
            }
            ("additionalProperties", _) => {
                let own: Vec<&Map<String, Value>> = schema.as_object().into_iter().collect();
                place.rest.push(all_but(&own, below));
            }
            ("unevaluatedProperties", _) => {
                let certain = unconditional(self.document, pointer, schema);
                place.rest.push(all_but(&certain.iter().map(|(_, map)| *map).collect::<Vec<_>>(), below));
            }
            ("prefixItems", SubschemaKey::Index(index)) => {
                if place.prefix.len() <= index {
                    place.prefix.resize(index + 1, None);
                }
                if let Some(slot) = place.prefix.get_mut(index) {
                    *slot = Some(below);
                }
            }
            ("items", _) => place.items.push((prefix_length(schema), below)),
            // Which elements are left over depends on branches: all of them count.
            _ => place.items.push((0, below)),
        }
    }

    /// Cuts off what leads to no annotation.
    fn prune(&mut self) {
        let mut sources: Vec<Vec<usize>> = vec![Vec::new(); self.places.len()];
        for (index, place) in self.places.iter().enumerate() {
            for target in place.targets().chain(place.with.iter().copied()) {
                if let Some(list) = sources.get_mut(target) {
                    list.push(index);
                }
            }
        }
        let mut useful: HashSet<usize> = HashSet::new();
        let mut work: Vec<usize> = self
            .places
            .iter()
            .enumerate()
            .filter(|(_, place)| !place.guards.is_empty())
            .map(|(index, _)| index)
            .collect();
        while let Some(index) = work.pop() {
            if useful.insert(index) {
                work.extend(sources.get(index).into_iter().flatten());
            }
        }
        let keep = |place: &Option<usize>| place.filter(|index| useful.contains(index));
        for place in &mut self.places {
            place.with.retain(|index| useful.contains(index));
            place.properties.values_mut().for_each(|target| *target = keep(target));
            place.prefix.iter_mut().for_each(|target| *target = keep(target));
            place.patterns.retain(|(_, target)| keep(target).is_some());
            place.rest.retain(|rest| useful.contains(&rest.place));
            place.items.retain(|(_, target)| useful.contains(target));
        }
    }
}

fn all_but(maps: &[&Map<String, Value>], place: usize) -> Rest {
    let named = |keyword: &'static str| {
        maps.iter().filter_map(move |map| map.get(keyword)?.as_object()).flat_map(|named| named.keys())
    };
    Rest {
        names: named("properties").cloned().collect(),
        patterns: named("patternProperties").map(|pattern| Pattern::new(pattern)).collect(),
        place,
    }
}

fn prefix_length(schema: &Value) -> usize {
    schema.get("prefixItems").and_then(Value::as_array).map_or(0, Vec::len)
}
