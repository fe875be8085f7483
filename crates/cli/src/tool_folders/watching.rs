//! Watching tool folders: when a manifest changes, everything is looked at again.
//!
//! Events only say "look again"; what changed is found by looking, so lost, doubled or strange events do no harm. Editors
//! write in several steps, so a change is acted upon once things have been quiet for a moment.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use kernel::ports::clock::Clock;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::mpsc;

use super::loading::Loader;
use crate::manifest_file;

/// How long it must be quiet.
const QUIET: Duration = Duration::from_millis(200);
/// Rounds of waiting for quiet before looking anyway.
const PATIENCE_ROUNDS: usize = 10;

/// Notices changes.
pub(crate) struct ToolWatcher {
    watcher: RecommendedWatcher,
    changes: mpsc::Receiver<()>,
    watched: Vec<PathBuf>,
}

impl ToolWatcher {
    /// Starts noticing. An error means that this machine cannot watch (its inotify limits, a strange file system).
    pub(crate) fn start(watched: &[PathBuf]) -> notify::Result<Self> {
        let (changed, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error means that events may have been lost: look again. A full channel means that we are about to.
            if event.as_ref().map_or(true, matters) {
                let _ = changed.try_send(());
            }
        })?;
        let mut this = Self { watcher, changes, watched: Vec::new() };
        this.follow(watched)?;
        Ok(this)
    }

    /// Watches these directories, and no longer those that are not among them.
    fn follow(&mut self, wanted: &[PathBuf]) -> notify::Result<()> {
        for gone in self.watched.iter().filter(|dir| !wanted.contains(dir)) {
            // A directory that was deleted is no longer watched anyway.
            let _ = self.watcher.unwatch(gone);
        }
        self.watched.retain(|dir| wanted.contains(dir));
        for dir in wanted {
            if !self.watched.contains(dir) {
                self.watcher.watch(dir, RecursiveMode::NonRecursive)?;
                self.watched.push(dir.clone());
            }
        }
        Ok(())
    }

    /// Looks again after every change, for ever.
    pub(crate) async fn run(mut self, mut loader: Loader, clock: Arc<dyn Clock>) {
        while self.changes.recv().await.is_some() {
            for _ in 0..PATIENCE_ROUNDS {
                tokio::select! {
                    more = self.changes.recv() => if more.is_none() { return },
                    () = clock.sleep(QUIET) => break,
                }
            }
            let (round, watched) = loader.load().await;
            for tool in &round.published {
                tracing::info!(tool, "registered");
            }
            for warning in &round.warnings {
                tracing::warn!("{warning}");
            }
            if let Err(error) = self.follow(&watched) {
                tracing::warn!(%error, "some tool folders cannot be watched; restart the server to see their changes");
            }
        }
    }
}

/// Reading a manifest is an event too; reacting to our own reading would never end.
fn matters(event: &Event) -> bool {
    let is_reading = match event.kind {
        EventKind::Access(kind) => kind != AccessKind::Close(AccessMode::Write),
        _ => false,
    };
    let names_a_manifest =
        |path: &PathBuf| path.file_name().is_some_and(|name| manifest_file::NAMES.iter().any(|known| name == *known));
    // A name without an extension may be a tool folder that came or went.
    !is_reading && event.paths.iter().any(|path| names_a_manifest(path) || path.extension().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use notify::event::CreateKind;

    #[test]
    fn only_changes_of_manifests_and_folders_matter() {
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let (created, opened) =
            (EventKind::Create(CreateKind::Any), EventKind::Access(AccessKind::Open(AccessMode::Read)));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        for (kind, path, expected) in [
            (created, "/t/a/tool.toml", true),
            (written, "/t/a/tool.yaml", true),
            (created, "/t/new_tool", true),
            (opened, "/t/a/tool.toml", false),
            (created, "/t/a/output.log", false),
        ] {
            assert_eq!(matters(&event(kind, path)), expected, "{kind:?} {path}");
        }
    }

    #[tokio::test]
    async fn a_new_manifest_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut watcher = ToolWatcher::start(&[dir.path().to_owned()]).unwrap();
        std::fs::write(dir.path().join("tool.toml"), "x").unwrap();
        tokio::time::timeout(Duration::from_secs(10), watcher.changes.recv()).await.unwrap().unwrap();
    }
}
