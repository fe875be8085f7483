//! Features: what the model is told about a sentence, and about two that follow each other.
//!
//! Concepts and their order within a few words say what is done to what; things that the tool's name and first sentence
//! do not speak of say that it is none of the tool's business; words, pairs of words and beginnings of words say how it
//! sounds. A feature has a name that a person can read, and is looked up by a digest of that name, so that reading a
//! text allocates nothing per feature.
//!
//! Not here: weights (`model`).

use std::collections::BTreeSet;

use crate::acts::{ConceptSpot, WordConcept, spots};
use crate::words::Sentence;

/// Tokens between two concepts that still belong together.
const PAIR_REACH: usize = 12;
/// Shorter words carry little of what a text is about, in bytes.
const CONTENT_WORD_MIN: usize = 4;
/// Letters of a word's beginning.
const STEM_LETTERS: usize = 5;
/// Concepts of one window that are paired; a sentence is bounded, so few have more.
const SPOTS_MAX: usize = 96;

/// One sentence with its concepts.
#[derive(Debug)]
pub(crate) struct ReadSentence<'a> {
    sentence: &'a Sentence,
    spots: Vec<ConceptSpot>,
}

impl<'a> ReadSentence<'a> {
    pub(crate) fn new(sentence: &'a Sentence) -> Self {
        let mut spots = spots(sentence);
        spots.truncate(SPOTS_MAX);
        Self { sentence, spots }
    }
}

/// What a tool is about, as far as its name and description say.
#[derive(Debug, Default, Clone)]
pub(crate) struct ToolPurpose {
    concepts: BTreeSet<WordConcept>,
    /// Beginnings of the words it is said in.
    stems: BTreeSet<String>,
}

impl ToolPurpose {
    /// Takes in what a sentence says.
    pub(crate) fn learn(&mut self, sentence: &Sentence) {
        self.concepts.extend(spots(sentence).into_iter().map(|spot| spot.concept));
        self.stems.extend(sentence.canonical.split(' ').filter_map(stem).map(str::to_owned));
    }
}

/// Calls `tell` with every feature of a window of one or two sentences, in pieces that make its name; some repeatedly.
pub(crate) fn features(window: &[ReadSentence<'_>], purpose: &ToolPurpose, tell: &mut dyn FnMut(&[&str])) {
    let mut offset = 0_usize;
    let mut placed: Vec<ConceptSpot> = Vec::new();
    for read in window {
        placed.extend(read.spots.iter().map(|spot| ConceptSpot { at: spot.at + offset, concept: spot.concept }));
        offset += read.sentence.starts.len();
        words(read.sentence, tell);
        let shared = read.sentence.canonical.split(' ').filter_map(stem).filter(|stem| purpose.stems.contains(*stem));
        tell(&["shared:", ["none", "one", "some"].get(shared.take(2).count()).copied().unwrap_or_default()]);
    }
    // A thing that the purpose does not speak of is another feature than one that it does.
    let strange = |spot: &ConceptSpot| spot.concept.is_thing() && !purpose.concepts.contains(&spot.concept);
    for (number, spot) in placed.iter().enumerate() {
        let sign = if strange(spot) { "+" } else { "" };
        tell(&["c:", spot.concept.as_str()]);
        if strange(spot) {
            tell(&["c:+", spot.concept.as_str()]);
        }
        let later = placed.iter().skip(number + 1).take_while(|other| other.at <= spot.at + PAIR_REACH);
        for other in later.filter(|other| other.concept != spot.concept && other.at > spot.at) {
            tell(&[spot.concept.as_str(), ">", other.concept.as_str()]);
            if strange(spot) || strange(other) {
                let other_sign = if strange(other) { "+" } else { "" };
                tell(&[sign, spot.concept.as_str(), ">", other_sign, other.concept.as_str()]);
            }
        }
    }
}

/// The beginning of a word that carries meaning.
fn stem(word: &str) -> Option<&str> {
    if word.len() < CONTENT_WORD_MIN {
        return None;
    }
    let end = word.char_indices().nth(STEM_LETTERS).map_or(word.len(), |(end, _)| end);
    word.get(..end)
}

fn words(sentence: &Sentence, tell: &mut dyn FnMut(&[&str])) {
    let mut before = "^";
    for word in sentence.canonical.split(' ').filter(|word| !word.is_empty()) {
        tell(&["w:", word]);
        tell(&["w:", before, "_", word]);
        if let Some(stem) = stem(word).filter(|stem| stem.len() < word.len()) {
            tell(&["s:", stem]);
        }
        before = word;
    }
}
