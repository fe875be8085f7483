//! What one call sends to a server and hears from it, in bytes of messages. (EXEC-017)
//!
//! Bodies are counted, not what the transport adds (headers of HTTP, TLS). A message that belongs to no call in particular,
//! such as a line of the server's log on a shared stream, is charged to nobody.

use std::sync::atomic::{AtomicU64, Ordering};

use base::SaturatingFrom as _;

/// Counts for one call, however many requests it takes.
#[derive(Debug, Default)]
pub(crate) struct CallTraffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl CallTraffic {
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(u64::saturating_from(bytes), Ordering::Relaxed);
    }

    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(u64::saturating_from(bytes), Ordering::Relaxed);
    }

    /// Sent and received so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.sent.load(Ordering::Relaxed), self.received.load(Ordering::Relaxed))
    }
}
