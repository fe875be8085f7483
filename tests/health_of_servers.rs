//! `GET /health` and `gantry health` name each MCP server, to those who may see servers, and the workflow engine if there is
//! one. (OPS-009, OPS-010)

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use crate::http_server::HttpServer;
use crate::support::{Gantry, PATIENCE, Start};

async fn put(gantry: &Gantry, name: &str, spec: Value) {
    let answer = gantry.request(Method::PUT, &format!("/v1/servers/{name}"), Some(&gantry.token), Some(spec)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn each_server_is_named_to_those_who_may_see_servers_and_to_nobody_else() {
    let gantry = Gantry::start().await;
    let server = HttpServer::start().await;
    put(&gantry, "hello", server.spec()).await;
    // Nobody listens there: the one who did is gone.
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    put(&gantry, "gone", json!({ "reach": { "type": "http", "url": format!("http://{nobody}/mcp") } })).await;
    let start = std::time::Instant::now();
    let told = loop {
        let told = gantry.get("/health").await;
        assert_eq!(told.status, 200, "calls go on: {}", told.text);
        if told.body["checks"]["mcp:gone"]["healthy"] == false {
            break told.body;
        }
        assert!(start.elapsed() < PATIENCE, "{}", told.text);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    };
    assert_eq!(told["checks"]["mcp:hello"], json!({ "healthy": true, "required": false }));
    assert_eq!((&told["healthy"], &told["degraded"]), (&json!(true), &json!(true)), "{told}");
    assert!(told["checks"]["mcp:gone"]["severity"].is_string(), "{told}");
    let ran = gantry.cli(&["health"]);
    assert_ne!(ran.code(), 0, "{}", ran.out());
    let line = |name: &str| ran.out().lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(line("mcp:hello").contains("OK"), "{}", ran.out());
    assert!(line("mcp:gone").contains("WARNING") || line("mcp:gone").contains("CRITICAL"), "{}", ran.out());
    let agent = gantry.mint(json!({ "tenant": "local" })).await;
    let chief = gantry.mint(json!({ "sub": "did:example:chief", "roles": ["admin"] })).await;
    for token in [None, Some(agent.as_str()), Some(chief.as_str()), Some("nonsense")] {
        let told = gantry.request(Method::GET, "/health", token, None).await;
        assert!(told.status == 200 && !told.text.contains("mcp:"), "{token:?}: {}", told.text);
    }
}

#[tokio::test]
async fn the_workflow_engine_is_named_only_where_there_is_one() {
    let without = Gantry::start().await.get("/health").await;
    assert_eq!(without.body["checks"].get("workflow"), None, "{}", without.text);
    let start =
        Start::new().env("GANTRY_INBOUND_JOBS__SIGNING_KEY", "current").env("GANTRY_INBOUND_JOBS__SECRET", "shared");
    let start = start.env("GANTRY_INBOUND_JOBS__PUBLIC_URL", "https://gantry.example");
    let gantry = start.env("GANTRY_INBOUND_JOBS__WORKFLOW_URL", "https://flows.example").run().await;
    let with = gantry.get("/health").await;
    let well = json!({ "healthy": true, "required": false });
    assert_eq!(with.body["checks"]["workflow"], well, "nobody has asked it yet: {}", with.text);
}

#[tokio::test]
async fn a_stranger_hears_whether_the_server_is_well_and_nothing_about_what_tenants_have() {
    // Behind an address that others reach, metrics are not public, and neither is what they count.
    let gantry = Start::new().env("GANTRY_SERVER__METRICS_PUBLIC", "false").run().await;
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    put(&gantry, "gone", json!({ "reach": { "type": "http", "url": format!("http://{nobody}/mcp") } })).await;
    let agent = gantry.mint(json!({ "tenant": "local" })).await;
    let chief = gantry.mint(json!({ "sub": "did:example:chief", "tenant": "acme", "roles": ["admin"] })).await;
    for token in [None, Some(agent.as_str()), Some(chief.as_str()), Some("nonsense")] {
        let told = gantry.request(Method::GET, "/health", token, None).await;
        let members: BTreeSet<&str> = told.body.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members, BTreeSet::from(["checks", "healthy", "timestamp", "version"]), "{token:?}: {}", told.text);
        assert_eq!((told.status, &told.body["healthy"], &told.body["checks"]), (200, &json!(true), &json!({})));
    }
    let all = gantry.get("/health").await.body;
    assert_eq!(all["checks"]["local"], json!({ "healthy": true, "required": false }), "{all}");
    assert!(all["tools"].is_u64() && all["versions"].is_u64() && all["checks"]["servers"].is_object(), "{all}");
    // The commands show the token they have, and say so where it is not enough.
    let doctor = gantry.cli(&["--json", "doctor"]).json();
    let server = doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "server").unwrap();
    assert!(server["detail"].as_str().unwrap().contains(" tools"), "{server}");
    let ran = gantry.cli(&["--token", &agent, "health"]);
    assert_ne!(ran.code(), 0, "what is not known to be well is not said to be");
    assert!(ran.err().contains("--required"), "{}", ran.err());
    gantry.cli(&["--token", &agent, "health", "--required"]).ok();
    gantry.stop();
}
