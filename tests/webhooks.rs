//! Webhooks against the real binary: a receiver on loopback that the operator has opened is told of the end of a call and can
//! check who told it; what is not opened is never called.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use jobs::webhooks::verify;
use ports::clock::UnixMillis;
use ports::secret_source::SecretValue;
use reqwest::Method;
use serde_json::{Value, json};

use crate::fairness::Stage;
use crate::support::{Gantry, Start, wait_for};

/// A receiver that answers 204, and keeps what it was sent.
pub(crate) struct Receiver {
    pub(crate) address: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    pub(crate) fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
                while !is_whole(&bytes) {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => break,
                        Ok(count) => bytes.extend_from_slice(&buffer[..count]),
                    }
                }
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
                kept.lock().unwrap().push(String::from_utf8_lossy(&bytes).into_owned());
            }
        });
        Self { address, requests }
    }

    /// Everything it was sent so far.
    pub(crate) fn all(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.requests.lock().unwrap().len()
    }

    /// Head and body of the request of this event, once it is there.
    fn told(&self, event: &str) -> (String, String) {
        wait_for(event, || {
            let requests = self.requests.lock().unwrap();
            let found = requests.iter().find(|request| request.contains(&format!("gantry-event: {event}\r\n")))?;
            let (head, body) = found.split_once("\r\n\r\n")?;
            Some((head.to_owned(), body.to_owned()))
        })
    }
}

fn is_whole(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ")).unwrap()
}

async fn submit(gantry: &Gantry, options: Value) -> crate::support::Answer {
    let body =
        json!({ "tool_id": "calculator", "parameters": { "expression": "6 * 7" }, "execution_options": options });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(&gantry.token), Some(body)).await
}

fn now() -> UnixMillis {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap();
    UnixMillis(i64::try_from(since.as_millis()).unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_call_is_told_to_those_who_asked_and_they_can_check_by_whom() {
    let receiver = Receiver::open();
    let url = format!("http://{}/hook", receiver.address);
    let allow = format!("http://{}", receiver.address);
    let gantry = Start::new().env("GANTRY_WEBHOOKS__ALLOW", &allow).run().await;
    let added = gantry.cli(&["webhook", "add", &url, "--event", "invocation.completed", "--json"]).ok().json();
    let (id, secret) = (added["id"].as_str().unwrap(), SecretValue::new(added["secret"].as_str().unwrap()).unwrap());
    gantry.cli(&["webhook", "test", id]).ok();

    let answer = submit(&gantry, json!({ "callback": { "webhook_id": id } })).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    let (head, body) = receiver.told("invocation.completed");
    verify(header(&head, "gantry-signature"), &[secret], body.as_bytes(), now()).unwrap();
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(event["data"]["invocation_id"], answer.body["invocation_id"]);
    assert_eq!((&event["data"]["status"], &event["data"]["tool_id"]), (&json!("success"), &json!("calculator")));

    let delivered = wait_for("the delivery to be noted", || {
        let page = gantry.cli(&["webhook", "deliveries", "--state", "delivered", "--json"]).ok().json();
        (page["deliveries"].as_array()?.len() == 2).then_some(page)
    });
    let first = delivered["deliveries"][0]["id"].as_str().unwrap();
    let shown = gantry.cli(&["webhook", "deliveries", first]).ok().out();
    assert!(shown.contains("204") && shown.contains("delivered"), "{shown}");
    assert_eq!(receiver.count(), 2, "the test and the end, once each");
    gantry.cli(&["webhook", "remove", id]).ok();
    assert!(gantry.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_call_is_let_in_with_a_callback_only_if_that_is_called() {
    let receiver = Receiver::open();
    let allow = format!("http://{}", receiver.address);
    let gantry = Start::new().env("GANTRY_WEBHOOKS__ALLOW", &allow).run().await;
    let mut hooks = Vec::new();
    for _ in 0..2 {
        let url = format!("{allow}/hook");
        let added = gantry.cli(&["webhook", "add", &url, "--event", "webhook.test", "--json"]);
        let added = added.ok().json();
        hooks.push(added["id"].as_str().unwrap().to_owned());
    }
    let keyed = |key: &str, hook: Option<&String>| {
        let callback = hook.map(|id| json!({ "webhook_id": id }));
        json!({ "async_mode": true, "idempotency_key": key, "callback": callback })
    };
    for (key, first, told) in [("quiet", None, 0), ("loud", Some(&hooks[0]), 1)] {
        let accepted = submit(&gantry, keyed(key, first)).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        let before_its_end = submit(&gantry, keyed(key, Some(&hooks[1]))).await;
        assert_eq!(before_its_end.refusal(), (409, "E3410"), "{}", before_its_end.text);
        assert!(before_its_end.text.contains("callback"), "{}", before_its_end.text);
        let path = format!("/v1/invocations/{}", accepted.body["invocation_id"].as_str().unwrap());
        let began = std::time::Instant::now();
        while gantry.get(&path).await.body["status"] != "success" {
            assert!(began.elapsed() < crate::support::PATIENCE, "it does not end");
        }
        assert_eq!(submit(&gantry, keyed(key, Some(&hooks[1]))).await.refusal(), (409, "E3410"));
        // The same again, or asking for nothing more, is the same call.
        for same in [keyed(key, first), keyed(key, None)] {
            let again = submit(&gantry, same).await;
            assert_eq!((again.status, &again.body["invocation_id"]), (202, &accepted.body["invocation_id"]));
        }
        wait_for("those who are told", || (receiver.count() == told).then_some(()));
    }
    assert!(gantry.stop().success());
    assert_eq!(receiver.count(), 1, "the first caller's, once");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_is_led_to_where_only_the_server_can_go() {
    let receiver = Receiver::open();
    let gantry = Start::new().run().await;
    let port = receiver.address.rsplit(':').next().unwrap();
    for url in [
        format!("http://{}/", receiver.address),
        format!("https://{}/", receiver.address),
        format!("https://127.0.0.1:{port}/"),
        "https://127.0.0.1/".to_owned(),
        "https://[::1]/".to_owned(),
        // These names are this machine, whatever a resolver says; where others lead is judged when they are resolved.
        "https://localhost/".to_owned(),
        "https://a.localhost/".to_owned(),
        "https://169.254.169.254/latest/meta-data".to_owned(),
        "https://10.0.0.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ] {
        let refused = gantry.post("/v1/webhooks", json!({ "url": url })).await;
        assert_eq!(refused.refusal(), (400, "E3004"), "{url}: {}", refused.text);
        let callback = submit(&gantry, json!({ "callback": { "url": url, "secret": "none" } })).await;
        assert_eq!(callback.refusal(), (400, "E3004"), "{url}: {}", callback.text);
    }
    assert_eq!(receiver.count(), 0);
    assert_eq!(gantry.post("/jobs/generate_embedding", json!({})).await.refusal(), (501, "E3010"));
    assert!(gantry.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_operators_bounds_hold_for_receivers_that_callers_name() {
    let receiver = Receiver::open();
    let allow = format!("http://{}", receiver.address);
    let gantry = Start::new()
        .env("GANTRY_EGRESS__ALLOWED_HOSTS", "*.inside.example:443")
        .env("GANTRY_WEBHOOKS__ALLOW", &allow)
        .run()
        .await;
    let outside = "https://hooks.outside.example/";
    let refused = gantry.post("/v1/webhooks", json!({ "url": outside })).await;
    assert_eq!(refused.refusal(), (400, "E3004"), "{}", refused.text);
    let callback = submit(&gantry, json!({ "callback": { "url": outside, "secret": "none" } })).await;
    assert_eq!(callback.refusal(), (400, "E3004"), "{}", callback.text);
    for open in ["https://hooks.inside.example/", &format!("{allow}/hook")] {
        let added = gantry.post("/v1/webhooks", json!({ "url": open })).await;
        assert_eq!(added.status, 201, "{open}: {}", added.text);
    }
    assert!(gantry.stop().success());
    // A sink is the operator's own word, and not bound by what bounds others.
    let sinks = json!([{ "name": "siem", "kind": "http", "url": format!("{allow}/events"), "allow": [allow] }]);
    let gantry =
        Start::new().env("GANTRY_EGRESS__ALLOWED_HOSTS", "").env("GANTRY_AUDIT__SINKS", sinks.to_string()).run().await;
    wait_for("a record at the sink", || (receiver.count() > 0).then_some(()));
    assert!(gantry.stop().success());
}

/// A job that waits for its gate, submitted with a callback; its id.
async fn submit_gated(gantry: &Gantry, stage: &Stage, token: &str, hook: &str) -> String {
    let options = json!({ "async_mode": true, "callback": { "webhook_id": hook } });
    let parameters = stage.parameters("gate", "held");
    let body = json!({ "tool_id": "demo.gated", "parameters": parameters, "execution_options": options });
    let answer = gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await;
    assert_eq!(answer.status, 202, "{}", answer.text);
    answer.body["invocation_id"].as_str().unwrap().to_owned()
}

/// A subscription of a tenant to what does not happen here: who names it is called back, and nobody else.
async fn subscribed(gantry: &Gantry, tenant: &str, receiver: &Receiver) -> String {
    let boss = json!({ "sub": format!("did:example:boss-{tenant}"), "tenant": tenant, "roles": ["admin"] });
    let boss = gantry.mint(boss).await;
    let body = json!({ "url": format!("http://{}/hook", receiver.address), "events": ["workflow.completed"] });
    let answer = gantry.request(Method::POST, "/v1/webhooks", Some(&boss), Some(body)).await;
    answer.body["id"].as_str().unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_tells_no_more_than_a_look_at_the_job_would_show_its_caller_by_then() {
    let (stage, receiver) = (Stage::new(), Receiver::open());
    let allow = format!("http://{}", receiver.address);
    let gantry = stage.start().env("GANTRY_WEBHOOKS__ALLOW", &allow).run().await;
    let hook = subscribed(&gantry, "acme", &receiver).await;
    let ann = gantry.mint(json!({ "sub": "ann", "tenant": "acme" })).await;
    submit_gated(&gantry, &stage, &ann, &hook).await;
    wait_for("the job runs", || (stage.noted().len() == 1).then_some(()));
    let off = json!({ "tenant": "acme", "agent_id": "ann", "tool_id": "demo.gated", "enabled": false });
    let off = json!({ "activations": [off] });
    let put = gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(off)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    stage.open("gate");
    let (_, body) = receiver.told("invocation.completed");
    let event: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(
        (&event["data"]["status"], &event["data"]["result"]),
        (&json!("success"), &json!("[REDACTED]")),
        "{body}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_that_is_switched_off_is_told_nothing_of_its_jobs() {
    let (stage, receiver, other) = (Stage::new(), Receiver::open(), Receiver::open());
    let allow = format!("http://{},http://{}", receiver.address, other.address);
    let gantry = stage.start().env("GANTRY_WEBHOOKS__ALLOW", &allow).run().await;
    let (hook, others) = (subscribed(&gantry, "acme", &receiver).await, subscribed(&gantry, "zeta", &other).await);
    let ann = gantry.mint(json!({ "sub": "ann", "tenant": "acme" })).await;
    let zoe = gantry.mint(json!({ "sub": "zoe", "tenant": "zeta" })).await;
    let id = submit_gated(&gantry, &stage, &ann, &hook).await;
    wait_for("the job runs", || (stage.noted().len() == 1).then_some(()));
    gantry.cli(&["tenant", "set", "acme", "--disable"]).ok();
    stage.open("gate");
    wait_for("the job has ended", || {
        let shown = gantry.cli(&["jobs", "show", &id, "--tenant", "acme", "--json"]).ok().json();
        (!["pending", "running"].contains(&shown["status"].as_str()?)).then_some(())
    });
    // What comes later and is told shows that there was time for it.
    submit_gated(&gantry, &stage, &zoe, &others).await;
    other.told("invocation.completed");
    assert_eq!(receiver.count(), 0, "{:?}", receiver.all());
}
