//! From a query to the terms that are looked up: few enough to be fast, and the ones that say most.
//!
//! A query is anybody's text: a word, a misspelled name, a page of prose, an attack. Its length is cut, its words become
//! terms (never syntax, WORD-1), and of those the rarest are taken until the postings they would touch reach a budget.
//! So a search costs the same in a registry of a hundred tools and of a hundred thousand, and what is dropped is what says
//! least. Words that only ask (*please*, *help*) are used if there is nothing else.
//!
//! Short queries are typed by people, who misspell and stop in the middle of a word: there, a word that no tool has is
//! replaced by words that begin with it, or else by the nearest ones.
//!
//! Invariants
//! - PLAN-1: the same query and vocabulary give the same plan.
//! - PLAN-2: all rankings of a plan together touch at most [`POSTINGS_MAX`] postings, unless a single term has more.

use base::SaturatingFrom as _;
use contract::nearest::distance_within;

use super::stop_words::{is_asking, is_stop_word};
use super::typo_distance::steps_allowed;
use super::words::{self, TextWord};

/// Longest answer, whatever the caller asks for.
pub(crate) const HITS_MAX: usize = 1000;
/// Characters of a query that are read; the rest is ignored.
const QUERY_CHARS_MAX: usize = 4000;
/// Most distinct terms of a query that are looked up in the vocabulary.
const QUERY_TERMS_MAX: usize = 128;
/// Most postings all rankings of one query may touch. Each costs about a microsecond.
const POSTINGS_MAX: u64 = 3000;
/// A term that more than one document in this many has is dropped when there are rarer ones.
const COMMON_ONE_IN: u64 = 5;
/// Most sentences that get a ranking of their own.
const SENTENCES_MAX: usize = 5;
/// A sentence needs this many terms to be worth a ranking.
const SENTENCE_TERMS_MIN: usize = 2;
/// Queries with at most this many words are completed and corrected.
const SHORT_QUERY_WORDS: usize = 3;
/// Shortest beginning of a word that is completed, in characters.
const COMPLETED_CHARS_MIN: usize = 2;
/// Most words that stand in for one that is unknown.
const REPLACEMENTS_MAX: usize = 3;

/// What an adapter's index knows about terms.
pub(crate) trait TermIndex {
    /// Why it could not be asked.
    type Error;
    /// How many documents there are.
    fn documents(&self) -> Result<u64, Self::Error>;
    /// How many documents have this term; 0 if none.
    fn frequency(&self, term: &str) -> Result<u64, Self::Error>;
    /// Terms that begin with `prefix` and in how many documents they are, at most a fixed number.
    fn beginning_with(&self, prefix: &str) -> Result<Vec<(String, u64)>, Self::Error>;
    /// Shows `visit` every term whose length in characters is in the range, at most a fixed number.
    fn of_length(&self, min: usize, max: usize, visit: &mut dyn FnMut(&str, u64)) -> Result<(), Self::Error>;
}

/// What to look up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SearchPlan {
    /// One for each sentence, or one for all. Each is looked up as "any of these terms"; the results are fused.
    /// Empty if nothing can be found.
    pub(crate) rankings: Vec<Vec<String>>,
}

impl SearchPlan {
    /// The plan for a query.
    pub(crate) fn of<V: TermIndex>(query: &str, vocabulary: &V) -> Result<Self, V::Error> {
        let query: String = query.chars().take(QUERY_CHARS_MAX).collect();
        let mut whole = Asked::of(&query, vocabulary)?;
        let sentences = whole.sentences(&query);
        whole.keep_affordable(&sentences, vocabulary.documents()?);
        let mut rankings: Vec<Vec<String>> = sentences
            .iter()
            .map(|sentence| sentence.iter().filter(|term| whole.has(term)).cloned().collect())
            .collect();
        if rankings.is_empty() {
            rankings.push(whole.terms.into_iter().map(|(_, term)| term).collect());
        }
        rankings.retain(|terms| !terms.is_empty());
        Ok(Self { rankings })
    }
}

// ----------------------------------------------------------------------------------------------------------- Asked

/// The known terms of a text with their frequencies, each once.
#[derive(Debug, Clone, Default)]
struct Asked {
    terms: Vec<(u64, String)>,
}

impl Asked {
    fn of<V: TermIndex>(text: &str, vocabulary: &V) -> Result<Self, V::Error> {
        let mut found = words::words(text);
        found.retain(|word| !is_stop_word(&word.text));
        // When every word only asks, they are all there is.
        if found.iter().any(|word| !is_asking(&word.text)) {
            found.retain(|word| !is_asking(&word.text));
        }
        let typed = found.iter().filter(|word| !word.joined).count();
        let mut asked = Self::default();
        for (at, word) in found.iter().enumerate() {
            let term = words::term_of(&word.text);
            let frequency = vocabulary.frequency(&term)?;
            if frequency > 0 {
                asked.add(term, frequency);
            } else if typed <= SHORT_QUERY_WORDS && !word.joined {
                let is_last = found.iter().skip(at + 1).all(|later| later.joined);
                for (replacement, frequency) in replacements(word, &term, is_last, vocabulary)? {
                    asked.add(replacement, frequency);
                }
            }
            if asked.terms.len() >= QUERY_TERMS_MAX {
                break;
            }
        }
        Ok(asked)
    }

    fn add(&mut self, term: String, frequency: u64) {
        if !self.terms.iter().any(|(_, known)| *known == term) {
            self.terms.push((frequency, term));
        }
    }

    fn has(&self, term: &str) -> bool {
        self.terms.iter().any(|(_, known)| known == term)
    }

    /// The known terms of each sentence that asks for something of its own; none unless there are at least two such.
    /// Sentences of too few terms go with the one before, and so do those beyond the limit.
    fn sentences(&self, text: &str) -> Vec<Vec<String>> {
        let mut sentences: Vec<Vec<String>> = Vec::new();
        for sentence in split_sentences(text) {
            let mut known: Vec<String> = Vec::new();
            for term in words::terms(sentence) {
                if self.has(&term) && !known.contains(&term) {
                    known.push(term);
                }
            }
            let alone = known.len() >= SENTENCE_TERMS_MIN && sentences.len() < SENTENCES_MAX;
            match sentences.last_mut() {
                Some(before) if !alone => {
                    known.retain(|term| !before.contains(term));
                    before.append(&mut known);
                }
                _ if known.is_empty() => {}
                _ => sentences.push(known),
            }
        }
        if sentences.len() < 2 {
            sentences.clear();
        }
        sentences
    }

    /// Keeps the rarest terms, as far as the budget goes. At least one, if there is any.
    fn keep_affordable(&mut self, sentences: &[Vec<String>], documents: u64) {
        self.terms.sort_unstable();
        let mut left = POSTINGS_MAX;
        let mut affordable = 0;
        for (frequency, term) in &self.terms {
            let lookups = sentences.iter().filter(|sentence| sentence.contains(term)).count().max(1);
            let postings = frequency.saturating_mul(u64::saturating_from(lookups));
            if affordable > 0 && (*frequency > documents / COMMON_ONE_IN || postings > left) {
                break;
            }
            left = left.saturating_sub(postings);
            affordable += 1;
        }
        self.terms.truncate(affordable);
    }
}

/// Splits at full stops and the like that end a word, so that `3.5` and `file.txt` stay whole.
fn split_sentences(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|character: char| character.is_whitespace())
        .scan(0, |offset, piece| {
            let end = *offset + piece.len();
            *offset = end;
            let ends_sentence = piece.contains('\n') || piece.trim_end().ends_with(['.', '?', '!', ';', ':', '。']);
            Some((end, ends_sentence))
        })
        .filter_map(|(end, ends_sentence)| ends_sentence.then_some(end))
        .chain(std::iter::once(text.len()))
        .scan(0, move |start, end| {
            let sentence = text.get(*start..end).unwrap_or_default();
            *start = end;
            Some(sentence)
        })
}

/// Known terms in place of a word that no document has.
fn replacements<V: TermIndex>(
    word: &TextWord,
    term: &str,
    is_last: bool,
    vocabulary: &V,
) -> Result<Vec<(String, u64)>, V::Error> {
    let chars = term.chars().count();
    if is_last && chars >= COMPLETED_CHARS_MIN {
        let completed = vocabulary.beginning_with(&word.text)?;
        if !completed.is_empty() {
            return Ok(best(completed.into_iter().map(|(term, frequency)| (0, term, frequency)).collect()));
        }
    }
    let steps = steps_allowed(chars);
    let mut near: Vec<(usize, String, u64)> = Vec::new();
    if steps > 0 {
        vocabulary.of_length(chars.saturating_sub(steps), chars + steps, &mut |known, frequency| {
            if let Some(steps) = distance_within(term, known, steps) {
                near.push((steps, known.to_owned(), frequency));
            }
        })?;
        let nearest = near.iter().map(|(steps, _, _)| *steps).min().unwrap_or(0);
        near.retain(|(steps, _, _)| *steps == nearest);
    }
    Ok(best(near))
}

/// The most frequent candidates; equal ones in alphabetical order (PLAN-1).
fn best(mut candidates: Vec<(usize, String, u64)>) -> Vec<(String, u64)> {
    candidates.sort_unstable_by(|left, right| right.2.cmp(&left.2).then_with(|| left.1.cmp(&right.1)));
    candidates.truncate(REPLACEMENTS_MAX);
    candidates.into_iter().map(|(_, term, frequency)| (term, frequency)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    struct Fixed(u64, BTreeMap<&'static str, u64>);

    impl TermIndex for Fixed {
        type Error = Infallible;
        fn documents(&self) -> Result<u64, Infallible> {
            Ok(self.0)
        }
        fn frequency(&self, term: &str) -> Result<u64, Infallible> {
            Ok(self.1.get(term).copied().unwrap_or(0))
        }
        fn beginning_with(&self, prefix: &str) -> Result<Vec<(String, u64)>, Infallible> {
            Ok(self.1.iter().filter(|(t, _)| t.starts_with(prefix)).map(|(t, n)| ((*t).to_owned(), *n)).collect())
        }
        fn of_length(&self, min: usize, max: usize, visit: &mut dyn FnMut(&str, u64)) -> Result<(), Infallible> {
            for (term, n) in self.1.iter().filter(|(t, _)| (min..=max).contains(&t.chars().count())) {
                visit(term, *n);
            }
            Ok(())
        }
    }

    fn check(query: &str, expected: &[&[&str]]) {
        let terms =
            [("weather", 3), ("forecast", 2), ("email", 5), ("send", 40), ("help", 2), ("data", 900), ("file", 90)];
        let vocabulary = Fixed(1000, BTreeMap::from(terms));
        let plan = SearchPlan::of(query, &vocabulary).unwrap_or_default();
        assert_eq!(plan.rankings, expected, "{query}");
    }

    #[test]
    fn queries_become_their_telling_terms_rarest_first() {
        check("", &[]);
        check("the of and", &[]);
        check("\"NEAR(*) AND OR NOT", &[]);
        check("Please send me the weather", &[&["weather", "send"]]);
        check("help", &[&["help"]]);
        check("please help", &[&["help"]]);
        check("data", &[&["data"]]);
        check("data file", &[&["file"]]);
        check("unheard-of words only", &[]);
    }

    #[test]
    fn short_queries_are_completed_and_corrected() {
        check("wether", &[&["weather"]]);
        check("emial", &[&["email"]]);
        check("send fore", &[&["forecast", "send"]]);
        check("fore send", &[&["send"]]);
        check("emial one two three four", &[]);
    }

    #[test]
    fn each_telling_sentence_gets_a_ranking_of_its_own() {
        check(
            "Send an email. Then the weather forecast for 3.5 days! Thanks.",
            &[&["send", "email"], &["weather", "forecast"]],
        );
    }

    #[test]
    fn the_postings_touched_are_bounded() {
        let vocabulary = Fixed(1_000_000, BTreeMap::from([("red", 3000), ("green", 1500), ("blue", 1400)]));
        let plan = SearchPlan::of("red green blue", &vocabulary).unwrap_or_default();
        assert_eq!(plan.rankings, [["blue", "green"]]);
        let vocabulary = Fixed(1_000_000, BTreeMap::from([("red", 300_000)]));
        assert_eq!(SearchPlan::of("red", &vocabulary).unwrap_or_default().rankings, [["red"]]);
    }

    #[test]
    fn a_huge_query_is_cut() {
        let vocabulary = Fixed(10, BTreeMap::from([("end", 1)]));
        let query = format!("{} end", "\"(*) ".repeat(20_000));
        assert_eq!(SearchPlan::of(&query, &vocabulary).unwrap_or_default(), SearchPlan::default());
    }
}
