//! One entry of a block: from the members a client has to a server of ours, or to every problem it has.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::secrets::{SecretJudge, SettingPlace};
use super::{
    ClosedPath, ImportMachine, ImportProblem, ImportedSecret, ImportedServer, PackageRequest, PathKind, SwitchedOff,
    env_file, fit, grants, local_paths, package_request, placeholders, pointed, secrets,
};
use crate::spec::{EraChoice, LifeBounds, RelayedQuestions, ServerReach, ServerSetting, ServerSpec, SetBy};

/// Where programs are found inside.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Longest time to the first answer of a server whose package is fetched when it starts.
const FETCHED_START_SECONDS: u64 = 180;
/// The same for one whose package is installed: a large one is read from the disk at its first start.
const INSTALLED_START_SECONDS: u64 = 60;
/// Members that only concern the client that had the block.
const CLIENTS_OWN: [&str; 13] = [
    "alwaysAllow",
    "autoApprove",
    "autoStart",
    "description",
    "dev",
    "gallery",
    "icon",
    "name",
    "note",
    "settings",
    "source",
    "trust",
    "version",
];
/// Members by which a client leaves out tools of a server. Whoever wrote one believes that nobody can call them.
const CHOSEN_TOOLS: [&str; 5] = ["disabledTools", "disabled_tools", "excludeTools", "includeTools", "tools"];

/// What a server is reached by, how that is told to people, and what it is given for it.
type Reached = (ServerReach, String, Vec<grants::ImportGrant>);

/// One entry, half read.
pub(super) struct Entry<'m> {
    machine: &'m dyn ImportMachine,
    judge: &'m SecretJudge,
    path: String,
    pub(super) name: String,
    pub(super) problems: Vec<ImportProblem>,
    pub(super) warnings: Vec<String>,
    closed: Vec<ClosedPath>,
    secrets: Vec<ImportedSecret>,
    switched_off: Option<SwitchedOff>,
    upkeep: LifeBounds,
    package: Option<PackageRequest>,
}

/// An empty list, or one that names all tools.
fn leaves_nothing_out(chosen: &Value) -> bool {
    chosen.as_array().is_some_and(|tools| tools.iter().all(|tool| tool == "*"))
}

impl<'m> Entry<'m> {
    /// The entry at this place of the file, by the name it will have.
    pub(super) fn new(machine: &'m dyn ImportMachine, judge: &'m SecretJudge, path: String, name: String) -> Self {
        Self {
            machine,
            judge,
            path,
            name,
            problems: Vec::new(),
            warnings: Vec::new(),
            closed: Vec::new(),
            secrets: Vec::new(),
            switched_off: None,
            upkeep: LifeBounds::default(),
            package: None,
        }
    }

    pub(super) fn problem(&mut self, member: &str, message: impl Into<String>) {
        let path = if member.is_empty() { self.path.clone() } else { format!("{}/{member}", self.path) };
        self.problems.push(ImportProblem { path, message: message.into() });
    }

    /// The server, unless something about it is a problem.
    pub(super) fn server(&mut self, entry: &Value) -> Option<ImportedServer> {
        let Some(members) = entry.as_object() else {
            self.problem("", "must be an object");
            return None;
        };
        let members = &flattened(members);
        for (member, off) in [("disabled", true), ("enabled", false)] {
            match members.get(member) {
                Some(Value::Bool(said)) if *said == off => {
                    let why = "in the file it is, too".to_owned();
                    self.switched_off = Some(SwitchedOff { why, can_start: true });
                }
                None | Some(Value::Bool(_) | Value::Null) => {}
                Some(_) => self.problem(member, "must be true or false"),
            }
        }
        for (name, value) in members {
            match name.as_str() {
                "command" | "args" | "env" | "envFile" | "cwd" | "type" | "transport" | "url" | "serverUrl"
                | "httpUrl" | "headers" | "disabled" | "enabled" => {}
                own if CLIENTS_OWN.contains(&own) => {}
                chosen if CHOSEN_TOOLS.contains(&chosen) && !leaves_nothing_out(value) => self.warnings.push(format!(
                    "`{chosen}` binds that client alone, and all tools are imported: `gantry activation set TOOL --disable` closes one \
                     for every agent"
                )),
                chosen if CHOSEN_TOOLS.contains(&chosen) => {}
                "timeout" => self.warnings.push(format!(
                    "`timeout` is not used, because some clients mean seconds by it and some milliseconds: `gantry server edit {} \
                     --timeout SECONDS` says how long a call may take",
                    self.name
                )),
                other => self.warnings.push(format!("`{}` is not used", fit(other))),
            }
        }
        let reached = if members.contains_key("command") { self.program(members) } else { self.address(members) };
        let (reach, runs, grants) = reached.filter(|_| self.problems.is_empty())?;
        let spec = ServerSpec {
            set_by: SetBy::default(),
            reach,
            fallbacks: Vec::new(),
            namespace: None,
            disabled: self.switched_off.is_some(),
            shareable: false,
            era: EraChoice::Auto,
            relay: RelayedQuestions::careful(),
            resources: false,
            prompts: false,
            upkeep: self.upkeep,
        };
        let (warnings, secrets) = (std::mem::take(&mut self.warnings), std::mem::take(&mut self.secrets));
        let (switched_off, package) = (self.switched_off.take(), self.package.take());
        let closed = std::mem::take(&mut self.closed);
        Some(ImportedServer {
            name: self.name.clone(),
            spec,
            runs,
            grants,
            warnings,
            closed,
            secrets,
            switched_off,
            package,
        })
    }

    fn program(&mut self, members: &Map<String, Value>) -> Option<Reached> {
        let (command, args) = self.command_line(members)?;
        if members.contains_key("url") {
            self.problem("url", "a server has a `command` or a `url`, not both");
        }
        let cwd = self.working_folder(members);
        let base = cwd.as_ref().map(Into::into).or_else(|| self.machine.folder());
        let local = local_paths::in_full(self.machine, base.as_deref(), command, args);
        let (command, args) = (local.command, local.args);
        self.warnings.extend(local.warnings);
        let mut env = self.settings(members, "env", "env", SettingPlace::Variable);
        self.env_file(members, &mut env);
        for at in self.judge.secret_arguments(&args) {
            let message = "looks like a secret, and everybody on this machine can see a program's arguments: \
                           give it by `env`, if the server allows";
            self.warnings.push(format!("argument {} {message}", at + 1));
        }
        self.package = self.wanted_package(&command, &args, cwd.as_deref());
        let program = grants::Program {
            machine: self.machine,
            command: &command,
            args: &args,
            env: &env,
            cwd: cwd.as_deref().map(Path::new),
            is_installed: self.package.is_some(),
        };
        let inferred = grants::infer(&program);
        self.warnings.extend(inferred.warnings);
        self.closed.extend(inferred.closed);
        if inferred.fetched {
            self.upkeep.start_timeout_seconds = FETCHED_START_SECONDS;
        } else if self.package.is_some() {
            self.upkeep.start_timeout_seconds = INSTALLED_START_SECONDS;
        }
        if let Some(why) = inferred.cannot_run {
            self.switched_off = Some(SwitchedOff { why, can_start: false });
        }
        let runs = std::iter::once(command.clone()).chain(self.judge.shown_arguments(&args));
        let runs = runs.collect::<Vec<_>>().join(" ");
        let permissions = inferred.grants.iter().map(|grant| grant.permission.clone()).collect();
        if !inferred.search.is_empty() {
            let path = search_path(&inferred.search);
            env.entry("PATH".into()).or_insert_with(|| ServerSetting::Plain(path));
        }
        for (name, value) in inferred.env {
            env.entry(name.to_owned()).or_insert_with(|| ServerSetting::Plain(value));
        }
        let command = inferred.command.map_or(command, |found| found.display().to_string());
        let package = None;
        Some((ServerReach::Stdio { command, args, cwd, env, permissions, package }, runs, inferred.grants))
    }

    /// The package that is installed once in place of being fetched at each start.
    fn wanted_package(&mut self, command: &str, args: &[String], cwd: Option<&str>) -> Option<PackageRequest> {
        // Whoever does not start it now may never: it is installed when it is switched on.
        if !self.machine.keeps_packages() || self.switched_off.is_some() {
            return None;
        }
        let request = match package_request::read(command, args)? {
            Ok(request) => request,
            Err(why) => {
                self.warnings.push(why);
                return None;
            }
        };
        // `npx` prefers what the project has installed itself.
        let of_project =
            cwd.zip(request.package_name()).map(|(cwd, name)| Path::new(cwd).join("node_modules").join(name));
        let is_there = of_project.is_some_and(|folder| self.machine.kind(&folder) == Some(PathKind::Folder));
        (!is_there).then_some(request)
    }

    /// The program and its arguments, placeholders filled in.
    fn command_line(&mut self, members: &Map<String, Value>) -> Option<(String, Vec<String>)> {
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
        let command = members.get("command").and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        let Some(command) = command else {
            self.problem("command", "must be text that names a program");
            return None;
        };
        let command = self.filled_in("command", command)?;
        // What editors on Windows need in front of a script.
        if matches!(command.as_str(), "cmd" | "cmd.exe")
            && args.first().is_some_and(|first| first.eq_ignore_ascii_case("/c"))
            && args.len() > 1
        {
            self.warnings.push("`cmd /c` is for Windows and left out".into());
            let rest = args.split_off(2);
            return Some((args.pop()?, rest));
        }
        if args.is_empty() && command.contains(char::is_whitespace) && self.machine.kind(Path::new(&command)).is_none()
        {
            self.problem("command", "is a whole command line: put the program here and its arguments into `args`");
            return None;
        }
        Some((command, args))
    }

    /// Where it starts, in full.
    fn working_folder(&mut self, members: &Map<String, Value>) -> Option<String> {
        let written = match members.get("cwd") {
            None | Some(Value::Null) => return None,
            Some(Value::String(text)) => self.filled_in("cwd", text)?,
            Some(_) => {
                self.problem("cwd", "must be text");
                return None;
            }
        };
        match local_paths::folder(self.machine, self.machine.folder().as_deref(), &written) {
            Some(folder) => Some(folder.display().to_string()),
            None => {
                self.problem("cwd", "must be a folder that is there");
                None
            }
        }
    }

    /// Variables that stand in a file of their own; what is said in `env` goes first.
    fn env_file(&mut self, members: &Map<String, Value>, env: &mut BTreeMap<String, ServerSetting>) {
        let written = match members.get("envFile") {
            None | Some(Value::Null) => return,
            Some(Value::String(text)) => self.filled_in("envFile", text),
            Some(_) => {
                self.problem("envFile", "must be text");
                return;
            }
        };
        let Some(written) = written else { return };
        let path = local_paths::full(self.machine, self.machine.folder().as_deref(), &written);
        let Some(text) = path.and_then(|path| self.machine.text(&path)) else {
            self.problem("envFile", "is a file that is not there, or cannot be read");
            return;
        };
        let mut found = Map::new();
        found.insert("env".into(), Value::Object(env_file::variables(&text)));
        for (name, setting) in self.settings(&found, "env", "envFile", SettingPlace::Variable) {
            env.entry(name).or_insert(setting);
        }
    }

    fn address(&mut self, members: &Map<String, Value>) -> Option<Reached> {
        let Some((member, url)) =
            ["url", "serverUrl", "httpUrl"].into_iter().find_map(|name| Some((name, members.get(name)?)))
        else {
            let of_editor = members.get("source").and_then(Value::as_str) == Some("extension");
            self.problem(
                "",
                if of_editor {
                    "is an extension of the editor, which only the editor can start: name the server's own `command`"
                } else {
                    "has neither a `command` nor a `url`"
                },
            );
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
        if parsed.query_pairs().any(|(name, value)| self.judge.may_be_secret(SettingPlace::Query, &name, &value)) {
            self.problem(member, "has a secret in its query, where it would be logged: use `headers`");
        }
        if parsed.scheme() == "http" && !is_loopback(&parsed) {
            self.warnings.push("everything, secrets too, goes over the network in the clear (http)".into());
        }
        let headers = self.settings(members, "headers", "header", SettingPlace::Header);
        let kind = ["type", "transport"].into_iter().find_map(|name| Some((name, members.get(name)?)));
        let (kind_member, kind) = match kind {
            Some((member, Value::String(kind))) => (member, Some(kind.as_str())),
            None | Some((_, Value::Null)) => ("type", None),
            Some((member, _)) => {
                self.problem(member, "must be `stdio`, `http` or `sse`");
                return None;
            }
        };
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
                self.problem(kind_member, "must be `stdio`, `http` or `sse`");
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
        kind: SettingPlace,
    ) -> BTreeMap<String, ServerSetting> {
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
                    self.problem(&format!("{member}/{}", pointed(name)), "must be text");
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
                Ok(text) if self.judge.may_be_secret(kind, name, &text) => {
                    self.secrets.push(ImportedSecret { name: credential.clone(), value: Some(text), place });
                    ServerSetting::Secret { secret: credential }
                }
                Ok(text) => ServerSetting::Plain(text),
                Err(missing) => {
                    self.warnings.push(format!(
                        "`{name}` needs {missing}: put the value into the credential `{credential}` before it is called, \
                         or `gantry server edit {} --env {name}=…`",
                        self.name
                    ));
                    self.secrets.push(ImportedSecret { name: credential.clone(), value: None, place });
                    ServerSetting::Secret { secret: credential }
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

/// Inside, only the system's folders are searched; what a program starts itself is looked for beside it.
pub(super) fn search_path(folders: &[PathBuf]) -> String {
    let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
    format!("{}:{SYSTEM_PATH}", folders.join(":"))
}

/// The forms of a command that some clients have, as the one that most have: Zed nests it
/// (`{"command": {"path": …, "args": …, "env": …}}`), others make one list of program and arguments.
pub(super) fn flattened(outer: &Map<String, Value>) -> Map<String, Value> {
    let mut members = outer.clone();
    match outer.get("command") {
        Some(Value::Object(inner)) => {
            for (name, value) in inner {
                let name = if name == "path" { "command" } else { name.as_str() };
                members.insert(name.to_owned(), value.clone());
            }
            if !inner.contains_key("path") {
                members.insert("command".into(), Value::Null);
            }
        }
        Some(Value::Array(words)) if !outer.contains_key("args") => {
            if let Some((program, args)) = words.split_first() {
                members.insert("command".into(), program.clone());
                members.insert("args".into(), Value::Array(args.to_vec()));
            }
        }
        _ => {}
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
