//! Why a server does not start, from what it and Gantry have written to its log: what is missing, and what would give it.
//!
//! Programs say it in their own words. Known are those of Node, Python, npm and uv, of the sandbox, and of servers that miss a
//! variable; from everything else the last line is shown. A diagnosis is a proposal for whoever operates this: nothing is
//! granted by it.
//!
//! Invariant DIA-1: nothing but a path, a host, the name of a variable, a module or a package is taken out of a line; of lines
//! that nobody understands one is shown, cut and on one line. Logs have no secrets in them (LOG-3).

use crate::connection::stdio::NOT_LET_THROUGH;

/// Characters of a line that are shown.
const SHOWN_CHARS_MAX: usize = 200;
/// Longest name of a thing that is taken out of a line.
const NAME_CHARS_MAX: usize = 255;

/// Why it does not start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnosis {
    /// For people, one sentence.
    pub what: String,
    pub remedy: Option<Remedy>,
}

/// What would give a server what it misses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remedy {
    /// Reading this path.
    Read(String),
    /// Writing below this folder.
    Write(String),
    /// Connecting to this host and port.
    Host(String),
    /// A value for this variable.
    Variable(String),
    /// More time to start.
    Patience,
}

impl Remedy {
    /// The arguments of `gantry server` that do it, for a server of this name.
    pub fn arguments(&self, server: &str) -> Vec<String> {
        let (command, flag, value) = match self {
            Self::Read(path) => ("grant", "--allow-read", path.clone()),
            Self::Write(path) => ("grant", "--allow-write", path.clone()),
            Self::Host(host) => ("grant", "--allow-host", host.clone()),
            Self::Variable(name) => ("edit", "--env", format!("{name}=…")),
            Self::Patience => ("edit", "--start-timeout", "600".to_owned()),
        };
        vec![command.to_owned(), server.to_owned(), flag.to_owned(), value]
    }
}

/// What is wrong, from why Gantry says that it did not start and from the last lines of its log, oldest first.
pub fn diagnose(error: Option<&str>, log: &[String]) -> Diagnosis {
    // Only the last start counts.
    let is_end = |line: &&String| line.contains("[gantry] it did not start");
    let ends: Vec<usize> = log.iter().enumerate().filter(|(_, line)| is_end(line)).map(|(at, _)| at).collect();
    let begin = ends.len().checked_sub(2).and_then(|at| ends.get(at)).map_or(0, |at| at + 1);
    let lines: Vec<&str> = log.iter().skip(begin).map(|line| said(line)).collect();
    let found = SIGNS.iter().find_map(|sign| lines.iter().find_map(|line| sign(line)));
    if let Some(found) = found {
        return found;
    }
    let error = error.unwrap_or_default();
    if error.contains("in time") {
        return Diagnosis { what: "it did not answer in time".into(), remedy: Some(Remedy::Patience) };
    }
    let own = lines.iter().rev().find(|line| !line.starts_with("[gantry]") && line.chars().any(char::is_alphanumeric));
    let what = match own {
        Some(line) if error.is_empty() || error.contains("ended") || error.contains("connection") => {
            format!("it ended: {}", shown(line))
        }
        _ if error.is_empty() => "it does not answer".to_owned(),
        _ => shown(error),
    };
    Diagnosis { what, remedy: None }
}

/// The line without the time that stands before it.
fn said(line: &str) -> &str {
    match line.split_once(' ') {
        Some((first, rest)) if first.ends_with('Z') && first.contains('T') => rest,
        _ => line,
    }
}

/// Signs, the surest first.
const SIGNS: [fn(&str) -> Option<Diagnosis>; 9] =
    [not_let_through, no_package, no_trust, no_registry, no_memory, no_file, no_write, no_variable, no_module];

fn found(what: String, remedy: Option<Remedy>) -> Option<Diagnosis> {
    Some(Diagnosis { what, remedy })
}

fn not_let_through(line: &str) -> Option<Diagnosis> {
    let place = line.split_once(NOT_LET_THROUGH)?.1.trim();
    found(format!("it wants to connect to {place}"), Some(Remedy::Host(place.to_owned())))
}

/// npm: `404 Not Found - GET https://registry/name`, uv: `Because name was not found in the package registry`.
fn no_package(line: &str) -> Option<Diagnosis> {
    if line.contains("was not found in the package registry") {
        let name = line.split_once("Because ").and_then(|(_, rest)| rest.split_whitespace().next());
        return found(format!("there is no package `{}` on PyPI", plain(name.unwrap_or("of that name"))), None);
    }
    if line.contains("404") && line.contains("GET http") {
        let name = line.split("://").nth(1)?.split_whitespace().next()?.split_once('/')?.1;
        return found(format!("there is no package `{}` on npm", plain(&name.replace("%2f", "/"))), None);
    }
    if line.contains("ETARGET") || line.contains("No matching version found for ") {
        let name = line.split_once("No matching version found for ")?.1.trim_end_matches('.');
        return found(format!("there is no version `{}` on npm", plain(name)), None);
    }
    None
}

/// A network that has an authority of its own, which the program does not look for where the system does.
fn no_trust(line: &str) -> Option<Diagnosis> {
    let signs = ["UnknownIssuer", "unable to get local issuer certificate", "SELF_SIGNED_CERT_IN_CHAIN"];
    let remedy = || Some(Remedy::Variable("SSL_CERT_FILE".into()));
    signs.iter().any(|sign| line.contains(sign)).then(|| {
        found(
            "it does not trust the certificate of what it connects to: name the file with your authorities".into(),
            remedy(),
        )
    })?
}

fn no_registry(line: &str) -> Option<Diagnosis> {
    let of_npm = line.contains("npm err")
        && ["ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ECONNRESET"].iter().any(|code| line.contains(code));
    let of_uv = line.contains("Failed to fetch: `http") || line.contains("error sending request for url");
    (of_npm || of_uv)
        .then(|| found("the package registry cannot be reached from here, or not now".into(), None))
        .flatten()
}

fn no_memory(line: &str) -> Option<Diagnosis> {
    let of_heap = line.contains("JavaScript heap out of memory") || line.starts_with("MemoryError");
    (line.contains("for want of memory") || of_heap)
        .then(|| found("it needs more memory than servers have (`[upstreams]`, `memory_mb`)".into(), None))
        .flatten()
}

/// Something that is not there inside, whether it is outside or not.
fn no_file(line: &str) -> Option<Diagnosis> {
    let absent =
        ["ENOENT", "No such file or directory", "Cannot find module '/", "can't open file '/", "does not exist"];
    if !absent.iter().any(|sign| line.contains(sign)) {
        return None;
    }
    let path = path_in(line)?;
    found(format!("it looks for `{path}`, which it may not see"), Some(Remedy::Read(path)))
}

/// The path that a program was refused, if that is what this line says: of a start, or of a call.
pub fn refused_path(line: &str) -> Option<String> {
    let closed = ["EACCES", "EROFS", "EPERM", "Permission denied", "Read-only file system", "readonly database"];
    if !closed.iter().any(|sign| line.contains(sign)) {
        return None;
    }
    path_in(line)
}

fn no_write(line: &str) -> Option<Diagnosis> {
    let path = refused_path(line)?;
    let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
    let folder = if folder.is_empty() { path.as_str() } else { folder };
    found(format!("it wants to use `{path}`, which it may not"), Some(Remedy::Write(folder.to_owned())))
}

/// `BRAVE_API_KEY environment variable is required` and its many relatives.
fn no_variable(line: &str) -> Option<Diagnosis> {
    // Python, when nobody has said what `os.environ["DB_URL"]` is.
    if let Some(name) = line.strip_prefix("KeyError: ").map(|name| name.trim_matches(['\'', '"']))
        && !name.is_empty()
        && name.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    {
        return found(format!("it wants the variable `{}`", plain(name)), Some(Remedy::Variable(plain(name))));
    }
    let lower = line.to_ascii_lowercase();
    let signs = [
        "required",
        "missing",
        "not set",
        "must be set",
        "must provide",
        "is not defined",
        "not provided",
        "please set",
    ];
    if !signs.iter().any(|sign| lower.contains(sign)) {
        return None;
    }
    let of_variable = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
    let name = line.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).find(|word| {
        word.len() > 3 && word.contains('_') && word.chars().all(of_variable) && !word.starts_with("ERR_")
    })?;
    found(format!("it wants the variable `{}`", plain(name)), Some(Remedy::Variable(plain(name))))
}

fn no_module(line: &str) -> Option<Diagnosis> {
    let (_, rest) = ["No module named ", "Cannot find package ", "Cannot find module "]
        .iter()
        .find_map(|sign| line.split_once(sign))?;
    let name = rest.trim_start_matches(['\'', '"']).split(['\'', '"', ' ']).next()?;
    found(
        format!("its interpreter does not have the module `{}`: name the one it is installed for in full", plain(name)),
        None,
    )
}

/// The first path in quotes, or else the first at all, that is nothing of the sandbox's own.
fn path_in(line: &str) -> Option<String> {
    // In quotes it may have blanks in it. Which parts are in them, nobody can say: "can't open '/srv/a b'".
    let quoted = line.split(['\'', '"', '`']).skip(1);
    let loose = line.split_whitespace().map(|word| word.trim_matches([',', ':', ';', '.', '(', ')']));
    let path = quoted.chain(loose).find(|word| word.starts_with('/') && word.len() > 1)?;
    let clean = path.strip_prefix("file://").unwrap_or(path);
    let of_sandbox = ["/proc", "/dev", "/run"].iter().any(|own| std::path::Path::new(clean).starts_with(own));
    let fits =
        clean.len() <= NAME_CHARS_MAX && !clean.chars().any(|c| c.is_control() || (c.is_whitespace() && c != ' '));
    (fits && !of_sandbox).then(|| clean.to_owned())
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
            ("something that nobody knows", "it ended: something that nobody knows", None),
        ] {
            let told = diagnose(Some("the program ended"), &[line.to_owned()]);
            assert!(told.what.contains(word), "{line}: {told:?}");
            assert_eq!(told.remedy.map(|remedy| remedy.arguments("s").join(" ")).as_deref(), remedy, "{line}");
        }
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
        assert_eq!(told.remedy, Some(Remedy::Host("x.example:443".into())));
    }

    #[test]
    fn without_a_sign_the_reason_is_what_gantry_knows() {
        let late = diagnose(Some("the server did not answer in time"), &[]);
        assert_eq!(late.remedy, Some(Remedy::Patience));
        let ours = diagnose(Some("the server's program could not be started: no such file or directory"), &[]);
        assert!(ours.what.contains("could not be started") && ours.remedy.is_none());
        let long = diagnose(Some("the program ended"), &["x".repeat(1_000)]);
        assert!(long.what.chars().count() < SHOWN_CHARS_MAX + 20);
        assert_eq!(diagnose(None, &[]).what, "it does not answer");
    }
}
