//! Ends of calls that are known and could not be written yet: they are kept here and tried again until the store takes them.
//!
//! Two ways lead here. An end that the store did not take, and the end of a call that was dropped (a shutdown that does not
//! wait any longer, a panic) before anything of it was sent: dropping cannot wait for a store, and the call has not happened.
//! What is left when the process ends in order is written before its lease is given back.
//!
//! A store that fails over is away for longer than a caller is kept waiting. The caller is told that its end could not be
//! written (E3413); the end itself is not thrown away with that. Once it is written, whoever asks with the same key is
//! answered with it. Until then the call stays in flight, and duplicates in this process wait on its seat.
//!
//! Invariants
//! - UNWRITTEN-1: at most [`UNWRITTEN_MAX`] ends and [`UNWRITTEN_BYTES_MAX`] bytes of them are kept. What does not fit is left in flight, as
//!   it is when the process ends: recovery decides.
//! - UNWRITTEN-2: an end that somebody else has settled meanwhile is dropped; what the ledger says stands.
//!
//! Not here: how often it is tried before the caller hears of it (`LedgerService::settle`).

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use base::MutexExt as _;
use base::backoff::GrowingPause;
use contract::ids::InvocationId;
use ports::ledger::{FencingToken, SettleOutcome, Settlement};
use ports::observer::{LedgerEvent, Observer};
use ports::registry_store::StoreError;
use tokio::sync::Notify;

use super::LedgerService;
use super::duplicate_waiters::WaiterSlot;

/// Most ends that are kept, and the most room they take. No call with effects begins while the store is away, so there are
/// never more than ran when it went.
const UNWRITTEN_MAX: usize = 1_000;
const UNWRITTEN_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Pauses between two tries.
const PAUSE: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(5));
/// Tries for an end that the store answers with a failure which is not its being away: one such must not stay for ever.
const TRIES_MAX: u32 = 20;

/// All of them.
#[derive(Debug)]
pub(super) struct UnwrittenEnds {
    ends: Mutex<Ends>,
    more: Notify,
    observer: Arc<dyn Observer>,
}

#[derive(Debug, Default)]
struct Ends {
    waiting: Vec<End>,
    bytes: usize,
}

/// How one call ended, and its place in the ledger.
#[derive(Debug)]
struct End {
    invocation: InvocationId,
    fence: FencingToken,
    /// Duplicates wait on it.
    _seat: WaiterSlot,
    settlement: Settlement,
    bytes: usize,
    tries: u32,
}

impl UnwrittenEnds {
    pub(super) fn new(observer: Arc<dyn Observer>) -> Self {
        Self { ends: Mutex::default(), more: Notify::new(), observer }
    }

    /// Keeps an end that could not be written. False if there is no room.
    pub(super) fn keep(
        &self,
        invocation: InvocationId,
        fence: FencingToken,
        seat: WaiterSlot,
        settlement: Settlement,
    ) -> bool {
        let bytes = settlement.outcome.to_string().len();
        let mut ends = self.ends();
        if ends.waiting.len() >= UNWRITTEN_MAX || ends.bytes.saturating_add(bytes) > UNWRITTEN_BYTES_MAX {
            drop(ends);
            self.observer.ledger(LedgerEvent::GivenUp);
            return false;
        }
        ends.bytes += bytes;
        ends.waiting.push(End { invocation, fence, _seat: seat, settlement, bytes, tries: 0 });
        let number = ends.waiting.len();
        drop(ends);
        self.observer.ledger_unwritten(number);
        self.more.notify_one();
        true
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock_unpoisoned()
    }

    fn take(&self) -> Vec<End> {
        let mut ends = self.ends();
        ends.bytes = 0;
        std::mem::take(&mut ends.waiting)
    }

    /// Beside those that came meanwhile.
    fn put_back(&self, mut left: Vec<End>) {
        let mut ends = self.ends();
        ends.bytes += left.iter().map(|end| end.bytes).sum::<usize>();
        left.append(&mut ends.waiting);
        ends.waiting = left;
    }
}

impl LedgerService {
    /// Writes what is unwritten, again and again. Never ends by itself.
    pub(super) async fn pay(&self) {
        let mut pause = GrowingPause::doubling(PAUSE.0, PAUSE.1);
        loop {
            if self.unwritten.ends().waiting.is_empty() {
                self.unwritten.more.notified().await;
                pause.reset();
            }
            self.clock.sleep(pause.next_pause()).await;
            if self.pay_once().await {
                pause.reset();
            }
        }
    }

    /// Tries each end once, until the store turns out to be away. True if something was written.
    pub(super) async fn pay_once(&self) -> bool {
        let mut waiting = TakenEnds { unwritten: &self.unwritten, left: self.unwritten.take(), kept: Vec::new() };
        let mut wrote = false;
        while let Some(end) = waiting.left.pop() {
            let (invocation, fence) = (end.invocation, end.fence);
            let settled = self.ledger.settle(invocation, fence, end.settlement.clone()).await;
            wrote |= settled.is_ok();
            match settled {
                Ok(SettleOutcome::Kept) => {
                    self.observer.ledger(LedgerEvent::SettledLate);
                    tracing::info!(%invocation, "the end of a call was written after all");
                }
                Ok(SettleOutcome::Fenced) => {
                    self.observer.ledger(LedgerEvent::Fenced);
                    tracing::warn!(%invocation, "a call was given up before its end could be written; its result is discarded");
                }
                Err(StoreError::Unavailable(_)) => {
                    waiting.kept.push(end);
                    break;
                }
                Err(error) if end.tries >= TRIES_MAX => {
                    self.observer.ledger(LedgerEvent::GivenUp);
                    tracing::error!(error = &error as &dyn std::error::Error, %invocation, "the end of a call is not tried to be written any more");
                }
                Err(_) => waiting.kept.push(End { tries: end.tries + 1, ..end }),
            }
        }
        drop(waiting);
        let number = self.unwritten.ends().waiting.len();
        self.observer.ledger_unwritten(number);
        wrote
    }
}

/// What a round has in hand. Put back when the round ends, also if whoever made it stops half way.
struct TakenEnds<'a> {
    unwritten: &'a UnwrittenEnds,
    left: Vec<End>,
    kept: Vec<End>,
}

impl Drop for TakenEnds<'_> {
    fn drop(&mut self) {
        // What was tried goes behind what was not, so that one the store never takes holds up no other.
        let mut all = std::mem::take(&mut self.kept);
        all.append(&mut self.left);
        self.unwritten.put_back(all);
    }
}
