//! `gantry tool search`: find a tool by what it does.

use clap::Args;
use serde_json::Value;

use super::list::in_short;
use crate::catalogue;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Search tools by what they do
#[derive(Debug, Args)]
pub(crate) struct ToolSearchCommand {
    /// What the tool should do, in plain words
    #[arg(required = true, value_name = "WORDS")]
    words: Vec<String>,
    /// How many hits
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u8).range(1..=100))]
    limit: u8,
}

impl ToolSearchCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let answer = catalogue::search(context, &self.words.join(" "), self.limit.into()).await?;
        context.printer.answer(&answer, |printer| {
            let hits: Vec<&Value> = answer.get("results").and_then(Value::as_array).into_iter().flatten().collect();
            if hits.is_empty() {
                return "nothing found; `gantry tool list` shows everything".to_owned();
            }
            printer.table(["TOOL", "VERSION", "SCORE", "DESCRIPTION"], hits.into_iter().map(row))
        });
        Ok(())
    }
}

fn row(hit: &Value) -> [String; 4] {
    let text = |name: &str| in_short(hit.get(name).and_then(Value::as_str).unwrap_or_default());
    let score = hit.get("score").and_then(Value::as_f64).unwrap_or_default();
    [text("tool_id"), text("current_version"), format!("{score:.2}"), text("description")]
}
