//! Negotiation: can a caller who wants to send this use a tool that takes that? (REG-018)
//!
//! Unlike a comparison of versions this is about parts: which of those the caller has in mind does the tool know, and does
//! it demand something the caller has not got. Narrower bounds are mentioned but do not decide, because they concern
//! single values, not the fit.
//!
//! Not here: finding a tool (the registry's search).

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::conjunction::{Conjunction, Types};
use super::defaults::DefaultMap;
use super::gap::{Gap, What};
use super::objects::list_len;
use super::prover::{PATH_BYTES_PER_STEP, Prover, Rules, Spot};
use super::tangled;
use crate::schema::document::{SchemaDocument, join};
use crate::schema::{SchemaLimits, place_validators, readable, strict};

/// How well a tool fits what a caller wants to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NegotiationFit {
    /// The tool takes everything the caller has in mind and demands nothing more.
    FullMatch,
    /// Only optional parts are missing.
    PartialMatch,
    /// A required part is missing or of another type.
    Incompatible,
}

/// The answer to "expected versus offered", with what stands in the way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Negotiation {
    /// The answer.
    pub outcome: NegotiationFit,
    /// Parts one side requires and the other has not got.
    pub missing_required: Vec<String>,
    /// Parts the caller could do without.
    pub missing_optional: Vec<String>,
    /// Parts both have, with types that do not fit.
    pub conflicts: Vec<SchemaConflict>,
    /// Parts both have, where the tool is pickier about single values.
    pub narrower: Vec<SchemaConflict>,
}

/// A part that both sides know but do not agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SchemaConflict {
    /// JSON pointer into the parameters.
    pub path: String,
    /// What does not fit.
    pub message: String,
}

/// Compares what a caller wants to send with what a tool takes.
///
/// ```
/// use gantry_contract::compat::{NegotiationFit, negotiate};
/// use serde_json::json;
///
/// let wanted = json!({ "properties": { "city": { "type": "string" }, "lang": { "type": "string" } }, "required": ["city"] });
/// let offered = json!({ "properties": { "city": { "type": "string" } }, "required": ["city"] });
/// let answer = negotiate(&wanted, &offered);
/// assert_eq!(answer.outcome, NegotiationFit::PartialMatch);
/// assert_eq!(answer.missing_optional, ["/lang"]);
/// ```
pub fn negotiate(expected: &Value, offered: &Value) -> Negotiation {
    let limits = SchemaLimits::default();
    let mut talk = Talk::default();
    let mut read = |schema, whose: &str| match readable(schema, &limits, &[], true) {
        Ok(readable) => Some(strict::closed(&readable.schema)),
        Err(errors) => {
            talk.conflicts
                .push(SchemaConflict { path: String::new(), message: format!("the {whose} schema: {errors}") });
            None
        }
    };
    if let (Some(expected), Some(offered)) = (read(expected, "expected"), read(offered, "offered")) {
        let (expected, offered) = (SchemaDocument::new(&expected), SchemaDocument::new(&offered));
        let validators = place_validators(offered.root(), &limits);
        let defaults = DefaultMap::of(&offered, validators.as_ref()).filled;
        let mut prover = Prover::new(&expected, &offered, Rules { coercion: false, names_matter: false, defaults });
        let narrow = Conjunction::of(&expected, [expected.root()]);
        talk.about(&mut prover, &narrow, &Conjunction::of(&offered, [offered.root()]), &Spot::root(), true, 0);
        if prover.is_spent() {
            // What was found by then is a part of it at the most, and which one nobody can tell.
            talk = Talk::default();
            talk.conflicts.push(SchemaConflict { path: String::new(), message: tangled() });
        }
    }
    talk.concluded()
}

#[derive(Debug, Default)]
struct Talk {
    missing_required: Vec<String>,
    missing_optional: Vec<String>,
    conflicts: Vec<SchemaConflict>,
    narrower: Vec<SchemaConflict>,
}

/// Names that are looked through as quickly as one schema is looked at.
const NAMES_PER_STEP: usize = 16;
/// How many levels of objects are gone through part by part; below that the whole part counts.
const LEVELS_MAX: usize = 8;

impl Talk {
    fn about<'n, 'w>(
        &mut self,
        prover: &mut Prover<'n, 'w>,
        wanted: &Conjunction<'n>,
        taken: &Conjunction<'w>,
        spot: &Spot,
        needed: bool,
        level: usize,
    ) {
        prover.count(1 + wanted.parts.len() + taken.parts.len() + spot.path.len() / PATH_BYTES_PER_STEP);
        if prover.is_spent() {
            return;
        }
        let objects =
            wanted.all("properties").next().is_some() && taken.types.meets(Types::OBJECT) && level < LEVELS_MAX;
        if !objects || taken.all("properties").next().is_none() {
            for node in taken.nodes.first().into_iter().copied() {
                let gaps = prover.prove(wanted, node, spot);
                self.weigh(&gaps);
            }
            return;
        }
        for name in wanted.mentions().names {
            prover.count(list_len(wanted.all("required")) / NAMES_PER_STEP + spot.path.len() / PATH_BYTES_PER_STEP);
            if prover.is_spent() {
                return;
            }
            let next = spot.part(name, true);
            let required = needed && wanted.requires(name);
            let described: Vec<&'w Value> = taken.all("properties").filter_map(|named| named.get(name)).collect();
            if described.is_empty() {
                let open = taken
                    .all("additionalProperties")
                    .chain(taken.all("unevaluatedProperties"))
                    .any(|schema| *schema != Value::Bool(false));
                if open || taken.mentions().names.contains(name) {
                    continue;
                }
                let list = if required { &mut self.missing_required } else { &mut self.missing_optional };
                list.push(next.path);
                continue;
            }
            let known = prover.property(wanted, name);
            let described = Conjunction::of(taken.document, described);
            self.about(prover, &known, &described, &next, required, level + 1);
        }
        self.demands(prover, wanted, taken, spot);
    }

    /// What the tool requires and the caller has not got.
    fn demands<'n, 'w>(
        &mut self,
        prover: &Prover<'n, 'w>,
        wanted: &Conjunction<'n>,
        taken: &Conjunction<'w>,
        spot: &Spot,
    ) {
        let names = wanted.mentions().names;
        prover.count(list_len(taken.all("required")).saturating_mul(1 + spot.path.len() / PATH_BYTES_PER_STEP));
        if prover.is_spent() {
            return;
        }
        let required = taken.all("required").filter_map(Value::as_array).flatten().filter_map(Value::as_str);
        for name in required.filter(|name| !names.contains(name)) {
            let mut described = taken.all("properties").filter_map(|named| named.get(name));
            let by_default = described.any(|schema| prover.rules.defaults.contains(&std::ptr::from_ref(schema).addr()));
            if !by_default {
                self.missing_required.push(join(&spot.path, name));
            }
        }
    }

    fn weigh(&mut self, gaps: &[Gap]) {
        for gap in gaps {
            let reason = gap.reason(true, super::CompatVerdict::Major);
            match &gap.what {
                What::Required(_) => self.missing_required.push(gap.path.clone()),
                What::Type | What::Values => {
                    let message = match (&gap.narrow, &gap.wide) {
                        (Some(has), Some(takes)) => format!("the caller has `{has}`, the tool takes `{takes}`"),
                        _ => "the tool does not take every kind of value the caller has".to_owned(),
                    };
                    self.conflicts.push(SchemaConflict { path: gap.path.clone(), message });
                }
                What::NarrowOnly(_) => self.missing_optional.push(gap.path.clone()),
                What::Bound(_)
                | What::Keyword(_)
                | What::WideOnly(_)
                | What::Undeclared
                | What::Coercion
                | What::Unproven(_) => {
                    let message = format!("the tool may refuse single values ({})", reason.change);
                    self.narrower.push(SchemaConflict { path: gap.path.clone(), message });
                }
            }
        }
    }

    fn concluded(mut self) -> Negotiation {
        for list in [&mut self.missing_required, &mut self.missing_optional] {
            list.sort();
            list.dedup();
        }
        let outcome = if !self.missing_required.is_empty() || !self.conflicts.is_empty() {
            NegotiationFit::Incompatible
        } else if !self.missing_optional.is_empty() {
            NegotiationFit::PartialMatch
        } else {
            NegotiationFit::FullMatch
        };
        let Self { missing_required, missing_optional, conflicts, narrower } = self;
        Negotiation { outcome, missing_required, missing_optional, conflicts, narrower }
    }
}
