//! What the handlers of the door have in common: where they call, that the call is signed, and what its end means.
//!
//! The contract with a service: a POST of JSON with `Gantry-Signature` over it; 2xx with JSON is an answer; 429 and 5xx are
//! tried again, everything else is an end. Of workflows, which have effects, more is asked (`workflow`).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TenantId};
use contract::json::{self, JsonLimits};
use jobs::WaitingOutside;
use jobs::inbound_jobs::{InboundServices, NamedAct, WorkflowCallback};
use jobs::webhooks::{SIGNATURE_HEADER, Webhooks, sign};
use ports::audit_sink::AuditAction;
use ports::call_out::{CallOut, CallOutError, CallsOut};
use ports::clock::Clock;
use ports::secret_source::SecretValue;
use ports::workflow_runs::WorkflowRuns;
use serde_json::Value;

use crate::{InboundKind, embedding_job, notification, workflow};

/// Where the services are; one that is not there is refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallOutUrls {
    pub embedding: Option<String>,
    /// The workflow's name is put behind it: `{url}/webhook/{name}`.
    pub workflow: Option<String>,
    pub notification: Option<String>,
}

/// What they need.
#[derive(Debug)]
pub struct CallOutParts {
    pub urls: CallOutUrls,
    /// Signs what goes out, and what comes back from workflows.
    pub secret: Option<SecretValue>,
    pub calls: Arc<dyn CallsOut>,
    pub runs: Arc<dyn WorkflowRuns>,
    /// Hears of workflows that have ended.
    pub webhooks: Option<Arc<Webhooks>>,
    pub clock: Arc<dyn Clock>,
}

/// Calls services outside.
#[derive(Debug)]
pub struct CallOuts {
    pub(crate) parts: CallOutParts,
    /// Has the workflow engine failed to answer when it was asked last?
    workflow_is_silent: AtomicBool,
}

/// A job that came to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct CallOutEnd {
    /// What is kept as its result.
    pub result: Value,
    /// For the audit log; none if nothing was done.
    pub audit: Option<(AuditAction, String)>,
}

/// An attempt that came to nothing.
#[derive(Debug, Clone)]
pub struct CallOutStop {
    pub refusal: Refusal,
    /// Would another attempt be right?
    pub again: bool,
    /// It goes on outside: since when, and when it is worth looking again.
    pub waits: Option<(WaitingOutside, Duration)>,
    /// For the audit log, if it came to an end.
    pub audit: Option<(AuditAction, String)>,
}

/// What is known of an attempt before it begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallOutAttempt {
    /// No attempt follows.
    pub is_last: bool,
    /// It goes on outside, as an earlier attempt has heard.
    pub waits: Option<WaitingOutside>,
}

impl CallOutStop {
    pub(crate) fn finally(refusal: Refusal) -> Self {
        Self { refusal, again: false, waits: None, audit: None }
    }

    pub(crate) fn for_now(refusal: Refusal) -> Self {
        Self { again: true, ..Self::finally(refusal) }
    }
}

/// How long ended runs are kept.
pub(crate) const RUNS_RETENTION: Duration = Duration::from_secs(30 * 24 * 3600);

/// An answer of a service.
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) json: Option<Value>,
}

impl CallOuts {
    /// From its parts.
    pub fn new(parts: CallOutParts) -> Self {
        Self { parts, workflow_is_silent: AtomicBool::new(false) }
    }

    /// Forgets runs that ended long ago. To be called now and then.
    pub async fn prune(&self) {
        /// How many are forgotten at once.
        const PRUNED_AT_ONCE: usize = 1_000;
        if let Err(error) = self.parts.runs.prune_runs(RUNS_RETENTION, PRUNED_AT_ONCE).await {
            tracing::warn!(error = &error as &dyn std::error::Error, "old runs could not be forgotten");
        }
    }

    /// Does one job. `id` is the job's.
    pub async fn run(
        &self,
        kind: InboundKind,
        (tenant, id): (&TenantId, InvocationId),
        payload: &Value,
        attempt: CallOutAttempt,
    ) -> Result<CallOutEnd, CallOutStop> {
        match kind {
            InboundKind::GenerateEmbedding => embedding_job::run(self, payload).await,
            InboundKind::ExecuteWorkflow => workflow::run(self, (tenant, id), payload, attempt).await,
            InboundKind::SendNotification => notification::run(self, payload).await,
        }
    }

    /// DOORJ-3: can this kind be done here at all?
    fn is_ready(&self, kind: InboundKind) -> Result<(), Refusal> {
        self.url(kind)?;
        match &self.parts.secret {
            Some(_) => Ok(()),
            None => Err(unset(kind, "secret")),
        }
    }

    /// Notes whether the workflow engine has answered: not in time, not at all, and with a failure of its own are no answers.
    pub(crate) fn note_workflow(&self, called: Result<&Answer, &CallOutError>) {
        let answers = called.is_ok_and(|answer| answer.status < 500);
        self.workflow_is_silent.store(!answers, Ordering::Relaxed);
    }

    pub(crate) fn url(&self, kind: InboundKind) -> Result<&str, Refusal> {
        let (url, key) = match kind {
            InboundKind::GenerateEmbedding => (&self.parts.urls.embedding, "embedding_url"),
            InboundKind::ExecuteWorkflow => (&self.parts.urls.workflow, "workflow_url"),
            InboundKind::SendNotification => (&self.parts.urls.notification, "notification_url"),
        };
        url.as_deref().ok_or_else(|| unset(kind, key))
    }

    /// What calls are signed with.
    pub(crate) fn secret(&self) -> Result<&SecretValue, Refusal> {
        let unset = || Refusal::new(ErrorCode::E3408, "`[inbound_jobs] secret` is not set");
        self.parts.secret.as_ref().ok_or_else(unset)
    }

    /// Calls a service, signed.
    pub(crate) async fn call(
        &self,
        secret: &SecretValue,
        url: &str,
        body: &Value,
        headers: Vec<(&'static str, String)>,
    ) -> Result<Answer, CallOutError> {
        let body = body.to_string();
        let signature = sign(std::slice::from_ref(secret), self.parts.clock.now(), body.as_bytes());
        let mut headers = headers;
        headers.push((SIGNATURE_HEADER, signature));
        let answer = self.parts.calls.post(CallOut { url, headers: &headers, body: body.as_bytes() }).await?;
        let json = json::read(&answer.body, &JsonLimits::default()).ok();
        Ok(Answer { status: answer.status, json })
    }

    /// The JSON of a good answer.
    pub(crate) async fn ask(&self, url: &str, body: &Value) -> Result<Value, CallOutStop> {
        let secret = self.secret().map_err(CallOutStop::finally)?;
        let called = self.call(secret, url, body, Vec::new()).await;
        let Answer { status, json } = called.map_err(|error| unreached(&error))?;
        if !(200..300).contains(&status) {
            return Err(bad_status(status));
        }
        json.ok_or_else(|| {
            CallOutStop::finally(Refusal::new(ErrorCode::E3502, "the service has not answered with JSON"))
        })
    }
}

#[async_trait]
impl InboundServices for CallOuts {
    fn kinds(&self) -> &'static [&'static str] {
        InboundKind::WORDS
    }

    fn is_configured(&self, kind: &'static str) -> Result<(), Refusal> {
        self.is_ready(known(kind)?)
    }

    fn read(&self, kind: &'static str, payload: &Value) -> Result<Option<NamedAct>, Refusal> {
        match known(kind)? {
            InboundKind::GenerateEmbedding => embedding_job::Payload::read(payload).map(|_| None),
            InboundKind::ExecuteWorkflow => workflow::Payload::read(payload).map(|payload| payload.act()),
            InboundKind::SendNotification => notification::Payload::read(payload).map(|_| None),
        }
    }

    fn judge_callback(&self, signature: &str) -> Result<(), Refusal> {
        self.judge_callback_signature(signature)
    }

    async fn called_back(&self, tenant: &TenantId, signature: &str, body: &[u8]) -> Result<WorkflowCallback, Refusal> {
        self.callback_heard(tenant, signature, body).await
    }

    fn workflow_answers(&self) -> Option<bool> {
        self.is_ready(InboundKind::ExecuteWorkflow).ok()?;
        Some(!self.workflow_is_silent.load(Ordering::Relaxed))
    }
}

/// The kind of a word that is one of [`InboundServices::kinds`].
fn known(kind: &str) -> Result<InboundKind, Refusal> {
    InboundKind::of_word(kind).ok_or_else(|| Refusal::new(ErrorCode::E3008, "there is no such type of job"))
}

/// Nothing of what the service said is repeated.
pub(crate) fn bad_status(status: u16) -> CallOutStop {
    let refusal = Refusal::new(ErrorCode::E3502, format!("the service has answered with status {status}"));
    if status == 429 || status >= 500 { CallOutStop::for_now(refusal) } else { CallOutStop::finally(refusal) }
}

pub(crate) fn unreached(error: &CallOutError) -> CallOutStop {
    let code = match error {
        CallOutError::TimedOut(_) => ErrorCode::E3503,
        CallOutError::Address(_) | CallOutError::Plaintext | CallOutError::NotAllowed(_) => ErrorCode::E3406,
        CallOutError::Unresolved | CallOutError::NotConnected | CallOutError::Redirect(_) | CallOutError::BrokenOff => {
            ErrorCode::E3502
        }
    };
    let refusal = Refusal::new(code, error.to_string());
    if error.is_final() { CallOutStop::finally(refusal) } else { CallOutStop::for_now(refusal) }
}

fn unset(kind: InboundKind, key: &str) -> Refusal {
    Refusal::new(ErrorCode::E3408, format!("this server has nowhere to send `{}` jobs", kind.as_str()))
        .hint(format!("let the operator set `[inbound_jobs] {key}`"))
}
