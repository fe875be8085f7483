//! What is known of an effect, and nothing more, is what a key stands for: a call that was never sent can be made again under
//! its key, one that may have run cannot, and a key is its caller's own. The service is an MCP server on loopback that
//! answers each call as the test says, and counts what it was asked to do (`bank`).

mod bank;
mod tokens;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use self::bank::{Bank, Counter, pay};
use self::tokens::TokenPlace;
use crate::support::{Answer, Gantry, PATIENCE, Start, client, manifest};

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
        // Some servers answer whatever a tool fails with like this.
        ("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#),
        ("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"half done"}}"#),
        ("422 Unprocessable Content", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"half done"}}"#),
        ("404 Not Found", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#),
        ("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[]}}"#),
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
        assert_eq!(first.refusal().1, "E3413", "{status} {body}: {}", first.text);
        // An error of the server is told with its words.
        assert_eq!(first.text.contains("half done"), body.contains("\"error\""), "{status} {body}: {}", first.text);
        let again = pay(&gantry, &key).await;
        assert_eq!(again.refusal().1, "E3413", "{status} {body}: {}", again.text);
        assert_eq!(bank.calls() - before, 1, "{status} {body}: it was sent once");
    }
}

#[tokio::test]
async fn a_session_is_taken_for_gone_only_if_its_server_does_not_say_that_the_work_failed() {
    let bank = Bank::with(Counter { has_sessions: true, ..Counter::default() }).await;
    let gantry = bank.behind_gantry().await;
    bank.says("404 Not Found", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#);
    assert_eq!(pay(&gantry, "half").await.refusal().1, "E3413");
    assert_eq!(pay(&gantry, "half").await.refusal().1, "E3413");
    assert_eq!(bank.calls(), 1, "it was sent once");
    // Numbers of transports with a tool's own words are a tool's, whatever the status; so is the wish for a visit without an
    // address. What says two things, or nothing that can be understood, is no answer.
    for (number, (status, error)) in [
        ("404 Not Found", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"charged 7 EUR, but no mailbox for the receipt"}}"#),
        ("404 Not Found", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"charged 7 EUR. Session not found for it"}}"#),
        ("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"charged 7 EUR. Session not found for it"}}"#),
        ("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"isError":"true"}}"#),
        ("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"isError":true,"isError":false}}"#),
        ("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":{"content":[],"structuredContent":{"n":18446744073709551617}}}"#),
        ("200 OK", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32042,"message":"charged 7 EUR, now confirm by mail"}}"#),
    ]
    .into_iter()
    .enumerate()
    {
        bank.says(status, error);
        let key = format!("own-words-{number}");
        assert_eq!(pay(&gantry, &key).await.refusal().1, "E3413", "{error}");
        assert_eq!(pay(&gantry, &key).await.refusal().1, "E3413", "{error}");
        assert_eq!(bank.calls(), 2 + number, "it was sent once: {error}");
    }
    let before = bank.calls();
    // A session that is gone is begun anew, and the call is sent in it.
    bank.says("404 Not Found", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}"#);
    let done = pay(&gantry, "whole").await;
    assert_eq!((done.status, bank.calls()), (200, before + 2), "{}", done.text);
}

#[tokio::test]
async fn a_call_that_was_turned_away_and_ends_while_it_waits_for_a_token_can_be_made_again() {
    let bank = Bank::open().await;
    let tokens = TokenPlace::open().await;
    let oauth = json!({ "token_url": tokens.url, "client_id": "gantry" });
    let gantry = bank.behind_with(Start::new(), oauth).await;
    bank.says("401 Unauthorized", "{}");
    tokens.is_silent.store(true, Ordering::SeqCst);
    let asked = tokens.asked.load(Ordering::SeqCst);
    let call = json!({ "tool_id": "bank.pay", "parameters": { "bill": 7 },
        "execution_options": { "idempotency_key": "bill" }, "resource_limits": { "timeout_seconds": 4 } });
    let first = gantry.post("/v1/tools/invoke", call.clone()).await;
    assert_eq!(first.refusal().1, "E3402", "{}", first.text);
    assert_eq!((bank.calls(), tokens.asked.load(Ordering::SeqCst) - asked), (1, 1), "it waited for a token");
    tokens.is_silent.store(false, Ordering::SeqCst);
    let again = gantry.post("/v1/tools/invoke", call).await;
    assert_eq!((again.status, &again.body["cached"]), (200, &json!(false)), "{}", again.text);
    assert_eq!(bank.calls(), 2, "turned away once, done once");
}

#[tokio::test]
async fn a_redirect_after_the_work_is_not_followed_to_a_page_that_was_never_asked_to_work() {
    for has_sessions in [true, false] {
        let bank = Bank::with(Counter { has_sessions, ..Counter::default() }).await;
        let gantry = bank.behind_gantry().await;
        let mut number = 0;
        for status in ["303 See Other", "302 Found", "301 Moved Permanently"] {
            // With a session, 404 would say that the server has forgotten it, and the call would be sent again.
            for page in ["404 Not Found", "405 Method Not Allowed", "429 Too Many Requests", "200 OK"] {
                number += 1;
                let key = format!("bill-{number}");
                *bank.counter.elsewhere.lock().unwrap() = page;
                bank.redirects(status, "/receipt");
                let before = bank.calls();
                let first = pay(&gantry, &key).await;
                assert_eq!(first.refusal().1, "E3413", "{status}, {page}: {}", first.text);
                assert_eq!(pay(&gantry, &key).await.refusal().1, "E3413", "{status}, {page}");
                assert_eq!(bank.calls() - before, 1, "{status}, {page}: it was sent once");
            }
        }
        // One that asks for the same request at another place has done nothing with it.
        for status in ["307 Temporary Redirect", "308 Permanent Redirect"] {
            let before = bank.calls();
            bank.redirects(status, "/mcp");
            let done = pay(&gantry, status).await;
            assert_eq!((done.status, bank.calls() - before), (200, 2), "{}", done.text);
        }
    }
}

/// The call in the background.
async fn pay_later(gantry: &Gantry, key: &str) -> Value {
    let call = json!({ "tool_id": "bank.pay", "parameters": { "bill": 7 },
        "execution_options": { "idempotency_key": key, "async_mode": true } });
    let accepted = gantry.post("/v1/tools/invoke", call).await;
    let id = accepted.body["invocation_id"].as_str().unwrap_or_else(|| panic!("{}", accepted.text)).to_owned();
    loop {
        let seen = gantry.get(&format!("/v1/invocations/{id}")).await;
        if !matches!(seen.body["status"].as_str(), Some("pending" | "queued" | "running")) {
            return seen.body;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_job_that_was_turned_away_can_be_submitted_again_under_its_key() {
    let bank = Bank::open().await;
    let gantry = bank.behind_gantry().await;
    for (number, (status, code)) in [
        ("429 Too Many Requests", "E3504"),
        ("401 Unauthorized", "E3603"),
        ("403 Forbidden", "E3603"),
        ("400 Bad Request", "E3502"),
    ]
    .into_iter()
    .enumerate()
    {
        let key = format!("bill-{number}");
        bank.says(status, "{}");
        let before = bank.calls();
        let first = pay_later(&gantry, &key).await;
        assert_eq!((&first["status"], &first["error"]["code"]), (&json!("error"), &json!(code)), "{status}: {first}");
        let again = pay_later(&gantry, &key).await;
        assert_eq!(again["status"], "success", "{status}: {again}");
        assert_ne!(again["invocation_id"], first["invocation_id"], "{status}");
        let third = pay_later(&gantry, &key).await;
        assert_eq!(third["invocation_id"], again["invocation_id"], "what was done keeps its key");
        assert_eq!(pay(&gantry, &key).await.body["cached"], true, "at every door");
        assert_eq!(bank.calls() - before, 2, "{status}: turned away once, done once");
    }
    // One that may have run keeps its key, and is not sent again.
    bank.says("500 Internal Server Error", "{}");
    let before = bank.calls();
    let lost = pay_later(&gantry, "lost").await;
    assert_eq!(lost["status"], "indeterminate", "{lost}");
    assert_eq!(pay_later(&gantry, "lost").await["invocation_id"], lost["invocation_id"]);
    assert_eq!(bank.calls() - before, 1);
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
    let calls = bank.counter.calls.lock().unwrap().clone();
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
    for (user, bill, key) in
        [(json!("did:example:ann"), "7".to_owned(), "short"), (Value::Null, "7".repeat(5_000), "long")]
    {
        let token = gantry.mint(json!({ "tenant": "local", "user_did": user })).await;
        let call = json!({ "tool_id": "bank.pay", "parameters": { "bill": bill },
            "execution_options": { "idempotency_key": key } });
        let paid = gantry.request(Method::POST, "/v1/tools/invoke", Some(&token), Some(call)).await;
        assert_eq!(paid.status, 200, "{}", paid.text);
        let told = bank.counter.calls.lock().unwrap().last().unwrap()["_meta"]["dev.gantry/user"].clone();
        assert_eq!(told, user);
        let bytes = |member: &str| paid.body["execution_metadata"][member].as_u64().unwrap();
        used.push((bytes("network_bytes_sent"), bytes("network_bytes_received")));
    }
    let [(short, answered), (long, as_much)] = used[..] else { panic!("{used:?}") };
    assert!(short > 100 && (4_900..5_100).contains(&(long - short)), "{used:?}");
    let length = u64::try_from(bank::DONE.body.len()).unwrap();
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
async fn an_invocation_id_that_somebody_else_uses_is_taken() {
    let gantry = Gantry::start().await;
    assert_eq!(gantry.register(manifest(json!({}))).await.status, 201);
    let call = json!({ "tool_id": "demo.echo_sum", "parameters": { "expression": "1+1" },
        "invocation_id": "019b0000-0000-7000-8000-000000000001", "execution_options": { "async_mode": true } });
    let mallory = gantry.mint(json!({ "tenant": "local", "sub": "did:example:mallory" })).await;
    let accepted = gantry.request(Method::POST, "/v1/tools/invoke", Some(&mallory), Some(call.clone())).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    assert_eq!(result_of(&gantry, &mallory, &accepted).await["result"], 2);
    let alice = gantry.mint(json!({ "tenant": "local", "sub": "did:example:alice" })).await;
    let refused = gantry.request(Method::POST, "/v1/tools/invoke", Some(&alice), Some(call.clone())).await;
    assert_eq!(refused.refusal(), (409, "E3410"), "{}", refused.text);
    // In another tenant it is another id.
    let other = gantry.mint(json!({ "tenant": "acme", "sub": "did:example:alice" })).await;
    let accepted = gantry.request(Method::POST, "/v1/tools/invoke", Some(&other), Some(call)).await;
    assert_eq!(accepted.body["invocation_id"], "019b0000-0000-7000-8000-000000000001", "{}", accepted.text);
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

/// Calls of one agent that a server is sent at once, and calls of its tenant that may wait for their turn there (decision 0063).
const SENT_MAX: usize = 36;
const WAITING_MAX: usize = 192;

/// A call that takes as long as the bank is closed. Its caller waits for it, and it does not become a job.
async fn patient(gantry: &Gantry, tool: &str, options: Value) -> Answer {
    let call = json!({ "tool_id": tool, "parameters": { "bill": 7 }, "execution_options": options,
        "resource_limits": { "timeout_seconds": 240 } });
    let request = client().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(&gantry.token);
    let request = request.header("content-type", "application/json").header("prefer", "wait=600");
    Answer::of(request.timeout(PATIENCE * 5).body(call.to_string()).send().await.unwrap()).await
}

/// Looks at the account so many times, at once. A look has no effects and no place in the ledger.
fn look(gantry: &Arc<Gantry>, times: usize) -> JoinSet<u16> {
    let look = |gantry: Arc<Gantry>| async move { patient(&gantry, "bank.look", json!({})).await.status };
    (0..times).map(|_| look(Arc::clone(gantry))).collect()
}

/// Waits until so many calls are on the server, and so many wait for their turn.
async fn until_placed(gantry: &Gantry, held: usize, waiting: usize) {
    let lines = [
        format!("gantry_places_held{{resource=\"mcp_calls\"}} {held}"),
        format!("gantry_places_waiting{{resource=\"mcp_calls\"}} {waiting}"),
    ];
    let begun = Instant::now();
    loop {
        let metrics = gantry.get("/metrics").await.text;
        if lines.iter().all(|line| metrics.lines().any(|said| said == line)) {
            return;
        }
        let found: Vec<&str> = metrics.lines().filter(|line| line.contains("mcp_calls")).collect();
        assert!(begun.elapsed() < PATIENCE * 3, "{lines:?}: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The account can be looked at without effects.
async fn with_looks(bank: &Bank, start: Start) -> Arc<Gantry> {
    let gantry = bank.behind(start).await;
    gantry.cli(&["tool", "classify", "bank.look", "pure"]).ok();
    Arc::new(gantry)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_waited_in_vain_before_it_was_sent_can_be_made_again_under_its_key() {
    let bank = Bank::open().await;
    let gantry = with_looks(&bank, Start::new()).await;
    bank.is_closed(true);
    let looks = look(&gantry, SENT_MAX + WAITING_MAX);
    until_placed(&gantry, SENT_MAX, WAITING_MAX).await;
    // No room to wait.
    assert_eq!(pay(&gantry, "crowded").await.refusal().1, "E3701");
    bank.is_closed(false);
    assert!(looks.join_all().await.iter().all(|status| *status == 200));
    // Nor a turn within its time, once there is room.
    bank.is_closed(true);
    let looks = look(&gantry, SENT_MAX);
    until_placed(&gantry, SENT_MAX, 0).await;
    let hasty = json!({ "tool_id": "bank.pay", "parameters": { "bill": 7 },
        "execution_options": { "idempotency_key": "hasty" }, "resource_limits": { "timeout_seconds": 1 } });
    let hasty = gantry.post("/v1/tools/invoke", hasty).await;
    assert_eq!(hasty.refusal().1, "E3402", "{}", hasty.text);
    assert_eq!(bank.bills(), 0, "nothing was sent");
    bank.is_closed(false);
    assert!(looks.join_all().await.iter().all(|status| *status == 200));
    for (number, key) in ["crowded", "hasty"].into_iter().enumerate() {
        let again = pay(&gantry, key).await;
        assert_eq!((again.status, &again.body["cached"]), (200, &json!(false)), "{key} was never sent: {}", again.text);
        assert_eq!(pay(&gantry, key).await.body["cached"], true, "{key}");
        assert_eq!(bank.bills(), number + 1, "{key}: it was done once");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_time_is_over_before_its_intent_is_written_can_be_made_again_under_its_key() {
    let bank = Bank::open().await;
    let gantry = bank.behind_gantry().await;
    // Somebody else writes to the database, and takes longer than the call has.
    let database = rusqlite::Connection::open(gantry.data.join("gantry.db")).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let hasty = json!({ "tool_id": "bank.pay", "parameters": { "bill": 7 },
        "execution_options": { "idempotency_key": "hasty" }, "resource_limits": { "timeout_seconds": 0.2 } });
    let hasty = gantry.post("/v1/tools/invoke", hasty).await;
    assert_eq!(hasty.refusal().1, "E3402", "no other call has its key: {}", hasty.text);
    database.execute_batch("COMMIT").unwrap();
    let again = pay(&gantry, "hasty").await;
    assert_eq!((again.status, &again.body["cached"]), (200, &json!(false)), "it was never sent: {}", again.text);
    assert_eq!(bank.bills(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_waits_for_its_turn_when_the_server_ends_can_be_made_again_under_its_key() {
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let start = Start::new().data(&home.path().join("data")).env("GANTRY_SERVER__DRAIN_TIMEOUT_MS", "200");
        start.env("GANTRY_EGRESS__OPEN_NETWORKS", "127.0.0.0/8")
    };
    let bank = Bank::open().await;
    let gantry = with_looks(&bank, start()).await;
    bank.is_closed(true);
    let paying = |key: &'static str| {
        let gantry = Arc::clone(&gantry);
        tokio::spawn(async move { patient(&gantry, "bank.pay", json!({ "idempotency_key": key })).await })
    };
    let sent = paying("sent");
    until_placed(&gantry, 1, 0).await;
    let looks = look(&gantry, SENT_MAX - 1);
    until_placed(&gantry, SENT_MAX, 0).await;
    let waits = paying("waits");
    until_placed(&gantry, SENT_MAX, 1).await;
    gantry.signal("TERM");
    // Who is ended hears so, and what is known of its call is kept.
    let waits = waits.await.unwrap();
    assert_eq!(waits.refusal().1, "E3703", "{}", waits.text);
    assert!(waits.text.contains("server ends"), "{}", waits.text);
    sent.await.unwrap().refusal();
    looks.join_all().await;
    Arc::into_inner(gantry).unwrap().shut_down_by_itself();
    assert_eq!(bank.bills(), 1, "one was sent");
    bank.is_closed(false);
    let gantry = start().run().await;
    let again = pay(&gantry, "waits").await;
    assert_eq!((again.status, &again.body["cached"]), (200, &json!(false)), "it was never sent: {}", again.text);
    assert_eq!(pay(&gantry, "waits").await.body["cached"], true);
    assert_eq!(pay(&gantry, "sent").await.refusal().1, "E3413", "nobody knows of the other");
    assert_eq!(bank.bills(), 2, "each was sent once");
}

/// A component that says of each call that the service behind it cannot be had.
const UNAVAILABLE: &str = r#"(component
  (core module $m (memory (export "memory") 1)
    (data (i32.const 1024) "away")
    (func (export "cabi_realloc") (param i32 i32 i32 i32) (result i32) (i32.const 8192))
    (func (export "invoke") (param i32 i32) (result i32)
      (i32.store8 (i32.const 16) (i32.const 1)) (i32.store8 (i32.const 20) (i32.const 2))
      (i32.store (i32.const 24) (i32.const 1024)) (i32.store (i32.const 28) (i32.const 4))
      (i32.const 16)))
  (core instance $i (instantiate $m))
  (type $kind' (enum "invalid-parameters" "failed" "unavailable"))
  (export $kind "error-kind" (type $kind'))
  (type $error' (record (field "kind" $kind) (field "message" string)))
  (export $error "tool-error" (type $error'))
  (func $invoke (param "parameters-json" string) (result (result string (error $error)))
    (canon lift (core func $i "invoke") (memory $i "memory") (realloc (func $i "cabi_realloc"))))
  (export "invoke" (func $invoke)))"#;

#[tokio::test]
async fn a_component_whose_service_is_unavailable_may_have_asked_it() {
    let home = tempfile::tempdir().unwrap();
    crate::support::open_to_all(home.path());
    keyed_tool(home.path(), "undo", "simple", "print('{}')\n");
    let folder = home.path().join("tools/send");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tool.wasm"), wat::parse_str(UNAVAILABLE).unwrap()).unwrap();
    let mut manifest = manifest(json!({ "tool_id": "send", "parameters": { "type": "object" },
        "result_schema": { "type": "object" }, "execution": { "type": "wasm", "component": "tool.wasm" } }));
    manifest["side_effect_policy"] = json!("compensatable");
    manifest["compensation_tool_id"] = json!("demo.undo");
    manifest["side_effects"] = json!([{ "resource": "mail", "op": "CREATE", "scope": "mail" }]);
    manifest["idempotency"] = json!({});
    std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).arg("--tools").arg(home.path().join("tools").to_str().unwrap()).run().await;
    let call =
        json!({ "tool_id": "demo.send", "parameters": {}, "execution_options": { "idempotency_key": "mail-1" } });
    let first = gantry.post("/v1/tools/invoke", call.clone()).await;
    assert_eq!(first.refusal().1, "E3413", "{}\n{}", first.text, gantry.log());
    assert_eq!(first.body["error"]["details"]["code"], "E3502", "{}", first.text);
    let again = gantry.post("/v1/tools/invoke", call).await;
    assert_eq!(again.refusal().1, "E3413", "{}", again.text);
}
