//! `gantry import …`: taking over what people already have.

use clap::Subcommand;

use super::Outcome;
use crate::context::Context;
use crate::failure::Failure;

pub(super) mod bringing_in;
pub(super) mod existing;
mod machine;
mod mcp;
mod nobody;
pub(crate) mod package_step;
mod plan;
pub(super) mod trial;

pub(super) use machine::ThisMachine;

/// Take over what another program is configured with
#[derive(Debug, Subcommand)]
pub(crate) enum Import {
    Mcp(mcp::ImportMcp),
}

impl Import {
    pub(crate) async fn run(self, context: &Context) -> Result<Outcome, Failure> {
        match self {
            Self::Mcp(command) => command.run(context).await,
        }
    }
}
