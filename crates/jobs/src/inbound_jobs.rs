//! The signed door for jobs of other queues: `POST /jobs/{type}`. (ASYNC-010…014, IDEM-017, X-54)
//!
//! ```text
//!  a genuine signature? ─▶ read, up to the limit ─▶ of this body? ─▶ a known type? ─▶ configured? ─▶ payload as it should be?
//!       401, 429               413                    401, 429          404              412             400
//!  ─▶ seen before? ─▶ into the queue, once ─▶ 200
//! ```
//!
//! What comes in is done later by a job handler, under the server's own identity. Which queue it comes from, which kinds of jobs
//! there are and what does them is not known here: a [`MessageVerifier`] and [`InboundServices`] know it.
//!
//! Invariants
//! - DOORJ-1: a message is put into the queue once, however often it is sent: by its id, which the queue keeps unique, and by
//!   the name of its signature, so that a caught request cannot be sent again under another id.
//! - DOORJ-2: what another try would not change is 4xx, what it might is 5xx; neither says more than it must.
//! - DOORJ-3: a handler that lacks its service refuses and says what to set; it never pretends.
//! - DOORJ-4: an `idempotencyKey` is claimed as the message is put into the queue: of any number of messages with one key, one
//!   is done, the same ones are told that it came before, and one that asks for something else is refused (E3410).
//!
//! Not here: HTTP (`server`), the queue, the services (`vendor_services`).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use contract::json::{self, JsonLimits};
use ports::audit_sink::AuditAction;
use ports::clock::{Clock, UnixMillis};
use ports::job_entrance::{EnteringJob, EntranceOutcome, JobEntrance};
use ports::webhook_store::WebhookStore;
use serde_json::Value;

/// How long a message is remembered: longer than the queues outside try to deliver one.
const REMEMBERED: Duration = Duration::from_secs(3 * 24 * 3600);
/// How often a job of this door may be started.
const STARTS_MAX: u32 = 4;
/// Longest id of a message.
const MESSAGE_ID_CHARS_MAX: usize = 200;

/// Verifies messages of another queue by their signatures.
pub trait MessageVerifier: Send + Sync + fmt::Debug {
    /// The word for the queue, under which the names of its signatures are remembered: it never changes.
    fn queue(&self) -> &'static str;

    /// For how long a signature holds at most.
    fn lifetime_max(&self) -> Duration;

    /// Is this a signature for a message to this address, sent now? Everything but whether it is the one of the body, so that
    /// nobody's body is read for nothing. Refused as [`not_genuine`].
    fn judge(&self, signature: &str, address: &str, now: UnixMillis) -> Result<(), Refusal>;

    /// The same, and of this body? Then the name of the signature, which is another one for every attempt to deliver.
    fn verify(&self, signature: &str, address: &str, now: UnixMillis, body: &[u8]) -> Result<String, Refusal>;
}

/// Inbound services: what does the jobs that come in, and tells of workflows that have ended.
#[async_trait]
pub trait InboundServices: Send + Sync + fmt::Debug {
    /// Every kind of job: the word in the path, and the kind of the job in the queue.
    fn kinds(&self) -> &'static [&'static str];

    /// Can this kind be done here at all? (DOORJ-3)
    fn is_configured(&self, kind: &'static str) -> Result<(), Refusal>;

    /// Is the payload what this kind wants? Then the act that it names, if it names one.
    fn read(&self, kind: &'static str, payload: &Value) -> Result<Option<NamedAct>, Refusal>;

    /// Could this be the signature of a callback, sent now? What can be told before the body is read.
    fn judge_callback(&self, signature: &str) -> Result<(), Refusal>;

    /// A workflow says that it has ended. The body must be signed, lately; a second time changes nothing.
    async fn called_back(&self, tenant: &TenantId, signature: &str, body: &[u8]) -> Result<WorkflowCallback, Refusal>;

    /// Does the workflow engine answer, as far as this server has asked it? `None`: there is none. (OPS-010)
    fn workflow_answers(&self) -> Option<bool>;
}

/// The act that a message asks for, as its sender has named it. (DOORJ-4)
#[derive(Debug, Clone, PartialEq)]
pub struct NamedAct {
    /// Unique among the jobs of its kind.
    pub key: String,
    /// For how long the queue remembers it.
    pub window: Duration,
    /// What is said to whoever asks for something else under the same key.
    pub other_input: Refusal,
}

/// What came of a callback.
#[derive(Debug, Clone, PartialEq)]
pub enum CallbackTaken {
    /// The run has ended with it. For the audit log.
    Now { audit: (AuditAction, String) },
    /// It had ended before; nothing was changed.
    Before,
}

/// A callback that was heard.
#[derive(Debug)]
pub struct WorkflowCallback {
    /// Whose.
    pub id: InvocationId,
    /// How the run has ended, by this or before.
    pub end: Result<Value, Refusal>,
    pub taken: CallbackTaken,
}

/// What the door needs.
#[derive(Debug)]
pub struct InboundParts {
    pub verifier: Arc<dyn MessageVerifier>,
    /// Under which address the door is called from outside, without a slash at its end.
    pub public_url: String,
    /// For whom jobs are done.
    pub tenant: TenantId,
    /// Largest body.
    pub bytes_max: usize,
    pub store: Arc<dyn WebhookStore>,
    pub queue: Arc<dyn JobEntrance>,
    pub services: Arc<dyn InboundServices>,
    pub clock: Arc<dyn Clock>,
}

/// The door.
#[derive(Debug)]
pub struct InboundJobs {
    parts: InboundParts,
}

/// What came of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboundResult {
    Queued,
    /// It came before; nothing was done.
    Again,
}

impl InboundJobs {
    /// From its parts.
    pub fn new(parts: InboundParts) -> Self {
        Self { parts }
    }

    /// Largest body.
    pub fn bytes_max(&self) -> usize {
        self.parts.bytes_max
    }

    /// Could this be the signature of a callback, sent now? To be asked before the body is read.
    pub fn judge_callback(&self, signature: &str) -> Result<(), Refusal> {
        self.parts.services.judge_callback(signature)
    }

    /// Does the workflow engine answer, as far as this server has asked it? `None`: there is none. (OPS-010)
    pub fn workflow_answers(&self) -> Option<bool> {
        self.parts.services.workflow_answers()
    }

    /// For whom jobs are done.
    pub fn tenant(&self) -> &TenantId {
        &self.parts.tenant
    }

    /// Is this a signature for a message of this kind, sent now? To be asked before the body is read; `kind` is as the path
    /// has it.
    pub fn judge(&self, kind: &str, signature: &str) -> Result<(), Refusal> {
        self.parts.verifier.judge(signature, &self.address(kind), self.parts.clock.now())
    }

    /// Under which address messages of a kind are sent.
    fn address(&self, kind: &str) -> String {
        format!("{}/jobs/{kind}", self.parts.public_url)
    }

    /// Takes a message. `kind` is as the path has it.
    pub async fn take(
        &self,
        kind: &str,
        signature: &str,
        message_id: Option<&str>,
        body: &[u8],
    ) -> Result<InboundResult, Refusal> {
        // Once more: reading the body may have taken longer than the signature holds.
        let (verifier, services) = (&self.parts.verifier, &self.parts.services);
        let signature_id = verifier.verify(signature, &self.address(kind), self.parts.clock.now(), body)?;
        let Some(kind) = services.kinds().iter().copied().find(|known| *known == kind) else {
            return Err(Refusal::new(ErrorCode::E3008, "there is no such type of job")
                .hint(format!("known types: {}", services.kinds().join(", "))));
        };
        services.is_configured(kind)?;
        let limits = JsonLimits { bytes_max: body.len(), string_bytes_max: body.len(), ..JsonLimits::default() };
        let payload = json::read(body, &limits)
            .map_err(|error| Refusal::new(ErrorCode::E3004, format!("the body is not acceptable: {error}")))?;
        let act = services.read(kind, &payload)?;
        let message = match message_id {
            Some(id) if id.len() > MESSAGE_ID_CHARS_MAX || !id.bytes().all(|byte| byte.is_ascii_graphic()) => {
                return Err(Refusal::new(ErrorCode::E3004, "the id of the message is not acceptable"));
            }
            Some(id) if !id.is_empty() => format!("message {id}"),
            _ => format!("signature {signature_id}"),
        };
        // DOORJ-1. A signature belongs to one message; sent with it again, it may still have to be queued. The window is
        // longer than any signature holds.
        let window = verifier.lifetime_max().saturating_mul(2);
        let claim = format!("{} {signature_id}", verifier.queue());
        if !self.parts.store.claim(&claim, &message, window).await.map_err(|error| error.refusal())? {
            return Ok(InboundResult::Again);
        }
        // DOORJ-4. A message keeps the key it came with, so that neither of the two is a way around the other.
        let (key, window, other_input) = match act {
            Some(NamedAct { key, window, other_input }) => {
                if !self.parts.store.claim(&message, &key, REMEMBERED).await.map_err(|error| error.refusal())? {
                    return Ok(InboundResult::Again);
                }
                (key, window, Some(other_input))
            }
            None => (message, REMEMBERED, None),
        };
        let job = EnteringJob {
            kind,
            tenant: self.parts.tenant.clone(),
            label: kind.to_owned(),
            flow: format!("inbound {kind}"),
            payload,
            delay: Duration::ZERO,
            attempts_max: STARTS_MAX,
            key,
            window,
            is_follow_up: false,
        };
        match self.parts.queue.enter(job).await? {
            EntranceOutcome::New => Ok(InboundResult::Queued),
            EntranceOutcome::Known { same: false } => other_input.map_or(Ok(InboundResult::Again), Err),
            EntranceOutcome::Known { same: true } => Ok(InboundResult::Again),
        }
    }

    /// A workflow says that it has ended (FLOW-006): see [`InboundServices::called_back`]. Its job ends with it.
    pub async fn called_back(&self, signature: &str, body: &[u8]) -> Result<CallbackTaken, Refusal> {
        let heard = self.parts.services.called_back(&self.parts.tenant, signature, body).await?;
        // Also if it was said before: whoever heard it may have died before the job ended.
        self.parts.queue.told_end(&self.parts.tenant, heard.id, heard.end).await?;
        Ok(heard.taken)
    }
}

/// The same words for every reason: a stranger learns nothing.
pub fn not_genuine() -> Refusal {
    Refusal::new(ErrorCode::E3202, "the signature is missing or not valid")
        .hint("check the signing keys and the address in `[inbound_jobs]`; the server's log says more")
}
