//! Starting and stopping: what goes wrong is said clearly, and nothing is lost on the way out.

use std::net::TcpListener;
use std::process::Stdio;

use serde_json::json;

use crate::support::{Gantry, PATIENCE, Start, gantry, manifest, run};

#[test]
fn a_taken_port_is_named_with_the_way_out() {
    let home = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = run(gantry(&home.path().join("data")).args(["serve", "--listen", &address]));
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains(&address) && ran.err().contains("--listen"), "{}", ran.err());
}

#[test]
fn a_database_that_is_not_there_is_refused_at_once_without_its_password() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let port = test_servers::free_port().unwrap();
    let url = format!("postgres://gantry:hunter2@127.0.0.1:{port}/gantry");
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["migrate", "up"], &["migrate", "status"]] {
        let ran = run(gantry(&data).args(command).env("GANTRY_STORE__URL", &url));
        assert_eq!(ran.code(), 1, "{command:?}: {}", ran.err());
        assert!(ran.err().contains("the database cannot be reached"), "{command:?}: {}", ran.err());
        assert!(!ran.err().contains("hunter2") && !ran.out().contains("hunter2"), "{command:?}: {}", ran.err());
    }
}

#[tokio::test]
async fn a_server_on_postgresql_says_how_many_connections_it_has_and_starts_again_after_an_outage() {
    let mut postgres = test_servers::PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let server = Start::new().data(&data).env("GANTRY_STORE__URL", &url).run().await;
    let page = server.get("/metrics").await.text;
    for line in [r#"gantry_store_connections{state="used"} "#, r#"gantry_store_connections{state="idle"} "#] {
        assert!(page.contains(line), "{line}: {page}");
    }
    assert!(page.contains("gantry_store_connections_max 16"), "{page}");
    server.stop();
    postgres.stop();
    let ran = run(gantry(&data).args(["serve", "--listen", "127.0.0.1:0"]).env("GANTRY_STORE__URL", &url));
    assert_eq!(ran.code(), 1, "{}", ran.err());
    postgres.start_again().unwrap();
    let server = Start::new().data(&data).env("GANTRY_STORE__URL", &url).run().await;
    assert_eq!(server.invoke("calculator", json!({ "expression": "1 + 1" })).await.status, 200);
}

#[test]
fn a_public_address_is_refused_without_a_word_about_it() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(gantry(&home.path().join("data")).args(["serve", "--listen", "0.0.0.0:0"]));
    assert_ne!(ran.code(), 0);
    assert!(ran.err().contains("--insecure-plaintext"), "{}", ran.err());
}

#[test]
fn a_tool_folder_that_is_not_there_is_a_slip_and_not_a_start() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(&mut Start::new().arg("--tools").arg("nowhere").command(&home.path().join("data")));
    assert_eq!(ran.code(), 2);
    assert!(ran.err().contains("nowhere"), "{}", ran.err());
}

#[test]
fn unknown_configuration_keys_are_errors_that_name_the_nearest() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let file = home.path().join("gantry.toml");
    std::fs::write(&file, "[server]\nlisten_on = \"127.0.0.1:0\"\n").unwrap();
    let ran = run(gantry(&data).args(["serve", "--config"]).arg(&file));
    assert_ne!(ran.code(), 0);
    assert!(ran.err().contains("listen_on") && ran.err().contains("listen"), "{}", ran.err());
    let ran = run(gantry(&data).args(["serve", "--listen", "127.0.0.1:0"]).env("GANTRY_SERVER__LISTN", "x"));
    assert_ne!(ran.code(), 0);
    assert!(ran.err().contains("GANTRY_SERVER__LISTN"), "{}", ran.err());
    std::fs::write(&file, "this is not toml").unwrap();
    let ran = run(gantry(&data).args(["serve", "--config"]).arg(&file));
    assert_ne!(ran.code(), 0, "{}", ran.err());
}

#[test]
fn a_data_directory_that_cannot_be_used_is_refused() {
    let home = tempfile::tempdir().unwrap();
    // A file where the directory should be stands for every directory that cannot be written, for root as well.
    let data = home.path().join("data");
    std::fs::write(&data, "a file").unwrap();
    let ran = run(&mut Start::new().command(&data));
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("data directory"), "{}", ran.err());
    assert_eq!(std::fs::read_to_string(&data).unwrap(), "a file", "untouched");
}

#[tokio::test]
async fn a_damaged_or_foreign_database_is_refused_and_left_alone() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    assert!(Start::new().data(&data).run().await.stop().success());
    let file = data.join("gantry.db");
    for bytes in [b"this is not a database, it is a letter".repeat(200), Vec::from(*b"x")] {
        std::fs::write(&file, &bytes).unwrap();
        let ran = run(&mut Start::new().command(&data));
        assert_eq!(ran.code(), 1);
        assert!(ran.err().contains("database"), "{}", ran.err());
        assert_eq!(std::fs::read(&file).unwrap(), bytes, "the file is as it was");
    }
}

#[tokio::test]
async fn two_servers_on_one_data_directory_are_one_too_many() {
    let gantry = Gantry::start().await;
    let ran = run(&mut Start::new().command(&gantry.data));
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("in use") || ran.err().contains("another"), "{}", ran.err());
    assert_eq!(gantry.get("/health/ready").await.status, 200);
}

#[tokio::test]
async fn garbled_keys_are_refused_and_never_replaced() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    assert!(Start::new().data(&data).run().await.stop().success());
    for file in ["keys/signing.pem", "admin.token"] {
        let path = data.join(file);
        let good = std::fs::read(&path).unwrap();
        std::fs::write(&path, "").unwrap();
        let ran = run(&mut Start::new().command(&data));
        assert_eq!(ran.code(), 1, "{file}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "", "{file} is not replaced");
        std::fs::write(&path, good).unwrap();
    }
}

#[tokio::test]
async fn stopping_finishes_what_is_under_way_and_leaves_nothing_behind() {
    let gantry = Gantry::start().await;
    gantry.register(manifest(json!({}))).await;
    let data = gantry.data.clone();
    let (url, token) = (gantry.url.clone(), gantry.token.clone());
    let callers = (0..8).map(|_| {
        let (url, token) = (url.clone(), token.clone());
        tokio::spawn(async move {
            let client = crate::support::client();
            let (mut answered, mut refused) = (0, 0);
            loop {
                let sent = client
                    .post(format!("{url}/v1/tools/invoke"))
                    .bearer_auth(&token)
                    .header("content-type", "application/json")
                    .body(r#"{"tool_id":"calculator","parameters":{"expression":"1+1"}}"#)
                    .send()
                    .await;
                match sent {
                    // A request the server took is answered, in full, with a result or a clear refusal.
                    Ok(response) if response.status() == 200 => {
                        response.bytes().await.expect("a whole answer");
                        answered += 1;
                    }
                    Ok(response) => {
                        assert_eq!(response.status(), 503);
                        refused += 1;
                    }
                    Err(error) if error.is_connect() => return (answered, refused),
                    Err(_) => return (answered, refused),
                }
            }
        })
    });
    let callers: Vec<_> = callers.collect();
    let start = std::time::Instant::now();
    while !gantry.get("/metrics").await.text.contains(r#"tool_id="calculator",status="success""#) {
        assert!(start.elapsed() < PATIENCE);
    }
    let status = tokio::task::spawn_blocking(move || gantry.stop()).await.unwrap();
    assert!(status.success());
    let mut answered = 0;
    for caller in callers {
        answered += caller.await.unwrap().0;
    }
    assert!(answered > 0);
    assert!(!data.join("server.json").try_exists().unwrap());
}

#[tokio::test]
async fn the_api_describes_itself() {
    let gantry = Gantry::start().await;
    let api = gantry.get("/openapi.json").await;
    assert_eq!(api.body["openapi"].as_str().map(|v| v.starts_with("3.1")), Some(true));
    for path in [
        "/v1/tools/register",
        "/v1/tools",
        "/v1/tools/{id}",
        "/v1/tools/search",
        "/v1/tools/invoke",
        "/v1/tools/invoke/batch",
        "/v1/tools/compare",
        "/v1/tools/negotiate",
        "/health",
        "/metrics",
    ] {
        assert!(api.body["paths"][path].is_object(), "{path}");
    }
    let docs = gantry.get("/docs").await;
    assert!(docs.header("content-type").starts_with("text/html") && !docs.text.contains("https://cdn"));
    let schema = gantry.get("/schemas/tool-manifest.schema.json").await;
    assert_eq!(schema.body["title"], "Tool Manifest");
    let health = gantry.get("/health").await;
    assert_eq!(health.status, 200, "{}", health.text);
}

#[tokio::test]
async fn health_says_how_each_dependency_is_and_its_exit_code_whether_all_are_well() {
    let gantry = Gantry::start().await;
    let ran = gantry.cli(&["health"]).ok();
    assert!(ran.out().contains("store") && ran.out().contains("OK"), "{}", ran.out());
    let document = gantry.cli(&["health", "--required", "--json"]).ok().json();
    assert_eq!(document["checks"]["store"]["healthy"], true);
    gantry.kill();
    let home = tempfile::tempdir().unwrap();
    let gone = run(crate::support::gantry(home.path()).args(["health", "--server", "http://127.0.0.1:9"]));
    assert_eq!(gone.code(), 1);
}

#[test]
fn without_a_server_the_command_says_how_to_start_one() {
    let home = tempfile::tempdir().unwrap();
    let ran = run(gantry(&home.path().join("data")).args(["call", "calculator", "expression=1"]).stdin(Stdio::null()));
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("gantry serve"), "{}", ran.err());
}
