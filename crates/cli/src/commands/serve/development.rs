//! A server for the development of one tool: what it says when it is ready, and each call with what the program wrote.
//! (`gantry tool dev`, decision 0106)

use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::ids::ToolId;
use kernel::Kernel;
use serde_json::{Map, Value, json};
use tokio::task::JoinHandle;

use crate::commands::tool::CallLine;
use crate::data_dir::RunningServer;
use crate::printer::{self, Printer, TextStyle};
use crate::shell_word::quoted;

/// Between the calls stands what was loaded and what is wrong, and nothing about the server itself.
pub(super) const LOG_LEVEL: &str = "warn,gantry::tool_folders=info";

/// What is developed.
#[derive(Debug, Clone)]
pub(crate) struct DevelopmentTool {
    pub(crate) tool: ToolId,
    pub(crate) folder: PathBuf,
    /// Parameters to try it with, if its manifest has some.
    pub(crate) example: Option<Value>,
}

impl DevelopmentTool {
    /// Says how to call it. With `--json` as one line, because the calls follow line by line.
    pub(super) fn greet(&self, printer: &Printer, running: &RunningServer, data_dir: &Path) {
        let (url, mcp) = (&running.url, format!("{}/mcp", running.url));
        let call = self.call(data_dir);
        if printer.is_json() {
            let token_file = data_dir.join("admin.token");
            let document = json!({ "tool_id": self.tool, "folder": self.folder, "url": url, "mcp": mcp, "pid": running.pid,
                "data_dir": data_dir, "admin_token_file": token_file, "call": call });
            printer::line(&document.to_string());
            return;
        }
        let dim = |text: &str| printer.on_stderr(text, TextStyle::Dim);
        let title =
            printer.on_stderr(&format!("{} is served from {}", self.tool, self.folder.display()), TextStyle::Bold);
        let mcp_label = dim("MCP ");
        let client = format!("gantry mcp --data-dir {}", quoted(&data_dir.display().to_string()));
        printer.note(&format!(
            "{title}\n  {call_label}  {call}\n  {mcp_label}  {mcp}  (over stdio: {client})\n  {docs}  {url}/docs\n\
             What is saved is used by the next call; no new version is needed. Each call is shown here. Ctrl-C ends it, and \
             everything it has kept.\n",
            call_label = dim("call"),
            docs = dim("docs"),
        ));
    }

    /// A first call to paste.
    fn call(&self, data_dir: &Path) -> String {
        let place = quoted(&data_dir.display().to_string());
        let example = self.example.clone().unwrap_or_else(|| Value::Object(Map::new()));
        let parameters = quoted(&example.to_string());
        format!("gantry call --data-dir {place} {} --params {parameters}", self.tool)
    }
}

/// Shows each call when it is over.
pub(super) fn show_calls(kernel: &Arc<Kernel>, printer: Printer) -> JoinHandle<()> {
    let kernel = Arc::clone(kernel);
    tokio::spawn(async move {
        let mut kept = kernel.watch_tool_logs();
        let mut shown = 0;
        // It ends with the kernel, which ends with the server.
        while kept.changed().await.is_ok() {
            for (number, tool, call) in kernel.tool_logs_after(shown) {
                shown = number;
                let line = CallLine::of(&tool, &call);
                if printer.is_json() {
                    printer::line(&serde_json::to_string(&line).unwrap_or_default());
                } else {
                    printer::line(&line.text(&printer));
                }
            }
        }
    })
}
