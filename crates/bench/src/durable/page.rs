//! The tables of what is durable, goals first.

use std::fmt::Write as _;

use super::Results;
use super::calls::Row;
use crate::goal::{Bound, Goal, significant, table};
use crate::load::Measured;

/// Everything as Markdown.
pub(crate) fn page(results: &Results) -> String {
    let mut text = format!("Measured on {}, servers and load generator sharing the cores.\n\n", results.machine);
    text.push_str(&table(&goals(results), results.busy_share));
    text.push_str(
        "\nCalls of a tool with effects over REST, each with a key of its own, in turns with SQLite alone (median round; ratio \
         to SQLite, lowest to highest):\n\n\
         | connections | SQLite alone/s | ledger alone/s | without effects/s | with effects/s | ratio | without p50 / p99 | with p50 / p99 |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    // Writing to a string cannot fail; the results are dropped for that reason.
    for Row { connections, raw_per_second, ledger_per_second, pure, gantry, ratio, ratio_range: (low, high) } in
        &results.calls
    {
        let _ = writeln!(
            text,
            "| {connections} | {raw_per_second:.0} | {ledger_per_second:.0} | {:.0} | {:.0} | {ratio:.2} ({low:.2} to {high:.2}) | {} | {} |",
            pure.per_second,
            gantry.per_second,
            latencies(pure),
            latencies(gantry)
        );
    }
    let (key, start, drained) = (&results.key, &results.start, &results.drained);
    let rates: Vec<String> = drained.per_second.iter().map(|rate| format!("{rate:.0}")).collect();
    let _ = write!(
        text,
        "\nA call without effects, with and without a key, one connection ({} pairs):\n\n\
         | without p50 | with p50 | median difference |\n|---|---|---|\n| {} µs | {} µs | {} µs |\n\
         \nA call in the background, nothing else waiting ({} jobs): enqueued to started p50 {} ms, p99 {} ms.\n\
         \n{} jobs of ten tenants: enqueued {:.0} a second, then drained by sixteen hands. Jobs a second by tenths:\n\n{}\n",
        key.pairs,
        significant(key.without_us),
        significant(key.with_us),
        significant(key.added_us),
        start.jobs,
        start.p50_ms,
        start.p99_ms,
        drained.jobs,
        drained.enqueued_per_second,
        rates.join(" · ")
    );
    let checkpoint = &results.checkpoint;
    let _ = write!(
        text,
        "\nA checkpoint of {} KiB (median of {}); opened again with its difference in {} ms:\n\n\
         | | size | seal | seal and save |\n|---|---|---|---|\n",
        checkpoint.content_bytes / 1024,
        checkpoint.rounds,
        significant(checkpoint.open_ms)
    );
    for (what, kept) in [("whole", checkpoint.whole), ("after a change of 1 %", checkpoint.one_percent)] {
        let _ = writeln!(
            text,
            "| {what} | {} KiB | {} ms | {} ms |",
            kept.bytes / 1024,
            significant(kept.seal_ms),
            significant(kept.seal_and_save_ms)
        );
    }
    text
}

fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(most) = results.calls.iter().max_by_key(|row| row.connections) {
        goals.push(Goal {
            what: format!("calls with effects, {} connections", most.connections),
            measured: Some(most.ratio),
            unit: "of SQLite alone",
            bound: Bound::AtLeast(0.5),
        });
    }
    let (drained, checkpoint) = (&results.drained, &results.checkpoint);
    let size = |bytes: usize| u32::try_from(bytes).map_or(f64::MAX, f64::from);
    let goal = |what: String, measured: f64, unit, bound| Goal { what, measured: Some(measured), unit, bound };
    goals.extend([
        goal("a key on a call without effects, median".into(), results.key.added_us, "µs", Bound::Below(20.0)),
        goal(
            "enqueued to started, idle, p50".into(),
            u32::try_from(results.start.p50_ms).map_or(f64::MAX, f64::from),
            "ms",
            Bound::Below(5.0),
        ),
        goal(
            format!("drain of {} jobs, slowest tenth", drained.jobs),
            drained.slowest() / drained.first(),
            "of the first",
            Bound::AtLeast(0.7),
        ),
        goal(
            format!("checkpoint of {} KiB, seal and save", checkpoint.content_bytes / 1024),
            checkpoint.whole.seal_and_save_ms,
            "ms",
            Bound::Below(20.0),
        ),
        goal(
            "checkpoint after a change of 1 %".into(),
            size(checkpoint.one_percent.bytes) / size(checkpoint.whole.bytes),
            "of the whole",
            Bound::Below(0.1),
        ),
    ]);
    goals
}

fn latencies(measured: &Measured) -> String {
    format!("{} / {} ms", significant(measured.p50_us / 1e3), significant(measured.p99_us / 1e3))
}
