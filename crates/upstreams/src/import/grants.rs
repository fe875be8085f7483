//! What a program may touch, inferred from how it is started, each with its reason. (IMP-3)

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::known::{self, Meaning, Package};
use super::{Machine, PathKind};
use crate::spec::Setting;

/// Folders that every sandbox has.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"];
/// Where programs are looked for inside.
const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// What marks the root of a package.
const ROOT_MARKS: [&str; 5] = ["package.json", "pyproject.toml", "setup.py", "Cargo.toml", "go.mod"];
/// Folders that a package's root is looked for upwards.
const ROOT_STEPS_MAX: usize = 6;
/// Programs that run another file.
const INTERPRETERS: [&str; 9] = ["node", "nodejs", "python", "python3", "deno", "bun", "ruby", "php", "tsx"];

/// One permission and why it is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// In the words of manifests.
    pub permission: String,
    pub why: String,
}

/// A program as a block describes it.
pub(super) struct Program<'a> {
    pub(super) machine: &'a dyn Machine,
    pub(super) command: &'a str,
    pub(super) args: &'a [String],
    pub(super) env: &'a BTreeMap<String, Setting>,
}

impl Program<'_> {
    /// The package that is run where it is installed: by its own command, by its module, or by its script in `node_modules`.
    fn installed(&self) -> Option<&'static Package> {
        let command = Path::new(self.command).file_name()?.to_str()?;
        if !INTERPRETERS.contains(&command) {
            return known::of_command(command);
        }
        let mut args = self.args.iter().map(String::as_str);
        let first = args.by_ref().find(|arg| !arg.starts_with('-') || *arg == "-m")?;
        if first == "-m" {
            return known::find(&args.next()?.replace('_', "-"));
        }
        let (_, inside) = first.rsplit_once("/node_modules/")?;
        let mut parts = inside.split('/');
        let name = parts.next()?;
        if name.starts_with('@') { known::find(&format!("{name}/{}", parts.next()?)) } else { known::find(name) }
    }
}

/// How a package is fetched before it runs.
struct Runner {
    word: &'static str,
    hosts: &'static [&'static str],
    /// Flags with a value of their own.
    valued: &'static [&'static str],
}

const NPM: Runner = Runner {
    word: "npm",
    hosts: &["https://registry.npmjs.org"],
    valued: &["-c", "--call", "--registry", "-w", "--workspace"],
};
const PYPI: Runner = Runner {
    word: "PyPI",
    hosts: &["https://pypi.org", "https://files.pythonhosted.org"],
    valued: &["--python", "-p", "--index-url", "-i", "--with"],
};

/// What was inferred.
pub(super) struct Inferred {
    pub(super) grants: Vec<Grant>,
    /// What somebody should know.
    pub(super) warnings: Vec<String>,
    /// Where the program is, if it is named without a path and not in the system's folders.
    pub(super) elsewhere: Option<PathBuf>,
}

/// The grants, and what somebody should know.
pub(super) fn infer(program: &Program<'_>) -> Inferred {
    let mut inference = Inference { program, grants: Vec::new(), warnings: Vec::new() };
    let elsewhere = inference.own_files();
    let package = inference.runner();
    let rest = package.as_ref().map_or(program.args, |found| program.args.get(found.behind..).unwrap_or_default());
    let known = match &package {
        Some(found) => known::find(&found.name),
        None => program.installed(),
    };
    inference.package(known, rest);
    inference.paths(known, rest, package.is_none());
    inference.addresses();
    inference.grants.dedup();
    Inferred { grants: inference.grants, warnings: inference.warnings, elsewhere }
}

/// A package that a runner fetches.
struct Fetched {
    name: String,
    /// Where its own arguments begin.
    behind: usize,
}

struct Inference<'a> {
    program: &'a Program<'a>,
    grants: Vec<Grant>,
    warnings: Vec<String>,
}

impl Inference<'_> {
    fn grant(&mut self, permission: String, why: impl Into<String>) {
        if permission.contains(char::is_whitespace) {
            self.warnings.push(format!("`{permission}` cannot be granted: a path must not have spaces in it"));
        } else if !self.grants.iter().any(|grant| grant.permission == permission) {
            self.grants.push(Grant { permission, why: why.into() });
        }
    }

    /// Where the program itself is. Answers that, if it is not where programs are looked for inside.
    fn own_files(&mut self) -> Option<PathBuf> {
        let command = self.program.command;
        let machine = self.program.machine;
        let found = if command.starts_with('/') {
            Some(PathBuf::from(command)).filter(|path| machine.kind(path).is_some())
        } else if command.contains('/') {
            self.warnings.push(format!("`{command}` is a relative path: write it in full"));
            return None;
        } else {
            // The system's own goes first, as it does inside; version managers put others before it outside.
            let of_system = SYSTEM_PROGRAMS.iter().map(|folder| Path::new(folder).join(command));
            let mut of_system = of_system.filter(|path| machine.kind(path) == Some(PathKind::File));
            of_system.next().or_else(|| machine.program(command))
        };
        let Some(path) = found else {
            self.warnings.push(format!("there is no program `{command}` on this machine"));
            return None;
        };
        // A link leads out of what its own folder gives.
        for path in [&path, &machine.really(&path)] {
            if !is_system(path) {
                let root = self.installation(path);
                self.grant(format!("filesystem:read:{}", root.display()), "the program's own files");
            }
        }
        (!command.starts_with('/') && !is_system(&path)).then_some(path)
    }

    /// `…/bin/node` needs `…/lib` beside it; but what is beside `~/bin` or `~/.local/bin` is a person's, not a program's.
    fn installation(&self, program: &Path) -> PathBuf {
        let folder = program.parent().unwrap_or(program);
        let home = self.program.machine.variable("HOME").map(PathBuf::from);
        let is_somebodys = |root: &Path| {
            let is_home =
                |path: &Path| home.as_deref() == Some(path) || path.parent().is_some_and(|up| up == Path::new("/home"));
            root.parent().is_none() || is_home(root) || (root.ends_with(".local") && root.parent().is_some_and(is_home))
        };
        match (folder.file_name(), folder.parent()) {
            (Some(name), Some(above)) if name == "bin" && !is_somebodys(above) => above.to_owned(),
            _ => folder.to_owned(),
        }
    }

    /// The package, if a runner fetches one: what it is called without its version.
    fn runner(&mut self) -> Option<Fetched> {
        let name = Path::new(self.program.command).file_name()?.to_string_lossy().into_owned();
        let args = self.program.args;
        let first = args.first().map(String::as_str);
        let second = args.get(1).map(String::as_str);
        let (runner, skipped) = match (name.as_str(), first, second) {
            ("npx" | "bunx" | "pnpx", ..) => (&NPM, 0),
            ("npm", Some("exec" | "x"), _) | ("pnpm" | "yarn", Some("dlx"), _) | ("bun", Some("x"), _) => (&NPM, 1),
            ("uvx", ..) => (&PYPI, 0),
            ("uv", Some("tool"), Some("run")) => (&PYPI, 2),
            ("pipx", Some("run"), _) => (&PYPI, 1),
            ("docker" | "podman", ..) => {
                self.warnings.push(
                    "a container engine cannot be reached from the sandbox: run the server itself, or reach it by `url`"
                        .into(),
                );
                return None;
            }
            _ => return None,
        };
        let mut index = skipped;
        let mut from = None;
        while let Some(arg) = args.get(index) {
            match arg.as_str() {
                "--package" | "--from" => {
                    from = args.get(index + 1).cloned();
                    index += 2;
                }
                "-p" if runner.word == "npm" => {
                    from = args.get(index + 1).cloned();
                    index += 2;
                }
                "--" => index += 1,
                flag if runner.valued.contains(&flag) => index += 2,
                flag if flag.starts_with("--package=") || flag.starts_with("--from=") => {
                    from = flag.split_once('=').map(|(_, value)| value.to_owned());
                    index += 1;
                }
                flag if flag.starts_with('-') => index += 1,
                _ => break,
            }
        }
        let written = from.or_else(|| args.get(index).cloned())?;
        for host in runner.hosts {
            self.grant(
                format!("network:{host}"),
                format!("`{name}` fetches the package from {} when it starts", runner.word),
            );
        }
        let (package, version) = split_version(&written);
        if version.is_none_or(|version| version.is_empty() || matches!(version, "latest" | "next")) {
            self.warnings.push(format!(
                "`{package}` has no version: whatever is published under that name tomorrow runs tomorrow; write `{package}{}1.2.3`",
                if runner.word == "npm" { "@" } else { "==" }
            ));
        }
        Some(Fetched { name: package.to_owned(), behind: index + 1 })
    }

    /// What a known package cannot work without.
    fn package(&mut self, known: Option<&'static Package>, args: &[String]) {
        let Some(package) = known else { return };
        for host in package.hosts {
            self.grant(format!("network:{host}"), format!("`{}` works with it", package.name));
        }
        self.warnings.extend(package.remark.map(str::to_owned));
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
                if let Some(Setting::Plain(value)) = self.program.env.get(name) {
                    self.writable(&value.clone(), &format!("the value of `{name}`"));
                }
            }
        }
    }

    /// A place the server keeps something in. A file is replaced by writing a new one beside it, so its folder it is.
    fn writable(&mut self, value: &str, why: &str) {
        let path = Path::new(value);
        if !path.is_absolute() {
            self.warnings.push(format!("{why} is a relative path: write it in full"));
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
            self.warnings
                .push("it asks for all files of this machine (`/`), which is not granted: name a folder".into());
            return;
        }
        for mode in ["read", "write"] {
            self.grant(format!("filesystem:{mode}:{}", folder.display()), why);
        }
    }

    /// Paths among the arguments.
    fn paths(&mut self, known: Option<&'static Package>, args: &[String], may_be_script: bool) {
        let command = Path::new(self.program.command).file_name().map(|name| name.to_string_lossy().into_owned());
        let interprets = may_be_script && command.is_some_and(|name| INTERPRETERS.contains(&name.as_str()));
        let mut script_seen = false;
        for arg in args {
            let value =
                arg.strip_prefix('-').and_then(|flag| flag.split_once('=')).map_or(arg.as_str(), |(_, value)| value);
            let path = Path::new(value);
            let is_flag = arg.starts_with('-');
            let script = interprets && !script_seen && !is_flag;
            if !is_flag {
                script_seen = true;
            }
            if !path.is_absolute() {
                let is_file = value.starts_with("./") || value.starts_with("../") || value.starts_with("~/");
                if is_file || (script && value.contains('.')) {
                    self.warnings.push(format!("`{value}` is a relative path: write it in full"));
                }
                continue;
            }
            match (known.map(|package| package.meaning), self.program.machine.kind(path)) {
                (_, None) => self.warnings.push(format!("`{value}` does not exist, so nothing is granted for it")),
                (Some(Meaning::Folders), Some(_)) if !script => self.folder(path, "a folder this server is for"),
                (_, Some(PathKind::File)) if script => {
                    let root = self.package_root(path);
                    self.grant(format!("filesystem:read:{}", root.display()), "the package of the script it runs");
                }
                (_, Some(_)) if is_system(path) => {}
                (_, Some(_)) if path.parent().is_none() => self.folder(path, ""),
                (_, Some(_)) => self.grant(format!("filesystem:read:{value}"), "named in its arguments"),
            }
        }
    }

    /// The folder above a script that has what a package's root has, or the one it is in.
    fn package_root(&self, script: &Path) -> PathBuf {
        // A package in `node_modules` finds what it needs in the outermost one above it.
        let modules = script.ancestors().filter(|above| above.file_name().is_some_and(|name| name == "node_modules"));
        if let Some(outermost) = modules.last() {
            return outermost.to_owned();
        }
        let folder = script.parent().unwrap_or(script);
        let marked = |folder: &&Path| {
            ROOT_MARKS.iter().any(|mark| self.program.machine.kind(&folder.join(mark)) == Some(PathKind::File))
        };
        folder.ancestors().take(ROOT_STEPS_MAX).find(marked).unwrap_or(folder).to_owned()
    }

    /// Addresses in variables and arguments: a server that is told one wants to reach it.
    fn addresses(&mut self) {
        let plain = self.program.env.iter().filter_map(|(name, setting)| match setting {
            Setting::Plain(value) => Some((format!("named in `{name}`"), value.as_str())),
            // A secret is not looked into; its host would tell something about it.
            Setting::Secret { .. } => None,
        });
        let args = self.program.args.iter().map(|arg| {
            let value =
                arg.strip_prefix('-').and_then(|flag| flag.split_once('=')).map_or(arg.as_str(), |(_, value)| value);
            ("named in its arguments".to_owned(), value)
        });
        let found: Vec<(String, String)> =
            plain.chain(args).filter_map(|(why, value)| Some((place(value)?, why))).collect();
        for (place, why) in found {
            self.grant(format!("network:{place}"), why);
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

/// `name@version`, `@scope/name@version`, `name==version`.
fn split_version(written: &str) -> (&str, Option<&str>) {
    if let Some((name, version)) = written.split_once("==") {
        return (name, Some(version));
    }
    let from = usize::from(written.starts_with('@'));
    let at = written.char_indices().skip(from).find(|(_, c)| *c == '@').map(|(at, _)| at);
    match at.and_then(|at| written.split_at_checked(at)) {
        Some((name, version)) => (name, Some(version.trim_start_matches('@'))),
        None => (written, None),
    }
}

fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}
