//! `UpstreamStore` without durability: servers and pins in maps, under one lock. Passes the same suite as the real ones.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use async_trait::async_trait;
use base::MutexExt as _;
use contract::ids::TenantId;
use ports::registry_store::StoreError;
use ports::upstream_store::{
    PinChange, PinRecord, PinsPut, ServerPut, ServerRead, ServerRecord, UpstreamState, UpstreamStore,
};

use super::MemoryStore;

/// All of it, by what names each record.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    servers: BTreeMap<(TenantId, String), ServerRecord>,
    pins: BTreeMap<(TenantId, String, String), PinRecord>,
}

impl MemoryStore {
    fn upstreams(&self) -> MutexGuard<'_, Upstreams> {
        let lock: &Mutex<Upstreams> = &self.upstreams;
        lock.lock_unpoisoned()
    }
}

#[async_trait]
impl UpstreamStore for MemoryStore {
    async fn load(&self) -> Result<UpstreamState, StoreError> {
        let kept = self.upstreams();
        Ok(UpstreamState {
            servers: kept.servers.values().cloned().collect(),
            pins: kept.pins.values().cloned().collect(),
        })
    }

    async fn put_server(&self, server: &ServerRecord, others: &[ServerRead]) -> Result<ServerPut, StoreError> {
        let mut kept = self.upstreams();
        let is_other = |(tenant, name): &(TenantId, String)| *tenant == server.tenant && *name != server.name;
        let there = kept.servers.iter().filter(|(key, _)| is_other(key));
        let there: Vec<ServerRead> =
            there.map(|(_, it)| ServerRead { name: it.name.clone(), added_at: it.added_at }).collect();
        if !ServerRead::are_all_of(others, &there) {
            return Ok(ServerPut::Outdated);
        }
        kept.servers.insert((server.tenant.clone(), server.name.clone()), server.clone());
        Ok(ServerPut::Kept)
    }

    async fn remove_server(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        let mut kept = self.upstreams();
        kept.pins.retain(|(of, server, _), _| of != tenant || server != name);
        Ok(kept.servers.remove(&(tenant.clone(), name.to_owned())).is_some())
    }

    async fn put_pins(&self, tenant: &TenantId, server: &str, changes: &[PinChange]) -> Result<PinsPut, StoreError> {
        let mut kept = self.upstreams();
        if !kept.servers.contains_key(&(tenant.clone(), server.to_owned())) {
            return Ok(PinsPut::ServerGone);
        }
        let key = |pin: &PinRecord| (tenant.clone(), server.to_owned(), pin.upstream_tool.clone());
        if !changes.iter().all(|change| change.holds_for(kept.pins.get(&key(&change.pin)))) {
            return Ok(PinsPut::Outdated);
        }
        let pins = || changes.iter().map(|change| &change.pin);
        // Two tools of a tenant never share a name, whichever servers they are of.
        let mut after: BTreeMap<_, &PinRecord> =
            kept.pins.iter().filter(|((of, ..), _)| of == tenant).map(|(key, pin)| (key.clone(), pin)).collect();
        after.extend(pins().map(|pin| (key(pin), pin)));
        let mut names: Vec<_> = after.values().map(|pin| &pin.tool).collect();
        names.sort_unstable();
        if names.array_windows().any(|[left, right]| left == right) {
            return Err(StoreError::Unavailable("two tools would share a name".into()));
        }
        kept.pins.extend(pins().map(|pin| (key(pin), pin.clone())));
        Ok(PinsPut::Kept)
    }
}
