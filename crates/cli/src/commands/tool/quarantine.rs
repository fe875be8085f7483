//! `gantry tool quarantine | release`: take a tool out of use, and put it back. (REG-024)

use clap::Args;
use contract::ids::TenantId;
use serde_json::{Value, json};

use crate::client::segment;
use crate::commands::import::server_intake::in_tenant;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Take a tool out of use, in every version and on every instance, until it is released
#[derive(Debug, Args)]
pub(crate) struct QuarantineCommand {
    /// `namespace.tool_id`, `tool_id`, or an alias
    tool: String,
    /// Why; it is recorded
    #[arg(long, short, value_name = "TEXT")]
    reason: String,
    /// Whose tool [default: the token's own tenant]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<TenantId>,
}

/// Put a tool that a person has taken out of use back into it
#[derive(Debug, Args)]
pub(crate) struct ToolReleaseCommand {
    /// `namespace.tool_id`, `tool_id`, or an alias
    tool: String,
    /// Why; it is recorded
    #[arg(long, short, value_name = "TEXT")]
    reason: String,
    /// Whose tool [default: the token's own tenant]
    #[arg(long, value_name = "TENANT")]
    tenant: Option<TenantId>,
}

impl QuarantineCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        change(context, (&self.tool, self.tenant.as_ref()), "quarantine", &self.reason).await
    }
}

impl ToolReleaseCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        change(context, (&self.tool, self.tenant.as_ref()), "release", &self.reason).await
    }
}

async fn change(
    context: &CommandContext,
    (tool, tenant): (&str, Option<&TenantId>),
    act: &str,
    reason: &str,
) -> Result<(), CommandFailure> {
    let body = json!({ "reason": reason });
    let path = format!("/v1/tools/{}/{act}{}", segment(tool), in_tenant(tenant));
    let answer = context.client()?.post(&path, &body).await?;
    context.printer.answer(&answer, |printer| {
        let text = |name: &str| answer.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let held = answer.get("quarantined").and_then(Value::as_bool).unwrap_or_default();
        let state = if held { "quarantined" } else { "released" };
        printer
            .table(["TOOL", "STATE", "REASON", "BY"], [[text("tool_id"), state.to_owned(), text("reason"), text("by")]])
    });
    Ok(())
}
