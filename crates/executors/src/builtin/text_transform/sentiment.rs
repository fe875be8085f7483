//! `sentiment`: whether a text is meant well, by a lexicon of about 600 English words.
//!
//! Each listed word brings its weight, turned round by a negation up to three words before it ("not really good"),
//! raised or lowered by the word before it ("very", "slightly"), and counted more after a "but", because that is where
//! people say what they mean. Irony and languages other than English are beyond it; `confidence` says how much evidence
//! there was.
//!
//! Not here: the model. A lexicon is instant, free and always gives the same answer.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Value, json};

use super::words::{lower, sentences, stem, words};

const NEGATIONS: &[&str] = &[
    "not", "no", "never", "none", "neither", "nor", "hardly", "barely", "scarcely", "without", "cannot", "nothing",
    "lacks",
];
const RAISING: &[&str] = &[
    "very",
    "extremely",
    "really",
    "absolutely",
    "incredibly",
    "totally",
    "completely",
    "so",
    "highly",
    "deeply",
    "utterly",
    "truly",
];
const LOWERING: &[&str] = &["slightly", "somewhat", "fairly", "rather", "mildly", "partly", "kinda", "almost"];
/// Words back that a negation reaches.
const NEGATION_REACH: usize = 3;
/// "not good" is bad, but not as bad as "good" is good.
const NEGATION_FACTOR: f64 = -0.7;
/// How fast the sum saturates towards ±1.
const SATURATION: f64 = 12.0;
/// Scores nearer to zero than this are neutral: one weak word alone proves nothing.
const NEUTRAL_BELOW: f64 = 0.3;

/// Stem → the listed words that have it, with their weights.
static LEXICON: LazyLock<HashMap<String, Vec<(&'static str, f64)>>> = LazyLock::new(|| {
    let mut lexicon: HashMap<String, Vec<(&str, f64)>> = HashMap::new();
    for line in include_str!("lexicon/sentiment.txt").lines().filter(|line| !line.starts_with('#')) {
        let mut parts = line.split_whitespace();
        let Some(weight) = parts.next().and_then(|w| w.parse::<f64>().ok()) else { continue };
        for word in parts {
            lexicon.entry(stem(word)).or_default().push((word, weight));
        }
    }
    lexicon
});

/// Word, score from -1 to 1, and how sure the answer is.
pub(super) fn sentiment(text: &str) -> Value {
    let mut evidence = Evidence::default();
    for sentence in sentences(text) {
        evidence.read(sentence);
    }
    let score = evidence.sum / (evidence.sum * evidence.sum + SATURATION).sqrt();
    let word = if score.abs() < NEUTRAL_BELOW {
        "neutral"
    } else if score > 0.0 {
        "positive"
    } else {
        "negative"
    };
    json!({ "sentiment": word, "score": rounded(score), "confidence": rounded(evidence.confidence()) })
}

fn rounded(value: f64) -> f64 {
    // Adding zero turns -0 into 0.
    (value * 1000.0).round() / 1000.0 + 0.0
}

#[derive(Debug, Default)]
struct Evidence {
    sum: f64,
    /// The sum without signs: how much was said either way.
    weight: f64,
    hits: usize,
}

impl Evidence {
    fn read(&mut self, sentence: &str) {
        let tokens: Vec<String> = words(sentence).map(|word| lower(word.text)).collect();
        let turn = tokens.iter().position(|t| matches!(t.as_str(), "but" | "however" | "although"));
        for (index, token) in tokens.iter().enumerate() {
            let Some(weight) = weight(token) else { continue };
            let before = tokens.get(index.saturating_sub(NEGATION_REACH)..index).unwrap_or_default();
            let negated = before.iter().any(|t| NEGATIONS.contains(&t.as_str()) || t.ends_with("n't"));
            let mut value = weight * degree(before.last().map_or("", String::as_str));
            if negated {
                value *= NEGATION_FACTOR;
            }
            match turn {
                Some(at) if index < at => value *= 0.5,
                Some(_) => value *= 1.3,
                None => {}
            }
            self.sum += value;
            self.weight += value.abs();
            self.hits += 1;
        }
    }

    fn confidence(&self) -> f64 {
        if self.hits == 0 {
            // Nothing spoke either way: neutral, on no evidence.
            return 0.3;
        }
        let agreement = self.sum.abs() / self.weight.max(f64::MIN_POSITIVE);
        let amount = self.hits as f64 / (self.hits as f64 + 2.0);
        0.4 + 0.6 * agreement * amount
    }
}

fn weight(token: &str) -> Option<f64> {
    let listed = LEXICON.get(&stem(token))?;
    let exact = listed.iter().find(|(word, _)| *word == token);
    exact.or_else(|| listed.iter().find(|(word, _)| is_inflection(token, word))).map(|(_, weight)| *weight)
}

/// Stems alone would make a `product` out of `productive`: all but the last letter of the listed word must be there.
fn is_inflection(token: &str, word: &str) -> bool {
    let kept = word.len().saturating_sub(1);
    token.as_bytes().get(..kept) == word.as_bytes().get(..kept)
}

fn degree(before: &str) -> f64 {
    if RAISING.contains(&before) {
        1.4
    } else if LOWERING.contains(&before) {
        0.6
    } else {
        1.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn realistic_reviews_are_read_as_people_read_them() {
        for (text, expected) in [
            ("I absolutely love this product. It works perfectly and the support team was very helpful.", "positive"),
            ("Terrible experience: the app crashes constantly and nobody answers my complaints.", "negative"),
            ("The meeting is on Tuesday at ten in room four.", "neutral"),
            ("It is not good at all.", "negative"),
            ("It isn't bad, really.", "positive"),
            ("The food was nice, but the service was horrible and we waited an hour.", "negative"),
            ("The hotel was a little old, but the staff were wonderful and the view was stunning.", "positive"),
            ("We were never disappointed in ten years with them.", "positive"),
            ("Delivery was delayed twice, the box arrived damaged and the refund was refused.", "negative"),
            ("The quarterly report lists revenue by region and product line.", "neutral"),
            ("Setup took five minutes, everything was intuitive, and I would recommend it to anyone.", "positive"),
            ("", "neutral"),
        ] {
            let found = sentiment(text);
            assert_eq!(found["sentiment"], expected, "{text}: {found}");
            let (score, confidence) = (found["score"].as_f64().unwrap(), found["confidence"].as_f64().unwrap());
            assert!((-1.0..=1.0).contains(&score) && (0.0..=1.0).contains(&confidence));
        }
    }

    #[test]
    fn more_evidence_gives_a_stronger_score_and_more_confidence() {
        let weak = sentiment("It is fine.");
        let strong = sentiment("It is excellent, wonderful, and we love it. A truly outstanding team.");
        assert!(strong["score"].as_f64() > weak["score"].as_f64());
        assert!(strong["confidence"].as_f64() > weak["confidence"].as_f64());
    }

    #[test]
    fn no_word_is_listed_with_two_weights() {
        let mut seen = HashMap::new();
        for line in include_str!("lexicon/sentiment.txt").lines().filter(|line| !line.starts_with('#')) {
            let mut parts = line.split_whitespace();
            let weight = parts.next().unwrap();
            for word in parts {
                assert_eq!(seen.insert(word, weight), None, "{word} is listed twice");
            }
        }
        assert!(seen.len() > 450, "{}", seen.len());
    }
}
