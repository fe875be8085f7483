//! Nothing is done twice: calls with effects pass the ledger before they start and after they end. (DESIGN §5)
//!
//! ```text
//! claim ─▶ Run(Held) ─▶ tool ─▶ verify ─▶ settle ─▶ answer
//!   │          ╰ a seat, on which duplicates of this process wait
//!   ├────▶ Replay: the call was done before; its answer is given again
//!   ╰────▶ refused: other parameters, unknown outcome, in flight and the caller does not wait
//! ```
//!
//! An end that the store does not take is kept and tried again (`unwritten_ends`).
//!
//! A caller that goes away while the ledger is asked leaves no key behind that nobody holds (`pending_claim`).
//!
//! A call without effects that has a key passes `brief` instead, which writes nothing.
//!
//! Not here: what the ledger must guarantee (`ports::ledger`), which end is which state (`settlement`), what happens to calls
//! whose process died (`recovery`).

mod brief;
mod duplicate_waiters;
mod kept_outcome;
mod key;
mod pending_claim;
mod recovery;
mod resolution;
mod settlement;
mod unwritten_ends;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use base::backoff::GrowingPause;
use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::InvocationId;
use contract::version::Version;
use policy::Caller;
use ports::clock::Clock;
use ports::entropy::{Entropy, new_token_id};
use ports::executor::{CallDispatch, ExecutionReach};
use ports::job_store::TOOL_CALL;
use ports::ledger::{
    BeginOutcome, EntryState, FencingToken, Intent, Ledger, LedgerEntry, OwnerId, QueuedAct, SettleOutcome, Settlement,
};
use ports::observer::{LedgerEvent, Observer};
use ports::registry_store::StoreError;
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use crate::invocation_ids::{job_digest, taken};

pub(crate) use brief::NotedKey;
use brief::{Brief, Look};
pub use contract::error::MISSING_KEY;
use duplicate_waiters::{DuplicateWaiters, WaiterSlot};
use kept_outcome::KeptDoubt;
pub use kept_outcome::{KeptFailure, KeptOutcome, KeptResult, did_not_happen};
pub use key::{CallKey, queue_key};
pub(crate) use key::{act_key, demanded};
use pending_claim::{ClaimAnswer, PendingClaim};
pub use recovery::RecoveryReport;
pub(crate) use settlement::{FailedEnd, settlement};
pub use settlement::{INTERRUPTED, cause};
use unwritten_ends::UnwrittenEnds;

/// How long a process that says nothing counts as alive.
const LEASE: Duration = Duration::from_secs(15);
/// How often it says something.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How often a duplicate looks whether the first call, which runs in another process, has ended.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long the end of a call is tried to be written before the caller is told that it could not be.
const SETTLE_TRIES: u32 = 8;
const SETTLE_PAUSE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// How long a process that ends waits for claims which nobody waits for any more.
const ABANDONED_WAIT_MAX: Duration = Duration::from_secs(5);
/// How often a call may find that its id is taken before something is wrong with the ids.
const IDS_TRIED_MAX: usize = 4;

/// Keeps the ledger for the kernel.
#[derive(Debug)]
pub struct LedgerService {
    ledger: Arc<dyn Ledger>,
    owner: OwnerId,
    waiting: DuplicateWaiters,
    brief: Brief,
    unwritten: Arc<UnwrittenEnds>,
    /// Claims whose callers went away before they were answered.
    abandoned: TaskTracker,
    /// When this process last could not say that it lives, by the monotonic clock.
    missed: Mutex<Option<Duration>>,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn Observer>,
}

/// What is known of a call that wants to begin.
pub(crate) struct LedgerRequest<'a> {
    pub(crate) intent: Intent,
    /// Wait for a call with the same key that runs already?
    pub(crate) wait: bool,
    /// Nobody but this call may have its id: if another one has, it is refused instead of being given a new id.
    pub(crate) is_id_given: bool,
    pub(crate) entropy: &'a dyn Entropy,
    /// Set from when it waits for a call with the same key, also while the ledger is asked how that stands.
    pub(crate) waits: &'a WaitsFor,
}

/// The call with the same key that a call waits for, as far as the ledger has said.
#[derive(Debug, Default)]
pub(crate) struct WaitsFor(Mutex<Option<InvocationId>>);

impl WaitsFor {
    fn set(&self, first: InvocationId) {
        *self.0.lock_unpoisoned() = Some(first);
    }

    pub(crate) fn get(&self) -> Option<InvocationId> {
        *self.0.lock_unpoisoned()
    }
}

/// What a call may do.
pub(crate) enum LedgerClaim {
    Run(HeldClaim),
    /// It has no effects: nothing is written, and what comes of it is remembered for a while if it has a key.
    RunLightly(Option<NotedKey>),
    /// It was done before, by this call.
    Replay(FirstCall, KeptOutcome),
}

/// The call whose answer is given again.
#[derive(Debug, Clone)]
pub(crate) struct FirstCall {
    pub(crate) invocation: InvocationId,
    /// The version that ran, whatever is asked for now.
    pub(crate) version: Version,
}

/// A call that holds its place in the ledger. Dropped without being settled it stays in flight, and recovery decides; unless
/// nothing of it has left for its tool: then its end is written later (`unwritten_ends`).
#[derive(Debug)]
pub(crate) struct HeldClaim {
    pub(crate) invocation: InvocationId,
    fence: FencingToken,
    /// Whether anything of the call has left for its tool. Of all its attempts.
    pub(crate) dispatch: Arc<CallDispatch>,
    /// There until it is settled.
    seat: Option<WaiterSlot>,
    unwritten: Arc<UnwrittenEnds>,
}

impl Drop for HeldClaim {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        if self.dispatch.reach() == ExecutionReach::NotSent {
            let refusal = Refusal::new(ErrorCode::E3703, "the call was given up before anything of it was sent");
            let settlement =
                Settlement { state: EntryState::FailedClean, outcome: KeptOutcome::failure(&refusal).write() };
            self.unwritten.keep(self.invocation, self.fence, seat, settlement);
        }
    }
}

impl LedgerService {
    /// Of a process that has just started.
    pub fn new(
        ledger: Arc<dyn Ledger>,
        clock: Arc<dyn Clock>,
        entropy: &dyn Entropy,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let owner = OwnerId(new_token_id(entropy));
        Self {
            ledger,
            owner,
            waiting: DuplicateWaiters::default(),
            brief: Brief::default(),
            unwritten: Arc::new(UnwrittenEnds::new(Arc::clone(&observer))),
            abandoned: TaskTracker::new(),
            missed: Mutex::default(),
            clock,
            observer,
        }
    }

    /// This process, as the ledger knows it.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// The books themselves.
    pub fn ledger(&self) -> &dyn Ledger {
        &*self.ledger
    }

    /// Says that this process lives.
    pub async fn renew(&self) -> Result<(), StoreError> {
        let renewed = self.ledger.renew(self.owner, LEASE).await;
        if renewed.is_err() {
            *self.missed.lock_unpoisoned() = Some(self.clock.monotonic());
        }
        renewed
    }

    /// Was the store away from this process a moment ago? Then it was from others too, and their leases have run out without
    /// their being gone: they have the time of a lease to come back and write how their calls ended.
    fn others_may_come_back(&self) -> bool {
        let missed = *self.missed.lock_unpoisoned();
        missed.is_some_and(|missed| self.clock.monotonic().saturating_sub(missed) < LEASE)
    }

    /// Forgets settled calls whose window has passed, at most `most`, and says how many.
    pub async fn prune(&self, most: usize) -> Result<usize, StoreError> {
        self.ledger.prune(most).await
    }

    /// Says that this process lives, again and again, and writes the ends that could not be written when they came. Never
    /// ends by itself; a store that fails is tried again, and until it answers no call with effects begins.
    pub async fn keep_alive(&self) {
        tokio::join!(self.stay_alive(), self.pay());
    }

    async fn stay_alive(&self) {
        loop {
            if let Err(error) = self.renew().await {
                tracing::warn!(error = &error as &dyn std::error::Error, "the lease of this process was not renewed");
            }
            self.clock.sleep(RENEW_EVERY).await;
        }
    }

    /// Ends the lease: this process runs nothing any more. What it knows of its calls and has not written is written first.
    pub async fn retire(&self) {
        self.abandoned.close();
        tokio::select! {
            biased;
            () = self.abandoned.wait() => {}
            () = self.clock.sleep(ABANDONED_WAIT_MAX) => {
                tracing::warn!(claims = self.abandoned.len(), "the ledger has not answered; recovery decides about these calls");
            }
        }
        self.abandoned.reopen();
        self.pay_once().await;
        if let Err(error) = self.ledger.retire(self.owner).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "the lease of this process ends by itself");
        }
    }

    /// Takes the call's place in the ledger, or says why it must not run. Waits for a duplicate that runs; whoever calls
    /// bounds the wait.
    pub(crate) async fn claim(&self, mut wish: LedgerRequest<'_>) -> Result<LedgerClaim, Refusal> {
        let (mut ids_tried, mut has_looked) = (0, false);
        loop {
            let (begun, held) = self.begin(wish.intent.clone()).await.map_err(|error| error.refusal())?;
            if let Some(held) = held {
                self.observer.ledger(LedgerEvent::Begun);
                return Ok(LedgerClaim::Run(held));
            }
            match begun {
                // A contract of `PendingClaim`: who is begun holds its place. Asking again would find it in flight.
                BeginOutcome::Fresh(_) => return Err(lapsed()),
                BeginOutcome::Held(entry) => match entry.state {
                    EntryState::InFlight if wish.wait => {
                        self.observer.ledger(LedgerEvent::Waited);
                        wish.waits.set(entry.intent.invocation);
                        has_looked = self.wait_for(&entry, has_looked).await;
                    }
                    EntryState::InFlight => return Err(in_flight(entry.intent.invocation)),
                    EntryState::Unknown => return Err(is_unknown(&entry)),
                    // A contract of the port: what failed clean holds nothing. Asking again is right if it is broken.
                    EntryState::FailedClean => {}
                    EntryState::Done => {
                        self.observer.ledger(LedgerEvent::Replayed);
                        let Intent { invocation, version, .. } = entry.intent;
                        return KeptOutcome::read(entry.outcome)
                            .map(|kept| LedgerClaim::Replay(FirstCall { invocation, version }, kept));
                    }
                },
                BeginOutcome::OtherParameters { invocation } => {
                    self.observer.ledger(LedgerEvent::Conflict);
                    return Err(other_parameters(invocation));
                }
                // A job that was acknowledged has its key before its call has begun.
                BeginOutcome::Queued { job, same: true, ended: true } => {
                    self.observer.ledger(LedgerEvent::Unknown);
                    return Err(restored(job));
                }
                BeginOutcome::Queued { job, same: true, .. } if wish.wait => {
                    self.observer.ledger(LedgerEvent::Waited);
                    wish.waits.set(job);
                    self.clock.sleep(LOOK_EVERY).await;
                }
                BeginOutcome::Queued { job, same: true, .. } => return Err(in_flight(job)),
                BeginOutcome::Queued { job, same: false, .. } => {
                    self.observer.ledger(LedgerEvent::Conflict);
                    return Err(other_parameters(job));
                }
                // X-39: what the caller calls its call must not stand for another one.
                BeginOutcome::IdTaken if wish.is_id_given => return Err(taken()),
                // One of ours makes room.
                BeginOutcome::IdTaken if ids_tried < IDS_TRIED_MAX => {
                    ids_tried += 1;
                    wish.intent.invocation = ports::entropy::new_invocation_id(wish.entropy, self.clock.now());
                }
                BeginOutcome::IdTaken => {
                    return Err(Refusal::new(ErrorCode::E3000, "no free invocation id was found").retryable(true));
                }
                BeginOutcome::OwnerLapsed => return Err(lapsed()),
            }
        }
    }

    /// The same for a call without effects: what this process remembers is given again, and a duplicate that runs is waited
    /// for. A job was let in under its key, and is done whoever else has used that meanwhile.
    pub(crate) async fn claim_lightly(
        &self,
        intent: Intent,
        (wait, is_job): (bool, bool),
        waits: &WaitsFor,
    ) -> Result<LedgerClaim, Refusal> {
        loop {
            match self.brief.look(&intent, self.clock.monotonic()) {
                None => return Ok(LedgerClaim::RunLightly(None)),
                Some(Look::New(noted)) => return Ok(LedgerClaim::RunLightly(Some(noted))),
                Some(Look::Runs(first, mut changes)) if wait => {
                    self.observer.ledger(LedgerEvent::Waited);
                    waits.set(first.invocation);
                    // Nobody sends: it closes when the call has ended.
                    let _closed = changes.changed().await;
                }
                Some(Look::Runs(first, _)) => return Err(in_flight(first.invocation)),
                Some(Look::Done(first, kept)) => {
                    self.observer.ledger(LedgerEvent::Replayed);
                    return Ok(LedgerClaim::Replay(first, KeptOutcome::Success(kept)));
                }
                Some(Look::OtherParameters(_)) if is_job => return Ok(LedgerClaim::RunLightly(None)),
                Some(Look::OtherParameters(first)) => {
                    self.observer.ledger(LedgerEvent::Conflict);
                    return Err(other_parameters(first.invocation));
                }
            }
        }
    }

    /// Remembers what came of a call without effects.
    pub(crate) fn remember(&self, noted: NotedKey, kept: KeptResult) {
        for _ in 0..noted.keep(kept, self.clock.monotonic()) {
            self.observer.ledger(LedgerEvent::Forgotten);
        }
    }

    /// Begins; a process whose lease has run out, because it was stopped or has not said anything yet, says it now.
    async fn begin(&self, intent: Intent) -> ClaimAnswer {
        let claim = |intent| {
            let tasks = self.abandoned.clone();
            PendingClaim::new(Arc::clone(&self.ledger), intent, &self.waiting, &self.unwritten, tasks)
        };
        let answer = claim(intent.clone()).await?;
        if answer.0 != BeginOutcome::OwnerLapsed {
            return Ok(answer);
        }
        self.renew().await?;
        claim(intent).await
    }

    /// Returns when there may be changes of the call. True if the next look must be a later one.
    async fn wait_for(&self, entry: &LedgerEntry, has_looked: bool) -> bool {
        match self.waiting.seat(entry.intent.invocation) {
            Some(mut seat) => {
                // Both ends of a seat tell of a change: nobody sends, and it closes when the call has been settled.
                let _closed = seat.changed().await;
                false
            }
            // It may have ended between the two looks. If not, it runs elsewhere.
            None if !has_looked => true,
            None => {
                self.clock.sleep(LOOK_EVERY).await;
                true
            }
        }
    }

    /// Writes how the call ended, durably, or says why its end is not in the ledger. One that could only not be written yet
    /// is kept, and written when that is possible.
    pub(crate) async fn settle(&self, mut held: HeldClaim, settlement: Settlement) -> Result<(), UnwrittenReason> {
        if settlement.state == EntryState::Unknown {
            self.observer.ledger(LedgerEvent::Unknown);
        }
        let mut pause = GrowingPause::doubling(SETTLE_PAUSE.0, SETTLE_PAUSE.1);
        for tries in 1.. {
            match self.ledger.settle(held.invocation, held.fence, settlement.clone()).await {
                Ok(SettleOutcome::Kept) => {
                    held.seat = None;
                    return Ok(());
                }
                Ok(SettleOutcome::Fenced) => {
                    held.seat = None;
                    self.observer.ledger(LedgerEvent::Fenced);
                    tracing::warn!(invocation = %held.invocation, "a call ended after it had been given up; its result is discarded");
                    return Err(UnwrittenReason::Fenced);
                }
                Err(error) if tries >= SETTLE_TRIES => {
                    let invocation = held.invocation;
                    let kept = held
                        .seat
                        .take()
                        .is_some_and(|seat| self.unwritten.keep(invocation, held.fence, seat, settlement));
                    tracing::error!(error = &error as &dyn std::error::Error, %invocation, tried_again = kept, "the end of a call could not be written");
                    return Err(UnwrittenReason::Store);
                }
                Err(_) => self.clock.sleep(pause.next_pause()).await,
            }
        }
        Err(UnwrittenReason::Store)
    }
}

/// Why the end of a call is not in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnwrittenReason {
    /// Somebody else has settled it meanwhile.
    Fenced,
    /// It could not be written.
    Store,
}

/// The intent of a call, from what the phases know.
pub(crate) fn intent_of(
    invocation: InvocationId,
    trace: contract::ids::TraceId,
    caller: &Caller,
    tool: &ToolVersion,
    (parameters, digest): (&Value, Digest),
    key: &CallKey,
    owner: OwnerId,
) -> Intent {
    Intent {
        invocation,
        trace,
        tenant: caller.tenant().clone(),
        caller: caller.owner(),
        tool: tool.id.clone(),
        version: tool.version.clone(),
        effects: tool.manifest.side_effect_policy,
        key: key.of(caller, tool, parameters),
        parameters: digest,
        window: key::window(&tool.manifest),
        owner,
        queued_act: queued_act(caller, tool, key, parameters),
    }
}

/// What a call with effects would be in the queue, if it has a key.
fn queued_act(caller: &Caller, tool: &ToolVersion, key: &CallKey, parameters: &Value) -> Option<QueuedAct> {
    if !tool.manifest.side_effect_policy.has_effects() {
        return None;
    }
    let dedupe_key = queue_key(caller, tool, key, parameters)?;
    Some(QueuedAct { kind: TOOL_CALL, dedupe_key, digest: job_digest(&tool.id, parameters) })
}

// --------------------------------------------------------------------------------------------------------- refusals

/// Where the first call can be asked about.
pub fn handle(invocation: InvocationId) -> Value {
    json!({ "invocation_id": invocation, "status_url": format!("/v1/invocations/{invocation}") })
}

/// How a person says what became of a call of which nobody knows whether it had its effect.
pub fn resolve_command(invocation: InvocationId) -> String {
    format!("`gantry jobs resolve {invocation} --happened` or `--did-not-happen`")
}

fn in_flight(invocation: InvocationId) -> Refusal {
    Refusal::new(ErrorCode::E3409, "a call with this idempotency key is running")
        .hint("wait for it, or send the same call without `execution_options.wait_for_duplicate = false`")
        .details(handle(invocation))
        .retryable(true)
}

/// The job that has the key came out of a backup.
fn restored(job: InvocationId) -> Refusal {
    let mut details = handle(job);
    if let Some(members) = details.as_object_mut() {
        members.insert("cause".to_owned(), "restored".into());
    }
    Refusal::new(
        ErrorCode::E3413,
        "a job with this idempotency key was restored from a backup, and may have been done since",
    )
    .hint(format!(
        "its status says what a person has found out, or that nobody has yet ({}); the call was not run",
        resolve_command(job)
    ))
    .details(details)
    .retryable(false)
}

fn is_unknown(entry: &LedgerEntry) -> Refusal {
    Refusal::new(ErrorCode::E3413, "nobody knows whether the first call with this idempotency key had its effect")
        .hint(format!(
            "a person has to find out and say so: {}; the call was not repeated",
            resolve_command(entry.intent.invocation)
        ))
        .details(why_unknown(entry, handle(entry.intent.invocation)))
        .retryable(false)
}

/// How a call ended of which nobody knows whether it had its effect: the same code wherever it is told.
pub fn indeterminate_end(entry: &LedgerEntry) -> Refusal {
    let message = KeptDoubt::read(entry.outcome.as_ref()).message;
    let message = message.as_deref().unwrap_or("the call was ended");
    Refusal::new(ErrorCode::E3413, format!("{message}; whether it had its effect is not known"))
        .hint(format!("it is not repeated: find out, then say so: {}", resolve_command(entry.intent.invocation)))
        .details(why_unknown(entry, json!({})))
        .retryable(false)
}

/// The code and the word that say why nobody knows, beside other facts.
fn why_unknown(entry: &LedgerEntry, mut details: Value) -> Value {
    let KeptDoubt { code, cause, .. } = KeptDoubt::read(entry.outcome.as_ref());
    for (name, word) in [("code", code), ("cause", cause)] {
        if let (Some(members), Some(word)) = (details.as_object_mut(), word) {
            members.insert(name.to_owned(), word.into());
        }
    }
    details
}

/// The key was used for a call of the same tool with other parameters.
pub fn other_parameters(invocation: InvocationId) -> Refusal {
    Refusal::new(ErrorCode::E3410, "this idempotency key was used for a call with other parameters")
        .hint("use a new key for a new call; send the same parameters to repeat the first one")
        .details(handle(invocation))
}

fn lapsed() -> Refusal {
    Refusal::new(ErrorCode::E3001, "this server cannot hold its place in the ledger at the moment")
        .hint("nothing was run; try again in a moment")
}
