//! Payment cards: the ranges and lengths of the brands, and the check digit of Luhn (ISO/IEC 7812).

use super::Phrase;
use crate::boundary::{at as byte_at, is_word, line_after, line_before, mentions};
use crate::findings::{RedactionFinding, RedactionKind};

/// How cards are printed, in groups.
const PRINTED: [&[usize]; 7] =
    [&[4, 4, 4, 4, 3], &[4, 4, 4, 4], &[4, 6, 5], &[4, 6, 4], &[4, 4, 5], &[4, 4, 4, 1], &[6, 13]];
/// Short numbers, and those of no brand we know, are cards only where somebody speaks of cards.
const WORDS: [&str; 11] =
    ["card", "credit", "debit", "visa", "maestro", "payment", "cc", "pan", "amex", "mastercard", "charge"];
/// Below this many digits a word is needed.
const LONG_ENOUGH: usize = 14;

/// The first digits from `low` to `high`, and the lengths of their brand.
struct Range {
    digits: usize,
    low: u32,
    high: u32,
    lengths: std::ops::RangeInclusive<usize>,
}

const fn range(digits: usize, low: u32, high: u32, from: usize, to: usize) -> Range {
    Range { digits, low, high, lengths: from..=to }
}

const RANGES: [Range; 22] = [
    range(1, 4, 4, 13, 13),       // Visa, old
    range(1, 4, 4, 16, 16),       // Visa
    range(1, 4, 4, 19, 19),       // Visa
    range(2, 51, 55, 16, 16),     // Mastercard
    range(4, 2221, 2720, 16, 16), // Mastercard
    range(2, 34, 34, 15, 15),     // American Express
    range(2, 37, 37, 15, 15),     // American Express
    range(3, 300, 305, 14, 19),   // Diners Club
    range(3, 309, 309, 14, 19),   // Diners Club
    range(2, 36, 36, 14, 19),     // Diners Club
    range(2, 38, 39, 14, 19),     // Diners Club
    range(4, 6011, 6011, 16, 19), // Discover
    range(3, 644, 649, 16, 19),   // Discover
    range(2, 65, 65, 16, 19),     // Discover, RuPay, Troy
    range(4, 3528, 3589, 16, 19), // JCB
    range(4, 1800, 1800, 15, 15), // JCB, old
    range(4, 2131, 2131, 15, 15), // JCB, old
    range(2, 62, 62, 16, 19),     // UnionPay
    range(4, 2200, 2204, 16, 19), // Mir
    range(2, 60, 60, 16, 16),     // RuPay
    range(2, 81, 82, 16, 16),     // RuPay, UnionPay
    range(2, 50, 50, 12, 19),     // Maestro
];
const MAESTRO: [Range; 2] = [range(2, 56, 58, 12, 19), range(2, 63, 67, 12, 19)];

/// The card that begins with this group.
pub(super) fn at(phrase: &Phrase<'_>, index: usize) -> Option<(RedactionFinding, usize)> {
    let forms = std::iter::once::<usize>(1).chain(PRINTED.iter().filter_map(|form| printed(phrase, index, form)));
    for groups in forms {
        let (start, last) = (phrase.group(index)?.start, phrase.group(index + groups - 1)?);
        let number: Vec<u8> = (index..index + groups).flat_map(|place| phrase.digits(place)).copied().collect();
        let free = match phrase.group(index + groups) {
            Some(next) => matches!(next.mark, b' ' | b'/' | b'(' | b'-') && (next.mark != b'-' || next.len() <= 4),
            None => !is_word(byte_at(phrase.bytes, last.end)),
        };
        let sure = number.len() >= LONG_ENOUGH && has_brand(&number);
        if free && is_numbered_like_one(&number) && (sure || spoken_of(phrase.bytes, start, last.end)) {
            return Some((RedactionFinding { kind: RedactionKind::CreditCard, start, end: last.end }, index + groups));
        }
    }
    None
}

/// How many groups a printed form has, if the phrase has it here.
fn printed(phrase: &Phrase<'_>, index: usize, form: &[usize]) -> Option<usize> {
    let mark = phrase.mark(index + 1);
    let even = matches!(mark, b' ' | b'-' | b'.') && (1..form.len()).all(|step| phrase.mark(index + step) == mark);
    (even && phrase.lengths(index, form)).then_some(form.len())
}

fn spoken_of(bytes: &[u8], start: usize, end: usize) -> bool {
    WORDS.iter().any(|word| mentions(line_before(bytes, start), word) || mentions(line_after(bytes, end), word))
}

/// The lengths of ISO/IEC 7812, and the check digit.
fn is_numbered_like_one(number: &[u8]) -> bool {
    (12..=19).contains(&number.len()) && luhn(number)
}

fn has_brand(number: &[u8]) -> bool {
    let fits = |range: &Range| {
        let first = number.iter().take(range.digits).fold(0, |value, digit| value * 10 + u32::from(digit - b'0'));
        range.lengths.contains(&number.len()) && (range.low..=range.high).contains(&first)
    };
    RANGES.iter().chain(&MAESTRO).any(fits)
}

fn luhn(number: &[u8]) -> bool {
    let sum: u32 = number
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| {
            let value = u32::from(digit - b'0') * if place % 2 == 1 { 2 } else { 1 };
            if value > 9 { value - 9 } else { value }
        })
        .sum();
    sum.is_multiple_of(10)
}
