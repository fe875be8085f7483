//! Where audit records go. One record per call, refusal and administrative change.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::cost::Costs;
use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, Subject, TenantId, ToolId, TraceId};
use contract::manifest::{SideEffect, SideEffectPolicy};
use contract::version::Version;
use serde::{Deserialize, Serialize};

use crate::clock::UnixMillis;
use crate::executor::ResourceUsage;

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditAction {
    /// A tool with effects is about to run. Durable before it starts.
    InvocationStarted,
    /// A call was let in and waits in the queue of jobs.
    InvocationAccepted,
    /// Somebody wants a job to end before its time.
    InvocationCancelAsked,
    /// A job that is no call of a tool came to the end of an attempt.
    JobFinished,
    /// A call came to its end, whatever the end.
    InvocationFinished,
    /// A person said what became of a call whose outcome was unknown.
    InvocationResolved,
    ToolRegistered,
    ToolLifecycleChanged,
    TokenMinted,
    /// A token was narrowed and handed on.
    TokenDelegated,
    TokenRevoked,
    KeysRotated,
    /// How much the server says in its log was changed.
    LogLevelChanged,
    /// Somebody changed a breaker by hand.
    BreakerMoved,
    TenantsChanged,
    AgentsChanged,
    ActivationsChanged,
    PoliciesChanged,
    /// A resource, a prompt or a completion of a server behind this one was asked for.
    OfferingAsked,
    /// An MCP server was put behind Gantry, changed, restarted or taken away.
    ServersChanged,
    /// What is known of a tool of such a server has changed: quarantined, released, withdrawn, accepted, rejected,
    /// classified.
    ToolPinChanged,
    /// Somebody named, rolled back to or deleted what was kept of a call.
    CheckpointsChanged,
    /// A subscription to webhooks was added, changed, tried or taken away, or something sent again.
    WebhooksChanged,
    /// An embedding was made outside.
    EmbeddingGenerated,
    /// A workflow outside has come to its end.
    WorkflowCompleted,
    /// A notification was sent.
    NotificationSent,
    /// Somebody tried an administrative act without the right to it.
    ActRefused,
}

/// Who did it, on whose behalf, and through whose hands the right to do it went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedActor {
    pub tenant: TenantId,
    pub subject: Subject,
    pub user: Option<Subject>,
    pub token_id: Option<Box<str>>,
    /// The nearest delegator first.
    pub chain: Vec<DelegationLink>,
}

impl RecordedActor {
    /// The root of the delegation chain: whatever is counted for a subject is counted for it, because names below it are of
    /// the holder's own making.
    pub fn root(&self) -> &Subject {
        self.chain.last().map_or(&self.subject, |link| &link.subject)
    }
}

/// One hand a right went through.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelegationLink {
    pub subject: Subject,
    pub token_id: Option<Box<str>>,
}

/// One record. Results are never in it, and parameters only as a digest and redacted (X-26, AUD-010).
#[derive(Debug, Clone, PartialEq)]
pub struct AuditRecord {
    pub at: UnixMillis,
    pub action: AuditAction,
    pub trace_id: TraceId,
    pub invocation_id: Option<InvocationId>,
    pub who: Option<Arc<RecordedActor>>,
    pub tool: Option<ToolId>,
    pub version: Option<Version>,
    pub status: Option<InvocationStatus>,
    pub code: Option<ErrorCode>,
    pub parameters_digest: Option<Digest>,
    /// The parameters, redacted and bounded.
    pub parameters: Option<JsonText>,
    /// What was decided about a call, and what it may have changed.
    pub judged: Option<Box<RecordedDecision>>,
    pub duration_ms: Option<u64>,
    /// What the call used, where an executor could tell. There once the tool has answered.
    pub usage: Option<ResourceUsage>,
    /// What it cost, part by part. There once the tool has answered.
    pub cost: Option<Costs>,
    /// A word or two more, for example the new lifecycle state. Never caller-controlled free text.
    pub note: Option<String>,
}

/// What was decided about a call, and what came of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecordedDecision {
    /// Whether it was let run, once that was decided.
    pub decision: Option<DecisionReason>,
    /// What the tool's manifest says about its effects, once the tool is known.
    pub side_effects: Option<SideEffectPolicy>,
    /// Which effects it declares; none for a pure tool.
    pub effects: Vec<SideEffect>,
    /// The digest of the result as it was returned.
    pub result_digest: Option<Digest>,
    /// What the result looks like.
    pub result_shape: Option<ResultShape>,
}

/// What a result looks like, without a word of what is in it: enough to see that a list came back empty, nothing to redact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultShape {
    /// The name of its JSON type.
    pub kind: &'static str,
    /// Members of an object, items of an array, characters of a text.
    pub count: Option<usize>,
}

impl ResultShape {
    /// That of this value.
    pub fn of(value: &serde_json::Value) -> Self {
        use serde_json::Value;
        let (kind, count) = match value {
            Value::Null => ("null", None),
            Value::Bool(_) => ("boolean", None),
            Value::Number(_) => ("number", None),
            Value::String(text) => ("string", Some(text.chars().count())),
            Value::Array(items) => ("array", Some(items.len())),
            Value::Object(members) => ("object", Some(members.len())),
        };
        Self { kind, count }
    }
}

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecisionReason {
    pub allowed: bool,
    /// The policies behind it, or the code of the refusal; `token` if no policy had a say.
    pub reason: Cow<'static, str>,
}

/// The text of a JSON value, on one line. It can only be made from a value, so a sink may write it as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JsonText(Arc<str>);

impl JsonText {
    /// The text of this value.
    pub fn of(value: &serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl Deref for JsonText {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// Why records could not be kept.
#[derive(Debug, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct AuditError(#[source] pub Box<dyn std::error::Error + Send + Sync>);

/// Keeps records. The recorder calls one of the methods that write at a time, so records stand in the order of the calls.
#[async_trait]
pub trait AuditSink: Send + Sync + fmt::Debug {
    /// Writes all records in order, and returns once the end of this process cannot take them any more. The end of the
    /// machine can, until the next [`sync`](Self::sync). On an error none, some or all may be written; the caller repeats the
    /// whole batch, so readers must tolerate repeated records (at least once).
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError>;

    /// The same at once, on the thread that asks. `None` if something would have to be waited for, and then nothing was
    /// written: [`write`](Self::write) does it.
    fn write_now(&self, records: &[AuditRecord]) -> Option<Result<(), AuditError>> {
        let _ = records;
        None
    }

    /// Returns once everything that was written before is durable. What is written meanwhile need not be. After an error it is
    /// asked again.
    async fn sync(&self) -> Result<(), AuditError> {
        Ok(())
    }

    /// What there is to do after a sync and nobody waits for: room for what comes, checkpoints.
    async fn maintain(&self) {}

    /// Appends all records durably.
    async fn append(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        self.write(records).await?;
        self.sync().await?;
        self.maintain().await;
        Ok(())
    }

    /// Will the records of calls that are let in now fit? Asked after every write, so it must cost nothing. A sink that
    /// cannot tell says yes.
    fn has_room(&self) -> bool {
        true
    }

    /// Looks for room again, after it had none.
    async fn make_room(&self) {}
}
