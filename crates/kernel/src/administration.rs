//! What people do besides calling tools. Each act recognises its caller, checks the role and the tenant, and leaves an
//! audit record; an act that cannot be recorded is not done, and one that is refused is recorded too.
//!
//! Roles say *what* somebody may do, the token's tenant says *where*: whoever administers the home tenant administers the
//! installation and may name any tenant; everybody else acts in the own tenant and learns nothing about others, not even
//! whether they exist.

use std::net::IpAddr;
use std::sync::Arc;

use contract::envelope::AgentContext;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use policy::Action;
use ports::actor::{Actor, SYSTEM_SUBJECT};
use ports::audit_sink::{AuditAction, AuditRecord, RecordedActor};
use ports::entropy::new_trace_id;
use ports::tool_version::ToolVersion;

use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::phases::context_agrees_with_the_token;
use crate::recorder::RecordSlot;

mod audit;
mod breakers;
mod grounds;
mod instances;
mod log_level;
mod policies;
mod removals;
mod servers;
mod tokens;
mod tool_folders;
mod tool_logs;
mod tools;

pub use audit::{AuditFound, AuditNext, AuditScope};
pub use grounds::{ActivationWish, ReplacedActivation, TenantWish};
pub use instances::sees_metrics;
pub use policies::{PoliciesView, PolicyVersion};
pub use servers::ServerAct;
pub use tokens::{DelegationRequest, RevocationRequest};

impl Kernel {
    /// Recognises the caller of anything that is not a tool call.
    pub async fn recognise(&self, actor: Actor<'_>) -> Result<Arc<Principal>, Refusal> {
        self.identity().recognise(self.access(), actor.credential, actor.source, self.clock().now()).await
    }

    /// What somebody is told whose proof, which is no token, does not hold. It counts as a failed authentication.
    pub fn unproven(&self, source: Option<IpAddr>, refusal: Refusal) -> Refusal {
        self.identity().unproven(source, self.clock().now(), refusal)
    }

    /// Recognises the caller, and refuses a context that says it is somebody else.
    pub async fn agrees_with_token(&self, actor: Actor<'_>, context: &AgentContext) -> Result<(), Refusal> {
        let caller = self.recognise(actor).await?;
        context_agrees_with_the_token(&caller, context)
    }

    /// Recognises the caller and checks that its role lets it act. A refusal is recorded.
    pub async fn permitted(&self, actor: Actor<'_>, action: Action) -> Result<Arc<Principal>, Refusal> {
        let caller = self.recognise(actor).await?;
        if caller.may(action) {
            return Ok(caller);
        }
        let refusal = Refusal::new(ErrorCode::E3206, format!("this token may not {}", action.as_str()))
            .hint("use the admin token, or a token with a role that may");
        Err(self.refuse(actor, &caller, format!("may not {}", action.as_str()), refusal).await)
    }

    /// The tenant an act is about: the own one, or any if the caller administers the installation. A refusal is recorded.
    pub async fn tenant_for(
        &self,
        actor: Actor<'_>,
        caller: &Principal,
        named: Option<&TenantId>,
    ) -> Result<TenantId, Refusal> {
        match named {
            Some(named) if named != caller.tenant() && !caller.tenant().is_home() => {
                // Whatever somebody calls a tenant, so what must not be seen goes.
                let note = self.parts.redactor.text(&format!("may not act in tenant {named}")).into_owned();
                Err(self.refuse(actor, caller, note, elsewhere()).await)
            }
            Some(named) => Ok(named.clone()),
            None => Ok(caller.tenant().clone()),
        }
    }

    /// For what concerns everybody: does the caller administer the installation? A refusal is recorded.
    pub async fn of_the_installation(&self, actor: Actor<'_>, caller: &Principal) -> Result<(), Refusal> {
        if caller.tenant().is_home() {
            return Ok(());
        }
        let note = "may not act for the installation".to_owned();
        Err(self.refuse(actor, caller, note, installation_only()).await)
    }

    /// Records that an act was refused, and gives the refusal back; or the one for what cannot be recorded.
    async fn refuse(&self, actor: Actor<'_>, caller: &Principal, note: String, refusal: Refusal) -> Refusal {
        let slot = match self.parts.recorder.reserve().await {
            Ok(slot) => slot,
            Err(unrecordable) => return unrecordable,
        };
        let record = self.act(actor, caller, AuditAction::ActRefused, None, Some(note));
        match slot.record(AuditRecord { code: Some(refusal.code), ..record }).await {
            Ok(()) => refusal,
            Err(unrecordable) => unrecordable,
        }
    }

    /// Room for one audit record. Whatever cannot be recorded must not be done, so this is asked for first.
    pub async fn record_slot(&self) -> Result<RecordSlot, Refusal> {
        self.parts.recorder.reserve().await
    }

    /// Records something that the server has done on nobody's token, durably. On an error the record is kept and written as
    /// soon as it can be, but nobody should hear yet that it was done.
    pub async fn note_done(
        &self,
        slot: RecordSlot,
        tenant: &TenantId,
        action: AuditAction,
        note: String,
    ) -> Result<(), Refusal> {
        let by =
            SYSTEM_SUBJECT.parse().map_err(|_| Refusal::new(ErrorCode::E3000, "the server's own name is no name"))?;
        slot.record_durably(self.unattended(tenant, by, action, note)).await
    }

    /// The record of something that is done on nobody's token, in somebody's name.
    pub fn unattended(&self, tenant: &TenantId, by: Subject, action: AuditAction, note: String) -> AuditRecord {
        let who = RecordedActor { tenant: tenant.clone(), subject: by, user: None, token_id: None, chain: Vec::new() };
        AuditRecord {
            at: self.clock().now(),
            action,
            trace_id: new_trace_id(self.entropy()),
            invocation_id: None,
            who: Some(Arc::new(who)),
            tool: None,
            version: None,
            status: None,
            code: None,
            parameters_digest: None,
            parameters: None,
            duration_ms: None,
            usage: None,
            cost: None,
            judged: None,
            note: Some(note),
        }
    }

    /// The record of an administrative act of this caller.
    pub fn act(
        &self,
        actor: Actor<'_>,
        caller: &Principal,
        action: AuditAction,
        version: Option<&ToolVersion>,
        note: Option<String>,
    ) -> AuditRecord {
        AuditRecord {
            at: self.clock().now(),
            action,
            trace_id: actor.trace_id,
            invocation_id: None,
            who: Some(Arc::clone(&caller.who)),
            tool: version.map(|v| v.id.clone()),
            version: version.map(|v| v.version.clone()),
            status: None,
            code: None,
            parameters_digest: None,
            parameters: None,
            judged: None,
            duration_ms: None,
            usage: None,
            cost: None,
            note,
        }
    }
}

/// The same words whether the other tenant exists or not.
pub fn elsewhere() -> Refusal {
    Refusal::new(ErrorCode::E3206, "this token administers its own tenant only")
        .hint("leave the tenant out, or use a token of that tenant")
}

/// For what concerns everybody.
fn installation_only() -> Refusal {
    Refusal::new(ErrorCode::E3206, "only administrators of the installation may do this")
        .hint("use a token of the home tenant, for example the admin token")
}
