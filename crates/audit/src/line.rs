//! One record as one line. The member names are a promise to whoever reads the files.
//!
//! A line begins with its number, always written the same way: `segments` finds records by it. The parameters stand in the
//! middle as the text they come as, so a line is written as what is before them and what is after.

use std::collections::BTreeMap;
use std::fmt;

use contract::canonical::Digest;
use contract::cost::Costs;
use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use contract::ids::{InvocationId, TraceId};
use contract::manifest::{SideEffect, SideEffectPolicy};
use contract::money::{Amount, Currency};
use contract::version::Version;
use ports::audit_sink::{AuditAction, AuditRecord, DelegationLink};
use ports::clock::UnixMillis;
use ports::executor::ResourceUsage;
use serde::{Serialize, Serializer};

use crate::head::SignedHead;
use crate::log_mark::LogMark;
use crate::principals::PrincipalTurn;

/// What the log adds to a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordStamp<'a> {
    /// The log's name, the first part of the record's id.
    pub(crate) log: &'a str,
    /// The record's number in the log.
    pub(crate) seq: u64,
    /// The record's place among those of its principal, if it has one.
    pub(crate) turn: Option<PrincipalTurn>,
}

/// A text that is made where it stands: a line is written for every call.
struct Shown<T>(T);

impl<T: fmt::Display> Serialize for Shown<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The log's name and the record's number in it.
struct RecordId<'a>(&'a str, u64);

impl fmt::Display for RecordId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

/// What stands before the parameters. There is always something.
#[derive(Serialize)]
struct Line<'a> {
    seq: u64,
    id: Shown<RecordId<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal_seq: Option<u64>,
    /// Which time the principals are counted from 0; left out the first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal_era: Option<u64>,
    at: Shown<UnixMillis>,
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
    chain: Vec<DelegationLine<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_version: Option<Shown<&'a Version>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<InvocationStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<ErrorCode>,
    /// `allow` or `deny`, once that was decided, and by what.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    side_effects: Option<&'static str>,
    /// Those the manifest declares, for a tool that has any.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    declared_effects: &'a [SideEffect],
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_digest: Option<Digest>,
}

/// The member that is written as it is: redacted, bounded, and JSON already.
const PARAMETERS: &[u8] = b",\"parameters\":";

/// What stands after it.
#[derive(Serialize)]
struct Tail<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_digest: Option<Digest>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_summary: Option<Summary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<Used>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cost: Option<Cost>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// What the result looks like: its type, and how many members, items or characters it has.
#[derive(Serialize)]
struct Summary {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
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
    fn of(usage: ResourceUsage) -> Option<Self> {
        (usage != ResourceUsage::default()).then_some(Self {
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
struct DelegationLine<'a> {
    subject: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_id: Option<&'a str>,
}

/// Appends the record's line, newline included. JSON escapes every control character, so a line is always one line.
pub(crate) fn write(record: &AuditRecord, stamp: RecordStamp<'_>, out: &mut Vec<u8>) -> Result<(), serde_json::Error> {
    let judged = record.judged.as_deref();
    let decision = judged.and_then(|judged| judged.decision.as_ref());
    let who = record.who.as_deref();
    fn hand(link: &DelegationLink) -> DelegationLine<'_> {
        DelegationLine { subject: link.subject.as_str(), token_id: link.token_id.as_deref() }
    }
    let line = Line {
        seq: stamp.seq,
        id: Shown(RecordId(stamp.log, stamp.seq)),
        principal_seq: stamp.turn.map(|turn| turn.seq),
        principal_era: stamp.turn.map(|turn| turn.era).filter(|era| *era > 0),
        at: Shown(record.at),
        action: record.action,
        trace_id: record.trace_id,
        invocation_id: record.invocation_id,
        tenant: who.map(|who| who.tenant.as_str()),
        subject: who.map(|who| who.subject.as_str()),
        user: who.and_then(|who| who.user.as_ref()).map(|user| user.as_str()),
        token_id: who.and_then(|who| who.token_id.as_deref()),
        chain: who.map(|who| who.chain.iter().map(hand).collect()).unwrap_or_default(),
        tool_id: record.tool.as_ref().map(|tool| tool.as_str()),
        tool_version: record.version.as_ref().map(Shown),
        status: record.status,
        code: record.code,
        decision: decision.map(|decision| if decision.allowed { "allow" } else { "deny" }),
        decision_reason: decision.map(|decision| &*decision.reason),
        side_effects: judged.and_then(|judged| judged.side_effects).map(SideEffectPolicy::as_str),
        declared_effects: judged.map(|judged| &*judged.effects).unwrap_or_default(),
        parameters_digest: record.parameters_digest,
    };
    let tail = Tail {
        result_digest: judged.and_then(|judged| judged.result_digest),
        result_summary: judged
            .and_then(|judged| judged.result_shape)
            .map(|shape| Summary { kind: shape.kind, count: shape.count }),
        duration_ms: record.duration_ms,
        usage: record.usage.and_then(Used::of),
        cost: record.cost.as_ref().and_then(Cost::of),
        note: record.note.as_deref(),
    };
    serde_json::to_writer(&mut *out, &line)?;
    // The closing brace: more follows.
    out.pop();
    if let Some(parameters) = record.parameters.as_deref() {
        out.extend_from_slice(PARAMETERS);
        out.extend_from_slice(parameters.as_bytes());
    }
    let joint = out.len();
    serde_json::to_writer(&mut *out, &tail)?;
    if out.len() == joint + b"{}".len() {
        out.remove(joint);
    } else if let Some(brace) = out.get_mut(joint) {
        *brace = b',';
    }
    out.push(b'\n');
    Ok(())
}

/// What the log says about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OwnWord<'a> {
    /// It begins: with this key, after these files.
    Begun(&'a LogMark),
    /// From the next checkpoint but one on it is signed with another key.
    KeyChanged { from: &'a str, to: &'a str },
    /// So far the logs of other instances have come.
    HeadsSeen(&'a [SignedHead]),
    /// After a crash these records were there, the last one too, and no checkpoint covered them.
    Recovered { first: u64, last: u64 },
    /// Lines that this log has not written stood after its end and were put into a file of their own.
    SetAside(&'a SetAsideFile),
    /// Somewhere in these records one is missing or not what was signed.
    FaultFound { first: u64, last: u64 },
}

/// The file that lines of somebody else were put into.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SetAsideFile {
    /// Its name in the directory of the log.
    pub file: String,
    pub bytes: u64,
    /// Of all of it, in hexadecimal.
    pub sha256: String,
}

/// The action of the record that names a new key.
pub(crate) const KEY_CHANGED: &str = "log_key_changed";
/// The action of a record about other logs.
pub(crate) const HEADS_SEEN: &str = "log_heads_seen";
/// The action of a record about those that a crash left unsigned.
pub(crate) const RECOVERED: &str = "log_recovered";
/// The action of a record about lines that were set aside.
pub(crate) const SET_ASIDE: &str = "log_tail_set_aside";
/// The action of a record about damage.
pub(crate) const FAULT_FOUND: &str = "log_fault_found";

#[derive(Serialize)]
struct OwnLine<'a> {
    seq: u64,
    id: Shown<RecordId<'a>>,
    at: Shown<UnixMillis>,
    action: &'static str,
    #[serde(flatten)]
    members: OwnMembers<'a>,
}

/// What one or another of them has.
#[derive(Default, Serialize)]
struct OwnMembers<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    former_key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    before: &'a [crate::log_mark::FormerFile],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    heads: &'a [SignedHead],
    #[serde(skip_serializing_if = "Option::is_none")]
    first_record: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_record: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    set_aside: Option<&'a SetAsideFile>,
}

/// Appends a line of the log about itself.
pub(crate) fn write_own(
    word: OwnWord<'_>,
    at: UnixMillis,
    stamp: RecordStamp<'_>,
    out: &mut Vec<u8>,
) -> Result<(), serde_json::Error> {
    let range =
        |first, last| OwnMembers { first_record: Some(first), last_record: Some(last), ..OwnMembers::default() };
    let (action, members) = match word {
        OwnWord::Begun(mark) => (
            "log_begun",
            OwnMembers { key: Some(mark.key.as_str()), before: mark.before.as_slice(), ..OwnMembers::default() },
        ),
        OwnWord::KeyChanged { from, to } => {
            (KEY_CHANGED, OwnMembers { former_key: Some(from), key: Some(to), ..OwnMembers::default() })
        }
        OwnWord::HeadsSeen(heads) => (HEADS_SEEN, OwnMembers { heads, ..OwnMembers::default() }),
        OwnWord::Recovered { first, last } => (RECOVERED, range(first, last)),
        OwnWord::SetAside(file) => (SET_ASIDE, OwnMembers { set_aside: Some(file), ..OwnMembers::default() }),
        OwnWord::FaultFound { first, last } => (FAULT_FOUND, range(first, last)),
    };
    let id = Shown(RecordId(stamp.log, stamp.seq));
    serde_json::to_writer(&mut *out, &OwnLine { seq: stamp.seq, id, at: Shown(at), action, members })?;
    out.push(b'\n');
    Ok(())
}
