//! The tables of what outgrowing one machine costs, goals first.

use std::fmt::Write as _;

use super::Results;
use super::calls::{Row, Store};
use crate::goal::{Bound, Goal, significant, table};
use crate::load::Measured;

/// Everything as Markdown.
pub(crate) fn page(results: &Results) -> String {
    let mut text = format!(
        "Measured on {}, instances, PostgreSQL, Redis and load generator sharing the cores.\n\n",
        results.machine
    );
    text.push_str(&table(&goals(results), results.busy_share));
    // Writing to a string cannot fail; the results are dropped for that reason.
    for (effects, title) in [
        (false, "A `calculator` call through all six phases over REST"),
        (true, "A call of a tool with effects, with a key of its own, whose intent and end are kept durably"),
    ] {
        let _ = write!(
            text,
            "\n{title}, by where things are kept (median round; ratio to the embedded store, lowest to highest):\n\n\
             | connections | kept in | calls/s | ratio | p50 / p99 |\n|---|---|---|---|---|\n"
        );
        for Row { store, connections, measured, ratio, ratio_range: (low, high), .. } in
            results.calls.iter().filter(|row| row.effects == effects)
        {
            let _ = writeln!(
                text,
                "| {connections} | {} | {:.0} | {ratio:.2} ({low:.2} to {high:.2}) | {} |",
                store.title(),
                measured.per_second,
                latencies(measured)
            );
        }
    }
    let guarded = &results.guarded;
    let _ = write!(
        text,
        "\nA call of a tool with a breaker and a limit, one connection ({} pairs):\n\n\
         | in memory p50 | in Redis p50 | median difference |\n|---|---|---|\n| {} µs | {} µs | {} µs |\n",
        guarded.pairs,
        significant(guarded.memory_us),
        significant(guarded.redis_us),
        significant(guarded.added_us)
    );
    let _ = write!(
        text,
        "\nA new store beside one with {} calls made before and {} tools, one connection (ratio of p50, lowest to highest):\n\n\
         | store | call | new p50 / p99 | old p50 / p99 | ratio |\n|---|---|---|---|---|\n",
        results.past_calls, results.past_tools
    );
    for row in &results.past {
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.2} ({:.2} to {:.2}) |",
            row.store,
            kind(row.effects),
            latencies(&row.new),
            latencies(&row.old),
            row.ratio,
            row.ratio_range.0,
            row.ratio_range.1
        );
    }
    text
}

fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    for row in results.calls.iter().filter(|row| !row.effects && row.store == Store::PostgresRedis) {
        goals.push(Goal {
            what: format!("call without effects on PostgreSQL + Redis, {} connections", row.connections),
            measured: Some(row.ratio),
            unit: "of the embedded store",
            bound: Bound::AtLeast(0.7),
        });
    }
    goals.push(Goal {
        what: "breaker and limit in Redis, added to p50".into(),
        measured: Some(results.guarded.added_us / 1e3),
        unit: "ms",
        bound: Bound::Below(0.5),
    });
    for row in &results.past {
        goals.push(Goal {
            what: format!("call {} after {} calls, {}", kind(row.effects), results.past_calls, row.store),
            measured: Some(row.ratio),
            unit: "of a new store",
            bound: Bound::AtMost(1.1),
        });
    }
    goals
}

fn kind(effects: bool) -> &'static str {
    if effects { "with effects" } else { "without effects" }
}

fn latencies(measured: &Measured) -> String {
    format!("{} / {} ms", significant(measured.p50_us / 1e3), significant(measured.p99_us / 1e3))
}
