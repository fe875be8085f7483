//! The table for the terminal, and `docs/conformance.md`.

use std::fmt::Write as _;

use super::Side;
use super::verdict::{Outcome, Row};

pub(super) const PAGE: &str = "docs/conformance.md";

const INTRODUCTION: &str = "\
# Conformance

Written by `cargo xtask conformance --write`. The official MCP suite (`@modelcontextprotocol/conformance`) is run in two
versions: 0.1.16 for the revisions with sessions, 0.2.0-alpha.12 for those and for 2026-07-28. As a server, Gantry stands
between the suite and a fixture behind it, an MCP server over stdio with the tools, resources and prompts the suite calls by
name: what passes has gone through the door, the lifecycle and the relay. As a client, Gantry has the suite's own server
behind it, and a driver calls the tools through Gantry's door.

A scenario passes when none of its checks fails. What does not pass is listed in `conformance/exceptions.toml` with its
reason; the command fails when something else fails, and when something listed passes.
";

/// Everything, as Markdown, with the part that is written by itself (`comparison`) as it was.
pub(super) fn page(rows: &[Row], compared: Option<&str>) -> String {
    let mut text = format!("{INTRODUCTION}\n{}", summary(rows));
    for (side, heading) in [(Side::Server, "As a server"), (Side::Client, "As a client")] {
        // Writing to a string cannot fail.
        let _ = write!(text, "\n## {heading}\n\n{}", lines(rows.iter().filter(|row| row.scenario.side == side)));
    }
    if let Some(compared) = compared {
        let _ = write!(text, "\n{compared}");
    }
    text
}

/// The rows alone, then how many there are of each kind.
pub(super) fn table(rows: &[Row]) -> String {
    format!("{}\n{}", lines(rows.iter()), summary(rows))
}

fn summary(rows: &[Row]) -> String {
    let mut text = String::from(
        "| | suite | revision | scenarios | pass | exception | not applicable | unexpected |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut groups: Vec<(Side, &str, &str)> = Vec::new();
    for row in rows {
        let group = (row.scenario.side, row.scenario.version, row.scenario.revision.as_str());
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    for group in groups {
        let (side, version, revision) = group;
        let members: Vec<&Row> = rows
            .iter()
            .filter(|row| (row.scenario.side, row.scenario.version, row.scenario.revision.as_str()) == group)
            .collect();
        let count = |outcome| members.iter().filter(|row| row.outcome == outcome).count();
        let unexpected = members.iter().filter(|row| !row.is_expected()).count();
        let side = match side {
            Side::Server => "server",
            Side::Client => "client",
        };
        let _ = writeln!(
            text,
            "| {side} | {version} | {revision} | {} | {} | {} | {} | {unexpected} |",
            members.len(),
            count(Outcome::Passed),
            count(Outcome::Excepted),
            count(Outcome::NotApplicable),
        );
    }
    text
}

fn lines<'a>(rows: impl Iterator<Item = &'a Row>) -> String {
    let mut text = String::from("| scenario | suite | revision | result | checks | why |\n|---|---|---|---|---|---|\n");
    for row in rows {
        let checks = match row.outcome {
            Outcome::NotApplicable => "–".to_owned(),
            _ => format!("{} of {}", row.passed, row.passed + row.failed),
        };
        let _ = writeln!(
            text,
            "| `{}` | {} | {} | {} | {checks} | {} |",
            row.scenario.name,
            row.scenario.version,
            row.scenario.revision,
            row.outcome.word(),
            in_a_cell(&row.why)
        );
    }
    text
}

/// One line without what would end the cell, and not a long one.
pub(super) fn in_a_cell(text: &str) -> String {
    const LENGTH_MAX: usize = 240;
    let flat: String = text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|");
    match flat.char_indices().nth(LENGTH_MAX) {
        Some((end, _)) => format!("{}…", flat.get(..end).unwrap_or_default()),
        None => flat,
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenarios::Scenario;
    use super::*;

    #[test]
    fn the_page_has_a_line_for_every_row_and_counts_them() {
        let row = |name: &str, side, outcome| Row {
            scenario: Scenario { name: name.into(), side, version: "0.1.16", revision: "2025-11-25".into(), place: 0 },
            outcome,
            passed: 2,
            failed: 1,
            why: "a | b\nc".into(),
        };
        let rows = [row("ping", Side::Server, Outcome::Passed), row("initialize", Side::Client, Outcome::Failed)];
        let page = page(&rows, None);
        assert!(page.contains("| `ping` | 0.1.16 | 2025-11-25 | pass | 2 of 3 | a \\| b c |"), "{page}");
        assert!(page.contains("| server | 0.1.16 | 2025-11-25 | 1 | 1 | 0 | 0 | 0 |"), "{page}");
        assert!(page.contains("| client | 0.1.16 | 2025-11-25 | 1 | 0 | 0 | 0 | 1 |"), "{page}");
    }
}
