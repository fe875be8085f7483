//! The machine behind the kernel's ports: its clock and its randomness.
//!
//! The only file of the product that asks the operating system for either, so that everything else can be stepped in
//! tests.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kernel::ports::clock::{Clock, UnixMillis};
use kernel::ports::entropy::Entropy;

use crate::failure::Failure;

/// The machine's clocks.
#[derive(Debug)]
pub(crate) struct SystemClock {
    started: Instant,
}

impl SystemClock {
    /// The monotonic clock starts here.
    #[expect(clippy::disallowed_methods, reason = "this is the Clock port's adapter")]
    pub(crate) fn start() -> Self {
        Self { started: Instant::now() }
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock port's adapter")]
    fn now(&self) -> UnixMillis {
        // Before 1970 or after the year 292 million the machine's clock is wrong; saturate rather than fail.
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => UnixMillis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX)),
            Err(before) => UnixMillis(i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms)),
        }
    }

    fn monotonic(&self) -> Duration {
        self.started.elapsed()
    }

    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// The operating system's randomness.
#[derive(Debug)]
pub(crate) struct OsEntropy(());

impl OsEntropy {
    /// Tries the source once: a machine without randomness must not start.
    pub(crate) fn open() -> Result<Self, Failure> {
        let mut probe = [0u8; 16];
        getrandom::fill(&mut probe).map_err(|_| {
            Failure::new("the operating system has no source of randomness").hint(
                "keys and ids would be guessable, so Gantry does not start; check /dev/urandom and the seccomp profile",
            )
        })?;
        Ok(Self(()))
    }
}

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        if getrandom::fill(bytes).is_err() {
            // The port allows no failure, and guessable ids would be worse than none. On Linux this cannot happen after
            // the probe at start-up.
            tracing::error!("the operating system's randomness has failed; stopping at once");
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wall_clock_is_in_this_century_and_the_monotonic_one_never_goes_back() {
        let clock = SystemClock::start();
        assert!(clock.now().0 > 1_700_000_000_000);
        let earlier = clock.monotonic();
        assert!(clock.monotonic() >= earlier);
    }

    #[test]
    fn two_draws_of_randomness_differ() {
        let entropy = OsEntropy::open().unwrap();
        let (mut a, mut b) = ([0u8; 32], [0u8; 32]);
        entropy.fill(&mut a);
        entropy.fill(&mut b);
        assert_ne!(a, b);
    }
}
