//! What this machine offers a sandbox, mechanism by mechanism, for people who want to know before they rely on it.
//!
//! Looks, and changes nothing. Whether a sandbox can be made is best found out by making one; this says why not.

use std::fs;
use std::path::Path;

use crate::inside::{identity, landlock, seccomp};

/// What holds without control groups.
const OVERSEEN: &str = "memory and CPU of a tool's processes are added up several times a second and kept by stopping or ending them; \
                        disk bandwidth cannot be limited, and no process is kept warm";

/// The name of the mechanism that keeps limits over all processes of a tool.
pub const CONTROL_GROUPS: &str = "control groups";

/// How a mechanism stands on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// Used by every sandbox. With what there is to say about it.
    There(String),
    /// Not as it should be, but sandboxes can be made.
    Weaker(String),
    /// Without it no sandbox can be made.
    Missing(String),
}

/// One mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    pub mechanism: &'static str,
    pub standing: Standing,
}

/// Everything a process sandbox is made of.
pub fn offers() -> Vec<Offer> {
    let offer = |mechanism, standing| Offer { mechanism, standing };
    vec![
        offer("user namespaces", user_namespaces()),
        offer("seccomp", seccomp()),
        offer("Landlock", landlock_standing()),
        offer(CONTROL_GROUPS, control_groups()),
    ]
}

fn user_namespaces() -> Standing {
    let number = |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if rustix::fs::lstat("/proc/self/ns/user").is_err() {
        return Standing::Missing("this kernel was built without them".to_owned());
    }
    if number("/proc/sys/user/max_user_namespaces") == Some(0) {
        return Standing::Missing("switched off: set user.max_user_namespaces above 0 with sysctl".to_owned());
    }
    if identity::is_root() {
        return Standing::There("made by root, as nobody (65534)".to_owned());
    }
    if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return Standing::Missing("only for root: set kernel.unprivileged_userns_clone=1 with sysctl".to_owned());
    }
    if number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return Standing::Missing(
            "AppArmor keeps them from ordinary users: give this program a profile that allows `userns`, or set \
             kernel.apparmor_restrict_unprivileged_userns=0 with sysctl"
                .to_owned(),
        );
    }
    Standing::There("made by this user".to_owned())
}

fn seccomp() -> Standing {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    match seccomp::compile(seccomp::CountedMemory::OfGroup) {
        Err(_) => Standing::Missing("no system call filter for this processor".to_owned()),
        Ok(_) if actions.contains("errno") => Standing::There("an allowlist of system calls".to_owned()),
        Ok(_) => Standing::Missing("this kernel was built without filter".to_owned()),
    }
}

fn landlock_standing() -> Standing {
    if landlock::is_available() {
        Standing::There("on top of the mounts".to_owned())
    } else {
        Standing::Weaker(
            "not in this kernel (5.13 or newer with `lsm=landlock`): mounts alone protect files".to_owned(),
        )
    }
}

/// Does not prepare anything, so it can only say what is likely.
fn control_groups() -> Standing {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let second = own.lines().find_map(|line| line.strip_prefix("0::"));
    let has = |controller: &str| {
        own.lines()
            .any(|line| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == controller)))
    };
    if ["memory", "cpu", "pids"].iter().all(|controller| has(controller)) {
        if identity::is_root() {
            return Standing::There("version 1: memory, CPU and processes are limited together".to_owned());
        }
        return Standing::Weaker(format!("version 1, which only root can use: {OVERSEEN}"));
    }
    let Some(group) = second else {
        return Standing::Weaker(format!("none: {OVERSEEN}"));
    };
    let dir = Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/'));
    let controllers = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    let offered = ["memory", "cpu", "pids"].iter().all(|one| controllers.split_whitespace().any(|name| name == *one));
    let writable = rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok();
    match (offered, writable) {
        (true, true) => Standing::There("version 2: memory, CPU and processes are limited together".to_owned()),
        (true, false) => Standing::Weaker(format!(
            "version 2, but not delegated to this user (`Delegate=yes` in the unit, or \
                     `systemd-run --user --scope -p Delegate=yes gantry serve`): {OVERSEEN}"
        )),
        (false, _) => {
            Standing::Weaker(format!("version 2 without the controllers memory, cpu and pids here: {OVERSEEN}"))
        }
    }
}
