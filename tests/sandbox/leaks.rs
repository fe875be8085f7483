//! After a thousand calls that ended in every way, the machine is as it was.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;

use super::traces::{Traces, marker, wait_until_gone};
use super::*;
use crate::support::wait_for;

const CALLS: usize = 1000;
/// Calls in flight.
const AT_ONCE: usize = 12;
/// Calls whose callers hung up run on for a while, so more than are in flight; and fewer than hang up in all, so that a
/// place that is not given back would be missed.
const PLACES: &str = "64";
/// The last call is answered before the last of its directories is removed.
const SETTLES_WITHIN: Duration = Duration::from_secs(20);

/// Ends as it is told to.
const ENDS: &str = r#"
read -r line
case "$line" in
    *crash*) kill -SEGV $$ ;;
    *fail*) echo no >&2; exit 3 ;;
    *stay*) sleep 600 & sleep 600 ;;
    *leave*) sleep 600 & echo 1 ;;
    *) echo data > /tmp/scratch; echo 1 ;;
esac
"#;

/// What the call is told, how it ends, and whether its caller waits for that.
const WAYS: [(&str, &str, bool); 8] = [
    ("go", "", true),
    ("crash", "E3404", true),
    ("go", "", true),
    ("fail", "E3401", true),
    ("leave", "", true),
    ("stay", "E3402", true),
    ("go", "", true),
    ("stay", "", false),
];

async fn one(gantry: &Gantry, number: usize) -> (&'static str, String) {
    let (word, _, waits) = WAYS[number % WAYS.len()];
    let limits = if word == "stay" { json!({ "timeout_seconds": 0.3 }) } else { json!({}) };
    let call = bounded(gantry, "ends", json!({ "how": word }), limits);
    if waits {
        return (word, call.await.code().to_owned());
    }
    // The caller hangs up somewhere between the connection and the deadline; where, is different each time.
    let patience = Duration::from_millis(5 + (number as u64 * 7) % 200);
    let _ = tokio::time::timeout(patience, call).await;
    ("hung up", String::new())
}

#[tokio::test]
async fn a_thousand_calls_leave_nothing() {
    let word = marker();
    let workshop = Workshop::with([Tool::shell("ends", ENDS).marked(&word)]);
    let data = PathBuf::from(workshop.path("data"));
    let gantry =
        workshop.open_with(Start::new().data(&data).env("GANTRY_LIMITS__CONCURRENT_CALLS_PER_AGENT", PLACES)).await;
    // Whatever is made once is made now.
    for number in 0..WAYS.len() {
        one(&gantry, number).await;
    }
    wait_until_gone(&word);
    let places = [Path::new(workshop.home.path()), Path::new("/dev/shm")];
    let before = wait_for("a quiet server", || Some(Traces::of(&gantry, &places)).filter(Traces::is_quiet));
    let mut ends: BTreeMap<(&str, String), usize> = BTreeMap::new();
    {
        let calls = futures_util::stream::iter(0..CALLS).map(|number| one(&gantry, number)).buffer_unordered(AT_ONCE);
        let mut calls = std::pin::pin!(calls);
        while let Some(end) = calls.next().await {
            *ends.entry(end).or_default() += 1;
        }
    }
    let each = CALLS / WAYS.len();
    let expected = [
        ("go", "", 3),
        ("crash", "E3404", 1),
        ("fail", "E3401", 1),
        ("leave", "", 1),
        ("stay", "E3402", 1),
        ("hung up", "", 1),
    ];
    assert_eq!(ends, expected.into_iter().map(|(word, code, times)| ((word, code.to_owned()), times * each)).collect());
    wait_until_gone(&word);
    assert_eq!(settled(&gantry, &places, &before), before);
}

/// The traces, once they are those of before or there has been time enough for it.
fn settled(gantry: &Gantry, places: &[&Path], before: &Traces) -> Traces {
    let start = Instant::now();
    wait_for("traces to compare", || {
        let now = Traces::of(gantry, places);
        (now == *before || start.elapsed() > SETTLES_WITHIN).then_some(now)
    })
}
