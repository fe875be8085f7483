//! The two halves of this room put together: the catalogue looks at servers that [`UpstreamServers`] keeps alive, and hears of them
//! when they change, go away or come back.

use std::sync::{Arc, Weak};

use async_trait::async_trait;
use contract::error::Refusal;
use contract::ids::TenantId;
use serde_json::{Value, json};

use super::{ChangesSettled, ServerCatalogue, ServerSupervision, ToolSource, WantedServer};
use crate::upstreams::{ServerDefinition, UpstreamServers};
use crate::watcher::UpstreamWatcher;

#[async_trait]
impl ToolSource for UpstreamServers {
    async fn list_tools(&self, tenant: &TenantId, server: &str) -> Result<Vec<Value>, Refusal> {
        Self::list_tools(self, tenant, server).await
    }
}

#[async_trait]
impl ServerSupervision for UpstreamServers {
    fn apply(&self, servers: Vec<WantedServer>) -> ChangesSettled {
        let servers =
            servers.into_iter().map(|WantedServer { tenant, name, spec }| ServerDefinition { tenant, name, spec });
        // Whoever looks at a server after this sees the one that was asked for, or that it could not be had.
        Box::pin(Self::apply(self, servers.collect()).settled())
    }

    /// Of the process that serves its own tenant; those of others are theirs.
    fn status(&self, tenant: &TenantId, server: &str) -> Value {
        let all = Self::status(self);
        let mut own = all.iter().filter(|status| status.tenant == *tenant && status.name == server);
        let speaks = own.clone().find(|status| status.serves.as_ref().is_none_or(|serves| serves == tenant));
        let Some(status) = speaks.or_else(|| own.next()) else { return json!({ "state": "stopped" }) };
        json!({
            "state": status.state.as_str(),
            "since": status.since.to_string(),
            "restarts": status.restarts,
            "era": status.era.map(crate::ProtocolEra::as_str),
            "pid": status.pid,
            "last_error": status.last_error,
            "last_hint": status.last_hint,
            "calls": status.calls,
            "also_in_legacy": status.also_in_legacy.as_ref().map(|second| json!({
                "state": second.state.as_str(),
                "pid": second.pid,
                "calls": second.calls,
            })),
        })
    }

    async fn restart(&self, tenant: &TenantId, server: &str) -> Result<(), Refusal> {
        Self::restart(self, tenant, server).await
    }

    async fn log_tail(&self, tenant: &TenantId, server: &str, lines: usize) -> Result<Vec<String>, Refusal> {
        Self::log_tail(self, tenant, server, lines).await
    }
}

/// Tells a catalogue what [`UpstreamServers`] sees. Holds it loosely: whoever has opened it decides how long it lives.
#[derive(Debug)]
struct SupervisionListener(Weak<ServerCatalogue>);

impl UpstreamWatcher for SupervisionListener {
    fn tools_changed(&self, tenant: &TenantId, server: &str) {
        if let Some(catalogue) = self.0.upgrade() {
            catalogue.look_again(tenant, server);
        }
    }

    fn availability(&self, tenant: &TenantId, server: &str, available: bool) {
        if let Some(catalogue) = self.0.upgrade() {
            catalogue.availability(tenant, server, available);
        }
    }
}

impl ServerCatalogue {
    /// Hears of these servers from now on.
    pub fn listen_to(self: &Arc<Self>, upstreams: &UpstreamServers) {
        upstreams.watch(Arc::new(SupervisionListener(Arc::downgrade(self))));
    }
}
