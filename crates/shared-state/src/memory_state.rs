//! The shared state of a single instance: maps behind locks, each map cut into shards so that calls of different services
//! do not wait for one another.
//!
//! Invariants
//! - MEM-1: no lock is held across an await; a step is over before anybody else can look.
//! - MEM-2: every map has a most. At the most, what is idle goes first; if nothing is, values make room by age and everything
//!   else refuses ([`SharedStateError::Full`]), because to forget a limit is to give it away.
//! - MEM-3: time does not jump: it is the wall clock of the start and the monotonic clock since.
//!
//! Not here: the rules of breakers and limits (`kernel::resilience`).

mod breakers;
mod limits;
mod shards;
mod values;

use std::sync::Arc;
use std::time::Duration;

use base::SaturatingFrom as _;
use ports::clock::{Clock, UnixMillis};
use ports::observer::{NoObserver, Observer};
use ports::shared_state::BreakerTransition;
use tokio::sync::broadcast;

use breakers::Kept;
use shards::Shards;
use values::{Counter, Value};

/// Breakers at most: as many as anybody has services.
const BREAKERS_MAX: usize = 16_384;
/// Limits that are not untouched at most.
const LIMITS_MAX: usize = 131_072;
/// Counters at most.
const COUNTERS_MAX: usize = 65_536;
/// Values at most, and what all of them may weigh.
const VALUES_MAX: usize = 16_384;
const VALUES_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Replicas at most.
const REPLICAS_MAX: usize = 1_024;
/// Transitions that may wait for a slow listener.
const TRANSITIONS_WAITING_MAX: usize = 256;

/// Breakers, limits, counters, values and presence within this process.
#[derive(Debug)]
pub struct MemoryState {
    time: SteadyTime,
    observer: Arc<dyn Observer>,
    breakers: Shards<ports::shared_state::BreakerKey, Kept>,
    transitions: broadcast::Sender<BreakerTransition>,
    /// When each limit that was taken from would be even again, in microseconds.
    limits: Shards<Box<str>, u64>,
    counters: Shards<Box<str>, Counter>,
    values: Shards<Box<str>, Value>,
    replicas: Shards<Box<str>, values::Announced>,
}

impl MemoryState {
    /// By this clock; watched by nobody.
    pub fn new(clock: Arc<dyn Clock>) -> Self {
        Self::observed(clock, Arc::new(NoObserver))
    }

    /// By this clock, and who hears what had to be forgotten.
    pub fn observed(clock: Arc<dyn Clock>, observer: Arc<dyn Observer>) -> Self {
        Self {
            time: SteadyTime::new(clock),
            observer,
            breakers: Shards::new(BREAKERS_MAX),
            transitions: broadcast::Sender::new(TRANSITIONS_WAITING_MAX),
            limits: Shards::new(LIMITS_MAX),
            counters: Shards::new(COUNTERS_MAX),
            values: Shards::new(VALUES_MAX),
            replicas: Shards::new(REPLICAS_MAX),
        }
    }
}

/// MEM-3.
#[derive(Debug)]
struct SteadyTime {
    clock: Arc<dyn Clock>,
    began_at: UnixMillis,
    began: Duration,
}

impl SteadyTime {
    fn new(clock: Arc<dyn Clock>) -> Self {
        let (began_at, began) = (clock.now(), clock.monotonic());
        Self { clock, began_at, began }
    }

    fn micros(&self) -> u64 {
        let passed = self.clock.monotonic().saturating_sub(self.began);
        let began = u64::saturating_from(self.began_at.0).saturating_mul(1000);
        began.saturating_add(u64::saturating_from(passed.as_micros()))
    }

    fn millis(&self) -> u64 {
        self.micros() / 1000
    }
}

/// A span in milliseconds, as instants count them.
fn millis(span: Duration) -> u64 {
    u64::saturating_from(span.as_millis())
}

/// Names are bounded before they are kept.
fn fits(key: &str) -> Result<(), ports::shared_state::SharedStateError> {
    use ports::shared_state::{KEY_BYTES_MAX, SharedStateError};
    if key.len() > KEY_BYTES_MAX { Err(SharedStateError::TooLarge) } else { Ok(()) }
}
