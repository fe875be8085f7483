//! The headers by which those between a client and a server can see what a request is about (revision 2026-07-28).
//!
//! `Mcp-Method` and `Mcp-Name` repeat what stands in the body; `Mcp-Param-*` repeats the arguments that a tool's schema marks
//! with `x-mcp-header`. What cannot stand in a header as it is goes as `=?base64?…?=`.
//!
//! A mark that breaks the rules of the revision makes its tool unfit ([`unfit_mark`]), and the tool is left out where lists are
//! taken in: a request without the header would be turned away, and a header with another name would say something else to
//! whoever stands between. The rule is kept for every server, not only for those that are reached by HTTP, because whatever is
//! taken in is offered again at a door that speaks HTTP.
//!
//! Invariants
//! - HDR-1: what [`unfit_mark`] lets through can be sent: as many marks as are sent, at a depth that is looked at, with names
//!   that are header names and no two alike.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::transport::common::http_header::{
    BASE64_HEADER_PREFIX, BASE64_HEADER_SUFFIX, HEADER_MCP_METHOD, HEADER_MCP_NAME, HEADER_MCP_PARAM_PREFIX,
};
use serde_json::{Map, Value};

/// The keyword that marks a property.
const MARK: &str = "x-mcp-header";
/// Most arguments that become headers, and the deepest of them.
const PARAMETERS_MAX: usize = 32;
const DEPTH_MAX: usize = 8;
/// Longest name of a mark; names of headers are short, and every request repeats them.
const MARK_CHARS_MAX: usize = 128;
/// Keywords whose members are values of the author's and not schemas.
const VALUES: [&str; 4] = ["const", "default", "enum", "examples"];
/// Keywords whose members are schemas by name, besides `properties`.
const BY_NAME: [&str; 4] = ["$defs", "definitions", "dependentSchemas", "patternProperties"];

/// The headers of one request. `schema` is that of the tool that is called.
pub fn standard(method: &str, params: &Value, schema: Option<&Value>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    set(&mut headers, HEADER_MCP_METHOD, method);
    let name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => params.get("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => params.get("taskId"),
        _ => None,
    };
    if let Some(name) = name.and_then(Value::as_str) {
        set(&mut headers, HEADER_MCP_NAME, &encoded(name));
    }
    if let (Some(schema), Some(arguments)) = (schema, params.get("arguments"))
        && method == "tools/call"
    {
        let mut found = Vec::new();
        marked(schema, arguments, DEPTH_MAX, &mut found);
        for (header, value) in found {
            set(&mut headers, &format!("{HEADER_MCP_PARAM_PREFIX}{header}"), &encoded(&value));
        }
    }
    headers
}

/// The trace a request belongs to, for those between a client and a server that read no bodies.
pub(crate) fn trace(params: &Value, headers: &mut HeaderMap) {
    for name in ["traceparent", "tracestate"] {
        if let Some(value) = params.get("_meta").and_then(|meta| meta.get(name)).and_then(Value::as_str) {
            set(headers, name, value);
        }
    }
}

/// Does a schema mark any of its properties?
pub fn has_marks(schema: &Value) -> bool {
    schema.as_object().is_some_and(marks_something)
}

fn marks_something(schema: &Map<String, Value>) -> bool {
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flat_map(Map::values);
    properties.filter_map(Value::as_object).any(|property| property.contains_key(MARK) || marks_something(property))
}

/// Why the marks of a schema break the rules of revision 2026-07-28, if they do: a mark stands at a property of type
/// `string`, `integer` or `boolean` that is reached by `properties` alone, and its name is a header name that no other mark
/// of the tool has, in whatever case.
pub fn unfit_mark(schema: &Value) -> Option<String> {
    let Value::Object(members) = schema else { return None };
    if members.contains_key(MARK) || strays(members, true) {
        return Some(format!("`{MARK}` stands where no argument is: only properties of properties can be marked"));
    }
    let mut seen = Vec::new();
    unfit_property(members, DEPTH_MAX, &mut seen)
}

fn unfit_property(schema: &Map<String, Value>, depth: usize, seen: &mut Vec<String>) -> Option<String> {
    let properties = schema.get("properties").and_then(Value::as_object)?;
    properties.values().filter_map(Value::as_object).find_map(|property| {
        let mark = property.get(MARK).and_then(|mark| unfit(mark, property, seen));
        mark.or_else(|| match depth {
            0 if marks_something(property) => Some(format!("`{MARK}` stands deeper than {DEPTH_MAX} objects")),
            0 => None,
            _ => unfit_property(property, depth - 1, seen),
        })
    })
}

/// What is wrong with one mark. Names are not repeated: they are a stranger's, and these messages are shown.
fn unfit(mark: &Value, property: &Map<String, Value>, seen: &mut Vec<String>) -> Option<String> {
    let wrong = |what: &str| Some(format!("an `{MARK}` {what}"));
    let Some(name) = mark.as_str() else { return wrong("is no string") };
    if name.is_empty() {
        return wrong("is empty");
    }
    if name.len() > MARK_CHARS_MAX || !name.bytes().all(is_token) {
        return wrong("is no name that a header can have");
    }
    if !matches!(property.get("type").and_then(Value::as_str), Some("string" | "integer" | "boolean")) {
        return wrong("marks something else than a `string`, an `integer` or a `boolean`");
    }
    let name = name.to_ascii_lowercase();
    if seen.contains(&name) {
        return wrong("is there twice, and headers do not tell upper from lower case");
    }
    if seen.len() >= PARAMETERS_MAX {
        return wrong(&format!("is more than the {PARAMETERS_MAX} that are sent"));
    }
    seen.push(name);
    None
}

/// Characters of a token (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Is there a mark that is not reached by `properties` alone? Depth is bounded by the reader of messages.
fn strays(schema: &Map<String, Value>, on_the_way: bool) -> bool {
    let by_name = |value: &Value, on_the_way| {
        value.as_object().is_some_and(|schemas| schemas.values().any(|schema| strays_in(schema, on_the_way)))
    };
    schema.iter().any(|(keyword, value)| match keyword.as_str() {
        MARK => !on_the_way,
        "properties" => by_name(value, on_the_way),
        word if BY_NAME.contains(&word) => by_name(value, false),
        word if VALUES.contains(&word) => false,
        _ => strays_in(value, false),
    })
}

fn strays_in(value: &Value, on_the_way: bool) -> bool {
    match value {
        Value::Object(schema) => strays(schema, on_the_way),
        Value::Array(items) => items.iter().any(|item| strays_in(item, false)),
        _ => false,
    }
}

/// The marked properties that the arguments have.
fn marked<'s>(schema: &'s Value, arguments: &Value, depth: usize, found: &mut Vec<(&'s str, String)>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        let Some(argument) = arguments.get(name) else { continue };
        if let Some(header) = property.get(MARK).and_then(Value::as_str)
            && let Some(text) = primitive(argument)
            && found.len() < PARAMETERS_MAX
        {
            found.push((header, text));
        }
        if depth > 0 {
            marked(property, argument, depth - 1, found);
        }
    }
}

fn primitive(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Bool(yes) => Some(yes.to_string()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// A name or value that is no header is left out: the server then says what it misses.
fn set(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

fn encoded(value: &str) -> String {
    let blank_edge = value.starts_with([' ', '\t']) || value.ends_with([' ', '\t']);
    let plain = value.bytes().all(|byte| (0x20..=0x7e).contains(&byte));
    let looks_encoded = value.starts_with(BASE64_HEADER_PREFIX) && value.ends_with(BASE64_HEADER_SUFFIX);
    if blank_edge || !plain || looks_encoded {
        return format!("{BASE64_HEADER_PREFIX}{}{BASE64_HEADER_SUFFIX}", STANDARD.encode(value));
    }
    value.to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_request_is_about_stands_in_its_headers() {
        let schema = json!({ "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "plain": { "type": "string" },
            "deep": { "properties": { "n": { "type": "integer", "x-mcp-header": "N" } } },
            "bad": { "type": "string", "x-mcp-header": "no header" },
        } });
        let params = json!({ "name": "wetter", "arguments": { "region": "Zürich", "plain": "x", "deep": { "n": 3 }, "bad": "y" } });
        let headers = standard("tools/call", &params, Some(&schema));
        let seen = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(seen("mcp-method").as_deref(), Some("tools/call"));
        assert_eq!(seen("mcp-name").as_deref(), Some("wetter"));
        assert_eq!(seen("mcp-param-region").as_deref(), Some("=?base64?WsO8cmljaA==?="));
        assert_eq!(seen("mcp-param-n").as_deref(), Some("3"));
        assert_eq!(headers.len(), 4);
    }

    #[test]
    fn only_marks_that_can_be_sent_are_let_through() {
        let marked =
            |kind: &str, mark: Value| json!({ "type": "object", "properties": { "a": { "type": kind, MARK: mark } } });
        let two = |one: &str, other: &str| {
            json!({ "properties": { "a": { "type": "string", MARK: one },
                "b": { "type": "object", "properties": { "c": { "type": "boolean", MARK: other } } } } })
        };
        let nested = |depth: usize| {
            (0..depth)
                .fold(json!({ "type": "string", MARK: "Deep" }), |inner, _| json!({ "properties": { "x": inner } }))
        };
        let many = |count: usize| {
            let properties: Map<String, Value> =
                (0..count).map(|n| (format!("p{n}"), json!({ "type": "string", MARK: format!("P{n}") }))).collect();
            json!({ "properties": properties })
        };
        for (schema, word) in [
            (json!({ "type": "object" }), None),
            (marked("string", json!("Region")), None),
            (marked("integer", json!("!#$%&'*+-.^_`|~09az")), None),
            (two("Region", "Zone"), None),
            (nested(DEPTH_MAX + 1), None),
            (many(PARAMETERS_MAX), None),
            // Names and values of the author's are no keywords.
            (json!({ "properties": { MARK: { "type": "string", "default": { MARK: "x" } } } }), None),
            (marked("string", json!("")), Some("is empty")),
            (marked("string", json!(7)), Some("is no string")),
            (marked("string", json!("My Region")), Some("header can have")),
            (marked("string", json!("Region:Primary")), Some("header can have")),
            (marked("string", json!("Région")), Some("header can have")),
            (marked("string", json!("Region\t1")), Some("header can have")),
            (marked("string", json!("x".repeat(MARK_CHARS_MAX + 1))), Some("header can have")),
            (marked("number", json!("Score")), Some("something else")),
            (marked("object", json!("Data")), Some("something else")),
            (marked("array", json!("Items")), Some("something else")),
            (marked("null", json!("Nil")), Some("something else")),
            (json!({ "properties": { "a": { MARK: "Any" } } }), Some("something else")),
            (two("Region", "Region"), Some("twice")),
            (two("MyField", "myfield"), Some("twice")),
            (many(PARAMETERS_MAX + 1), Some("more than")),
            (nested(DEPTH_MAX + 2), Some("deeper")),
            (json!({ MARK: "Root" }), Some("where no argument is")),
            (
                json!({ "properties": { "a": { "type": "array", "items": { "type": "string", MARK: "I" } } } }),
                Some("where no argument is"),
            ),
            (json!({ "$defs": { "a": { "type": "string", MARK: "I" } } }), Some("where no argument is")),
            (
                json!({ "anyOf": [{ "properties": { "a": { "type": "string", MARK: "I" } } }] }),
                Some("where no argument is"),
            ),
        ] {
            let found = unfit_mark(&schema);
            assert_eq!(found.is_some(), word.is_some(), "{schema}: {found:?}");
            assert!(word.is_none_or(|word| found.as_ref().unwrap().contains(word)), "{schema}: {found:?}");
        }
    }

    #[test]
    fn what_is_let_through_is_sent_to_the_last_mark() {
        let schema = (0..=DEPTH_MAX)
            .fold(json!({ "type": "string", MARK: "Deep" }), |inner, _| json!({ "properties": { "x": inner } }));
        let arguments = (0..=DEPTH_MAX).fold(json!("down here"), |inner, _| json!({ "x": inner }));
        assert!(has_marks(&schema) && unfit_mark(&schema).is_none());
        let headers = standard("tools/call", &json!({ "name": "t", "arguments": arguments }), Some(&schema));
        assert_eq!(headers["mcp-param-deep"], "down here");
        let absent = standard("tools/call", &json!({ "name": "t", "arguments": { "x": null } }), Some(&schema));
        assert!(absent.get("mcp-param-deep").is_none(), "what is not there is not said");
    }

    #[test]
    fn values_that_do_not_fit_are_wrapped() {
        for (value, expected) in [
            ("plain", "plain"),
            ("", ""),
            (" edge", "=?base64?IGVkZ2U=?="),
            ("two\nlines", "=?base64?dHdvCmxpbmVz?="),
            ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
        ] {
            assert_eq!(encoded(value), expected);
        }
    }
}
