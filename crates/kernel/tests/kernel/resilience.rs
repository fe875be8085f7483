//! A service that fails is left alone, nobody gets more than a share, and what is tried again is tried with care.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use contract::cost::Costs;
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::{Subject, TenantId, ToolId};
use gantry_kernel::resilience::ResilienceSettings;
use ports::audit_sink::AuditAction;
use ports::breaker_history::HistoryQuery;
use ports::call_insights::{CallEnding, CallInsights};
use ports::event_announcer::VersionEvent;
use ports::executor::ResourceUsage;
use ports::resilience::{BreakerMode, ManualMove, RateQuota};
use ports::shared_state::{BreakerKey, BreakerQuery};
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};
use test_kernel::{TestKernel, TestKernelOptions, ToolScript, admin, as_holder};

/// A stage whose `mail` is a tool of the service of that name: two failures in a minute open its breaker for twenty seconds,
/// two successes close it. No retries, unless a test publishes others.
pub(super) async fn stage(settings: ResilienceSettings) -> TestKernel {
    let stage = TestKernel::with(TestKernelOptions {
        impatient: true,
        resilience: Some(settings),
        ..TestKernelOptions::default()
    })
    .await;
    stage.publish(mail(json!({ "tool_id": "mail" }))).await;
    stage
}

pub(super) fn mail(change: Value) -> Value {
    let mut manifest = json!({
        "external_service": "mail",
        "circuit_breaker_config": { "failure_threshold": 2, "success_threshold": 2, "timeout_seconds": 20, "half_open_max_calls": 1 },
        "retry_policy": { "max_attempts": 1 },
    });
    for (member, value) in change.as_object().unwrap() {
        manifest[member] = value.clone();
    }
    manifest
}

pub(super) fn call(tool: &str) -> Value {
    json!({ "tool_id": tool, "parameters": { "name": "Ada" } })
}

pub(super) fn keyed(tool: &str, key: &str) -> Value {
    json!({ "tool_id": tool, "parameters": { "name": "Ada" }, "execution_options": { "idempotency_key": key } })
}

pub(super) fn fail(code: ErrorCode) -> ToolScript {
    ToolScript::Fail(Refusal::new(code, "it went wrong"))
}

pub(super) fn answer() -> ToolScript {
    ToolScript::Answer(json!({ "text": "hi" }))
}

pub(super) fn says(stage: &TestKernel, act: ToolScript) {
    *stage.tool.act.lock().unwrap() = act;
}

pub(super) async fn mode(stage: &TestKernel, breaker: &str) -> Option<BreakerMode> {
    let query = BreakerQuery { limit: 100, ..BreakerQuery::default() };
    let reports = stage.kernel.breakers(admin(), None, query).await.unwrap();
    reports.into_iter().find(|report| report.key.to_string() == breaker).map(|report| report.snapshot.mode)
}

#[tokio::test]
async fn a_failing_service_is_left_alone_tried_and_used_again() {
    let stage = stage(ResilienceSettings::default()).await;
    says(&stage, fail(ErrorCode::E3502));
    for _ in 0..2 {
        assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3502);
    }
    assert_eq!(mode(&stage, "mail").await, Some(BreakerMode::Open));
    let refused = stage.call(call("mail")).await.unwrap_err().refusal;
    assert_eq!((refused.code, refused.retry_after_ms), (ErrorCode::E3501, Some(20_000)));
    assert_eq!(refused.details.unwrap()["breaker"], "mail");
    assert_eq!(stage.runs(), 2, "no call reaches the service while the breaker is open");
    // It is tried after its wait, fails, and is left alone again.
    stage.step(20);
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3502);
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3501);
    stage.step(20);
    says(&stage, answer());
    stage.call(call("mail")).await.unwrap();
    assert_eq!(mode(&stage, "mail").await, Some(BreakerMode::HalfOpen));
    stage.call(call("mail")).await.unwrap();
    assert_eq!(mode(&stage, "mail").await, Some(BreakerMode::Closed));
}

#[tokio::test]
async fn tools_of_one_service_share_its_breaker_and_other_tools_have_none() {
    let stage = stage(ResilienceSettings::default()).await;
    stage.publish(mail(json!({ "tool_id": "mail_list" }))).await;
    stage.publish(json!({ "tool_id": "greet" })).await;
    says(&stage, fail(ErrorCode::E3503));
    stage.refusal(call("mail")).await;
    stage.refusal(call("mail_list")).await;
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3501);
    for _ in 0..10 {
        assert_eq!(stage.refusal(call("greet")).await, ErrorCode::E3503);
    }
    assert_eq!(mode(&stage, "greet").await, None);
}

#[tokio::test]
async fn what_says_nothing_about_the_service_does_not_count() {
    let stage = stage(ResilienceSettings::default()).await;
    for code in [ErrorCode::E3301, ErrorCode::E3401, ErrorCode::E3404, ErrorCode::E3406, ErrorCode::E3601] {
        says(&stage, fail(code));
        for _ in 0..3 {
            assert_eq!(stage.refusal(call("mail")).await, code);
        }
    }
    assert_eq!(mode(&stage, "mail").await, Some(BreakerMode::Closed));
}

#[tokio::test]
async fn a_call_with_effects_that_the_breaker_refuses_leaves_nothing_behind() {
    let stage = stage(ResilienceSettings::default()).await;
    let effects = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
    stage
        .publish(mail(json!({ "tool_id": "pay", "side_effect_policy": "compensatable", "side_effects": effects,
            "idempotency": {}, "compensation_tool_id": "mail" })))
        .await;
    let key: BreakerKey = "mail".parse().unwrap();
    stage.kernel.move_breaker(admin(), &key, ManualMove::ForceOpen).await.unwrap();
    assert_eq!(stage.refusal(keyed("pay", "k-1")).await, ErrorCode::E3501);
    stage.kernel.move_breaker(admin(), &key, ManualMove::Close).await.unwrap();
    let done = stage.call(keyed("pay", "k-1")).await.unwrap();
    assert!(!done.cached, "the key was free");
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_safe_call_is_tried_again_as_often_as_its_manifest_says() {
    let stage = stage(ResilienceSettings::default()).await;
    let retry = json!({ "max_attempts": 3 });
    let patient = json!({ "failure_threshold": 50 });
    stage.publish(mail(json!({ "tool_id": "fetch", "retry_policy": retry, "circuit_breaker_config": patient }))).await;
    says(&stage, ToolScript::InTurn(vec![fail(ErrorCode::E3502), fail(ErrorCode::E3503), answer()]));
    stage.call(call("fetch")).await.unwrap();
    assert_eq!(stage.runs(), 3);
    // The last error comes out, with the number of attempts.
    says(&stage, fail(ErrorCode::E3502));
    let refused = stage.call(call("fetch")).await.unwrap_err().refusal;
    assert_eq!((refused.code, &refused.details.unwrap()["attempts"]), (ErrorCode::E3502, &json!(3)));
    assert_eq!(stage.runs(), 6);
    // What is not worth it is not tried again: the tool's own failure, or a status the manifest does not list.
    for code in [ErrorCode::E3401, ErrorCode::E3301] {
        says(&stage, fail(code));
        assert_eq!(stage.refusal(call("fetch")).await, code);
    }
    assert_eq!(stage.runs(), 8);
    // A wait that is longer than the call may take is not waited.
    let busy = Refusal { retry_after_ms: Some(60_000), ..Refusal::new(ErrorCode::E3504, "busy") };
    says(&stage, ToolScript::Fail(busy));
    assert_eq!(stage.refusal(call("fetch")).await, ErrorCode::E3504);
    assert_eq!(stage.runs(), 9);
}

#[tokio::test]
async fn the_status_of_the_service_itself_is_the_one_that_is_listed() {
    let stage = stage(ResilienceSettings::default()).await;
    let retry = json!({ "max_attempts": 3, "retry_on_status_codes": [502] });
    let patient = json!({ "failure_threshold": 50 });
    stage.publish(mail(json!({ "tool_id": "fetch", "retry_policy": retry, "circuit_breaker_config": patient }))).await;
    let said = |status: u16| {
        ToolScript::Fail(Refusal::new(ErrorCode::E3502, "it went wrong").because(RefusalReason::UpstreamStatus(status)))
    };
    says(&stage, ToolScript::InTurn(vec![said(502), answer()]));
    stage.call(call("fetch")).await.unwrap();
    assert_eq!(stage.runs(), 2);
    for other in [said(500), fail(ErrorCode::E3502)] {
        says(&stage, other);
        assert_eq!(stage.refusal(call("fetch")).await, ErrorCode::E3502);
    }
    assert_eq!(stage.runs(), 4, "neither 500 nor the 503 of the code itself is listed");
}

#[tokio::test]
async fn what_must_not_happen_twice_is_tried_again_only_if_surely_nothing_happened() {
    let stage = stage(ResilienceSettings::default()).await;
    let effects = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
    let retry = json!({ "max_attempts": 3 });
    let patient = json!({ "failure_threshold": 50 });
    stage
        .publish(mail(json!({ "tool_id": "pay", "side_effect_policy": "compensatable", "side_effects": effects,
            "idempotency": {}, "compensation_tool_id": "mail", "retry_policy": retry,
            "circuit_breaker_config": patient })))
        .await;
    says(&stage, ToolScript::InTurn(vec![fail(ErrorCode::E3502), answer()]));
    stage.call(keyed("pay", "k-1")).await.unwrap();
    assert_eq!(stage.runs(), 2, "it was not reached, so it can be tried again");
    says(&stage, fail(ErrorCode::E3503));
    assert_eq!(stage.refusal(keyed("pay", "k-2")).await, ErrorCode::E3413);
    assert_eq!(stage.runs(), 3, "it may have been reached, so it is not");
}

#[tokio::test]
async fn the_budget_of_retries_is_shared_by_everybody() {
    let settings = ResilienceSettings {
        retry_budget: Some(RateQuota::new(1, Duration::from_mins(1)).unwrap()),
        ..ResilienceSettings::default()
    };
    let stage = stage(settings).await;
    let retry = json!({ "max_attempts": 5 });
    let patient = json!({ "failure_threshold": 50 });
    stage.publish(mail(json!({ "tool_id": "fetch", "retry_policy": retry, "circuit_breaker_config": patient }))).await;
    says(&stage, fail(ErrorCode::E3502));
    let refused = stage.call(call("fetch")).await.unwrap_err().refusal;
    assert_eq!((refused.code, stage.runs()), (ErrorCode::E3411, 2));
    let details = refused.details.unwrap();
    assert_eq!((&details["attempts"], &details["last_error"]["code"]), (&json!(2), &json!("E3502")));
}

#[tokio::test]
async fn an_open_breaker_ends_the_attempts_with_the_last_answer_of_the_service() {
    let stage = stage(ResilienceSettings::default()).await;
    let retry = json!({ "max_attempts": 5 });
    stage.publish(mail(json!({ "tool_id": "fetch", "retry_policy": retry }))).await;
    says(&stage, fail(ErrorCode::E3502));
    assert_eq!(stage.refusal(call("fetch")).await, ErrorCode::E3502);
    assert_eq!(stage.runs(), 2, "the second failure has opened it");
}

#[tokio::test]
async fn a_user_may_call_a_tool_as_often_as_its_manifest_says() {
    let stage = stage(ResilienceSettings::default()).await;
    stage.publish(json!({ "tool_id": "rare", "rate_limit": { "max_per_hour": 2, "max_per_day": 3 } })).await;
    let mut tokens = Vec::new();
    for user in ["did:example:ada", "did:example:bob"] {
        tokens.push(stage.mint(json!({ "user_did": user, "tenant": "local", "ttl_seconds": 86_400 })).await);
    }
    for token in &tokens {
        for _ in 0..2 {
            assert_eq!(stage.code(token, "rare").await, None);
        }
        let refused = stage.call_as(Some(token), call("rare")).await.unwrap_err().refusal;
        assert_eq!((refused.code, refused.retry_after_ms), (ErrorCode::E3003, Some(1_800_000)));
        assert_eq!(refused.details.unwrap()["limit"], "user");
    }
    assert_eq!(stage.runs(), 4);
    // The hour has room again, the day has one left.
    stage.step(3_600);
    assert_eq!(stage.code(&tokens[0], "rare").await, None);
    assert_eq!(stage.code(&tokens[0], "rare").await, Some(ErrorCode::E3003));
}

#[tokio::test]
async fn limits_of_installation_tenant_and_service_are_taken_together() {
    let minute = |limit| Some(RateQuota::new(limit, Duration::from_mins(1)).unwrap());
    let settings = ResilienceSettings {
        platform_quota: minute(8),
        tenant_quota: minute(5),
        service_quota: minute(2),
        ..ResilienceSettings::default()
    };
    let stage = stage(settings).await;
    stage.publish(json!({ "tool_id": "greet" })).await;
    for _ in 0..2 {
        stage.call(call("mail")).await.unwrap();
    }
    for _ in 0..4 {
        let refused = stage.call(call("mail")).await.unwrap_err().refusal;
        assert_eq!((refused.code, refused.details.unwrap()["limit"].clone()), (ErrorCode::E3504, json!("service")));
    }
    // The refused ones took nothing from the others.
    for _ in 0..3 {
        stage.call(call("greet")).await.unwrap();
    }
    let refused = stage.call(call("greet")).await.unwrap_err().refusal;
    assert_eq!((refused.code, refused.details.unwrap()["limit"].clone()), (ErrorCode::E3003, json!("tenant")));
    let other = stage.mint(json!({ "tenant": "acme" })).await;
    for _ in 0..3 {
        assert_eq!(stage.code(&other, "greet").await, None);
    }
    let refused = stage.call_as(Some(&other), call("greet")).await.unwrap_err().refusal;
    assert_eq!((refused.code, refused.details.unwrap()["limit"].clone()), (ErrorCode::E3003, json!("platform")));
}

#[tokio::test]
async fn moves_by_hand_are_for_operators_of_the_tenant_and_are_recorded() {
    let stage = stage(ResilienceSettings::default()).await;
    let key: BreakerKey = "mail".parse().unwrap();
    let agent = stage.mint(json!({ "tenant": "local" })).await;
    let refused = stage.kernel.move_breaker(as_holder(&agent), &key, ManualMove::ForceOpen).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3206);
    let operator = stage.mint(json!({ "tenant": "acme", "roles": ["operator"] })).await;
    let refused = stage.kernel.move_breaker(as_holder(&operator), &key, ManualMove::ForceOpen).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3206, "the breaker is not that tenant's");
    let own: BreakerKey = "acme/mail".parse().unwrap();
    let refused = stage.kernel.move_breaker(as_holder(&operator), &own, ManualMove::Close).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3008, "what is not there cannot be closed");
    stage.kernel.move_breaker(as_holder(&operator), &own, ManualMove::ForceOpen).await.unwrap();
    let seen = stage.kernel.breakers(as_holder(&operator), None, BreakerQuery { limit: 10, ..BreakerQuery::default() });
    let seen: Vec<String> = seen.await.unwrap().iter().map(|report| report.key.to_string()).collect();
    assert_eq!(seen, ["acme/mail"]);

    let report = stage.kernel.move_breaker(admin(), &key, ManualMove::ForceOpen).await.unwrap();
    assert_eq!(report.snapshot.mode, BreakerMode::ForcedOpen);
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3501);
    stage.kernel.move_breaker(admin(), &key, ManualMove::Reset).await.unwrap();
    stage.call(call("mail")).await.unwrap();
    let refused = stage.kernel.move_breaker(admin(), &key, ManualMove::HalfOpen).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3408);
    let records = stage.all_records().await;
    let notes: Vec<&str> = records
        .iter()
        .filter(|record| record.action == AuditAction::BreakerMoved)
        .filter_map(|record| record.note.as_deref())
        .collect();
    assert_eq!(
        notes,
        ["acme/mail: forced_open (forced open)", "mail: forced_open (forced open)", "mail: closed (reset)"]
    );
}

#[tokio::test]
async fn the_breaker_of_one_tenants_tools_is_not_that_of_another() {
    let stage = stage(ResilienceSettings::default()).await;
    let author = stage.mint(json!({ "tenant": "acme", "roles": ["tool_author", "agent"] })).await;
    let runs = json!({ "type": "process", "command": ["mail"] });
    let own = test_kernel::manifest(mail(json!({ "tool_id": "own_mail", "execution": runs })));
    stage.kernel.publish(as_holder(&author), own).await.unwrap();
    says(&stage, fail(ErrorCode::E3502));
    for _ in 0..2 {
        assert_eq!(stage.code(&author, "own_mail").await, Some(ErrorCode::E3502));
    }
    assert_eq!(stage.code(&author, "own_mail").await, Some(ErrorCode::E3501));
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3502);
}

/// Five failures open it; `mail` is shared by all tenants.
async fn stage_with_guests() -> TestKernel {
    let stage = TestKernel::with(TestKernelOptions {
        impatient: true,
        resilience: Some(ResilienceSettings::default()),
        ..TestKernelOptions::default()
    })
    .await;
    let five =
        json!({ "failure_threshold": 5, "success_threshold": 1, "timeout_seconds": 20, "half_open_max_calls": 4 });
    stage.publish(mail(json!({ "tool_id": "mail", "circuit_breaker_config": five }))).await;
    stage
}

#[tokio::test]
async fn a_service_that_fails_for_one_guest_is_left_alone_by_that_guest() {
    let stage = stage_with_guests().await;
    let [mallory, acme] =
        [stage.mint(json!({ "tenant": "mallory" })).await, stage.mint(json!({ "tenant": "acme" })).await];
    says(&stage, fail(ErrorCode::E3502));
    for _ in 0..5 {
        assert_eq!(stage.code(&mallory, "mail").await, Some(ErrorCode::E3502));
    }
    assert_eq!(stage.code(&mallory, "mail").await, Some(ErrorCode::E3501));
    assert_eq!(
        (mode(&stage, "mail").await, mode(&stage, "mallory/mail").await),
        (Some(BreakerMode::Closed), Some(BreakerMode::Open))
    );
    says(&stage, answer());
    assert_eq!((stage.code(&acme, "mail").await, stage.call(call("mail")).await.is_ok()), (None, true));
    // Its own people can look at its breaker, and close it.
    let boss = stage.mint(json!({ "tenant": "mallory", "roles": ["operator"] })).await;
    let key: BreakerKey = "mallory/mail".parse().unwrap();
    stage.kernel.move_breaker(as_holder(&boss), &key, ManualMove::Close).await.unwrap();
    assert_eq!(stage.code(&mallory, "mail").await, None);
}

#[tokio::test]
async fn a_service_that_fails_for_several_guests_is_left_alone_by_everybody() {
    let stage = stage_with_guests().await;
    says(&stage, fail(ErrorCode::E3502));
    let mut runs = 0;
    for tenant in ["mallory", "acme", "zeta"] {
        let guest = stage.mint(json!({ "tenant": tenant })).await;
        for _ in 0..2 {
            stage.code(&guest, "mail").await;
        }
        runs = stage.runs();
    }
    assert_eq!((runs, mode(&stage, "mail").await), (5, Some(BreakerMode::Open)));
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3501, "also by the owner");
    stage.step(20);
    // One who fails again does not keep it open for the others.
    let mallory = stage.mint(json!({ "tenant": "mallory" })).await;
    assert_eq!(stage.code(&mallory, "mail").await, Some(ErrorCode::E3502));
    says(&stage, answer());
    let acme = stage.mint(json!({ "tenant": "acme" })).await;
    assert_eq!(stage.code(&acme, "mail").await, None);
    assert_eq!(mode(&stage, "mail").await, Some(BreakerMode::Closed));
}

#[tokio::test]
async fn what_becomes_of_breakers_is_written_down() {
    let stage = stage(ResilienceSettings::default()).await;
    let all = || HistoryQuery { limit: 10, ..HistoryQuery::default() };
    let past = async || {
        let kept = stage.kernel.breaker_history(admin(), None, all()).await.unwrap();
        kept.iter().map(|kept| (kept.key.to_string(), kept.change.from, kept.change.to)).collect::<Vec<_>>()
    };
    // Before anybody follows: what is remembered is written down at the start.
    says(&stage, fail(ErrorCode::E3502));
    for _ in 0..2 {
        stage.call(call("mail")).await.unwrap_err();
    }
    let opened = ("mail".to_owned(), BreakerMode::Closed, BreakerMode::Open);
    let tried = ("mail".to_owned(), BreakerMode::Open, BreakerMode::HalfOpen);
    let failed = ("mail".to_owned(), BreakerMode::HalfOpen, BreakerMode::Open);
    let story = async {
        while past().await != [opened.clone()] {
            tokio::task::yield_now().await;
        }
        stage.step(21);
        stage.call(call("mail")).await.unwrap_err();
        while past().await != [failed.clone(), tried.clone(), opened.clone()] {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = stage.kernel.resilience().unwrap().follow() => panic!("following has ended"),
        told = tokio::time::timeout(Duration::from_secs(30), story) => told.unwrap(),
    }
    let of = |breaker: &str| HistoryQuery { of: Some(breaker.parse::<BreakerKey>().unwrap()), ..all() };
    let other = stage.kernel.breaker_history(admin(), None, of("post")).await.unwrap();
    assert!(other.is_empty());
    let agent = stage.mint(json!({})).await;
    let refused = stage.kernel.breaker_history(as_holder(&agent), None, all()).await.unwrap_err();
    assert_eq!(refused.code.http(), 403);
}

// --------------------------------------------------------------------------------------------------------------- health

/// Learns how many of the calls of each tool came to a result.
#[derive(Debug, Default)]
struct ResultShare(Mutex<HashMap<ToolId, (u64, u64)>>);

#[async_trait::async_trait]
impl CallInsights for ResultShare {
    fn ended(&self, call: &CallEnding<'_>) {
        let mut calls = self.0.lock().unwrap();
        let (results, all) = calls.entry(call.tool.id.clone()).or_default();
        *results += u64::from(call.refusal.is_none());
        *all += 1;
    }

    fn bill(&self, _: &ToolVersion, _: ResourceUsage, _: Option<u64>, _: Duration) -> Costs {
        Costs::default()
    }

    fn score(&self, tool: &ToolVersion) -> Option<(f64, u64)> {
        let calls = self.0.lock().unwrap();
        calls.get(&tool.id).map(|(results, all)| (*results as f64 / *all as f64, *all))
    }

    fn found_out_of_reach(&self, _: &TenantId, _: &Subject, _: &[ToolId]) {}

    async fn happened(&self, _: VersionEvent) {}
}

#[tokio::test]
async fn while_a_tool_is_unwell_one_failure_opens_its_breaker() {
    let settings = ResilienceSettings::default();
    let insights: Option<Arc<dyn CallInsights>> = Some(Arc::new(ResultShare::default()));
    let props =
        TestKernelOptions { impatient: true, insights, resilience: Some(settings), ..TestKernelOptions::default() };
    let stage = TestKernel::with(props).await;
    let config = |health: Option<u8>| {
        let mut config = json!({ "failure_threshold": 100, "timeout_seconds": 20, "minimum_calls": 10 });
        if let Some(percent) = health {
            config["health_percent"] = json!(percent);
        }
        config
    };
    for (tool, health) in [("frail", Some(90)), ("sturdy", None)] {
        let change = json!({ "tool_id": tool, "external_service": tool, "circuit_breaker_config": config(health) });
        stage.publish(mail(change)).await;
    }
    for tool in ["frail", "sturdy"] {
        // A failure in a few calls says nothing, and one among many good ones is no reason.
        says(&stage, fail(ErrorCode::E3502));
        assert_eq!(stage.refusal(call(tool)).await, ErrorCode::E3502);
        says(&stage, answer());
        for _ in 0..60 {
            stage.call(call(tool)).await.unwrap();
        }
        says(&stage, fail(ErrorCode::E3502));
        assert_eq!(stage.refusal(call(tool)).await, ErrorCode::E3502);
        assert_eq!(mode(&stage, tool).await, Some(BreakerMode::Closed), "{tool}");
        // Now more fail than is tolerated, far less than the threshold of the breaker.
        for _ in 0..10 {
            stage.refusal(call(tool)).await;
        }
    }
    assert_eq!(mode(&stage, "sturdy").await, Some(BreakerMode::Closed));
    assert_eq!(mode(&stage, "frail").await, Some(BreakerMode::Open));
    let refused = stage.call(call("frail")).await.unwrap_err().refusal;
    assert_eq!((refused.code, refused.retry_after_ms), (ErrorCode::E3501, Some(20_000)));
    // Trial calls that succeed close it, whatever the score still is.
    stage.step(20);
    says(&stage, answer());
    for _ in 0..3 {
        stage.call(call("frail")).await.unwrap();
    }
    assert_eq!(mode(&stage, "frail").await, Some(BreakerMode::Closed));
}
