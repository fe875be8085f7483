//! Compatibility of two schemas: what a new version means for those who use the old one. (REG-016…018)
//!
//! For parameters everything the old schema accepts the new one must accept; for results it is the other way round. The
//! verdict is *sound*: `patch` and `minor` are proofs, and what cannot be proved is `major` with the reason
//! `cannot_prove_compatible`, because a wrongly waved-through breaking change costs more than a superfluous major number.
//! Parameters are compared as they are enforced: closed against undeclared properties, with defaults and coercion.
//!
//! ```text
//! compare ─▶ prover (narrow ⊆ wide?) ─▶ gaps ─▶ reasons, major     forward
//!         ─▶ prover (the other way)  ─▶ gaps ─▶ reasons, minor     backward
//!         ─▶ defaults, annotations
//! ```
//!
//! Invariants
//! - COMPAT-1: `patch` or `minor` for parameters: whatever `CompiledSchema::input(old)` prepares, `input(new)` prepares.
//! - COMPAT-2: `patch` or `minor` for results: whatever `CompiledSchema::output(new)` accepts, `output(old)` accepts.
//! - COMPAT-3: a comparison looks at a bounded amount ([`COMPARISON_STEPS_MAX`]), whatever the schemas; beyond it the answer
//!   is the cautious one.
//!
//! Not here: which number a version must get, and who says so (`version`, the registry).

mod arrays;
mod branches;
mod conjunction;
mod defaults;
mod effort;
mod gap;
mod likeness;
mod negotiation;
mod objects;
mod prover;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use self::defaults::DefaultMap;
pub use self::effort::COMPARISON_STEPS_MAX;
use self::effort::spent;
use self::gap::{Gap, What};
pub use self::negotiation::{Negotiation, NegotiationFit, SchemaConflict, negotiate};
use self::prover::{Prover, Rules};
use crate::schema::document::SchemaDocument;
use crate::schema::{SchemaLimits, place_validators, readable, strict};

/// At most so many reasons are given.
pub const REASONS_MAX: usize = 200;

/// Which end of a tool a schema describes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemaDirection {
    /// Parameters: callers must still be understood.
    Input,
    /// Results: consumers must still get what they rely on.
    Output,
}

/// The least step of the version number that is honest about a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CompatVerdict {
    /// Nothing but annotations.
    Patch,
    /// Compatible additions.
    Minor,
    /// Something that worked may not work any more, or could not be shown to.
    Major,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CompatReason {
    /// Place in the value, `*` standing for any item; for annotations, in the schema.
    pub path: String,
    /// What kind of change, in snake case: `property_removed`, `maximum_tightened`, …
    pub change: String,
    /// What this difference alone would amount to.
    pub verdict: CompatVerdict,
    /// The same for people.
    pub message: String,
}

/// The outcome of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Comparison {
    /// The greatest of the reasons' verdicts.
    pub verdict: CompatVerdict,
    /// The weightiest first.
    pub reasons: Vec<CompatReason>,
}

/// Says what replacing `old` by `new` means for the other side.
///
/// ```
/// use gantry_contract::compat::{SchemaDirection, CompatVerdict, compare};
/// use serde_json::json;
///
/// let old = json!({ "properties": { "city": { "type": "string" } }, "required": ["city"] });
/// let new = json!({ "properties": { "city": { "type": "string" }, "days": { "type": "integer" } }, "required": ["city"] });
/// assert_eq!(compare(&old, &new, SchemaDirection::Input).verdict, CompatVerdict::Minor);
/// assert_eq!(compare(&new, &old, SchemaDirection::Input).reasons[0].change, "property_removed");
/// ```
pub fn compare(old: &Value, new: &Value, direction: SchemaDirection) -> Comparison {
    if old == new {
        return Comparison { verdict: CompatVerdict::Patch, reasons: Vec::new() };
    }
    let limits = SchemaLimits::default();
    let mut reasons = Vec::new();
    let read = |schema, which| {
        readable(schema, &limits, &[], true).map(|readable| readable.schema).map_err(|errors| {
            let gap = Gap::new("", What::Unproven("schema")).reason(true, CompatVerdict::Major);
            CompatReason { message: format!("the {which} schema: {errors}"), ..gap }
        })
    };
    match (read(old, "old"), read(new, "new")) {
        (Ok(old), Ok(new)) => {
            reasons = match direction {
                SchemaDirection::Input => inputs(&strict::closed(&old), &strict::closed(&new), &limits),
                SchemaDirection::Output => outputs(&old, &new),
            };
            annotations(&old, &new, direction, &mut reasons);
        }
        (old, new) => reasons.extend([old.err(), new.err()].into_iter().flatten()),
    }
    concluded(reasons)
}

fn inputs(old: &Value, new: &Value, limits: &SchemaLimits) -> Vec<CompatReason> {
    let (old_validators, new_validators) = (place_validators(old, limits), place_validators(new, limits));
    let (old, new) = (SchemaDocument::new(old), SchemaDocument::new(new));
    let old_defaults = DefaultMap::of(&old, old_validators.as_ref());
    let new_defaults = DefaultMap::of(&new, new_validators.as_ref());
    let mut reasons = defaults::changes(&old_defaults, &new_defaults);
    let rules = Rules { coercion: true, names_matter: false, defaults: new_defaults.filled };
    let forward = Prover::new(&old, &new, rules).gaps();
    let backward = Prover::new(&new, &old, Rules { coercion: true, ..Rules::default() }).gaps();
    if spent(&old, &new) {
        return vec![too_tangled()];
    }
    gather(&forward, &backward, true, &mut reasons);
    reasons
}

fn outputs(old: &Value, new: &Value) -> Vec<CompatReason> {
    let (old, new) = (SchemaDocument::new(old), SchemaDocument::new(new));
    let mut reasons = Vec::new();
    let forward = Prover::new(&new, &old, Rules { names_matter: true, ..Rules::default() }).gaps();
    let backward = Prover::new(&old, &new, Rules::default()).gaps();
    if spent(&old, &new) {
        return vec![too_tangled()];
    }
    gather(&forward, &backward, false, &mut reasons);
    reasons
}

/// The one reason of a comparison that was not brought to its end (COMPAT-3).
fn too_tangled() -> CompatReason {
    CompatReason {
        path: String::new(),
        change: "cannot_prove_compatible".to_owned(),
        verdict: CompatVerdict::Major,
        message: tangled(),
    }
}

fn tangled() -> String {
    format!(
        "the schemas are too large, or refer to their own parts in too many ways, to be compared in {COMPARISON_STEPS_MAX} steps; split the tool, or use fewer branches over shared definitions"
    )
}

/// Gaps forward break someone; gaps backward are only news.
fn gather(forward: &[Gap], backward: &[Gap], wide_is_new: bool, reasons: &mut Vec<CompatReason>) {
    reasons.extend(forward.iter().map(|gap| gap.reason(wide_is_new, CompatVerdict::Major)));
    let broken = !forward.is_empty();
    for gap in backward {
        // Where one direction fails for want of a proof, the other usually does too; saying it twice helps nobody.
        let echo = broken && matches!(gap.what, What::Unproven(_) | What::Coercion);
        if !echo {
            reasons.push(gap.reason(!wide_is_new, CompatVerdict::Minor));
        }
    }
}

/// Changed annotations at places both schemas have; sensitivity and guards are more than remarks.
fn annotations(old: &Value, new: &Value, direction: SchemaDirection, reasons: &mut Vec<CompatReason>) {
    let remark = |name: &str| {
        matches!(name, "title" | "description" | "examples" | "$comment" | "deprecated" | "readOnly" | "writeOnly")
            || name.starts_with("x-")
    };
    for (pointer, before) in SchemaDocument::new(old).positions() {
        let (Value::Object(before), Some(Value::Object(after))) = (before, new.pointer(&pointer)) else { continue };
        let names = before.keys().chain(after.keys().filter(|name| !before.contains_key(*name)));
        for name in names.filter(|name| remark(name) && before.get(*name) != after.get(*name)) {
            let (change, verdict) = match name.as_str() {
                "x-sensitivity" => ("sensitivity_changed", CompatVerdict::Minor),
                // A guard refuses what was accepted before; without it more is accepted. Results are not guarded.
                "x-guard" if direction == SchemaDirection::Output => ("annotation_changed", CompatVerdict::Patch),
                "x-guard" if after.contains_key(name) => ("guard_added", CompatVerdict::Major),
                "x-guard" => ("guard_removed", CompatVerdict::Minor),
                _ => ("annotation_changed", CompatVerdict::Patch),
            };
            let message = format!("`{name}` is another one");
            reasons.push(CompatReason { path: pointer.clone(), change: change.to_owned(), verdict, message });
        }
    }
}

fn concluded(mut reasons: Vec<CompatReason>) -> Comparison {
    let verdict = reasons.iter().map(|reason| reason.verdict).max().unwrap_or(CompatVerdict::Patch);
    reasons.sort_by(|left, right| {
        right
            .verdict
            .cmp(&left.verdict)
            .then_with(|| left.path.cmp(&right.path))
            .then_with(|| left.change.cmp(&right.change))
    });
    reasons.dedup();
    reasons.truncate(REASONS_MAX);
    Comparison { verdict, reasons }
}

#[cfg(test)]
mod tests;
