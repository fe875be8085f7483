//! MCP servers with seals on how they are reached: arguments, variables, headers and addresses, in which somebody may have
//! written a secret that nothing recognises as one.
//!
//! Invariants
//! - SEALSRV-1: with a seal, no description is written but sealed, bound to its server. What is there in clear, from before, is
//!   read, and sealed by `former_texts`.
//! - SEALSRV-2: a description that cannot be opened is handed on as it is. Nobody can read it: its server is there, does not run,
//!   and can be described again.
//!
//! Not here: where the keys come from (`store_keys`); pins, which hold what servers say and are as they were.

use std::sync::Arc;

use async_trait::async_trait;
use contract::ids::TenantId;
use ports::registry_store::StoreError;
use ports::upstream_store::{PinChange, PinsPut, ServerPut, ServerRead, ServerRecord, UpstreamState, UpstreamStore};
use serde_json::{Value, json};

use crate::store_seal::StoreSeals;

/// The member of a sealed description; the store wants an object.
const MEMBER: &str = "sealed";

/// A store of servers whose descriptions are sealed.
#[derive(Debug)]
pub(crate) struct SealedServers {
    inner: Arc<dyn UpstreamStore>,
    seals: StoreSeals,
}

impl SealedServers {
    pub(crate) fn new(inner: Arc<dyn UpstreamStore>, seals: StoreSeals) -> Self {
        Self { inner, seals }
    }

    fn opened(&self, server: ServerRecord) -> ServerRecord {
        let Some(text) = server.spec.get(MEMBER).and_then(Value::as_str) else { return server };
        let opened = self.seals.opened(&what(&server.tenant, &server.name), text);
        match opened.and_then(|text| serde_json::from_str(&text).ok()) {
            Some(spec) => ServerRecord { spec, ..server },
            None => {
                tracing::error!(
                    server = server.name,
                    tenant = %server.tenant,
                    "how this server is reached is sealed with another key, or was changed: bring back `keys/store.key` of \
                     the data directory, give the key with `[store] seal_key_file`, or describe the server again"
                );
                server
            }
        }
    }
}

/// What belongs to one server is no other's.
pub(crate) fn what(tenant: &TenantId, name: &str) -> String {
    format!("gantry server {tenant} {name}")
}

/// A sealed description as the store keeps it.
pub(crate) fn kept(sealed: &str) -> Value {
    json!({ MEMBER: sealed })
}

#[async_trait]
impl UpstreamStore for SealedServers {
    async fn load(&self) -> Result<UpstreamState, StoreError> {
        let UpstreamState { servers, pins } = self.inner.load().await?;
        Ok(UpstreamState { servers: servers.into_iter().map(|server| self.opened(server)).collect(), pins })
    }

    async fn put_server(&self, server: &ServerRecord, others: &[ServerRead]) -> Result<ServerPut, StoreError> {
        match self.seals.sealed(&what(&server.tenant, &server.name), &server.spec.to_string())? {
            Some(sealed) => {
                self.inner.put_server(&ServerRecord { spec: kept(&sealed), ..server.clone() }, others).await
            }
            None => self.inner.put_server(server, others).await,
        }
    }

    async fn remove_server(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError> {
        self.inner.remove_server(tenant, name).await
    }

    async fn put_pins(&self, tenant: &TenantId, server: &str, changes: &[PinChange]) -> Result<PinsPut, StoreError> {
        self.inner.put_pins(tenant, server, changes).await
    }
}
