//! What servers behind Gantry offer besides tools: resources, prompts, completions. (MCP-001, issue of relaying)
//!
//! Whatever comes back is data of a foreign server: bounded by the adapter, never trusted. Which servers offer anything at
//! all is the operator's choice, made when a server is entered.
//!
//! Not here: who may ask (`kernel::offerings`), and how names are shown outside (the door).

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use contract::error::Refusal;
use contract::ids::{Subject, TenantId};
use serde_json::Value;
use tokio::sync::broadcast;

use crate::tool_companion::ToolCompanion;
use crate::tool_origin::ToolOrigin;

/// A kind of thing that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OfferingKind {
    Resources,
    ResourceTemplates,
    Prompts,
}

/// A server that offers something, as one tenant knows it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OfferingServer {
    pub name: String,
    /// Who has defined it.
    pub owner: TenantId,
    /// Where its tools stand; empty if they stand without one.
    pub namespace: String,
    pub resources: bool,
    pub prompts: bool,
}

impl OfferingServer {
    /// Does it offer things of this kind?
    pub fn offers(&self, what: OfferingKind) -> bool {
        match what {
            OfferingKind::Resources | OfferingKind::ResourceTemplates => self.resources,
            OfferingKind::Prompts => self.prompts,
        }
    }
}

/// One thing of one server, described as the server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedItem {
    pub server: String,
    /// Where the server's tools stand; empty if they stand without one.
    pub namespace: String,
    pub item: Value,
}

/// What can be asked of one server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum OfferingRequest {
    ReadResource,
    GetPrompt,
    /// Values for an argument of a prompt.
    CompletePrompt,
    /// Values for a part of a resource's address.
    CompleteResource,
}

impl OfferingRequest {
    /// The method's name in the Model Context Protocol.
    pub fn method(self) -> &'static str {
        match self {
            Self::ReadResource => "resources/read",
            Self::GetPrompt => "prompts/get",
            Self::CompletePrompt | Self::CompleteResource => "completion/complete",
        }
    }

    /// Of what it is about.
    pub fn of(self) -> OfferingKind {
        match self {
            Self::ReadResource | Self::CompleteResource => OfferingKind::Resources,
            Self::GetPrompt | Self::CompletePrompt => OfferingKind::Prompts,
        }
    }
}

/// Who asks a server: whose turn it takes there. Turns go by tenants, and within a tenant by agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferingCaller {
    pub tenant: TenantId,
    /// The root of the delegation chain: names below it are of its own making.
    pub agent: Subject,
}

/// What is not as it was on a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum OfferingChange {
    /// The list of its resources.
    Resources,
    /// The list of its prompts.
    Prompts,
    /// A resource that somebody watches, by the address it is watched under.
    Resource(String),
}

/// A server says that something is not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfferingNotice {
    /// Whom it concerns; `None` is everybody who knows the server.
    pub tenant: Option<TenantId>,
    pub server: String,
    pub change: OfferingChange,
}

/// Somebody watches a resource, until this is dropped.
pub struct ResourceWatch(Option<Box<dyn FnOnce() + Send + Sync>>);

impl ResourceWatch {
    /// What is to be done at its end.
    pub fn until(end: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(end)))
    }
}

impl fmt::Debug for ResourceWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch(…)")
    }
}

impl Drop for ResourceWatch {
    fn drop(&mut self) {
        if let Some(end) = self.0.take() {
            end();
        }
    }
}

/// Servers that offer more than tools.
#[async_trait]
pub trait Offerings: Send + Sync + fmt::Debug {
    /// The servers of a tenant that offer something, each name once.
    fn servers(&self, tenant: &TenantId) -> Vec<OfferingServer>;

    /// What stands behind a server, as policies are told of it. An error refuses what is asked of it.
    fn origin(&self, tenant: &TenantId, server: &str) -> Result<Option<Arc<ToolOrigin>>, Refusal> {
        let _ = (tenant, server);
        Ok(None)
    }

    /// All things of a kind that one server offers. Asked by nobody in particular: the answer is everybody's of the tenant.
    async fn list(&self, tenant: &TenantId, server: &str, what: OfferingKind) -> Result<Vec<Value>, Refusal>;

    /// Asks one server, in the caller's turn. What it wants to know meanwhile goes to `companion`.
    async fn ask(
        &self,
        caller: &OfferingCaller,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        companion: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal>;

    /// Watches one resource of a server: its changes are among the [`notices`](Self::notices) until the watch is dropped, also
    /// over restarts of the server.
    async fn watch(&self, caller: &OfferingCaller, server: &str, uri: &str) -> Result<ResourceWatch, Refusal>;

    /// What changes from now on, in a bounded buffer. Whoever does not keep up hears that it missed something.
    fn notices(&self) -> broadcast::Receiver<OfferingNotice>;
}

/// No servers, nothing offered.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingOffered;

#[async_trait]
impl Offerings for NothingOffered {
    fn servers(&self, _: &TenantId) -> Vec<OfferingServer> {
        Vec::new()
    }
    async fn list(&self, _: &TenantId, _: &str, _: OfferingKind) -> Result<Vec<Value>, Refusal> {
        Ok(Vec::new())
    }
    async fn ask(
        &self,
        _: &OfferingCaller,
        server: &str,
        _: OfferingRequest,
        _: Value,
        _: &Arc<dyn ToolCompanion>,
    ) -> Result<Value, Refusal> {
        Err(unknown_server(server))
    }
    async fn watch(&self, _: &OfferingCaller, server: &str, _: &str) -> Result<ResourceWatch, Refusal> {
        Err(unknown_server(server))
    }
    fn notices(&self) -> broadcast::Receiver<OfferingNotice> {
        broadcast::channel(1).1
    }
}

/// The refusal for a server that is not there, or offers nothing of the kind.
pub fn unknown_server(server: &str) -> Refusal {
    let shown: String = server.chars().filter(|c| !c.is_control()).take(80).collect();
    Refusal::new(contract::error::ErrorCode::E3008, format!("no server `{shown}` offers this here"))
        .hint("`gantry server list` shows the servers; resources and prompts are passed on only where the server's entry says so")
        .retryable(false)
}
