//! `gantry audit …`: looking after the audit log.

use clap::Subcommand;

use crate::context::Context;
use crate::failure::Failure;

mod sinks;

/// Look after the audit log
#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    Sinks(sinks::Sinks),
}

impl Audit {
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        match self {
            Self::Sinks(_) => sinks::Sinks::run(context),
        }
    }
}
