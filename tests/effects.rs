//! What is known of an effect, and nothing more, is what a key stands for: a call that was never sent can be made again under
//! its key, one that may have run cannot, and a key is its caller's own. The service is an MCP server on loopback that
//! answers each call as the test says, and counts what it was asked to do.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Answer, Gantry, Start, manifest};

/// What the server says to one call.
#[derive(Clone)]
struct Says {
    status: &'static str,
    /// `ID` stands for the id of the request.
    body: &'static str,
}

/// Does the work.
const DONE: Says = Says {
    status: "200 OK",
    body: r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"paid":true},"resultType":"complete"}}"#,
};

/// An MCP server elsewhere.
struct Bank {
    url: String,
    /// What it says next; once there is nothing, it does what it is asked for.
    next: Arc<Mutex<VecDeque<Says>>>,
    /// The parameters of every call that has come in.
    calls: Arc<Mutex<Vec<Value>>>,
}

impl Bank {
    async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let bank = Self { url, next: Arc::default(), calls: Arc::default() };
        let (next, calls) = (Arc::clone(&bank.next), Arc::clone(&bank.calls));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&next), Arc::clone(&calls)));
            }
        });
        bank
    }

    /// A Gantry with this server behind it. Nobody has said what its tool does, so it must not happen twice.
    async fn behind_gantry(&self) -> Gantry {
        let gantry = Start::new().env("GANTRY_EGRESS__OPEN_NETWORKS", "127.0.0.0/8").run().await;
        let spec = json!({ "reach": { "type": "http", "url": self.url } });
        let answer = gantry.request(Method::PUT, "/v1/servers/bank", Some(&gantry.token), Some(spec)).await;
        assert_eq!(answer.status, 200, "{}\n{}", answer.text, gantry.log());
        gantry
    }

    fn says(&self, status: &'static str, body: &'static str) {
        self.next.lock().unwrap().push_back(Says { status, body });
    }

    fn calls(&self) -> usize {
        self.calls.lock().unwrap().len()
    }
}

/// One request of a connection.
async fn serve(stream: TcpStream, next: Arc<Mutex<VecDeque<Says>>>, calls: Arc<Mutex<Vec<Value>>>) -> Option<()> {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await.ok()? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().ok()?;
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.ok()?;
    let request: Value = serde_json::from_slice(&body).ok()?;
    let answers = |result: Value| {
        let result = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result });
        ("200 OK".to_owned(), result.to_string())
    };
    let (status, body) = match request["method"].as_str()? {
        "tools/call" => {
            calls.lock().unwrap().push(request["params"].clone());
            let says = next.lock().unwrap().pop_front().unwrap_or(DONE);
            (says.status.to_owned(), says.body.replace("ID", &request["id"].to_string()))
        }
        "tools/list" => answers(json!({ "resultType": "complete", "tools": [{ "name": "pay",
            "description": "Pays a bill.", "inputSchema": { "type": "object" } }] })),
        _ => answers(json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} }, "serverInfo": { "name": "bank", "version": "1" } })),
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.ok()?;
    stream.shutdown().await.ok()
}

async fn pay(gantry: &Gantry, key: &str) -> Answer {
    let call = json!({ "tool_id": "bank.pay", "parameters": { "bill": 7 },
        "execution_options": { "idempotency_key": key } });
    gantry.post("/v1/tools/invoke", call).await
}

#[tokio::test]
async fn a_call_that_was_turned_away_can_be_made_again_under_its_key() {
    let bank = Bank::open().await;
    let gantry = bank.behind_gantry().await;
    for (number, (status, body, code)) in [
        ("429 Too Many Requests", "{}", "E3504"),
        ("401 Unauthorized", "{}", "E3603"),
        ("403 Forbidden", "{}", "E3603"),
        ("200 OK", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"not now"}}"#, "E3010"),
        ("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no session"}}"#, "E3502"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("bill-{number}");
        bank.says(status, body);
        let before = bank.calls();
        assert_eq!(pay(&gantry, &key).await.refusal().1, code, "{status} {body}");
        let again = pay(&gantry, &key).await;
        assert_eq!((again.status, &again.body["cached"]), (200, &json!(false)), "{status} {body}: {}", again.text);
        assert_eq!(pay(&gantry, &key).await.body["cached"], true);
        assert_eq!(bank.calls() - before, 2, "{status} {body}: turned away once, done once");
    }
    let unknown = gantry.cli(&["jobs", "unknown", "--json"]).ok().out();
    assert!(!unknown.contains("bill-"), "nothing is left for a person to find out: {unknown}");
}

#[tokio::test]
async fn a_call_that_may_have_run_is_never_sent_a_second_time_under_its_key() {
    let bank = Bank::open().await;
    let gantry = bank.behind_gantry().await;
    for (number, (status, body)) in [
        ("200 OK", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#),
        ("200 OK", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"half done"}}"#),
        ("500 Internal Server Error", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#),
        ("408 Request Timeout", "{}"),
        ("303 See Other", "{}"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("bill-{number}");
        bank.says(status, body);
        let before = bank.calls();
        let first = pay(&gantry, &key).await;
        // An error of the server is told with its words.
        let told = if body.contains("error") { "E3502" } else { "E3413" };
        assert_eq!(first.refusal().1, told, "{status} {body}: {}", first.text);
        let again = pay(&gantry, &key).await;
        assert_eq!(again.refusal().1, "E3413", "{status} {body}: {}", again.text);
        assert_eq!(bank.calls() - before, 1, "{status} {body}: it was sent once");
    }
}

#[tokio::test]
async fn the_key_of_an_act_travels_to_the_server_that_does_it_and_is_nobody_else_s() {
    let bank = Bank::open().await;
    let gantry = bank.behind_gantry().await;
    bank.says("429 Too Many Requests", "{}");
    pay(&gantry, "bill-7").await;
    assert_eq!(pay(&gantry, "bill-7").await.status, 200);
    assert_eq!(pay(&gantry, "bill-8").await.status, 200);
    let token = gantry.mint(json!({ "tenant": "local", "sub": "did:example:other" })).await;
    let call = json!({ "tool_id": "bank.pay", "parameters": { "bill": 7 },
        "execution_options": { "idempotency_key": "bill-7" } });
    let other = gantry.request(Method::POST, "/v1/tools/invoke", Some(&token), Some(call)).await;
    assert_eq!(other.status, 200, "{}", other.text);
    let calls = bank.calls.lock().unwrap().clone();
    let keys: Vec<&str> =
        calls.iter().map(|call| call["_meta"]["dev.gantry/idempotency_key"].as_str().unwrap_or_default()).collect();
    let [turned_away, done, next, others] = keys[..] else { panic!("{calls:?}") };
    assert!(!done.is_empty(), "{calls:?}");
    assert_eq!(turned_away, done, "the same act has the same key");
    assert!(next != done && others != done && others != next, "{keys:?}");
    assert!(keys.iter().all(|key| !key.contains("bill")), "what a caller calls its key is not handed on: {keys:?}");
}

#[tokio::test]
async fn a_server_hears_on_whose_behalf_it_is_called_and_its_messages_are_charged() {
    let bank = Bank::open().await;
    let gantry = bank.behind_gantry().await;
    let mut used = Vec::new();
    for (user, bill) in [(json!("did:example:ann"), "7".to_owned()), (Value::Null, "7".repeat(5_000))] {
        let token = gantry.mint(json!({ "tenant": "local", "user_did": user })).await;
        let call = json!({ "tool_id": "bank.pay", "parameters": { "bill": bill },
            "execution_options": { "idempotency_key": "bill" } });
        let paid = gantry.request(Method::POST, "/v1/tools/invoke", Some(&token), Some(call)).await;
        assert_eq!(paid.status, 200, "{}", paid.text);
        let told = bank.calls.lock().unwrap().last().unwrap()["_meta"]["dev.gantry/user"].clone();
        assert_eq!(told, user);
        let bytes = |member: &str| paid.body["execution_metadata"][member].as_u64().unwrap();
        used.push((bytes("network_bytes_sent"), bytes("network_bytes_received")));
    }
    let [(short, answered), (long, as_much)] = used[..] else { panic!("{used:?}") };
    assert!(short > 100 && (4_900..5_100).contains(&(long - short)), "{used:?}");
    let length = u64::try_from(DONE.body.len()).unwrap();
    for received in [answered, as_much] {
        assert!((length - 2..length + 10).contains(&received), "the answer has {length} bytes: {used:?}");
    }
    // A call that fails has been sent all the same.
    bank.says("200 OK", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#);
    let failed = pay(&gantry, "another").await;
    assert!(failed.body["execution_metadata"]["network_bytes_sent"].as_u64().unwrap() > 100, "{}", failed.text);
}

/// A job of an agent, under a key and a session that it names itself.
async fn submit(gantry: &Gantry, token: &str, text: &str) -> Answer {
    let call = json!({ "tool_id": "demo.echo_sum", "parameters": { "expression": text },
        "agent_context": { "session_id": "shared" },
        "execution_options": { "async_mode": true, "idempotency_key": "morning" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(call)).await
}

async fn result_of(gantry: &Gantry, token: &str, accepted: &Answer) -> Value {
    let id = accepted.body["invocation_id"].as_str().unwrap_or_else(|| panic!("{}", accepted.text)).to_owned();
    loop {
        let path = format!("/v1/invocations/{id}");
        let seen = gantry.request(Method::GET, &path, Some(token), None).await;
        assert_eq!(seen.status, 200, "{}", seen.text);
        if seen.body["status"] == "success" {
            return seen.body["result"].clone();
        }
        assert!(matches!(seen.body["status"].as_str(), Some("pending" | "queued" | "running")), "{}", seen.text);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_job_s_key_is_its_callers_own_whatever_session_a_body_names() {
    let gantry = Gantry::start().await;
    assert_eq!(gantry.register(manifest(json!({}))).await.status, 201);
    let mallory = gantry.mint(json!({ "tenant": "local", "sub": "did:example:mallory" })).await;
    let alice = gantry.mint(json!({ "tenant": "local", "sub": "did:example:alice" })).await;
    // Somebody is there first, with the key and the session of another agent.
    let squatted = submit(&gantry, &mallory, "1+1").await;
    assert_eq!(squatted.status, 202, "{}", squatted.text);
    let hers = submit(&gantry, &alice, "1+1").await;
    assert_eq!(hers.status, 202, "{}", hers.text);
    assert_ne!(hers.body["invocation_id"], squatted.body["invocation_id"], "her call is not swallowed");
    assert_eq!(result_of(&gantry, &alice, &hers).await["result"], 2);
    // With other parameters it is a call of hers, too, and not a conflict with a stranger's.
    let repeated = submit(&gantry, &alice, "1+1").await;
    assert_eq!(repeated.body["invocation_id"], hers.body["invocation_id"], "her own key still means her own job");
    let conflict = submit(&gantry, &alice, "2+2").await;
    assert_eq!(conflict.refusal().1, "E3410", "{}", conflict.text);
}

#[tokio::test]
async fn an_invocation_id_that_somebody_else_uses_makes_room_for_another() {
    let gantry = Gantry::start().await;
    assert_eq!(gantry.register(manifest(json!({}))).await.status, 201);
    let call = json!({ "tool_id": "demo.echo_sum", "parameters": { "expression": "1+1" },
        "invocation_id": "019b0000-0000-7000-8000-000000000001", "execution_options": { "async_mode": true } });
    let mut ids = Vec::new();
    for sub in ["did:example:mallory", "did:example:alice"] {
        let token = gantry.mint(json!({ "tenant": "local", "sub": sub })).await;
        let accepted = gantry.request(Method::POST, "/v1/tools/invoke", Some(&token), Some(call.clone())).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        assert_eq!(result_of(&gantry, &token, &accepted).await["result"], 2, "each sees its own");
        ids.push(accepted.body["invocation_id"].clone());
    }
    assert_ne!(ids[0], ids[1]);
}

/// A tool of this protocol that answers with the key it was given.
fn keyed_tool(home: &std::path::Path, id: &str, protocol: &str, program: &str) {
    let folder = home.join("tools").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("main.py"), program).unwrap();
    let mut manifest = manifest(json!({ "tool_id": id, "parameters": { "type": "object" },
        "result_schema": { "type": "object" },
        "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": protocol } }));
    manifest["side_effect_policy"] = json!("idempotent");
    manifest["side_effects"] = json!([{ "resource": "note", "op": "UPDATE", "scope": "note" }]);
    manifest["idempotency"] = json!({});
    std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
}

#[tokio::test]
async fn a_program_is_told_the_key_of_its_act_in_both_protocols() {
    let home = tempfile::tempdir().unwrap();
    crate::support::open_to_all(home.path());
    keyed_tool(
        home.path(),
        "simple",
        "simple",
        "import os, json\nprint(json.dumps({'key': os.environ.get('IDEMPOTENCY_KEY')}))\n",
    );
    let session = "import sys, json\ncall = json.loads(sys.stdin.readline())\nprint(json.dumps({'jsonrpc': '2.0', 'id': call['id'], 'result': {'key': call['params'].get('idempotency_key')}}), flush=True)\n";
    keyed_tool(home.path(), "session", "gantry/1", session);
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).arg("--tools").arg(home.path().join("tools").to_str().unwrap()).run().await;
    let mut seen = Vec::new();
    for tool in ["demo.simple", "demo.session"] {
        for key in ["note-1", "note-2"] {
            let call = json!({ "tool_id": tool, "parameters": {}, "execution_options": { "idempotency_key": key } });
            let answer = gantry.post("/v1/tools/invoke", call).await;
            let told = answer.body["result"]["key"].as_str().unwrap_or_default().to_owned();
            assert!(!told.is_empty() && !told.contains("note"), "{tool}: {}", answer.text);
            seen.push(told);
        }
    }
    let mut different = seen.clone();
    different.sort_unstable();
    different.dedup();
    assert_eq!(different.len(), seen.len(), "{seen:?}");
}
