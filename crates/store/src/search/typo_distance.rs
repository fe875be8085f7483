//! How far a misspelled word may be from the word that was meant. Short words may be one step off, longer ones two; words
//! of three letters or less are never corrected, since everything is near to them.
//!
//! Not here: the distance itself (`contract::nearest`), which words are looked at (`plan` corrects short queries only).

/// Shortest word that is corrected, in characters.
pub(crate) const CORRECTED_CHARS_MIN: usize = 4;
/// From this length on two steps are allowed.
const TWO_STEPS_CHARS_MIN: usize = 6;

/// How far a correction of a word of this length may go; 0 means it is not corrected.
pub(crate) fn steps_allowed(chars: usize) -> usize {
    match chars {
        0..CORRECTED_CHARS_MIN => 0,
        CORRECTED_CHARS_MIN..TWO_STEPS_CHARS_MIN => 1,
        _ => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_words_are_corrected_carefully() {
        assert_eq!([3, 4, 5, 6, 20].map(steps_allowed), [0, 1, 1, 2, 2]);
    }
}
