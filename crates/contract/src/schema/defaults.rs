//! Defaults: the `default` of an absent property is filled in before validation. (VALID-004)
//!
//! Which defaults apply depends on the schema alone as long as no branch is involved, so the way to each of them is
//! worked out once: through `properties`, `items`, `prefixItems`, `allOf` and `$ref`. Not through `anyOf`, `oneOf` or
//! `if`, where it depends on the value which default would be meant.
//!
//! Invariants
//! - DEF-1: a present value is never touched, `null` included.
//! - DEF-2: a default that its own schema refuses is not filled in: generators write `"default": null` beside
//!   `"type": "string"`, and that must not make every call without the parameter fail. Each of them is named.
//! - DEF-3: what was filled in can be taken out again (`undo`), for the rare schema that only holds without it.
//!
//! Not here: whether a changed default is a breaking change (`compat::defaults`).

use std::collections::{BTreeSet, HashMap};

use jsonschema::ValidatorMap;
use serde_json::{Map, Value};

use super::document::{ReferenceTarget, SchemaDocument, SubschemaKey, join, references, subschemas};

/// The way to all defaults of one schema.
#[derive(Debug, Default)]
pub(crate) struct SchemaDefaults {
    nodes: Vec<Node>,
    /// Pointers into the schema to the defaults that are not filled in (DEF-2).
    unfit: BTreeSet<String>,
}

/// One kind of place in the value; recursive schemas make these a graph, hence the indices.
#[derive(Debug, Default)]
struct Node {
    properties: Vec<Property>,
    prefix: Vec<Option<usize>>,
    items: Option<usize>,
}

#[derive(Debug)]
struct Property {
    name: String,
    default: Option<Value>,
    node: Option<usize>,
}

impl SchemaDefaults {
    /// Plans the filling for `schema`. `validators` has one validator for each place of the same schema.
    pub(crate) fn plan(schema: &Value, validators: Option<&ValidatorMap>) -> Self {
        let document = SchemaDocument::new(schema);
        let mut planner = Planner {
            document: &document,
            validators,
            nodes: Vec::new(),
            unfit: BTreeSet::new(),
            known: HashMap::new(),
        };
        planner.plan();
        let useful = planner.nodes.iter().any(|node| node.properties.iter().any(|property| property.default.is_some()));
        Self { nodes: if useful { planner.nodes } else { Vec::new() }, unfit: planner.unfit }
    }

    /// Pointers into the schema to the defaults that their own schemas refuse (DEF-2).
    pub(crate) fn unfit(&self) -> impl Iterator<Item = &str> {
        self.unfit.iter().map(String::as_str)
    }

    /// Fills in what is absent; the pointers of what was added, parents before children.
    pub(crate) fn fill(&self, value: &mut Value) -> Vec<String> {
        let mut filled = Vec::new();
        if !self.nodes.is_empty() {
            self.fill_at(0, value, "", &mut filled);
        }
        filled
    }

    // Recursion is as deep as the value, and that is bounded by the caller.
    fn fill_at(&self, node: usize, value: &mut Value, path: &str, filled: &mut Vec<String>) {
        let Some(node) = self.nodes.get(node) else { return };
        match value {
            Value::Object(map) => {
                for property in &node.properties {
                    self.fill_property(property, map, path, filled);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    let next = node.prefix.get(index).copied().unwrap_or(node.items);
                    if let Some(next) = next {
                        self.fill_at(next, item, &format!("{path}/{index}"), filled);
                    }
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn fill_property(&self, property: &Property, map: &mut Map<String, Value>, path: &str, filled: &mut Vec<String>) {
        if !map.contains_key(&property.name) {
            let Some(default) = &property.default else { return };
            map.insert(property.name.clone(), default.clone());
            filled.push(join(path, &property.name));
        }
        if let (Some(next), Some(value)) = (property.node, map.get_mut(&property.name))
            && (value.is_object() || value.is_array())
        {
            self.fill_at(next, value, &join(path, &property.name), filled);
        }
    }
}

/// Takes out what `fill` added.
pub(crate) fn undo(value: &mut Value, filled: &[String]) {
    for pointer in filled.iter().rev() {
        let Some((parent, name)) = pointer.rsplit_once('/') else { continue };
        if let Some(Value::Object(map)) = value.pointer_mut(parent) {
            map.remove(&name.replace("~1", "/").replace("~0", "~"));
        }
    }
}

/// The schemas that hold for the same instance whatever its value: itself, `allOf` members and reference targets.
pub(crate) fn unconditional<'a>(
    document: &SchemaDocument<'a>,
    at: &str,
    schema: &'a Value,
) -> Vec<(String, &'a Map<String, Value>)> {
    let mut found: Vec<(String, &Map<String, Value>)> = Vec::new();
    let mut work = vec![(at.to_owned(), schema)];
    while let Some((pointer, schema)) = work.pop() {
        let Value::Object(map) = schema else { continue };
        if found.iter().any(|(known, _)| *known == pointer) {
            continue;
        }
        let subs = subschemas(map);
        document.count(1 + subs.len() + found.len());
        for sub in subs.into_iter().filter(|sub| sub.keyword == "allOf") {
            work.push((sub.pointer(&pointer), sub.schema));
        }
        for (_, reference) in references(map) {
            if let ReferenceTarget::Local(target, schema) = document.resolve(reference) {
                work.push((target, schema));
            }
        }
        found.push((pointer, map));
    }
    found
}

/// The default that is filled in for a property described by these schemas, with the place that says so.
pub(crate) fn effective<'a>(
    members: &[(String, &'a Map<String, Value>)],
    validators: Option<&ValidatorMap>,
) -> Option<&'a Value> {
    let default = members.iter().find_map(|(_, map)| map.get("default"))?;
    // DEF-2: each of the schemas has to accept it, not only the one that names it.
    let accepted = members.iter().all(|(at, _)| validator_at(validators, at).is_some_and(|one| one.is_valid(default)));
    accepted.then_some(default)
}

/// The default that is there and refused by one of the schemas.
fn refused(members: &[(String, &Map<String, Value>)], validators: Option<&ValidatorMap>) -> Option<String> {
    let (place, default) = members.iter().find_map(|(at, map)| Some((at, map.get("default")?)))?;
    let is_refused =
        members.iter().any(|(at, _)| validator_at(validators, at).is_some_and(|one| !one.is_valid(default)));
    is_refused.then(|| join(place, "default"))
}

fn validator_at<'v>(validators: Option<&'v ValidatorMap>, pointer: &str) -> Option<&'v jsonschema::Validator> {
    validators?.get(&format!("#{pointer}"))
}

// ----------------------------------------------------------------------------------------------------- Planner

struct Planner<'d, 'a> {
    document: &'d SchemaDocument<'a>,
    validators: Option<&'d ValidatorMap>,
    nodes: Vec<Node>,
    unfit: BTreeSet<String>,
    /// The places that make up a node, to its index.
    known: HashMap<Vec<String>, usize>,
}

type Work<'a> = Vec<(usize, Vec<(String, &'a Value)>)>;

impl<'a> Planner<'_, 'a> {
    fn plan(&mut self) {
        let mut work: Work<'a> = Vec::new();
        self.node(vec![(String::new(), self.document.root())], &mut work);
        while let Some((index, places)) = work.pop() {
            let node = self.describe(&places, &mut work);
            if let Some(slot) = self.nodes.get_mut(index) {
                *slot = node;
            }
        }
    }

    /// The index of the node for a part described by all of `places`, which is queued if it is new.
    fn node(&mut self, places: Vec<(String, &'a Value)>, work: &mut Work<'a>) -> usize {
        let mut key: Vec<String> = places.iter().map(|(pointer, _)| pointer.clone()).collect();
        key.sort_unstable();
        key.dedup();
        if let Some(index) = self.known.get(&key) {
            return *index;
        }
        let index = self.nodes.len();
        self.nodes.push(Node::default());
        self.known.insert(key, index);
        work.push((index, places));
        index
    }

    fn describe(&mut self, places: &[(String, &'a Value)], work: &mut Work<'a>) -> Node {
        let mut properties: Vec<(&'a str, Vec<(String, &'a Value)>)> = Vec::new();
        let mut items = Vec::new();
        let mut prefix: Vec<Vec<(String, &'a Value)>> = Vec::new();
        for (pointer, schema) in places {
            for (at, map) in unconditional(self.document, pointer, schema) {
                for sub in subschemas(map) {
                    let place = (sub.pointer(&at), sub.schema);
                    match (sub.keyword, sub.key) {
                        ("properties", SubschemaKey::Name(name)) => {
                            match properties.iter_mut().find(|(known, _)| *known == name) {
                                Some((_, places)) => places.push(place),
                                None => properties.push((name, vec![place])),
                            }
                        }
                        ("items", _) => items.push(place),
                        ("prefixItems", SubschemaKey::Index(index)) => {
                            if prefix.len() <= index {
                                prefix.resize(index + 1, Vec::new());
                            }
                            if let Some(places) = prefix.get_mut(index) {
                                places.push(place);
                            }
                        }
                        _ => {}
                    }
                }
            }
        }
        let properties = properties.into_iter().map(|(name, places)| {
            let members: Vec<_> =
                places.iter().flat_map(|(at, schema)| unconditional(self.document, at, schema)).collect();
            let default = effective(&members, self.validators).cloned();
            if default.is_none() {
                self.unfit.extend(refused(&members, self.validators));
            }
            Property { name: name.to_owned(), default, node: Some(self.node(places, work)) }
        });
        let properties = properties.collect();
        let prefix = prefix.into_iter().map(|places| (!places.is_empty()).then(|| self.node(places, work))).collect();
        let items = (!items.is_empty()).then(|| self.node(items, work));
        Node { properties, prefix, items }
    }
}
