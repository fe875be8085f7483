//! What came of trying a server: that it works, or what is missing and the one command that gives it.

use std::path::Path;

use serde_json::{Value, json};
use upstreams::diagnosis::{StartDiagnosis, StartRemedy, diagnose, is_loopback};
use upstreams::import::{ClosedPath, SwitchedOff};

use super::server_intake::last_error;
use crate::failure::CommandFailure;
use crate::shell_word::quoted;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TrialResult {
    /// It was started and has listed its tools.
    Works,
    /// It was kept, and does not do that.
    Fails,
    /// It was not kept.
    Refused,
    /// It is kept and never started.
    Off,
    /// Nobody wanted it to be tried.
    Untried,
    /// Another one of its name was there, and stays.
    NotReplaced,
    /// It was changed, did not work, and is as it was before.
    TakenBack,
}

/// Folders and files in which people and systems keep what opens other things.
const SECRET_PLACES: [&str; 14] = [
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".config/gcloud",
    ".kube",
    ".docker",
    ".gantry",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".password-store",
    "shadow",
    "admin.token",
];

/// Programs and modules that serve HTTP.
const WEB_SERVERS: [&str; 5] = ["gunicorn", "http-server", "http.server", "hypercorn", "uvicorn"];

/// Is it, or is it in, a place for secrets, or the system's own?
pub(crate) fn is_secret_place(path: &Path) -> bool {
    let is_systems = ["/etc", "/proc", "/sys", "/dev"].iter().any(|place| path.starts_with(place));
    is_systems || path.ancestors().any(|place| SECRET_PLACES.iter().any(|secret| place.ends_with(secret)))
}

/// Variables by which a program is made to run somebody's code; none asks for them.
fn loads_code(variable: &str) -> bool {
    variable.starts_with("LD_")
        || matches!(variable, "PATH" | "NODE_OPTIONS" | "PYTHONPATH" | "PYTHONSTARTUP" | "BASH_ENV")
}

/// The trial of one server.
#[derive(Debug, Clone)]
pub(crate) struct ServerTrial {
    pub(crate) result: TrialResult,
    /// It was there before, just so.
    unchanged: bool,
    /// Tools that can be called, and all that are known.
    tools: (u64, u64),
    /// Why it does not work.
    what: Option<String>,
    /// What helps.
    pub(crate) command: Option<String>,
}

impl TrialResult {
    /// The word in JSON.
    fn as_str(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Fails => "fails",
            Self::Refused => "refused",
            Self::Off => "off",
            Self::Untried => "untried",
            Self::NotReplaced => "not_replaced",
            Self::TakenBack => "taken_back",
        }
    }
}

impl ServerTrial {
    /// It lists so many tools, of which so many can be called.
    pub(crate) fn works(available: u64, known: u64) -> Self {
        Self { tools: (available, known), ..Self::of(TrialResult::Works) }
    }

    /// It works, and could not use these paths of its.
    pub(crate) fn but_closed(self, closed: &[ClosedPath]) -> Self {
        match closed.first() {
            Some(ClosedPath { why, command }) if self.result == TrialResult::Works => {
                Self { what: Some(why.clone()), command: command.clone(), ..self }
            }
            // What does not start because of it says so in words of its own, which lead nowhere.
            Some(ClosedPath { why, command }) if self.result == TrialResult::Fails && self.command.is_none() => {
                let said = self.what.map(|what| format!("{what}; ")).unwrap_or_default();
                Self { what: Some(format!("{said}{why}")), command: command.clone(), ..self }
            }
            _ => self,
        }
    }

    /// It was not taken.
    pub(crate) fn refused(failure: &CommandFailure) -> Self {
        Self { what: Some(failure.message.clone()), ..Self::of(TrialResult::Refused) }
    }

    /// It is switched off.
    pub(crate) fn off(name: &str, off: Option<&SwitchedOff>) -> Self {
        let command = if off.is_none_or(|off| off.can_start) {
            format!("gantry server edit {name} --enable")
        } else {
            format!("gantry server add {name} --replace --url http://127.0.0.1:PORT/mcp")
        };
        Self { what: off.map(|off| off.why.clone()), command: Some(command), ..Self::of(TrialResult::Off) }
    }

    /// One of its name is there, which differs in these, and `command` replaces it.
    pub(crate) fn not_replaced(in_what: &[&str], command: String) -> Self {
        let what = format!("a server of that name is there and differs in {}", in_what.join(", "));
        Self { what: Some(what), command: Some(command), ..Self::of(TrialResult::NotReplaced) }
    }

    /// It was changed, did not work, and is as it was before: what would mend the changed one has nothing to mend.
    pub(crate) fn taken_back(self) -> Self {
        let what = self.what.unwrap_or_else(|| "it did not start like this".to_owned());
        let what = Some(format!("{what}; the server is as it was"));
        Self { result: TrialResult::TakenBack, what, command: None, ..self }
    }

    /// The same of a server that was there before, just so.
    pub(crate) fn unchanged(self) -> Self {
        Self { unchanged: true, ..self }
    }

    /// It was not tried.
    pub(crate) fn untried(name: &str) -> Self {
        Self { command: Some(format!("gantry server restart {name}")), ..Self::of(TrialResult::Untried) }
    }

    /// It does not work: why, from what is known of it and from its log.
    pub(crate) fn fails(name: &str, answer: &Value, log: &[String]) -> Self {
        let problems = answer.get("problems").and_then(Value::as_array).into_iter().flatten();
        let problem = problems.filter_map(|problem| problem.get("message")?.as_str()).next();
        let StartDiagnosis { what, remedy } = diagnose(last_error(answer).or(problem), log);
        let what = if remedy.is_none() && last_error(answer).or(problem).is_none() && is_running(answer) {
            "it runs, and lists no tools".to_owned()
        } else {
            what
        };
        let (what, remedy) = match remedy {
            // A server's own words must not have a person open these to it.
            Some(StartRemedy::Read(path) | StartRemedy::Write(path)) if is_secret_place(Path::new(&path)) => {
                (format!("it asks for `{path}`, where secrets are kept, which no server should be given"), None)
            }
            Some(StartRemedy::Variables(names)) => variables(answer, what, names),
            Some(StartRemedy::Repository(Some(folder))) => repository(answer, what, folder),
            // It says so only where somebody watches a terminal.
            Some(StartRemedy::Patience) if is_web_server(answer) => (
                "it does not speak MCP over its standard output: it serves HTTP, so start it yourself and add it by its address, \
                 with `--url`"
                    .to_owned(),
                None,
            ),
            Some(StartRemedy::Package(_)) if !is_of_pypi(answer) => {
                (format!("{what}; pin it where it is installed"), None)
            }
            // What is nowhere cannot be granted.
            Some(StartRemedy::Read(path)) if !Path::new(&path).try_exists().unwrap_or(false) => {
                (format!("it looks for `{path}`, which is not there"), None)
            }
            // What is granted already, and is an address of this machine, is not there.
            Some(StartRemedy::Host(place)) if is_granted(answer, &place) && is_loopback(&place) => {
                (format!("nothing answers at {place}, which it may reach: is it up?"), None)
            }
            // What is granted already is refused for where its name leads.
            Some(StartRemedy::Host(place)) if is_granted(answer, &place) => {
                (format!("{place} leads into a network that is not public: name it in `[egress] open_networks`"), None)
            }
            remedy => (what, remedy),
        };
        if remedy.is_none()
            && let Some((path, permission)) = granted_and_absent(answer)
        {
            let what = format!("it was given `{path}`, which is not there");
            let command = format!("gantry server edit {name} --revoke {}", quoted(&permission));
            return Self { what: Some(what), command: Some(command), ..Self::of(TrialResult::Fails) };
        }
        if remedy.is_none()
            && let Some(hint) = answer.pointer("/status/last_hint").and_then(Value::as_str)
        {
            // The command says it all; without one, the words do.
            let command = advised(hint, name);
            let what = match (program_that_is_nowhere(answer), &command) {
                (Some(program), _) => {
                    format!("there is no program `{program}` for it: check how it is written, and that it is installed")
                }
                (None, Some(_)) => what,
                (None, None) => format!("{what}; {hint}"),
            };
            return Self { what: Some(what), command, ..Self::of(TrialResult::Fails) };
        }
        let command = remedy.map(|remedy| command(&remedy, name));
        Self { what: Some(what), command, ..Self::of(TrialResult::Fails) }
    }

    fn of(result: TrialResult) -> Self {
        Self { result, unchanged: false, tools: (0, 0), what: None, command: None }
    }

    /// For people.
    pub(crate) fn sentence(&self) -> String {
        let why = self.what.as_ref().map(|what| format!(": {}", crate::printer::visible(what))).unwrap_or_default();
        let but = self.what.as_ref().map(|what| format!(", but {}", crate::printer::visible(what))).unwrap_or_default();
        let unchanged = if self.unchanged { "unchanged, " } else { "" };
        let result = match (self.result, self.tools) {
            (TrialResult::Works, (1, 1)) => format!("works (1 tool){but}"),
            (TrialResult::Works, (available, known)) if available == known => format!("works ({known} tools){but}"),
            (TrialResult::Works, (available, known)) => format!("works ({available} of {known} tools){but}"),
            (TrialResult::Fails, _) => format!("does not work{why}"),
            (TrialResult::Refused, _) => format!("refused{why}"),
            (TrialResult::Off, _) => format!("switched off{why}"),
            (TrialResult::Untried, _) => "not tried".to_owned(),
            (TrialResult::NotReplaced, _) => format!("not replaced{why}"),
            (TrialResult::TakenBack, _) => format!("not changed{why}"),
        };
        format!("{unchanged}{result}")
    }

    /// As JSON.
    pub(crate) fn document(&self) -> Value {
        json!({
            "result": self.result.as_str(), "tools": self.tools.0, "what": self.what, "command": self.command,
            "unchanged": self.unchanged,
        })
    }
}

/// What helps, as it is typed.
pub(crate) fn command(remedy: &StartRemedy, server: &str) -> String {
    let words: Vec<String> = remedy.arguments(server).iter().map(|word| quoted(word)).collect();
    format!("gantry server {}", words.join(" "))
}

/// The command that a hint of Gantry's own begins with, and the new start that it takes then.
fn advised(hint: &str, name: &str) -> Option<String> {
    let command = hint.strip_prefix('`')?.split('`').next().filter(|command| command.starts_with("touch "))?;
    Some(format!("{command} && gantry server restart {name}"))
}

/// Is it a program that serves HTTP and nothing else?
fn is_web_server(answer: &Value) -> bool {
    let args = answer.pointer("/spec/reach/args").and_then(Value::as_array).into_iter().flatten();
    let command = answer.pointer("/spec/reach/command").into_iter();
    let mut words = command.chain(args).filter_map(Value::as_str).map(|word| word.rsplit('/').next().unwrap_or(word));
    words.any(|word| WEB_SERVERS.contains(&word))
}

/// Was it started, and has it not ended by itself since?
fn is_running(answer: &Value) -> bool {
    let state = answer.pointer("/status/state").and_then(Value::as_str);
    state.is_some_and(|state| matches!(state, "ready" | "draining" | "stopped"))
}

/// The program of a server that could not be started because there is none of that name.
fn program_that_is_nowhere(answer: &Value) -> Option<&str> {
    let is_nowhere = last_error(answer)?.contains("could not be started: No such file or directory");
    // One that is there has to be let in, which is another matter.
    let is_here = |program: &&str| program.contains('/') && Path::new(program).try_exists().unwrap_or(false);
    answer.pointer("/spec/reach/command").and_then(Value::as_str).filter(|program| is_nowhere && !is_here(program))
}

/// A path it was given that is not on this machine, if that is why it was not started: the path, and the permission.
fn granted_and_absent(answer: &Value) -> Option<(String, String)> {
    let is_absent = last_error(answer)?.contains("cannot be given to it: No such file or directory");
    let permissions = answer.pointer("/spec/reach/permissions").and_then(Value::as_array).filter(|_| is_absent)?;
    permissions.iter().filter_map(Value::as_str).find_map(|word| {
        let path = word.strip_prefix("filesystem:read:").or_else(|| word.strip_prefix("filesystem:write:"))?;
        let path = path.replace("%20", " ");
        (!Path::new(&path).try_exists().unwrap_or(true)).then(|| (path, word.to_owned()))
    })
}

/// Variables that it wants: those that it has already are not what is missing.
fn variables(answer: &Value, what: String, names: Vec<String>) -> (String, Option<StartRemedy>) {
    if names.iter().any(|name| loads_code(name)) {
        return (what, None);
    }
    let env = answer.pointer("/spec/reach/env");
    let is_given = |name: &String| env.is_some_and(|env| env.get(name).is_some());
    let (given, missing): (Vec<String>, Vec<String>) = names.into_iter().partition(is_given);
    match missing.as_slice() {
        // It has them all: it is their values that it does not like.
        [] => (what, Some(StartRemedy::Variables(given))),
        [one] if !given.is_empty() => (format!("it wants the variable `{one}`"), Some(StartRemedy::Variables(missing))),
        _ => (what, Some(StartRemedy::Variables(missing))),
    }
}

/// A folder that is to be a git repository, as it is on this machine.
fn repository(answer: &Value, what: String, folder: String) -> (String, Option<StartRemedy>) {
    let place = Path::new(&folder);
    if is_secret_place(place) {
        return (format!("it asks for `{folder}`, where secrets are kept, which no server should be given"), None);
    }
    if !place.try_exists().unwrap_or(false) {
        return (format!("`{folder}` is not there: name a git repository in its arguments"), None);
    }
    let above = |place: &Path| place.ancestors().any(|above| above.join(".git").try_exists().unwrap_or(false));
    if !above(place) {
        return (
            format!("`{folder}` is no git repository: name one in its arguments, or make it one by `git init`"),
            None,
        );
    }
    // What it may read and does not take for one is somebody else's: git wants to be told that this is meant.
    if may_read(answer, place) {
        return (
            format!(
                "git does not take `{folder}` for a repository: it belongs to somebody else than the server runs as, or is damaged"
            ),
            None,
        );
    }
    (what, Some(StartRemedy::Repository(Some(folder))))
}

/// May it read this path, as far as its permissions go?
fn may_read(answer: &Value, path: &Path) -> bool {
    let permissions = answer.pointer("/spec/reach/permissions").and_then(Value::as_array).into_iter().flatten();
    let places = permissions.filter_map(Value::as_str).filter_map(|word| word.strip_prefix("filesystem:read:"));
    places.map(|place| place.replace("%20", " ")).any(|place| path.starts_with(place))
}

/// Is it started from a package of PyPI, or fetched from there?
fn is_of_pypi(answer: &Value) -> bool {
    let text = |pointer: &str| answer.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    text("/spec/reach/package/registry") == "pypi" || text("/spec/reach/command").rsplit('/').next() == Some("uvx")
}

/// May it connect to this host and port, as far as its permissions go?
fn is_granted(answer: &Value, place: &str) -> bool {
    let permissions = answer.pointer("/spec/reach/permissions").and_then(Value::as_array).into_iter().flatten();
    let host = place.strip_suffix(":443").map(|host| format!("network:https://{host}"));
    let of_http = place.strip_suffix(":80").map(|host| format!("network:http://{host}"));
    let words = [Some(format!("network:{place}")), host, of_http];
    permissions.filter_map(Value::as_str).any(|word| words.iter().flatten().any(|known| known == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_s_own_words_open_no_secrets_and_load_no_code() {
        let log = |line: &str| vec![line.to_owned()];
        for line in [
            "cat: /srv/ada/.ssh/id_rsa: Permission denied",
            "Error: EACCES: permission denied, open '/etc/shadow'",
            "Error: EACCES: permission denied, open '/srv/.gantry/admin.token'",
            "LD_PRELOAD environment variable is required",
            "LD_PRELOAD and API_TOKEN environment variables are required",
            "git.exc.InvalidGitRepositoryError: /srv/ada/.ssh",
        ] {
            let trial = ServerTrial::fails("x", &json!({}), &log(line));
            assert_eq!(trial.command, None, "{line}: {:?}", trial.what);
        }
        assert!(
            is_secret_place(Path::new("/srv/ada/.config/gcloud/x.json"))
                && !is_secret_place(Path::new("/srv/notes/ssh"))
        );
    }

    #[test]
    fn of_two_variables_only_those_are_asked_for_that_it_does_not_have() {
        let log = ["Error: JIRA_URL and JIRA_TOKEN environment variables are required".to_owned()];
        let both = ServerTrial::fails("x", &json!({}), &log);
        assert_eq!(both.command.as_deref(), Some("gantry server edit x --env JIRA_URL=… --env JIRA_TOKEN=…"));
        let given = json!({ "spec": { "reach": { "env": { "JIRA_URL": "https://jira.example" } } } });
        let one = ServerTrial::fails("x", &given, &log);
        assert_eq!(one.command.as_deref(), Some("gantry server edit x --env JIRA_TOKEN=…"));
        assert!(one.sentence().ends_with("it wants the variable `JIRA_TOKEN`"), "{one:?}");
    }

    #[test]
    fn a_repository_is_granted_if_it_is_one_and_what_is_none_is_said_to_be_none() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().canonicalize().unwrap();
        let log = [format!("ERROR:mcp_server_git.server:{} is not a valid Git repository", place.display())];
        let none = ServerTrial::fails("git", &json!({}), &log);
        assert!(none.sentence().contains("is no git repository: name one") && none.command.is_none(), "{none:?}");
        std::fs::create_dir(place.join(".git")).unwrap();
        let unread = ServerTrial::fails("git", &json!({}), &log);
        let command = format!("gantry server grant git --allow-read {}", place.display());
        assert_eq!(unread.command.as_deref(), Some(&*command), "{unread:?}");
        let word = format!("filesystem:read:{}", place.display());
        let granted = json!({ "spec": { "reach": { "permissions": [word] } } });
        let other = ServerTrial::fails("git", &granted, &log);
        assert!(other.sentence().contains("belongs to somebody else") && other.command.is_none(), "{other:?}");
    }

    #[test]
    fn what_gantry_itself_refused_comes_with_its_own_hint_and_the_command_in_it() {
        let status = json!({ "last_error": "who may write to `/p` could …", "last_hint": "`touch /p/gantry.toml` makes an empty one" });
        let trial = ServerTrial::fails("files", &json!({ "status": status }), &[]);
        assert_eq!(trial.command.as_deref(), Some("touch /p/gantry.toml && gantry server restart files"));
        assert!(trial.sentence().ends_with("could …"), "{trial:?}");
        let status = json!({ "last_error": "no", "last_hint": "give it another folder" });
        let trial = ServerTrial::fails("files", &json!({ "status": status }), &[]);
        assert_eq!((trial.sentence().as_str(), trial.command), ("does not work: no; give it another folder", None));
        let status = json!({ "last_error": "the server's program could not be started: No such file or directory (os error 2)",
            "last_hint": "let the operator check `command`" });
        let answer = json!({ "status": status, "spec": { "reach": { "command": "pyhton" } } });
        assert!(ServerTrial::fails("x", &answer, &[]).sentence().contains("there is no program `pyhton`"));
    }

    #[test]
    fn a_path_that_was_given_and_is_not_there_is_named_with_the_command_that_takes_it_back() {
        let status = json!({ "last_error": "a path the server declares cannot be given to it: No such file or directory (os error 2)",
            "last_hint": "let the operator make the path available on this server" });
        let permissions = json!(["filesystem:read:/", "filesystem:write:/not/here%20at/all"]);
        let answer = json!({ "status": status, "spec": { "reach": { "permissions": permissions } } });
        let trial = ServerTrial::fails("files", &answer, &[]);
        assert!(trial.sentence().contains("`/not/here at/all`, which is not there"), "{}", trial.sentence());
        let command = "gantry server edit files --revoke 'filesystem:write:/not/here%20at/all'";
        assert_eq!(trial.document()["command"], command);
    }

    #[test]
    fn another_version_of_the_sdk_is_installed_where_gantry_installs_and_asked_for_elsewhere() {
        let log = ["ModuleNotFoundError: No module named 'mcp.server.fastmcp'".to_owned()];
        let package = json!({ "spec": { "reach": { "package": { "registry": "pypi" } } } });
        let ours = ServerTrial::fails("x", &package, &log);
        assert_eq!(ours.command.as_deref(), Some("gantry server update x --with 'mcp<2'"), "{ours:?}");
        let theirs = ServerTrial::fails("x", &json!({}), &log);
        assert!(theirs.sentence().ends_with("pin it where it is installed") && theirs.command.is_none(), "{theirs:?}");
    }

    #[test]
    fn what_is_missing_comes_with_the_command_that_gives_it() {
        let answer = json!({ "status": { "last_error": "the program ended" }, "problems": [] });
        let here = std::env::temp_dir().display().to_string();
        let log = [format!("Error: ENOENT: no such file or directory, open '/usr{here}/nowhere'")];
        let nowhere = ServerTrial::fails("x", &answer, &log);
        assert!(nowhere.sentence().contains("which is not there") && nowhere.command.is_none(), "{nowhere:?}");
        let log = ["Error: ENOENT: no such file or directory, open '/usr/bin/env'".to_owned()];
        let there = ServerTrial::fails("x", &answer, &log);
        assert_eq!(there.command.as_deref(), Some("gantry server grant x --allow-read /usr/bin/env"));
        assert_eq!(there.document().get("result"), Some(&json!("fails")));
        assert_eq!(ServerTrial::works(1, 1).sentence(), "works (1 tool)");
        let closed = [ClosedPath { why: "it could not write".into(), command: Some("chmod x".into()) }];
        let works = ServerTrial::works(2, 2).but_closed(&closed);
        assert_eq!(
            (works.sentence().as_str(), works.command.as_deref()),
            ("works (2 tools), but it could not write", Some("chmod x"))
        );
        let fails =
            ServerTrial::fails("x", &answer, &["sqlite3.OperationalError: unable to open database file".to_owned()]);
        let fails = fails.but_closed(&closed);
        assert!(fails.sentence().ends_with("unable to open database file; it could not write"), "{fails:?}");
        assert_eq!(fails.command.as_deref(), Some("chmod x"));
        let log = ["[gantry] it may not connect to x.example:443".to_owned()];
        let unknown = ServerTrial::fails("x", &answer, &log);
        assert_eq!(unknown.command.as_deref(), Some("gantry server grant x --allow-host x.example:443"));
        let log = ["Error: connect ECONNREFUSED 127.0.0.1:5432".to_owned()];
        let closed = ServerTrial::fails("x", &answer, &log);
        assert_eq!(closed.command.as_deref(), Some("gantry server grant x --allow-host 127.0.0.1:5432"));
        let granted = json!({ "spec": { "reach": { "permissions": ["network:127.0.0.1:5432"] } } });
        let down = ServerTrial::fails("x", &granted, &log);
        assert!(down.command.is_none() && down.sentence().ends_with("which it may reach: is it up?"), "{down:?}");
        let late = json!({ "status": { "last_error": "the server did not answer in time" },
            "spec": { "reach": { "command": "/usr/bin/python3", "args": ["-m", "http.server"] } } });
        let web = ServerTrial::fails("x", &late, &[]);
        assert!(web.sentence().contains("does not speak MCP") && web.command.is_none(), "{web:?}");
        let ready = json!({ "status": { "state": "ready" }, "tools": { "known": 0 } });
        let idle = ServerTrial::fails("x", &ready, &["loaded 0 plugins".to_owned()]);
        assert_eq!(idle.sentence(), "does not work: it runs, and lists no tools");
        let log = ["[gantry] it may not connect to x.example:443".to_owned()];
        let granted = json!({ "spec": { "reach": { "permissions": ["network:https://x.example"] } } });
        assert!(ServerTrial::fails("x", &granted, &log).sentence().contains("open_networks"));
    }
}
