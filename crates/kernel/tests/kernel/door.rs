//! What a door may do while a call runs: listen, answer the tool's questions, hang up. And what is not to be had at the moment.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use gantry_kernel::IncomingCall;
use gantry_kernel::registry::ListFilter;
use policy::WhyUnavailable;
use ports::tool_companion::{CallListener, CallerAnswer, LogLevel, QuestionKind, ToolProgress, ToolQuestion};
use serde_json::{Value, json};
use test_kernel::{ADMIN, TestKernel, ToolScript, admin, as_holder, greet};
use tokio_util::sync::CancellationToken;

/// Hears everything and answers every question with its own parameters.
#[derive(Debug, Default)]
struct Echo {
    percents: Mutex<Vec<f64>>,
}

#[async_trait]
impl CallListener for Echo {
    fn progress(&self, progress: &ToolProgress) {
        self.percents.lock().unwrap().extend(progress.percent);
    }
    fn log(&self, _: LogLevel, _: &str) {}
    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        Ok(questions.into_iter().map(|q| CallerAnswer { key: q.key, value: q.parameters }).collect())
    }
}

fn arrival(audience: Option<Arc<Echo>>, cancellation: CancellationToken) -> IncomingCall<'static> {
    let audience = audience.map(|audience| audience as _);
    IncomingCall { audience, cancellation, ..test_kernel::arrival(Some(ADMIN), greet()) }
}

fn question(key: &str, parameters: Value) -> ToolQuestion {
    ToolQuestion { key: key.into(), kind: QuestionKind::Elicitation, parameters }
}

#[tokio::test]
async fn what_a_tool_asks_is_answered_by_the_side_that_called() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Ask(vec![question("a", json!(1)), question("b", json!("x"))]);
    let echo = Arc::new(Echo::default());
    let answer = stage.kernel.invoke(arrival(Some(echo), CancellationToken::new())).await.unwrap().into_response();
    assert_eq!(answer.result["text"], "a=1 b=\"x\"");
    let alone = stage.kernel.invoke(arrival(None, CancellationToken::new())).await.unwrap_err();
    assert_eq!(alone.refusal.code, ErrorCode::E3010, "nobody is there to be asked");
}

#[tokio::test]
async fn questions_are_bounded_in_number_and_size() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let many = (0..17).map(|i| question(&i.to_string(), json!(null))).collect();
    let large = vec![question("a", json!("x".repeat(300 * 1024)))];
    for questions in [many, large] {
        *stage.tool.act.lock().unwrap() = ToolScript::Ask(questions);
        let refused = stage.kernel.invoke(arrival(Some(Arc::default()), CancellationToken::new())).await.unwrap_err();
        assert_eq!(refused.refusal.code, ErrorCode::E3407);
    }
}

#[tokio::test]
async fn the_side_that_called_hears_progress_within_the_same_bounds_as_everybody() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Chat;
    let echo = Arc::new(Echo::default());
    stage.kernel.invoke(arrival(Some(Arc::clone(&echo)), CancellationToken::new())).await.unwrap();
    let heard = echo.percents.lock().unwrap().clone();
    assert!(!heard.is_empty() && heard.len() < 100, "{} of 1,000", heard.len());
}

#[tokio::test]
async fn a_call_whose_caller_hangs_up_ends_and_is_recorded_as_cancelled() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Hang;
    let cancellation = CancellationToken::new();
    let hang_up = cancellation.clone();
    let (failed, ()) = tokio::join!(stage.kernel.invoke(arrival(None, cancellation)), async {
        while stage.runs() == 0 {
            tokio::task::yield_now().await;
        }
        hang_up.cancel();
    });
    let failed = failed.unwrap_err();
    assert_eq!((failed.refusal.code, failed.status), (ErrorCode::E3703, InvocationStatus::Cancelled));
    let records = stage.records().await;
    assert_eq!(records.last().unwrap().status, Some(InvocationStatus::Cancelled));
}

#[tokio::test]
async fn a_tool_that_is_not_to_be_had_is_neither_offered_nor_run_until_it_is_again() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let agent = stage.mint(json!({ "tenant": "local" })).await;
    let key = (TenantId::home(), "greet".parse().unwrap());
    for (why, retryable) in [(WhyUnavailable::Quarantined, false), (WhyUnavailable::ServerUnavailable, true)] {
        stage.kernel.availability().set([(key.clone(), Some(why))]);
        let failed = stage.kernel.invoke(arrival(None, CancellationToken::new())).await.unwrap_err();
        assert_eq!(failed.refusal.code, ErrorCode::E3108);
        assert_eq!(failed.envelope().retryable, retryable, "{why:?}");
        let listed = stage.kernel.list_tools(as_holder(&agent), &ListFilter::default(), None).await.unwrap();
        assert_eq!(listed.total_count, 0, "{why:?}");
        let missing = stage.kernel.unavailable_tools(admin(), &"agent-1".parse().unwrap()).await.unwrap();
        assert!(missing.iter().any(|tool| tool.why == why), "{missing:?}");
    }
    assert_eq!(stage.runs(), 0);
    stage.kernel.availability().set([(key, None)]);
    stage.kernel.invoke(arrival(None, CancellationToken::new())).await.unwrap();
}
