//! The headers by which those between a client and a server can see what a request is about (revision 2026-07-28).
//!
//! `Mcp-Method` and `Mcp-Name` repeat what stands in the body; `Mcp-Param-*` repeats the arguments that a tool's schema marks
//! with `x-mcp-header`. What cannot stand in a header as it is goes as `=?base64?…?=`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue};
use rmcp::transport::common::http_header::{
    BASE64_HEADER_PREFIX, BASE64_HEADER_SUFFIX, HEADER_MCP_METHOD, HEADER_MCP_NAME, HEADER_MCP_PARAM_PREFIX,
};
use serde_json::Value;

/// Most arguments that become headers, and the deepest of them.
const PARAMETERS_MAX: usize = 32;
const DEPTH_MAX: usize = 8;

/// The headers of one request. `schema` is that of the tool that is called.
pub(crate) fn standard(method: &str, params: &Value, schema: Option<&Value>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    set(&mut headers, HEADER_MCP_METHOD, method);
    let name = match method {
        "tools/call" | "prompts/get" => params.get("name"),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => params.get("uri"),
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

/// The marked properties that the arguments have.
fn marked<'s>(schema: &'s Value, arguments: &Value, depth: usize, found: &mut Vec<(&'s str, String)>) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    for (name, property) in properties {
        let Some(argument) = arguments.get(name) else { continue };
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str)
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
