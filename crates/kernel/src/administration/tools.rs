//! Publishing tools and changing their lifecycles. A tool belongs to the tenant of whoever publishes it; those of the
//! home tenant are the shared catalogue.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::event_name::EventName;
use contract::manifest::{Execution, Manifest};
use contract::version::Version;
use policy::Action;
use serde_json::{Value, json};

use super::Actor;
use crate::insights::Happening;
use crate::invoke::Kernel;
use crate::ports::audit_sink::AuditAction;
use crate::registry::{LifecycleAction, Registration, Tool, ToolVersion, not_admitted};

impl Kernel {
    /// Publishes the manifest in `document`, naming every reason against it at once.
    pub async fn publish(&self, actor: Actor<'_>, document: Value) -> Result<Registration, Refusal> {
        let caller = self.permitted(actor, Action::PublishTool).await?;
        let manifest = Manifest::from_value(document).map_err(|error| not_admitted(&error))?;
        if !caller.tenant().is_home() && matches!(manifest.execution, Some(Execution::Builtin { .. })) {
            return Err(builtins_are_shared());
        }
        if matches!(manifest.execution, Some(Execution::Mcp { .. })) {
            return Err(servers_speak_for_themselves());
        }
        let slot = self.parts.recorder.reserve().await?;
        let registration = self.registry().register(caller.tenant(), manifest, caller.subject()).await?;
        if registration.created {
            slot.record(self.act(actor, &caller, AuditAction::ToolRegistered, Some(&registration.version), None));
        }
        Ok(registration)
    }

    /// Changes the lifecycle of one version, or of all versions of a tool.
    pub async fn change_lifecycle(
        &self,
        actor: Actor<'_>,
        tool: &str,
        version: Option<&Version>,
        action: &LifecycleAction,
    ) -> Result<Vec<Arc<ToolVersion>>, Refusal> {
        let caller = self.permitted(actor, Action::ChangeLifecycle).await?;
        let slot = self.parts.recorder.reserve().await?;
        let access = self.access().snapshot().clone();
        let sight = self.sight(&access, &caller);
        let may_know = |tool: &Tool| tool.tenant == *caller.tenant() || sight.knows(tool);
        let changed = self.registry().change_lifecycle(caller.tenant(), tool, version, action, may_know).await?;
        let first = changed.first().map(|v| &**v);
        let note = format!("{} ({} versions)", action.verb(), changed.len());
        slot.record(self.act(actor, &caller, AuditAction::ToolLifecycleChanged, first, Some(note)));
        if let (LifecycleAction::Remove, Some(insights)) = (action, self.insights()) {
            let (at, by) = (self.clock().now(), json!({ "by": caller.subject() }));
            for version in &changed {
                insights.happened(Happening::about(version, EventName::ToolVersionRemoved, at, by.clone())).await;
            }
        }
        Ok(changed)
    }
}

/// A tool of a server is what its server says and what an administrator has accepted of that; a manifest by hand would be a
/// way around both.
fn servers_speak_for_themselves() -> Refusal {
    Refusal::new(ErrorCode::E3105, "tools of MCP servers are taken in from their servers")
        .hint("put the server behind Gantry: `gantry server add`, or `gantry import mcp`")
}

/// A tenant that was not given a built-in tool must not get it back under a name of its own, past the policies that name it.
fn builtins_are_shared() -> Refusal {
    Refusal::new(ErrorCode::E3105, "built-in handlers are for the shared catalogue only")
        .hint("publish a tool that runs something of the tenant's own, or ask the installation's administrators for the built-in one")
}
