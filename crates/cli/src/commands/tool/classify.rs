//! `gantry tool classify`: what a tool that was taken over from an MCP server does to the world.

use clap::Args;
use contract::ids::TenantId;
use serde_json::{Value, json};

use crate::client::segment;
use crate::commands::import::server_intake::in_tenant;
use crate::commands::server::classify::ClassifiedCall;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Say what a tool of an MCP server does to the world; until then it counts as something that cannot be repeated
///
/// gantry tool classify files.read_file pure
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ToolClassifyCommand {
    /// The tool: `namespace.tool`
    tool: String,
    /// pure: only reads; idempotent: twice is as once; irreversible: nothing brings it back; unclassified: nobody knows
    #[arg(value_parser = ["pure", "idempotent", "irreversible", "unclassified"])]
    effects: String,
    /// The server it is of [default: as its manifest says]
    #[arg(long, value_name = "SERVER")]
    of: Option<String>,
    /// Whose server [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl ToolClassifyCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let client = context.client()?;
        let server = match self.of {
            Some(server) => server,
            None => server_of(&client.get(&format!("/v1/tools/{}", segment(&self.tool))).await?, &self.tool)?,
        };
        let query = in_tenant(self.tenant.as_ref());
        let path = format!("/v1/servers/{}/tools/{}/classify{query}", segment(&server), segment(&self.tool));
        let answer = client.post(&path, &json!({ "side_effect_policy": self.effects })).await?;
        context.printer.answer(&answer, |_| {
            let text = |member: &str| answer.get(member).and_then(Value::as_str).unwrap_or_default();
            let call = ClassifiedCall::of(&self.effects).text;
            format!("{} {} is {}: a call {call}", text("tool_id"), text("version"), self.effects)
        });
        Ok(())
    }
}

/// The server that a tool's manifest names.
fn server_of(tool: &Value, named: &str) -> Result<String, CommandFailure> {
    let execution = tool.pointer("/manifest/execution");
    let text = |member: &str| execution.and_then(|it| it.get(member)).and_then(Value::as_str);
    match (text("type"), text("server")) {
        (Some("mcp"), Some(server)) => Ok(server.to_owned()),
        _ => Err(CommandFailure::new(format!("`{named}` is not a tool of an MCP server"))
            .hint("its own manifest says what it does: change `side_effect_policy` there and raise the version")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tools_of_servers_are_classified_from_outside() {
        let of = |execution: Value| server_of(&json!({ "manifest": { "execution": execution } }), "x");
        assert_eq!(of(json!({ "type": "mcp", "server": "files", "tool": "read" })).unwrap(), "files");
        assert!(
            of(json!({ "type": "builtin", "handler": "x" })).unwrap_err().hint.unwrap().contains("side_effect_policy")
        );
    }
}
