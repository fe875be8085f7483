//! What this machine offers a sandbox, mechanism by mechanism, for people who want to know before they rely on it.
//!
//! Looks, and changes nothing. Whether a sandbox can be made is best found out by making one; this says why not.

use std::fs;
use std::path::Path;

use crate::inside::{identity, landlock, seccomp};

/// What holds without control groups.
const OVERSEEN: &str = "memory and CPU of a tool's processes are added up several times a second and kept by stopping or ending them; \
                        disk bandwidth cannot be limited, and no process is kept warm";

/// How an ordinary user gets control groups.
const DELEGATE: &str = "on a machine with control groups of version 2: `systemd-run --user --scope -p Delegate=yes gantry serve`, \
                        or `Delegate=yes` in the unit";

/// The name of the mechanism that keeps limits over all processes of a tool.
pub const CONTROL_GROUPS: &str = "control groups";

/// How a mechanism stands on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MechanismState {
    /// Used by every sandbox. With what there is to say about it.
    There(String),
    /// Not as it should be, but sandboxes can be made.
    Weaker { detail: String, fix: String },
    /// Without it no sandbox can be made.
    Missing { detail: String, fix: String },
}

impl MechanismState {
    fn weaker(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Weaker { detail: detail.into(), fix: fix.into() }
    }

    fn missing(detail: impl Into<String>, fix: impl Into<String>) -> Self {
        Self::Missing { detail: detail.into(), fix: fix.into() }
    }
}

/// One mechanism.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MechanismOffer {
    pub mechanism: &'static str,
    pub standing: MechanismState,
}

/// Everything a process sandbox is made of.
pub fn offers() -> Vec<MechanismOffer> {
    let offer = |mechanism, standing| MechanismOffer { mechanism, standing };
    vec![
        offer("user namespaces", user_namespaces()),
        offer("seccomp", seccomp()),
        offer("Landlock", landlock_standing()),
        offer(CONTROL_GROUPS, control_groups()),
    ]
}

fn user_namespaces() -> MechanismState {
    let number = |path: &str| fs::read_to_string(path).ok().and_then(|text| text.trim().parse::<u64>().ok());
    if rustix::fs::lstat("/proc/self/ns/user").is_err() {
        return MechanismState::missing("this kernel was built without them", "use a kernel with CONFIG_USER_NS=y");
    }
    if number("/proc/sys/user/max_user_namespaces") == Some(0) {
        return MechanismState::missing("switched off", "sysctl -w user.max_user_namespaces=15000");
    }
    if identity::is_root() {
        return MechanismState::There("made by root, as nobody (65534)".to_owned());
    }
    if number("/proc/sys/kernel/unprivileged_userns_clone") == Some(0) {
        return MechanismState::missing("only for root", "sysctl -w kernel.unprivileged_userns_clone=1");
    }
    if number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == Some(1) {
        return MechanismState::missing(
            "AppArmor keeps them from ordinary users",
            "give this program a profile that allows `userns`, or sysctl -w kernel.apparmor_restrict_unprivileged_userns=0",
        );
    }
    MechanismState::There("made by this user".to_owned())
}

fn seccomp() -> MechanismState {
    let actions = fs::read_to_string("/proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    match seccomp::compile(seccomp::CountedMemory::OfGroup) {
        Err(_) => MechanismState::missing(
            "no system call filter for this processor",
            "use a machine with an x86-64 or arm64 processor",
        ),
        Ok(_) if actions.contains("errno") => MechanismState::There("an allowlist of system calls".to_owned()),
        Ok(_) => {
            MechanismState::missing("this kernel was built without filter", "use a kernel with CONFIG_SECCOMP_FILTER=y")
        }
    }
}

fn landlock_standing() -> MechanismState {
    if landlock::is_available() {
        MechanismState::There("on top of the mounts".to_owned())
    } else {
        MechanismState::weaker(
            "not in this kernel: mounts alone protect files",
            "use a kernel from 5.13 on, with `landlock` in its `lsm=`",
        )
    }
}

/// Does not prepare anything, so it can only say what is likely.
fn control_groups() -> MechanismState {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let second = own.lines().find_map(|line| line.strip_prefix("0::"));
    let has = |controller: &str| {
        own.lines()
            .any(|line| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|name| name == controller)))
    };
    if ["memory", "cpu", "pids"].iter().all(|controller| has(controller)) {
        if identity::is_root() {
            return MechanismState::There("version 1: memory, CPU and processes are limited together".to_owned());
        }
        return MechanismState::weaker(format!("version 1, which only root can use: {OVERSEEN}"), DELEGATE);
    }
    let Some(group) = second else {
        return MechanismState::weaker(format!("none: {OVERSEEN}"), DELEGATE);
    };
    let dir = Path::new("/sys/fs/cgroup").join(group.trim_start_matches('/'));
    let controllers = fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    let offered = ["memory", "cpu", "pids"].iter().all(|one| controllers.split_whitespace().any(|name| name == *one));
    let writable = rustix::fs::access(&dir, rustix::fs::Access::WRITE_OK).is_ok();
    match (offered, writable) {
        (true, true) => MechanismState::There("version 2: memory, CPU and processes are limited together".to_owned()),
        (true, false) => {
            MechanismState::weaker(format!("version 2, but not delegated to this user: {OVERSEEN}"), DELEGATE)
        }
        (false, _) => MechanismState::weaker(
            format!("version 2 without the controllers memory, cpu and pids here: {OVERSEEN}"),
            DELEGATE,
        ),
    }
}
