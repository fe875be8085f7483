//! One record as one line. The member names are a promise to whoever reads the files.

use contract::canonical::Digest;
use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, TraceId};
use kernel::ports::audit_sink::{AuditAction, AuditRecord};
use serde::Serialize;

#[derive(Serialize)]
struct Line<'a> {
    at: String,
    action: AuditAction,
    trace_id: TraceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    invocation_id: Option<InvocationId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_version: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<InvocationStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// Appends the record's line, newline included. JSON escapes every control character, so a line is always one line.
pub(crate) fn write(record: &AuditRecord, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let line = Line {
        at: record.at.to_string(),
        action: record.action,
        trace_id: record.trace_id,
        invocation_id: record.invocation_id,
        tenant: record.tenant.as_ref().map(|tenant| tenant.as_str()),
        subject: record.subject.as_ref().map(|subject| subject.as_str()),
        tool_id: record.tool.as_ref().map(|tool| tool.as_str()),
        tool_version: record.version.as_ref().map(ToString::to_string),
        status: record.status,
        code: record.code,
        parameters_digest: record.parameters_digest,
        duration_ms: record.duration_ms,
        note: record.note.as_deref(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.push(b'\n');
    Ok(())
}
