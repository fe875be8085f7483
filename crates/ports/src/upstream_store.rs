//! The durable truth about MCP servers behind Gantry: which there are, and what was accepted of each of their tools.
//!
//! A *pin* is what somebody (or the first sight) has accepted of one tool of one server, and what the server says now if
//! that is something else. What names a pin is (tenant, server, the server's own name of the tool).
//!
//! Not here: what follows from a pin (`upstreams::pins`), and whether a tool can be called at the moment (`availability`).

use std::fmt;

use async_trait::async_trait;
use contract::canonical::{self, Digest};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use serde_json::Value;

use crate::clock::UnixMillis;
use crate::registry_store::StoreError;

/// A server, as it was put behind Gantry.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerRecord {
    /// Whose server it is.
    pub tenant: TenantId,
    /// What it is called in this tenant.
    pub name: String,
    /// How it is reached and what it may touch: a `ServerSpec` as JSON. Names secrets, holds none.
    pub spec: Value,
    pub added_at: UnixMillis,
    pub added_by: Subject,
}

/// One of the servers that somebody has read: what it is called, and when it was put.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServerRead {
    pub name: String,
    pub added_at: UnixMillis,
}

impl ServerRead {
    /// Of the servers that are there, these were read: no more, no fewer and no others? In any order.
    pub fn are_all_of(read: &[Self], there: &[Self]) -> bool {
        let sorted = |servers: &[Self]| {
            let mut servers = servers.to_vec();
            servers.sort_unstable();
            servers
        };
        sorted(read) == sorted(there)
    }
}

/// What became of a server that was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerPut {
    Kept,
    /// The tenant's other servers are not those that were read any more. Nothing was written.
    Outdated,
}

/// Where a pin stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PinState {
    /// The server says what was accepted.
    Accepted,
    /// The server says something else, and nobody has decided about that yet.
    Quarantined,
    /// The server says something else, and somebody has refused it.
    Rejected,
    /// The server does not offer it any more.
    Withdrawn,
}

impl PinState {
    /// Every state.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::Quarantined, Self::Rejected, Self::Withdrawn];

    /// The word on the wire and in the store.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Quarantined => "quarantined",
            Self::Rejected => "rejected",
            Self::Withdrawn => "withdrawn",
        }
    }
}

/// What a server says about a tool, and the digest by which it is recognised.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolDefinition {
    /// Name, title, description, schemas and annotations, as the server wrote them; and beside them what is only shown,
    /// [`SHOWN_MEMBERS`](Self::SHOWN_MEMBERS), as it was at the time.
    pub value: Value,
    pub digest: Digest,
}

impl ToolDefinition {
    /// What clients are shown and nobody is asked about: a server may change it without its tool being another one.
    pub const SHOWN_MEMBERS: [&str; 3] = ["icons", "_meta", "execution"];

    /// With the digest that the value has.
    pub fn new(value: Value) -> Self {
        Self { digest: Self::digest_of(&value), value }
    }

    /// The digest of a value, without what is only shown.
    pub fn digest_of(value: &Value) -> Digest {
        match value {
            Value::Object(members) if Self::SHOWN_MEMBERS.iter().any(|name| members.contains_key(*name)) => {
                let pinned = members.iter().filter(|(name, _)| !Self::SHOWN_MEMBERS.contains(&name.as_str()));
                canonical::digest(&pinned.map(|(name, value)| (name.clone(), value.clone())).collect())
            }
            whole => canonical::digest(whole),
        }
    }
}

/// What is known of one tool of one server.
#[derive(Debug, Clone, PartialEq)]
pub struct PinRecord {
    pub tenant: TenantId,
    pub server: String,
    /// The server's own name of it.
    pub upstream_tool: String,
    /// What it is called here.
    pub tool: ToolId,
    /// The version that was published for what is accepted; none while nothing is.
    pub version: Option<Version>,
    /// What may be offered to callers.
    pub accepted: Option<ToolDefinition>,
    /// What the server says instead, if it says something else.
    pub proposed: Option<ToolDefinition>,
    pub state: PinState,
    /// What a scan found in the newest word of the server; each a JSON object.
    pub findings: Vec<Value>,
    /// What somebody said about its effects.
    pub classification: Option<SideEffectPolicy>,
    /// When the server's word about it, or ours about that, changed last.
    pub seen_at: UnixMillis,
}

impl PinRecord {
    /// Is this the record that somebody has read as `read`? Findings follow from the definitions and are not compared.
    pub fn is_as_read(&self, read: &Self) -> bool {
        let digest = |definition: &Option<ToolDefinition>| definition.as_ref().map(|it| it.digest);
        self.tool == read.tool
            && self.version == read.version
            && digest(&self.accepted) == digest(&read.accepted)
            && digest(&self.proposed) == digest(&read.proposed)
            && self.state == read.state
            && self.classification == read.classification
            && self.seen_at == read.seen_at
    }
}

/// What becomes of a pin, and what it was judged by.
#[derive(Debug, Clone, PartialEq)]
pub struct PinChange {
    /// The pin that was read; `None`: there was none.
    pub read: Option<PinRecord>,
    pub pin: PinRecord,
}

impl PinChange {
    /// Is the pin that is there the one it was judged by?
    pub fn holds_for(&self, there: Option<&PinRecord>) -> bool {
        match (&self.read, there) {
            (None, None) => true,
            (Some(read), Some(there)) => there.is_as_read(read),
            _ => false,
        }
    }
}

/// What became of changes of pins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PinsPut {
    Kept,
    /// The server was removed while its tools were being looked at. Nothing was written.
    ServerGone,
    /// One of the pins is not what was read any more: another instance was quicker. Nothing was written.
    Outdated,
}

/// All servers and all pins.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct UpstreamState {
    /// Ordered by tenant and name.
    pub servers: Vec<ServerRecord>,
    /// Ordered by tenant, server and the server's own name of the tool.
    pub pins: Vec<PinRecord>,
}

/// Keeps them. Every change is durable before it is answered, and done whole or not at all.
#[async_trait]
pub trait UpstreamStore: Send + Sync + fmt::Debug {
    /// Everything, as of one moment.
    async fn load(&self) -> Result<UpstreamState, StoreError>;

    /// Adds a server, or replaces what is known of it; its pins stay. Only if the tenant's other servers are those that were read
    /// as `others`, in one step with writing: what a server must not share with them was judged by these. Of several that are
    /// put at once one is kept, and whoever is told [`ServerPut::Outdated`] reads and judges again.
    async fn put_server(&self, server: &ServerRecord, others: &[ServerRead]) -> Result<ServerPut, StoreError>;

    /// Removes a server and all its pins; false if there was none.
    async fn remove_server(&self, tenant: &TenantId, name: &str) -> Result<bool, StoreError>;

    /// Adds or replaces pins of one server, each for one tool of it: all of them or none, and only if the server is there and
    /// every pin is still the one that was read ([`PinChange::holds_for`]). Whoever is told [`PinsPut::Outdated`] reads and judges
    /// again: a decision of another instance is not written over by what was judged before it.
    async fn put_pins(&self, tenant: &TenantId, server: &str, changes: &[PinChange]) -> Result<PinsPut, StoreError>;
}
