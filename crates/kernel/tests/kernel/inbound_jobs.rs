//! The signed door for jobs of other queues, and what its handlers ask of services outside.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, TenantId};
use gantry_kernel::inbound_jobs::{
    Arrived, CallOutParts, CallOutUrls, CallOuts, CallbackTaken, InboundJobs, InboundKind, InboundParts,
};
use gantry_kernel::ports::call_out::CallOutError;
use gantry_kernel::ports::clock::Clock as _;
use gantry_kernel::ports::secret_source::Secret;
use gantry_kernel::ports::workflow_runs::{RunState, WorkflowRuns as _};
use gantry_kernel::webhooks::sign;
use policy::{QstashReceiver, message_code};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use store::memory::MemoryStore;

use crate::stage::{HeldClock, START};
use crate::webhooks::{Queue, Receiver};

const JOB: &str = "01890000-0000-7000-8000-000000000001";

struct DoorOfJobs {
    door: InboundJobs,
    queue: Arc<Queue>,
    receiver: Arc<Receiver>,
    store: Arc<MemoryStore>,
    clock: Arc<HeldClock>,
}

impl DoorOfJobs {
    fn with(urls: CallOutUrls, answers: impl IntoIterator<Item = Result<(u16, Value), CallOutError>>) -> Self {
        let clock = Arc::new(HeldClock { now: START.into() });
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _));
        let (queue, receiver) = (Arc::new(Queue::default()), Receiver::answers(answers));
        let calls = Arc::new(CallOuts::new(CallOutParts {
            urls,
            secret: Secret::new("shared"),
            calls: Arc::clone(&receiver) as _,
            runs: Arc::clone(&store) as _,
            webhooks: None,
            clock: Arc::clone(&clock) as _,
        }));
        let door = InboundJobs::new(InboundParts {
            receiver: QstashReceiver::new(b"current", Some(b"next")).unwrap(),
            public_url: "https://g.example".into(),
            tenant: TenantId::home(),
            bytes_max: 1000,
            store: Arc::clone(&store) as _,
            queue: Arc::clone(&queue) as _,
            calls,
            clock: Arc::clone(&clock) as _,
        });
        Self { door, queue, receiver, store, clock }
    }

    fn all(answers: impl IntoIterator<Item = Result<(u16, Value), CallOutError>>) -> Self {
        let url = |path: &str| Some(format!("https://s.example/{path}"));
        Self::with(CallOutUrls { embedding: url("e"), workflow: url("w/"), notification: url("n") }, answers)
    }

    async fn run(&self, kind: InboundKind, payload: &Value, is_last: bool) -> Result<Value, (ErrorCode, bool)> {
        let job = (&TenantId::home(), JOB.parse::<InvocationId>().unwrap());
        let ended = self.door.calls().run(kind, job, payload, is_last).await;
        ended.map(|ended| ended.result).map_err(|stopped| (stopped.refusal.code, stopped.again))
    }

    fn actions(&self) -> Vec<String> {
        let sent = self.receiver.sent.lock().unwrap();
        let action =
            |body: &str| serde_json::from_str::<Value>(body).unwrap()["action"].as_str().unwrap_or("").to_owned();
        sent.iter().map(|(_, _, body)| action(body)).collect()
    }
}

fn signature(key: &[u8], kind: &str, token_id: &str, body: &str) -> String {
    let now = START / 1000;
    let claims = json!({
        "iss": "Upstash", "sub": format!("https://g.example/jobs/{kind}"), "exp": now + 300, "nbf": now, "jti": token_id,
        "body": URL_SAFE_NO_PAD.encode(Sha256::digest(body)),
    });
    let header = json!({ "alg": "HS256", "typ": "JWT" });
    let signed =
        format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims.to_string()));
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(message_code(key, &[signed.as_bytes()])))
}

const EMBEDDING: &str = r#"{"type":"memory","id":"m1","content":"hello"}"#;

#[tokio::test]
async fn a_genuine_message_is_queued_once_under_either_key() {
    let jobs = DoorOfJobs::all([Ok((200, json!({})))]);
    let take = async |key: &[u8], token: &str, message: Option<&str>| {
        let signed = signature(key, "generate_embedding", token, EMBEDDING);
        jobs.door.take("generate_embedding", &signed, message, EMBEDDING.as_bytes()).await.unwrap()
    };
    assert_eq!(take(b"current", "jwt_1", Some("msg_1")).await, Arrived::Queued);
    assert_eq!(take(b"next", "jwt_2", Some("msg_1")).await, Arrived::Again, "sent again by the queue");
    assert_eq!(take(b"current", "jwt_1", Some("msg_9")).await, Arrived::Again, "caught, and sent under another id");
    assert_eq!(take(b"next", "jwt_3", None).await, Arrived::Queued);
    let queued = jobs.queue.0.lock().unwrap();
    assert_eq!(queued.len(), 2);
    assert_eq!((queued[0].kind, &queued[0].payload["id"]), ("generate_embedding", &json!("m1")));
}

#[tokio::test]
async fn what_is_refused_says_so_with_a_code_that_stops_repetition() {
    let jobs = DoorOfJobs::with(
        CallOutUrls { embedding: Some("https://s.example/e".into()), ..CallOutUrls::default() },
        [Ok((200, json!({})))],
    );
    for (kind, key, body, expected) in [
        ("generate_embedding", &b"other"[..], EMBEDDING, ErrorCode::E3202),
        ("no_such_type", b"current", EMBEDDING, ErrorCode::E3008),
        ("no_such_type", b"other", EMBEDDING, ErrorCode::E3202),
        ("generate_embedding", b"current", "{", ErrorCode::E3004),
        ("generate_embedding", b"current", r#"{"type":"other","id":"1","content":"x"}"#, ErrorCode::E3004),
        ("generate_embedding", b"current", r#"{"type":"memory","id":"1","content":"x","more":1}"#, ErrorCode::E3004),
        ("generate_embedding", b"current", r#"{"type":"memory","id":"","content":"x"}"#, ErrorCode::E3004),
        ("execute_workflow", b"current", r#"{"workflowId":"a"}"#, ErrorCode::E3408),
        ("send_notification", b"current", r#"{"userId":"u","title":"t","body":"b"}"#, ErrorCode::E3408),
    ] {
        let signed = signature(key, kind, "jwt_1", body);
        let refusal = jobs.door.take(kind, &signed, Some("msg_1"), body.as_bytes()).await.unwrap_err();
        assert_eq!(refusal.code, expected, "{kind} {body}");
        assert!((400..500).contains(&refusal.code.http()), "{kind} {body}");
    }
    let signed = signature(b"current", "generate_embedding", "jwt_1", EMBEDDING);
    let other = EMBEDDING.replace("hello", "other");
    let refusal = jobs.door.take("generate_embedding", &signed, None, other.as_bytes()).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3202, "another body");
    let moved = jobs.door.take("execute_workflow", &signed, None, EMBEDDING.as_bytes()).await.unwrap_err();
    assert_eq!(moved.code, ErrorCode::E3202, "another address");
    assert!(jobs.queue.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_embedding_is_made_outside_and_its_size_is_kept() {
    let payload: Value = serde_json::from_str(EMBEDDING).unwrap();
    for (answer, expected) in [
        (Ok((200, json!({ "vectorDimensions": 768 }))), Ok(json!({ "vectorDimensions": 768 }))),
        (Ok((201, json!({ "vector": [0.1, 0.2] }))), Ok(json!({ "vectorDimensions": 2 }))),
        (Ok((200, json!({ "ok": true }))), Err((ErrorCode::E3502, false))),
        (Ok((400, json!({}))), Err((ErrorCode::E3502, false))),
        (Ok((503, json!({}))), Err((ErrorCode::E3502, true))),
        (Err(CallOutError::TimedOut(std::time::Duration::from_secs(1))), Err((ErrorCode::E3503, true))),
        (Err(CallOutError::NotAllowed("x")), Err((ErrorCode::E3406, false))),
    ] {
        let jobs = DoorOfJobs::all([answer]);
        assert_eq!(jobs.run(InboundKind::GenerateEmbedding, &payload, false).await, expected);
        let sent = jobs.receiver.sent.lock().unwrap();
        assert!(sent[0].1.iter().any(|(name, _)| *name == "gantry-signature"));
    }
}

#[tokio::test]
async fn a_notification_goes_to_every_device_and_forgets_those_that_are_gone() {
    let payload = json!({ "userId": "u", "title": "t", "body": "b", "data": { "k": 1 } });
    let none = DoorOfJobs::all([Ok((200, json!({ "tokens": [] })))]);
    let kind = InboundKind::SendNotification;
    assert_eq!(none.run(kind, &payload, false).await, Ok(json!({ "tokenCount": 0, "successCount": 0 })));
    let jobs = DoorOfJobs::all([
        Ok((200, json!({ "tokens": ["a", "b", "c"] }))),
        Ok((200, json!({}))),
        Ok((200, json!({ "error": "INVALID_TOKEN" }))),
        Ok((200, json!({}))),
        Ok((500, json!({}))),
    ]);
    assert_eq!(jobs.run(kind, &payload, false).await, Ok(json!({ "tokenCount": 3, "successCount": 1 })));
    assert_eq!(jobs.actions(), ["tokens", "send", "send", "remove", "send"]);
    let failing = DoorOfJobs::all([Ok((200, json!({ "tokens": ["a"] }))), Ok((500, json!({})))]);
    assert_eq!(failing.run(kind, &payload, false).await, Err((ErrorCode::E3502, true)));
}

#[tokio::test]
async fn a_workflow_runs_once_for_its_key_and_its_failure_is_kept_after_the_last_attempt() {
    let payload = json!({ "workflowId": "wf-1", "input": { "a": 1 }, "idempotencyKey": "k" });
    let kind = InboundKind::ExecuteWorkflow;
    let jobs = DoorOfJobs::all([Ok((500, json!({}))), Ok((200, json!({ "done": true })))]);
    assert_eq!(jobs.run(kind, &payload, false).await, Err((ErrorCode::E3502, true)));
    let done = json!({ "invocationId": JOB, "status": "success" });
    assert_eq!(jobs.run(kind, &payload, false).await, Ok(done.clone()));
    assert_eq!(jobs.run(kind, &payload, false).await, Ok(done), "it is not asked again");
    {
        let sent = jobs.receiver.sent.lock().unwrap();
        assert_eq!((sent.len(), sent[0].0.as_str()), (2, "https://s.example/w/webhook/wf-1"));
        let body: Value = serde_json::from_str(&sent[0].2).unwrap();
        assert_eq!((&body["a"], &body["_metadata"]["requestId"]), (&json!(1), &json!(JOB)));
    }
    let failing = DoorOfJobs::all([Ok((500, json!({ "secret": "stack trace" })))]);
    failing.run(kind, &payload, true).await.unwrap();
    let run = failing.store.run(&TenantId::home(), JOB.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!((run.state, &run.error.as_ref().unwrap()["code"]), (RunState::Failure, &json!("N8N_ERROR")));
    assert!(!run.error.unwrap().to_string().contains("stack trace"));
    for bad in
        [json!({ "workflowId": "../admin" }), json!({ "workflowId": "a", "input": { "_metadata": 1 } }), json!({})]
    {
        assert_eq!(jobs.run(kind, &bad, false).await, Err((ErrorCode::E3004, false)), "{bad}");
    }
}

#[tokio::test]
async fn a_workflow_calls_back_once_and_only_if_it_proves_itself() {
    let payload = json!({ "workflowId": "wf-1", "input": {} });
    let jobs = DoorOfJobs::all([Ok((202, json!({})))]);
    let pending = jobs.run(InboundKind::ExecuteWorkflow, &payload, false).await.unwrap();
    assert_eq!(pending["status"], "pending");
    let body = json!({ "invocationId": JOB, "status": "success", "output": { "n": 2 } }).to_string();
    let home = TenantId::home();
    let signed = |secret: &str, body: &str| sign(&[Secret::new(secret).unwrap()], jobs.clock.now(), body.as_bytes());
    let back = async |signature: &str, body: &str| {
        jobs.door.calls().called_back(&home, signature, body.as_bytes()).await.map_err(|refusal| refusal.code)
    };
    assert_eq!(back(&signed("other", &body), &body).await, Err(ErrorCode::E3202));
    assert_eq!(back("", &body).await, Err(ErrorCode::E3202));
    let run = async || jobs.store.run(&home, JOB.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(run().await.state, RunState::Pending, "a bad signature changes nothing");
    let good = signed("shared", &body);
    assert!(matches!(back(&good, &body).await, Ok(CallbackTaken::Now { .. })));
    assert_eq!(run().await.output, Some(json!({ "n": 2 })));
    assert_eq!(back(&good, &body).await, Ok(CallbackTaken::Before));
    let failure = json!({ "invocationId": JOB, "status": "failure", "error": "x" }).to_string();
    assert_eq!(back(&signed("shared", &failure), &failure).await, Ok(CallbackTaken::Before));
    assert_eq!(run().await.state, RunState::Success);
    let unknown = body.replace("000000000001", "000000000002");
    assert_eq!(back(&signed("shared", &unknown), &unknown).await, Err(ErrorCode::E3702));
}

#[tokio::test]
async fn whether_the_workflow_engine_answers_is_known_from_when_it_was_asked_last() {
    let nothing: [Result<(u16, Value), CallOutError>; 0] = [];
    assert_eq!(DoorOfJobs::with(CallOutUrls::default(), nothing).door.calls().workflow_answers(), None);
    let answers = [Ok((503, json!({}))), Err(CallOutError::NotConnected), Ok((200, json!({})))];
    let jobs = DoorOfJobs::all(answers);
    assert_eq!(jobs.door.calls().workflow_answers(), Some(true), "nobody has asked it yet");
    for expected in [false, false, true] {
        let payload = json!({ "workflowId": "wf-1" });
        let _ended = jobs.run(InboundKind::ExecuteWorkflow, &payload, false).await;
        assert_eq!(jobs.door.calls().workflow_answers(), Some(expected));
    }
}
