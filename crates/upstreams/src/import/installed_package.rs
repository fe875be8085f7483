//! A server whose package was installed: how it is started from there, and what it has to read of this machine for that.
//! (decision 0090)
//!
//! The server sees the package at [`PACKAGE_ROOT`], so everything is asked of a machine that has the package there. What lies in
//! the package needs no permission; the interpreter outside of it does.

use std::path::{Path, PathBuf};

use super::entry::search_path;
use super::own_files::{self, OwnFiles};
use super::{ClosedPath, ImportGrant, ImportMachine, ImportedServer, PathKind};
use crate::package::{PACKAGE_ROOT, PackagePin};
use crate::spec::{ServerReach, ServerSetting};

/// A package as it was installed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstalledPackage {
    pub pin: PackagePin,
    /// Where it is on this machine, links followed.
    pub folder: PathBuf,
    /// The program in it, as the server's sandbox shows it.
    pub command: String,
    /// Arguments in front of the server's own.
    pub leading: Vec<String>,
}

/// Starts the server from the package in place of its runner. Answers what it may touch for that.
pub fn start_from(
    server: &mut ImportedServer,
    installed: &InstalledPackage,
    machine: &dyn ImportMachine,
) -> Vec<ImportGrant> {
    let there = WithPackage { machine, folder: &installed.folder };
    let OwnFiles { roots, search, warnings, .. } = own_files::of_command(&there, &installed.command);
    let outside = roots.into_iter().filter(|(root, _)| !root.starts_with(PACKAGE_ROOT));
    let grants: Vec<ImportGrant> = outside
        .map(|(root, why)| ImportGrant {
            permission: format!("filesystem:read:{}", root.display()).replace(' ', "%20"),
            why: why.to_owned(),
        })
        .collect();
    server.warnings.extend(warnings);
    let ServerReach::Stdio { command, args, env, permissions, package, .. } = &mut server.spec.reach else {
        return Vec::new();
    };
    // The words of the runner, or of the package that it was started from before, give way; the rest is the server's own.
    let skipped = match (&*package, &server.package) {
        (Some(former), _) => former.registry.leading_args(),
        (None, Some(request)) => request.written.len().saturating_sub(1),
        (None, None) => 0,
    };
    let own = args.split_off(skipped.min(args.len()));
    command.clone_from(&installed.command);
    *args = installed.leading.iter().cloned().chain(own).collect();
    for grant in &grants {
        if !permissions.contains(&grant.permission) {
            permissions.push(grant.permission.clone());
        }
    }
    if !search.is_empty() {
        let path = search_path(&search);
        match env.get_mut("PATH") {
            // What was inferred before is inferred anew; what somebody has said stays.
            Some(ServerSetting::Plain(known)) if known.starts_with(PACKAGE_ROOT) => *known = path,
            Some(_) => {}
            None => {
                env.insert("PATH".into(), ServerSetting::Plain(path));
            }
        }
    }
    *package = Some(installed.pin.clone());
    server.grants.extend(grants.iter().cloned());
    grants
}

/// This machine, with a package where the server will see it.
struct WithPackage<'a> {
    machine: &'a dyn ImportMachine,
    folder: &'a Path,
}

impl WithPackage<'_> {
    /// Where it is outside.
    fn outside(&self, path: &Path) -> PathBuf {
        path.strip_prefix(PACKAGE_ROOT).map_or_else(|_| path.to_owned(), |rest| self.folder.join(rest))
    }

    /// Where it is inside.
    fn inside(&self, path: PathBuf) -> PathBuf {
        match path.strip_prefix(self.folder) {
            Ok(rest) => Path::new(PACKAGE_ROOT).join(rest),
            Err(_) => path,
        }
    }
}

impl ImportMachine for WithPackage<'_> {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        self.machine.kind(&self.outside(path))
    }
    fn programs(&self, name: &str) -> Vec<PathBuf> {
        self.machine.programs(name)
    }
    fn really(&self, path: &Path) -> PathBuf {
        self.inside(self.machine.really(&self.outside(path)))
    }
    fn links(&self, path: &Path) -> Vec<PathBuf> {
        self.machine.links(&self.outside(path)).into_iter().map(|link| self.inside(link)).collect()
    }
    fn text(&self, path: &Path) -> Option<String> {
        self.machine.text(&self.outside(path))
    }
    fn entries(&self, folder: &Path) -> Vec<PathBuf> {
        self.machine.entries(&self.outside(folder)).into_iter().map(|path| self.inside(path)).collect()
    }
    fn variable(&self, name: &str) -> Option<String> {
        self.machine.variable(name)
    }
    fn file(&self) -> Option<PathBuf> {
        self.machine.file()
    }
    fn closed(&self, path: &Path, write: bool) -> Option<ClosedPath> {
        self.machine.closed(&self.outside(path), write)
    }
}
