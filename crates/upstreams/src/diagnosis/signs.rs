//! Signs: lines of a log that say by themselves what a server misses, and what would give it.

use super::no_answer::no_answer;
use super::variables::no_variable;
use super::{NAME_CHARS_MAX, StartDiagnosis, StartRemedy, plain, shown};
use crate::connection::stdio::NOT_LET_THROUGH;

/// The module of the Python SDK, and its versions before the second.
const SDK: &str = "mcp";
const SDK_FORMER: &str = "mcp<2";
/// What servers of the SDK have had in one version and not in another.
const SDK_ATTRIBUTES: [&str; 16] = [
    "add_tool",
    "call_tool",
    "completion",
    "get_capabilities",
    "get_context",
    "get_prompt",
    "list_prompts",
    "list_resource_templates",
    "list_resources",
    "list_tools",
    "progress_notification",
    "read_resource",
    "request_context",
    "run_stdio_async",
    "set_logging_level",
    "subscribe_resource",
];

/// What a line says, and with it those behind it.
pub(super) type Sign = fn(&str, &[&str]) -> Option<StartDiagnosis>;

/// Signs, the surest first.
pub(super) const SIGNS: [Sign; 15] = [
    |line, _| not_let_through(line),
    |line, _| no_descriptor(line),
    |line, _| no_package(line),
    |line, _| no_trust(line),
    |line, _| no_interpreter(line),
    |line, _| no_registry(line),
    |line, _| no_memory(line),
    |line, _| other_sdk(line),
    |line, _| no_fit(line),
    |line, _| no_repository(line),
    |line, _| no_file(line),
    |line, _| no_write(line),
    no_answer,
    no_variable,
    |line, _| no_module(line),
];

pub(super) fn found(what: String, remedy: Option<StartRemedy>) -> Option<StartDiagnosis> {
    Some(StartDiagnosis { what, remedy })
}

fn not_let_through(line: &str) -> Option<StartDiagnosis> {
    let place = line.split_once(NOT_LET_THROUGH)?.1.trim();
    found(format!("it wants to connect to {place}"), Some(StartRemedy::Host(place.to_owned())))
}

/// As many files as one process may have. What it could not open then is there, and may be seen.
fn no_descriptor(line: &str) -> Option<StartDiagnosis> {
    let signs = ["EMFILE", "Too many open files", "too many open files"];
    signs.iter().any(|sign| line.contains(sign)).then_some(())?;
    found("it opens more files than a process may have at once (`[sandbox]`, `open_files`)".into(), None)
}

/// npm: `404 Not Found - GET https://registry/name`, uv: `Because name was not found in the package registry`.
fn no_package(line: &str) -> Option<StartDiagnosis> {
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
fn no_trust(line: &str) -> Option<StartDiagnosis> {
    let signs = ["UnknownIssuer", "unable to get local issuer certificate", "SELF_SIGNED_CERT_IN_CHAIN"];
    let remedy = || Some(StartRemedy::Variables(vec!["SSL_CERT_FILE".into()]));
    signs.iter().any(|sign| line.contains(sign)).then(|| {
        found(
            "it does not trust the certificate of what it connects to: name the file with your authorities".into(),
            remedy(),
        )
    })?
}

/// uv gets interpreters elsewhere than packages: `Failed to install cpython-3.12.9-linux-x86_64-gnu`.
fn no_interpreter(line: &str) -> Option<StartDiagnosis> {
    let signs =
        ["Failed to install cpython-", "Failed to download https://github.com/astral-sh/python-build-standalone"];
    let of_address = line.contains("error sending request") && line.contains("python-build-standalone");
    (of_address || signs.iter().any(|sign| line.contains(sign))).then_some(())?;
    found(
        "uv could not fetch the Python it was told to use, which comes from GitHub: install that Python here".into(),
        None,
    )
}

fn no_registry(line: &str) -> Option<StartDiagnosis> {
    let of_npm = line.contains("npm err")
        && ["ENOTFOUND", "EAI_AGAIN", "ECONNREFUSED", "ETIMEDOUT", "ECONNRESET"].iter().any(|code| line.contains(code));
    let of_uv = line.contains("Failed to fetch: `http") || line.contains("error sending request for url");
    (of_npm || of_uv)
        .then(|| found("the package registry cannot be reached from here, or not now".into(), None))
        .flatten()
}

fn no_memory(line: &str) -> Option<StartDiagnosis> {
    let of_heap = line.contains("JavaScript heap out of memory") || line.starts_with("MemoryError");
    (line.contains("for want of memory") || of_heap)
        .then(|| found("it needs more memory than servers have (`[upstreams]`, `memory_mb`)".into(), None))
        .flatten()
}

/// Something that is not there inside, whether it is outside or not.
fn no_file(line: &str) -> Option<StartDiagnosis> {
    let absent =
        ["ENOENT", "No such file or directory", "Cannot find module '/", "can't open file '/", "does not exist"];
    if !absent.iter().any(|sign| line.contains(sign)) {
        return None;
    }
    let path = path_in(line)?;
    found(format!("it looks for `{path}`, which it may not see"), Some(StartRemedy::Read(path)))
}

/// The path that a program was refused, if that is what this line says: of a start, or of a call.
pub fn refused_path(line: &str) -> Option<String> {
    let closed = ["EACCES", "EROFS", "EPERM", "Permission denied", "Read-only file system", "readonly database"];
    if !closed.iter().any(|sign| line.contains(sign)) {
        return None;
    }
    path_in(line)
}

fn no_write(line: &str) -> Option<StartDiagnosis> {
    let path = refused_path(line)?;
    let folder = path.rsplit_once('/').map_or("/", |(folder, _)| folder);
    let folder = if folder.is_empty() { path.as_str() } else { folder };
    found(format!("it wants to use `{path}`, which it may not"), Some(StartRemedy::Write(folder.to_owned())))
}

/// The version 2 of the Python SDK has other modules, and those of version 1 are what most servers were written with.
fn other_sdk(line: &str) -> Option<StartDiagnosis> {
    let of_sdk = |name: &str| name.split('.').next() == Some(SDK) && name.contains('.');
    let module = line.split_once("No module named ").and_then(|(_, rest)| in_quotes(rest)).filter(|name| of_sdk(name));
    let name = line.split_once("cannot import name ").and_then(|(_, rest)| {
        let (_, source) = rest.split_once(" from ")?;
        let source = in_quotes(source)?;
        (source == SDK || of_sdk(source)).then_some(in_quotes(rest)?)
    });
    // What its decorators are called: `AttributeError: 'Server' object has no attribute 'list_resources'`.
    let attribute = line.split_once(" object has no attribute ").and_then(|(before, rest)| {
        let attribute = in_quotes(rest)?;
        let of_server = ["'Server'", "'FastMCP'", "'MCPServer'"].iter().any(|class| before.ends_with(class));
        (of_server && SDK_ATTRIBUTES.contains(&attribute)).then_some(attribute)
    });
    let of_module = line
        .split_once("module 'mcp")
        .filter(|(_, rest)| rest.starts_with(['.', '\'']))
        .and_then(|(_, rest)| in_quotes(rest.split_once("has no attribute ")?.1));
    let missing = module.or(name).or(attribute).or(of_module)?;
    found(
        format!(
            "the version of the Python SDK `{SDK}` that is installed does not have `{}`: it was written for another one, mostly `{SDK_FORMER}`",
            plain(missing)
        ),
        Some(StartRemedy::Package(SDK_FORMER.to_owned())),
    )
}

/// Packages of which one wants another version of the other than is there: `pkg_resources`, `pip check`, uv.
fn no_fit(line: &str) -> Option<StartDiagnosis> {
    let line = line.trim();
    let is_conflict = line.contains("VersionConflict: ")
        || line.contains("which is incompatible")
        || (line.contains(" depends on ") && (line.contains("we can conclude") || line.contains("Because ")));
    is_conflict.then_some(())?;
    let why =
        line.split_once("VersionConflict: ").map_or(line, |(_, why)| why).trim_start_matches(['╰', '─', '▶', ' ']);
    let wants_sdk = ["depends on ", "requires ", "Requirement.parse('"]
        .iter()
        .filter_map(|sign| why.split_once(sign))
        .find_map(|(_, rest)| requirement(rest).filter(|wanted| wanted.starts_with(SDK) && wanted.contains('<')));
    found(
        format!("two of its packages do not go together: {}", shown(why)),
        wants_sdk.map(|wanted| StartRemedy::Package(wanted.to_owned())),
    )
}

/// A requirement of Python at the start of a text, as far as it is one of the SDK: `mcp<2`, `mcp>=1.2,<2`.
fn requirement(text: &str) -> Option<&str> {
    let is_part =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '<' | '>' | '=' | '!' | '~' | '.' | ',' | '*' | '-' | '_');
    let end = text.find(|c| !is_part(c)).unwrap_or(text.len());
    let wanted = text.get(..end)?.trim_end_matches([',', '.']);
    let behind = wanted.strip_prefix(SDK)?;
    (behind.starts_with(['<', '>', '=', '!', '~']) && wanted.len() <= NAME_CHARS_MAX).then_some(wanted)
}

/// git, GitPython and `mcp-server-git`, of a folder that is none, or that they may not see.
fn no_repository(line: &str) -> Option<StartDiagnosis> {
    let lower = line.to_ascii_lowercase();
    let signs = ["not a git repository", "not a valid git repository", "invalidgitrepositoryerror", "nosuchpatherror"];
    signs.iter().any(|sign| lower.contains(sign)).then_some(())?;
    let folder = path_in(line).map(|path| path.strip_suffix("/.git").map(str::to_owned).unwrap_or(path));
    let what = match &folder {
        Some(folder) => format!("`{folder}` is no git repository that it may read"),
        None => "it was given no git repository: its arguments have to name one, which it may read".to_owned(),
    };
    found(what, Some(StartRemedy::Repository(folder)))
}

fn no_module(line: &str) -> Option<StartDiagnosis> {
    let (_, rest) = ["No module named ", "Cannot find package ", "Cannot find module "]
        .iter()
        .find_map(|sign| line.split_once(sign))?;
    let name = rest.trim_start_matches(['\'', '"']).split(['\'', '"', ' ']).next()?;
    found(
        format!("its interpreter does not have the module `{}`: name the one it is installed for in full", plain(name)),
        None,
    )
}

/// What stands in quotes at the beginning.
fn in_quotes(text: &str) -> Option<&str> {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"' | '`'))?;
    text.get(1..)?.split(quote).next().filter(|inside| !inside.is_empty())
}

/// The first path in quotes, or else the first at all, that is nothing of the sandbox's own.
fn path_in(line: &str) -> Option<String> {
    // In quotes it may have blanks in it. Which parts are in them, nobody can say: "can't open '/srv/a b'".
    let quoted = line.split(['\'', '"', '`']).skip(1);
    let loose = line.split_whitespace().map(|word| word.trim_matches([',', ':', ';', '.', '(', ')']));
    // Loggers put their name in front: `ERROR:server:/srv/a is …`. What begins with two slashes is an address.
    let behind_colon = line.split_whitespace().filter_map(|word| word.rsplit_once(':')).map(|(_, rest)| rest);
    let behind_colon = behind_colon.filter(|rest| !rest.starts_with("//"));
    let mut words = quoted.chain(loose).chain(behind_colon);
    let path = words.find(|word| word.starts_with('/') && word.len() > 1)?;
    let clean = path.strip_prefix("file://").unwrap_or(path);
    let of_sandbox = ["/proc", "/dev", "/run"].iter().any(|own| std::path::Path::new(clean).starts_with(own));
    let fits =
        clean.len() <= NAME_CHARS_MAX && !clean.chars().any(|c| c.is_control() || (c.is_whitespace() && c != ' '));
    (fits && !of_sandbox).then(|| clean.to_owned())
}
