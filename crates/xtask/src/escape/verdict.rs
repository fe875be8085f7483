//! What came of a probe, and what that means.
//!
//! Only two things count as blocked: the tool itself says that it got nothing, or the call ended with a code that the
//! list expects. Everything else counts against the sandbox, also what merely looks like a mistake in the probe, because
//! a suite that is kind to itself shows nothing.

use serde::Serialize;
use serde_json::Value;

use super::registry::{BareProbe, EscapeProbe, REPORTED};

/// The code of a server that cannot give the isolation a tool demands.
pub(crate) const NO_SUCH_ISOLATION: &str = "E3405";

/// What came of a call through the gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "how", rename_all = "snake_case")]
pub(crate) enum ProbeOutcome {
    Blocked(String),
    Escaped(String),
    /// Neither: another code, another answer, or a failure of the probe.
    Unclear(String),
    /// The server does not offer this isolation.
    Unavailable(String),
    /// The probe has nothing to try there, or must not be run there.
    Inapplicable(String),
}

/// What came of a run outside any sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "outcome", content = "how", rename_all = "snake_case")]
pub(crate) enum BareOutcome {
    Works,
    /// This machine's kernel does not have what the probe is after.
    Absent(String),
    /// It should have worked and did not: as a probe it proves nothing.
    Fails(String),
    NeverRun,
    NotShown(String),
}

impl ProbeOutcome {
    /// The word in the table. Trouble is in capitals.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Blocked(_) => "blocked",
            Self::Escaped(_) => "ESCAPED",
            Self::Unclear(_) => "UNCLEAR",
            Self::Unavailable(_) => "refused",
            Self::Inapplicable(_) => "—",
        }
    }
}

impl BareOutcome {
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Absent(_) => "absent",
            Self::Fails(_) => "FAILS",
            Self::NeverRun => "never",
            Self::NotShown(_) => "—",
        }
    }
}

/// Judges the answer of the gateway.
pub(crate) fn of_answer(expect: &[String], answer: &Value) -> ProbeOutcome {
    let code = answer.pointer("/error/code").and_then(Value::as_str);
    let expected = |what: &str| expect.iter().any(|one| one == what);
    if let Some(code) = code {
        let message = answer.pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
        return match code {
            _ if expected(code) => ProbeOutcome::Blocked(code.to_owned()),
            NO_SUCH_ISOLATION => ProbeOutcome::Unavailable(message.to_owned()),
            _ => ProbeOutcome::Unclear(format!("{code}: {message}")),
        };
    }
    let result = answer.get("result").unwrap_or(&Value::Null);
    match result.get("escaped").and_then(Value::as_bool) {
        Some(true) => ProbeOutcome::Escaped(said(result)),
        Some(false) if expected(REPORTED) => ProbeOutcome::Blocked(said(result)),
        Some(false) => ProbeOutcome::Unclear(format!("it answered, but `{}` was expected", expect.join("` or `"))),
        None => ProbeOutcome::Unclear("an answer without `escaped` came through".to_owned()),
    }
}

/// Judges a run outside: `said` is what the probe wrote, `left` whether it left a process behind.
pub(crate) fn of_bare(probe: &EscapeProbe, written: &[u8], left: bool) -> BareOutcome {
    let answer: Value = serde_json::from_slice(written).unwrap_or_default();
    let escaped = answer.get("escaped").and_then(Value::as_bool);
    match (probe.bare, escaped) {
        (BareProbe::Never, _) => BareOutcome::NeverRun,
        (BareProbe::None, _) => BareOutcome::NotShown(probe.why.clone().unwrap_or_default()),
        (BareProbe::Leaves, Some(false)) if left => BareOutcome::Works,
        (BareProbe::Leaves, _) => BareOutcome::Fails("it left nothing behind".to_owned()),
        (BareProbe::Reports | BareProbe::IfThere, Some(true)) => BareOutcome::Works,
        (BareProbe::IfThere, Some(false)) => BareOutcome::Absent(said(&answer)),
        (BareProbe::Reports, Some(false)) => BareOutcome::Fails(said(&answer)),
        (BareProbe::Reports | BareProbe::IfThere, None) => BareOutcome::Fails("the probe itself failed".to_owned()),
    }
}

/// The probe's own words.
fn said(result: &Value) -> String {
    let text = |name| result.get(name).and_then(Value::as_str).unwrap_or_default();
    match (text("how"), text("detail")) {
        (how, "") => how.to_owned(),
        (how, detail) => format!("{how} ({detail})"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn probe(expect: &[&str], bare: BareProbe) -> EscapeProbe {
        let row = json!({ "id": "p", "title": "t", "expect": expect });
        EscapeProbe { bare, ..serde_json::from_value(row).unwrap() }
    }

    #[test]
    fn only_what_is_expected_counts_as_blocked() {
        let code = |code: &str| json!({ "error": { "code": code, "message": "m" } });
        let said = |escaped: bool| json!({ "result": { "escaped": escaped, "how": "h" } });
        for (expect, answer, word) in [
            (&["reported"][..], said(false), "blocked"),
            (&["reported"], said(true), "ESCAPED"),
            (&["reported"], code("E3401"), "UNCLEAR"),
            (&["reported"], code("E3405"), "refused"),
            (&["reported"], json!({ "result": {} }), "UNCLEAR"),
            (&["reported"], Value::Null, "UNCLEAR"),
            (&["E3402"], code("E3402"), "blocked"),
            (&["E3402"], code("E3404"), "UNCLEAR"),
            (&["E3402"], said(false), "UNCLEAR"),
            (&["E3402"], said(true), "ESCAPED"),
            (&["E3401", "E3405"], code("E3405"), "blocked"),
            (&["reported", "E3407"], code("E3407"), "blocked"),
        ] {
            let expected: Vec<String> = expect.iter().map(ToString::to_string).collect();
            assert_eq!(of_answer(&expected, &answer).word(), word, "{expect:?} {answer}");
        }
    }

    #[test]
    fn a_probe_that_does_not_work_outside_proves_nothing() {
        let (yes, no, junk) = (&br#"{"escaped": true}"#[..], &br#"{"escaped": false}"#[..], &b"Traceback"[..]);
        for (bare, written, left, word) in [
            (BareProbe::Reports, yes, false, "works"),
            (BareProbe::Reports, no, false, "FAILS"),
            (BareProbe::Reports, junk, false, "FAILS"),
            (BareProbe::IfThere, yes, false, "works"),
            (BareProbe::IfThere, no, false, "absent"),
            (BareProbe::IfThere, junk, false, "FAILS"),
            (BareProbe::Leaves, no, true, "works"),
            (BareProbe::Leaves, no, false, "FAILS"),
            (BareProbe::Never, b"", false, "never"),
            (BareProbe::None, b"", false, "—"),
        ] {
            assert_eq!(of_bare(&probe(&["reported"], bare), written, left).word(), word, "{bare:?}");
        }
    }
}
