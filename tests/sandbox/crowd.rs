//! Many at once: no call fails for want of anything but its own limits.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;

use super::*;

/// Raises the number of calls that one agent may have running.
const PER_AGENT: &str = "GANTRY_LIMITS__CONCURRENT_CALLS_PER_AGENT";

/// Calls a tool so many times at once, and counts the answers by status and code.
async fn at_once(gantry: &Gantry, id: &str, calls: usize) -> BTreeMap<(u16, String), usize> {
    let answers = futures_util::stream::iter(0..calls).map(|_| call(gantry, id, json!({}))).buffer_unordered(calls);
    let mut counts = BTreeMap::new();
    let mut answers = std::pin::pin!(answers);
    while let Some(answer) = answers.next().await {
        *counts.entry((answer.status, answer.code().to_owned())).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn sixty_four_calls_at_once_all_succeed() {
    // Long enough that many live at once.
    let workshop = Workshop::with([Tool::shell("short", "sleep 0.2; echo 1")]);
    let gantry = workshop.open_with(Start::new().env(PER_AGENT, "64")).await;
    assert_eq!(at_once(&gantry, "short", 64).await, BTreeMap::from([((200, String::new()), 64)]), "{}", gantry.log());
}

#[tokio::test]
async fn two_hundred_starts_at_once_all_succeed() {
    let workshop = Workshop::with([Tool::shell("short", "echo 1")]);
    let gantry = workshop.open_with(Start::new().env(PER_AGENT, "200")).await;
    assert_eq!(at_once(&gantry, "short", 200).await, BTreeMap::from([((200, String::new()), 200)]), "{}", gantry.log());
}

/// EXEC-005: four at once, as it comes out of the box.
#[tokio::test]
async fn the_fifth_call_of_one_agent_waits_and_comes_through_once_one_of_the_others_has_ended() {
    let workshop = Workshop::new();
    let place = workshop.place("open", &[]);
    let waits = format!("while [ ! -e {}/go ]; do sleep 0.02; done; echo 1", place.display());
    workshop.add(&Tool::shell("waits", &waits).may(&[format!("filesystem:read:{}", place.display())]));
    let gantry = workshop.open().await;
    let mut calls: futures_util::stream::FuturesUnordered<_> =
        (0..5).map(|_| call(&gantry, "waits", json!({}))).collect();
    let waiting = async {
        let line = "gantry_places_waiting{resource=\"sandboxed_calls\"} 1\n";
        while !gantry.get("/metrics").await.text.contains(line) {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        early = calls.next() => panic!("{}", early.unwrap().text),
        () = waiting => {}
    }
    std::fs::write(place.join("go"), "").unwrap();
    while let Some(answer) = calls.next().await {
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    assert_eq!(result(&gantry, "waits", json!({})).await, 1);
}
