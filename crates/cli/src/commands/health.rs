//! `gantry health`: how a running server and everything it depends on are. (OPS-009)
//!
//! Made for people, for scripts and for the health check of a container, which has no other program to ask with: the exit
//! code is 0 only if all is well, or with `--required` if all is well that calls cannot do without.

use clap::Args;
use serde_json::Value;

use super::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::visible;

/// Ask a running server how it and each of its dependencies are (exit code 1 if not well)
#[derive(Debug, Args)]
pub(crate) struct HealthCommand {
    /// Only what calls cannot do without decides the exit code
    #[arg(long)]
    required: bool,
}

impl HealthCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let answer = context.client()?.health().await?;
        let says = |key: &str| answer.get(key).and_then(Value::as_bool);
        let well = says("healthy") == Some(true) && (self.required || says("degraded") == Some(false));
        context.printer.answer(&answer, |printer| {
            let checks = answer.get("checks").and_then(Value::as_object).into_iter().flatten();
            printer.table(["dependency", "state", "detail"], checks.map(|(name, check)| row(name, check)))
        });
        if says("degraded").is_none() {
            context.printer.note(
                "the server tells how its dependencies are only to those who may read its metrics: show a token of the home \
                 tenant with the role admin, operator or auditor, or ask with --required",
            );
        }
        Ok(if well { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }
}

/// OK, or by how much it hurts: WARNING if calls go on, CRITICAL if none can, or if an MCP server does not run.
fn row(name: &str, check: &Value) -> [String; 3] {
    let says = |key: &str| check.get(key).and_then(Value::as_bool).unwrap_or(false);
    let is_critical = says("required") || check.get("severity").and_then(Value::as_str) == Some("critical");
    let state = match (says("healthy"), is_critical) {
        (true, _) => "OK",
        (false, false) => "WARNING",
        (false, true) => "CRITICAL",
    };
    let detail = check.get("detail").and_then(Value::as_str).unwrap_or_default();
    [visible(name).into_owned(), state.to_owned(), visible(detail).into_owned()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_dependency_that_is_required_hurts_more() {
        let state = |healthy: bool, required: bool| {
            row("store", &json!({ "healthy": healthy, "required": required, "detail": "x" })).into_iter().nth(1)
        };
        assert_eq!(state(true, true).as_deref(), Some("OK"));
        assert_eq!(state(false, false).as_deref(), Some("WARNING"));
        assert_eq!(state(false, true).as_deref(), Some("CRITICAL"));
    }
}
