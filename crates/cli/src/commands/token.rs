//! `gantry token …`: make tokens, and look into them.

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

mod inspect;
mod mint;

/// Make tokens, and look into them
#[derive(Debug, Subcommand)]
pub(crate) enum Token {
    Mint(mint::Mint),
    Inspect(inspect::Inspect),
}

impl Token {
    pub(crate) async fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Mint(command) => command.run(context).await,
            Self::Inspect(command) => command.run(context),
        }
    }
}
