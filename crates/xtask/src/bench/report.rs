//! The numbers as a page: tables, goals, and the part of `benches/README.md` that is written by the machine.
//!
//! A goal that is missed is said to be missed. The command still succeeds then, because the judgement belongs to people.
//! On a busy machine nothing is judged at all: when others take the cores in turn, the ratio shows them and not the
//! product, in either direction. Such results are shown as a sketch and never kept.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::load::Measured;
use super::scenarios::{Governed, Results};
use crate::workspace;

const PAGE: &str = "benches/README.md";
const BEGIN: &str = "<!-- results: written by `cargo xtask bench --write` -->";
const END: &str = "<!-- end of results -->";

/// With more of the cores in others' hands than this, nothing is judged.
const BUSY_SHARE_MAX: f64 = 0.1;

/// A promise and what became of it.
struct Goal {
    what: String,
    measured: f64,
    unit: &'static str,
    bound: Bound,
}

enum Bound {
    AtLeast(f64),
    Below(f64),
}

impl Goal {
    fn is_met(&self) -> bool {
        match self.bound {
            Bound::AtLeast(limit) => self.measured >= limit,
            Bound::Below(limit) => self.measured < limit,
        }
    }

    fn row(&self, busy: bool) -> String {
        let (word, limit) = match self.bound {
            Bound::AtLeast(limit) => ("at least", limit),
            Bound::Below(limit) => ("under", limit),
        };
        let (measured, unit) = (self.measured, self.unit);
        let verdict = match (busy, self.is_met()) {
            (true, _) => "not judged",
            (false, true) => "PASS",
            (false, false) => "miss",
        };
        format!("| {} | {word} {limit} {unit} | {} {unit} | {verdict} |\n", self.what, significant(measured))
    }
}

/// The goals that apply to what was measured.
fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(most) = results.calls.iter().max_by_key(|pair| pair.connections) {
        let what = format!("throughput of a call against bare echo, {} connections", most.connections);
        goals.push(Goal { what, measured: most.ratio, unit: "of echo", bound: Bound::AtLeast(0.6) });
    }
    goals.push(Goal {
        what: format!("throughput with policies and activations, {} connections", results.governed.connections),
        measured: results.governed.ratio,
        unit: "of without",
        bound: Bound::AtLeast(0.85),
    });
    if let Some(largest) = results.catalogues.iter().max_by_key(|cost| cost.tools) {
        let ms = |what: &str, microseconds: f64, limit: f64| Goal {
            what: format!("{what}, {} tools", largest.tools),
            measured: microseconds / 1e3,
            unit: "ms",
            bound: Bound::Below(limit),
        };
        goals.push(ms("search, p99", largest.search.p99_us, 10.0));
        goals.push(ms("page of the list, p99", largest.list.p99_us, 5.0));
    }
    goals.push(Goal {
        what: "idle memory".into(),
        measured: results.memory.idle_mib,
        unit: "MiB",
        bound: Bound::Below(50.0),
    });
    let start = results.starts.first_ms.max(results.starts.again_ms);
    goals.push(Goal { what: "start to first answer".into(), measured: start, unit: "ms", bound: Bound::Below(200.0) });
    for part in &results.parts {
        if let Some(budget) = part.budget_nanoseconds {
            let (measured, limit) = (part.nanoseconds / 1e3, budget / 1e3);
            goals.push(Goal { what: part.what.into(), measured, unit: "µs", bound: Bound::Below(limit) });
        }
    }
    goals
}

/// The whole report.
pub(super) fn markdown(results: &Results) -> String {
    // Writing to a string cannot fail; the results below are dropped for that reason.
    let mut text = format!("Measured on {}, servers and load generator sharing the cores.\n\n", results.machine);
    let busy = results.busy_share > BUSY_SHARE_MAX;
    if busy {
        let share = results.busy_share * 100.0;
        let _ = writeln!(
            text,
            "**The machine was busy: others used {share:.0} % of the cores. The numbers are a sketch.**\n"
        );
    }
    text.push_str("| goal | wanted | measured | |\n|---|---|---|---|\n");
    text.extend(goals(results).iter().map(|goal| goal.row(busy)));

    text.push_str(
        "\nA `calculator` call through all six phases over REST, beside bare echo (median pair of rounds):\n\n",
    );
    text.push_str(
        "| connections | echo/s | gantry/s | ratio (lowest to highest) | echo p50 / p99 | gantry p50 / p99 |\n|---|---|---|---|---|---|\n",
    );
    for pair in &results.calls {
        let (echo, gantry) = (&pair.echo, &pair.gantry);
        let _ = writeln!(
            text,
            "| {} | {:.0} | {:.0} | {:.2} ({:.2} to {:.2}) | {} | {} |",
            pair.connections,
            echo.per_second,
            gantry.per_second,
            pair.ratio,
            pair.ratio_range.0,
            pair.ratio_range.1,
            latencies(echo),
            latencies(gantry)
        );
    }
    let Governed { connections, plain, governed, ratio, ratio_range: (low, high) } = &results.governed;
    text.push_str(
        "\nThe same call with a hundred policies and activations in force, beside a server with neither:\n\n",
    );
    let _ = writeln!(
        text,
        "| connections | without/s | with/s | ratio (lowest to highest) | without p50 / p99 | with p50 / p99 |\n|---|---|---|---|---|---|\n\
         | {connections} | {:.0} | {:.0} | {ratio:.2} ({low:.2} to {high:.2}) | {} | {} |",
        plain.per_second,
        governed.per_second,
        latencies(plain),
        latencies(governed)
    );
    text.push_str("\nBy size of the catalogue:\n\n");
    text.push_str("| tools | list page p50 / p99 | search p50 / p99 | calls/s (16 connections) | registrations/s | memory |\n|---|---|---|---|---|---|\n");
    for cost in &results.catalogues {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {:.0} | {:.0} | {:.0} MiB |",
            cost.tools,
            latencies(&cost.list),
            latencies(&cost.search),
            cost.call.per_second,
            cost.registrations_per_second,
            cost.memory_mib
        );
    }
    let (starts, memory) = (&results.starts, &results.memory);
    text.push_str("\nStarting and memory:\n\n| | |\n|---|---|\n");
    let _ = write!(
        text,
        "| first start, empty data directory (median of {n}) | {:.0} ms |\n| start again (median of {n}) | {:.0} ms |\n\
         | start with the largest catalogue | {:.0} ms |\n| memory when idle | {:.1} MiB |\n| memory after the calls | {:.1} MiB |\n",
        starts.first_ms,
        starts.again_ms,
        starts.with_all_tools_ms,
        memory.idle_mib,
        memory.after_calls_mib,
        n = starts.count,
    );
    text.push_str("\nParts by themselves:\n\n| part | time |\n|---|---|\n");
    for part in &results.parts {
        let _ = writeln!(text, "| {} | {:.0} ns |", part.what, part.nanoseconds);
    }
    text
}

fn latencies(measured: &Measured) -> String {
    format!("{} / {} ms", significant(measured.p50_us / 1e3), significant(measured.p99_us / 1e3))
}

/// Two digits that mean something.
fn significant(value: f64) -> String {
    match value.abs() {
        size if size >= 10.0 => format!("{value:.0}"),
        size if size >= 1.0 => format!("{value:.1}"),
        size if size >= 0.1 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

/// Puts the report between the markers of the page.
pub(super) fn write(results: &Results) -> Result<()> {
    ensure!(
        results.busy_share <= BUSY_SHARE_MAX,
        "the machine was busy, so the results are not kept: run it again alone"
    );
    let page = workspace::read(PAGE)?.with_context(|| format!("`{PAGE}` is missing"))?;
    let page = replaced(&page, &markdown(results)).with_context(|| format!("`{PAGE}` has lost its markers"))?;
    workspace::write(PAGE, &page)?;
    Ok(())
}

fn replaced(page: &str, report: &str) -> Option<String> {
    let (before, rest) = page.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n{END}{after}", report.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_markers_is_replaced() {
        let page = format!("# Title\n{BEGIN}\nold\n{END}\ntail\n");
        let new = replaced(&page, "new\n").unwrap();
        assert_eq!(new, format!("# Title\n{BEGIN}\nnew\n{END}\ntail\n"));
        assert_eq!(replaced(&new, "new\n").unwrap(), new);
        assert_eq!(replaced("no markers", "new"), None);
    }

    #[test]
    fn a_goal_is_met_at_its_bound_or_better_and_says_so() {
        let goal = |measured, bound| Goal { what: "x".into(), measured, unit: "ms", bound };
        assert!(goal(0.6, Bound::AtLeast(0.6)).is_met() && !goal(0.59, Bound::AtLeast(0.6)).is_met());
        assert!(goal(9.9, Bound::Below(10.0)).is_met() && !goal(10.0, Bound::Below(10.0)).is_met());
        assert_eq!(goal(12.34, Bound::Below(10.0)).row(false), "| x | under 10 ms | 12 ms | miss |\n");
        assert_eq!(goal(1.0, Bound::Below(10.0)).row(true), "| x | under 10 ms | 1.0 ms | not judged |\n");
    }

    #[test]
    fn numbers_keep_the_digits_that_mean_something() {
        for (value, text) in [(123.4, "123"), (1.26, "1.3"), (0.126, "0.13"), (0.0126, "0.013")] {
            assert_eq!(significant(value), text);
        }
    }
}
