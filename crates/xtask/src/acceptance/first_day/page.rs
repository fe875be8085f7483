//! The table for the terminal, and `docs/compatibility.md`.

use std::fmt::Write as _;

use super::starts::{GOAL, StartTimes};
use super::verdict::{Outcome, Row};

pub(super) const PAGE: &str = "docs/compatibility.md";

const INTRODUCTION: &str = "\
# Compatibility

Written by `cargo xtask acceptance first-day --write`. One `mcpServers` file with servers of npm and PyPI, in every way in which
people start them, is imported by `gantry import mcp FILE --yes`; each server is listed, and two tools of it are called. A server
works, or it cannot for a reason of its own, which is shown as Gantry shows it; or it would work without Gantry and does not yet with
it, and the table says why. The command fails when something else happens.
The file and what is expected of it are in `crates/xtask/src/acceptance/first_day/`; packages have the newest version of the day
unless the file names one.
";

/// Everything, as Markdown.
pub(super) fn page(rows: &[Row], starts: &[StartTimes]) -> String {
    format!("{INTRODUCTION}\n{}\n## How long a start takes\n\n{}", table(rows), times(starts))
}

/// The servers.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text = String::from("| server | in the file | tools | result |\n|---|---|---|---|\n");
    for Row { name, written, tools, outcome } in rows {
        let result = match outcome {
            Outcome::Works => "works".to_owned(),
            Outcome::Own { needs, message } => format!("needs {needs}: *{}*", escaped(message)),
            Outcome::Gap { why, message } => format!("**not behind Gantry**: {why}: *{}*", escaped(message)),
            Outcome::Unexpected(what) => format!("**unexpected**: {}", escaped(what)),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "| {name} | `{}` | {tools} | {result} |", escaped(written));
    }
    let count = |wanted: fn(&Outcome) -> bool| rows.iter().filter(|row| wanted(&row.outcome)).count();
    let works = count(|outcome| matches!(outcome, Outcome::Works));
    let own = count(|outcome| matches!(outcome, Outcome::Own { .. }));
    let gaps = count(|outcome| matches!(outcome, Outcome::Gap { .. }));
    let _ = writeln!(
        text,
        "\n{} servers: {works} work, {own} cannot here for a reason of their own, {gaps} start and cannot do their work behind Gantry.",
        rows.len()
    );
    text
}

/// The starts.
pub(super) fn times(starts: &[StartTimes]) -> String {
    let mut text = String::from("| server | directly | behind Gantry | ratio |\n|---|---|---|---|\n");
    for start in starts {
        let (direct, behind) = (start.direct.as_millis(), start.behind.as_millis());
        let _ = writeln!(text, "| {} | {direct} ms | {behind} ms | {:.2} |", start.name, start.ratio());
    }
    let _ = writeln!(
        text,
        "\nFrom nothing to the answer of a first call, medians of five: directly by `npx` and `uvx` with a warm cache, and by \
         `gantry call` of a debug build after an idle stop. The goal is {GOAL}. Without a network, in a network namespace of its own, both start and answer."
    );
    text
}

fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('`', "'").replace('*', "\\*")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_stays_one_row_whatever_the_server_says() {
        let outcome = Outcome::Own { needs: "a key".into(), message: "a | b `c`".into() };
        let row = Row { name: "x".into(), written: "npx x".into(), tools: 1, outcome };
        let text = table(&[row]);
        assert!(text.contains("| x | `npx x` | 1 | needs a key: *a \\| b 'c'* |"), "{text}");
        assert!(text.contains("1 servers: 0 work, 1 cannot here"), "{text}");
    }
}
