//! A search in the records of all instances, in the words of a search in one log.
//!
//! Not here: who may search, and where (`audit`).

use std::str::FromStr;

use contract::error::{ErrorCode, Refusal};
use ports::audit_log::AuditQuery;
use ports::clock::UnixMillis;
use ports::record_archive::{ArchivePlace, ArchiveQuery, ArchivedRecord, RecordArchive, moment_of};
use serde_json::Value;

/// Whose records are searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditScope {
    /// Those of the instance that is asked.
    Instance,
    /// Those of all instances.
    All,
}

/// Why a word is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("must be instance or all")]
pub struct AuditScopeError;

impl FromStr for AuditScope {
    type Err = AuditScopeError;

    fn from_str(text: &str) -> Result<Self, AuditScopeError> {
        match text {
            "instance" => Ok(Self::Instance),
            "all" => Ok(Self::All),
            _ => Err(AuditScopeError),
        }
    }
}

/// Where a page ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuditNext {
    /// In the log of this instance.
    Number(u64),
    /// In the archive.
    Place(ArchivePlace),
}

/// A page of records, the newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditFound {
    /// As their log has them; those of the archive say in `log` which one that is.
    pub records: Vec<Value>,
    /// Where to go on.
    pub next: Option<AuditNext>,
}

pub(super) async fn search(
    archive: &dyn RecordArchive,
    query: AuditQuery,
    before: Option<&str>,
) -> Result<AuditFound, Refusal> {
    let query = ArchiveQuery {
        tenant: query.tenant,
        tool: query.tool,
        subject: query.subject,
        trace_id: query.trace_id,
        action: query.action,
        from: moment(query.from.as_deref(), "from")?,
        to: moment(query.to.as_deref(), "to")?,
        before: before.map(str::parse).transpose().map_err(|_| no_page())?,
        limit: query.limit,
    };
    let page = archive.search(&query).await.map_err(|error| {
        tracing::error!(error = &error as &dyn std::error::Error, "the archive of audit records cannot be read");
        Refusal::new(ErrorCode::E3001, "the archive of audit records cannot be read")
            .hint("try again later; `scope=instance` searches the log of this instance")
            .caused_by(error)
    })?;
    Ok(AuditFound { records: page.records.into_iter().map(shown).collect(), next: page.next.map(AuditNext::Place) })
}

/// The refusal of a `before` that is none.
pub(super) fn no_page() -> Refusal {
    Refusal::new(ErrorCode::E3004, "`before` is not the `next` of a page of this search")
        .hint("take it from the page before, asked for with the same `scope`")
}

fn shown(record: ArchivedRecord) -> Value {
    let mut value: Value = serde_json::from_str(&record.line).unwrap_or_default();
    if let Value::Object(members) = &mut value {
        members.insert("log".to_owned(), Value::String(record.place.log));
    }
    value
}

/// The moment of a question, as people write it.
pub(super) fn moment(text: Option<&str>, name: &str) -> Result<Option<UnixMillis>, Refusal> {
    let Some(text) = text else { return Ok(None) };
    let refused = || {
        Refusal::new(ErrorCode::E3004, format!("`{name}` is no moment"))
            .hint("write 2027-01-15T08:00:00.000Z or a beginning of it that ends with the year, month, day, hour, …")
    };
    moment_of(text).map(Some).ok_or_else(refused)
}
