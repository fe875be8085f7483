//! `summarize`, extractive: the sentences that say most, in their own order.
//!
//! Each content word weighs its share of the text. The sentence with the highest mean weight is taken, then its words
//! count for less, so that the next one says something else (the idea of SumBasic), until the length is used up. The
//! first sentence gets a bonus, because people put the point there. Nothing is invented: every sentence of the summary
//! stands in the text.
//!
//! Not here: rewriting (`mode: abstractive`), which needs a model.

use std::collections::HashMap;

use super::words::{is_stop_word, lower, sentences, stem, words};

/// What the first sentence weighs more.
const LEAD_BONUS: f64 = 1.25;
/// What words that were said already count for afterwards.
const SAID_FACTOR: f64 = 0.2;
/// Sentences with fewer content words than this are headings and interjections.
const CONTENT_WORDS_MIN: usize = 3;

/// Sentences that are looked at; a text with more has said its point by then.
const SENTENCES_MAX: usize = 2000;
/// Sentences that are taken or tried at most.
const ROUNDS_MAX: usize = 80;

#[derive(Debug)]
struct Sentence<'t> {
    text: &'t str,
    /// Its content words, as indexes into the table of weights.
    stems: Vec<usize>,
    tried: bool,
}

/// A summary of at most `characters_max` characters.
pub(super) fn summarize(text: &str, characters_max: usize) -> String {
    let whole = text.trim();
    if whole.chars().count() <= characters_max {
        return whole.to_owned();
    }
    let (mut sentences, mut weights) = read(whole);
    let mut chosen = choose(&mut sentences, &mut weights, characters_max);
    if chosen.is_empty() {
        return cut(sentences.first().map_or(whole, |sentence| sentence.text), characters_max);
    }
    chosen.sort_unstable();
    let parts: Vec<&str> = chosen.iter().filter_map(|index| sentences.get(*index)).map(|s| s.text).collect();
    parts.join(" ")
}

/// The sentences, and for each stem how often it occurs.
fn read(text: &str) -> (Vec<Sentence<'_>>, Vec<f64>) {
    let mut known: HashMap<String, usize> = HashMap::new();
    let mut weights: Vec<f64> = Vec::new();
    let mut read = Vec::new();
    for text in sentences(text).into_iter().take(SENTENCES_MAX) {
        let mut stems = Vec::new();
        for word in words(text).map(|word| lower(word.text)) {
            if is_stop_word(&word) || !word.chars().any(char::is_alphabetic) {
                continue;
            }
            let index = *known.entry(stem(&word)).or_insert(weights.len());
            match weights.get_mut(index) {
                Some(weight) => *weight += 1.0,
                None => weights.push(1.0),
            }
            stems.push(index);
        }
        read.push(Sentence { text, stems, tried: false });
    }
    (read, weights)
}

/// Indexes of the sentences to keep, best first.
fn choose(sentences: &mut [Sentence<'_>], weights: &mut [f64], characters_max: usize) -> Vec<usize> {
    let mut chosen = Vec::new();
    let mut left = characters_max;
    for _ in 0..ROUNDS_MAX {
        let best = sentences
            .iter_mut()
            .enumerate()
            .filter(|(_, sentence)| !sentence.tried)
            .map(|(index, sentence)| (score(index, sentence, weights), index, sentence))
            // The earlier of two equal ones, hence not `max_by`, which takes the later.
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        let Some((_, index, sentence)) = best else { break };
        sentence.tried = true;
        let needed = sentence.text.chars().count() + usize::from(!chosen.is_empty());
        // What is left over is not filled with remarks.
        let filler = sentence.stems.len() < CONTENT_WORDS_MIN && !chosen.is_empty();
        if needed > left || filler {
            continue;
        }
        left -= needed;
        chosen.push(index);
        for stem in &sentence.stems {
            if let Some(weight) = weights.get_mut(*stem) {
                *weight *= SAID_FACTOR;
            }
        }
    }
    chosen
}

fn score(index: usize, sentence: &Sentence<'_>, weights: &[f64]) -> f64 {
    let total: f64 = sentence.stems.iter().filter_map(|stem| weights.get(*stem)).sum();
    // The divisor keeps short exclamations from winning by their mean alone.
    let mean = total / sentence.stems.len().max(CONTENT_WORDS_MIN + 2) as f64;
    let substantial = if sentence.stems.len() < CONTENT_WORDS_MIN { 0.3 } else { 1.0 };
    mean * substantial * if index == 0 { LEAD_BONUS } else { 1.0 }
}

/// The beginning of a sentence that is too long, cut between words.
fn cut(text: &str, characters_max: usize) -> String {
    let kept: String = text.chars().take(characters_max.saturating_sub(1)).collect();
    let at_word = kept.rfind(char::is_whitespace).and_then(|at| kept.get(..at)).unwrap_or(&kept);
    format!("{}…", at_word.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "The city council approved a new flood defence on Monday. The plan costs 40 million euros and \
        protects the old town against floods of the river. Coffee was served. Residents of the old town had waited for \
        flood protection since the river flooded their cellars in 2013. The mayor thanked everybody. Construction of \
        the flood defence starts in spring, and the council expects that the old town will be protected within three \
        years. Critics say that the plan ignores the villages further down the river.";

    #[test]
    fn a_summary_keeps_the_point_and_the_order_and_the_length() {
        let summary = summarize(TEXT, 260);
        assert!(summary.chars().count() <= 260, "{summary}");
        assert!(summary.contains("flood"), "{summary}");
        assert!(!summary.contains("Coffee"), "{summary}");
        let mut at = 0;
        for sentence in sentences(&summary) {
            let found = TEXT.get(at..).unwrap().find(sentence).expect("each sentence stands in the text, in order");
            at += found + sentence.len();
        }
        assert!(sentences(&summary).len() >= 2, "{summary}");
    }

    #[test]
    fn short_texts_stay_and_long_sentences_are_cut_between_words() {
        assert_eq!(summarize("  Short. ", 100), "Short.");
        let long = "word ".repeat(100);
        let summary = summarize(&long, 30);
        assert!(summary.ends_with("word…") && summary.chars().count() <= 30, "{summary}");
        assert_eq!(summarize(&"é".repeat(50), 10), format!("{}…", "é".repeat(9)));
        assert_eq!(summarize("", 10), "");
    }
}
