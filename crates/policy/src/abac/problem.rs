//! What is wrong with a text of policies: one finding, with its place, for people.

use std::fmt;

use cedar_policy::ffi::DetailedError;

use super::source::{SourcePosition, Statement, position};

/// One finding. The text it was found in is not in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyProblem {
    /// The policy's name, if the finding is about one.
    pub policy: Option<String>,
    pub position: SourcePosition,
    pub message: String,
    /// What might be meant, if that can be guessed.
    pub help: Option<String>,
}

impl fmt::Display for PolicyProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: ", self.position.line, self.position.column)?;
        if let Some(policy) = &self.policy {
            write!(f, "policy `{policy}`: ")?;
        }
        f.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(f, " ({help})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for PolicyProblem {}

impl PolicyProblem {
    /// A finding about the text as a whole.
    pub(super) fn whole(message: impl Into<String>) -> Self {
        Self { policy: None, position: SourcePosition { line: 1, column: 1 }, message: message.into(), help: None }
    }

    /// A finding about one statement.
    pub(super) fn about(whole: &str, statement: Statement<'_>, policy: &str, message: impl Into<String>) -> Self {
        Self {
            policy: Some(policy.to_owned()),
            position: position(whole, statement.offset),
            message: message.into(),
            help: None,
        }
    }

    /// What Cedar says about a policy; its places count from the byte `base`.
    pub(super) fn from_cedar(whole: &str, base: usize, policy: &str, said: &DetailedError) -> Self {
        let within = said.source_locations.first().map_or(0, |label| label.loc.start);
        // Cedar names the policy in front of its message; here the name is a part of its own.
        let own_name = format!("for policy `{policy}`, ");
        let bare = |text: &str| text.strip_prefix(&own_name).unwrap_or(text).to_owned();
        Self {
            policy: Some(policy.to_owned()),
            position: position(whole, base + within),
            message: bare(&said.message),
            help: said.help.as_deref().map(bare),
        }
    }
}
