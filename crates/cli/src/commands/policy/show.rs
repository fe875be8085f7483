//! `gantry policy show | history`: the policies in force, and those before them.

use clap::Args;
use contract::ids::TenantId;
use serde_json::{Value, json};

use crate::commands::agent::in_tenant;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Show the policies in force, as Cedar text on stdout
#[derive(Debug, Args)]
pub(crate) struct PolicyShowCommand {
    /// Whose [default: the platform's for the home tenant, otherwise the token's own tenant's]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// A former version instead
    #[arg(long, value_name = "NUMBER")]
    version: Option<u64>,
}

/// List the versions of the policies, newest first
#[derive(Debug, Args)]
pub(crate) struct PolicyHistoryCommand {
    /// Whose [default: the platform's for the home tenant, otherwise the token's own tenant's]
    #[arg(long)]
    tenant: Option<TenantId>,
}

impl PolicyShowCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let version = self.version.map(|number| format!("/versions/{number}")).unwrap_or_default();
        let path = format!("/v1/policies{version}{}", in_tenant(self.tenant.as_ref()));
        let answer = context.client()?.get(&path).await?;
        let printer = &context.printer;
        let Some(text) = answer.get("policies").and_then(Value::as_str) else {
            printer.answer(&answer, |_| "no policies: tokens and activations alone decide".to_owned());
            return Ok(());
        };
        printer.answer(&answer, |_| visible(text).into_owned());
        let of = answer.get("tenant").and_then(Value::as_str).unwrap_or("the platform");
        if let Some(number) = answer.get("version").and_then(Value::as_u64) {
            printer.note(&visible(&format!("version {number} of {of}")));
        }
        if answer.get("usable") == Some(&Value::Bool(false)) {
            printer.warn("these policies cannot be used, so every call they apply to is refused: apply usable ones");
        }
        Ok(())
    }
}

impl PolicyHistoryCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let mut answer = context.client()?.get(&format!("/v1/policies{}", in_tenant(self.tenant.as_ref()))).await?;
        let history = answer.get_mut("history").map(Value::take).unwrap_or_default();
        let document = json!({ "tenant": answer.get("tenant"), "history": history });
        context.printer.answer(&document, |printer| {
            let versions = history.as_array().map(Vec::as_slice).unwrap_or_default();
            if versions.is_empty() {
                return "no policies yet".to_owned();
            }
            let row = |version: &Value| {
                let text = |name: &str| version.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
                let number = version.get("version").map(Value::to_string).unwrap_or_default();
                [number, text("added_at"), text("added_by")]
            };
            printer.table(["VERSION", "ADDED", "BY"], versions.iter().map(row))
        });
        Ok(())
    }
}
