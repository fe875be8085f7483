//! Publishing tools and changing their lifecycles. A tool belongs to the tenant of whoever publishes it; those of the
//! home tenant are the shared catalogue.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::event_name::EventName;
use contract::ids::{TenantId, ToolId};
use contract::manifest::{Execution, Manifest, ManifestError};
use contract::version::Version;
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditRecord};
use ports::event_announcer::VersionEvent;
use ports::lifecycle::LifecycleAction;
use ports::registry_store::ToolQuarantine;
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};

use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::recorder::RecordSlot;
use crate::registry::{RegisteredTool, RegistrationOutcome, not_admitted};

/// Longest reason of a quarantine or release.
const REASON_CHARS_MAX: usize = 500;

/// What a quarantine and a release have in common: who does it, for whose tool, why, and the place of its record.
struct QuarantineAct {
    caller: Arc<Principal>,
    tenant: TenantId,
    reason: String,
    slot: RecordSlot,
}

/// Why a manifest that wants its state saved is not admitted.
const NO_WAY_TO_SAVE: &str = "a tool of this kind has no way to save checkpoints: programs that speak `gantry/1` and WASM \
                              components have; leave it out, or bind the tool to one of these";

impl Kernel {
    /// Publishes the manifest in `document` as a tool of the caller's tenant, naming every reason against it at once.
    pub async fn publish(&self, actor: Actor<'_>, document: Value) -> Result<RegistrationOutcome, Refusal> {
        self.publish_for(actor, None, document).await
    }

    /// The same for another tenant, by whoever administers the installation.
    pub async fn publish_for(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        document: Value,
    ) -> Result<RegistrationOutcome, Refusal> {
        let caller = self.permitted(actor, Action::PublishTool).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        // Before the rules: what was published under the rules of an earlier release stays published.
        if let Some(registration) = Manifest::as_written(&document).and_then(|m| self.registry().known(&tenant, &m)) {
            return Ok(registration);
        }
        let manifest = Manifest::from_value(document).map_err(|error| not_admitted(&error))?;
        if !tenant.is_home() && matches!(manifest.execution, Some(Execution::Builtin { .. })) {
            return Err(builtins_are_shared());
        }
        if matches!(manifest.execution, Some(Execution::Mcp { .. })) {
            return Err(servers_speak_for_themselves());
        }
        // Of a version that is there, its being there is what matters.
        if !self.registry().is_taken(&tenant, &manifest) {
            self.can_run(&tenant, &manifest)?;
        }
        let slot = self.parts.recorder.reserve().await?;
        let registration = self.registry().register(&tenant, manifest, caller.subject()).await?;
        if registration.created {
            slot.record_durably(self.act(
                actor,
                &caller,
                AuditAction::ToolRegistered,
                Some(&registration.version),
                None,
            ))
            .await?;
        }
        Ok(registration)
    }

    /// What nothing on this server can run is refused here and not at the first call.
    fn can_run(&self, tenant: &TenantId, manifest: &Manifest) -> Result<(), Refusal> {
        let Some(binding) = &manifest.execution else { return Ok(()) };
        if let Some(executor) = self.parts.executors.iter().find(|executor| executor.kind() == binding.kind()) {
            if let Some(config) = manifest.checkpoint_config.as_ref().filter(|_| !executor.saves(manifest)) {
                // Whatever it says: nothing of it would come about, whoever calls.
                let place = if config.enabled { "/checkpoint_config/enabled" } else { "/checkpoint_config" };
                return Err(not_admitted(&ManifestError::one(place, NO_WAY_TO_SAVE)));
            }
            return executor.admits(tenant, manifest).map_err(|error| not_admitted(&error));
        }
        let mut known: Vec<&str> = self.parts.executors.iter().map(|executor| executor.kind()).collect();
        // Tools of servers are not registered by hand.
        known.retain(|kind| *kind != "mcp");
        known.sort_unstable();
        let said = format!(
            "`{}` is not supported by this version of Gantry, which runs {}",
            binding.kind(),
            known.iter().map(|kind| format!("`{kind}`")).collect::<Vec<_>>().join(", ")
        );
        Err(not_admitted(&ManifestError::one("/execution/type", said)))
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
        let may_know = |tool: &RegisteredTool| tool.tenant == *caller.tenant() || sight.knows(tool);
        let changed = self.registry().change_lifecycle(caller.tenant(), tool, version, action, may_know).await?;
        let first = changed.first().map(|v| &**v);
        let note = format!("{} ({} versions)", action.verb(), changed.len());
        slot.record_durably(self.act(actor, &caller, AuditAction::ToolLifecycleChanged, first, Some(note))).await?;
        if let (LifecycleAction::Remove, Some(insights)) = (action, &self.insights) {
            let (at, by) = (self.clock().now(), json!({ "by": caller.subject() }));
            for version in &changed {
                insights.happened(VersionEvent::about(version, EventName::ToolVersionRemoved, at, by.clone())).await;
            }
        }
        Ok(changed)
    }

    /// Takes a tool out of use in every version, on every instance, until somebody releases it (REG-024). `tenant`: whose tool,
    /// if it is another's than the caller's, for whoever administers the installation.
    pub async fn quarantine(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        tool: &str,
        reason: &str,
    ) -> Result<ToolQuarantine, Refusal> {
        let QuarantineAct { caller, tenant, reason, slot } = self.quarantine_act(actor, tenant, reason).await?;
        let access = self.access().snapshot().clone();
        let sight = self.sight(&access, &caller);
        let may_know = |tool: &RegisteredTool| tool.tenant == tenant || sight.knows(tool);
        let by = (reason, caller.subject(), caller.tenant());
        let held = self.registry().quarantine(&tenant, tool, by, may_know).await?;
        let note = format!("quarantine {}{}: {}", held.tool, of_tenant(&caller, &tenant), held.reason);
        slot.record_durably(self.about_quarantine(actor, &caller, &held.tool, note)).await?;
        Ok(held)
    }

    /// Puts a tool that a person has taken out of use back into it; `tenant` as for taking it out. What the installation took
    /// out of use, it alone puts back.
    pub async fn release(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        tool: &str,
        reason: &str,
    ) -> Result<ToolId, Refusal> {
        let QuarantineAct { caller, tenant, reason, slot } = self.quarantine_act(actor, tenant, reason).await?;
        let access = self.access().snapshot().clone();
        let sight = self.sight(&access, &caller);
        let may_know = |tool: &RegisteredTool| tool.tenant == tenant || sight.knows(tool);
        let released = self.registry().release(&tenant, tool, caller.tenant(), may_know).await?;
        let note = format!("release {released}{}: {reason}", of_tenant(&caller, &tenant));
        slot.record_durably(self.about_quarantine(actor, &caller, &released, note)).await?;
        Ok(released)
    }

    /// A quarantine or release that may be made and has room for its record.
    async fn quarantine_act(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        reason: &str,
    ) -> Result<QuarantineAct, Refusal> {
        let caller = self.permitted(actor, Action::ChangeLifecycle).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        let reason = self.reason(reason)?;
        Ok(QuarantineAct { caller, tenant, reason, slot: self.parts.recorder.reserve().await? })
    }

    fn about_quarantine(&self, actor: Actor<'_>, caller: &Principal, tool: &ToolId, note: String) -> AuditRecord {
        let record = self.act(actor, caller, AuditAction::ToolLifecycleChanged, None, Some(note));
        AuditRecord { tool: Some(tool.clone()), ..record }
    }

    /// A reason as it is kept: what must not be seen is taken out.
    fn reason(&self, text: &str) -> Result<String, Refusal> {
        let text = text.trim();
        let fits = (1..=REASON_CHARS_MAX).contains(&text.chars().count()) && !text.chars().any(char::is_control);
        if fits {
            return Ok(self.parts.redactor.text(text).into_owned());
        }
        Err(Refusal::new(ErrorCode::E3004, "`reason` has a wrong shape")
            .hint(format!("say why in 1 to {REASON_CHARS_MAX} printable characters")))
    }
}

/// Whose tool it is, if not the caller's own.
fn of_tenant(caller: &Principal, tenant: &TenantId) -> String {
    if caller.tenant() == tenant { String::new() } else { format!(" of tenant {tenant}") }
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
