//! Which of the two protocols a caller meets a server in.
//!
//! A server is met in the newer one if it speaks that. One that speaks both may do more in the older: it asks its caller by
//! requests, tells of changes of a resource, has a log whose level is set. So a caller who speaks the older protocol is served
//! by a second meeting in that one: another session with a server elsewhere, another process of a program – of a program only
//! for callers whom it could ask something, because a process is dear and keeps a state of its own. A caller who speaks
//! the newer protocol, or comes through another door, is served by the first.
//!
//! Invariants
//! - ERA-1: a server that cannot be met a second time serves everybody by the first meeting, and is not tried again for a while.
//! - ERA-2: the first meeting alone speaks for a server's tools and their availability.

use std::sync::Arc;

use contract::error::Refusal;
use contract::ids::TenantId;
use ports::tool_companion::ToolCompanion;

use super::{ActiveDefinition, UpstreamServers};
use crate::connection::ProtocolEra;
use crate::connection::router::relayed;
use crate::spec::ServerReach;
use crate::supervisor::{EraMeeting, ServerUnit};

impl UpstreamServers {
    /// Where a call of this companion's caller is served. The wait is bounded by whoever drops the future.
    pub(crate) async fn unit_for(
        &self,
        definition: &Arc<ActiveDefinition>,
        caller: &TenantId,
        endpoint: usize,
        companion: &dyn ToolCompanion,
    ) -> Result<Arc<ServerUnit>, Refusal> {
        let first = self.unit_at(definition, caller, endpoint, EraMeeting::First)?;
        if companion.era() != Some(ProtocolEra::Legacy) || !gains(definition, companion) {
            return Ok(first);
        }
        Ok(self.again(definition, caller, endpoint, &first).await.unwrap_or(first))
    }

    /// Where resources are watched: as it was met first, or in the older protocol if only that one lets them be.
    pub(crate) async fn unit_to_watch(
        &self,
        definition: &Arc<ActiveDefinition>,
        caller: &TenantId,
    ) -> Result<Arc<ServerUnit>, Refusal> {
        let first = self.unit(definition, caller)?;
        if first.met().await?.connection.met().lets_watch() {
            return Ok(first);
        }
        let again = self.again(definition, caller, 0, &first).await;
        Ok(again.filter(|unit| unit.facts().lets_watch == Some(true)).unwrap_or(first))
    }

    /// The same as far as it is known, without asking.
    pub(crate) fn unit_watched(
        &self,
        definition: &Arc<ActiveDefinition>,
        caller: &TenantId,
    ) -> Result<Arc<ServerUnit>, Refusal> {
        let first = self.unit(definition, caller)?;
        if first.facts().lets_watch != Some(false) || !first.may_speak_legacy() {
            return Ok(first);
        }
        Ok(self.unit_at(definition, caller, 0, EraMeeting::Legacy).unwrap_or(first))
    }

    /// A server that was met in the newer protocol, met in the older as well; `None` if that cannot be (ERA-1).
    async fn again(
        &self,
        definition: &Arc<ActiveDefinition>,
        caller: &TenantId,
        endpoint: usize,
        first: &Arc<ServerUnit>,
    ) -> Option<Arc<ServerUnit>> {
        if !definition.spec.may_be_met_twice() || !first.may_speak_legacy() {
            return None;
        }
        if first.facts().era.is_none() {
            // Whoever calls it hears why it cannot be met.
            drop(first.met().await.ok()?);
        }
        if first.facts().era != Some(ProtocolEra::Modern) {
            return None;
        }
        let unit = self.unit_at(definition, caller, endpoint, EraMeeting::Legacy).ok()?;
        match unit.met().await {
            Ok(_) => Some(unit),
            Err(refusal) => {
                tracing::debug!(server = %definition.name, reason = %refusal.message, "a server is not met in the older protocol as well");
                first.does_not_speak_legacy();
                self.forget(&unit);
                None
            }
        }
    }
}

/// Could this caller be served better in the protocol it speaks?
fn gains(definition: &ActiveDefinition, companion: &dyn ToolCompanion) -> bool {
    match definition.spec.reach {
        ServerReach::Http { .. } => true,
        ServerReach::Stdio { .. } => {
            companion.can_be_asked().iter().any(|(kind, _)| relayed(definition.spec.relay, *kind))
        }
        ServerReach::Sse { .. } => false,
    }
}
