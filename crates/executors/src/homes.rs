//! Where tools live on disk: the folder of each loaded version, shared by every executor that runs what is in a folder.
//!
//! Invariants
//! - HOMES-1: folders belong to the home tenant. Another tenant's tool of the same name never runs what is in them.
//! - HOMES-2: a call that has its folder keeps it, whatever is said about the folder later.
//!
//! Not here: which folder wins when two claim a version (the loader in `cli`), and what is inside a folder.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use contract::error::{ErrorCode, Refusal};
use contract::ids::ToolId;
use contract::version::Version;
use kernel::registry::ToolVersion;

/// The folders of all loaded versions. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Homes {
    /// By id and written version.
    folders: Arc<RwLock<HashMap<(ToolId, String), PathBuf>>>,
}

impl Homes {
    /// Says where a version's folder is.
    pub fn set(&self, tool: &ToolId, version: &Version, folder: PathBuf) {
        let mut folders = self.folders.write().unwrap_or_else(PoisonError::into_inner);
        folders.insert((tool.clone(), version.to_string()), folder);
    }

    /// Forgets a version's folder; calls that are running keep it.
    pub fn forget(&self, tool: &ToolId, version: &Version) {
        let mut folders = self.folders.write().unwrap_or_else(PoisonError::into_inner);
        folders.remove(&(tool.clone(), version.to_string()));
    }

    /// The folder of a version.
    ///
    /// # Errors
    /// E3108 if none is loaded, or the tool is not the home tenant's (HOMES-1).
    pub fn of(&self, tool: &ToolVersion) -> Result<PathBuf, Refusal> {
        let folders = self.folders.read().unwrap_or_else(PoisonError::into_inner);
        let folder = folders.get(&(tool.id.clone(), tool.version.to_string())).filter(|_| tool.tenant.is_home());
        folder.cloned().ok_or_else(|| {
            Refusal::new(ErrorCode::E3108, format!("the folder of `{}` {} is not loaded", tool.id, tool.version))
                .hint("start the server with `--tools DIR`, where DIR contains the tool's folder")
                .retryable(false)
        })
    }
}
