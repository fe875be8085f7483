//! Asking breakers and limits on behalf of a call, and what their answers mean to it. (RES-003, RES-015…018)
//!
//! Everything fails closed: shared state that cannot be asked refuses the call (E3001). An adapter that can do without its
//! server for a while does not let it come to that.
//!
//! A tenant that calls a tool of another one is a guest. It has a breaker of the service for itself, which its own failures
//! open, and passes that of the owner besides, to which they count for little (BRK-5): what one guest provokes is held against
//! that guest, and a service that fails for several is left alone by everybody. (Decision 0077)
//!
//! Not here: when in a call they are asked (`phases::authorize`, `phases::execute`).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use base::SaturatingFrom as _;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId};
use policy::Caller;
use ports::breaker_history::BreakerHistory;
use ports::clock::Clock;
use ports::executor::ToolOutput;
use ports::observer::Observer;
use ports::resilience::guard::{GuardedService, ResilienceGuard, RetryGuard};
use ports::resilience::{
    BreakerAdmission, BreakerMode, BreakerPermit, BreakerSettings, BreakerVerdict, GuestTag, PermittedOutcome,
    QuotaOutcome, RateQuota,
};
use ports::shared_state::{
    AllTaken, BreakerKey, KeyedQuota, RateLimits, SharedBreakers, SharedState, SharedStateError,
};
use ports::tool_version::ToolVersion;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::follow::Archive;
use super::last_results::LastResults;
use super::outcome;

/// When somebody whom only a person can let through again may ask whether one has.
const FORCED_RETRY_MS: u64 = 60_000;
/// When to ask again if the shared state does not answer.
const LOST_RETRY_MS: u64 = 1_000;

/// What the operator says.
#[derive(Debug, Clone, PartialEq)]
pub struct ResilienceSettings {
    /// Of services whose tools say nothing else.
    pub breaker: BreakerSettings,
    /// Calls that the whole installation takes.
    pub platform_quota: Option<RateQuota>,
    /// Calls that each tenant may make.
    pub tenant_quota: Option<RateQuota>,
    /// Calls that each service gets.
    pub service_quota: Option<RateQuota>,
    /// The longest wait before the first repetition.
    pub retry_first: Duration,
    /// Repetitions that each service gets, from everybody together.
    pub retry_budget: Option<RateQuota>,
    /// How long it is kept what became of breakers, where that is written down.
    pub history_kept: Duration,
}

impl Default for ResilienceSettings {
    fn default() -> Self {
        Self {
            breaker: BreakerSettings::default(),
            platform_quota: None,
            tenant_quota: None,
            service_quota: None,
            retry_first: Duration::from_millis(500),
            retry_budget: RateQuota::new(60, Duration::from_mins(1)).ok(),
            history_kept: Duration::from_hours(24 * 90),
        }
    }
}

/// Breakers and limits, and the operator's word about them.
#[derive(Debug)]
pub struct Resilience {
    pub(crate) breakers: Arc<dyn SharedBreakers>,
    limits: Arc<dyn RateLimits>,
    pub(crate) settings: ResilienceSettings,
    pub(super) observer: Arc<dyn Observer>,
    pub(crate) last_results: LastResults,
    pub(super) archive: Option<Archive>,
}

/// Leave to ask a service once.
#[derive(Debug)]
pub(crate) struct EnteredService<'g> {
    service: &'g GuardedService,
    permit: BreakerPermit,
    guest: Option<Guest>,
}

/// A tenant that calls a tool of another one, and the leave its own breaker has given.
#[derive(Debug)]
struct Guest {
    tag: GuestTag,
    key: BreakerKey,
    permit: BreakerPermit,
}

impl Resilience {
    /// On this shared state.
    pub fn new(state: Arc<dyn SharedState>, settings: ResilienceSettings, observer: Arc<dyn Observer>) -> Self {
        let limits = Arc::clone(&state) as Arc<dyn RateLimits>;
        let last_results = LastResults::new(Arc::clone(&observer));
        Self { breakers: state, limits, settings, observer, last_results, archive: None }
    }

    /// With what became of breakers written down there (RES-011), by whoever runs [`Resilience::follow`].
    #[must_use]
    pub fn kept_in(mut self, store: Arc<dyn BreakerHistory>, clock: Arc<dyn Clock>) -> Self {
        self.archive = Some(Archive { store, clock, kept: self.settings.history_kept });
        self
    }

    /// Where that is, if anywhere.
    pub(crate) fn history(&self) -> Option<&dyn BreakerHistory> {
        self.archive.as_ref().map(|archive| &*archive.store)
    }

    /// Counts a call against everything that limits it, all together or not at all.
    pub(crate) async fn count(
        &self,
        caller: &Caller,
        tool: &ToolVersion,
        guard: Option<&ResilienceGuard>,
    ) -> Result<(), Refusal> {
        let counted = self.limits_of(caller, tool, guard);
        if counted.is_empty() {
            return Ok(());
        }
        let limits: Vec<KeyedQuota<'_>> = counted.iter().map(Counted::limit).collect();
        match self.limits.take(&limits, 1).await.map_err(lost)? {
            AllTaken::Allowed { .. } => Ok(()),
            AllTaken::Refused { which, retry_after } => {
                let scope = counted.get(which).map_or(Scope::Platform, |counted| counted.scope);
                self.observer.rate_limited(scope.as_str());
                Err(scope.refusal(tool, guard.and_then(|guard| guard.breaker.as_ref()), retry_after))
            }
        }
    }

    /// Whether [`Resilience::count`] would let this call through. Nothing is counted, by nobody.
    pub(crate) async fn would_count(
        &self,
        caller: &Caller,
        tool: &ToolVersion,
        guard: Option<&ResilienceGuard>,
    ) -> Result<(), Refusal> {
        for counted in self.limits_of(caller, tool, guard) {
            let peeked = self.limits.peek(counted.limit()).await.map_err(lost)?;
            if let QuotaOutcome::Refused { retry_after } = peeked {
                return Err(counted.scope.refusal(tool, guard.and_then(|guard| guard.breaker.as_ref()), retry_after));
            }
        }
        Ok(())
    }

    /// Everything that limits a call.
    fn limits_of<'g>(
        &'g self,
        caller: &Caller,
        tool: &ToolVersion,
        guard: Option<&'g ResilienceGuard>,
    ) -> Vec<Counted<'g>> {
        let settings = &self.settings;
        let service = guard.and_then(|guard| guard.breaker.as_ref());
        let per_user = guard.map_or(&[][..], |guard| &guard.per_user);
        let mut limits = Vec::new();
        let mut add = |scope, key: Cow<'g, str>, quota: Option<RateQuota>| {
            limits.extend(quota.map(|quota| Counted { scope, key, quota }));
        };
        add(Scope::Platform, "platform_rate".into(), settings.platform_quota);
        if let Some(quota) = settings.tenant_quota {
            add(Scope::Tenant, format!("tenant_rate:{}", caller.tenant()).into(), Some(quota));
        }
        let user = counted_for(caller);
        for (word, quota) in per_user {
            let key = format!("tool_rate:{}:{user}:{}:{}:{word}", caller.tenant(), tool.tenant, tool.id);
            add(Scope::User, key.into(), Some(*quota));
        }
        if let Some(service) = service {
            add(Scope::Service, service.rate_key.as_str().into(), service.quota);
        }
        limits
    }

    /// Asks for leave to call the service behind a tool for a tenant; `counted`: this attempt was counted against the
    /// service's limit before.
    pub(crate) async fn enter<'g>(
        &self,
        (tool, tenant): (&ToolVersion, &TenantId),
        service: &'g GuardedService,
        counted: bool,
        lease: Duration,
    ) -> Result<EnteredService<'g>, Refusal> {
        let entered = if *tenant == *service.key.tenant() {
            let permit = self.permit(tool, service, &service.key, lease).await?;
            EnteredService { service, permit, guest: None }
        } else {
            // Both at once, so that a guest waits no longer than the owner does.
            let key = service.key.of_tenant(tenant);
            let (permit, own) =
                tokio::join!(self.permit(tool, service, &service.key, lease), self.permit(tool, service, &key, lease));
            match (permit, own) {
                (Ok(permit), Ok(own)) => {
                    EnteredService { service, permit, guest: Some(Guest { tag: tag_of(tenant), key, permit: own }) }
                }
                (Ok(permit), Err(refusal)) => {
                    self.release(service, &service.key, permit).await;
                    return Err(refusal);
                }
                (Err(refusal), Ok(own)) => {
                    self.release(service, &key, own).await;
                    return Err(refusal);
                }
                (Err(refusal), Err(_)) => return Err(refusal),
            }
        };
        let quota = service.quota.filter(|_| !counted);
        if let Some(quota) = quota {
            let limit = KeyedQuota { key: &service.rate_key, quota };
            let taken = self.limits.take(&[limit], 1).await;
            if !matches!(taken, Ok(AllTaken::Allowed { .. })) {
                self.give_back(&entered).await;
            }
            if let AllTaken::Refused { retry_after, .. } = taken.map_err(lost)? {
                self.observer.rate_limited(Scope::Service.as_str());
                return Err(Scope::Service.refusal(tool, Some(service), retry_after));
            }
        }
        Ok(entered)
    }

    /// Says how the service has answered. That it cannot be said changes nothing about the answer.
    /// `health` tells the score of the tool and of how many calls it is made, if that is asked for.
    pub(crate) async fn leave(
        &self,
        entered: &EnteredService<'_>,
        result: Result<&ToolOutput, &Refusal>,
        took: Duration,
        health: impl FnOnce() -> Option<(f64, u64)>,
    ) {
        let verdict = result.map_or_else(outcome::of_refusal, |_| BreakerVerdict::Succeeded);
        if verdict == BreakerVerdict::Ignored {
            return self.give_back(entered).await;
        }
        let duration_ms = u64::try_from(took.as_millis()).ok();
        let EnteredService { service, permit, guest } = entered;
        let ails = verdict == BreakerVerdict::Failed && service.is_unhealthy(health);
        let open_for_ms = ails.then(|| service.settings.open_wait.ms(1));
        let outcome = PermittedOutcome { verdict, duration_ms, open_for_ms, guest: None };
        match guest {
            None => self.record(service, &service.key, *permit, outcome).await,
            Some(guest) => {
                let of_guest = PermittedOutcome { guest: Some(guest.tag), ..outcome };
                tokio::join!(
                    self.record(service, &service.key, *permit, of_guest),
                    self.record(service, &guest.key, guest.permit, outcome)
                );
            }
        }
    }

    /// Takes back that the service was asked: nothing is said about it.
    pub(crate) async fn give_back(&self, entered: &EnteredService<'_>) {
        let EnteredService { service, permit, guest } = entered;
        match guest {
            None => self.release(service, &service.key, *permit).await,
            Some(guest) => {
                tokio::join!(
                    self.release(service, &service.key, *permit),
                    self.release(service, &guest.key, guest.permit)
                );
            }
        }
    }

    /// Leave of one breaker.
    async fn permit(
        &self,
        tool: &ToolVersion,
        service: &GuardedService,
        key: &BreakerKey,
        lease: Duration,
    ) -> Result<BreakerPermit, Refusal> {
        let asked = self.breakers.acquire(key, &service.settings, lease).await;
        match asked.map_err(lost)? {
            BreakerAdmission::Permitted(permit) => Ok(permit),
            BreakerAdmission::Refused { mode, retry_after_ms } => {
                self.observer.breaker_refused(key);
                Err(open(tool, key, mode, retry_after_ms))
            }
        }
    }

    async fn record(
        &self,
        service: &GuardedService,
        key: &BreakerKey,
        permit: BreakerPermit,
        outcome: PermittedOutcome,
    ) {
        if let Err(error) = self.breakers.record(key, &service.settings, permit, outcome).await {
            tracing::warn!(breaker = %key, %error, "what a service answered could not be counted");
        }
    }

    async fn release(&self, service: &GuardedService, key: &BreakerKey, permit: BreakerPermit) {
        if let Err(error) = self.breakers.release(key, &service.settings, permit).await {
            tracing::warn!(breaker = %key, %error, "a permit could not be given back; its lease will end it");
        }
    }

    /// One repetition out of the budget that everybody shares. `false`: it is used up, or nobody can say.
    pub(crate) async fn may_repeat(&self, retries: &RetryGuard) -> bool {
        let Some(quota) = retries.budget else { return true };
        let taken = self.limits.take(&[KeyedQuota { key: &retries.budget_key, quota }], 1).await;
        let granted = matches!(taken, Ok(AllTaken::Allowed { .. }));
        self.observer.retried(granted);
        granted
    }
}

/// One limit that a call counts against.
#[derive(Debug)]
struct Counted<'g> {
    scope: Scope,
    key: Cow<'g, str>,
    quota: RateQuota,
}

impl Counted<'_> {
    fn limit(&self) -> KeyedQuota<'_> {
        KeyedQuota { key: &self.key, quota: self.quota }
    }
}

/// Whose calls are counted together: the user's on whose behalf the call is made, or else those of the subject that an
/// authority has named. Names that were made in a token exchange share the limit of the root of their chain; they neither
/// multiply it nor use up that of whoever has the same name (decision 0042).
fn counted_for(caller: &Caller) -> &Subject {
    caller.user().unwrap_or_else(|| caller.root_subject())
}

/// The same for all instances, because they share what it stands for.
fn tag_of(tenant: &TenantId) -> GuestTag {
    let digest: [u8; 32] = Sha256::digest(tenant.as_str().as_bytes()).into();
    let [first, ..] = digest;
    GuestTag::of(first)
}

/// Whom a limit is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    Platform,
    Tenant,
    User,
    Service,
}

impl Scope {
    fn as_str(self) -> &'static str {
        match self {
            Self::Platform => "platform",
            Self::Tenant => "tenant",
            Self::User => "user",
            Self::Service => "service",
        }
    }

    fn refusal(self, tool: &ToolVersion, service: Option<&GuardedService>, retry_after: Option<Duration>) -> Refusal {
        let (code, message) = match self {
            Self::Platform => (ErrorCode::E3003, "this installation gets more calls than it may".to_owned()),
            Self::Tenant => (ErrorCode::E3003, "this tenant makes more calls than it may".to_owned()),
            Self::User => (ErrorCode::E3003, format!("`{}` was called as often as its user may for now", tool.id)),
            Self::Service => {
                let name = service.map_or("", |service| service.key.service());
                (ErrorCode::E3504, format!("the service `{name}` was asked as often as it may be for now"))
            }
        };
        let refusal = Refusal::new(code, message)
            .hint("nothing was run; send the call again after `retry_after_ms`")
            .details(json!({ "limit": self.as_str() }))
            .retryable(true);
        let wait = retry_after.map(|wait| u64::saturating_from(wait.as_micros().div_ceil(1000)).max(1));
        Refusal { retry_after_ms: wait, ..refusal }
    }
}

/// RES-003.
fn open(tool: &ToolVersion, key: &BreakerKey, mode: BreakerMode, retry_after_ms: Option<u64>) -> Refusal {
    let name = key.service();
    let message = match mode {
        BreakerMode::HalfOpen => {
            format!("the service `{name}` is being tried after it failed; `{}` was not run", tool.id)
        }
        BreakerMode::ForcedOpen => {
            format!("somebody has stopped all calls to the service `{name}` by hand; `{}` was not run", tool.id)
        }
        _ => format!(
            "the service `{name}` is left alone for a while, because it fails or somebody wants it so; `{}` was not run",
            tool.id
        ),
    };
    let hint = match mode {
        BreakerMode::ForcedOpen => "it stays so until somebody closes the breaker by hand; until then use another tool",
        _ => "send the call again after `retry_after_ms`, or use another tool",
    };
    let refusal = Refusal::new(ErrorCode::E3501, message)
        .hint(hint)
        .details(json!({ "breaker": key.to_string(), "state": mode.as_str() }));
    Refusal { retry_after_ms: Some(retry_after_ms.unwrap_or(FORCED_RETRY_MS)), ..refusal }
}

/// DESIGN §6.1: who cannot be asked has not said yes.
fn lost(error: SharedStateError) -> Refusal {
    tracing::error!(error = &error as &dyn std::error::Error, "limits and breakers cannot be asked");
    let refusal = Refusal::new(ErrorCode::E3001, format!("limits and breakers cannot be asked: {error}"))
        .hint("nothing was run; send the call again shortly")
        .caused_by(error);
    Refusal { retry_after_ms: Some(LOST_RETRY_MS), ..refusal }
}
