//! When a call is over, for whoever runs it: a moment that the tool moves by saying how far it is.
//!
//! A tool that reports progress is at work. Each report gives the call its time anew, up to the most that its manifest, its caller,
//! its token and the server allow; a tool that says nothing has its time once. (LIFE-024, LIFE-025)

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::clock::Clock;

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
        let mut at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
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
            let left = self.left().saturating_sub(notice);
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left).await;
        }
    }

    fn at(&self) -> Duration {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
