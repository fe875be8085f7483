//! Starts, restarts, heartbeats, drains and ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use contract::error::ErrorCode;
use contract::ids::TenantId;
use gantry_upstreams::observer::UnheardKind;
use gantry_upstreams::spec::{ServerReach, ServerSpec};
use gantry_upstreams::{ServerDefinition, ServerState, UpstreamEvent};
use serde_json::json;

use crate::rig::{Rig, call, home, text};

#[tokio::test]
async fn a_server_that_never_lasts_is_given_up_with_an_alert_and_comes_back_by_itself() {
    let rig = Rig::new();
    let mut spec = rig.spec(&["--exit-at-start"]);
    spec.upkeep.max_restarts = 3;
    rig.apply(spec);
    assert!(rig.call("echo", json!({})).await.is_err());
    rig.until("it is given up", |rig| rig.state() == ServerState::Unavailable).await;
    assert_eq!(*rig.watching.availability.lock().unwrap(), [false]);
    assert_eq!(rig.counted.times(|event| *event == UpstreamEvent::GivenUp), 1);
    assert_eq!(rig.marked("start"), 4, "one start and three restarts");
    let refused = rig.call("echo", json!({})).await.unwrap_err();
    assert!(matches!(refused.code, ErrorCode::E3108 | ErrorCode::E3502), "{refused:?}");
    rig.until("it is probed again", |rig| rig.marked("start") > 4).await;
    assert_eq!(rig.watching.availability.lock().unwrap().len(), 1, "told once");
    // Whatever was wrong is mended.
    rig.apply(rig.spec(&[]));
    rig.until("it is back", |rig| rig.state() == ServerState::Ready).await;
    rig.until("that is told", |rig| *rig.watching.availability.lock().unwrap() == [false, true]).await;
    assert!(rig.call("echo", json!({})).await.is_ok());
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_server_that_does_not_answer_its_heartbeat_is_replaced() {
    let rig = Rig::new();
    let mut spec = rig.spec(&["--deaf-to-ping"]);
    spec.upkeep.health_check_seconds = 1;
    rig.apply(spec);
    assert!(rig.call("echo", json!({})).await.is_ok());
    rig.until("it is started anew", |rig| rig.marked("start") >= 2).await;
    rig.until("it says why", |rig| rig.upstreams.status()[0].restarts >= 1).await;
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_server_that_answers_its_heartbeat_stays() {
    for switches in [&[][..], &["--modern"][..]] {
        let rig = Rig::new();
        let mut spec = rig.spec(switches);
        (spec.upkeep.health_check_seconds, spec.upkeep.idle_stop_seconds) = (1, 3);
        rig.apply(spec);
        assert!(rig.call("echo", json!({})).await.is_ok());
        // Two heartbeats fit in before it is idle too long.
        rig.until("it is stopped because nobody wants it", |rig| rig.state() == ServerState::Stopped).await;
        assert_eq!(rig.marked("start"), 1);
        assert!(rig.call("echo", json!({})).await.is_ok(), "it is started again when it is wanted");
        assert_eq!(rig.marked("start"), 2);
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn on_a_restart_running_calls_finish_on_the_old_process_and_new_ones_go_to_the_new() {
    let rig = Rig::misbehaving(&[]);
    let before = rig.call("pid", json!({})).await.unwrap();
    let sleeping = rig.call("sleep", json!({ "seconds": 1.5 }));
    tokio::pin!(sleeping);
    tokio::select! {
        outcome = &mut sleeping => panic!("{outcome:?}"),
        () = rig.until("it sleeps", |rig| rig.marked("sleep") == 1) => {}
    }
    let (slept, restarted) = tokio::join!(sleeping, async {
        rig.upstreams.restart(&TenantId::home(), "misbehaving").await?;
        rig.call("pid", json!({})).await
    });
    assert_eq!(text(&slept.unwrap()), "awake");
    let after = restarted.unwrap();
    assert_eq!((rig.marked("start"), rig.marked("cancelled")), (2, 0));
    assert_eq!(after["structuredContent"]["starts"], 2);
    assert_eq!(before["structuredContent"]["starts"], 1);
    assert_eq!(rig.upstreams.restart(&TenantId::home(), "nobody").await.unwrap_err().code, ErrorCode::E3108);
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_restart_that_fails_keeps_the_old_one() {
    let rig = Rig::misbehaving(&["--starts-once"]);
    assert!(rig.call("echo", json!({})).await.is_ok());
    assert_eq!(rig.upstreams.restart(&TenantId::home(), "misbehaving").await.unwrap_err().code, ErrorCode::E3502);
    assert_eq!(rig.marked("start"), 2);
    assert!(rig.call("echo", json!({})).await.is_ok(), "the old one serves on");
    rig.upstreams.shut_down().await;
}

/// Changes that cannot come to life.
fn broken(rig: &Rig, what: &str) -> ServerSpec {
    let mut spec = rig.spec(match what {
        "it dies" => &["--exit-at-start"],
        "it is mute" => &["--mute"],
        _ => &[],
    });
    spec.upkeep.start_timeout_seconds = 1;
    let ServerReach::Stdio { command, .. } = &mut spec.reach else { panic!() };
    if what == "it is not there" {
        *command = "/usr/bin/no-such-program".into();
    }
    spec
}

#[tokio::test]
async fn a_change_that_does_not_come_to_life_leaves_the_old_one_serving() {
    for what in ["it is not there", "it dies", "it is mute"] {
        let rig = Rig::misbehaving(&[]);
        let first = rig.call("pid", json!({})).await.unwrap();
        let pid = rig.upstreams.status()[0].pid;
        let spec = broken(&rig, what);
        rig.apply(spec);
        rig.until("the change was tried more than once", |rig| {
            rig.counted.times(|event| matches!(event, UpstreamEvent::Started { done: false, .. })) >= 2
        })
        .await;
        let status = rig.upstreams.status().remove(0);
        assert_eq!((status.state, status.pid), (ServerState::Ready, pid), "{what}");
        assert!(status.last_error.is_some(), "{what}: the operator sees why");
        let after = rig.call("pid", json!({})).await.unwrap();
        assert_eq!(text(&after), text(&first), "{what}: the same process answers");
        // Whatever was wrong is mended: the successor takes over.
        rig.apply(rig.spec(&["--noisy"]));
        rig.until("the successor serves", |rig| rig.upstreams.status()[0].pid.is_some_and(|new| Some(new) != pid))
            .await;
        assert!(rig.call("pid", json!({})).await.is_ok());
        assert_eq!(rig.upstreams.status()[0].last_error, None, "{what}");
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn whoever_waits_for_a_change_finds_the_successor_or_the_reason() {
    let rig = Rig::misbehaving(&[]);
    assert!(rig.call("echo", json!({})).await.is_ok());
    let server = |spec| vec![ServerDefinition { tenant: home(), name: "misbehaving".into(), spec }];
    rig.upstreams.apply(server(rig.spec(&["--tools", "3"]))).settled().await;
    let tools = rig.upstreams.list_tools(&home(), "misbehaving").await.unwrap();
    assert!(tools.iter().any(|tool| tool["name"] == "extra_2"), "these are the successor's tools");
    rig.upstreams.apply(server(rig.spec(&["--exit-at-start"]))).settled().await;
    let status = rig.upstreams.status().remove(0);
    assert_eq!(status.state, ServerState::Ready);
    assert!(status.last_error.is_some());
    // Nothing to wait for: nobody has wanted this one yet.
    rig.upstreams.apply(Vec::new()).settled().await;
    rig.upstreams.apply(server(rig.spec(&["--mute"]))).settled().await;
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_change_that_is_taken_back_leaves_the_process_that_was_there() {
    let rig = Rig::misbehaving(&[]);
    assert!(rig.call("echo", json!({})).await.is_ok());
    let pid = rig.upstreams.status()[0].pid;
    rig.apply(rig.spec(&["--exit-at-start"]));
    rig.until("the change was tried", |rig| rig.upstreams.status()[0].last_error.is_some()).await;
    rig.apply(rig.spec(&[]));
    rig.until("nothing is wrong any more", |rig| rig.upstreams.status()[0].last_error.is_none()).await;
    let status = rig.upstreams.status().remove(0);
    assert_eq!((status.state, status.pid), (ServerState::Ready, pid));
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn an_old_one_that_dies_while_its_successor_does_not_start_is_not_brought_back() {
    let rig = Rig::misbehaving(&[]);
    assert!(rig.call("echo", json!({})).await.is_ok());
    rig.apply(rig.spec(&["--exit-at-start"]));
    rig.until("the change was tried", |rig| rig.upstreams.status()[0].last_error.is_some()).await;
    assert!(rig.call_unclassified("die", json!({})).await.is_err());
    rig.until("it is gone", |rig| matches!(rig.state(), ServerState::Backoff | ServerState::Unavailable)).await;
    assert!(rig.call("echo", json!({})).await.is_err(), "what the operator has replaced is not started again");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn what_is_taken_from_a_server_is_taken_at_once_even_if_it_does_not_start_without() {
    let rig = Rig::misbehaving(&[]);
    assert!(rig.call("echo", json!({})).await.is_ok());
    let mut less = rig.spec(&[]);
    let ServerReach::Stdio { permissions, .. } = &mut less.reach else { panic!() };
    permissions.clear();
    rig.apply(less);
    rig.until("the change holds", |rig| matches!(rig.state(), ServerState::Backoff | ServerState::Unavailable)).await;
    assert!(rig.call("echo", json!({})).await.is_err());
    rig.until("nothing of the old one is left", |rig| rig.processes().is_empty()).await;
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_server_is_asked_to_end_then_told_and_then_ended_with_its_whole_tree() {
    // What it ignores, whether SIGTERM was needed, and what is the last word about it.
    for (switches, told, last) in [
        (&[][..], false, "[gantry] it ended\n"),
        (&["--stays-until-told"][..], true, "[gantry] it ended with code 9\n"),
        (&["--stays"][..], true, "[gantry] it was ended\n"),
        (&["--stays", "--offspring"][..], true, "[gantry] it was ended\n"),
        // The program itself goes by itself; what it leaves behind does not.
        (&["--offspring"][..], false, "[gantry] it ended\n"),
    ] {
        let rig = Rig::misbehaving(switches);
        assert!(rig.call("echo", json!({})).await.is_ok());
        let pid = rig.upstreams.status()[0].pid.unwrap();
        assert!(!rig.processes().is_empty());
        rig.upstreams.shut_down().await;
        assert_eq!(rig.processes(), Vec::<String>::new(), "{switches:?}: something is left");
        // The first process of a sandbox says that it is alone, and leaves.
        let first = std::path::Path::new("/proc").join(pid.to_string());
        rig.until("the sandbox is gone", |_| !first.try_exists().unwrap()).await;
        rig.until("the last word is written", |rig| rig.log().ends_with(last)).await;
        assert_eq!(rig.log().contains("[gantry] it was told to end"), told, "{switches:?}: {}", rig.log());
        assert_eq!(rig.marked("told"), usize::from(switches.contains(&"--stays-until-told")), "{switches:?}");
        assert_eq!(rig.call("echo", json!({})).await.unwrap_err().code, ErrorCode::E3108);
    }
}

#[tokio::test]
async fn what_happens_to_servers_is_told_to_those_who_count() {
    let mut bounds = crate::rig::bounds();
    bounds.log.file_bytes_max = 10_000;
    let rig = Rig::with(bounds);
    rig.apply(rig.spec(&[]));
    assert!(rig.call("echo", json!({})).await.is_ok());
    for tool in ["wrong_id", "progress", "garbage", "complain"] {
        assert!(rig.call(tool, json!({})).await.is_ok(), "{tool}");
    }
    assert_eq!(rig.call_unclassified("die", json!({})).await.unwrap_err().code, ErrorCode::E3413);
    let again = UpstreamEvent::Started { done: true, again: true };
    rig.until("it is back", |rig| {
        rig.counted.times(|event| *event == again) == 1 && rig.counted.standing(ServerState::Ready) == 1
    })
    .await;
    let counted = Arc::clone(&rig.counted);
    let times = |event: UpstreamEvent| counted.times(|told| *told == event);
    assert_eq!(times(UpstreamEvent::CallBegun), 6);
    assert_eq!(times(UpstreamEvent::CallEnded), 6);
    assert_eq!(times(UpstreamEvent::Indeterminate), 1);
    assert_eq!(times(UpstreamEvent::Started { done: true, again: false }), 1);
    // One answer for somebody else and one without an id.
    assert_eq!(times(UpstreamEvent::Dropped(UnheardKind::Answer)), 2);
    assert_eq!(times(UpstreamEvent::Dropped(UnheardKind::Notification)), 1, "somebody else's progress");
    assert!(times(UpstreamEvent::Dropped(UnheardKind::Garbage)) > 0);
    assert!(counted.times(|told| matches!(told, UpstreamEvent::LogDropped { bytes } if *bytes > 0)) > 0);
    assert_eq!((counted.standing(ServerState::Ready), counted.standing(ServerState::Stopped)), (1, 0));
    assert_eq!(counted.names(), [Some("misbehaving".to_owned())].into());
    rig.upstreams.shut_down().await;
    for state in [ServerState::Ready, ServerState::Draining, ServerState::Stopped, ServerState::Backoff] {
        assert_eq!(counted.standing(state), 0, "{state:?}: who is gone stands nowhere");
    }
}

#[tokio::test]
async fn each_tenant_has_a_process_of_its_own_unless_the_server_is_for_all() {
    let rig = Rig::misbehaving(&[]);
    let of = |tenant: &str| {
        let mut call = call("environment", "pure", json!({}));
        call.tenant = tenant.parse().unwrap();
        call
    };
    for tenant in ["local", "acme", "local", "acme"] {
        rig.run(of(tenant)).await.unwrap();
    }
    assert_eq!(rig.marked("start"), 2);
    let status = rig.upstreams.status();
    let serves: Vec<String> = status.iter().map(|one| one.serves.as_ref().unwrap().to_string()).collect();
    assert_eq!(serves, ["acme", "local"]);
    let mut shared = rig.spec(&[]);
    shared.shareable = true;
    rig.apply(shared);
    for tenant in ["local", "acme"] {
        rig.run(of(tenant)).await.unwrap();
    }
    assert_eq!(rig.marked("start"), 2, "the owner's process serves both");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn changes_are_told_once_in_a_while_and_tools_that_change_in_the_middle_of_a_call_are_listed_anew() {
    let rig = Rig::misbehaving(&[]);
    let before = rig.upstreams.list_tools(&home(), "misbehaving").await.unwrap().len();
    rig.until("the start is told", |rig| rig.watching.changed.load(Ordering::SeqCst) == 1).await;
    rig.call("grow", json!({})).await.unwrap();
    rig.until("the change is told", |rig| rig.watching.changed.load(Ordering::SeqCst) == 2).await;
    assert_eq!(rig.upstreams.list_tools(&home(), "misbehaving").await.unwrap().len(), before + 1);
    rig.call("flood", json!({})).await.unwrap();
    assert!(rig.watching.changed.load(Ordering::SeqCst) <= 4, "a flood is one change");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn what_a_server_writes_to_its_standard_error_is_in_its_log() {
    let rig = Rig::misbehaving(&["--noisy"]);
    rig.call("complain", json!({ "lines": 3 })).await.unwrap();
    let deadline = std::time::Duration::from_secs(10);
    let lines = tokio::time::timeout(deadline, async {
        loop {
            let lines = rig.upstreams.log_tail(&TenantId::home(), "misbehaving", 100).await.unwrap();
            if lines.iter().any(|line| line.ends_with("last words")) {
                return lines;
            }
            tokio::task::yield_now().await;
        }
    })
    .await
    .unwrap();
    assert!(lines.iter().any(|line| line.contains("started as")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("Welcome to the noisy server!")), "{lines:?}");
    assert!(lines.iter().all(|line| line.len() < 5_000));
    assert!(rig.folder.path().join("logs/misbehaving.log").try_exists().unwrap());
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_server_that_is_taken_away_is_drained() {
    let rig = Rig::misbehaving(&[]);
    let sleeping = rig.call("sleep", json!({ "seconds": 1 }));
    tokio::pin!(sleeping);
    tokio::select! {
        outcome = &mut sleeping => panic!("{outcome:?}"),
        () = rig.until("it sleeps", |rig| rig.marked("sleep") == 1) => {}
    }
    rig.upstreams.apply(vec![ServerDefinition { tenant: home(), name: "other".into(), spec: rig.spec(&[]) }]);
    assert_eq!(rig.call("echo", json!({})).await.unwrap_err().code, ErrorCode::E3108);
    assert_eq!(text(&sleeping.await.unwrap()), "awake");
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_start_that_goes_on_does_not_hold_up_the_end() {
    let rig = Rig::misbehaving(&["--mute"]);
    let calling = rig.call("echo", json!({}));
    tokio::select! {
        outcome = calling => panic!("{outcome:?}"),
        () = rig.until("it is being started", |rig| rig.marked("start") == 1) => {}
    }
    let ended = tokio::time::timeout(std::time::Duration::from_secs(10), rig.upstreams.shut_down()).await;
    assert!(ended.is_ok(), "the start would have taken twenty seconds");
}
