//! `keywords`: the words and short phrases a text is about.
//!
//! Candidates are runs of up to three content words between stop words and punctuation (the idea of RAKE), plus their
//! single words. A candidate weighs its own occurrences times the mean frequency of its stems, a little more for each
//! further word, so that "circuit breaker" beats "breaker" once it is said twice. Deterministic: ties go to what comes
//! first.
//!
//! Not here: comparison with a corpus. A single text has no background to be unusual against.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::words::{Word, is_stop_word, lower, stem, words};

/// Words of one phrase.
const PHRASE_WORDS_MAX: usize = 3;
/// What each further word of a phrase adds.
const PHRASE_BONUS: f64 = 0.5;

#[derive(Debug)]
struct Candidate<'t> {
    text: &'t str,
    stems: Vec<String>,
    first_at: usize,
    occurrences: usize,
}

/// The `count` best keywords with score and occurrences.
pub(super) fn keywords(text: &str, count: usize) -> Value {
    let runs = content_runs(text);
    let mut frequency: HashMap<&str, usize> = HashMap::new();
    for (_, stem) in runs.iter().flatten() {
        *frequency.entry(stem).or_default() += 1;
    }
    let mut scored: Vec<(f64, Candidate<'_>)> =
        candidates(text, &runs).into_iter().map(|c| (score(&c, &frequency), c)).collect();
    scored.sort_by(|(a, x), (b, y)| b.total_cmp(a).then(x.first_at.cmp(&y.first_at)));
    let best = without_repetition(scored, count);
    let highest = best.first().map_or(1.0, |(score, _)| *score);
    let list: Vec<Value> = best
        .iter()
        .map(|(score, c)| {
            let relative = (score / highest * 1000.0).round() / 1000.0;
            json!({ "keyword": c.text, "score": relative, "occurrences": c.occurrences })
        })
        .collect();
    json!({ "keywords": list })
}

/// Runs of content words that no stop word or punctuation interrupts, each word with its stem.
fn content_runs(text: &str) -> Vec<Vec<(Word<'_>, String)>> {
    let mut runs = Vec::new();
    let mut run: Vec<(Word<'_>, String)> = Vec::new();
    let mut last_end = 0;
    for word in words(text) {
        let lowered = lower(word.text);
        let between = text.get(last_end..word.start).unwrap_or_default();
        if between.chars().any(|c| !c.is_whitespace()) || between.contains("\n\n") {
            runs.push(std::mem::take(&mut run));
        }
        last_end = word.end();
        let numeric = !lowered.chars().any(char::is_alphabetic);
        if is_stop_word(&lowered) || numeric || lowered.chars().count() < 2 {
            runs.push(std::mem::take(&mut run));
        } else {
            run.push((word, stem(&lowered)));
        }
    }
    runs.push(run);
    runs.retain(|run| !run.is_empty());
    runs
}

/// Every phrase of one to three words within the runs, counted.
fn candidates<'t>(text: &'t str, runs: &[Vec<(Word<'t>, String)>]) -> Vec<Candidate<'t>> {
    let mut found: HashMap<String, Candidate<'t>> = HashMap::new();
    for window in runs.iter().flat_map(|run| (1..=PHRASE_WORDS_MAX).flat_map(move |size| run.windows(size))) {
        let (Some((first, _)), Some((last, _))) = (window.first(), window.last()) else { continue };
        let stems: Vec<String> = window.iter().map(|(_, stem)| stem.clone()).collect();
        found.entry(stems.join(" ")).and_modify(|candidate| candidate.occurrences += 1).or_insert_with(|| Candidate {
            text: text.get(first.start..last.end()).unwrap_or_default(),
            stems,
            first_at: first.start,
            occurrences: 1,
        });
    }
    // A phrase that is said once is a coincidence; single words may be said once in a short text.
    found.into_values().filter(|c| c.stems.len() == 1 || c.occurrences > 1).collect()
}

fn score(candidate: &Candidate<'_>, frequency: &HashMap<&str, usize>) -> f64 {
    let total: usize = candidate.stems.iter().filter_map(|stem| frequency.get(stem.as_str())).sum();
    let words = candidate.stems.len() as f64;
    let length = candidate.text.chars().count() as f64;
    // Longer words say more; the root keeps that from deciding alone.
    candidate.occurrences as f64 * (total as f64 / words) * (1.0 + PHRASE_BONUS * (words - 1.0)) * length.sqrt()
}

/// Takes the best, leaving out what a better one already says.
fn without_repetition(scored: Vec<(f64, Candidate<'_>)>, count: usize) -> Vec<(f64, Candidate<'_>)> {
    let mut best: Vec<(f64, Candidate<'_>)> = Vec::new();
    for (score, candidate) in scored {
        if best.len() == count {
            break;
        }
        let repeats = best.iter().any(|(_, other)| candidate.stems.iter().all(|stem| other.stems.contains(stem)));
        if !repeats {
            best.push((score, candidate));
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "A circuit breaker protects a service from a failing dependency. When the dependency fails too \
        often, the circuit breaker opens and calls are refused at once. After a pause the circuit breaker lets a few \
        probes through. If the probes succeed, the breaker closes; the service recovers without being flooded.";

    fn list(text: &str, count: usize) -> Vec<String> {
        let value = keywords(text, count);
        value["keywords"].as_array().unwrap().iter().map(|k| k["keyword"].as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn repeated_phrases_come_first_and_nothing_is_said_twice() {
        let found = list(TEXT, 5);
        assert_eq!(found[0], "circuit breaker");
        assert!(found.contains(&"dependency".to_owned()) && found.contains(&"service".to_owned()), "{found:?}");
        assert!(!found.contains(&"breaker".to_owned()), "{found:?}");
        assert_eq!(found.len(), 5);
    }

    #[test]
    fn the_same_text_always_gives_the_same_list() {
        let first = keywords(TEXT, 10);
        assert!((0..20).all(|_| keywords(TEXT, 10) == first));
    }

    #[test]
    fn texts_without_content_have_no_keywords() {
        for text in ["", "the of and", "12 34", "?!"] {
            assert!(list(text, 10).is_empty(), "{text}");
        }
    }
}
