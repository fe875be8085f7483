//! One record as one line. The member names are a promise to whoever reads the files.

use std::collections::BTreeMap;

use contract::canonical::Digest;
use contract::cost::Costs;
use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, TraceId};
use contract::money::{Amount, Currency};
use kernel::ports::audit_sink::{AuditAction, AuditRecord, Link};
use kernel::ports::executor::Usage;
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
    /// On whose behalf.
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<&'a str>,
    /// Through whose hands the right went, the nearest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    chain: Vec<Hand<'a>>,
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
    /// Redacted, and bounded. Our own JSON, which is written as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<serde_json::Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Used>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// What a call used; the names are those of the answer's `execution_metadata`.
#[derive(Serialize)]
struct Used {
    cpu_used_millicore_seconds: u64,
    memory_peak_mb: u64,
    network_bytes_sent: u64,
    network_bytes_received: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    tokens_used: Option<u64>,
}

impl Used {
    /// A call that used nothing worth counting has none: most are of built-ins, and their lines stay short.
    fn of(usage: Usage) -> Option<Self> {
        (usage != Usage::default()).then_some(Self {
            cpu_used_millicore_seconds: usage.cpu_millicore_seconds,
            memory_peak_mb: usage.memory_peak_mb,
            network_bytes_sent: usage.network_bytes_sent,
            network_bytes_received: usage.network_bytes_received,
            tokens_used: usage.tokens,
        })
    }
}

/// What a call cost. A call that cost nothing has none.
#[derive(Serialize)]
struct Cost {
    total: Amount,
    currency: Currency,
    /// By component.
    components: BTreeMap<&'static str, Amount>,
}

impl Cost {
    fn of(costs: &Costs) -> Option<Self> {
        (!costs.is_zero()).then(|| Self {
            total: costs.total(),
            currency: costs.currency,
            components: costs.parts().map(|(component, amount)| (component.as_str(), amount)).collect(),
        })
    }
}

#[derive(Serialize)]
struct Hand<'a> {
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<&'a str>,
}

/// The text as the JSON that it is; as a string if a reader would refuse it.
fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|_| text.into())
}

/// Appends the record's line, newline included. JSON escapes every control character, so a line is always one line.
pub(crate) fn write(record: &AuditRecord, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let who = record.who.as_deref();
    fn hand(link: &Link) -> Hand<'_> {
        Hand { subject: link.subject.as_str(), token_id: link.token_id.as_deref() }
    }
    let line = Line {
        at: record.at.to_string(),
        action: record.action,
        trace_id: record.trace_id,
        invocation_id: record.invocation_id,
        tenant: who.map(|who| who.tenant.as_str()),
        subject: who.map(|who| who.subject.as_str()),
        user: who.and_then(|who| who.user.as_ref()).map(|user| user.as_str()),
        token_id: who.and_then(|who| who.token_id.as_deref()),
        chain: who.map(|who| who.chain.iter().map(hand).collect()).unwrap_or_default(),
        tool_id: record.tool.as_ref().map(|tool| tool.as_str()),
        tool_version: record.version.as_ref().map(ToString::to_string),
        status: record.status,
        code: record.code,
        parameters_digest: record.parameters_digest,
        parameters: record.parameters.as_deref().map(json),
        duration_ms: record.duration_ms,
        usage: record.usage.and_then(Used::of),
        cost: record.cost.as_ref().and_then(Cost::of),
        note: record.note.as_deref(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    out.push(b'\n');
    Ok(())
}
