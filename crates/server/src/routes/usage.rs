//! Use, cost and what follows from them: `/v1/usage`, `/v1/analytics/tools`, `/v1/recommendations` (COST-004, ANALYT-001…003).
//!
//! Days are days in UTC, and both ends are included. Without any, the last 30 are meant.

use std::collections::BTreeMap;
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use contract::money::{Amount, Currency};
use contract::version::Version;
use insights::{Recommendation, RecommendationReason, ToolAnalysis, UsageAsked};
use ports::usage_store::{CostLine, Day, Days, Grouping, USAGE_PAGE_MAX, UsageGroup, UsageSum};
use schemars::{JsonSchema, SchemaGenerator};
use serde::Serialize;

use super::tool_health::{Suggestion, millis, rounded};
use super::{
    ParameterPlace, RequestBody, ResponseBody, RouteAccess, RouteMethod, RouteOperation, RouteParameter, TENANT,
    tenant_in, to,
};
use crate::answer::{Handled, HttpAnswer};
use crate::door::Door;
use crate::incoming_request::IncomingRequest;
use crate::problem::RefusalResponse;
use crate::query::QueryParameters;

/// Days without a wish, and the most that can be asked for.
const DAYS_DEFAULT: i64 = 30;
const DAYS_MAX: i64 = 366;
/// Groups of a page unless asked otherwise.
const PAGE_DEFAULT: usize = 100;
/// Highest page that is counted to.
const PAGE_MAX: usize = 100_000;

const FROM: RouteParameter = text("from", "the first day, YYYY-MM-DD in UTC; default 30 days before `to`");
const TO: RouteParameter = text("to", "the last day, included; default today");

pub(super) static OPERATIONS: &[RouteOperation] = &[
    RouteOperation {
        parameters: &[
            TENANT,
            FROM,
            TO,
            text("tool", "only this tool, by its full id"),
            text("agent", "only this agent; default all for those who may see them, else the caller"),
            text("user", "only on behalf of this user"),
            text(
                "by",
                "what to add up by: some of `day`, `tool`, `agent`, `user`, separated by commas; default `day,tool`",
            ),
            number("page", "from 1"),
            number("page_size", "1 to 500, default 100"),
        ],
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<UsageAnswer>),
        mount: |filter| to(filter, usage),
        ..look("/v1/usage", "getUsage", "How much was used, and what it cost", &[(200, "one page")])
    },
    RouteOperation {
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Analytics>),
        mount: |filter| to(filter, analytics),
        ..look(
            "/v1/analytics/tools",
            "getToolAnalytics",
            "What the calls of a tenant say about each tool",
            &[(200, "the most called first, at most 1000")],
        )
    },
    RouteOperation {
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<Recommendations>),
        mount: |filter| to(filter, recommendations),
        ..look(
            "/v1/recommendations",
            "getRecommendations",
            "What should be enabled for whom, with the counts that say so",
            &[(200, "the best founded first, at most 200")],
        )
    },
];

const fn look(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    good: &'static [(u16, &'static str)],
) -> RouteOperation {
    RouteOperation {
        verb: RouteMethod::Get,
        path,
        id,
        tag: "usage",
        summary,
        access: RouteAccess::Token,
        parameters: &[TENANT, FROM, TO],
        asks: RequestBody::Nothing,
        good,
        gives: ResponseBody::Json(SchemaGenerator::subschema_for::<UsageAnswer>),
        codes: &[ErrorCode::E3001, ErrorCode::E3004, ErrorCode::E3010],
        mount: |filter| to(filter, usage),
    }
}

const fn text(name: &'static str, about: &'static str) -> RouteParameter {
    RouteParameter { place: ParameterPlace::Query, name, about, schema: SchemaGenerator::subschema_for::<String> }
}

const fn number(name: &'static str, about: &'static str) -> RouteParameter {
    RouteParameter { place: ParameterPlace::Query, name, about, schema: SchemaGenerator::subschema_for::<u32> }
}

/// One page of use.
#[derive(Debug, Serialize, JsonSchema)]
struct UsageAnswer {
    from: String,
    to: String,
    usage: Vec<UsageLine>,
    page: usize,
    page_size: usize,
    /// Are there more?
    more: bool,
}

/// One group. What it was not added up by is absent.
#[derive(Debug, Serialize, JsonSchema)]
struct UsageLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_id: Option<ToolId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<Subject>,
    /// Absent also if the calls were on nobody's behalf.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Subject>,
    #[serde(flatten)]
    sum: Sum,
    cost: Vec<CostView>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "UsageSum")]
struct Sum {
    /// Calls that came to their end, whatever the end.
    calls: u64,
    /// Of them: the tool or what is behind it failed; calls that took too long are among these.
    errors: u64,
    timeouts: u64,
    /// Of them: refused before the tool ran.
    refused: u64,
    /// Of them: answered with the outcome of an earlier one.
    replayed: u64,
    duration_ms: u64,
    cpu_used_millicore_seconds: u64,
    network_bytes: u64,
    tokens_used: u64,
    /// RFC 3339, UTC.
    last_used_at: String,
}

/// What some use cost in one currency.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Cost")]
struct CostView {
    currency: Currency,
    total: Amount,
    /// By component: `compute`, `external_api`, `storage_io`, `network`, `token`, `human_review`.
    components: BTreeMap<&'static str, Amount>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolAnalytics")]
struct Analytics {
    from: String,
    to: String,
    tools: Vec<ToolLine>,
}

/// What the calls say about one tool.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "ToolAnalyticsLine")]
struct ToolLine {
    tool_id: ToolId,
    #[serde(flatten)]
    sum: Sum,
    /// Of the calls that ran, how many failed; null if none ran.
    error_rate: Option<f64>,
    p50_ms: Option<f64>,
    p95_ms: Option<f64>,
    p99_ms: Option<f64>,
    /// How many agents have called it.
    agents: u64,
    cost: Vec<CostView>,
    /// Over the last quarter of an hour: `healthy`, `degraded`, `unhealthy` or `unknown`.
    health: &'static str,
    health_score: Option<f64>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Recommendations {
    from: String,
    to: String,
    recommendations: Vec<Advice>,
}

/// One piece of advice.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Recommendation")]
struct Advice {
    /// `activate`: enable the tool for the agent; `try`: it has it and does not use it; `reclassify_timeout`: declare
    /// another class.
    action: &'static str,
    tool_id: ToolId,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<Subject>,
    /// In words, with the counts.
    reason: String,
    /// How often what the reason says has happened.
    count: u64,
    /// The tool that the agent uses and that goes with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_with: Option<ToolId>,
    /// The tool that the agent uses and that describes itself in a similar way.
    #[serde(skip_serializing_if = "Option::is_none")]
    similar_to: Option<ToolId>,
    /// How similar the descriptions are, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    similarity: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
    #[serde(skip_serializing_if = "Option::is_none")]
    suggestion: Option<Suggestion>,
}

async fn usage(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let query = incoming.query(&["tenant", "from", "to", "tool", "agent", "user", "by", "page", "page_size"])?;
    let days = days_in(&query, &door)?;
    let page = query.number("page", 1..=PAGE_MAX, 1)?;
    let page_size = query.number("page_size", 1..=USAGE_PAGE_MAX, PAGE_DEFAULT)?;
    let asked = UsageAsked {
        tenant: tenant_in(&query)?,
        days,
        tool: named(&query, "tool")?,
        agent: named(&query, "agent")?,
        user: named(&query, "user")?,
        by: grouping(&query)?,
        skip: (page - 1) * page_size,
        most: page_size,
    };
    let found = door.insights()?.usage(who.actor(), asked).await?;
    HttpAnswer::json(&UsageAnswer {
        from: days.from.to_string(),
        to: days.to.to_string(),
        usage: found.groups.into_iter().map(UsageLine::of).collect(),
        page,
        page_size,
        more: found.more,
    })
}

async fn analytics(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let (tenant, days) = tenant_and_days(&incoming, &door)?;
    let tools = door.insights()?.tool_analytics(who.actor(), tenant.as_ref(), days).await?;
    let tools = tools.into_iter().map(ToolLine::of).collect();
    HttpAnswer::json(&Analytics { from: days.from.to_string(), to: days.to.to_string(), tools })
}

async fn recommendations(door: Arc<Door>, incoming: IncomingRequest) -> Handled {
    let who = incoming.credential()?;
    door.kernel().recognise(who.actor()).await?;
    let (tenant, days) = tenant_and_days(&incoming, &door)?;
    let found = door.insights()?.recommendations(who.actor(), tenant.as_ref(), days).await?;
    let recommendations = found.into_iter().map(Advice::of).collect();
    HttpAnswer::json(&Recommendations { from: days.from.to_string(), to: days.to.to_string(), recommendations })
}

// ------------------------------------------------------------------------------------------------------ parameters

fn tenant_and_days(incoming: &IncomingRequest, door: &Door) -> Result<(Option<TenantId>, Days), RefusalResponse> {
    let query = incoming.query(&["tenant", "from", "to"])?;
    Ok((tenant_in(&query)?, days_in(&query, door)?))
}

fn days_in(query: &QueryParameters, door: &Door) -> Result<Days, RefusalResponse> {
    let to = named(query, "to")?.unwrap_or_else(|| Day::of(door.kernel().clock().now()));
    let from = named(query, "from")?.unwrap_or_else(|| to.before(DAYS_DEFAULT));
    if from > to || to.0 - from.0 > DAYS_MAX {
        let refusal = Refusal::new(ErrorCode::E3004, "`from` and `to` are no span of days");
        return Err(refusal.hint(format!("`from` comes first, and {DAYS_MAX} days are the most")).into());
    }
    Ok(Days { from, to })
}

fn named<T: std::str::FromStr<Err: std::fmt::Display>>(
    query: &QueryParameters,
    name: &'static str,
) -> Result<Option<T>, RefusalResponse> {
    let value = query.one(name)?.map(str::parse::<T>).transpose();
    Ok(value.map_err(|error| Refusal::new(ErrorCode::E3004, format!("query parameter `{name}`: {error}")))?)
}

fn grouping(query: &QueryParameters) -> Result<Grouping, RefusalResponse> {
    let words = query.many("by");
    if words.is_empty() {
        return Ok(Grouping { day: true, tool: true, agent: false, user: false });
    }
    let mut by = Grouping { day: false, tool: false, agent: false, user: false };
    for word in &words {
        match word.as_str() {
            "day" => by.day = true,
            "tool" => by.tool = true,
            "agent" => by.agent = true,
            "user" => by.user = true,
            _ => {
                let refusal = Refusal::new(ErrorCode::E3004, "query parameter `by` has an unknown value");
                return Err(refusal.hint("use some of: day, tool, agent, user").into());
            }
        }
    }
    Ok(by)
}

// ----------------------------------------------------------------------------------------------------------- views

impl Sum {
    fn of(sum: &UsageSum) -> Self {
        Self {
            calls: sum.calls,
            errors: sum.errors,
            timeouts: sum.timeouts,
            refused: sum.refused,
            replayed: sum.replayed,
            duration_ms: sum.duration_ms,
            cpu_used_millicore_seconds: sum.cpu_millicore_seconds,
            network_bytes: sum.network_bytes,
            tokens_used: sum.tokens,
            last_used_at: sum.last_at.to_string(),
        }
    }
}

impl UsageLine {
    fn of(group: UsageGroup) -> Self {
        Self {
            day: group.day.map(|day| day.to_string()),
            tool_id: group.tool,
            agent: group.agent,
            user: group.user,
            sum: Sum::of(&group.sum),
            cost: costs(&group.costs),
        }
    }
}

impl ToolLine {
    fn of(analysis: ToolAnalysis) -> Self {
        let ToolAnalysis { usage, condition, score } = analysis;
        let ran = usage.latencies.total();
        Self {
            sum: Sum::of(&usage.sum),
            error_rate: (ran > 0).then(|| rounded(usage.sum.errors as f64 / ran as f64)),
            p50_ms: millis(&usage.latencies, 0.5),
            p95_ms: millis(&usage.latencies, 0.95),
            p99_ms: millis(&usage.latencies, 0.99),
            agents: usage.agents,
            cost: costs(&usage.costs),
            health: condition.as_str(),
            health_score: score.map(rounded),
            tool_id: usage.tool,
        }
    }
}

/// By currency; the lines come in its order.
fn costs(lines: &[CostLine]) -> Vec<CostView> {
    lines
        .chunk_by(|left, right| left.currency == right.currency)
        .filter_map(|lines| {
            let total = lines.iter().fold(Amount::ZERO, |sum, line| sum.plus(line.amount));
            let components = lines.iter().map(|line| (line.component.as_str(), line.amount)).collect();
            Some(CostView { currency: lines.first()?.currency, total, components })
        })
        .collect()
}

impl Advice {
    fn of(advice: Recommendation) -> Self {
        let Recommendation { tool, agent, reason } = advice;
        let line = |action, reason: String, count| Self {
            action,
            tool_id: tool.clone(),
            agent: agent.clone(),
            reason,
            count,
            used_with: None,
            similar_to: None,
            similarity: None,
            version: None,
            suggestion: None,
        };
        match reason {
            RecommendationReason::UnmetNeed { count } => {
                line("activate", format!("searched for or called {count} times, and not enabled"), count)
            }
            RecommendationReason::CoUse { with, count, enabled } => {
                let reason = format!("`{with}` is in use, and both were used together {count} times");
                Self { used_with: Some(with), ..line(if enabled { "try" } else { "activate" }, reason, count) }
            }
            RecommendationReason::Similar { to, count, percent, enabled } => {
                let reason = format!("`{to}` was called {count} times, and this describes itself {percent} % like it");
                let advice = line(if enabled { "try" } else { "activate" }, reason, count);
                Self { similar_to: Some(to), similarity: Some(percent), ..advice }
            }
            RecommendationReason::Reclassify { version, change, timeouts, calls } => {
                let reason = format!("{timeouts} of {calls} calls took longer than the class allows");
                Self {
                    version: Some(version),
                    suggestion: Some(Suggestion::of(change)),
                    ..line("reclassify_timeout", reason, timeouts)
                }
            }
        }
    }
}
