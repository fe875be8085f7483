//! The programs of the system that tests start, and how they come to be there.
//!
//! Each row is a program and the Debian package that has it. What is missing is installed if we are root and there is
//! `apt-get`; otherwise the run ends with the command that somebody has to give. A test never passes for want of a
//! program.
//!
//! Programs are looked for in the directories of the system only: what a confined tool starts must lie there, and an
//! interpreter in somebody's home does not exist for it.
//!
//! Not here: what is built with the workspace, and toolchains that make test data (their output is checked in).

use std::path::Path;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result, bail};

/// Where programs count as installed.
const DIRECTORIES: [&str; 6] = ["/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin"];

/// A program and its package.
struct Program {
    name: &'static str,
    package: &'static str,
}

const PROGRAMS: [Program; 17] = [
    Program { name: "bash", package: "bash" },
    Program { name: "kill", package: "procps" },
    Program { name: "python3", package: "python3" },
    Program { name: "pip3", package: "python3-pip" },
    Program { name: "node", package: "nodejs" },
    Program { name: "npm", package: "npm" },
    Program { name: "jq", package: "jq" },
    Program { name: "openssl", package: "openssl" },
    Program { name: "setpriv", package: "util-linux" },
    Program { name: "bwrap", package: "bubblewrap" },
    Program { name: "runc", package: "runc" },
    Program { name: "runsc", package: "runsc" },
    Program { name: "busybox", package: "busybox-static" },
    Program { name: "promtool", package: "prometheus" },
    Program { name: "redis-server", package: "redis-server" },
    Program { name: "pgbouncer", package: "pgbouncer" },
    Program { name: "faketime", package: "faketime" },
];

/// Installs what is missing, or says what somebody else has to install.
pub(super) fn provide() -> Result<()> {
    let packages = packages_of(&missing());
    if packages.is_empty() {
        return Ok(());
    }
    let by_hand = format!("apt-get install -y --no-install-recommends {}", packages.join(" "));
    if !test_servers::is_root()? || !is_there("apt-get") {
        bail!("the tests need programs that are not installed; as root: {by_hand}");
    }
    println!("installing {}", packages.join(", "));
    // The lists of packages may be missing or old: once more with new ones.
    if !install(&packages)?.success() {
        apt().arg("update").status().context("cannot run apt-get")?;
        if !install(&packages)?.success() {
            bail!("the tests need programs that could not be installed; try: {by_hand}");
        }
    }
    let still: Vec<&str> = missing().iter().map(|program| program.name).collect();
    if !still.is_empty() {
        bail!("after installing {} there is still no `{}`", packages.join(", "), still.join("`, `"));
    }
    Ok(())
}

/// One line for each program.
pub(super) fn status() -> Vec<String> {
    let word = |program: &Program| if is_there(program.name) { "installed" } else { "missing" };
    PROGRAMS.iter().map(|program| format!("{}: {}", program.name, word(program))).collect()
}

fn missing() -> Vec<&'static Program> {
    PROGRAMS.iter().filter(|program| !is_there(program.name)).collect()
}

fn packages_of(programs: &[&Program]) -> Vec<&'static str> {
    let mut packages: Vec<&str> = programs.iter().map(|program| program.package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

fn is_there(program: &str) -> bool {
    DIRECTORIES.iter().any(|directory| Path::new(directory).join(program).is_file())
}

fn install(packages: &[&str]) -> Result<ExitStatus> {
    apt().args(["install", "-y", "--no-install-recommends"]).args(packages).status().context("cannot run apt-get")
}

fn apt() -> Command {
    let mut command = Command::new("apt-get");
    // Nobody is there to answer.
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_asked_for_once() {
        let program = |package| Program { name: "any", package };
        let all = [program("two"), program("one"), program("two")];
        assert_eq!(packages_of(&all.iter().collect::<Vec<_>>()), ["one", "two"]);
        assert_eq!(packages_of(&[]), Vec::<&str>::new());
    }

    #[test]
    fn a_program_counts_only_where_the_system_has_it() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-program") && !is_there("."));
    }
}
