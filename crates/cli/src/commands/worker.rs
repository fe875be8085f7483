//! `gantry worker`: a process that only does jobs. Needs a store that several processes can write.
//!
//! The embedded store has one writer, so there is nothing for a second process to do: the server does its jobs itself. The
//! command is there to say so, instead of waiting for a lock that is never free.

use clap::Args;

use crate::context::Context;
use crate::failure::Failure;

/// Do jobs in a process of its own (needs a store that several processes can write)
#[derive(Debug, Args)]
pub(crate) struct Worker {}

impl Worker {
    #[expect(clippy::unused_self, reason = "commands are run as values")]
    pub(crate) fn run(self, context: &Context) -> Result<(), Failure> {
        context.config(Vec::new())?;
        Err(Failure::new("a worker of its own cannot share the SQLite store: only one process may write it")
            .hint("`gantry serve` does the jobs itself, as many at once as `[jobs] concurrency` says"))
    }
}
