//! Landlock on top of the mounts: what is not writable by mount is not writable by rule either.
//!
//! A second wall of another make. If a mount were forgotten or a bug let one be changed, the program still could not
//! write outside its scratch and its declared paths, nor signal or reach by abstract socket anything outside.

use std::path::PathBuf;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};

use crate::error::{BuildStep, StepFailure};
use crate::spec::{MountAccess, SandboxSpec};

/// The newest rules this crate knows; a kernel that knows fewer applies those.
const NEWEST: ABI = ABI::V6;

/// Is there Landlock on this machine?
pub(crate) fn is_available() -> bool {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .and_then(Ruleset::create)
        .is_ok()
}

/// Applies the rules to this process and all it becomes. Without Landlock in the kernel, nothing happens and it says so.
pub(crate) fn apply(spec: &SandboxSpec) -> Result<bool, StepFailure> {
    let failed = |error: &dyn std::error::Error| StepFailure::refused(BuildStep::Landlock, error.to_string());
    let everything = AccessFs::from_all(NEWEST);
    let reading = AccessFs::from_read(NEWEST);
    let writable =
        spec.mounts.iter().filter(|mount| mount.access == MountAccess::Write).map(|mount| mount.target.clone());
    let writable = ["/tmp", "/dev"].iter().map(PathBuf::from).chain(writable);

    let mut rules = Ruleset::default()
        .handle_access(everything)
        .and_then(|rules| rules.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(|error| failed(&error))?;
    let root = PathFd::new("/").map_err(|error| failed(&error))?;
    rules = rules.add_rule(PathBeneath::new(root, reading)).map_err(|error| failed(&error))?;
    for path in writable {
        let fd = PathFd::new(&path).map_err(|error| failed(&error))?;
        let access = if path.is_dir() { everything } else { everything & AccessFs::from_file(NEWEST) };
        rules = rules.add_rule(PathBeneath::new(fd, access)).map_err(|error| failed(&error))?;
    }
    let status = rules.restrict_self().map_err(|error| failed(&error))?;
    Ok(status.ruleset != RulesetStatus::NotEnforced)
}
