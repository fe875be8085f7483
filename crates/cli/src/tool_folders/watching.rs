//! Watching tool folders: when a manifest changes, everything is looked at again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::ports::clock::Clock;

use super::loading::Loader;
use crate::manifest_file;
use crate::watching::FolderWatcher;

/// Notices changes of tool folders.
pub(crate) struct ToolWatcher {
    watcher: FolderWatcher,
}

impl ToolWatcher {
    /// Starts noticing. An error means that this machine cannot watch.
    pub(crate) fn start(watched: &[PathBuf]) -> notify::Result<Self> {
        Ok(Self { watcher: FolderWatcher::start(watched, matters)? })
    }

    /// Looks again after every change, for ever.
    pub(crate) async fn run(mut self, mut loader: Loader, clock: Arc<dyn Clock>) {
        while self.watcher.changed(&*clock).await {
            let (round, watched) = loader.load().await;
            for tool in &round.published {
                tracing::info!(tool, "registered");
            }
            for warning in &round.warnings {
                tracing::warn!("{warning}");
            }
            if let Err(error) = self.watcher.follow(&watched) {
                tracing::warn!(%error, "some tool folders cannot be watched; restart the server to see their changes");
            }
        }
    }
}

/// A manifest; or a name without an extension, which may be a tool folder that came or went.
fn matters(path: &Path) -> bool {
    let is_manifest = path.file_name().is_some_and(|name| manifest_file::NAMES.iter().any(|known| name == *known));
    is_manifest || path.extension().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_manifests_and_folders_matter() {
        for (path, expected) in
            [("/t/a/tool.toml", true), ("/t/a/tool.yaml", true), ("/t/new_tool", true), ("/t/a/output.log", false)]
        {
            assert_eq!(matters(Path::new(path)), expected, "{path}");
        }
    }
}
