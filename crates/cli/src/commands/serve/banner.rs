//! What `gantry serve` says when it is ready: where the doors are, where the token is, and a first call to paste.

use std::path::Path;

use serde_json::json;

use crate::config::GantryConfig;
use crate::data_dir::RunningServer;
use crate::printer::{Printer, TextStyle};
use crate::shell_word::quoted;

/// The first call everybody makes.
const FIRST: &str = r#"{"tool_id":"calculator","parameters":{"expression":"sqrt(16) + 2^3"}}"#;

/// What there is to say.
pub(super) struct Banner<'a> {
    pub(super) running: &'a RunningServer,
    pub(super) data_dir: &'a Path,
    pub(super) tools: usize,
    pub(super) builtin: usize,
    pub(super) config: &'a GantryConfig,
}

impl Banner<'_> {
    /// To stderr for people; one document on stdout with `--json`. Warnings go to stderr either way.
    pub(super) fn show(&self, printer: &Printer) {
        let token_file = self.data_dir.join("admin.token");
        if printer.is_json() {
            let document = json!({
                "url": self.running.url, "mcp": format!("{}/mcp", self.running.url), "pid": self.running.pid, "version": self.running.version,
                "data_dir": self.data_dir, "admin_token_file": token_file, "tools": self.tools,
            });
            printer.answer(&document, |_| String::new());
        } else if super::worker::is_worker_only(self.config) {
            printer.note(&super::worker::greeting(printer, self.running, self.data_dir, self.config));
        } else {
            printer.note(&self.text(printer, &token_file));
        }
        if !self.config.server.listen.ip().is_loopback() && self.config.server.tls.is_none() {
            printer.warn("tokens cross the network in the clear (--insecure-plaintext): put a TLS proxy in front");
        }
        if self.config.process.unsandboxed {
            printer.warn(
                "process tools run without the sandbox, with the rights of this server (--unsandboxed-processes); sessions, \
                 limits, declared hosts and credentials are refused",
            );
        }
    }

    fn text(&self, printer: &Printer, token_file: &Path) -> String {
        let (url, dim) = (&self.running.url, |text: &str| printer.on_stderr(text, TextStyle::Dim));
        let title = printer.on_stderr(&format!("Gantry {} is ready", self.running.version), TextStyle::Bold);
        let elsewhere = if self.data_dir == Path::new(".gantry") {
            String::new()
        } else {
            format!(" --data-dir {}", quoted(&self.data_dir.display().to_string()))
        };
        // What curl would have to trust depends on who signed the certificate.
        let curl = if self.config.server.tls.is_some() {
            String::new()
        } else {
            let token = quoted(&token_file.display().to_string());
            format!(
                "  curl -s {url}/v1/tools/invoke -H \"Authorization: Bearer $(cat {token})\" -H 'Content-Type: application/json' -d '{FIRST}'\n"
            )
        };
        format!(
            "{title}\n  {rest}  {url}/v1\n  {mcp}  {url}/mcp  (connect a client: gantry mcp install --client claude{elsewhere})\n  {docs}  {url}/docs\n  {data}  {data_dir}\n  {token}  {token_file}\n  {tools}  {count} ({builtin} built in)\n\n\
             Try it:\n  gantry call{elsewhere} calculator expression='sqrt(16) + 2^3'\n{curl}",
            rest = dim("REST "),
            mcp = dim("MCP  "),
            docs = dim("docs "),
            data = dim("data "),
            token = dim("token"),
            tools = dim("tools"),
            data_dir = self.data_dir.display(),
            token_file = token_file.display(),
            count = self.tools,
            builtin = self.builtin,
        )
    }
}
