//! Which tools a token names, and in which versions (AUTH-004).
//!
//! A pattern is a whole tool id, `namespace.*`, or `*`. Nothing in between: a pattern that matches by accident is a
//! right given by accident.

use std::fmt;
use std::str::FromStr;

use contract::ids::{ToolId, is_snake_word};
use contract::version::{Version, VersionRange};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Tools by name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ToolPattern {
    /// Every tool.
    All,
    /// Every tool of a namespace: `demo.*`.
    Namespace(Box<str>),
    /// One tool.
    One(ToolId),
}

/// Why a pattern was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a tool pattern is a tool id, `namespace.*` or `*`")]
pub struct ToolPatternError;

impl ToolPattern {
    /// Does the pattern name this tool?
    pub fn matches(&self, tool: &ToolId) -> bool {
        match self {
            Self::All => true,
            Self::Namespace(space) => tool.namespace() == Some(space),
            Self::One(one) => one == tool,
        }
    }
}

impl FromStr for ToolPattern {
    type Err = ToolPatternError;
    fn from_str(text: &str) -> Result<Self, ToolPatternError> {
        if text == "*" {
            return Ok(Self::All);
        }
        match text.strip_suffix(".*") {
            Some(space) if is_snake_word(space) => Ok(Self::Namespace(space.into())),
            Some(_) => Err(ToolPatternError),
            None => text.parse().map(Self::One).map_err(|_| ToolPatternError),
        }
    }
}

impl fmt::Display for ToolPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("*"),
            Self::Namespace(space) => write!(f, "{space}.*"),
            Self::One(tool) => tool.fmt(f),
        }
    }
}

impl Serialize for ToolPattern {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ToolPattern {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// One entry of a token's `tools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolGrant {
    pub tool_id: ToolPattern,
    /// Absent means every version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version_range: Option<VersionRange>,
}

impl ToolGrant {
    /// Does the entry allow this very version?
    pub fn allows(&self, tool: &ToolId, version: &Version) -> bool {
        self.tool_id.matches(tool) && self.version_range.as_ref().is_none_or(|range| range.matches(version))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_a_tool_a_namespace_or_everything() {
        let matches =
            |pattern: &str, tool: &str| pattern.parse::<ToolPattern>().unwrap().matches(&tool.parse().unwrap());
        assert!(matches("*", "demo.word_stats") && matches("*", "calculator"));
        assert!(matches("demo.*", "demo.word_stats"));
        assert!(!matches("demo.*", "demo2.word_stats") && !matches("demo.*", "demo_stats"));
        assert!(matches("calculator", "calculator") && !matches("calculator", "demo.calculator"));
        for bad in ["", "de*", "*.x", "demo.w*", "Demo.*", ".*", "a.b.*"] {
            assert!(bad.parse::<ToolPattern>().is_err(), "{bad}");
        }
    }
}
