//! `gantry tool …`: make, register, look at and retire tools. One file per verb.

use clap::Subcommand;

use super::Outcome;
use crate::context::Context;
use crate::failure::Failure;

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
pub(crate) enum Tool {
    Add(add::Add),
    New(new::New),
    Dev(dev::Dev),
    Build(build::Build),
    List(list::List),
    Show(show::Show),
    Logs(logs::Logs),
    Search(search::Search),
    Diff(diff::Diff),
    Classify(classify::Classify),
    Scan(scan::Scan),
    Deprecate(lifecycle::Deprecate),
    Sunset(lifecycle::Sunset),
    Restore(lifecycle::Restore),
    Remove(lifecycle::Remove),
    Quarantine(quarantine::Quarantine),
    Release(quarantine::Release),
}

impl Tool {
    pub(crate) async fn run(self, context: &Context) -> Result<Outcome, Failure> {
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
        Ok(Outcome::Done)
    }
}
