//! Acceptance: what takes the real things of other people and too long for every test run, each by its name.

use std::process::ExitCode;

use anyhow::Result;

mod clients;
mod first_day;

/// The names, and what each shows.
const NAMES: [(&str, &str); 3] = [
    ("clients", "client libraries of Python and JavaScript, directly and through the door [--write] [--gantry FILE]"),
    ("first-day", "servers of npm and PyPI imported from one file, listed and called [--write] [--gantry FILE]"),
    ("kafka", "the audit log's way to a broker that is killed and restarted [--seconds N] [--kills N]"),
];

/// The command.
pub(crate) fn run(arguments: &[String]) -> Result<ExitCode> {
    let (name, rest) = arguments.split_first().map_or(("", &[][..]), |(name, rest)| (name.as_str(), rest));
    match name {
        "clients" => clients::run(rest),
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
