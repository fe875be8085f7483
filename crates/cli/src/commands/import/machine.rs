//! What is on this machine, for the inference of permissions.

use std::path::{Path, PathBuf};

use upstreams::import::{Machine, PathKind};

/// The machine this runs on.
#[derive(Debug)]
pub(crate) struct ThisMachine;

impl Machine for ThisMachine {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        let found = std::fs::metadata(path).ok()?;
        Some(if found.is_dir() { PathKind::Folder } else { PathKind::File })
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let path = std::env::var_os("PATH")?;
        let found = std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())?;
        // Version managers link their programs from elsewhere; what they need is where they really are.
        Some(found.canonicalize().unwrap_or(found))
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}
