//! Keeps the state of one running call: decides when something is written, as what, and against which base.
//!
//! A tool may save as often as it likes. Micro-checkpoints gather in one place: the newest wins, and it is written when the
//! interval is over ([`tend`]) or when the call fails. All states that pass through that place share one id until it is
//! written, so an id a tool was given is always one that can come to be. Named and macro-checkpoints are written at once.
//!
//! Invariants
//! - KEEP-1: a micro-checkpoint that cannot be written is tried again after the interval and never fails the tool.
//! - KEEP-2: what waits stays where it is until it is written, so a future that is dropped in between loses nothing.
//! - KEEP-3: macro-checkpoints are deltas against macro-checkpoints only, so the end of the short-lived ones takes no base
//!   away from them.
//!
//! - KEEP-4: an attempt that has lost its invocation to another one saves nothing, ends nothing, and is ended itself.
//!
//! Not here: whose checkpoints may be gone on from (`resuming`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use contract::envelope::{CheckpointKind, CheckpointNote};
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId, ToolId};
use contract::version::Version;
use policy::CallOwner;
use ports::checkpoint_store::{
    ATTEMPT_LEASE, CheckpointEnding, CheckpointHead, CheckpointId, SaveOutcome, SealedCheckpoint,
};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::registry_store::StoreError;
use ports::saved_state::SavedState;
use ports::tool_companion::{ToolProgress, ToolSnapshot};
use tokio::sync::Notify;

use super::codec::{self, CodecError, DeltaBase};
use super::plan::CheckpointPlan;
use super::record::{CheckpointRecord, LABEL_CHARS_MAX, checked_size};
use super::{Checkpoints, ResumedState, RunningResume};

/// Checkpoints that an answer names; the newest ones.
const NOTES_MAX: usize = 100;
/// Named and macro-checkpoints of one call: they live long.
const DURABLE_PER_CALL_MAX: u32 = 256;
/// What is smaller is sealed where it is; handing it to another thread would take longer.
const INLINE_BYTES_MAX: usize = 64 << 10;
/// How long the end of a call waits for its last state to be written.
const LAST_WRITE_MAX: Duration = Duration::from_secs(5);

/// Whose state it is.
#[derive(Debug, Clone)]
pub(crate) struct CheckpointOwner {
    pub(crate) tenant: TenantId,
    pub(crate) invocation: InvocationId,
    pub(crate) owner: CallOwner,
    pub(crate) tool: ToolId,
    pub(crate) version: Version,
    /// Under which the store was told that this attempt runs, and is told again and again. `None`: nobody else can have the
    /// invocation, because nobody else has the store.
    pub(crate) fence: Option<u64>,
}

/// Keeps the state of one call.
#[derive(Debug)]
pub(crate) struct CheckpointKeeper {
    checkpoints: Arc<Checkpoints>,
    plan: CheckpointPlan,
    whose: CheckpointOwner,
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    /// The tool's last word about how far it is.
    progress: Mutex<(Option<f64>, Option<String>)>,
    line: tokio::sync::Mutex<Line>,
    /// Something waits to be written.
    changed: Notify,
    /// Did an earlier attempt of this very call leave something behind?
    continues: bool,
    _underway: RunningResume,
}

/// What was written so far, and what waits.
#[derive(Debug)]
struct Line {
    /// When a micro-checkpoint was written last; at first, when the call began.
    since: Duration,
    waiting: Option<Waiting>,
    /// The newest of all, and the newest of those that are not micro.
    newest: Option<DeltaBase>,
    durable: Option<DeltaBase>,
    parent: Option<CheckpointId>,
    notes: VecDeque<CheckpointNote>,
    /// The newest that outlives the success of the call.
    lasting: Option<CheckpointId>,
    durable_count: u32,
}

/// A state that is to be written.
#[derive(Debug, Clone)]
struct Waiting {
    id: CheckpointId,
    at: UnixMillis,
    state: SavedState,
    /// About how large it is.
    bytes: usize,
}

/// What an answer says about checkpoints.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct CheckpointSummary {
    pub(crate) notes: Vec<CheckpointNote>,
    /// The newest that is still kept.
    pub(crate) newest: Option<CheckpointId>,
}

/// Writes what waits whenever its time has come, and says that the attempt runs. Ends only if another attempt has taken the
/// invocation over (KEEP-4); otherwise whoever runs the call drops it.
pub(crate) async fn tend(keeper: Option<&CheckpointKeeper>) {
    let Some(keeper) = keeper else { return std::future::pending().await };
    let writing = async {
        loop {
            match keeper.due_in().await {
                None => keeper.changed.notified().await,
                Some(left) => {
                    keeper.clock.sleep(left).await;
                    keeper.write_waiting(&mut *keeper.line.lock().await).await;
                }
            }
        }
    };
    tokio::select! {
        () = writing => {}
        () = keeper.until_lost() => {}
    }
}

impl CheckpointKeeper {
    pub(crate) fn new(
        checkpoints: Arc<Checkpoints>,
        plan: CheckpointPlan,
        whose: CheckpointOwner,
        (resumed, underway): (Option<&ResumedState>, RunningResume),
        (clock, entropy): (Arc<dyn Clock>, Arc<dyn Entropy>),
    ) -> Self {
        // A base is of the same invocation, so only another attempt of the same call can go on with its chain.
        let own = resumed.filter(|resumed| resumed.record.head.invocation == whose.invocation);
        let line = Line {
            since: clock.monotonic(),
            waiting: None,
            newest: own.map(|own| own.base.clone()),
            durable: own.filter(|own| own.record.head.kind == CheckpointKind::Macro).map(|own| own.base.clone()),
            parent: resumed.map(|resumed| resumed.record.head.id),
            notes: VecDeque::new(),
            lasting: own.filter(|own| own.record.head.kind != CheckpointKind::Micro).map(|own| own.record.head.id),
            durable_count: 0,
        };
        Self {
            checkpoints,
            plan,
            continues: own.is_some(),
            whose,
            clock,
            entropy,
            progress: Mutex::default(),
            line: tokio::sync::Mutex::new(line),
            changed: Notify::new(),
            _underway: underway,
        }
    }

    /// Says again and again that the attempt runs, until another one has taken the invocation over.
    async fn until_lost(&self) {
        if self.whose.fence.is_none() {
            return std::future::pending().await;
        }
        loop {
            self.clock.sleep(ATTEMPT_LEASE / 3).await;
            if self.is_lost(ATTEMPT_LEASE).await {
                let CheckpointOwner { tool, invocation, .. } = &self.whose;
                tracing::warn!(%tool, %invocation, "another attempt has taken the invocation over; this one is ended");
                return;
            }
        }
    }

    /// Says that the attempt runs for this long. A store that does not answer has not given it to anybody else yet.
    async fn is_lost(&self, span: Duration) -> bool {
        let CheckpointOwner { tenant, invocation, fence: Some(fence), .. } = &self.whose else { return false };
        match self.checkpoints.store.claim(tenant, *invocation, Some(*fence), span).await {
            Ok(held) => held.is_none(),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, %invocation, "that a call runs could not be said");
                false
            }
        }
    }

    /// The tool has come this far; the next checkpoint says so.
    pub(crate) fn progress(&self, progress: &ToolProgress) {
        let mut known = self.progress.lock_unpoisoned();
        let (percent, phase) = &mut *known;
        *percent = progress.percent.or(*percent);
        if progress.phase.is_some() {
            phase.clone_from(&progress.phase);
        }
    }

    /// Keeps a state, now or soon.
    pub(crate) async fn save(&self, snapshot: ToolSnapshot) -> Result<CheckpointId, Refusal> {
        let ToolSnapshot { name, state, counters, binaries, document_versions } = snapshot;
        let (progress_percent, phase) = self.progress.lock_unpoisoned().clone();
        let state = SavedState { progress_percent, phase, counters, custom_state: state, binaries, document_versions };
        let bytes = checked_size(&state).map_err(|error| error.refusal())?;
        let kind = self.plan.kind(name.as_deref());
        let at = self.clock.now();
        let mut line = self.line.lock().await;
        if kind == CheckpointKind::Micro {
            let id = line.waiting.as_ref().map_or_else(|| self.new_id(at), |waiting| waiting.id);
            line.waiting = Some(Waiting { id, at, state, bytes });
            if self.left(&line).is_zero() {
                self.write_waiting(&mut line).await;
            } else {
                self.changed.notify_one();
            }
            return Ok(id);
        }
        if line.durable_count >= DURABLE_PER_CALL_MAX {
            return Err(Refusal::new(
                ErrorCode::E3906,
                format!("a call may keep at most {DURABLE_PER_CALL_MAX} named checkpoints"),
            )
            .hint("leave the name out: of those without one the newest is kept")
            .retryable(false));
        }
        let label = name.map(|name| name.chars().take(LABEL_CHARS_MAX).collect::<String>());
        let durable = Waiting { id: self.new_id(at), at, state, bytes };
        self.write(&mut line, &durable, kind, label).await.map_err(|error| error.refusal())?;
        line.durable_count += 1;
        // It is older than what was just kept.
        line.waiting = None;
        Ok(durable.id)
    }

    /// The call has ended: its last state is written if it may be wanted again, and what is not wanted any more goes.
    pub(crate) async fn conclude(&self, succeeded: bool) -> CheckpointSummary {
        let ended = async {
            let mut line = self.line.lock().await;
            if succeeded {
                line.waiting = None;
            } else {
                self.write_waiting(&mut line).await;
            }
            let newest = if succeeded { line.lasting } else { line.newest.as_ref().map(|base| base.id) };
            let notes: Vec<CheckpointNote> = line.notes.iter().cloned().collect();
            drop(line);
            // KEEP-4: both are under the fence, and do nothing if the invocation was lost.
            if !notes.is_empty() || self.continues {
                self.settle(succeeded).await;
            }
            self.is_lost(Duration::ZERO).await;
            CheckpointSummary { notes, newest }
        };
        tokio::select! {
            biased;
            summary = ended => summary,
            () = self.clock.sleep(LAST_WRITE_MAX) => {
                tracing::warn!(tool = %self.whose.tool, invocation = %self.whose.invocation, "the last checkpoint of a call was not written in time");
                CheckpointSummary::default()
            }
        }
    }

    async fn settle(&self, succeeded: bool) {
        let Checkpoints { store, retention, .. } = &*self.checkpoints;
        let ending =
            if succeeded { CheckpointEnding::Completed } else { CheckpointEnding::Failed { keep: retention.failed } };
        let CheckpointOwner { tenant, invocation, owner, fence, .. } = &self.whose;
        if let Err(error) = store.settle(tenant, *invocation, owner, *fence, ending).await {
            // They go when their time is over.
            tracing::warn!(error = &error as &dyn std::error::Error, %invocation, "the checkpoints of a call could not be settled");
        }
    }

    fn new_id(&self, at: UnixMillis) -> CheckpointId {
        CheckpointId::new(&*self.entropy, at)
    }

    /// Time until a micro-checkpoint may be written.
    fn left(&self, line: &Line) -> Duration {
        (line.since + self.plan.interval).saturating_sub(self.clock.monotonic())
    }

    async fn due_in(&self) -> Option<Duration> {
        let line = self.line.lock().await;
        line.waiting.is_some().then(|| self.left(&line))
    }

    /// KEEP-1, KEEP-2.
    async fn write_waiting(&self, line: &mut Line) {
        let Some(waiting) = line.waiting.clone() else { return };
        match self.write(line, &waiting, CheckpointKind::Micro, None).await {
            Ok(()) => line.waiting = None,
            Err(error) => {
                tracing::warn!(%error, tool = %self.whose.tool, invocation = %self.whose.invocation, "a micro-checkpoint could not be kept");
                if !error.may_pass() {
                    line.waiting = None;
                }
            }
        }
        line.since = self.clock.monotonic();
    }

    async fn write(
        &self,
        line: &mut Line,
        waiting: &Waiting,
        kind: CheckpointKind,
        label: Option<String>,
    ) -> Result<(), SaveError> {
        let CheckpointOwner { tenant, invocation, owner, tool, version, fence } = self.whose.clone();
        let Waiting { id, at, state, bytes } = waiting.clone();
        let head = CheckpointHead {
            id,
            tenant,
            invocation,
            owner,
            tool,
            version,
            kind,
            label,
            parent: line.parent,
            saved_at: at,
        };
        let record = Arc::new(CheckpointRecord { head, state });
        let base = if kind == CheckpointKind::Micro { line.newest.clone() } else { line.durable.clone() };
        let keep = self.checkpoints.retention.of(kind);
        let (sealed, mut made) = self.seal(&record, bytes, base).await?;
        let mut saved = self.checkpoints.store.save(&sealed, fence, keep).await?;
        if saved == SaveOutcome::BaseGone {
            let (whole, own) = self.seal(&record, bytes, None).await?;
            made = own;
            saved = self.checkpoints.store.save(&whole, fence, keep).await?;
        }
        match saved {
            SaveOutcome::Kept => {}
            SaveOutcome::BaseGone | SaveOutcome::Foreign => return Err(SaveError::Foreign),
            SaveOutcome::Fenced => return Err(SaveError::Fenced),
        }
        line.parent = Some(id);
        if kind != CheckpointKind::Micro {
            line.lasting = Some(id);
        }
        if kind == CheckpointKind::Macro {
            line.durable = Some(made.clone());
        }
        line.newest = Some(made);
        if line.notes.len() == NOTES_MAX {
            line.notes.pop_front();
        }
        let note = CheckpointNote { checkpoint_id: id.to_string(), checkpoint_type: kind, timestamp: at.to_string() };
        line.notes.push_back(note);
        Ok(())
    }

    /// Compressing much takes milliseconds, during which this thread has others to serve.
    async fn seal(
        &self,
        record: &Arc<CheckpointRecord>,
        bytes: usize,
        base: Option<DeltaBase>,
    ) -> Result<(SealedCheckpoint, DeltaBase), SaveError> {
        let gzip_from = self.plan.gzip_from;
        if bytes.max(base.as_ref().map_or(0, |base| base.content.len())) <= INLINE_BYTES_MAX {
            return Ok(codec::seal(record, base.as_ref(), gzip_from)?);
        }
        let record = Arc::clone(record);
        let sealed = tokio::task::spawn_blocking(move || codec::seal(&record, base.as_ref(), gzip_from)).await;
        Ok(sealed.map_err(|_| SaveError::Interrupted)??)
    }
}

/// Why a checkpoint was not kept.
#[derive(Debug, thiserror::Error)]
enum SaveError {
    #[error(transparent)]
    Codec(#[from] CodecError),
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server is about to stop.
    #[error("the checkpoint was not finished")]
    Interrupted,
    #[error("the invocation has checkpoints of another caller or tool")]
    Foreign,
    #[error("another worker has taken the invocation over")]
    Fenced,
}

impl SaveError {
    /// Could the same be kept later?
    fn may_pass(&self) -> bool {
        matches!(self, Self::Store(_) | Self::Interrupted)
    }

    fn refusal(self) -> Refusal {
        match self {
            Self::Codec(error) => error.refusal(),
            Self::Store(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "a checkpoint could not be kept");
                Refusal::new(ErrorCode::E3902, "the checkpoint could not be kept")
                    .hint("go on, and try again later; nothing of the call is lost by it")
                    .caused_by(error)
            }
            Self::Interrupted => Refusal::new(ErrorCode::E3902, self.to_string()),
            Self::Foreign | Self::Fenced => Refusal::new(ErrorCode::E3902, self.to_string()).retryable(false),
        }
    }
}
