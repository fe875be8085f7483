//! `gantry token …`: make tokens, hand them on, make them void, and look into them.

use clap::Subcommand;

use super::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

mod delegate;
mod inspect;
mod mint;
mod revoke;
mod rights;

/// Make tokens, hand them on, make them void, and look into them
#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    Mint(mint::TokenMintCommand),
    Delegate(delegate::TokenDelegateCommand),
    Revoke(revoke::TokenRevokeCommand),
    Inspect(inspect::TokenInspectCommand),
}

impl TokenCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::Mint(command) => command.run(context).await?,
            Self::Delegate(command) => command.run(context).await?,
            Self::Revoke(command) => command.run(context).await?,
            Self::Inspect(command) => return command.run(context),
        }
        Ok(CommandOutcome::Done)
    }
}
