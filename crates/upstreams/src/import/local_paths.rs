//! Paths of a configuration, in full: relative ones begin where the file lies (or at `cwd`), and links are followed, because
//! a sandbox shows what is granted by its real name and no other.

use std::path::{Path, PathBuf};

use super::own_files::{in_real_folder, is_system, joined};
use super::{ImportMachine, PathKind, runners};

/// A command line with its paths in full.
pub(super) struct Local {
    pub(super) command: String,
    pub(super) args: Vec<String>,
    pub(super) warnings: Vec<String>,
}

/// The command line as the server will be started.
pub(super) fn in_full(machine: &dyn ImportMachine, base: Option<&Path>, command: String, args: Vec<String>) -> Local {
    let mut local = Local { command, args: Vec::new(), warnings: Vec::new() };
    if local.command.contains('/') || local.command.starts_with('~') {
        match full(machine, base, &local.command) {
            // `/bin` is a link on many machines, and the same one inside.
            Some(path) if is_system(&path) => local.command = path.display().to_string(),
            Some(path) => local.command = in_real_folder(machine, &path).display().to_string(),
            None => local.warnings.push(format!("`{}` is a relative path: write it in full", local.command)),
        }
    }
    let script = runners::script_index(&local.command, &args);
    for (index, arg) in args.into_iter().enumerate() {
        let (flag, value) = match arg.strip_prefix('-').and_then(|_| arg.split_once('=')) {
            Some((flag, value)) => (format!("{flag}="), value),
            None => (String::new(), arg.as_str()),
        };
        let is_script = script == Some(index);
        if let Some(path) = path_in(machine, base, value, is_script) {
            local.args.push(format!("{flag}{}", path.display()));
            continue;
        }
        if is_written_as_path(value) || (is_script && value.contains('.') && !value.starts_with('/')) {
            local.warnings.push(format!("`{value}` is a relative path: write it in full"));
        }
        local.args.push(arg);
    }
    local
}

/// A path in full, whether it is there or not.
pub(super) fn full(machine: &dyn ImportMachine, base: Option<&Path>, written: &str) -> Option<PathBuf> {
    let home = || machine.variable("HOME").map(PathBuf::from);
    match written.strip_prefix('~') {
        Some("") => home(),
        Some(rest) if rest.starts_with('/') => Some(joined(&home()?, Path::new(rest.trim_start_matches('/')))),
        _ if written.starts_with('/') => Some(joined(Path::new("/"), Path::new(written))),
        _ => Some(joined(base?, Path::new(written))),
    }
}

/// A folder that is there, by its real name.
pub(super) fn folder(machine: &dyn ImportMachine, base: Option<&Path>, written: &str) -> Option<PathBuf> {
    let path = full(machine, base, written)?;
    (machine.kind(&path) == Some(PathKind::Folder)).then(|| machine.really(&path))
}

/// The path that an argument names, if it names one: by its form, or because it is there.
fn path_in(machine: &dyn ImportMachine, base: Option<&Path>, value: &str, is_script: bool) -> Option<PathBuf> {
    let absolute = value.starts_with('/') && value.len() > 1;
    // `@scope/name` and `owner/name` are packages more often than folders, unless something is there.
    let maybe = (is_script || value.contains('/')) && !value.starts_with(['@', '-']) && !value.contains("://");
    if !(absolute || is_written_as_path(value) || maybe) {
        return None;
    }
    let path = full(machine, base, value)?;
    match machine.kind(&path) {
        Some(_) => Some(machine.really(&path)),
        None if absolute || !is_written_as_path(value) => None,
        // It may be made later, in a folder that is there.
        None => Some(in_real_folder(machine, &path)),
    }
}

fn is_written_as_path(value: &str) -> bool {
    matches!(value, "." | ".." | "~") || ["./", "../", "~/"].iter().any(|start| value.starts_with(start))
}
