//! The bandwidth of a call: one account for all its connections and both directions. (EXEC-006)
//!
//! The account is a moment: until when what went through has been paid for at the given rate. Who wants to move bytes
//! waits until that moment is at most [`BURST`] ahead, moves at most [`Throttle::chunk`] bytes and pays for them. So
//! an idle call saves nothing up, the excess at any time is one burst and one chunk for each thread, and the long run
//! is exact. Paying afterwards rather than reserving before means that a connection that waits for the other side
//! holds no share of the others.

use std::num::NonZeroU64;
use std::sync::Mutex;
use std::time::Duration;

use base::{MutexExt as _, SaturatingFrom as _};
use tokio::time::Instant;

/// How far ahead of the rate a call may be.
pub(super) const BURST: Duration = Duration::from_millis(100);

/// At most as much is moved at once, however high the rate.
const CHUNK_BYTES_MAX: u64 = 64 << 10;

/// Chunks in one second, so that slow connections flow instead of jerking.
const CHUNKS_PER_SECOND: u64 = 20;

#[derive(Debug)]
pub(super) struct Throttle {
    bytes_per_second: NonZeroU64,
    paid_until: Mutex<Instant>,
}

impl Throttle {
    pub(super) fn new(bytes_per_second: NonZeroU64) -> Self {
        Self { bytes_per_second, paid_until: Mutex::new(Instant::now()) }
    }

    /// From when on bytes may move again; `None` if they may now.
    pub(super) fn blocked_until(&self) -> Option<Instant> {
        let paid_until = *self.paid_until.lock_unpoisoned();
        // Compared as a sum, since a moment before the start of the clock cannot be written.
        (paid_until > Instant::now() + BURST).then(|| paid_until.checked_sub(BURST).unwrap_or(paid_until))
    }

    /// Pays for bytes that have moved.
    pub(super) fn pay(&self, bytes: usize) {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second.get());
        let time = Duration::from_nanos(u64::saturating_from(nanos));
        let mut paid_until = self.paid_until.lock_unpoisoned();
        let from = (*paid_until).max(Instant::now());
        *paid_until = from.checked_add(time).unwrap_or(from);
    }

    /// At most as many bytes are moved before paying.
    pub(super) fn chunk(&self) -> usize {
        let bytes = (self.bytes_per_second.get() / CHUNKS_PER_SECOND).clamp(1, CHUNK_BYTES_MAX);
        usize::try_from(bytes).unwrap_or(1)
    }
}
