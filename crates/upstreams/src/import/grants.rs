//! What a program may touch, inferred from how it is started, each with its reason. (IMP-3)

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::known::{self, Meaning, Package};
use super::own_files::{self, OwnFiles, is_somebodys, is_system, outermost_modules};
use super::{ClosedPath, ImportMachine, PathKind, runners};
use crate::spec::ServerSetting;

/// What marks the root of a package.
const ROOT_MARKS: [&str; 5] = ["package.json", "pyproject.toml", "setup.py", "Cargo.toml", "go.mod"];
/// Folders that a package's root is looked for upwards.
const ROOT_STEPS_MAX: usize = 6;
/// Variables that say nothing about what a server is for.
const OF_EVERY_PROGRAM: [&str; 7] = ["HOME", "PATH", "PWD", "OLDPWD", "SHELL", "TMPDIR", "NODE_PATH"];
/// Programs that ask somebody outside of the sandbox to run something.
const CONTAINER_ENGINES: [&str; 3] = ["docker", "podman", "nerdctl"];

/// One permission and why it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportGrant {
    /// In the words of manifests.
    pub permission: String,
    pub why: String,
}

/// A program as a block describes it.
pub(super) struct Program<'a> {
    pub(super) machine: &'a dyn ImportMachine,
    pub(super) command: &'a str,
    pub(super) args: &'a [String],
    pub(super) env: &'a BTreeMap<String, ServerSetting>,
    /// Where it starts, if that is said.
    pub(super) cwd: Option<&'a Path>,
    /// Its package is installed before it is started, and neither runner nor registry is needed then.
    pub(super) is_installed: bool,
}

impl Program<'_> {
    /// The package that is run where it is installed: by its own command, by its module, or by its script in `node_modules`.
    fn installed(&self) -> Option<&'static Package> {
        if !runners::is_interpreter(self.command) {
            return known::of_command(runners::base_name(self.command));
        }
        if let Some(module) = runners::module(self.command, self.args) {
            return known::find(&module.replace('_', "-"));
        }
        let script = self.args.get(runners::script_index(self.command, self.args)?)?;
        let Some((_, inside)) = script.rsplit_once("/node_modules/") else {
            return known::of_command(runners::base_name(script));
        };
        let mut parts = inside.split('/');
        let name = parts.next()?;
        if name.starts_with('@') { known::find(&format!("{name}/{}", parts.next()?)) } else { known::find(name) }
    }
}

/// What was inferred.
#[derive(Debug, Default)]
pub(super) struct Inferred {
    pub(super) grants: Vec<ImportGrant>,
    /// What somebody should know.
    pub(super) warnings: Vec<String>,
    /// What it is given and could not use as the one it runs as.
    pub(super) closed: Vec<ClosedPath>,
    /// How the program has to be named, if not as it is written.
    pub(super) command: Option<PathBuf>,
    /// Folders outside of the system's in which it looks for programs.
    pub(super) search: Vec<PathBuf>,
    /// Variables it needs inside.
    pub(super) env: Vec<(&'static str, String)>,
    /// Its package is fetched when it starts.
    pub(super) fetched: bool,
    /// Why it cannot run in any sandbox.
    pub(super) cannot_run: Option<String>,
}

/// The grants, and what somebody should know.
pub(super) fn infer(program: &Program<'_>) -> Inferred {
    let mut inference = Inference { program, found: Inferred::default() };
    let name = runners::base_name(program.command);
    if CONTAINER_ENGINES.contains(&name) {
        inference.found.cannot_run = Some(format!(
            "`{name}` asks a container engine, which no sandbox reaches: use the server's package, or its container's address"
        ));
        return inference.found;
    }
    if !program.is_installed {
        inference.own_files();
    }
    let package = inference.fetched_package();
    let rest = package.as_ref().map_or(program.args, |found| program.args.get(found.behind..).unwrap_or_default());
    let known = match &package {
        Some(found) => known::find(&found.name),
        None => program.installed(),
    };
    inference.uv_project();
    if let Some(cwd) = program.cwd {
        inference.readable(cwd, "the folder it starts in");
    }
    inference.package(known, rest);
    inference.paths(known, rest, package.is_none());
    inference.paths_of_variables();
    inference.addresses();
    inference.found
}

struct Inference<'a> {
    program: &'a Program<'a>,
    found: Inferred,
}

impl Inference<'_> {
    fn grant(&mut self, permission: &str, why: impl Into<String>) {
        let permission = permission.replace(' ', "%20");
        if permission.contains(char::is_whitespace) {
            self.found
                .warnings
                .push(format!("`{permission}` cannot be granted: a path must not have line breaks in it"));
        } else if !self.found.grants.iter().any(|grant| grant.permission == permission) {
            self.found.grants.push(ImportGrant { permission, why: why.into() });
        }
    }

    /// Where the program itself is.
    fn own_files(&mut self) {
        let OwnFiles { roots, command, search, warnings } =
            own_files::of_command(self.program.machine, self.program.command);
        for (root, why) in roots {
            self.grant(&format!("filesystem:read:{}", root.display()), why);
        }
        self.found.warnings.extend(warnings);
        (self.found.command, self.found.search) = (command, search);
    }

    /// The package, if a runner fetches one.
    fn fetched_package(&mut self) -> Option<runners::Fetched> {
        let name = runners::base_name(self.program.command);
        let package = runners::fetched(self.program.command, self.program.args)?;
        if self.program.is_installed {
            return Some(package);
        }
        let registry = package.from;
        self.found.fetched = true;
        for host in registry.hosts {
            self.grant(
                &format!("network:{host}"),
                format!("`{name}` fetches the package from {} when it starts", registry.word),
            );
        }
        if !package.has_version {
            let (package, example) = (&package.name, package.version_example);
            self.found.warnings.push(format!(
                "`{package}` has no version: whatever is published under that name tomorrow runs tomorrow; write `{package}{example}`"
            ));
        }
        Some(package)
    }

    /// `uv run` wants to bring the environment of its project up to date, which is nothing a server should do.
    fn uv_project(&mut self) {
        if !runners::is_uv_run(self.program.command, self.program.args) {
            return;
        }
        let named = runners::project_of_uv_run(self.program.args);
        let Some(project) = named.map(PathBuf::from).or_else(|| self.program.cwd.map(Path::to_owned)) else {
            self.found.warnings.push("`uv run` without a project: name its folder by `--directory`".into());
            return;
        };
        self.readable(&project, "the project that `uv run` runs");
        let python = project.join(".venv/bin/python");
        if self.program.machine.kind(&python) == Some(PathKind::File) {
            self.found.env.push(("UV_NO_SYNC", "1".into()));
            let OwnFiles { roots, .. } = own_files::of_command(self.program.machine, &python.display().to_string());
            for (root, _) in roots {
                self.grant(&format!("filesystem:read:{}", root.display()), "the interpreter of its environment");
            }
            return;
        }
        self.found.fetched = true;
        self.found.env.push(("UV_PROJECT_ENVIRONMENT", "/tmp/venv".into()));
        if self.program.machine.kind(&project.join("uv.lock")) == Some(PathKind::File) {
            self.found.env.push(("UV_FROZEN", "1".into()));
        }
        for host in runners::PYPI.hosts {
            self.grant(&format!("network:{host}"), "`uv run` fetches what the project needs when it starts");
        }
        let shown = project.display();
        self.found.warnings.push(format!("`{shown}` has no environment yet, so one is made at each start: `uv sync --directory {shown}` makes it once"));
    }

    /// A place that somebody has named, to be read.
    fn readable(&mut self, path: &Path, why: &str) {
        if is_system(path) {
            return;
        }
        if path.parent().is_none() {
            self.folder(path, why);
            return;
        }
        self.found.closed.extend(self.program.machine.closed(path, false));
        self.grant(&format!("filesystem:read:{}", path.display()), why);
    }

    /// What a known package cannot work without.
    fn package(&mut self, known: Option<&'static Package>, args: &[String]) {
        let Some(package) = known else { return };
        for host in package.hosts {
            self.grant(&format!("network:{host}"), format!("`{}` works with it", package.name));
        }
        self.found.warnings.extend(package.remark.map(str::to_owned));
        match package.meaning {
            Meaning::Plain | Meaning::Folders => {}
            Meaning::Flag(flag) => {
                let joined = format!("{flag}=");
                let value = args.iter().enumerate().find_map(|(index, arg)| match arg.strip_prefix(&joined) {
                    Some(value) => Some(value.to_owned()),
                    None if arg == flag => args.get(index + 1).cloned(),
                    None => None,
                });
                if let Some(value) = value {
                    self.writable(&value, &format!("the value of `{flag}`"));
                }
            }
            Meaning::Variable(name) => {
                if let Some(ServerSetting::Plain(value)) = self.program.env.get(name) {
                    self.writable(&value.clone(), &format!("the value of `{name}`"));
                }
            }
        }
    }

    /// A place the server keeps something in. A file is replaced by writing a new one beside it, so its folder it is.
    fn writable(&mut self, value: &str, why: &str) {
        let path = Path::new(value);
        if !path.is_absolute() {
            self.found.warnings.push(format!("{why} is a relative path: write it in full"));
            return;
        }
        let folder = match self.program.machine.kind(path) {
            Some(PathKind::Folder) => path,
            _ => path.parent().unwrap_or(path),
        };
        self.folder(folder, why);
    }

    fn folder(&mut self, folder: &Path, why: &str) {
        if folder.parent().is_none() {
            self.found
                .warnings
                .push("it asks for all files of this machine (`/`), which is not granted: name a folder".into());
            return;
        }
        self.found.closed.extend(self.program.machine.closed(folder, true));
        for mode in ["read", "write"] {
            self.grant(&format!("filesystem:{mode}:{}", folder.display()), why);
        }
    }

    /// Paths among the arguments.
    fn paths(&mut self, known: Option<&'static Package>, args: &[String], may_be_script: bool) {
        let script = may_be_script.then(|| runners::script_index(self.program.command, args)).flatten();
        for (index, arg) in args.iter().enumerate() {
            let value =
                arg.strip_prefix('-').and_then(|flag| flag.split_once('=')).map_or(arg.as_str(), |(_, value)| value);
            let path = Path::new(value);
            if !path.is_absolute() {
                continue;
            }
            let is_script = script == Some(index);
            match (known.map(|package| package.meaning), self.program.machine.kind(path)) {
                // What a known server makes by itself is granted with the folder it is made in.
                (Some(Meaning::Flag(_)), None) if self.is_granted(path) => {}
                (_, None) => {
                    self.found.warnings.push(format!("`{value}` does not exist, so nothing is granted for it"));
                }
                (Some(Meaning::Folders), Some(_)) if !is_script => self.folder(path, "a folder this server is for"),
                (_, Some(PathKind::File)) if is_script => {
                    let root = self.package_root(path);
                    self.readable(&root, "the package of the script it runs");
                }
                (_, Some(_)) => self.readable(path, "named in its arguments"),
            }
        }
    }

    /// A path that a variable names is one the server is told to look at. Whether it may write there, nobody has said.
    fn paths_of_variables(&mut self) {
        let plain = self.program.env.iter().filter_map(|(name, setting)| match setting {
            ServerSetting::Plain(value) if !OF_EVERY_PROGRAM.contains(&name.as_str()) => Some((name, value)),
            ServerSetting::Plain(_) | ServerSetting::Secret { .. } => None,
        });
        let named: Vec<(String, PathBuf)> = plain
            .map(|(name, value)| (name.clone(), PathBuf::from(value)))
            .filter(|(_, path)| path.is_absolute() && self.program.machine.kind(path).is_some())
            .filter(|(_, path)| !is_somebodys(self.program.machine, path))
            .collect();
        for (name, path) in named {
            if !self.is_granted(&path) {
                self.readable(&path, &format!("named in `{name}`"));
            }
        }
    }

    /// Is it in a place that is granted already?
    fn is_granted(&self, path: &Path) -> bool {
        let places = self.found.grants.iter().filter_map(|grant| grant.permission.strip_prefix("filesystem:read:"));
        places.into_iter().any(|place| path.starts_with(place.replace("%20", " ")))
    }

    /// The folder above a script that has what a package's root has, or the one it is in; or, in somebody's own folder, only
    /// the script itself.
    fn package_root(&self, script: &Path) -> PathBuf {
        if let Some(outermost) = outermost_modules(script) {
            return outermost.to_owned();
        }
        let machine = self.program.machine;
        let folder = script.parent().unwrap_or(script);
        let marked =
            |folder: &&Path| ROOT_MARKS.iter().any(|mark| machine.kind(&folder.join(mark)) == Some(PathKind::File));
        let root =
            folder.ancestors().take(ROOT_STEPS_MAX).take_while(|above| !is_somebodys(machine, above)).find(marked);
        match root {
            Some(root) => root.to_owned(),
            None if is_somebodys(machine, folder) => script.to_owned(),
            None => folder.to_owned(),
        }
    }

    /// Addresses in variables and arguments: a server that is told one wants to reach it.
    fn addresses(&mut self) {
        let plain = self.program.env.iter().filter_map(|(name, setting)| match setting {
            ServerSetting::Plain(value) => Some((format!("named in `{name}`"), value.as_str())),
            // A secret is not looked into; its host would tell something about it.
            ServerSetting::Secret { .. } => None,
        });
        let args = self.program.args.iter().map(|arg| {
            let value =
                arg.strip_prefix('-').and_then(|flag| flag.split_once('=')).map_or(arg.as_str(), |(_, value)| value);
            ("named in its arguments".to_owned(), value)
        });
        let found: Vec<(String, String)> =
            plain.chain(args).filter_map(|(why, value)| Some((place(value)?, why))).collect();
        for (place, why) in found {
            self.grant(&format!("network:{place}"), why);
        }
    }
}

/// Where a URL leads, in the words of permissions.
fn place(value: &str) -> Option<String> {
    let url = url::Url::parse(value).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    match (url.scheme(), url.port()) {
        ("http" | "https", None) => Some(format!("{}://{host}", url.scheme())),
        ("http" | "https", Some(port)) => Some(format!("{}://{host}:{port}", url.scheme())),
        ("postgres" | "postgresql", port) => Some(format!("{host}:{}", port.unwrap_or(5432))),
        ("mysql", port) => Some(format!("{host}:{}", port.unwrap_or(3306))),
        ("redis" | "rediss", port) => Some(format!("{host}:{}", port.unwrap_or(6379))),
        ("mongodb", port) => Some(format!("{host}:{}", port.unwrap_or(27017))),
        _ => None,
    }
}
