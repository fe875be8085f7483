//! `gantry tool dev`: a server of its own for one tool that is being written.
//!
//! The server listens on loopback, has a data directory that is made for it and removed with it, reads no configuration, and
//! takes a changed manifest for the same version in place of the former (`DraftRegistry`). Nothing of it can be had from
//! `gantry serve`: what is published there never changes. (decision 0106)

use std::fs::DirBuilder;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use clap::Args;

use super::add::runs_from_its_folder;
use crate::commands::CommandOutcome;
use crate::commands::serve::{DevelopmentTool, ServeCommand};
use crate::context::CommandContext;
use crate::failure::CommandFailure;
use crate::manifest_file;

/// Directories of this process that are tried.
const NUMBERS_MAX: u32 = 16;

/// Run a tool while you write it: what is saved is used by the next call, and each call is shown with its stderr
///
/// Starts a server of its own, on loopback, with a data directory that is gone when it ends. The version in the manifest
/// need not be raised.
#[derive(Debug, Args)]
pub(crate) struct ToolDevCommand {
    /// The tool's folder
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Address and port, on this machine only [default: a free port of 127.0.0.1]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Run the tool without the sandbox, with your rights: for machines that cannot make namespaces
    #[arg(long)]
    unsandboxed_processes: bool,
}

impl ToolDevCommand {
    pub(crate) async fn run(self, context: &CommandContext) -> Result<CommandOutcome, CommandFailure> {
        let listen = self.listen.unwrap_or_else(|| (Ipv4Addr::LOCALHOST, 0).into());
        if !listen.ip().is_loopback() {
            return Err(CommandFailure::usage(format!("{listen} is not on this machine alone"))
                .hint("a tool that is being written is for its author: listen on 127.0.0.1"));
        }
        let manifest = manifest_file::read(&self.dir)?;
        if !self.dir.is_dir() || !runs_from_its_folder(&manifest) {
            return Err(CommandFailure::usage(format!("`{}` is no folder with a program", self.dir.display()))
                .hint("`gantry tool new` makes one"));
        }
        let tool = manifest.id().map_err(|error| CommandFailure::new(error.to_string()))?;
        let folder = self.dir.canonicalize().map_err(|error| {
            CommandFailure::new(format!("the folder `{}` cannot be read: {error}", self.dir.display()))
        })?;
        let data = OwnDirectory::make(&std::env::temp_dir())?;
        let development = DevelopmentTool { tool, folder, example: manifest.examples.first().cloned() };
        let serve = ServeCommand::of_development(listen, self.unsandboxed_processes, development);
        // Boxed: a server is the largest future there is, and no other command should carry its room.
        Box::pin(serve.run(&context.of_development(data.path.clone()))).await
    }
}

/// A directory for one run. Removed with all that is in it.
struct OwnDirectory {
    path: PathBuf,
}

impl OwnDirectory {
    /// One that was not there: a name that somebody else has taken is never used.
    fn make(above: &Path) -> Result<Self, CommandFailure> {
        let failed = |error: io::Error| {
            CommandFailure::new(format!("no directory can be made in `{}`: {error}", above.display()))
                .hint("set TMPDIR to a folder that can be written to")
        };
        for number in 0..NUMBERS_MAX {
            let path = above.join(format!("gantry-dev-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(failed(error)),
            }
        }
        Err(failed(io::ErrorKind::AlreadyExists.into()))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        // It holds nothing that anybody needs; what cannot be removed is the system's to clear away.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[test]
    fn the_directory_of_a_run_is_its_own_and_gone_with_it() {
        let above = tempfile::tempdir().unwrap();
        let (one, other) = (OwnDirectory::make(above.path()).unwrap(), OwnDirectory::make(above.path()).unwrap());
        assert_ne!(one.path, other.path);
        assert_eq!(std::fs::metadata(&one.path).unwrap().mode() & 0o777, 0o700);
        std::fs::write(one.path.join("x"), "x").unwrap();
        let path = one.path.clone();
        drop(one);
        assert!(!path.try_exists().unwrap() && other.path.try_exists().unwrap());
    }
}
