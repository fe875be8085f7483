//! Everything a server can do wrong while it is called.

use std::time::Duration;

use contract::error::ErrorCode;
use gantry_upstreams::spec::ServerSpec;
use ports::executor::{ExecutionReach, Executor as _, ExecutorError, ToolCall};
use serde_json::json;

use crate::rig::{Rig, call, text};

#[tokio::test]
async fn what_is_no_answer_to_a_call_does_not_disturb_it() {
    let rig = Rig::misbehaving(&["--noisy"]);
    for (tool, expected) in [
        ("garbage", "after the garbage"),
        ("wrong_id", "for you"),
        ("twice", "first"),
        ("flood", "dry"),
        ("complain", "complained"),
    ] {
        let result = rig.call(tool, json!({})).await.unwrap();
        assert_eq!(text(&result), expected, "{tool}");
        let after = rig.call("echo", json!({ "after": tool })).await.unwrap();
        assert_eq!(after["structuredContent"]["after"], tool, "the next call gets its own answer");
    }
    assert_eq!(rig.marked("start"), 1, "all of it in one process");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_call_that_may_have_happened_is_said_to_be_unknown_and_is_never_repeated() {
    for tool in ["die", "half"] {
        let rig = Rig::misbehaving(&[]);
        let refused = rig.call_unclassified(tool, json!({})).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::E3413, "{tool}");
        assert_eq!(refused.retryable, Some(false));
        assert!(rig.marked("die") <= 1, "not sent a second time");
        // The server is back for the next call.
        assert!(rig.call("echo", json!({})).await.is_ok());
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn a_pure_call_is_repeated_once_on_a_new_process_and_no_more() {
    let rig = Rig::misbehaving(&[]);
    let result = rig.call("die", json!({ "once": true })).await.unwrap();
    assert_eq!(text(&result), "alive");
    assert_eq!((rig.marked("start"), rig.marked("die")), (2, 2));
    let refused = rig.call("die", json!({})).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3502);
    assert_eq!(rig.marked("die"), 4, "twice in all");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_message_of_a_hundred_megabytes_is_told_to_its_call_and_does_not_end_the_house() {
    let rig = Rig::misbehaving(&[]);
    let refused = rig.call_unclassified("big", json!({ "megabytes": 100 })).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3414);
    let result = rig.call("big", json!({ "megabytes": 3 })).await.unwrap();
    assert_eq!(text(&result).len(), 3 << 20, "what is within the bound comes whole");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_cancelled_call_is_taken_back_and_its_late_answer_reaches_nobody() {
    for switches in [&[][..], &["--modern"][..]] {
        let rig = Rig::misbehaving(switches);
        let sleeping = rig.run(call("sleep", "unclassified", json!({ "stubborn": true })));
        tokio::select! {
            outcome = sleeping => panic!("{outcome:?}"),
            () = rig.until("it sleeps", |rig| rig.marked("sleep") == 1) => {}
        }
        rig.until("it was told", |rig| rig.marked("cancelled") == 1).await;
        for n in 0..5 {
            let after = rig.call("echo", json!({ "n": n })).await.unwrap();
            assert_eq!(after["structuredContent"]["n"], n);
        }
        assert_eq!(rig.marked("start"), 1, "the connection is as good as before");
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn many_calls_share_one_connection_and_each_gets_its_own_answer() {
    let rig = Rig::misbehaving(&[]);
    let calls = (0..100).map(|n| {
        let rig = &rig;
        async move { (n, rig.call("echo", json!({ "n": n })).await.unwrap()) }
    });
    for (n, result) in futures_util::future::join_all(calls).await {
        assert_eq!(result["structuredContent"]["n"], n);
    }
    assert_eq!(rig.marked("start"), 1, "concurrent first calls make one start");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn who_comes_when_the_queue_is_full_is_turned_away() {
    let mut bounds = crate::rig::bounds();
    (bounds.calls_max, bounds.queue_max) = (1, 1);
    let rig = Rig::with(bounds);
    rig.apply(rig.spec(&[]));
    let sleeping = rig.call("sleep", json!({}));
    tokio::pin!(sleeping);
    tokio::select! {
        outcome = &mut sleeping => panic!("{outcome:?}"),
        () = rig.until("it sleeps", |rig| rig.marked("sleep") == 1) => {}
    }
    let waits = rig.call("echo", json!({}));
    tokio::pin!(waits);
    let waited = tokio::time::timeout(Duration::from_millis(20), &mut waits).await;
    assert!(waited.is_err(), "the second waits");
    let error = rig.executor.execute(call("echo", "unclassified", json!({}))).await.unwrap_err();
    assert_eq!((error.refusal.code, error.reach), (ErrorCode::E3701, ExecutionReach::NotSent));
    rig.upstreams.apply(Vec::new());
}

#[tokio::test]
async fn calls_of_one_tenant_leave_room_on_a_server_that_all_share() {
    let mut bounds = crate::rig::bounds();
    (bounds.calls_max, bounds.queue_max) = (8, 8);
    let rig = Rig::with(bounds);
    rig.apply(ServerSpec { shareable: true, ..rig.spec(&[]) });
    let of = |tenant: &str, agent: usize, tool: &str| ToolCall {
        tenant: tenant.parse().unwrap(),
        agent: format!("{tenant}-{agent}").parse().unwrap(),
        ..call(tool, "pure", json!({}))
    };
    let held = futures_util::future::join_all((0..12).map(|agent| rig.run(of("mallory", agent, "sleep"))));
    let others = async {
        rig.until("calls of the hostile tenant", |rig| rig.marked("sleep") >= 6).await;
        for tenant in ["acme", "zeta"] {
            rig.run(of(tenant, 0, "echo")).await.unwrap();
        }
        assert_eq!(rig.marked("sleep"), 6, "three quarters of eight");
    };
    tokio::select! {
        outcomes = held => panic!("{outcomes:?}"),
        () = others => {}
    }
    rig.upstreams.apply(Vec::new());
}

#[tokio::test]
async fn servers_that_cannot_be_met_are_refused_with_the_reason() {
    for (switches, code, word) in [
        (&["--version", "9999-01-01"][..], ErrorCode::E3502, "Protocol version mismatch"),
        (&["--modern", "--version", "2099-01-01"][..], ErrorCode::E3502, "Protocol version mismatch"),
        (&["--exit-at-start"][..], ErrorCode::E3502, "could not be started"),
    ] {
        let rig = Rig::misbehaving(switches);
        let ExecutorError { refusal: refused, reach, .. } =
            rig.executor.execute(call("echo", "unclassified", json!({}))).await.unwrap_err();
        assert_eq!((refused.code, reach), (code, ExecutionReach::NotSent), "{refused:?}");
        assert!(refused.message.contains(word), "{refused:?}");
        rig.upstreams.shut_down().await;
    }
    // One that never answers.
    let rig = Rig::new();
    let mut spec = rig.spec(&["--mute"]);
    spec.upkeep.start_timeout_seconds = 1;
    rig.apply(spec);
    let error = rig.executor.execute(call("echo", "unclassified", json!({}))).await.unwrap_err();
    assert_eq!((error.refusal.code, error.reach), (ErrorCode::E3503, ExecutionReach::NotSent));
    rig.upstreams.shut_down().await;
    // A program that is not there.
    let rig = Rig::new();
    let mut spec = rig.spec(&[]);
    let gantry_upstreams::spec::ServerReach::Stdio { command, .. } = &mut spec.reach else { panic!() };
    *command = "/usr/bin/no-such-program".into();
    rig.apply(spec);
    let error = rig.executor.execute(call("echo", "unclassified", json!({}))).await.unwrap_err();
    assert_eq!((error.refusal.code, error.reach), (ErrorCode::E3405, ExecutionReach::NotSent));
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn an_old_server_that_dies_of_a_new_question_is_met_in_the_old_way() {
    let rig = Rig::misbehaving(&["--die-of-discover"]);
    assert_eq!(rig.call("echo", json!({})).await.unwrap_err().code, ErrorCode::E3502);
    rig.until("it is asked in the old way", |rig| rig.state() == gantry_upstreams::ServerState::Ready).await;
    assert!(rig.call("echo", json!({})).await.is_ok());
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_new_server_that_is_slow_to_start_is_not_taken_for_an_old_one() {
    let rig = Rig::misbehaving(&["--modern", "--slow-to-start"]);
    assert!(rig.call("echo", json!({})).await.is_ok());
    assert_eq!(rig.upstreams.status()[0].era, Some(gantry_upstreams::ProtocolEra::Modern));
    assert_eq!(rig.marked("start"), 1);
    rig.upstreams.shut_down().await;
}
