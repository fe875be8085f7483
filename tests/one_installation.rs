//! Two servers with data directories of their own on one PostgreSQL are one installation: tokens, keys and sessions of one are
//! good at the other. (AUTH-005, STORE)

use std::path::Path;
use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};
use test_servers::PostgresServer;

use crate::support::{Gantry, PATIENCE, STORE_KEY, Start, client, run};

const REVISION: &str = "2025-06-18";

async fn server(url: &str, data: &Path) -> Gantry {
    Start::new().env("GANTRY_STORE__URL", url).env("GANTRY_STORE__SEAL_KEY", STORE_KEY).data(data).run().await
}

async fn key_set(gantry: &Gantry) -> Value {
    gantry.get("/.well-known/jwks.json").await.body
}

/// Is somebody with this token let in?
async fn welcomes(gantry: &Gantry, token: &str) -> bool {
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "1+1" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await.status == 200
}

/// A message of an older client; answers the status, the session that the server named, and the body.
async fn mcp(gantry: &Gantry, method: Method, session: Option<&str>, message: Value) -> (u16, Option<String>, String) {
    let mut request = client()
        .request(method, format!("{}/mcp", gantry.url))
        .bearer_auth(&gantry.token)
        .header("accept", "application/json, text/event-stream")
        .header("content-type", "application/json");
    if let Some(session) = session {
        request = request.header("mcp-session-id", session).header("mcp-protocol-version", REVISION);
    }
    let answer = request.body(message.to_string()).send().await.unwrap();
    let named = answer.headers().get("mcp-session-id").map(|id| id.to_str().unwrap().to_owned());
    (answer.status().as_u16(), named, answer.text().await.unwrap())
}

fn listing(id: u64) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/list" })
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_on_one_database_that_start_together_are_one_installation() {
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let started = [&first, &second].map(|data| {
        let (url, data) = (url.clone(), data.clone());
        tokio::spawn(async move { server(&url, &data).await })
    });
    let [one, other] = started;
    let (one, other) = (one.await.unwrap(), other.await.unwrap());

    // Whoever was quicker, both have the same.
    for file in ["admin.token", "webhook.key", "mcp.key", "keys/signing.pem"] {
        assert_eq!(std::fs::read(first.join(file)).unwrap(), std::fs::read(second.join(file)).unwrap(), "{file}");
    }
    assert_eq!(one.token, other.token);
    assert!(welcomes(&other, &one.token).await);
    assert_eq!(key_set(&one).await, key_set(&other).await);
    let minted = one.mint(json!({ "tenant": "local", "sub": "did:example:same" })).await;
    assert!(welcomes(&one, &minted).await && welcomes(&other, &minted).await);

    // A rotation is followed, and tokens of both keys are good at both.
    let before = key_set(&one).await;
    one.cli(&["keys", "rotate"]).ok();
    let newer = one.mint(json!({ "tenant": "local", "sub": "did:example:same" })).await;
    assert!(welcomes(&other, &newer).await, "the key was trusted everywhere before it signed");
    let after = key_set(&one).await;
    assert_eq!((before["keys"].as_array().unwrap().len(), after["keys"].as_array().unwrap().len()), (1, 2));
    assert_eq!(after, key_set(&other).await);
    assert!(welcomes(&one, &minted).await && welcomes(&other, &minted).await && welcomes(&one, &newer).await);
    let start = Instant::now();
    let kid = after["keys"][0]["kid"].as_str().unwrap();
    while !signs_with(&other, kid).await {
        assert!(start.elapsed() < PATIENCE, "the other server still signs with the former key");
    }
    assert_eq!(
        std::fs::read(first.join("keys/signing.pem")).unwrap(),
        std::fs::read(second.join("keys/signing.pem")).unwrap()
    );
}

/// Does this server make tokens with that key?
async fn signs_with(gantry: &Gantry, kid: &str) -> bool {
    use base64::Engine as _;
    let token = gantry.mint(json!({ "tenant": "local", "sub": "did:example:same" })).await;
    let header = token.split('.').next().unwrap();
    let header = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(header).unwrap();
    serde_json::from_slice::<Value>(&header).unwrap()["kid"] == kid
}

#[tokio::test]
async fn a_session_of_an_older_client_goes_on_at_the_other_server() {
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let one = server(&url, &folder.path().join("first")).await;
    let other = server(&url, &folder.path().join("second")).await;

    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let (status, session, said) = mcp(&one, Method::POST, None, hello).await;
    assert_eq!(status, 200, "{said}");
    let session = session.unwrap();
    let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
    // The very next message may land elsewhere, and several at once.
    assert_eq!(mcp(&other, Method::POST, Some(&session), ready).await.0, 202);
    let asking = (2..6).map(|id| mcp(&other, Method::POST, Some(&session), listing(id)));
    for (status, _, text) in futures_util::future::join_all(asking).await {
        assert_eq!(status, 200, "{text}");
        assert!(text.contains("calculator"), "{text}");
    }
    assert_eq!(
        mcp(&one, Method::POST, Some(&session), listing(6)).await.0,
        200,
        "and it is still at home where it began"
    );

    // A changed id is no session, and what was ended here is over here.
    let forged = format!("{session}x");
    assert_eq!(mcp(&other, Method::POST, Some(&forged), listing(7)).await.0, 404);
    let ended = mcp(&other, Method::DELETE, Some(&session), Value::Null).await.0;
    assert!(matches!(ended, 200..=204), "{ended}");
    assert_eq!(mcp(&other, Method::POST, Some(&session), listing(8)).await.0, 404);
}

#[tokio::test]
async fn a_server_that_had_an_administrator_of_its_own_follows_the_database_and_says_so() {
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let moved = folder.path().join("moved");
    let alone = Start::new().data(&moved).run().await;
    let former = alone.token.clone();
    alone.stop();
    let one = server(&url, &folder.path().join("first")).await;
    let other = server(&url, &moved).await;
    assert_eq!(other.token, one.token);
    assert_eq!(std::fs::read_to_string(moved.join("admin.token.replaced")).unwrap().trim(), former);
    assert!(moved.join("keys/signing.pem.replaced").exists());
    assert!(other.log().contains("admin.token.replaced"), "{}", other.log());
    assert!(!welcomes(&other, &former).await);
}

/// The secrets as whoever reads the table sees them.
fn secrets_in_the_table(postgres: &PostgresServer, url: &str) -> String {
    let database = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    postgres.sql(database, "SELECT name, value FROM installation_secrets ORDER BY name").unwrap()
}

/// Makes of a database what an earlier release has left without a key: every secret as it is.
fn unseal(postgres: &PostgresServer, url: &str, data: &Path) {
    let database = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let token = std::fs::read_to_string(data.join("admin.token")).unwrap();
    let statement = format!(
        "DELETE FROM installation_secrets; INSERT INTO installation_secrets (name, value) VALUES ('admin_token', '{}')",
        token.trim()
    );
    postgres.sql(database, &statement).unwrap();
}

#[tokio::test]
async fn a_new_database_is_sealed_by_its_first_server_and_others_need_a_copy_of_its_key() {
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    let start = || Start::new().env("GANTRY_STORE__URL", &url);
    let one = start().data(&first).run().await;
    let sealed = secrets_in_the_table(&postgres, &url);
    assert_eq!(sealed.matches("gantry-sealed:1:").count(), 5, "{sealed}");
    assert!(!sealed.contains(&one.token) && !sealed.contains("PRIVATE KEY"), "{sealed}");
    let doctor = run(crate::support::gantry(&first).args(["--json", "doctor"]).env("GANTRY_STORE__URL", &url)).json();
    let seal = doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "seal").unwrap();
    assert_eq!(seal["status"], "ok", "{seal}");

    let refused = run(&mut start().command(&second));
    assert_eq!(refused.code(), 1, "{}", refused.err());
    assert!(refused.err().contains("keys/store.key") && refused.err().contains("seal_key_file"), "{}", refused.err());
    assert!(
        !second.join("admin.token").exists() && !second.join("keys/store.key").exists(),
        "nothing is made that is no use"
    );
    std::fs::copy(first.join("keys/store.key"), second.join("keys/store.key")).unwrap();
    let other = start().data(&second).run().await;
    assert_eq!(other.token, one.token);
}

#[tokio::test]
async fn with_a_key_the_table_holds_no_secret_and_without_it_or_with_another_nobody_starts() {
    let postgres = PostgresServer::start().unwrap();
    let url = postgres.database().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("first"), folder.path().join("second"));
    // A database from before there were keys goes on as it was, and says so.
    Start::new().env("GANTRY_STORE__URL", &url).data(&first).run().await.stop();
    unseal(&postgres, &url, &first);
    std::fs::remove_file(first.join("keys/store.key")).unwrap();
    let plain = Start::new().env("GANTRY_STORE__URL", &url).data(&first).run().await;
    let token = plain.token.clone();
    assert!(plain.log().contains("are readable in the database"), "{}", plain.log());
    assert!(secrets_in_the_table(&postgres, &url).contains(&token));
    plain.stop();

    let key = "5c".repeat(32);
    let sealing =
        |data: &Path| Start::new().env("GANTRY_STORE__URL", &url).env("GANTRY_STORE__SEAL_KEY", &key).data(data).run();
    let one = sealing(&first).await;
    assert_eq!(one.token, token);
    let sealed = secrets_in_the_table(&postgres, &url);
    assert_eq!(sealed.matches("gantry-sealed:1:").count(), 5, "{sealed}");
    assert!(!sealed.contains(&token) && !sealed.contains("PRIVATE KEY"), "{sealed}");

    // By a file, too; and keys are rotated as before.
    let file = folder.path().join("seal.key");
    std::fs::write(&file, &key).unwrap();
    std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let by_file = Start::new()
        .env("GANTRY_STORE__URL", &url)
        .env("GANTRY_STORE__SEAL_KEY_FILE", file.to_str().unwrap())
        .data(&second);
    let other = by_file.run().await;
    assert_eq!(other.token, token);
    one.cli(&["keys", "rotate"]).ok();
    let newer = one.mint(json!({ "tenant": "local", "sub": "did:example:same" })).await;
    assert!(welcomes(&other, &newer).await);

    let before = secrets_in_the_table(&postgres, &url);
    let third = folder.path().join("third");
    for (wrong, said) in [(None, "seal_key_file"), (Some("5d".repeat(32)), "another key")] {
        let mut start = Start::new().env("GANTRY_STORE__URL", &url);
        if let Some(wrong) = wrong {
            start = start.env("GANTRY_STORE__SEAL_KEY", wrong);
        }
        let refused = run(&mut start.command(&third));
        assert_eq!(refused.code(), 1, "{}", refused.err());
        assert!(refused.err().contains(said), "{}", refused.err());
        assert!(!third.join("admin.token").exists());
    }
    assert_eq!(secrets_in_the_table(&postgres, &url), before, "nothing was overwritten");
}
