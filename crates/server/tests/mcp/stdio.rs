//! Over standard input and output.

use std::sync::Arc;

use gantry_server::serve_stdio;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio_util::sync::CancellationToken;

use crate::client::PATIENCE;
use crate::stage::Stage;

#[tokio::test]
async fn a_client_that_starts_us_speaks_the_same_protocol_until_it_closes() {
    let stage = Stage::new().await;
    let (ours, theirs) = tokio::io::duplex(1 << 16);
    let (read, write) = tokio::io::split(ours);
    let (door, token) = (Arc::clone(&stage.door), stage.narrow.clone());
    let serving = tokio::spawn(async move {
        Box::pin(serve_stdio(door, &token, None, (read, write), CancellationToken::new())).await
    });
    let (answers, mut asks) = tokio::io::split(theirs);
    let mut answers = BufReader::new(answers).lines();
    let mut talk = async |message: Value| -> Value {
        asks.write_all(format!("{message}\n").as_bytes()).await.unwrap();
        if message.get("id").is_none() {
            return Value::Null;
        }
        let line = tokio::time::timeout(PATIENCE, answers.next_line()).await.unwrap().unwrap().unwrap();
        serde_json::from_str(&line).unwrap()
    };
    let hello =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
    let begun = talk(json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello })).await;
    assert_eq!(begun["result"]["serverInfo"]["name"], "gantry");
    talk(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
    let list = talk(json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/list" })).await;
    assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 1);
    let params = json!({ "name": "demo__echo_tool", "arguments": { "text": "x" } });
    let called = talk(json!({ "jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params })).await;
    assert_eq!(called["result"]["structuredContent"], json!({ "text": "x" }));
    asks.shutdown().await.unwrap();
    drop((asks, answers));
    tokio::time::timeout(PATIENCE, serving).await.expect("it ends with its client").unwrap().unwrap();
}
