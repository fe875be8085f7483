//! `gantry mcp install`: what to put into a client's configuration, printed or written.
//!
//! By default the client starts `gantry mcp` itself. The command that is written carries everything that decides what the client
//! may do here and now, because the client starts it in another folder and without this environment: the data directory and the
//! configuration file by their full paths (or that there is none), the server, the token and the files of TLS if they were given,
//! and every setting of the environment, with the paths in it made full: the folder that the client starts it in decides nothing.
//! With `--http` it gets the address of the running server and a token made for it. A file that is edited keeps everything else it holds, and a copy of
//! the former one stays beside it, whatever else stands there; a link is followed, so that it goes on leading where it led; a file
//! that is not JSON is not touched.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use contract::ids::Subject;
use ports::clock::Clock as _;
use serde_json::{Map, Value, json};

use super::{minted, wish};
use crate::config::key::ConfigKey;
use crate::config::paths;
use crate::config::settings::{key_of, may_be_secret};
use crate::config::value::holds_credentials;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::lifespan;
use crate::machine::SystemClock;
use crate::plain_file;
use crate::printer::pretty;

/// A client's configuration is a page, not a database.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// Under which name Gantry stands there.
const NAME: &str = "gantry";

/// Print (or write) what connects an MCP client to Gantry
///
/// gantry mcp install --client claude --write
#[derive(Debug, Args)]
pub(crate) struct McpInstallCommand {
    /// Which client
    #[arg(long, value_enum)]
    client: Program,
    /// Edit the client's configuration file; a copy of the former one stays beside it
    #[arg(long)]
    write: bool,
    /// The configuration file [default: where the client has it]
    #[arg(long, value_name = "FILE")]
    path: Option<PathBuf>,
    /// Connect to the running server by HTTP with a token, instead of starting `gantry mcp`
    #[arg(long)]
    http: bool,
    /// How long the token lives, with --http: 90s, 15m, 1h, 7d
    #[arg(long, value_name = "SPAN", value_parser = lifespan::seconds, default_value = "90d", requires = "http")]
    ttl: u64,
    /// Only the tools of this toolset (`[mcp.toolsets.NAME]`)
    #[arg(long, value_name = "NAME")]
    toolset: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Program {
    Claude,
    Cursor,
    Vscode,
}

impl McpInstallCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let entry = if self.http { self.by_http(context).await? } else { self.by_stdio(context)? };
        let member = self.client.member();
        let block = json!({ member: { NAME: entry } });
        if !self.write {
            let file = self.file(context).ok().map(|path| path.display().to_string());
            let document = json!({ "client": self.client.word(), "file": file, "config": block });
            context.printer.answer(&document, |_| pretty(&block));
            if let Some(file) = file {
                context.printer.note(&format!("put this into {file}, or run the same with --write"));
            }
            return Ok(());
        }
        let path = self.file(context)?;
        let backup = write(&path, member, &entry, SystemClock::start().now().0)?;
        let document = json!({
            "client": self.client.word(), "file": path, "backup": backup, "config": block,
        });
        context.printer.answer(&document, |_| format!("{} now knows Gantry: {}", self.client.word(), path.display()));
        if let Some(backup) = backup {
            context.printer.note(&format!("the former file is {}", backup.display()));
        }
        context.printer.note("restart the client to let it take notice");
        Ok(())
    }

    /// The client starts us.
    fn by_stdio(&self, context: &CommandContext) -> Result<Value, CommandFailure> {
        let program = std::env::current_exe()
            .map_err(|error| CommandFailure::new(format!("it is not known where this program is: {error}")))?;
        let data_dir = std::path::absolute(context.data_dir().path())
            .map_err(|error| CommandFailure::new(format!("the data directory has no full path: {error}")))?;
        let subject = self.subject()?;
        // Read as the command itself will read it: a configuration that cannot be used is told now, not by the client.
        let config = context.config(Vec::new())?;
        let mut arguments = vec!["mcp".to_owned(), "--data-dir".to_owned(), data_dir.display().to_string()];
        arguments.extend(["--as".to_owned(), subject.to_string()]);
        match &config.file {
            Some(file) => arguments.extend(["--config".to_owned(), full_path(file)?]),
            // Not whatever stands where the client happens to start it.
            None => arguments.push("--no-config".to_owned()),
        }
        if let Some(server) = &context.global.server {
            if holds_credentials(server) {
                return Err(secret_shown("--server"));
            }
            arguments.extend(["--server".to_owned(), server.clone()]);
        }
        if let Some(file) = context.global.token_file.as_ref().filter(|_| context.global.token.is_none()) {
            arguments.extend(["--token-file".to_owned(), full_path(file)?]);
        }
        let global = &context.global;
        for (flag, file) in
            [("--ca", &global.ca), ("--client-cert", &global.client_cert), ("--client-key", &global.client_key)]
        {
            if let Some(file) = file {
                arguments.extend([flag.to_owned(), full_path(file)?]);
            }
        }
        if let Some(toolset) = &self.toolset {
            arguments.extend(["--toolset".to_owned(), toolset.clone()]);
        }
        let mut entry = json!({ "command": program, "args": arguments });
        let environment = environment_of(context)?;
        if let Some(members) = entry.as_object_mut().filter(|_| !environment.is_empty()) {
            members.insert("env".to_owned(), Value::Object(environment));
        }
        Ok(if self.client == Program::Vscode { typed(entry, "stdio") } else { entry })
    }

    /// The client finds us.
    async fn by_http(&self, context: &CommandContext) -> Result<Value, CommandFailure> {
        let client = context.client()?;
        let token = match context.given_token()? {
            Some(token) => token,
            None => minted(&client, &wish(self.subject()?, self.ttl)?).await?,
        };
        let path = self.toolset.as_ref().map_or_else(|| "/mcp".to_owned(), |name| format!("/mcp/{name}"));
        let entry = json!({
            "url": format!("{}{path}", client.base()),
            "headers": { "Authorization": format!("Bearer {token}") },
        });
        Ok(if self.client == Program::Cursor { entry } else { typed(entry, "http") })
    }

    fn subject(&self) -> Result<Subject, CommandFailure> {
        format!("mcp-{}", self.client.word())
            .parse()
            .map_err(|_| CommandFailure::new("this client has no name for policies"))
    }

    fn file(&self, context: &CommandContext) -> Result<PathBuf, CommandFailure> {
        if let Some(path) = &self.path {
            return Ok(path.clone());
        }
        let home = context.home().ok_or_else(|| {
            CommandFailure::usage("it is not known where this client has its configuration: HOME is not set")
                .hint("name the file with --path")
        })?;
        Ok(self.client.file(&home))
    }
}

fn full_path(path: &Path) -> Result<String, CommandFailure> {
    let full = std::path::absolute(path)
        .map_err(|error| CommandFailure::new(format!("`{}` has no full path: {error}", path.display())))?;
    full.into_os_string().into_string().map_err(|path| {
        CommandFailure::new(format!("`{}` is not text, so no client can be told of it", path.display()))
            .hint("use a path in UTF-8")
    })
}

/// What of this environment decides about the client: the token that was given, and every setting. A setting that is a secret is
/// refused, because a client's configuration is shown around.
fn environment_of(context: &CommandContext) -> Result<Map<String, Value>, CommandFailure> {
    let mut kept = Map::new();
    if let (Some(token), true) = (context.given_token()?, context.global.token.is_some()) {
        kept.insert("GANTRY_TOKEN".to_owned(), token.into());
    }
    for (name, value) in context.environment().iter().filter(|(name, _)| is_setting(name)) {
        let key = key_of(name);
        // By what kind of setting it is, or by what this value holds: an address with a password, a query with a token.
        if key.is_some_and(|key| may_be_secret(key) || key.parse(value).is_ok_and(|value| value.holds_secret())) {
            return Err(secret_shown(name));
        }
        let value = match key.filter(|key| paths::names_files(key)) {
            Some(key) => with_full_paths(key, value)?,
            None => value.clone(),
        };
        kept.insert(name.clone(), Value::from(value));
    }
    Ok(kept)
}

fn secret_shown(name: &str) -> CommandFailure {
    CommandFailure::new(format!("`{name}` may hold a secret, and would stand in the client's configuration"))
        .hint("put it into a configuration file and name that with --config, or connect the client with --http")
}

/// The value of a variable, with the paths in it as they are meant here and now.
fn with_full_paths(key: &ConfigKey, value: &str) -> Result<String, CommandFailure> {
    let here = std::env::current_dir()
        .map_err(|error| CommandFailure::new(format!("it is not known which folder this is: {error}")))?;
    let refused = |why: &str| {
        CommandFailure::new(format!("`{}` cannot be written into the client's configuration: {why}", key.variable()))
            .hint("put it into a configuration file and name that with --config")
    };
    let value = key.parse(value).map_err(|wrong| refused(&wrong))?;
    let full = paths::resolved(key, &value, &here);
    let text = full.variable_text().ok_or_else(|| refused("it is no list of paths"))?;
    // A comma in the name of this folder would make two paths of one, and what is no text would be another one.
    match here.to_str().is_some() && key.parse(&text).as_ref() == Ok(&full) {
        true => Ok(text),
        false => Err(refused("the full path cannot be written in a variable")),
    }
}

/// `GANTRY_SECTION__KEY`.
fn is_setting(name: &str) -> bool {
    name.strip_prefix("GANTRY_").is_some_and(|rest| rest.contains("__"))
}

/// Some clients want to be told which kind of server it is.
fn typed(mut entry: Value, kind: &str) -> Value {
    if let Some(members) = entry.as_object_mut() {
        members.insert("type".to_owned(), json!(kind));
    }
    entry
}

impl Program {
    fn word(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
        }
    }

    /// Under which member its servers stand.
    fn member(self) -> &'static str {
        match self {
            Self::Claude | Self::Cursor => "mcpServers",
            Self::Vscode => "servers",
        }
    }

    /// Where it has its configuration.
    fn file(self, home: &Path) -> PathBuf {
        let support = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".config" };
        match self {
            Self::Claude => home.join(support).join("Claude/claude_desktop_config.json"),
            Self::Cursor => home.join(".cursor/mcp.json"),
            Self::Vscode => home.join(support).join("Code/User/mcp.json"),
        }
    }
}

/// Puts the entry into the file and answers where the former one is, if there was one.
fn write(path: &Path, member: &str, entry: &Value, now_ms: i64) -> Result<Option<PathBuf>, CommandFailure> {
    let shown = path.display();
    let failed =
        |what: &str, error: std::io::Error| CommandFailure::new(format!("`{shown}` cannot be {what}: {error}"));
    // Where a link leads, if it is one: people keep such files elsewhere and link to them.
    let target = match std::fs::canonicalize(path) {
        Ok(target) => target,
        // A link to nothing must not become a plain file either.
        Err(error) if std::fs::symlink_metadata(path).is_ok() => return Err(failed("read", error)),
        Err(_) => path.to_owned(),
    };
    let former = match plain_file::open(path) {
        Ok(file) => {
            let mut text = String::new();
            file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| failed("read", error))?;
            Some(text)
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed("read", error)),
    };
    if former.as_ref().is_some_and(|text| u64::try_from(text.len()).is_ok_and(|length| length > FILE_BYTES_MAX)) {
        return Err(CommandFailure::new(format!("`{shown}` is larger than {FILE_BYTES_MAX} bytes"))
            .hint("check that it is the file you mean"));
    }
    let edited = edited(former.as_deref().unwrap_or_default(), member, entry).map_err(|why| {
        CommandFailure::new(format!("`{shown}` is left as it is: {why}"))
            .hint("mend the file, or name another with --path")
    })?;
    if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|error| failed("written", error))?;
    }
    let backup = former.as_ref().map(|text| kept_beside(path, text, now_ms)).transpose()?;
    crate::secret_file::write(&target, &(pretty(&edited) + "\n"))
        .map_err(|error| CommandFailure::new(error.to_string()))?;
    Ok(backup)
}

/// Copies of one file within one second; more are no work of a person.
const BACKUPS_PER_SECOND_MAX: u32 = 1000;

/// A copy of what the file held, beside it, where people look; no copy that is there is overwritten. It may hold tokens, so it is
/// as private as a secret.
fn kept_beside(path: &Path, text: &str, now_ms: i64) -> Result<PathBuf, CommandFailure> {
    let file_name = path.file_name().unwrap_or_default();
    for number in 1..=BACKUPS_PER_SECOND_MAX {
        let mut name = file_name.to_owned();
        let seconds = now_ms / 1000;
        name.push(if number == 1 { format!(".{seconds}.bak") } else { format!(".{seconds}-{number}.bak") });
        let backup = path.with_file_name(name);
        match crate::secret_file::create(&backup, text) {
            Ok(()) => return Ok(backup),
            Err(error) if error.is_taken() => {}
            Err(error) => return Err(CommandFailure::new(error.to_string())),
        }
    }
    Err(CommandFailure::new(format!("`{}` has too many copies of this second beside it", path.display()))
        .hint("nothing was changed; try again"))
}

/// The document with the entry in it, everything else as it was.
fn edited(text: &str, member: &str, entry: &Value) -> Result<Value, String> {
    let mut document = if text.trim().is_empty() {
        Map::new()
    } else {
        match serde_json::from_str(text) {
            Ok(Value::Object(members)) => members,
            Ok(_) => return Err("it holds something else than a JSON object".to_owned()),
            Err(error) => return Err(format!("it is not JSON: {error}")),
        }
    };
    let servers = document.entry(member).or_insert_with(|| json!({}));
    match servers {
        Value::Object(servers) => {
            servers.insert(NAME.to_owned(), entry.clone());
            Ok(Value::Object(document))
        }
        _ => Err(format!("its `{member}` is no object")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_else_in_the_file_stays_and_what_is_broken_is_refused() {
        let entry = json!({ "command": "gantry" });
        let text =
            r#"{ "theme": "dark", "mcpServers": { "other": { "command": "x" }, "gantry": { "command": "old" } } }"#;
        assert_eq!(
            edited(text, "mcpServers", &entry).unwrap(),
            json!({ "theme": "dark", "mcpServers": { "other": { "command": "x" }, "gantry": { "command": "gantry" } } })
        );
        assert_eq!(edited("  ", "servers", &entry).unwrap(), json!({ "servers": { "gantry": entry } }));
        for (broken, word) in [
            ("{", "not JSON"),
            ("[]", "something else"),
            (r#"{"servers": []}"#, "is no object"),
            ("// c\n{}", "not JSON"),
        ] {
            assert!(edited(broken, "servers", &entry).unwrap_err().contains(word), "{broken}");
        }
    }

    #[test]
    fn a_file_is_written_with_a_copy_of_the_former_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/mcp.json");
        let entry = json!({ "command": "gantry" });
        assert_eq!(write(&path, "mcpServers", &entry, 5_000).unwrap(), None);
        let backup = write(&path, "mcpServers", &json!({ "command": "newer" }), 7_000).unwrap().unwrap();
        assert!(backup.ends_with("mcp.json.7.bak"), "{}", backup.display());
        let former: Value = serde_json::from_str(&std::fs::read_to_string(&backup).unwrap()).unwrap();
        assert_eq!(former["mcpServers"]["gantry"], entry);
        // Nothing that was kept is lost, however quickly they follow.
        let third = write(&path, "mcpServers", &json!({ "command": "third" }), 7_999).unwrap().unwrap();
        assert!(third.ends_with("mcp.json.7-2.bak"), "{}", third.display());
        let oldest: Value = serde_json::from_str(&std::fs::read_to_string(backup).unwrap()).unwrap();
        assert_eq!(oldest["mcpServers"]["gantry"], entry);
        std::fs::write(&path, "{ broken").unwrap();
        assert!(write(&path, "mcpServers", &entry, 9_000).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "{ broken");
    }

    #[test]
    fn a_linked_file_is_edited_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let (link, file) = (folder.path().join("mcp.json"), folder.path().join("kept.json"));
        std::fs::write(&file, "{}").unwrap();
        std::os::unix::fs::symlink("kept.json", &link).unwrap();
        let backup = write(&link, "servers", &json!({ "command": "gantry" }), 5_000).unwrap().unwrap();
        assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("kept.json"));
        assert!(std::fs::read_to_string(&file).unwrap().contains("gantry"));
        assert_eq!((backup.ends_with("mcp.json.5.bak"), std::fs::read_to_string(backup).unwrap()), (true, "{}".into()));
        std::fs::remove_file(&file).unwrap();
        assert!(write(&link, "servers", &json!({}), 6_000).is_err(), "it leads nowhere");
    }
}
