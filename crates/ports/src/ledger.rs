//! The ledger: which calls with effects were begun, what became of them, and which idempotency key stands for which call.
//! (DESIGN §5, IDEM-001…016)
//!
//! ```text
//!            begin                     settle
//!   (nothing) ───▶ in flight ─────────────────▶ done            the key answers with this outcome from now on
//!                   │   ▲  │                ╲─▶ failed clean    nothing happened: the key is free again
//!                   │   ╰──┼── begin again ───────────╯ ▲
//!                   │      ╰─────────────────▶ unknown ─┴─▶ done      a person has looked (`resolve`)
//!                   ╰ its owner's lease is over: somebody else settles it, by the rules of the kernel
//! ```
//!
//! Invariants every adapter keeps
//! - LEDGER-1: of any number of concurrent `begin`s with one key, one is `Fresh`.
//! - LEDGER-2: what was answered is durable.
//! - LEDGER-3: a settled call is settled once: who comes second, or with an old fence, changes nothing.
//! - LEDGER-4: spans are measured by the store's own clock; a caller's clock that is wrong or jumps changes no window.
//! - LEDGER-5: a key for which a job that has not ended stands in the queue ([`QueuedAct`]) is that job's: no other call begins with it.
//!   A job that was restored and must not be begun again keeps its key as long as it would have kept it had it been done.
//!
//! An *owner* is a process that runs calls. It has one lease for everything it runs and renews it as a whole, so that
//! keeping a thousand calls alive costs one write. A *fence* grows each time a call changes hands.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::ids::{InvocationId, TenantId, ToolId, TraceId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use policy::CallOwner;
use serde_json::Value;
use uuid::Uuid;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;

/// A process that runs calls, from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(pub Uuid);

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Grows each time a call changes hands; a write that carries an older one is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub u64);

/// What makes two calls of a tool the same one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey {
    /// Within what the key is unique: the caller and its session.
    pub scope: String,
    /// As the caller gave it, or as it was derived from what the caller gave.
    pub key: String,
}

/// What the act of a call is known by in the queue, should a job be to do it there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedAct {
    /// The kind of such jobs.
    pub kind: &'static str,
    /// Their dedupe key.
    pub dedupe_key: String,
    /// Their digest, if they mean the same parameters.
    pub digest: Digest,
}

/// A call that is about to have effects.
#[derive(Debug, Clone, PartialEq)]
pub struct Intent {
    pub invocation: InvocationId,
    pub trace: TraceId,
    pub tenant: TenantId,
    /// Whose call it is.
    pub caller: CallOwner,
    pub tool: ToolId,
    pub version: Version,
    pub effects: SideEffectPolicy,
    pub key: Option<IdempotencyKey>,
    pub parameters: Digest,
    /// For how long its outcome is kept once it is known.
    pub window: Duration,
    pub owner: OwnerId,
    /// Looked for when it begins, and not kept: a line that is read has none.
    pub queued_act: Option<QueuedAct>,
}

impl Intent {
    /// Is this the same call of the same caller, made again?
    pub fn is_same_call(&self, other: &Self) -> bool {
        let what = |intent: &Self| (intent.invocation, intent.parameters);
        let whose =
            |intent: &Self| (intent.tenant.clone(), intent.caller.clone(), intent.tool.clone(), intent.key.clone());
        what(self) == what(other) && whose(self) == whose(other)
    }
}

/// What became of a `begin`.
#[derive(Debug, Clone, PartialEq)]
pub enum BeginOutcome {
    /// The call may start; nobody else has the key.
    Fresh(FencingToken),
    /// The call that has the key, or the very same call under this id: in flight, done or unknown.
    Held(Box<LedgerEntry>),
    /// The key stands for a call with other parameters.
    OtherParameters { invocation: InvocationId },
    /// The key stands for a job that has not ended and has no line yet (LEDGER-5): with the same parameters, or with others.
    /// `ended`: it never gets one. It came out of a backup, so that nobody knows whether it was done, or a person has said so.
    Queued { job: InvocationId, same: bool, ended: bool },
    /// Another call has this invocation id.
    IdTaken,
    /// The owner's lease is over: it must not begin anything.
    OwnerLapsed,
}

/// How far a call has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryState {
    InFlight,
    Done,
    FailedClean,
    Unknown,
}

impl EntryState {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::InFlight, Self::Done, Self::FailedClean, Self::Unknown];

    /// The word in the store and on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InFlight => "in_flight",
            Self::Done => "done",
            Self::FailedClean => "failed_clean",
            Self::Unknown => "unknown",
        }
    }

    /// The state of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// A line of the ledger.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerEntry {
    pub intent: Intent,
    pub state: EntryState,
    pub fence: FencingToken,
    pub begun_at: UnixMillis,
    pub settled_at: Option<UnixMillis>,
    /// What the kernel wants to know of its end; the store does not look into it.
    pub outcome: Option<Value>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    /// Not `InFlight`.
    pub state: EntryState,
    pub outcome: Value,
}

/// What became of a `settle`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettleOutcome {
    /// Written, durably: now, or before by the same words.
    Kept,
    /// The call was settled otherwise before, or is in other hands; nothing was changed.
    Fenced,
}

/// What became of a `resolve`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResolveOutcome {
    Done,
    /// No such call of this tenant.
    NotFound,
    /// Its outcome is not unknown, so there is nothing to resolve.
    NotUnknown(EntryState),
}

/// Which lines to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntryFilter {
    /// Absent: of all tenants.
    pub tenant: Option<TenantId>,
    pub state: Option<EntryState>,
    /// Only those with a smaller id, for paging from the newest back.
    pub before: Option<InvocationId>,
}

/// Keeps the ledger.
#[async_trait]
pub trait Ledger: Send + Sync + fmt::Debug {
    /// Makes the owner's lease last `lease` from now. A store that only one process can write at a time ends the leases
    /// of all others the first time, because whoever had them is gone.
    async fn renew(&self, owner: OwnerId, lease: Duration) -> Result<(), StoreError>;

    /// Ends the owner's lease now: an orderly end.
    async fn retire(&self, owner: OwnerId) -> Result<(), StoreError>;

    /// Reserves the key, if there is one, and writes the intent; all or nothing.
    ///
    /// A key whose window has passed counts as new, unless its call is in flight or unknown. The same call under the same id
    /// ([`Intent::is_same_call`]) begins again if it failed clean, and is `Held` otherwise: a worker that takes a job over
    /// finds out what became of it, also where there is no key.
    async fn begin(&self, intent: Intent) -> Result<BeginOutcome, StoreError>;

    /// Says how a call in flight ended, if it still is, under this fence.
    ///
    /// Whoever finds exactly their own settlement under their own fence is answered `Kept` and changes nothing, not even the
    /// time: a settlement whose answer was lost may be said again.
    async fn settle(
        &self,
        invocation: InvocationId,
        fence: FencingToken,
        settlement: Settlement,
    ) -> Result<SettleOutcome, StoreError>;

    /// Calls in flight whose owner's lease is over, oldest first, at most `most`.
    async fn lapsed(&self, most: usize) -> Result<Vec<LedgerEntry>, StoreError>;

    /// One call of a tenant.
    async fn find(&self, tenant: &TenantId, invocation: InvocationId) -> Result<Option<LedgerEntry>, StoreError>;

    /// Calls, newest first, at most `most`.
    async fn list(&self, filter: &EntryFilter, most: usize) -> Result<Vec<LedgerEntry>, StoreError>;

    /// Settles a call whose outcome is unknown: a person has found out.
    async fn resolve(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        settlement: Settlement,
    ) -> Result<ResolveOutcome, StoreError>;

    /// Frees the key of a call that is done, so that the next call with it begins: somebody wants its act tried anew. The line
    /// and its outcome stay. Nothing happens if there is no such call of the tenant, or it is in flight or unknown.
    async fn release(&self, tenant: &TenantId, invocation: InvocationId) -> Result<(), StoreError>;

    /// Forgets settled calls whose window has passed, at most `most`, and says how many. Never one that is in flight or
    /// unknown.
    async fn prune(&self, most: usize) -> Result<usize, StoreError>;
}
