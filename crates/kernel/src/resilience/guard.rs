//! What stands between one tool and the service behind it: its breaker, its limits, how it is tried again. Worked out once
//! for each published version.
//!
//! A tool has a breaker if its manifest names an `external_service` or a `circuit_breaker_config`, or if its way of running
//! is a call to somebody else. MCP servers are not counted to those by themselves: they have a supervisor with a back-off of its
//! own, and a restart by hand must not meet a second one.
//!
//! Invariants
//! - GRD-1: breakers are apart for each tenant whose tools call a service: what one tenant publishes closes nothing to
//!   another.
//! - GRD-2: a tool with none of it costs a call one look at an empty option.
//!
//! Not here: asking them (`service`).

use std::time::Duration;

use base::backoff::BackoffInterval;
use contract::manifest::{Execution, RateLimit, RetryPolicy};
use ports::resilience::RateQuota;
use ports::resilience::guard::{GuardedService, ResilienceGuard, RetryGuard, RetryPlan};
use ports::shared_state::BreakerKey;
use ports::tool_version::ToolVersion;

use super::service::ResilienceSettings;

/// What stands around calls of this version, under the operator's settings; `None`: nothing. The settings are the same as long as
/// the process lives, so the version keeps the answer.
pub(crate) fn guard_of<'t>(tool: &'t ToolVersion, settings: &ResilienceSettings) -> Option<&'t ResilienceGuard> {
    tool.guard(|| worked_out(tool, settings))
}

/// The same, not yet kept. `None`: nothing (GRD-2).
fn worked_out(tool: &ToolVersion, settings: &ResilienceSettings) -> Option<ResilienceGuard> {
    let manifest = &tool.manifest;
    let own = manifest.circuit_breaker_config.as_ref();
    let breaker = service_of(tool).map(|key| GuardedService {
        settings: own.map_or_else(|| settings.breaker.clone(), |own| settings.breaker.overridden(own)),
        rate_key: format!("service_rate:{key}"),
        quota: settings.service_quota,
        health_percent: own.and_then(|own| own.health_percent),
        key,
    });
    let retries = match (&manifest.retry_policy, &manifest.external_service) {
        (Some(policy), _) => retries(tool, policy, breaker.as_ref(), settings),
        (None, Some(_)) => retries(tool, &RetryPolicy::default(), breaker.as_ref(), settings),
        (None, None) => None,
    };
    let per_user = manifest.rate_limit.as_ref().map_or_else(Vec::new, quotas);
    let guard = ResilienceGuard { breaker, retries, per_user };
    let nothing = guard.breaker.is_none() && guard.retries.is_none() && guard.per_user.is_empty();
    (!nothing).then_some(guard)
}

/// What stands around calls of a tool whose service has several addresses: a breaker for each. (RES-012, RES-019)
#[derive(Debug)]
pub(crate) struct FailoverGuard {
    /// In the order in which they are asked.
    pub(crate) services: Vec<GuardedService>,
    /// Going to another address is trying again: it takes from the same budget, under the same rules.
    pub(crate) retries: Option<RetryGuard>,
}

impl FailoverGuard {
    /// Of these addresses; `None` if there is nothing to choose.
    pub(crate) fn of(
        tool: &ToolVersion,
        guard: Option<&ResilienceGuard>,
        endpoints: &[String],
        settings: &ResilienceSettings,
    ) -> Option<Self> {
        if endpoints.len() < 2 {
            return None;
        }
        let asked_for = guard.and_then(|guard| guard.breaker.as_ref());
        let service = match (&tool.manifest.external_service, &tool.manifest.execution) {
            (Some(service), _) => service,
            (None, Some(Execution::Mcp { server, .. })) => server,
            (None, _) => tool.id.as_str(),
        };
        let services: Vec<GuardedService> = endpoints
            .iter()
            .filter_map(|endpoint| {
                let key = BreakerKey::new(tool.tenant.clone(), service, endpoint).ok()?;
                Some(GuardedService {
                    settings: asked_for.map_or_else(|| settings.breaker.clone(), |own| own.settings.clone()),
                    // Counted once for the service, whichever of its addresses is asked.
                    rate_key: asked_for.map_or_else(String::new, |own| own.rate_key.clone()),
                    quota: asked_for.and_then(|own| own.quota),
                    health_percent: asked_for.and_then(|own| own.health_percent),
                    key,
                })
            })
            .collect();
        // The place of a breaker is the number of its address, so one without a name leaves no failover.
        if services.len() != endpoints.len() {
            return None;
        }
        let policy = tool.manifest.retry_policy.clone().unwrap_or_default();
        let retries = retries(tool, &policy, services.first(), settings);
        Some(Self { services, retries })
    }
}

/// Which breaker a tool has.
fn service_of(tool: &ToolVersion) -> Option<BreakerKey> {
    let manifest = &tool.manifest;
    let binding = manifest.execution.as_ref();
    let outward = binding.is_some_and(Execution::calls_out);
    if !outward && manifest.external_service.is_none() && manifest.circuit_breaker_config.is_none() {
        return None;
    }
    let endpoint = binding.map_or_else(String::new, endpoint_of);
    let service = match &manifest.external_service {
        Some(service) => service.as_str(),
        None if outward && !endpoint.is_empty() => &endpoint,
        None => tool.id.as_str(),
    };
    let endpoint = if service == endpoint { "" } else { endpoint.as_str() };
    BreakerKey::new(tool.tenant.clone(), service, endpoint).ok()
}

/// The end of a service that this way of running talks to: host and port, or the server's name.
fn endpoint_of(binding: &Execution) -> String {
    match binding {
        Execution::Http { url, .. } | Execution::Websocket { url } => authority(url),
        Execution::Grpc { endpoint, .. } => authority(endpoint),
        Execution::Mcp { server, .. } => server.clone(),
        Execution::Workflow { .. } => "workflows".to_owned(),
        Execution::Composio { .. } => "composio".to_owned(),
        Execution::Openapi { .. }
        | Execution::Builtin { .. }
        | Execution::Process { .. }
        | Execution::Wasm { .. }
        | Execution::Oci { .. }
        | Execution::Composite { .. } => String::new(),
    }
}

/// Host and port of an address, without anything that could be a credential. Only a name: nothing is connected to by it.
fn authority(url: &str) -> String {
    const BYTES_MAX: usize = 255;
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let place = place.rsplit('@').next().unwrap_or_default().to_ascii_lowercase();
    if place.len() > BYTES_MAX { String::new() } else { place }
}

/// The waits of a manifest's policy. One that no plan can have is cut to one that can.
fn retries(
    tool: &ToolVersion,
    policy: &RetryPolicy,
    service: Option<&GuardedService>,
    settings: &ResilienceSettings,
) -> Option<RetryGuard> {
    let interval = waits(policy, settings.retry_first)?;
    let plan = RetryPlan::new(u32::from(policy.max_attempts), interval).ok().filter(|_| policy.max_attempts > 1)?;
    let budget_key = match service {
        Some(service) => format!("retry_budget:{}", service.key),
        None => format!("retry_budget:{}:{}", tool.tenant, tool.id),
    };
    Some(RetryGuard { plan, statuses: policy.retry_on_status_codes.clone(), budget_key, budget: settings.retry_budget })
}

/// The first wait is the server's, how it grows and how far is the manifest's.
fn waits(policy: &RetryPolicy, first: Duration) -> Option<BackoffInterval> {
    let most = Duration::from_secs(u64::from(policy.backoff_max_seconds).max(1));
    BackoffInterval::exponential(first.min(most), policy.backoff_multiplier, most).ok()
}

/// RES-017: all of them together.
fn quotas(limit: &RateLimit) -> Vec<(&'static str, RateQuota)> {
    let spans = [
        ("minute", limit.max_per_minute, Duration::from_mins(1)),
        ("hour", limit.max_per_hour, Duration::from_hours(1)),
        ("day", limit.max_per_day, Duration::from_hours(24)),
    ];
    // A number too large to count is no limit that anybody could reach.
    spans.into_iter().filter_map(|(word, most, span)| Some((word, RateQuota::new(most?, span).ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_host_and_port_and_never_a_credential() {
        for (url, expected) in [
            ("https://API.example.com/v1/mail?key=1", "api.example.com"),
            ("https://user:secret@api.example.com:8443/x", "api.example.com:8443"),
            ("wss://[::1]:9/x#y", "[::1]:9"),
            ("host:50051", "host:50051"),
            ("", ""),
        ] {
            assert_eq!(authority(url), expected);
        }
        assert_eq!(authority(&format!("https://{}", "x".repeat(300))), "");
    }

    #[test]
    fn a_manifest_says_how_waits_grow_and_how_long_they_get() {
        let grown = |backoff_multiplier, backoff_max_seconds| {
            let policy = RetryPolicy { backoff_multiplier, backoff_max_seconds, ..RetryPolicy::default() };
            let waits = waits(&policy, Duration::from_millis(500)).unwrap();
            [1, 2, 3, 4].map(|attempt| waits.ceiling(attempt).as_millis())
        };
        assert_eq!(grown(1.0, 60), [500, 500, 500, 500]);
        assert_eq!(grown(3.0, 60), [500, 1_500, 4_500, 13_500]);
        assert_eq!(grown(3.0, 2), [500, 1_500, 2_000, 2_000]);
    }

    #[test]
    fn every_quota_of_a_manifest_is_kept() {
        let limit = RateLimit { max_per_minute: None, max_per_hour: Some(10), max_per_day: Some(50) };
        let words: Vec<_> = quotas(&limit).into_iter().map(|(word, quota)| (word, quota.burst)).collect();
        assert_eq!(words, [("hour", 10), ("day", 50)]);
    }
}
