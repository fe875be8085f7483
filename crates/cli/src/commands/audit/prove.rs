//! `gantry audit prove`: a record with the proof that it is in the log.

use std::path::PathBuf;

use clap::Args;

use super::{dir, unreadable};
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Print the proof that a record is in the log, as JSON
///
/// gantry audit prove 7c9d01…-41 > proof.json
///
/// Whoever has the public key checks it with `gantry audit verify --proof proof.json --key …`.
#[derive(Debug, Args)]
pub(crate) struct AuditProveCommand {
    /// The record's id
    id: String,
    /// The directory of the log [default: that of the configuration]
    #[arg(long)]
    dir: Option<PathBuf>,
}

impl AuditProveCommand {
    pub(crate) fn run(self, context: &CommandContext) -> Result<(), CommandFailure> {
        let dir = dir(context, self.dir)?;
        audit::records_in(&dir).map_err(|error| unreadable(&dir, &error))?;
        let proof = audit::prove_in(&dir, &self.id).map_err(|error| unreadable(&dir, &error))?;
        let proof = proof.ok_or_else(|| {
            CommandFailure::new(format!("no checkpoint covers a record `{}`", self.id.escape_debug()))
                .hint("`gantry audit tail` shows ids; a new record is covered within half a minute")
        })?;
        let document = serde_json::to_value(&proof).map_err(|error| CommandFailure::new(error.to_string()))?;
        context.printer.answer(&document, |_| crate::printer::pretty(&document));
        Ok(())
    }
}
