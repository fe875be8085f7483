//! `gantry tool logs`: what the program of a tool wrote to stderr in its last calls.

use clap::Args;
use kernel::LOGGED_CALLS_MAX;
use serde::Deserialize as _;
use serde_json::Value;

use super::call_line::CallLine;
use crate::client::segment;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::printer::Printer;

/// Show what a tool wrote to stderr in its last calls, the newest at the end
///
/// Calls of the own tenant that ran on this server since it started. For administrators and operators.
#[derive(Debug, Args)]
pub(crate) struct ToolLogsCommand {
    /// `namespace.tool_id`, `tool_id`, or an alias
    #[arg(value_name = "TOOL")]
    tool: String,
    /// How many calls
    #[arg(long, short = 'n', default_value_t = 10, value_parser = clap::value_parser!(u16).range(1..=LOGGED_CALLS_MAX as i64))]
    limit: u16,
}

impl ToolLogsCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let path = format!("/v1/tools/{}/logs?limit={}", segment(&self.tool), self.limit);
        let answer = context.client()?.get(&path).await?;
        context.printer.answer(&answer, |printer| page(printer, &answer));
        Ok(())
    }
}

fn page(printer: &Printer, answer: &Value) -> String {
    let calls = answer.get("calls").and_then(Value::as_array).into_iter().flatten();
    let lines: Vec<String> =
        calls.filter_map(|call| CallLine::deserialize(call).ok()).map(|call| call.text(printer)).collect();
    if lines.is_empty() {
        return "no calls are kept: those of tools that are programs are, of the own tenant, since the server started"
            .to_owned();
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::printer::PrinterOptions;

    #[test]
    fn calls_are_told_with_what_was_written_in_a_frame() {
        let printer = Printer::new(PrinterOptions { no_color: true, ..PrinterOptions::default() });
        let answer = json!({ "calls": [
            { "invocation_id": "a", "ended_at": "then", "version": "1.0.0", "agent_id": "admin", "duration_ms": 3,
              "exit_code": 0, "stderr": "" },
            { "invocation_id": "b", "ended_at": "now", "version": "1.0.0", "agent_id": "admin", "duration_ms": 4,
              "exit_code": 1, "code": "E3401", "message": "it failed", "stderr": "one\n\u{1b}two\n" },
            { "invocation_id": "c", "ended_at": "now", "version": "1.0.0", "agent_id": "x", "duration_ms": 4, "stderr": null },
        ] });
        let text = page(&printer, &answer);
        assert!(text.starts_with("then  1.0.0  ok  3 ms  a  by admin\nnow  1.0.0  E3401  exit code 1  4 ms"), "{text}");
        assert!(text.contains("  it failed\n  │ one\n  │ \u{fffd}two\n"), "{text}");
        assert!(text.ends_with("masks parts of what this tool says"), "{text}");
        assert!(page(&printer, &json!({ "calls": [] })).contains("no calls"));
    }
}
