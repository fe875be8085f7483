//! `gantry agent …`: the agents a tenant knows, and what each of them may use. (AUTH-012, VIS-008, VIS-011…013)

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use contract::ids::{Subject, TenantId};
use contract::json::{self, JsonLimits};
use policy::WhyUnavailable;
use serde_json::{Value, json};

use crate::client::segment;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::Printer;

/// A DID document is a page.
const DOCUMENT_BYTES_MAX: u64 = 64 * 1024;

/// See, introduce and forget agents, and see what they may use
#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    List(AgentListCommand),
    Add(AgentAddCommand),
    Remove(AgentRemoveCommand),
    Tools(AgentToolsCommand),
}

/// List the agents that were introduced to a tenant
#[derive(Debug, Args)]
pub(crate) struct AgentListCommand {
    /// Whose agents [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Introduce an agent, so that its DID is known
///
/// gantry agent add did:web:agents.example.com:desk --tenant acme --document did.json
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct AgentAddCommand {
    /// The agent: a DID or a plain name
    agent: Subject,
    /// To whom [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// File with its DID document; its `id` must be the agent's DID
    #[arg(long, value_name = "FILE")]
    document: Option<PathBuf>,
}

/// Forget an agent: its tokens are refused from now on, unless its DID certifies itself (`gantry token revoke` for those)
#[derive(Debug, Args)]
pub(crate) struct AgentRemoveCommand {
    /// The agent
    agent: Subject,
    /// Whose agent [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Show what an agent may use, or with --unavailable what it could use if somebody enabled it
#[derive(Debug, Args)]
pub(crate) struct AgentToolsCommand {
    /// The agent
    agent: Subject,
    /// What it cannot use now, and why
    #[arg(long)]
    unavailable: bool,
}

impl AgentCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        match self {
            Self::List(command) => command.run(context).await,
            Self::Add(command) => command.run(context).await,
            Self::Remove(command) => command.run(context).await,
            Self::Tools(command) => command.run(context).await,
        }
    }
}

impl AgentListCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.get(&format!("/v1/agents{}", in_tenant(self.tenant.as_ref()))).await?;
        context.printer.answer(&answer, |printer| agents(printer, &answer));
        Ok(())
    }
}

impl AgentAddCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let mut agent = json!({ "agent_id": self.agent });
        if let Some(members) = agent.as_object_mut() {
            members.extend(self.tenant.map(|tenant| ("tenant".to_owned(), json!(tenant))));
            members.extend(self.document.as_deref().map(document).transpose()?.map(|it| ("document".to_owned(), it)));
        }
        let answer = context.client()?.put("/v1/agents", &json!({ "agents": [agent] })).await?;
        context.printer.answer(&answer, |printer| agents(printer, &answer));
        Ok(())
    }
}

impl AgentRemoveCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let path = format!("/v1/agents/{}{}", segment(self.agent.as_str()), in_tenant(self.tenant.as_ref()));
        let answer = context.client()?.delete(&path).await?;
        context.printer.answer(&answer, |_| format!("{} is forgotten", self.agent));
        Ok(())
    }
}

impl AgentToolsCommand {
    async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let end = if self.unavailable { "/unavailable" } else { "" };
        let path = format!("/v1/agents/{}/tools{end}", segment(self.agent.as_str()));
        let answer = context.client()?.get(&path).await?;
        context.printer.answer(&answer, |printer| tools(printer, &answer, self.unavailable));
        Ok(())
    }
}

/// The query that names a tenant, if one is named.
pub(crate) fn in_tenant(tenant: Option<&TenantId>) -> String {
    tenant.map(|tenant| format!("?tenant={}", segment(tenant.as_str()))).unwrap_or_default()
}

fn document(path: &Path) -> Result<Value, CommandFailure> {
    use std::io::Read as _;
    let mut text = Vec::new();
    crate::plain_file::open(path)
        .and_then(|file| file.take(DOCUMENT_BYTES_MAX + 1).read_to_end(&mut text))
        .map_err(|error| CommandFailure::new(format!("`{}` cannot be read: {error}", path.display())))?;
    json::read(&text, &JsonLimits::default())
        .map_err(|error| CommandFailure::new(format!("`{}` is not a DID document: {error}", path.display())))
}

fn text(value: &Value, name: &str) -> String {
    value.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn rows_of<'a>(answer: &'a Value, name: &str) -> &'a [Value] {
    answer.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn agents(printer: &Printer, answer: &Value) -> String {
    let agents = rows_of(answer, "agents");
    if agents.is_empty() {
        return "no agents".to_owned();
    }
    let row = |agent: &Value| {
        let document = if agent.get("document").is_some_and(|it| !it.is_null()) { "yes" } else { "" };
        [
            text(agent, "agent_id"),
            text(agent, "tenant"),
            document.into(),
            text(agent, "added_at"),
            text(agent, "added_by"),
        ]
    };
    printer.table(["AGENT", "TENANT", "DOCUMENT", "ADDED", "BY"], agents.iter().map(row))
}

fn tools(printer: &Printer, answer: &Value, unavailable: bool) -> String {
    let tools = rows_of(answer, "tools");
    if tools.is_empty() {
        return if unavailable { "nothing is out of its reach" } else { "it may use no tools" }.to_owned();
    }
    if unavailable {
        let row = |tool: &Value| [text(tool, "tool_id"), text(tool, "version"), reason(tool)];
        return printer.table(["TOOL", "VERSION", "WHY NOT"], tools.iter().map(row));
    }
    let row = |tool: &Value| {
        let flags = [("requires_confirmation", "confirmation"), ("requires_approval", "approval")];
        let asks = flags.into_iter().filter(|(name, _)| tool.get(*name) == Some(&Value::Bool(true)));
        let asks: Vec<&str> = asks.map(|(_, word)| word).collect();
        [text(tool, "tool_id"), text(tool, "version"), text(tool, "side_effect_policy"), asks.join(", ")]
    };
    printer.table(["TOOL", "VERSION", "EFFECTS", "ASKS FOR"], tools.iter().map(row))
}

fn reason(tool: &Value) -> String {
    let why = tool.get("why_unavailable").cloned().unwrap_or_default();
    // A server that is newer may have reasons of its own.
    serde_json::from_value::<WhyUnavailable>(why.clone())
        .map_or_else(|_| why.as_str().unwrap_or_default().to_owned(), |why| why.as_str().to_owned())
}
