//! MCP requests of the newest revision as bytes, and what is read from their answers.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

/// A `tools/call` with a text.
pub(super) fn call(token: Option<&str>, tool: &str, text: &str) -> Vec<u8> {
    let params = json!({ "name": tool, "arguments": { "text": text }, "_meta": meta() });
    request(token, "tools/call", Some(tool), &params)
}

/// A page of `tools/list`.
pub(super) fn list(token: &str, cursor: Option<&str>) -> Vec<u8> {
    let mut params = Map::from_iter([("_meta".to_owned(), meta())]);
    if let Some(cursor) = cursor {
        params.insert("cursor".into(), json!(cursor));
    }
    request(Some(token), "tools/list", None, &Value::Object(params))
}

fn meta() -> Value {
    json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1.0.0" } })
}

fn request(token: Option<&str>, method: &str, name: Option<&str>, params: &Value) -> Vec<u8> {
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string();
    let mut text = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: {method}\r\n"
    );
    if let Some(name) = name {
        text.push_str(&format!("mcp-name: {name}\r\n"));
    }
    if let Some(token) = token {
        text.push_str(&format!("authorization: Bearer {token}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    text.into_bytes()
}

/// What is wanted of a page.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) tools: usize,
    pub(super) next: Option<String>,
}

/// A page, whether it came as JSON or as one event.
pub(super) fn page(body: &[u8]) -> Result<Page> {
    let text = std::str::from_utf8(body).context("a page is not text")?;
    // Events, and the framing of chunks, have lines; the message is the longest of them.
    let line = text.lines().map(|line| line.trim_start_matches("data:").trim()).max_by_key(|line| line.len());
    let message: Value = serde_json::from_str(line.unwrap_or_default()).context("a page is not JSON")?;
    let result = message.get("result").context("a page without a result")?;
    let tools = result.get("tools").and_then(Value::as_array).context("a page without tools")?.len();
    Ok(Page { tools, next: result.get("nextCursor").and_then(Value::as_str).map(str::to_owned) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_read_as_json_and_as_events() {
        let json = r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{},{}],"nextCursor":"more"}}"#;
        let expected = Page { tools: 2, next: Some("more".into()) };
        assert_eq!(page(json.as_bytes()).unwrap(), expected);
        assert_eq!(page(format!("4f\r\ndata: {json}\n\n\r\n0\r\n\r\n").as_bytes()).unwrap(), expected);
        assert!(page(br#"{"error":{}}"#).is_err());
    }

    #[test]
    fn the_headers_say_what_the_body_says() {
        let text = String::from_utf8(call(Some("t"), "near__echo", "hi")).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        for line in ["mcp-method: tools/call", "mcp-name: near__echo", "authorization: Bearer t"] {
            assert!(head.contains(line), "{line}: {head}");
        }
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
