//! `gantry-bench mcp-echo-server [--http] [--many]`: the MCP server behind the gateway, which costs as little as it can.

use std::sync::Arc;

use anyhow::{Context, Result};
use async_trait::async_trait;
use serde_json::{Value, json};

use crate::neighbour::Neighbour;
use test_servers::mcp::wire::{
    FixtureFault, FixtureHandler, FixtureRequest, META_SERVER, NEWEST, OLD, ReplyLine, RequestEra,
};
use test_servers::mcp::{http, stdio};

/// Tools of the server that has many.
pub(super) const TOOLS_MANY: usize = 5_000;

/// The server.
struct Echo {
    tools: Value,
}

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let handler: Arc<dyn FixtureHandler> = Arc::new(Echo { tools: tools(if has("--many") { TOOLS_MANY } else { 1 }) });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        if !has("--http") {
            return stdio::serve(handler).await;
        }
        let (listener, address) = http::listen().await?;
        println!("{address}");
        http::serve(listener, handler).await
    })
}

fn tools(count: usize) -> Value {
    let tool = |number: usize| {
        let name = if number == 0 { "echo".to_owned() } else { format!("echo_{number}") };
        json!({ "name": name, "description": format!("Returns the text it was given, as number {number} of many."),
            "inputSchema": { "type": "object", "required": ["text"],
                "properties": { "text": { "type": "string", "description": "what comes back" } } } })
    };
    Value::Array((0..count).map(tool).collect())
}

#[async_trait]
impl FixtureHandler for Echo {
    async fn handle(&self, request: &FixtureRequest, _line: &ReplyLine) -> Result<Value, FixtureFault> {
        let about = || json!({ "name": "bench", "version": "1.0.0" });
        let mut result = match request.method.as_str() {
            "initialize" => json!({ "protocolVersion": request.agreed_revision(), "capabilities": { "tools": {} },
                "serverInfo": about() }),
            "ping" => json!({}),
            "server/discover" => json!({ "supportedVersions": [NEWEST, OLD], "capabilities": { "tools": {} } }),
            "tools/list" => json!({ "tools": self.tools }),
            "tools/call" => {
                let text = request.params.get("arguments").and_then(|arguments| arguments.get("text"));
                json!({ "content": [{ "type": "text", "text": text.unwrap_or(&Value::Null) }] })
            }
            method => return Err(FixtureFault::no_method(method)),
        };
        if let (RequestEra::New, Value::Object(members)) = (request.era(), &mut result) {
            members.insert("resultType".into(), json!("complete"));
            if request.method != "tools/call" {
                members.insert("ttlMs".into(), json!(60_000));
                members.insert("cacheScope".into(), json!("public"));
            }
            members.insert("_meta".into(), json!({ META_SERVER: about() }));
        }
        Ok(result)
    }
}

/// How the gateway starts this very program.
pub(super) fn stdio(arguments: &[&str]) -> Result<Value> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    // The program alone: the folder around it may hold the data of the server under test, which no tool may see.
    let permissions = [format!("filesystem:read:{}", program.display())];
    Ok(json!({ "type": "stdio", "command": program, "args": arguments, "permissions": permissions }))
}

/// The server over HTTP.
pub(super) fn over_http() -> Result<Neighbour> {
    Neighbour::start(&["mcp-echo-server", "--http"])
}
