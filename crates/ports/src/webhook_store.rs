//! The durable truth about webhooks: who is called back, what was sent to them, and what came of it. (ASYNC-007, X-54)
//!
//! ```text
//!  add_delivery ─▶ pending ──note_attempt──▶ delivered      (its body is forgotten)
//!                    ▲  │                └──▶ dead           (its body is kept for `reopen`)
//!                    └──┴──── reopen ◀──────────┘
//! ```
//!
//! Invariants every adapter keeps
//! - HOOK-1: no secret is in here. A record names one, or says which generation of the derived one it is.
//! - HOOK-2: a delivery is added once, however often; its id is made from what it is about.
//! - HOOK-3: an attempt counts only while its delivery is pending, and only once for its number.
//! - HOOK-4: everything is per tenant; what belongs to another one is not there.
//!
//! Not here: when the next attempt is made (the queue), what is sent (`webhooks`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, Subject, TenantId};
use uuid::Uuid;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;

/// Most deliveries of one page.
pub const DELIVERIES_PAGE_MAX: usize = 200;
/// Attempts that are kept of one delivery; older ones make room.
pub const ATTEMPTS_KEPT_MAX: u32 = 64;

/// Names a subscription within its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WebhookId(pub Uuid);

/// Names a delivery within its tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(pub Uuid);

/// What is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    InvocationCompleted,
    InvocationFailed,
    InvocationCancelled,
    /// Nobody can know whether its effect happened.
    InvocationIndeterminate,
    /// A workflow outside has come to its end.
    WorkflowCompleted,
    /// A threshold was passed, and the time for that is over.
    AlertRaised,
    AlertResolved,
    /// Something happened to a version of a tool, for example its removal.
    ToolEvent,
    /// Somebody tried the address.
    Test,
}

impl EventKind {
    /// Every kind.
    pub const ALL: [Self; 9] = [
        Self::InvocationCompleted,
        Self::InvocationFailed,
        Self::InvocationCancelled,
        Self::InvocationIndeterminate,
        Self::WorkflowCompleted,
        Self::AlertRaised,
        Self::AlertResolved,
        Self::ToolEvent,
        Self::Test,
    ];

    /// The word on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::InvocationCompleted => "invocation.completed",
            Self::InvocationFailed => "invocation.failed",
            Self::InvocationCancelled => "invocation.cancelled",
            Self::InvocationIndeterminate => "invocation.indeterminate",
            Self::WorkflowCompleted => "workflow.completed",
            Self::AlertRaised => "alert.raised",
            Self::AlertResolved => "alert.resolved",
            Self::ToolEvent => "tool.event",
            Self::Test => "webhook.test",
        }
    }

    /// The kind of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Which secret signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SigningSecret {
    /// Derived from the server's own key; each rotation makes another one.
    Generated { generation: u32 },
    /// A credential of the tenant, by its name.
    Named(String),
}

/// A secret that was replaced and still signs beside its follower for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FormerSecret {
    pub secret: SigningSecret,
    pub until: UnixMillis,
}

/// A subscription.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookRecord {
    pub tenant: TenantId,
    pub id: WebhookId,
    pub url: String,
    /// What it is told; empty means everything.
    pub events: Vec<EventKind>,
    pub secret: SigningSecret,
    pub former: Option<FormerSecret>,
    pub added_at: UnixMillis,
    pub added_by: Subject,
}

/// What became of an attempt to add a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddOutcome {
    Kept,
    /// The tenant has as many as it may have; nothing was written.
    TooMany,
}

/// Where a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// It waits for its next attempt, or one is under way.
    Pending,
    Delivered,
    /// All attempts failed; it can be sent again.
    Dead,
}

impl DeliveryState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Delivered, Self::Dead];

    /// The word on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }

    /// The state of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// Where a delivery goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryTarget {
    /// To a subscription, wherever that points when it is sent.
    Webhook(WebhookId),
    /// To the address a call has named, signed with a credential of the tenant.
    Callback { url: String, secret: String },
}

/// A delivery on its way in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewDelivery {
    pub tenant: TenantId,
    pub id: DeliveryId,
    pub target: DeliveryTarget,
    pub event: EventKind,
    /// What it is about.
    pub invocation: Option<InvocationId>,
    pub body: String,
}

/// What is known of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryRecord {
    pub tenant: TenantId,
    pub id: DeliveryId,
    pub target: DeliveryTarget,
    pub event: EventKind,
    pub invocation: Option<InvocationId>,
    pub state: DeliveryState,
    /// How often it was begun: 1, and one more for every time it was sent again after it was given up.
    pub round: u32,
    /// Attempts of this round.
    pub attempts: u32,
    pub created_at: UnixMillis,
    pub ended_at: Option<UnixMillis>,
}

/// A delivery with what is to be sent; `None` once it was delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryDetail {
    pub record: DeliveryRecord,
    pub body: Option<String>,
}

/// One try to deliver. Nothing of what the other side said is kept but its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryAttempt {
    pub round: u32,
    /// 1 is the first of its round.
    pub number: u32,
    pub at: UnixMillis,
    pub status: Option<u16>,
    pub took_ms: u64,
    /// One word of a fixed set; none if it was delivered.
    pub error: Option<String>,
}

/// What became of writing an attempt down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoteOutcome {
    Kept,
    /// The delivery is not pending, is unknown, or has this attempt already; nothing was written.
    Stale,
}

/// Which deliveries a list has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFilter {
    pub tenant: TenantId,
    pub webhook: Option<WebhookId>,
    pub state: Option<DeliveryState>,
}

/// Part of a list, newest first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeliveryPage {
    pub deliveries: Vec<DeliveryRecord>,
    /// What to give as `before` for the next part.
    pub next: Option<u64>,
}

/// Keeps them. Every method is one atomic act, durable before it is answered; time is the store's.
#[async_trait]
pub trait WebhookStore: Send + Sync + fmt::Debug {
    /// Adds a subscription, unless the tenant has `most` already. `added_at` and `former` are given as they are kept.
    async fn add_webhook(&self, webhook: &WebhookRecord, most: usize) -> Result<AddOutcome, StoreError>;

    /// The subscriptions of a tenant, oldest first.
    async fn webhooks(&self, tenant: &TenantId) -> Result<Vec<WebhookRecord>, StoreError>;

    /// One of them.
    async fn webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<Option<WebhookRecord>, StoreError>;

    /// Takes one away; false if there was none. What was sent to it stays in the log.
    async fn remove_webhook(&self, tenant: &TenantId, id: WebhookId) -> Result<bool, StoreError>;

    /// Replaces the secret `from`, which keeps signing beside `to` for `overlap`. `None`, and nothing is written, if the
    /// subscription is not there or its secret is another one by now.
    async fn rotate_secret(
        &self,
        tenant: &TenantId,
        id: WebhookId,
        from: &SigningSecret,
        to: &SigningSecret,
        overlap: Duration,
    ) -> Result<Option<WebhookRecord>, StoreError>;

    /// Keeps a delivery as pending. False, and nothing is written, if it is there already (HOOK-2).
    async fn add_delivery(&self, delivery: &NewDelivery) -> Result<bool, StoreError>;

    /// One delivery.
    async fn delivery(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryDetail>, StoreError>;

    /// Writes an attempt down and leaves the delivery in `state` (HOOK-3).
    async fn note_attempt(
        &self,
        tenant: &TenantId,
        id: DeliveryId,
        attempt: &DeliveryAttempt,
        state: DeliveryState,
    ) -> Result<NoteOutcome, StoreError>;

    /// Makes a dead delivery pending again, in the next round. `None` if it is not dead, or not there.
    async fn reopen(&self, tenant: &TenantId, id: DeliveryId) -> Result<Option<DeliveryRecord>, StoreError>;

    /// At most [`DELIVERIES_PAGE_MAX`] deliveries, newest first, before the given mark.
    async fn deliveries(
        &self,
        filter: &DeliveryFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<DeliveryPage, StoreError>;

    /// The attempts of a delivery, oldest first; at most [`ATTEMPTS_KEPT_MAX`].
    async fn attempts(&self, tenant: &TenantId, id: DeliveryId) -> Result<Vec<DeliveryAttempt>, StoreError>;

    /// Is this key the holder's from now on? It is if nobody has it, if its window is over, or if the holder has it already.
    /// Of any number of concurrent holders, one gets it.
    async fn claim(&self, key: &str, holder: &str, window: Duration) -> Result<bool, StoreError>;

    /// Forgets up to `most` deliveries that ended longer than `retention` ago, and as many claims whose window is over.
    async fn prune_webhooks(&self, retention: Duration, most: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_and_every_state_has_its_word() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::of_word(kind.as_str()), Some(kind));
        }
        for state in DeliveryState::ALL {
            assert_eq!(DeliveryState::of_word(state.as_str()), Some(state));
        }
        assert_eq!((EventKind::of_word("*"), DeliveryState::of_word("lost")), (None, None));
    }
}
