//! The CPU a guest uses, counted and rationed.
//!
//! A future is polled on one thread at a time, so the thread's CPU clock before and after each poll tells exactly what
//! the guest, and the host functions that run inside it, have used; how often it changes threads does not matter. Every
//! tick ends a poll, which is when a guest that has had more than its share is put to sleep for a while.
//!
//! Not counted: work that WASI does on other threads for the guest (reading files, TLS), which is small beside it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use base::SaturatingFrom as _;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, Sleep};

/// CPU a guest may use ahead of its share, so that short calls are not slowed down.
const BURST: Duration = Duration::from_millis(20);

/// CPU time used so far. Clones count together.
#[derive(Debug, Clone, Default)]
pub(super) struct CpuTime {
    nanos: Arc<AtomicU64>,
}

impl CpuTime {
    pub(super) fn used(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Acquire))
    }

    fn add(&self, span: Duration) {
        self.nanos.fetch_add(u64::saturating_from(span.as_nanos()), Ordering::AcqRel);
    }
}

/// A future whose CPU is counted and kept within a share of one core.
pub(super) struct Metered<F> {
    inner: Pin<Box<F>>,
    cpu: CpuTime,
    /// Thousandths of a core; a guest has one thread, so a thousand is no ration at all.
    millicores: u32,
    started: Instant,
    /// There while the guest has to wait for its share to grow.
    waiting: Option<Pin<Box<Sleep>>>,
}

impl<F: Future> Metered<F> {
    pub(super) fn new(inner: F, cpu: CpuTime, millicores: u64) -> Self {
        let millicores = u32::saturating_from(millicores).max(1);
        Self { inner: Box::pin(inner), cpu, millicores, started: Instant::now(), waiting: None }
    }

    /// How long the guest must wait until what it has used is its share again.
    fn overdraft(&self) -> Option<Duration> {
        if self.millicores >= 1000 {
            return None;
        }
        let earned_at = self.cpu.used().saturating_sub(BURST).saturating_mul(1000) / self.millicores;
        earned_at.checked_sub(self.started.elapsed()).filter(|wait| !wait.is_zero())
    }
}

impl<F: Future> Future for Metered<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        if let Some(waiting) = &mut this.waiting {
            if waiting.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            this.waiting = None;
        }
        let before = thread_cpu();
        let polled = this.inner.as_mut().poll(context);
        this.cpu.add(thread_cpu().saturating_sub(before));
        if polled.is_pending()
            && let Some(wait) = this.overdraft()
        {
            let mut sleep = Box::pin(tokio::time::sleep(wait));
            if sleep.as_mut().poll(context).is_pending() {
                this.waiting = Some(sleep);
            }
        }
        polled
    }
}

fn thread_cpu() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(u64::saturating_from(now.tv_sec), u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Uses about the given CPU and then yields, as a guest does every tick.
    async fn burn(slices: u32, slice: Duration) {
        for _ in 0..slices {
            let start = thread_cpu();
            while thread_cpu() - start < slice {
                std::hint::spin_loop();
            }
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_used_while_polled_is_counted_and_waiting_is_not() {
        let cpu = CpuTime::default();
        let work = async {
            burn(4, Duration::from_millis(5)).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        Metered::new(work, cpu.clone(), 1000).await;
        let used = cpu.used();
        assert!(used >= Duration::from_millis(20) && used < Duration::from_millis(60), "{used:?}");
    }

    #[tokio::test]
    async fn a_share_of_a_core_stretches_the_work() {
        let cpu = CpuTime::default();
        let start = Instant::now();
        Metered::new(burn(16, Duration::from_millis(5)), cpu.clone(), 250).await;
        // 80 ms of work, 20 of them at once, the rest at a quarter of a core; the last slice is not waited for.
        assert!(start.elapsed() >= Duration::from_millis(200), "{:?} for {:?}", start.elapsed(), cpu.used());
    }
}
