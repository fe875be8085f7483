//! `gantry policy check`: can these policies be put in force? Never needs a server.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use crate::commands::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::policy_files::{PlacedFinding, PolicyText};
use crate::printer::{TextStyle, visible};

/// Check policies as a server would: every problem with file, line and column
///
/// Files are read together, as one set. Exit code 1 if they cannot be put in force.
#[derive(Debug, Args)]
pub(crate) struct PolicyCheckCommand {
    /// A .cedar file, or a folder of them (repeatable)
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

impl PolicyCheckCommand {
    pub(crate) fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let text = PolicyText::read(&self.files)?;
        let (names, problems, warnings) = match text.compile() {
            Ok(policies) => {
                let warnings = policies.warnings().iter().map(|warning| text.place(warning)).collect();
                (policies.names().to_vec(), Vec::new(), warnings)
            }
            Err(problems) => (Vec::new(), problems, Vec::new()),
        };
        let list = |found: &[PlacedFinding]| found.iter().map(PlacedFinding::to_json).collect::<Vec<Value>>();
        let usable = problems.is_empty();
        let document = json!({
            "usable": usable, "policies": names, "problems": list(&problems), "warnings": list(&warnings),
        });
        context.printer.answer(&document, |printer| {
            let lines = problems.iter().map(|problem| (printer.style("error", TextStyle::Red), problem));
            let lines =
                lines.chain(warnings.iter().map(|warning| (printer.style("warning", TextStyle::Yellow), warning)));
            let mut lines: Vec<String> =
                lines.map(|(kind, found)| format!("{kind}: {}", visible(&found.to_string()))).collect();
            lines.push(match problems.len() {
                0 => format!("{} policies, all usable", names.len()),
                1 => "1 problem: these policies cannot be put in force".to_owned(),
                many => format!("{many} problems: these policies cannot be put in force"),
            });
            lines.join("\n")
        });
        Ok(if usable { CommandOutcome::Done } else { CommandOutcome::Unfit })
    }
}
