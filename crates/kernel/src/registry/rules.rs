//! Admission rules that need the rest of the registry: earlier versions, other tools, aliases (REG-016, REG-017, MAN-028);
//! and that every permission is one that can be granted, which is read by `policy`.
//!
//! The other rules about a manifest alone are in `contract::manifest::admission`.

use std::sync::Arc;

use contract::compat::{self, CompatVerdict, SchemaDirection};
use contract::ids::{TenantId, ToolId};
use contract::manifest::{AdmissionFinding, LifecycleState, Manifest};
use contract::version::Version;
use ports::clock::UnixMillis;
use ports::lifecycle::{Lifecycle, midnight};
use ports::permissions::DeclaredPermissions;

use super::snapshot::{RegisteredTool, RegistrySnapshot};

/// Every reason why `manifest` does not fit what is already registered.
pub(super) fn findings(id: &ToolId, manifest: &Manifest, seen: Seen<'_>, now: UnixMillis) -> Vec<AdmissionFinding> {
    let mut out = DeclaredPermissions::of(manifest).err().unwrap_or_default();
    aliases(id, manifest, seen, &mut out);
    compensation(id, manifest, seen, now, &mut out);
    end_of_life(manifest, now, &mut out);
    numbering(id, manifest, seen, now, &mut out);
    out
}

/// The registry as the publishing tenant sees it: what others have published must not show in the findings.
#[derive(Clone, Copy)]
pub(super) struct Seen<'a> {
    pub(super) snapshot: &'a RegistrySnapshot,
    pub(super) tenant: &'a TenantId,
}

impl<'a> Seen<'a> {
    fn tool(self, id: &ToolId) -> Option<&'a Arc<RegisteredTool>> {
        self.snapshot.tool(self.tenant, id)
    }
}

fn aliases(id: &ToolId, manifest: &Manifest, seen: Seen<'_>, out: &mut Vec<AdmissionFinding>) {
    for (index, alias) in manifest.aliases.iter().enumerate() {
        let path = format!("/aliases/{index}");
        if let Some(owner) = seen.snapshot.alias(seen.tenant, alias).filter(|owner| *owner != id) {
            out.push(AdmissionFinding::new(path, format!("`{alias}` already leads to `{owner}`")));
        } else if alias.parse::<ToolId>().is_ok_and(|other| other != *id && seen.tool(&other).is_some()) {
            out.push(AdmissionFinding::new(path, format!("`{alias}` is the id of another tool")));
        }
    }
}

/// MAN-028: what undoes this tool must be there when it is needed.
fn compensation(id: &ToolId, manifest: &Manifest, seen: Seen<'_>, now: UnixMillis, out: &mut Vec<AdmissionFinding>) {
    let Some(undo) = manifest.compensation_tool_id.as_ref().and_then(|undo| undo.parse::<ToolId>().ok()) else {
        return;
    };
    if undo == *id {
        out.push(AdmissionFinding::new("/compensation_tool_id", "a tool cannot undo itself"));
        return;
    }
    let usable = seen.tool(&undo).is_some_and(|tool| {
        tool.current(now).is_some_and(|v| v.lifecycle.state(now) != LifecycleState::Removed && v.manifest.is_enabled())
    });
    if !usable {
        out.push(AdmissionFinding::new(
            "/compensation_tool_id",
            format!("`{undo}` is not registered or not enabled: register it first"),
        ));
    }
}

/// a version is published active or deprecated, so what it says of its end must lie ahead.
fn end_of_life(manifest: &Manifest, now: UnixMillis, out: &mut Vec<AdmissionFinding>) {
    if manifest.sunset_date.as_deref().and_then(midnight).is_some_and(|sunset| sunset <= now) {
        out.push(AdmissionFinding::new("/sunset_date", "has passed: a version cannot be published as `sunset`"));
    }
    let Some(deprecated_at) = manifest.deprecation_date.as_deref().and_then(midnight) else { return };
    match manifest.lifecycle_state {
        Some(LifecycleState::Active) if deprecated_at <= now => out.push(AdmissionFinding::new(
            "/lifecycle_state",
            "says `active`, and deprecation_date has passed: leave one of them out",
        )),
        Some(LifecycleState::Deprecated) if deprecated_at > now => out.push(AdmissionFinding::new(
            "/lifecycle_state",
            "says `deprecated`, and deprecation_date has not come: leave one of them out",
        )),
        _ => {}
    }
    let ends = Lifecycle::declared(manifest, now).map(|life| life.state(now));
    if manifest.sunset_date.is_none() && matches!(ends, Some(LifecycleState::Sunset | LifecycleState::Removed)) {
        out.push(AdmissionFinding::new(
            "/deprecation_date",
            "is so long ago that the version would be sunset: give a `sunset_date` that lies ahead",
        ));
    }
}

/// REG-016, REG-017: the version number must tell the truth about the schemas.
fn numbering(id: &ToolId, manifest: &Manifest, seen: Seen<'_>, now: UnixMillis, out: &mut Vec<AdmissionFinding>) {
    let new = &manifest.version;
    let Some(predecessor) = seen.tool(id).and_then(|tool| {
        tool.versions()
            .iter()
            .rev()
            .filter(|v| v.lifecycle.state(now) != LifecycleState::Removed && !v.version.is_prerelease())
            .find(|v| v.version < *new)
    }) else {
        return;
    };
    if new.is_prerelease() {
        return;
    }
    let input = compat::compare(&predecessor.manifest.parameters, &manifest.parameters, SchemaDirection::Input);
    let output = compat::compare(&predecessor.manifest.result_schema, &manifest.result_schema, SchemaDirection::Output);
    let verdict = input.verdict.max(output.verdict);
    let step = step(&predecessor.version, new);

    if verdict > step {
        let reasons = [("/parameters", &input), ("/result_schema", &output)];
        for (member, comparison) in reasons {
            for reason in comparison.reasons.iter().filter(|reason| reason.verdict > step) {
                out.push(AdmissionFinding::new(
                    format!("{member}{}", reason.path),
                    format!("{} compared with {}", reason.message, predecessor.version),
                ));
            }
        }
        out.push(AdmissionFinding::new(
            "/version",
            format!("these changes to {} need a {} version, not {new}", predecessor.version, name(verdict)),
        ));
    }
    match manifest.breaking_changes {
        Some(true) if step < CompatVerdict::Major => {
            out.push(AdmissionFinding::new(
                "/breaking_changes",
                format!("a version with breaking changes must raise the major number; {new} does not"),
            ));
        }
        Some(false) if verdict == CompatVerdict::Major => {
            out.push(AdmissionFinding::new(
                "/breaking_changes",
                format!("says false, but the schemas break callers of {}", predecessor.version),
            ));
        }
        _ => {}
    }
}

/// What the numbering promises. Below 1.0.0 a minor step may break (SemVer §4), but a patch may not.
fn step(old: &Version, new: &Version) -> CompatVerdict {
    if old.major() != new.major() || (new.major() == 0 && old.minor() != new.minor()) {
        CompatVerdict::Major
    } else if old.minor() != new.minor() {
        CompatVerdict::Minor
    } else {
        CompatVerdict::Patch
    }
}

fn name(verdict: CompatVerdict) -> &'static str {
    match verdict {
        CompatVerdict::Patch => "patch",
        CompatVerdict::Minor => "minor",
        CompatVerdict::Major => "major",
    }
}
