//! Looking at breakers and changing them by hand. (RES-001, RES-011; `GET /v1/breakers`, `…/history`)
//!
//! A breaker belongs to the tenant whose tools call the service. Whoever administers the home tenant sees all of them.

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use policy::Action;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::breaker_history::HistoryQuery;
use ports::resilience::{BreakerSettings, ManualMove};
use ports::shared_state::{
    BreakerKey, BreakerQuery, BreakerReport, BreakerTransition, INSPECTED_MAX, SharedStateError,
};
use serde_json::json;

use crate::invoke::Kernel;
use crate::resilience::Resilience;
use crate::resilience::guard::guard_of;

impl Kernel {
    /// How breakers stand. Without a tenant: the own one's, or all of them for whoever administers the installation.
    pub async fn breakers(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        query: BreakerQuery,
    ) -> Result<Vec<BreakerReport>, Refusal> {
        let caller = self.permitted(actor, Action::SeeBreakers).await?;
        let tenant = match tenant {
            None if caller.tenant().is_home() => None,
            named => Some(self.tenant_for(actor, &caller, named).await?),
        };
        let resilience = self.resilient()?;
        resilience.breakers.inspect(&BreakerQuery { tenant, ..query }).await.map_err(unreachable_now)
    }

    /// Changes a breaker by hand, and records that. One that nobody has used yet can be opened, before its service is worked
    /// on, and nothing else.
    pub async fn move_breaker(
        &self,
        actor: Actor<'_>,
        key: &BreakerKey,
        by_hand: ManualMove,
    ) -> Result<BreakerReport, Refusal> {
        let caller = self.permitted(actor, Action::ManageBreakers).await?;
        self.tenant_for(actor, &caller, Some(key.tenant())).await?;
        let resilience = self.resilient()?;
        let settings = match known(resilience, key).await? {
            Some(settings) => settings,
            None if matches!(
                by_hand,
                ManualMove::ForceOpen | ManualMove::Open { .. } | ManualMove::OpenUntil { .. }
            ) =>
            {
                self.settings_of_service(resilience, key)?
            }
            None => return Err(no_breaker(key).hint("GET /v1/breakers lists those there are")),
        };
        let slot = self.parts.recorder.reserve().await?;
        let moved = resilience.breakers.shift(key, &settings, by_hand).await.map_err(not_shared)?;
        let report = moved.map_err(|illegal| {
            Refusal::new(ErrorCode::E3408, illegal.to_string())
                .hint("a closed breaker can be opened, disabled or reset")
                .details(json!({ "breaker": key.to_string(), "state": illegal.from.as_str() }))
        })?;
        let note = format!("{key}: {} ({})", report.snapshot.mode.as_str(), word_of(by_hand));
        slot.record_durably(self.act(actor, &caller, AuditAction::BreakerMoved, None, Some(note))).await?;
        Ok(report)
    }

    /// The settings of a breaker that nobody has used yet: some tool must name its service. A name that is none would be open,
    /// and the service that was meant would not.
    fn settings_of_service(&self, resilience: &Resilience, key: &BreakerKey) -> Result<BreakerSettings, Refusal> {
        let registry = self.registry().snapshot();
        let mut services: Vec<&str> = Vec::new();
        for version in registry.tools().flat_map(|tool| tool.versions()) {
            let Some(guarded) = guard_of(version, &resilience.settings).and_then(|guard| guard.breaker.as_ref()) else {
                continue;
            };
            if guarded.key.service() == key.service() {
                return Ok(guarded.settings.clone());
            }
            services.push(guarded.key.service());
        }
        let nearest = contract::nearest::nearest(key.service(), services);
        Err(no_breaker(key).hint(nearest.map_or_else(
            || "no tool names such a service (`external_service` in its manifest); nothing was opened".to_owned(),
            |nearest| format!("did you mean `{nearest}`? no tool names such a service; nothing was opened"),
        )))
    }

    /// What became of breakers, the newest first, as far back as it is kept. Without a tenant: the own one's, or of all of
    /// them for whoever administers the installation.
    pub async fn breaker_history(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        query: HistoryQuery,
    ) -> Result<Vec<BreakerTransition>, Refusal> {
        let caller = self.permitted(actor, Action::SeeBreakers).await?;
        if let Some(of) = &query.of {
            self.tenant_for(actor, &caller, Some(of.tenant())).await?;
        }
        let tenant = match tenant {
            None if caller.tenant().is_home() => None,
            named => Some(self.tenant_for(actor, &caller, named).await?),
        };
        let history = self.resilient()?.history().ok_or_else(|| {
            Refusal::new(ErrorCode::E3010, "this server does not write down what becomes of breakers")
                .hint("use one that was started with `gantry serve`")
        })?;
        history.kept_transitions(&HistoryQuery { tenant, ..query }).await.map_err(|error| error.refusal())
    }

    fn resilient(&self) -> Result<&Resilience, Refusal> {
        self.resilience.as_deref().ok_or_else(|| {
            Refusal::new(ErrorCode::E3010, "this server has no breakers")
                .hint("use one that was started with `gantry serve`")
        })
    }
}

/// The settings of a breaker that somebody has used.
async fn known(resilience: &Resilience, key: &BreakerKey) -> Result<Option<BreakerSettings>, Refusal> {
    let query = BreakerQuery {
        tenant: Some(key.tenant().clone()),
        service: Some(key.service().to_owned()),
        after: None,
        limit: INSPECTED_MAX,
    };
    let reports = resilience.breakers.inspect(&query).await.map_err(unreachable_now)?;
    Ok(reports.into_iter().find(|report| report.key == *key).map(|report| report.settings))
}

fn no_breaker(key: &BreakerKey) -> Refusal {
    Refusal::new(ErrorCode::E3008, format!("there is no breaker `{key}`"))
}

fn word_of(by_hand: ManualMove) -> &'static str {
    match by_hand {
        ManualMove::Open { .. } | ManualMove::OpenUntil { .. } => "opened for a time",
        ManualMove::ForceOpen => "forced open",
        ManualMove::HalfOpen => "made half-open",
        ManualMove::Close => "closed",
        ManualMove::Disable => "disabled",
        ManualMove::MetricsOnly => "made to count only",
        ManualMove::Reset => "reset",
    }
}

fn unreachable_now(error: SharedStateError) -> Refusal {
    tracing::error!(error = &error as &dyn std::error::Error, "breakers cannot be asked");
    Refusal::new(ErrorCode::E3001, format!("breakers cannot be asked: {error}"))
        .hint("try again shortly")
        .caused_by(error)
}

/// What somebody wants to be so must be so for all servers, or it would be taken for what it is not.
fn not_shared(error: SharedStateError) -> Refusal {
    let message = format!("the breaker stays as it is, because {error}: the change would hold for one server only");
    Refusal { message, ..unreachable_now(error) }
        .hint("try again when the shared state (Redis) is back; `gantry health` says how it is")
}
