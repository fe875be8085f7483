//! `gantry policy …`: write, try, put in force and ask about policies. (AUTH-006…008)
//!
//! `check` and `test` need no server; the others ask one.

use clap::Subcommand;

use super::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

mod apply;
mod check;
mod explain;
mod show;
mod test;

/// Check, test, show and apply policies, and ask why a call is refused
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    Check(check::PolicyCheckCommand),
    Test(test::PolicyTestCommand),
    Show(show::PolicyShowCommand),
    Apply(apply::PolicyApplyCommand),
    History(show::PolicyHistoryCommand),
    Explain(explain::PolicyExplainCommand),
}

impl PolicyCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::Check(command) => return command.run(context),
            Self::Test(command) => return command.run(context),
            Self::Explain(command) => return command.run(context).await,
            Self::Show(command) => command.run(context).await?,
            Self::Apply(command) => command.run(context).await?,
            Self::History(command) => command.run(context).await?,
        }
        Ok(CommandOutcome::Done)
    }
}
