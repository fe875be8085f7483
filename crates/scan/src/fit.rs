//! What the fit of the model needs from this crate: the features of a definition, window by window.
//!
//! For `examples/scan_fit.rs`, which writes `src/model/weights.txt`. Nothing here is part of a scan, nor of a release (feature
//! `fit`); it is in this crate because the fit has to see exactly what the scan sees, or the weights would be of something else.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::definition::{NeighbourNames, ScannedDefinition, names, purpose_of, scan_with, whole_purpose};
use crate::features::{ReadSentence, features};
use crate::findings::{FindingList, ScanVerdict, verdict};
use crate::model;
use crate::normalise::normalise;
use crate::rules;
use crate::words::{KnownNames, sentences};

/// Most that all features against an attack count together, in hundredths, as the scan counts them.
pub const AGAINST_MAX: i32 = model::AGAINST_MAX;

/// Score from which a text is for review.
pub const REVIEW: u32 = rules::REVIEW;

/// What the rules say without the model: the highest score of a text, the largest number if anything else condemns it.
pub fn rules_alone(definition: &ScannedDefinition<'_>) -> u32 {
    let names = KnownNames { rules_only: true, ..names(definition, &NeighbourNames::default()) };
    let mut findings = FindingList::default();
    scan_with(definition, &names, &mut findings);
    let score = findings.loudest();
    // What condemns a text apart from its score (hidden characters, encodings) is not for the model to weigh.
    let beyond = score < REVIEW && verdict(&findings.finish()) > ScanVerdict::Clean;
    if beyond { u32::MAX } else { score }
}

/// Whether a score of the model, in hundredths, and one of the rules together ask for a review.
pub fn asks_for_review(score: i32, rules: u32) -> bool {
    rules.saturating_add_signed(model::points(score)) >= REVIEW
}

/// A sum of weights over a number of features as the scan counts it.
pub fn scaled(sum: i32, features: usize) -> i32 {
    model::scaled(sum, features)
}

/// Names of the features of every window of a definition's prose.
pub fn windows(definition: &ScannedDefinition<'_>) -> Vec<BTreeSet<String>> {
    let names = names(definition, &NeighbourNames::default());
    let mut texts = vec![(names.purpose.clone(), definition.description.to_owned())];
    let whole = whole_purpose(definition, &names);
    let mut below = Vec::new();
    descriptions(definition.parameters, "", &mut below);
    texts.extend(below.into_iter().map(|(name, text)| (purpose_of(&name, &whole), text)));
    let mut windows = Vec::new();
    for (purpose, text) in texts {
        let sentences = sentences(&normalise(&text).text, &names, false);
        let reads: Vec<ReadSentence<'_>> = sentences.iter().map(ReadSentence::new).collect();
        for window in (1..=model::WINDOW).flat_map(|size| reads.windows(size)) {
            let mut found = BTreeSet::new();
            features(window, &purpose, &mut |pieces| {
                found.insert(pieces.concat());
            });
            windows.push(found);
        }
    }
    windows
}

/// Descriptions and titles below a schema, with the name of what they describe.
fn descriptions(value: &Value, name: &str, texts: &mut Vec<(String, String)>) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::String(text) if matches!(key.as_str(), "description" | "title") => {
                        texts.push((name.to_owned(), text.clone()));
                    }
                    _ => descriptions(member, key, texts),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| descriptions(item, name, texts)),
        _ => {}
    }
}
