//! JSON: what a member's name or its mark in the schema says, and what is in its texts, at every depth (VALID-011, VALID-014).
//!
//! Names of members are texts as well, and so is JSON inside of a string. Numbers are looked at as they are written, because
//! a card number is one without quotes too.

use serde_json::{Map, Value};

use crate::engine::Engine;
use crate::finding::REDACTED;
use crate::names::words;
use crate::numbers::Hint;

/// Deepest value that is redacted. The readers of requests allow less.
const DEPTH_MAX: usize = 128;
/// Strings of JSON inside of strings of JSON that are opened.
const NESTED_MAX: usize = 4;
/// Longest string that is tried as JSON.
const NESTED_BYTES_MAX: usize = 1024 * 1024;
/// References of a schema that are followed in a row.
const REFERENCES_MAX: usize = 16;
/// Alternatives of a schema that are looked at for one value.
const ALTERNATIVES_MAX: usize = 64;
/// Digits of a number that is looked at. Longer ones than a card has do not exist.
const SHORTEST_NUMBER: usize = 9;

/// Why something could not be redacted. It must not be written then.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RedactionError {
    /// The value has more levels than the engine goes down.
    #[error("the value is nested deeper than {DEPTH_MAX} levels")]
    TooDeep,
}

/// Whether the `x-sensitivity` of a schema asks for redaction.
pub fn is_marked(annotation: Option<&Value>) -> bool {
    match annotation {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(level)) => !is_open(level),
        Some(Value::Bool(true) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => true,
    }
}

fn is_open(level: &str) -> bool {
    level.eq_ignore_ascii_case("none") || level.eq_ignore_ascii_case("public")
}

impl Engine {
    /// The value with words in place of what must not be seen; `schema` is what the value is described by, if anything.
    pub fn value(&self, value: &Value, schema: Option<&Value>) -> Result<Value, RedactionError> {
        let walk = Walk { engine: self, root: schema };
        let schemas: Vec<&Value> = schema.into_iter().collect();
        walk.value(value, &schemas, Place { depth: 0, nested: 0, hint: Hint::default() })
    }

    /// The value with [`REDACTED`] in place of every member with one of these names, at every depth. Nothing else changes.
    pub fn members(&self, value: &mut Value, names: &[impl AsRef<str>]) {
        match value {
            Value::Object(members) => {
                for (name, member) in members {
                    if names.iter().any(|masked| masked.as_ref() == name) {
                        *member = Value::String(REDACTED.to_owned());
                    } else {
                        self.members(member, names);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.members(item, names)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Where in a document something stands.
#[derive(Debug, Clone, Copy)]
struct Place {
    depth: usize,
    nested: usize,
    hint: Hint,
}

struct Walk<'a> {
    engine: &'a Engine,
    root: Option<&'a Value>,
}

impl<'a> Walk<'a> {
    fn value(&self, value: &Value, schemas: &[&'a Value], place: Place) -> Result<Value, RedactionError> {
        if place.depth > DEPTH_MAX {
            return Err(RedactionError::TooDeep);
        }
        let below = Place { depth: place.depth + 1, ..place };
        Ok(match value {
            Value::Null | Value::Bool(_) => value.clone(),
            Value::Number(number) => {
                let text = number.to_string();
                if text.len() < SHORTEST_NUMBER {
                    return Ok(value.clone());
                }
                match self.engine.text_in(&text, place.hint) {
                    std::borrow::Cow::Borrowed(_) => value.clone(),
                    std::borrow::Cow::Owned(redacted) => Value::String(redacted),
                }
            }
            Value::String(text) => Value::String(self.text(text, place)?),
            Value::Array(items) => {
                let schemas = self.of_items(schemas);
                Value::Array(items.iter().map(|item| self.value(item, &schemas, below)).collect::<Result<_, _>>()?)
            }
            Value::Object(members) => Value::Object(self.object(members, schemas, below)?),
        })
    }

    fn object(
        &self,
        members: &Map<String, Value>,
        schemas: &[&'a Value],
        place: Place,
    ) -> Result<Map<String, Value>, RedactionError> {
        let mut redacted = Map::with_capacity(members.len());
        for (name, member) in members {
            let schemas = self.of_member(schemas, name);
            let mark = |schema: &&Value| schema.get("x-sensitivity").cloned();
            let marks: Vec<Value> = schemas.iter().filter_map(mark).collect();
            let open = !marks.is_empty() && !marks.iter().any(|mark| is_marked(Some(mark)));
            let told = marks.iter().any(|mark| is_marked(Some(mark)))
                || (self.engine.hides(name) && !open && holds(name, member));
            let shown = if told {
                Value::String(REDACTED.to_owned())
            } else {
                self.value(member, &schemas, Place { hint: hint(name), ..place })?
            };
            redacted.insert(free_name(&redacted, self.engine.text(name).into_owned()), shown);
        }
        Ok(redacted)
    }

    /// A text, and the JSON in it if it is some.
    fn text(&self, text: &str, place: Place) -> Result<String, RedactionError> {
        let trimmed = text.trim_start();
        if place.nested < NESTED_MAX
            && trimmed.starts_with(['{', '['])
            && text.len() <= NESTED_BYTES_MAX
            && let Ok(inner) = serde_json::from_str::<Value>(text)
        {
            let redacted =
                self.value(&inner, &[], Place { nested: place.nested + 1, depth: place.depth + 1, hint: place.hint })?;
            if redacted != inner {
                return Ok(self.engine.text_in(&redacted.to_string(), place.hint).into_owned());
            }
        }
        Ok(self.engine.text_in(text, place.hint).into_owned())
    }

    /// The schemas that describe a member, all of them.
    fn of_member(&self, schemas: &[&'a Value], name: &str) -> Vec<&'a Value> {
        let mut found = Vec::new();
        for schema in self.spread(schemas) {
            if let Some(own) = schema.get("properties").and_then(|all| all.get(name)) {
                found.push(own);
                continue;
            }
            found.extend(schema.get("additionalProperties"));
            // Which pattern fits is for the validator to say: all of them count here.
            found.extend(schema.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::values));
        }
        self.spread(&found)
    }

    fn of_items(&self, schemas: &[&'a Value]) -> Vec<&'a Value> {
        let mut found = Vec::new();
        for schema in self.spread(schemas) {
            found.extend(schema.get("items"));
            found.extend(schema.get("prefixItems").and_then(Value::as_array).into_iter().flatten());
        }
        self.spread(&found)
    }

    /// The schemas, and those they refer to or are put together from.
    fn spread(&self, schemas: &[&'a Value]) -> Vec<&'a Value> {
        let mut all: Vec<&'a Value> = Vec::new();
        let mut waiting: Vec<(&'a Value, usize)> = schemas.iter().map(|schema| (*schema, 0)).collect();
        while let Some((schema, followed)) = waiting.pop() {
            if all.len() >= ALTERNATIVES_MAX || all.iter().any(|known| std::ptr::eq(*known, schema)) {
                continue;
            }
            all.push(schema);
            for word in ["allOf", "anyOf", "oneOf"] {
                waiting.extend(
                    schema.get(word).and_then(Value::as_array).into_iter().flatten().map(|part| (part, followed)),
                );
            }
            for word in ["then", "else", "if"] {
                waiting.extend(schema.get(word).map(|part| (part, followed)));
            }
            let target = schema.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix('#'));
            if let Some(target) =
                target.and_then(|pointer| self.root?.pointer(pointer)).filter(|_| followed < REFERENCES_MAX)
            {
                waiting.push((target, followed + 1));
            }
        }
        all
    }
}

/// Whether a member with the name of a secret can hold one: a number of tokens cannot, nor the working directory.
fn holds(name: &str, member: &Value) -> bool {
    match member {
        Value::Null | Value::Bool(_) => false,
        Value::Number(_) => !words(name).last().is_some_and(|word| word == "token" || word == "tokens"),
        Value::String(text) => {
            let directory = name.eq_ignore_ascii_case("pwd") && text.starts_with('/');
            !text.is_empty() && !directory
        }
        Value::Array(items) => !items.is_empty(),
        Value::Object(members) => !members.is_empty(),
    }
}

/// What a name says about numbers below it.
fn hint(name: &str) -> Hint {
    let words = words(name);
    let any = |known: &[&str]| words.iter().any(|word| known.contains(&word.as_str()));
    Hint {
        phone: any(&[
            "phone",
            "telephone",
            "mobile",
            "fax",
            "tel",
            "cell",
            "cellphone",
            "msisdn",
            "whatsapp",
            "sms",
            "phones",
        ]),
        ssn: any(&["itin", "tin", "ssn", "taxpayer"]),
    }
}

/// Two names can become the same word; both members stay.
fn free_name(members: &Map<String, Value>, name: String) -> String {
    if !members.contains_key(&name) {
        return name;
    }
    (2_usize..).map(|count| format!("{name} {count}")).find(|other| !members.contains_key(other)).unwrap_or(name)
}
