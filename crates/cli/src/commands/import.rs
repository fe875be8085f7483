//! `gantry import …`: taking over what people already have.

use clap::Subcommand;

use super::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

pub(super) mod existing_servers;
mod machine;
mod mcp;
mod nobody;
pub(crate) mod package_step;
mod plan;
pub(super) mod server_intake;
pub(super) mod trial;

pub(super) use machine::ThisMachine;

/// Take over what another program is configured with
#[derive(Debug, Subcommand)]
pub(crate) enum ImportCommand {
    Mcp(mcp::ImportMcp),
}

impl ImportCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::Mcp(command) => command.run(context).await,
        }
    }
}
