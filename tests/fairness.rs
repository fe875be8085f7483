//! Three tenants, one of them hostile, and everything there is only so much of: calls, connections, places for sandboxed
//! calls, WASM guests, calls on one MCP server, workers, deliveries, event streams, MCP sessions and listeners, searches,
//! queries and changes, the breaker of a shared tool, and turns within a tenant. The hostile one takes all it can get and never
//! lets go; the others go on.
//!
//! Nothing here depends on speed: what is held is held by a tool that waits for a file, or by a receiver that never answers.

mod background;
mod breakers;
mod computations;
mod connections;
mod engine;
mod mcp;
mod requests;

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::support::{Answer, Gantry, PATIENCE, Start, client, open_to_all};

/// A tool that notes its run in a file outside and waits until another file is there; for that it runs without walls.
const GATED: &str = r#"
wish=$(cat)
member() { printf %s "$wish" | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }
echo "$(member word)" >> "$(member note)"
gate=$(member gate)
while [ -n "$gate" ] && [ ! -e "$gate" ]; do sleep 0.05; done
printf '{"done": true}'
"#;

pub(crate) struct Stage {
    home: TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        let tool = home.path().join("tools/gated");
        std::fs::create_dir_all(&tool).unwrap();
        std::fs::write(tool.join("main.sh"), GATED).unwrap();
        let text = |about: &str| json!({ "type": "string", "description": about });
        let manifest = json!({
            "tool_id": "gated", "namespace": "demo", "version": "1.0.0", "name": "Gated",
            "description": "Waits until a file is there, for tests of what is shared.", "provider": "Demo",
            "protocol": "native", "side_effect_policy": "pure", "timeout_class": "long_running", "timeout_default": 120,
            "parameters": { "type": "object", "properties": { "gate": text("the file"), "note": text("where runs are noted"),
                "word": text("what is noted") }, "required": ["note", "word"] },
            "result_schema": { "type": "object" },
            "execution": { "type": "process", "command": ["sh", "main.sh"], "protocol": "simple" },
        });
        std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    pub(crate) fn start(&self) -> Start {
        let start = Start::new().data(&self.path("data")).arg("--tools").arg(self.path("tools").to_str().unwrap());
        start.arg("--unsandboxed-processes")
    }

    /// What a call waits for, unless `gate` is empty, and what it notes.
    pub(crate) fn parameters(&self, gate: &str, word: &str) -> Value {
        let gate = if gate.is_empty() { String::new() } else { self.path(gate).to_str().unwrap().to_owned() };
        json!({ "gate": gate, "note": self.path("notes"), "word": word })
    }

    pub(crate) fn open(&self, gate: &str) {
        std::fs::write(self.path(gate), "").unwrap();
    }

    pub(crate) fn noted(&self) -> Vec<String> {
        lines(&self.path("notes"))
    }
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

async fn token(gantry: &Gantry, tenant: &str, agent: &str) -> String {
    gantry.mint(json!({ "sub": format!("did:example:{agent}"), "tenant": tenant })).await
}

/// A call that somebody waits for, beside the test, for as long as it takes.
fn begin(gantry: &Gantry, token: &str, parameters: &Value) -> JoinHandle<Answer> {
    begin_call(gantry, token, "demo.gated", parameters)
}

/// The same with any tool. It stays a call that is waited for, however slow the machine is.
fn begin_call(gantry: &Gantry, token: &str, tool: &str, parameters: &Value) -> JoinHandle<Answer> {
    begin_waited_for(gantry, token, tool, parameters, 110)
}

/// A call that goes on in the background after a second, if there is room for it there.
fn begin_impatient(gantry: &Gantry, token: &str, parameters: &Value) -> JoinHandle<Answer> {
    begin_waited_for(gantry, token, "demo.gated", parameters, 1)
}

fn begin_waited_for(gantry: &Gantry, token: &str, tool: &str, parameters: &Value, seconds: u32) -> JoinHandle<Answer> {
    let request = reqwest::Client::new().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(token);
    let body = json!({ "tool_id": tool, "parameters": parameters, "resource_limits": { "timeout_seconds": 110 } });
    let request = request.header("content-type", "application/json").header("prefer", format!("wait={seconds}"));
    let request = request.body(body.to_string());
    tokio::spawn(async move { Answer::of(request.send().await.unwrap()).await })
}

async fn call(gantry: &Gantry, token: &str) -> Answer {
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "6 * 7" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

async fn submit(gantry: &Gantry, token: &str, tool: &str, parameters: Value, priority: &str) -> String {
    let options = json!({ "async_mode": true, "priority": priority });
    let body = json!({ "tool_id": tool, "parameters": parameters, "execution_options": options });
    let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.body["invocation_id"].as_str().unwrap().to_owned()
}

/// Waits, while the runtime goes on with what was begun.
async fn until<T>(what: &str, mut attempt: impl AsyncFnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(found) = attempt().await {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not happen in time");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// A number of the page of metrics.
async fn metric(gantry: &Gantry, name: &str) -> Option<u64> {
    let page = gantry.get("/metrics").await.text;
    page.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

async fn succeeds(gantry: &Gantry, token: &str, id: &str) {
    until(&format!("the success of {id}"), async || {
        let answer = gantry.request(Method::GET, &format!("/v1/invocations/{id}"), Some(token), None).await;
        assert_ne!(answer.body["status"], "error", "{}", answer.text);
        (answer.body["status"] == "success").then_some(())
    })
    .await;
}

/// A receiver that answers nobody, and one that answers everybody.
struct Receiver {
    url: String,
    asked: Arc<AtomicUsize>,
}

fn receiver(answers: bool) -> Receiver {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let held: Mutex<Vec<TcpStream>> = Mutex::default();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let mut buffer = [0; 8192];
            let _some = stream.read(&mut buffer);
            if answers {
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
            } else {
                held.lock().unwrap().push(stream);
            }
            count.fetch_add(1, Ordering::SeqCst);
        }
    });
    Receiver { url, asked }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_tenant_leave_room_for_those_of_others() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_SERVER__CALLS_MAX", "4").run().await;
    let mut held = Vec::new();
    for number in 0..8 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        held.push(begin(&gantry, &agent, &stage.parameters("gate", "held")));
    }
    until("calls of the hostile tenant", async || (stage.noted().len() >= 3).then_some(())).await;
    let (acme, zeta) = (token(&gantry, "acme", "ann").await, token(&gantry, "zeta", "zoe").await);
    for _ in 0..10 {
        for other in [&acme, &zeta] {
            let answer = call(&gantry, other).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
        }
    }
    assert_eq!(stage.noted().len(), 3, "one tenant holds three of four at most");
    assert_eq!(metric(&gantry, "gantry_places_held{resource=\"calls\"}").await, Some(3));
    until("the others wait", async || {
        (metric(&gantry, "gantry_places_waiting{resource=\"calls\"}").await? == 5).then_some(())
    })
    .await;
    stage.open("gate");
    for call in held {
        let answer = call.await.unwrap();
        assert_eq!(answer.status, 200, "whoever waited had its turn: {}", answer.text);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_without_a_place_waits_for_it_and_exchanged_names_make_no_more_places() {
    let stage = Stage::new();
    let gantry = stage.start().run().await;
    let root = token(&gantry, "acme", "ann").await;
    token(&gantry, "acme", "bot").await;
    let mut calls: Vec<_> = (0..4).map(|_| begin(&gantry, &root, &stage.parameters("gate", "first"))).collect();
    until("four calls", async || (stage.noted().len() == 4).then_some(())).await;
    let form = format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token={root}&sub=did%3Aexample%3Abot\
         &subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt"
    );
    let exchange = client().post(format!("{}/oauth/token", gantry.url)).body(form);
    let exchange = exchange.header("content-type", "application/x-www-form-urlencoded");
    let exchanged = Answer::of(exchange.send().await.unwrap()).await;
    let renamed = exchanged.body["access_token"].as_str().unwrap_or_else(|| panic!("{}", exchanged.text)).to_owned();

    calls.push(begin(&gantry, &root, &stage.parameters("gate", "fifth")));
    calls.push(begin(&gantry, &renamed, &stage.parameters("gate", "sixth")));
    until("both wait", async || {
        let over = calls.iter().any(JoinHandle::is_finished) || stage.noted().len() > 4;
        let waiting = metric(&gantry, "gantry_places_waiting{resource=\"sandboxed_calls\"}").await;
        (over || waiting == Some(2)).then_some(())
    })
    .await;
    assert_eq!(stage.noted(), ["first"; 4], "neither a fifth call nor one under another name has begun");
    // Another agent, and another tenant, have places of their own.
    for (tenant, agent) in [("acme", "other"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let answer = begin(&gantry, &other, &stage.parameters("", "other")).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    stage.open("gate");
    for call in calls {
        let answer = call.await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(stage.noted().len(), 8);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_in_vain_is_refused_when_its_time_is_over_and_has_run_nothing() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_LIMITS__CONCURRENT_CALLS_PER_AGENT", "1").run().await;
    let ann = token(&gantry, "acme", "ann").await;
    let held = begin(&gantry, &ann, &stage.parameters("gate", "held"));
    until("the first call", async || (stage.noted().len() == 1).then_some(())).await;
    let body = json!({ "tool_id": "demo.gated", "parameters": stage.parameters("", "late"),
        "resource_limits": { "timeout_seconds": 1 } });
    let refused = gantry.request(Method::POST, "/v1/tools/invoke", Some(&ann), Some(body)).await;
    assert_eq!(refused.refusal(), (429, "E3003"), "{}", refused.text);
    assert_eq!(refused.header("retry-after"), "1");
    stage.open("gate");
    assert_eq!(held.await.unwrap().status, 200);
    assert_eq!(stage.noted(), ["held"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn places_in_processes_are_shared_by_tenants_however_many_agents_one_has() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_SANDBOX__SANDBOXES", "4").run().await;
    let mut held = Vec::new();
    for number in 0..6 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        held.push(begin(&gantry, &agent, &stage.parameters("gate", "held")));
    }
    until("calls of the hostile tenant", async || (stage.noted().len() >= 3).then_some(())).await;
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let answer = begin(&gantry, &other, &stage.parameters("", "other")).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let noted = stage.noted();
    assert_eq!(noted.iter().filter(|word| *word == "held").count(), 3, "three of four places at most: {noted:?}");
    stage.open("gate");
    for call in held {
        let answer = call.await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
}

/// A guest that asks a server and waits for its answer: without an answer it stays.
fn guest_tool(stage: &Stage, authority: &str) {
    let tool = stage.path("tools/guest");
    std::fs::create_dir_all(&tool).unwrap();
    let component = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/wasm/probe.wasm");
    std::fs::copy(component, tool.join("probe.wasm")).unwrap();
    let manifest = json!({
        "tool_id": "guest", "namespace": "demo", "version": "1.0.0", "name": "Guest",
        "description": "Asks a server, for tests of what is shared.", "provider": "Demo", "protocol": "native",
        "side_effect_policy": "pure", "timeout_class": "long_running", "timeout_default": 120,
        "parameters": { "type": "object" }, "result_schema": {},
        "required_permissions": [format!("network:http://{authority}")],
        "resource_limits": { "cpu": "1", "memory": "64Mi" },
        "execution": { "type": "wasm", "component": "probe.wasm" },
    });
    std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn wasm_guests_of_one_tenant_leave_room_for_those_of_others() {
    // Of 64 guests, one tenant may have 48, the last of them only for an agent that has none; its agents may have four
    // calls each, so that one waits in vain for that last one if all have some.
    const AGENTS: usize = 16;
    let tarpit = receiver(false);
    let authority = tarpit.url.strip_prefix("http://").unwrap();
    let stage = Stage::new();
    guest_tool(&stage, authority);
    let gantry = stage.start().run().await;
    let held = json!({ "do": ["get", "http", authority, "/held"] });
    let mut calls = Vec::new();
    for number in 0..AGENTS {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        for _ in 0..4 {
            calls.push(begin_call(&gantry, &agent, "demo.guest", &held));
        }
    }
    until("guests of the hostile tenant", async || (tarpit.asked.load(Ordering::SeqCst) >= 47).then_some(())).await;
    until("the others wait", async || {
        let waiting = metric(&gantry, "gantry_places_waiting{resource=\"wasm_guests\"}").await?;
        let held = metric(&gantry, "gantry_places_held{resource=\"wasm_guests\"}").await?;
        (waiting + held == 64).then_some(())
    })
    .await;
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let answer = begin_call(&gantry, &other, "demo.guest", &json!({ "do": ["raw", "1"] })).await.unwrap();
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let asked = tarpit.asked.load(Ordering::SeqCst);
    assert!((47..=48).contains(&asked), "three quarters at most: {asked}");
    calls.iter().for_each(JoinHandle::abort);
}

#[tokio::test(flavor = "multi_thread")]
async fn event_streams_of_one_tenant_leave_room_for_those_of_others() {
    // Of 512 streams, one tenant may have 384; two agents of it want 600.
    let stage = Stage::new();
    let gantry = stage.start().run().await;
    let watch = async |token: &str, id: &str| {
        let url = format!("{}/v1/invocations/{id}/events", gantry.url);
        reqwest::Client::new().get(url).bearer_auth(token).send().await.unwrap()
    };
    let mut open = Vec::new();
    for number in 0..2 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        let id = submit(&gantry, &agent, "demo.gated", stage.parameters("gate", "held"), "normal").await;
        for _ in 0..300 {
            let stream = watch(&agent, &id).await;
            if stream.status() != 200 {
                let refused = Answer::of(stream).await;
                assert_eq!(refused.refusal(), (503, "E3001"), "{}", refused.text);
                break;
            }
            open.push(stream);
        }
    }
    assert!(open.len() <= 384, "{} streams: three quarters at most", open.len());
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let id = submit(&gantry, &other, "calculator", json!({ "expression": "6 * 7" }), "normal").await;
        let stream = watch(&other, &id).await;
        assert_eq!(stream.status(), 200);
    }
    assert_eq!(
        metric(&gantry, "gantry_places_max{resource=\"event_streams\"}").await,
        Some(512),
        "what this test is about"
    );
    stage.open("gate");
}
