//! Webhooks: somebody is told when something has ended, provably by us, once at least, and not for ever.
//! (ASYNC-007, X-54, DESIGN §5)
//!
//! ```text
//!  announce(completion) ─▶ which subscriptions and callbacks? ─▶ a delivery each (durable) ─▶ a job `webhook` each
//!                                                                                              │
//!  queue ─▶ deliver(delivery) ─▶ sign ─▶ call out ─▶ note the attempt ─▶ delivered · again later · dead letter
//! ```
//!
//! Invariants
//! - WHK-1: announcing twice sends once: delivery and job are named after what they tell.
//! - WHK-2: a delivery is repeated until it is acknowledged (2xx) or given up, so receivers see it at least once; every
//!   repetition has the same `id` in its body and the same `gantry-delivery-id`.
//! - WHK-3: what is given up is kept and can be sent again; it is recorded as E3704.
//! - WHK-4: nothing a receiver says is kept but its status.
//!
//! Not here: where may be called (`CallsOut`), the queue itself, and when a call has ended.

mod administration;
mod announce;
mod deliver;
mod job;
mod schedule;
mod secrets;
mod signature;

use std::sync::Arc;
use std::time::Duration;

pub use administration::{DeliveryReport, ResentDelivery, TriedAddress, WebhookWish};
pub use announce::{CompletedCall, EVENT_BYTES_MAX};
pub use deliver::{DELIVERY_JOB, DeliveryOutcome, DeliveryTurn};
pub use job::DeliveryJobs;
use ports::call_out::CallsOut;
use ports::clock::Clock;
use ports::entropy::Entropy;
use ports::job_entrance::JobEntrance;
use ports::secret_source::{SecretSource, SecretValue};
use ports::webhook_store::WebhookStore;
pub use schedule::ATTEMPTS_DEFAULT;
pub use signature::{SIGNATURE_HEADER, SIGNATURE_TOLERANCE, SignatureError, is_of_now, sign, verify};

/// Subscriptions that a tenant may have.
pub const WEBHOOKS_PER_TENANT_MAX: usize = 100;
/// How long a replaced secret keeps signing beside its follower, unless somebody says otherwise; and at most.
pub const OVERLAP_DEFAULT: Duration = Duration::from_secs(24 * 3600);
pub const OVERLAP_MAX: Duration = Duration::from_secs(30 * 24 * 3600);

/// What webhooks need.
#[derive(Debug)]
pub struct WebhookParts {
    pub store: Arc<dyn WebhookStore>,
    pub calls: Arc<dyn CallsOut>,
    pub queue: Arc<dyn JobEntrance>,
    pub secrets: Arc<dyn SecretSource>,
    /// What generated secrets are derived from: 32 unpredictable bytes that live as long as the installation.
    pub root: SecretValue,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub settings: WebhookSettings,
}

/// How patient deliveries are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebhookSettings {
    /// Attempts of one round; then the delivery is given up.
    pub attempts_max: u32,
    /// How long ended deliveries are kept for the log.
    pub retention: Duration,
}

impl Default for WebhookSettings {
    fn default() -> Self {
        Self { attempts_max: ATTEMPTS_DEFAULT, retention: Duration::from_secs(7 * 24 * 3600) }
    }
}

/// Tells those who want to know.
#[derive(Debug)]
pub struct Webhooks {
    parts: WebhookParts,
}

impl Webhooks {
    /// From its parts.
    pub fn new(parts: WebhookParts) -> Self {
        Self { parts }
    }

    /// Forgets what has been kept long enough. To be called now and then.
    pub async fn prune(&self) {
        /// Rows forgotten at once: a short transaction.
        const PRUNED_AT_ONCE: usize = 1_000;
        match self.parts.store.prune_webhooks(self.parts.settings.retention, PRUNED_AT_ONCE).await {
            Ok(0) => {}
            Ok(forgotten) => tracing::debug!(forgotten, "old webhook deliveries were forgotten"),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "old deliveries could not be forgotten")
            }
        }
    }
}
