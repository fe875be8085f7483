//! Policies: looked at, checked, put in force, and their history. New policies are compiled before they are kept, so that
//! what is in force is always something that was once accepted.

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use policy::{Action, Policies, PolicyProblem};
use ports::access_store::PolicyRecord;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::clock::UnixMillis;
use serde_json::json;

use crate::invoke::Kernel;

/// Versions of a history that are told at once.
const HISTORY_MAX: usize = 100;

/// One version, without its text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyVersion {
    pub version: u64,
    pub added_at: UnixMillis,
    pub added_by: Subject,
}

/// The policies of a tenant, or of the platform.
#[derive(Debug, Clone)]
pub struct PoliciesView {
    /// `None`: of the platform.
    pub tenant: Option<TenantId>,
    /// `None`: nobody has written any.
    pub current: Option<PolicyRecord>,
    /// The names of the policies in force.
    pub names: Vec<String>,
    /// False: what is stored cannot be used, and every call it applies to is refused.
    pub usable: bool,
    pub history: Vec<PolicyVersion>,
}

impl Kernel {
    /// The policies of the platform (for the home tenant) or of a tenant.
    pub async fn policies(&self, actor: Actor<'_>, tenant: Option<&TenantId>) -> Result<PoliciesView, Refusal> {
        let caller = self.permitted(actor, Action::SeePolicies).await?;
        let tenant = layer_of(self.tenant_for(actor, &caller, tenant).await?);
        let history = self
            .access()
            .policy_history(tenant.as_ref(), HISTORY_MAX)
            .await
            .map_err(|error| error.refusal())?
            .into_iter()
            .map(|record| PolicyVersion {
                version: record.version,
                added_at: record.added_at,
                added_by: record.added_by,
            })
            .collect();
        let snapshot = self.access().snapshot();
        let layer = match &tenant {
            None => Some(snapshot.platform()),
            Some(tenant) => snapshot.tenant_policies(tenant),
        };
        let policies = layer.and_then(|layer| layer.policies.as_ref());
        let current = layer.and_then(|layer| layer.record.clone());
        Ok(PoliciesView {
            tenant,
            names: policies.map(|policies| policies.names().to_vec()).unwrap_or_default(),
            usable: current.is_none() || policies.is_some(),
            current,
            history,
        })
    }

    /// One former version, with its text.
    pub async fn policy_version(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        version: u64,
    ) -> Result<PolicyRecord, Refusal> {
        let caller = self.permitted(actor, Action::SeePolicies).await?;
        let tenant = layer_of(self.tenant_for(actor, &caller, tenant).await?);
        let history = self.access().policy_history(tenant.as_ref(), usize::MAX).await;
        let found = history.map_err(|error| error.refusal())?.into_iter().find(|record| record.version == version);
        found.ok_or_else(|| {
            Refusal::new(ErrorCode::E3008, format!("there is no version {version} of these policies"))
                .hint("GET /v1/policies lists the versions")
        })
    }

    /// Puts new policies in force, for the next call and all after it. Text that does not parse or fit the schema changes
    /// nothing: the former policies stay in force.
    pub async fn put_policies(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        text: String,
    ) -> Result<PolicyRecord, Refusal> {
        let caller = self.permitted(actor, Action::ManagePolicies).await?;
        let tenant = layer_of(self.tenant_for(actor, &caller, tenant).await?);
        let (text, tools) = tokio::task::spawn_blocking(move || {
            Policies::compile(&text).map(|policies| {
                let tools: Vec<ToolId> = policies.tools_named().filter_map(|name| name.parse().ok()).collect();
                (text, tools)
            })
        })
        .await
        .map_err(|error| Refusal::new(ErrorCode::E3000, "the policies could not be compiled").caused_by(error))?
        .map_err(|problems| not_usable(&problems))?;
        let of_tenant = tenant.as_ref().unwrap_or_else(|| caller.tenant());
        for named in &tools {
            self.is_no_former_name(of_tenant, named)?;
        }
        let slot = self.parts.recorder.reserve().await?;
        let put = self.access().put_policies(tenant.clone(), text.clone(), caller.subject()).await;
        let version = put.map_err(|error| error.refusal())?;
        let of = tenant.as_ref().map_or("the platform", |tenant| tenant.as_str());
        let note = format!("version {version} of {of}");
        slot.record_durably(self.act(actor, &caller, AuditAction::PoliciesChanged, None, Some(note))).await?;
        Ok(PolicyRecord { tenant, version, text, added_at: self.clock().now(), added_by: caller.subject().clone() })
    }
}

impl Kernel {
    /// Rights are compared with what a tool is called now. One that names it by an alias would be taken and do nothing.
    pub(super) fn is_no_former_name(&self, tenant: &TenantId, named: &ToolId) -> Result<(), Refusal> {
        let registry = self.registry().snapshot();
        match registry.alias(tenant, named.as_str()) {
            Some(tool) if registry.tool(tenant, named).is_none() => {
                Err(Refusal::new(ErrorCode::E3004, format!("`{named}` is a former name of `{tool}`"))
                    .hint(format!("name `{tool}`: what is said about it holds under all its names"))
                    .details(json!({ "named": named, "tool_id": tool })))
            }
            Some(_) | None => Ok(()),
        }
    }
}

/// Policies of the home tenant are the platform's: they apply to everybody.
fn layer_of(tenant: TenantId) -> Option<TenantId> {
    (!tenant.is_home()).then_some(tenant)
}

/// E3004 with every problem; nothing was changed.
fn not_usable(problems: &[PolicyProblem]) -> Refusal {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let more = problems.len().saturating_sub(1);
    let message = if more == 0 { first } else { format!("{first} (and {more} more)") };
    Refusal::new(ErrorCode::E3004, format!("the policies cannot be used: {message}"))
        .hint("nothing was changed; `gantry policy check` finds every problem before you send them")
        .details(json!({ "problems": problems.iter().map(ToString::to_string).collect::<Vec<_>>() }))
}
