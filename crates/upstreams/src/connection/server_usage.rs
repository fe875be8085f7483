//! What calls use of a server that is a program of ours: its processor time and its memory. (EXEC-017)
//!
//! The sandbox counts for the whole program; calls on it run side by side. It is read when a call begins and when one ends,
//! and what the processor did between two readings is shared equally by the calls that ran meanwhile. What it did while
//! nobody called is nobody's. The peak of memory is that of the whole program while the call ran, where the kernel lets a
//! peak count anew; elsewhere it is the peak since the program was started.
//!
//! Invariants
//! - UUSE-1: the shares of all calls together are never more than what the program used.
//! - UUSE-2: a call that goes away is not counted on: dropping its meter ends its share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ports::clock::Clock;
use tokio::sync::{mpsc, oneshot};

use super::within;

/// How long a reading may hold up an answer.
const READING_MAX: Duration = Duration::from_millis(500);

/// What one call used of its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ServerUsage {
    pub(crate) cpu: Duration,
    pub(crate) memory_peak_bytes: u64,
}

/// A moment at which the sandbox is to be read.
#[derive(Debug)]
pub(crate) struct UsageMoment {
    call: u64,
    what: Change,
}

#[derive(Debug)]
enum Change {
    Begins,
    Ends(Option<oneshot::Sender<ServerUsage>>),
}

/// The side of the calls.
#[derive(Debug)]
pub(crate) struct ServerMeter {
    next: AtomicU64,
    /// Without a bound of its own: each call has two moments in it, and calls on a server are bounded.
    moments: mpsc::UnboundedSender<UsageMoment>,
    clock: Arc<dyn Clock>,
}

/// One call that is counted.
#[derive(Debug)]
pub(crate) struct CallMeter {
    call: u64,
    moments: mpsc::UnboundedSender<UsageMoment>,
    clock: Arc<dyn Clock>,
}

impl ServerMeter {
    /// A meter, and what whoever can read the sandbox has to follow.
    pub(crate) fn new(clock: Arc<dyn Clock>) -> (Self, mpsc::UnboundedReceiver<UsageMoment>) {
        let (moments, followed) = mpsc::unbounded_channel();
        (Self { next: AtomicU64::new(0), moments, clock }, followed)
    }

    /// A call begins. Does not wait: what the sandbox has counted is read a moment later.
    pub(crate) fn begin(&self) -> Arc<CallMeter> {
        let call = self.next.fetch_add(1, Ordering::Relaxed);
        // Nobody reads it: the program is gone, and the call with it.
        let _ = self.moments.send(UsageMoment { call, what: Change::Begins });
        Arc::new(CallMeter { call, moments: self.moments.clone(), clock: Arc::clone(&self.clock) })
    }
}

impl CallMeter {
    /// What the call used, once. Nothing if the program is gone, or cannot be read in time: the answer of the call is worth
    /// more than its figures.
    pub(crate) async fn end(&self) -> ServerUsage {
        let (reply, read) = oneshot::channel();
        let _ = self.moments.send(UsageMoment { call: self.call, what: Change::Ends(Some(reply)) });
        within(&*self.clock, READING_MAX, read).await.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for CallMeter {
    fn drop(&mut self) {
        // UUSE-2. One that has ended is not known any more.
        let _ = self.moments.send(UsageMoment { call: self.call, what: Change::Ends(None) });
    }
}

/// The side of the sandbox: who runs, and what is whose.
#[derive(Debug, Default)]
pub(crate) struct UsageShares {
    counted: Duration,
    /// What one that had run since the start would have been given.
    given: Duration,
    running: HashMap<u64, Running>,
}

#[derive(Debug)]
struct Running {
    since: Duration,
    memory_peak_bytes: u64,
}

impl UsageShares {
    /// Is this worth a reading? A call that has ended goes away a second time.
    pub(crate) fn concerns(&self, moment: &UsageMoment) -> bool {
        matches!(moment.what, Change::Begins) || self.running.contains_key(&moment.call)
    }

    /// What the sandbox had counted at this moment.
    pub(crate) fn note(&mut self, moment: UsageMoment, cpu: Duration, memory_peak_bytes: u64) {
        let used = cpu.saturating_sub(self.counted);
        self.counted = self.counted.max(cpu);
        if let Ok(sharers @ 1..) = u32::try_from(self.running.len()) {
            // UUSE-1: what does not divide is given to nobody.
            self.given += used / sharers;
        }
        for running in self.running.values_mut() {
            running.memory_peak_bytes = running.memory_peak_bytes.max(memory_peak_bytes);
        }
        match moment.what {
            Change::Begins => {
                let running = Running { since: self.given, memory_peak_bytes: 0 };
                self.running.insert(moment.call, running);
            }
            Change::Ends(reply) => {
                let ended = self.running.remove(&moment.call);
                if let (Some(reply), Some(Running { since, memory_peak_bytes })) = (reply, ended) {
                    // Whoever has gone does not want to know.
                    let _ = reply.send(ServerUsage { cpu: self.given.saturating_sub(since), memory_peak_bytes });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use ports::clock::UnixMillis;

    use super::*;

    /// Nobody waits in vain here.
    #[derive(Debug)]
    struct StillClock;
    impl Clock for StillClock {
        fn now(&self) -> UnixMillis {
            UnixMillis(0)
        }
        fn monotonic(&self) -> Duration {
            Duration::ZERO
        }
        fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
            Box::pin(std::future::pending())
        }
    }

    const MEGABYTE: u64 = 1 << 20;

    fn begins(call: u64) -> UsageMoment {
        UsageMoment { call, what: Change::Begins }
    }

    fn ends(call: u64) -> (UsageMoment, oneshot::Receiver<ServerUsage>) {
        let (reply, read) = oneshot::channel();
        (UsageMoment { call, what: Change::Ends(Some(reply)) }, read)
    }

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn calls_share_what_was_used_while_they_ran_and_nothing_else() {
        let mut shares = UsageShares::default();
        shares.note(begins(1), ms(500), 90 * MEGABYTE);
        shares.note(begins(2), ms(600), 40 * MEGABYTE);
        let (end, mut first) = ends(1);
        shares.note(end, ms(700), 70 * MEGABYTE);
        let (end, mut second) = ends(2);
        shares.note(end, ms(730), 30 * MEGABYTE);
        let (first, second) = (first.try_recv().unwrap(), second.try_recv().unwrap());
        assert_eq!(first, ServerUsage { cpu: ms(150), memory_peak_bytes: 70 * MEGABYTE }, "100 alone, 100 for two");
        assert_eq!(second, ServerUsage { cpu: ms(80), memory_peak_bytes: 70 * MEGABYTE });
        // Nobody called meanwhile.
        shares.note(begins(3), ms(9_000), 20 * MEGABYTE);
        let (end, mut third) = ends(3);
        shares.note(end, ms(9_010), 25 * MEGABYTE);
        assert_eq!(third.try_recv().unwrap(), ServerUsage { cpu: ms(10), memory_peak_bytes: 25 * MEGABYTE });
    }

    #[tokio::test]
    async fn a_call_that_goes_away_has_no_share_any_more() {
        let (meter, mut moments) = ServerMeter::new(Arc::new(StillClock));
        let mut shares = UsageShares::default();
        let (gone, stays) = (meter.begin(), meter.begin());
        drop(gone);
        for cpu in [0, 0, 10] {
            shares.note(moments.try_recv().unwrap(), ms(cpu), 0);
        }
        let reading = async {
            let moment = moments.recv().await.unwrap();
            shares.note(moment, ms(30), 0);
        };
        let (used, ()) = tokio::join!(stays.end(), reading);
        assert_eq!(used.cpu, ms(25), "half of ten, and all of twenty");
        drop(moments);
        assert_eq!(stays.end().await, ServerUsage::default(), "nobody reads any more");
    }
}
