//! The sink that brings the log to the archive of all instances, where there is one. (AUD-014)
//!
//! The archive knows itself how far each log was brought, so [`align`] lets the courier begin there when the two disagree:
//! after the database was put back to an older state, or is another one, everything it lacks is brought again.
//!
//! Not here: what the archive does with it (the port [`RecordArchive`]).

use std::sync::Arc;

use async_trait::async_trait;
use contract::money::{Amount, Currency};
use ports::clock::UnixMillis;
use ports::record_archive::{AppendOutcome, ArchiveRecord, EndedCall, RecordArchive};
use ports::registry_store::StoreError;
use serde::Deserialize;

use super::{CursorError, RecordSink, SinkCursor, SinkError, SinkEvent};

/// Its name beside the sinks of the configuration, none of which can have a `_`.
pub const NAME: &str = "record_archive";

/// Brings records to the archive.
#[derive(Debug)]
pub struct ArchiveSink {
    archive: Arc<dyn RecordArchive>,
    log: String,
}

impl ArchiveSink {
    /// For the log of this name.
    pub fn new(archive: Arc<dyn RecordArchive>, log: String) -> Self {
        Self { archive, log }
    }
}

/// Why the courier cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum AlignError {
    #[error("how far the archive has come cannot be asked")]
    Archive(#[source] StoreError),
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

/// Puts the cursor where the archive says that it has come with this log.
///
/// # Errors
/// When the archive does not answer, or the cursor cannot be written.
pub async fn align(cursor: &mut SinkCursor, archive: &dyn RecordArchive, log: &str) -> Result<(), AlignError> {
    let reached = archive.reached(log).await.map_err(AlignError::Archive)?;
    if cursor.is_new() || cursor.next() != reached {
        cursor.advance(reached).await?;
    }
    Ok(())
}

#[async_trait]
impl RecordSink for ArchiveSink {
    async fn deliver(&self, batch: &[SinkEvent]) -> Result<(), SinkError> {
        let records = batch.iter().map(record).collect::<Result<Vec<_>, _>>()?;
        match self.archive.append(&self.log, &records).await {
            Ok(AppendOutcome::Written(_)) => Ok(()),
            Ok(AppendOutcome::Gap { expected }) => Err(SinkError::refused(format!(
                "the archive has {expected} records of this log and more were delivered: it was put back to an older \
                 state; restart the server to bring them again"
            ))),
            Err(error) => {
                tracing::debug!(error = &error as &dyn std::error::Error, "the archive takes no records");
                Err(SinkError::later("the archive in the store takes no records at the moment"))
            }
        }
    }

    fn bytes_of(&self, event: &SinkEvent) -> usize {
        event.line.len()
    }
}

/// What of a line has a column of its own.
#[derive(Deserialize)]
struct Line {
    action: String,
    tenant: Option<String>,
    tool_id: Option<String>,
    tool_version: Option<String>,
    subject: Option<String>,
    trace_id: Option<String>,
    invocation_id: Option<contract::ids::InvocationId>,
    status: Option<String>,
    code: Option<String>,
    duration_ms: Option<u64>,
    parameters_digest: Option<String>,
    cost: Option<Cost>,
}

#[derive(Deserialize)]
struct Cost {
    total: Amount,
    currency: Currency,
}

/// The actions that say how a call ended.
const ENDS: [&str; 2] = ["invocation_finished", "invocation_resolved"];

fn record(event: &SinkEvent) -> Result<ArchiveRecord, SinkError> {
    let line: Line = serde_json::from_str(&event.line)
        .map_err(|_| SinkError::refused(format!("record {} of the audit log cannot be read", event.seq)))?;
    let ended = line.status.filter(|_| ENDS.contains(&line.action.as_str())).map(|status| EndedCall {
        version: line.tool_version,
        status,
        code: line.code,
        duration_ms: line.duration_ms.unwrap_or(0),
        parameters_digest: line.parameters_digest,
        cost: line.cost.map(|cost| (cost.total, cost.currency)),
    });
    Ok(ArchiveRecord {
        seq: event.seq,
        at: UnixMillis(event.at.0),
        tenant: line.tenant,
        tool: line.tool_id,
        subject: line.subject,
        trace_id: line.trace_id,
        action: line.action,
        invocation_id: line.invocation_id,
        ended,
        line: event.line.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::LogEntry;

    fn of(line: &str) -> ArchiveRecord {
        record(&SinkEvent::of(&LogEntry { seq: 6, line: line.to_owned() }).unwrap()).unwrap()
    }

    #[test]
    fn a_line_keeps_what_it_says_and_only_an_end_is_a_call() {
        let line = r#"{"seq":6,"id":"a-6","at":"2027-01-15T08:00:00.000Z","action":"invocation_finished","trace_id":"07","invocation_id":"01a1e4d9-23ee-7755-b374-cbed3edf4544","tenant":"acme","subject":"bot","tool_id":"calculator","tool_version":"1.0.0","status":"error","code":"E3401","duration_ms":30,"cost":{"total":"0.5","currency":"USD","components":{}}}"#;
        let record = of(line);
        assert_eq!((record.seq, record.at.0, record.line.as_str()), (6, 1_800_000_000_000, line));
        assert_eq!((record.tenant.as_deref(), record.subject.as_deref()), (Some("acme"), Some("bot")));
        let ended = record.ended.unwrap();
        assert_eq!((ended.status.as_str(), ended.code.as_deref(), ended.duration_ms), ("error", Some("E3401"), 30));
        assert_eq!(ended.cost.unwrap().0.to_string(), "0.5");
        assert_eq!(of(&line.replace("invocation_finished", "invocation_started")).ended, None);
        let own = of(r#"{"seq":0,"id":"a-0","at":"2027-01-15T08:00:00.000Z","action":"log_begun","key":"k"}"#);
        assert_eq!((own.tenant, own.ended, own.invocation_id), (None, None, None));
    }
}
