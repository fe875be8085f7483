//! `gantry mcp` as clients start it, and what connects them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::{Gantry, gantry, run, wait_for};

/// A client that has started `gantry mcp`.
struct Talk {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Talk {
    fn begin(data: &Path) -> Self {
        let mut command = gantry(data);
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().unwrap();
        let (asks, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut talk = Self { child, asks, answers };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let begun = talk.ask(1, "initialize", &hello);
        assert_eq!(begun["result"]["serverInfo"]["name"], "gantry", "{begun}");
        talk.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        talk
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.asks.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "it has gone");
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not the protocol: {line}"));
            if message["id"] == id {
                return message;
            }
        }
    }

    fn calculates(&mut self, id: u64) {
        let params = json!({ "name": "calculator", "arguments": { "expression": "6*7" } });
        let called = self.ask(id, "tools/call", &params);
        assert_eq!(called["result"]["structuredContent"]["result"], 42, "{called}");
    }

    fn end(mut self) {
        drop(self.asks.take());
        let status = wait_for("its end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

#[tokio::test]
async fn it_serves_alone_and_a_second_client_is_led_to_the_first() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut first = Talk::begin(&data);
    let list = first.ask(2, "tools/list", &json!({}));
    assert!(list["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "calculator"), "{list}");
    first.calculates(3);
    let mut second = Talk::begin(&data);
    second.calculates(4);
    second.end();
    first.calculates(5);
    first.end();
    assert!(!data.join("server.json").exists(), "the note is taken back");
}

#[tokio::test]
async fn it_carries_the_conversation_to_a_running_server() {
    let server = Gantry::start().await;
    let mut talk = Talk::begin(&server.data);
    talk.calculates(2);
    let unknown = talk.ask(3, "tools/call", &json!({ "name": "calculater" }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    talk.end();
}

#[tokio::test]
async fn clients_are_told_how_to_connect() {
    let server = Gantry::start().await;
    let printed = server.cli(&["mcp", "install", "--client", "claude", "--json"]).ok().json();
    let entry = &printed["config"]["mcpServers"]["gantry"];
    let arguments: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(arguments, ["mcp", "--data-dir", server.data.to_str().unwrap(), "--as", "mcp-claude"]);
    let file = server.data.join("client.json");
    std::fs::write(&file, r#"{ "servers": { "other": {} } }"#).unwrap();
    let path = file.to_str().unwrap();
    let written = server
        .cli(&["mcp", "install", "--client", "vscode", "--http", "--write", "--path", path, "--json"])
        .ok()
        .json();
    let now: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(now["servers"]["other"], json!({}));
    let entry = &now["servers"]["gantry"];
    assert_eq!(entry["url"], format!("{}/mcp", server.url));
    let former = std::fs::read_to_string(written["backup"].as_str().unwrap()).unwrap();
    assert_eq!(former, r#"{ "servers": { "other": {} } }"#);
    let token = entry["headers"]["Authorization"].as_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    let me = server.request(reqwest::Method::GET, "/v1/tools", Some(&token), None).await;
    assert_eq!(me.status, 200);
    let not_admin = server.request(reqwest::Method::GET, "/v1/tenants", Some(&token), None).await;
    assert_eq!(not_admin.status, 403, "{}", not_admin.text);
    std::fs::write(&file, "{ broken").unwrap();
    let refused = server.cli(&["mcp", "install", "--client", "vscode", "--write", "--path", path]);
    assert_eq!((refused.code(), std::fs::read_to_string(&file).unwrap().as_str()), (1, "{ broken"));
    assert_eq!(run(gantry(&server.data).args(["mcp", "install", "--client", "nobody"])).code(), 2);
}
