//! The trace a call belongs to, as W3C Trace Context (level 2) writes it: `traceparent` and `tracestate`. (OBS-002)
//!
//! Read strictly: a `traceparent` that breaks the standard is as good as none, and a `tracestate` with one bad member is
//! dropped as a whole, because half of what others have left there could mean something else. What is handed on has the
//! caller's trace id, flags and state, and always another parent: the span that sends it.
//!
//! Invariants
//! - TRC-1: neither a trace id nor a span id is ever zero.
//! - TRC-2: a `tracestate` without a valid `traceparent` does not exist.
//!
//! Not here: who samples and who exports (`telemetry`), and in which header or member it travels (the doors, `upstreams`).

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use crate::ids::TraceId;

/// Members of a `tracestate`; the standard allows no more.
const MEMBERS_MAX: usize = 32;
/// Characters of a key and of a value.
const KEY_CHARS_MAX: usize = 256;
const VALUE_CHARS_MAX: usize = 256;
/// Flag: whoever sent it records this trace.
const SAMPLED: u8 = 0b01;
/// Flag: the trace id is random.
const RANDOM: u8 = 0b10;
/// How many ids a [`SpanIds`] has.
const IDS: u64 = 64;

/// One span, written as 16 hex digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(NonZeroU64);

impl SpanId {
    /// From a number; `None` if it is zero.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// As it goes over the wire.
    pub fn to_bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// The ids of all spans of one call, from one random number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanIds(NonZeroU64);

impl SpanIds {
    /// From random bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Self {
        // The highest bit keeps it from being zero, the lowest are the counter's.
        let base = (u64::from_be_bytes(bytes) | 1 << 63) & !(IDS - 1);
        Self(NonZeroU64::new(base).unwrap_or(NonZeroU64::MAX))
    }

    /// The id with this number. Past the last one they begin anew, so whoever counts keeps a bound below it.
    pub fn get(self, number: u8) -> SpanId {
        SpanId(self.0 | (u64::from(number) % IDS))
    }
}

/// Where a call comes from in a trace, or what is handed on of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    pub trace_id: TraceId,
    /// The span of whoever sent it; `None` if the trace begins here.
    pub parent: Option<SpanId>,
    flags: u8,
    state: Option<Arc<str>>,
}

impl TraceContext {
    /// A trace that begins here, or of which nothing but the id is known.
    pub fn begun(trace_id: TraceId) -> Self {
        Self { trace_id, parent: None, flags: RANDOM, state: None }
    }

    /// Reads what came in. `None` if `traceparent` is not valid (then a new trace is begun).
    ///
    /// ```
    /// use gantry_contract::trace_context::TraceContext;
    /// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let context = TraceContext::read(parent, ["vendor=1"]).unwrap();
    /// assert_eq!(context.traceparent().as_deref(), Some(parent));
    /// assert_eq!(context.tracestate(), Some("vendor=1"));
    /// ```
    pub fn read<'a>(traceparent: &str, tracestate: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let traceparent = traceparent.trim_matches([' ', '\t']);
        let trace_id = TraceId::from_traceparent(traceparent)?;
        let mut parts = traceparent.split('-').skip(2);
        let parent = SpanId::new(u64::from_str_radix(parts.next()?, 16).ok()?)?;
        let flags = u8::from_str_radix(parts.next()?, 16).ok()? & (SAMPLED | RANDOM);
        Some(Self { trace_id, parent: Some(parent), flags, state: state(tracestate) })
    }

    /// Does whoever sent it record the trace?
    pub fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    /// What is handed on from this span.
    #[must_use]
    pub fn from_span(&self, span: SpanId, sampled: bool) -> Self {
        let flags = (self.flags & !SAMPLED) | if sampled { SAMPLED } else { 0 };
        Self { parent: Some(span), flags, ..self.clone() }
    }

    /// The header; `None` for a trace without a span.
    pub fn traceparent(&self) -> Option<String> {
        let Self { trace_id, flags, .. } = self;
        self.parent.map(|parent| format!("00-{trace_id}-{parent}-{flags:02x}"))
    }

    /// The other header, if there is something in it.
    pub fn tracestate(&self) -> Option<&str> {
        self.state.as_deref()
    }
}

/// All members of all headers in their order, or nothing.
fn state<'a>(headers: impl IntoIterator<Item = &'a str>) -> Option<Arc<str>> {
    let mut members: Vec<&str> = Vec::new();
    for member in headers.into_iter().flat_map(|header| header.split(',')) {
        let member = member.trim_matches([' ', '\t']);
        if member.is_empty() {
            continue;
        }
        let (key, value) = member.split_once('=')?;
        // Of two with the same key nobody knows which is meant.
        let again = members.iter().any(|known| known.split_once('=').is_some_and(|(known, _)| known == key));
        if !is_key(key) || !is_value(value) || again || members.len() == MEMBERS_MAX {
            return None;
        }
        members.push(member);
    }
    (!members.is_empty()).then(|| members.join(",").into())
}

fn is_key(key: &str) -> bool {
    let first = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let rest = |byte: u8| first(byte) || b"_-*/@".contains(&byte);
    key.len() <= KEY_CHARS_MAX && key.bytes().next().is_some_and(first) && key.bytes().all(rest)
}

fn is_value(value: &str) -> bool {
    let plain = |byte: u8| (0x20..=0x7e).contains(&byte) && byte != b',' && byte != b'=';
    value.len() <= VALUE_CHARS_MAX && value.bytes().all(plain) && !value.is_empty() && !value.ends_with(' ')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    /// Cases of the W3C's own test suite.
    const VECTORS: &str = include_str!("../../../testdata/vectors/trace_context_dev.jsonl");

    /// Reads headers as a door does.
    fn read(headers: &[(String, String)]) -> Option<TraceContext> {
        let named = |name: &'static str| {
            headers.iter().filter(move |(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
        };
        let mut parents = named("traceparent");
        match (parents.next(), parents.next()) {
            (Some(parent), None) => TraceContext::read(parent, named("tracestate")),
            _ => None,
        }
    }

    #[test]
    fn what_the_standards_own_suite_expects_is_handed_on() {
        let fresh = TraceContext::begun(TraceId::from_bytes([9; 16]));
        let mut checked = 0;
        for line in VECTORS.lines() {
            let case: Value = serde_json::from_str(line).unwrap();
            let headers: Vec<(String, String)> = serde_json::from_value(case["headers"].clone()).unwrap();
            let own = SpanIds::from_bytes([7; 8]).get(0);
            let on = read(&headers).unwrap_or_else(|| fresh.clone()).from_span(own, true);
            let parent = on.traceparent().unwrap();
            let flags = u8::from_str_radix(parent.rsplit('-').next().unwrap(), 16).unwrap();
            let state: Vec<(&str, &str)> =
                on.tracestate().unwrap_or_default().split(',').filter_map(|member| member.split_once('=')).collect();
            let found = |name: &str| match name.strip_prefix("ts:") {
                Some(key) => state.iter().find(|(known, _)| *known == key).map(|(_, value)| (*value).to_owned()),
                None if name == "trace_id" => Some(on.trace_id.to_string()),
                None => on.parent.map(|parent| parent.to_string()),
            };
            for expected in case["expect"].as_array().unwrap() {
                let word = |n: usize| expected[n].as_str().unwrap_or_default();
                let holds = match word(0) {
                    "equal" => found(word(1)).as_deref() == Some(word(2)),
                    "not_equal" => found(word(1)).as_deref() != Some(word(2)),
                    "tracestate_has" => state.iter().any(|(key, _)| *key == word(1)),
                    "tracestate_lacks" => state.iter().all(|(key, _)| *key != word(1)),
                    "flag_bit_kept" => u64::from(flags) & expected[1].as_u64().unwrap() != 0,
                    other => panic!("a kind of expectation nobody knows: {other}"),
                };
                assert!(holds, "{}: {expected}, but {parent} {:?}", case["id"], on.tracestate());
                checked += 1;
            }
        }
        assert!(checked >= 30, "{checked}");
    }

    #[test]
    fn a_state_with_one_bad_member_is_dropped_and_the_trace_goes_on() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";
        let many = |n: usize| (0..n).map(|n| format!("k{n}=1")).collect::<Vec<_>>().join(",");
        let long = |n: usize| format!("a={}", "v".repeat(n));
        for (state, kept) in [
            ("a=1, b=2".to_owned(), true),
            (",,a=1,".to_owned(), true),
            (many(32), true),
            (many(33), false),
            (long(256), true),
            (long(257), false),
            ("a=".to_owned(), false),
            ("A=1".to_owned(), false),
            ("@a=1".to_owned(), false),
            ("a =1".to_owned(), false),
            ("a.b=1".to_owned(), false),
            ("a".to_owned(), false),
            ("a=1,a=2".to_owned(), false),
            ("a=\u{7f}".to_owned(), false),
            ("a=é".to_owned(), false),
            (String::new(), false),
        ] {
            let context = TraceContext::read(parent, [state.as_str()]).unwrap();
            assert_eq!(context.tracestate().is_some(), kept, "{state}");
            assert!(!context.is_sampled());
        }
    }

    #[test]
    fn all_ids_of_a_call_are_different_and_none_is_zero() {
        for bytes in [[0; 8], [255; 8], [1, 2, 3, 4, 5, 6, 7, 8]] {
            let ids = SpanIds::from_bytes(bytes);
            let all: std::collections::HashSet<SpanId> = (0..64).map(|n| ids.get(n)).collect();
            assert_eq!(all.len(), 64);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn whatever_comes_in_what_goes_out_can_be_read_again(parent in ".{0,80}", state in ".{0,80}") {
            if let Some(context) = TraceContext::read(&parent, [state.as_str()]) {
                let again = TraceContext::read(&context.traceparent().unwrap(), context.tracestate()).unwrap();
                prop_assert_eq!(again, context);
            }
        }
        #[test]
        fn a_valid_header_is_read_as_it_was_written(trace in 1u128.., span in 1u64.., flags in 0u8..4) {
            let header = format!("00-{trace:032x}-{span:016x}-{flags:02x}");
            let context = TraceContext::read(&header, []).unwrap();
            prop_assert_eq!(context.traceparent().unwrap(), header);
        }
    }
}
