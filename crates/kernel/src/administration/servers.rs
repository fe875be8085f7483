//! MCP servers behind Gantry, as far as the kernel has a say: who may manage them, that it is recorded, and that what they
//! offer becomes a tool of the tenant whose server it is.
//!
//! What a server offers changes without anybody at the keyboard, so there are two ways in: an act of somebody
//! ([`Kernel::server_act`]), and news from a server ([`Kernel::server_changes`]), which only ever takes away.
//!
//! Not here: what is accepted and what is quarantined (`upstreams`).

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::{Execution, Manifest, Protocol};
use contract::version::Version;
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::{AuditAction, AuditRecord};
use serde_json::Value;

use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::recorder::RecordSlot;
use crate::registry::{RegistrationOutcome, not_admitted};

/// An act on servers that may be done and has its place in the audit log. Dropped without [`ServerAct::done`], nothing is
/// recorded: nothing was done.
#[derive(Debug)]
pub struct ServerAct<'a> {
    kernel: &'a Kernel,
    actor: Actor<'a>,
    caller: Arc<Principal>,
    slot: RecordSlot,
    tenant: TenantId,
}

impl ServerAct<'_> {
    /// The tenant it is about.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// Who does it.
    pub fn by(&self) -> &Subject {
        self.caller.subject()
    }

    /// Does whoever does it administer the installation?
    pub fn is_operators(&self) -> bool {
        self.caller.tenant().is_home()
    }

    /// Records that it was done. `note` has words of ours and names that were checked.
    pub async fn done(
        self,
        action: AuditAction,
        tool: Option<(&ToolId, Option<&Version>)>,
        note: String,
    ) -> Result<(), Refusal> {
        let record = self.kernel.act(self.actor, &self.caller, action, None, Some(note));
        let (tool, version) = tool.map_or((None, None), |(tool, version)| (Some(tool.clone()), version.cloned()));
        self.slot.record_durably(AuditRecord { tool, version, ..record }).await
    }
}

impl Kernel {
    /// Recognises somebody who wants to change something about servers, and keeps a place in the audit log.
    pub async fn server_act<'a>(
        &'a self,
        actor: Actor<'a>,
        tenant: Option<&TenantId>,
    ) -> Result<ServerAct<'a>, Refusal> {
        let caller = self.permitted(actor, Action::ManageServers).await?;
        let tenant = self.tenant_for(actor, &caller, tenant).await?;
        let slot = self.parts.recorder.reserve().await?;
        Ok(ServerAct { kernel: self, actor, caller, slot, tenant })
    }

    /// Recognises somebody who wants to look at servers; answers whose.
    pub async fn server_sight(&self, actor: Actor<'_>, tenant: Option<&TenantId>) -> Result<TenantId, Refusal> {
        let caller = self.permitted(actor, Action::SeeServers).await?;
        self.tenant_for(actor, &caller, tenant).await
    }

    /// Compares what a server says of a tool with what it said before, in the places of all comparisons of schemas: a server
    /// can make hundreds of them last a second each.
    pub async fn compare_definitions<T, F>(&self, tenant: &TenantId, by: &Subject, comparing: F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.concurrency.compare(tenant, by.as_str(), self.clock(), comparing).await
    }

    /// Publishes what a server offers as a tool of its tenant, in the name of whoever put the server there.
    pub async fn take_in(
        &self,
        tenant: &TenantId,
        document: Value,
        by: &Subject,
    ) -> Result<RegistrationOutcome, Refusal> {
        let manifest = Manifest::from_value(document).map_err(|error| not_admitted(&error))?;
        if manifest.protocol != Protocol::Mcp || !matches!(manifest.execution, Some(Execution::Mcp { .. })) {
            return Err(Refusal::new(ErrorCode::E3105, "only tools of MCP servers are taken in")
                .hint("publish other tools with `gantry tool add`"));
        }
        let slot = self.parts.recorder.reserve().await?;
        let registration = self.registry().register(tenant, manifest, by).await?;
        if registration.created {
            let version = &registration.version;
            slot.record(AuditRecord {
                tool: Some(version.id.clone()),
                version: Some(version.version.clone()),
                ..self.unattended(
                    tenant,
                    by.clone(),
                    AuditAction::ToolRegistered,
                    "taken in from its server".to_owned(),
                )
            })
            .await?;
        }
        Ok(registration)
    }

    /// Records what became of a tool because of what its server says. `by` is who put the server there.
    pub async fn server_changes(
        &self,
        tenant: &TenantId,
        by: &Subject,
        tool: &ToolId,
        note: String,
    ) -> Result<(), Refusal> {
        let slot = self.parts.recorder.reserve().await?;
        let record = self.unattended(tenant, by.clone(), AuditAction::ToolPinChanged, note);
        slot.record(AuditRecord { tool: Some(tool.clone()), ..record }).await?;
        Ok(())
    }
}
