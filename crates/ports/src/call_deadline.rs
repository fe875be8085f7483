//! When a call is over, for whoever runs it: a moment that the tool moves by saying how far it is.
//!
//! A tool that reports progress is at work. Each report gives the call its time anew, up to the most that its manifest, its caller,
//! its token and the server allow; a tool that says nothing has its time once. (LIFE-024, LIFE-025)

use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::MutexExt as _;

use crate::clock::Clock;

/// The deadline of one call. Every moment is one of the monotonic clock.
#[derive(Debug)]
pub struct CallDeadline {
    clock: Arc<dyn Clock>,
    began: Duration,
    /// What each report of progress gives anew.
    again: Duration,
    /// It never comes later.
    latest: Duration,
    at: Mutex<Duration>,
}

impl CallDeadline {
    /// Of a call that begins now and has `usual`, and `most` as long as it reports progress.
    pub fn new(clock: Arc<dyn Clock>, usual: Duration, most: Duration) -> Self {
        let began = clock.monotonic();
        Self { began, again: usual, latest: began + most.max(usual), at: Mutex::new(began + usual), clock }
    }

    /// The tool says that it is at work.
    pub fn progressed(&self) {
        let later = (self.clock.monotonic() + self.again).min(self.latest);
        let mut at = self.at.lock_unpoisoned();
        *at = later.max(*at);
    }

    /// Time left, as it stands.
    pub fn left(&self) -> Duration {
        self.at().saturating_sub(self.clock.monotonic())
    }

    /// The time that the call has had, or will have had, as it stands.
    pub fn allowed(&self) -> Duration {
        self.at().saturating_sub(self.began)
    }

    /// Waits until no more than `notice` is left.
    pub async fn nears(&self, notice: Duration) {
        loop {
            let at = self.at();
            let left = at.saturating_sub(self.clock.monotonic()).saturating_sub(notice);
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left).await;
            // It was slept through to a moment that nobody has moved.
            if self.at() == at {
                return;
            }
        }
    }

    fn at(&self) -> Duration {
        *self.at.lock_unpoisoned()
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;

    use super::*;
    use crate::clock::UnixMillis;

    /// Time passes only where somebody sleeps.
    #[derive(Debug, Default)]
    struct Sleeping(Arc<Mutex<Duration>>);
    impl Clock for Sleeping {
        fn now(&self) -> UnixMillis {
            UnixMillis(0)
        }
        fn monotonic(&self) -> Duration {
            *self.0.lock().unwrap()
        }
        fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
            let now = Arc::clone(&self.0);
            Box::pin(async move { *now.lock().unwrap() += span })
        }
    }

    #[tokio::test]
    async fn each_report_gives_the_time_anew_up_to_the_most() {
        let seconds = Duration::from_secs;
        let clock: Arc<dyn Clock> = Arc::new(Sleeping::default());
        let deadline = CallDeadline::new(Arc::clone(&clock), seconds(10), seconds(25));
        clock.sleep(seconds(8)).await;
        deadline.progressed();
        assert_eq!((deadline.left(), deadline.allowed()), (seconds(10), seconds(18)));
        deadline.nears(seconds(3)).await;
        assert_eq!(clock.monotonic(), seconds(15), "with notice");
        clock.sleep(seconds(2)).await;
        deadline.progressed();
        assert_eq!((deadline.left(), deadline.allowed()), (seconds(8), seconds(25)), "and not beyond the most");
        deadline.nears(Duration::ZERO).await;
        deadline.progressed();
        assert_eq!((clock.monotonic(), deadline.left()), (seconds(25), Duration::ZERO));
        let short = CallDeadline::new(clock, seconds(10), seconds(1));
        assert_eq!(short.left(), seconds(10), "the most is never less than the time itself");
    }
}
