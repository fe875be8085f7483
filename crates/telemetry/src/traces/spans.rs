//! One call as spans: `tool.invoke`, a child for each phase, and below the phase that runs the tool what it called.
//!
//! Names and attributes follow the semantic conventions where there are some (`gen_ai.*`, `mcp.*`, `error.type`); the rest is
//! `gantry.*`, and `latencyMs` and `cost` as OBS-003 has them. Values that somebody else has chosen go through the redaction.
//!
//! Not here: parameters, results, messages of errors. A span says what happened and where, not with what.

use std::time::Duration;

use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, ErrorKind};
use contract::trace_context::SpanId;
use kernel::journey::{OutwardCall, OutwardSpan};
use kernel::ports::observer::Traced;

use super::Redaction;
use super::otlp::{Any, Attribute, Span, SpanKind, Status};

/// Characters of a value that somebody else has chosen.
const VALUE_CHARS_MAX: usize = 256;
/// Flags: sampled; whether the parent is elsewhere is known; it is.
const SAMPLED: u32 = 0x01;
const KNOWN: u32 = 0x100;
const REMOTE: u32 = 0x200;

/// The spans of one call.
pub(super) fn spans(trace: &Traced, redaction: &Redaction) -> Vec<Span> {
    let maker = Maker { trace, redaction };
    let mut spans = Vec::with_capacity(1 + trace.phases.len() + trace.outward.len());
    spans.push(maker.call());
    spans.extend(trace.phases.iter().map(|phase| {
        let failed = (trace.stopped_in == Some(phase.phase)).then_some(trace.code).flatten();
        let name = phase.phase.as_str();
        let mut span = maker.span(name.to_owned(), SpanKind::Internal, phase.id, (phase.started, phase.ended));
        span.parent_span_id = Some(trace.span.to_bytes());
        span.attributes.push(own("gantry.phase", name));
        ended(&mut span, failed.map(|code| (word(trace.status, Some(code)), code.as_str())));
        span
    }));
    spans.extend(trace.outward.iter().map(|outward| maker.outward(outward)));
    spans
}

struct Maker<'a> {
    trace: &'a Traced,
    redaction: &'a Redaction,
}

impl Maker<'_> {
    /// The call as a whole.
    fn call(&self) -> Span {
        let trace = self.trace;
        let mut span = self.span("tool.invoke".to_owned(), SpanKind::Server, trace.span, (trace.started, trace.ended));
        span.parent_span_id = trace.context.parent.map(SpanId::to_bytes);
        if trace.context.parent.is_some() {
            span.flags |= REMOTE;
        }
        let word = word(trace.status, trace.code);
        let attributes = &mut span.attributes;
        // Whoever has chosen it: a UUID holds nothing that must not be seen.
        attributes.push(attribute("gantry.invocation.id", Any::Text(trace.invocation_id.to_string())));
        attributes.push(own("gantry.status", word));
        if let Some(tool) = &trace.tool {
            attributes.push(self.text("gantry.tool.id", tool.id.as_str()));
            attributes.push(self.text("gantry.tool.version", &tool.version.to_string()));
            attributes.push(own("gantry.side_effect_policy", tool.manifest.side_effect_policy.as_str()));
            attributes.push(self.text("cost", &trace.costs.total().to_string()));
            if !trace.costs.is_zero() {
                attributes.push(self.text("gantry.cost.currency", trace.costs.currency.as_str()));
            }
        }
        if let Some(tenant) = &trace.tenant {
            attributes.push(self.text("gantry.tenant.id", tenant.as_str()));
        }
        if let Some(agent) = &trace.agent {
            attributes.push(self.text("gen_ai.agent.id", agent.as_str()));
        }
        let millis = trace.ended.saturating_sub(trace.started).as_millis();
        attributes.push(attribute("latencyMs", Any::Number(i64::try_from(millis).unwrap_or(i64::MAX))));
        if trace.replayed {
            attributes.push(attribute("gantry.replayed", Any::Flag(true)));
        }
        ended(&mut span, trace.code.map(|code| (word, code.as_str())));
        span
    }

    /// Something the call called.
    fn outward(&self, outward: &OutwardSpan) -> Span {
        let tool = self.trace.tool.as_ref().map_or("", |tool| tool.id.as_str());
        let (name, kind) = match &outward.what {
            OutwardCall::Executor(_) => (format!("execute_tool {tool}"), SpanKind::Internal),
            OutwardCall::Mcp { method, tool, .. } => (format!("{method} {tool}"), SpanKind::Client),
        };
        let mut span = self.span(self.clean(&name), kind, outward.id, (outward.started, outward.ended));
        span.parent_span_id = Some(outward.parent.to_bytes());
        let attributes = &mut span.attributes;
        attributes.push(own("gen_ai.operation.name", "execute_tool"));
        match &outward.what {
            OutwardCall::Executor(kind) => {
                attributes.push(self.text("gen_ai.tool.name", tool));
                attributes.push(attribute("gen_ai.tool.call.id", Any::Text(self.trace.invocation_id.to_string())));
                attributes.push(self.text("gantry.executor", kind));
            }
            OutwardCall::Mcp { method, server, tool } => {
                attributes.push(self.text("gen_ai.tool.name", tool));
                attributes.push(self.text("mcp.method.name", method));
                attributes.push(self.text("gantry.upstream.server", server));
            }
        }
        let failed = match (outward.failed, outward.cut_off) {
            (Some(code), _) => Some((word(InvocationStatus::Error, Some(code)), code.as_str())),
            (None, true) => Some((word(self.trace.status, self.trace.code), "cut_off")),
            (None, false) => None,
        };
        ended(&mut span, failed);
        span
    }

    fn span(&self, name: String, kind: SpanKind, id: SpanId, (from, to): (Duration, Duration)) -> Span {
        let context = &self.trace.context;
        Span {
            trace_id: context.trace_id.to_bytes(),
            span_id: id.to_bytes(),
            trace_state: self.state(context.tracestate().unwrap_or_default()),
            parent_span_id: None,
            name,
            kind,
            start_time_unix_nano: self.nanos(from),
            end_time_unix_nano: self.nanos(to.max(from)),
            attributes: Vec::new(),
            status: Status::Ok,
            flags: SAMPLED | KNOWN,
        }
    }

    /// A moment of the kernel's own clock, by the calendar.
    fn nanos(&self, moment: Duration) -> u64 {
        let begun = u64::try_from(self.trace.started_at.0).unwrap_or(0).saturating_mul(1_000_000);
        let since = moment.saturating_sub(self.trace.started).as_nanos();
        begun.saturating_add(u64::try_from(since).unwrap_or(u64::MAX))
    }

    fn text(&self, key: &str, value: &str) -> Attribute {
        attribute(key, Any::Text(self.clean(value)))
    }

    /// TRA-3. The caller has written it; with words in it that are not its own it would be none, so it goes as a whole.
    fn state(&self, text: &str) -> String {
        match self.redaction.apply(text) {
            redacted if *redacted == *text => text.to_owned(),
            _ => String::new(),
        }
    }

    /// TRA-3, and short enough.
    fn clean(&self, text: &str) -> String {
        let clean = self.redaction.apply(text);
        if clean.len() <= VALUE_CHARS_MAX {
            return clean.into_owned();
        }
        clean.chars().take(VALUE_CHARS_MAX).collect()
    }
}

fn attribute(key: &str, value: Any) -> Attribute {
    (key.to_owned(), value)
}

/// A word of our own, which needs no redaction.
fn own(key: &str, word: &'static str) -> Attribute {
    attribute(key, Any::Text(word.to_owned()))
}

/// How a span ended: well, or with a status word and a type of error.
fn ended(span: &mut Span, failed: Option<(&'static str, &'static str)>) {
    if let Some((word, kind)) = failed {
        span.attributes.push(attribute("error.type", Any::Text(kind.to_owned())));
        span.status = Status::Error(word.to_owned());
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
    use super::super::otlp::ExportRequest;
    use super::*;
    use contract::trace_context::{SpanIds, TraceContext};
    use kernel::ports::clock::UnixMillis;
    use kernel::ports::observer::{Phase, PhaseSpan};

    /// The request below, written by the protocol's own implementation for Python (opentelemetry-proto 1.45).
    const THEIRS: &[u8] = include_bytes!("../../../../testdata/vectors/otlp_export.bin");

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// A call that failed while its tool ran.
    fn traced() -> Traced {
        let ids = SpanIds::from_bytes([5; 8]);
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let phase = |phase: Phase, from, to| PhaseSpan {
            phase,
            id: ids.get(1 + phase as u8),
            started: ms(from),
            ended: ms(to),
        };
        Traced {
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
        let hide = Redaction::new(|text| text.replace("secret", "[REDACTED]").into());
        let spans = spans(&traced(), &hide);
        let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
        assert_eq!(names, ["tool.invoke", "receive", "execute", "return", "tools/call [REDACTED]-tool"]);
        let resource = vec![attribute("service.name", Any::Text("gantry".into()))];
        let ours = ExportRequest { resource, scope: ("gantry".into(), "0.1.0".into()), spans }.encoded();
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
