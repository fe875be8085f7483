//! Where the doors ask for tool folders to be looked at now. Folders are the process's own affair; the port stands here
//! because the doors know the kernel and not what loads tools into it.

use std::fmt;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::ids::ToolId;

/// What came of looking at the tool folders.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FolderReport {
    /// The versions that are new: `demo.greet 1.0.0`.
    pub published: Vec<String>,
    /// The versions that run from a folder.
    pub loaded: Vec<LoadedFolder>,
    /// What stands in the way of folders, also if it was said before.
    pub problems: Vec<FolderProblem>,
}

/// A version and where it runs from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFolder {
    pub tool: ToolId,
    pub version: String,
    /// Of its manifest.
    pub digest: Digest,
    /// The folder's own name, without the way to it.
    pub folder: String,
}

/// Why a folder is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderProblem {
    /// The folder's own name, without the way to it.
    pub folder: String,
    pub message: String,
}

/// Looks.
#[async_trait]
pub trait ToolFolders: Send + Sync + fmt::Debug {
    /// Looks at every folder of tools now; `None` if nobody looks any more, because the server ends.
    async fn load(&self) -> Option<FolderReport>;
}
