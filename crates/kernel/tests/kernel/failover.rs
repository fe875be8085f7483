//! A service with several addresses: the next one is asked when one is left alone or does not answer. (RES-012)

use contract::error::ErrorCode;
use gantry_kernel::resilience::ResilienceSettings;
use ports::resilience::{BreakerMode, ManualMove};
use serde_json::json;

use super::resilience::{answer, call, fail, keyed, mail, mode, says, stage};
use test_kernel::{TestKernel, ToolScript, admin};

/// The stage, with three addresses of the service.
async fn stage_with_addresses() -> TestKernel {
    let stage = stage(ResilienceSettings::default()).await;
    *stage.tool.endpoints.lock().unwrap() = ["a:1", "b:1", "c:1"].map(str::to_owned).to_vec();
    let patient = json!({ "failure_threshold": 2, "success_threshold": 1, "timeout_seconds": 20 });
    stage
        .publish(mail(
            json!({ "tool_id": "find", "retry_policy": { "max_attempts": 3 }, "circuit_breaker_config": patient }),
        ))
        .await;
    stage
}

fn asked(stage: &TestKernel) -> Vec<usize> {
    std::mem::take(&mut *stage.tool.asked.lock().unwrap())
}

#[tokio::test]
async fn a_call_goes_to_the_next_address_and_no_longer_to_one_whose_breaker_is_open() {
    let stage = stage_with_addresses().await;
    says(&stage, ToolScript::At(vec![fail(ErrorCode::E3502), answer(), answer()]));
    for _ in 0..2 {
        stage.call(call("find")).await.unwrap();
        assert_eq!(asked(&stage), [0, 1], "within the same call");
    }
    assert_eq!(mode(&stage, "mail@a:1").await, Some(BreakerMode::Open));
    assert_eq!(mode(&stage, "mail@b:1").await, Some(BreakerMode::Closed));
    stage.call(call("find")).await.unwrap();
    assert_eq!(asked(&stage), [1], "the first is left alone");
    // Two are away: what is open is skipped.
    says(&stage, ToolScript::At(vec![fail(ErrorCode::E3502), fail(ErrorCode::E3503), answer()]));
    for expected in [&[1, 2][..], &[1, 2], &[2]] {
        stage.call(call("find")).await.unwrap();
        assert_eq!(asked(&stage), expected);
    }
    // The first is tried again after its wait, and is the first again when it answers.
    stage.step(20);
    says(&stage, ToolScript::At(vec![answer(), answer(), answer()]));
    for _ in 0..2 {
        stage.call(call("find")).await.unwrap();
        assert_eq!(asked(&stage), [0]);
    }
}

#[tokio::test]
async fn when_every_address_is_left_alone_the_call_is_refused_with_the_soonest_time_to_come_back() {
    let stage = stage_with_addresses().await;
    says(&stage, fail(ErrorCode::E3502));
    for _ in 0..2 {
        let refused = stage.call(call("find")).await.unwrap_err().refusal;
        assert_eq!((refused.code, &refused.details.unwrap()["attempts"]), (ErrorCode::E3502, &json!(3)));
        stage.step(1);
    }
    assert_eq!(asked(&stage), [0, 1, 2, 0, 1, 2]);
    let refused = stage.call(call("find")).await.unwrap_err().refusal;
    assert_eq!((refused.code, refused.retry_after_ms), (ErrorCode::E3501, Some(19_000)));
    assert_eq!(asked(&stage), [0; 0]);
    // Unless it may be answered with what the service said before, wherever that was.
    let patient = json!({ "failure_threshold": 2 });
    let wanted = json!({ "max_age_seconds": 60 });
    stage.publish(mail(json!({ "tool_id": "read", "circuit_breaker_config": patient, "stale_results": wanted }))).await;
    stage.step(20);
    says(&stage, answer());
    stage.call(call("read")).await.unwrap();
    for breaker in ["mail@a:1", "mail@b:1", "mail@c:1"] {
        stage.kernel.move_breaker(admin(), &breaker.parse().unwrap(), ManualMove::ForceOpen).await.unwrap();
    }
    assert!(stage.call(call("read")).await.unwrap().execution_metadata.stale.is_some());
}

#[tokio::test]
async fn what_must_not_happen_twice_is_not_tried_at_another_address() {
    let stage = stage_with_addresses().await;
    let effects = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
    stage
        .publish(mail(json!({ "tool_id": "pay", "side_effect_policy": "compensatable", "side_effects": effects,
            "retry_policy": { "max_attempts": 3 }, "idempotency": {}, "compensation_tool_id": "mail" })))
        .await;
    says(&stage, ToolScript::At(vec![fail(ErrorCode::E3503), answer(), answer()]));
    assert_eq!(stage.refusal(keyed("pay", "k-1")).await, ErrorCode::E3413);
    assert_eq!(asked(&stage), [0]);
    // Nor is one that says so itself; but once the breaker is open, calls go to where they are answered.
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3503);
    assert_eq!(asked(&stage), [0]);
    stage.call(call("mail")).await.unwrap();
    assert_eq!(asked(&stage), [1]);
    stage.call(keyed("pay", "k-2")).await.unwrap();
    assert_eq!(asked(&stage), [1]);
}
