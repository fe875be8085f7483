//! Watching tool folders: when something in one changes, everything is looked at again. A manifest may be a new version; a
//! program may be one that processes run which wait for their next call (LOAD-3). What lies deeper in a folder is not seen.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use kernel::ports::clock::Clock;

use super::loading::Loader;
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

/// Everything but what editors and version control keep for themselves.
fn matters(path: &Path) -> bool {
    let name = path.file_name().map_or(&b""[..], |name| name.as_encoded_bytes());
    !name.starts_with(b".") && !name.ends_with(b"~")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_does_not_matter() {
        for (path, expected) in [
            ("/t/a/tool.toml", true),
            ("/t/a/main.py", true),
            ("/t/new_tool", true),
            ("/t/a/.main.py.swp", false),
            ("/t/a/main.py~", false),
        ] {
            assert_eq!(matters(Path::new(path)), expected, "{path}");
        }
    }
}
