//! `gantry worker`: a process that only does jobs, under a name of its own: `gantry serve --worker-only`.
//!
//! Needs a store that several processes can write. The embedded one has one writer, and a worker on it is refused with what
//! to do: beside a server it would wait for a lock that is never free, and alone it would do the jobs of nobody.

use clap::Args;

use super::CommandOutcome;
use super::serve::ServeCommand;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

/// Do jobs in a process of its own (needs a store that several processes can write)
///
/// The same as `gantry serve --worker-only`.
#[derive(Debug, Args)]
// It is one without saying so.
#[command(mut_arg("worker_only", |arg| arg.hide(true)))]
pub(crate) struct WorkerLinkCommand {
    #[command(flatten)]
    serve: ServeCommand,
}

impl WorkerLinkCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        Box::pin(self.serve.into_worker().run(context)).await
    }
}
