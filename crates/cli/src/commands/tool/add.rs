//! `gantry tool add`: register a tool with a running server. Checked here first, so that an author without a server still
//! learns every reason. A tool that runs what is in its folder is copied to where the server keeps such folders.

use std::path::{Path, PathBuf};

use clap::Args;
use contract::ids::ToolId;
use contract::manifest::{Execution, Manifest};
use serde_json::{Value, json};

use crate::client::ClientError;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::manifest_file;
use crate::package_cache::tool_packages;
use crate::tool_folders::kept_copy::{self, KeepOutcome};

/// Has the server look at its folders of tools.
const LOAD: &str = "/v1/admin/tool-folders/load";

/// Of a kept folder that was changed.
const PUT_BACK: &str = "what the server keeps of it had been changed; it is again what was added";

/// Register a tool: a manifest file, a tool folder, or - for stdin
///
/// A folder with a program is copied into the data directory and stays registered there, also after a restart.
#[derive(Debug, Args)]
pub(crate) struct ToolAddCommand {
    /// tool.toml, tool.json or tool.yaml, a folder with one, or - for stdin
    #[arg(value_name = "PATH|-")]
    path: PathBuf,
    /// Only check the manifest; register nothing and ask no server
    #[arg(long)]
    check: bool,
}

impl ToolAddCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let is_stream = self.path.as_os_str() == "-";
        let manifest = if is_stream {
            manifest_file::read_stream("stdin", std::io::stdin().lock())?
        } else {
            manifest_file::read(&self.path)?
        };
        let id = manifest.id().map_err(|error| CommandFailure::new(error.to_string()))?;
        let document = serde_json::to_value(&manifest).unwrap_or_default();
        if self.check {
            let text = format!("{id} {} is admissible", manifest.version);
            context.printer.answer(&document, |_| text);
            return Ok(());
        }
        if !is_stream && runs_from_its_folder(&manifest) {
            let folder = if self.path.is_dir() { self.path.as_path() } else { parent(&self.path) };
            component_is_there(folder, &manifest)?;
            if let Some(warning) = tool_packages::unbuilt_warning(folder) {
                context.printer.warn(&warning);
            }
            return add_folder(context, folder, &id, &manifest).await;
        }
        let answer = context.client()?.post("/v1/tools/register", &document).await?;
        let created = answer.get("created").and_then(Value::as_bool).unwrap_or_default();
        context.printer.answer(&answer, |_| said(&id, &manifest, created));
        for warning in answer.get("warnings").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
        {
            context.printer.warn(warning);
        }
        Ok(())
    }
}

fn said(id: &ToolId, manifest: &Manifest, created: bool) -> String {
    let what = if created { "registered" } else { "was registered before with the same content" };
    format!("{id} {} {what}", manifest.version)
}

pub(super) fn runs_from_its_folder(manifest: &Manifest) -> bool {
    matches!(manifest.execution, Some(Execution::Process { .. } | Execution::Wasm { .. } | Execution::Oci { .. }))
}

/// A component is made from its source, and a folder that was just made has none.
fn component_is_there(folder: &Path, manifest: &Manifest) -> Result<(), CommandFailure> {
    let Some(Execution::Wasm { component, .. }) = &manifest.execution else { return Ok(()) };
    if folder.join(component).is_file() {
        return Ok(());
    }
    Err(CommandFailure::new(format!("`{component}`, which the manifest names as the component, is not in the folder"))
        .hint("build it first; the folder that `gantry tool new --template rust` makes has a build.sh for it"))
}

/// Of a file in the current folder that is the current folder.
fn parent(file: &Path) -> &Path {
    file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."))
}

/// Copies the folder to where the server keeps such, and has the server look there.
async fn add_folder(
    context: &CommandContext,
    folder: &Path,
    id: &ToolId,
    manifest: &Manifest,
) -> Result<(), CommandFailure> {
    let version = &manifest.version;
    let before = match context.client()?.post(LOAD, &json!({})).await {
        Err(ClientError::NotRunning { .. }) if context.may_go_offline() => {
            if kept_copy::keep(&context.data_dir(), folder, id, version)? == KeepOutcome::Restored {
                context.printer.note(PUT_BACK);
            }
            let document = json!({ "tool_id": id, "version": version, "created": false, "kept": true });
            let text = format!("{id} {version} is kept; no server runs, and the next one registers it when it starts");
            context.printer.answer(&document, |_| text);
            return Ok(());
        }
        answer => answer?,
    };
    let name = kept_copy::name(id, version);
    // A second folder for a version that runs already would keep both from being taken.
    if let Some(loaded) = loaded(&before, id, manifest).filter(|loaded| text(loaded, "folder") != name) {
        if text(loaded, "digest") == manifest.digest().to_string() {
            conclude(context, id, manifest, false);
            return Ok(());
        }
        return Err(CommandFailure::new(format!(
            "`{id}` {version} is registered from another folder, with another manifest"
        ))
        .hint("raise `version` in the manifest: what was published never changes"));
    }
    let url = context.server_url();
    if context.data_dir().running_server().is_none_or(|running| running.url != url) {
        return Err(CommandFailure::new(format!("the server at {url} does not run on this data directory"))
            .hint("the folder has to be where the server is: run this there, or start the server with --tools DIR"));
    }
    let kept = kept_copy::keep(&context.data_dir(), folder, id, version)?;
    if kept == KeepOutcome::Restored {
        context.printer.note(PUT_BACK);
    }
    let after = context.client()?.post(LOAD, &json!({})).await?;
    let problem = members(&after, "problems").find(|problem| text(problem, "folder") == name);
    let why = match (loaded(&after, id, manifest), problem) {
        (Some(_), None) => {
            conclude(context, id, manifest, matches!(kept, KeepOutcome::New(_)));
            return Ok(());
        }
        (_, Some(problem)) => text(problem, "message").to_owned(),
        (None, None) => "the server does not see the folder".to_owned(),
    };
    if let KeepOutcome::New(place) = &kept {
        kept_copy::take_back(place);
        context.client()?.post(LOAD, &json!({})).await?;
    }
    Err(CommandFailure::new(why).hint("nothing was registered"))
}

fn conclude(context: &CommandContext, id: &ToolId, manifest: &Manifest, created: bool) {
    let document = json!({ "tool_id": id, "version": manifest.version, "created": created });
    context.printer.answer(&document, |_| said(id, manifest, created));
}

/// The folder from which the server runs this version, if it does.
fn loaded<'a>(report: &'a Value, id: &ToolId, manifest: &Manifest) -> Option<&'a Value> {
    let version = manifest.version.to_string();
    members(report, "loaded").find(|it| text(it, "tool_id") == id.as_str() && text(it, "version") == version)
}

fn members<'a>(report: &'a Value, name: &str) -> impl Iterator<Item = &'a Value> {
    report.get(name).and_then(Value::as_array).into_iter().flatten()
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}
