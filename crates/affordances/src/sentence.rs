//! The first sentence of a description, bounded and in one line.
//!
//! Descriptions come from strangers: whatever cannot be seen is left out, so that one line stays one line.

/// Words that end with a full stop and no sentence.
const ABBREVIATIONS: &[&str] =
    &["e.g", "i.e", "etc", "vs", "cf", "approx", "no", "dr", "mr", "mrs", "st", "inc", "ltd"];

/// The first sentence of `text` without its full stop, at most `chars_max` characters; longer ones are cut at a word and
/// end in `…`.
///
/// ```
/// use gantry_affordances::first_sentence;
/// assert_eq!(first_sentence("Adds numbers, e.g. two. Fast.", 60), "Adds numbers, e.g. two");
/// assert_eq!(first_sentence("Adds numbers that are small", 15), "Adds numbers…");
/// ```
pub fn first_sentence(text: &str, chars_max: usize) -> String {
    let mut sentence = String::new();
    // A description may be long; what cannot be shown anyway is not read.
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).map(visible).filter(|word| !word.is_empty());
    for word in words {
        if !sentence.is_empty() {
            sentence.push(' ');
        }
        sentence.push_str(&word);
        if ends_sentence(&word) || sentence.chars().count() > chars_max.saturating_add(1) {
            break;
        }
    }
    let sentence = sentence.trim_end_matches(['.', '!', '。', ';', ':', ',']);
    cut(sentence, chars_max)
}

/// The word without characters that are not seen or that turn around what is.
fn visible(word: &str) -> String {
    let hidden = |c: &char| {
        matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}')
    };
    word.chars().filter(|c| !c.is_control() && !hidden(c)).collect()
}

fn ends_sentence(word: &str) -> bool {
    if word.ends_with(['!', '?', '。']) {
        return true;
    }
    let Some(stem) = word.trim_end_matches([')', '"', '\'']).strip_suffix('.') else { return false };
    let stem = stem.trim_start_matches(['(', '"', '\'']).to_lowercase();
    // A single letter is an initial.
    stem.chars().count() > 1 && !ABBREVIATIONS.contains(&stem.as_str())
}

/// At most `chars_max` characters, cut at a word where there is one.
fn cut(text: &str, chars_max: usize) -> String {
    if text.chars().count() <= chars_max {
        return text.to_owned();
    }
    let Some(room) = chars_max.checked_sub(1) else { return String::new() };
    let head: String = text.chars().take(room).collect();
    let whole_word = text.chars().nth(room).is_some_and(char::is_whitespace);
    let head = match head.rsplit_once(' ') {
        Some((before, _)) if !whole_word => before,
        _ => &head,
    };
    format!("{}…", head.trim_end_matches([' ', ',', ';', ':', '.', '(']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_sentence_ends_where_a_reader_would_end_it() {
        for (text, expected) in [
            ("", ""),
            ("Sends mail", "Sends mail"),
            ("Sends mail. Also reads it.", "Sends mail"),
            ("Sends\n  mail\t now!  Really.", "Sends mail now"),
            ("Reads version 1.2 of it. Then stops.", "Reads version 1.2 of it"),
            ("Takes a unit (e.g. metres). Gives feet.", "Takes a unit (e.g. metres)"),
            ("Written by J. Doe. Long ago.", "Written by J. Doe"),
            ("Is it late? Says so.", "Is it late?"),
            ("Se\u{200b}nds\u{202e} mail.", "Sends mail"),
        ] {
            assert_eq!(first_sentence(text, 80), expected);
        }
    }

    #[test]
    fn long_sentences_are_cut_at_a_word() {
        for (chars_max, expected) in [
            (0, ""),
            (1, "…"),
            (5, "Send…"),
            (6, "Sends…"),
            (12, "Sends mail…"),
            (15, "Sends mail to…"),
            (22, "Sends mail to everyone"),
        ] {
            assert_eq!(first_sentence("Sends mail to everyone.", chars_max), expected, "{chars_max}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn a_sentence_is_one_line_within_its_bound(text in "\\PC{0,80}|[a-z .\n]{0,120}", chars_max in 0_usize..60) {
            let sentence = first_sentence(&text, chars_max);
            prop_assert!(sentence.chars().count() <= chars_max);
            prop_assert!(!sentence.contains(['\n', '\r', '\t']));
        }
    }
}
