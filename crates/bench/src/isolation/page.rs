//! The tables of isolation, goals first.

use std::fmt::Write as _;

use super::starts::Row;
use super::{Results, Times};
use crate::goal::{Bound, Goal, significant, table};

/// Everything as Markdown.
pub(crate) fn page(results: &Results) -> String {
    let mut text = format!("Measured on {}, everything sharing the cores.\n\n", results.machine);
    text.push_str(&table(&goals(results), results.busy_share));
    starts(&mut text, results);
    hello(&mut text, results);
    components(&mut text, results);
    burst(&mut text, results);
    memory(&mut text, results);
    text
}

fn goals(results: &Results) -> Vec<Goal> {
    let mut goals = vec![
        Goal {
            what: "process sandbox, start to gone of `/bin/true`, median".into(),
            measured: results.starts.of_bare,
            unit: "× bare",
            bound: Bound::AtMost(3.0),
        },
        Goal {
            what: "the same against `bwrap`".into(),
            measured: results.starts.of_bwrap,
            unit: "× bwrap",
            bound: Bound::Below(1.0),
        },
    ];
    for component in &results.components {
        let goal = |what: &str, micros: f64, unit, scale: f64, limit| Goal {
            what: format!("WASM, {what}, median, `{}` ({})", component.name, component.language),
            measured: Some(micros / scale),
            unit,
            bound: Bound::Below(limit),
        };
        goals.push(goal("instantiation", component.instantiate.median_us, "µs", 1.0, 100.0));
        goals.push(goal("load from the compiled cache", component.load.median_us, "ms", 1e3, 5.0));
    }
    goals.push(Goal {
        what: format!("{} sandboxed calls at once, {} in all", results.burst.at_once, results.burst.calls),
        measured: u32::try_from(results.burst.errors).ok().map(f64::from),
        unit: "errors",
        bound: Bound::AtMost(0.0),
    });
    goals
}

// Writing to a string cannot fail; the results below are dropped for that reason.

fn starts(text: &mut String, results: &Results) {
    text.push_str(
        "\nStart of `/bin/true` until nothing of it is left, in turns:\n\n\
         | | starts | best | median | best / bare | median / bare |\n|---|---|---|---|---|---|\n",
    );
    for Row { what, missing, times, best_of_bare, median_of_bare } in &results.starts.rows {
        let ratio = |value: &Option<f64>| value.map_or_else(|| "–".to_owned(), |value| format!("{value:.1}"));
        let _ = match times {
            Some(times) => writeln!(
                text,
                "| {what} | {} | {} | {} | {} | {} |",
                times.count,
                ms(times.best_us),
                ms(times.median_us),
                ratio(best_of_bare),
                ratio(median_of_bare)
            ),
            None => writeln!(text, "| {what} | {} | – | – | – | – |", missing.as_deref().unwrap_or("not measured")),
        };
    }
}

fn hello(text: &mut String, results: &Results) {
    let hello = &results.hello;
    text.push_str(
        "\nA greeting in Python, through the whole gateway over REST and bare, in turns:\n\n\
         | | best | p50 | p50 / bare |\n|---|---|---|---|\n",
    );
    for (what, times) in [
        ("bare `python3 -c`", &hello.bare),
        ("process tool, a sandbox and an interpreter for every call", &hello.cold),
        ("warm session tool", &hello.warm),
    ] {
        let ratio = significant(times.median_us / hello.bare.median_us);
        let _ = writeln!(text, "| {what} | {} | {} | {ratio} |", ms(times.best_us), ms(times.median_us));
    }
}

fn components(text: &mut String, results: &Results) {
    text.push_str(
        "\nWASM components (best / median):\n\n\
         | component | size | compiled once in | load from the compiled cache | instantiation |\n|---|---|---|---|---|\n",
    );
    for component in &results.components {
        let Times { best_us, median_us, .. } = component.instantiate;
        let _ = writeln!(
            text,
            "| `{}` ({}, `{}`) | {} KiB | {:.0} ms | {} / {} | {} / {} µs |",
            component.name,
            component.language,
            component.world,
            component.kib,
            component.compile_ms,
            ms(component.load.best_us),
            ms(component.load.median_us),
            significant(best_us),
            significant(median_us)
        );
    }
}

fn burst(text: &mut String, results: &Results) {
    let burst = &results.burst;
    let _ = write!(
        text,
        "\nCalls of a `/bin/sh` tool over {} connections, beside as many bare shells at once:\n\n\
         | calls | errors | calls/s | bare shells/s | ratio |\n|---|---|---|---|---|\n\
         | {} | {} | {:.0} | {:.0} | {} |\n",
        burst.at_once,
        burst.calls,
        burst.errors,
        burst.per_second,
        burst.bare_per_second,
        significant(burst.per_second / burst.bare_per_second)
    );
    if let Some(error) = &burst.first_error {
        let _ = writeln!(text, "\nThe first error: {error}");
    }
}

fn memory(text: &mut String, results: &Results) {
    let memory = &results.memory;
    let _ = write!(
        text,
        "\nMemory of what waits (proportional share):\n\n| | |\n|---|---|\n\
         | warm Python interpreter in its sandbox, each of {count} | {:.1} MiB |\n\
         | of that, the sandbox's first process | {:.2} MiB |\n\
         | bare Python interpreter with the same script, each of {count} | {:.1} MiB |\n\
         | launcher | {:.2} MiB ({:.1} MiB resident) |\n\
         | prepared pair of processes, each of {spares} | {:.2} MiB ({:.1} MiB resident) |\n",
        memory.each_mib,
        memory.first_process_mib,
        memory.bare_mib,
        memory.launcher_mib,
        memory.launcher_resident_mib,
        memory.spare_mib,
        memory.spare_resident_mib,
        count = memory.interpreters,
        spares = memory.spares,
    );
}

fn ms(micros: f64) -> String {
    format!("{} ms", significant(micros / 1e3))
}
