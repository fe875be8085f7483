//! One call of a tool, as `gantry tool logs` and `gantry tool dev` show it: a line about it, and what its program wrote in a
//! frame, because that is in a stranger's words.

use contract::ids::ToolId;
use kernel::LoggedCall;
use serde::{Deserialize, Serialize};

use crate::printer::{Printer, TextStyle, visible};

/// A call, with the members that the REST route gives.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CallLine {
    /// Where calls of several tools are shown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tool_id: Option<String>,
    invocation_id: String,
    ended_at: String,
    version: String,
    agent_id: String,
    duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    code: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    stderr: Option<String>,
}

impl CallLine {
    pub(crate) fn of(tool: &ToolId, call: &LoggedCall) -> Self {
        Self {
            tool_id: Some(tool.to_string()),
            invocation_id: call.invocation_id.to_string(),
            ended_at: call.at.to_string(),
            version: call.version.to_string(),
            agent_id: call.subject.to_string(),
            duration_ms: call.duration_ms,
            code: call.code.map(|code| code.to_string()),
            message: call.message.clone(),
            exit_code: call.exit_code,
            stderr: call.log.clone(),
        }
    }

    /// For people.
    pub(crate) fn text(&self, printer: &Printer) -> String {
        let Self { invocation_id, ended_at, version, agent_id, duration_ms, .. } = self;
        let state = match &self.code {
            None => printer.style("ok", TextStyle::Green),
            Some(code) => printer.style(&visible(code), TextStyle::Red),
        };
        let exit = self.exit_code.filter(|_| self.code.is_some());
        let exit = exit.map(|code| format!("  exit code {code}")).unwrap_or_default();
        let tool = self.tool_id.as_ref().map(|id| format!("{} ", visible(id))).unwrap_or_default();
        let head = format!(
            "{ended_at}  {tool}{version}  {state}{exit}  {duration_ms} ms  {invocation_id}  by {}",
            visible(agent_id)
        );
        let mut lines = vec![head];
        lines.extend(self.message.as_ref().map(|message| format!("  {}", visible(message))));
        match &self.stderr {
            None => lines.push("  what it wrote is not shown: a policy masks parts of what this tool says".to_owned()),
            Some(stderr) => {
                let frame = printer.style("│", TextStyle::Dim);
                lines.extend(stderr.lines().map(|line| format!("  {frame} {}", visible(line))));
            }
        }
        lines.join("\n")
    }
}
