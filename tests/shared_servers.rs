//! MCP servers behind several instances on one PostgreSQL: what is added, refused, accepted or removed at one is so at the
//! others, without a restart. (REG-022, REG-023)

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use test_servers::PostgresServer;

use crate::http_server::HttpServer;
use crate::support::{Gantry, PATIENCE, STORE_KEY, Start};

struct Pair {
    one: Gantry,
    other: Gantry,
    _home: TempDir,
    _postgres: PostgresServer,
}

impl Pair {
    async fn start() -> Self {
        let postgres = PostgresServer::start().unwrap();
        let url = postgres.database().unwrap();
        let home = TempDir::new().unwrap();
        let start = |name: &str| {
            Start::new()
                .env("GANTRY_STORE__URL", &url)
                .env("GANTRY_STORE__SEAL_KEY", STORE_KEY)
                // Nobody looks without being told: whatever the other instance knows, it has heard of.
                .env("GANTRY_UPSTREAMS__REREAD_SECONDS", "86400")
                .data(&home.path().join(name))
                .run()
        };
        let (one, other) = (start("one").await, start("other").await);
        Self { one, other, _home: home, _postgres: postgres }
    }
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let start = Instant::now();
    while !is_so().await {
        assert!(start.elapsed() < PATIENCE, "{what}: not in time");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn status(gantry: &Gantry) -> u16 {
    gantry.invoke("hello.hello", json!({})).await.status
}

async fn names(gantry: &Gantry) -> Vec<String> {
    let answer = gantry.get("/v1/servers").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["servers"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

async fn state(gantry: &Gantry) -> Value {
    gantry.get("/v1/servers/hello/tools").await.body["tools"][0]["state"].clone()
}

/// What somebody decides about the tool.
async fn decide(gantry: &Gantry, verb: &str) {
    let answer = gantry.post(&format!("/v1/servers/hello/tools/hello/{verb}"), json!({})).await;
    assert_eq!(answer.status, 200, "{verb}: {}", answer.text);
}

/// Has one instance look at what the server says now.
async fn look(gantry: &Gantry) {
    let answer = gantry.post("/v1/servers/hello/restart", json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_added_or_removed_at_one_instance_is_so_at_the_other() {
    let pair = Pair::start().await;
    let server = HttpServer::start().await;
    assert_eq!(names(&pair.other).await, Vec::<String>::new());
    let put = |gantry: &Gantry| {
        let (url, token, spec) = (gantry.url.clone(), gantry.token.clone(), server.spec());
        async move {
            let request = crate::support::client().put(format!("{url}/v1/servers/hello")).bearer_auth(token);
            let answer = request.json(&spec).send().await.unwrap();
            assert_eq!(answer.status(), 200, "{:?}", answer.text().await);
        }
    };
    put(&pair.one).await;
    assert_eq!(status(&pair.one).await, 200);
    until("the server at the other instance", async || names(&pair.other).await == ["hello"]).await;
    until("its tool at the other instance", async || status(&pair.other).await == 200).await;

    // The other way round, and by whoever did not add it.
    let removed = pair.other.request(Method::DELETE, "/v1/servers/hello", Some(&pair.other.token), None).await;
    assert_eq!(removed.status, 200, "{}", removed.text);
    until("the end of the server", async || names(&pair.one).await.is_empty()).await;
    until("the end of its tool", async || status(&pair.one).await != 200).await;
    let asked = server.asked();
    assert_ne!(status(&pair.one).await, 200);
    assert_eq!(server.asked(), asked, "a removed server was called");

    // It can come back, from anywhere.
    put(&pair.other).await;
    until("the tool at the first instance", async || status(&pair.one).await == 200).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_quarantined_refused_or_accepted_at_one_instance_is_so_at_the_other() {
    let pair = Pair::start().await;
    let server = HttpServer::start().await;
    let added = pair.one.request(Method::PUT, "/v1/servers/hello", Some(&pair.one.token), Some(server.spec())).await;
    assert_eq!(added.status, 200, "{}", added.text);
    until("its tool at the other instance", async || status(&pair.other).await == 200).await;

    server.says("Says hello, and reads every file.");
    look(&pair.one).await;
    assert_eq!(state(&pair.one).await, "quarantined");
    until("the quarantine", async || state(&pair.other).await == "quarantined").await;
    until("the end of the tool", async || status(&pair.other).await != 200).await;

    decide(&pair.other, "reject").await;
    until("the rejection", async || state(&pair.one).await == "rejected").await;
    assert_ne!(status(&pair.one).await, 200);

    server.says("Says hello.");
    look(&pair.one).await;
    until("the tool is back", async || status(&pair.other).await == 200).await;

    server.says("Says hello politely.");
    look(&pair.other).await;
    until("the quarantine", async || state(&pair.one).await == "quarantined").await;
    decide(&pair.one, "accept").await;
    until("the accepted tool", async || state(&pair.other).await == "accepted" && status(&pair.other).await == 200)
        .await;
}
