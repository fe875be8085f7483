//! A clock that stands still until a test moves it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::Duration;

use base::MutexExt as _;
use ports::clock::{Clock, UnixMillis};
use tokio::sync::watch;

/// Stands still until it is moved; sleepers wake when their time has come.
#[derive(Debug)]
pub struct SteppedClock {
    passed: watch::Sender<Duration>,
    wall: Mutex<UnixMillis>,
}

impl Default for SteppedClock {
    fn default() -> Self {
        Self { passed: watch::Sender::new(Duration::ZERO), wall: Mutex::new(UnixMillis(1_790_000_000_000)) }
    }
}

impl SteppedClock {
    /// Lets time pass.
    pub fn step(&self, span: Duration) {
        let mut wall = self.wall.lock_unpoisoned();
        *wall = wall.plus(span);
        drop(wall);
        self.passed.send_modify(|passed| *passed += span);
    }

    /// Sets the wall clock without any time passing, as a wrong correction does.
    pub fn jump(&self, to: UnixMillis) {
        *self.wall.lock_unpoisoned() = to;
    }
}

impl Clock for SteppedClock {
    fn now(&self) -> UnixMillis {
        *self.wall.lock_unpoisoned()
    }

    fn monotonic(&self) -> Duration {
        *self.passed.borrow()
    }

    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        let mut passed = self.passed.subscribe();
        let until = self.monotonic() + span;
        Box::pin(async move {
            if passed.wait_for(|now| *now >= until).await.is_err() {
                // The clock is gone, and with it whatever would end the wait.
                std::future::pending::<()>().await;
            }
        })
    }
}
