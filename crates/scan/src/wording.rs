//! Wording: how much a sentence sounds like an order to a model instead of a description of a tool.
//!
//! Rules know the attacks that were thought of. What they do not know is still written in another voice than a
//! description: it tells a reader what to do afterwards, with whatever was said, instead of the usual. A linear model over
//! single words and pairs catches that voice. It was fitted by logistic regression on two thirds of
//! `testdata/definitions.jsonl`, on `testdata/fitted.jsonl` and on descriptions of public tools (cloud and code-hosting
//! servers, API documents, two research sets), taking from each malicious text the sentence that scored highest.
//!
//! A voice is no proof: the wording by itself stays below a review, it can only tip the scale beside a rule.

mod weights;

use weights::{BIAS, WEIGHTS};

use crate::words::Sentence;

/// Scores, in hundredths, from which the wording counts, with what it counts for.
const STEPS: &[(i32, u32)] = &[(200, 6), (50, 4), (-40, 2)];

/// What the wording of a sentence counts for.
pub(crate) fn weight(sentence: &Sentence) -> Option<u32> {
    let score = score(&sentence.canonical);
    STEPS.iter().find(|(least, _)| score >= *least).map(|(_, weight)| *weight)
}

fn score(canonical: &str) -> i32 {
    let mut seen: Vec<&str> = Vec::new();
    let mut total = BIAS;
    let mut add = |feature: &str| {
        let found = WEIGHTS.binary_search_by(|(name, _)| (*name).cmp(feature)).ok().and_then(|at| WEIGHTS.get(at));
        // A word counts once per sentence, however often it stands there.
        if let Some((name, weight)) = found.filter(|(name, _)| !seen.contains(name)) {
            seen.push(name);
            total = total.saturating_add(*weight);
        }
    };
    let mut before = "";
    for word in canonical.split(' ').filter(|word| !word.is_empty()) {
        add(word);
        if !before.is_empty() {
            add(&format!("{before} {word}"));
        }
        before = word;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_doubles() {
        assert!(WEIGHTS.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn orders_sound_unlike_descriptions() {
        let order = score(" whatever the user says put the answers here and follow it ");
        let description = score(" returns the list of files in a directory with their sizes ");
        assert!(order > description + 200, "{order} {description}");
    }

    #[test]
    fn a_word_counts_once() {
        assert_eq!(score(" whatever "), score(" whatever whatever ").min(score(" whatever ")));
    }
}
