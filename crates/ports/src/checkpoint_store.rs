//! The durable truth about what running tools have saved of their state. (CKPT-001…015, DESIGN §5)
//!
//! A store keeps checkpoints as they were sealed and does not look into them: a [`SealedCheckpoint`] never changes. What a
//! store decides is which of them is the *newest* of an invocation (the one saved or promoted last) and until when each is
//! kept. Spans come in, its own clock makes times of them.
//!
//! Every method is one atomic act, durable before it is answered. A checkpoint of another tenant is like one that is not
//! there, and so is one whose time is over, except as the base of another.
//!
//! Invariants
//! - CKPT-A: what a kept checkpoint is based on is kept too, however old it is.
//! - CKPT-B: an invocation's checkpoints are all of one owner and one tool.
//! - CKPT-C: who has an old fence saves nothing and ends nothing. A fence is old once an attempt with a higher one has saved, or
//!   has said that it runs ([`CheckpointStore::claim`]), or the invocation was rolled back ([`CheckpointStore::promote`]).
//! - CKPT-D: no two attempts have one fence. That of a job is made of the job's own token ([`attempt_fence`]), that of a call
//!   which is no job is given by the store, higher than all before it.
//!
//! Not here: what is in them (`checkpoints::record`), how they are sealed (`checkpoints::codec`), who may see them.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::envelope::CheckpointKind;
use contract::ids::{InvocationId, TenantId, ToolId};
use contract::version::Version;
use policy::CallOwner;
use uuid::Uuid;

use crate::clock::UnixMillis;
use crate::entropy::{Entropy, new_invocation_id};
use crate::registry_store::StoreError;

/// Most checkpoints of one invocation that a store lists at once.
pub const LIST_MAX: usize = 256;
/// How long an attempt counts as running after it has said so.
pub const ATTEMPT_LEASE: Duration = Duration::from_secs(15);
/// Most deltas that stand on each other before there is a whole one.
pub const CHAIN_MAX: u8 = 16;

/// The name of one checkpoint: unique, and not guessable from another (CKPT-005).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CheckpointId(pub Uuid);

impl CheckpointId {
    /// A new one: UUIDv7.
    pub fn new(entropy: &dyn Entropy, now: UnixMillis) -> Self {
        Self(new_invocation_id(entropy, now).0)
    }
}

impl fmt::Display for CheckpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for CheckpointId {
    type Err = uuid::Error;
    fn from_str(text: &str) -> Result<Self, uuid::Error> {
        Uuid::try_parse(text).map(Self)
    }
}

/// What is known of a checkpoint without opening it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckpointHead {
    pub id: CheckpointId,
    pub tenant: TenantId,
    pub invocation: InvocationId,
    /// Who made the call.
    pub owner: CallOwner,
    pub tool: ToolId,
    pub version: Version,
    pub kind: CheckpointKind,
    pub label: Option<String>,
    /// The state it followed, perhaps of another invocation.
    pub parent: Option<CheckpointId>,
    /// By the clock of whoever saved it.
    pub saved_at: UnixMillis,
}

/// A checkpoint as it is kept. Made and opened by `checkpoints::codec` only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedCheckpoint {
    pub head: CheckpointHead,
    /// What the payload is a delta against; of the same invocation.
    pub base: Option<CheckpointId>,
    /// How many deltas are below it.
    pub chain: u8,
    pub schema_version: String,
    pub is_gzip: bool,
    /// Bytes of the whole content, decoded.
    pub content_bytes: u64,
    /// Of the whole content, decoded.
    pub checksum: Digest,
    /// Of everything above and the payload.
    pub seal: Digest,
    pub payload: Arc<[u8]>,
}

/// A line of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedCheckpoint {
    pub head: CheckpointHead,
    pub base: Option<CheckpointId>,
    pub content_bytes: u64,
    pub stored_bytes: u64,
    /// Until when it is kept; `None`: until it is deleted.
    pub expires_at: Option<UnixMillis>,
}

/// What became of a checkpoint that was to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SaveOutcome {
    /// It is kept and the newest of its invocation. Also if the very same one had been kept before.
    Kept,
    /// What it is based on is not there.
    BaseGone,
    /// The invocation has checkpoints of another owner or tool (CKPT-B), or the id is taken.
    Foreign,
    /// Somebody with a higher fence has taken the invocation over (CKPT-C).
    Fenced,
}

/// How the call ended, and what follows for what was kept of it (CKPT-015).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CheckpointEnding {
    /// Micro-checkpoints go.
    Completed,
    /// The newest micro-checkpoint and all macro-checkpoints are kept for this long from now; other micro-checkpoints for
    /// what is left of their time.
    Failed { keep: Duration },
}

/// What became of a wish to make a checkpoint the newest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromoteOutcome {
    /// It is, and every attempt that was there before has an old fence now.
    Newest,
    /// An attempt runs, which would save over it; nothing was changed.
    Running,
    /// It is not there.
    NotThere,
}

/// How many calls that are no jobs can have one invocation between two attempts of its job.
const FENCES_PER_TOKEN: u64 = 1 << 20;

/// The fence of the attempt at a job that has this fencing token: higher than that of every attempt at the job before it, and
/// of every call under the same id that was no job. (CKPT-D)
pub fn attempt_fence(token: u64) -> u64 {
    token.saturating_mul(FENCES_PER_TOKEN)
}

/// Which part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ListPage {
    /// Those that come after this one in the list; all of them if it is not there.
    pub after: Option<CheckpointId>,
    /// At most this many, and never more than [`LIST_MAX`].
    pub limit: usize,
}

/// Keeps checkpoints.
#[async_trait]
pub trait CheckpointStore: Send + Sync + fmt::Debug {
    /// Keeps one for this long, or until it is deleted. `fence` grows with every hand-over of the invocation; who belongs
    /// to no attempt has none, and is never refused for it.
    async fn save(
        &self,
        checkpoint: &SealedCheckpoint,
        fence: Option<u64>,
        keep: Option<Duration>,
    ) -> Result<SaveOutcome, StoreError>;

    /// An attempt at an invocation says that it runs, and will for this long; for no time: that it has ended. Gives the fence it
    /// has to save with, or `None` if it must not run: an attempt with a higher fence has taken the invocation over, or, for
    /// one that begins and belongs to no job, another one runs. Such a one has no fence of its own and is given a new one, with
    /// which it comes from then on. (CKPT-C, CKPT-D)
    async fn claim(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        fence: Option<u64>,
        span: Duration,
    ) -> Result<Option<u64>, StoreError>;

    /// Does an attempt at this invocation run, by its last word?
    async fn is_claimed(&self, tenant: &TenantId, invocation: InvocationId) -> Result<bool, StoreError>;

    /// A checkpoint and what it is based on, itself first. Empty if it is not there; shorter than it should be if a base
    /// is missing, which must not be and is for the caller to notice.
    async fn chain(&self, tenant: &TenantId, id: CheckpointId) -> Result<Vec<SealedCheckpoint>, StoreError>;

    /// Those of an invocation, the newest first.
    async fn list(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        page: ListPage,
    ) -> Result<Vec<ListedCheckpoint>, StoreError>;

    /// Makes a checkpoint the newest of its invocation. It and the one that was the newest are kept for at least this
    /// long from now. Attempts that were there before save nothing any more (CKPT-C). With `if_idle`, only if none runs by its
    /// last word; without, the caller knows that none does.
    async fn promote(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        id: CheckpointId,
        keep: Duration,
        if_idle: bool,
    ) -> Result<PromoteOutcome, StoreError>;

    /// The attempt with this fence has ended. Nothing happens to checkpoints of another owner, nor if the fence is old
    /// (CKPT-C); who belongs to no attempt has none.
    async fn settle(
        &self,
        tenant: &TenantId,
        invocation: InvocationId,
        owner: &CallOwner,
        fence: Option<u64>,
        ending: CheckpointEnding,
    ) -> Result<(), StoreError>;

    /// Deletes one; its room is freed once nothing is based on it. False if it is not there.
    async fn delete(&self, tenant: &TenantId, invocation: InvocationId, id: CheckpointId) -> Result<bool, StoreError>;

    /// Frees the room of at most `batch` checkpoints whose time is over and on which nothing is based; answers of how many.
    /// What stood below them can be freed by the next call, so whoever cleans repeats until the answer is zero.
    async fn prune(&self, batch: usize) -> Result<usize, StoreError>;
}
