//! What is known of a value that satisfies a schema: the schema taken apart into demands that all hold.
//!
//! `allOf` and `$ref` only spread demands over several objects; a [`Conjunction`] gathers them again, so that the prover can
//! ask "what do we know of property `p`?" without caring where it was written. Branches (`anyOf`, `oneOf`, `if`) stay
//! demands like others; the prover adds a branch when it takes a case apart.
//!
//! Invariants
//! - CONJ-1: everything answered here holds for *every* value of the schema. Forgetting something is allowed (then less
//!   can be proved), inventing something is not.
//!
//! Not here: proving (`prover`).

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::schema::document::{ReferenceTarget, SchemaDocument, references, subschemas};

/// A set of JSON types; whole numbers and the other numbers apart, so that `integer` is a part of `number`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const ALL: Self = Self(0b111_1111);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const WHOLE: Self = Self(4);
    pub(super) const NUMBER: Self = Self(4 | 8);
    pub(super) const STRING: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    const NAMED: [(&'static str, Self); 7] = [
        ("null", Self::NULL),
        ("boolean", Self::BOOLEAN),
        ("number", Self::NUMBER),
        ("integer", Self::WHOLE),
        ("string", Self::STRING),
        ("array", Self::ARRAY),
        ("object", Self::OBJECT),
    ];

    pub(super) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) fn within(self, other: Self) -> bool {
        self.0 & !other.0 == 0
    }

    pub(super) fn without_whole(self) -> Self {
        Self(self.0 & !Self::WHOLE.0)
    }

    /// The single types in this set.
    pub(super) fn each(self) -> impl Iterator<Item = Self> {
        (0..7).map(|bit| Self(1 << bit)).filter(move |one| self.meets(*one))
    }

    /// What the value of a `type` keyword allows.
    pub(super) fn named(keyword: &Value) -> Self {
        let one = |name: &Value| {
            Self::NAMED.iter().find(|(known, _)| name.as_str() == Some(known)).map_or(0, |(_, types)| types.0)
        };
        match keyword {
            Value::Array(names) => Self(names.iter().fold(0, |bits, name| bits | one(name))),
            name => Self(one(name)),
        }
    }

    pub(super) fn of(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) => {
                let whole = !number.is_f64() || number.as_f64().is_some_and(|float| float.fract() == 0.0);
                if whole { Self::WHOLE } else { Self(8) }
            }
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }
}

/// Equality as JSON Schema has it: 1 and 1.0 are the same.
pub(super) fn same(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(a), Value::Number(b)) => a == b || (a.is_f64() != b.is_f64() && a.as_f64() == b.as_f64()),
        _ => left == right,
    }
}

/// Addresses that are compared or copied as quickly as one schema is looked at.
const POINTERS_PER_STEP: usize = 16;

/// Where a schema is whose place is not known; no pointer starts like this, so it is never taken for another one.
const SOMEWHERE: &str = "?";

/// The demands of a schema, gathered.
#[derive(Debug, Clone)]
pub(super) struct Conjunction<'a> {
    pub(super) document: &'a SchemaDocument<'a>,
    /// The schemas it was made of.
    pub(super) roots: Vec<&'a Value>,
    /// The schemas themselves, before they were taken apart; for finding the same one again.
    pub(super) nodes: Vec<&'a Value>,
    pub(super) parts: Vec<&'a Map<String, Value>>,
    pub(super) types: Types,
    /// No value satisfies it.
    pub(super) impossible: bool,
    /// Applicators that were taken apart already, by address.
    pub(super) opened: Vec<usize>,
}

impl<'a> Conjunction<'a> {
    pub(super) fn of(document: &'a SchemaDocument<'a>, schemas: impl IntoIterator<Item = &'a Value>) -> Self {
        let mut conjunction = Self {
            document,
            roots: Vec::new(),
            nodes: Vec::new(),
            parts: Vec::new(),
            types: Types::ALL,
            impossible: false,
            opened: Vec::new(),
        };
        for schema in schemas {
            conjunction.add(schema);
        }
        conjunction
    }

    /// Adds the demands of one more schema.
    pub(super) fn add(&mut self, schema: &'a Value) {
        self.roots.push(schema);
        let mut work = vec![schema];
        while let Some(schema) = work.pop() {
            self.document.count(1 + self.nodes.len() / POINTERS_PER_STEP);
            if self.nodes.iter().any(|known| std::ptr::eq(*known, schema)) {
                continue;
            }
            self.nodes.push(schema);
            let map = match schema {
                Value::Object(map) => map,
                other => {
                    self.impossible |= *other == Value::Bool(false);
                    continue;
                }
            };
            self.parts.push(map);
            if let Some(Value::Array(all)) = map.get("allOf") {
                work.extend(all);
            }
            for (_, reference) in references(map) {
                // What lies outside is not known, and nothing is invented about it (CONJ-1).
                if let ReferenceTarget::Local(_, target) = self.document.resolve(reference) {
                    work.push(target);
                }
            }
            if let Some(keyword) = map.get("type") {
                self.narrow(Types::named(keyword));
            }
            if let Some(value) = map.get("const") {
                self.narrow(Types::of(value));
            }
            if let Some(Value::Array(values)) = map.get("enum") {
                self.document.count(values.len() / POINTERS_PER_STEP);
                self.narrow(Types(values.iter().fold(0, |bits, value| bits | Types::of(value).0)));
            }
        }
    }

    pub(super) fn with(&self, schema: &'a Value) -> Self {
        self.document.count(self.nodes.len() / POINTERS_PER_STEP);
        let mut more = self.clone();
        more.add(schema);
        more
    }

    pub(super) fn narrow(&mut self, types: Types) {
        self.types = self.types.and(types);
        self.impossible |= self.types.is_empty();
    }

    /// The values of `keyword` in all parts.
    pub(super) fn all(&self, keyword: &str) -> impl Iterator<Item = &'a Value> {
        self.parts.iter().filter_map(move |map| map.get(keyword))
    }

    /// What the `type` keywords alone allow; none when there is none.
    pub(super) fn named_types(&self) -> Option<Types> {
        self.all("type").map(Types::named).reduce(Types::and)
    }

    /// The types strings may be converted to here, in whatever branch; none when no string is.
    pub(super) fn converts(&self) -> Option<Types> {
        let scalars = Types::NUMBER.or(Types::BOOLEAN);
        let members = self.nodes.iter().flat_map(|node| self.document.in_place(SOMEWHERE, node).0);
        let named = members.filter_map(|(_, map)| map.get("type").map(Types::named));
        named.filter(|types| !types.meets(Types::STRING) && types.meets(scalars)).reduce(Types::or)
    }

    /// Whether strings may be converted here or in any part.
    pub(super) fn converts_anywhere(&self) -> bool {
        let parts = self.nodes.iter().flat_map(|node| self.document.below(SOMEWHERE, node).into_values());
        self.converts().is_some()
            || parts.map(|part| Self::of(self.document, [part])).any(|part| part.converts().is_some())
    }

    /// The values it can have, when they are enumerated.
    pub(super) fn values(&self) -> Option<Vec<&'a Value>> {
        let listed = self.parts.iter().find_map(|map| match (map.get("const"), map.get("enum")) {
            (Some(value), _) => Some(vec![value]),
            (None, Some(Value::Array(values))) => Some(values.iter().collect()),
            (None, _) => None,
        })?;
        Some(listed.into_iter().filter(|value| Types::of(value).meets(self.types)).collect())
    }

    pub(super) fn requires(&self, name: &str) -> bool {
        self.all("required").filter_map(Value::as_array).flatten().any(|one| one.as_str() == Some(name))
    }

    /// What is known of items from position `index` on, or of that very item if a `prefixItems` reaches so far.
    pub(super) fn item(&self, index: usize) -> Self {
        let schemas = self.parts.iter().filter_map(|map| {
            let prefix = map.get("prefixItems").and_then(Value::as_array);
            prefix.and_then(|list| list.get(index)).or_else(|| map.get("items"))
        });
        Self::of(self.document, schemas)
    }

    /// How many leading items are described one by one.
    pub(super) fn prefix_len(&self) -> usize {
        self.all("prefixItems").filter_map(Value::as_array).map(Vec::len).max().unwrap_or(0)
    }

    /// Every name and pattern that some schema in place mentions, branches and questions included.
    pub(super) fn mentions(&self) -> Mentions<'a> {
        let mut mentions = Mentions::default();
        for node in &self.nodes {
            mentions.add(self.document, node);
        }
        mentions
    }
}

// ---------------------------------------------------------------------------------------------------- Mentions

/// The property names and patterns a schema speaks of.
#[derive(Debug, Default)]
pub(super) struct Mentions<'a> {
    pub(super) names: BTreeSet<&'a str>,
    pub(super) patterns: BTreeSet<&'a str>,
    /// Some schema in place speaks of items.
    pub(super) items: bool,
    /// Some schema in place speaks of all names, or could not be looked into.
    pub(super) everything: bool,
}

impl<'a> Mentions<'a> {
    /// Adds what `schema` and everything in place of it mentions.
    pub(super) fn add(&mut self, document: &'a SchemaDocument<'a>, schema: &'a Value) {
        self.gather(document, schema, true);
    }

    /// Like `add`, but leaves the `unevaluatedProperties` of `schema` itself aside: it is the one who asks.
    pub(super) fn below(document: &'a SchemaDocument<'a>, schema: &'a Value) -> Self {
        let mut mentions = Self::default();
        mentions.gather(document, schema, false);
        mentions
    }

    fn gather(&mut self, document: &'a SchemaDocument<'a>, schema: &'a Value, own: bool) {
        let mut work = vec![schema];
        let mut seen: Vec<&Value> = Vec::new();
        while let Some(schema) = work.pop() {
            document.count(seen.len() / POINTERS_PER_STEP);
            if seen.iter().any(|known| std::ptr::eq(*known, schema)) {
                continue;
            }
            let (members, complete) = document.in_place(SOMEWHERE, schema);
            self.everything |= !complete;
            for (_, map) in &members {
                for sub in subschemas(map) {
                    if sub.keyword == "if" {
                        work.push(sub.schema);
                    }
                }
                self.items |= map.contains_key("items") || map.contains_key("prefixItems");
                self.names.extend(names_of(map, "properties"));
                self.patterns.extend(names_of(map, "patternProperties"));
                let speaks = |keyword: &str| map.get(keyword).is_some_and(|schema| *schema != Value::Bool(false));
                let asks = !own && schema.as_object().is_some_and(|top| std::ptr::eq(top, *map));
                self.everything |= speaks("additionalProperties") || (!asks && speaks("unevaluatedProperties"));
            }
            seen.push(schema);
        }
    }
}

/// The keys of an object-valued keyword.
pub(super) fn names_of<'a>(map: &'a Map<String, Value>, keyword: &str) -> impl Iterator<Item = &'a str> {
    map.get(keyword).and_then(Value::as_object).into_iter().flat_map(|named| named.keys().map(String::as_str))
}
