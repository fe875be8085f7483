//! `gantry tool add`: register a manifest with a running server. Checked here first, so that an author without a server
//! still learns every reason.

use std::path::PathBuf;

use clap::Args;
use contract::manifest::{Execution, Manifest};
use serde_json::Value;

use crate::context::Context;
use crate::failure::Failure;
use crate::manifest_file;

/// Register a tool: a manifest file, a tool folder, or - for stdin
#[derive(Debug, Args)]
pub(crate) struct Add {
    /// tool.toml, tool.json or tool.yaml, a folder with one, or - for stdin
    #[arg(value_name = "PATH|-")]
    path: PathBuf,
    /// Only check the manifest; register nothing and ask no server
    #[arg(long)]
    check: bool,
}

impl Add {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        let manifest = if self.path.as_os_str() == "-" {
            manifest_file::read_stream("stdin", std::io::stdin().lock())?
        } else {
            manifest_file::read(&self.path)?
        };
        let id = manifest.id().map_err(|error| Failure::new(error.to_string()))?;
        let document = serde_json::to_value(&manifest).unwrap_or_default();
        if self.check {
            let text = format!("{id} {} is admissible", manifest.version);
            context.printer.answer(&document, |_| text);
            return Ok(());
        }
        let answer = context.client()?.post("/v1/tools/register", &document).await?;
        let created = answer.get("created").and_then(Value::as_bool).unwrap_or_default();
        context.printer.answer(&answer, |_| {
            let what = if created { "registered" } else { "was registered before with the same content" };
            format!("{id} {} {what}", manifest.version)
        });
        for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            context.printer.warn(warning);
        }
        if let Some(advice) = about_its_folder(&manifest) {
            context.printer.note(&advice);
        }
        Ok(())
    }
}

/// A process tool needs its folder where the server is; registering the manifest alone does not bring it there.
fn about_its_folder(manifest: &Manifest) -> Option<String> {
    match &manifest.execution {
        Some(Execution::Process { .. } | Execution::Wasm { .. }) => Some(
            "note: this tool runs a program from its folder. The server finds the folder only if it was started with --tools \
             DIR (or `[tools] dirs`) pointing at it or at its parent; until then calls answer E3108."
                .to_owned(),
        ),
        _ => None,
    }
}
