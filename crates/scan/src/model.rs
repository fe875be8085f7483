//! The model: a linear one over the features of a text, for what the rules have not been told.
//!
//! Rules know attacks that somebody thought of. The model has seen some hundreds of poisoned and some thousands of honest
//! definitions and weighs acts and wording. It is small on purpose: a table of named weights, a sum, a threshold; the same
//! text has the same score on every machine, and what spoke loudest can be shown.
//!
//! A text's score is that of its loudest window of one or two sentences, so that a long honest text around an order does
//! not drown it. What speaks against an attack counts at most [`AGAINST_MAX`], so that honest words cannot buy it off.
//!
//! The table is written by `cargo xtask scan-eval fit`. Not here: rules, findings (`text`).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::OnceLock;

use crate::FindingKind;
use crate::acts::WordConcept;
use crate::features::{ReadSentence, ToolPurpose, features};
use crate::rules::REVIEW;
use crate::words::Sentence;

/// Name and weight in hundredths of every feature, a line each; `bias` is where an empty text stands.
const TABLE: &str = include_str!("model/weights.txt");
/// Most that all features against an attack count together, in hundredths.
pub(crate) const AGAINST_MAX: i32 = 600;
/// Score, in hundredths, from which the model alone asks for a review.
pub(crate) const ALONE: i32 = 130;
/// Hundredths of the model's score that weigh as much as one point of the rules.
const POINT: i32 = 15;
/// Most that the model counts for: by itself it never makes a block.
const POINTS_MAX: i32 = 13;
/// Most that the model takes away: what the rules say loudly, it does not talk down.
const POINTS_MIN: i32 = -4;
/// Windows of fewer features are taken to have this many: a single word must not shout.
const FEATURES_FEW: usize = 20;
/// Features that are named in a finding.
const NAMED_MAX: usize = 5;
/// Sentences of one text that are judged; a text is bounded in bytes, this bounds what is kept of it at once.
pub(crate) const WINDOW: usize = 2;

/// What the model says about one text.
#[derive(Debug)]
pub(crate) struct ModelOpinion {
    /// Score in hundredths; the fit puts even odds at zero.
    pub(crate) score: i32,
    /// What its acts amount to.
    pub(crate) kind: FindingKind,
    /// The loudest window.
    pub(crate) excerpt: String,
    /// Its strongest features, for a person.
    pub(crate) because: String,
}

/// Judges the sentences of a text. `None` if there are none.
pub(crate) fn judge(sentences: &[Sentence], purpose: &ToolPurpose) -> Option<ModelOpinion> {
    let reads: Vec<ReadSentence<'_>> = sentences.iter().map(ReadSentence::new).collect();
    let windows = (1..=WINDOW).flat_map(|size| reads.windows(size).zip(sentences.windows(size)));
    let scored = windows.map(|(window, written)| (score(window, purpose), window, written));
    let (score, window, written) = scored.max_by_key(|(score, ..)| *score)?;
    let excerpt = written.iter().map(|sentence| sentence.written.as_str()).collect::<Vec<_>>().join(" ");
    let (kind, because) = because(window, purpose);
    Some(ModelOpinion { score, kind, excerpt, because })
}

/// What a score counts for beside the rules, below nothing if it speaks against them.
pub(crate) fn points(score: i32) -> i32 {
    let above = score.saturating_sub(ALONE).div_euclid(POINT);
    above.saturating_add_unsigned(REVIEW).clamp(POINTS_MIN, POINTS_MAX)
}

/// The score of one window, in hundredths.
fn score(window: &[ReadSentence<'_>], purpose: &ToolPurpose) -> i32 {
    let table = table();
    let mut seen: Vec<u64> = Vec::new();
    features(window, purpose, &mut |pieces| seen.push(digest(pieces)));
    seen.sort_unstable();
    seen.dedup();
    let (mut speaks_for, mut against) = (0_i32, 0_i32);
    for weight in seen.iter().filter_map(|key| table.weights.get(key)) {
        if *weight > 0 {
            speaks_for = speaks_for.saturating_add(*weight);
        } else {
            against = against.saturating_sub(*weight);
        }
    }
    table.bias.saturating_add(scaled(speaks_for.saturating_sub(against.min(AGAINST_MAX)), seen.len()))
}

/// A sum over this many features, as if there were a hundred: a long sentence must not be loud by its length.
pub(crate) fn scaled(sum: i32, features: usize) -> i32 {
    let root = (features.max(FEATURES_FEW) * 100).isqrt();
    i32::try_from(root).map_or(0, |root| sum.saturating_mul(100) / root.max(1))
}

/// What the acts of a window amount to, and its strongest features as text.
fn because(window: &[ReadSentence<'_>], purpose: &ToolPurpose) -> (FindingKind, String) {
    let table = table();
    let mut speaking: BTreeSet<(i32, String)> = BTreeSet::new();
    features(window, purpose, &mut |pieces| {
        if let Some(weight) = table.weights.get(&digest(pieces)).filter(|weight| **weight > 0) {
            speaking.insert((-weight, pieces.concat()));
        }
    });
    let mut kinds: BTreeMap<FindingKind, i32> = BTreeMap::new();
    for (weight, name) in &speaking {
        for kind in name.split([':', '>', '+']).filter_map(WordConcept::of_name).filter_map(kind_of) {
            *kinds.entry(kind).or_default() -= weight;
        }
    }
    let loudest = kinds.into_iter().max_by_key(|(_, weight)| *weight);
    let named: Vec<String> = speaking.into_iter().take(NAMED_MAX).map(|(_, name)| name).collect();
    (loudest.map_or(FindingKind::InstructionToModel, |(kind, _)| kind), named.join(", "))
}

/// What a concept is a sign of.
fn kind_of(concept: WordConcept) -> Option<FindingKind> {
    use WordConcept as C;
    match concept {
        C::Secret | C::Context | C::Personal | C::Place | C::Slot | C::Send | C::Put | C::Whole | C::Copy => {
            Some(FindingKind::DataExfiltration)
        }
        C::Encode | C::Read | C::File | C::Routine => Some(FindingKind::DataExfiltration),
        C::Hide | C::Tell | C::Pretend => Some(FindingKind::Concealment),
        C::Reader | C::Prior | C::Rules | C::Ignore | C::Obey | C::Authority | C::Lasting | C::Answer | C::Ask => {
            Some(FindingKind::InstructionToModel)
        }
        C::Tool | C::Other | C::Alter | C::Before | C::After | C::Money => Some(FindingKind::CrossToolReference),
        C::Prefer | C::Worse => Some(FindingKind::ToolPreference),
        C::Destroy | C::Off | C::Guard | C::Power | C::Run => Some(FindingKind::DangerousCommand),
        C::User | C::Neg | C::When | C::Every | C::Must | C::Also | C::Threat => None,
    }
}

// --- the table -----------------------------------------------------------------------------------------------------

#[derive(Debug)]
struct Table {
    bias: i32,
    weights: HashMap<u64, i32>,
}

fn table() -> &'static Table {
    static PARSED: OnceLock<Table> = OnceLock::new();
    PARSED.get_or_init(|| parse(TABLE))
}

fn parse(text: &str) -> Table {
    let mut table = Table { bias: 0, weights: HashMap::new() };
    for (name, weight) in text.lines().filter_map(|line| line.rsplit_once(' ')) {
        let weight = weight.parse().unwrap_or(0);
        if name == "bias" {
            table.bias = weight;
        } else {
            table.weights.insert(digest(&[name]), weight);
        }
    }
    table
}

/// FNV-1a over the pieces of a name. It need not withstand anybody: a collision only moves a score a little.
fn digest(pieces: &[&str]) -> u64 {
    let bytes = pieces.iter().flat_map(|piece| piece.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
