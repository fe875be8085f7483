//! A claim that the ledger has not answered yet. Whoever waits for it may go away (a deadline, a cancel, a client that closes
//! its stream), and a store that was asked may still commit what it was asked for: the claim is then carried to its end
//! without its caller, so that a call which was never sent does not hold its key. (DESIGN §5)
//!
//! Only a claim that is dropped half way costs a task. At most as many go on as calls wait for the ledger, and
//! [`super::LedgerService::retire`] waits for them.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ports::executor::CallDispatch;
use ports::ledger::{BeginOutcome, Intent, Ledger};
use ports::registry_store::StoreError;
use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::{DuplicateWaiters, HeldClaim, UnwrittenEnds};

/// What the ledger said, and the place in it if the call has one.
pub(super) type ClaimAnswer = Result<(BeginOutcome, Option<HeldClaim>), StoreError>;

type Work = Pin<Box<dyn Future<Output = ClaimAnswer> + Send>>;

/// Resolves to the ledger's answer.
pub(super) struct PendingClaim {
    /// There until it is answered.
    work: Option<Work>,
    /// Before, nothing was asked of the store.
    is_asked: bool,
    tasks: TaskTracker,
}

impl PendingClaim {
    /// Nothing is asked before it is polled.
    pub(super) fn new(
        ledger: Arc<dyn Ledger>,
        intent: Intent,
        waiting: &DuplicateWaiters,
        unwritten: &Arc<UnwrittenEnds>,
        tasks: TaskTracker,
    ) -> Self {
        let (waiting, unwritten) = (waiting.clone(), Arc::clone(unwritten));
        let work = async move {
            let invocation = intent.invocation;
            let begun = ledger.begin(intent).await?;
            let BeginOutcome::Fresh(fence) = begun else { return Ok((begun, None)) };
            let dispatch = Arc::new(CallDispatch::default());
            dispatch.hold();
            let seat = Some(waiting.take_seat(invocation));
            Ok((begun, Some(HeldClaim { invocation, fence, dispatch, seat, unwritten })))
        };
        Self { work: Some(Box::pin(work)), is_asked: false, tasks }
    }
}

impl Future for PendingClaim {
    type Output = ClaimAnswer;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<ClaimAnswer> {
        self.is_asked = true;
        let Some(work) = self.work.as_mut() else { return Poll::Pending };
        let answer = std::task::ready!(work.as_mut().poll(context));
        self.work = None;
        Poll::Ready(answer)
    }
}

impl Drop for PendingClaim {
    fn drop(&mut self) {
        let Some(work) = self.work.take().filter(|_| self.is_asked) else { return };
        // Without a runtime the process ends, and what it leaves in flight is for recovery.
        let Ok(runtime) = Handle::try_current() else { return };
        // Dropping the place says that nothing of the call was sent (`HeldClaim`).
        self.tasks.spawn_on(async move { drop(work.await) }, &runtime);
    }
}
