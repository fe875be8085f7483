//! Developer commands: `cargo xtask test | ci | check | generate | services | bench | conformance | escape | soak | kafka |
//! acceptance | search-eval | lazy-tokens | scan-eval | redaction-eval`.
//!
//! The commands of the README and of CI are these and no others, so that what passes on one machine passes on the next.
//! Written in Rust instead of shell because the rules it checks are read from the product's own types (the error table,
//! the manifest schema, the OpenAPI document), and because a rule with a test can be trusted.
//!
//! Not here: anything the product ships. No crate may depend on this one.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a developer command talks to a terminal")]
#![expect(clippy::disallowed_methods, reason = "starts cargo and servers, and measures time: no ports to go through")]

mod acceptance;
mod bench;
mod check;
mod ci;
mod conformance;
mod escape;
mod generate;
mod kafka;
mod lazy_tokens;
mod redaction_eval;
mod scan_eval;
mod search_eval;
mod services;
mod soak;
mod suite;
mod workspace;

use std::process::ExitCode;

/// What a person sees who asks for nothing or for something unknown.
const USAGE: &str = "\
usage: cargo xtask <command>

  test                      start what the tests need, run all of them, print `N passed, N failed`
  ci                        what .ci/run does: format, lints, check, test
  check                     the rules of the project: layers, headers, names, dependencies, generated files, error codes
  generate                  write the generated files that `check` compares
  services start|stop|status
                            the servers the tests need
  bench [--quick] [--json] [--write] [--only calls|isolation|mcp|durable|audit]
                            measure the release build against a bare echo server, bare processes and MCP servers
                            without a gateway; --write updates benches/README.md
  conformance [--suite server|client] [--version V] [--only PART] [--alone] [--json] [--write]
                            the official MCP suites against Gantry; --write updates docs/conformance.md
  escape [...]              hostile tools against the sandbox, as a table; `escape/README.md` says more
  soak [--calls N] [--seed N]
                            many calls over MCP servers that are killed at random; every outcome must be accounted for
  kafka [--seconds N] [--kills N]
                            the audit log's way to a broker that is killed and restarted under load; builds the broker
                            first, which takes about 16 minutes, once
  acceptance [NAME]         what takes other people's real things and too long for every run: first-day, kafka;
                            without a name it lists them
  search-eval [...]         quality of tool search on the public query sets
  lazy-tokens [--data DIR]  tokens of all tools against those of the meta-tools, for 100, 1,000 and 5,000 real tools
  scan-eval [--data FILE] [--part all|fit|held-out] [--why] [--json]
                            recall and false alarms of the scanner of tool definitions
  redaction-eval [--part all|fit|held-out] [--why] [FILE...]
                            precision and recall of redaction on labelled text";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match run(&command, &rest) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, rest: &[String]) -> anyhow::Result<ExitCode> {
    match command {
        "test" => return suite::run(rest),
        "ci" => return ci::run(),
        "escape" => return escape::run(rest),
        "conformance" => return conformance::run(rest),
        "check" => return check::run(),
        "generate" => generate::run()?,
        "services" => services::run(rest)?,
        "scan-eval" => scan_eval::run(rest)?,
        "redaction-eval" => redaction_eval::run(rest)?,
        "search-eval" => search_eval::run(rest)?,
        "lazy-tokens" => lazy_tokens::run(rest)?,
        "bench" => bench::run(rest)?,
        "soak" => return soak::run(rest),
        "kafka" => return kafka::run(rest),
        "acceptance" => return acceptance::run(rest),
        // How `conformance` and the official suites call this very program.
        "conformance-fixture" => conformance::fixture::run(rest)?,
        "conformance-client" => conformance::drive(rest)?,
        "" | "help" | "--help" | "-h" => println!("{USAGE}"),
        unknown => {
            eprintln!("error: there is no command `{unknown}`\n\n{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
