//! `gantry mcp`: an MCP server on standard input and output, for clients that start their servers themselves.
//!
//! If a server runs on the data directory (or one was named), the conversation is carried to its `/mcp`; else the kernel runs
//! in this process. Standard output belongs to the protocol; everything else goes to standard error.
//!
//! Without a token of its own a client does not get the administrator's: a token for an agent is made for this conversation,
//! which may use every tool and administer nothing.

use clap::{Args, Subcommand};
use contract::ids::{Subject, TenantId};
use policy::{MintRequest, Role};
use serde_json::{Value, json};

use super::serve;
use crate::client::ServerClient;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

mod install;
mod relay;

/// How long the token of one conversation lives.
const CONVERSATION_SECONDS: u64 = 7 * 86_400;
/// Everything that tools may need (MAN-011).
const SCOPES: [&str; 5] = ["tool:*", "filesystem:read:*", "filesystem:write:*", "network:*", "credentials:*"];

/// Serve MCP on stdin and stdout, or connect MCP clients to this installation
///
/// `gantry mcp install --client claude` prints what to put into a client's configuration.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpCommand {
    #[command(subcommand)]
    command: Option<More>,
    /// Only the tools of this toolset (`[mcp.toolsets.NAME]`)
    #[arg(long, value_name = "NAME")]
    toolset: Option<String>,
    /// Who the client is, for policies and the audit log
    #[arg(long = "as", value_name = "NAME", default_value = "mcp-stdio")]
    subject: Subject,
}

#[derive(Debug, Subcommand)]
enum More {
    Install(install::McpInstallCommand),
}

impl McpCommand {
    /// Does it serve, rather than help to connect?
    pub(crate) fn is_server(&self) -> bool {
        self.command.is_none()
    }

    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        if let Some(More::Install(install)) = self.command {
            return install.run(context).await;
        }
        let wish = wish(self.subject, CONVERSATION_SECONDS)?;
        let given = context.given_token()?;
        // Not one that happens to listen where servers usually do: it may be somebody else's.
        if context.global.server.is_none() && context.data_dir().running_server().is_none() {
            return Box::pin(serve::alone::serve(context, given, &wish, self.toolset.as_deref())).await;
        }
        let client = context.client()?;
        let token = match given {
            Some(token) => token,
            None => minted(&client, &wish).await?,
        };
        relay::run(&client, &token, self.toolset.as_deref()).await
    }
}

/// A token for an agent that may use every tool.
fn wish(sub: Subject, ttl_seconds: u64) -> Result<MintRequest, CommandFailure> {
    let tools = vec![
        serde_json::from_value(json!({ "tool_id": "*" })).map_err(|error| CommandFailure::new(error.to_string()))?,
    ];
    let scopes: Result<Vec<policy::PermissionScope>, _> = SCOPES.iter().map(|scope| scope.parse()).collect();
    Ok(MintRequest {
        sub,
        tenant: TenantId::home(),
        roles: vec![Role::Agent],
        tools,
        scopes: scopes.map_err(|_| CommandFailure::new("a scope of this release is none"))?,
        limits: Vec::new(),
        budget: None,
        user_did: None,
        session_id: None,
        ttl_seconds,
        act: None,
    })
}

/// Has the running server make one.
async fn minted(client: &ServerClient, wish: &MintRequest) -> Result<String, CommandFailure> {
    let body = json!({
        "sub": wish.sub, "roles": wish.roles, "tools": wish.tools, "scopes": wish.scopes, "ttl_seconds": wish.ttl_seconds,
    });
    let answer = client.post("/v1/tokens", &body).await?;
    let token = answer.get("token").and_then(Value::as_str).map(str::to_owned);
    token.ok_or_else(|| CommandFailure::new("the server answered without a token"))
}
