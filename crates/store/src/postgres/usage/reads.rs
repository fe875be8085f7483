//! Questions about use. Groups are made by the server: what a row is not grouped by reads as empty, and so do both halves
//! of a group that are put together here, its sums and its costs.

use std::collections::HashMap;

use contract::ids::TenantId;
use ports::usage_store::{ANALYTICS_MAX, Days, ToolPair, ToolUsage, USAGE_PAGE_MAX, UnmetNeed, UsagePage, UsageQuery};
use tokio_postgres::Row;

use crate::postgres::PostgresStore;
use crate::postgres::columns::limit;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{int, text};
use crate::postgres::transaction::Scope;
use crate::records::usage::{
    CostsBy, add_cost, add_latency, group, group_columns, group_name, pair, sum, tool_usage, wish,
};
use crate::stored_row::{StoredRow as _, Unreadable};

/// The filter that sums and costs share.
const FILTER: &str = "tenant_id = $1 AND day BETWEEN $2 AND $3 AND ($4 IS NULL OR tool_id = $4)
                      AND ($5 IS NULL OR agent = $5) AND ($6 IS NULL OR \"user\" = $6)";
const SUMS: &str = "sum(calls)::bigint AS calls, sum(errors)::bigint AS errors, sum(timeouts)::bigint AS timeouts,
                    sum(refused)::bigint AS refused, sum(replayed)::bigint AS replayed,
                    sum(duration_ms)::bigint AS duration_ms,
                    sum(cpu_millicore_seconds)::bigint AS cpu_millicore_seconds,
                    sum(network_bytes)::bigint AS network_bytes, sum(tokens)::bigint AS tokens, max(last_at) AS last_at";
const COSTS: &str = "currency, component, sum(micros)::bigint AS micros, sum(picos)::bigint AS picos";

pub(super) async fn page(store: &PostgresStore, query: &UsageQuery) -> Result<UsagePage, Fault> {
    let names = group_columns(query.by, "\"user\"", ("0::bigint", "''::text COLLATE \"C\""));
    let most = query.most.clamp(1, USAGE_PAGE_MAX);
    let sql = format!(
        "SELECT {names}, {SUMS} FROM usage WHERE {FILTER}
         GROUP BY g_day, g_tool, g_agent, g_user ORDER BY g_day, g_tool, g_agent, g_user LIMIT $7 OFFSET $8"
    );
    let tenant = query.tenant.as_str();
    let scope = Scope::Tenant(tenant);
    let tool = query.tool.as_ref().map(|it| it.as_str());
    let agent = query.agent.as_ref().map(|it| it.as_str());
    let user = query.user.as_ref().map(|it| it.as_str());
    let filter =
        || [text(&tenant), int(&query.from.0), int(&query.to.0), text(&tool), text(&agent), text(&user)].to_vec();
    let (most_rows, skip) = (limit(most + 1), limit(query.skip));
    let rows = store.pool.query(scope, &sql, &[filter(), vec![int(&most_rows), int(&skip)]].concat()).await?;
    let more = rows.len() > most;
    let found =
        rows.iter().take(most).map(|row| Ok((group_name(row)?, sum(row)?))).collect::<Result<Vec<_>, Fault>>()?;
    let (Some((first, _)), Some((last, _))) = (found.first(), found.last()) else { return Ok(UsagePage::default()) };
    // Only the costs of the groups on this page.
    let sql = format!(
        "SELECT * FROM (SELECT {names}, {COSTS} FROM usage_costs WHERE {FILTER}
                        GROUP BY g_day, g_tool, g_agent, g_user, currency, component) AS grouped
         WHERE (g_day, g_tool, g_agent, g_user) >= ($7, $8, $9, $10)
             AND (g_day, g_tool, g_agent, g_user) <= ($11, $12, $13, $14)
         ORDER BY currency, component"
    );
    let of_page = [first, last].map(|name| [int(&name.0), text(&name.1), text(&name.2), text(&name.3)]).concat();
    let rows = store.pool.query(scope, &sql, &[filter(), of_page].concat()).await?;
    let mut costs = CostsBy::default();
    for row in &rows {
        add_cost(row, group_name(row)?, &mut costs)?;
    }
    let groups = found.into_iter().map(|found| group(query, found, &mut costs));
    Ok(UsagePage { groups: groups.collect::<Result<_, Unreadable>>()?, more })
}

pub(super) async fn tools(
    store: &PostgresStore,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolUsage>, Fault> {
    let (tenant, most) = (tenant.as_str(), limit(most.clamp(1, ANALYTICS_MAX)));
    let of = [text(&tenant), int(&days.from.0), int(&days.to.0)];
    let scope = Scope::Tenant(tenant);
    let sql = format!(
        "SELECT tool_id, {COSTS} FROM usage_costs WHERE tenant_id = $1 AND day BETWEEN $2 AND $3
         GROUP BY tool_id, currency, component ORDER BY currency, component"
    );
    let rows = store.pool.query(scope, &sql, &of).await?;
    let mut costs = CostsBy::default();
    for row in &rows {
        add_cost(row, row.text("tool_id")?.to_owned(), &mut costs)?;
    }
    let sql = "SELECT tool_id, bucket, sum(count)::bigint AS count FROM usage_latencies
               WHERE tenant_id = $1 AND day BETWEEN $2 AND $3 GROUP BY tool_id, bucket";
    let mut latencies = HashMap::new();
    for row in store.pool.query(scope, sql, &of).await? {
        add_latency(&row, &mut latencies)?;
    }
    let sql = format!(
        "SELECT tool_id, count(DISTINCT agent) AS agents, {SUMS} FROM usage
         WHERE tenant_id = $1 AND day BETWEEN $2 AND $3
         GROUP BY tool_id ORDER BY calls DESC, tool_id LIMIT $4"
    );
    let rows = store.pool.query(scope, &sql, &[&of[..], &[int(&most)]].concat()).await?;
    rows.iter().map(|row| tool_usage(row, &mut costs, &mut latencies)).collect()
}

pub(super) async fn pairs(
    store: &PostgresStore,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolPair>, Fault> {
    let rows = counted(store, tenant, days, most, ("usage_pairs", "first, second")).await?;
    rows.iter().map(pair).collect()
}

pub(super) async fn wishes(
    store: &PostgresStore,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<UnmetNeed>, Fault> {
    let rows = counted(store, tenant, days, most, ("usage_wishes", "agent, tool_id")).await?;
    rows.iter().map(wish).collect()
}

/// Counts of a table over days, the highest first.
async fn counted(
    store: &PostgresStore,
    tenant: &TenantId,
    days: Days,
    most: usize,
    (table, columns): (&str, &str),
) -> Result<Vec<Row>, Fault> {
    let sql = format!(
        "SELECT {columns}, sum(count)::bigint AS total FROM {table} WHERE tenant_id = $1 AND day BETWEEN $2 AND $3
         GROUP BY {columns} ORDER BY total DESC, {columns} LIMIT $4"
    );
    let (tenant, most) = (tenant.as_str(), limit(most.clamp(1, ANALYTICS_MAX)));
    let values = [text(&tenant), int(&days.from.0), int(&days.to.0), int(&most)];
    store.pool.query(Scope::Tenant(tenant), &sql, &values).await
}
