//! Whose calls a rate limit counts together, and who looks at it without being counted.

use contract::error::ErrorCode;
use gantry_kernel::DelegationRequest;
use gantry_kernel::resilience::ResilienceSettings;
use serde_json::json;
use test_kernel::{TestKernel, TestKernelOptions, arrival, as_holder};

/// A tool that each user may call twice a day.
async fn stage_with_a_limit_of_two() -> TestKernel {
    let resilience = Some(ResilienceSettings::default());
    let stage =
        TestKernel::with(TestKernelOptions { impatient: true, resilience, ..TestKernelOptions::default() }).await;
    stage.publish(json!({ "tool_id": "rare", "rate_limit": { "max_per_day": 2 } })).await;
    stage
}

async fn named(stage: &TestKernel, token: &str, name: &str) -> String {
    let request = DelegationRequest { sub: Some(name.parse().unwrap()), ..DelegationRequest::default() };
    stage.kernel.delegate_token(as_holder(token), &request).await.unwrap().token
}

#[tokio::test]
async fn names_made_by_delegation_share_the_limit_of_their_root_and_spend_nobody_elses() {
    let stage = stage_with_a_limit_of_two().await;
    let (mallory, victim) =
        (stage.mint(json!({ "sub": "mallory" })).await, stage.mint(json!({ "sub": "victim" })).await);
    let fresh = named(&stage, &mallory, "fresh").await;
    let borrowed = named(&stage, &mallory, "victim").await;
    assert_eq!(stage.code(&fresh, "rare").await, None);
    assert_eq!(stage.code(&borrowed, "rare").await, None);
    for token in [&mallory, &fresh, &borrowed] {
        assert_eq!(stage.code(token, "rare").await, Some(ErrorCode::E3003));
    }
    for _ in 0..2 {
        assert_eq!(stage.code(&victim, "rare").await, None);
    }
    // On behalf of a person, the person's calls are counted, whichever agent makes them.
    let person = stage.mint(json!({ "sub": "ann", "roles": [] })).await;
    for agent in ["one", "other"] {
        let agent = named(&stage, &person, agent).await;
        assert_eq!(stage.code(&agent, "rare").await, None);
    }
    assert_eq!(stage.code(&person, "rare").await, Some(ErrorCode::E3003));
}

#[tokio::test]
async fn explaining_takes_nothing_from_a_limit_and_says_when_it_is_used_up() {
    let stage = stage_with_a_limit_of_two().await;
    let agent = stage.mint(json!({ "sub": "ann" })).await;
    let explained = async || {
        let arrival = arrival(Some(&agent), json!({ "tool_id": "rare", "parameters": { "name": "Ada" } }));
        stage.kernel.explain(arrival).await.unwrap().refusal.map(|refusal| refusal.code)
    };
    for _ in 0..5 {
        assert_eq!(explained().await, None);
    }
    for _ in 0..2 {
        assert_eq!(stage.code(&agent, "rare").await, None);
    }
    assert_eq!(explained().await, Some(ErrorCode::E3003));
    assert_eq!(stage.runs(), 2);
    let ended = stage.observer.0.lock().unwrap().len();
    assert_eq!(ended, 2, "an explanation is no call");
}
