//! Looks for what should not be in a tool's definition: hidden characters, orders to the model, look-alike names.
//!
//! A model reads a tool's description as part of its instructions, so whoever writes a description can give orders. This
//! crate reads the same text first. It is a pure function of the definition and the names around it: no model, no
//! network, no clock, so that the same definition gets the same findings on every machine and an audit can repeat them.
//!
//! The way of a text: `normalise` takes out what a person cannot see (and remembers it), `decode` opens what is
//! written in base64, hex, percent or entity form, `words` cuts it into sentences of plain tokens, `lexicon` marks
//! phrases, `rules` combines the marks of one sentence (who is told, to do what, with what, to where, hidden from whom)
//! into a weighted sum. Beside them `acts` folds words of ten languages into classes, and `model` weighs which classes and
//! words stand together. One word never condemns a text; a combination does.
//!
//! Invariants
//! - SCAN-1: work is linear in the input, and the input is bounded; what was not read is itself a finding.
//! - SCAN-2: text of printable ASCII passes normalisation unchanged.
//! - SCAN-3: an excerpt never carries a control or invisible character, so that showing a finding is safe.
//!
//! Not here: what to do about a finding (`upstreams` quarantines, `cli` shows), and the guard on call results.

mod acts;
mod decode;
mod definition;
mod features;
mod findings;
#[cfg(feature = "fit")]
pub mod fit;
mod lexicon;
mod model;
mod names;
mod normalise;
mod rules;
mod text;
mod words;

pub use definition::{NeighbourNames, ScannedDefinition};
pub use findings::{FindingKind, FindingSeverity, ScanFinding, ScanVerdict, verdict};
pub use normalise::{HiddenCharacters, PlainText, normalise};

use findings::FindingList;
use text::TextSurface;

/// Most findings that are reported of one definition; the heaviest stay.
pub const FINDINGS_MAX: usize = 64;

/// Scans one tool definition: its name against its neighbours, and every text in it that a model would read.
pub fn scan(definition: &ScannedDefinition<'_>, neighbours: &NeighbourNames) -> Vec<ScanFinding> {
    let mut findings = FindingList::default();
    names::scan(definition.name, neighbours, &mut findings);
    definition::scan(definition, neighbours, &mut findings);
    findings.finish()
}

/// Scans what a tool returned, before a model reads it.
pub fn scan_text(output: &str) -> Vec<ScanFinding> {
    let mut findings = FindingList::default();
    let names = words::KnownNames::default();
    text::scan(output, "", TextSurface::Output, &names, &names.purpose, &mut findings);
    findings.finish()
}
