//! Tool words: what a tool or its server has said of a failure, and the faults that were found in an input, in the details of a
//! refusal.
//!
//! They are handed on, and nobody decides by them: for that there is the reason. They stand in the details only, because masks
//! and redactors work there, and a second copy would get past them. The names of their members are known here.

use serde::Deserialize;
use serde_json::Value;

use super::{Refusal, RefusalReason};

/// Blocks of an MCP answer.
pub const CONTENT: &str = "content";
/// The structured part of an MCP answer.
pub const STRUCTURED: &str = "structuredContent";
/// What the server of an imported tool says beside its answer.
pub const META: &str = "_meta";
/// What a tool says beside the message of its failure.
pub const TOOL_DATA: &str = "tool_data";
/// The data of an MCP server's error of the protocol.
pub const UPSTREAM_DATA: &str = "upstream_data";
/// Members that hold what a tool or its server said.
pub const TOOL_WORDS: [&str; 5] = [CONTENT, STRUCTURED, META, TOOL_DATA, UPSTREAM_DATA];

/// Where the faults of an input stand.
const FAULTS: &str = "errors";

/// Words of a tool or its server, as far as they may still be seen.
#[derive(Debug, Clone, Copy)]
pub struct ToolWords<'a>(Option<&'a Value>);

impl<'a> ToolWords<'a> {
    /// Content blocks.
    pub fn content(self) -> Option<&'a Value> {
        self.member(CONTENT)
    }

    /// The structured part.
    pub fn structured(self) -> Option<&'a Value> {
        self.member(STRUCTURED)
    }

    /// What was said beside it.
    pub fn meta(self) -> Option<&'a Value> {
        self.member(META)
    }

    /// The data of a server's error.
    pub fn upstream_data(self) -> Option<&'a Value> {
        self.member(UPSTREAM_DATA)
    }

    fn member(self, name: &str) -> Option<&'a Value> {
        self.0?.get(name)
    }
}

/// Fault of an input: where, and what is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default)]
pub struct InputFault {
    /// A JSON pointer; empty for the input as a whole.
    pub path: String,
    pub message: String,
    /// Stands in place of the message where a manifest is at fault.
    pub reason: String,
}

impl Refusal {
    /// The words of the tool or its server. Where nobody knows whether the call had its effect, they stand a level deeper.
    pub fn tool_words(&self) -> ToolWords<'_> {
        let details = self.details.as_deref();
        ToolWords(match self.reason.as_deref() {
            Some(RefusalReason::OutcomeUnknown { .. }) => details.and_then(|details| details.get("details")),
            _ => details,
        })
    }

    /// The faults that were found in an input, one by one.
    pub fn input_faults(&self) -> impl Iterator<Item = InputFault> + '_ {
        let faults = self.details.as_deref().and_then(|details| details.get(FAULTS)).and_then(Value::as_array);
        faults.into_iter().flatten().map(|fault| InputFault::deserialize(fault).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::ErrorCode;

    #[test]
    fn words_are_found_where_the_reason_says() {
        let said = json!({ "upstream_code": -32603, "content": [1], "upstream_data": { "a": 1 } });
        let refusal = Refusal::new(ErrorCode::E3502, "no").details(said.clone());
        let plain = refusal.because(RefusalReason::UpstreamError { code: -32603 });
        let words = plain.tool_words();
        assert_eq!((words.content(), words.upstream_data()), (Some(&json!([1])), Some(&json!({ "a": 1 }))));
        assert_eq!((words.structured(), words.meta()), (None, None));
        let unknown = Refusal::new(ErrorCode::E3413, "who knows")
            .details(json!({ "code": "E3502", "details": said }))
            .because(RefusalReason::OutcomeUnknown { code: ErrorCode::E3502, behind: plain.reason.clone() });
        assert_eq!(unknown.tool_words().content(), Some(&json!([1])));
        assert_eq!(Refusal::new(ErrorCode::E3401, "no").tool_words().content(), None);
    }

    #[test]
    fn faults_are_read_one_by_one_and_odd_ones_say_nothing() {
        let errors = json!({ "errors": [{ "path": "/a", "message": "too long", "more": 1 }, { "reason": "no" }, 7] });
        let refusal = Refusal::new(ErrorCode::E3301, "no").details(errors);
        let fault = |path: &str, message: &str, reason: &str| InputFault {
            path: path.into(),
            message: message.into(),
            reason: reason.into(),
        };
        let faults: Vec<_> = refusal.input_faults().collect();
        assert_eq!(faults, [fault("/a", "too long", ""), fault("", "", "no"), InputFault::default()]);
        assert_eq!(Refusal::new(ErrorCode::E3301, "no").input_faults().count(), 0);
    }
}
