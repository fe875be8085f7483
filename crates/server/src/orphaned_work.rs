//! Work that is carried to its end, also when the client goes away (DOOR-2).
//!
//! hyper drops a handler when its connection closes. A call dropped half-way would leave a tool with effects in an unknown
//! state and the audit log without its last record; a publication dropped between store and snapshot would be there and
//! not be seen. So the work moves to a task of its own the moment its handler is dropped, and costs nothing extra when
//! that does not happen.
//!
//! Not here: how long work may take (the kernel's deadlines), how many may run (`door`).

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Work whose clients have gone away. Owned by the door, waited for when it closes.
#[derive(Debug, Default)]
pub(crate) struct OrphanedWork {
    tasks: TaskTracker,
    give_up: CancellationToken,
}

impl OrphanedWork {
    /// Completes once none is left.
    pub(crate) async fn wait(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Ends those that are left and takes no more.
    pub(crate) fn give_up(&self) {
        self.give_up.cancel();
    }

    /// Carries work that never had a handler of its own.
    pub(crate) fn take(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.adopt(Box::pin(work));
    }

    fn adopt<T: Send + 'static>(&self, work: Pin<Box<dyn Future<Output = T> + Send>>) {
        if self.give_up.is_cancelled() {
            return;
        }
        // Without a runtime the process is ending, and with it the work.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let give_up = self.give_up.clone();
            self.tasks.spawn_on(async move { give_up.run_until_cancelled(work).await.map(drop) }, &runtime);
        }
    }
}

/// A future that is not lost when dropped.
pub(crate) struct UninterruptedFuture<T: Send + 'static> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send>>>,
    orphans: Arc<OrphanedWork>,
}

impl<T: Send + 'static> UninterruptedFuture<T> {
    /// Work to be carried to its end.
    pub(crate) fn new(work: impl Future<Output = T> + Send + 'static, orphans: Arc<OrphanedWork>) -> Self {
        Self { work: Some(Box::pin(work)), orphans }
    }
}

impl<T: Send + 'static> Future for UninterruptedFuture<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        // Taken out while it is polled: work that panics must not be adopted.
        let Some(mut work) = self.work.take() else { return Poll::Pending };
        let outcome = work.as_mut().poll(cx);
        if outcome.is_pending() {
            self.work = Some(work);
        }
        outcome
    }
}

impl<T: Send + 'static> Drop for UninterruptedFuture<T> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.orphans.adopt(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn work_goes_on_after_its_handler_was_dropped() {
        let orphans = Arc::new(OrphanedWork::default());
        let (go, wait) = oneshot::channel::<()>();
        let (done, finished) = oneshot::channel::<()>();
        let mut carried = Box::pin(UninterruptedFuture::new(
            async move {
                let _ = wait.await;
                let _ = done.send(());
            },
            Arc::clone(&orphans),
        ));
        assert!(futures_util::poll!(&mut carried).is_pending());
        drop(carried);
        go.send(()).unwrap();
        finished.await.unwrap();
        orphans.wait().await;
    }

    #[tokio::test]
    async fn nothing_is_adopted_after_giving_up() {
        let orphans = Arc::new(OrphanedWork::default());
        let (kept, gone) = oneshot::channel::<()>();
        let carried = UninterruptedFuture::new(async move { drop(kept) }, Arc::clone(&orphans));
        orphans.give_up();
        drop(carried);
        assert!(gone.await.is_err());
        orphans.wait().await;
    }
}
