//! Questions about use. Groups are made by SQLite: what a row is not grouped by reads as empty, and so do both halves of a
//! group that are put together here, its sums and its costs.

use std::collections::HashMap;

use base::SaturatingFrom as _;
use contract::cost::CostComponent;
use contract::ids::TenantId;
use contract::money::Amount;
use ports::clock::UnixMillis;
use ports::latency::Latencies;
use ports::usage_store::{
    ANALYTICS_MAX, CostLine, Day, Days, ToolPair, ToolUsage, USAGE_PAGE_MAX, UnmetNeed, UsageGroup, UsagePage,
    UsageQuery, UsageSum,
};
use rusqlite::{Connection, Params, Row, params};

use crate::sqlite::columns::{unreadable, word};
use crate::sqlite::faults::Fault;

/// What names a group; what it is not grouped by is empty or zero.
type GroupName = (i64, String, String, String);

/// The filter that sums and costs share.
const FILTER: &str = "tenant_id = ?1 AND day BETWEEN ?2 AND ?3 AND (?4 IS NULL OR tool_id = ?4)
                      AND (?5 IS NULL OR agent = ?5) AND (?6 IS NULL OR user = ?6)";
const SUMS: &str = "sum(calls) AS calls, sum(errors) AS errors, sum(timeouts) AS timeouts, sum(refused) AS refused,
                    sum(replayed) AS replayed, sum(duration_ms) AS duration_ms,
                    sum(cpu_millicore_seconds) AS cpu_millicore_seconds, sum(network_bytes) AS network_bytes,
                    sum(tokens) AS tokens, max(last_at) AS last_at";

pub(super) fn page(connection: &Connection, query: &UsageQuery) -> Result<UsagePage, Fault> {
    let by = query.by;
    let column = |wanted: bool, column: &'static str, empty: &'static str| if wanted { column } else { empty };
    let names = format!(
        "{} AS g_day, {} AS g_tool, {} AS g_agent, {} AS g_user",
        column(by.day, "day", "0"),
        column(by.tool, "tool_id", "''"),
        column(by.agent, "agent", "''"),
        column(by.user, "user", "''"),
    );
    let most = query.most.clamp(1, USAGE_PAGE_MAX);
    let sql = format!(
        "SELECT {names}, {SUMS} FROM usage WHERE {FILTER}
         GROUP BY g_day, g_tool, g_agent, g_user ORDER BY g_day, g_tool, g_agent, g_user LIMIT ?7 OFFSET ?8"
    );
    let text = |value: Option<&str>| value.map(str::to_owned);
    let (tool, agent) =
        (text(query.tool.as_ref().map(|it| it.as_str())), text(query.agent.as_ref().map(|it| it.as_str())));
    let user = text(query.user.as_ref().map(|it| it.as_str()));
    let tenant = query.tenant.as_str();
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![
        tenant,
        query.from.0,
        query.to.0,
        tool,
        agent,
        user,
        count(most + 1),
        count(query.skip)
    ])?;
    let mut found: Vec<(GroupName, UsageSum)> = Vec::new();
    while let Some(row) = rows.next()? {
        found.push((name(row)?, sum(row)?));
    }
    let more = found.len() > most;
    found.truncate(most);
    let (Some((first, _)), Some((last, _))) = (found.first(), found.last()) else { return Ok(UsagePage::default()) };
    // Only the costs of the groups on this page.
    let sql = format!(
        "SELECT {names}, currency, component, sum(micros) AS micros, sum(picos) AS picos FROM usage_costs
         WHERE {FILTER}
         GROUP BY g_day, g_tool, g_agent, g_user, currency, component
         HAVING (g_day, g_tool, g_agent, g_user) >= (?7, ?8, ?9, ?10)
            AND (g_day, g_tool, g_agent, g_user) <= (?11, ?12, ?13, ?14)
         ORDER BY currency, component"
    );
    let mut costs = costs_by(
        connection,
        &sql,
        params![
            tenant,
            query.from.0,
            query.to.0,
            tool,
            agent,
            user,
            first.0,
            first.1,
            first.2,
            first.3,
            last.0,
            last.1,
            last.2,
            last.3
        ],
        name,
    )?;
    let groups = found.into_iter().map(|(name, sum)| {
        let costs = costs.remove(&name).unwrap_or_default();
        let (day, tool, agent, user) = name;
        Ok(UsageGroup {
            day: by.day.then_some(Day(day)),
            tool: by.tool.then(|| tool.parse()).transpose().map_err(|_| unreadable("tool_id", &tool))?,
            agent: by.agent.then(|| agent.parse()).transpose().map_err(|_| unreadable("agent", &agent))?,
            user: (by.user && !user.is_empty())
                .then(|| user.parse())
                .transpose()
                .map_err(|_| unreadable("user", &user))?,
            sum,
            costs,
        })
    });
    Ok(UsagePage { groups: groups.collect::<Result<_, Fault>>()?, more })
}

pub(super) fn tools(
    connection: &Connection,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolUsage>, Fault> {
    let of = params![tenant.as_str(), days.from.0, days.to.0];
    let mut costs = costs_by(
        connection,
        "SELECT tool_id, currency, component, sum(micros) AS micros, sum(picos) AS picos FROM usage_costs
         WHERE tenant_id = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY tool_id, currency, component ORDER BY currency, component",
        of,
        |row| Ok(row.get::<_, String>("tool_id")?),
    )?;
    let mut latencies: HashMap<String, Latencies> = HashMap::new();
    let mut statement = connection.prepare_cached(
        "SELECT tool_id, bucket, sum(count) AS count FROM usage_latencies
         WHERE tenant_id = ?1 AND day BETWEEN ?2 AND ?3 GROUP BY tool_id, bucket",
    )?;
    let mut rows = statement.query(of)?;
    while let Some(row) = rows.next()? {
        let bucket: usize = usize::try_from(row.get::<_, i64>("bucket")?).unwrap_or(usize::MAX);
        let count = u32::try_from(row.get::<_, i64>("count")?).unwrap_or(u32::MAX);
        latencies.entry(row.get("tool_id")?).or_default().add(bucket, count);
    }
    let sql = format!(
        "SELECT tool_id, count(DISTINCT agent) AS agents, {SUMS} FROM usage
         WHERE tenant_id = ?1 AND day BETWEEN ?2 AND ?3
         GROUP BY tool_id ORDER BY calls DESC, tool_id LIMIT ?4"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows =
        statement.query(params![tenant.as_str(), days.from.0, days.to.0, count(most.clamp(1, ANALYTICS_MAX))])?;
    let mut tools = Vec::new();
    while let Some(row) = rows.next()? {
        let tool: String = row.get("tool_id")?;
        tools.push(ToolUsage {
            sum: sum(row)?,
            costs: costs.remove(&tool).unwrap_or_default(),
            latencies: latencies.remove(&tool).unwrap_or_default(),
            agents: number(row, "agents")?,
            tool: word(row, "tool_id", &tool)?,
        });
    }
    Ok(tools)
}

pub(super) fn pairs(
    connection: &Connection,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolPair>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT first, second, sum(count) AS total FROM usage_pairs WHERE tenant_id = ?1 AND day BETWEEN ?2 AND ?3
         GROUP BY first, second ORDER BY total DESC, first, second LIMIT ?4",
    )?;
    let mut rows =
        statement.query(params![tenant.as_str(), days.from.0, days.to.0, count(most.clamp(1, ANALYTICS_MAX))])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let of: String = row.get("first")?;
        let (first, second) = (word(row, "first", &of)?, word(row, "second", &of)?);
        found.push(ToolPair { first, second, count: number(row, "total")? });
    }
    Ok(found)
}

pub(super) fn wishes(
    connection: &Connection,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<UnmetNeed>, Fault> {
    let mut statement = connection.prepare_cached(
        "SELECT agent, tool_id, sum(count) AS total FROM usage_wishes WHERE tenant_id = ?1 AND day BETWEEN ?2 AND ?3
         GROUP BY agent, tool_id ORDER BY total DESC, agent, tool_id LIMIT ?4",
    )?;
    let mut rows =
        statement.query(params![tenant.as_str(), days.from.0, days.to.0, count(most.clamp(1, ANALYTICS_MAX))])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let of: String = row.get("tool_id")?;
        let (agent, tool) = (word(row, "agent", &of)?, word(row, "tool_id", &of)?);
        found.push(UnmetNeed { agent, tool, count: number(row, "total")? });
    }
    Ok(found)
}

// ------------------------------------------------------------------------------------------------------------ rows

fn name(row: &Row<'_>) -> Result<GroupName, Fault> {
    Ok((row.get("g_day")?, row.get("g_tool")?, row.get("g_agent")?, row.get("g_user")?))
}

fn sum(row: &Row<'_>) -> Result<UsageSum, Fault> {
    Ok(UsageSum {
        calls: number(row, "calls")?,
        errors: number(row, "errors")?,
        timeouts: number(row, "timeouts")?,
        refused: number(row, "refused")?,
        replayed: number(row, "replayed")?,
        duration_ms: number(row, "duration_ms")?,
        cpu_millicore_seconds: number(row, "cpu_millicore_seconds")?,
        network_bytes: number(row, "network_bytes")?,
        tokens: number(row, "tokens")?,
        last_at: UnixMillis(row.get("last_at")?),
    })
}

fn costs_by<K: std::hash::Hash + Eq>(
    connection: &Connection,
    sql: &str,
    of: impl Params,
    key: impl Fn(&Row<'_>) -> Result<K, Fault>,
) -> Result<HashMap<K, Vec<CostLine>>, Fault> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(of)?;
    let mut costs: HashMap<K, Vec<CostLine>> = HashMap::new();
    while let Some(row) = rows.next()? {
        let component: String = row.get("component")?;
        costs.entry(key(row)?).or_default().push(CostLine {
            currency: word(row, "currency", &component)?,
            component: CostComponent::of_word(&component).ok_or_else(|| unreadable("component", &component))?,
            amount: Amount::joined(row.get("micros")?, row.get("picos")?),
        });
    }
    Ok(costs)
}

fn number(row: &Row<'_>, column: &'static str) -> Result<u64, Fault> {
    let number: i64 = row.get(column)?;
    u64::try_from(number).map_err(|_| unreadable(column, "usage").into())
}

fn count(number: usize) -> i64 {
    i64::saturating_from(number)
}
