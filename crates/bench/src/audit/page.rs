//! The tables of what the record costs, goals first.

use std::fmt::Write as _;

use super::comparison::{self, Change};
use super::{Pair, Results};
use crate::goal::{Bound, Goal, significant, table};
use crate::load::Measured;

/// Everything as Markdown.
pub(crate) fn page(results: &Results) -> String {
    let mut text = format!("Measured on {}, servers and load generator sharing the cores.\n\n", results.machine);
    text.push_str(&table(&goals(results), results.busy_share));
    text.push_str(
        "\nA `calculator` call through all six phases over REST, with audit, traces and metrics and with none of them (median \
         pair of rounds; ratio lowest to highest):\n\n\
         | connections | off the record/s | on the record/s | ratio | off p50 / p99 | on p50 / p99 |\n|---|---|---|---|---|---|\n",
    );
    // Writing to a string cannot fail; the results are dropped for that reason.
    for Pair { connections, bare, observed, ratio, ratio_range: (low, high) } in &results.calls {
        let _ = writeln!(
            text,
            "| {connections} | {:.0} | {:.0} | {ratio:.2} ({low:.2} to {high:.2}) | {} | {} |",
            bare.per_second,
            observed.per_second,
            latencies(bare),
            latencies(observed)
        );
    }
    text.push_str(&compared(
        "The same on the record, with answers that do not wait for their records and as it is",
        "unwaited",
        &results.waiting,
    ));
    if !results.changes.is_empty() {
        text.push_str(&compared(
            "The same on the record, as it was in the former build and as it is now",
            "then",
            &results.changes,
        ));
    }
    let log = &results.log;
    let mebibytes = log.log_bytes / (1024 * 1024);
    let _ = write!(
        text,
        "\nThe log by itself, {} records, {mebibytes} MiB of lines:\n\n| | |\n|---|---|\n\
         | append, as fast as it goes, a sync for every 512 records | {:.0} records/s |\n\
         | append of {batch} records to a thousand, synced | {} µs, {} µs of a core |\n\
         | append of {batch} records to all of them, synced | {} µs, {} µs of a core |\n\
         | verify all of it | {:.0} records/s |\n\
         | open it | {} ms |\n\
         | prove one record, p50 / p99 | {} / {} ms |\n",
        log.records,
        log.filled_per_second,
        significant(log.short_us),
        significant(log.short_cpu_us),
        significant(log.long_us),
        significant(log.long_cpu_us),
        log.verify_per_second,
        significant(log.open_ms),
        significant(log.proof_p50_us / 1e3),
        significant(log.proof_p99_us / 1e3),
        batch = log.batch_records,
    );
    text.push_str("\nRedaction of JSON on one core, as a text (a line of a log) and as a value (the parameters of a call):\n\n| documents | as text | as value |\n|---|---|---|\n");
    for redacted in &results.redaction {
        let _ = writeln!(
            text,
            "| {} | {:.0} MB/s | {:.0} MB/s |",
            redacted.what, redacted.text_mb_per_second, redacted.value_mb_per_second
        );
    }
    text
}

fn compared(title: &str, other: &str, changes: &[Change]) -> String {
    let mut text = format!(
        "\n{title}:\n\n| connections | {other}/s | now/s | ratio | {other} p50 / p99 | now p50 / p99 | added p50 |\n\
         |---|---|---|---|---|---|---|\n"
    );
    for Change { connections, then, now, ratio, ratio_range: (low, high), p50_added_us } in changes {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "| {connections} | {:.0} | {:.0} | {ratio:.2} ({low:.2} to {high:.2}) | {} | {} | {} µs |",
            then.per_second,
            now.per_second,
            latencies(then),
            latencies(now),
            significant(*p50_added_us)
        );
    }
    text
}

fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = Vec::new();
    if let Some(most) = results.calls.iter().max_by_key(|pair| pair.connections) {
        goals.push(Goal {
            what: format!("throughput lost to audit, traces and metrics, {} connections", most.connections),
            measured: Some((1.0 - most.ratio) * 100.0),
            unit: "%",
            bound: Bound::AtMost(15.0),
        });
    }
    goals.extend(comparison::goals(&results.waiting));
    let log = &results.log;
    let goal = |what: String, measured: f64, unit, bound| Goal { what, measured: Some(measured), unit, bound };
    let slowest =
        |speed: fn(&super::Redacted) -> f64| results.redaction.iter().map(speed).reduce(f64::min).unwrap_or_default();
    goals.extend([
        goal(
            "redaction of JSON text, slowest kind".into(),
            slowest(|redacted| redacted.text_mb_per_second),
            "MB/s of a core",
            Bound::AtLeast(100.0),
        ),
        goal(
            "redaction of JSON values, slowest kind".into(),
            slowest(|redacted| redacted.value_mb_per_second),
            "MB/s of a core",
            Bound::AtLeast(100.0),
        ),
        goal(format!("append at {} records", log.records), log.long_to_short, "of that at 1000", Bound::AtMost(1.1)),
        goal("the same, time of a core".into(), log.long_to_short_cpu, "of that at 1000", Bound::AtMost(1.1)),
        goal(format!("verify {} records", log.records), log.verify_per_second, "records/s", Bound::AtLeast(200_000.0)),
        goal("proof that a record is in the log, p99".into(), log.proof_p99_us / 1e3, "ms", Bound::Below(1.0)),
    ]);
    goals
}

fn latencies(measured: &Measured) -> String {
    format!("{} / {} ms", significant(measured.p50_us / 1e3), significant(measured.p99_us / 1e3))
}
