//! What became of a scenario, beside what was expected of it.

use serde::Serialize;

use super::exceptions::Exception;
use super::scenarios::{Check, Scenario, Status};

/// One row of the table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Row {
    #[serde(flatten)]
    pub(super) scenario: Scenario,
    pub(super) outcome: Outcome,
    /// Checks that passed and failed.
    pub(super) passed: usize,
    pub(super) failed: usize,
    /// The first failure, the reason of an exception, or what was only warned of.
    pub(super) why: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Passed,
    /// Not run, for the reason given.
    NotApplicable,
    /// Fails as the list of exceptions says.
    Excepted,
    Failed,
    /// Listed as failing, and does not.
    StaleException,
}

impl Row {
    pub(super) fn not_applicable(scenario: Scenario, exception: &Exception) -> Self {
        let why = exception.reason.clone();
        Self { scenario, outcome: Outcome::NotApplicable, passed: 0, failed: 0, why }
    }

    #[expect(clippy::needless_pass_by_value, reason = "the checks end here")]
    pub(super) fn judged(scenario: Scenario, checks: Vec<Check>, exception: Option<&Exception>) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        let (passed, failed) = (count(Status::Success), count(Status::Failure));
        let said = |status| {
            let check = checks.iter().find(|check| check.status == status)?;
            Some(format!("{}: {}", check.id, check.error.as_deref().unwrap_or("no reason given")))
        };
        let is_covered = |exception: &Exception| {
            let named = |check: &Check| exception.checks.is_empty() || exception.checks.contains(&check.id);
            checks.iter().filter(|check| check.status == Status::Failure).all(named)
        };
        let (outcome, why) = match (failed, exception) {
            (0, None) => (Outcome::Passed, said(Status::Warning).unwrap_or_default()),
            (0, Some(_)) => (Outcome::StaleException, "is listed as failing and passes: take it off the list".into()),
            (_, Some(exception)) if is_covered(exception) => (Outcome::Excepted, exception.reason.clone()),
            _ => (Outcome::Failed, said(Status::Failure).unwrap_or_default()),
        };
        Self { scenario, outcome, passed, failed, why }
    }

    pub(super) fn is_expected(&self) -> bool {
        matches!(self.outcome, Outcome::Passed | Outcome::NotApplicable | Outcome::Excepted)
    }
}

impl Outcome {
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Passed => "pass",
            Self::NotApplicable => "not applicable",
            Self::Excepted => "exception",
            Self::Failed => "FAIL",
            Self::StaleException => "STALE EXCEPTION",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Side;
    use super::*;

    fn judged(statuses: &[(&str, Status)], exception: Option<&str>) -> Outcome {
        let scenario = Scenario { name: "x".into(), side: Side::Server, version: "1", revision: "r".into(), place: 0 };
        let checks = statuses.iter().map(|(id, status)| Check { id: (*id).into(), status: *status, error: None });
        let exception: Option<Exception> = exception.map(|text| toml::from_str(text).unwrap());
        Row::judged(scenario, checks.collect(), exception.as_ref()).outcome
    }

    #[test]
    fn the_list_is_strict_both_ways() {
        let any = "side = 'server'\nscenario = 'x'\nverdict = 'fails'\nreason = 'r'\n";
        let only_a = format!("{any}checks = ['a']\n");
        for (statuses, exception, outcome) in [
            (vec![("a", Status::Success)], None, Outcome::Passed),
            (vec![("a", Status::Success), ("b", Status::Warning), ("c", Status::Info)], None, Outcome::Passed),
            (vec![("a", Status::Failure)], None, Outcome::Failed),
            (vec![("a", Status::Failure)], Some(any), Outcome::Excepted),
            (vec![("a", Status::Failure)], Some(only_a.as_str()), Outcome::Excepted),
            (vec![("a", Status::Failure), ("b", Status::Failure)], Some(only_a.as_str()), Outcome::Failed),
            (vec![("a", Status::Success)], Some(any), Outcome::StaleException),
        ] {
            assert_eq!(judged(&statuses, exception), outcome, "{statuses:?} {exception:?}");
        }
    }
}
