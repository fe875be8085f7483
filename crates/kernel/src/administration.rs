//! What people do besides calling tools: publish, change lifecycles, mint tokens. Each act recognises its caller, checks
//! the role, and leaves an audit record; an act that cannot be recorded is not done.

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::TraceId;
use contract::manifest::Manifest;
use contract::version::Version;
use policy::{Action, BearerSecret, Caller, Claims, MintRequest};
use serde_json::Value;

use crate::invoke::Kernel;
use crate::ports::audit_sink::{AuditAction, AuditRecord};
use crate::ports::entropy::new_token_id;
use crate::registry::{LifecycleAction, Registration, Tool, ToolVersion, not_admitted};

/// A fresh token.
#[derive(Debug)]
pub struct MintedToken {
    pub token: String,
    pub claims: Claims,
}

/// Who acts, and in which trace.
#[derive(Debug, Clone, Copy)]
pub struct Actor<'a> {
    pub credential: Option<BearerSecret<'a>>,
    pub trace_id: TraceId,
}

impl Kernel {
    /// Publishes the manifest in `document`, naming every reason against it at once.
    pub async fn publish(&self, actor: Actor<'_>, document: Value) -> Result<Registration, Refusal> {
        let caller = self.permitted(actor, Action::PublishTool)?;
        let manifest = Manifest::from_value(document).map_err(|error| not_admitted(&error))?;
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
        let caller = self.permitted(actor, Action::ChangeLifecycle)?;
        let slot = self.parts.recorder.reserve().await?;
        let tenant = caller.tenant();
        let may_know = |tool: &Tool| tool.tenant == *tenant || caller.may_know(&tool.id);
        let changed = self.registry().change_lifecycle(tenant, tool, version, action, may_know).await?;
        let first = changed.first().map(|v| &**v);
        let note = format!("{} ({} versions)", action.verb(), changed.len());
        slot.record(self.act(actor, &caller, AuditAction::ToolLifecycleChanged, first, Some(note)));
        Ok(changed)
    }

    /// Mints a capability token.
    pub async fn mint_token(&self, actor: Actor<'_>, request: &MintRequest) -> Result<MintedToken, Refusal> {
        let caller = self.permitted(actor, Action::MintToken)?;
        let slot = self.parts.recorder.reserve().await?;
        let token_id = new_token_id(self.entropy()).to_string();
        let (token, claims) =
            policy::mint(request, &self.parts.signing_key, token_id, self.clock().now().0).map_err(|error| {
                Refusal::new(ErrorCode::E3004, error.to_string()).hint("mend the request; no token was made")
            })?;
        slot.record(self.act(actor, &caller, AuditAction::TokenMinted, None, Some(format!("jti {}", claims.jti))));
        Ok(MintedToken { token, claims })
    }

    /// Recognises the caller of anything that is not a tool call.
    pub fn recognise(&self, actor: Actor<'_>) -> Result<Arc<Caller>, Refusal> {
        self.identity().recognise(actor.credential, self.clock().now())
    }

    fn permitted(&self, actor: Actor<'_>, action: Action) -> Result<Arc<Caller>, Refusal> {
        let caller = self.recognise(actor)?;
        if caller.may(action) {
            return Ok(caller);
        }
        Err(Refusal::new(ErrorCode::E3206, format!("this token may not {}", action.as_str()))
            .hint("use the admin token, or a token with a role that may"))
    }

    fn act(
        &self,
        actor: Actor<'_>,
        caller: &Caller,
        action: AuditAction,
        version: Option<&ToolVersion>,
        note: Option<String>,
    ) -> AuditRecord {
        AuditRecord {
            at: self.clock().now(),
            action,
            trace_id: actor.trace_id,
            invocation_id: None,
            tenant: Some(caller.tenant().clone()),
            subject: Some(caller.subject().clone()),
            tool: version.map(|v| v.id.clone()),
            version: version.map(|v| v.version.clone()),
            status: None,
            code: None,
            parameters_digest: None,
            duration_ms: None,
            note,
        }
    }
}
