//! Servers that work as one: who is there, who only works, and how one leaves without anybody noticing. (OPS-011, ASYNC-015)

use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use test_servers::PostgresServer;

use crate::support::{Answer, Gantry, PATIENCE, STORE_KEY, Start, client, gantry, open_to_all, run, wait_for};

/// Long enough that nothing in these tests is taken over because a lease has lapsed.
const LEASE_SECONDS: &str = "600";

/// A tool that notes each run in a file outside and then waits; for that it runs without walls.
const SLOW: &str = r#"
import json, sys, time
wish = json.load(sys.stdin)
with open(wish["note"], "a") as file:
    file.write("run\n")
time.sleep(wish["seconds"])
json.dump({"slept": wish["seconds"]}, sys.stdout)
"#;

struct Yard {
    home: TempDir,
}

impl Yard {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        let tool = home.path().join("tools/slow");
        std::fs::create_dir_all(&tool).unwrap();
        std::fs::write(tool.join("main.py"), SLOW).unwrap();
        let manifest = json!({
            "tool_id": "slow", "namespace": "demo", "version": "1.0.0", "name": "slow",
            "description": "Waits for some seconds, for tests of what takes long.", "provider": "Demo",
            "protocol": "native", "side_effect_policy": "pure", "timeout_class": "long_running", "timeout_default": 120,
            "parameters": { "type": "object", "properties": { "seconds": { "type": "number", "description": "how long" },
                "note": { "type": "string", "description": "where runs are noted" } }, "required": ["seconds", "note"] },
            "result_schema": { "type": "object" },
            "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "simple" },
        });
        std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn start(&self, name: &str) -> Start {
        let tools = self.path("tools");
        Start::new()
            .data(&self.path(name))
            .arg("--tools")
            .arg(tools.to_str().unwrap())
            .arg("--unsandboxed-processes")
            .env("GANTRY_JOBS__LEASE_SECONDS", LEASE_SECONDS)
            .env("GANTRY_JOBS__DRAIN_SECONDS", "0")
    }

    fn on(&self, database: &str, name: &str) -> Start {
        self.start(name).env("GANTRY_STORE__URL", database).env("GANTRY_STORE__SEAL_KEY", STORE_KEY)
    }

    fn runs(&self) -> usize {
        std::fs::read_to_string(self.path("note")).unwrap_or_default().lines().count()
    }

    fn wish(&self, seconds: u64) -> Value {
        json!({ "seconds": seconds, "note": self.path("note") })
    }
}

async fn submit(gantry: &Gantry, parameters: Value) -> String {
    let body = json!({ "tool_id": "demo.slow", "parameters": parameters, "execution_options": { "async_mode": true } });
    let answer = gantry.post("/v1/tools/invoke", body).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.body["invocation_id"].as_str().unwrap().to_owned()
}

/// Asks until the answer is as it should be.
async fn until(gantry: &Gantry, path: &str, good: impl Fn(&Answer) -> bool) -> Answer {
    let start = Instant::now();
    loop {
        let answer = gantry.get(path).await;
        if good(&answer) {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{path}: {}", answer.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn roles(answer: &Value) -> Vec<&str> {
    let mut roles: Vec<&str> =
        answer["instances"].as_array().unwrap().iter().map(|one| one["role"].as_str().unwrap()).collect();
    roles.sort_unstable();
    roles
}

#[tokio::test]
async fn a_server_that_leaves_says_so_first_and_answers_everybody_who_is_there() {
    let yard = Yard::new();
    let gantry = yard.start("data").env("GANTRY_SERVER__LAME_DUCK_MS", "10000").run().await;
    // A call that is under way the whole time, and outlasts the door.
    let (url, token, wish) = (gantry.url.clone(), gantry.token.clone(), yard.wish(12));
    let long = tokio::spawn(async move {
        let body = json!({ "tool_id": "demo.slow", "parameters": wish });
        let request = client().post(format!("{url}/v1/tools/invoke")).bearer_auth(token);
        let sent = request.header("content-type", "application/json").body(body.to_string()).send().await.unwrap();
        Answer::of(sent).await
    });
    let start = Instant::now();
    while yard.runs() < 1 {
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let before = gantry.invoke("calculator", json!({ "expression": "1+1" })).await;
    assert_eq!((before.status, before.header("connection")), (200, ""));

    gantry.signal("TERM");
    let not_ready = until(&gantry, "/health/ready", |answer| answer.status == 503).await;
    assert_eq!(not_ready.body["status"], "draining");
    let after = gantry.invoke("calculator", json!({ "expression": "1+1" })).await;
    assert_eq!((after.status, after.header("connection")), (200, "close"), "{}", after.text);
    assert_eq!(gantry.get("/health/live").await.status, 200);

    let answer = long.await.unwrap();
    assert_eq!((answer.status, &answer.body["result"]["slept"]), (200, &json!(12)), "{}", answer.text);
    let log = gantry.shut_down_by_itself();
    assert!(log.contains(r#""aborted":0"#), "{log}");
}

#[tokio::test]
async fn a_job_of_a_server_that_leaves_goes_to_another_at_once_and_a_newcomer_takes_nothing_from_anybody() {
    let (postgres, yard) = (PostgresServer::start().unwrap(), Yard::new());
    let database = postgres.database().unwrap();
    let one = yard.on(&database, "one").run().await;
    let id = submit(&one, yard.wish(600)).await;
    wait_for("the first run", || (yard.runs() == 1).then_some(()));
    let other = yard.on(&database, "other").run().await;
    until(&other, "/health/ready", |answer| answer.status == 200).await;
    assert_eq!(yard.runs(), 1);

    assert!(one.stop().success());
    wait_for("the second run", || (yard.runs() == 2).then_some(()));
    let name = database.rsplit('/').next().unwrap().split('?').next().unwrap();
    let told = postgres.sql(name, "SELECT kind FROM job_events ORDER BY number").unwrap();
    assert!(told.contains("handed_back") && !told.contains("taken_over"), "{told}");
    other.post(&format!("/v1/invocations/{id}/cancel"), json!({})).await;
    assert!(other.stop().success());
}

#[tokio::test]
async fn a_worker_does_the_jobs_of_a_server_that_does_none_and_takes_no_calls() {
    let (postgres, yard) = (PostgresServer::start().unwrap(), Yard::new());
    let database = postgres.database().unwrap();
    let server = yard.on(&database, "server").env("GANTRY_JOBS__CONCURRENCY", "0").run().await;
    let id = submit(&server, yard.wish(0)).await;
    assert_eq!(roles(&server.cli(&["instances", "--json"]).ok().json()), ["serve"]);

    let worker = yard.on(&database, "worker").arg("--worker-only").run().await;
    let path = format!("/v1/invocations/{id}");
    until(&server, &path, |answer| answer.body["status"] == "success").await;
    assert_eq!(yard.runs(), 1);

    for (status, path) in
        [(200, "/health"), (200, "/health/live"), (200, "/metrics"), (501, "/v1/tools"), (501, "/mcp")]
    {
        assert_eq!(worker.get(path).await.status, status, "{path}");
    }
    let refused = worker.invoke("calculator", json!({ "expression": "1" })).await;
    assert_eq!(refused.refusal(), (501, "E3010"));

    let both = until(&server, "/v1/instances", |answer| roles(&answer.body).len() == 2).await.body;
    assert_eq!((roles(&both), &both["current"]), (vec!["serve", "worker"], &json!(true)));
    for instance in both["instances"].as_array().unwrap() {
        assert!(instance["schema"].as_str().unwrap().starts_with("postgres/"), "{instance}");
        let here = if instance["role"] == "serve" { &server.url } else { &worker.url };
        assert_eq!((&instance["address"], &instance["self"]), (&json!(here), &json!(instance["role"] == "serve")));
    }
    assert_eq!(server.get("/health").await.body["checks"]["instances"]["healthy"], true);
    let table = server.cli(&["instances"]).ok().out();
    assert!(table.contains("worker") && table.contains("LAST SEEN"), "{table}");
    let stranger = server.mint(json!({})).await;
    let refused = server.request(reqwest::Method::GET, "/v1/instances", Some(&stranger), None).await;
    assert_eq!(refused.refusal(), (403, "E3206"));

    // Who leaves in order is gone at once, and not when its last word is too old.
    assert!(worker.stop().success());
    assert_eq!(roles(&server.get("/v1/instances").await.body), ["serve"]);
}

#[tokio::test]
async fn a_worker_on_a_file_is_told_what_to_do_whether_a_server_uses_it_or_not() {
    let server = Gantry::start().await;
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("data");
    for command in
        [["worker", "--listen", "127.0.0.1:0"].as_slice(), &["serve", "--worker-only", "--listen", "127.0.0.1:0"]]
    {
        for data in [&server.data, &alone] {
            let refused = run(gantry(data).args(command));
            assert_eq!(refused.code(), 1);
            for word in ["SQLite", "PostgreSQL", "concurrency"] {
                assert!(refused.err().contains(word), "{}", refused.err());
            }
        }
    }
    assert!(!alone.exists(), "nothing was made for it");
    let help = run(gantry(&alone).args(["worker", "--help"])).ok().out();
    assert!(help.contains("--listen") && !help.contains("--worker-only "), "{help}");
    let idle = run(gantry(&server.data).args(["serve", "--worker-only"]).env("GANTRY_JOBS__CONCURRENCY", "0"));
    assert!(idle.code() != 0 && idle.err().contains("does nothing"), "{}", idle.err());
}
