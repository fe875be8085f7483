//! From the `mcpServers` block people already have to servers behind Gantry: what will run, what it may touch and why,
//! and which values are secrets that must not stay in a configuration. (MCP-005, MCP-006, X-35)
//!
//! Pure but for one trait, [`Machine`], which says what is on this machine. Nothing is started, written or sent here.
//!
//! Invariants
//! - IMP-1: a problem of one server never hides another server; every problem is named with its place in the file.
//! - IMP-2: no value that looks like a secret is in a [`ServerSpec`], in a warning, or in a problem.
//! - IMP-3: nothing is granted that the block does not name, apart from the program's own files and what a package known
//!   by name cannot work without; each grant says why.
//!
//! Not here: asking whether that is wanted, keeping the secrets, adding the servers (`gantry import mcp`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use contract::json::{self, JsonLimits};
use serde_json::{Map, Value};

use crate::spec::{Relay, ServerReach, ServerSpec, SetBy, Setting, Upkeep};

mod comments;
mod grants;
mod known;
mod placeholders;
pub(crate) mod secrets;

pub use grants::Grant;

/// Names under which clients keep the block.
const BLOCKS: [&str; 4] = ["/mcpServers", "/servers", "/mcp/servers", "/context_servers"];
/// Most servers of one file.
const SERVERS_MAX: usize = 256;
/// Longest name of a server.
const NAME_CHARS_MAX: usize = 64;
/// Where programs are found inside.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Members that only concern the client that had the block.
const CLIENTS_OWN: [&str; 14] = [
    "alwaysAllow",
    "autoApprove",
    "autoStart",
    "description",
    "dev",
    "disabledTools",
    "enabled",
    "gallery",
    "icon",
    "source",
    "timeout",
    "tools",
    "trust",
    "version",
];

/// What is on this machine.
pub trait Machine {
    /// What is at this path, if anything is.
    fn kind(&self, path: &Path) -> Option<PathKind>;
    /// Where a program is that is named without a path.
    fn program(&self, name: &str) -> Option<PathBuf>;
    /// Where a path leads, with links followed.
    fn really(&self, path: &Path) -> PathBuf;
    /// A variable of the environment the import runs in.
    fn variable(&self, name: &str) -> Option<String>;
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    File,
    Folder,
}

/// What was read of a file.
#[derive(Debug, Default)]
pub struct Import {
    /// In the order of the file.
    pub servers: Vec<ImportedServer>,
    pub problems: Vec<Problem>,
}

/// A server that can be put behind Gantry.
#[derive(Debug)]
pub struct ImportedServer {
    pub name: String,
    pub spec: ServerSpec,
    /// What will run or be reached, for people.
    pub runs: String,
    pub grants: Vec<Grant>,
    pub warnings: Vec<String>,
    /// Values that go into the secrets folder.
    pub secrets: Vec<KeptSecret>,
}

/// A value that the specification only names.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptSecret {
    /// The name of the credential.
    pub name: String,
    /// None if the block does not have it and somebody has to provide it.
    pub value: Option<String>,
    /// Where it stood: `env BRAVE_API_KEY`.
    pub place: String,
}

impl std::fmt::Debug for KeptSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "KeptSecret({} of {})", self.name, self.place)
    }
}

/// Something that is not in order, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// JSON pointer into the file; empty for the whole.
    pub path: String,
    pub message: String,
}

/// Reads a file.
pub fn read(text: &str, machine: &dyn Machine) -> Import {
    let mut import = Import::default();
    let problem = |path: &str, message: String| Problem { path: path.to_owned(), message };
    // Some clients allow comments; the others never have any.
    let plain = comments::without(text.trim_start_matches('\u{feff}'));
    let document = match json::read(plain.as_bytes(), &JsonLimits::default()) {
        Ok(document) => document,
        Err(error) => {
            let why = if text.trim().is_empty() {
                "the file is empty".to_owned()
            } else {
                format!("the file cannot be read: {error}")
            };
            import.problems.push(problem("", why));
            return import;
        }
    };
    let Some((place, block)) = BLOCKS.iter().find_map(|place| Some((*place, document.pointer(place)?))) else {
        let message = "there is no `mcpServers` (Claude, Cursor), `servers` (VS Code) or `context_servers` in it";
        import.problems.push(problem("", message.into()));
        return import;
    };
    let Some(entries) = block.as_object() else {
        import.problems.push(problem(place, "must be an object with a member for each server".into()));
        return import;
    };
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (written, entry) in entries.iter().take(SERVERS_MAX) {
        let path = format!("{place}/{}", written.replace('~', "~0").replace('/', "~1"));
        let mut reading = Reading { machine, path: path.clone(), name: fit(written), ..Reading::new(machine) };
        if reading.name != *written {
            reading.warnings.push(format!("it is called `{}` here", reading.name));
        }
        if let Some(other) = names.insert(reading.name.clone(), written.clone()) {
            reading.problem("", format!("would be called `{}`, as `{other}` is: rename one", reading.name));
        }
        let server = reading.server(entry);
        import.problems.append(&mut reading.problems);
        import.servers.extend(server);
    }
    if entries.len() > SERVERS_MAX {
        import.problems.push(problem(place, format!("only the first {SERVERS_MAX} servers are read")));
    }
    import
}

/// A name of ours for a server.
fn fit(written: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = written.trim().chars().map(plain).take(NAME_CHARS_MAX).collect();
    let name = name.trim_start_matches(['-', '_', '.']);
    if name.is_empty() { "server".to_owned() } else { name.to_owned() }
}

/// One entry, half read.
struct Reading<'m> {
    machine: &'m dyn Machine,
    path: String,
    name: String,
    problems: Vec<Problem>,
    warnings: Vec<String>,
    secrets: Vec<KeptSecret>,
}

impl<'m> Reading<'m> {
    fn new(machine: &'m dyn Machine) -> Self {
        Self {
            machine,
            path: String::new(),
            name: String::new(),
            problems: Vec::new(),
            warnings: Vec::new(),
            secrets: Vec::new(),
        }
    }

    fn problem(&mut self, member: &str, message: impl Into<String>) {
        let path = if member.is_empty() { self.path.clone() } else { format!("{}/{member}", self.path) };
        self.problems.push(Problem { path, message: message.into() });
    }

    /// The server, unless something about it is a problem.
    fn server(&mut self, entry: &Value) -> Option<ImportedServer> {
        let Some(members) = entry.as_object() else {
            self.problem("", "must be an object");
            return None;
        };
        // Zed nests the program.
        let nested = members.get("command").and_then(Value::as_object);
        let members = &nested.map_or_else(|| members.clone(), |nested| flattened(members, nested));
        if members.get("disabled") == Some(&Value::Bool(true)) {
            self.warnings.push("it is switched off in the file".into());
        }
        for name in members.keys() {
            match name.as_str() {
                "command" | "args" | "env" | "type" | "transport" | "url" | "serverUrl" | "httpUrl" | "headers"
                | "disabled" => {}
                "cwd" => self.warnings.push("`cwd` is not used: write paths in full".into()),
                "envFile" => self.warnings.push("`envFile` is not read: put its variables into `env`".into()),
                own if CLIENTS_OWN.contains(&own) => {}
                other => self.warnings.push(format!("`{}` is not used", fit(other))),
            }
        }
        let (reach, runs, grants) =
            if members.contains_key("command") { self.program(members)? } else { self.address(members)? };
        if !self.problems.is_empty() {
            return None;
        }
        let spec = ServerSpec {
            set_by: SetBy::default(),
            reach,
            fallbacks: Vec::new(),
            namespace: None,
            shareable: false,
            relay: Relay::careful(),
            resources: false,
            prompts: false,
            upkeep: Upkeep::default(),
        };
        let (warnings, secrets) = (std::mem::take(&mut self.warnings), std::mem::take(&mut self.secrets));
        Some(ImportedServer { name: self.name.clone(), spec, runs, grants, warnings, secrets })
    }

    fn program(&mut self, members: &Map<String, Value>) -> Option<(ServerReach, String, Vec<Grant>)> {
        let Some(command) = members.get("command").and_then(Value::as_str).filter(|text| !text.is_empty()) else {
            self.problem("command", "must be text that names a program");
            return None;
        };
        if members.contains_key("url") {
            self.problem("url", "a server has a `command` or a `url`, not both");
        }
        let command = self.filled_in("command", command)?;
        let mut args = Vec::new();
        match members.get("args") {
            None | Some(Value::Null) => {}
            Some(Value::Array(items)) => {
                for (index, item) in items.iter().enumerate() {
                    match item {
                        Value::String(text) => args.extend(self.filled_in(&format!("args/{index}"), text)),
                        Value::Number(number) => args.push(number.to_string()),
                        _ => self.problem(&format!("args/{index}"), "must be text"),
                    }
                }
            }
            Some(_) => self.problem("args", "must be an array of texts"),
        }
        let mut env = self.settings(members, "env", "env", secrets::is_secret);
        if let Some(at) = args.iter().position(|arg| secrets::looks_like_one(arg)) {
            let message = "looks like a secret, and everybody on this machine can see a program's arguments: \
                           give it by `env`, if the server allows";
            self.warnings.push(format!("argument {} {message}", at + 1));
        }
        let program = grants::Program { machine: self.machine, command: &command, args: &args, env: &env };
        let grants::Inferred { grants, warnings, elsewhere } = grants::infer(&program);
        self.warnings.extend(warnings);
        let runs = std::iter::once(command.as_str()).chain(args.iter().map(|arg| secrets::masked(arg)));
        let runs = runs.collect::<Vec<_>>().join(" ");
        let permissions = grants.iter().map(|grant| grant.permission.clone()).collect();
        let command = match elsewhere {
            None => command,
            // Inside, only the system's folders are searched; what it starts itself is looked for beside it.
            Some(found) => {
                let folder = found.parent().unwrap_or(&found).display().to_string();
                env.entry("PATH".into()).or_insert_with(|| Setting::Plain(format!("{folder}:{SYSTEM_PATH}")));
                found.display().to_string()
            }
        };
        Some((ServerReach::Stdio { command, args, env, permissions }, runs, grants))
    }

    fn address(&mut self, members: &Map<String, Value>) -> Option<(ServerReach, String, Vec<Grant>)> {
        let Some((member, url)) =
            ["url", "serverUrl", "httpUrl"].into_iter().find_map(|name| Some((name, members.get(name)?)))
        else {
            self.problem("", "has neither a `command` nor a `url`");
            return None;
        };
        let Some(url) = url.as_str() else {
            self.problem(member, "must be text");
            return None;
        };
        let url = self.filled_in(member, url)?;
        let parsed =
            url::Url::parse(&url).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(parsed) = parsed else {
            self.problem(member, "must be an address that begins with https:// or http://");
            return None;
        };
        if parsed.password().is_some() || !parsed.username().is_empty() {
            self.problem(member, "must not have a name or password in it: use `headers`");
        }
        if parsed.query_pairs().any(|(name, value)| secrets::is_secret(&name, &value)) {
            self.problem(member, "has a secret in its query, where it would be logged: use `headers`");
        }
        if parsed.scheme() == "http" && !is_loopback(&parsed) {
            self.warnings.push("everything, secrets too, goes over the network in the clear (http)".into());
        }
        let headers = self.settings(members, "headers", "header", secrets::is_secret_header);
        let kind = ["type", "transport"].into_iter().find_map(|name| members.get(name)).and_then(Value::as_str);
        let runs = format!("{}{}", parsed.origin().ascii_serialization(), parsed.path());
        let reach = match kind {
            Some("sse") => ServerReach::Sse { url, headers, oauth: None },
            // The name of the older transport is in the address of most servers that still have it.
            None if parsed.path().trim_end_matches('/').ends_with("/sse") => {
                self.warnings.push("taken for the older HTTP+SSE because of its address".into());
                ServerReach::Sse { url, headers, oauth: None }
            }
            None | Some("http" | "streamable-http" | "streamableHttp" | "streamable_http") => {
                ServerReach::Http { url, headers, oauth: None }
            }
            Some(_) => {
                self.problem("type", "must be `stdio`, `http` or `sse`");
                return None;
            }
        };
        Some((reach, runs, Vec::new()))
    }

    /// The members of an object of texts, secrets named instead of told (IMP-2).
    fn settings(
        &mut self,
        members: &Map<String, Value>,
        member: &str,
        word: &str,
        is_secret: impl Fn(&str, &str) -> bool,
    ) -> BTreeMap<String, Setting> {
        let mut settings = BTreeMap::new();
        let entries = match members.get(member) {
            None | Some(Value::Null) => return settings,
            Some(Value::Object(entries)) => entries,
            Some(_) => {
                self.problem(member, "must be an object of texts");
                return settings;
            }
        };
        for (name, value) in entries {
            let text = match value {
                Value::String(text) => text.clone(),
                Value::Bool(_) | Value::Number(_) => value.to_string(),
                _ => {
                    self.problem(&format!("{member}/{}", name.replace('/', "~1")), "must be text");
                    continue;
                }
            };
            if name.is_empty() || name.contains(['=', '\0', '\n', '\r']) {
                self.problem(member, "has a name that is empty or has `=` or a line break in it");
                continue;
            }
            let filled = placeholders::filled_in(&text, self.machine);
            let credential = secrets::credential_name(&self.name, name);
            let place = format!("{word} {name}");
            let setting = match filled {
                Ok(text) if is_secret(name, &text) => {
                    self.secrets.push(KeptSecret { name: credential.clone(), value: Some(text), place });
                    Setting::Secret { secret: credential }
                }
                Ok(text) => Setting::Plain(text),
                Err(missing) => {
                    self.warnings.push(format!(
                        "`{name}` needs {missing}: put the value into the credential `{credential}` before it is called"
                    ));
                    self.secrets.push(KeptSecret { name: credential.clone(), value: None, place });
                    Setting::Secret { secret: credential }
                }
            };
            settings.insert(name.clone(), setting);
        }
        settings
    }

    fn filled_in(&mut self, member: &str, text: &str) -> Option<String> {
        match placeholders::filled_in(text, self.machine) {
            Ok(text) => Some(text),
            Err(missing) => {
                self.problem(member, format!("needs {missing}: write the value here"));
                None
            }
        }
    }
}

/// `{"command": {"path": …, "args": …, "env": …}}` as `{"command": …, "args": …, "env": …}`.
fn flattened(outer: &Map<String, Value>, inner: &Map<String, Value>) -> Map<String, Value> {
    let mut members = outer.clone();
    members.remove("settings");
    for (name, value) in inner {
        let name = if name == "path" { "command" } else { name.as_str() };
        members.insert(name.to_owned(), value.clone());
    }
    members
}

fn is_loopback(url: &url::Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name == "localhost",
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests;
