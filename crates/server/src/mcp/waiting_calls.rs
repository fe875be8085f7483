//! Calls that wait for an answer of their caller, between the answer that says "input required" and the request that
//! brings the input. (MCP 2026-07-28)
//!
//! Bounded in number and time: over the number a call is not kept, which cancels it; over the time the same. Whoever comes
//! back is checked by the seal before this is asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;
use ports::tool_companion::{CallerAnswer, ToolQuestion};
use tokio::sync::oneshot;

use super::running_call::{RunSubject, RunningCall};
use super::seal::WaitingId;

/// A call that waits.
#[derive(Debug)]
pub(crate) struct WaitingCall {
    pub(crate) running: RunningCall,
    pub(crate) subject: RunSubject,
    pub(crate) questions: Vec<ToolQuestion>,
    pub(crate) answer: oneshot::Sender<Vec<CallerAnswer>>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct WaitingCalls {
    calls: Mutex<HashMap<WaitingId, WaitingCall>>,
}

impl WaitingCalls {
    /// Is there room for one more?
    pub(crate) fn has_room(&self, calls_max: usize) -> bool {
        self.count() < calls_max
    }

    /// Keeps a call for at most `time`.
    pub(crate) fn keep(self: &Arc<Self>, id: WaitingId, call: WaitingCall, time: Duration) {
        self.calls.lock_unpoisoned().insert(id, call);
        let all = Arc::downgrade(self);
        tokio::spawn(async move {
            tokio::time::sleep(time).await;
            if let Some(all) = all.upgrade() {
                // Dropped, and so cancelled, if nobody has come for it.
                drop(all.take(&id));
            }
        });
    }

    /// Takes a call out. Nobody else can have it then.
    pub(crate) fn take(&self, id: &WaitingId) -> Option<WaitingCall> {
        self.calls.lock_unpoisoned().remove(id)
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.calls.lock_unpoisoned().len()
    }
}
