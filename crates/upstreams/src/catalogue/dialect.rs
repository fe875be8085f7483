//! Schemas of servers in the one dialect that Gantry reads, JSON Schema 2020-12.
//!
//! Most servers write draft-07 and mean nothing by it that 2020-12 has not: the few words that differ are put into the new
//! ones. A dialect that cannot be put over word by word (draft-04 and older, a private one) stays as it is and is refused
//! with its reason, like any schema that cannot be used.

use serde_json::{Map, Value};

/// Dialects whose words can be put over.
const NEAR: [&str; 3] = ["draft-06/schema", "draft-07/schema", "draft/2019-09/schema"];
/// Keywords whose members are values of the author's and not schemas.
const VALUES: [&str; 5] = ["const", "enum", "default", "examples", "required"];
/// Keywords whose members are schemas by name.
const BY_NAME: [&str; 5] = ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// The schema in our dialect.
pub(super) fn modern(schema: &Value) -> Value {
    let named = schema.get("$schema").and_then(Value::as_str).unwrap_or_default();
    if !NEAR.iter().any(|dialect| named.trim_end_matches('#').ends_with(dialect)) {
        return schema.clone();
    }
    let mut modern = translated(schema);
    if let Some(members) = modern.as_object_mut() {
        members.remove("$schema");
    }
    modern
}

/// Depth is bounded: a descriptor came through the reader of messages, which bounds it.
fn translated(schema: &Value) -> Value {
    let Value::Object(members) = schema else {
        return match schema {
            Value::Array(items) => items.iter().map(translated).collect(),
            other => other.clone(),
        };
    };
    let mut out = Map::new();
    let is_tuple = members.get("items").is_some_and(Value::is_array);
    for (keyword, value) in members {
        match keyword.as_str() {
            "items" if is_tuple => out.insert("prefixItems".into(), translated(value)),
            // Without a tuple it never meant anything.
            "additionalItems" if is_tuple => out.insert("items".into(), translated(value)),
            "additionalItems" => None,
            "dependencies" => {
                dependencies(value, &mut out);
                None
            }
            word if VALUES.contains(&word) => out.insert(keyword.clone(), value.clone()),
            word if BY_NAME.contains(&word) => out.insert(keyword.clone(), by_name(value)),
            _ => out.insert(keyword.clone(), translated(value)),
        };
    }
    Value::Object(out)
}

fn by_name(schemas: &Value) -> Value {
    match schemas {
        Value::Object(schemas) => schemas.iter().map(|(name, schema)| (name.clone(), translated(schema))).collect(),
        other => other.clone(),
    }
}

/// One word became two.
fn dependencies(value: &Value, out: &mut Map<String, Value>) {
    let Value::Object(members) = value else { return };
    let (names, schemas): (Vec<_>, Vec<_>) = members.iter().partition(|(_, dependency)| dependency.is_array());
    if !names.is_empty() {
        out.insert("dependentRequired".into(), names.into_iter().map(|(k, v)| (k.clone(), v.clone())).collect());
    }
    if !schemas.is_empty() {
        out.insert("dependentSchemas".into(), schemas.into_iter().map(|(k, v)| (k.clone(), translated(v))).collect());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_draft_07_says_otherwise_is_said_in_our_words() {
        let old = json!({
            "$schema": "http://json-schema.org/draft-07/schema#", "type": "object",
            "properties": {
                "pair": { "type": "array", "items": [{ "type": "string" }, { "type": "number" }], "additionalItems": false },
                "items": { "type": "string", "default": { "items": [1] } },
            },
            "dependencies": { "a": ["b"], "c": { "required": ["d"] } },
        });
        let new = json!({
            "type": "object",
            "properties": {
                "pair": { "type": "array", "prefixItems": [{ "type": "string" }, { "type": "number" }], "items": false },
                "items": { "type": "string", "default": { "items": [1] } },
            },
            "dependentRequired": { "a": ["b"] },
            "dependentSchemas": { "c": { "required": ["d"] } },
        });
        assert_eq!(modern(&old), new);
    }

    #[test]
    fn what_is_ours_already_or_cannot_be_put_over_stays_as_it_is() {
        for schema in [
            json!({ "type": "object", "items": [1] }),
            json!({ "$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object" }),
            json!({ "$schema": "http://json-schema.org/draft-04/schema#", "type": "object" }),
            json!(true),
        ] {
            assert_eq!(modern(&schema), schema);
        }
    }
}
