//! Watching folders: somebody should look again.
//!
//! Events only say "look again"; what changed is found by looking, so lost, doubled or strange events do no harm. Editors
//! write in several steps, so a change is acted upon once things have been quiet for a moment.

use std::path::{Path, PathBuf};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use ports::clock::Clock;
use tokio::sync::mpsc;

/// How long it must be quiet.
const QUIET: Duration = Duration::from_millis(200);
/// Rounds of waiting for quiet before looking anyway.
const PATIENCE_ROUNDS: usize = 10;

/// Notices changes in folders.
pub(crate) struct FolderWatcher {
    watcher: RecommendedWatcher,
    changes: mpsc::Receiver<()>,
    watched: Vec<PathBuf>,
}

impl FolderWatcher {
    /// Starts noticing changes of the files that matter. An error means that this machine cannot watch (its inotify
    /// limits, a strange file system).
    pub(crate) fn start(watched: &[PathBuf], matters: fn(&Path) -> bool) -> notify::Result<Self> {
        let (changed, changes) = mpsc::channel(1);
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            // An error means that events may have been lost: look again. A full channel means that we are about to.
            if event.as_ref().map_or(true, |event| is_change(event, matters)) {
                let _ = changed.try_send(());
            }
        })?;
        let mut this = Self { watcher, changes, watched: Vec::new() };
        this.follow(watched)?;
        Ok(this)
    }

    /// Watches these folders, and no longer those that are not among them.
    pub(crate) fn follow(&mut self, wanted: &[PathBuf]) -> notify::Result<()> {
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

    /// Completes when something has changed and things are quiet again; false if nothing will change any more.
    pub(crate) async fn changed(&mut self, clock: &dyn Clock) -> bool {
        if self.changes.recv().await.is_none() {
            return false;
        }
        for _ in 0..PATIENCE_ROUNDS {
            tokio::select! {
                more = self.changes.recv() => if more.is_none() { return false },
                () = clock.sleep(QUIET) => break,
            }
        }
        true
    }
}

/// Reading a file is an event too; reacting to our own reading would never end.
fn is_change(event: &Event, matters: fn(&Path) -> bool) -> bool {
    let is_reading = match event.kind {
        EventKind::Access(kind) => kind != AccessKind::Close(AccessMode::Write),
        _ => false,
    };
    !is_reading && event.paths.iter().any(|path| matters(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::SystemClock;
    use notify::event::CreateKind;

    fn is_text(path: &Path) -> bool {
        path.extension().is_some_and(|extension| extension == "txt")
    }

    #[test]
    fn reading_is_no_change_and_other_files_do_not_matter() {
        let event = |kind, path: &str| Event::new(kind).add_path(path.into());
        let (created, opened) =
            (EventKind::Create(CreateKind::Any), EventKind::Access(AccessKind::Open(AccessMode::Read)));
        let written = EventKind::Access(AccessKind::Close(AccessMode::Write));
        for (kind, path, expected) in [
            (created, "/t/a.txt", true),
            (written, "/t/a.txt", true),
            (opened, "/t/a.txt", false),
            (created, "/t/a.log", false),
        ] {
            assert_eq!(is_change(&event(kind, path), is_text), expected, "{kind:?} {path}");
        }
    }

    #[tokio::test]
    async fn a_new_file_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let mut watcher = FolderWatcher::start(&[dir.path().to_owned()], is_text).unwrap();
        std::fs::write(dir.path().join("new.txt"), "x").unwrap();
        let clock = SystemClock::start();
        assert!(tokio::time::timeout(Duration::from_secs(10), watcher.changed(&clock)).await.unwrap());
    }
}
