//! The tables of MCP, goals first.

use std::fmt::Write as _;

use super::{Results, Through};
use crate::goal::{Bound, Goal, significant, table};
use crate::load::Measured;

/// Everything as Markdown.
pub(crate) fn page(results: &Results) -> String {
    let mut text = format!("Measured on {}, servers and load generator sharing the cores.\n\n", results.machine);
    text.push_str(&table(&goals(results), results.busy_share));
    text.push_str(
        "\n`tools/call` of an echo tool over Streamable HTTP, directly and through Gantry (median round; ratio of throughput, lowest to highest):\n\n\
         | connections | | calls/s | ratio | p50 / p99 | added p50 / p99 | gateway CPU per call |\n|---|---|---|---|---|---|---|\n",
    );
    for row in &results.calls {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {} | direct | {:.0} | 1 | {} | – | – |",
            row.connections,
            row.direct.per_second,
            latencies(&row.direct)
        );
        for (what, through) in [("server over HTTP", &row.over_http), ("server over stdio", &row.over_stdio)] {
            through_row(&mut text, row.connections, what, through);
        }
    }
    let list = &results.list;
    let _ = write!(
        text,
        "\nThe whole `tools/list`:\n\n| tools | pages | size | first | warm (median) |\n|---|---|---|---|---|\n\
         | {} | {} | {} KiB | {} ms | {} ms |\n",
        list.tools,
        list.pages,
        list.bytes / 1024,
        significant(list.first_ms),
        significant(list.warm_ms)
    );
    text
}

fn through_row(text: &mut String, connections: usize, what: &str, through: &Through) {
    let Through {
        measured, ratio, ratio_range: (low, high), added_p50_us, added_p99_us, processor_us_per_call, ..
    } = through;
    let _ = writeln!(
        text,
        "| {connections} | {what} | {:.0} | {ratio:.2} ({low:.2} to {high:.2}) | {} | {} / {} ms | {:.0} µs |",
        measured.per_second,
        latencies(measured),
        significant(added_p50_us / 1e3),
        significant(added_p99_us / 1e3),
        processor_us_per_call
    );
}

fn latencies(measured: &Measured) -> String {
    format!("{} / {} ms", significant(measured.p50_us / 1e3), significant(measured.p99_us / 1e3))
}

fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(least) = results.calls.iter().min_by_key(|row| row.connections) {
        goals.push(Goal {
            what: format!("MCP call, added p50, {} connection", least.connections),
            measured: Some(least.over_http.added_p50_us / 1e3),
            unit: "ms",
            bound: Bound::Below(0.5),
        });
    }
    for row in &results.calls {
        goals.push(Goal {
            what: format!("MCP call, throughput, {} connections", row.connections),
            measured: Some(row.over_http.ratio),
            unit: "of direct",
            bound: Bound::AtLeast(0.5),
        });
    }
    goals.push(Goal {
        what: format!("`tools/list`, {} tools, warm", results.list.tools),
        measured: Some(results.list.warm_ms),
        unit: "ms",
        bound: Bound::Below(20.0),
    });
    goals
}
