//! What does a checkpoint cost? Build it in release: `cargo run --release -p gantry-store --example checkpoint_cost`.
//!
//! Seals a state of 1 MB, whole and as a difference after a change of one percent, keeps both in a fresh SQLite store, and
//! opens them again. The goals: saving 1 MB within 20 ms, the difference under a tenth of the whole. One JSON object on
//! stdout: medians in milliseconds, sizes in bytes.
#![expect(clippy::print_stdout, reason = "a command: its output is its purpose")]
#![expect(clippy::disallowed_methods, reason = "it measures real time")]

use std::error::Error;
use std::time::{Duration, Instant};

use contract::envelope::CheckpointKind;
use gantry_store::sqlite::{Options, SqliteStore};
use kernel::checkpoints::codec::{self, GZIP_FROM_BYTES};
use kernel::checkpoints::record::{CheckpointRecord, SavedState};
use kernel::ports::checkpoint_store::{CheckpointHead, CheckpointId, CheckpointStore};
use kernel::ports::clock::UnixMillis;
use serde_json::{Value, json};

/// Rows of the state; together about 1 MB.
const ROWS: usize = 12_000;
/// Saves of each kind.
const ROUNDS: u128 = 20;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(&directory.path().join("cost.db"), &Options::default())?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let (mut sealing, mut saving, mut change_sealing, mut change_saving, mut opening) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut content_bytes, mut whole_bytes, mut change_bytes) = (0, 0, 0);
    for round in 0..ROUNDS {
        let whole = record(round * 2 + 1, state(0))?;
        let began = Instant::now();
        let (sealed, base) = codec::seal(&whole, None, GZIP_FROM_BYTES)?;
        sealing.push(began.elapsed());
        runtime.block_on(store.save(&sealed, None, Some(Duration::from_hours(1))))?;
        saving.push(began.elapsed());
        let changed = record(round * 2 + 2, state(ROWS / 100))?;
        let began = Instant::now();
        let (change, _) = codec::seal(&changed, Some(&base), GZIP_FROM_BYTES)?;
        change_sealing.push(began.elapsed());
        runtime.block_on(store.save(&change, None, Some(Duration::from_hours(1))))?;
        change_saving.push(began.elapsed());
        (content_bytes, whole_bytes, change_bytes) = (base.content.len(), sealed.payload.len(), change.payload.len());
        let began = Instant::now();
        let chain = runtime.block_on(store.chain(&changed.head.tenant, changed.head.id))?;
        let (opened, _) = codec::open(&chain)?;
        opening.push(began.elapsed());
        if opened != changed {
            return Err("what was opened is not what was saved".into());
        }
    }
    let figures = json!({
        "content_bytes": content_bytes,
        "whole": { "bytes": whole_bytes, "seal_ms": median(sealing), "seal_and_save_ms": median(saving) },
        "one_percent": { "bytes": change_bytes, "seal_ms": median(change_sealing), "seal_and_save_ms": median(change_saving) },
        "open_ms": median(opening),
    });
    println!("{figures}");
    Ok(())
}

fn record(n: u128, custom_state: Value) -> Result<CheckpointRecord, Box<dyn Error>> {
    let head = CheckpointHead {
        id: format!("{:032x}", 0x019a_0000_0000_7000_8000_0000_0000_0000_u128 + n).parse::<CheckpointId>()?,
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
