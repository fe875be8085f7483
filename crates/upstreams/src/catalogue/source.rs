//! What taking tools in needs of the rest of this crate and of the scanner, as traits, so that the rules can be tested
//! with servers that say whatever a test wants.

use std::fmt;
use std::pin::Pin;

use async_trait::async_trait;
use contract::error::Refusal;
use contract::ids::TenantId;
use serde_json::Value;

use crate::spec::ServerSpec;

/// Says what a server offers.
#[async_trait]
pub trait ToolSource: Send + Sync + fmt::Debug {
    /// Every tool of the server as it describes it, all pages, bounded. Starts the server if need be.
    async fn list_tools(&self, tenant: &TenantId, server: &str) -> Result<Vec<Value>, Refusal>;
}

/// A server that should run when it is needed.
#[derive(Debug, Clone, PartialEq)]
pub struct WantedServer {
    pub tenant: TenantId,
    pub name: String,
    pub spec: ServerSpec,
}

/// Comes when changes have come to life or have failed to.
pub type ChangesSettled = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Keeps servers alive.
#[async_trait]
pub trait ServerSupervision: ToolSource {
    /// These and no others: what is new is known from now on, what has changed is switched over, what is gone is ended.
    /// In force when it comes back; what is given back waits until the changes have come to life.
    fn apply(&self, servers: Vec<WantedServer>) -> ChangesSettled;

    /// How a server fares, as a JSON object with at least `state`.
    fn status(&self, tenant: &TenantId, server: &str) -> Value;

    /// Starts it anew; calls under way finish on the old one.
    async fn restart(&self, tenant: &TenantId, server: &str) -> Result<(), Refusal>;

    /// The last lines of its log.
    async fn log_tail(&self, tenant: &TenantId, server: &str, lines: usize) -> Result<Vec<String>, Refusal>;
}

/// What was found in one definition.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DefinitionInspection {
    /// Each a JSON object.
    pub findings: Vec<Value>,
    /// It must not be offered before a person has accepted it.
    pub blocks: bool,
}

/// Looks for what should not be in a definition.
pub trait DefinitionInspector: Send + Sync + fmt::Debug {
    /// One answer for each definition. `siblings` are the names of all tools of the same server, `foreign` those of
    /// every other tool its callers see.
    fn inspect(&self, definitions: &[Value], siblings: &[String], foreign: &[String]) -> Vec<DefinitionInspection>;
}
