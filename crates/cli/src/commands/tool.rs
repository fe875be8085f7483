//! `gantry tool …`: make, register, look at and retire tools. One file per verb.

use clap::Subcommand;

use super::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

mod add;
mod build;
mod call_line;
mod classify;
mod dev;
mod diff;
mod lifecycle;
mod list;
mod logs;
mod new;
mod quarantine;
mod scan;
mod search;
mod show;

pub(crate) use call_line::CallLine;

/// Make, register, look at and retire tools
#[derive(Debug, Subcommand)]
pub(crate) enum ToolCommand {
    Add(add::ToolAddCommand),
    New(new::ToolNewCommand),
    Dev(dev::ToolDevCommand),
    Build(build::ToolBuildCommand),
    List(list::ToolListCommand),
    Show(show::ToolShowCommand),
    Logs(logs::ToolLogsCommand),
    Search(search::ToolSearchCommand),
    Diff(diff::ToolDiffCommand),
    Classify(classify::ToolClassifyCommand),
    Scan(scan::ToolScanCommand),
    Deprecate(lifecycle::ToolDeprecateCommand),
    Sunset(lifecycle::ToolSunsetCommand),
    Restore(lifecycle::ToolRestoreCommand),
    Remove(lifecycle::ToolRemoveCommand),
    Quarantine(quarantine::QuarantineCommand),
    Release(quarantine::ToolReleaseCommand),
}

impl ToolCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::Scan(command) => return command.run(context).await,
            Self::Dev(command) => return command.run(context).await,
            Self::Add(command) => command.run(context).await?,
            Self::Build(command) => command.run(context).await?,
            Self::New(command) => command.run(context)?,
            Self::List(command) => command.run(context).await?,
            Self::Show(command) => command.run(context).await?,
            Self::Logs(command) => command.run(context).await?,
            Self::Search(command) => command.run(context).await?,
            Self::Diff(command) => command.run(context).await?,
            Self::Classify(command) => command.run(context).await?,
            Self::Deprecate(command) => command.run(context).await?,
            Self::Sunset(command) => command.run(context).await?,
            Self::Restore(command) => command.run(context).await?,
            Self::Remove(command) => command.run(context).await?,
            Self::Quarantine(command) => command.run(context).await?,
            Self::Release(command) => command.run(context).await?,
        }
        Ok(CommandOutcome::Done)
    }
}
