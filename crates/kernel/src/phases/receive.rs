//! Phase 1, receive: make room in the audit log, recognise the caller, find the tool and the version it means.

use std::sync::Arc;
use std::time::Duration;

use contract::envelope::InvokeRequest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::version::VersionSpec;
use policy::Caller;

use super::facts::Facts;
use crate::invoke::{Arrival, Kernel};
use crate::registry::ToolVersion;

/// A call whose caller and tool are known.
#[derive(Debug)]
pub struct Received {
    pub(super) caller: Arc<Caller>,
    pub(super) tool: Arc<ToolVersion>,
    pub(super) request: InvokeRequest,
    pub(super) parent_left: Option<Duration>,
}

/// Runs the phase.
pub async fn receive(kernel: &Kernel, facts: &mut Facts, arrival: Arrival<'_>) -> Result<Received, Refusal> {
    facts.slot = Some(kernel.parts.recorder.reserve().await?);

    let now = facts.started_at;
    let caller = kernel.identity().recognise(arrival.credential, now)?;
    facts.caller = Some(Arc::clone(&caller));

    let request = arrival.request;
    let spec = VersionSpec::parse(request.tool_version.as_deref().unwrap_or_default())
        .map_err(|error| Refusal::new(ErrorCode::E3004, format!("tool_version: {error}")))?;
    let snapshot = kernel.registry().snapshot();
    let tool = snapshot
        .find(caller.tenant(), &request.tool_id)
        .ok_or_else(|| snapshot.not_found(caller.tenant(), &request.tool_id, |tool| caller.may_know(&tool.id)))?;
    // Before anything about its versions or parameters is said.
    if !caller.may_know(&tool.id) {
        return Err(not_named(&tool.id));
    }
    let tool = tool.resolve(&spec, now)?;
    facts.tool = Some(Arc::clone(tool));

    Ok(Received { caller, tool: Arc::clone(tool), request, parent_left: arrival.parent_left })
}

/// AUTH-004: the token does not name the tool at all.
fn not_named(tool: &ToolId) -> Refusal {
    Refusal::new(ErrorCode::E3204, format!("the token does not name `{tool}`"))
        .hint("ask for a token whose `tools` include it")
}
