//! Event announcer: tells those who have subscribed that an alert was raised or is over, and that something happened to a
//! version of a tool.
//!
//! Whoever learns from calls has the events, and whoever delivers webhooks knows the subscribers; neither knows the other.
//!
//! Not here: when an alert is raised, and who has subscribed (`webhook_store`).

use std::fmt;

use async_trait::async_trait;
use contract::error::Refusal;
use contract::event_name::EventName;
use contract::ids::{TenantId, ToolId};
use contract::version::Version;
use serde_json::{Map, Value, json};

use crate::clock::UnixMillis;
use crate::health_store::AlertRule;
use crate::tool_version::ToolVersion;

/// An alert as subscribers are told of it: once when it is raised, and once when it is over.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertNotice {
    pub rule: AlertRule,
    /// Whose subscribers are told: the tenant of the tool or of the queue.
    pub tenant: TenantId,
    pub tool: Option<(ToolId, Version)>,
    /// With rule, tenant and tool, the identity of the alert.
    pub raised_at: UnixMillis,
    /// There once it is over.
    pub resolved_at: Option<UnixMillis>,
    /// Everything that subscribers read about it.
    pub data: Map<String, Value>,
}

/// An event of a version: something that happened once, to which version, when. (OBS-011)
#[derive(Debug, Clone, PartialEq)]
pub struct VersionEvent {
    pub name: EventName,
    /// Whose subscribers are told: the owner of the tool.
    pub tenant: TenantId,
    pub tool: ToolId,
    pub version: Version,
    pub at: UnixMillis,
    /// What else there is to say: an object, or nothing.
    pub data: Value,
}

/// Announces events.
#[async_trait]
pub trait EventAnnouncer: Send + Sync + fmt::Debug {
    /// Announces an alert, and says to how many. What was announced is durable before the answer. The same alert in the same
    /// state, announced again, is sent once; so a refusal may be tried again.
    async fn announce_alert(&self, alert: &AlertNotice) -> Result<usize, Refusal>;

    /// Announces an event of a version, in the same way. Name, tool, version and time are its identity.
    async fn announce_version_event(&self, event: &VersionEvent) -> Result<usize, Refusal>;
}

impl VersionEvent {
    /// An event of this version.
    pub fn about(version: &ToolVersion, name: EventName, at: UnixMillis, data: Value) -> Self {
        let (tenant, tool) = (version.tenant.clone(), version.id.clone());
        Self { name, tenant, tool, version: version.version.clone(), at, data }
    }

    /// The members that subscribers read.
    pub fn members(&self) -> Map<String, Value> {
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
