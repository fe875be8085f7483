//! From the `mcpServers` block people already have to servers behind Gantry: what will run, what it may touch and why,
//! and which values are secrets that must not stay in a configuration. (MCP-005, MCP-006, X-35)
//!
//! Pure but for one trait, [`ImportMachine`], which says what is on this machine. Nothing is started, written or sent here.
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

use contract::json::{self, JsonError, JsonLimits};
use serde_json::Value;

use entry::Entry;
use of_project::OfProject;

use crate::package::PackageRegistry;
use crate::spec::ServerSpec;

mod comments;
mod entry;
mod env_file;
mod grants;
mod installed_package;
mod known;
mod local_paths;
mod of_project;
mod own_files;
pub mod package_request;
mod placeholders;
mod runners;
pub(crate) mod secrets;
mod shims;

pub use grants::ImportGrant;
pub use installed_package::{InstalledPackage, start_from};
pub use own_files::is_system;
pub use package_request::PackageRequest;

/// Names under which clients keep the block.
const BLOCKS: [&str; 4] = ["/mcpServers", "/servers", "/mcp/servers", "/context_servers"];
/// Longest file. Claude Code keeps its servers in one file with everything that was ever asked of it.
pub const FILE_BYTES_MAX: usize = 16 << 20;
/// What a file may have besides servers.
const FILE_LIMITS: JsonLimits =
    JsonLimits { bytes_max: FILE_BYTES_MAX, depth_max: 64, string_bytes_max: FILE_BYTES_MAX, nodes_max: 1_000_000 };
/// Most servers of one file.
const SERVERS_MAX: usize = 256;
/// Folders in which editors keep the configuration of a project.
const EDITOR_FOLDERS: [&str; 7] = [".vscode", ".cursor", ".zed", ".windsurf", ".roo", ".cline", ".claude"];
/// Longest name of a server.
const NAME_CHARS_MAX: usize = 64;
/// What is on this machine.
pub trait ImportMachine {
    /// What is at this path, if anything is.
    fn kind(&self, path: &Path) -> Option<PathKind>;
    /// Where programs are that are named without a path, in the order in which they are looked for.
    fn programs(&self, name: &str) -> Vec<PathBuf>;
    /// Where a path leads, with links followed.
    fn really(&self, path: &Path) -> PathBuf;
    /// The links that are met on the way there, each where it stands itself.
    fn links(&self, path: &Path) -> Vec<PathBuf>;
    /// The beginning of a file, as far as it is text.
    fn text(&self, path: &Path) -> Option<String>;
    /// What is in a folder.
    fn entries(&self, folder: &Path) -> Vec<PathBuf>;
    /// A variable of the environment the import runs in.
    fn variable(&self, name: &str) -> Option<String>;
    /// Where the file lies that is read, in full, if it lies anywhere.
    fn file(&self) -> Option<PathBuf>;
    /// Why a server, which may run as nobody, could not use this path, and what helps; none if it can.
    fn closed(&self, path: &Path, write: bool) -> Option<ClosedPath>;

    /// Is this program Gantry itself, whatever it is called here?
    fn is_gantry(&self, _program: &str) -> bool {
        false
    }

    /// Are packages installed here once, when a server is added?
    fn keeps_packages(&self) -> bool {
        false
    }

    /// Where relative paths begin: beside the file. Files in a folder of an editor's own are for the folder above it.
    fn folder(&self) -> Option<PathBuf> {
        let folder = self.file()?.parent()?.to_owned();
        let of_editor = folder.file_name().is_some_and(|name| EDITOR_FOLDERS.iter().any(|own| name == *own));
        Some(if of_editor { folder.parent()?.to_owned() } else { folder })
    }

    /// The project the file is for, if it is for one and not for everything somebody does.
    fn project(&self) -> Option<PathBuf> {
        let file = self.file()?;
        let folder = self.folder()?;
        let beside = file.parent() == Some(&folder) && file.file_name().is_none_or(|name| name != ".mcp.json");
        let is_home = self.variable("HOME").is_some_and(|home| Path::new(&home) == folder);
        (!beside && !is_home).then_some(folder)
    }
}

/// What is at a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    File,
    Folder,
}

/// What was read of a file.
#[derive(Debug, Default)]
pub struct ImportedFile {
    /// In the order of the file.
    pub servers: Vec<ImportedServer>,
    pub problems: Vec<ImportProblem>,
    /// Entries that start Gantry itself, as `gantry mcp install` writes one: they are left out, or it would be behind itself.
    pub of_gantry: Vec<String>,
}

/// A server that can be put behind Gantry.
#[derive(Debug)]
pub struct ImportedServer {
    pub name: String,
    pub spec: ServerSpec,
    /// What will run or be reached, for people.
    pub runs: String,
    pub grants: Vec<ImportGrant>,
    pub warnings: Vec<String>,
    /// What it is given and could not use as the one it runs as.
    pub closed: Vec<ClosedPath>,
    /// Values that go into the secrets folder.
    pub secrets: Vec<ImportedSecret>,
    /// Why it is taken over without being started, if it is.
    pub switched_off: Option<SwitchedOff>,
    /// The package that has to be installed before it can be added, if one has to.
    pub package: Option<PackageRequest>,
}

/// A path that a server is given and could not use as the one it runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClosedPath {
    /// For people, one sentence.
    pub why: String,
    /// The command of the system that opens it, if it should be opened.
    pub command: Option<String>,
}

/// Why a server is not started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SwitchedOff {
    pub why: String,
    /// It could be, by a word; otherwise nothing would come of it.
    pub can_start: bool,
}

/// A value that the specification only names.
#[derive(Clone, PartialEq, Eq)]
pub struct ImportedSecret {
    /// The name of the credential.
    pub name: String,
    /// None if the block does not have it and somebody has to provide it.
    pub value: Option<String>,
    /// Where it stood: `env BRAVE_API_KEY`.
    pub place: String,
}

impl std::fmt::Debug for ImportedSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ImportedSecret({} of {})", self.name, self.place)
    }
}

/// Something that is not in order, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportProblem {
    /// JSON pointer into the file; empty for the whole.
    pub path: String,
    pub message: String,
}

/// Reads a file.
pub fn read(text: &str, machine: &dyn ImportMachine) -> ImportedFile {
    let mut import = ImportedFile::default();
    let problem = |path: &str, message: String| ImportProblem { path: path.to_owned(), message };
    // Some clients allow comments; the others never have any.
    let plain = comments::without(text.trim_start_matches('\u{feff}'));
    let document = match json::read(plain.as_bytes(), &FILE_LIMITS) {
        Ok(document) => document,
        Err(error) => {
            let why = match &error {
                _ if text.trim().is_empty() => "the file is empty".to_owned(),
                JsonError::DuplicateKey { key, at } => {
                    format!(
                        "`{key}` stands there twice, the second time at {at}, and only one of them can be meant: rename one"
                    )
                }
                _ => format!("the file cannot be read: {error}"),
            };
            import.problems.push(problem("", why));
            return import;
        }
    };
    let blocks = blocks(&document);
    if blocks.is_empty() {
        let message = "there is no `mcpServers` (Claude, Cursor, Windsurf, Cline), `servers` (VS Code) or `context_servers` (Zed) in it";
        import.problems.push(problem("", message.into()));
        return import;
    }
    let judge = secrets::SecretJudge::new();
    let mut names: BTreeMap<String, (String, &Value)> = BTreeMap::new();
    for Block { place, project, servers: block } in blocks {
        let Some(entries) = block.as_object() else {
            import.problems.push(problem(&place, "must be an object with a member for each server".into()));
            continue;
        };
        let of_project = OfProject::at(machine, project);
        let machine = of_project.as_ref().map_or(machine, |project| project as &dyn ImportMachine);
        let room = SERVERS_MAX.saturating_sub(names.len());
        for (written, entry) in entries.iter().take(room) {
            if starts_gantry(entry, machine) {
                import.of_gantry.push(written.clone());
                continue;
            }
            let path = format!("{place}/{}", pointed(written));
            let mut reading = Entry::new(machine, &judge, path.clone(), fit(written));
            if reading.name != *written {
                reading.warnings.push(format!("it is called `{}` here", reading.name));
            }
            match names.get(&reading.name) {
                // Two projects of one person have the same server.
                Some((_, same)) if *same == entry => continue,
                Some((other, _)) => {
                    let (own, other) = (free_name(&reading.name, &names), other.clone());
                    reading
                        .warnings
                        .push(format!("it is called `{own}` here, because {other} is called `{}`", reading.name));
                    reading.name = own;
                }
                None => {}
            }
            names.insert(reading.name.clone(), (path, entry));
            let server = reading.server(entry);
            import.problems.append(&mut reading.problems);
            import.servers.extend(server);
        }
        if entries.len() > room {
            import.problems.push(problem(&place, format!("only the first {SERVERS_MAX} servers are read")));
        }
    }
    import
}

/// Does this entry put Gantry in front of a client?
fn starts_gantry(entry: &Value, machine: &dyn ImportMachine) -> bool {
    let Some(members) = entry.as_object().map(entry::flattened) else { return false };
    let Some(command) = members.get("command").and_then(Value::as_str) else { return false };
    let mut args = members.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let is_gantry = runners::base_name(command) == "gantry" || machine.is_gantry(command);
    is_gantry && args.any(|arg| arg == "mcp")
}

/// Servers of a file, and where they stand in it.
struct Block<'d> {
    place: String,
    /// The folder they are for, if they are for one alone.
    project: Option<&'d str>,
    servers: &'d Value,
}

/// The blocks of a file. Claude Code has one for everything and one for each project.
fn blocks(document: &Value) -> Vec<Block<'_>> {
    let first = BLOCKS
        .iter()
        .find_map(|place| Some(Block { place: (*place).to_owned(), project: None, servers: document.pointer(place)? }));
    let of_projects = document.get("projects").and_then(Value::as_object).into_iter().flatten();
    let of_projects = of_projects.filter_map(|(project, members)| {
        let servers =
            members.get("mcpServers").filter(|block| block.as_object().is_none_or(|block| !block.is_empty()))?;
        let place = format!("/projects/{}/mcpServers", pointed(project));
        Some(Block { place, project: Some(project), servers })
    });
    first.into_iter().chain(of_projects).collect()
}

/// What a runner of this registry was granted to fetch its package.
pub fn registry_permissions(registry: PackageRegistry) -> Vec<String> {
    let hosts = match registry {
        PackageRegistry::Npm => runners::NPM.hosts,
        PackageRegistry::Pypi => runners::PYPI.hosts,
    };
    hosts.iter().map(|host| format!("network:{host}")).collect()
}

/// A member's name as part of a JSON pointer.
fn pointed(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// The name with a number behind it that no server of the file has.
fn free_name(name: &str, names: &BTreeMap<String, (String, &Value)>) -> String {
    let numbered = |number: usize| {
        let ending = format!("-{number}");
        let short: String = name.chars().take(NAME_CHARS_MAX - ending.len()).collect();
        short + &ending
    };
    // So many names cannot all be taken.
    (2..SERVERS_MAX + 2).map(numbered).find(|name| !names.contains_key(name)).unwrap_or_else(|| name.to_owned())
}

/// A name of ours for a server.
fn fit(written: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') { c } else { '-' };
    let name: String = written.trim().chars().map(plain).take(NAME_CHARS_MAX).collect();
    let name = name.trim_start_matches(['-', '_', '.']);
    if name.is_empty() { "server".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests;
