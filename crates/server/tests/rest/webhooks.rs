//! Webhooks and the signed door, from outside.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::ids::TenantId;
use jobs::webhooks::sign;
use ports::call_out::CallOutError;
use ports::clock::{Clock as _, UnixMillis};
use ports::secret_source::SecretValue;
use ports::workflow_runs::{NewRun, WorkflowRuns as _};
use serde_json::{Value, json};

use crate::client::Reply;
use crate::post_office::{BYTES_MAX, QSTASH_KEY, SHARED};
use crate::stage::{START, Stage};

const EMBEDDING: &str = r#"{"type":"memory","id":"m1","content":"hello"}"#;

async fn send(stage: &Stage, path: &str, headers: &[(&str, &str)], body: &str) -> Reply {
    let mut text =
        format!("POST {path} HTTP/1.1\r\nhost: gantry\r\nconnection: close\r\ncontent-type: application/json\r\n");
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    stage.raw(text.as_bytes(), false).await
}

fn qstash(key: &[u8], kind: &str, token_id: &str, body: &str) -> String {
    let now = START / 1000;
    let claims = json!({
        "iss": "Upstash", "sub": format!("https://g.example/jobs/{kind}"), "exp": now + 300, "nbf": now, "jti": token_id,
        "body": URL_SAFE_NO_PAD.encode(ring::digest::digest(&ring::digest::SHA256, body.as_bytes())),
    });
    let header = json!({ "alg": "HS256", "typ": "JWT" }).to_string();
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims.to_string()));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(policy::message_code(key, &[signed.as_bytes()])))
}

#[tokio::test]
async fn a_subscription_from_its_beginning_to_its_end() {
    let stage = Stage::new().await;
    let wish = json!({ "url": "https://r.example/hook", "events": ["invocation.completed"] });
    let added = stage.admin("POST", "/v1/webhooks", Some(wish)).await.json();
    let (id, secret) = (added["id"].as_str().unwrap(), added["secret"].as_str().unwrap());
    assert!(secret.starts_with("whsec_"));
    let listed = stage.admin("GET", "/v1/webhooks", None).await;
    assert!(!String::from_utf8_lossy(&listed.body).contains("whsec_"), "shown once");
    assert_eq!(listed.json()["webhooks"][0]["events"], json!(["invocation.completed"]));

    let rotated = stage.admin("POST", &format!("/v1/webhooks/{id}/rotate"), None).await.json();
    assert!(rotated["secret"].as_str().unwrap() != secret && rotated["former_secret_until"].is_string());

    let tried = stage.admin("POST", &format!("/v1/webhooks/{id}/test"), None).await.json();
    assert_eq!((&tried["delivered"], &tried["attempt"]["status"]), (&json!(true), &json!(204)));
    *stage.post.receiver.0.lock().unwrap() = Err(CallOutError::Redirect(302));
    let failed = stage.admin("POST", &format!("/v1/webhooks/{id}/test"), None).await.json();
    assert_eq!((&failed["delivered"], &failed["attempt"]["error"]), (&json!(false), &json!("redirect")));

    let dead = stage.admin("GET", "/v1/webhooks/deliveries?state=dead", None).await.json();
    let delivery = &dead["deliveries"][0];
    assert_eq!((&delivery["code"], &delivery["event"]), (&json!("E3704"), &json!("webhook.test")));
    let one = format!("/v1/webhooks/deliveries/{}", delivery["id"].as_str().unwrap());
    assert_eq!(stage.admin("GET", &one, None).await.json()["log"].as_array().unwrap().len(), 1);
    let resent = stage.admin("POST", &format!("{one}/resend"), None).await;
    assert_eq!((resent.status, &resent.json()["state"]), (200, &json!("pending")));
    assert_eq!(stage.post.queue.0.lock().unwrap().len(), 1);

    assert_eq!(stage.admin("DELETE", &format!("/v1/webhooks/{id}"), None).await.status, 200);
    assert_eq!(stage.admin("DELETE", &format!("/v1/webhooks/{id}"), None).await.status, 404);
}

#[tokio::test]
async fn what_cannot_be_subscribed_is_refused_with_a_reason() {
    let stage = Stage::new().await;
    for (body, status, code) in [
        (json!({}), 400, "E3004"),
        (json!({ "url": "http://r.example/" }), 400, "E3004"),
        (json!({ "url": format!("https://r.example/{}", "x".repeat(3000)) }), 400, "E3004"),
        (json!({ "url": "https://r.example/", "events": ["invocation.exploded"] }), 400, "E3004"),
        (json!({ "url": "https://r.example/", "secret": "none" }), 404, "E3602"),
        (json!({ "url": "https://r.example/", "colour": "red" }), 400, "E3004"),
    ] {
        let reply = stage.admin("POST", "/v1/webhooks", Some(body.clone())).await;
        assert_eq!((reply.status, reply.code()), (status, code.to_owned()), "{body}");
    }
    for path in ["/v1/webhooks/x/test", "/v1/webhooks/deliveries/x/resend"] {
        assert_eq!(stage.admin("POST", path, None).await.code(), "E3702", "{path}");
    }
    for query in ["state=lost", "limit=0", "limit=201", "before=x", "colour=red"] {
        let reply = stage.admin("GET", &format!("/v1/webhooks/deliveries?{query}"), None).await;
        assert_eq!(reply.status, 400, "{query}");
    }
}

#[tokio::test]
async fn a_message_of_another_queue_is_taken_once() {
    let stage = Stage::new().await;
    let path = "/jobs/generate_embedding";
    let signature = qstash(QSTASH_KEY, "generate_embedding", "jwt_1", EMBEDDING);
    let headers = [("upstash-signature", signature.as_str()), ("upstash-message-id", "msg_1")];
    let taken = send(&stage, path, &headers, EMBEDDING).await;
    assert_eq!((taken.status, taken.json()), (200, json!({ "success": true, "duplicate": false })));
    let again = qstash(QSTASH_KEY, "generate_embedding", "jwt_2", EMBEDDING);
    let headers = [("upstash-signature", again.as_str()), ("upstash-message-id", "msg_1")];
    let repeated = send(&stage, path, &headers, EMBEDDING).await;
    assert_eq!((repeated.status, &repeated.json()["duplicate"]), (200, &json!(true)));
    assert_eq!(stage.post.queue.0.lock().unwrap().len(), 1);
}

#[tokio::test]
async fn the_signed_door_refuses_before_it_reads_and_says_little() {
    let stage = Stage::new().await;
    let signed = |kind: &str, body: &str| qstash(QSTASH_KEY, kind, "jwt_1", body);
    let forged = qstash(b"other", "generate_embedding", "jwt_1", EMBEDDING);
    let again = forged.clone();
    let wrong = r#"{"type":"memory"}"#;
    for (path, signature, body, expected) in [
        ("/jobs/generate_embedding", None, EMBEDDING.to_owned(), (401, "E3202")),
        ("/jobs/generate_embedding", Some(forged), EMBEDDING.to_owned(), (401, "E3202")),
        ("/jobs/mine_bitcoin", Some(signed("mine_bitcoin", EMBEDDING)), EMBEDDING.to_owned(), (404, "E3008")),
        ("/jobs/generate_embedding", Some(signed("generate_embedding", wrong)), wrong.to_owned(), (400, "E3004")),
        ("/jobs/execute_workflow", Some(signed("execute_workflow", "{}")), "{}".to_owned(), (412, "E3408")),
        ("/jobs/generate_embedding", Some(signed("generate_embedding", "")), "x".repeat(BYTES_MAX + 1), (413, "E3005")),
        ("/jobs/generate_embedding", Some("x".to_owned()), "x".repeat(BYTES_MAX + 1), (401, "E3202")),
        ("/jobs/generate_embedding", Some(signed("generate_embedding", "{}")), EMBEDDING.to_owned(), (401, "E3202")),
    ] {
        let header = signature.as_deref().map(|signature| ("upstash-signature", signature));
        let reply = send(&stage, path, header.as_slice(), &body).await;
        assert_eq!((reply.status, reply.code().as_str()), expected, "{path}");
        assert!(!String::from_utf8_lossy(&reply.body).contains("hello"));
    }
    // Without a proof, and with a forged one, the body is not waited for: only its announcement has arrived.
    let other_kind = signed("execute_workflow", EMBEDDING);
    let old = format!("gantry-signature: t=1000000000,v1={}\r\n", "ab".repeat(32));
    for (path, header) in [
        ("/jobs/generate_embedding", String::new()),
        ("/jobs/generate_embedding", format!("upstash-signature: {again}\r\n")),
        ("/jobs/generate_embedding", format!("upstash-signature: {other_kind}\r\n")),
        ("/v1/workflows/callback", String::new()),
        ("/v1/workflows/callback", old),
        ("/v1/workflows/callback", "gantry-signature: t=1\r\n".to_owned()),
    ] {
        let head = format!("POST {path} HTTP/1.1\r\nhost: gantry\r\n{header}content-length: 500\r\n\r\n");
        assert_eq!(stage.raw(head.as_bytes(), false).await.status, 401, "{path} {header}");
    }
    assert!(stage.post.queue.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn forged_signatures_count_as_failed_authentications_and_a_good_one_is_taken_all_the_same() {
    let stage = Stage::new().await;
    let forged = qstash(b"other", "generate_embedding", "jwt_1", EMBEDDING);
    let mut refused = 0;
    let limited = loop {
        let reply = send(&stage, "/jobs/generate_embedding", &[("upstash-signature", &forged)], EMBEDDING).await;
        if reply.status != 401 {
            break reply;
        }
        refused += 1;
        assert!(refused < 1_000, "nobody counts");
    };
    assert_eq!((limited.status, limited.code().as_str()), (429, "E3003"));
    let body = json!({}).to_string();
    let signature = sign(&[SecretValue::new("other").unwrap()], stage.clock.now(), body.as_bytes());
    let callback = send(&stage, "/v1/workflows/callback", &[("gantry-signature", &signature)], &body).await;
    assert_eq!(callback.status, 429, "one count for all doors");
    let token = stage.ask("GET", "/v1/tools", Some("nonsense"), None).await;
    assert_eq!(token.status, 429, "and for tokens");
    let good = qstash(QSTASH_KEY, "generate_embedding", "jwt_2", EMBEDDING);
    assert_eq!(send(&stage, "/jobs/generate_embedding", &[("upstash-signature", &good)], EMBEDDING).await.status, 200);
}

#[tokio::test]
async fn a_workflow_that_proves_itself_ends_its_run_once() {
    let stage = Stage::new().await;
    let id = "01890000-0000-7000-8000-000000000007";
    let run = NewRun {
        tenant: TenantId::home(),
        id: id.parse().unwrap(),
        workflow: "wf".into(),
        idempotency_key: "k".into(),
        input: Value::Null,
    };
    stage.post.store.begin_run(&run).await.unwrap();
    let body = json!({ "invocationId": id, "status": "success", "output": { "n": 1 } }).to_string();
    let now = stage.clock.now();
    let signed = |secret: &str, at: UnixMillis| sign(&[SecretValue::new(secret).unwrap()], at, body.as_bytes());
    let old = UnixMillis(now.0 - 301_000);
    for (signature, status, duplicate) in [
        (signed("other", now), 401, Value::Null),
        (signed(SHARED, old), 401, Value::Null),
        (signed(SHARED, now), 200, json!(false)),
        (signed(SHARED, now), 200, json!(true)),
    ] {
        let reply = send(&stage, "/v1/workflows/callback", &[("gantry-signature", &signature)], &body).await;
        assert_eq!((reply.status, &reply.json()["duplicate"]), (status, &duplicate));
    }
    let ended = stage.post.store.run(&TenantId::home(), id.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(ended.output, Some(json!({ "n": 1 })));
}
