//! What is on this machine, for the inference of permissions.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use upstreams::import::{Machine, PathKind};

/// The machine this runs on, and the environment it runs in.
#[derive(Debug)]
pub(crate) struct ThisMachine<'a> {
    pub(crate) environment: &'a BTreeMap<String, String>,
}

impl Machine for ThisMachine<'_> {
    fn kind(&self, path: &Path) -> Option<PathKind> {
        let found = std::fs::metadata(path).ok()?;
        Some(if found.is_dir() { PathKind::Folder } else { PathKind::File })
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        let path = self.environment.get("PATH")?;
        std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file())
    }

    fn really(&self, path: &Path) -> PathBuf {
        path.canonicalize().unwrap_or_else(|_| path.to_owned())
    }

    fn variable(&self, name: &str) -> Option<String> {
        self.environment.get(name).cloned()
    }
}
