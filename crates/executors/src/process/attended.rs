//! A process while somebody talks to it: should the call be dropped meanwhile (deadline, cancellation), what it used is still
//! found out. (EXEC-017)
//!
//! Dropping a call leaves nobody to wait for the end of its process, and only at its end are the counters whole. So the
//! process is shared with a reading that lies with the call ([`UsageAtEnd`]): the kernel takes the reading, which ends the
//! process and counts. A reading that nobody takes is dropped with the call, and the process with it.
//!
//! [`UsageAtEnd`]: ports::executor::UsageAtEnd

use std::sync::Arc;

use ports::executor::{ResourceUsage, ToolCall, UsageAtEnd};
use tokio::sync::{Mutex, MutexGuard};

use super::process_run::ProcessRun;
use super::warm::WarmProcess;

/// Something with a process in it.
pub(super) trait Holder: Send + 'static {
    fn process(&mut self) -> &mut ProcessRun;
}

impl Holder for ProcessRun {
    fn process(&mut self) -> &mut ProcessRun {
        self
    }
}

impl Holder for WarmProcess<ProcessRun> {
    fn process(&mut self) -> &mut ProcessRun {
        &mut self.process
    }
}

/// A process that is talked to.
pub(super) struct Attended<H> {
    shared: Arc<Mutex<H>>,
    usage_at_end: Arc<UsageAtEnd>,
}

impl<H: Holder> Attended<H> {
    /// From here on, until it is taken [`back`](Self::back).
    pub(super) fn new(call: &ToolCall, holder: H) -> Self {
        let shared = Arc::new(Mutex::new(holder));
        call.usage_at_end.leave(used_at_end(Arc::clone(&shared)));
        Self { shared, usage_at_end: Arc::clone(&call.usage_at_end) }
    }

    /// For the talk. Nobody else asks for it while the call lives.
    pub(super) async fn holder(&self) -> MutexGuard<'_, H> {
        self.shared.lock().await
    }

    /// The talk is over, and its end is somebody else's to say. `None` cannot be: the reading alone shares it.
    pub(super) fn back(self) -> Option<H> {
        self.usage_at_end.clear();
        Arc::into_inner(self.shared).map(Mutex::into_inner)
    }
}

/// Ends the process and says what the call used of it.
async fn used_at_end<H: Holder>(shared: Arc<Mutex<H>>) -> ResourceUsage {
    shared.lock().await.process().end_and_count().await
}
