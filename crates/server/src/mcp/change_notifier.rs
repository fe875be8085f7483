//! News of the catalogue, for clients that want to be told when their list has changed.
//!
//! The registry, access and availability change in different places and some changes are made by time alone, so they are
//! not followed one by one: a single task looks every [`LOOK_EVERY`] whether the moment of the catalogue is still the same,
//! and only while somebody listens. Whoever hears of a change compares *its own* list; a change that does not concern it is
//! none.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kernel::Kernel;
use tokio::sync::watch;

/// How often the catalogue is looked at while somebody listens.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How many looks until listeners compare anyway: tokens end and tools retire without anybody's doing.
const LOOKS_PER_ROUND: u32 = 40;

/// Tells of changes.
#[derive(Debug)]
pub(crate) struct ChangeNotifier {
    heard: watch::Sender<u64>,
    looking: OnceLock<()>,
}

impl Default for ChangeNotifier {
    fn default() -> Self {
        Self { heard: watch::Sender::new(0), looking: OnceLock::new() }
    }
}

impl ChangeNotifier {
    /// Changes whenever something may have changed.
    pub(crate) fn follow(self: &Arc<Self>, kernel: &Arc<Kernel>) -> watch::Receiver<u64> {
        let heard = self.heard.subscribe();
        self.looking.get_or_init(|| {
            let (changes, kernel) = (Arc::downgrade(self), Arc::downgrade(kernel));
            tokio::spawn(async move {
                let mut last = None;
                let mut looks = 0_u32;
                loop {
                    tokio::time::sleep(LOOK_EVERY).await;
                    let (Some(changes), Some(kernel)) = (changes.upgrade(), kernel.upgrade()) else { return };
                    if changes.heard.receiver_count() == 0 {
                        // What happens while nobody listens is no change to whoever comes later.
                        last = None;
                        continue;
                    }
                    looks = looks.wrapping_add(1);
                    let mark = Some(kernel.catalogue_mark());
                    if last != mark || looks.is_multiple_of(LOOKS_PER_ROUND) {
                        last = mark;
                        changes.heard.send_modify(|count| *count += 1);
                    }
                }
            });
        });
        heard
    }

    /// How many listen.
    pub(crate) fn listeners(&self) -> usize {
        self.heard.receiver_count()
    }
}
