//! Goals and what became of them, one row each.
//!
//! A goal that is missed is said to be missed. The command still succeeds then, because the judgement belongs to people.
//! On a busy machine nothing is judged at all: when others take the cores in turn, the ratio shows them and not the
//! product, in either direction.
//!
//! Not here: which goals there are (`report`, `isolation::page`).

use std::fmt::Write as _;

/// With more of the cores in others' hands than this, nothing is judged.
pub(super) const BUSY_SHARE_MAX: f64 = 0.1;

/// A promise and what became of it.
pub(super) struct Goal {
    pub(super) what: String,
    /// Nothing where it could not be measured.
    pub(super) measured: Option<f64>,
    pub(super) unit: &'static str,
    pub(super) bound: Bound,
}

/// What was promised.
pub(super) enum Bound {
    AtLeast(f64),
    AtMost(f64),
    Below(f64),
}

/// The table of goals, and before it a word about a machine that was busy.
pub(super) fn table(goals: &[Goal], busy_share: f64) -> String {
    let mut text = String::new();
    let busy = busy_share > BUSY_SHARE_MAX;
    if busy {
        let share = busy_share * 100.0;
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "**The machine was busy: others used {share:.0} % of the cores. The numbers are a sketch.**\n"
        );
    }
    text.push_str("| goal | wanted | measured | |\n|---|---|---|---|\n");
    text.extend(goals.iter().map(|goal| goal.row(busy)));
    text
}

/// Two digits that mean something.
pub(super) fn significant(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size >= 10.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

impl Goal {
    fn is_met(&self) -> Option<bool> {
        let measured = self.measured?;
        Some(match self.bound {
            Bound::AtLeast(limit) => measured >= limit,
            Bound::AtMost(limit) => measured <= limit,
            Bound::Below(limit) => measured < limit,
        })
    }

    fn row(&self, busy: bool) -> String {
        let (word, limit) = match self.bound {
            Bound::AtLeast(limit) => ("at least", limit),
            Bound::AtMost(limit) => ("at most", limit),
            Bound::Below(limit) => ("under", limit),
        };
        let unit = self.unit;
        let measured =
            self.measured.map_or_else(|| "not measured".to_owned(), |value| format!("{} {unit}", significant(value)));
        let verdict = match (busy, self.is_met()) {
            (true, _) | (_, None) => "not judged",
            (false, Some(true)) => "PASS",
            (false, Some(false)) => "miss",
        };
        format!("| {} | {word} {limit} {unit} | {measured} | {verdict} |\n", self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_at_its_bound_or_better_and_says_so() {
        let goal = |measured, bound| Goal { what: "x".into(), measured: Some(measured), unit: "ms", bound };
        for (measured, bound, met) in [
            (0.6, Bound::AtLeast(0.6), true),
            (0.59, Bound::AtLeast(0.6), false),
            (3.0, Bound::AtMost(3.0), true),
            (3.01, Bound::AtMost(3.0), false),
            (9.9, Bound::Below(10.0), true),
            (10.0, Bound::Below(10.0), false),
        ] {
            assert_eq!(goal(measured, bound).is_met(), Some(met), "{measured}");
        }
        assert_eq!(goal(12.34, Bound::Below(10.0)).row(false), "| x | under 10 ms | 12 ms | miss |\n");
        assert_eq!(goal(1.0, Bound::Below(10.0)).row(true), "| x | under 10 ms | 1.0 ms | not judged |\n");
        let unknown = Goal { measured: None, ..goal(0.0, Bound::AtMost(3.0)) };
        assert_eq!(unknown.row(false), "| x | at most 3 ms | not measured | not judged |\n");
    }

    #[test]
    fn numbers_keep_the_digits_that_mean_something() {
        for (value, text) in [(123.4, "123"), (1.26, "1.3"), (0.126, "0.13"), (0.0126, "0.013"), (0.0, "0")] {
            assert_eq!(significant(value), text);
        }
    }
}
