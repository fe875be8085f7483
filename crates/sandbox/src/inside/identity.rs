//! Who the program is inside: user and group 65534, without a capability, in a user namespace that knows nobody else.
//!
//! If Gantry is root, its identity is given up *before* the user namespace is made. The other way round the code inside
//! would still be root to everything outside that asks for the owner: `core_pattern`, devices, root's files.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};
use rustix::process::{DumpableBehavior, Gid, Uid};
use rustix::thread::{CapabilitiesSecureBits, CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags};

use crate::error::{BuildStep, StepFailure};
use crate::system;

/// Nobody.
pub(crate) const NOBODY: u32 = 65534;

/// The machine's `/proc`, opened before the root is left. Only there can the maps of a new user namespace be written,
/// because the program's own `/proc` is read-only.
pub(crate) fn machine_proc() -> Result<OwnedFd, StepFailure> {
    rustix::fs::open("/proc", OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| StepFailure::new(BuildStep::Identity, error, "opening /proc"))
}

/// Writes who is who in the user namespace this process has just been put into: `inside` is user `uid` and group `gid`
/// outside, and there is nobody else.
pub(crate) fn map(proc: BorrowedFd<'_>, inside: u32, uid: u32, gid: u32) -> Result<(), StepFailure> {
    let write = |name: &str, text: String| -> Result<(), StepFailure> {
        let failed = |error: rustix::io::Errno| StepFailure::new(BuildStep::Identity, error, format!("writing {name}"));
        let file = rustix::fs::openat(proc, format!("self/{name}"), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(failed)?;
        rustix::io::write(&file, text.as_bytes()).map_err(failed).map(drop)
    };
    // An unprivileged process may map its group only once it can no longer change its groups.
    write("setgroups", "deny".to_owned())?;
    write("uid_map", format!("{inside} {uid} 1\n"))?;
    write("gid_map", format!("{inside} {gid} 1\n"))
}

/// Root gives itself up, and enters a user namespace as nobody.
pub(crate) fn become_nobody(proc: BorrowedFd<'_>) -> Result<(), StepFailure> {
    give_root_up()?;
    // A process that changed its user is closed to itself; the maps could not be written.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
        .map_err(|error| StepFailure::new(BuildStep::Identity, error, "opening itself"))?;
    enter_user_namespace()?;
    map(proc, NOBODY, NOBODY, NOBODY)
}

/// Root gives itself up, and enters the user namespace that nobody has made.
pub(crate) fn follow_nobody(namespace: BorrowedFd<'_>) -> Result<(), StepFailure> {
    give_root_up()?;
    // Nobody owns it, and that is who this process is by now.
    rustix::thread::move_into_link_name_space(namespace, Some(LinkNameSpaceType::User))
        .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "entering the user namespace"))
}

fn give_root_up() -> Result<(), StepFailure> {
    let failed =
        |what: &'static str| move |error: rustix::io::Errno| StepFailure::new(BuildStep::Identity, error, what);
    let (uid, gid) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[]).map_err(failed("dropping groups"))?;
    rustix::thread::set_thread_res_gid(gid, gid, gid).map_err(failed("changing the group"))?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).map_err(failed("changing the user"))
}

fn enter_user_namespace() -> Result<(), StepFailure> {
    system::unshare(UnshareFlags::NEWUSER)
        .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "making a user namespace"))
}

/// Gives up every capability, for itself and for whatever it executes.
pub(crate) fn drop_privileges() -> Result<(), StepFailure> {
    let failed =
        |what: &'static str| move |error: rustix::io::Errno| StepFailure::new(BuildStep::Privileges, error, what);
    rustix::thread::set_no_new_privs(true).map_err(failed("no new privileges"))?;
    let locked = CapabilitiesSecureBits::NO_ROOT
        | CapabilitiesSecureBits::NO_ROOT_LOCKED
        | CapabilitiesSecureBits::NO_SETUID_FIXUP
        | CapabilitiesSecureBits::NO_SETUID_FIXUP_LOCKED
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE
        | CapabilitiesSecureBits::NO_CAP_AMBIENT_RAISE_LOCKED;
    rustix::thread::set_capabilities_secure_bits(locked).map_err(failed("secure bits"))?;
    rustix::thread::clear_ambient_capability_set().map_err(failed("ambient capabilities"))?;
    for bit in 0..64 {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            Ok(()) => {}
            // Beyond the last one this kernel knows.
            Err(rustix::io::Errno::INVAL) => break,
            Err(error) => return Err(failed("bounding set")(error)),
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        .map_err(failed("capabilities"))
}

/// Closes the first process of the sandbox to the program, which has the same user.
pub(crate) fn close_to_others() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Is this process root, with what a sandbox takes from root?
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
