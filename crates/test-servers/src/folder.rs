//! Where `cargo xtask` has put what it installs for tests.

use std::path::PathBuf;

use anyhow::{Result, ensure};

/// The folder of one kit.
pub fn kit(name: &str) -> Result<PathBuf> {
    let folder = match std::env::var("GANTRY_SERVICES_DIR") {
        Ok(named) => PathBuf::from(named),
        Err(_) if is_root() => PathBuf::from("/opt/gantry-services"),
        Err(_) => PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache/gantry-services"),
    };
    let kit = folder.join(name);
    ensure!(
        kit.is_dir(),
        "there is no `{name}` among the installed services: `cargo xtask services start` installs it"
    );
    Ok(kit)
}

/// Some servers refuse to run as root, and are then run as nobody.
pub(crate) fn is_root() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}
