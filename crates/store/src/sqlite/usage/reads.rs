//! Questions about use. Groups are made by SQLite: what a row is not grouped by reads as empty, and so do both halves of a
//! group that are put together here, its sums and its costs.

use std::collections::HashMap;

use contract::ids::TenantId;
use ports::usage_store::{ANALYTICS_MAX, Days, ToolPair, ToolUsage, USAGE_PAGE_MAX, UnmetNeed, UsagePage, UsageQuery};
use rusqlite::{Connection, Row, named_params};

use crate::records::usage::{
    CostsBy, add_cost, add_latency, group, group_columns, group_name, pair, sum, tool_usage, wish,
};
use crate::sqlite::columns::{all, limit};
use crate::sqlite::faults::Fault;
use crate::stored_row::{StoredRow as _, Unreadable};

/// The filter that sums and costs share.
const FILTER: &str = "tenant_id = :tenant_id AND day BETWEEN :from AND :to AND (:tool_id IS NULL OR tool_id = :tool_id)
                      AND (:agent IS NULL OR agent = :agent) AND (:user IS NULL OR user = :user)";
const SUMS: &str = "sum(calls) AS calls, sum(errors) AS errors, sum(timeouts) AS timeouts, sum(refused) AS refused,
                    sum(replayed) AS replayed, sum(duration_ms) AS duration_ms,
                    sum(cpu_millicore_seconds) AS cpu_millicore_seconds, sum(network_bytes) AS network_bytes,
                    sum(tokens) AS tokens, max(last_at) AS last_at";

pub(super) fn page(connection: &Connection, query: &UsageQuery) -> Result<UsagePage, Fault> {
    let names = group_columns(query.by, "user", ("0", "''"));
    let most = query.most.clamp(1, USAGE_PAGE_MAX);
    let sql = format!(
        "SELECT {names}, {SUMS} FROM usage WHERE {FILTER}
         GROUP BY g_day, g_tool, g_agent, g_user ORDER BY g_day, g_tool, g_agent, g_user LIMIT :most OFFSET :skip"
    );
    let text = |value: Option<&str>| value.map(str::to_owned);
    let (tool, agent) =
        (text(query.tool.as_ref().map(|it| it.as_str())), text(query.agent.as_ref().map(|it| it.as_str())));
    let user = text(query.user.as_ref().map(|it| it.as_str()));
    let tenant = query.tenant.as_str();
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query(named_params! {
        ":tenant_id": tenant,
        ":from": query.from.0,
        ":to": query.to.0,
        ":tool_id": tool,
        ":agent": agent,
        ":user": user,
        ":most": limit(most + 1),
        ":skip": limit(query.skip),
    })?;
    let mut found = all(rows, |row| Ok((group_name(row)?, sum(row)?)))?;
    let more = found.len() > most;
    found.truncate(most);
    let (Some((first, _)), Some((last, _))) = (found.first(), found.last()) else { return Ok(UsagePage::default()) };
    // Only the costs of the groups on this page.
    let sql = format!(
        "SELECT {names}, currency, component, sum(micros) AS micros, sum(picos) AS picos FROM usage_costs
         WHERE {FILTER}
         GROUP BY g_day, g_tool, g_agent, g_user, currency, component
         HAVING (g_day, g_tool, g_agent, g_user) >= (:first_day, :first_tool, :first_agent, :first_user)
            AND (g_day, g_tool, g_agent, g_user) <= (:last_day, :last_tool, :last_agent, :last_user)
         ORDER BY currency, component"
    );
    let mut costs = CostsBy::default();
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(named_params! {
        ":tenant_id": tenant,
        ":from": query.from.0,
        ":to": query.to.0,
        ":tool_id": tool,
        ":agent": agent,
        ":user": user,
        ":first_day": first.0,
        ":first_tool": first.1,
        ":first_agent": first.2,
        ":first_user": first.3,
        ":last_day": last.0,
        ":last_tool": last.1,
        ":last_agent": last.2,
        ":last_user": last.3,
    })?;
    while let Some(row) = rows.next()? {
        add_cost(row, group_name(row)?, &mut costs)?;
    }
    let groups = found.into_iter().map(|found| group(query, found, &mut costs));
    Ok(UsagePage { groups: groups.collect::<Result<_, Unreadable>>()?, more })
}

pub(super) fn tools(
    connection: &Connection,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolUsage>, Fault> {
    let of = named_params! { ":tenant_id": tenant.as_str(), ":from": days.from.0, ":to": days.to.0 };
    let mut costs = CostsBy::default();
    let mut statement = connection.prepare_cached(
        "SELECT tool_id, currency, component, sum(micros) AS micros, sum(picos) AS picos FROM usage_costs
         WHERE tenant_id = :tenant_id AND day BETWEEN :from AND :to GROUP BY tool_id, currency, component
         ORDER BY currency, component",
    )?;
    let mut rows = statement.query(of)?;
    while let Some(row) = rows.next()? {
        add_cost(row, row.text("tool_id")?.to_owned(), &mut costs)?;
    }
    let mut latencies = HashMap::new();
    let mut statement = connection.prepare_cached(
        "SELECT tool_id, bucket, sum(count) AS count FROM usage_latencies
         WHERE tenant_id = :tenant_id AND day BETWEEN :from AND :to GROUP BY tool_id, bucket",
    )?;
    let mut rows = statement.query(of)?;
    while let Some(row) = rows.next()? {
        add_latency(row, &mut latencies)?;
    }
    let sql = format!(
        "SELECT tool_id, count(DISTINCT agent) AS agents, {SUMS} FROM usage
         WHERE tenant_id = :tenant_id AND day BETWEEN :from AND :to
         GROUP BY tool_id ORDER BY calls DESC, tool_id LIMIT :most"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let rows = statement.query(named_params! {
        ":tenant_id": tenant.as_str(),
        ":from": days.from.0,
        ":to": days.to.0,
        ":most": limit(most.clamp(1, ANALYTICS_MAX)),
    })?;
    all(rows, |row| tool_usage(row, &mut costs, &mut latencies))
}

pub(super) fn pairs(
    connection: &Connection,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolPair>, Fault> {
    counted(connection, tenant, days, most, ("usage_pairs", "first, second"), |row| pair(row))
}

pub(super) fn wishes(
    connection: &Connection,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<UnmetNeed>, Fault> {
    counted(connection, tenant, days, most, ("usage_wishes", "agent, tool_id"), |row| wish(row))
}

/// Counts of a table over days, the highest first.
fn counted<T>(
    connection: &Connection,
    tenant: &TenantId,
    days: Days,
    most: usize,
    (table, columns): (&str, &str),
    read: fn(&Row<'_>) -> Result<T, Fault>,
) -> Result<Vec<T>, Fault> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT {columns}, sum(count) AS total FROM {table} WHERE tenant_id = :tenant_id AND day BETWEEN :from AND :to
         GROUP BY {columns} ORDER BY total DESC, {columns} LIMIT :most"
    ))?;
    let rows = statement.query(named_params! {
        ":tenant_id": tenant.as_str(),
        ":from": days.from.0,
        ":to": days.to.0,
        ":most": limit(most.clamp(1, ANALYTICS_MAX)),
    })?;
    all(rows, read)
}
