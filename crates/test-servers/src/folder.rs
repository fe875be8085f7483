//! Where `cargo xtask` puts what it installs for tests, and where tests find it: one answer for both.
//!
//! The folder is readable by everybody, because servers run in sandboxes as nobody, and lies where tools may be given
//! paths, which `/var` and the homes of people are not: `GANTRY_SERVICES_DIR`, else
//! `/opt/gantry-services` for root and `~/.cache/gantry-services` for others.
//!
//! Not here: what is installed and how (`xtask`).

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// The variable that moves the folder.
pub const FOLDER_VARIABLE: &str = "GANTRY_SERVICES_DIR";

/// The folder of all kits, whether it is there yet or not.
pub fn folder() -> Result<PathBuf> {
    if let Ok(named) = std::env::var(FOLDER_VARIABLE) {
        return Ok(PathBuf::from(named));
    }
    if is_root()? {
        return Ok(PathBuf::from("/opt/gantry-services"));
    }
    let home =
        std::env::var("HOME").with_context(|| format!("there is neither a home directory nor {FOLDER_VARIABLE}"))?;
    Ok(Path::new(&home).join(".cache/gantry-services"))
}

/// The folder of one kit.
pub fn kit(name: &str) -> Result<PathBuf> {
    let kit = folder()?.join(name);
    ensure!(
        kit.is_dir(),
        "there is no `{name}` among the installed services: `cargo xtask services start` installs it"
    );
    Ok(kit)
}

/// Are we root? Some servers refuse to be, and are then run as nobody.
pub fn is_root() -> Result<bool> {
    let status = std::fs::read_to_string("/proc/self/status").context("cannot read who we are")?;
    Ok(status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0")))
}
