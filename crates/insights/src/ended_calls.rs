//! Ended calls: what the kernel tells of each, counted for health, use and cost. (INS-1)

use std::time::Duration;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::cost::{self, Costs, MeasuredUsage};
use contract::error::{ErrorCode, Refusal, RefusalReason};
use contract::ids::{Subject, TenantId, ToolId};
use ports::call_insights::{CallEnding, CallInsights};
use ports::event_announcer::VersionEvent;
use ports::executor::ResourceUsage;
use ports::tool_version::{ToolVersion, VersionKey};
use ports::usage_store::{Day, UsageSum};

use crate::health::window::HealthOutcome;
use crate::health::{ending_of, ending_of_refused};
use crate::service::Insights;
use crate::tally::{Addition, UsageOwner};

#[async_trait]
impl CallInsights for Insights {
    fn ended(&self, call: &CallEnding<'_>) {
        let (now, day) = (self.parts.clock.monotonic(), Day::of(self.parts.clock.now()));
        let code = call.refusal.map(|refusal| cause(refusal).unwrap_or(refusal.code));
        let ending = match (call.refusal, code) {
            (Some(refusal), Some(code)) => ending_of_refused(refusal, code),
            _ => ending_of(code),
        };
        let ran = ending.filter(|_| !call.replayed);
        if let Some(ending) = ran {
            self.health.note(now, call.tool, ending, call.took);
            self.deprecated_use.note(call.tool, self.parts.clock.now());
        }
        let whose = UsageOwner {
            tenant: &call.who.tenant,
            agent: call.who.root(),
            session: call.session,
            user: call.who.user.as_ref(),
        };
        // Found by name, and in the tenant's reach, but not in the agent's (VIS-009).
        if code == Some(ErrorCode::E3101) {
            self.tally.wish(whose.tenant, whose.agent, &call.tool.id, day);
        }
        let is = |yes: bool| u64::from(yes);
        let sum = UsageSum {
            calls: 1,
            errors: is(ran.is_some_and(|ending| ending != HealthOutcome::Well)),
            timeouts: is(ran == Some(HealthOutcome::TimedOut)),
            refused: is(ending.is_none() && code != Some(ErrorCode::E3703)),
            replayed: is(call.replayed),
            duration_ms: u64::saturating_from(call.took.as_millis()),
            cpu_millicore_seconds: call.usage.cpu_millicore_seconds,
            network_bytes: call.usage.network_bytes_sent.saturating_add(call.usage.network_bytes_received),
            tokens: call.usage.tokens.unwrap_or(0),
            last_at: self.parts.clock.now(),
        };
        let (tool, costs) = (&call.tool.id, call.costs);
        self.tally.add(whose, &Addition { tool, day, sum, costs, ran: ran.map(|_| (call.took, now)) });
    }

    fn bill(&self, tool: &ToolVersion, usage: ResourceUsage, units: Option<u64>, took: Duration) -> Costs {
        let measured = MeasuredUsage {
            units,
            tokens: usage.tokens,
            duration_ms: u64::saturating_from(took.as_millis()),
            cpu_millicore_seconds: usage.cpu_millicore_seconds,
            network_bytes: usage.network_bytes_sent.saturating_add(usage.network_bytes_received),
            reported: usage.cost_incurred,
        };
        cost::bill(tool.manifest.cost_config.as_ref(), &self.parts.prices, &measured)
    }

    fn score(&self, tool: &ToolVersion) -> Option<(f64, u64)> {
        let report = self.health.of(self.parts.clock.monotonic(), &VersionKey::of(tool))?;
        Some((report.score?, report.counts.calls))
    }

    fn found_out_of_reach(&self, tenant: &TenantId, agent: &Subject, tools: &[ToolId]) {
        let day = Day::of(self.parts.clock.now());
        for tool in tools {
            self.tally.wish(tenant, agent, tool, day);
        }
    }

    /// An alert is raised and resolved; this is told and done. What cannot be put into the queue of deliveries is in the log only.
    async fn happened(&self, event: VersionEvent) {
        let VersionEvent { name, tenant, tool, version, data, .. } = &event;
        tracing::info!(event = name.as_str(), %tenant, %tool, %version, %data, "{name}");
        let Some(announcer) = &self.parts.announcer else { return };
        if let Err(refusal) = announcer.announce_version_event(&event).await {
            tracing::warn!(event = name.as_str(), %tool, code = %refusal.code, error = &refusal as &dyn std::error::Error, "an event is not delivered");
        }
    }
}

/// The code behind an unknown outcome, if it says one: a timeout that may have had its effect is still a timeout.
fn cause(refusal: &Refusal) -> Option<ErrorCode> {
    match refusal.reason.as_deref() {
        Some(RefusalReason::OutcomeUnknown { code, .. }) => Some(*code),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_of_which_nobody_knows_the_effect_is_still_a_timeout() {
        let unknown = |code| {
            Refusal::new(ErrorCode::E3413, "nobody knows").because(RefusalReason::OutcomeUnknown { code, behind: None })
        };
        let ending = |refusal: &Refusal| ending_of_refused(refusal, cause(refusal).unwrap_or(refusal.code));
        assert_eq!(ending(&unknown(ErrorCode::E3402)), Some(HealthOutcome::TimedOut));
        assert_eq!(ending(&unknown(ErrorCode::E3404)), Some(HealthOutcome::Failed));
        assert_eq!(ending(&unknown(ErrorCode::E3703)), None, "that somebody cancelled it says nothing about the tool");
        assert_eq!(ending(&Refusal::new(ErrorCode::E3413, "nobody knows")), Some(HealthOutcome::Failed));
    }
}
