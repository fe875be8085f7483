//! The numbers as a page: tables, goals, and the part of `benches/README.md` that is written by the machine.
//!
//! What a verdict means is said in [`super::goal`]. Results of a busy machine are shown as a sketch and never kept.
//!
//! Not here: the tables of isolation, of MCP, of what is durable, of the record and of stores (`isolation::page`, `mcp::page`,
//! `durable::page`, `audit::page`, `stores::page`), which have markers of their own, so that each part can be measured and kept without the
//! others.

use std::fmt::Write as _;

use anyhow::{Context, Result, ensure};

use super::goal::{BUSY_SHARE_MAX, Bound, Goal, significant, table};
use super::load::Measured;
use super::scenarios::{Governed, Results};
use super::{Report, audit, durable, isolation, mcp, stores};
use crate::repository;

const PAGE: &str = "benches/README.md";
const BEGIN: &str = "<!-- results: written by `cargo xtask bench --write` -->";
const END: &str = "<!-- end of results -->";
const ISOLATION_BEGIN: &str = "<!-- isolation: written by `cargo xtask bench --write` -->";
const ISOLATION_END: &str = "<!-- end of isolation -->";
const MCP_BEGIN: &str = "<!-- mcp: written by `cargo xtask bench --write` -->";
const MCP_END: &str = "<!-- end of mcp -->";
const DURABLE_BEGIN: &str = "<!-- durable: written by `cargo xtask bench --write` -->";
const DURABLE_END: &str = "<!-- end of durable -->";
const AUDIT_BEGIN: &str = "<!-- audit: written by `cargo xtask bench --write` -->";
const AUDIT_END: &str = "<!-- end of audit -->";
const STORES_BEGIN: &str = "<!-- stores: written by `cargo xtask bench --write` -->";
const STORES_END: &str = "<!-- end of stores -->";

/// The goals that apply to what was measured.
fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(most) = results.calls.iter().max_by_key(|pair| pair.connections) {
        let what = format!("throughput of a call against bare echo, {} connections", most.connections);
        goals.push(Goal { what, measured: Some(most.ratio), unit: "of echo", bound: Bound::AtLeast(0.6) });
    }
    goals.push(Goal {
        what: format!("throughput with policies and activations, {} connections", results.governed.connections),
        measured: Some(results.governed.ratio),
        unit: "of without",
        bound: Bound::AtLeast(0.85),
    });
    if let Some(largest) = results.catalogues.iter().max_by_key(|cost| cost.tools) {
        let ms = |what: &str, microseconds: f64, limit: f64| Goal {
            what: format!("{what}, {} tools", largest.tools),
            measured: Some(microseconds / 1e3),
            unit: "ms",
            bound: Bound::Below(limit),
        };
        goals.push(ms("search, p99", largest.search.p99_us, 10.0));
        goals.push(ms("page of the list, p99", largest.list.p99_us, 5.0));
    }
    goals.push(Goal {
        what: "idle memory".into(),
        measured: Some(results.memory.idle_mib),
        unit: "MiB",
        bound: Bound::Below(50.0),
    });
    let start = results.starts.first_ms.max(results.starts.again_ms);
    goals.push(Goal {
        what: "start to first answer".into(),
        measured: Some(start),
        unit: "ms",
        bound: Bound::Below(200.0),
    });
    for part in &results.parts {
        if let Some(budget) = part.budget_nanoseconds {
            let (measured, limit) = (Some(part.nanoseconds / 1e3), budget / 1e3);
            goals.push(Goal { what: part.what.into(), measured, unit: "µs", bound: Bound::Below(limit) });
        }
    }
    goals
}

/// The whole report.
pub(super) fn markdown(report: &Report) -> String {
    let parts = [
        report.calls.as_ref().map(calls),
        report.isolation.as_ref().map(isolation::page),
        report.mcp.as_ref().map(mcp::page),
        report.durable.as_ref().map(durable::page),
        report.audit.as_ref().map(audit::page),
        report.stores.as_ref().map(stores::page),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
}

/// The server's part of it.
fn calls(results: &Results) -> String {
    // Writing to a string cannot fail; the results below are dropped for that reason.
    let mut text = format!("Measured on {}, servers and load generator sharing the cores.\n\n", results.machine);
    text.push_str(&table(&goals(results), results.busy_share));

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

/// Puts what was measured between the markers of the page; the rest of the page stays.
pub(super) fn write(report: &Report) -> Result<()> {
    ensure!(
        report.busy_share() <= BUSY_SHARE_MAX,
        "the machine was busy, so the results are not kept: run it again alone"
    );
    let mut page = repository::read(PAGE)?;
    let parts = [
        (report.calls.as_ref().map(calls), (BEGIN, END)),
        (report.isolation.as_ref().map(isolation::page), (ISOLATION_BEGIN, ISOLATION_END)),
        (report.mcp.as_ref().map(mcp::page), (MCP_BEGIN, MCP_END)),
        (report.durable.as_ref().map(durable::page), (DURABLE_BEGIN, DURABLE_END)),
        (report.audit.as_ref().map(audit::page), (AUDIT_BEGIN, AUDIT_END)),
        (report.stores.as_ref().map(stores::page), (STORES_BEGIN, STORES_END)),
    ];
    for (part, markers) in parts {
        if let Some(text) = part {
            page = replaced(&page, &text, markers).with_context(|| format!("`{PAGE}` has lost its markers"))?;
        }
    }
    repository::write(PAGE, &page)?;
    Ok(())
}

fn replaced(page: &str, report: &str, (begin, end): (&str, &str)) -> Option<String> {
    let (before, rest) = page.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}\n{}\n{end}{after}", report.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_part_between_the_markers_is_replaced() {
        let page = format!("# Title\n{BEGIN}\nold\n{END}\ntail\n");
        let markers = (BEGIN, END);
        let new = replaced(&page, "new\n", markers).unwrap();
        assert_eq!(new, format!("# Title\n{BEGIN}\nnew\n{END}\ntail\n"));
        assert_eq!(replaced(&new, "new\n", markers).unwrap(), new);
        assert_eq!(replaced("no markers", "new", markers), None);
        assert_eq!(replaced(&page, "new", (ISOLATION_BEGIN, ISOLATION_END)), None);
    }

    #[test]
    fn the_page_has_all_pairs_of_markers() {
        let page = repository::read(PAGE).unwrap();
        for markers in [
            (BEGIN, END),
            (ISOLATION_BEGIN, ISOLATION_END),
            (MCP_BEGIN, MCP_END),
            (DURABLE_BEGIN, DURABLE_END),
            (AUDIT_BEGIN, AUDIT_END),
            (STORES_BEGIN, STORES_END),
        ] {
            assert!(replaced(&page, "new", markers).is_some(), "{markers:?}");
        }
    }
}
