//! The signed door for jobs of other queues: `POST /jobs/{type}`. (ASYNC-010…014, IDEM-017, X-54)
//!
//! ```text
//!  a genuine signature? ─▶ read, up to the limit ─▶ of this body? ─▶ a known type? ─▶ configured? ─▶ payload as it should be?
//!       401, 429               413                    401, 429          404              412             400
//!  ─▶ seen before? ─▶ into the queue, once ─▶ 200
//! ```
//!
//! What comes in is done later by a job handler, under the server's own identity: [`CallOuts`] call the services outside
//! that know embeddings, workflows and push tokens. Gantry has none of these itself.
//!
//! Invariants
//! - DOORJ-1: a message is put into the queue once, however often it is sent: by its id, which the queue keeps unique, and by
//!   the name of its signature, so that a caught request cannot be sent again under another id.
//! - DOORJ-2: what another try would not change is 4xx, what it might is 5xx; neither says more than it must.
//! - DOORJ-3: a handler that lacks its service refuses and says what to set; it never pretends.
//! - DOORJ-4: an `idempotencyKey` is claimed as the message is put into the queue: of any number of messages with one key, one
//!   is done, the same ones are told that it came before, and one that asks for something else is refused (E3410).
//!
//! Not here: HTTP (`server`), the queue.

mod call_outs;
mod embedding_job;
mod handler;
mod notification;
mod reached;
mod workflow;

use std::sync::Arc;
use std::time::Duration;

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::json::{self, JsonLimits};
use policy::{QSTASH_LIFETIME_MAX_SECONDS, QstashClaims, QstashError, QstashReceiver};
use ports::clock::Clock;
use ports::job_entrance::{EnteringJob, EntranceOutcome, JobEntrance};
use ports::webhook_store::WebhookStore;
use serde_json::Value;

pub use call_outs::{CallOutAttempt, CallOutEnd, CallOutParts, CallOutStop, CallOutUrls, CallOuts};
pub use handler::InboundHandler;
pub use workflow::{CallbackTaken, WorkflowCallback};

/// How long a message is remembered: longer than the queues outside try to deliver one.
const REMEMBERED: Duration = Duration::from_secs(3 * 24 * 3600);
/// How long the key of a workflow is remembered by the queue, if its job is; its run remembers it for as long after its end.
const KEY_REMEMBERED: Duration = call_outs::RUNS_RETENTION;
/// How often a job of this door may be started.
const STARTS_MAX: u32 = 4;
/// Longest id of a message.
const MESSAGE_ID_CHARS_MAX: usize = 200;

/// What can come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InboundKind {
    GenerateEmbedding,
    ExecuteWorkflow,
    SendNotification,
}

impl InboundKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::GenerateEmbedding, Self::ExecuteWorkflow, Self::SendNotification];

    /// The word in the path, and the kind of the job.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::GenerateEmbedding => "generate_embedding",
            Self::ExecuteWorkflow => "execute_workflow",
            Self::SendNotification => "send_notification",
        }
    }

    /// The kind of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// What the door needs.
#[derive(Debug)]
pub struct InboundParts {
    pub receiver: QstashReceiver,
    /// Under which address the door is called from outside, without a slash at its end.
    pub public_url: String,
    /// For whom jobs are done.
    pub tenant: TenantId,
    /// Largest body.
    pub bytes_max: usize,
    pub store: Arc<dyn WebhookStore>,
    pub queue: Arc<dyn JobEntrance>,
    pub calls: Arc<CallOuts>,
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

    /// What the handlers of this door call.
    pub fn calls(&self) -> &CallOuts {
        &self.parts.calls
    }

    /// For whom jobs are done.
    pub fn tenant(&self) -> &TenantId {
        &self.parts.tenant
    }

    /// Is this a signature for a message of this kind, sent now? To be asked before the body is read; `kind` is as the path
    /// has it.
    pub fn judge(&self, kind: &str, signature: &str) -> Result<QstashClaims, Refusal> {
        let address = format!("{}/jobs/{kind}", self.parts.public_url);
        let now_seconds = self.parts.clock.now().0.div_euclid(1000);
        self.parts.receiver.judge(signature, &address, now_seconds).map_err(refused)
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
        let claims = self.judge(kind, signature)?;
        claims.covers(body).map_err(refused)?;
        let Some(kind) = InboundKind::of_word(kind) else {
            return Err(Refusal::new(ErrorCode::E3008, "there is no such type of job")
                .hint(format!("known types: {}", InboundKind::ALL.map(InboundKind::as_str).join(", "))));
        };
        self.parts.calls.is_configured(kind)?;
        let limits = JsonLimits { bytes_max: body.len(), string_bytes_max: body.len(), ..JsonLimits::default() };
        let payload = json::read(body, &limits)
            .map_err(|error| Refusal::new(ErrorCode::E3004, format!("the body is not acceptable: {error}")))?;
        check(kind, &payload)?;
        let message = match message_id {
            Some(id) if id.len() > MESSAGE_ID_CHARS_MAX || !id.bytes().all(|byte| byte.is_ascii_graphic()) => {
                return Err(Refusal::new(ErrorCode::E3004, "the id of the message is not acceptable"));
            }
            Some(id) if !id.is_empty() => format!("message {id}"),
            _ => format!("signature {}", claims.token_id),
        };
        // DOORJ-1. A signature belongs to one message; sent with it again, it may still have to be queued. The window is
        // longer than any signature holds.
        let window = Duration::from_secs(QSTASH_LIFETIME_MAX_SECONDS.unsigned_abs() * 2);
        let claim = format!("qstash {}", claims.token_id);
        if !self.parts.store.claim(&claim, &message, window).await.map_err(|error| error.refusal())? {
            return Ok(InboundResult::Again);
        }
        // DOORJ-4. A message keeps the key it came with, so that neither of the two is a way around the other.
        let named =
            if kind == InboundKind::ExecuteWorkflow { workflow::Payload::read(&payload)?.claim() } else { None };
        let (key, window, is_named) = match named {
            Some(named) => {
                if !self.parts.store.claim(&message, &named, REMEMBERED).await.map_err(|error| error.refusal())? {
                    return Ok(InboundResult::Again);
                }
                (named, KEY_REMEMBERED, true)
            }
            None => (message, REMEMBERED, false),
        };
        let job = EnteringJob {
            kind: kind.as_str(),
            tenant: self.parts.tenant.clone(),
            label: kind.as_str().to_owned(),
            flow: format!("inbound {}", kind.as_str()),
            payload,
            delay: Duration::ZERO,
            attempts_max: STARTS_MAX,
            key,
            window,
            is_follow_up: false,
        };
        match self.parts.queue.enter(job).await? {
            EntranceOutcome::New => Ok(InboundResult::Queued),
            EntranceOutcome::Known { same: false } if is_named => Err(workflow::other_input()),
            EntranceOutcome::Known { .. } => Ok(InboundResult::Again),
        }
    }

    /// A workflow says that it has ended (FLOW-006): see [`CallOuts::called_back`]. Its job ends with it.
    pub async fn called_back(&self, signature: &str, body: &[u8]) -> Result<CallbackTaken, Refusal> {
        let heard = self.parts.calls.called_back(&self.parts.tenant, signature, body).await?;
        // Also if it was said before: whoever heard it may have died before the job ended.
        self.parts.queue.told_end(&self.parts.tenant, heard.id, heard.end).await?;
        Ok(heard.taken)
    }
}

fn refused(error: QstashError) -> Refusal {
    tracing::warn!(%error, "a message at the door of jobs was refused");
    not_genuine()
}

/// The same words for every reason: a stranger learns nothing.
pub fn not_genuine() -> Refusal {
    Refusal::new(ErrorCode::E3202, "the signature is missing or not valid")
        .hint("check the signing keys and the address in `[inbound_jobs]`; the server's log says more")
}

/// Is the payload what the handler will want?
fn check(kind: InboundKind, payload: &Value) -> Result<(), Refusal> {
    match kind {
        InboundKind::GenerateEmbedding => embedding_job::Payload::read(payload).map(drop),
        InboundKind::ExecuteWorkflow => workflow::Payload::read(payload).map(drop),
        InboundKind::SendNotification => notification::Payload::read(payload).map(drop),
    }
}

/// Reads a payload; what is wrong with it is said without repeating it.
fn typed<T: serde::de::DeserializeOwned>(payload: &Value, members: &str) -> Result<T, Refusal> {
    serde_json::from_value(payload.clone()).map_err(|_| {
        Refusal::new(ErrorCode::E3004, "the payload has other members than this type of job")
            .hint(format!("send a JSON object with {members}"))
    })
}
