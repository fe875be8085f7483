//! Where the replicas of a test live: one database, one namespace in Redis, one folder of tools, and a data directory for
//! each.
//!
//! PostgreSQL and Redis are started once for all tests of the program; each test has its own part of both.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use test_servers::{LoopbackLine, PostgresServer, RedisServer};

use crate::support::{Answer, Gantry, PATIENCE, STORE_KEY, Start, client};

/// Pays: says that it has begun, waits for the gate if it is to be held, writes down that it has paid, in one write.
/// A tool whose server dies before it has said what to pay pays nothing.
const PAY: &str = r#"line=$(cat)
case "$line" in *number*) ;; *) exit 1 ;; esac
case "$line" in *held*)
    printf '%s\n' "$line" >> PLACE/begun
    while [ ! -e PLACE/gate ]; do sleep 0.05; done ;;
esac
printf '%s\n' "$line" >> PLACE/effects
echo '{"paid":true}'
"#;

/// The names of the three.
pub(super) const NAMES: [&str; 3] = ["a", "b", "c"];

/// How long the effects of a replica that is gone stay in its hands: the leases of ledger and jobs, and the pause between two
/// looks, on a machine that is busy.
pub(super) const LEASES_OVER: Duration = Duration::from_secs(90);

/// The place of one test.
pub(super) struct Site {
    home: TempDir,
    database: String,
    namespace: String,
    settings: Vec<(String, String)>,
}

fn postgres() -> &'static PostgresServer {
    static SERVER: OnceLock<PostgresServer> = OnceLock::new();
    SERVER.get_or_init(|| PostgresServer::start_with(&["max_connections=400"]).unwrap())
}

fn redis() -> &'static RedisServer {
    static SERVER: OnceLock<RedisServer> = OnceLock::new();
    SERVER.get_or_init(|| RedisServer::start().unwrap())
}

impl Site {
    pub(super) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let home = tempfile::tempdir().unwrap();
        let namespace = format!("site{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let site = Self { home, database: postgres().database().unwrap(), namespace, settings: Vec::new() };
        let open = |path: &Path, mode| {
            std::fs::create_dir_all(path).unwrap();
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        open(site.home.path(), 0o755);
        open(&site.place(), 0o777);
        open(&site.path("tools"), 0o755);
        for (id, policy) in [("pay", "compensatable"), ("quick", "compensatable"), ("note", "idempotent")] {
            let folder = site.path("tools").join(id);
            open(&folder, 0o755);
            std::fs::write(folder.join("main.sh"), PAY.replace("PLACE", site.place().to_str().unwrap())).unwrap();
            std::fs::write(folder.join("tool.json"), site.manifest(id, policy).to_string()).unwrap();
        }
        // On a busy machine, an answer may take a while; and many wait for one.
        site.set("SHARED_STATE__OPERATION_TIMEOUT_MS", "10000")
            .set("SHARED_STATE__FALLBACK_REPLICAS", "3")
            .set("LIMITS__CONCURRENT_CALLS_PER_AGENT", "512")
            .set("JOBS__PROMOTE_AFTER_SECONDS", "300")
            .set("STORE__CONNECTION_WAIT_SECONDS", "30")
    }

    /// A setting of all replicas, by its name in the environment.
    pub(super) fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.settings.push((format!("GANTRY_{name}"), value.into()));
        self
    }

    fn manifest(&self, id: &str, policy: &str) -> Value {
        let mut manifest = json!({
            "tool_id": id, "namespace": "bank", "version": "1.0.0", "name": id,
            "description": "Moves money, and writes down that it did.", "provider": "Test", "protocol": "native",
            "side_effect_policy": policy, "timeout_class": "long_running", "timeout_default": 120,
            "side_effects": [{ "resource": "money", "op": "CREATE", "scope": "account" }], "idempotency": {},
            "required_permissions": [format!("filesystem:write:{}", self.place().display())],
            "parameters": { "type": "object", "properties": { "number": { "type": "integer" },
                "held": { "type": "boolean" } }, "required": ["number"] },
            "result_schema": { "type": "object", "properties": { "paid": { "type": "boolean" } }, "required": ["paid"] },
            "execution": { "type": "process", "command": ["sh", "main.sh"] },
        });
        if id == "quick" {
            manifest["timeout_class"] = json!("standard");
            manifest["timeout_default"] = json!(5);
        }
        if policy == "compensatable" {
            manifest["compensation_tool_id"] = json!("bank.note");
        }
        manifest
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Where tools write.
    fn place(&self) -> PathBuf {
        self.path("place")
    }

    /// One more tool: its manifest, and a program that finds `PLACE` in the place of this test.
    pub(super) fn add_tool(&self, manifest: &Value, program: &str) {
        let folder = self.path("tools").join(manifest["tool_id"].as_str().unwrap());
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o755)).unwrap();
        let here = |text: &str| text.replace("PLACE", self.place().to_str().unwrap());
        std::fs::write(folder.join("main.py"), here(program)).unwrap();
        std::fs::write(folder.join("tool.json"), here(&manifest.to_string())).unwrap();
    }

    /// Says something to tools: a file in the place of this test.
    pub(super) fn say(&self, word: &str) {
        std::fs::write(self.place().join(word), "").unwrap();
    }

    /// A replica that is about to start.
    pub(super) fn start(&self, name: &str) -> Start {
        let mut start = Start::new()
            .data(&self.path(name))
            .arg("--tools")
            .arg(self.path("tools").to_str().unwrap())
            .env("GANTRY_STORE__URL", &self.database)
            .env("GANTRY_STORE__SEAL_KEY", STORE_KEY)
            .env("GANTRY_SHARED_STATE__URL", redis().url())
            .env("GANTRY_SHARED_STATE__NAMESPACE", &self.namespace);
        for (name, value) in &self.settings {
            start = start.env(name, value);
        }
        start
    }

    /// One more replica.
    pub(super) async fn replica(&self, name: &str) -> Gantry {
        self.start(name).run().await
    }

    /// The other two, beside the one that runs.
    pub(super) async fn others(&self) -> [Gantry; 2] {
        // Each waits for its server on a thread of its own.
        let [second, third] = [NAMES[1], NAMES[2]].map(|name| tokio::spawn(self.start(name).run()));
        [second.await.unwrap(), third.await.unwrap()]
    }

    /// All three.
    pub(super) async fn three(&self) -> [Gantry; 3] {
        let first = self.replica(NAMES[0]).await;
        let [second, third] = self.others().await;
        [first, second, third]
    }

    /// A line to PostgreSQL, and the database's address on it.
    pub(super) fn line_to_postgres(&self) -> (LoopbackLine, String) {
        let port = postgres().port();
        let line = LoopbackLine::to(port).unwrap();
        let address = self.database.replace(&format!(":{port}/"), &format!(":{}/", line.port()));
        (line, address)
    }

    /// A line to Redis, and its address on it.
    pub(super) fn line_to_redis() -> (LoopbackLine, String) {
        let line = LoopbackLine::to(redis().port()).unwrap();
        let address = format!("redis://127.0.0.1:{}/", line.port());
        (line, address)
    }

    /// Lets everything go on that is held.
    pub(super) fn open_gate(&self) {
        std::fs::write(self.place().join("gate"), "").unwrap();
    }

    /// How often each number was begun, of those that are held.
    pub(super) fn begun(&self) -> BTreeMap<u64, u32> {
        self.count("begun")
    }

    /// How often each number was paid.
    pub(super) fn effects(&self) -> BTreeMap<u64, u32> {
        self.count("effects")
    }

    fn count(&self, file: &str) -> BTreeMap<u64, u32> {
        let mut counted = BTreeMap::new();
        for line in std::fs::read_to_string(self.place().join(file)).unwrap_or_default().lines() {
            let value: Value = serde_json::from_str(line).unwrap();
            *counted.entry(value["number"].as_u64().unwrap()).or_default() += 1;
        }
        counted
    }
}

/// A call that pays under a key of its number.
pub(super) fn payment(tool: &str, number: u64) -> Value {
    json!({ "tool_id": tool, "parameters": { "number": number },
        "execution_options": { "idempotency_key": format!("order-{number}") } })
}

/// The same, which stays at the gate.
pub(super) fn held(number: u64) -> Value {
    held_by("bank.pay", number)
}

/// The same with another tool.
pub(super) fn held_by(tool: &str, number: u64) -> Value {
    let mut call = payment(tool, number);
    call["parameters"]["held"] = json!(true);
    call
}

/// The same call, to be done later.
pub(super) fn later(mut call: Value) -> Value {
    call["execution_options"]["async_mode"] = json!(true);
    call
}

/// Submits a call, for its id.
pub(super) async fn submit(gantry: &Gantry, call: Value) -> String {
    let answer = gantry.post("/v1/tools/invoke", later(call)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.body["invocation_id"].as_str().unwrap().to_owned()
}

/// How a job stands, as this replica sees it.
pub(super) async fn job(gantry: &Gantry, id: &str) -> Value {
    let answer = gantry.get(&format!("/v1/invocations/{id}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body
}

/// The end of a job, once it has one.
pub(super) async fn ended(gantry: &Gantry, id: &str) -> Value {
    let start = Instant::now();
    loop {
        let body = job(gantry, id).await;
        if !["pending", "running"].contains(&body["status"].as_str().unwrap()) {
            return body;
        }
        assert!(start.elapsed() < LEASES_OVER, "{id} has no end: {body}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Asks until it is so, and says how long that took.
pub(super) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> Duration {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    start.elapsed()
}

/// Says a figure of the run, for whoever reads the output of tests.
#[expect(clippy::print_stderr, reason = "a measure that nobody asserts is for people")]
pub(super) fn figure(text: &str) {
    eprintln!("{text}");
}

/// What became of something that was sent.
pub(super) enum Sent {
    Answered(Answer),
    /// Nobody listened, so it was not sent.
    Unheard,
    /// Nobody knows what became of it.
    Broken(String),
}

/// Somebody who calls a replica and bears its death.
#[derive(Clone)]
pub(super) struct Caller {
    http: reqwest::Client,
    token: String,
}

impl Caller {
    pub(super) fn new(token: &str) -> Self {
        Self { http: client(), token: token.to_owned() }
    }

    pub(super) async fn call(&self, url: &str, call: &Value) -> Sent {
        let request = self.http.post(format!("{url}/v1/tools/invoke")).bearer_auth(&self.token).json(call);
        let response = match request.send().await {
            Ok(response) => response,
            Err(error) if error.is_connect() => return Sent::Unheard,
            Err(error) => return Sent::Broken(format!("{error:?}")),
        };
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        match response.text().await {
            Ok(text) => {
                let body = serde_json::from_str(&text).unwrap_or(Value::Null);
                Sent::Answered(Answer { status, headers, body, text })
            }
            Err(error) => Sent::Broken(format!("{error:?}")),
        }
    }

    pub(super) async fn is_ready(&self, url: &str) -> bool {
        let asked = self.http.get(format!("{url}/health/ready")).send().await;
        asked.is_ok_and(|response| response.status() == 200)
    }
}
