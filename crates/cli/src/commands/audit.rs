//! `gantry audit …`: look at the audit log, prove what is in it, and check that nobody touched it. (AUD-002, AUD-014)
//!
//! All of it reads files and needs no server. Only two write: `rotate-key` through the server if one runs, else in the files;
//! `set-aside` in the files of a server that has stopped.

use std::path::PathBuf;

use clap::Subcommand;

use super::CommandOutcome;
use crate::context::CommandContext;
use crate::failure::CommandFailure;

mod export;
mod prove;
mod rotate;
mod set_aside;
mod sinks;
mod tail;
mod verify;

/// Read, check, prove and export the audit log
#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    Tail(tail::AuditTailCommand),
    Verify(verify::AuditVerifyCommand),
    Prove(prove::AuditProveCommand),
    Export(export::AuditExportCommand),
    Sinks(sinks::AuditSinksCommand),
    /// Sign checkpoints with a new key from now on
    ///
    /// The log names the new key in a record that the former key signs, so that whoever trusts one can check the other.
    RotateKey,
    /// Move lines that the server did not write from the end of the log into a file of their own
    ///
    /// For a server that does not start because its audit log holds lines it has not written. They are kept as they are, in
    /// quarantine-NUMBER.jsonl beside the log, and never signed; a record of the log names that file and its SHA-256.
    SetAside,
}

impl AuditCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        match self {
            Self::Verify(command) => return command.run(context),
            Self::Tail(command) => command.run(context).await?,
            Self::Prove(command) => command.run(context)?,
            Self::Export(command) => command.run(context)?,
            Self::Sinks(_) => sinks::AuditSinksCommand::run(context)?,
            Self::SetAside => set_aside::run(context).await?,
            Self::RotateKey => rotate::run(context).await?,
        }
        Ok(CommandOutcome::Done)
    }
}

/// The directory that was named, or that of the configuration.
fn dir(context: &CommandContext, named: Option<PathBuf>) -> Result<PathBuf, CommandFailure> {
    match named {
        Some(dir) => Ok(dir),
        None => Ok(context.config(Vec::new())?.audit.dir(context.data_dir().path())),
    }
}

/// What to say about a file or folder that cannot be read.
fn unreadable(what: &std::path::Path, error: &std::io::Error) -> CommandFailure {
    CommandFailure::new(format!("`{}` cannot be read: {error}", what.display()))
}
