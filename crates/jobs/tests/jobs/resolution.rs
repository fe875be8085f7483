//! Jobs of which nobody knew how they ended, and what a person says about them.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use gantry_jobs::SystemJob;
use ports::executor::{ExecutionReach, ExecutorError};
use ports::job_store::{EnqueueOutcome, JobFilter, JobPriority, JobState, JobStore, OwnerId, TakeRules};
use serde_json::{Value, json};
use test_kernel::{ADMIN, ToolScript, admin, arrival, as_holder, manifest};
use tokio::sync::Notify;

use crate::jobs::{TestJobs, code, ended, unrepeatable};

/// A stage with a tool that must not happen twice, and workers.
async fn payments() -> TestJobs {
    let stage = TestJobs::new().await;
    let effects = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
    for (id, policy, undo) in [("refund", "idempotent", Value::Null), ("pay", "compensatable", json!("refund"))] {
        let tool = json!({ "tool_id": id, "side_effect_policy": policy, "side_effects": effects, "idempotency": {},
            "compensation_tool_id": undo });
        stage.kernel.publish(admin(), manifest(tool)).await.unwrap();
    }
    stage.work();
    stage
}

fn pay(key: &str, background: bool) -> Value {
    json!({ "tool_id": "pay", "parameters": { "name": "Ada" },
        "execution_options": { "async_mode": background, "idempotency_key": key } })
}

/// A job whose tool crashed.
async fn lost(stage: &TestJobs, key: &str) -> InvocationId {
    stage.act(ToolScript::Fail(Refusal::new(ErrorCode::E3404, "it crashed")));
    let id = stage.submit(pay(key, true)).await;
    let view = stage.until(id, ended).await;
    assert_eq!((view.status, code(&view)), (InvocationStatus::Indeterminate, "E3413"));
    stage.act(ToolScript::Answer(json!({ "text": "paid now" })));
    id
}

async fn events(stage: &TestJobs, id: InvocationId) -> Vec<String> {
    let key = stage.status(id).await.record.key;
    stage.jobs.events(admin(), &key, 0, 100).await.unwrap().into_iter().map(|event| event.kind).collect()
}

#[tokio::test]
async fn a_job_that_happened_ends_with_what_a_person_found() {
    let stage = payments().await;
    let id = lost(&stage, "k").await;
    assert_eq!(stage.jobs.retry(admin(), None, id).await.unwrap_err().code, ErrorCode::E3413);
    stage.jobs.resolve(admin(), None, id, Some(json!({ "text": "the bank has it" }))).await.unwrap();
    let view = stage.status(id).await;
    assert_eq!(
        (view.status, view.record.state, &view.record.error),
        (InvocationStatus::Success, JobState::Done, &None)
    );
    let answer = view.result.unwrap();
    assert_eq!((&answer["result"], &answer["tool_version"]), (&json!({ "text": "the bank has it" }), &json!("1.0.0")));
    assert_eq!(events(&stage, id).await, ["queued", "started", "failed", "resolved"]);

    let again = stage.submit_as(ADMIN, pay("k", true)).await.unwrap();
    assert_eq!((again.invocation_id, again.status), (id, InvocationStatus::Success));
    let refused = stage.jobs.retry(admin(), None, id).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3408);
    assert!(refused.hint.unwrap().contains("not done again"));
    assert_eq!(stage.jobs.resolve(admin(), None, id, None).await.unwrap_err().code, ErrorCode::E3908);
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_job_that_did_not_happen_can_be_begun_again_and_its_key_is_free() {
    let stage = payments().await;
    let id = lost(&stage, "k").await;
    stage.jobs.resolve(admin(), None, id, None).await.unwrap();
    let view = stage.status(id).await;
    assert_eq!((view.status, view.record.state, code(&view)), (InvocationStatus::Error, JobState::Failed, "E3404"));
    let again = stage.jobs.retry(admin(), None, id).await.unwrap().invocation_id;
    assert_eq!(stage.until(again, ended).await.status, InvocationStatus::Success);
    let repeated = stage.submit(pay("k", true)).await;
    assert_ne!(repeated, id, "its key is free");
    let view = stage.until(repeated, ended).await;
    assert_eq!((view.status, &view.result.unwrap()["result"]["text"]), (InvocationStatus::Success, &json!("paid now")));
    assert_eq!(stage.runs(), 2, "what the second attempt did is not done again");
}

#[tokio::test]
async fn a_job_asks_the_ledger_also_if_the_process_ended_before_it_was_told() {
    let stage = payments().await;
    let (looked_at, listed) = (lost(&stage, "k1").await, lost(&stage, "k2").await);
    for id in [looked_at, listed] {
        stage.kernel.resolve_invocation(admin(), None, id, Some(json!({ "text": "found" }))).await.unwrap();
    }
    assert_eq!(stage.status(looked_at).await.status, InvocationStatus::Success);
    let page = stage.jobs.list(admin(), JobFilter::default(), None, 10).await.unwrap();
    assert!(page.jobs.iter().all(|(status, _)| *status == InvocationStatus::Success), "{page:?}");
    assert_eq!(events(&stage, listed).await.last().unwrap(), "resolved");
}

#[tokio::test]
async fn a_job_whose_key_another_call_has_ends_as_that_call_did() {
    let stage = payments().await;
    stage.act(ToolScript::Fail(Refusal::new(ErrorCode::E3404, "it crashed")));
    let first = stage.kernel.invoke(arrival(Some(ADMIN), pay("k", false))).await.unwrap_err();
    let second = stage.submit(pay("k", true)).await;
    let view = stage.until(second, ended).await;
    assert_eq!((view.status, stage.runs()), (InvocationStatus::Indeterminate, 1));
    stage.jobs.resolve(admin(), None, second, Some(json!({ "text": "found" }))).await.unwrap();
    assert_eq!(stage.status(second).await.status, InvocationStatus::Success);
    let line = stage.kernel.ledger_line(admin(), first.invocation_id).await.unwrap();
    assert_eq!(line.state.as_str(), "done");
}

#[tokio::test]
async fn a_job_that_was_done_and_not_recorded_is_done_once_the_log_can_be_written() {
    let stage = payments().await;
    let go = Arc::new(Notify::new());
    stage.act(ToolScript::Wait(Arc::clone(&go), json!({ "text": "paid" })));
    let id = stage.submit(pay("k", true)).await;
    stage.until(id, |view| view.status == InvocationStatus::Running && stage.runs() == 1).await;
    stage.audit.broken.store(true, Ordering::SeqCst);
    go.notify_one();
    let view = stage.until(id, ended).await;
    assert_eq!((view.status, code(&view)), (InvocationStatus::Error, "E3801"), "what is not recorded is not answered");
    stage.audit.broken.store(false, Ordering::SeqCst);
    let view = stage.until(id, |view| view.status == InvocationStatus::Success).await;
    assert_eq!(view.result.unwrap()["result"], json!({ "text": "paid" }));
    assert_eq!(stage.runs(), 1);
    let again = stage.submit_as(ADMIN, pay("k", true)).await.unwrap();
    assert_eq!((again.invocation_id, again.status), (id, InvocationStatus::Success), "its key stands for it");
}

#[tokio::test]
async fn the_key_of_a_job_stands_for_what_the_ledger_says_of_its_call() {
    let stage = payments().await;
    for (number, reach) in ExecutionReach::ALL.into_iter().enumerate() {
        let refusal = Refusal::new(ErrorCode::E3502, "no").retryable(false);
        stage.act(ToolScript::FailAs(ExecutorError::new(refusal, reach)));
        let key = format!("k{number}");
        let first = stage.submit(pay(&key, true)).await;
        stage.until(first, ended).await;
        stage.act(ToolScript::Answer(json!({ "text": "paid" })));
        let before = stage.runs();
        let second = stage.submit(pay(&key, true)).await;
        stage.until(second, ended).await;
        assert_eq!(second != first, reach.is_clean(), "{reach:?}");
        assert_eq!(stage.runs() - before, usize::from(reach.is_clean()), "{reach:?}: as at the other doors");
    }
    // A tool that can be repeated is repeated, however far the call came.
    let refund = |key: &str| {
        json!({ "tool_id": "refund", "parameters": { "name": "Ada" },
        "execution_options": { "async_mode": true, "idempotency_key": key } })
    };
    let refusal = Refusal::new(ErrorCode::E3401, "no").retryable(false);
    stage.act(ToolScript::FailAs(ExecutorError::may_have_run(refusal)));
    let first = stage.submit(refund("r")).await;
    stage.until(first, ended).await;
    stage.act(ToolScript::Answer(json!({ "text": "back" })));
    let second = stage.submit(refund("r")).await;
    assert_eq!(stage.until(second, ended).await.status, InvocationStatus::Success);
    assert_ne!(first, second);
}

#[tokio::test]
async fn a_result_that_the_tool_could_not_have_given_is_refused_with_what_it_could() {
    let stage = payments().await;
    let id = lost(&stage, "k").await;
    for (wrong, says) in
        [(json!(null), "expected object"), (json!({ "text": 7 }), "/text: expected string"), (json!({}), "text")]
    {
        let refused = stage.jobs.resolve(admin(), None, id, Some(wrong)).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::E3301);
        assert!(refused.message.contains(says), "{}", refused.message);
        assert!(refused.hint.unwrap().contains(r#""required":["text"]"#), "it says what to give");
    }
    assert_eq!(stage.status(id).await.status, InvocationStatus::Indeterminate, "nothing was changed");
}

#[tokio::test]
async fn a_call_that_is_no_job_is_told_apart_from_none() {
    let stage = payments().await;
    stage.act(ToolScript::Fail(Refusal::new(ErrorCode::E3404, "it crashed")));
    let unknown = stage.kernel.invoke(arrival(Some(ADMIN), pay("k1", false))).await.unwrap_err().invocation_id;
    stage.act(ToolScript::Answer(json!({ "text": "paid" })));
    let done = stage.kernel.invoke(arrival(Some(ADMIN), pay("k2", false))).await.unwrap().into_response().invocation_id;
    for (id, stands, hint) in [(unknown, "nobody knows", "jobs resolve"), (done, "is done", "jobs show")] {
        let refusals = [
            stage.jobs.cancel(admin(), None, id, None).await.unwrap_err(),
            stage.jobs.retry(admin(), None, id).await.unwrap_err(),
            stage.jobs.find(admin(), None, id).await.unwrap_err(),
        ];
        for refusal in refusals {
            assert_eq!(refusal.code, ErrorCode::E3702);
            assert!(refusal.message.contains("is no job") && refusal.message.contains(stands), "{}", refusal.message);
            assert!(refusal.hint.unwrap().contains(hint));
        }
    }
    let other = stage.mint(json!({ "sub": "agent-2", "tenant": "local" })).await;
    let foreign = stage.jobs.cancel(as_holder(&other), None, done, None).await.unwrap_err();
    assert!(foreign.message.contains("there is no job"), "{}", foreign.message);
}

#[tokio::test]
async fn other_work_that_was_interrupted_is_resolved_too() {
    let stage = TestJobs::with(Default::default(), json!({}), vec![unrepeatable()]).await;
    let job = SystemJob {
        kind: "once",
        flow: "system".into(),
        tenant: "local".parse().unwrap(),
        label: "a letter".into(),
        payload: json!({}),
        priority: JobPriority::near(5),
        delay: Duration::ZERO,
        attempts_max: 5,
        dedupe: None,
        is_follow_up: false,
    };
    assert_eq!(stage.jobs.enqueue(job).await.unwrap(), EnqueueOutcome::New);
    let id = stage.jobs.list(admin(), JobFilter::default(), None, 10).await.unwrap().jobs[0].1.key.id;
    let gone = OwnerId(id.0);
    stage.store.enlist(gone, Duration::from_secs(3_600), false).await.unwrap();
    assert_eq!(
        stage
            .store
            .take(gone, TakeRules { most: 1, running_per_tenant: 1, running_per_flow: 1_000 })
            .await
            .unwrap()
            .jobs
            .len(),
        1
    );
    stage.work_anew().await;
    assert_eq!(stage.until(id, ended).await.status, InvocationStatus::Indeterminate);
    stage.jobs.resolve(admin(), None, id, Some(json!({ "sent": true }))).await.unwrap();
    let view = stage.status(id).await;
    assert_eq!((view.status, view.result), (InvocationStatus::Success, Some(json!({ "sent": true }))));
}
