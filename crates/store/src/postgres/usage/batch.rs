//! A batch as columns of values, and the statement that adds them.
//!
//! What has one key twice is added up first: a statement may write a row only once.

use base::SaturatingFrom as _;
use ports::usage_store::UsageBatch;

use crate::postgres::PostgresStore;
use crate::postgres::faults::Fault;
use crate::postgres::statement::{NOW, int, ints, text, texts};
use crate::postgres::transaction::Scope;
use crate::records::usage::whole;

/// How long the name of a batch is remembered: far longer than one is tried for.
const NAMES_KEPT_MS: i64 = 7 * 86_400_000;
/// Names that are forgotten with each batch.
const NAMES_FORGOTTEN: i64 = 100;

/// The numbers of a row of `usage` that are added up, in the order of the table.
const SUMS: usize = 9;

#[derive(Default)]
struct Rows<'a> {
    tenants: Vec<&'a str>,
    days: Vec<i64>,
    tools: Vec<&'a str>,
    agents: Vec<&'a str>,
    users: Vec<&'a str>,
    sums: [Vec<i64>; SUMS],
    last: Vec<i64>,
}

#[derive(Default)]
struct Costs<'a> {
    tenants: Vec<&'a str>,
    days: Vec<i64>,
    tools: Vec<&'a str>,
    agents: Vec<&'a str>,
    users: Vec<&'a str>,
    currencies: Vec<&'a str>,
    components: Vec<&'a str>,
    micros: Vec<i64>,
    picos: Vec<i64>,
}

/// What latencies, pairs and wishes have in common: two names of a tenant's day, and a count.
#[derive(Default)]
struct Counts<'a, T> {
    tenants: Vec<&'a str>,
    days: Vec<i64>,
    firsts: Vec<&'a str>,
    seconds: Vec<T>,
    counts: Vec<i64>,
}

impl<'a, T> Counts<'a, T> {
    fn push(&mut self, tenant: &'a str, day: i64, first: &'a str, second: T, count: i64) {
        self.tenants.push(tenant);
        self.days.push(day);
        self.firsts.push(first);
        self.seconds.push(second);
        self.counts.push(count);
    }
}

pub(super) async fn add(store: &PostgresStore, batch: &UsageBatch) -> Result<bool, Fault> {
    let (rows, costs) = rows_of(batch);
    let [calls, errors, timeouts, refused, replayed, duration, cpu, network, tokens] = &rows.sums;
    let (latencies, pairs, wishes) = counts_of(batch);
    let (now, id) = (store.now(), batch.id.to_string());
    let values = [
        int(&now),
        text(&id),
        int(&NAMES_KEPT_MS),
        int(&NAMES_FORGOTTEN),
        texts(&rows.tenants),
        ints(&rows.days),
        texts(&rows.tools),
        texts(&rows.agents),
        texts(&rows.users),
        ints(calls),
        ints(errors),
        ints(timeouts),
        ints(refused),
        ints(replayed),
        ints(duration),
        ints(cpu),
        ints(network),
        ints(tokens),
        ints(&rows.last),
        texts(&costs.tenants),
        ints(&costs.days),
        texts(&costs.tools),
        texts(&costs.agents),
        texts(&costs.users),
        texts(&costs.currencies),
        texts(&costs.components),
        ints(&costs.micros),
        ints(&costs.picos),
        texts(&latencies.tenants),
        ints(&latencies.days),
        texts(&latencies.firsts),
        ints(&latencies.seconds),
        ints(&latencies.counts),
        texts(&pairs.tenants),
        ints(&pairs.days),
        texts(&pairs.firsts),
        texts(&pairs.seconds),
        ints(&pairs.counts),
        texts(&wishes.tenants),
        ints(&wishes.days),
        texts(&wishes.firsts),
        texts(&wishes.seconds),
        ints(&wishes.counts),
    ];
    let added = store.pool.query(Scope::System, &statement(), &values).await?;
    Ok(!added.is_empty())
}

fn statement() -> String {
    let sums = "sum(calls)::bigint, sum(errors)::bigint, sum(timeouts)::bigint, sum(refused)::bigint,
                sum(replayed)::bigint, sum(duration_ms)::bigint, sum(cpu)::bigint, sum(network_bytes)::bigint,
                sum(tokens)::bigint, max(last_at)";
    let counted = |table: &str, columns: &str, arrays: &str| {
        format!(
            "INSERT INTO {table} AS kept (tenant_id, day, {columns}, count)
             SELECT tenant, day, first, second, sum(counted)::bigint
             FROM named, unnest({arrays}) AS given (tenant, day, first, second, counted)
             GROUP BY tenant, day, first, second ORDER BY tenant, day, first, second
             ON CONFLICT (tenant_id, day, {columns}) DO UPDATE SET count = kept.count + excluded.count"
        )
    };
    let latencies = counted("usage_latencies", "tool_id, bucket", "$29, $30, $31, $32, $33");
    let pairs = counted("usage_pairs", "first, second", "$34, $35, $36, $37, $38");
    let wishes = counted("usage_wishes", "agent, tool_id", "$39, $40, $41, $42, $43");
    format!(
        "WITH named AS (
             INSERT INTO usage_batches (id, added_at) VALUES ($2, {NOW}) ON CONFLICT DO NOTHING RETURNING id),
         forgotten AS (
             DELETE FROM usage_batches WHERE id IN
                 (SELECT id FROM usage_batches WHERE added_at < {NOW} - $3
                  ORDER BY added_at LIMIT $4 FOR UPDATE SKIP LOCKED)),
         rows AS (
             INSERT INTO usage AS kept (tenant_id, day, tool_id, agent, \"user\", calls, errors, timeouts, refused,
                 replayed, duration_ms, cpu_millicore_seconds, network_bytes, tokens, last_at)
             SELECT tenant, day, tool, agent, person, {sums}
             FROM named, unnest($5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19)
                 AS given (tenant, day, tool, agent, person, calls, errors, timeouts, refused, replayed, duration_ms,
                           cpu, network_bytes, tokens, last_at)
             GROUP BY tenant, day, tool, agent, person ORDER BY tenant, day, tool, agent, person
             ON CONFLICT (tenant_id, day, tool_id, agent, \"user\") DO UPDATE
             SET calls = kept.calls + excluded.calls, errors = kept.errors + excluded.errors,
                 timeouts = kept.timeouts + excluded.timeouts, refused = kept.refused + excluded.refused,
                 replayed = kept.replayed + excluded.replayed, duration_ms = kept.duration_ms + excluded.duration_ms,
                 cpu_millicore_seconds = kept.cpu_millicore_seconds + excluded.cpu_millicore_seconds,
                 network_bytes = kept.network_bytes + excluded.network_bytes, tokens = kept.tokens + excluded.tokens,
                 last_at = greatest(kept.last_at, excluded.last_at)),
         costs AS (
             INSERT INTO usage_costs AS kept (tenant_id, day, tool_id, agent, \"user\", currency, component, micros, picos)
             SELECT tenant, day, tool, agent, person, currency, component, sum(micros)::bigint, sum(picos)::bigint
             FROM named, unnest($20, $21, $22, $23, $24, $25, $26, $27, $28)
                 AS given (tenant, day, tool, agent, person, currency, component, micros, picos)
             GROUP BY tenant, day, tool, agent, person, currency, component
             ORDER BY tenant, day, tool, agent, person, currency, component
             ON CONFLICT (tenant_id, day, tool_id, agent, \"user\", currency, component) DO UPDATE
             SET micros = kept.micros + excluded.micros, picos = kept.picos + excluded.picos),
         latencies AS ({latencies}),
         pairs AS ({pairs}),
         wishes AS ({wishes})
         SELECT 1 FROM named"
    )
}

fn rows_of(batch: &UsageBatch) -> (Rows<'_>, Costs<'_>) {
    let (mut rows, mut costs) = (Rows::default(), Costs::default());
    for (key, sum, lines) in &batch.rows {
        let user = key.user.as_ref().map_or("", |user| user.as_str());
        rows.tenants.push(key.tenant.as_str());
        rows.days.push(key.day.0);
        rows.tools.push(key.tool.as_str());
        rows.agents.push(key.agent.as_str());
        rows.users.push(user);
        let numbers = [
            sum.calls,
            sum.errors,
            sum.timeouts,
            sum.refused,
            sum.replayed,
            sum.duration_ms,
            sum.cpu_millicore_seconds,
            sum.network_bytes,
            sum.tokens,
        ];
        for (column, number) in rows.sums.iter_mut().zip(numbers) {
            column.push(whole(number));
        }
        rows.last.push(sum.last_at.0);
        for line in lines {
            let (micros, picos) = line.amount.split();
            costs.tenants.push(key.tenant.as_str());
            costs.days.push(key.day.0);
            costs.tools.push(key.tool.as_str());
            costs.agents.push(key.agent.as_str());
            costs.users.push(user);
            costs.currencies.push(line.currency.as_str());
            costs.components.push(line.component.as_str());
            costs.micros.push(micros);
            costs.picos.push(picos);
        }
    }
    (rows, costs)
}

/// Latencies, pairs, wishes.
type AllCounts<'a> = (Counts<'a, i64>, Counts<'a, &'a str>, Counts<'a, &'a str>);

fn counts_of(batch: &UsageBatch) -> AllCounts<'_> {
    let (mut latencies, mut pairs, mut wishes) = (Counts::default(), Counts::default(), Counts::default());
    for ((tenant, tool, day), taken) in &batch.latencies {
        for (bucket, count) in taken.buckets() {
            let bucket = i64::saturating_from(bucket);
            latencies.push(tenant.as_str(), day.0, tool.as_str(), bucket, i64::from(count));
        }
    }
    for ((tenant, day, first, second), count) in &batch.pairs {
        pairs.push(tenant.as_str(), day.0, first.as_str(), second.as_str(), whole(*count));
    }
    for ((tenant, day, agent, tool), count) in &batch.wishes {
        wishes.push(tenant.as_str(), day.0, agent.as_str(), tool.as_str(), whole(*count));
    }
    (latencies, pairs, wishes)
}
