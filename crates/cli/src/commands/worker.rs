//! `gantry worker`: a process that only does jobs, under a name of its own: `gantry serve --worker-only`.
//!
//! Needs a store that several processes can write. The embedded one has one writer, and a worker beside a server on it is
//! refused with what to do, instead of waiting for a lock that is never free.

use clap::Args;

use super::Outcome;
use super::serve::Serve;
use crate::context::Context;
use crate::failure::Failure;

/// Do jobs in a process of its own (needs a store that several processes can write)
///
/// The same as `gantry serve --worker-only`.
#[derive(Debug, Args)]
pub(crate) struct Worker {
    #[command(flatten)]
    serve: Serve,
}

impl Worker {
    pub(crate) async fn run(self, context: &Context) -> Result<Outcome, Failure> {
        self.serve.into_worker().run(context).await
    }
}
