//! Randomness. Invocation ids, trace ids and token ids are made from it, so tests can fix them.

use std::fmt;

use base::SaturatingFrom as _;
use contract::ids::{InvocationId, TraceId};
use uuid::Uuid;

use crate::clock::UnixMillis;

/// A source of unpredictable bytes.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Fills `bytes` with unpredictable data. Must not fail: an implementation whose source fails stops the process
    /// at start-up rather than handing out guessable ids.
    fn fill(&self, bytes: &mut [u8]);
}

/// A new invocation id: UUIDv7, so that ids sort by time.
pub fn new_invocation_id(entropy: &dyn Entropy, now: UnixMillis) -> InvocationId {
    let mut random = [0u8; 10];
    entropy.fill(&mut random);
    let millis = u64::saturating_from(now.0);
    InvocationId(uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
}

/// A new trace id.
pub fn new_trace_id(entropy: &dyn Entropy) -> TraceId {
    let mut random = [0u8; 16];
    entropy.fill(&mut random);
    TraceId::from_bytes(random)
}

/// A new token id.
pub fn new_token_id(entropy: &dyn Entropy) -> Uuid {
    let mut random = [0u8; 16];
    entropy.fill(&mut random);
    uuid::Builder::from_random_bytes(random).into_uuid()
}

/// A number from 0 to 1, for waits that are spread (`base::backoff`).
pub fn chance(entropy: &dyn Entropy) -> f64 {
    let mut random = [0_u8; 4];
    entropy.fill(&mut random);
    f64::from(u32::from_be_bytes(random)) / f64::from(u32::MAX)
}
