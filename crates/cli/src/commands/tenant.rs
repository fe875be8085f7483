//! `gantry tenant …`: who shares this installation, and what each has. (VIS-001, VIS-002)

use clap::{Args, Subcommand};
use contract::ids::TenantId;
use policy::ToolPattern;
use serde_json::{Map, Value, json};

use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::Printer;

/// See and change tenants
#[derive(Debug, Subcommand)]
pub(crate) enum TenantCommand {
    /// List the tenants this token may know
    List,
    Set(TenantSetCommand),
}

/// Add a tenant, or change one; what is not said stays as it is
///
/// gantry tenant set acme --name 'Acme Ltd' --visibility read_only --tool 'crm.*' --tool calculator
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct TenantSetCommand {
    /// The tenant's id
    #[arg(value_name = "TENANT")]
    id: TenantId,
    /// Its name for people [default for a new one: its id]
    #[arg(long)]
    name: Option<String>,
    /// What its agents may use without an activation [default for a new one: as `[visibility] default` says]
    #[arg(long, value_name = "DEFAULT", value_parser = ["enabled", "read_only", "disabled"])]
    visibility: Option<String>,
    /// A shared tool it has: `id`, `namespace.*` or `*` (repeatable; replaces the list) [default for a new one: all]
    #[arg(long = "tool", value_name = "PATTERN", conflicts_with = "no_tools")]
    tools: Vec<ToolPattern>,
    /// It has no shared tools, only its own
    #[arg(long)]
    no_tools: bool,
    /// Switch it on again
    #[arg(long, conflicts_with = "disable")]
    enable: bool,
    /// Switch it off: none of its tokens is accepted
    #[arg(long)]
    disable: bool,
}

impl TenantCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = match self {
            Self::List => context.client()?.get("/v1/tenants").await?,
            Self::Set(set) => context.client()?.put("/v1/tenants", &json!({ "tenants": [set.body()] })).await?,
        };
        context.printer.answer(&answer, |printer| table(printer, &answer));
        Ok(())
    }
}

impl TenantSetCommand {
    fn body(self) -> Value {
        let tools = (self.no_tools || !self.tools.is_empty()).then(|| json!(self.tools));
        let enabled = (self.enable || self.disable).then_some(json!(self.enable));
        let members = [
            ("tenant_id", Some(json!(self.id))),
            ("name", self.name.map(Value::from)),
            ("visibility", self.visibility.map(Value::from)),
            ("tools", tools),
            ("enabled", enabled),
        ];
        members.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect::<Map<_, _>>().into()
    }
}

fn table(printer: &Printer, answer: &Value) -> String {
    let tenants = answer.get("tenants").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if tenants.is_empty() {
        return "no tenants".to_owned();
    }
    let rows = tenants.iter().map(|tenant| {
        let text = |name: &str| tenant.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let patterns = tenant.get("tools").and_then(Value::as_array).into_iter().flatten();
        let tools: Vec<&str> = patterns.filter_map(Value::as_str).collect();
        let tools = if tools.is_empty() { "(none shared)".to_owned() } else { tools.join(", ") };
        let visibility = Some(text("visibility")).filter(|word| !word.is_empty());
        let state = if tenant.get("enabled") == Some(&Value::Bool(false)) { "off" } else { "on" };
        [
            text("tenant_id"),
            text("name"),
            state.to_owned(),
            visibility.unwrap_or_else(|| "(as configured)".into()),
            tools,
        ]
    });
    printer.table(["TENANT", "NAME", "STATE", "VISIBILITY", "SHARED TOOLS"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_said_is_sent() {
        let set = || TenantSetCommand {
            id: "acme".parse().unwrap(),
            name: None,
            visibility: None,
            tools: Vec::new(),
            no_tools: false,
            enable: false,
            disable: false,
        };
        assert_eq!(set().body(), json!({ "tenant_id": "acme" }));
        assert_eq!(
            TenantSetCommand { no_tools: true, disable: true, ..set() }.body(),
            json!({ "tenant_id": "acme", "tools": [], "enabled": false })
        );
        let full = TenantSetCommand {
            tools: vec!["crm.*".parse().unwrap()],
            enable: true,
            visibility: Some("enabled".into()),
            ..set()
        };
        assert_eq!(
            full.body(),
            json!({ "tenant_id": "acme", "tools": ["crm.*"], "enabled": true, "visibility": "enabled" })
        );
    }
}
