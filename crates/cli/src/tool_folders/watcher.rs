//! Watching tool folders: when something in one changes, or somebody asks, everything is looked at again. A manifest may be a new
//! version; a program may be one that processes run which wait for their next call (LOAD-3). What lies deeper in a folder is
//! not seen.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use ports::clock::Clock;
use ports::tool_folders::{FolderReport, ToolFolders};
use tokio::sync::{mpsc, oneshot};

use super::loader::FolderLoader;
use crate::folder_watcher::FolderWatcher;

/// Who may wait for a look at once; more of them are told that nobody looks.
const ASKING_MAX: usize = 16;

/// Somebody who wants to know what a look finds.
type LookRequest = oneshot::Sender<FolderReport>;

/// Has one's folders looked at.
#[derive(Debug, Clone)]
pub(crate) struct FolderLookRequests {
    asking: mpsc::Sender<LookRequest>,
}

#[async_trait]
impl ToolFolders for FolderLookRequests {
    async fn load(&self) -> Option<FolderReport> {
        let (answer, answered) = oneshot::channel();
        self.asking.try_send(answer).ok()?;
        answered.await.ok()
    }
}

/// Notices changes of tool folders.
pub(crate) struct ToolWatcher {
    /// Not there on a machine that cannot watch; what somebody asks for is looked at all the same.
    watcher: Option<FolderWatcher>,
    asked: mpsc::Receiver<LookRequest>,
    asking: mpsc::Sender<LookRequest>,
}

impl ToolWatcher {
    /// Starts noticing.
    pub(crate) fn start(watched: &[PathBuf]) -> Self {
        let (asking, asked) = mpsc::channel(ASKING_MAX);
        let watcher = FolderWatcher::start(watched, matters).inspect_err(|error| {
            tracing::warn!(%error, "tool folders cannot be watched on this machine; restart the server to see changes");
        });
        Self { watcher: watcher.ok(), asked, asking }
    }

    /// Where a look can be asked for.
    pub(crate) fn requests(&self) -> FolderLookRequests {
        FolderLookRequests { asking: self.asking.clone() }
    }

    /// Looks again after every change and whenever somebody asks, for ever.
    pub(crate) async fn run(mut self, mut loader: FolderLoader, clock: Arc<dyn Clock>) {
        while let Some(cause) = self.cause(&*clock).await {
            let (round, watched) = loader.load().await;
            for tool in &round.published {
                tracing::info!(tool, "registered");
            }
            for warning in &round.warnings {
                tracing::warn!("{warning}");
            }
            if let Some(Err(error)) = self.watcher.as_mut().map(|watcher| watcher.follow(&watched)) {
                tracing::warn!(%error, "some tool folders cannot be watched; restart the server to see their changes");
            }
            if let Cause::Asked(answer) = cause {
                // Whoever does not wait any more has no use for it.
                let _ = answer.send(FolderReport { published: round.published, ..loader.report() });
            }
        }
    }

    /// Why to look again; `None` if there will be no reason any more.
    async fn cause(&mut self, clock: &dyn Clock) -> Option<Cause> {
        let Some(watcher) = &mut self.watcher else { return self.asked.recv().await.map(Cause::Asked) };
        tokio::select! {
            asked = self.asked.recv() => asked.map(Cause::Asked),
            changed = watcher.changed(clock) => changed.then_some(Cause::Changed),
        }
    }
}

/// Why folders are looked at.
enum Cause {
    Changed,
    Asked(LookRequest),
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
