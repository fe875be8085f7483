//! Calls that outlive their request, against the real binary: submitted, watched, cancelled, repeated, and still there after
//! the server was killed.

use std::path::{Path, PathBuf};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Gantry, PATIENCE, Start, client, open_to_all, wait_for};

/// A tool that waits as long as it is told to, and notes each run in a file outside; for that it runs without walls.
const SLOW: &str = r#"
import json, sys, time
wish = json.load(sys.stdin)
if wish.get("note"):
    with open(wish["note"], "a") as file:
        file.write("run\n")
time.sleep(wish["seconds"])
json.dump({"slept": wish["seconds"]}, sys.stdout)
"#;

/// A tool that says how far it is.
const TALKS: &str = r#"
import json, sys, time
def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "invoke":
        send(method="progress", params={"percent": 40, "phase": "parsing"})
        time.sleep(message["params"]["parameters"]["seconds"])
        send(id=message["id"], result={})
"#;

struct Workshop {
    home: TempDir,
}

impl Workshop {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        for (id, program, protocol, effects) in [
            ("slow", SLOW, "simple", "pure"),
            ("once", SLOW, "simple", "unclassified"),
            ("talks", TALKS, "gantry/1", "pure"),
        ] {
            let tool = home.path().join("tools").join(id);
            std::fs::create_dir_all(&tool).unwrap();
            std::fs::write(tool.join("main.py"), program).unwrap();
            let manifest = json!({
                "tool_id": id, "namespace": "demo", "version": "1.0.0", "name": id,
                "description": "Waits for some seconds, for tests of what takes long.", "provider": "Demo",
                "protocol": if effects == "pure" { "native" } else { "custom" }, "side_effect_policy": effects, "timeout_class": "long_running", "timeout_default": 120,
                "parameters": { "type": "object", "properties": { "seconds": { "type": "number", "description": "how long" },
                    "note": { "type": "string", "description": "where runs are noted" } }, "required": ["seconds"] },
                "result_schema": { "type": "object" },
                "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": protocol },
            });
            std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
        }
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn start(&self) -> Start {
        let tools = self.path("tools");
        let start = Start::new().data(&self.path("data")).arg("--tools").arg(tools.to_str().unwrap());
        start.arg("--unsandboxed-processes")
    }

    async fn open(&self) -> Gantry {
        self.start().run().await
    }
}

async fn submit_as(gantry: &Gantry, token: &str, tool: &str, parameters: Value, options: Value) -> Answer {
    let mut options = options;
    options["async_mode"] = json!(true);
    let body = json!({ "tool_id": tool, "parameters": parameters, "execution_options": options });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

async fn submit(gantry: &Gantry, parameters: Value) -> String {
    let answer = submit_as(gantry, &gantry.token, "demo.slow", parameters, json!({})).await;
    assert_eq!((answer.status, &answer.body["status"]), (202, &json!("pending")), "{}", answer.text);
    assert!(answer.body["polling_info"]["estimated_completion_seconds"].is_u64(), "{}", answer.text);
    answer.body["invocation_id"].as_str().unwrap().to_owned()
}

async fn status(gantry: &Gantry, id: &str) -> Value {
    let answer = gantry.get(&format!("/v1/invocations/{id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

async fn until(gantry: &Gantry, id: &str, wanted: &[&str]) -> Value {
    let start = std::time::Instant::now();
    loop {
        let body = status(gantry, id).await;
        if wanted.contains(&body["status"].as_str().unwrap()) {
            return body;
        }
        assert!(start.elapsed() < PATIENCE, "{id} is not {wanted:?}: {body}");
    }
}

async fn cancel(gantry: &Gantry, id: &str) -> (bool, String) {
    let answer = gantry.post(&format!("/v1/invocations/{id}/cancel"), json!({ "reason": "not wanted" })).await;
    assert_eq!((answer.status, &answer.body["invocation_id"]), (200, &json!(id)), "{}", answer.text);
    (answer.body["cancelled"].as_bool().unwrap(), answer.body["message"].as_str().unwrap().to_owned())
}

fn noted(path: &Path) -> usize {
    std::fs::read_to_string(path).unwrap_or_default().lines().count()
}

#[tokio::test]
async fn a_call_is_submitted_polled_and_comes_to_its_result() {
    let workshop = Workshop::new();
    let gantry = workshop.open().await;
    let answer = submit_as(&gantry, &gantry.token, "calculator", json!({ "expression": "6 * 7" }), json!({})).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let url = answer.body["polling_info"]["status_url"].as_str().unwrap();
    let id = answer.body["invocation_id"].as_str().unwrap();
    assert_eq!(url, format!("{}/v1/invocations/{id}", gantry.url));
    let body = until(&gantry, id, &["success"]).await;
    assert_eq!(body["result"]["result"], json!(42));
    assert_eq!((&body["attempts"], &body["progress_percent"]), (&json!(1), &json!(100.0)));
    assert!(body["execution_metadata"]["duration_ms"].is_u64() && body["completed_at"].is_string(), "{body}");

    let preferred = client()
        .post(format!("{}/v1/tools/invoke", gantry.url))
        .bearer_auth(&gantry.token)
        .header("prefer", "respond-async")
        .header("content-type", "application/json")
        .body(json!({ "tool_id": "calculator", "parameters": { "expression": "1" } }).to_string())
        .send();
    assert_eq!(preferred.await.unwrap().status(), 202);
    for (path, id) in [("/v1/invocations/", "no-uuid"), ("/v1/invocations/", "00000000-0000-7000-8000-000000000000")] {
        assert_eq!(gantry.get(&format!("{path}{id}")).await.refusal(), (404, "E3702"));
        assert_eq!(gantry.post(&format!("{path}{id}/cancel"), json!({})).await.refusal(), (404, "E3702"));
        assert_eq!(gantry.get(&format!("{path}{id}/events")).await.refusal(), (404, "E3702"));
    }
}

#[tokio::test]
async fn jobs_survive_the_death_of_the_server() {
    let workshop = Workshop::new();
    let note = workshop.path("runs");
    let gantry = workshop.start().env("GANTRY_JOBS__CONCURRENCY", "1").run().await;
    let parameters = json!({ "seconds": 2, "note": note.to_str().unwrap() });
    let (running, waiting) = (submit(&gantry, parameters.clone()).await, submit(&gantry, parameters).await);
    wait_for("the first run", || (noted(&note) == 1).then_some(()));
    assert_eq!(status(&gantry, &waiting).await["status"], "pending");
    gantry.kill();

    let gantry = workshop.open().await;
    for id in [&running, &waiting] {
        let body = until(&gantry, id, &["success", "error"]).await;
        assert_eq!(body["result"], json!({ "slept": 2 }), "{body}");
    }
    let told = status(&gantry, &running).await;
    assert_eq!(
        json!([told["attempts"], told["interruptions"]]),
        json!([1, 1]),
        "it was begun again, at no cost: {told}"
    );
    assert_eq!(noted(&note), 3);
    assert!(gantry.stop().success());

    let gantry = workshop.open().await;
    assert_eq!(status(&gantry, &running).await["status"], "success", "an end is kept");
    assert_eq!(noted(&note), 3);
}

#[tokio::test]
async fn a_job_is_one_call_of_its_token_s_budget_however_often_it_is_begun() {
    let workshop = Workshop::new();
    let note = workshop.path("runs");
    let gantry = workshop.open().await;
    let one = gantry.mint(json!({ "tenant": "local", "budget": { "calls": 1 } })).await;
    let parameters = json!({ "seconds": 2, "note": note.to_str().unwrap() });
    let accepted = submit_as(&gantry, &one, "demo.slow", parameters.clone(), json!({})).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let id = accepted.body["invocation_id"].as_str().unwrap().to_owned();
    wait_for("the first run", || (noted(&note) == 1).then_some(()));
    gantry.kill();

    let gantry = workshop.open().await;
    let body = until(&gantry, &id, &["success", "error"]).await;
    assert_eq!((&body["status"], &body["interruptions"]), (&json!("success"), &json!(1)), "{body}");
    // It was counted all the same: there is none left for another.
    let second = submit_as(&gantry, &one, "demo.slow", parameters, json!({})).await;
    let refused = match second.body["invocation_id"].as_str() {
        Some(id) if second.status == 202 => until(&gantry, id, &["success", "error"]).await["error"]["code"].clone(),
        _ => second.body["error"]["code"].clone(),
    };
    assert_eq!((refused, noted(&note)), (json!("E3211"), 2), "{}", second.text);
}

#[tokio::test]
async fn a_server_that_is_asked_to_end_hands_its_jobs_back() {
    let workshop = Workshop::new();
    let gantry = workshop.start().env("GANTRY_JOBS__DRAIN_SECONDS", "0").run().await;
    let note = workshop.path("runs");
    let id = submit(&gantry, json!({ "seconds": 3, "note": note.to_str().unwrap() })).await;
    wait_for("the first run", || (noted(&note) == 1).then_some(()));
    assert!(gantry.stop().success());
    let gantry = workshop.open().await;
    let body = until(&gantry, &id, &["success", "error", "cancelled", "indeterminate"]).await;
    assert_eq!((&body["status"], &body["attempts"]), (&json!("success"), &json!(1)), "{body}");
    assert_eq!(noted(&note), 2);
}

#[tokio::test]
async fn a_call_is_cancelled_before_during_and_after_and_twice() {
    let workshop = Workshop::new();
    let gantry = workshop.start().env("GANTRY_JOBS__CONCURRENCY", "1").run().await;
    let running = submit(&gantry, json!({ "seconds": 100 })).await;
    until(&gantry, &running, &["running"]).await;
    let note = workshop.path("runs");
    let waiting = submit(&gantry, json!({ "seconds": 0, "note": note.to_str().unwrap() })).await;
    for _ in 0..2 {
        assert_eq!(cancel(&gantry, &waiting).await, (true, "Cancelled".into()));
    }
    assert_eq!(cancel(&gantry, &running).await, (true, "Cancellation in progress".into()));
    let body = until(&gantry, &running, &["cancelled", "success", "error"]).await;
    assert_eq!((&body["status"], &body["error"]["code"]), (&json!("cancelled"), &json!("E3703")), "{body}");
    assert_eq!(cancel(&gantry, &running).await, (true, "Cancelled".into()), "asking again");
    let done = submit(&gantry, json!({ "seconds": 0 })).await;
    until(&gantry, &done, &["success"]).await;
    for _ in 0..2 {
        assert_eq!(cancel(&gantry, &done).await, (false, "Already completed".into()));
    }
    assert_eq!(status(&gantry, &done).await["status"], "success");
    assert_eq!(status(&gantry, &waiting).await["attempts"], json!(0));
    assert_eq!(noted(&note), 0, "what was cancelled before its start never starts");
}

/// A cancel that was asked and not yet kept when the server dies. Whether the one or the other came first, what was begun may
/// have been done.
#[tokio::test]
async fn a_cancel_and_a_crash_do_not_make_an_unknown_effect_one_that_can_be_repeated() {
    const JOBS: usize = 4;
    let workshop = Workshop::new();
    let note = workshop.path("runs");
    let gantry = workshop.open().await;
    let wish = json!({ "seconds": 100, "note": note });
    let mut ids = Vec::new();
    for _ in 0..JOBS {
        let answer = submit_as(&gantry, &gantry.token, "demo.once", wish.clone(), json!({})).await;
        ids.push(answer.body["invocation_id"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned());
    }
    wait_for("all runs", || (noted(&note) == JOBS).then_some(()));
    let asked = tokio::join!(
        cancel(&gantry, &ids[0]),
        cancel(&gantry, &ids[1]),
        cancel(&gantry, &ids[2]),
        cancel(&gantry, &ids[3])
    );
    gantry.kill();
    assert!(asked.0.0 && asked.1.0 && asked.2.0 && asked.3.0, "{asked:?}");

    let gantry = workshop.open().await;
    for id in &ids {
        let body = until(&gantry, id, &["cancelled", "error", "success", "indeterminate"]).await;
        assert_eq!((&body["status"], &body["error"]["code"]), (&json!("indeterminate"), &json!("E3413")), "{body}");
        let again = gantry.post(&format!("/v1/invocations/{id}/retry"), json!({})).await;
        assert_eq!(again.code(), "E3413", "{}", again.text);
    }
    assert_eq!(noted(&note), JOBS, "nothing was done twice");
    let found = ["jobs", "resolve", &ids[0], "--happened", "--result", r#"{"slept": 100}"#, "--note", "it did"];
    gantry.cli(&found).ok();
    let body = status(&gantry, &ids[0]).await;
    assert_eq!((&body["status"], &body["result"]), (&json!("success"), &json!({ "slept": 100 })), "{body}");
}

/// With the settings as they come: eight workers, and four calls of one agent at once.
#[tokio::test]
async fn an_agent_hands_in_more_than_it_may_run_at_once_and_loses_nothing() {
    let workshop = Workshop::new();
    let gantry = workshop.open().await;
    let notes = workshop.path("notes");
    let mut ids = Vec::new();
    for tool in ["demo.once", "demo.slow"] {
        for _ in 0..12 {
            let wish = json!({ "seconds": 0.3, "note": notes });
            let answer = submit_as(&gantry, &gantry.token, tool, wish, json!({})).await;
            assert_eq!(answer.status, 202, "{}", answer.text);
            ids.push(answer.body["invocation_id"].as_str().unwrap().to_owned());
        }
    }
    for id in &ids {
        let body = until(&gantry, id, &["success", "error", "timeout"]).await;
        assert_eq!((&body["status"], &body["attempts"]), (&json!("success"), &json!(1)), "{body}");
    }
    assert_eq!(noted(&notes), ids.len(), "each was done once");
}

#[tokio::test]
async fn a_full_queue_is_said_with_when_to_come_back() {
    let workshop = Workshop::new();
    let start = workshop.start().env("GANTRY_JOBS__CONCURRENCY", "1").env("GANTRY_JOBS__QUEUE_PER_TENANT", "4");
    let gantry = start.run().await;
    let running = submit(&gantry, json!({ "seconds": 100 })).await;
    until(&gantry, &running, &["running"]).await;
    submit(&gantry, json!({ "seconds": 100 })).await;
    submit(&gantry, json!({ "seconds": 100 })).await;
    let full = submit_as(&gantry, &gantry.token, "demo.slow", json!({ "seconds": 1 }), json!({})).await;
    assert_eq!(full.refusal(), (503, "E3701"), "{}", full.text);
    assert!(!full.header("retry-after").is_empty());
}

#[tokio::test]
async fn one_key_is_one_job_and_other_parameters_are_refused() {
    let workshop = Workshop::new();
    let gantry = workshop.open().await;
    let key = json!({ "idempotency_key": "k-1" });
    let ask = async |expression: &str| {
        submit_as(&gantry, &gantry.token, "calculator", json!({ "expression": expression }), key.clone()).await
    };
    let (first, second) = tokio::join!(ask("1 + 1"), ask("1 + 1"));
    assert_eq!((first.status, second.status), (202, 202), "{} {}", first.text, second.text);
    assert_eq!(first.body["invocation_id"], second.body["invocation_id"]);
    assert_eq!(ask("1 + 2").await.refusal(), (409, "E3410"));
}

#[tokio::test]
async fn a_stream_of_events_goes_on_where_it_was_left() {
    let workshop = Workshop::new();
    // With its walls: only inside them can a tool say how far it is.
    let gantry = Start::new().arg("--tools").arg(workshop.path("tools").to_str().unwrap()).run().await;
    let submitted = submit_as(&gantry, &gantry.token, "demo.talks", json!({ "seconds": 1 }), json!({})).await;
    let id = submitted.body["invocation_id"].as_str().unwrap();
    let whole = gantry.get(&format!("/v1/invocations/{id}/events")).await;
    assert_eq!((whole.status, whole.header("content-type")), (200, "text/event-stream"));
    let events = |text: &str| -> Vec<(u64, String)> {
        let blocks = text.split("\n\n").filter(|block| block.starts_with("id: "));
        let field = |block: &str, name: &str| {
            block.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().trim().to_owned()
        };
        blocks.map(|block| (field(block, "id:").parse().unwrap(), field(block, "event:"))).collect()
    };
    let all = events(&whole.text);
    let kinds: Vec<&str> = all.iter().map(|(_, kind)| kind.as_str()).collect();
    assert_eq!(kinds, ["queued", "started", "progress", "success"], "{}", whole.text);
    assert!(whole.text.contains("\"current_phase\":\"parsing\""), "{}", whole.text);
    let rest = gantry.get(&format!("/v1/invocations/{id}/events?after={}", all[1].0)).await;
    assert_eq!(events(&rest.text), all[2..]);
    let resumed = client()
        .get(format!("{}/v1/invocations/{id}/events", gantry.url))
        .bearer_auth(&gantry.token)
        .header("last-event-id", all[2].0.to_string())
        .send();
    assert_eq!(events(&resumed.await.unwrap().text().await.unwrap()), all[3..]);
    let nothing = gantry.get(&format!("/v1/invocations/{id}/events?after={}", all[3].0)).await;
    assert_eq!((nothing.status, nothing.text.as_str()), (200, ""), "after the end there is nothing to wait for");
}

#[tokio::test]
async fn a_call_that_outlives_its_caller_s_patience_goes_on_in_the_background() {
    let workshop = Workshop::new();
    let gantry = workshop.open().await;
    let note = workshop.path("runs");
    let body = json!({ "tool_id": "demo.slow", "parameters": { "seconds": 3, "note": note.to_str().unwrap() } });
    let ask = client()
        .post(format!("{}/v1/tools/invoke", gantry.url))
        .bearer_auth(&gantry.token)
        .header("prefer", "wait=1")
        .header("content-type", "application/json")
        .body(body.to_string());
    let answer = Answer::of(ask.send().await.unwrap()).await;
    assert_eq!((answer.status, &answer.body["status"]), (202, &json!("running")), "{}", answer.text);
    let id = answer.body["invocation_id"].as_str().unwrap();
    let body = until(&gantry, id, &["success", "error"]).await;
    assert_eq!(body["result"], json!({ "slept": 3 }), "{body}");
    assert_eq!((noted(&note), &body["attempts"]), (1, &json!(1)), "it is the very same call");
    let quick = gantry.invoke("calculator", json!({ "expression": "1 + 1" })).await;
    assert_eq!(quick.status, 200);
}

#[tokio::test]
async fn a_job_of_another_agent_or_tenant_is_answered_like_none() {
    let workshop = Workshop::new();
    let gantry = workshop.open().await;
    let (mine, theirs) =
        (gantry.mint(json!({ "sub": "agent-1" })).await, gantry.mint(json!({ "sub": "agent-2" })).await);
    let foreign = gantry.mint(json!({ "sub": "agent-1", "tenant": "other" })).await;
    let sum = json!({ "expression": "1 + 1" });
    let answer = submit_as(&gantry, &mine, "calculator", sum, json!({})).await;
    let id = answer.body["invocation_id"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned();
    for (verb, end) in
        [(Method::GET, ""), (Method::POST, "/cancel"), (Method::GET, "/events"), (Method::POST, "/retry")]
    {
        for token in [&theirs, &foreign] {
            let told = gantry.request(verb.clone(), &format!("/v1/invocations/{id}{end}"), Some(token), None).await;
            assert_eq!(told.refusal(), (404, "E3702"), "{end}: {}", told.text);
        }
        let told = gantry.request(verb.clone(), &format!("/v1/invocations/{id}{end}"), None, None).await;
        assert_eq!(told.status, 401, "{end}: {}", told.text);
    }
    let own = gantry.request(Method::GET, &format!("/v1/invocations/{id}"), Some(&mine), None).await;
    assert_eq!(own.status, 200, "{}", own.text);
    let all = gantry.get("/v1/invocations?tenant=acme").await;
    assert_eq!(all.body["invocations"].as_array().unwrap().len(), 1, "{}", all.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_jobs_of_a_loud_tenant_do_not_keep_a_quiet_one_waiting() {
    let workshop = Workshop::new();
    let gantry = std::sync::Arc::new(workshop.start().env("GANTRY_JOBS__CONCURRENCY", "1").run().await);
    let loud = gantry.mint(json!({ "tenant": "loud" })).await;
    let quiet = gantry.mint(json!({ "tenant": "quiet" })).await;
    // What holds the only worker until everything else waits.
    let held = submit(&gantry, json!({ "seconds": 100 })).await;
    until(&gantry, &held, &["running"]).await;
    let mut askers = Vec::new();
    for _ in 0..20 {
        let (gantry, loud) = (std::sync::Arc::clone(&gantry), loud.clone());
        askers.push(tokio::spawn(async move {
            for _ in 0..50 {
                let sum = json!({ "expression": "1 + 1" });
                let answer = submit_as(&gantry, &loud, "calculator", sum, json!({ "priority": "high" })).await;
                assert_eq!(answer.status, 202, "{}", answer.text);
            }
        }));
    }
    for asker in askers {
        asker.await.unwrap();
    }
    let sum = json!({ "expression": "1 + 1" });
    let answer = submit_as(&gantry, &quiet, "calculator", sum, json!({ "priority": "low" })).await;
    let id = answer.body["invocation_id"].as_str().unwrap().to_owned();
    cancel(&gantry, &held).await;
    let start = std::time::Instant::now();
    let mine = format!("/v1/invocations/{id}?tenant=quiet");
    while gantry.get(&mine).await.body["status"] != "success" {
        assert!(start.elapsed() < PATIENCE, "the quiet tenant is still waiting");
    }
    let left = gantry.get("/v1/invocations?tenant=loud&state=queued&limit=200").await;
    assert!(left.body["invocations"].as_array().unwrap().len() > 100, "it did not wait for the others: {}", left.text);
}

#[tokio::test]
async fn people_see_watch_cancel_and_repeat_jobs_at_their_terminal() {
    let workshop = Workshop::new();
    let gantry = workshop.open().await;
    let waited = gantry.cli(&["call", "calculator", "expression=6*7", "--wait", "--json"]).ok().json();
    assert_eq!((&waited["result"]["result"], &waited["status"]), (&json!(42), &json!("success")));
    let submitted = gantry.cli(&["call", "demo.slow", "seconds=100", "--async"]).ok();
    let id = submitted.out().trim().to_owned();
    until(&gantry, &id, &["running"]).await;
    let listed = gantry.cli(&["jobs", "list", "--state", "running"]).ok().out();
    assert!(listed.contains(&id) && listed.contains("demo.slow"), "{listed}");
    assert!(gantry.cli(&["jobs", "cancel", &id]).ok().out().contains("in progress"));
    let watched = gantry.cli(&["jobs", "watch", &id]).ok().out();
    assert!(watched.contains("started") && watched.contains("cancelled"), "{watched}");
    let shown = gantry.cli(&["jobs", "show", &id]).ok().out();
    assert!(shown.contains("cancelled") && shown.contains("E3703"), "{shown}");
    let again = gantry.cli(&["jobs", "retry", &id, "--json"]).ok().json();
    let again = again["invocation_id"].as_str().unwrap();
    until(&gantry, again, &["running"]).await;
    assert!(cancel(&gantry, again).await.0);
    let refused = gantry.cli(&["jobs", "show", "00000000-0000-7000-8000-000000000000"]);
    assert!(refused.code() == 1 && refused.err().contains("E3702"), "{}", refused.err());
    let worker = gantry.cli(&["worker"]);
    assert!(worker.code() == 1 && worker.err().contains("SQLite"), "{}", worker.err());
}
