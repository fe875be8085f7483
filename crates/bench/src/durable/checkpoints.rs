//! What a checkpoint costs: a state of 1 MB, whole and as a difference after a change of one percent, sealed, kept and opened
//! again. Here and not in the store, because sealing is the kernel's.

use std::path::Path;
use std::time::{Duration, Instant};

use contract::envelope::CheckpointKind;
use kernel::checkpoints::codec::{self, GZIP_FROM_BYTES};
use kernel::checkpoints::record::CheckpointRecord;
use ports::checkpoint_store::{CheckpointHead, CheckpointId, CheckpointStore};
use ports::clock::UnixMillis;
use ports::saved_state::SavedState;
use serde::Serialize;
use serde_json::{Value, json};
use store::measure::StoreMeasureError;
use store::sqlite::{SqliteOptions, SqliteStore};

/// Rows of the state; together about 1 MB.
const ROWS: usize = 12_000;
/// How long what was saved is kept.
const KEPT_FOR: Duration = Duration::from_hours(1);

/// What it costs: medians.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CheckpointCost {
    pub(super) rounds: u32,
    /// The state as text.
    pub(super) content_bytes: usize,
    pub(super) whole: KeepCost,
    /// After a change of one percent of the rows.
    pub(super) one_percent: KeepCost,
    pub(super) open_ms: f64,
}

/// One way to keep it.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct KeepCost {
    pub(super) bytes: usize,
    pub(super) seal_ms: f64,
    pub(super) seal_and_save_ms: f64,
}

/// The spans of one way, round by round.
#[derive(Default)]
struct Spans {
    bytes: usize,
    sealed: Vec<Duration>,
    saved: Vec<Duration>,
}

/// Saves and opens so many times, in a fresh file.
pub(super) async fn checkpoint_cost(file: &Path, rounds: u32) -> Result<CheckpointCost, StoreMeasureError> {
    let store = SqliteStore::open(file, &SqliteOptions::default())?;
    let (mut whole, mut change, mut opened_in, mut content_bytes) = (Spans::default(), Spans::default(), Vec::new(), 0);
    for round in 0..rounds {
        let before = record(u128::from(round) * 2 + 1, state(0))?;
        let began = Instant::now();
        let (sealed, base) = codec::seal(&before, None, GZIP_FROM_BYTES)?;
        whole.sealed.push(began.elapsed());
        store.save(&sealed, None, Some(KEPT_FOR)).await?;
        whole.saved.push(began.elapsed());

        let after = record(u128::from(round) * 2 + 2, state(ROWS / 100))?;
        let began = Instant::now();
        let (difference, _) = codec::seal(&after, Some(&base), GZIP_FROM_BYTES)?;
        change.sealed.push(began.elapsed());
        store.save(&difference, None, Some(KEPT_FOR)).await?;
        change.saved.push(began.elapsed());
        (content_bytes, whole.bytes, change.bytes) =
            (base.content.len(), sealed.payload.len(), difference.payload.len());

        let began = Instant::now();
        let chain = store.chain(&after.head.tenant, after.head.id).await?;
        let (opened, _) = codec::open(&chain)?;
        opened_in.push(began.elapsed());
        if opened != after {
            return Err("what was opened is not what was saved".into());
        }
    }
    store.close().await;
    let (whole, one_percent, open_ms) = (whole.medians(), change.medians(), median(opened_in));
    Ok(CheckpointCost { rounds, content_bytes, whole, one_percent, open_ms })
}

impl Spans {
    fn medians(self) -> KeepCost {
        KeepCost { bytes: self.bytes, seal_ms: median(self.sealed), seal_and_save_ms: median(self.saved) }
    }
}

fn record(number: u128, custom_state: Value) -> Result<CheckpointRecord, StoreMeasureError> {
    let head = CheckpointHead {
        id: format!("{:032x}", 0x019a_0000_0000_7000_8000_0000_0000_0000_u128 + number).parse::<CheckpointId>()?,
        tenant: "local".parse()?,
        invocation: "01990000-0000-7000-8000-000000000001".parse()?,
        owner: "agent-1".parse()?,
        tool: "demo.index".parse()?,
        version: "1.0.0".parse()?,
        kind: CheckpointKind::Micro,
        label: None,
        parent: None,
        saved_at: UnixMillis(1_800_000_000_000),
    };
    Ok(CheckpointRecord { head, state: SavedState { custom_state, ..SavedState::default() } })
}

/// Many small rows, of which the first of each hundred may have changed.
fn state(changed: usize) -> Value {
    let row = |n: usize| {
        let sum = if n.is_multiple_of(100) && n / 100 < changed { n * 31 } else { n * 7_919 };
        json!({ "id": n, "path": format!("/data/in/file-{n:05}.csv"), "rows": sum % 10_007, "sum": format!("{sum:020x}") })
    };
    json!({ "next": changed, "done": (0..ROWS).map(row).collect::<Vec<_>>() })
}

fn median(mut spans: Vec<Duration>) -> f64 {
    spans.sort_unstable();
    spans.get(spans.len() / 2).map_or(0.0, |span| span.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_change_of_one_percent_is_kept_in_less_than_a_tenth_of_the_whole() {
        let directory = tempfile::tempdir().unwrap();
        let cost = checkpoint_cost(&directory.path().join("gantry.db"), 1).await.unwrap();
        assert!(cost.content_bytes > 1_000_000, "{cost:?}");
        assert!(cost.one_percent.bytes * 10 < cost.whole.bytes, "{cost:?}");
    }
}
