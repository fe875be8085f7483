//! Strictness: undeclared properties are refused unless the author said otherwise. (VALID-002, X-18)
//!
//! A misspelt optional parameter that is silently dropped is a call that did something else than was asked. JSON Schema
//! accepts it by default, so the schema is rewritten once, before it is compiled: wherever a part of the value begins and
//! its schemas declare properties, without a word about further ones, `additionalProperties: false` is added, or the
//! dearer `unevaluatedProperties: false` when the declarations are spread over `allOf`, `$ref` and the like. Where that would
//! be evaluated over and over (branches within branches), the names of all branches together are allowed, and no others.
//!
//! Invariants
//! - STRICT-1: only where an instance location begins. A member of `allOf` sees part of the declarations; closing it
//!   would refuse its siblings' properties.
//! - STRICT-2: never inside a question (`if`, `not`, `contains`): closing changes when it holds, not what is accepted.
//! - STRICT-3: never where two schemas that must both hold describe the same part, for the same reason as STRICT-1.
//! - STRICT-4: `{"type": "object"}` without properties stays a free-form map.
//!
//! Not here: what the refusal says (`wording`).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::document::{
    ReferenceTarget, SchemaDocument, SchemaMembers, SubschemaKey, SubschemaPlace, join, references, subschemas,
};

/// The schema with every open object that declares properties closed.
pub(crate) fn closed(schema: &Value) -> Value {
    let document = SchemaDocument::new(schema);
    let mut survey =
        Survey { document: &document, closings: BTreeMap::new(), left_open: HashSet::new(), sites: Vec::new() };
    survey.walk();
    let wrapped = survey.wrapped();
    let mut closings = survey.closings;
    closings.retain(|pointer, _| !survey.left_open.contains(pointer));
    let moves = Moves::planned(schema, &closings, &wrapped);
    let mut result = schema.clone();
    moves.redirect(&document, &mut result);
    // The deepest first, so that moving a place away does not hide what is still to be closed in it.
    let mut order: Vec<(&String, &Closing)> = closings.iter().collect();
    order.sort_by_key(|(pointer, _)| std::cmp::Reverse(pointer.len()));
    let mut definitions = Map::new();
    for (pointer, closing) in order {
        if let Some(Value::Object(map)) = result.pointer_mut(pointer) {
            match (moves.names.get(pointer), closing) {
                (Some(names), _) => names.apply(pointer, map, &mut definitions),
                (None, Closing::Additional) => {
                    map.insert("additionalProperties".to_owned(), Value::Bool(false));
                }
                (None, Closing::Unevaluated) => {
                    map.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
                }
                (None, Closing::Names(names)) => allow_only(map, names),
            }
        }
    }
    if let Value::Object(root) = &mut result
        && !definitions.is_empty()
        && let Value::Object(known) = root.entry("$defs").or_insert_with(|| json!({}))
    {
        known.append(&mut definitions);
    }
    result
}

/// How a place is closed.
#[derive(Debug, Clone)]
enum Closing {
    /// All declarations are in one object: the cheap way.
    Additional,
    /// Spread over several objects.
    Unevaluated,
    /// Spread over branches that have branches below them again. There `unevaluatedProperties` takes time exponential in
    /// the depth of the value, so any name is allowed that some branch declares.
    Names(BTreeSet<String>),
}

// ------------------------------------------------------------------------------------------------------ Survey

struct Survey<'d, 'a> {
    document: &'d SchemaDocument<'a>,
    closings: BTreeMap<String, Closing>,
    left_open: HashSet<String>,
    sites: Vec<(String, SchemaMembers<'a>)>,
}

impl<'a> Survey<'_, 'a> {
    /// Visits every place where an instance location begins; `true` in the work list means "leave open".
    fn walk(&mut self) {
        let mut seen = HashSet::new();
        let mut work = vec![(String::new(), self.document.root(), false)];
        while let Some((pointer, schema, leave)) = work.pop() {
            if !seen.insert((pointer.clone(), leave)) {
                continue;
            }
            let (members, complete) = self.document.in_place(&pointer, schema);
            if leave {
                self.left_open.insert(pointer.clone());
            } else if let Some(closing) = self.closing_for(&pointer, schema, &members, complete) {
                self.closings.insert(pointer.clone(), closing);
            }
            let shared = described(self.document, schema);
            for (at, map) in &members {
                for sub in subschemas(map) {
                    let begins = match sub.place {
                        SubschemaPlace::Child | SubschemaPlace::Name => {
                            leave || shared.get(&part(sub.keyword, sub.key)).is_some_and(|n| *n > 1)
                        }
                        SubschemaPlace::ChildQuestion | SubschemaPlace::Question => true,
                        SubschemaPlace::Here | SubschemaPlace::Definition => continue,
                    };
                    work.push((sub.pointer(at), sub.schema, begins));
                }
            }
            self.sites.push((pointer, members));
        }
    }

    fn closing_for(
        &self,
        pointer: &str,
        schema: &'a Value,
        members: &SchemaMembers<'a>,
        complete: bool,
    ) -> Option<Closing> {
        let explicit = |map: &Map<String, Value>| {
            map.contains_key("additionalProperties") || map.contains_key("unevaluatedProperties")
        };
        let declares =
            |map: &Map<String, Value>| map.contains_key("properties") || map.contains_key("patternProperties");
        if !complete || members.iter().any(|(_, map)| explicit(map)) || !members.iter().any(|(_, map)| declares(map)) {
            return None;
        }
        if !self.document.is_conditional(pointer, schema) {
            return Some(if members.len() == 1 { Closing::Additional } else { Closing::Unevaluated });
        }
        let below = self.document.below(pointer, schema);
        let nested = below.iter().any(|(at, schema)| self.document.is_conditional(at, schema));
        if !nested {
            return Some(Closing::Unevaluated);
        }
        // Patterns cannot be listed: such a place is left as its author wrote it.
        let listable = members.iter().all(|(_, map)| !map.contains_key("patternProperties"));
        let named = members.iter().filter_map(|(_, map)| map.get("properties")?.as_object());
        listable.then(|| Closing::Names(named.flat_map(|named| named.keys().cloned()).collect()))
    }

    /// Places that are closed where they stand, but also extended from elsewhere by reference: there the closing must
    /// not travel along with the reference.
    fn wrapped(&self) -> BTreeSet<String> {
        let mut wrapped = BTreeSet::new();
        for (site, members) in &self.sites {
            for (target, _) in members {
                if target == site || !self.closings.contains_key(target) || self.left_open.contains(target) {
                    continue;
                }
                let Some(schema) = self.document.root().pointer(target) else { continue };
                let own: HashSet<String> =
                    self.document.in_place(target, schema).0.into_iter().map(|(at, _)| at).collect();
                let extends = members.iter().any(|(at, map)| !own.contains(at) && speaks_of_properties(map));
                if extends {
                    wrapped.insert(target.clone());
                }
            }
        }
        wrapped
    }
}

fn speaks_of_properties(map: &Map<String, Value>) -> bool {
    ["properties", "patternProperties", "additionalProperties", "unevaluatedProperties"]
        .iter()
        .any(|keyword| map.contains_key(*keyword))
}

/// The part of the value a child schema is about, as a key for counting.
fn part(keyword: &str, key: SubschemaKey<'_>) -> String {
    match key {
        SubschemaKey::Whole => keyword.to_owned(),
        SubschemaKey::Name(name) => join(keyword, name),
        SubschemaKey::Index(index) => format!("{keyword}/{index}"),
    }
}

/// How many schemas that must hold together describe each part (STRICT-3). Branches of which one is enough count once.
fn described(document: &SchemaDocument<'_>, schema: &Value) -> HashMap<String, usize> {
    let Value::Object(map) = schema else { return HashMap::new() };
    let mut counts: HashMap<String, usize> = HashMap::new();
    let mut either: HashMap<&str, HashMap<String, usize>> = HashMap::new();
    for sub in subschemas(map) {
        match (sub.place, sub.keyword) {
            (SubschemaPlace::Child, _) if may_declare(sub.schema) => {
                *counts.entry(part(sub.keyword, sub.key)).or_default() += 1
            }
            (SubschemaPlace::Here, "anyOf" | "oneOf" | "then" | "else") => {
                let group = either.entry(if sub.keyword == "else" { "then" } else { sub.keyword }).or_default();
                for (name, count) in described(document, sub.schema) {
                    let most = group.entry(name).or_default();
                    *most = count.max(*most);
                }
            }
            (SubschemaPlace::Here, _) => add(&mut counts, described(document, sub.schema)),
            (
                SubschemaPlace::Child
                | SubschemaPlace::Question
                | SubschemaPlace::ChildQuestion
                | SubschemaPlace::Name
                | SubschemaPlace::Definition,
                _,
            ) => {}
        }
    }
    for (_, reference) in references(map) {
        if let ReferenceTarget::Local(_, target) = document.resolve(reference) {
            add(&mut counts, described(document, target));
        }
    }
    for (_, group) in either {
        add(&mut counts, group);
    }
    counts
}

/// Whether anything at or below this schema could declare properties. A mere `required` or `minItems` shares nothing.
fn may_declare(schema: &Value) -> bool {
    match schema {
        Value::Object(map) => {
            speaks_of_properties(map) || references(map).next().is_some() || map.values().any(may_declare)
        }
        Value::Array(items) => items.iter().any(may_declare),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn add(counts: &mut HashMap<String, usize>, more: HashMap<String, usize>) {
    for (name, count) in more {
        *counts.entry(name).or_default() += count;
    }
}

// ------------------------------------------------------------------------------------------------------- Moves

/// Places that move into definitions of their own: those that are closed where they stand and extended by reference from
/// elsewhere. The references get the open body, the place itself a closed view of it.
struct Moves {
    names: BTreeMap<String, Names>,
}

/// The definition the body of a place moves to, and how the place is closed.
struct Names {
    body: String,
    closing: Closing,
}

impl Names {
    /// Moves the body away and leaves a closed reference to it.
    fn apply(&self, pointer: &str, map: &mut Map<String, Value>, definitions: &mut Map<String, Value>) {
        let mut body = std::mem::take(map);
        if pointer.is_empty() {
            for keyword in SHARED.into_iter().chain(["$schema", "$id"]) {
                if let Some(value) = body.remove(keyword) {
                    map.insert(keyword.to_owned(), value);
                }
            }
        }
        definitions.insert(self.body.clone(), Value::Object(body));
        map.insert("$ref".to_owned(), Value::String(format!("#/$defs/{}", self.body)));
        match &self.closing {
            Closing::Names(names) => allow_only(map, names),
            Closing::Additional | Closing::Unevaluated => {
                map.insert("unevaluatedProperties".to_owned(), Value::Bool(false));
            }
        }
    }
}

/// `propertyNames` with just these, besides what the author says there.
fn allow_only(map: &mut Map<String, Value>, names: &BTreeSet<String>) {
    let ours = json!({ "enum": names });
    let both = match map.remove("propertyNames") {
        Some(theirs) => json!({ "allOf": [ours, theirs] }),
        None => ours,
    };
    map.insert("propertyNames".to_owned(), both);
}

impl Moves {
    fn planned(schema: &Value, closings: &BTreeMap<String, Closing>, wrapped: &BTreeSet<String>) -> Self {
        let mut prefix = "body".to_owned();
        while names_in(schema, "$defs").any(|name| name.starts_with(&prefix)) {
            prefix.push('_');
        }
        let moving = closings.iter().filter(|(pointer, _)| wrapped.contains(*pointer));
        let names = moving.enumerate().map(|(index, (pointer, closing))| {
            (pointer.clone(), Names { body: format!("{prefix}{index}"), closing: closing.clone() })
        });
        Self { names: names.collect() }
    }

    /// Points every reference at where its target will be.
    fn redirect(&self, document: &SchemaDocument<'_>, result: &mut Value) {
        if self.names.is_empty() {
            return;
        }
        for (pointer, schema) in document.positions() {
            let Value::Object(map) = schema else { continue };
            for (keyword, reference) in references(map) {
                let fragment = reference.split_once('#').map_or("", |(_, fragment)| fragment);
                let by_pointer = fragment.is_empty() || fragment.starts_with('/');
                if let (ReferenceTarget::Local(target, _), true) = (document.resolve(reference), by_pointer)
                    && let Some(Value::Object(place)) = result.pointer_mut(&pointer)
                {
                    let target = self.moved(&target).replace('%', "%25");
                    place.insert(keyword.to_owned(), Value::String(format!("#{target}")));
                }
            }
        }
    }

    /// The new pointer of an old one: that of the innermost place around it that moves, and the rest of the way.
    fn moved(&self, target: &str) -> String {
        let around = self.names.iter().filter(|(place, _)| {
            let inside =
                target.strip_prefix(place.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
            let stays = place.is_empty() && SHARED.iter().any(|keyword| target.starts_with(&format!("/{keyword}/")));
            inside && !stays
        });
        match around.max_by_key(|(place, _)| place.len()) {
            Some((place, names)) => {
                format!("/$defs/{}{}", names.body, target.strip_prefix(place.as_str()).unwrap_or_default())
            }
            None => target.to_owned(),
        }
    }
}

/// What belongs to the document, not to the schema at its top.
const SHARED: [&str; 2] = ["$defs", "definitions"];

fn names_in<'a>(schema: &'a Value, keyword: &str) -> impl Iterator<Item = &'a str> {
    schema.get(keyword).and_then(Value::as_object).into_iter().flat_map(|named| named.keys().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accepts(schema: &Value, instance: &Value) -> bool {
        jsonschema::draft202012::options().offline().build(&closed(schema)).unwrap().is_valid(instance)
    }

    #[test]
    fn an_open_object_is_closed_the_cheap_way_when_that_is_enough() {
        let schema = json!({ "properties": { "a": { "properties": { "b": {} } }, "free": { "type": "object" } } });
        let expected = json!({
            "properties": { "a": { "properties": { "b": {} }, "additionalProperties": false }, "free": { "type": "object" } },
            "additionalProperties": false
        });
        assert_eq!(closed(&schema), expected);
    }

    #[test]
    fn a_recursive_union_is_decided_in_reasonable_time() {
        let branch = |kind: u8| json!({ "properties": { "k": { "const": kind }, "a": { "$ref": "#/$defs/n" } }, "required": ["k"] });
        let schema = json!({ "$ref": "#/$defs/n", "$defs": { "n": { "type": "object", "anyOf": [branch(1), branch(2), branch(3)] } } });
        for (leaf, expected) in [(json!({ "k": 2 }), true), (json!({ "k": 2, "z": 1 }), false), (json!(5), false)] {
            // Three branches on sixty levels: looked at naively this would outlive us.
            let value = (0..60).fold(leaf, |inner, _| json!({ "k": 3, "a": inner }));
            assert_eq!(accepts(&schema, &value), expected);
        }
    }

    #[test]
    fn closing_refuses_what_is_undeclared_and_nothing_else() {
        let composed = json!({
            "allOf": [{ "$ref": "#/$defs/base" }, { "properties": { "b": {} } }],
            "$defs": { "base": { "properties": { "a": {} } } }
        });
        let asked = json!({
            "properties": { "addr": { "properties": { "country": {}, "zip": {} } }, "list": { "items": { "properties": { "k": {}, "v": {} } }, "contains": { "properties": { "k": { "const": 1 } }, "required": ["k"] } } },
            "if": { "properties": { "addr": { "properties": { "country": { "const": "US" } }, "required": ["country"] } }, "required": ["addr"] },
            "then": { "properties": { "addr": { "required": ["zip"] } } }
        });
        let recursive = json!({ "properties": { "name": {}, "next": { "$ref": "#" } } });
        let extended = json!({
            "properties": { "name": {}, "more": { "$ref": "#", "properties": { "extra": {} } } }
        });
        let shared = json!({
            "allOf": [{ "properties": { "p": { "properties": { "a": {} } } } }, { "properties": { "p": { "properties": { "b": {} } } } }]
        });
        let union = json!({ "oneOf": [{ "properties": { "k": { "const": 1 }, "a": {} } }, { "properties": { "k": { "const": 2 }, "b": {} } }] });
        for (schema, instance, expected) in [
            (&composed, json!({ "a": 1, "b": 2 }), true),
            (&composed, json!({ "a": 1, "c": 2 }), false),
            (&asked, json!({ "addr": { "country": "US", "zip": 1 } }), true),
            (&asked, json!({ "addr": { "country": "US" } }), false),
            (&asked, json!({ "addr": { "cuontry": "US" } }), false),
            (&asked, json!({ "list": [{ "k": 1, "v": 2 }] }), true),
            (&asked, json!({ "list": [{ "k": 1, "w": 2 }] }), false),
            (&recursive, json!({ "name": 1, "next": { "next": { "name": 1 } } }), true),
            (&recursive, json!({ "next": { "next": { "nam": 1 } } }), false),
            (&extended, json!({ "more": { "extra": 1, "name": 2, "more": { "extra": 1 } } }), true),
            (&extended, json!({ "extra": 1 }), false),
            (&extended, json!({ "more": { "exrta": 1 } }), false),
            (&shared, json!({ "p": { "a": 1, "b": 1 } }), true),
            (&shared, json!({ "q": 1 }), false),
            (&union, json!({ "k": 2, "b": 1 }), true),
            (&union, json!({ "k": 2, "a": 1 }), false),
            (&json!({ "type": "object" }), json!({ "anything": 1 }), true),
            (&json!({ "properties": { "a": {} }, "additionalProperties": true }), json!({ "z": 1 }), true),
            (&json!({ "type": "object", "properties": {} }), json!({ "z": 1 }), false),
        ] {
            assert_eq!(accepts(schema, &instance), expected, "{instance} in {}", closed(schema));
        }
    }
}
