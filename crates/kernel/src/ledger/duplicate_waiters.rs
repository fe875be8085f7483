//! Where duplicates wait for the call that came first, in this process: a seat per call in flight, gone when it is settled.
//!
//! Bounded by the calls in flight. The lock is held for a look at a map and never across a wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use contract::ids::InvocationId;
use tokio::sync::watch;

type WaiterTable = HashMap<InvocationId, watch::Sender<()>>;

/// All seats.
#[derive(Debug, Clone, Default)]
pub(super) struct DuplicateWaiters {
    seats: Arc<Mutex<WaiterTable>>,
}

/// The seat of one call; dropping it wakes everybody on it.
#[derive(Debug)]
pub(super) struct WaiterSlot {
    invocation: InvocationId,
    seats: Arc<Mutex<WaiterTable>>,
}

impl DuplicateWaiters {
    /// For a call that has just taken its place in the ledger.
    pub(super) fn take_seat(&self, invocation: InvocationId) -> WaiterSlot {
        let mut seats = self.seats.lock_unpoisoned();
        seats.insert(invocation, watch::Sender::new(()));
        drop(seats);
        WaiterSlot { invocation, seats: Arc::clone(&self.seats) }
    }

    /// To wait for a call, if it runs in this process.
    pub(super) fn seat(&self, invocation: InvocationId) -> Option<watch::Receiver<()>> {
        let seats = self.seats.lock_unpoisoned();
        seats.get(&invocation).map(watch::Sender::subscribe)
    }
}

impl Drop for WaiterSlot {
    fn drop(&mut self) {
        self.seats.lock_unpoisoned().remove(&self.invocation);
    }
}
