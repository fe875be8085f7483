//! What workflows are asked and answer, what webhooks are told and how MCP servers are reached is nowhere in clear at rest: not
//! in the database, and not in a backup. A secret in the description of a server is refused.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use rusqlite::Connection;
use serde_json::{Value, json};
use test_servers::PostgresServer;

use crate::support::{Answer, Gantry, Start, client, gantry, run, wait_for};

const PLANTED: &str = "planted-content-5c1e77";
const KEY: &[u8] = b"signing-key-of-the-queue";
const PUBLIC_URL: &str = "https://gantry.example.com";
/// What the services and the server sign for each other with.
pub(crate) const SECRET: &str = "a-secret-of-the-services";

/// A workflow engine that answers with the word, and a receiver of webhooks that fails until it is told to work.
struct Outside {
    address: String,
    works: Arc<AtomicBool>,
    told: Arc<Mutex<Vec<String>>>,
}

impl Outside {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (works, told) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let (is_working, kept) = (Arc::clone(&works), Arc::clone(&told));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let request = read(&mut stream);
                let answer = json!({ "answer": PLANTED }).to_string();
                let (status, body) = match request.starts_with("POST /webhook/") {
                    true => ("200 OK", answer.as_str()),
                    false if is_working.load(Ordering::SeqCst) => ("200 OK", "{}"),
                    false => ("500 Internal Server Error", "{}"),
                };
                kept.lock().unwrap().push(request);
                let head = format!("HTTP/1.1 {status}\r\ncontent-type: application/json\r\nconnection: close\r\n");
                let _ = write!(stream, "{head}content-length: {}\r\n\r\n{body}", body.len());
            }
        });
        Self { address, works, told }
    }

    fn start(&self) -> Start {
        with_engine(&self.address).env("GANTRY_WEBHOOKS__ATTEMPTS", "1")
    }
}

/// A server that takes jobs of the queue outside, and asks the workflow engine at this address.
pub(crate) fn with_engine(address: &str) -> Start {
    let url = format!("http://{address}");
    Start::new()
        .env("GANTRY_WEBHOOKS__ALLOW", &url)
        .env("GANTRY_INBOUND_JOBS__SIGNING_KEY", std::str::from_utf8(KEY).unwrap())
        .env("GANTRY_INBOUND_JOBS__PUBLIC_URL", PUBLIC_URL)
        .env("GANTRY_INBOUND_JOBS__SECRET", SECRET)
        .env("GANTRY_INBOUND_JOBS__WORKFLOW_URL", &url)
}

pub(crate) fn read(stream: &mut std::net::TcpStream) -> String {
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = |line: &str| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok();
            if body.len() >= head.lines().find_map(length).unwrap_or(0) {
                return text;
            }
        }
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return text,
            Ok(count) => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Asks for a workflow, as the queue outside does.
async fn ask_for_workflow(server: &Gantry) {
    let answer = send_workflow(server, "msg_1", &json!({ "workflowId": "w", "input": { "word": PLANTED } })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// A message of the queue outside that asks for a workflow. Its signature has the name of the message.
pub(crate) async fn send_workflow(server: &Gantry, message: &str, payload: &Value) -> Answer {
    let body = payload.to_string();
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_secs()).unwrap();
    let hash = URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, body.as_bytes()));
    let claims = json!({ "iss": "Upstash", "sub": format!("{PUBLIC_URL}/jobs/execute_workflow"), "exp": now + 300,
        "nbf": now - 5, "jti": format!("jwt_{message}"), "body": hash });
    let part = |value: Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(json!({ "alg": "HS256", "typ": "JWT" })), part(claims));
    let code = ring::hmac::sign(&ring::hmac::Key::new(ring::hmac::HMAC_SHA256, KEY), signed.as_bytes());
    let signature = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(code));
    let request = client().post(format!("http://{}/jobs/execute_workflow", server.address()));
    let request = request.header("upstash-signature", signature).header("content-type", "application/json");
    Answer::of(request.header("upstash-message-id", message).body(body).send().await.unwrap()).await
}

fn spec(header: &str) -> Value {
    json!({ "reach": { "type": "http", "url": "http://127.0.0.1:9/mcp", "headers": { header: PLANTED } },
        "upkeep": { "start_timeout_seconds": 1 } })
}

async fn put(server: &Gantry, spec: Value) -> Answer {
    server.request(Method::PUT, "/v1/servers/notes", Some(&server.token), Some(spec)).await
}

async fn shown_header(server: &Gantry, header: &str) -> Value {
    let servers = server.get("/v1/servers").await;
    servers.body["servers"][0]["spec"]["reach"]["headers"][header].clone()
}

/// A server, a run that ended, and a delivery that was given up, each with the word in it.
async fn fill(server: &Gantry, outside: &Outside) {
    let answer = put(server, spec("x-note")).await;
    assert!(answer.status < 300, "{}", answer.text);
    let url = format!("http://{}/hook", outside.address);
    server.cli(&["webhook", "add", &url, "--event", "workflow.completed"]).ok();
    ask_for_workflow(server).await;
    wait_for("a delivery that was given up", || {
        let page = server.cli(&["webhook", "deliveries", "--state", "dead", "--json"]).ok().json();
        (page["deliveries"].as_array()?.len() == 1).then_some(())
    });
}

/// What was given up is sent again, and says what it said.
fn is_sent_again(server: &Gantry, outside: &Outside) {
    outside.works.store(true, Ordering::SeqCst);
    outside.told.lock().unwrap().clear();
    let page = server.cli(&["webhook", "deliveries", "--state", "dead", "--json"]).ok().json();
    server.cli(&["webhook", "resend", page["deliveries"][0]["id"].as_str().unwrap()]).ok();
    let told = wait_for("the delivery", || outside.told.lock().unwrap().first().cloned());
    assert!(told.starts_with("POST /hook") && told.contains(PLANTED), "{told}");
}

fn has_word(bytes: &[u8]) -> bool {
    bytes.windows(PLANTED.len()).any(|window| window == PLANTED.as_bytes())
}

/// Is the word in a file of this folder, as it is?
fn is_readable_below(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() { is_readable_below(&path) } else { has_word(&std::fs::read(&path).unwrap_or_default()) }
    })
}

/// Is the word in what a backup has of the store?
fn is_in_backup(backup: &Path, folder: &Path) -> bool {
    std::fs::create_dir(folder).unwrap();
    let mut tar = std::process::Command::new("tar");
    assert!(tar.args(["xzf", backup.to_str().unwrap()]).current_dir(folder).status().unwrap().success());
    std::fs::remove_dir_all(folder.join("audit")).unwrap();
    is_readable_below(folder)
}

/// As an earlier release has left it.
const IN_CLEAR: [&str; 3] = [
    r#"UPDATE workflow_runs SET input = '{"word":"planted-content-5c1e77"}', output = '{"answer":"planted-content-5c1e77"}'"#,
    r#"UPDATE webhook_deliveries SET body = '{"word":"planted-content-5c1e77"}'"#,
    r#"UPDATE upstream_servers SET spec = '{"reach":{"type":"http","url":"http://127.0.0.1:9/mcp","headers":{"Authorization":"Bearer planted-content-5c1e77"}},"upkeep":{"start_timeout_seconds":1}}'"#,
];

#[tokio::test(flavor = "multi_thread")]
async fn what_workflows_webhooks_and_servers_hold_is_sealed_in_the_store_and_in_backups() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let outside = Outside::open();
    let server = outside.start().data(&data).run().await;
    fill(&server, &outside).await;
    let backup = home.path().join("backup.tar.gz");
    let made = server.cli(&["--json", "backup", "--to", backup.to_str().unwrap()]).ok().json();
    assert_eq!(made["parameters_left_out"], 0, "what is sealed is in the backup: {made}");
    server.stop();
    for name in ["gantry.db", "gantry.db-wal"] {
        assert!(!has_word(&std::fs::read(data.join(name)).unwrap_or_default()), "{name} has it in clear");
    }
    assert!(!is_in_backup(&backup, &home.path().join("unpacked")));

    // All of it is there.
    let server = outside.start().data(&data).run().await;
    assert_eq!(shown_header(&server, "x-note").await, PLANTED);
    is_sent_again(&server, &outside);
    server.stop();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_there_before_the_seal_is_left_out_of_backups_read_and_sealed() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let outside = Outside::open();
    let server = outside.start().data(&data).run().await;
    fill(&server, &outside).await;
    server.stop();
    let database = || Connection::open(data.join("gantry.db")).unwrap();
    for statement in IN_CLEAR {
        assert_eq!(database().execute(statement, []).unwrap(), 1, "{statement}");
    }
    let backup = home.path().join("backup.tar.gz");
    let made = run(gantry(&data).args(["--json", "backup", "--to", backup.to_str().unwrap()])).json();
    assert_eq!(made["parameters_left_out"], 4, "{made}");
    let unpacked = home.path().join("unpacked");
    assert!(!is_in_backup(&backup, &unpacked));

    let server = outside.start().data(&data).run().await;
    assert_eq!(shown_header(&server, "Authorization").await, format!("Bearer {PLANTED}"), "it goes on as it was");
    let clear = "SELECT (SELECT count(*) FROM workflow_runs WHERE input || output LIKE '%planted%')
                      + (SELECT count(*) FROM webhook_deliveries WHERE body LIKE '%planted%')
                      + (SELECT count(*) FROM upstream_servers WHERE spec LIKE '%planted%')";
    wait_for("the seals", || {
        let left: i64 = database().query_row(clear, [], |row| row.get(0)).unwrap();
        (left == 0).then_some(())
    });
    assert_eq!(shown_header(&server, "Authorization").await, format!("Bearer {PLANTED}"));
    is_sent_again(&server, &outside);
    server.stop();

    // Brought back without the key, the server is there and names the credential it lacks.
    let new = home.path().join("new");
    run(gantry(&new).args(["restore", backup.to_str().unwrap()])).ok();
    let restored = Connection::open(new.join("gantry.db")).unwrap();
    let spec: String = restored.query_row("SELECT spec FROM upstream_servers", [], |row| row.get(0)).unwrap();
    assert!(spec.contains(r#""Authorization":{"secret":"authorization"}"#), "{spec}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shared_store_holds_them_sealed_too() {
    let postgres = PostgresServer::start().unwrap();
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let url = postgres.database().unwrap();
    let outside = Outside::open();
    let start = || outside.start().data(&data).env("GANTRY_STORE__URL", &url);
    let server = start().run().await;
    fill(&server, &outside).await;
    let name = url.rsplit('/').next().unwrap().split('?').next().unwrap();
    let all = "SELECT input, output, error FROM workflow_runs; SELECT body FROM webhook_deliveries; SELECT spec FROM upstream_servers";
    let kept = || all.split("; ").map(|one| postgres.sql(name, one).unwrap()).collect::<String>();
    assert!(kept().contains("gantry-sealed:") && !kept().contains(PLANTED), "{}", kept());
    server.stop();
    for statement in IN_CLEAR {
        postgres.sql(name, statement).unwrap();
    }
    let backup = home.path().join("backup.tar.gz");
    let made = run(gantry(&data).args(["--json", "backup", "--store", &url, "--to", backup.to_str().unwrap()])).json();
    assert_eq!(made["parameters_left_out"], 4, "{made}");
    assert!(!is_in_backup(&backup, &home.path().join("unpacked")));
    let server = start().run().await;
    wait_for("the seals", || (!kept().contains(PLANTED)).then_some(()));
    assert_eq!(shown_header(&server, "Authorization").await, format!("Bearer {PLANTED}"));
    is_sent_again(&server, &outside);
    server.stop();
}

#[tokio::test]
async fn a_secret_in_the_description_of_a_server_is_refused_with_the_way_to_do_it_right() {
    let server = Gantry::start().await;
    let with =
        |headers: Value| json!({ "reach": { "type": "http", "url": "http://127.0.0.1:9/mcp", "headers": headers } });
    let program = |env: Value| json!({ "reach": { "type": "stdio", "command": "true", "env": env } });
    for spec in [
        with(json!({ "Authorization": "Bearer sk-live-4f9d1c7a2b8e4d6f" })),
        with(json!({ "x-tenant": "sk-live-4f9d1c7a2b8e4d6f" })),
        program(json!({ "BRAVE_API_KEY": "4f9d1c7a2b8e4d6f" })),
        program(json!({ "DATABASE_URL": "postgres://u:4f9d1c7a2b8e4d6f@h/d" })),
        json!({ "reach": { "type": "http", "url": "http://127.0.0.1:9/mcp?api_key=4f9d1c7a2b8e4d6f" } }),
    ] {
        let answer = put(&server, spec.clone()).await;
        assert_eq!(answer.refusal(), (400, "E3004"), "{spec}: {}", answer.text);
        assert!(answer.text.contains("credential") && !answer.text.contains("4f9d"), "{}", answer.text);
    }
    let fine = json!({ "LOG": "info", "AUTHOR": "Jane", "MAX_TOKENS": "4096", "CONTACT": "jane@example.com" });
    let answer = put(&server, json!({ "reach": { "type": "stdio", "command": "true", "env": fine } })).await;
    assert!(answer.status < 300, "{}", answer.text);
    server.stop();
}
