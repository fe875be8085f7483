//! Why a server does not start, from what it and Gantry have written to its log: what is missing, and what would give it.
//!
//! Programs say it in their own words. Known are those of Node, Python, npm and uv, of the sandbox, and of servers that miss a
//! variable; from everything else the last line is shown. A diagnosis is a proposal for whoever operates this: nothing is
//! granted by it.
//!
//! Invariant DIA-1: nothing but a path, a host, the name of a variable, a module or a package is taken out of a line; of lines
//! that nobody understands one is shown, cut and on one line. Logs have no secrets in them (LOG-3).

use crate::connection::router::NOT_A_MESSAGE;

mod last_words;
mod no_answer;
mod signs;
mod variables;

pub use no_answer::is_loopback;
pub use signs::refused_path;

use signs::{SIGNS, Sign, found};

/// Characters of a line that are shown.
const SHOWN_CHARS_MAX: usize = 200;
/// Longest name of a thing that is taken out of a line.
const NAME_CHARS_MAX: usize = 255;
/// Why it does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartDiagnosis {
    /// For people, one sentence.
    pub what: String,
    pub remedy: Option<StartRemedy>,
}

/// What would give a server what it misses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StartRemedy {
    /// Reading this path.
    Read(String),
    /// Writing below this folder.
    Write(String),
    /// Connecting to this host and port.
    Host(String),
    /// Values for these variables.
    Variables(Vec<String>),
    /// This package beside its own, of PyPI: another version of something it needs.
    Package(String),
    /// A git repository to work in, and to be read: this folder if one was named.
    Repository(Option<String>),
    /// More time to start.
    Patience,
}

impl StartRemedy {
    /// The arguments of `gantry server` that do it, for a server of this name.
    pub fn arguments(&self, server: &str) -> Vec<String> {
        let (command, values) = match self {
            Self::Read(path) => ("grant", vec![("--allow-read", path.clone())]),
            Self::Write(path) => ("grant", vec![("--allow-write", path.clone())]),
            Self::Host(host) => ("grant", vec![("--allow-host", host.clone())]),
            Self::Variables(names) => {
                ("edit", names.iter().map(|name| ("--env", format!("{name}=…"))).collect::<Vec<_>>())
            }
            Self::Package(package) => ("update", vec![("--with", package.clone())]),
            Self::Repository(folder) => {
                ("grant", vec![("--allow-read", folder.clone().unwrap_or_else(|| "PATH".to_owned()))])
            }
            Self::Patience => ("edit", vec![("--start-timeout", "600".to_owned())]),
        };
        let words = values.into_iter().flat_map(|(flag, value)| [flag.to_owned(), value]);
        [command.to_owned(), server.to_owned()].into_iter().chain(words).collect()
    }
}

/// What is wrong, from why Gantry says that it did not start and from the last lines of its log, oldest first.
pub fn diagnose(error: Option<&str>, log: &[String]) -> StartDiagnosis {
    // Only the last start counts.
    let is_end = |line: &&String| line.contains("[gantry] it did not start");
    let ends: Vec<usize> = log.iter().enumerate().filter(|(_, line)| is_end(line)).map(|(at, _)| at).collect();
    let begin = ends.len().checked_sub(2).and_then(|at| ends.get(at)).map_or(0, |at| at + 1);
    let lines: Vec<&str> = log.iter().skip(begin).map(|line| said(line)).collect();
    let first =
        |sign: &Sign| (0..lines.len()).find_map(|at| sign(lines.get(at)?, lines.get(at + 1..).unwrap_or_default()));
    let found = SIGNS.iter().find_map(first);
    if let Some(found) = found {
        return found;
    }
    let error = error.unwrap_or_default();
    if error.contains("in time") {
        return match other_protocol(&lines) {
            Some(what) => StartDiagnosis { what, remedy: None },
            None => StartDiagnosis { what: "it did not answer in time".into(), remedy: Some(StartRemedy::Patience) },
        };
    }
    let what = match last_words::telling(&lines) {
        Some(line) if error.contains("ended") || error.contains("connection") => {
            format!("it ended: {}", shown(&line))
        }
        Some(line) if error.is_empty() => format!("it does not answer, and wrote: {}", shown(&line)),
        None if error.is_empty() => "it does not answer".to_owned(),
        _ => shown(error),
    };
    StartDiagnosis { what, remedy: None }
}

/// What it speaks, if that is not MCP over its standard output: it serves HTTP, or writes text there. A server that waits for a
/// login at an address of its own speaks it later.
fn other_protocol(lines: &[&str]) -> Option<String> {
    let no_mcp = "it does not speak MCP over its standard output";
    let serves = |line: &&str| {
        let lower = line.to_ascii_lowercase();
        let signs = [
            "serving http on",
            "running on http",
            "running at http",
            "listening on http",
            "listening at http",
            "listening on port",
            "server started on port",
            "server running on port",
        ];
        signs.iter().any(|sign| lower.contains(sign))
            && !["callback", "oauth", "auth"].iter().any(|sign| lower.contains(sign))
    };
    if lines.iter().any(serves) {
        return Some(format!("{no_mcp}: it serves HTTP, so start it yourself and add it by its address, with `--url`"));
    }
    let written = lines.iter().rev().find_map(|line| line.strip_prefix(NOT_A_MESSAGE))?;
    Some(format!("{no_mcp}, where it wrote: {}", shown(written)))
}

/// The line without the time that stands before it.
fn said(line: &str) -> &str {
    match line.split_once(' ') {
        Some((first, rest)) if first.ends_with('Z') && first.contains('T') => rest,
        _ => line,
    }
}

/// A name from a log, fit for a sentence.
fn plain(name: &str) -> String {
    name.chars().filter(|c| !c.is_control() && *c != '`').take(NAME_CHARS_MAX).collect()
}

fn shown(line: &str) -> String {
    let text: String = line.chars().filter(|c| !c.is_control()).collect();
    let mut chars = text.trim().chars();
    let short: String = chars.by_ref().take(SHOWN_CHARS_MAX).collect();
    if chars.next().is_some() { format!("{short}…") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_real_programs_write_is_understood() {
        for (line, word, remedy) in [
            (
                "Error: ENOENT: no such file or directory, open '/srv/notes/a.json'",
                "/srv/notes/a.json",
                Some("grant s --allow-read /srv/notes/a.json"),
            ),
            (
                "PermissionError: [Errno 13] Permission denied: '/srv/db/x.sqlite'",
                "/srv/db/x.sqlite",
                Some("grant s --allow-write /srv/db"),
            ),
            (
                "Error: EROFS: read-only file system, mkdir '/srv/state'",
                "/srv/state",
                Some("grant s --allow-write /srv"),
            ),
            (
                "Error: EACCES: permission denied, open '/srv/my notes/a.md'",
                "`/srv/my notes/a.md`",
                Some("grant s --allow-write /srv/my notes"),
            ),
            (
                "python3: can't open file '/srv/x/server.py': [Errno 2] No such file or directory",
                "/srv/x/server.py",
                Some("grant s --allow-read /srv/x/server.py"),
            ),
            (
                "Error: Cannot find module '/srv/x/dist/index.js'",
                "/srv/x/dist",
                Some("grant s --allow-read /srv/x/dist/index.js"),
            ),
            ("KeyError: 'DB_URL'", "`DB_URL`", Some("edit s --env DB_URL=…")),
            ("KeyError: 'name'", "KeyError", None),
            (
                "2026-01-01T00:00:00.000Z [gantry] it may not connect to api.example.com:443",
                "api.example.com:443",
                Some("grant s --allow-host api.example.com:443"),
            ),
            (
                "Error: BRAVE_API_KEY environment variable is required",
                "`BRAVE_API_KEY`",
                Some("edit s --env BRAVE_API_KEY=…"),
            ),
            ("please set the GITHUB_TOKEN variable", "`GITHUB_TOKEN`", Some("edit s --env GITHUB_TOKEN=…")),
            (
                "npm error 404 Not Found - GET https://registry.npmjs.org/@x%2fnowhere - Not found",
                "`@x/nowhere` on npm",
                None,
            ),
            ("npm error notarget No matching version found for left-pad@99.0.0.", "`left-pad@99.0.0`", None),
            (
                "  ╰─▶ Because no-such-server was not found in the package registry and you require",
                "`no-such-server` on PyPI",
                None,
            ),
            (
                "  cause: invalid peer certificate: UnknownIssuer",
                "does not trust",
                Some("edit s --env SSL_CERT_FILE=…"),
            ),
            ("npm error code EAI_AGAIN", "registry cannot be reached", None),
            ("error: Failed to fetch: `https://pypi.org/simple/mcp/`", "registry cannot be reached", None),
            ("ModuleNotFoundError: No module named 'mcp_server_time'", "`mcp_server_time`", None),
            ("[gantry] it was ended by signal 9 for want of memory", "more memory", None),
            ("Error: EMFILE: too many open files, open '/srv/notes/a.json'", "`[sandbox]`, `open_files`", None),
            ("OSError: [Errno 24] Too many open files: '/srv/db/x.sqlite'", "`[sandbox]`, `open_files`", None),
            ("Error: EMFILE: too many open files, watch '/srv/notes'", "`[sandbox]`, `open_files`", None),
            (
                "Error: JIRA_URL and JIRA_TOKEN environment variables are required",
                "the variables `JIRA_URL` and `JIRA_TOKEN`",
                Some("edit s --env JIRA_URL=… --env JIRA_TOKEN=…"),
            ),
            (
                "Please set SLACK_BOT_TOKEN=<YOUR_BOT_TOKEN>, SLACK_TEAM_ID and SLACK_BOT_TOKEN",
                "the variables `SLACK_BOT_TOKEN` and `SLACK_TEAM_ID`",
                Some("edit s --env SLACK_BOT_TOKEN=… --env SLACK_TEAM_ID=…"),
            ),
            (
                "ValueError: Either GITHUB_TOKEN or GITHUB_APP_KEY must be set",
                "one of the variables `GITHUB_TOKEN`, `GITHUB_APP_KEY`",
                Some("edit s --env GITHUB_TOKEN=…"),
            ),
            ("ERROR: environment variable TOKEN is not set", "the variable `TOKEN`", Some("edit s --env TOKEN=…")),
            (
                "ModuleNotFoundError: No module named 'mcp.server.fastmcp'. This is mcp 2.x, where FastMCP was renamed, or pin 'mcp<2'",
                "does not have `mcp.server.fastmcp`",
                Some("update s --with mcp<2"),
            ),
            (
                "ImportError: cannot import name 'FastMCP' from 'mcp.server' (/tool/lib/python3.12/site-packages/mcp/server/__init__.py)",
                "does not have `FastMCP`",
                Some("update s --with mcp<2"),
            ),
            (
                "AttributeError: 'Server' object has no attribute 'list_resources'",
                "does not have `list_resources`",
                Some("update s --with mcp<2"),
            ),
            ("AttributeError: 'Server' object has no attribute 'colour'", "it ended: AttributeError", None),
            (
                "error: Failed to install cpython-3.12.9-linux-x86_64-gnu",
                "uv could not fetch the Python it was told to use, which comes from GitHub",
                None,
            ),
            ("Error: connect ECONNREFUSED db.example:5432", "nothing answers at db.example:5432", None),
            (
                "Error: connect ECONNREFUSED 127.0.0.1:5432",
                "nothing answers at 127.0.0.1:5432",
                Some("grant s --allow-host 127.0.0.1:5432"),
            ),
            (
                "pkg_resources.ContextualVersionConflict: (mcp 2.0.0 (/srv/lib), Requirement.parse('mcp<2,>=1.9'), {'x'})",
                "two of its packages do not go together: (mcp 2.0.0",
                Some("update s --with mcp<2,>=1.9"),
            ),
            (
                "weather-server 0.3.0 requires mcp<2, but you have mcp 2.1.0 which is incompatible.",
                "requires mcp<2, but you have mcp 2.1.0",
                Some("update s --with mcp<2"),
            ),
            (
                "  ╰─▶ Because weather-server==0.3 depends on pydantic<2 and you require",
                "do not go together: Because weather-server==0.3 depends on pydantic<2",
                None,
            ),
            (
                "ERROR:mcp_server_git.server:/srv/notes is not a valid Git repository",
                "`/srv/notes` is no git repository that it may read",
                Some("grant s --allow-read /srv/notes"),
            ),
            (
                "git.exc.InvalidGitRepositoryError: /srv/notes",
                "`/srv/notes` is no git repository",
                Some("grant s --allow-read /srv/notes"),
            ),
            (
                "fatal: not a git repository: '/srv/notes/.git'",
                "`/srv/notes` is no git repository",
                Some("grant s --allow-read /srv/notes"),
            ),
            (
                "fatal: not a git repository (or any of the parent directories): .git",
                "it was given no git repository",
                Some("grant s --allow-read PATH"),
            ),
            ("something that nobody knows", "it ended: something that nobody knows", None),
        ] {
            let told = diagnose(Some("the program ended"), &[line.to_owned()]);
            assert!(told.what.contains(word), "{line}: {told:?}");
            assert_eq!(told.remedy.map(|remedy| remedy.arguments("s").join(" ")).as_deref(), remedy, "{line}");
        }
    }

    #[test]
    fn variables_that_are_listed_below_are_all_named() {
        let log = [
            "2026-01-01T00:00:00.000Z Missing required environment variables:",
            "2026-01-01T00:00:00.000Z   - SLACK_BOT_TOKEN: the token of the bot",
            "2026-01-01T00:00:00.000Z   - TEAM",
            "2026-01-01T00:00:00.000Z Usage: SERVER_NAME [options]",
        ];
        let told = diagnose(None, &log.map(str::to_owned));
        assert_eq!(told.what, "it wants the variables `SLACK_BOT_TOKEN` and `TEAM`");
        assert_eq!(told.remedy, Some(StartRemedy::Variables(vec!["SLACK_BOT_TOKEN".into(), "TEAM".into()])));
    }

    #[test]
    fn only_the_last_start_counts_and_the_surest_sign_goes_first() {
        let log = [
            "Error: ENOENT: no such file or directory, open '/old'",
            "2026-01-01T00:00:00Z [gantry] it did not start: the program ended",
            "warning: TOKEN_FILE is not set",
            "[gantry] it may not connect to x.example:443",
            "2026-01-01T00:00:01Z [gantry] it did not start: the program ended",
        ];
        let told = diagnose(None, &log.map(str::to_owned));
        assert_eq!(told.remedy, Some(StartRemedy::Host("x.example:443".into())));
    }

    #[test]
    fn without_a_sign_the_reason_is_what_gantry_knows() {
        let late = diagnose(Some("the server did not answer in time"), &[]);
        assert_eq!(late.remedy, Some(StartRemedy::Patience));
        let ours = diagnose(Some("the server's program could not be started: no such file or directory"), &[]);
        assert!(ours.what.contains("could not be started") && ours.remedy.is_none());
        let long = diagnose(Some("the program ended"), &["x".repeat(1_000)]);
        assert!(long.what.chars().count() < SHOWN_CHARS_MAX + 20);
        assert_eq!(diagnose(None, &[]).what, "it does not answer");
        let alive = diagnose(None, &["loaded 3 plugins".to_owned()]);
        assert_eq!(alive.what, "it does not answer, and wrote: loaded 3 plugins");
    }

    #[test]
    fn what_speaks_something_else_is_not_given_more_time() {
        let late = |line: &str| diagnose(Some("the server did not answer in time"), &[line.to_owned()]);
        for line in [
            "2026-01-01T00:00:00Z [not a message] Serving HTTP on 0.0.0.0 port 8000 (http://0.0.0.0:8000/) ...",
            "INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)",
            "Server listening on port 3000",
        ] {
            let told = late(line);
            assert!(told.what.contains("does not speak MCP over its standard output: it serves HTTP"), "{told:?}");
            assert_eq!(told.remedy, None, "{line}");
        }
        let text = late("[not a message] Hello, what is your name?");
        assert!(text.what.ends_with("standard output, where it wrote: Hello, what is your name?"), "{text:?}");
        assert_eq!(text.remedy, None);
        for line in ["loading the model", "OAuth callback server running at http://127.0.0.1:3334"] {
            assert_eq!(late(line).remedy, Some(StartRemedy::Patience), "{line}");
        }
    }
}
