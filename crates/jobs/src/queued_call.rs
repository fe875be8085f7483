//! Call record: what a job keeps of a call, the request, and who it was let in for.
//!
//! The tool's version is pinned to the one that was let in, so a job does what was asked for and not what the name means
//! by the time it runs.

use std::sync::Arc;

use contract::envelope::InvokeRequest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{InvocationId, TraceId};
use contract::trace_context::TraceContext;
use kernel::{Kernel, Principal};
use policy::CallerRecord;
use ports::clock::UnixMillis;
use ports::tool_version::ToolVersion;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// One call, written down.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct QueuedCall {
    pub(super) request: InvokeRequest,
    pub(super) caller: CallerRecord,
    /// The trace it was submitted in, as 32 hex digits.
    trace_id: String,
    /// The span it was submitted in, as headers have it, so that what the job does hangs under it. Absent if the trace began
    /// nowhere that has a span, and in jobs of earlier releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    traceparent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tracestate: Option<String>,
    /// When it was let in, in milliseconds since the epoch.
    admitted_at: i64,
    /// May the call be made again although nobody knows how far an earlier attempt came?
    pub(super) repeatable: bool,
    /// The call whose failure this one is to try anew: its key is freed before this one begins. (decision 0081)
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) supersedes: Option<InvocationId>,
}

impl QueuedCall {
    pub(super) fn new(
        principal: &Principal,
        tool: &ToolVersion,
        request: InvokeRequest,
        trace: &TraceContext,
        now: UnixMillis,
    ) -> Self {
        Self {
            request: InvokeRequest { tool_version: Some(tool.version.to_string()), ..request },
            caller: CallerRecord::of(principal.caller()),
            trace_id: trace.trace_id.to_string(),
            traceparent: trace.traceparent(),
            tracestate: trace.tracestate().map(ToOwned::to_owned),
            admitted_at: now.0,
            repeatable: tool.manifest.side_effect_policy.is_safe_to_retry(),
            supersedes: None,
        }
    }

    pub(super) fn to_value(&self) -> Result<Value, Refusal> {
        serde_json::to_value(self).map_err(|_| Refusal::new(ErrorCode::E3000, "the call could not be written down"))
    }

    pub(super) fn read(payload: &Value) -> Result<Self, Refusal> {
        Self::deserialize(payload).map_err(|_| {
            Refusal::new(ErrorCode::E3000, "the call was kept in a form that this server does not read")
                .hint("submit it again")
                .retryable(false)
        })
    }

    /// Where the job goes on in the trace it was submitted in.
    pub(super) fn trace(&self) -> Option<TraceContext> {
        let kept =
            self.traceparent.as_deref().and_then(|parent| TraceContext::read(parent, self.tracestate.as_deref()));
        kept.or_else(|| {
            // As a header has it, because that is the form that is checked.
            TraceId::from_traceparent(&format!("00-{}-0000000000000001-01", self.trace_id)).map(TraceContext::begun)
        })
    }

    pub(super) fn admitted_at(&self) -> UnixMillis {
        UnixMillis(self.admitted_at)
    }

    /// The caller, to be asked about again.
    pub(super) fn principal(&self, kernel: &Kernel) -> Arc<Principal> {
        kernel.caller_of(self.caller.clone())
    }
}

/// What is kept of a payload when its job is done: who is to be called back, if somebody is, and no parameters. What is done
/// is not begun again.
pub(super) fn kept_when_done(payload: &Value) -> Value {
    let is_called_back =
        payload.pointer("/request/execution_options/callback").is_some_and(|callback| !callback.is_null());
    if !is_called_back {
        return Value::Null;
    }
    let mut kept = payload.clone();
    if let Some(parameters) = kept.pointer_mut("/request/parameters") {
        *parameters = json!({});
    }
    kept
}

/// The same payload for a job with another id.
pub(super) fn under_new_id(mut payload: Value, id: InvocationId) -> Value {
    if let Some(given) = payload.pointer_mut("/request/invocation_id") {
        *given = json!(id);
    }
    payload
}
