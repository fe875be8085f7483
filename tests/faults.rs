//! Codes of faults that have to be staged: a disk that is full, a credential that cannot be read, a receiver that is away.

use std::net::TcpListener;
use std::process::Command;
use std::time::Instant;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{self, Answer, Gantry, PATIENCE, Start, manifest, open_to_all, run};

async fn invoke(gantry: &Gantry) -> Answer {
    gantry.invoke("calculator", json!({ "expression": "1 + 1" })).await
}

/// Calls until the answer has this code; nothing for a call that is done.
async fn until(gantry: &Gantry, code: &str) -> Answer {
    let start = Instant::now();
    loop {
        let answer = invoke(gantry).await;
        if answer.code() == code {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "{code} in time: {}\n{}", answer.text, gantry.log());
    }
}

/// From here on, files of the server cannot be larger.
fn forbid_growth(gantry: &Gantry, bytes: &str) {
    let pid = gantry.pid().to_string();
    let status = Command::new("prlimit").args(["--pid", &pid, &format!("--fsize={bytes}:unlimited")]).status();
    assert!(status.expect("prlimit is there").success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_cannot_be_recorded_does_not_run_until_it_can() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).bearing_full_disks().run().await;
    assert_eq!(invoke(&gantry).await.status, 200);
    forbid_growth(&gantry, "1024");
    let answer = until(&gantry, "E3801").await;
    assert_eq!(answer.refusal(), (503, "E3801"));
    assert_eq!(gantry.get("/health/ready").await.status, 503, "and nobody should send calls here");
    forbid_growth(&gantry, "unlimited");
    until(&gantry, "").await;
    assert!(gantry.stop().success());
    let report = run(support::gantry(&data).args(["--json", "audit", "verify"])).ok().json();
    assert_eq!(report["whole"], true, "{report}");
}

#[tokio::test]
async fn parameters_that_cannot_be_redacted_are_not_run() {
    let gantry = Gantry::start().await;
    // JSON in a text in JSON in a text: deeper than anything is looked into.
    let nest = |inner: &str, levels: usize| format!("{}{inner}{}", "[".repeat(levels), "]".repeat(levels));
    let inner = nest("1", 100);
    let middle = nest(&Value::from(inner).to_string(), 60);
    let answer = gantry.invoke("text_transform", json!({ "text": middle, "operation": "word_count" })).await;
    assert_eq!(answer.refusal(), (500, "E3304"));
    let page = gantry.get("/v1/audit?action=invocation_finished").await;
    assert!(!page.text.contains("[[[["), "{}", page.text);
}

#[tokio::test]
async fn a_credential_that_cannot_be_read_is_told_and_the_record_shows_no_parameters() {
    let home = tempfile::tempdir().unwrap();
    let (data, folder) = (home.path().join("data"), home.path().join("tools/uses"));
    std::fs::create_dir_all(&folder).unwrap();
    let made = manifest(json!({ "tool_id": "uses", "parameters": { "type": "object" }, "result_schema": {},
        "required_permissions": ["credentials:word"], "execution": { "type": "process", "command": ["cat"] } }));
    std::fs::write(folder.join("tool.json"), made.to_string()).unwrap();
    open_to_all(home.path());
    let tools = home.path().join("tools");
    let gantry = Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap()).run().await;
    // A folder is there where a file should be.
    let place = data.join("secrets/local/word");
    std::fs::create_dir_all(&place).unwrap();
    std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let answer = gantry.invoke("demo.uses", json!({ "text": "who knows what this is" })).await;
    assert_eq!(answer.refusal(), (503, "E3601"), "{}", gantry.log());
    let start = Instant::now();
    let record = loop {
        let page = gantry.get("/v1/audit?action=invocation_finished&tool=demo.uses").await;
        if let Some(record) = page.body["records"].get(0) {
            break record.clone();
        }
        assert!(start.elapsed() < PATIENCE, "{}", page.text);
    };
    assert_eq!((&record["parameters"], &record["code"]), (&json!("[REDACTED]"), &json!("E3601")), "{record}");
    assert!(!gantry.log().contains("who knows"), "{}", gantry.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn at_the_limit_of_calls_no_more_are_taken() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("tools/waits");
    std::fs::create_dir_all(&folder).unwrap();
    // It waits for somebody who never comes.
    let command = ["sh", "-c", "echo begun >&2; while :; do sleep 1; done"];
    let made = manifest(json!({ "tool_id": "waits", "parameters": { "type": "object" }, "result_schema": {},
        "timeout_class": "long_running", "execution": { "type": "process", "command": command } }));
    std::fs::write(folder.join("tool.json"), made.to_string()).unwrap();
    open_to_all(home.path());
    let tools = home.path().join("tools");
    let gantry = Start::new().env("GANTRY_SERVER__CALLS_MAX", "1").arg("--tools").arg(tools.to_str().unwrap());
    let gantry = std::sync::Arc::new(gantry.run().await);
    let waiting = std::sync::Arc::clone(&gantry);
    let held = tokio::spawn(async move {
        // The calls below may be first.
        while waiting.invoke("demo.waits", json!({})).await.status == 503 {}
    });
    let answer = until(&gantry, "E3001").await;
    assert_eq!(answer.refusal(), (503, "E3001"));
    assert!(answer.body["error"]["retry_after_ms"].is_u64(), "{}", answer.text);
    // Whoever goes away makes room.
    held.abort();
    until(&gantry, "").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_is_given_up_is_recorded() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", nobody.local_addr().unwrap());
    drop(nobody);
    let gantry = Start::new().env("GANTRY_WEBHOOKS__ALLOW", &address).env("GANTRY_WEBHOOKS__ATTEMPTS", "1").run().await;
    let hook = format!("{address}/hook");
    let added = gantry.cli(&["webhook", "add", &hook, "--event", "invocation.completed", "--json"]).ok().json();
    assert!(added["id"].is_string(), "{added}");
    // The end of a job is told.
    let call = json!({ "tool_id": "calculator", "parameters": { "expression": "6 * 7" },
        "execution_options": { "async_mode": true } });
    assert_eq!(gantry.post("/v1/tools/invoke", call).await.status, 202);
    let start = Instant::now();
    loop {
        let page = gantry.request(Method::GET, "/v1/audit", Some(&gantry.token), None).await;
        if page.text.contains("E3704") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{}\n{}", page.text, gantry.log());
    }
}
