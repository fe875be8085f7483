//! Sentences and words of a text, shared by everything that looks into text.
//!
//! Rules of thumb for prose, not linguistics: a sentence ends at a full stop, question or exclamation mark that is
//! followed by white space and a capital, unless the full stop belongs to an abbreviation or an initial. A word is a run
//! of letters, digits and inner apostrophes or hyphens.
//!
//! Not here: languages that write without spaces get sentences (by `。`) but no useful words. Nothing pretends they do.

use std::collections::HashSet;
use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};

/// Abbreviations that a full stop belongs to, lower case and without it.
const ABBREVIATIONS: &[&str] = &[
    "mr", "mrs", "ms", "dr", "prof", "sr", "jr", "st", "inc", "ltd", "co", "corp", "llc", "vs", "etc", "e.g", "i.e",
    "approx", "dept", "est", "fig", "no", "vol", "pp", "jan", "feb", "mar", "apr", "jun", "jul", "aug", "sep", "sept",
    "oct", "nov", "dec", "u.s", "u.k", "u.n", "a.m", "p.m", "gen", "col", "sen", "rep", "gov", "hon", "rev", "min",
    "max",
];

/// Characters looked at after a mark to see whether it ends the sentence.
const LOOK_AHEAD_MAX: usize = 8;

static STOP_WORDS: LazyLock<HashSet<&'static str>> =
    LazyLock::new(|| include_str!("lexicon/stop_words.txt").split_whitespace().collect());

/// Does the (lower-case) word carry no content of its own?
pub(super) fn is_stop_word(word: &str) -> bool {
    STOP_WORDS.contains(word)
}

/// Brings inflections of a lower-case English word together: `running` and `runs` become `run`.
pub(super) fn stem(word: &str) -> String {
    static STEMMER: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));
    STEMMER.stem(word).into_owned()
}

/// A word and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Word<'t> {
    pub(super) text: &'t str,
    /// Byte offset.
    pub(super) start: usize,
}

impl Word<'_> {
    pub(super) fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The words of a text, in order.
pub(super) fn words(text: &str) -> impl Iterator<Item = Word<'_>> {
    let mut rest = text.char_indices().peekable();
    std::iter::from_fn(move || {
        let (start, _) = rest.find(|(_, c)| c.is_alphanumeric())?;
        let mut end = text.len();
        while let Some(&(at, c)) = rest.peek() {
            let joins = matches!(c, '\'' | '’' | '-') && next_is_alphanumeric(text, at + c.len_utf8());
            if !c.is_alphanumeric() && !joins {
                end = at;
                break;
            }
            rest.next();
        }
        text.get(start..end).map(|text| Word { text, start })
    })
}

fn next_is_alphanumeric(text: &str, at: usize) -> bool {
    text.get(at..).and_then(|rest| rest.chars().next()).is_some_and(char::is_alphanumeric)
}

/// Lower case, with straight apostrophes.
pub(super) fn lower(word: &str) -> String {
    word.to_lowercase().replace('’', "'")
}

/// The sentences of a text, trimmed, none empty.
pub(super) fn sentences(text: &str) -> Vec<&str> {
    let mut sentences = Vec::new();
    let mut start = 0;
    let mut characters = text.char_indices().peekable();
    while let Some((at, c)) = characters.next() {
        let after = at + c.len_utf8();
        let ends = match c {
            '。' | '！' | '？' => true,
            '.' | '!' | '?' | '…' => ends_sentence(text, start, at, c),
            '\n' => blank_line_follows(text, after),
            _ => false,
        };
        if ends {
            // Closing quotes and brackets belong to the sentence they close.
            let mut end = after;
            while let Some(&(at, c)) = characters.peek()
                && closes(c)
            {
                end = at + c.len_utf8();
                characters.next();
            }
            push_trimmed(&mut sentences, text.get(start..end));
            start = end;
        }
    }
    push_trimmed(&mut sentences, text.get(start..));
    sentences
}

/// Quotes, brackets and further marks that may follow the end of a sentence.
fn closes(c: char) -> bool {
    matches!(c, '"' | '\'' | '”' | '’' | ')' | ']' | '»' | '.' | '!' | '?')
}

fn push_trimmed<'t>(sentences: &mut Vec<&'t str>, piece: Option<&'t str>) {
    let piece = piece.unwrap_or_default().trim();
    if piece.chars().any(char::is_alphanumeric) {
        sentences.push(piece);
    }
}

fn blank_line_follows(text: &str, at: usize) -> bool {
    let rest = text.get(at..).unwrap_or_default();
    rest.split('\n').next().is_some_and(|line| line.trim().is_empty()) && rest.contains('\n')
}

fn ends_sentence(text: &str, start: usize, at: usize, mark: char) -> bool {
    let rest = text.get(at + mark.len_utf8()..).unwrap_or_default();
    // A short look ahead only: a million full stops must not be looked at a million times each.
    let mut ahead = rest.char_indices().take(LOOK_AHEAD_MAX).skip_while(|(_, c)| closes(*c));
    let Some((skipped, next)) = ahead.next() else { return rest.len() <= LOOK_AHEAD_MAX };
    let rest = rest.get(skipped..).unwrap_or_default();
    if !next.is_whitespace() {
        return false;
    }
    if mark != '.' {
        return true;
    }
    let before = text.get(start..at).unwrap_or_default();
    let token = before.rsplit(|c: char| c.is_whitespace() || matches!(c, '(' | '"' | '“')).next().unwrap_or_default();
    let token = token.to_lowercase();
    let initial = token.chars().count() == 1 && token.chars().all(char::is_alphabetic);
    if initial || ABBREVIATIONS.contains(&token.as_str()) {
        // "… and so on, etc. The next" still ends if a new sentence plainly begins after `etc`.
        return token == "etc" && starts_upper(rest);
    }
    // A lower-case word after a full stop goes on with the sentence.
    !rest.trim_start().chars().next().is_some_and(char::is_lowercase)
}

fn starts_upper(rest: &str) -> bool {
    rest.trim_start().chars().next().is_some_and(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abbreviations_initials_and_decimals_do_not_end_sentences() {
        let text =
            "Dr. Smith paid 3.50 dollars to J. Doe, e.g. for tea. Was it \"good?\" Yes! It was.\n\nNew paragraph";
        assert_eq!(
            sentences(text),
            [
                "Dr. Smith paid 3.50 dollars to J. Doe, e.g. for tea.",
                "Was it \"good?\"",
                "Yes!",
                "It was.",
                "New paragraph"
            ]
        );
        assert_eq!(sentences("今日は。元気？"), ["今日は。", "元気？"]);
        assert!(sentences(" ... !? ").is_empty());
    }

    #[test]
    fn words_keep_inner_apostrophes_and_hyphens() {
        let text = "Don't stop – the well-known café's “42nd” test.";
        let found: Vec<&str> = words(text).map(|w| w.text).collect();
        assert_eq!(found, ["Don't", "stop", "the", "well-known", "café's", "42nd", "test"]);
        for word in words(text) {
            assert_eq!(text.get(word.start..word.end()), Some(word.text));
        }
    }
}
