//! `gantry activation …`: which agent may use which tools, and how strictly. (VIS-003…005)

use base::SaturatingFrom as _;
use clap::{Args, Subcommand};
use contract::ids::{Subject, TenantId};
use policy::{PolicyOverrides, ToolPattern};
use serde_json::{Value, json};

use super::agent::in_tenant;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::lifespan;
use crate::printer::Printer;

/// See and change which tools agents may use
#[derive(Debug, Subcommand)]
pub(crate) enum ActivationCommand {
    List(ActivationListCommand),
    Set(ActivationSetCommand),
}

/// List activations
#[derive(Debug, Args)]
pub(crate) struct ActivationListCommand {
    /// Whose [default: of all tenants the token administers]
    #[arg(long)]
    tenant: Option<TenantId>,
}

/// Enable or disable a tool for an agent, or for every agent of a tenant; the most specific activation decides
///
/// gantry activation set crm.delete_contact --agent did:key:z6Mk… --require-approval
/// gantry activation set 'crm.*' --tenant acme --disable
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct ActivationSetCommand {
    /// The tools: `id`, `namespace.*` or `*`
    #[arg(value_name = "PATTERN")]
    tool: ToolPattern,
    /// Whose agents [default: the token's own tenant]
    #[arg(long)]
    tenant: Option<TenantId>,
    /// For this agent [default: every agent of the tenant]
    #[arg(long)]
    agent: Option<Subject>,
    /// Switch it off instead of on
    #[arg(long)]
    disable: bool,
    /// Ask the user before each call, whatever the manifest says
    #[arg(long)]
    require_confirmation: bool,
    /// Ask an approver before each call, whatever the manifest says
    #[arg(long)]
    require_approval: bool,
    /// Calls take at most this long: 90s, 15m, 1h
    #[arg(long, value_name = "SPAN", value_parser = lifespan::seconds)]
    timeout: Option<u64>,
    /// Mask this member of the result, wherever it stands (repeatable)
    #[arg(long, value_name = "MEMBER")]
    redact: Vec<String>,
}

impl ActivationCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = match self {
            Self::List(ActivationListCommand { tenant }) => {
                context.client()?.get(&format!("/v1/activations{}", in_tenant(tenant.as_ref()))).await?
            }
            Self::Set(set) => {
                let body = json!({ "activations": [set.body()?] });
                context.client()?.put("/v1/activations", &body).await?
            }
        };
        context.printer.answer(&answer, |printer| table(printer, &answer));
        Ok(())
    }
}

impl ActivationSetCommand {
    fn body(self) -> Result<Value, CommandFailure> {
        let overrides = PolicyOverrides {
            requires_confirmation: self.require_confirmation.then_some(true),
            requires_approval: self.require_approval.then_some(true),
            timeout_seconds: self.timeout.map(u32::saturating_from),
            redact: self.redact,
        };
        overrides.check().map_err(|error| CommandFailure::usage(error.to_string()))?;
        let mut body = json!({ "tool_id": self.tool, "enabled": !self.disable, "policy_overrides": overrides });
        if let Some(members) = body.as_object_mut() {
            members.extend(self.tenant.map(|tenant| ("tenant".to_owned(), json!(tenant))));
            members.extend(self.agent.map(|agent| ("agent_id".to_owned(), json!(agent))));
        }
        Ok(body)
    }
}

fn table(printer: &Printer, answer: &Value) -> String {
    let activations = answer.get("activations").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if activations.is_empty() {
        return "no activations: what agents may use follows from the visibility of their tenant".to_owned();
    }
    let rows = activations.iter().map(|activation| {
        let text = |name: &str| activation.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let state = if activation.get("enabled") == Some(&Value::Bool(true)) { "on" } else { "off" };
        let overrides = activation.get("policy_overrides").and_then(Value::as_object).into_iter().flatten();
        let overrides = overrides.map(|(name, value)| match value {
            Value::Bool(true) => name.clone(),
            Value::Array(items) => {
                let items: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
                format!("{name}={}", items.join("+"))
            }
            other => format!("{name}={other}"),
        });
        let overrides: Vec<String> = overrides.collect();
        [text("tenant"), text("agent_id"), text("tool_id"), state.to_owned(), overrides.join(", ")]
    });
    printer.table(["TENANT", "AGENT", "TOOL", "STATE", "STRICTER"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_activation_says_what_is_stricter_and_nothing_else() {
        let set = |timeout| ActivationSetCommand {
            tool: "crm.*".parse().unwrap(),
            tenant: None,
            agent: Some("did:key:z6Mk".parse().unwrap()),
            disable: false,
            require_confirmation: false,
            require_approval: true,
            timeout,
            redact: vec!["email".into()],
        };
        let body = set(Some(10)).body().unwrap();
        let overrides = json!({ "requires_approval": true, "timeout_seconds": 10, "redact": ["email"] });
        let expected = json!({
            "tool_id": "crm.*", "agent_id": "did:key:z6Mk", "enabled": true, "policy_overrides": overrides,
        });
        assert_eq!(body, expected);
        assert!(set(Some(0)).body().is_err() && set(Some(u64::MAX)).body().is_err());
    }
}
