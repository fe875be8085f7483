//! What the log costs, for benches: appending while it is short and when it is long, checking all of it, proving one record.
//! (A feature; never on in a release.)
//!
//! Everything is done for real, in a folder that the caller names. A short and a long log are appended to in turns, so that what
//! the disk does meanwhile is done to both, and the median of the pairs counts. What the numbers are judged by belongs to
//! whoever asks (`cargo xtask bench --only audit`, and the example of this crate).
#![expect(clippy::disallowed_methods, reason = "it measures by the machine's clock")]

use std::fs;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use contract::canonical;
use contract::envelope::InvocationStatus;
use contract::ids::{InvocationId, TraceId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use ports::audit_sink::{
    AuditAction, AuditRecord, DecisionReason, DelegationLink, JsonText, RecordedActor, RecordedDecision, ResultShape,
};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use serde::Serialize;
use serde_json::json;

use crate::verify::{VerifyTrust, verify_dir};
use crate::writer::LogWriter;
use crate::{FileLog, LogOptions, recovery};

/// Records of the short log.
const SHORT: u64 = 1_000;
/// Records that are appended at once while the long log is made.
const FILL: u64 = 512;
/// Records that are appended at once while it is measured: about what gathers at a thousand calls a second.
const BATCH: u64 = 16;
/// Who the records are of.
const AGENTS: u64 = 100;
/// The moment of the first record.
const BEGIN_MS: i64 = 1_800_000_000_000;

/// Why something could not be measured.
pub type LogMeasureError = Box<dyn std::error::Error + Send + Sync>;

/// How much is measured.
#[derive(Debug, Clone, Copy)]
pub struct MeasureExtent {
    /// Records of the long log.
    pub records: u64,
    /// Pairs of appends.
    pub appends: usize,
    /// Records that are proven.
    pub proofs: u64,
}

/// What it costs.
#[derive(Debug, Clone, Serialize)]
pub struct LogCost {
    pub records: u64,
    /// The whole of the long log's lines.
    pub log_bytes: u64,
    /// Appending as fast as it goes, with a sync of each batch.
    pub filled_per_second: f64,
    /// One batch of the short and of the long log, the median, and the median ratio of the pairs.
    pub batch_records: u64,
    pub short_us: f64,
    pub long_us: f64,
    pub long_to_short: f64,
    /// The same as time on a core: what is done, without the waiting for the disk.
    pub short_cpu_us: f64,
    pub long_cpu_us: f64,
    pub long_to_short_cpu: f64,
    pub verify_per_second: f64,
    pub open_ms: f64,
    /// A record's proof, made and written as JSON.
    pub proof_p50_us: f64,
    pub proof_p99_us: f64,
}

/// Measures logs in `folder`, which is empty. Blocks, and for a minute if the log is long.
pub fn log_cost(folder: &Path, extent: MeasureExtent) -> Result<LogCost, LogMeasureError> {
    let (mut short, mut long) = (Site::make(folder, "short")?, Site::make(folder, "long")?);
    short.fill(SHORT)?;
    let start = Instant::now();
    long.fill(extent.records)?;
    let filled_per_second = per_second(extent.records, start.elapsed());

    let (mut of_short, mut of_long) = (Vec::new(), Vec::new());
    for turn in 0..extent.appends {
        // Who comes second may profit from who came first; so they change places.
        if turn.is_multiple_of(2) {
            of_short.push(short.timed()?);
            of_long.push(long.timed()?);
        } else {
            of_long.push(long.timed()?);
            of_short.push(short.timed()?);
        }
    }
    let pairs = || of_short.iter().zip(&of_long);
    let long_to_short = median(pairs().map(|(short, long)| long.wall / short.wall).collect());
    let long_to_short_cpu = median(pairs().map(|(short, long)| long.cpu / short.cpu).collect());

    let (dir, options, id) = (folder.join("long"), long.options.clone(), long.writer.mark.id.clone());
    let records = long.end()?;
    short.end()?;
    let start = Instant::now();
    let report = verify_dir(&dir, &VerifyTrust::default())?;
    let verify_per_second = per_second(records, start.elapsed());
    if !report.whole || report.records != records {
        return Err(format!("the log that was written is not whole: {:?}", report.faults).into());
    }
    let start = Instant::now();
    let log = FileLog::open(&dir, &options)?;
    let open_ms = start.elapsed().as_secs_f64() * 1e3;
    let mut proofs = proofs(&log, &id, records, extent.proofs)?;
    proofs.sort_by(f64::total_cmp);
    Ok(LogCost {
        records,
        log_bytes: lines_bytes(&dir)?,
        filled_per_second,
        batch_records: BATCH,
        short_us: median(of_short.iter().map(|took| took.wall * 1e6).collect()),
        long_us: median(of_long.iter().map(|took| took.wall * 1e6).collect()),
        long_to_short,
        short_cpu_us: median(of_short.iter().map(|took| took.cpu * 1e6).collect()),
        long_cpu_us: median(of_long.iter().map(|took| took.cpu * 1e6).collect()),
        long_to_short_cpu,
        verify_per_second,
        open_ms,
        proof_p50_us: proofs.get(proofs.len() / 2).copied().unwrap_or_default() * 1e6,
        proof_p99_us: proofs.get(proofs.len() * 99 / 100).copied().unwrap_or_default() * 1e6,
    })
}

/// How long each of `count` proofs took, of records all over the log.
fn proofs(log: &FileLog, id: &str, records: u64, count: u64) -> Result<Vec<f64>, LogMeasureError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut took = Vec::new();
        for number in 0..count {
            // A step without a common divisor with most lengths, so that no part is left out.
            let seq = number.wrapping_mul(7_919_777) % records;
            let start = Instant::now();
            let proof = log.prove(&format!("{id}-{seq}")).await?.ok_or("a record cannot be proven")?;
            std::hint::black_box(serde_json::to_string(&proof)?);
            took.push(start.elapsed().as_secs_f64());
        }
        Ok(took)
    })
}

fn lines_bytes(dir: &Path) -> Result<u64, LogMeasureError> {
    let mut bytes = 0;
    for number in crate::segments::numbers(dir)? {
        bytes += fs::metadata(dir.join(crate::segments::file_name(number)))?.len();
    }
    Ok(bytes)
}

// -------------------------------------------------------------------------------------------------------------- Site

/// A log that is measured.
struct Site {
    options: LogOptions,
    writer: LogWriter,
    next: u64,
}

/// How long something took, in seconds.
struct Took {
    wall: f64,
    /// On a core.
    cpu: f64,
}

impl Site {
    fn make(folder: &Path, name: &str) -> Result<Self, LogMeasureError> {
        let key = folder.join(format!("{name}.key"));
        let options = LogOptions::new(key, Arc::new(Still), Arc::new(Counted::default()));
        let writer = recovery::open(&folder.join(name), &options)?;
        Ok(Self { options, writer, next: 0 })
    }

    fn fill(&mut self, records: u64) -> Result<(), LogMeasureError> {
        while self.next < records {
            self.append(FILL.min(records - self.next))?;
        }
        Ok(())
    }

    /// As the log does it: records, and a checkpoint when enough came.
    fn append(&mut self, count: u64) -> Result<Took, LogMeasureError> {
        let records = (self.next..self.next + count).map(sample).collect::<Result<Vec<_>, _>>()?;
        self.next += count;
        let (start, cpu) = (Instant::now(), on_cpu()?);
        self.writer.append(&records)?;
        self.writer.sync()?;
        if self.writer.uncovered() >= self.options.checkpoint_records {
            self.writer.checkpoint(UnixMillis(BEGIN_MS))?;
        }
        Ok(Took { wall: start.elapsed().as_secs_f64(), cpu: on_cpu()? - cpu })
    }

    fn timed(&mut self) -> Result<Took, LogMeasureError> {
        self.append(BATCH)
    }

    /// How many records there are in the end.
    fn end(mut self) -> Result<u64, LogMeasureError> {
        self.writer.close(UnixMillis(BEGIN_MS))?;
        Ok(self.writer.size())
    }
}

/// The record of a call as most are: allowed, of a tool without effects, with small parameters.
fn sample(number: u64) -> Result<AuditRecord, LogMeasureError> {
    let agent = number % AGENTS;
    let parameters =
        json!({ "query": format!("storage costs of region {agent}"), "limit": 20, "sort": ["date", "name"] });
    let mut trace = [7; 16];
    trace.iter_mut().zip(number.to_be_bytes()).for_each(|(byte, new)| *byte ^= new);
    Ok(AuditRecord {
        at: UnixMillis(BEGIN_MS).plus(Duration::from_millis(number)),
        action: AuditAction::InvocationFinished,
        trace_id: TraceId::from_bytes(trace),
        invocation_id: Some(format!("018f3c2e-7b1a-7c3d-9e4f-{number:012x}").parse::<InvocationId>()?),
        who: Some(Arc::new(RecordedActor {
            tenant: "acme".parse()?,
            subject: format!("did:example:agent-{agent}").parse()?,
            user: Some("did:example:ann".parse()?),
            token_id: Some("018f3c2e-7b1a-7c3d-9e4f-000000000001".into()),
            chain: vec![DelegationLink { subject: "did:example:ann".parse()?, token_id: Some("t-1".into()) }],
        })),
        tool: Some("reports.search_documents".parse()?),
        version: Some(Version::new(1, 4, 2)),
        status: Some(InvocationStatus::Success),
        code: None,
        parameters_digest: Some(canonical::digest(&parameters)),
        parameters: Some(JsonText::of(&parameters)),
        judged: Some(Box::new(RecordedDecision {
            decision: Some(DecisionReason { allowed: true, reason: "token".into() }),
            side_effects: Some(SideEffectPolicy::Pure),
            result_digest: Some(canonical::digest(&json!(number))),
            result_shape: Some(ResultShape::of(&json!(number))),
            ..RecordedDecision::default()
        })),
        duration_ms: Some(number % 977),
        usage: None,
        cost: None,
        note: None,
    })
}

#[derive(Debug)]
struct Still;

impl Clock for Still {
    fn now(&self) -> UnixMillis {
        UnixMillis(BEGIN_MS)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

/// Never the same bytes twice. The keys made from it sign logs that are thrown away.
#[derive(Debug, Default)]
struct Counted(AtomicU64);

impl Entropy for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        bytes.iter_mut().zip(number.to_le_bytes().into_iter().cycle()).for_each(|(byte, new)| *byte = new);
    }
}

/// Seconds that this thread has been on a core.
fn on_cpu() -> Result<f64, LogMeasureError> {
    let figures = fs::read_to_string("/proc/thread-self/schedstat")?;
    let nanoseconds: u64 = figures.split_whitespace().next().ok_or("the system tells no time of threads")?.parse()?;
    Ok(Duration::from_nanos(nanoseconds).as_secs_f64())
}

fn per_second(count: u64, time: Duration) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from) / time.as_secs_f64()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_measures_a_log_that_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let cost = log_cost(folder.path(), MeasureExtent { records: 3_000, appends: 4, proofs: 20 }).unwrap();
        // The log's own first record comes on top.
        assert_eq!(cost.records, 3_000 + 4 * BATCH + 1);
        assert!(cost.verify_per_second > 0.0 && cost.long_to_short > 0.0 && cost.proof_p50_us > 0.0, "{cost:?}");
    }
}
