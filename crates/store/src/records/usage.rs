//! Use of tools out of rows, and the groups that questions about it are answered by.

use std::collections::HashMap;
use std::hash::Hash;

use base::SaturatingFrom as _;
use contract::cost::CostComponent;
use contract::money::Amount;
use ports::latency::Latencies;
use ports::usage_store::{CostLine, Day, Grouping, ToolPair, ToolUsage, UnmetNeed, UsageGroup, UsageQuery, UsageSum};

use crate::stored_row::{StoredRow, Unreadable, unreadable};

/// What names a group; what it is not grouped by is empty or zero.
pub(crate) type GroupName = (i64, String, String, String);

/// Costs by what they are of.
pub(crate) type CostsBy<K> = HashMap<K, Vec<CostLine>>;

/// The columns that [`group_name`] reads; what is not grouped by is the zero or the empty text of the database. `user` is a word
/// of PostgreSQL's own.
pub(crate) fn group_columns(by: Grouping, user: &str, (zero, empty): (&str, &str)) -> String {
    format!(
        "{} AS g_day, {} AS g_tool, {} AS g_agent, {} AS g_user",
        if by.day { "day" } else { zero },
        if by.tool { "tool_id" } else { empty },
        if by.agent { "agent" } else { empty },
        if by.user { user } else { empty },
    )
}

/// What names the group of a row: `g_day`, `g_tool`, `g_agent` and `g_user`.
pub(crate) fn group_name<R: StoredRow>(row: &R) -> Result<GroupName, R::Fault> {
    let text = |column| row.text(column).map(str::to_owned);
    Ok((row.int("g_day")?, text("g_tool")?, text("g_agent")?, text("g_user")?))
}

pub(crate) fn sum<R: StoredRow>(row: &R) -> Result<UsageSum, R::Fault> {
    let number = |column| row.number(column, "usage");
    Ok(UsageSum {
        calls: number("calls")?,
        errors: number("errors")?,
        timeouts: number("timeouts")?,
        refused: number("refused")?,
        replayed: number("replayed")?,
        duration_ms: number("duration_ms")?,
        cpu_millicore_seconds: number("cpu_millicore_seconds")?,
        network_bytes: number("network_bytes")?,
        tokens: number("tokens")?,
        last_at: row.time("last_at")?,
    })
}

/// A group with its sums and costs.
pub(crate) fn group(
    query: &UsageQuery,
    (name, sum): (GroupName, UsageSum),
    costs: &mut CostsBy<GroupName>,
) -> Result<UsageGroup, Unreadable> {
    let (by, costs) = (query.by, costs.remove(&name).unwrap_or_default());
    let (day, tool, agent, user) = name;
    Ok(UsageGroup {
        day: by.day.then_some(Day(day)),
        tool: by.tool.then(|| tool.parse()).transpose().map_err(|_| unreadable("tool_id", &tool))?,
        agent: by.agent.then(|| agent.parse()).transpose().map_err(|_| unreadable("agent", &agent))?,
        user: (by.user && !user.is_empty()).then(|| user.parse()).transpose().map_err(|_| unreadable("user", &user))?,
        sum,
        costs,
    })
}

/// Adds a row of costs to those of `key`.
pub(crate) fn add_cost<R: StoredRow, K: Hash + Eq>(row: &R, key: K, costs: &mut CostsBy<K>) -> Result<(), R::Fault> {
    let component = row.text("component")?;
    let line = CostLine {
        currency: row.word("currency", component)?,
        component: row.one_of("component", component, CostComponent::of_word)?,
        amount: Amount::joined(row.int("micros")?, row.int("picos")?),
    };
    costs.entry(key).or_default().push(line);
    Ok(())
}

/// Adds a row of latencies to those of its tool.
pub(crate) fn add_latency<R: StoredRow>(row: &R, latencies: &mut HashMap<String, Latencies>) -> Result<(), R::Fault> {
    let bucket = usize::try_from(row.int("bucket")?).unwrap_or(usize::MAX);
    let count = u32::try_from(row.int("count")?).unwrap_or(u32::MAX);
    latencies.entry(row.text("tool_id")?.to_owned()).or_default().add(bucket, count);
    Ok(())
}

/// A tool with what was found of it.
pub(crate) fn tool_usage<R: StoredRow>(
    row: &R,
    costs: &mut CostsBy<String>,
    latencies: &mut HashMap<String, Latencies>,
) -> Result<ToolUsage, R::Fault> {
    let tool = row.text("tool_id")?;
    Ok(ToolUsage {
        sum: sum(row)?,
        costs: costs.remove(tool).unwrap_or_default(),
        latencies: latencies.remove(tool).unwrap_or_default(),
        agents: row.number("agents", "usage")?,
        tool: row.word("tool_id", tool)?,
    })
}

pub(crate) fn pair<R: StoredRow>(row: &R) -> Result<ToolPair, R::Fault> {
    let of = row.text("first")?;
    Ok(ToolPair {
        first: row.word("first", of)?,
        second: row.word("second", of)?,
        count: row.number("total", "usage")?,
    })
}

pub(crate) fn wish<R: StoredRow>(row: &R) -> Result<UnmetNeed, R::Fault> {
    let of = row.text("tool_id")?;
    Ok(UnmetNeed {
        agent: row.word("agent", of)?,
        tool: row.word("tool_id", of)?,
        count: row.number("total", "usage")?,
    })
}

/// The database counts to 2^63; what is more, nobody can have used.
pub(crate) fn whole(number: u64) -> i64 {
    i64::saturating_from(number)
}
