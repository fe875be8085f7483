//! The top level of a schema: each parameter with its type, its description and what is plain about it; what is nested
//! becomes a mark (LAZY-003).
//!
//! A model can tell from this which parameters there are and which it must give; for the inside of one it asks. The result
//! is a hint and not a schema to validate with: validation always uses the whole one.

use serde_json::{Map, Value};

/// Stands where something was left out.
pub(crate) const NESTED: &str = "x-nested";
/// Longest list of plain values, such as an enumeration, that stays.
const VALUES_MAX: usize = 16;
/// Longest text of a parameter that stays whole.
const TEXT_CHARS_MAX: usize = 120;
/// Members of the schema itself that stay, if they are plain.
const ROOT_KEYWORDS: &[&str] = &["type", "required", "additionalProperties", "minProperties", "maxProperties"];

/// The top level of `schema`; `None` if that leaves nothing out.
pub(crate) fn top_level(schema: &Value) -> Option<Value> {
    let whole = schema.as_object()?;
    let mut top = Map::new();
    let mut left_out = false;
    for (keyword, value) in whole {
        if keyword == "properties" {
            let parameters = value.as_object()?;
            let shallow = parameters.iter().map(|(name, parameter)| {
                let (parameter, less) = shallow(parameter);
                left_out |= less;
                (name.clone(), parameter)
            });
            top.insert(keyword.clone(), Value::Object(shallow.collect()));
        } else if ROOT_KEYWORDS.contains(&keyword.as_str()) && (is_plain(value) || keyword == "required") {
            top.insert(keyword.clone(), value.clone());
        } else if !is_remark(keyword) {
            left_out = true;
            // Definitions are of no use without what refers to them; alternatives matter even when they are not shown.
            if is_structure(keyword) {
                top.insert(NESTED.to_owned(), Value::Bool(true));
            }
        }
    }
    left_out.then_some(Value::Object(top))
}

/// One parameter without its inside, and whether anything was left out.
fn shallow(parameter: &Value) -> (Value, bool) {
    let Some(whole) = parameter.as_object() else { return (parameter.clone(), false) };
    let mut shown = Map::new();
    let mut left_out = false;
    for (keyword, value) in whole {
        let plain = is_plain(value) && keyword != "$ref" && !keyword.starts_with("x-");
        match value {
            Value::String(text) if plain && text.chars().count() > TEXT_CHARS_MAX => {
                shown.insert(keyword.clone(), crate::sentence::first_sentence(text, TEXT_CHARS_MAX).into());
                left_out = true;
            }
            _ if plain => {
                shown.insert(keyword.clone(), value.clone());
            }
            _ => {
                left_out = true;
                if keyword == "$ref" || !keyword.starts_with("x-") {
                    shown.insert(NESTED.to_owned(), Value::Bool(true));
                }
            }
        }
    }
    (Value::Object(shown), left_out)
}

/// Neither an object nor a list with one in it, nor a long list.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Object(_) => false,
        Value::Array(items) => {
            items.len() <= VALUES_MAX && items.iter().all(|item| !item.is_object() && !item.is_array())
        }
        _ => true,
    }
}

/// Says nothing about what may be sent.
fn is_remark(keyword: &str) -> bool {
    keyword.starts_with("x-") || matches!(keyword, "$schema" | "$id" | "$comment" | "title")
}

fn is_structure(keyword: &str) -> bool {
    matches!(
        keyword,
        "$ref"
            | "allOf"
            | "anyOf"
            | "oneOf"
            | "not"
            | "if"
            | "then"
            | "else"
            | "patternProperties"
            | "dependentRequired"
            | "dependentSchemas"
            | "propertyNames"
            | "additionalProperties"
            | "unevaluatedProperties"
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_plain_stays_and_what_is_nested_leaves_a_mark() {
        for (schema, expected) in [
            (
                json!({ "type": "object", "properties": { "n": { "type": "integer", "minimum": 1, "enum": [1, 2] } } }),
                None,
            ),
            (json!(true), None),
            (json!({ "$schema": "s", "title": "t", "type": "object", "x-token-cost": 7 }), None),
            (
                json!({ "type": "object", "properties": { "list": { "type": "array", "items": { "type": "string" } } }, "required": ["list"] }),
                Some(
                    json!({ "type": "object", "properties": { "list": { "type": "array", "x-nested": true } }, "required": ["list"] }),
                ),
            ),
            (
                json!({ "properties": { "a": { "$ref": "#/$defs/a" }, "any": true }, "$defs": { "a": { "type": "string" } } }),
                Some(json!({ "properties": { "a": { "x-nested": true }, "any": true } })),
            ),
            (
                json!({ "type": "object", "anyOf": [{ "required": ["a"] }], "description": "x" }),
                Some(json!({ "type": "object", "x-nested": true })),
            ),
            (
                json!({ "properties": { "k": { "enum": (0..17).collect::<Vec<_>>(), "x-guard": "path" } } }),
                Some(json!({ "properties": { "k": { "x-nested": true } } })),
            ),
        ] {
            assert_eq!(top_level(&schema), expected, "{schema}");
        }
    }
}
