//! `cargo xtask acceptance clients`: the client libraries that people use, in front of Gantry.
//!
//! Each library lists and calls the tools of one server (`server.py`), is given a structured result, a picture and progress, cancels a
//! call and is asked something: first with the server alone, over stdio, then through Gantry's door. What works alone works
//! through the door, or the command fails; what does not work alone is something that the library does not have.
//!
//! Not here: the packages (`services::peers`), what the libraries do (`python_clients.py`, `node_clients.mjs`).

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

mod page;

use self::page::{Feature, Row, Verdict};
use crate::conformance::GatewayServer;
use crate::services::peers;
use crate::workspace;

/// What is beside this file.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/acceptance/clients");
const PYTHON: &str = "/usr/bin/python3";
/// The picture of `server.py`.
const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/// Seconds that one library may take.
const TIME_MAX: &str = "180";

/// Which program uses a library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    JavaScript,
    Inspector,
}

/// A library.
struct Client {
    /// As its page calls it.
    name: &'static str,
    /// In the program that uses it.
    word: &'static str,
    kit: &'static str,
    language: Language,
}

const CLIENTS: [Client; 13] = [
    Client { name: "Python SDK 1.x", word: "python-1", kit: "python-old", language: Language::Python },
    Client { name: "Python SDK 2.x", word: "python-2", kit: "python", language: Language::Python },
    Client { name: "FastMCP", word: "fastmcp", kit: "python", language: Language::Python },
    Client { name: "LangChain (Python)", word: "langchain", kit: "client-langchain", language: Language::Python },
    Client {
        name: "OpenAI Agents (Python)",
        word: "openai-agents",
        kit: "client-openai-agents",
        language: Language::Python,
    },
    Client { name: "Pydantic AI", word: "pydantic-ai", kit: "client-pydantic-ai", language: Language::Python },
    Client { name: "LlamaIndex", word: "llama-index", kit: "client-llama-index", language: Language::Python },
    Client {
        name: "TypeScript SDK 1.x",
        word: "typescript-1",
        kit: "client-typescript-1",
        language: Language::JavaScript,
    },
    Client {
        name: "TypeScript SDK 2.x",
        word: "typescript-2",
        kit: "client-typescript-2",
        language: Language::JavaScript,
    },
    Client { name: "AI SDK", word: "ai-sdk", kit: "client-ai-sdk", language: Language::JavaScript },
    Client { name: "LangChain (JS)", word: "langchain-js", kit: "client-langchain-js", language: Language::JavaScript },
    Client {
        name: "OpenAI Agents (JS)",
        word: "openai-agents-js",
        kit: "client-openai-agents-js",
        language: Language::JavaScript,
    },
    Client { name: "Inspector", word: "inspector", kit: "inspector", language: Language::Inspector },
];

/// What a library does over stdio and not over HTTP, whatever is behind that, and why.
const LIMITS: [(&str, &str, Feature, &str); 1] = [(
    "openai-agents",
    "Streamable HTTP",
    Feature::Cancel,
    "OpenAI Agents (Python) sends one call after the other over HTTP and shields each from being cancelled",
)];

/// The command.
pub(super) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (mut binary, mut write, mut only) = (None, false, None);
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--write" => write = true,
            "--only" => only = arguments.next().cloned(),
            "--gantry" => binary = Some(PathBuf::from(arguments.next().context("`--gantry` wants a file")?)),
            unknown => bail!("clients has no option `{unknown}`: it has --write, --only NAME and --gantry FILE"),
        }
    }
    ensure!(!write || only.is_none(), "--write keeps whole runs only: leave out --only");
    peers::provide_clients()?;
    let binary = binary.map_or_else(|| workspace::built(&["--package", "gantry"], "gantry"), Ok)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    let gateway = runtime.block_on(started(&binary))?;
    let ways = [
        ("Streamable HTTP", json!({ "http": format!("{}/mcp", gateway.url()), "token": gateway.agent })),
        ("stdio (`gantry mcp`)", json!({ "stdio": [binary, "mcp", "--data-dir", gateway.data()] })),
    ];
    let alone = json!({ "stdio": [PYTHON, format!("{FOLDER}/server.py")] });
    let mut rows = Vec::new();
    for client in CLIENTS.iter().filter(|client| only.as_deref().is_none_or(|only| only == client.word)) {
        eprintln!("clients: {}", client.name);
        let direct = client.used(&alone)?;
        for (transport, plan) in &ways {
            rows.push(row(client, transport, &direct, &client.used(plan)?));
        }
    }
    drop(gateway);
    println!("{}", page::table(&rows));
    let lost: usize = rows.iter().map(Row::lost).sum();
    if write && lost == 0 {
        workspace::write(page::PAGE, &page::page(&rows, LIMITS.map(|limit| limit.3).as_slice()))?;
    }
    println!("{} rows, {lost} features lost behind Gantry", rows.len());
    Ok(if lost == 0 && !rows.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Gantry with the server behind it, its tools under their own names.
async fn started(binary: &Path) -> Result<GatewayServer> {
    let gateway = GatewayServer::start(binary).await?;
    let permissions = [format!("filesystem:read:{FOLDER}")];
    let reach = json!({ "type": "stdio", "command": PYTHON, "args": [format!("{FOLDER}/server.py")],
        "permissions": permissions });
    gateway.add_server("clients", "", &reach).await?;
    Ok(gateway)
}

impl Client {
    /// What it found, by the plan.
    fn used(&self, plan: &Value) -> Result<Value> {
        if self.language == Language::Inspector {
            return inspected(plan);
        }
        let kit = peers::folder()?.join(self.kit);
        let mut command = Command::new("timeout");
        command.arg(TIME_MAX);
        match self.language {
            Language::Python => command.arg(PYTHON).arg(format!("{FOLDER}/python_clients.py")),
            _ => command.arg(peers::node()?).arg(format!("{FOLDER}/node_clients.mjs")),
        };
        command.arg(kit).arg(self.word).arg(plan.to_string()).stdin(Stdio::null());
        let output = command.output().with_context(|| format!("cannot start the client `{}`", self.word))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let found = said.lines().find_map(|line| serde_json::from_str(line.strip_prefix("FOUND ")?).ok());
        found.with_context(|| {
            let error = String::from_utf8_lossy(&output.stderr);
            let last: Vec<&str> = error.lines().rev().take(12).collect();
            format!("`{}` found nothing:\n{}", self.word, last.into_iter().rev().collect::<Vec<_>>().join("\n"))
        })
    }
}

/// The inspector as a command, once for each thing it can do.
fn inspected(plan: &Value) -> Result<Value> {
    let words = |member: &str| plan.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    let home = tempfile::tempdir().context("no temporary folder")?;
    let ask = |method: &[&str]| -> Result<Value> {
        let mut command = Command::new(peers::node()?);
        // It keeps a catalogue in the home directory; that is nobody's here.
        command.env("HOME", home.path()).arg(peers::inspector()?).arg("--cli").stdin(Stdio::null());
        match plan.get("stdio").and_then(Value::as_array) {
            Some(program) => command.args(program.iter().filter_map(Value::as_str)),
            None => command.args([&words("http"), "--transport", "http"]),
        };
        command.args(method);
        if plan.get("http").is_some() {
            command.arg("--header").arg(format!("Authorization: Bearer {}", words("token")));
        }
        let output = command.output().context("cannot start the inspector")?;
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("the inspector said no JSON: {}", String::from_utf8_lossy(&output.stderr)))
    };
    let call = |tool: &str| ask(&["--method", "tools/call", "--tool-name", tool]);
    let listed = ask(&["--method", "tools/list"])?;
    let names = listed.get("tools").and_then(Value::as_array).into_iter().flatten().filter_map(|tool| tool.get("name"));
    let image = call("picture")?.pointer("/content/0").map(|block| json!([[block.get("data"), block.get("mimeType")]]));
    let version = std::fs::read_to_string(
        peers::folder()?.join("inspector/node_modules/@modelcontextprotocol/inspector/package.json"),
    );
    let about: Value = serde_json::from_str(&version.context("the inspector has no version")?)?;
    let mut tools: Vec<Value> = names.cloned().collect();
    tools.sort_by_key(ToString::to_string);
    Ok(json!({ "version": about.get("version"), "tools": tools, "structured": call("shape")?.get("structuredContent"),
        "image": image, "progress": null, "elicitation": null, "cancel": null }))
}

fn row(client: &Client, transport: &'static str, direct: &Value, behind: &Value) -> Row {
    let tools = ["ask", "cancelled", "picture", "shape", "steps", "wait"];
    let steps = json!([[1.0, 3.0, "step 1"], [2.0, 3.0, "step 2"], [3.0, 3.0, "step 3"]]);
    let wanted = [
        (Feature::Tools, json!(tools)),
        (Feature::Structured, json!({ "n": 7, "words": ["a", "b"] })),
        (Feature::Image, json!([[PNG, "image/png"]])),
        (Feature::Progress, steps),
        (Feature::Cancel, json!("yes")),
        (Feature::Elicitation, json!("Hello, yes from the client.")),
    ];
    let verdicts = wanted.into_iter().map(|(feature, wanted)| {
        let of = |found: &Value| found.get(feature.member()).cloned().unwrap_or_default();
        let (direct, behind) = (of(direct), of(behind));
        let limit = LIMITS.iter().find(|limit| (limit.0, limit.1, limit.2) == (client.word, transport, feature));
        let is_direct = limit.is_none() && is_as(feature, &direct, &wanted);
        (feature, Verdict::of(is_direct, is_as(feature, &behind, &wanted), &behind))
    });
    let text = |member: &str| behind.get(member).and_then(Value::as_str).unwrap_or("–").to_owned();
    Row {
        name: client.name,
        version: text("version"),
        revision: text("revision"),
        transport,
        verdicts: verdicts.collect(),
    }
}

/// Is it what was wanted? Behind Gantry there are tools of its own, and numbers may be written in two ways.
fn is_as(feature: Feature, found: &Value, wanted: &Value) -> bool {
    match (feature, found, wanted) {
        (Feature::Tools, Value::Array(found), Value::Array(wanted)) => wanted.iter().all(|tool| found.contains(tool)),
        (_, Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(one, other)| is_as(feature, one, other))
        }
        (_, Value::Number(found), Value::Number(wanted)) => found.as_f64() == wanted.as_f64(),
        (_, found, wanted) => found == wanted,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_alone_and_not_through_the_door_is_lost() {
        let client = &CLIENTS[0];
        let tools = json!(["add", "ask", "cancelled", "picture", "shape", "steps", "wait"]);
        let all = json!({ "version": "1", "tools": tools, "structured": { "n": 7, "words": ["a", "b"] },
            "image": [[PNG, "image/png"]], "progress": [[1, 3, "step 1"], [2, 3, "step 2"], [3, 3, "step 3"]],
            "cancel": "yes", "elicitation": "Hello, yes from the client." });
        let row = |direct: &Value, behind: &Value| row(client, "stdio", direct, behind);
        assert_eq!(row(&all, &all).lost(), 0);
        let less = json!({ "version": "1", "tools": tools, "structured": null });
        assert_eq!(row(&all, &less).lost(), 5);
        assert_eq!(row(&less, &less).lost(), 0, "what it does not have cannot be lost");
        let no_tools = json!({ "version": "1" });
        assert_eq!(row(&no_tools, &no_tools).lost(), 1, "every client lists tools");
    }
}
