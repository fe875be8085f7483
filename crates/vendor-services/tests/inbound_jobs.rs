//! The signed door for jobs of other queues, and what its handlers ask of services outside.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "test crate")]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, TenantId};
use gantry_vendor_services::{
    CallOutAttempt, CallOutParts, CallOutStop, CallOutUrls, CallOuts, InboundKind, QstashReceiver,
};
use jobs::inbound_jobs::{CallbackTaken, InboundJobs, InboundParts, InboundResult};
use jobs::webhooks::sign;
use policy::message_code;
use ports::call_out::CallOutError;
use ports::clock::Clock as _;
use ports::secret_source::SecretValue;
use ports::workflow_runs::{RunState, WorkflowRuns as _};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use store::memory::MemoryStore;
use test_kernel::{HeldClock, MemoryEntrance, START, ScriptedReceiver};

const JOB: &str = "01890000-0000-7000-8000-000000000001";

struct DoorOfJobs {
    calls: Arc<CallOuts>,
    door: InboundJobs,
    queue: Arc<MemoryEntrance>,
    receiver: Arc<ScriptedReceiver>,
    store: Arc<MemoryStore>,
    clock: Arc<HeldClock>,
}

impl DoorOfJobs {
    fn with(urls: CallOutUrls, answers: impl IntoIterator<Item = Result<(u16, Value), CallOutError>>) -> Self {
        let clock = Arc::new(HeldClock { now: START.into() });
        let store = Arc::new(MemoryStore::with_clock(Arc::clone(&clock) as _));
        let (queue, receiver) = (Arc::new(MemoryEntrance::default()), ScriptedReceiver::answers(answers));
        let calls = Arc::new(CallOuts::new(CallOutParts {
            urls,
            secret: SecretValue::new("shared"),
            calls: Arc::clone(&receiver) as _,
            runs: Arc::clone(&store) as _,
            webhooks: None,
            clock: Arc::clone(&clock) as _,
        }));
        let door = InboundJobs::new(InboundParts {
            verifier: Arc::new(QstashReceiver::new(b"current", Some(b"next")).unwrap()),
            public_url: "https://g.example".into(),
            tenant: TenantId::home(),
            bytes_max: 1000,
            store: Arc::clone(&store) as _,
            queue: Arc::clone(&queue) as _,
            services: Arc::clone(&calls) as _,
            clock: Arc::clone(&clock) as _,
        });
        Self { calls, door, queue, receiver, store, clock }
    }

    fn all(answers: impl IntoIterator<Item = Result<(u16, Value), CallOutError>>) -> Self {
        let url = |path: &str| Some(format!("https://s.example/{path}"));
        Self::with(CallOutUrls { embedding: url("e"), workflow: url("w/"), notification: url("n") }, answers)
    }

    async fn run(&self, kind: InboundKind, payload: &Value, is_last: bool) -> Result<Value, (ErrorCode, bool)> {
        let ended = self.attempt(kind, payload, CallOutAttempt { is_last, waits: None }).await;
        ended.map_err(|stopped| (stopped.refusal.code, stopped.again))
    }

    async fn attempt(&self, kind: InboundKind, payload: &Value, attempt: CallOutAttempt) -> Result<Value, CallOutStop> {
        let job = (&TenantId::home(), JOB.parse::<InvocationId>().unwrap());
        self.calls.run(kind, job, payload, attempt).await.map(|ended| ended.result)
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
    assert_eq!(take(b"current", "jwt_1", Some("msg_1")).await, InboundResult::Queued);
    assert_eq!(take(b"next", "jwt_2", Some("msg_1")).await, InboundResult::Again, "sent again by the queue");
    assert_eq!(
        take(b"current", "jwt_1", Some("msg_9")).await,
        InboundResult::Again,
        "caught, and sent under another id"
    );
    assert_eq!(take(b"next", "jwt_3", None).await, InboundResult::Queued);
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
        (Err(CallOutError::TimedOut(Duration::from_secs(1))), Err((ErrorCode::E3503, true))),
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
async fn a_workflow_runs_once_for_its_key_and_nobody_knows_after_the_last_attempt_that_may_have_run() {
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
    let other = json!({ "workflowId": "wf-1", "input": { "a": 2 }, "idempotencyKey": "k" });
    assert_eq!(jobs.run(kind, &other, false).await, Err((ErrorCode::E3410, false)), "another input under its key");
    let failing = DoorOfJobs::all([Ok((500, json!({ "secret": "stack trace" })))]);
    assert_eq!(failing.run(kind, &payload, true).await, Err((ErrorCode::E3413, false)), "it may have run, each time");
    for bad in
        [json!({ "workflowId": "../admin" }), json!({ "workflowId": "a", "input": { "_metadata": 1 } }), json!({})]
    {
        assert_eq!(jobs.run(kind, &bad, false).await, Err((ErrorCode::E3004, false)), "{bad}");
    }
}

#[tokio::test]
async fn how_far_a_call_of_the_workflow_engine_came_says_whether_it_is_made_again() {
    let timed_out = CallOutError::TimedOut(Duration::from_secs(1));
    for (answer, without_key, with_key) in [
        (Ok(404), (ErrorCode::E3502, false), (ErrorCode::E3502, false)),
        (Ok(400), (ErrorCode::E3502, false), (ErrorCode::E3502, false)),
        (Ok(429), (ErrorCode::E3502, true), (ErrorCode::E3502, true)),
        (Ok(425), (ErrorCode::E3502, true), (ErrorCode::E3502, true)),
        (Err(CallOutError::NotConnected), (ErrorCode::E3502, true), (ErrorCode::E3502, true)),
        (Err(CallOutError::NotAllowed("x")), (ErrorCode::E3406, false), (ErrorCode::E3406, false)),
        (Ok(500), (ErrorCode::E3413, false), (ErrorCode::E3502, true)),
        (Ok(503), (ErrorCode::E3413, false), (ErrorCode::E3502, true)),
        (Ok(408), (ErrorCode::E3413, false), (ErrorCode::E3502, true)),
        (Ok(409), (ErrorCode::E3413, false), (ErrorCode::E3502, true)),
        (Err(CallOutError::Redirect(302)), (ErrorCode::E3413, false), (ErrorCode::E3502, true)),
        (Err(CallOutError::Redirect(308)), (ErrorCode::E3502, false), (ErrorCode::E3502, false)),
        (Err(CallOutError::BrokenOff), (ErrorCode::E3413, false), (ErrorCode::E3502, true)),
        (Err(timed_out), (ErrorCode::E3413, false), (ErrorCode::E3503, true)),
    ] {
        for (key, expected) in [(Value::Null, without_key), (json!("k"), with_key)] {
            let payload = json!({ "workflowId": "wf-1", "idempotencyKey": key });
            let again = Ok((200, json!({})));
            let jobs = DoorOfJobs::all([answer.clone().map(|status| (status, json!({}))), again]);
            let first = jobs.run(InboundKind::ExecuteWorkflow, &payload, false).await;
            assert_eq!(first, Err(expected), "{answer:?} {key}");
            // The process died after that, and nobody knows what the attempt came to.
            let may_have_run = without_key.0 == ErrorCode::E3413;
            let second = jobs.run(InboundKind::ExecuteWorkflow, &payload, false).await;
            assert_eq!(second.is_err(), may_have_run && key.is_null(), "{answer:?} {key}");
        }
    }
}

#[tokio::test]
async fn a_workflow_that_goes_on_is_waited_for_and_at_last_nobody_knows() {
    let payload = json!({ "workflowId": "wf-1", "input": {} });
    let jobs = DoorOfJobs::all([Ok((202, json!({})))]);
    let attempt = async |waits| {
        let attempt = CallOutAttempt { is_last: true, waits };
        jobs.attempt(InboundKind::ExecuteWorkflow, &payload, attempt).await.unwrap_err()
    };
    let (since, first) = attempt(None).await.waits.unwrap();
    assert_eq!(since.since, jobs.clock.now());
    let hours = |count: i64| jobs.clock.now.fetch_add(count * 3_600_000, std::sync::atomic::Ordering::SeqCst);
    hours(1);
    let (still, later) = attempt(Some(since)).await.waits.unwrap();
    assert!(still == since && later > first, "the longer it takes, the less often it is worth looking");
    hours(23);
    let stopped = attempt(Some(since)).await;
    assert_eq!((stopped.refusal.code, stopped.again, stopped.waits), (ErrorCode::E3413, false, None));
    assert_eq!(jobs.receiver.sent.lock().unwrap().len(), 1, "it was asked once");
}

#[tokio::test]
async fn a_key_of_a_workflow_is_claimed_with_its_message() {
    let jobs = DoorOfJobs::all([Ok((200, json!({})))]);
    let take = async |token: &str, message: &str, body: &str| {
        let signed = signature(b"current", "execute_workflow", token, body);
        let taken = jobs.door.take("execute_workflow", &signed, Some(message), body.as_bytes()).await;
        taken.map_err(|refusal| refusal.code)
    };
    let seven = r#"{"workflowId":"pay","input":{"order":7},"idempotencyKey":"k"}"#;
    let eight = seven.replace('7', "8");
    let (other_key, other_flow) = (seven.replace("\"k\"", "\"l\""), seven.replace("pay", "refund"));
    assert_eq!(take("jwt_1", "m1", seven).await, Ok(InboundResult::Queued));
    assert_eq!(take("jwt_2", "m2", seven).await, Ok(InboundResult::Again), "another message with the key");
    assert_eq!(take("jwt_3", "m3", &eight).await, Err(ErrorCode::E3410));
    assert_eq!(take("jwt_4", "m1", &other_key).await, Ok(InboundResult::Again), "the message came before");
    assert_eq!(take("jwt_5", "m5", &other_key).await, Ok(InboundResult::Queued));
    assert_eq!(take("jwt_6", "m6", &other_flow).await, Ok(InboundResult::Queued), "keys belong to their workflow");
    assert_eq!(jobs.queue.0.lock().unwrap().len(), 3);
}

#[tokio::test]
async fn a_workflow_calls_back_once_and_only_if_it_proves_itself() {
    let payload = json!({ "workflowId": "wf-1", "input": {} });
    let jobs = DoorOfJobs::all([Ok((202, json!({})))]);
    let goes_on = jobs.attempt(InboundKind::ExecuteWorkflow, &payload, CallOutAttempt::default()).await.unwrap_err();
    assert!(goes_on.waits.is_some());
    let body = json!({ "invocationId": JOB, "status": "success", "output": { "n": 2 } }).to_string();
    let home = TenantId::home();
    let attempt = CallOutAttempt { is_last: false, waits: goes_on.waits.map(|(waits, _)| waits) };
    let signed =
        |secret: &str, body: &str| sign(&[SecretValue::new(secret).unwrap()], jobs.clock.now(), body.as_bytes());
    let back = async |signature: &str, body: &str| {
        jobs.door.called_back(signature, body.as_bytes()).await.map_err(|refusal| refusal.code)
    };
    assert_eq!(back(&signed("other", &body), &body).await, Err(ErrorCode::E3202));
    assert_eq!(back("", &body).await, Err(ErrorCode::E3202));
    let run = async || jobs.store.run(&home, JOB.parse().unwrap()).await.unwrap().unwrap();
    assert_eq!(run().await.state, RunState::Pending, "a bad signature changes nothing");
    let good = signed("shared", &body);
    assert!(matches!(back(&good, &body).await, Ok(CallbackTaken::Now { .. })));
    assert_eq!(run().await.output, Some(json!({ "n": 2 })));
    let ended = jobs.attempt(InboundKind::ExecuteWorkflow, &payload, attempt).await.unwrap();
    assert_eq!(ended["status"], "success");
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
    assert_eq!(DoorOfJobs::with(CallOutUrls::default(), nothing).door.workflow_answers(), None);
    let answers = [Ok((503, json!({}))), Err(CallOutError::NotConnected), Ok((200, json!({})))];
    let jobs = DoorOfJobs::all(answers);
    assert_eq!(jobs.door.workflow_answers(), Some(true), "nobody has asked it yet");
    for expected in [false, false, true] {
        let payload = json!({ "workflowId": "wf-1", "idempotencyKey": "k" });
        let _ended = jobs.run(InboundKind::ExecuteWorkflow, &payload, false).await;
        assert_eq!(jobs.door.workflow_answers(), Some(expected));
    }
}
