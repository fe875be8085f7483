//! `gantry tool deprecate | sunset | restore | remove`: the life of a version after publication. (REG-009…011)

use clap::Args;
use serde_json::{Value, json};

use crate::client::segment;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::tool_reference::ToolReference;

/// Deprecate a version, or every version of a tool: still served, with a notice and an end date
#[derive(Debug, Args)]
pub(crate) struct ToolDeprecateCommand {
    /// `id`, or `id@version`
    tool: ToolReference,
    /// The tool to use instead
    #[arg(long, value_name = "ID")]
    successor: Option<String>,
    /// Where people read how to move
    #[arg(long, value_name = "URL")]
    guide: Option<String>,
}

/// Sunset a version now: only exact pins are served
#[derive(Debug, Args)]
pub(crate) struct ToolSunsetCommand {
    /// `id`, or `id@version`
    tool: ToolReference,
}

/// Make a deprecated or sunset version active again
#[derive(Debug, Args)]
pub(crate) struct ToolRestoreCommand {
    /// `id`, or `id@version`
    tool: ToolReference,
}

/// Remove a version for good: not served any more, never to come back under the same number
#[derive(Debug, Args)]
pub(crate) struct ToolRemoveCommand {
    /// `id`, or `id@version`
    tool: ToolReference,
    /// Do not ask
    #[arg(long, short)]
    yes: bool,
}

impl ToolDeprecateCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let advice = [("replacement_tool_id", self.successor), ("migration_guide_url", self.guide)];
        change(context, &self.tool, "deprecate", advice).await
    }
}

impl ToolSunsetCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        change(context, &self.tool, "sunset", []).await
    }
}

impl ToolRestoreCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        change(context, &self.tool, "restore", []).await
    }
}

impl ToolRemoveCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        if !self.yes {
            let what = match &self.tool.version {
                Some(version) => format!("{} {version}", self.tool.tool),
                None => format!("every version of {}", self.tool.tool),
            };
            if !context.printer.can_ask() {
                return Err(CommandFailure::usage(format!(
                    "removing {what} cannot be undone, and nobody can be asked"
                ))
                .hint("add --yes if you mean it"));
            }
            if !context.printer.confirm(&format!("Remove {what}? It cannot be undone.")) {
                return Err(CommandFailure::new("nothing was removed"));
            }
        }
        change(context, &self.tool, "remove", []).await
    }
}

async fn change<const N: usize>(
    context: &CommandContext,
    tool: &ToolReference,
    act: &str,
    advice: [(&str, Option<String>); N],
) -> Result<(), CommandFailure> {
    let mut body = json!({});
    if let Some(members) = body.as_object_mut() {
        let given = advice.into_iter().chain([("version", tool.version.clone())]);
        members.extend(given.filter_map(|(name, value)| Some((name.to_owned(), Value::String(value?)))));
    }
    let answer = context.client()?.post(&format!("/v1/tools/{}/{act}", segment(&tool.tool)), &body).await?;
    context.printer.answer(&answer, |printer| {
        let versions = answer.get("versions").and_then(Value::as_array).into_iter().flatten();
        printer.table(
            ["TOOL", "VERSION", "STATE", "SUNSET", "REMOVAL"],
            versions.map(|version| {
                let text =
                    |pointer: &str| version.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
                let id = answer.get("tool_id").and_then(Value::as_str).unwrap_or_default().to_owned();
                [
                    id,
                    text("/version"),
                    text("/lifecycle_state"),
                    text("/deprecation/sunset_at"),
                    text("/deprecation/removal_at"),
                ]
            }),
        )
    });
    Ok(())
}
