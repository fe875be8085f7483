//! One schema document: where its sub-schemas are, and what its references mean.
//!
//! A schema is a JSON tree, but only some places in it are schemas: `default`, `const` and `enum` hold data that may look
//! like one. Everything that walks a schema (admission, strictness, defaults, wording, comparison) asks this file, so
//! that there is one table of keywords and one reading of `$ref`.
//!
//! Invariants
//! - DOC-1: a document is one resource. A nested `$id` would change what `#` means half-way down; admission refuses it, so
//!   `$dynamicRef` can be read as `$ref`.
//! - DOC-2: no walk recurses over references: work lists and visited sets only, because a schema may be cyclic.
//!
//! Not here: limits (`admit`), what a keyword asserts (the `jsonschema` crate and `compat`).

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

/// The only dialect spoken here; also the one outside document that may be referred to.
pub(crate) const META_SCHEMA: &str = "https://json-schema.org/draft/2020-12/schema";

/// How a sub-schema relates to the instance its parent is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubschemaPlace {
    /// The same instance, and it has to hold (at least in one of the branches).
    Here,
    /// The same instance, but only asked, never demanded: `if` and `not`.
    Question,
    /// A part of the instance.
    Child,
    /// A part of the instance, but only asked: `contains`.
    ChildQuestion,
    /// A property name of the instance.
    Name,
    /// No instance: kept for reference.
    Definition,
}

/// A sub-schema of one schema object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Subschema<'a> {
    pub(crate) place: SubschemaPlace,
    pub(crate) keyword: &'a str,
    /// The property name or the index under the keyword; none when the keyword's value is the schema itself.
    pub(crate) key: SubschemaKey<'a>,
    pub(crate) schema: &'a Value,
}

/// The second step from a schema object to its sub-schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SubschemaKey<'a> {
    Whole,
    Name(&'a str),
    Index(usize),
}

/// How the value of an applicator keyword holds its schemas.
#[derive(Clone, Copy)]
enum Shape {
    One,
    List,
    Named,
}

/// Every keyword of 2020-12 that holds schemas. `definitions` is the older name of `$defs`, still in wide use.
const APPLICATORS: [(&str, Shape, SubschemaPlace); 21] = [
    ("allOf", Shape::List, SubschemaPlace::Here),
    ("anyOf", Shape::List, SubschemaPlace::Here),
    ("oneOf", Shape::List, SubschemaPlace::Here),
    ("then", Shape::One, SubschemaPlace::Here),
    ("else", Shape::One, SubschemaPlace::Here),
    ("dependentSchemas", Shape::Named, SubschemaPlace::Here),
    ("if", Shape::One, SubschemaPlace::Question),
    ("not", Shape::One, SubschemaPlace::Question),
    ("properties", Shape::Named, SubschemaPlace::Child),
    ("patternProperties", Shape::Named, SubschemaPlace::Child),
    ("additionalProperties", Shape::One, SubschemaPlace::Child),
    ("unevaluatedProperties", Shape::One, SubschemaPlace::Child),
    ("items", Shape::One, SubschemaPlace::Child),
    ("prefixItems", Shape::List, SubschemaPlace::Child),
    ("unevaluatedItems", Shape::One, SubschemaPlace::Child),
    ("contains", Shape::One, SubschemaPlace::ChildQuestion),
    ("propertyNames", Shape::One, SubschemaPlace::Name),
    ("contentSchema", Shape::One, SubschemaPlace::Definition),
    ("$defs", Shape::Named, SubschemaPlace::Definition),
    ("definitions", Shape::Named, SubschemaPlace::Definition),
    // Not an applicator of this draft, listed so that the table says it was thought of: `dependencies` asserts nothing.
    ("dependencies", Shape::Named, SubschemaPlace::Definition),
];

/// The sub-schemas of one schema object, references not followed.
pub(crate) fn subschemas(map: &Map<String, Value>) -> Vec<Subschema<'_>> {
    let mut subs = Vec::new();
    for (keyword, value) in map {
        let Some((_, shape, place)) = APPLICATORS.iter().find(|(name, _, _)| name == keyword) else { continue };
        let (place, keyword) = (*place, keyword.as_str());
        match (shape, value) {
            (Shape::One, schema) => subs.push(Subschema { place, keyword, key: SubschemaKey::Whole, schema }),
            (Shape::List, Value::Array(list)) => {
                subs.extend(list.iter().enumerate().map(|(index, schema)| Subschema {
                    place,
                    keyword,
                    key: SubschemaKey::Index(index),
                    schema,
                }))
            }
            (Shape::Named, Value::Object(named)) => subs.extend(
                named
                    .iter()
                    .filter(|(_, schema)| schema.is_object() || schema.is_boolean())
                    .map(|(name, schema)| Subschema { place, keyword, key: SubschemaKey::Name(name), schema }),
            ),
            (Shape::List | Shape::Named, _) => {}
        }
    }
    subs
}

/// The references a schema object makes on the same instance.
pub(crate) fn references(map: &Map<String, Value>) -> impl Iterator<Item = (&'static str, &str)> {
    ["$ref", "$dynamicRef"].into_iter().filter_map(|keyword| Some((keyword, map.get(keyword)?.as_str()?)))
}

/// `pointer` one step further down, escaped as RFC 6901 wants it.
pub(crate) fn join(pointer: &str, token: &str) -> String {
    format!("{pointer}/{}", token.replace('~', "~0").replace('/', "~1"))
}

impl Subschema<'_> {
    /// Where this sub-schema is, given where its parent is.
    pub(crate) fn pointer(&self, parent: &str) -> String {
        let keyword = join(parent, self.keyword);
        match self.key {
            SubschemaKey::Whole => keyword,
            SubschemaKey::Name(name) => join(&keyword, name),
            SubschemaKey::Index(index) => format!("{keyword}/{index}"),
        }
    }
}

// ---------------------------------------------------------------------------------------------------- Document

/// Bytes of a text that are looked at as quickly as one schema.
pub(crate) const BYTES_PER_STEP: usize = 64;

/// Schema objects with their places in the document.
pub(crate) type SchemaMembers<'a> = Vec<(String, &'a Map<String, Value>)>;

/// A schema with its anchors indexed.
#[derive(Debug)]
pub(crate) struct SchemaDocument<'a> {
    root: &'a Value,
    id: Option<&'a str>,
    anchors: HashMap<&'a str, String>,
    /// What walks through it have looked at, for whoever bounds them (`compat`).
    steps: Cell<u64>,
}

/// What a reference leads to.
#[derive(Debug)]
pub(crate) enum ReferenceTarget<'a> {
    Local(String, &'a Value),
    /// The 2020-12 meta-schema or one of its vocabularies: known to the validator, opaque to everyone else.
    Meta,
    /// Inside this document, but nothing is there.
    Missing,
    Remote,
}

impl<'a> SchemaDocument<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        let id = root.get("$id").and_then(Value::as_str).map(|id| id.trim_end_matches('#'));
        let mut document = Self { root, id, anchors: HashMap::new(), steps: Cell::new(0) };
        let mut anchors = HashMap::new();
        for (pointer, schema) in document.positions() {
            for keyword in ["$anchor", "$dynamicAnchor"] {
                if let Some(name) = schema.get(keyword).and_then(Value::as_str) {
                    anchors.entry(name).or_insert_with(|| pointer.clone());
                }
            }
        }
        document.anchors = anchors;
        document
    }

    pub(crate) fn root(&self) -> &'a Value {
        self.root
    }

    /// How much was looked at so far: schemas, keywords and bytes, each about as dear as the others.
    pub(crate) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// Counts what is looked at.
    pub(crate) fn count(&self, steps: usize) {
        self.steps.set(self.steps.get().saturating_add(steps as u64));
    }

    /// What `reference` means anywhere in this document (DOC-1: the base is the same everywhere).
    pub(crate) fn resolve(&self, reference: &str) -> ReferenceTarget<'a> {
        self.count(1 + reference.len() / BYTES_PER_STEP);
        let (base, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        if !base.is_empty() && !self.is_own(base) {
            let meta = base.starts_with("https://json-schema.org/draft/2020-12/");
            return if meta { ReferenceTarget::Meta } else { ReferenceTarget::Remote };
        }
        let fragment = percent_decoded(fragment);
        let pointer = if fragment.is_empty() || fragment.starts_with('/') {
            Some(fragment)
        } else {
            self.anchors.get(fragment.as_str()).cloned()
        };
        match pointer.and_then(|pointer| Some((self.root.pointer(&pointer)?, pointer))) {
            Some((schema, pointer)) => ReferenceTarget::Local(pointer, schema),
            None => ReferenceTarget::Missing,
        }
    }

    fn is_own(&self, base: &str) -> bool {
        self.id.is_some_and(|id| {
            // A relative reference replaces the last segment of the base: only that one form leads back here.
            id == base || (!base.contains(':') && !base.contains('/') && id.rsplit('/').next() == Some(base))
        })
    }

    /// Every place of the document that is a schema: those under a keyword, and those only a reference says are one.
    pub(crate) fn positions(&self) -> Vec<(String, &'a Value)> {
        let mut found = Vec::new();
        let mut seen = HashSet::new();
        let mut work = vec![(String::new(), self.root)];
        while let Some((pointer, schema)) = work.pop() {
            if !seen.insert(pointer.clone()) {
                continue;
            }
            if let Value::Object(map) = schema {
                work.extend(subschemas(map).iter().map(|sub| (sub.pointer(&pointer), sub.schema)));
                for (_, reference) in references(map) {
                    if let ReferenceTarget::Local(target, schema) = self.resolve(reference) {
                        work.push((target, schema));
                    }
                }
            }
            found.push((pointer, schema));
        }
        found
    }

    /// The schemas that speak about the same instance as the one at `pointer`, itself first: branches and references
    /// included, questions (`if`, `not`) left out. The flag says whether all of them could be looked into.
    pub(crate) fn in_place(&self, pointer: &str, schema: &'a Value) -> (SchemaMembers<'a>, bool) {
        let mut members = Vec::new();
        let mut complete = true;
        let mut seen = HashSet::new();
        let mut work = vec![(pointer.to_owned(), schema)];
        while let Some((pointer, schema)) = work.pop() {
            let Value::Object(map) = schema else { continue };
            if !seen.insert(pointer.clone()) {
                continue;
            }
            for (_, reference) in references(map) {
                match self.resolve(reference) {
                    ReferenceTarget::Local(target, schema) => work.push((target, schema)),
                    ReferenceTarget::Meta | ReferenceTarget::Missing | ReferenceTarget::Remote => complete = false,
                }
            }
            let subs = subschemas(map);
            self.count(1 + subs.len());
            let in_place = subs.into_iter().filter(|sub| sub.place == SubschemaPlace::Here);
            work.extend(in_place.map(|sub| (sub.pointer(&pointer), sub.schema)));
            members.push((pointer, map));
        }
        (members, complete)
    }

    /// Whether the schemas in place of this one depend on the value: branches, of which some may hold and some not.
    pub(crate) fn is_conditional(&self, pointer: &str, schema: &'a Value) -> bool {
        let branching = ["anyOf", "oneOf", "if", "dependentSchemas"];
        self.in_place(pointer, schema)
            .0
            .iter()
            .any(|(_, map)| branching.iter().any(|keyword| map.contains_key(*keyword)))
    }

    /// Every schema that is asked about a part of the instance this one is about, however deep; itself too if recursive.
    pub(crate) fn below(&self, pointer: &str, schema: &'a Value) -> HashMap<String, &'a Value> {
        let mut found = HashMap::new();
        let mut work = vec![(pointer.to_owned(), schema)];
        let mut seen = HashSet::new();
        while let Some((pointer, schema)) = work.pop() {
            let mut here = vec![(pointer, schema)];
            while let Some((pointer, schema)) = here.pop() {
                let Value::Object(map) = schema else { continue };
                if !seen.insert(pointer.clone()) {
                    continue;
                }
                let subs = subschemas(map);
                self.count(1 + subs.len());
                for sub in subs {
                    let place = (sub.pointer(&pointer), sub.schema);
                    match sub.place {
                        SubschemaPlace::Here | SubschemaPlace::Question => here.push(place),
                        SubschemaPlace::Child | SubschemaPlace::ChildQuestion | SubschemaPlace::Name => {
                            found.insert(place.0.clone(), place.1);
                            work.push(place);
                        }
                        SubschemaPlace::Definition => {}
                    }
                }
                for (_, reference) in references(map) {
                    if let ReferenceTarget::Local(target, schema) = self.resolve(reference) {
                        here.push((target, schema));
                    }
                }
            }
        }
        found
    }

    /// The schemas that speak about the instance at `path`, as far as names and positions can tell.
    pub(crate) fn at_instance(&self, path: &str) -> SchemaMembers<'a> {
        let mut here = self.in_place("", self.root).0;
        for token in path.split('/').skip(1) {
            let token = token.replace("~1", "/").replace("~0", "~");
            let mut next = Vec::new();
            for (pointer, map) in &here {
                for sub in subschemas(map) {
                    let leads = match (sub.keyword, sub.key) {
                        ("properties", SubschemaKey::Name(name)) => name == token,
                        ("prefixItems", SubschemaKey::Index(index)) => index.to_string() == token,
                        (
                            "items"
                            | "additionalProperties"
                            | "patternProperties"
                            | "unevaluatedProperties"
                            | "unevaluatedItems",
                            _,
                        ) => true,
                        _ => false,
                    };
                    if leads {
                        next.extend(self.in_place(&sub.pointer(pointer), sub.schema).0);
                    }
                }
            }
            // Two ways to one schema count once, or a recursive schema would multiply with every step.
            let mut seen = HashSet::new();
            next.retain(|(pointer, _)| seen.insert(pointer.clone()));
            here = next;
        }
        here
    }
}

/// A URI fragment without its percent escapes; what is no valid escape stays as it is.
pub(crate) fn percent_decoded(text: &str) -> String {
    if !text.contains('%') {
        return text.to_owned();
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let escape = (first == b'%').then(|| tail.get(..2)).flatten();
        let decoded = escape.and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        bytes.push(decoded.unwrap_or(first));
        rest = if decoded.is_some() { tail.get(2..).unwrap_or_default() } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn references_lead_inside_the_document_or_nowhere() {
        let schema = json!({
            "$id": "https://example.com/tools/a.json",
            "$defs": { "a/b c": { "$anchor": "spot", "type": "string" } },
            "x-parts": { "loose": { "type": "integer" } },
            "properties": { "p": { "$ref": "#/x-parts/loose" } },
            "default": { "$ref": "http://not.a.reference/" }
        });
        let document = SchemaDocument::new(&schema);
        for (reference, expected) in [
            ("#", Some("")),
            ("#/$defs/a~1b%20c", Some("/$defs/a~1b c")),
            ("#spot", Some("/$defs/a~1b c")),
            ("a.json#spot", Some("/$defs/a~1b c")),
            ("https://example.com/tools/a.json", Some("")),
            ("#/nowhere", None),
            ("https://example.com/other.json", None),
        ] {
            let found = match document.resolve(reference) {
                ReferenceTarget::Local(pointer, _) => Some(pointer),
                ReferenceTarget::Meta | ReferenceTarget::Missing | ReferenceTarget::Remote => None,
            };
            assert_eq!(found.as_deref(), expected, "{reference}");
        }
        assert!(matches!(document.resolve(META_SCHEMA), ReferenceTarget::Meta));
        assert!(document.positions().iter().any(|(pointer, _)| pointer == "/x-parts/loose"));
        assert!(!document.positions().iter().any(|(pointer, _)| pointer == "/default"));
    }
}
