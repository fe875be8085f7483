//! The command line: what all commands have in common. Each command's own flags stand in its own file.

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Parser};

use serde_json::Value;

use crate::commands::Command;
use crate::failure::CommandFailure;

/// The tool execution layer for AI agents.
///
/// Start with `gantry serve`, then `gantry call calculator expression='sqrt(16) + 2^3'`.
#[derive(Debug, Parser)]
#[command(
    name = "gantry",
    version,
    max_term_width = 120,
    after_help = "Exit codes: 0 done, 1 failed or refused, 2 wrong usage."
)]
pub(crate) struct GantryArguments {
    #[command(flatten)]
    pub(crate) global: GlobalFlags,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags that every command understands.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalFlags {
    /// Configuration file [default: ./gantry.toml if there is one]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Read no configuration file, not even ./gantry.toml
    #[arg(long, global = true, conflicts_with = "config")]
    pub(crate) no_config: bool,
    /// Where data, keys and the admin token are
    #[arg(long, global = true, value_name = "DIR", env = "GANTRY_DATA_DIR", default_value = ".gantry")]
    pub(crate) data_dir: PathBuf,
    /// The server to talk to [default: the one running on the data directory, else http://127.0.0.1:7300]
    #[arg(long, global = true, value_name = "URL", env = "GANTRY_SERVER")]
    pub(crate) server: Option<String>,
    /// The token to show; safer by GANTRY_TOKEN or --token-file, since other users may see command lines
    #[arg(long, global = true, value_name = "TOKEN", env = "GANTRY_TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,
    /// File with the token to show [default: admin.token in the data directory]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Authorities of the server's certificate, as PEM, beside those of the web; for a server that was named
    #[arg(long, global = true, value_name = "FILE", env = "GANTRY_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate to show to a server that demands one, as PEM
    #[arg(long, global = true, value_name = "FILE", env = "GANTRY_CLIENT_CERT", requires = "client_key")]
    pub(crate) client_cert: Option<PathBuf>,
    /// Private key of that certificate, as PEM
    #[arg(long, global = true, value_name = "FILE", env = "GANTRY_CLIENT_KEY", requires = "client_cert")]
    pub(crate) client_key: Option<PathBuf>,
    /// Print JSON on stdout and nothing else: one document, or one in each line where a command goes on
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say nothing besides the result, warnings and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,
    /// No colours (NO_COLOR is respected too)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

/// Flags that say which server is talked to, and how.
const FLAGS_OF_SERVERS: [(&str, &str); 6] = [
    ("server", "--server"),
    ("token", "--token"),
    ("token_file", "--token-file"),
    ("ca", "--ca"),
    ("client_cert", "--client-cert"),
    ("client_key", "--client-key"),
];
/// Commands that talk to none: they work on files of this machine.
const WITHOUT_SERVER: [&str; 18] = [
    "serve",
    "worker",
    "completions",
    "config-reference",
    "restore",
    "migrate",
    "audit tail",
    "audit verify",
    "audit prove",
    "audit export",
    "audit sinks",
    "audit set-aside",
    "policy check",
    "policy test",
    "token inspect",
    "tool new",
    "tool build",
    "tool dev",
];

/// A flag on the command line that would do nothing, and the command that it would do nothing for. In the environment such a
/// setting is for whichever command needs it.
pub(crate) fn idle_flag(matches: &ArgMatches) -> Option<(&'static str, String)> {
    let mut command = Vec::new();
    let mut innermost = matches;
    while let Some((name, inner)) = innermost.subcommand() {
        command.push(name);
        innermost = inner;
    }
    let command = command.join(" ");
    let talks_to_none = WITHOUT_SERVER
        .iter()
        .any(|name| command == *name || command.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let given = |id: &str| innermost.value_source(id) == Some(ValueSource::CommandLine);
    let idle = FLAGS_OF_SERVERS.iter().find(|(id, _)| talks_to_none && given(id));
    idle.map(|(_, flag)| (*flag, command))
}

/// What the parser says of a command line that is not right, as a failure of a command is told; none of help that was asked for.
pub(crate) fn misuse_document(error: &clap::Error) -> Option<Value> {
    if !error.use_stderr() {
        return None;
    }
    let text = error.to_string();
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or_default();
    let failure = CommandFailure::usage(first.strip_prefix("error: ").unwrap_or(first));
    let is_more = |line: &&str| !line.starts_with("Usage:") && !line.starts_with("For more information");
    let reasons = lines.filter(is_more).map(str::to_owned).collect();
    Some(failure.reasons(reasons).hint("`--help` shows how it is used").to_json())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn a_wrong_command_line_is_a_document_too_and_help_is_none() {
        let error = |line: &[&str]| GantryArguments::command().try_get_matches_from(line).unwrap_err();
        let document = misuse_document(&error(&["gantry", "--json", "tool", "list", "--nonsense"])).unwrap();
        let message = document.pointer("/error/message").and_then(Value::as_str).unwrap();
        assert!(message.contains("--nonsense") && !message.starts_with("error"), "{document}");
        assert!(document.pointer("/error/resolution").is_some(), "{document}");
        assert_eq!(misuse_document(&error(&["gantry", "--json", "--help"])), None);
    }

    #[test]
    fn the_command_line_is_consistent() {
        GantryArguments::command().debug_assert();
    }

    #[test]
    fn flags_that_name_a_server_are_refused_by_commands_that_talk_to_none() {
        let idle = |line: &[&str]| idle_flag(&GantryArguments::command().try_get_matches_from(line).unwrap());
        let expected = |flag, command: &str| Some((flag, command.to_owned()));
        assert_eq!(idle(&["gantry", "--server", "http://h", "audit", "verify"]), expected("--server", "audit verify"));
        assert_eq!(idle(&["gantry", "audit", "verify", "--token", "t"]), expected("--token", "audit verify"));
        assert_eq!(idle(&["gantry", "serve", "--ca", "f"]), expected("--ca", "serve"));
        assert_eq!(idle(&["gantry", "migrate", "status", "--server", "h"]), expected("--server", "migrate status"));
        assert_eq!(idle(&["gantry", "--server", "http://h", "audit", "rotate-key"]), None);
        assert_eq!(idle(&["gantry", "--server", "http://h", "tool", "list"]), None);
        assert_eq!(idle(&["gantry", "audit", "verify"]), None);
    }

    #[test]
    fn commands_that_talk_to_no_server_are_commands() {
        let all = GantryArguments::command();
        for line in WITHOUT_SERVER {
            let found = line.split(' ').try_fold(&all, |command, name| command.find_subcommand(name));
            assert!(found.is_some(), "{line}");
        }
    }

    #[test]
    fn global_flags_are_taken_before_and_after_the_command() {
        for line in [["gantry", "--json", "doctor"], ["gantry", "doctor", "--json"]] {
            assert!(GantryArguments::try_parse_from(line).unwrap().global.json);
        }
    }
}
