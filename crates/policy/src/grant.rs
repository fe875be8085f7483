//! Which tools a token names, and in which versions (AUTH-004).
//!
//! A pattern is a whole tool id, `namespace.*`, or `*`. Nothing in between: a pattern that matches by accident is a
//! right given by accident.
//!
//! No version range means every version, pre-releases included; the range `*` means every release. The first covers the
//! second and not the other way round.

use std::fmt;
use std::str::FromStr;

use contract::ids::{ToolId, is_snake_word};
use contract::version::{Prereleases, Version, VersionRange};
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

    /// Does the pattern name every tool that `other` names?
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (_, Self::One(tool)) => self.matches(tool),
            (Self::Namespace(left), Self::Namespace(right)) => left == right,
            (Self::Namespace(_), Self::All) | (Self::One(_), Self::All | Self::Namespace(_)) => false,
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

    /// Does the entry allow all that `other` allows? A range without a single version is inside every other, but its
    /// tool must still be named here: a token also tells which tools its bearer may know of.
    ///
    /// ```
    /// # use gantry_policy::ToolGrant;
    /// let grant = |tool: &str, range: &str| {
    ///     ToolGrant { tool_id: tool.parse().unwrap(), version_range: Some(range.parse().unwrap()) }
    /// };
    /// assert!(grant("demo.*", "^1").covers(&grant("demo.word_stats", "~1.4")));
    /// assert!(!grant("demo.*", "^1").covers(&grant("demo.word_stats", ">=1.4")));
    /// ```
    pub fn covers(&self, other: &Self) -> bool {
        self.tool_id.covers(&other.tool_id)
            && match (&self.version_range, &other.version_range) {
                (None, _) => true,
                (Some(range), Some(inner)) => inner.is_subset_of(range),
                (Some(range), None) => every_version_is_in(range),
            }
    }

    /// Do the entries of `list` together allow all that this one allows? Two of them may each have a part of the
    /// versions. Where their union cannot be written as one range the answer is no, which refuses and never widens.
    pub fn is_covered_by(&self, list: &[Self]) -> bool {
        let about_it = || list.iter().filter(|entry| entry.tool_id.covers(&self.tool_id));
        if about_it().any(|entry| entry.covers(self)) {
            return true;
        }
        let Some(wanted) = &self.version_range else { return false };
        union(about_it().filter_map(|entry| entry.version_range.as_ref())).is_some_and(|all| wanted.is_subset_of(&all))
    }
}

/// Is really every version in the range?
fn every_version_is_in(range: &VersionRange) -> bool {
    VersionRange::parse_with("*", Prereleases::Always).is_ok_and(|all| all.is_subset_of(range))
}

/// One range for several. `None` when there are fewer than two, when one of them lets in all pre-releases (its text does
/// not show that), or when the union is longer than a range may be.
fn union<'r>(ranges: impl Iterator<Item = &'r VersionRange>) -> Option<VersionRange> {
    let mut texts = Vec::new();
    for range in ranges {
        let text = range.to_string();
        if VersionRange::parse(&text).as_ref() != Ok(range) {
            return None;
        }
        texts.push(text);
    }
    if texts.len() < 2 { None } else { VersionRange::parse(&texts.join("||")).ok() }
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

    fn grant(text: &str) -> ToolGrant {
        let (tool, range) = text.split_once('@').map_or((text, None), |(tool, range)| (tool, Some(range)));
        ToolGrant { tool_id: tool.parse().unwrap(), version_range: range.map(|range| range.parse().unwrap()) }
    }

    #[test]
    fn an_entry_covers_narrower_patterns_and_ranges() {
        for (outer, inner, expected) in [
            ("*", "*", true),
            ("*", "demo.*", true),
            ("*", "calculator", true),
            ("demo.*", "demo.*", true),
            ("demo.*", "demo.word_stats", true),
            ("demo.*", "other.*", false),
            ("demo.*", "*", false),
            ("demo.*", "calculator", false),
            ("demo.word_stats", "demo.*", false),
            ("demo.word_stats", "demo.word_stats", true),
            ("calculator", "calculator@^1", true),
            ("calculator@^1", "calculator", false),
            ("calculator@^1", "calculator@1.2.3", true),
            ("calculator@^1", "calculator@^2", false),
            ("calculator@^1", "calculator@>=1", false),
            // Every release is less than every version.
            ("calculator", "calculator@*", true),
            ("calculator@*", "calculator", false),
            ("calculator@^1", "calculator@1.5.0-rc.1", false),
            // No version at all, but a tool the other does not name.
            ("calculator@^1", "calculator@<0.0.0-0", true),
            ("demo.*", "calculator@<0.0.0-0", false),
        ] {
            assert_eq!(grant(outer).covers(&grant(inner)), expected, "{outer} {inner}");
            assert_eq!(grant(inner).is_covered_by(&[grant(outer)]), expected, "{outer} {inner}");
        }
    }

    #[test]
    fn several_entries_may_cover_one_together() {
        for (outer, inner, expected) in [
            (&["calculator@1.x", "calculator@2.x"][..], "calculator@>=1.0.0 <2.5.0", true),
            (&["*@1.x", "calculator@2.x"], "calculator@>=1.0.0 <2.5.0", true),
            (&["*@1.x", "calculator@2.x"], "demo.*@>=1.0.0 <2.5.0", false),
            (&["calculator@1.x", "calculator@3.x"], "calculator@>=1.0.0 <3.5.0", false),
            (&["calculator@<1.0.0", "calculator@>=1.0.0"], "calculator", false),
            (&["calculator@<1.0.0", "calculator@>=1.0.0"], "calculator@*", true),
            (&[], "calculator", false),
            (&["demo.*", "other.*"], "*", false),
        ] {
            let list: Vec<_> = outer.iter().map(|text| grant(text)).collect();
            assert_eq!(grant(inner).is_covered_by(&list), expected, "{outer:?} {inner}");
        }
    }
}
