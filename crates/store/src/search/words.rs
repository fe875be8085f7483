//! From text to search terms: the one pipeline for what is stored and for what is asked.
//!
//! `getHTTPStatus_v2` gives `get http status v 2` and, because people also type names without their humps, the joined
//! `gethttpstatus`. Letters are lower-cased and lose their diacritics, English words are stemmed, words that say nothing
//! are dropped. Chinese and Japanese are written without spaces, so there every character is a word.
//!
//! Tokenising here and not in the database keeps every adapter to the same terms: a query that finds a tool on SQLite
//! finds it elsewhere too.
//!
//! Invariants
//! - WORD-1: a term is never empty, has no ASCII character other than `a-z0-9`, and has at most [`TERM_CHARS_MAX`]
//!   characters. Whoever puts it into a query language may therefore quote it without escaping.
//! - WORD-2: the work is linear in the input, which the callers bound.
//!
//! Not here: which terms of a query are worth looking up (`query`), misspelled ones (`spelling`).

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;

use super::stop_words::is_stop_word;

/// Longest term in characters; the rest of a longer word is ignored. No word a person types is longer.
pub(crate) const TERM_CHARS_MAX: usize = 40;
/// Most parts of one identifier that also get a joined form; longer ones are sentences, not names.
const JOINED_PARTS_MAX: usize = 4;

/// One word of a text, before stemming, and the place it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextWord {
    /// Lower case, folded, not stemmed.
    pub(crate) text: String,
    /// Put together from the parts of an identifier, which are in the list as well.
    pub(crate) joined: bool,
}

/// The terms of a text, in order, repeated as often as they occur.
pub(crate) fn terms(text: &str) -> Vec<String> {
    let stemmer = Stemmer::create(Algorithm::English);
    words(text).into_iter().filter(|word| !is_stop_word(&word.text)).map(|word| stem(&stemmer, &word.text)).collect()
}

/// The term of a single word.
pub(crate) fn term_of(word: &str) -> String {
    stem(&Stemmer::create(Algorithm::English), word)
}

/// The words of a text, stop words included.
pub(crate) fn words(text: &str) -> Vec<TextWord> {
    let mut found = Vec::new();
    let mut run: Vec<char> = Vec::new();
    for character in text.nfkc() {
        if is_ideograph(character) {
            split_run(&mut run, &mut found);
            found.push(TextWord { text: character.to_string(), joined: false });
        } else if character.is_alphanumeric() || is_diacritic(character) {
            run.push(character);
        } else {
            split_run(&mut run, &mut found);
        }
    }
    split_run(&mut run, &mut found);
    found
}

// --------------------------------------------------------------------------------------------------- private parts

/// Splits one run of letters and digits at its humps and empties it.
fn split_run(run: &mut Vec<char>, found: &mut Vec<TextWord>) {
    let first = found.len();
    let mut part = String::new();
    let mut before: Option<char> = None;
    for (at, &character) in run.iter().enumerate() {
        let after = run.get(at + 1).copied();
        if before.is_some_and(|before| is_hump(before, character, after)) {
            push_folded(&mut part, found);
        }
        part.push(character);
        before = Some(character);
    }
    push_folded(&mut part, found);
    let parts = found.get(first..).unwrap_or_default();
    if (2..=JOINED_PARTS_MAX).contains(&parts.len()) {
        let joined: String = parts.iter().flat_map(|word| word.text.chars()).take(TERM_CHARS_MAX).collect();
        found.push(TextWord { text: joined, joined: true });
    }
    run.clear();
}

/// Does a new part begin at `here`? At `aB`, at the last capital of `ABc`, and between letters and digits.
fn is_hump(before: char, here: char, after: Option<char>) -> bool {
    let lower_after = after.is_some_and(char::is_lowercase);
    (here.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && lower_after)))
        || before.is_numeric() != here.is_numeric()
}

/// Lower-cases, drops diacritics, cuts, and appends what is left.
fn push_folded(part: &mut String, found: &mut Vec<TextWord>) {
    let folded: String = part
        .nfd()
        .filter(|c| !is_diacritic(*c))
        .flat_map(char::to_lowercase)
        .flat_map(plain)
        .take(TERM_CHARS_MAX)
        .collect();
    part.clear();
    if !folded.is_empty() {
        found.push(TextWord { text: folded, joined: false });
    }
}

/// Latin letters that Unicode does not take apart.
fn plain(letter: char) -> impl Iterator<Item = char> {
    let spelled = match letter {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'ø' => "o",
        'ł' => "l",
        'đ' | 'ð' => "d",
        'þ' => "th",
        'ı' => "i",
        _ => "",
    };
    // INVARIANT: WORD-1. Lower-casing can leave a combining dot behind (`İ`), which is dropped as well.
    spelled.chars().chain(Some(letter).filter(|letter| spelled.is_empty() && !is_diacritic(*letter)))
}

/// The combining marks of Latin, Greek and Cyrillic. Marks of other scripts are vowels and stay.
fn is_diacritic(character: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&character)
}

/// Scripts without spaces between words.
fn is_ideograph(character: char) -> bool {
    matches!(character, '\u{3041}'..='\u{30ff}' | '\u{3400}'..='\u{4dbf}' | '\u{4e00}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..='\u{3ffff}')
}

/// Stems English words; everything else stays, because the stemmer's rules would only mutilate it.
fn stem(stemmer: &Stemmer, word: &str) -> String {
    if word.bytes().all(|byte| byte.is_ascii_lowercase()) { stemmer.stem(word).into_owned() } else { word.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, expected: &str) {
        let found: Vec<String> = words(text).into_iter().map(|word| word.text).collect();
        assert_eq!(found.join(" "), expected, "{text}");
    }

    #[test]
    fn identifiers_are_split_at_their_humps_and_kept_joined() {
        check("getHTTPStatus_v2", "get http status gethttpstatus v 2 v2");
        check("demo.word-stats", "demo word stats");
        check("YouTube", "you tube youtube");
        check("mp3 3D", "mp 3 mp3 3 d 3d");
        check("oneTwoThreeFourFive", "one two three four five");
    }

    #[test]
    fn letters_are_folded() {
        check("Ĝis la REVIDO, Čeština!", "gis la revido cestina");
        check("Straße Ærø Łódź İstanbul", "strasse aero lodz istanbul");
        check("ｆｕｌｌ　ｗｉｄｔｈ ﬁle", "full width file");
        check("Ὀδυσσεύς Йод", "οδυσσευς иод");
        check("工具kit", "工 具 kit");
    }

    #[test]
    fn terms_are_stemmed_without_stop_words() {
        assert_eq!(terms("Converts the currencies of all countries"), ["convert", "currenc", "countri"]);
        assert_eq!(terms("l'été"), ["l", "ete"]);
    }

    proptest! {
        #[test]
        fn every_text_gives_terms_that_may_be_quoted(text in any::<String>()) {
            for term in terms(&text) {
                prop_assert!(!term.is_empty() && term.chars().count() <= TERM_CHARS_MAX);
                prop_assert!(term.chars().all(|c| !c.is_ascii() || c.is_ascii_lowercase() || c.is_ascii_digit()), "{term}");
            }
        }

        #[test]
        fn case_does_not_matter_to_plain_words(text in "[a-z]{1,20}( [a-z]{1,20}){0,5}") {
            prop_assert_eq!(terms(&text), terms(&text.to_uppercase()));
        }
    }
}
