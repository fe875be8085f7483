//! Misspelled words: the nearest words of a vocabulary.
//!
//! Distance counts insertions, deletions, replacements and swaps of neighbours (optimal string alignment), because those
//! are what fingers do. Short words may be one step off, longer ones two; words of three letters or less are never
//! corrected, since everything is near to them.
//!
//! Not here: which words are looked at (`plan` corrects short queries only, where each word counts).

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

/// The distance of two words, if it is at most `limit`.
pub(crate) fn distance(left: &str, right: &str, limit: usize) -> Option<usize> {
    let (left, right): (Vec<char>, Vec<char>) = (left.chars().collect(), right.chars().collect());
    if left.len().abs_diff(right.len()) > limit {
        return None;
    }
    let mut before_last: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=right.len()).collect();
    let mut above: Option<char> = None;
    for (row, &here) in left.iter().enumerate() {
        let mut current = Vec::with_capacity(last.len());
        current.push(row + 1);
        let mut beside: Option<char> = None;
        for (column, &there) in right.iter().enumerate() {
            let at = |line: &[usize], index: usize| line.get(index).copied().unwrap_or(usize::MAX - 1);
            let replaced = at(&last, column) + usize::from(here != there);
            let mut best = replaced.min(at(&last, column + 1) + 1).min(at(&current, column) + 1);
            if column > 0 && above == Some(there) && beside == Some(here) {
                best = best.min(at(&before_last, column - 1) + 1);
            }
            current.push(best);
            beside = Some(there);
        }
        if current.iter().all(|steps| *steps > limit) {
            return None;
        }
        above = Some(here);
        before_last = std::mem::replace(&mut last, current);
    }
    last.last().copied().filter(|steps| *steps <= limit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distance_counts_the_slips_of_fingers() {
        let cases = [
            ("weather", "weather", Some(0)),
            ("wether", "weather", Some(1)),
            ("waether", "weather", Some(1)),
            ("weatherr", "weather", Some(1)),
            ("calender", "calendar", Some(1)),
            ("trnaslate", "translate", Some(1)),
            ("wthr", "weather", None),
            ("abcd", "dcba", None),
            ("", "ab", Some(2)),
            ("größe", "grösse", Some(2)),
        ];
        for (left, right, expected) in cases {
            assert_eq!(distance(left, right, 2), expected, "{left} {right}");
            assert_eq!(distance(right, left, 2), expected, "{right} {left}");
        }
    }

    #[test]
    fn short_words_are_corrected_carefully() {
        assert_eq!([3, 4, 5, 6, 20].map(steps_allowed), [0, 1, 1, 2, 2]);
    }
}
