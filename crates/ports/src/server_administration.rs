//! Where the doors ask about MCP servers behind Gantry: which there are, what they offer, and what is decided about that.
//!
//! The kernel itself needs none of it; the port stands here because the doors and the crate that has the answers know the
//! kernel and not each other. Every act recognises its caller, checks the role and is recorded, as administration is.

use std::fmt;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::error::Refusal;
use contract::ids::TenantId;
use contract::manifest::SideEffectPolicy;
use serde_json::Value;

use crate::actor::Actor;
use crate::upstream_store::{PinRecord, ServerRecord};

/// A server, and how it fares.
#[derive(Debug, Clone)]
pub struct ServerReport {
    pub record: ServerRecord,
    /// How its process or connection fares, as a JSON object: `state`, and what else is known.
    pub status: Value,
    /// How many of its tools can be called.
    pub tools_available: usize,
    /// How many wait for somebody to decide.
    pub tools_quarantined: usize,
    /// How many tools are known of it at all.
    pub tools_known: usize,
    /// What is wrong with its tool list, or why there is none.
    pub problems: Vec<ToolProblem>,
}

/// Why something a server offers was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolProblem {
    /// The server's own name of it, cleaned and cut; empty if it is about the server.
    pub tool: String,
    /// `INVALID_TOOL_SCHEMA`, `DUPLICATE_TOOL_NAME`, …
    pub code: &'static str,
    pub message: String,
}

/// What is known of one tool of a server, with what a person needs to decide.
#[derive(Debug, Clone)]
pub struct PinReport {
    pub pin: PinRecord,
    /// Why it cannot be called at the moment, if it cannot.
    pub unavailable: Option<&'static str>,
    /// What the server says now, against what was accepted, line by line.
    pub difference: Vec<DifferenceLine>,
    /// What accepting would mean for callers: `patch`, `minor` or `major`.
    pub compatibility: Option<&'static str>,
    /// What the server says about effects, which nobody has checked.
    pub hints: Vec<&'static str>,
    /// The class that would agree with them, for whoever classifies.
    pub suggested: Option<SideEffectPolicy>,
}

/// One line of a difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferenceLine {
    pub kind: DifferenceKind,
    pub text: String,
}

/// What became of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DifferenceKind {
    Same,
    Removed,
    Added,
}

/// What somebody decides about a tool of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerDecision {
    /// What the server says now is fine. With the digest that was looked at, nothing else is accepted.
    Accept { digest: Option<Digest> },
    /// It is not; the tool stays away until the server says again what was accepted.
    Reject,
    /// What the tool does to the world. With the digest that was looked at, nothing else is classified.
    Classify { class: SideEffectPolicy, digest: Option<Digest> },
}

/// Answers.
#[async_trait]
pub trait ServerAdministration: Send + Sync + fmt::Debug {
    /// The servers of a tenant.
    async fn servers(&self, actor: Actor<'_>, tenant: Option<&TenantId>) -> Result<Vec<ServerReport>, Refusal>;

    /// Adds or changes a server and, with `start`, starts it and takes its tools in. One that its description switches off is
    /// not started.
    async fn put_server(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
        spec: Value,
        start: bool,
    ) -> Result<ServerReport, Refusal>;

    /// Takes a server away. Its tools cannot be called from then on.
    async fn remove_server(&self, actor: Actor<'_>, tenant: Option<&TenantId>, name: &str) -> Result<(), Refusal>;

    /// Starts it anew and looks at its tools again.
    async fn restart_server(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<ServerReport, Refusal>;

    /// The last lines it has written to its log.
    async fn server_log(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
        lines: usize,
    ) -> Result<Vec<String>, Refusal>;

    /// What is known of its tools.
    async fn server_tools(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
    ) -> Result<Vec<PinReport>, Refusal>;

    /// Decides about one of its tools, named as the server does or as Gantry does.
    async fn decide(
        &self,
        actor: Actor<'_>,
        tenant: Option<&TenantId>,
        name: &str,
        tool: &str,
        decision: ServerDecision,
    ) -> Result<PinReport, Refusal>;
}
