//! `cargo xtask test`: everything the project calls a test, in one run, with one closing line.
//!
//! Plain `cargo test` is used, because it is on every machine that has Rust and because it alone runs documentation
//! examples. Output is passed on line by line while it is counted, so that a long run is not a silent one.
//!
//! The closing line `N passed, N failed` is the last line of standard output, whatever happened: a build that fails or a
//! test program that dies counts as one failure, never as none. What failed, and how, is told again just before it:
//! thousands of lines may lie between a failure and the end.
//!
//! A few failures are run once more, each program by itself with nothing beside it (decision 0041): a test that fails then
//! has failed; one that passes is *unsteady*, which is told by name at the end, because it is a fault of the test or a race
//! in the product, and somebody has to look. More than [`AGAIN_MAX`] are no accident and are not tried again.

use std::io::{BufRead, BufReader, Write};
use std::process::{ExitCode, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::{services, workspace};

/// Lines about failures that are told again at the end.
const RETOLD_MAX: usize = 400;

/// Failures that may be accidents of a busy machine; more of them are one cause, and that is found by reading.
const AGAIN_MAX: usize = 5;

/// How cargo begins the line that names a test program which failed.
const RERUN: &str = "error: test failed, to rerun pass `";

/// How many tests there were, and what was said of those that failed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
    ignored: u64,
    /// What was said of them, line by line.
    failures: Vec<String>,
    /// Their names.
    names: Vec<String>,
}

/// The command. What follows `--` goes to the test programs.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let tally = match whole_suite(arguments) {
        Ok(tally) => tally,
        Err(error) => {
            eprintln!("error: {error:#}");
            Tally { failed: 1, ..Tally::default() }
        }
    };
    if !tally.failures.is_empty() {
        println!("\nwhat failed:\n{}", tally.failures.join("\n"));
    }
    if tally.ignored > 0 {
        println!("{} ignored: a test is run or deleted, so this counts as failure", tally.ignored);
    }
    println!("{} passed, {} failed", tally.passed, tally.failed + tally.ignored);
    Ok(if tally.failed + tally.ignored == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Everything, and a few failures once more.
fn whole_suite(arguments: &[String]) -> Result<Tally> {
    services::start_all()?;
    let mut whole = vec!["--workspace".to_owned(), "--no-fail-fast".to_owned()];
    whole.extend_from_slice(arguments);
    let (mut tally, programs) = cargo_test(&whole)?;
    // A program that died leaves no names, or not all of them: nothing to try again with.
    let is_accident = (1..=AGAIN_MAX).contains(&tally.names.len()) && tally.names.len() as u64 == tally.failed;
    if is_accident {
        let again = once_more(&programs, &tally.names)?;
        let unsteady = forgive(&mut tally, &again);
        if !unsteady.is_empty() {
            println!("\nunsteady, failed at first and passed alone: {}", unsteady.join(", "));
        }
    }
    Ok(tally)
}

/// Runs the named tests in the programs that had failures, one program after the other.
fn once_more(programs: &[String], names: &[String]) -> Result<Tally> {
    println!("\nonce more, by themselves: {}", names.join(", "));
    let mut all = Tally::default();
    for program in programs {
        let mut arguments = of_the_workspace(program);
        arguments.extend(["--".to_owned(), "--exact".to_owned()]);
        arguments.extend_from_slice(names);
        let (again, _) = cargo_test(&arguments)?;
        all.passed += again.passed;
        all.failed += again.failed;
        all.names.extend(again.names);
    }
    Ok(all)
}

/// `-p gantry-store --test sqlite` as `--workspace --test sqlite`: a package by itself would be built with other features of
/// what it depends on, and everything it depends on with it.
fn of_the_workspace(program: &str) -> Vec<String> {
    let mut words = program.split_whitespace();
    let mut kept = vec!["--workspace".to_owned()];
    while let Some(word) = words.next() {
        if matches!(word, "-p" | "--package") {
            words.next();
        } else {
            kept.push(word.to_owned());
        }
    }
    kept
}

/// Takes from the failures those that passed in the second run, and names them. Nothing is forgiven unless every one was
/// run again: what was not run has not passed.
fn forgive(first: &mut Tally, again: &Tally) -> Vec<String> {
    if again.passed + again.failed != first.failed || again.names.len() as u64 != again.failed {
        return Vec::new();
    }
    let (failed, unsteady): (Vec<_>, Vec<_>) =
        std::mem::take(&mut first.names).into_iter().partition(|name| again.names.contains(name));
    first.names = failed;
    first.passed += again.passed;
    first.failed = again.failed;
    unsteady
}

/// `cargo test` with these arguments: what came of it, and the programs that had failures, as arguments to run each again.
fn cargo_test(arguments: &[String]) -> Result<(Tally, Vec<String>)> {
    let mut child = workspace::cargo()
        .arg("test")
        .args(arguments)
        .env(services::peers::FOLDER_VARIABLE, services::peers::folder()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run cargo")?;
    let errors = child.stderr.take();
    let deaths = thread::spawn(move || {
        let (mut deaths, mut programs) = (Vec::new(), Vec::new());
        if let Some(errors) = errors {
            pass_on(BufReader::new(errors), &mut std::io::stderr(), |line| {
                if line.contains("process didn't exit successfully") || line.starts_with("error") {
                    retell(&mut deaths, line);
                }
                programs.extend(line.strip_prefix(RERUN).and_then(|rest| rest.strip_suffix('`')).map(str::to_owned));
            })?;
        }
        anyhow::Ok((deaths, programs))
    });
    let mut tally = Tally::default();
    if let Some(output) = child.stdout.take() {
        count(BufReader::new(output), &mut std::io::stdout().lock(), &mut tally)?;
    }
    let status = child.wait().context("cannot wait for cargo")?;
    let mut programs = Vec::new();
    if let Ok(said) = deaths.join() {
        let (deaths, failed) = said?;
        tally.failures.extend(deaths);
        programs = failed;
    }
    if !status.success() && tally.failed == 0 {
        tally.failed = 1;
    }
    Ok((tally, programs))
}

/// Passes lines on and adds up the summaries among them.
fn count(from: impl BufRead, to: &mut impl Write, tally: &mut Tally) -> Result<()> {
    // What a failed test printed stands between `---- its name stdout ----` and the list of names.
    let mut telling = false;
    pass_on(from, to, |line| {
        if line.starts_with("---- ") && line.ends_with(" ----") {
            telling = true;
        } else if line == "failures:" || line.starts_with("test result: ") {
            telling = false;
        }
        let failed = line.strip_prefix("test ").and_then(|rest| rest.strip_suffix(" ... FAILED"));
        tally.names.extend(failed.map(str::to_owned));
        if telling || failed.is_some() {
            retell(&mut tally.failures, line);
        }
        if let Some(part) = summary(line) {
            tally.passed += part.passed;
            tally.failed += part.failed;
            tally.ignored += part.ignored;
        }
    })
}

fn retell(lines: &mut Vec<String>, line: &str) {
    if lines.len() < RETOLD_MAX {
        lines.push(line.to_owned());
    }
}

/// Shows each line as it comes, and then to `look`.
fn pass_on(mut from: impl BufRead, to: &mut impl Write, mut look: impl FnMut(&str)) -> Result<()> {
    let mut line = Vec::new();
    loop {
        line.clear();
        if from.read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        to.write_all(&line)?;
        to.flush()?;
        look(String::from_utf8_lossy(&line).trim_end());
    }
}

/// `test result: ok. 3 passed; 0 failed; 0 ignored; …` as numbers.
fn summary(line: &str) -> Option<Tally> {
    let (_, counts) = line.trim_start().strip_prefix("test result: ")?.split_once(". ")?;
    let number = |name: &str| {
        counts.split("; ").find_map(|part| part.trim().strip_suffix(name)?.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    Some(Tally { passed: number("passed"), failed: number("failed"), ignored: number("ignored"), ..Tally::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_all_test_programs_are_added_and_output_is_passed_on() {
        let output = "running 2 tests\ntest a ... ok\n\
            test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 10 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 1.2s\n\
            says test result: ok. 9 passed; somewhere in a line\n";
        let (mut tally, mut shown) = (Tally::default(), Vec::new());
        count(output.as_bytes(), &mut shown, &mut tally).unwrap();
        assert_eq!(tally, Tally { passed: 12, failed: 3, ignored: 1, ..Tally::default() });
        assert_eq!(shown, output.as_bytes());
    }

    #[test]
    fn what_a_failed_test_said_is_kept_and_what_others_said_is_not() {
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nthread 'b' panicked\n\n\
            failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed; 0 ignored\n";
        let mut tally = Tally::default();
        count(output.as_bytes(), &mut Vec::new(), &mut tally).unwrap();
        assert_eq!(tally.failures, ["test b ... FAILED", "---- b stdout ----", "thread 'b' panicked", ""]);
        assert_eq!(tally.names, ["b"]);
    }

    #[test]
    fn a_program_is_run_again_as_it_was_built() {
        assert_eq!(of_the_workspace("-p gantry-store --test sqlite"), ["--workspace", "--test", "sqlite"]);
        assert_eq!(of_the_workspace("-p gantry-audit --lib"), ["--workspace", "--lib"]);
        assert_eq!(of_the_workspace("--bin gantry"), ["--workspace", "--bin", "gantry"]);
    }

    fn tally(passed: u64, names: &[&str]) -> Tally {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        Tally { passed, failed: names.len() as u64, names, ..Tally::default() }
    }

    #[test]
    fn what_passes_the_second_time_is_named_and_what_fails_twice_has_failed() {
        let mut first = tally(10, &["a", "b", "c"]);
        assert_eq!(forgive(&mut first, &tally(2, &["b"])), ["a", "c"]);
        assert_eq!(first, tally(12, &["b"]));
    }

    #[test]
    fn nothing_is_forgiven_that_was_not_run_again() {
        for again in
            [tally(0, &[]), tally(1, &[]), tally(3, &[]), tally(1, &["a"]), Tally { failed: 1, ..tally(1, &[]) }]
        {
            let mut first = tally(10, &["a", "b"]);
            let unsteady = forgive(&mut first, &again);
            let ran_whole = again.passed + again.failed == 2 && again.names.len() as u64 == again.failed;
            assert_eq!(unsteady.is_empty(), !ran_whole, "{again:?}");
            assert_eq!(first.failed + first.passed, 12, "{again:?}");
        }
    }

    #[test]
    fn lines_that_are_no_summary_count_nothing() {
        for line in ["", "test a ... ok", "test result: ", "test result: ok", "running 1 test"] {
            assert_eq!(summary(line), None, "{line:?}");
        }
    }
}
