//! One call as spans: `tool.invoke`, a child for each phase, and below the phase that runs the tool what it called.
//!
//! Names and attributes follow the semantic conventions where there are some (`gen_ai.*`, `mcp.*`, `error.type`); the rest is
//! `gantry.*`, and `latencyMs` and `cost` as OBS-003 has them. Values that somebody else has chosen go through the redaction.
//!
//! Not here: parameters, results, messages of errors. A span says what happened and where, not with what.

use std::borrow::Cow;
use std::collections::HashMap;
use std::time::Duration;

use base::SaturatingFrom as _;
use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, ErrorKind};
use contract::trace_context::SpanId;
use ports::observer::{PhaseSpan, TracedCall};
use ports::upstream_spans::{OutwardCall, OutwardSpan};

use super::TraceRedaction;
use super::otlp::{AttributesWriter, Head, SpanKind, SpansWriter, Status};

/// Characters of a value that somebody else has chosen.
const VALUE_CHARS_MAX: usize = 256;
/// Values of one batch of which is remembered that nothing is to be taken out of them.
const CLEAN_MAX: usize = 1_024;
/// Flags: sampled; whether the parent is elsewhere is known; it is.
const SAMPLED: u32 = 0x01;
const KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// Makes the spans of one batch of calls. Tools, tenants and agents come again and again in it, so what the redaction said
/// of a value is remembered; not longer, because the redaction learns.
pub(super) struct SpanMaker<'a> {
    redaction: &'a TraceRedaction,
    known: HashMap<&'a str, Option<Box<str>>>,
}

impl<'a> SpanMaker<'a> {
    pub(super) fn new(redaction: &'a TraceRedaction) -> Self {
        Self { redaction, known: HashMap::new() }
    }

    /// Writes the spans of one call.
    pub(super) fn write(&mut self, trace: &'a TracedCall, to: &mut SpansWriter<'_>) {
        let state = self.state(trace.context.tracestate().unwrap_or_default());
        let call = Call { trace, state: &state };
        self.call(call, to);
        for phase in &trace.phases {
            call.phase(phase, to);
        }
        for outward in &trace.outward {
            self.outward(call, outward, to);
        }
    }

    /// The call as a whole.
    fn call(&mut self, call: Call<'a, '_>, to: &mut SpansWriter<'_>) {
        let trace = call.trace;
        let word = word(trace.status, trace.code);
        let mut head = call.head("tool.invoke", SpanKind::Server, trace.span, (trace.started, trace.ended));
        head.parent_span_id = trace.context.parent.map(SpanId::to_bytes);
        if trace.context.parent.is_some() {
            head.flags |= REMOTE;
        }
        let failed = trace.code.map(|code| (word, code.as_str()));
        to.span(&head, status(failed), |attributes| {
            // Whoever has chosen it: a UUID holds nothing that must not be seen.
            attributes.shown("gantry.invocation.id", trace.invocation_id);
            attributes.text("gantry.status", word);
            if let Some(tool) = &trace.tool {
                attributes.text("gantry.tool.id", &self.clean(tool.id.as_str()));
                attributes.text("gantry.tool.version", &self.cleaned(&tool.version.to_string()));
                attributes.text("gantry.side_effect_policy", tool.manifest.side_effect_policy.as_str());
                // An amount is digits, a currency three letters.
                attributes.shown("cost", trace.costs.total());
                if !trace.costs.is_zero() {
                    attributes.text("gantry.cost.currency", trace.costs.currency.as_str());
                }
            }
            if let Some(tenant) = &trace.tenant {
                attributes.text("gantry.tenant.id", &self.clean(tenant.as_str()));
            }
            if let Some(agent) = &trace.agent {
                attributes.text("gen_ai.agent.id", &self.clean(agent.as_str()));
            }
            let millis = trace.ended.saturating_sub(trace.started).as_millis();
            attributes.number("latencyMs", i64::saturating_from(millis));
            if trace.replayed {
                attributes.flag("gantry.replayed", true);
            }
            error_type(attributes, failed);
        });
    }

    /// Something the call called.
    fn outward(&mut self, call: Call<'a, '_>, outward: &'a OutwardSpan, to: &mut SpansWriter<'_>) {
        let trace = call.trace;
        let tool = trace.tool.as_ref().map_or("", |tool| tool.id.as_str());
        let (name, kind) = match &outward.what {
            OutwardCall::Executor(_) => (format!("execute_tool {tool}"), SpanKind::Internal),
            OutwardCall::Mcp { method, tool, .. } => (format!("{method} {tool}"), SpanKind::Client),
        };
        let name = self.cleaned(&name);
        let mut head = call.head(&name, kind, outward.id, (outward.started, outward.ended));
        head.parent_span_id = Some(outward.parent.to_bytes());
        let failed = match (outward.failed, outward.cut_off) {
            (Some(code), _) => Some((word(InvocationStatus::Error, Some(code)), code.as_str())),
            (None, true) => Some((word(trace.status, trace.code), "cut_off")),
            (None, false) => None,
        };
        to.span(&head, status(failed), |attributes| {
            attributes.text("gen_ai.operation.name", "execute_tool");
            match &outward.what {
                OutwardCall::Executor(kind) => {
                    attributes.text("gen_ai.tool.name", &self.clean(tool));
                    attributes.shown("gen_ai.tool.call.id", trace.invocation_id);
                    attributes.text("gantry.executor", kind);
                }
                OutwardCall::Mcp { method, server, tool } => {
                    attributes.text("gen_ai.tool.name", &self.clean(tool));
                    attributes.text("mcp.method.name", method);
                    attributes.text("gantry.upstream.server", &self.clean(server));
                }
            }
            error_type(attributes, failed);
        });
    }

    /// TRA-3. The caller has written it; with words in it that are not its own it would be none, so it goes as a whole.
    fn state<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if text.is_empty() || *self.redaction.apply(text) == *text { text.into() } else { Cow::default() }
    }

    /// TRA-3, and short enough.
    fn clean(&mut self, text: &'a str) -> Cow<'a, str> {
        if let Some(known) = self.known.get(text) {
            return known.as_deref().map_or(Cow::Borrowed(text), |clean| Cow::Owned(clean.to_owned()));
        }
        let clean = self.cleaned(text);
        if self.known.len() < CLEAN_MAX {
            self.known.insert(text, (*clean != *text).then(|| (&*clean).into()));
        }
        clean
    }

    /// The same of a text that is not there for long.
    fn cleaned<'t>(&self, text: &'t str) -> Cow<'t, str> {
        let clean = self.redaction.apply(text);
        if clean.len() <= VALUE_CHARS_MAX {
            clean
        } else {
            clean.chars().take(VALUE_CHARS_MAX).collect::<String>().into()
        }
    }
}

/// One call, and what is left of its caller's `tracestate`.
#[derive(Clone, Copy)]
struct Call<'a, 's> {
    trace: &'a TracedCall,
    state: &'s str,
}

impl<'s> Call<'_, 's> {
    fn phase(self, phase: &PhaseSpan, to: &mut SpansWriter<'_>) {
        let trace = self.trace;
        let code = (trace.stopped_in == Some(phase.phase)).then_some(trace.code).flatten();
        let failed = code.map(|code| (word(trace.status, Some(code)), code.as_str()));
        let name = phase.phase.as_str();
        let mut head = self.head(name, SpanKind::Internal, phase.id, (phase.started, phase.ended));
        head.parent_span_id = Some(trace.span.to_bytes());
        to.span(&head, status(failed), |attributes| {
            attributes.text("gantry.phase", name);
            error_type(attributes, failed);
        });
    }

    fn head<'n>(self, name: &'n str, kind: SpanKind, id: SpanId, (from, to): (Duration, Duration)) -> Head<'n>
    where
        's: 'n,
    {
        Head {
            trace_id: self.trace.context.trace_id.to_bytes(),
            span_id: id.to_bytes(),
            trace_state: self.state,
            parent_span_id: None,
            name,
            kind,
            start_time_unix_nano: self.nanos(from),
            end_time_unix_nano: self.nanos(to.max(from)),
            flags: SAMPLED | KNOWN,
        }
    }

    /// A moment of the kernel's own clock, by the calendar.
    fn nanos(self, moment: Duration) -> u64 {
        let begun = u64::saturating_from(self.trace.started_at.0).saturating_mul(1_000_000);
        let since = moment.saturating_sub(self.trace.started).as_nanos();
        begun.saturating_add(u64::saturating_from(since))
    }
}

/// How a span ended: well, or with a status word and a type of error.
fn status(failed: Option<(&'static str, &'static str)>) -> Status {
    failed.map_or(Status::Ok, |(word, _)| Status::Error(word))
}

fn error_type(attributes: &mut AttributesWriter<'_>, failed: Option<(&'static str, &'static str)>) {
    if let Some((_, kind)) = failed {
        attributes.text("error.type", kind);
    }
}

/// The status words of OBS-003.
fn word(status: InvocationStatus, code: Option<ErrorCode>) -> &'static str {
    let Some(code) = code else { return "SUCCESS" };
    match (code, status, code.row().kind) {
        (ErrorCode::E3303, ..) => "OUTPUT_SCHEMA_VIOLATION",
        (ErrorCode::E3413, ..) => "SIDE_EFFECT_INCONSISTENCY",
        (_, InvocationStatus::Timeout, _) | (.., ErrorKind::DeadlineExceeded) => "DEADLINE_EXCEEDED",
        (.., ErrorKind::AuthorizationDenied | ErrorKind::ApprovalRequired) => "AUTHORIZATION_DENIED",
        (.., ErrorKind::InvalidInput | ErrorKind::ToolNotFound) => "INVALID_INPUT",
        _ => "EXECUTION_FAILED",
    }
}

#[cfg(test)]
mod tests {
    use super::super::otlp::export_request;
    use super::*;
    use contract::trace_context::{SpanIds, TraceContext};
    use ports::clock::UnixMillis;
    use ports::observer::Phase;

    /// The request below, written by the protocol's own implementation for Python (opentelemetry-proto 1.45).
    const THEIRS: &[u8] = include_bytes!("../../../../testdata/vectors/otlp_export.bin");

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A call that failed while its tool ran.
    fn traced() -> TracedCall {
        let ids = SpanIds::from_bytes([5; 8]);
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let phase = |phase: Phase, from, to| PhaseSpan {
            phase,
            id: ids.get(1 + phase as u8),
            started: ms(from),
            ended: ms(to),
        };
        TracedCall {
            context: TraceContext::read(parent, ["vendor=1"]).unwrap(),
            span: ids.get(0),
            invocation_id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
            started_at: UnixMillis(1_000),
            started: ms(10),
            ended: ms(60),
            phases: vec![phase(Phase::Receive, 10, 20), phase(Phase::Execute, 20, 50), phase(Phase::Return, 50, 60)],
            stopped_in: Some(Phase::Execute),
            outward: vec![OutwardSpan {
                id: ids.get(9),
                parent: ids.get(1 + Phase::Execute as u8),
                what: OutwardCall::Mcp { method: "tools/call", server: "files".into(), tool: "secret-tool".into() },
                started: ms(21),
                ended: ms(49),
                failed: Some(ErrorCode::E3502),
                cut_off: false,
            }],
            tool: None,
            tenant: Some("acme".parse().unwrap()),
            agent: Some("agent-7".parse().unwrap()),
            status: InvocationStatus::Error,
            code: Some(ErrorCode::E3502),
            replayed: false,
            costs: contract::cost::Costs::default(),
        }
    }

    #[test]
    fn a_call_is_written_as_the_protocols_own_implementation_writes_it() {
        let hide = TraceRedaction::new(|text| text.replace("secret", "[REDACTED]").into());
        let (trace, resource) = (traced(), [("service.name", "gantry")]);
        let ours = export_request(&resource, ("gantry", "0.1.0"), 0, |to| SpanMaker::new(&hide).write(&trace, to));
        assert!(ours == THEIRS, "{}", ours.escape_ascii());
    }

    #[test]
    fn every_code_has_one_of_the_status_words() {
        assert_eq!(word(InvocationStatus::Success, None), "SUCCESS");
        for (status, code, expected) in [
            (InvocationStatus::Error, ErrorCode::E3301, "INVALID_INPUT"),
            (InvocationStatus::Error, ErrorCode::E3101, "INVALID_INPUT"),
            (InvocationStatus::PermissionDenied, ErrorCode::E3206, "AUTHORIZATION_DENIED"),
            (InvocationStatus::Timeout, ErrorCode::E3402, "DEADLINE_EXCEEDED"),
            (InvocationStatus::Error, ErrorCode::E3401, "EXECUTION_FAILED"),
            (InvocationStatus::Error, ErrorCode::E3303, "OUTPUT_SCHEMA_VIOLATION"),
            (InvocationStatus::Indeterminate, ErrorCode::E3413, "SIDE_EFFECT_INCONSISTENCY"),
        ] {
            assert_eq!(word(status, Some(code)), expected, "{code}");
        }
    }
}
