//! Something happened once to a version of a tool that somebody waits for. (OBS-011)
//!
//! An alert is raised and resolved; this is told and done. It goes to the log, and to the webhooks of the tenant that owns
//! the tool as `tool.event`. What cannot be put into the queue of deliveries is in the log only.

use contract::event_name::EventName;
use contract::ids::{TenantId, ToolId};
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::tool_version::ToolVersion;
use serde_json::{Map, Value, json};

use super::Insights;

/// What happened, to which version, when.
#[derive(Debug, Clone, PartialEq)]
pub struct VersionEvent {
    pub name: EventName,
    pub tenant: TenantId,
    pub tool: ToolId,
    pub version: Version,
    pub at: UnixMillis,
    /// What else there is to say: an object, or nothing.
    pub data: Value,
}

impl VersionEvent {
    /// About this version.
    pub fn about(version: &ToolVersion, name: EventName, at: UnixMillis, data: Value) -> Self {
        let (tenant, tool) = (version.tenant.clone(), version.id.clone());
        Self { name, tenant, tool, version: version.version.clone(), at, data }
    }

    /// What those who are told get.
    pub(crate) fn told(&self) -> Map<String, Value> {
        let mut members = match &self.data {
            Value::Object(members) => members.clone(),
            _ => Map::new(),
        };
        members.insert("event".to_owned(), self.name.as_str().into());
        members.insert("tool_id".to_owned(), json!(self.tool));
        members.insert("tool_version".to_owned(), json!(self.version));
        members.insert("at".to_owned(), self.at.to_string().into());
        members
    }
}

impl Insights {
    /// Tells.
    pub(crate) async fn happened(&self, happening: VersionEvent) {
        let VersionEvent { name, tenant, tool, version, data, .. } = &happening;
        tracing::info!(event = name.as_str(), %tenant, %tool, %version, %data, "{name}");
        let Some(webhooks) = &self.parts.webhooks else { return };
        if let Err(refusal) = webhooks.announce_happening(&happening).await {
            tracing::warn!(event = name.as_str(), %tool, code = %refusal.code, error = &refusal as &dyn std::error::Error, "an event is not delivered");
        }
    }
}
