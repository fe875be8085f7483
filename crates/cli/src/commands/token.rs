//! `gantry token …`: make tokens, hand them on, make them void, and look into them.

use clap::Subcommand;

use super::Outcome;
use crate::context::Context;
use crate::failure::Failure;

mod delegate;
mod inspect;
mod mint;
mod revoke;
mod rights;

/// Make tokens, hand them on, make them void, and look into them
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    Mint(mint::Mint),
    Delegate(delegate::Delegate),
    Revoke(revoke::Revoke),
    Inspect(inspect::Inspect),
}

impl Token {
    pub(crate) async fn run(self, context: &Context) -> Result<Outcome, Failure> {
        match self {
            Self::Mint(command) => command.run(context).await?,
            Self::Delegate(command) => command.run(context).await?,
            Self::Revoke(command) => command.run(context).await?,
            Self::Inspect(command) => return command.run(context),
        }
        Ok(Outcome::Done)
    }
}
