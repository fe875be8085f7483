//! `gantry usage`: how much was used, by whom, and what it cost. (COST-004)

use clap::Args;
use contract::ids::{Subject, TenantId, ToolId};
use serde_json::Value;

use crate::client::segment;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::Printer;

/// Show use and cost
///
/// gantry usage --from 2027-01-01 --by agent,tool
#[derive(Debug, Args)]
#[command(verbatim_doc_comment)]
pub(crate) struct UsageCommand {
    /// The first day, YYYY-MM-DD in UTC [default: 30 days before the last]
    #[arg(long, value_name = "DAY")]
    from: Option<String>,
    /// The last day [default: today]
    #[arg(long, value_name = "DAY")]
    to: Option<String>,
    /// Only this tool
    #[arg(long)]
    tool: Option<ToolId>,
    /// Only this agent
    #[arg(long)]
    agent: Option<Subject>,
    /// Only on behalf of this user
    #[arg(long)]
    user: Option<Subject>,
    /// What to add up by: some of day, tool, agent, user [default: day,tool]
    #[arg(long, value_name = "WHAT", value_delimiter = ',', value_parser = ["day", "tool", "agent", "user"])]
    by: Vec<String>,
    /// Another tenant; for administrators of the installation
    #[arg(long)]
    tenant: Option<TenantId>,
    /// Which page, from 1
    #[arg(long, default_value_t = 1)]
    page: u32,
}

impl UsageCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = context.client()?.get(&self.path()).await?;
        context.printer.answer(&answer, |printer| table(printer, &answer));
        Ok(())
    }

    fn path(&self) -> String {
        let by = (!self.by.is_empty()).then(|| self.by.join(","));
        let words = [
            ("from", self.from.as_deref()),
            ("to", self.to.as_deref()),
            ("tool", self.tool.as_ref().map(ToolId::as_str)),
            ("agent", self.agent.as_ref().map(Subject::as_str)),
            ("user", self.user.as_ref().map(Subject::as_str)),
            ("by", by.as_deref()),
            ("tenant", self.tenant.as_ref().map(TenantId::as_str)),
        ];
        let mut path = format!("/v1/usage?page={}", self.page);
        for (name, value) in words.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            path.push_str(&format!("&{name}={}", segment(value)));
        }
        path
    }
}

fn table(printer: &Printer, answer: &Value) -> String {
    let lines = answer.get("usage").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    if lines.is_empty() {
        return "nothing was used".to_owned();
    }
    let rows = lines.iter().map(|line| {
        let text = |name: &str| match line.get(name) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        [
            text("day"),
            text("tool_id"),
            text("agent"),
            text("user"),
            text("calls"),
            text("errors"),
            text("refused"),
            text("duration_ms"),
            text("tokens_used"),
            cost(line),
        ]
    });
    let heads = ["DAY", "TOOL", "AGENT", "USER", "CALLS", "ERRORS", "REFUSED", "MS", "TOKENS", "COST"];
    let table = printer.table(heads, rows);
    if answer.get("more") == Some(&Value::Bool(true)) { format!("{table}\nthere is more: --page") } else { table }
}

fn cost(line: &Value) -> String {
    let costs = line.get("cost").and_then(Value::as_array).into_iter().flatten();
    let text = |cost: &Value, name: &str| cost.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    costs.map(|cost| format!("{} {}", text(cost, "total"), text(cost, "currency"))).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_filter_is_in_the_question() {
        let usage = UsageCommand {
            from: Some("2027-01-01".into()),
            to: None,
            tool: Some("demo.echo".parse().unwrap()),
            agent: Some("did:key:z6&x".parse().unwrap()),
            user: None,
            by: vec!["agent".into(), "tool".into()],
            tenant: None,
            page: 2,
        };
        let path = usage.path();
        assert!(path.starts_with("/v1/usage?page=2&from=2027-01-01&tool=demo.echo&agent=did"), "{path}");
        assert!(path.contains("z6%26x") && path.contains("&by=agent%2Ctool"), "{path}");
    }

    #[test]
    fn costs_are_shown_with_their_currency() {
        let line = json!({ "cost": [{ "total": "0.14", "currency": "USD" }, { "total": "2", "currency": "EUR" }] });
        assert_eq!(cost(&line), "0.14 USD, 2 EUR");
        assert_eq!(cost(&json!({})), "");
    }
}
