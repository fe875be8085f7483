//! `word_count`: how much text there is (LOCAL-012). The only operation the source defines to the letter.
//!
//! Characters are Unicode scalar values, not UTF-16 units. Words are separated by white space, sentences by `.`, `!` and
//! `?`, paragraphs by blank lines; empty pieces do not count.

use serde_json::{Value, json};

/// The four counts.
pub(super) fn count(text: &str) -> Value {
    json!({
        "characters": text.chars().count(),
        "words": text.split_whitespace().count(),
        "sentences": text.split(['.', '!', '?']).filter(|piece| !piece.trim().is_empty()).count(),
        "paragraphs": paragraphs(text),
    })
}

/// Runs of lines that are not blank.
fn paragraphs(text: &str) -> usize {
    let mut count = 0;
    let mut inside = false;
    for line in text.lines() {
        let blank = line.trim().is_empty();
        count += usize::from(!blank && !inside);
        inside = !blank;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_definitions() {
        for (text, characters, words, sentences, paragraphs) in [
            ("", 0, 0, 0, 0),
            ("  \n\n ", 5, 0, 0, 0),
            ("Hello world. How are you?", 25, 5, 2, 1),
            ("One\ntwo.\n\nThree!\r\n\r\n \r\nFour", 27, 4, 3, 3),
            ("naïve 👍🏽 …", 10, 3, 1, 1),
            ("Wait... what?!", 14, 2, 2, 1),
        ] {
            assert_eq!(
                count(text),
                json!({ "characters": characters, "words": words, "sentences": sentences, "paragraphs": paragraphs }),
                "{text:?}"
            );
        }
    }
}
