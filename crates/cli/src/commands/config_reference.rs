//! `gantry config-reference` (hidden): the page `docs/configuration.md`, from the keys themselves.

use clap::Args;

use crate::config::reference;
use crate::context::CommandContext;

/// Print the reference page of the configuration
#[derive(Debug, Args)]
pub(crate) struct ConfigReference {}

impl ConfigReference {
    #[expect(clippy::unused_self, reason = "every command has the same shape")]
    pub(crate) fn run(self, context: &CommandContext) {
        context.printer.raw(&reference::page());
    }
}
