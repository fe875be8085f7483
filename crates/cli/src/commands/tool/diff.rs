//! `gantry tool diff`: would the new version break callers of the old one? Compared here; published versions are fetched.

use std::path::Path;

use clap::Args;
use contract::compat::{self, CompatReason, CompatVerdict, SchemaDirection};
use contract::manifest::Manifest;
use serde_json::{Value, json};

use crate::catalogue;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::manifest_file;
use crate::printer::TextStyle;
use crate::tool_reference::ToolReference;

/// Compare two versions: patch, minor or major, with every reason
///
/// gantry tool diff demo.word_stats@1.0.0 ./word_stats
#[derive(Debug, Args)]
pub(crate) struct ToolDiffCommand {
    /// The old one: a manifest file, a tool folder, or id@version
    old: String,
    /// The new one: a manifest file, a tool folder, or id@version
    new: String,
}

impl ToolDiffCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let (old, new) = (side(context, &self.old).await?, side(context, &self.new).await?);
        let parameters = compat::compare(&old.parameters, &new.parameters, SchemaDirection::Input);
        let result = compat::compare(&old.result_schema, &new.result_schema, SchemaDirection::Output);
        let verdict = parameters.verdict.max(result.verdict);
        let sides = [("parameters", &parameters.reasons), ("result_schema", &result.reasons)];
        let reasons: Vec<(&str, &CompatReason)> =
            sides.into_iter().flat_map(|(part, reasons)| reasons.iter().map(move |reason| (part, reason))).collect();
        let document = json!({
            "verdict": word(verdict),
            "old": { "tool_id": old.id().ok(), "version": old.version },
            "new": { "tool_id": new.id().ok(), "version": new.version },
            "reasons": reasons.iter().map(|(part, reason)| json!({
                "part": part, "path": reason.path, "verdict": word(reason.verdict), "message": reason.message,
            })).collect::<Vec<Value>>(),
        });
        context.printer.answer(&document, |printer| {
            let style = match verdict {
                CompatVerdict::Patch => TextStyle::Green,
                CompatVerdict::Minor => TextStyle::Yellow,
                CompatVerdict::Major => TextStyle::Red,
            };
            let mut text = format!("{}: {}", printer.style(word(verdict), style), meaning(verdict));
            if !reasons.is_empty() {
                let rows = reasons.iter().map(|(part, reason)| {
                    [word(reason.verdict).to_owned(), format!("/{part}{}", reason.path), reason.message.clone()]
                });
                text.push('\n');
                text.push_str(&printer.table(["CHANGE", "WHERE", "WHY"], rows));
            }
            text
        });
        Ok(())
    }
}

async fn side(context: &CommandContext, text: &str) -> Result<Manifest, CommandFailure> {
    let path = Path::new(text);
    if path.try_exists().unwrap_or_default() {
        return Ok(manifest_file::read(path)?);
    }
    let reference: ToolReference = text.parse().map_err(|error: crate::tool_reference::ToolReferenceError| {
        CommandFailure::usage(format!("`{text}` is neither a file nor a tool")).hint(error.to_string())
    })?;
    let mut answer = catalogue::show(context, &reference).await?;
    let manifest = answer.get_mut("manifest").map(Value::take).unwrap_or_default();
    serde_json::from_value(manifest).map_err(|_| {
        CommandFailure::new(format!("the manifest of `{text}` cannot be read"))
            .hint("is the server newer than this command?")
    })
}

fn word(verdict: CompatVerdict) -> &'static str {
    match verdict {
        CompatVerdict::Patch => "patch",
        CompatVerdict::Minor => "minor",
        CompatVerdict::Major => "major",
    }
}

fn meaning(verdict: CompatVerdict) -> &'static str {
    match verdict {
        CompatVerdict::Patch => "callers notice nothing",
        CompatVerdict::Minor => "callers of the old version keep working, and there is something new for them",
        CompatVerdict::Major => "callers of the old version may break",
    }
}
