//! The durable truth about use: how often, how long, how expensive, by tenant, day, tool, agent and user. (COST-004, COST-012)
//!
//! Rows are sums, and only ever added to. Sums are brought in batches; a batch has a name and counts once, however often
//! it is brought, so an answer that got lost can be asked for again.
//!
//! Invariants every adapter keeps
//! - USE-1: a batch is added as a whole, or not at all, and once.
//! - USE-2: every question is about one tenant; rows of another are not there.
//! - USE-3: amounts are added exactly, and never across currencies.
//!
//! Not here: who may ask (`insights`), budgets.

use std::fmt;
use std::str::FromStr;

use async_trait::async_trait;
use contract::cost::CostComponent;
use contract::ids::{Subject, TenantId, ToolId};
use contract::money::{Amount, Currency};
use uuid::Uuid;

use crate::clock::UnixMillis;
use crate::latency::Latencies;
use crate::registry_store::StoreError;

/// Most rows of one page.
pub const USAGE_PAGE_MAX: usize = 500;
/// Most tools, pairs or wishes of one answer.
pub const ANALYTICS_MAX: usize = 1_000;

/// A day in UTC, counted from 1970-01-01.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(pub i64);

impl Day {
    /// The day of a moment.
    pub fn of(time: UnixMillis) -> Self {
        Self(time.0.div_euclid(86_400_000))
    }

    /// So many days before.
    #[must_use]
    pub fn before(self, days: i64) -> Self {
        Self(self.0.saturating_sub(days))
    }
}

impl fmt::Display for Day {
    /// `2027-01-15`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = UnixMillis(self.0.saturating_mul(86_400_000)).to_string();
        f.write_str(text.get(..10).unwrap_or(&text))
    }
}

/// Why a text is no day.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a day is written as YYYY-MM-DD, for example 2027-01-15")]
pub struct DayError;

impl FromStr for Day {
    type Err = DayError;
    fn from_str(text: &str) -> Result<Self, DayError> {
        let date: jiff::civil::Date = text.parse().map_err(|_| DayError)?;
        let time = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(|_| DayError)?;
        let day = Self(time.timestamp().as_second().div_euclid(86_400));
        // One way of writing only, and no years before the calendar of computers.
        if day.0 >= 0 && day.to_string() == text { Ok(day) } else { Err(DayError) }
    }
}

/// What a row is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UsageKey {
    pub tenant: TenantId,
    pub day: Day,
    pub tool: ToolId,
    pub agent: Subject,
    /// On whose behalf.
    pub user: Option<Subject>,
}

/// How often and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsageSum {
    /// Calls that came to their end, whatever the end.
    pub calls: u64,
    /// Of them: the tool or what is behind it failed.
    pub errors: u64,
    /// Of the errors: it took too long.
    pub timeouts: u64,
    /// Of the calls: refused before the tool ran.
    pub refused: u64,
    /// Of the calls: answered with the outcome of an earlier one.
    pub replayed: u64,
    pub duration_ms: u64,
    pub cpu_millicore_seconds: u64,
    pub network_bytes: u64,
    pub tokens: u64,
    /// The last end.
    pub last_at: UnixMillis,
}

impl UsageSum {
    /// Adds another one to it. Saturates.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.calls, other.calls),
            (&mut self.errors, other.errors),
            (&mut self.timeouts, other.timeouts),
            (&mut self.refused, other.refused),
            (&mut self.replayed, other.replayed),
            (&mut self.duration_ms, other.duration_ms),
            (&mut self.cpu_millicore_seconds, other.cpu_millicore_seconds),
            (&mut self.network_bytes, other.network_bytes),
            (&mut self.tokens, other.tokens),
        ];
        for (mine, theirs) in pairs {
            *mine = mine.saturating_add(theirs);
        }
        self.last_at = self.last_at.max(other.last_at);
    }
}

/// Part of what some use has cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CostLine {
    pub currency: Currency,
    pub component: CostComponent,
    pub amount: Amount,
}

/// What is added at once.
#[derive(Debug, Clone, PartialEq)]
pub struct UsageBatch {
    /// Names it (USE-1).
    pub id: Uuid,
    pub rows: Vec<(UsageKey, UsageSum, Vec<CostLine>)>,
    /// How long calls took, by tenant, tool and day.
    pub latencies: Vec<((TenantId, ToolId, Day), Latencies)>,
    /// How often two tools were used together; the smaller id first.
    pub pairs: Vec<((TenantId, Day, ToolId, ToolId), u64)>,
    /// How often an agent found or called a tool that it may not use.
    pub wishes: Vec<((TenantId, Day, Subject, ToolId), u64)>,
}

impl UsageBatch {
    /// Is there nothing in it?
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.latencies.is_empty() && self.pairs.is_empty() && self.wishes.is_empty()
    }
}

/// By what rows are added up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Grouping {
    pub day: bool,
    pub tool: bool,
    pub agent: bool,
    pub user: bool,
}

/// Which rows, and added up by what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageQuery {
    pub tenant: TenantId,
    /// Both included.
    pub from: Day,
    pub to: Day,
    pub tool: Option<ToolId>,
    pub agent: Option<Subject>,
    pub user: Option<Subject>,
    pub by: Grouping,
    /// How many groups to leave out at the beginning.
    pub skip: usize,
    /// How many to answer, at most [`USAGE_PAGE_MAX`].
    pub most: usize,
}

/// One group; what it was not grouped by is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageGroup {
    pub day: Option<Day>,
    pub tool: Option<ToolId>,
    pub agent: Option<Subject>,
    pub user: Option<Subject>,
    pub sum: UsageSum,
    /// By currency and component, in this order.
    pub costs: Vec<CostLine>,
}

/// Some groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UsagePage {
    /// By day, tool, agent, user.
    pub groups: Vec<UsageGroup>,
    /// Are there more?
    pub more: bool,
}

/// Everything about one tool.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolUsage {
    pub tool: ToolId,
    pub sum: UsageSum,
    pub costs: Vec<CostLine>,
    pub latencies: Latencies,
    /// How many agents have called it.
    pub agents: u64,
}

/// Two tools that were used together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolPair {
    pub first: ToolId,
    pub second: ToolId,
    pub count: u64,
}

/// A tool that an agent wanted and may not use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmetNeed {
    pub agent: Subject,
    pub tool: ToolId,
    pub count: u64,
}

/// Days, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Days {
    pub from: Day,
    pub to: Day,
}

/// Keeps sums of use.
#[async_trait]
pub trait UsageStore: Send + Sync + fmt::Debug {
    /// Adds a batch, durably. False, and nothing is written, if it was added before (USE-1). A name is remembered for two
    /// days at least.
    async fn add_usage(&self, batch: &UsageBatch) -> Result<bool, StoreError>;

    /// One page of groups.
    async fn usage(&self, query: &UsageQuery) -> Result<UsagePage, StoreError>;

    /// The tools that the tenant's agents have called, most called first; at most [`ANALYTICS_MAX`].
    async fn tool_usage(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolUsage>, StoreError>;

    /// What was used together, most often first.
    async fn pairs(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<ToolPair>, StoreError>;

    /// What was wanted, most often first.
    async fn wishes(&self, tenant: &TenantId, days: Days, most: usize) -> Result<Vec<UnmetNeed>, StoreError>;

    /// Forgets up to `most` rows of each kind of days before this one.
    async fn prune_usage(&self, before: Day, most: usize) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_written_as_they_are_read_and_begin_at_midnight_in_utc() {
        for text in ["1970-01-01", "2027-01-15", "2028-02-29", "9998-12-31"] {
            assert_eq!(text.parse::<Day>().unwrap().to_string(), text);
        }
        for text in ["", "2027-1-15", "2027-02-29", "1969-12-31", "2027-01-15T00:00:00Z", "20270115", "today"] {
            assert_eq!(text.parse::<Day>(), Err(DayError), "{text}");
        }
        let day: Day = "2027-01-15".parse().unwrap();
        assert_eq!(Day::of(UnixMillis(day.0 * 86_400_000)), day);
        assert_eq!(Day::of(UnixMillis(day.0 * 86_400_000 - 1)), day.before(1));
        assert_eq!(Day::of(UnixMillis(-1)), Day(-1));
    }
}
