//! What a command says when it did not succeed: what happened, every reason, and what to do.
//!
//! One type for every command, because people should learn one shape: `error[E3101]: there is no tool …`, reasons
//! indented below, what a failed tool said in a frame, then a `hint:` line. Refusals of the kernel and problem documents of a server become the same.
//!
//! Invariant: a failure never carries a secret. Paths may be in it: they are the caller's own.
//!
//! Not here: how it looks (`printer`).

use contract::error::{ErrorCode, Refusal};
use serde_json::{Value, json};

/// Most lines of a failed tool that are shown.
const TOOL_LINES_MAX: usize = 40;

/// What the exit code says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitStatus {
    /// 1: the operation failed or was refused.
    Failed,
    /// 2: the command was not used rightly.
    Usage,
}

/// Why a command did not succeed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CommandFailure {
    /// The row of the error table, where there is one.
    pub(crate) code: Option<String>,
    pub(crate) message: String,
    /// Every single reason, where there are several.
    pub(crate) reasons: Vec<String>,
    pub(crate) hint: Option<String>,
    pub(crate) exit: ExitStatus,
    /// What the server said in full, for `--json`.
    document: Option<Box<Value>>,
}

impl CommandFailure {
    /// The operation failed.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self {
            code: None,
            message: message.into(),
            reasons: Vec::new(),
            hint: None,
            exit: ExitStatus::Failed,
            document: None,
        }
    }

    /// The command was not used rightly.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { exit: ExitStatus::Usage, ..Self::new(message) }
    }

    /// Names the row of the error table.
    #[must_use]
    pub(crate) fn code(self, code: ErrorCode) -> Self {
        Self { code: Some(code.to_string()), ..self }
    }

    /// Is it about this code of the error table?
    pub(crate) fn has_code(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }

    /// Does the server say that this is missing?
    pub(crate) fn misses(&self, what: &str) -> bool {
        let missing = self.document.as_deref().and_then(|document| document.pointer("/error/details/missing"));
        missing.and_then(Value::as_str) == Some(what)
    }

    /// What a failed tool said, line by line, as far as the server shows it to this caller.
    pub(crate) fn tool_words(&self) -> Vec<String> {
        self.document.as_deref().map(tool_words).unwrap_or_default()
    }

    /// Says what to do.
    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }

    /// Adds every single reason.
    #[must_use]
    pub(crate) fn reasons(self, reasons: Vec<String>) -> Self {
        Self { reasons, ..self }
    }

    /// From the problem document a server answered with; `None` if it is not one of ours.
    pub(crate) fn from_problem(document: Value) -> Option<Self> {
        let error = document.get("error")?;
        if error.is_string() {
            return Self::from_oauth(document);
        }
        let text = |member: &str| error.get(member).and_then(Value::as_str).map(str::to_owned);
        let reasons = error.get("details").map(reasons_in).unwrap_or_default();
        let failure = Self {
            code: Some(text("code")?),
            message: without_reasons(&text("message")?, &reasons),
            reasons,
            hint: text("resolution"),
            exit: ExitStatus::Failed,
            document: None,
        };
        Some(Self { document: Some(Box::new(document)), ..failure })
    }

    /// From a refusal in the form of RFC 6749, which has our own code beside the standard's word.
    fn from_oauth(document: Value) -> Option<Self> {
        let text = |member: &str| document.get(member).and_then(Value::as_str).map(str::to_owned);
        let failure = Self { code: Some(text("code")?), ..Self::new(text("error_description")?) };
        Some(Self { document: Some(Box::new(document)), ..failure })
    }

    /// The one JSON document that `--json` prints.
    pub(crate) fn to_json(&self) -> Value {
        self.document.as_deref().cloned().unwrap_or_else(|| {
            json!({ "error": {
                "code": self.code, "message": self.message, "reasons": self.reasons, "resolution": self.hint,
            } })
        })
    }
}

impl From<Refusal> for CommandFailure {
    fn from(refusal: Refusal) -> Self {
        let reasons = refusal.details.as_deref().map(reasons_in).unwrap_or_default();
        Self {
            code: Some(refusal.code.to_string()),
            hint: Some(refusal.resolution().to_owned()),
            message: without_reasons(&refusal.message, &reasons),
            reasons,
            exit: ExitStatus::Failed,
            document: None,
        }
    }
}

/// The blocks of an MCP server, and what a program wrote. Where nobody knows whether it did something, they stand a level deeper.
fn tool_words(document: &Value) -> Vec<String> {
    let blocks = ["/error/details/content", "/error/details/details/content"];
    let blocks = blocks.iter().filter_map(|place| document.pointer(place)?.as_array()).flatten();
    let texts = blocks.filter_map(|block| block.get("text")).chain(document.get("output"));
    let mut lines: Vec<String> = texts.filter_map(Value::as_str).flat_map(str::lines).map(str::to_owned).collect();
    // The last lines of a long output are those that say why.
    let more = lines.len().saturating_sub(TOOL_LINES_MAX);
    if more > 0 {
        lines.splice(..more, [format!("… {more} lines more, with --json")]);
    }
    lines
}

/// Messages for the wire repeat their reasons; here each reason has a line of its own.
fn without_reasons(message: &str, reasons: &[String]) -> String {
    let head = reasons.first().and_then(|first| message.split_once(first.as_str())).map_or(message, |(head, _)| head);
    head.trim_end_matches([' ', ':', '[']).to_owned()
}

/// The `{ path, message }` pairs of an error's details, whatever the list is called.
fn reasons_in(details: &Value) -> Vec<String> {
    let lists =
        ["reasons", "violations", "errors", "problems"].into_iter().filter_map(|name| details.get(name)?.as_array());
    lists
        .flatten()
        .filter_map(|reason| match reason {
            Value::String(text) => Some(text.clone()),
            other => {
                let message = other.get("message")?.as_str()?;
                match other.get("path").and_then(Value::as_str) {
                    Some(path) if !path.is_empty() => Some(format!("{path}: {message}")),
                    _ => Some(message.to_owned()),
                }
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_document_and_the_refusal_behind_it_read_alike() {
        let details =
            json!({ "reasons": [{ "path": "/version", "message": "is missing" }, { "path": "", "message": "x" }] });
        let refusal =
            Refusal::new(ErrorCode::E3105, "the manifest is not admitted").hint("mend it").details(details.clone());
        let problem = json!({ "status": "error", "error": {
            "code": "E3105", "message": "the manifest is not admitted", "resolution": "mend it", "details": details,
        } });
        let (local, remote) = (CommandFailure::from(refusal), CommandFailure::from_problem(problem.clone()).unwrap());
        assert_eq!(local.reasons, ["/version: is missing", "x"]);
        assert_eq!(
            (&local.code, &local.message, &local.reasons, &local.hint),
            (&remote.code, &remote.message, &remote.reasons, &remote.hint)
        );
        assert_eq!(remote.to_json(), problem, "--json shows what the server said, in full");
    }

    #[test]
    fn what_a_failed_tool_said_is_told_and_its_end_if_it_is_long() {
        let problem = |details: Value, output: Value| {
            let document =
                json!({ "error": { "code": "E3401", "message": "failed", "details": details }, "output": output });
            CommandFailure::from_problem(document).unwrap().tool_words()
        };
        let blocks = json!({ "content": [{ "type": "text", "text": "denied\nfor you" }, { "type": "image" }, 7] });
        assert_eq!(problem(blocks.clone(), Value::Null), ["denied", "for you"]);
        assert_eq!(problem(json!({ "code": "E3502", "details": blocks }), Value::Null), ["denied", "for you"]);
        assert_eq!(problem(json!({ "exit_code": 3 }), json!("Traceback\nboom\n")), ["Traceback", "boom"]);
        assert_eq!(problem(Value::Null, Value::Null), Vec::<String>::new());
        let many: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        let shown = problem(Value::Null, json!(many.join("\n")));
        assert_eq!((shown.len(), shown[0].as_str(), shown[40].as_str()), (41, "… 60 lines more, with --json", "99"));
    }

    #[test]
    fn reasons_are_not_said_twice() {
        for (message, reasons, expected) in [
            ("not admitted: /a: is missing", vec!["/a: is missing".to_owned()], "not admitted"),
            (
                "not admitted for 2 reasons: [/a: x] [/b: y]",
                vec!["/a: x".into(), "/b: y".into()],
                "not admitted for 2 reasons",
            ),
            ("something else", vec!["/a: x".into()], "something else"),
            ("nothing more", vec![], "nothing more"),
        ] {
            assert_eq!(without_reasons(message, &reasons), expected);
        }
    }

    #[test]
    fn a_refusal_in_the_form_of_oauth_is_one_of_ours_if_it_has_our_code() {
        let ours =
            json!({ "error": "invalid_scope", "error_description": "too much", "code": "E3206", "trace_id": "x" });
        let failure = CommandFailure::from_problem(ours.clone()).unwrap();
        assert_eq!((failure.code.as_deref(), failure.message.as_str()), (Some("E3206"), "too much"));
        assert_eq!(failure.to_json(), ours);
        assert_eq!(CommandFailure::from_problem(json!({ "error": "invalid_scope", "error_description": "x" })), None);
    }

    #[test]
    fn an_answer_of_some_other_server_is_not_taken_for_ours() {
        for other in [json!({}), json!({ "error": "nope" }), json!([1]), Value::Null] {
            assert_eq!(CommandFailure::from_problem(other), None);
        }
    }
}
