//! What can be seen of a running server: traces at a collector, metrics, its log. (OBS-001…006, OBS-010)
//!
//! The collector is a socket of the test's own that reads OTLP, field by field. What ships in `deploy/` is held against a real
//! scrape, and judged by `promtool`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Answer, Gantry, PATIENCE, Start, client, open_to_all, run};

/// A server behind Gantry whose one tool says what it was told of the trace.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    call = json.loads(line)
    params, answer = call.get("params", {}), {}
    if call.get("method") == "initialize":
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "probe", "version": "1"}}}
    elif call.get("method") == "tools/list":
        answer = {"result": {"tools": [{"name": "trace", "description": "Says which trace it is called in.",
                                        "inputSchema": {"type": "object"}}]}}
    elif call.get("method") == "tools/call":
        meta = params.get("_meta", {})
        text = "%s %s" % (meta.get("traceparent"), meta.get("tracestate"))
        answer = {"result": {"content": [{"type": "text", "text": text}]}}
    elif call.get("method") == "ping":
        answer = {"result": {}}
    else:
        answer = {"error": {"code": -32601, "message": "not known"}}
    if "id" in call:
        print(json.dumps(dict(jsonrpc="2.0", id=call["id"], **answer)), flush=True)
"#;

/// A span as it came.
#[derive(Debug, Clone, Default)]
struct Span {
    trace_id: String,
    span_id: String,
    parent: String,
    state: String,
    name: String,
    start: u64,
    end: u64,
    status: u64,
    /// Texts only.
    attributes: Vec<(String, String)>,
}

/// The fields of a protobuf message: numbers, and bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let end = bytes.iter().position(|byte| byte & 0x80 == 0).unwrap();
        let (number, rest) = bytes.split_at(end + 1);
        *bytes = rest;
        number.iter().rev().fold(0, |sum, byte| sum << 7 | u64::from(byte & 0x7f))
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let (number, length) = match key & 7 {
            0 => (varint(&mut bytes), 0),
            1 => (u64::from_le_bytes(bytes[..8].try_into().unwrap()), 8),
            2 => (0, usize::try_from(varint(&mut bytes)).unwrap()),
            5 => (u32::from_le_bytes(bytes[..4].try_into().unwrap()).into(), 4),
            other => panic!("a form of protobuf nobody uses here: {other}"),
        };
        let (value, rest) = bytes.split_at(length);
        found.push((key >> 3, number, value));
        bytes = rest;
    }
    found
}

/// The messages that stand in a field.
fn within(message: &[u8], field: u64) -> impl Iterator<Item = &[u8]> {
    fields(message).into_iter().filter(move |(number, ..)| *number == field).map(|(_, _, value)| value)
}

fn read_span(message: &[u8]) -> Span {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let mut span = Span::default();
    for (field, number, bytes) in fields(message) {
        match field {
            1 => span.trace_id = hex(bytes),
            2 => span.span_id = hex(bytes),
            3 => span.state = text(bytes),
            4 => span.parent = hex(bytes),
            5 => span.name = text(bytes),
            7 => span.start = number,
            8 => span.end = number,
            9 => {
                let key = text(within(bytes, 1).next().unwrap());
                let value = within(bytes, 2).next().and_then(|any| within(any, 1).next().map(text));
                span.attributes.extend(value.map(|value| (key, value)));
            }
            15 => span.status = fields(bytes).iter().find(|(field, ..)| *field == 3).map_or(0, |(_, code, _)| *code),
            _ => {}
        }
    }
    span
}

/// What came to the collector.
type Collected = Arc<Mutex<Vec<Span>>>;

/// A collector: takes what is posted to it. Gives its address.
async fn collector() -> (String, Collected) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let collected = Collected::default();
    let spans = Arc::clone(&collected);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(collect(stream, Arc::clone(&spans)));
        }
    });
    (address, collected)
}

/// Serves one connection.
async fn collect(mut stream: TcpStream, collected: Collected) {
    let mut seen = Vec::new();
    loop {
        let head = loop {
            if let Some(end) = seen.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
            if stream.read_buf(&mut seen).await.unwrap_or(0) == 0 {
                return;
            }
        };
        let text = String::from_utf8_lossy(&seen[..head]).to_ascii_lowercase();
        assert!(
            text.starts_with("post /v1/traces ") && text.contains("content-type: application/x-protobuf"),
            "{text}"
        );
        assert!(text.contains("authorization: bearer for-the-collector"), "{text}");
        let length = text.split("content-length: ").nth(1).unwrap().split("\r\n").next().unwrap();
        let length: usize = length.parse().unwrap();
        while seen.len() < head + length {
            assert!(stream.read_buf(&mut seen).await.unwrap() > 0, "the request broke off");
        }
        let request: Vec<u8> = seen.drain(..head + length).skip(head).collect();
        let spans: Vec<Span> = within(&request, 1)
            .flat_map(|resource| within(resource, 2).collect::<Vec<_>>())
            .flat_map(|scope| within(scope, 2).collect::<Vec<_>>())
            .map(read_span)
            .collect();
        collected.lock().unwrap().extend(spans);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    }
}

fn text_of<'a>(span: &'a Span, key: &str) -> &'a str {
    let found = span.attributes.iter().find(|(known, _)| known == key);
    found.map_or_else(|| panic!("no {key} in {span:?}"), |(_, value)| value)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A call with a trace of the caller's own.
async fn invoke_in(gantry: &Gantry, parent: &str, tool: &str, parameters: Value) -> Answer {
    let body = json!({ "tool_id": tool, "parameters": parameters });
    let request = client().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(&gantry.token);
    let request = request.header("traceparent", parent).header("tracestate", "vendor=7");
    let request = request.header("content-type", "application/json").body(body.to_string());
    Answer::of(request.send().await.unwrap()).await
}

#[tokio::test]
async fn a_trace_has_six_phases_and_the_call_of_the_server_behind_and_belongs_to_the_callers() {
    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const LATER: &str = "4bf92f3577b34da6a3ce929d0e0e4737";
    let (address, collected) = collector().await;
    let home = tempfile::tempdir().unwrap();
    open_to_all(home.path());
    let program = home.path().join("servers/probe.py");
    std::fs::create_dir(program.parent().unwrap()).unwrap();
    std::fs::write(&program, SERVER).unwrap();
    let gantry = Start::new()
        .data(&home.path().join("data"))
        .env("GANTRY_TRACES__ENDPOINT", address)
        .env("GANTRY_TRACES__AUTHORIZATION", "Bearer for-the-collector")
        .env("GANTRY_LOG__FORMAT", "json")
        .run()
        .await;
    let permission = format!("filesystem:read:{}", program.parent().unwrap().display());
    let reach = json!({ "type": "stdio", "command": "python3", "args": [program], "permissions": [permission] });
    let put = Some(json!({ "reach": reach }));
    let answer = gantry.request(Method::PUT, "/v1/servers/probe", Some(&gantry.token), put).await;
    assert_eq!(answer.status, 200, "{}\n{}", answer.text, gantry.log());

    // Not recorded by the caller, so not by us; the trace goes on all the same.
    let aside = format!("00-{TRACE}-00f067aa0ba902b7-00");
    let answer = invoke_in(&gantry, &aside, "probe.trace", json!({})).await;
    assert_eq!(answer.status, 200, "{}\n{}", answer.text, gantry.log());
    let told = answer.body["result"]["content"][0]["text"].as_str().unwrap();
    assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-00 vendor=7"), "{told}");

    // Every line within the call, from here on.
    gantry.cli(&["log-level", "info,gantry_calls=debug"]).ok();
    let answer = invoke_in(&gantry, &format!("00-{TRACE}-00f067aa0ba902b7-01"), "probe.trace", json!({})).await;
    assert_eq!(answer.body["trace_id"], TRACE);
    let told = answer.body["result"]["content"][0]["text"].as_str().unwrap().to_owned();
    // A call that fails, within a trace of its own.
    let failed = gantry.invoke("calculator", json!({ "expression": "secret-words(" })).await;
    let failed_trace = failed.body["error"]["trace_id"].as_str().unwrap().to_owned();

    // A call that is done later, within a third.
    let later = json!({ "tool_id": "calculator", "parameters": { "expression": "1" }, "execution_options": { "async_mode": true } });
    let request = client().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(&gantry.token);
    let request = request.header("traceparent", format!("00-{LATER}-00f067aa0ba902b7-01"));
    let request = request.header("content-type", "application/json").body(later.to_string());
    assert_eq!(Answer::of(request.send().await.unwrap()).await.status, 202);

    let start = std::time::Instant::now();
    let spans = loop {
        let spans = collected.lock().unwrap().clone();
        let has = |trace: &str| spans.iter().any(|span| span.trace_id == trace);
        let of_later = spans.iter().filter(|span| span.trace_id == LATER && span.name == "tool.invoke").count();
        if has(TRACE) && has(&failed_trace) && of_later == 2 {
            break spans;
        }
        assert!(start.elapsed() < PATIENCE, "{spans:?}\n{}", gantry.log());
        // The collector lives on this thread too.
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    let of = |trace: &str| spans.iter().filter(|span| span.trace_id == trace).collect::<Vec<_>>();
    let one = of(TRACE);
    let named = |name: &str| {
        let found: Vec<_> = one.iter().filter(|span| span.name == name).collect();
        assert_eq!(found.len(), 1, "{name} in {one:#?}");
        *found[0]
    };
    let call = named("tool.invoke");
    assert_eq!((call.parent.as_str(), call.state.as_str()), ("00f067aa0ba902b7", "vendor=7"));
    for phase in ["receive", "validate", "authorize", "execute", "verify", "return"] {
        let span = named(phase);
        assert_eq!(span.parent, call.span_id, "{phase}");
        assert!(call.start <= span.start && span.start <= span.end && span.end <= call.end, "{phase}");
    }
    let executor = named("execute_tool probe.trace");
    assert_eq!(executor.parent, named("execute").span_id);
    let upstream = named("tools/call trace");
    assert_eq!(upstream.parent, executor.span_id);
    assert_eq!(told, format!("00-{TRACE}-{}-01 vendor=7", upstream.span_id), "the server was told this span");
    assert_eq!(one.len(), 9, "{one:#?}");
    assert_eq!(text_of(call, "gantry.status"), "SUCCESS");
    assert_eq!(text_of(call, "gantry.tool.id"), "probe.trace");
    assert_eq!(text_of(upstream, "gantry.upstream.server"), "probe");

    // What the job did hangs under the call that submitted it, which hangs under its caller's.
    let calls = of(LATER).into_iter().filter(|span| span.name == "tool.invoke").collect::<Vec<_>>();
    let submitted = calls.iter().find(|span| span.parent == "00f067aa0ba902b7").unwrap();
    let done = calls.iter().find(|span| span.span_id != submitted.span_id).unwrap();
    assert_eq!(done.parent, submitted.span_id, "{calls:#?}");

    let other = of(&failed_trace);
    let call = other.iter().find(|span| span.name == "tool.invoke").unwrap();
    assert_eq!((text_of(call, "error.type"), call.status), ("E3301", 2));
    assert!(call.parent.is_empty() && !format!("{spans:?}").contains("secret-words"), "{spans:?}");

    for event in ["tool_execution_started", "tool_execution_completed"] {
        let log = gantry.log();
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let mut lines = lines.filter(|line| line["message"] == event);
        let line = lines.find(|line| line["trace_id"] == TRACE).unwrap_or_else(|| panic!("no {event} in {log}"));
        assert_eq!((&line["tool_name"], &line["tenant_id"]), (&json!("probe.trace"), &json!("local")), "{line}");
        assert!(line["invocation_id"].is_string(), "{line}");
    }
    assert!(gantry.stop().success());
}

/// The words of a text that could be names of metrics.
fn words(text: &str) -> impl Iterator<Item = &str> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    let words = lines.flat_map(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':')));
    words.map(|word| word.trim_matches(':')).filter(|word| is_metric(word))
}

fn is_metric(word: &str) -> bool {
    // The second kind is what the rules make.
    ["gantry_", "tool_invocation_", "tool_execution_", "tool_idempotency_", "tool_schema_", "tool_side_", "process_"]
        .iter()
        .any(|start| word.starts_with(start))
        || word.contains(':')
}

/// Gives a text to `promtool` and wants it to be content.
fn promtool(arguments: &[&str], input: &str) {
    let mut command = Command::new("promtool");
    command.args(arguments).current_dir(deploy("prometheus"));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("promtool");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "promtool {arguments:?}: {said}\n{input}");
}

fn deploy(folder: &str) -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(folder)
}

#[tokio::test]
async fn what_is_deployed_speaks_of_metrics_that_exist_and_promtool_is_content() {
    let gantry = Gantry::start().await;
    gantry.invoke("calculator", json!({ "expression": "1" })).await;
    gantry.invoke("calculator", json!({ "expression": "" })).await;
    let twice = json!({ "tool_id": "calculator", "parameters": { "expression": "1" } });
    gantry.post("/v1/tools/invoke/batch", json!({ "calls": [twice.clone(), twice] })).await;
    // Records are written a moment later.
    let start = std::time::Instant::now();
    let page = loop {
        let page = gantry.get("/metrics").await.text;
        if page.contains("gantry_audit_delivery_seconds_count") {
            break page;
        }
        assert!(start.elapsed() < PATIENCE, "{page}");
    };
    promtool(&["check", "metrics"], &page);
    promtool(&["check", "rules", "recording.yml", "alerts.yml"], "");
    promtool(&["test", "rules", "tests.yml"], "");

    let request = client().get(format!("{}/metrics", gantry.url)).bearer_auth(&gantry.token);
    let open = Answer::of(request.header("accept", "application/openmetrics-text;version=1.0.0").send().await.unwrap());
    let open = open.await;
    assert!(open.header("content-type").starts_with("application/openmetrics-text"), "{:?}", open.headers);
    assert!(open.text.ends_with("\n# EOF\n") && open.text.matches("# EOF").count() == 1, "{}", open.text);

    let read = |folder: &str, name: &str| std::fs::read_to_string(deploy(folder).join(name)).unwrap();
    let recording = read("prometheus", "recording.yml");
    let recorded: BTreeSet<&str> =
        recording.lines().filter_map(|line| line.trim().strip_prefix("- record: ")).collect();
    let described = |word: &str| {
        let plain = ["_bucket", "_sum", "_count"].iter().fold(word, |word, end| word.strip_suffix(end).unwrap_or(word));
        [word, plain].iter().any(|name| page.contains(&format!("# TYPE {name} ")))
    };
    // What is counted only when it happens has no line before.
    let later = [
        "gantry_audit_append_failures_total",
        "gantry_ledger_events_total",
        "gantry_upstream_servers",
        "gantry_trace_calls_total",
        "tool_idempotency_cache_hits_total",
        "tool_side_effect_total",
        "tool_invocation_retries_total",
        "gantry_authentication_failures_total",
        "gantry_policy_decisions_total",
        "gantry_identity_lookups_total",
        "tool_invocation_cost_total",
        "gantry_upstream_unavailable_alerts_total",
        "gantry_audit_sink_lag_seconds",
        "gantry_audit_sink_delivery_seconds_bucket",
        // Exported by servers on PostgreSQL.
        "gantry_store_connections",
    ];
    let dashboard = read("grafana", "gantry.json");
    let panels: Value = serde_json::from_str(&dashboard).unwrap();
    assert!(panels["panels"].as_array().unwrap().len() >= 8);
    let expressions: String = panels["panels"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap().to_owned() + "\n")
        .collect();
    let mut seen = 0;
    for text in [recording.as_str(), &read("prometheus", "alerts.yml"), &expressions] {
        for word in words(text) {
            seen += 1;
            assert!(recorded.contains(word) || described(word) || later.contains(&word), "{word} is in no scrape");
        }
    }
    assert!(seen > 30, "{seen}");
}

#[tokio::test]
async fn a_collector_that_is_not_there_costs_calls_nothing_and_is_counted() {
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let gantry = Start::new().env("GANTRY_TRACES__ENDPOINT", address).run().await;
    for _ in 0..10 {
        assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200);
    }
    let start = std::time::Instant::now();
    while !gantry.get("/metrics").await.text.contains(r#"gantry_trace_calls_total{outcome="not_taken"}"#) {
        assert!(start.elapsed() < PATIENCE, "{}", gantry.log());
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(gantry.stop().success());

    let home = tempfile::tempdir().unwrap();
    for (key, value) in [("GANTRY_TRACES__SAMPLE_RATIO", "2"), ("GANTRY_TRACES__ENDPOINT", "nowhere")] {
        let ran = run(&mut Start::new().env(key, value).command(&home.path().join("data")));
        assert!(ran.code() != 0 && ran.err().contains(value), "{}", ran.err());
    }
}
