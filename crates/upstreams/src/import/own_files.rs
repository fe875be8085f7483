//! The files without which a program does not start: its installation, the interpreter of a script, the interpreter behind a
//! virtual environment, and the folders in which links stand that lead there. (IMP-3)
//!
//! A program is found as the client would find it, by `PATH`, and then followed to what really runs. What a version manager
//! has put in between (`pyenv`, `asdf`, `nvm` and their like) is passed over, so that the sandbox shows one installed version
//! and not everything the manager has.
//!
//! Invariant OWN-1: a home, `~/.local`, `/home` and `/` are never among the roots.

use std::path::{Component, Path, PathBuf};

use super::shims::{self, Shim};
use super::{ImportMachine, PathKind};

/// Folders that every sandbox has.
const SYSTEM: [&str; 6] = ["/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc"];
/// Where programs are looked for inside.
pub(super) const SYSTEM_PROGRAMS: [&str; 3] = ["/usr/local/bin", "/usr/bin", "/bin"];
/// Interpreters of interpreters that are followed.
const DEPTH_MAX: usize = 4;

/// What was found out about a program.
#[derive(Debug, Default)]
pub(super) struct OwnFiles {
    /// What has to be readable, with the reason.
    pub(super) roots: Vec<(PathBuf, &'static str)>,
    /// How it has to be named inside; as it was written if nothing is said.
    pub(super) command: Option<PathBuf>,
    /// Folders outside of the system's in which it looks for other programs.
    pub(super) search: Vec<PathBuf>,
    pub(super) warnings: Vec<String>,
}

/// Finds the files of a program that is named in full, or without a path.
pub(super) fn of_command(machine: &dyn ImportMachine, command: &str) -> OwnFiles {
    let mut tracing = Tracing { machine, found: OwnFiles::default() };
    let found = if command.contains('/') {
        Some(PathBuf::from(command)).filter(|path| machine.kind(path) == Some(PathKind::File))
    } else {
        tracing.program(command)
    };
    let Some(path) = found else {
        tracing.found.warnings.push(format!("there is no program `{command}` on this machine"));
        return tracing.found;
    };
    // A folder that is a link is not one inside; the program itself may be a link, and may have to be (virtual environments).
    let path = if is_system(&path) { path } else { in_real_folder(machine, &path) };
    if !is_system(&path) {
        tracing.search(&path);
        tracing.found.command = Some(path.clone()).filter(|path| path.to_str() != Some(command));
    }
    tracing.need(&path, "the program's own files", 0);
    tracing.found
}

/// Is it in a folder that every sandbox has?
pub fn is_system(path: &Path) -> bool {
    SYSTEM.iter().any(|system| path.starts_with(system))
}

/// The same file, named by the folder it is really in.
pub(super) fn in_real_folder(machine: &dyn ImportMachine, path: &Path) -> PathBuf {
    match (path.parent(), path.file_name()) {
        (Some(folder), Some(name)) => machine.really(folder).join(name),
        _ => path.to_owned(),
    }
}

/// A package in `node_modules` finds what it needs in the outermost one above it.
pub(super) fn outermost_modules(path: &Path) -> Option<&Path> {
    path.ancestors().filter(|above| above.file_name().is_some_and(|name| name == "node_modules")).last()
}

/// Somebody's own place, which is never given whole (OWN-1).
pub(super) fn is_somebodys(machine: &dyn ImportMachine, folder: &Path) -> bool {
    let home = machine.variable("HOME").map(PathBuf::from);
    let is_home = |path: &Path| {
        home.as_deref() == Some(path)
            || path == Path::new("/root")
            || path.parent().is_some_and(|above| above == Path::new("/home"))
    };
    let is_above = |path: &Path| path.components().count() <= 1 || path == Path::new("/home");
    let shared = [".local", ".local/share", ".local/state", ".config", ".cache"];
    is_above(folder)
        || is_home(folder)
        || folder.ancestors().any(|above| is_home(above) && shared.iter().any(|own| folder == above.join(own)))
}

struct Tracing<'m> {
    machine: &'m dyn ImportMachine,
    found: OwnFiles,
}

impl Tracing<'_> {
    /// Where a program is that is named without a path: as outside, with shims passed over.
    fn program(&self, name: &str) -> Option<PathBuf> {
        for found in self.machine.programs(name) {
            match shims::behind(self.machine, &found, name) {
                Shim::No => return Some(found),
                Shim::LeadsTo(program) => return Some(program),
                Shim::Nowhere => {}
            }
        }
        let of_system = SYSTEM_PROGRAMS.iter().map(|folder| Path::new(folder).join(name));
        of_system.into_iter().find(|path| self.machine.kind(path) == Some(PathKind::File))
    }

    /// This file has to be there inside, and whatever it cannot run without.
    fn need(&mut self, path: &Path, why: &'static str, depth: usize) {
        let machine = self.machine;
        // A link is of use inside only if the folder is there in which it stands.
        for link in machine.links(path) {
            self.root(&link, why);
        }
        let real = machine.really(path);
        self.root(&real, why);
        if depth >= DEPTH_MAX {
            return;
        }
        if let Some(base) = self.base_of_environment(path) {
            self.need(&base, "the interpreter behind its virtual environment", depth + 1);
        }
        match machine.text(&real).as_deref().and_then(shebang) {
            None => {}
            Some(Interpreter::At(path)) => {
                self.need(&in_real_folder(machine, &path), "the interpreter of its script", depth + 1);
            }
            Some(Interpreter::Named(name)) => {
                // What is looked for by name is looked for beside the program first, as it will be inside.
                let beside = self.found.search.iter().map(|folder| folder.join(&name));
                let beside = beside.into_iter().find(|path| machine.kind(path) == Some(PathKind::File));
                let Some(found) = beside.or_else(|| self.program(&name)) else {
                    self.found.warnings.push(format!("its script wants `{name}`, which is not on this machine"));
                    return;
                };
                let found = in_real_folder(machine, &found);
                self.search(&found);
                self.need(&found, "the interpreter of its script", depth + 1);
            }
        }
    }

    /// Programs are also looked for where this one is.
    fn search(&mut self, program: &Path) {
        let Some(folder) = program.parent() else { return };
        let known = SYSTEM_PROGRAMS.iter().any(|system| folder == Path::new(system));
        if !known && !self.found.search.iter().any(|other| other == folder) {
            self.found.search.push(folder.to_owned());
        }
    }

    /// `pyvenv.cfg` says where the interpreter of a virtual environment comes from.
    fn base_of_environment(&self, path: &Path) -> Option<PathBuf> {
        let folder = path.parent().filter(|folder| folder.ends_with("bin"))?;
        let settings = self.machine.text(&folder.parent()?.join("pyvenv.cfg"))?;
        let home = settings.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == "home").then(|| PathBuf::from(value.trim()))
        })?;
        let there = ["python3", "python"].map(|name| home.join(name));
        there.into_iter().find(|path| path.is_absolute() && self.machine.kind(path) == Some(PathKind::File))
    }

    /// The folder that has to be readable for this file to be of use.
    fn root(&mut self, file: &Path, why: &'static str) {
        if is_system(file) {
            return;
        }
        let Some(root) = self.installation(file) else {
            let shown = file.display();
            self.found.warnings.push(format!(
                "`{shown}` stands in somebody's own folder, which is not given whole: name the place it leads to, or put it into a folder of its own"
            ));
            return;
        };
        if !self.found.roots.iter().any(|(known, _)| root.starts_with(known)) {
            self.found.roots.retain(|(known, _)| !known.starts_with(&root));
            self.found.roots.push((root, why));
        }
    }

    /// `…/bin/node` needs `…/lib` beside it; but what is beside `~/bin` or `~/.local/bin` is a person's, not a program's.
    fn installation(&self, file: &Path) -> Option<PathBuf> {
        if let Some(modules) = outermost_modules(file) {
            return Some(modules.to_owned());
        }
        let folder = file.parent()?;
        let above = folder.parent().filter(|_| folder.ends_with("bin") || folder.ends_with("sbin"));
        let candidates = [above, Some(folder)];
        candidates.into_iter().flatten().find(|root| !is_somebodys(self.machine, root)).map(Path::to_owned)
    }
}

/// Who reads a script.
#[derive(Debug, PartialEq, Eq)]
enum Interpreter {
    At(PathBuf),
    Named(String),
}

/// The first line of a script. Installers whose path is too long for it write a second one.
fn shebang(text: &str) -> Option<Interpreter> {
    let mut lines = text.lines();
    let mut words = lines.next()?.strip_prefix("#!")?.split_whitespace();
    let program = Path::new(words.next()?);
    if program.file_name()? == "env" {
        let name = words.find(|word| !word.starts_with('-') && !word.contains('='))?;
        return Some(if name.contains('/') {
            Interpreter::At(name.into())
        } else {
            Interpreter::Named(name.to_owned())
        });
    }
    if program.ends_with("bin/sh")
        && let Some(second) = lines.next().and_then(|line| line.strip_prefix("'''exec' "))
    {
        let quoted = second.strip_prefix('"').and_then(|rest| rest.split('"').next());
        let named = quoted.or_else(|| second.split(' ').next()).filter(|path| path.starts_with('/'))?;
        return Some(Interpreter::At(named.into()));
    }
    program.is_absolute().then(|| Interpreter::At(program.to_owned()))
}

/// `base/path` with `.` and `..` taken out, as text alone.
pub(super) fn joined(base: &Path, path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in base.join(path).components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            other => out.push(other),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_a_script_names_its_interpreter() {
        let at = |path: &str| Some(Interpreter::At(path.into()));
        let named = |name: &str| Some(Interpreter::Named(name.into()));
        for (text, expected) in [
            ("#!/usr/bin/env node\nconsole.log(1)", named("node")),
            ("#! /usr/bin/env -S uv run --script\n", named("uv")),
            ("#!/usr/bin/env PYTHONPATH=x python3\n", named("python3")),
            ("#!/srv/venv/bin/python3\nimport re", at("/srv/venv/bin/python3")),
            (
                "#!/bin/sh\n'''exec' \"/srv/a very/long/bin/python\" \"$0\" \"$@\"\n' '''",
                at("/srv/a very/long/bin/python"),
            ),
            ("#!/bin/sh\n'''exec' /srv/long/bin/python \"$0\" \"$@\"\n' '''", at("/srv/long/bin/python")),
            ("#!/bin/sh\necho", at("/bin/sh")),
            ("#!relative", None),
            ("import re", None),
            ("#!", None),
            ("", None),
        ] {
            assert_eq!(shebang(text), expected, "{text}");
        }
    }

    #[test]
    fn paths_are_joined_as_text() {
        for (path, expected) in
            [(".", "/a/b"), ("./c", "/a/b/c"), ("../c/./d", "/a/c/d"), ("/x/../y", "/y"), ("../../..", "/")]
        {
            assert_eq!(joined(Path::new("/a/b"), Path::new(path)), Path::new(expected), "{path}");
        }
    }
}
