//! Codes that are met only when something has gone wrong before: a state that was damaged, a job that waited too long, a row
//! that nobody can read, a key whose first call still runs. (TEST-019)

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{Answer, Gantry, PATIENCE, Start, client, open_to_all, wait_for};

/// Saves what it is told to save, and answers with what it heard about that and with what it was resumed from.
const SAVES: &str = r#"
import json, sys
call = json.loads(sys.stdin.readline())
params = call["params"]
heard = None
for n in range(params["parameters"].get("saves", 0)):
    state = {"n": n}
    print(json.dumps({"jsonrpc": "2.0", "id": "c", "method": "checkpoint", "params": {"name": "step", "state": state}}), flush=True)
    heard = json.loads(sys.stdin.readline())
    heard = heard.get("error", {}).get("data", {}).get("code") or "saved"
print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": {"heard": heard, "resumed": "resume" in params}}), flush=True)
"#;

/// Notes that it runs, and goes on until it is let go.
const WAITS: &str = r#"
import json, os, sys, time
wish = json.load(sys.stdin)
open(wish["place"] + "/begun", "w").close()
while not os.path.exists(wish["place"] + "/go"):
    time.sleep(0.01)
print("{}")
"#;

struct Stage {
    home: TempDir,
}

impl Stage {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        for (id, version, program, protocol) in [
            ("saves", "1.0.0", SAVES, "gantry/1"),
            ("saves", "2.0.0", SAVES, "gantry/1"),
            ("waits", "1.0.0", WAITS, "simple"),
        ] {
            let tool = home.path().join("tools").join(format!("{id}-{version}"));
            std::fs::create_dir_all(&tool).unwrap();
            std::fs::write(tool.join("main.py"), program).unwrap();
            let mut manifest = json!({ "tool_id": id, "namespace": "demo", "version": version, "name": id,
                "description": "A tool of a test, which does as it is told.", "provider": "Demo", "protocol": "native",
                "side_effect_policy": "pure", "timeout_class": "long_running", "timeout_default": 240,
                "parameters": { "type": "object" }, "result_schema": { "type": "object" },
                "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": protocol } });
            if protocol != "simple" {
                manifest["checkpoint_config"] = json!({ "enabled": true, "macro_events": ["step"] });
            }
            std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
        }
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn start(&self) -> Start {
        Start::new().data(&self.path("data")).arg("--tools").arg(self.path("tools").to_str().unwrap())
    }

    /// For a tool that writes outside of its folder.
    fn start_without_walls(&self) -> Start {
        self.start().arg("--unsandboxed-processes")
    }

    /// Changes the store of a server that has ended.
    fn damage(&self, change: &str) {
        let changed = Connection::open(self.path("data/gantry.db")).unwrap().execute(change, []).unwrap();
        assert_eq!(changed, 1, "{change}");
    }
}

async fn save(gantry: &Gantry, token: &str, invocation: &str, times: usize) -> Answer {
    let body = json!({ "tool_id": "demo.saves", "tool_version": "1.0.0", "invocation_id": invocation,
        "parameters": { "saves": times } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

async fn resume(gantry: &Gantry, version: &str, checkpoint: &str) -> Answer {
    let body = json!({ "tool_id": "demo.saves", "tool_version": version, "parameters": {},
        "checkpoint_config": { "resume_from_checkpoint_id": checkpoint } });
    gantry.post("/v1/tools/invoke", body).await
}

/// States with a name that one call may keep.
const SAVES_MAX: usize = 256;

const FIRST: &str = "019b0000-0000-7000-8000-000000000001";

#[tokio::test]
async fn a_state_that_is_damaged_or_of_another_version_is_not_gone_on_from() {
    let stage = Stage::new();
    let gantry = stage.start().run().await;
    let saved = save(&gantry, &gantry.token, FIRST, 1).await;
    assert_eq!(saved.body["result"]["heard"], "saved", "{}", saved.text);
    let checkpoint = saved.body["checkpoint_ref"].as_str().unwrap_or_else(|| panic!("{}", saved.text)).to_owned();
    let same = resume(&gantry, "1.0.0", &checkpoint).await;
    assert_eq!(same.body["result"]["resumed"], true, "{}", same.text);
    assert_eq!(resume(&gantry, "2.0.0", &checkpoint).await.code(), "E3905");
    assert!(gantry.stop().success());
    stage.damage("UPDATE checkpoints SET payload = zeroblob(length(payload))");
    let gantry = stage.start().run().await;
    let damaged = resume(&gantry, "1.0.0", &checkpoint).await;
    assert_eq!(damaged.refusal().1, "E3904", "{}", damaged.text);
}

#[tokio::test]
async fn a_tool_hears_why_its_state_was_not_kept() {
    let stage = Stage::new();
    let gantry = stage.start().run().await;
    let many = save(&gantry, &gantry.token, "019b0000-0000-7000-8000-000000000002", SAVES_MAX + 1).await;
    assert_eq!(many.body["result"]["heard"], "E3906", "{}", many.text);
    // Somebody else's invocation takes no state of this caller's.
    let other = gantry.mint(json!({ "tenant": "local", "sub": "mallory" })).await;
    assert_eq!(save(&gantry, &gantry.token, FIRST, 1).await.body["result"]["heard"], "saved");
    let foreign = save(&gantry, &other, FIRST, 1).await;
    assert_eq!(foreign.body["result"]["heard"], "E3902", "{}", foreign.text);
}

#[tokio::test]
async fn a_call_whose_key_is_in_use_is_told_so_if_it_does_not_want_to_wait() {
    let stage = Stage::new();
    let gantry = stage.start_without_walls().run().await;
    let place = stage.path("place");
    std::fs::create_dir(&place).unwrap();
    let call = |wait: bool| {
        json!({ "tool_id": "demo.waits", "parameters": { "place": place },
            "execution_options": { "idempotency_key": "one", "wait_for_duplicate": wait } })
    };
    let (url, token, first) = (format!("{}/v1/tools/invoke", gantry.url), gantry.token.clone(), call(true).to_string());
    let running = tokio::spawn(async move {
        let request = client().post(url).bearer_auth(token).header("content-type", "application/json");
        Answer::of(request.header("prefer", "wait=600").body(first).send().await.unwrap()).await
    });
    begun(&place).await;
    let second = gantry.post("/v1/tools/invoke", call(false)).await;
    std::fs::write(place.join("go"), "").unwrap();
    assert_eq!(second.refusal().1, "E3409", "{}", second.text);
    let first = running.await.unwrap();
    assert_eq!(first.status, 200, "{}", first.text);
}

#[tokio::test]
async fn a_job_that_waited_too_long_is_not_begun_and_one_that_cannot_be_read_says_so() {
    let stage = Stage::new();
    let place = stage.path("place");
    std::fs::create_dir(&place).unwrap();
    let gantry = stage.start_without_walls().run().await;
    let call = json!({ "tool_id": "demo.waits", "parameters": { "place": place }, "execution_options": { "async_mode": true } });
    let accepted = gantry.post("/v1/tools/invoke", call).await;
    let id = accepted.body["invocation_id"].as_str().unwrap_or_else(|| panic!("{}", accepted.text)).to_owned();
    let handed_in = Instant::now();
    begun(&place).await;
    gantry.kill();
    // Nobody has it in hand any more; whoever takes it up finds that its time is over.
    std::fs::write(place.join("go"), "").unwrap();
    wait_for("the age of the job", || (handed_in.elapsed() > Duration::from_millis(1_500)).then_some(()));
    let start =
        stage.start_without_walls().env("GANTRY_JOBS__MAX_AGE_SECONDS", "1").env("GANTRY_JOBS__LEASE_SECONDS", "3");
    let gantry = start.run().await;
    let ended = until_ended(&gantry, &id).await;
    assert_eq!(json!([ended["status"], ended["error"]["code"]]), json!(["timeout", "E3002"]), "{ended}");
    assert!(gantry.stop().success());
    stage.damage(&format!("UPDATE jobs SET subject = 'two words' WHERE id = '{id}'"));
    let gantry = stage.start_without_walls().run().await;
    let unreadable = gantry.get(&format!("/v1/invocations/{id}")).await;
    assert_eq!(unreadable.refusal(), (500, "E3000"), "{}", unreadable.text);
}

async fn begun(place: &Path) {
    let start = Instant::now();
    while !place.join("begun").exists() {
        assert!(start.elapsed() < PATIENCE, "the tool was not begun");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn until_ended(gantry: &Gantry, id: &str) -> Value {
    let start = Instant::now();
    loop {
        let status = gantry.get(&format!("/v1/invocations/{id}")).await;
        if !["pending", "running"].contains(&status.body["status"].as_str().unwrap_or_default()) {
            return status.body;
        }
        assert!(start.elapsed() < PATIENCE, "{}", status.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
