//! The machine behind the kernel's ports: its clock and its randomness.
//!
//! The only file of the product that asks the operating system for either, so that everything else can be stepped in
//! tests.

use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base::{MutexExt as _, SaturatingFrom as _};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;

use crate::failure::CommandFailure;

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
            Ok(since) => UnixMillis(i64::saturating_from(since.as_millis())),
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

/// Bytes drawn from the operating system at once: a system call per id would cost more than the rest of the id.
const POOL_BYTES: usize = 1024;

/// The operating system's randomness.
#[derive(Debug)]
pub(crate) struct OsEntropy {
    pool: Mutex<Pool>,
}

/// Bytes drawn ahead. What has been handed out is wiped, so that no two callers ever see the same.
struct Pool {
    bytes: [u8; POOL_BYTES],
    used: usize,
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").field("used", &self.used).finish_non_exhaustive()
    }
}

impl OsEntropy {
    /// Tries the source once: a machine without randomness must not start.
    pub(crate) fn open() -> Result<Self, CommandFailure> {
        let mut bytes = [0u8; POOL_BYTES];
        getrandom::fill(&mut bytes).map_err(|_| {
            CommandFailure::new("the operating system has no source of randomness").hint(
                "keys and ids would be guessable, so Gantry does not start; check /dev/urandom and the seccomp profile",
            )
        })?;
        Ok(Self { pool: Mutex::new(Pool { bytes, used: 0 }) })
    }
}

impl Entropy for OsEntropy {
    fn fill(&self, bytes: &mut [u8]) {
        let mut pool = self.pool.lock_unpoisoned();
        if !pool.give(bytes) {
            draw(&mut pool.bytes);
            pool.used = 0;
            if !pool.give(bytes) {
                // More than the pool holds.
                draw(bytes);
            }
        }
    }
}

impl Pool {
    /// Moves unused bytes out, if there are enough.
    fn give(&mut self, bytes: &mut [u8]) -> bool {
        let end = self.used.saturating_add(bytes.len());
        let Some(unused) = self.bytes.get_mut(self.used..end) else { return false };
        bytes.copy_from_slice(unused);
        unused.fill(0);
        self.used = end;
        true
    }
}

fn draw(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        // The port allows no failure, and guessable ids would be worse than none. On Linux this cannot happen after
        // the probe at start-up.
        tracing::error!("the operating system's randomness has failed; stopping at once");
        std::process::abort();
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
    fn no_two_draws_of_randomness_are_alike_across_many_pools() {
        let entropy = OsEntropy::open().unwrap();
        let mut seen = std::collections::HashSet::new();
        for _ in 0..10 * POOL_BYTES / 16 {
            let mut id = [0u8; 16];
            entropy.fill(&mut id);
            assert!(seen.insert(id));
        }
        let mut large = [0u8; 2 * POOL_BYTES];
        entropy.fill(&mut large);
        assert!(large.iter().any(|byte| *byte != 0));
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
