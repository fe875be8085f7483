//! Whose turn it is to write: changes of one tool come one after the other, changes of different tools side by side, so
//! that the store can commit many of them at once.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use contract::ids::ToolId;
use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Tools are spread over this many turns; two tools on one turn merely wait for each other.
const TURNS: usize = 64;

/// The turns.
#[derive(Debug)]
pub(super) struct Turns {
    /// Taken whole by changes that concern more than one tool.
    all: RwLock<()>,
    each: Vec<Mutex<()>>,
}

/// A turn, over when dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "held, never read")]
pub(super) enum Turn<'a> {
    OneTool(RwLockReadGuard<'a, ()>, Option<MutexGuard<'a, ()>>),
    Everything(RwLockWriteGuard<'a, ()>),
}

impl Default for Turns {
    fn default() -> Self {
        Self { all: RwLock::default(), each: (0..TURNS).map(|_| Mutex::default()).collect() }
    }
}

impl Turns {
    /// Waits until nobody else changes this tool.
    pub(super) async fn of(&self, tool: &ToolId) -> Turn<'_> {
        let shared = self.all.read().await;
        let mut hasher = DefaultHasher::new();
        tool.hash(&mut hasher);
        let turn = usize::try_from(hasher.finish() % TURNS as u64).unwrap_or(0);
        let own = match self.each.get(turn) {
            Some(mutex) => Some(mutex.lock().await),
            None => None,
        };
        Turn::OneTool(shared, own)
    }

    /// Waits until nobody else changes anything.
    pub(super) async fn of_everything(&self) -> Turn<'_> {
        Turn::Everything(self.all.write().await)
    }
}
