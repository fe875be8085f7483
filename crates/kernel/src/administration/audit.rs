//! Looking into the audit log, and changing the key that signs it. A tenant's people see the tenant's records, the installation's people see all.

use contract::error::{ErrorCode, Refusal};
use contract::ids::TraceId;
use policy::Action;
use ports::actor::Actor;
use ports::audit_log::{AUDIT_PAGE_MAX, AuditCheckpoint, AuditLog, AuditProof, AuditQuery};
use ports::audit_sink::{AuditAction, AuditError};

use crate::invoke::Kernel;

mod archived;

pub use archived::{AuditFound, AuditNext, AuditScope};

impl Kernel {
    /// Records that fit, the newest first: of all instances where there is an archive of them, otherwise, or if `scope` says
    /// so, of this instance's own log. `before` is the `next` of the page before, in the same scope.
    pub async fn search_audit(
        &self,
        actor: Actor<'_>,
        query: AuditQuery,
        scope: Option<AuditScope>,
        before: Option<&str>,
    ) -> Result<AuditFound, Refusal> {
        let caller = self.permitted(actor, Action::SeeAudit).await?;
        let tenant = match &query.tenant {
            None if caller.tenant().is_home() => None,
            named => Some(self.tenant_for(actor, &caller, named.as_ref()).await?),
        };
        // A question that nothing can fit is refused: "there is nothing" would be taken for an answer.
        let query = AuditQuery {
            tenant,
            limit: query.limit.min(AUDIT_PAGE_MAX),
            from: archived::moment(query.from.as_deref(), "from")?.map(|from| from.to_string()),
            to: archived::moment(query.to.as_deref(), "to")?.map(|to| to.to_string()),
            action: query.action.map(known_action).transpose()?,
            trace_id: query.trace_id.map(whole_trace_id).transpose()?,
            ..query
        };
        match (&self.archive, scope) {
            (Some(archive), None | Some(AuditScope::All)) => archived::search(&**archive, query, before).await,
            (None, Some(AuditScope::All)) => {
                Err(Refusal::new(ErrorCode::E3010, "there is no archive of all instances")
                    .hint("it needs PostgreSQL as store; without `scope` the log of this instance is searched"))
            }
            _ => {
                let before = before.map(str::parse).transpose().map_err(|_| archived::no_page())?;
                let query = AuditQuery { before, ..query };
                let page = self.audit_log()?.search(&query).await.map_err(unreadable)?;
                Ok(AuditFound { records: page.records, next: page.next.map(AuditNext::Number) })
            }
        }
    }

    /// The newest checkpoint. It says how many records there are and nothing about them.
    pub async fn audit_checkpoint(&self, actor: Actor<'_>) -> Result<AuditCheckpoint, Refusal> {
        self.permitted(actor, Action::SeeAudit).await?;
        self.audit_log()?.checkpoint().await.map_err(unreadable)
    }

    /// The proof of one record.
    pub async fn audit_proof(&self, actor: Actor<'_>, id: &str) -> Result<AuditProof, Refusal> {
        let caller = self.permitted(actor, Action::SeeAudit).await?;
        let found = self.audit_log()?.proof(id).await.map_err(unreadable)?;
        // The same words whether it is not there or somebody else's.
        found
            .filter(|proof| caller.tenant().is_home() || proof.tenant.as_deref() == Some(caller.tenant().as_str()))
            .ok_or_else(|| Refusal::new(ErrorCode::E3702, "there is no such audit record"))
    }

    /// Signs checkpoints with a new key from now on; answers its public half. The log names it in a record that the former
    /// key has signed, so whoever trusts one can check the other.
    pub async fn rotate_audit_key(&self, actor: Actor<'_>) -> Result<String, Refusal> {
        let caller = self.permitted(actor, Action::RotateKeys).await?;
        self.of_the_installation(actor, &caller).await?;
        let log = self.audit_log()?;
        let slot = self.parts.recorder.reserve().await?;
        let key = log.rotate_key().await.map_err(unreadable)?;
        let key =
            key.ok_or_else(|| Refusal::new(ErrorCode::E3010, "the key of this audit log cannot be changed here"))?;
        slot.record_durably(self.act(actor, &caller, AuditAction::KeysRotated, None, Some(format!("audit key {key}"))))
            .await?;
        Ok(key)
    }

    fn audit_log(&self) -> Result<&dyn AuditLog, Refusal> {
        self.audit_log.as_deref().ok_or_else(|| {
            Refusal::new(ErrorCode::E3010, "this server's audit log cannot be read here").hint("use another one")
        })
    }
}

/// How the actions begin that are of the log itself.
const OWN_ACTIONS: &str = "log_";

fn known_action(action: String) -> Result<String, Refusal> {
    let is_known =
        action.starts_with(OWN_ACTIONS) || serde_json::from_value::<AuditAction>(action.as_str().into()).is_ok();
    let refused = || {
        Refusal::new(ErrorCode::E3004, "`action` is no kind of record")
            .hint("write it as records have it, for example `invocation_finished` or `act_refused`")
    };
    is_known.then_some(action).ok_or_else(refused)
}

fn whole_trace_id(trace_id: String) -> Result<String, Refusal> {
    let is_whole = trace_id.parse::<TraceId>().is_ok();
    let refused = || {
        Refusal::new(ErrorCode::E3004, "`trace_id` is no trace id")
            .hint("write all 32 hexadecimal digits, in lower case")
    };
    is_whole.then_some(trace_id).ok_or_else(refused)
}

fn unreadable(error: AuditError) -> Refusal {
    tracing::error!(error = &error as &dyn std::error::Error, "the audit log cannot be read");
    Refusal::new(ErrorCode::E3001, "the audit log cannot be read")
        .hint("an operator must look at it: `gantry audit verify`")
        .caused_by(error)
}
