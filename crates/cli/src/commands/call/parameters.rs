//! Parameters as people write them: `key=value`, `key:=JSON`, a JSON object, a file, stdin.
//!
//! Pure but for [`document`], which may read a file.

use std::io::Read as _;
use std::path::Path;

use contract::json::{self, JsonLimits};
use serde_json::{Map, Value};

use crate::failure::CommandFailure;
use crate::plain_file;

/// `$ref` chains and branches are followed this far when looking for "may it be text?".
const DEPTH_MAX: usize = 16;
/// More than a server takes.
const INPUT_BYTES_MAX: u64 = 64 << 20;

/// One parameter of the command line.
#[derive(Debug, PartialEq)]
pub(super) enum Pair {
    /// `key=value`: typed by the schema.
    Text { key: String, text: String },
    /// `key:=JSON`: taken literally.
    Json { key: String, value: Value },
}

impl Pair {
    /// Reads one.
    pub(super) fn parse(text: &str) -> Result<Self, CommandFailure> {
        let Some((key, value)) = text.split_once('=').filter(|(key, _)| !matches!(*key, "" | ":")) else {
            return Err(CommandFailure::usage(format!("`{text}` is not a parameter"))
                .hint("write key=value, key:=JSON, or all of them as --params '{\"key\": \"value\"}'"));
        };
        match key.strip_suffix(':') {
            Some(key) => {
                let parsed = json::read(value.as_bytes(), &JsonLimits::default());
                parsed.map(|value| Self::Json { key: key.to_owned(), value }).map_err(|error| {
                    CommandFailure::usage(format!("the value of `{key}` is not JSON: {error}"))
                        .hint("`:=` takes JSON; `=` takes text")
                })
            }
            None => Ok(Self::Text { key: key.to_owned(), text: value.to_owned() }),
        }
    }

    /// Does the meaning depend on the tool's schema?
    pub(super) fn needs_schema(&self) -> bool {
        matches!(self, Self::Text { .. })
    }
}

/// `--params`: JSON, `@FILE`, or `-` for stdin.
pub(super) fn document(argument: &str) -> Result<Map<String, Value>, CommandFailure> {
    let text = match argument {
        "-" => read_all(std::io::stdin().lock())
            .map_err(|error| CommandFailure::new(format!("stdin cannot be read: {error}")))?,
        _ => match argument.strip_prefix('@') {
            Some(path) => plain_file::open(Path::new(path))
                .and_then(read_all)
                .map_err(|error| CommandFailure::new(format!("`{path}` cannot be read: {error}")))?,
            None => argument.to_owned(),
        },
    };
    match json::read(text.as_bytes(), &JsonLimits { bytes_max: text.len().max(1), ..JsonLimits::default() }) {
        Ok(Value::Object(members)) => Ok(members),
        Ok(_) => {
            Err(CommandFailure::usage("--params must be a JSON object")
                .hint("for example --params '{\"text\": \"a b\"}'"))
        }
        Err(error) => Err(CommandFailure::usage(format!("--params is not JSON: {error}"))
            .hint("mind the shell's quotes: --params '{\"text\": \"a b\"}', or @FILE")),
    }
}

fn read_all(source: impl std::io::Read) -> std::io::Result<String> {
    let mut text = String::new();
    source.take(INPUT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// All parameters together; one that is given twice is a mistake.
pub(super) fn merge(
    mut given: Map<String, Value>,
    pairs: &[Pair],
    schema: &Value,
) -> Result<Map<String, Value>, CommandFailure> {
    for pair in pairs {
        let (key, value) = match pair {
            Pair::Json { key, value } => (key, value.clone()),
            Pair::Text { key, text } => (key, typed(text, key, schema)),
        };
        if given.insert(key.clone(), value).is_some() {
            return Err(CommandFailure::usage(format!("parameter `{key}` is given twice")));
        }
    }
    Ok(given)
}

/// Text where text may stand, otherwise what the text says as JSON, otherwise text for the server to judge.
fn typed(text: &str, key: &str, schema: &Value) -> Value {
    let property = schema.get("properties").and_then(|properties| properties.get(key));
    if property.is_some_and(|property| may_be_text(property, schema, DEPTH_MAX)) {
        return Value::String(text.to_owned());
    }
    json::read(text.as_bytes(), &JsonLimits::default()).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn may_be_text(schema: &Value, root: &Value, depth: usize) -> bool {
    let Some(depth) = depth.checked_sub(1) else { return false };
    let is_text = |value: &Value| value.as_str() == Some("string");
    let named = match schema.get("type") {
        Some(Value::Array(types)) => types.iter().any(is_text),
        Some(one) => is_text(one),
        None => ["enum", "const"].into_iter().filter_map(|word| schema.get(word)).any(|value| match value {
            Value::Array(values) => values.iter().any(Value::is_string),
            value => value.is_string(),
        }),
    };
    let referred = schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| root.pointer(reference.strip_prefix('#')?))
        .is_some_and(|target| may_be_text(target, root, depth));
    let branches = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|word| schema.get(word)?.as_array());
    named || referred || branches.flatten().any(|branch| may_be_text(branch, root, depth))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_typed_by_the_schema_of_the_tool() {
        let schema = json!({
            "properties": {
                "text": { "type": "string" }, "count": { "type": "integer" }, "flag": { "type": "boolean" },
                "list": { "type": "array" }, "either": { "type": ["integer", "string"] }, "any": {},
                "choice": { "enum": ["1", "2"] }, "size": { "enum": [1, 2] }, "ref": { "$ref": "#/$defs/name" },
                "branch": { "anyOf": [{ "type": "integer" }, { "type": "string" }] }, "loop": { "$ref": "#/properties/loop" },
            },
            "$defs": { "name": { "type": "string" } },
        });
        for (key, text, expected) in [
            ("text", "2", json!("2")),
            ("text", "true", json!("true")),
            ("count", "2", json!(2)),
            ("count", "two", json!("two")),
            ("flag", "true", json!(true)),
            ("list", "[1, 2]", json!([1, 2])),
            ("either", "2", json!("2")),
            ("any", "2", json!(2)),
            ("any", "two", json!("two")),
            ("choice", "1", json!("1")),
            ("size", "1", json!(1)),
            ("ref", "1", json!("1")),
            ("branch", "1", json!("1")),
            ("loop", "1", json!(1)),
            ("unknown", "1", json!(1)),
        ] {
            assert_eq!(typed(text, key, &schema), expected, "{key}={text}");
        }
    }

    #[test]
    fn the_first_equals_sign_divides() {
        assert_eq!(Pair::parse("a=b=c").unwrap(), Pair::Text { key: "a".into(), text: "b=c".into() });
        assert_eq!(Pair::parse("a:=[1]").unwrap(), Pair::Json { key: "a".into(), value: json!([1]) });
        assert_eq!(Pair::parse("a=").unwrap(), Pair::Text { key: "a".into(), text: String::new() });
        for bad in ["a", "=b", ":=1", "a:={", ""] {
            assert!(Pair::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_parameter_given_twice_is_a_mistake() {
        let pairs = [Pair::parse("a=1").unwrap()];
        assert!(merge(document(r#"{"a": 1}"#).unwrap(), &pairs, &Value::Null).is_err());
        assert_eq!(merge(document(r#"{"b": 1}"#).unwrap(), &pairs, &Value::Null).unwrap().len(), 2);
    }

    #[test]
    fn params_must_be_one_json_object() {
        for bad in ["[1]", "{", "", "@/nowhere/at/all", r#"{"a":1,"a":2}"#] {
            assert!(document(bad).is_err(), "{bad}");
        }
    }
}
