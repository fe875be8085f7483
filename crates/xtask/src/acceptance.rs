//! Acceptance: what takes the real things of other people and too long for every test run, each by its name.

use std::process::ExitCode;

use anyhow::Result;

mod first_day;

/// The names, and what each shows.
const NAMES: [(&str, &str); 2] = [
    ("first-day", "servers of npm and PyPI imported from one file, listed and called [--write] [--gantry FILE]"),
    ("kafka", "the audit log's way to a broker that is killed and restarted [--seconds N] [--kills N]"),
];

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (name, rest) = arguments.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    match name {
        "first-day" => first_day::run(rest),
        "kafka" => crate::kafka::run(rest),
        "" => {
            println!("usage: cargo xtask acceptance <name>\n\n{}", names());
            Ok(ExitCode::SUCCESS)
        }
        unknown => {
            eprintln!("error: there is no acceptance `{unknown}`\n\n{}", names());
            Ok(ExitCode::from(2))
        }
    }
}

fn names() -> String {
    NAMES.iter().map(|(name, what)| format!("  {name:<12}{what}\n")).collect()
}
