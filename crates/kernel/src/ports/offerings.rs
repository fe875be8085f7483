//! What servers behind Gantry offer besides tools: resources, prompts, completions. (MCP-001, issue of relaying)
//!
//! Whatever comes back is data of a foreign server: bounded by the adapter, never trusted. Which servers offer anything at
//! all is the operator's choice, made when a server is entered.
//!
//! Not here: who may ask (`kernel::offerings`), and how names are shown outside (the door).

use std::fmt;

use async_trait::async_trait;
use contract::error::Refusal;
use contract::ids::TenantId;
use serde_json::Value;

use super::companion::Companion;

/// A kind of thing that can be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Offering {
    Resources,
    ResourceTemplates,
    Prompts,
}

/// One thing of one server, described as the server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct Offered {
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
    Complete,
}

impl OfferingRequest {
    /// The method's name in the Model Context Protocol.
    pub fn method(self) -> &'static str {
        match self {
            Self::ReadResource => "resources/read",
            Self::GetPrompt => "prompts/get",
            Self::Complete => "completion/complete",
        }
    }
}

/// Servers that offer more than tools.
#[async_trait]
pub trait Offerings: Send + Sync + fmt::Debug {
    /// The servers of a tenant that offer something, by name and namespace.
    fn servers(&self, tenant: &TenantId) -> Vec<(String, String)>;

    /// All things of a kind that one server offers.
    async fn list(&self, tenant: &TenantId, server: &str, what: Offering) -> Result<Vec<Value>, Refusal>;

    /// Asks one server. What it wants to know meanwhile goes to `companion`.
    async fn ask(
        &self,
        tenant: &TenantId,
        server: &str,
        request: OfferingRequest,
        parameters: Value,
        companion: &dyn Companion,
    ) -> Result<Value, Refusal>;
}

/// No servers, nothing offered.
#[derive(Debug, Clone, Copy, Default)]
pub struct NothingOffered;

#[async_trait]
impl Offerings for NothingOffered {
    fn servers(&self, _: &TenantId) -> Vec<(String, String)> {
        Vec::new()
    }
    async fn list(&self, _: &TenantId, _: &str, _: Offering) -> Result<Vec<Value>, Refusal> {
        Ok(Vec::new())
    }
    async fn ask(
        &self,
        _: &TenantId,
        server: &str,
        _: OfferingRequest,
        _: Value,
        _: &dyn Companion,
    ) -> Result<Value, Refusal> {
        Err(unknown_server(server))
    }
}

/// The refusal for a server that is not there, or offers nothing of the kind.
pub fn unknown_server(server: &str) -> Refusal {
    let shown: String = server.chars().filter(|c| !c.is_control()).take(80).collect();
    Refusal::new(contract::error::ErrorCode::E3008, format!("no server `{shown}` offers this here"))
        .hint("`gantry server list` shows the servers; resources and prompts are passed on only where the server's entry says so")
        .retryable(false)
}
