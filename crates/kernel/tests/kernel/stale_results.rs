//! While a service is left alone: the last good result of a tool that only reads, for whoever may have it. (RES-019)

use contract::error::ErrorCode;
use gantry_kernel::resilience::ResilienceSettings;
use ports::resilience::ManualMove;
use serde_json::json;

use super::resilience::{call, fail, keyed, mail, says, stage};
use test_kernel::{TestKernel, ToolScript, admin};

/// A stage with `news`, which may be answered with what it said in the last minute, and `weather`, which is the same for all.
async fn stage_with_former_results() -> TestKernel {
    let stage = stage(ResilienceSettings::default()).await;
    stage.publish(mail(json!({ "tool_id": "news", "stale_results": { "max_age_seconds": 60 } }))).await;
    stage
        .publish(mail(json!({ "tool_id": "weather", "stale_results": { "max_age_seconds": 60, "shared": true } })))
        .await;
    stage
}

fn text(said: &str) -> ToolScript {
    ToolScript::Answer(json!({ "text": said }))
}

async fn open(stage: &TestKernel) {
    stage.kernel.move_breaker(admin(), &"mail".parse().unwrap(), ManualMove::ForceOpen).await.unwrap();
}

async fn close(stage: &TestKernel) {
    stage.kernel.move_breaker(admin(), &"mail".parse().unwrap(), ManualMove::Close).await.unwrap();
}

#[tokio::test]
async fn while_a_service_is_left_alone_the_last_good_result_is_answered_and_marked_until_it_is_too_old() {
    let stage = stage_with_former_results().await;
    says(&stage, text("old"));
    stage.call(call("news")).await.unwrap();
    stage.step(5);
    says(&stage, text("new"));
    let fresh = stage.call(call("news")).await.unwrap();
    assert_eq!((fresh.cached, fresh.execution_metadata.stale), (false, None));
    // What is not good is not kept: neither a failure nor what breaks the promise of the manifest.
    says(&stage, fail(ErrorCode::E3401));
    assert_eq!(stage.refusal(call("news")).await, ErrorCode::E3401);
    says(&stage, ToolScript::Answer(json!({ "text": 7 })));
    assert_eq!(stage.refusal(call("news")).await, ErrorCode::E3303);
    says(&stage, fail(ErrorCode::E3502));
    for _ in 0..2 {
        assert_eq!(stage.refusal(call("news")).await, ErrorCode::E3502, "a breaker that is closed says nothing old");
    }
    let runs = stage.runs();
    stage.step(7);
    let stale = stage.call(call("news")).await.unwrap();
    assert_eq!((stale.cached, &stale.result), (true, &json!({ "text": "new" })));
    assert_eq!(stale.execution_metadata.stale.map(|notice| notice.age_ms), Some(7_000));
    assert_eq!(stale.execution_metadata.started_at, fresh.execution_metadata.started_at, "when the service was asked");
    assert_ne!(stale.invocation_id, fresh.invocation_id, "it is a call of its own");
    assert_eq!(stage.runs(), runs, "nobody was asked");
    // Other parameters have no result, nor has a tool that does not ask for it.
    let other = json!({ "tool_id": "news", "parameters": { "name": "Bob" } });
    assert_eq!(stage.refusal(other).await, ErrorCode::E3501);
    assert_eq!(stage.refusal(call("mail")).await, ErrorCode::E3501);
    open(&stage).await;
    stage.step(53);
    assert!(stage.call(call("news")).await.unwrap().cached);
    stage.step(1);
    assert_eq!(stage.refusal(call("news")).await, ErrorCode::E3501, "older than a minute");
    let records = stage.records().await;
    let record = records.iter().find(|record| record.invocation_id == Some(stale.invocation_id)).unwrap();
    let note = record.note.as_deref().unwrap();
    assert!(note.starts_with("stale: ") && note.contains(&fresh.invocation_id.to_string()), "{note}");
    assert!(note.contains("7000 ms"), "{note}");
}

#[tokio::test]
async fn nobody_is_given_what_another_caller_was_given_unless_it_is_the_same_for_all() {
    let stage = stage_with_former_results().await;
    let ann = stage.mint(json!({ "sub": "ann" })).await;
    let again = stage.mint(json!({ "sub": "ann" })).await;
    let bob = stage.mint(json!({ "sub": "bob" })).await;
    let for_uma = stage.mint(json!({ "sub": "ann", "user_did": "did:example:uma" })).await;
    let narrow = stage.mint(json!({ "sub": "ann", "tools": [{ "tool_id": "news" }] })).await;
    for tool in ["news", "weather"] {
        stage.call_as(Some(&ann), call(tool)).await.unwrap();
    }
    open(&stage).await;
    for (token, of_its_own) in [(&ann, true), (&again, true), (&bob, false), (&for_uma, false), (&narrow, false)] {
        let answer = stage.call_as(Some(token), call("news")).await;
        match answer {
            Ok(answer) => assert!(of_its_own && answer.cached),
            Err(failed) => assert_eq!((of_its_own, failed.refusal.code), (false, ErrorCode::E3501)),
        }
    }
    assert!(stage.call_as(Some(&bob), call("weather")).await.unwrap().cached);
    // Whoever may not call is not answered, whatever is kept.
    assert_eq!(stage.call_as(Some(&narrow), call("weather")).await.unwrap_err().refusal.code, ErrorCode::E3204);
    // Another tenant has nothing of it, though it calls the same tool.
    let other = stage.mint(json!({ "sub": "ann", "tenant": "umbrella" })).await;
    assert_eq!(stage.call_as(Some(&other), call("weather")).await.unwrap_err().refusal.code, ErrorCode::E3501);
}

#[tokio::test]
async fn what_the_present_caller_may_not_see_is_taken_out_of_a_former_result() {
    let stage = stage_with_former_results().await;
    says(&stage, text("write to ada@example.com"));
    let before = stage.call(call("news")).await.unwrap();
    assert_eq!(before.result, json!({ "text": "write to ada@example.com" }));
    open(&stage).await;
    let masked = r#"@id("all") @obligations("redact=text") permit(principal, action, resource);"#;
    stage.kernel.put_policies(admin(), None, masked.into()).await.unwrap();
    let stale = stage.call(call("news")).await.unwrap();
    assert!(stale.cached && !stale.result.to_string().contains("ada@example.com"), "{}", stale.result);
    // And the other way round: what was taken out of an answer is there for who may see it.
    close(&stage).await;
    assert!(!stage.call(call("news")).await.unwrap().result.to_string().contains("ada@example.com"));
    open(&stage).await;
    let plain = r#"@id("all") permit(principal, action, resource);"#;
    stage.kernel.put_policies(admin(), None, plain.into()).await.unwrap();
    assert_eq!(stage.call(call("news")).await.unwrap().result, before.result);
    let none = r#"@id("none") forbid(principal, action, resource);"#;
    stage.kernel.put_policies(admin(), None, none.into()).await.unwrap();
    assert_eq!(stage.refusal(call("news")).await, ErrorCode::E3206, "the present call must be allowed");
}

#[tokio::test]
async fn a_former_result_is_not_kept_under_the_key_of_the_call_that_got_it() {
    let stage = stage_with_former_results().await;
    says(&stage, text("old"));
    stage.call(call("news")).await.unwrap();
    open(&stage).await;
    assert!(stage.call(keyed("news", "k-1")).await.unwrap().execution_metadata.stale.is_some());
    close(&stage).await;
    says(&stage, text("new"));
    let asked = stage.call(keyed("news", "k-1")).await.unwrap();
    assert_eq!((asked.cached, asked.result), (false, json!({ "text": "new" })));
}

#[tokio::test]
async fn only_a_pure_tool_with_a_breaker_may_ask_to_be_answered_with_what_it_said_before() {
    let stage = stage(ResilienceSettings::default()).await;
    let wanted = json!({ "max_age_seconds": 60 });
    let effects = json!([{ "resource": "r", "op": "UPDATE", "scope": "s" }]);
    for (change, why) in [
        (json!({ "tool_id": "no_breaker", "stale_results": wanted }), "this tool has none"),
        (
            mail(json!({ "tool_id": "writes", "side_effect_policy": "idempotent", "side_effects": effects,
                "idempotency": {}, "stale_results": wanted })),
            "only pure tools",
        ),
    ] {
        let refused = stage.kernel.publish(admin(), test_kernel::manifest(change)).await.unwrap_err();
        assert!(format!("{refused:?}").contains(why), "{refused:?}");
    }
}
