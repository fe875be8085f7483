//! The searchable copy of all audit logs of an installation, and the calls that came to their end. (STORE-004, AUD-014)
//!
//! Each instance proves what it did by its own log in files. The archive holds a copy of the lines of all of them, so that
//! one question is answered for all; it proves nothing by itself, and old months of it are dropped as a whole.
//!
//! Invariants every adapter keeps
//! - ARCH-1: a record, named by its log and its number there, is written once, however often and by however many it is
//!   brought; also when it was dropped meanwhile.
//! - ARCH-2: the records of a log are there without a gap up to where the log has [`RecordArchive::reached`].
//! - ARCH-3: months are dropped as a whole, and only those that are past as a whole. Months are those of UTC.
//! - ARCH-4: a question about one tenant sees nothing of another.
//!
//! Not here: proofs (`audit_log`), who may ask (`administration`), how a line becomes a record (`audit`).

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::{InvocationId, TenantId};
use contract::money::{Amount, Currency};
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;

/// Rows of a page, at most.
pub const ARCHIVE_PAGE_MAX: usize = 500;
/// Rows that one question looks at; whoever wants more goes on from where it ended.
pub const ARCHIVE_SCAN_MAX: usize = 50_000;
/// Months that are made ready after the present one.
pub const MONTHS_AHEAD: u32 = 2;

/// One record of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveRecord {
    /// Its number in its log.
    pub seq: u64,
    pub at: UnixMillis,
    /// Whose it is; `None` if nobody's.
    pub tenant: Option<String>,
    pub tool: Option<String>,
    pub subject: Option<String>,
    pub trace_id: Option<String>,
    pub action: String,
    pub invocation_id: Option<InvocationId>,
    /// There if the record says how a call ended.
    pub ended: Option<EndedCall>,
    /// The line as the log has it, without the newline: what was hashed there.
    pub line: String,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedCall {
    pub version: Option<String>,
    /// The word of the status.
    pub status: String,
    /// The word of the error code.
    pub code: Option<String>,
    pub duration_ms: u64,
    pub parameters_digest: Option<String>,
    pub cost: Option<(Amount, Currency)>,
}

/// What came of bringing records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AppendOutcome {
    /// All are there; so many were not before.
    Written(u64),
    /// None was written: the archive waits for this number of the log first (ARCH-2).
    Gap { expected: u64 },
}

/// Where a row stands in the order of all rows: by time, then by log and number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchivePlace {
    pub at: UnixMillis,
    pub log: String,
    pub seq: u64,
}

/// Which records. Everything that is given must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveQuery {
    pub tenant: Option<TenantId>,
    pub tool: Option<String>,
    pub subject: Option<String>,
    pub trace_id: Option<String>,
    pub action: Option<String>,
    /// Not before this time.
    pub from: Option<UnixMillis>,
    /// Before this time.
    pub to: Option<UnixMillis>,
    /// Only what stands before this place: `next` of the page before.
    pub before: Option<ArchivePlace>,
    pub limit: usize,
}

/// A record and the log it is from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchivedRecord {
    pub place: ArchivePlace,
    pub line: String,
}

/// A page of records, the newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchivePage {
    pub records: Vec<ArchivedRecord>,
    /// Where to go on. A page may be empty and still have one, because a question looks at [`ARCHIVE_SCAN_MAX`] rows.
    pub next: Option<ArchivePlace>,
}

/// Which calls. Everything that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvocationQuery {
    pub tenant: TenantId,
    pub tool: Option<String>,
    pub agent: Option<String>,
    pub status: Option<String>,
    /// Ended not before this time.
    pub from: Option<UnixMillis>,
    /// Ended before this time.
    pub to: Option<UnixMillis>,
    pub before: Option<ArchivePlace>,
    pub limit: usize,
}

/// A call that came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvocationRecord {
    pub invocation_id: InvocationId,
    /// The record that says so.
    pub place: ArchivePlace,
    pub tool: Option<String>,
    pub agent: Option<String>,
    pub invoked_at: UnixMillis,
    pub ended: EndedCall,
}

/// A page of calls, the newest end first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InvocationPage {
    pub calls: Vec<InvocationRecord>,
    /// Where to go on.
    pub next: Option<ArchivePlace>,
}

/// How long what is kept. `None`: for ever.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    pub audit: Option<Duration>,
    pub invocations: Option<Duration>,
}

/// What the archive has a month of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ArchiveTable {
    Audit,
    Invocations,
}

impl ArchiveTable {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Audit, Self::Invocations];

    /// The name of the table, and a label of metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Audit => "audit_records",
            Self::Invocations => "tool_invocations",
        }
    }

    /// How long its rows are kept.
    pub fn kept(self, retention: &Retention) -> Option<Duration> {
        match self {
            Self::Audit => retention.audit,
            Self::Invocations => retention.invocations,
        }
    }
}

/// A month of one of the tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct MonthOf {
    pub table: ArchiveTable,
    pub month: Month,
}

/// What there is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArchiveStats {
    /// Logs that have brought something.
    pub logs: u64,
    /// Records that they have brought in all, those that were dropped since included.
    pub records: u64,
    /// The months there are, in order.
    pub months: Vec<MonthOf>,
}

/// Keeps the copy.
#[async_trait]
pub trait RecordArchive: Send + Sync + fmt::Debug {
    /// Adds records of one log that follow each other, durably and as a whole (ARCH-1, ARCH-2).
    async fn append(&self, log: &str, records: &[ArchiveRecord]) -> Result<AppendOutcome, StoreError>;

    /// The number of the first record of this log that was never brought; 0 for a log nobody has heard of.
    async fn reached(&self, log: &str) -> Result<u64, StoreError>;

    /// Records that fit, the newest first.
    async fn search(&self, query: &ArchiveQuery) -> Result<ArchivePage, StoreError>;

    /// The last end of a call; `None` if it never ended, is not this tenant's, or was dropped.
    async fn invocation(&self, tenant: &TenantId, id: InvocationId) -> Result<Option<InvocationRecord>, StoreError>;

    /// Ends of calls that fit, the newest first.
    async fn invocations(&self, query: &InvocationQuery) -> Result<InvocationPage, StoreError>;

    /// Makes the present month and the [`MONTHS_AHEAD`] next ones ready; answers how many were not.
    async fn provide(&self, now: UnixMillis) -> Result<u64, StoreError>;

    /// Drops the months that are over for longer than they are kept; answers which (ARCH-3).
    async fn retain(&self, retention: &Retention, now: UnixMillis) -> Result<Vec<MonthOf>, StoreError>;

    /// What there is.
    async fn stats(&self) -> Result<ArchiveStats, StoreError>;
}

// ----------------------------------------------------------------------------------------------------- ArchivePlace

/// Why a text is no place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("it is not the `next` of a page of the archive")]
pub struct PlaceError;

impl fmt::Display for ArchivePlace {
    /// `1800000000000.a36986d2e30e6709.6`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.at.0, self.log, self.seq)
    }
}

impl FromStr for ArchivePlace {
    type Err = PlaceError;

    fn from_str(text: &str) -> Result<Self, PlaceError> {
        let (at, rest) = text.split_once('.').ok_or(PlaceError)?;
        let (log, seq) = rest.rsplit_once('.').ok_or(PlaceError)?;
        Ok(Self {
            at: UnixMillis(at.parse().map_err(|_| PlaceError)?),
            log: log.to_owned(),
            seq: seq.parse().map_err(|_| PlaceError)?,
        })
    }
}

// ------------------------------------------------------------------------------------------------------------ Month

/// A month of UTC, counted from the first of the year 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(i32);

impl Month {
    /// The month of a moment. What no calendar has falls into the month of 1970-01-01.
    pub fn of(time: UnixMillis) -> Self {
        let stamp = jiff::Timestamp::from_millisecond(time.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
        let date = stamp.to_zoned(TimeZone::UTC).date();
        Self(i32::from(date.year()) * 12 + i32::from(date.month()) - 1)
    }

    /// The month after.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// Its first moment.
    pub fn begins(self) -> UnixMillis {
        let (year, month) = self.parts();
        let first = i16::try_from(year).ok().zip(i8::try_from(month).ok());
        let date = first.and_then(|(year, month)| Date::new(year, month, 1).ok());
        let begun = date.and_then(|date| date.to_zoned(TimeZone::UTC).ok());
        begun.map_or(UnixMillis(i64::MAX), |begun| UnixMillis(begun.timestamp().as_millisecond()))
    }

    /// Is it over as a whole for so long, so that it may be dropped (ARCH-3)?
    pub fn is_past(self, kept: Duration, now: UnixMillis) -> bool {
        self.next().begins().plus(kept) <= now
    }

    fn parts(self) -> (i32, i32) {
        (self.0.div_euclid(12), self.0.rem_euclid(12) + 1)
    }
}

impl fmt::Display for Month {
    /// `2027-01`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month) = self.parts();
        write!(f, "{year:04}-{month:02}")
    }
}

/// Why a text is no month.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a month is written as YYYY-MM, for example 2027-01")]
pub struct MonthError;

impl FromStr for Month {
    type Err = MonthError;

    fn from_str(text: &str) -> Result<Self, MonthError> {
        let (year, month) = text.split_once('-').ok_or(MonthError)?;
        let (year, month): (i32, i32) = (year.parse().map_err(|_| MonthError)?, month.parse().map_err(|_| MonthError)?);
        let found = Self(year.saturating_mul(12).saturating_add(month).saturating_sub(1));
        if (1..=12).contains(&month) && found.to_string() == text { Ok(found) } else { Err(MonthError) }
    }
}

// ---------------------------------------------------------------------------------------------------------- moments

/// What stands where the beginning of a moment ends.
const REST: &str = "0000-01-01T00:00:00.000Z";
/// Where a moment may end: after the year, month, day, hour, minute, second, milliseconds.
const ENDS: [usize; 8] = [4, 7, 10, 13, 16, 19, 23, 24];

/// The first moment that begins with this text: `2027`, `2027-01`, …, `2027-01-15T08:00:00.000Z`, or any moment with its
/// zone as RFC 3339 has it. `None` if it is no beginning of one.
pub fn moment_of(text: &str) -> Option<UnixMillis> {
    let whole = match REST.get(text.len()..) {
        Some(rest) if ENDS.contains(&text.len()) && text.is_ascii() => format!("{text}{rest}"),
        _ => text.to_owned(),
    };
    let stamp: jiff::Timestamp = whole.parse().or_else(|_| text.parse()).ok()?;
    Some(UnixMillis(stamp.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn months_begin_at_midnight_in_utc_and_are_written_as_they_are_read() {
        for (text, begins) in [
            ("1970-01", "1970-01-01T00:00:00.000Z"),
            ("2027-12", "2027-12-01T00:00:00.000Z"),
            ("2028-02", "2028-02-01T00:00:00.000Z"),
        ] {
            let month: Month = text.parse().unwrap();
            assert_eq!((month.to_string().as_str(), month.begins().to_string().as_str()), (text, begins));
            let first = month.begins();
            assert_eq!(Month::of(first), month);
            assert_eq!(Month::of(UnixMillis(first.0 - 1)).next(), month);
        }
        for text in ["", "2027", "2027-13", "2027-1", "2027-00", "x-01"] {
            assert_eq!(text.parse::<Month>(), Err(MonthError), "{text}");
        }
    }

    #[test]
    fn a_month_is_past_when_its_last_moment_is() {
        let (month, day): (Month, _) = ("2027-01".parse().unwrap(), Duration::from_hours(24));
        for (now, past) in [("2027-02-10T23:59:59.999Z", false), ("2027-02-11", true), ("2027-01-31", false)] {
            assert_eq!(month.is_past(day * 10, moment_of(now).unwrap()), past, "{now}");
        }
    }

    #[test]
    fn a_moment_may_be_given_by_its_beginning() {
        for (text, whole) in [
            ("2027", "2027-01-01T00:00:00.000Z"),
            ("2027-03", "2027-03-01T00:00:00.000Z"),
            ("2027-03-04", "2027-03-04T00:00:00.000Z"),
            ("2027-03-04T05", "2027-03-04T05:00:00.000Z"),
            ("2027-03-04T05:06", "2027-03-04T05:06:00.000Z"),
            ("2027-03-04T05:06:07", "2027-03-04T05:06:07.000Z"),
            ("2027-03-04T05:06:07.089Z", "2027-03-04T05:06:07.089Z"),
            ("2027-03-04T05:06:07Z", "2027-03-04T05:06:07.000Z"),
            ("2027-03-04T05:06:07+02:00", "2027-03-04T03:06:07.000Z"),
        ] {
            assert_eq!(moment_of(text).map(|at| at.to_string()).as_deref(), Some(whole), "{text}");
        }
        for text in ["", "yesterday", "2027-13", "2027-1", "20é"] {
            assert_eq!(moment_of(text), None, "{text}");
        }
    }

    #[test]
    fn places_are_read_as_they_are_written() {
        let place = ArchivePlace { at: UnixMillis(-5), log: "a.b".into(), seq: 7 };
        assert_eq!(place.to_string().parse(), Ok(place));
        for text in ["", "1", "1.a", "x.a.1", "1.a.-1"] {
            assert_eq!(text.parse::<ArchivePlace>(), Err(PlaceError), "{text}");
        }
    }
}
