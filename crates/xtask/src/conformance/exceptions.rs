//! The list of what does not pass, and why: `conformance/exceptions.toml`.
//!
//! A line names a scenario, or all that begin alike (`tasks-*`), and may narrow itself to a version of the suite, a
//! revision of the protocol, and single checks. `not_applicable` scenarios are not run; `fails` ones are run and must fail,
//! in nothing but the checks that are named, if any are.

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Side;
use super::scenarios::Scenario;
use crate::workspace;

const FILE: &str = "conformance/exceptions.toml";

/// All of them.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exceptions {
    #[serde(default, rename = "exception")]
    all: Vec<Exception>,
}

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Exception {
    side: Side,
    scenario: String,
    version: Option<String>,
    revision: Option<String>,
    verdict: Verdict,
    /// The checks that may fail; all of them if none is named.
    #[serde(default)]
    pub(super) checks: Vec<String>,
    pub(super) reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Verdict {
    NotApplicable,
    Fails,
}

impl Exceptions {
    pub(super) fn read() -> Result<Self> {
        let text = workspace::read(FILE)?.with_context(|| format!("`{FILE}` is missing"))?;
        Self::parsed(&text)
    }

    fn parsed(text: &str) -> Result<Self> {
        let exceptions: Self = toml::from_str(text).with_context(|| format!("`{FILE}` cannot be understood"))?;
        for exception in &exceptions.all {
            ensure!(!exception.reason.trim().is_empty(), "`{}` in `{FILE}` has no reason", exception.scenario);
        }
        Ok(exceptions)
    }

    /// The first line that is about a scenario.
    pub(super) fn of(&self, scenario: &Scenario) -> Option<&Exception> {
        self.all.iter().find(|exception| exception.is_about(scenario))
    }
}

impl Exception {
    pub(super) fn is_not_applicable(&self) -> bool {
        self.verdict == Verdict::NotApplicable
    }

    fn is_about(&self, scenario: &Scenario) -> bool {
        let named = match self.scenario.strip_suffix('*') {
            Some(beginning) => scenario.name.starts_with(beginning),
            None => scenario.name == self.scenario,
        };
        named
            && self.side == scenario.side
            && self.version.as_deref().is_none_or(|version| version == scenario.version)
            && self.revision.as_deref().is_none_or(|revision| revision == scenario.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"
        [[exception]]
        side = "server"
        scenario = "tasks-*"
        verdict = "not_applicable"
        reason = "not offered"

        [[exception]]
        side = "server"
        scenario = "ping"
        revision = "2025-11-25"
        verdict = "fails"
        checks = ["a"]
        reason = "because"
    "#;

    fn scenario(name: &str, side: Side, revision: &str) -> Scenario {
        Scenario { name: name.into(), side, version: "1", revision: revision.into(), place: 0 }
    }

    #[test]
    fn a_line_is_about_what_it_names_and_nothing_else() {
        let list = Exceptions::parsed(TEXT).unwrap();
        for (name, side, revision, about) in [
            ("tasks-lifecycle", Side::Server, "extension", true),
            ("tasks-lifecycle", Side::Client, "extension", false),
            ("ping", Side::Server, "2025-11-25", true),
            ("ping", Side::Server, "2026-07-28", false),
            ("ping-pong", Side::Server, "2025-11-25", false),
        ] {
            assert_eq!(list.of(&scenario(name, side, revision)).is_some(), about, "{name} {side:?} {revision}");
        }
    }

    #[test]
    fn a_line_without_a_reason_is_refused() {
        assert!(Exceptions::parsed(&TEXT.replace("because", " ")).is_err());
        assert!(Exceptions::parsed(&TEXT.replace("verdict", "virdict")).is_err());
    }

    #[test]
    fn the_list_of_the_repository_is_readable() {
        Exceptions::read().unwrap();
    }
}
