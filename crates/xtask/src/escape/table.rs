//! The report as people read it: a table, what is wrong below it, and one closing line.

use std::fmt::Write as _;

use super::registry::ProbeIsolation;
use super::suite::{SuiteLine, SuiteReport};
use super::verdict::{BareOutcome, ProbeOutcome};

/// What all lines come to.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SuiteTally {
    pub(crate) probes: usize,
    /// Probes that were blocked wherever they were run.
    pub(crate) blocked: usize,
    pub(crate) escaped: usize,
    /// Probes with an outcome that nobody expected.
    pub(crate) unclear: usize,
    /// Probes that an isolation refused to run at all.
    pub(crate) refused: usize,
    /// Probes that do not even work outside.
    pub(crate) useless: usize,
}

impl SuiteTally {
    pub(crate) fn of(report: &SuiteReport) -> Self {
        let count = |test: fn(&ProbeOutcome) -> bool| {
            report.lines.iter().filter(|line| line.outcomes.iter().any(|(_, outcome)| test(outcome))).count()
        };
        let bad = |outcome: &ProbeOutcome| !matches!(outcome, ProbeOutcome::Blocked(_) | ProbeOutcome::Inapplicable(_));
        let blocked = |line: &&SuiteLine| {
            let ran = line.outcomes.iter().any(|(_, outcome)| matches!(outcome, ProbeOutcome::Blocked(_)));
            ran && !line.outcomes.iter().any(|(_, outcome)| bad(outcome))
        };
        Self {
            probes: report.lines.len(),
            blocked: report.lines.iter().filter(blocked).count(),
            escaped: count(|outcome| matches!(outcome, ProbeOutcome::Escaped(_))),
            unclear: count(|outcome| matches!(outcome, ProbeOutcome::Unclear(_))),
            refused: count(|outcome| matches!(outcome, ProbeOutcome::Unavailable(_))),
            useless: report.lines.iter().filter(|line| matches!(line.bare, BareOutcome::Fails(_))).count(),
        }
    }

    /// Nothing got out, nothing is left open, and every probe proves something.
    pub(crate) fn is_good(self) -> bool {
        self.escaped == 0 && self.unclear == 0 && self.refused == 0 && self.useless == 0
    }
}

/// The whole of it.
pub(crate) fn render(report: &SuiteReport) -> String {
    let mut text = row("ID", "FAMILY", "BARE", ProbeIsolation::ALL.map(|isolation| isolation.as_str().to_uppercase()));
    for line in &report.lines {
        let word = |isolation: ProbeIsolation| {
            let found = line.outcomes.iter().find(|(other, _)| *other == isolation);
            found.map_or("—", |(_, outcome)| outcome.word()).to_owned()
        };
        text += &row(&line.id, &line.family, line.bare.word(), ProbeIsolation::ALL.map(word));
    }
    for line in &report.lines {
        complaints(line, &mut text);
    }
    for isolation in ProbeIsolation::ALL {
        let mut outcomes = report.lines.iter().flat_map(|line| &line.outcomes);
        let refusal = outcomes.find_map(|(other, outcome)| match outcome {
            ProbeOutcome::Unavailable(message) if *other == isolation => Some(message),
            _ => None,
        });
        if let Some(message) = refusal {
            // Writing to a string cannot fail; the results here and below are dropped for that reason.
            let _ = write!(text, "\n{} is refused: {message}", isolation.as_str());
        }
    }
    let tally = SuiteTally::of(report);
    let _ = write!(text, "\n{} probes, {} blocked, {} escaped", tally.probes, tally.blocked, tally.escaped);
    for (count, what) in [(tally.unclear, "unclear"), (tally.refused, "refused"), (tally.useless, "without proof")] {
        if count > 0 {
            let _ = write!(text, ", {count} {what}");
        }
    }
    text.push('\n');
    text
}

fn row(id: &str, family: &str, bare: &str, [process, gvisor, wasm]: [String; 3]) -> String {
    format!("{id:<36}{family:<12}{bare:<8}{process:<9}{gvisor:<9}{wasm}").trim_end().to_owned() + "\n"
}

/// What is wrong with a line, in words.
fn complaints(line: &SuiteLine, text: &mut String) {
    if let BareOutcome::Fails(how) = &line.bare {
        let _ = write!(text, "\n{} does not work outside: {how}", line.id);
    }
    for (isolation, outcome) in &line.outcomes {
        if let ProbeOutcome::Escaped(how) | ProbeOutcome::Unclear(how) = outcome {
            let _ = write!(text, "\n{} under {}: {}: {how}", line.id, isolation.as_str(), outcome.word());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(bare: BareOutcome, outcomes: Vec<(ProbeIsolation, ProbeOutcome)>) -> SuiteLine {
        SuiteLine { id: "p".into(), family: "files".into(), title: "t".into(), bare, outcomes }
    }

    #[test]
    fn a_line_is_blocked_only_if_it_is_blocked_everywhere() {
        let blocked = || ProbeOutcome::Blocked(String::new());
        let lines = vec![
            line(BareOutcome::Works, vec![(ProbeIsolation::Process, blocked()), (ProbeIsolation::Gvisor, blocked())]),
            line(
                BareOutcome::NeverRun,
                vec![
                    (ProbeIsolation::Process, blocked()),
                    (ProbeIsolation::Gvisor, ProbeOutcome::Inapplicable("x".into())),
                ],
            ),
            line(
                BareOutcome::Works,
                vec![
                    (ProbeIsolation::Process, blocked()),
                    (ProbeIsolation::Gvisor, ProbeOutcome::Escaped("by night".into())),
                ],
            ),
            line(BareOutcome::Fails("y".into()), vec![(ProbeIsolation::Process, ProbeOutcome::Unclear("z".into()))]),
        ];
        let report = SuiteReport { lines };
        let tally = SuiteTally::of(&report);
        assert_eq!(tally, SuiteTally { probes: 4, blocked: 2, escaped: 1, unclear: 1, refused: 0, useless: 1 });
        assert!(!tally.is_good());
        let text = render(&report);
        assert!(text.contains("p under gvisor: ESCAPED: by night"), "{text}");
        assert!(text.ends_with("\n4 probes, 2 blocked, 1 escaped, 1 unclear, 1 without proof\n"), "{text}");
    }
}
