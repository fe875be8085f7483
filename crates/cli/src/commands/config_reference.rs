//! `gantry config-reference` (hidden): the page `docs/configuration.md` and the schema of the file, from the keys themselves.

use clap::Args;

use crate::config::{reference, schema};
use crate::context::CommandContext;

/// Print the reference page of the configuration
#[derive(Debug, Args)]
pub(crate) struct ConfigReference {
    /// Print the JSON Schema of the file instead
    #[arg(long)]
    schema: bool,
}

impl ConfigReference {
    pub(crate) fn run(self, context: &CommandContext) {
        context.printer.raw(&if self.schema { format!("{:#}\n", schema::document()) } else { reference::page() });
    }
}
