//! Servers that refuse to be root are nobody, where we are root.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::folder::is_root;

/// The user and the group that own nothing.
const NOBODY: u32 = 65_534;

/// Gives a file or folder to whoever the server will be.
pub(crate) fn give(path: &Path) -> Result<()> {
    if is_root()? {
        std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).context("cannot give the folder away")?;
    }
    Ok(())
}

/// A program as a user that servers accept.
pub(crate) fn command(program: &Path) -> Result<Command> {
    if !is_root()? {
        return Ok(Command::new(program));
    }
    let nobody = NOBODY.to_string();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", &nobody, "--regid", &nobody, "--clear-groups"]).arg(program);
    Ok(command)
}

/// The same as the words of a command line.
pub(crate) fn words(program: &Path) -> Result<Vec<String>> {
    let command = command(program)?;
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    Ok(words.map(|word| word.to_string_lossy().into_owned()).collect())
}
