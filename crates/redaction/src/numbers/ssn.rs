//! Social security numbers of the United States, and the taxpayer numbers of the same form.

use super::Phrase;
use crate::boundary::{line_before, mentions};
use crate::findings::{RedactionFinding, RedactionKind};

/// Words that make a number of nine digits one.
const WORDS: [&str; 5] = ["ssn", "social", "itin", "taxpayer", "tin"];

/// The number that begins with this group.
pub(super) fn at(phrase: &Phrase<'_>, index: usize) -> Option<(RedactionFinding, usize)> {
    let first = phrase.group(index)?;
    let spoken_of =
        || phrase.hint.ssn || WORDS.iter().any(|word| mentions(line_before(phrase.bytes, first.start), word));
    let found = |last: usize| {
        let end = phrase.group(last)?.end;
        Some((RedactionFinding { kind: RedactionKind::Ssn, start: first.start, end }, last + 1))
    };
    if first.len() == 9 && phrase.can_end(index) && spoken_of() {
        return found(index);
    }
    let mark = phrase.mark(index + 1);
    if !phrase.lengths(index, &[3, 2, 4]) || phrase.mark(index + 2) != mark || !phrase.can_end(index + 2) {
        return None;
    }
    let fine = match mark {
        b'-' => issued(phrase, index) || spoken_of(),
        b' ' | b'.' | b'/' => spoken_of(),
        _ => false,
    };
    if fine { found(index + 2) } else { None }
}

/// Whether the parts can have been given out: no part is all zeros, 666 never was, and from 900 on they are taxpayer numbers.
fn issued(phrase: &Phrase<'_>, index: usize) -> bool {
    let (area, group, serial) = (phrase.digits(index), phrase.digits(index + 1), phrase.digits(index + 2));
    area != b"000" && area != b"666" && group != b"00" && serial != b"0000"
}
