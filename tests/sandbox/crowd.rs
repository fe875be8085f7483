//! Many at once: no call fails for want of anything but its own limits.

use std::collections::BTreeMap;

use futures_util::StreamExt as _;

use super::*;

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
    let gantry = workshop.open().await;
    assert_eq!(at_once(&gantry, "short", 64).await, BTreeMap::from([((200, String::new()), 64)]), "{}", gantry.log());
}

#[tokio::test]
async fn two_hundred_starts_at_once_all_succeed() {
    let workshop = Workshop::with([Tool::shell("short", "echo 1")]);
    let gantry = workshop.open().await;
    assert_eq!(at_once(&gantry, "short", 200).await, BTreeMap::from([((200, String::new()), 200)]), "{}", gantry.log());
}
