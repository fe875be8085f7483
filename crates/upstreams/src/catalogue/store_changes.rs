//! Keeping the catalogue what other instances have made of it: servers, pins, what was accepted and what was refused.
//!
//! Each instance keeps processes of its own, so whether a server answers is of the moment and of the instance. Everything
//! else is in the store: whoever changes it tells the others over the change bus, and whoever hears of it reads all of it
//! again. A word can be lost, so it is also read now and then without one.
//!
//! Invariants
//! - FOL-1: a change of this instance and a reading of everything never cross: what was read is not older than what is known.
//! - FOL-3: what was read says nothing about tools whose pins are as they were: one of them may be being taken away here.
//! - FOL-2: what is gone, or not accepted any more, is taken away before anything else is done with what was read.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use contract::error::Refusal;
use kernel::{ToolKey, WhyUnavailable};
use ports::change_bus::BusChange;
use ports::upstream_store::{PinRecord, UpstreamState};
use tokio::sync::broadcast::error::RecvError;

use super::{KnownServer, ServerCatalogue, ServerKey, key_of, stored};
use crate::pins;

/// The shortest time from one reading to the next: of a hundred changes in a row, a few are read.
const PAUSE: Duration = Duration::from_millis(200);

impl ServerCatalogue {
    /// Reads everything again whenever another instance has changed it, and now and then without being told. Never ends;
    /// does nothing where there can be no others.
    pub async fn follow(&self) {
        let Some(bus) = &self.parts.bus else { return std::future::pending().await };
        let mut changes = bus.subscribe();
        loop {
            // The first time, too: something may have changed since it was opened.
            if let Err(refusal) = self.catch_up().await {
                tracing::error!(
                    message = refusal.message,
                    "servers could not be read anew; what was known stays in force"
                );
            }
            self.parts.kernel.clock().sleep(PAUSE).await;
            loop {
                let told = tokio::select! {
                    told = changes.recv() => told,
                    () = self.parts.kernel.clock().sleep(self.parts.reread) => Err(RecvError::Lagged(0)),
                };
                match told {
                    Ok(BusChange::Access { .. } | BusChange::Decisions | BusChange::DecisionsOf { .. }) => {}
                    // CAT-4: a tool of a server that another instance has published may not have its pin yet.
                    Ok(BusChange::Registry { .. }) => {
                        self.parts.kernel.clock().sleep(PAUSE).await;
                        break;
                    }
                    Ok(BusChange::Servers | BusChange::Lost) | Err(RecvError::Lagged(_)) => break,
                    Err(RecvError::Closed) => return std::future::pending().await,
                }
            }
        }
    }

    /// Tells the other instances that something has changed.
    pub(super) async fn tell_others(&self) {
        if let Some(bus) = &self.parts.bus {
            bus.publish(BusChange::Servers).await;
        }
    }

    /// Reads everything again, where others may have changed it. For whoever is about to decide something, too.
    pub(super) async fn catch_up(&self) -> Result<(), Refusal> {
        if self.parts.bus.is_none() { Ok(()) } else { self.read_anew().await }
    }

    /// Reads everything again, whoever may have changed it.
    pub(super) async fn read_anew(&self) -> Result<(), Refusal> {
        // FOL-1.
        let turn = self.storing.write().await;
        let state = self.parts.store.load().await.map_err(|error| error.refusal())?;
        let changed = self.take_over(state);
        drop(turn);
        self.close_orphans();
        if changed {
            // What is new is started when it is wanted, and what has changed or is gone goes on by itself.
            drop(self.supervise());
        }
        Ok(())
    }

    /// Puts what was read in the place of what is known. Answers whether there are other servers now.
    fn take_over(&self, state: UpstreamState) -> bool {
        let mut servers = self.table();
        let before = std::mem::take(&mut *servers);
        let after = read(state, &before);
        // FOL-2.
        let pinned: HashSet<ToolKey> = after.values().flat_map(|kept| kept.pins.values().map(key_of)).collect();
        let why = |server| {
            if after.contains_key(server) { WhyUnavailable::Withdrawn } else { WhyUnavailable::ServerRemoved }
        };
        let known = before.iter().flat_map(|(server, kept)| kept.pins.values().map(move |pin| (key_of(pin), server)));
        let gone = known.filter(|(key, _)| !pinned.contains(key)).map(|(key, server)| (key, Some(why(server))));
        // FOL-3.
        let others = after.iter().flat_map(|(key, kept)| kept.differing_from(before.get(key)));
        self.parts.kernel.availability().set(gone.chain(others));
        let changed = before.len() != after.len()
            || after.iter().any(|(key, kept)| before.get(key).is_none_or(|known| known.spec != kept.spec));
        *servers = after;
        changed
    }
}

impl KnownServer {
    /// The availability of tools whose pins, or whose server, are not as they were.
    fn differing_from(&self, before: Option<&Self>) -> impl Iterator<Item = (ToolKey, Option<WhyUnavailable>)> {
        let before = before.filter(|before| before.answers == self.answers);
        let differs = move |pin: &&PinRecord| before.and_then(|known| known.pins.get(&pin.upstream_tool)) != Some(*pin);
        self.pins.values().filter(differs).map(|pin| (key_of(pin), pins::why_unavailable(pin, self.answers)))
    }
}

/// What is stored, with what this instance knows of the moment.
pub(super) fn read(
    state: UpstreamState,
    before: &BTreeMap<ServerKey, KnownServer>,
) -> BTreeMap<ServerKey, KnownServer> {
    let mut servers = BTreeMap::new();
    for record in state.servers {
        let (record, spec) = stored::read(record);
        let key = (record.tenant.clone(), record.name.clone());
        let kept = match before.get(&key).filter(|known| known.record == record && known.spec == spec) {
            Some(known) => KnownServer { pins: BTreeMap::new(), ..known.clone() },
            None => {
                let answers = spec.as_ref().is_some_and(|spec| !spec.disabled);
                KnownServer { record, spec, answers, pins: BTreeMap::new(), problems: Vec::new() }
            }
        };
        servers.insert(key, kept);
    }
    for pin in state.pins {
        if let Some(kept) = servers.get_mut(&(pin.tenant.clone(), pin.server.clone())) {
            kept.pins.insert(pin.upstream_tool.clone(), pin);
        }
    }
    servers
}
