//! Asking about health, alerts, use and analytics: who may know what.
//!
//! How a tool fares may be known by whoever may know the tool; how often it is called only by its owner's tenant, because a
//! shared tool is called by all of them. Use is the caller's own, or that of its tenant for those who may see it; nobody
//! sees that of another tenant but administrators of the installation.

use std::sync::Arc;

use contract::error::Refusal;
use contract::ids::{Subject, TenantId, ToolId};
use kernel::Kernel;
use policy::Action;
use ports::actor::Actor;
use ports::clock::UnixMillis;
use ports::health_store::AlertRule;
use ports::tool_version::VersionKey;
use ports::usage_store::{ANALYTICS_MAX, Days, Grouping, ToolUsage, UsagePage, UsageQuery};

use crate::health::HealthReport;
use crate::health::score::HealthCondition;
use crate::service::Insights;

/// Which use is asked for.
#[derive(Debug, Clone)]
pub struct UsageAsked {
    pub tenant: Option<TenantId>,
    pub days: Days,
    pub tool: Option<ToolId>,
    pub agent: Option<Subject>,
    pub user: Option<Subject>,
    pub by: Grouping,
    pub skip: usize,
    pub most: usize,
}

/// How a version fares, as far as the asker may know.
#[derive(Debug, Clone)]
pub struct HealthView {
    pub report: HealthReport,
    /// May the asker know how often it is called?
    pub counts_shown: bool,
}

/// A tool, and what its calls say.
#[derive(Debug, Clone)]
pub struct ToolAnalysis {
    pub usage: ToolUsage,
    /// Of the versions that were called lately the worst.
    pub condition: HealthCondition,
    pub score: Option<f64>,
}

/// Insight queries: what was learned, as far as whoever asks may know it.
#[derive(Debug)]
pub struct InsightQueries {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) insights: Arc<Insights>,
}

impl InsightQueries {
    /// About what `insights` have learned from the calls of `kernel`.
    pub fn new(kernel: Arc<Kernel>, insights: Arc<Insights>) -> Self {
        Self { kernel, insights }
    }

    /// Who learns.
    pub fn source(&self) -> &Arc<Insights> {
        &self.insights
    }

    /// How every version of one tool fares that somebody has called, the newest version first.
    pub async fn tool_health(&self, actor: Actor<'_>, name: &str) -> Result<(ToolId, Vec<HealthView>), Refusal> {
        let tool = self.kernel.tool(actor, name).await?;
        let caller = self.kernel.recognise(actor).await?;
        let insights = &self.insights;
        let now = self.kernel.clock().monotonic();
        let counts_shown = caller.tenant() == &tool.tenant;
        let versions = tool.versions().iter().rev();
        let reports = versions.filter_map(|version| insights.health.of(now, &VersionKey::of(version)));
        Ok((tool.id.clone(), reports.map(|report| HealthView { report, counts_shown }).collect()))
    }

    /// How everything fares that the caller may know, the worst first, the unknown last.
    pub async fn tools_health(&self, actor: Actor<'_>) -> Result<Vec<HealthView>, Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let insights = &self.insights;
        let access = self.kernel.access().snapshot().clone();
        let sight = self.kernel.sight(&access, &caller);
        let registry = self.kernel.registry().snapshot().clone();
        let known = |key: &VersionKey| {
            registry.tool(caller.tenant(), &key.tool).is_some_and(|tool| tool.tenant == key.tenant && sight.knows(tool))
        };
        let mut reports = insights.health.reports(self.kernel.clock().monotonic(), known);
        reports.sort_by(|left, right| {
            let order = |report: &HealthReport| report.score.unwrap_or(f64::INFINITY);
            order(left).total_cmp(&order(right)).then_with(|| left.key.cmp(&right.key))
        });
        let view = |report: HealthReport| HealthView { counts_shown: caller.tenant() == &report.key.tenant, report };
        Ok(reports.into_iter().map(view).collect())
    }

    /// What is raised about the tools of a tenant, the oldest first.
    pub async fn alerts(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
    ) -> Result<Vec<(AlertRule, UnixMillis, HealthReport)>, Refusal> {
        let caller = self.kernel.permitted(actor, Action::SeeUsage).await?;
        let tenant = self.kernel.tenant_for(actor, &caller, tenant).await?;
        let insights = &self.insights;
        let reports = insights.health.reports(self.kernel.clock().monotonic(), |key| key.tenant == tenant);
        let mut alerts: Vec<_> = reports
            .into_iter()
            .flat_map(|report| {
                let raised = report.raised.clone();
                raised.into_iter().map(move |(rule, at)| (rule, at, report.clone()))
            })
            .collect();
        alerts.sort_by(|left, right| (left.1, left.0, &left.2.key).cmp(&(right.1, right.0, &right.2.key)));
        Ok(alerts)
    }

    /// Use: the caller's own, or its tenant's if it may see that. Use is counted by name, and a name that somebody took in a
    /// token exchange may be another's: what was counted under it is not shown to whoever took it.
    pub async fn usage(&self, actor: Actor<'_>, asked: UsageAsked) -> Result<UsagePage, Refusal> {
        let caller = self.kernel.recognise(actor).await?;
        let all = caller.may(Action::SeeUsage);
        let tenant = self.kernel.tenant_for(actor, &caller, asked.tenant.as_ref()).await?;
        let elsewhere = tenant != *caller.tenant();
        let is_named = asked.agent.as_ref().is_none_or(|agent| agent == caller.subject());
        let own = is_named && caller.owner().delegators().is_none();
        if !all && (elsewhere || !own) {
            // Recorded as every refused look is.
            self.kernel.permitted(actor, Action::SeeUsage).await?;
        }
        let agent = if all { asked.agent } else { Some(caller.subject().clone()) };
        let query = UsageQuery {
            tenant,
            from: asked.days.from,
            to: asked.days.to,
            tool: asked.tool,
            agent,
            user: asked.user,
            by: asked.by,
            skip: asked.skip,
            most: asked.most,
        };
        let insights = self.written().await?;
        insights.parts.usage.usage(&query).await.map_err(|error| error.refusal())
    }

    /// What the calls of a tenant say about each tool, most called first.
    pub async fn tool_analytics(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        days: Days,
    ) -> Result<Vec<ToolAnalysis>, Refusal> {
        let caller = self.kernel.permitted(actor, Action::SeeUsage).await?;
        let tenant = self.kernel.tenant_for(actor, &caller, tenant).await?;
        let insights = self.written().await?;
        let used = insights.parts.usage.tool_usage(&tenant, days, ANALYTICS_MAX).await;
        let registry = self.kernel.registry().snapshot().clone();
        let now = self.kernel.clock().monotonic();
        let analysis = |usage: ToolUsage| {
            let versions = registry.tool(&tenant, &usage.tool).map(|tool| tool.versions().to_vec()).unwrap_or_default();
            let scores = versions.iter().filter_map(|version| insights.health.score(now, &VersionKey::of(version)));
            let score = scores.min_by(f64::total_cmp);
            ToolAnalysis { usage, condition: HealthCondition::of(score), score }
        };
        Ok(used.map_err(|error| error.refusal())?.into_iter().map(analysis).collect())
    }

    /// With everything written that was counted, so that an answer has what its asker has just done.
    pub(crate) async fn written(&self) -> Result<&Arc<Insights>, Refusal> {
        self.insights.flush().await.map_err(|error| error.refusal())?;
        Ok(&self.insights)
    }
}
