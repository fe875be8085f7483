//! `gantry policy …`: write, try, put in force and ask about policies. (AUTH-006…008)
//!
//! `check` and `test` need no server; the others ask one.

use clap::Subcommand;

use super::Outcome;
use crate::context::Context;
use crate::failure::Failure;

mod apply;
mod check;
mod explain;
mod show;
mod test;

/// Check, test, show and apply policies, and ask why a call is refused
#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    Check(check::Check),
    Test(test::Test),
    Show(show::Show),
    Apply(apply::Apply),
    History(show::History),
    Explain(explain::Explain),
}

impl Policy {
    pub(crate) async fn run(self, context: &Context) -> Result<Outcome, Failure> {
        match self {
            Self::Check(command) => return command.run(context),
            Self::Test(command) => return command.run(context),
            Self::Explain(command) => return command.run(context).await,
            Self::Show(command) => command.run(context).await?,
            Self::Apply(command) => command.run(context).await?,
            Self::History(command) => command.run(context).await?,
        }
        Ok(Outcome::Done)
    }
}
