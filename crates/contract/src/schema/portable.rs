//! A schema that can stand inside of another: every reference of it leads into `$defs`, which its host has too.
//!
//! References lead from the root of the document they stand in. A schema that is put into another one keeps its meaning only if
//! they lead to places that both roots have. What a reference leads to elsewhere, an anchor, a member, the whole, is written
//! into `$defs` once more and referred to there.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::dialect::is_current;
use super::document::{ReferenceTarget, SchemaDocument, join, references};

/// Members of a schema that hold what is referred to.
pub const DEFINITIONS: [&str; 2] = ["$defs", "definitions"];
/// Values of all places that are written once more. A schema with more could not be admitted.
const COPIED_MAX: usize = 10_000;
/// Keywords that say what a reference means, in the document they stand in.
const IDENTITY: [&str; 4] = ["$id", "$schema", "$anchor", "$dynamicAnchor"];

/// The schema, so that it means the same inside of a document whose root has its [`DEFINITIONS`]; as it is if it does already.
/// `None` if that would take too much room, or a reference leads nowhere.
pub fn portable(schema: &Value) -> Option<Value> {
    let document = SchemaDocument::new(schema);
    let positions: HashSet<String> = document.positions().into_iter().map(|(pointer, _)| pointer).collect();
    let mut writer = Writer { document: &document, positions: &positions, copies: HashMap::new(), waiting: Vec::new() };
    if writer.is_portable() {
        return Some(schema.clone());
    }
    let mut root = writer.rewritten(schema, "")?;
    let (mut copies, mut room) = (Map::new(), COPIED_MAX);
    while let Some((pointer, name)) = writer.waiting.pop() {
        let place = schema.pointer(&pointer)?;
        room = room.checked_sub(size(place, room)?)?;
        let mut copy = writer.rewritten(place, &pointer)?;
        if let (true, Some(members)) = (pointer.is_empty(), copy.as_object_mut()) {
            DEFINITIONS.iter().for_each(|definitions| drop(members.remove(*definitions)));
        }
        copies.insert(name, copy);
    }
    let definitions = root.as_object_mut()?.entry("$defs").or_insert_with(|| Value::Object(Map::new()));
    definitions.as_object_mut()?.extend(copies);
    Some(root)
}

struct Writer<'d, 'a> {
    document: &'d SchemaDocument<'a>,
    positions: &'d HashSet<String>,
    /// Places that are written once more, and the names they get.
    copies: HashMap<String, String>,
    waiting: Vec<(String, String)>,
}

impl Writer<'_, '_> {
    fn is_portable(&self) -> bool {
        self.document.positions().iter().filter_map(|(_, schema)| schema.as_object()).all(|map| {
            let leads = |(_, reference): (&str, &str)| match self.document.resolve(reference) {
                ReferenceTarget::Local(pointer, _) => reference.starts_with('#') && is_definition(&pointer),
                ReferenceTarget::Meta => true,
                ReferenceTarget::Missing | ReferenceTarget::Remote => false,
            };
            !IDENTITY.iter().any(|keyword| map.get(*keyword).is_some_and(Value::is_string))
                && references(map).all(leads)
        })
    }

    /// A part of the schema with other references. What is no schema in it stays as it is.
    fn rewritten(&mut self, value: &Value, pointer: &str) -> Option<Value> {
        Some(match value {
            Value::Array(items) => {
                let items = items.iter().enumerate();
                items.map(|(index, item)| self.rewritten(item, &format!("{pointer}/{index}"))).collect::<Option<_>>()?
            }
            Value::Object(map) => {
                let is_schema = self.positions.contains(pointer);
                let mut members = Map::new();
                for (name, member) in map {
                    if is_schema && is_left_out(name, member) {
                        continue;
                    }
                    if !(is_schema && matches!(name.as_str(), "$ref" | "$dynamicRef") && member.is_string()) {
                        members.insert(name.clone(), self.rewritten(member, &join(pointer, name))?);
                    }
                }
                if is_schema {
                    for (_, reference) in references(map) {
                        let reference = self.reference(reference)?;
                        refer(&mut members, reference);
                    }
                }
                Value::Object(members)
            }
            other => other.clone(),
        })
    }

    fn reference(&mut self, reference: &str) -> Option<String> {
        let pointer = match self.document.resolve(reference) {
            ReferenceTarget::Meta => return Some(reference.to_owned()),
            ReferenceTarget::Missing | ReferenceTarget::Remote => return None,
            ReferenceTarget::Local(pointer, _) => pointer,
        };
        if is_definition(&pointer) {
            return Some(format!("#{}", encoded(&pointer)));
        }
        let name = match self.copies.get(&pointer) {
            Some(name) => name.clone(),
            None => {
                let name = self.free_name();
                self.copies.insert(pointer.clone(), name.clone());
                self.waiting.push((pointer, name.clone()));
                name
            }
        };
        Some(format!("#/$defs/{name}"))
    }

    fn free_name(&self) -> String {
        let taken = |name: &String| self.document.root().pointer(&format!("/$defs/{name}")).is_some();
        let first = self.copies.len() + 1;
        (first..).map(|number| format!("place-{number}")).find(|name| !taken(name)).unwrap_or_default()
    }
}

/// What says what references mean goes. The name of a dialect that is not ours stays, so that the schema is refused for it.
fn is_left_out(name: &str, member: &Value) -> bool {
    let Some(text) = member.as_str().filter(|_| IDENTITY.contains(&name)) else { return false };
    name != "$schema" || is_current(text)
}

/// Does it lead into the definitions, and not to all of them?
fn is_definition(pointer: &str) -> bool {
    let below = |definitions: &str| pointer.strip_prefix('/')?.strip_prefix(definitions)?.strip_prefix('/');
    DEFINITIONS.iter().any(|definitions| below(definitions).is_some())
}

/// Adds a reference. A second one stands in `allOf`.
fn refer(members: &mut Map<String, Value>, reference: String) {
    if !members.contains_key("$ref") {
        members.insert("$ref".to_owned(), Value::String(reference));
        return;
    }
    let more = members.entry("allOf").or_insert_with(|| Value::Array(Vec::new()));
    if let Value::Array(all) = more {
        all.push(serde_json::json!({ "$ref": reference }));
    }
}

/// How many values it has; none if there are more than `most`.
fn size(value: &Value, most: usize) -> Option<usize> {
    let mut count = 0_usize;
    let mut work = vec![value];
    while let Some(value) = work.pop() {
        count += 1;
        if count > most {
            return None;
        }
        match value {
            Value::Array(items) => work.extend(items),
            Value::Object(members) => work.extend(members.values()),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    Some(count)
}

/// A pointer as a fragment of an address.
fn encoded(pointer: &str) -> String {
    let mut text = String::with_capacity(pointer.len());
    for byte in pointer.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?".contains(&byte) {
            text.push(char::from(byte));
        } else {
            text.push_str(&format!("%{byte:02X}"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::{CompiledSchema, SchemaLimits};

    /// The schema as a part of another, as one would put it there.
    fn hosted(schema: &Value) -> Value {
        let inner = portable(schema).unwrap();
        let mut host = json!({ "properties": { "inner": inner } });
        for definitions in DEFINITIONS {
            if let Some(kept) = inner.get(definitions) {
                host[definitions] = kept.clone();
            }
        }
        host
    }

    #[test]
    fn a_schema_says_the_same_by_itself_and_inside_of_another() {
        for (schema, good, bad) in [
            (
                json!({ "properties": { "a": { "$ref": "#/properties/b" }, "b": { "type": "string" } } }),
                json!({ "a": "x" }),
                json!({ "a": 1 }),
            ),
            (
                json!({ "properties": { "next": { "$ref": "#" }, "n": { "type": "integer" } } }),
                json!({ "next": { "next": { "n": 1 } } }),
                json!({ "next": { "next": { "n": "x" } } }),
            ),
            (
                json!({ "$id": "https://example.com/a.json", "properties": { "a": { "$ref": "a.json#p" } }, "$defs": { "p": { "$anchor": "p", "type": "string" } } }),
                json!({ "a": "x" }),
                json!({ "a": 1 }),
            ),
            (
                json!({ "properties": { "a": { "$dynamicRef": "#d", "$ref": "#/$defs/a%20b" } }, "$defs": { "a b": { "minLength": 2 }, "d": { "$dynamicAnchor": "d", "type": "string" } } }),
                json!({ "a": "xy" }),
                json!({ "a": "x" }),
            ),
            (
                json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "properties": { "a": { "$ref": "#/$defs/place-1" }, "b": { "$ref": "#/properties/a" } }, "$defs": { "place-1": { "type": "string" } } }),
                json!({ "b": "x" }),
                json!({ "b": 1 }),
            ),
            (
                json!({ "properties": { "a": { "$ref": "#/$defs/p" } }, "$defs": { "p": { "default": { "$ref": "#x" }, "type": "string" } } }),
                json!({ "a": "x" }),
                json!({ "a": 1 }),
            ),
        ] {
            let limits = SchemaLimits::default();
            let alone = CompiledSchema::output(&portable(&schema).unwrap(), &limits)
                .unwrap_or_else(|error| panic!("{schema}: {error}"));
            let inside =
                CompiledSchema::output(&hosted(&schema), &limits).unwrap_or_else(|error| panic!("{schema}: {error}"));
            for (value, expected) in [(&good, true), (&bad, false)] {
                assert_eq!(alone.check(value).is_ok(), expected, "{schema} {value}");
                assert_eq!(inside.check(&json!({ "inner": value })).is_ok(), expected, "{schema} {value}");
            }
        }
    }

    #[test]
    fn what_is_portable_stays_as_it_was_written_and_what_cannot_be_is_not() {
        let same = json!({ "properties": { "n": { "$ref": "#/$defs/c" } }, "$defs": { "c": { "type": "integer" } } });
        assert_eq!(portable(&same), Some(same));
        let foreign = json!({ "$schema": "https://example.com/mine", "type": "object" });
        assert_eq!(portable(&foreign).unwrap().get("$schema"), foreign.get("$schema"));
        assert!(CompiledSchema::output(&hosted(&foreign), &SchemaLimits::default()).is_err());
        assert_eq!(portable(&json!({ "$ref": "#/nowhere" })), None);
        assert_eq!(portable(&json!({ "$ref": "https://example.com/" })), None);
        let large = json!({ "properties": { "a": { "$ref": "#" }, "b": { "enum": vec![1; COPIED_MAX] } } });
        assert_eq!(portable(&large), None);
    }
}
