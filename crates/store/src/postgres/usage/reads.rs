//! Questions about use. Groups are made by the server: what a row is not grouped by reads as empty, and so do both halves
//! of a group that are put together here, its sums and its costs.

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
use tokio_postgres::Row;

use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{column, int, text, unreadable, word};
use crate::postgres::transaction::Scope;

/// What names a group; what it is not grouped by is empty or zero.
type GroupName = (i64, String, String, String);

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
    let by = query.by;
    let pick = |wanted: bool, column: &'static str, empty: &'static str| if wanted { column } else { empty };
    let names = format!(
        "{} AS g_day, {} AS g_tool, {} AS g_agent, {} AS g_user",
        pick(by.day, "day", "0::bigint"),
        pick(by.tool, "tool_id", "''::text COLLATE \"C\""),
        pick(by.agent, "agent", "''::text COLLATE \"C\""),
        pick(by.user, "\"user\"", "''::text COLLATE \"C\""),
    );
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
    let (limit, skip) = (count(most + 1), count(query.skip));
    let rows = store.pool.query(scope, &sql, &[filter(), vec![int(&limit), int(&skip)]].concat()).await?;
    let more = rows.len() > most;
    let found = rows
        .iter()
        .take(most)
        .map(|row| Ok((name(row)?, sum(row)?)))
        .collect::<Result<Vec<(GroupName, UsageSum)>, Fault>>()?;
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
    let mut costs = costs_by(&rows, name)?;
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

pub(super) async fn tools(
    store: &PostgresStore,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolUsage>, Fault> {
    let (tenant, most) = (tenant.as_str(), count(most.clamp(1, ANALYTICS_MAX)));
    let of = [text(&tenant), int(&days.from.0), int(&days.to.0)];
    let scope = Scope::Tenant(tenant);
    let sql = format!(
        "SELECT tool_id, {COSTS} FROM usage_costs WHERE tenant_id = $1 AND day BETWEEN $2 AND $3
         GROUP BY tool_id, currency, component ORDER BY currency, component"
    );
    let rows = store.pool.query(scope, &sql, &of).await?;
    let mut costs = costs_by(&rows, |row| column::<String>(row, "tool_id"))?;
    let sql = "SELECT tool_id, bucket, sum(count)::bigint AS count FROM usage_latencies
               WHERE tenant_id = $1 AND day BETWEEN $2 AND $3 GROUP BY tool_id, bucket";
    let mut latencies: HashMap<String, Latencies> = HashMap::new();
    for row in store.pool.query(scope, sql, &of).await? {
        let bucket = usize::try_from(column::<i64>(&row, "bucket")?).unwrap_or(usize::MAX);
        let count = u32::try_from(column::<i64>(&row, "count")?).unwrap_or(u32::MAX);
        latencies.entry(column(&row, "tool_id")?).or_default().add(bucket, count);
    }
    let sql = format!(
        "SELECT tool_id, count(DISTINCT agent) AS agents, {SUMS} FROM usage
         WHERE tenant_id = $1 AND day BETWEEN $2 AND $3
         GROUP BY tool_id ORDER BY calls DESC, tool_id LIMIT $4"
    );
    let rows = store.pool.query(scope, &sql, &[&of[..], &[int(&most)]].concat()).await?;
    let tools = rows.iter().map(|row| {
        let tool: &str = column(row, "tool_id")?;
        Ok(ToolUsage {
            sum: sum(row)?,
            costs: costs.remove(tool).unwrap_or_default(),
            latencies: latencies.remove(tool).unwrap_or_default(),
            agents: number(row, "agents")?,
            tool: word(row, "tool_id", tool)?,
        })
    });
    tools.collect()
}

pub(super) async fn pairs(
    store: &PostgresStore,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<ToolPair>, Fault> {
    let rows = counted(store, tenant, days, most, ("usage_pairs", "first, second")).await?;
    let pairs = rows.iter().map(|row| {
        let of: &str = column(row, "first")?;
        Ok(ToolPair { first: word(row, "first", of)?, second: word(row, "second", of)?, count: number(row, "total")? })
    });
    pairs.collect()
}

pub(super) async fn wishes(
    store: &PostgresStore,
    tenant: &TenantId,
    days: Days,
    most: usize,
) -> Result<Vec<UnmetNeed>, Fault> {
    let rows = counted(store, tenant, days, most, ("usage_wishes", "agent, tool_id")).await?;
    let wishes = rows.iter().map(|row| {
        let of: &str = column(row, "tool_id")?;
        Ok(UnmetNeed { agent: word(row, "agent", of)?, tool: word(row, "tool_id", of)?, count: number(row, "total")? })
    });
    wishes.collect()
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
    let (tenant, most) = (tenant.as_str(), count(most.clamp(1, ANALYTICS_MAX)));
    let values = [text(&tenant), int(&days.from.0), int(&days.to.0), int(&most)];
    store.pool.query(Scope::Tenant(tenant), &sql, &values).await
}

// ------------------------------------------------------------------------------------------------------------ rows

fn name(row: &Row) -> Result<GroupName, Fault> {
    Ok((column(row, "g_day")?, column(row, "g_tool")?, column(row, "g_agent")?, column(row, "g_user")?))
}

fn sum(row: &Row) -> Result<UsageSum, Fault> {
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
        last_at: UnixMillis(column(row, "last_at")?),
    })
}

fn costs_by<K: std::hash::Hash + Eq>(
    rows: &[Row],
    key: impl Fn(&Row) -> Result<K, Fault>,
) -> Result<HashMap<K, Vec<CostLine>>, Fault> {
    let mut costs: HashMap<K, Vec<CostLine>> = HashMap::new();
    for row in rows {
        let component: &str = column(row, "component")?;
        costs.entry(key(row)?).or_default().push(CostLine {
            currency: word(row, "currency", component)?,
            component: CostComponent::of_word(component).ok_or_else(|| unreadable("component", component))?,
            amount: Amount::joined(column(row, "micros")?, column(row, "picos")?),
        });
    }
    Ok(costs)
}

fn number(row: &Row, name: &'static str) -> Result<u64, Fault> {
    u64::try_from(column::<i64>(row, name)?).map_err(|_| unreadable(name, "usage").into())
}

fn count(number: usize) -> i64 {
    i64::saturating_from(number)
}
