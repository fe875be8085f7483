//! Whether characters look like a secret: random enough, and nothing that stands in place of one.

use base::SaturatingFrom as _;

use crate::boundary::at;

/// Bits per character of random hexadecimal digits, less what short samples lose.
const ENTROPY_LONG: f64 = 2.9;
const ENTROPY_SHORT: f64 = 2.2;
/// Characters from which the higher threshold counts.
const LONG: usize = 20;
/// So many equal characters in a row are no accident.
const ROW_MAX: usize = 6;

/// Words that say that something is not a secret but the place of one.
const STAND_INS: [&[u8]; 17] = [
    b"example",
    b"placeholder",
    b"redacted",
    b"changeme",
    b"change_me",
    b"change-me",
    b"your_",
    b"your-",
    b"yourapi",
    b"xxxx",
    b"****",
    b"....",
    b"dummy",
    b"insert",
    b"replace",
    b"<",
    b"{{",
];

/// Bits per character (Shannon).
pub(super) fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0_u32; 256];
    for byte in bytes {
        if let Some(count) = counts.get_mut(usize::from(*byte)) {
            *count += 1;
        }
    }
    let total = f64::from(u32::saturating_from(bytes.len()));
    counts
        .iter()
        .filter(|count| **count > 0)
        .map(|count| f64::from(*count) / total)
        .map(|part| -part * part.log2())
        .sum()
}

/// Whether the varying part of a provider's key can be real.
pub(super) fn body(bytes: &[u8]) -> bool {
    let least = if bytes.len() >= LONG { ENTROPY_LONG } else { ENTROPY_SHORT };
    entropy(bytes) >= least && longest_row(bytes) < ROW_MAX && !stand_in(bytes)
}

/// Whether this only stands in place of a secret.
pub(super) fn stand_in(bytes: &[u8]) -> bool {
    STAND_INS.iter().any(|word| bytes.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word)))
}

/// The longest row of one character.
pub(super) fn longest_row(bytes: &[u8]) -> usize {
    let (mut longest, mut row, mut last) = (0, 0, None);
    for byte in bytes {
        row = if last == Some(*byte) { row + 1 } else { 1 };
        last = Some(*byte);
        longest = longest.max(row);
    }
    longest
}

/// The longest row in which each character is the next of the alphabet: `abcdefgh`, `12345678`.
pub(super) fn longest_ascent(bytes: &[u8]) -> usize {
    let (mut longest, mut row, mut last) = (0, 0, None::<u8>);
    for byte in bytes {
        row = if last.is_some_and(|last| last.checked_add(1) == Some(*byte)) { row + 1 } else { 1 };
        last = Some(*byte);
        longest = longest.max(row);
    }
    longest
}

/// Whether this is written like `8-4-4-4-12` hexadecimal digits.
pub(super) fn is_uuid(bytes: &[u8]) -> bool {
    bytes.len() == 36
        && bytes.iter().enumerate().all(|(place, byte)| {
            if matches!(place, 8 | 13 | 18 | 23) { *byte == b'-' } else { byte.is_ascii_hexdigit() }
        })
}

/// Whether this is made of words and not of chance: pieces between marks, most of them letters in one case or a capital
/// first.
pub(super) fn is_wordy(bytes: &[u8]) -> bool {
    let pieces: Vec<&[u8]> = bytes
        .split(|byte| matches!(byte, b'-' | b'_' | b'.' | b'/' | b':' | b' ' | b'\\' | b'@'))
        .filter(|piece| !piece.is_empty())
        .collect();
    let word = |piece: &&[u8]| {
        let rest = piece.get(1..).unwrap_or_default();
        let digits = piece.iter().filter(|byte| byte.is_ascii_digit()).count();
        // Letters of one case with a number at the end, or a few digits and nothing else.
        let ascending = rest.windows(2).all(|pair| !at(pair, 0).is_ascii_digit() || at(pair, 1).is_ascii_digit());
        let one_case = !rest.iter().any(u8::is_ascii_uppercase) || !piece.iter().any(u8::is_ascii_lowercase);
        (one_case && ascending && digits <= 4 && piece.len() <= 14) || digits == piece.len() && digits <= 8
    };
    let camel = pieces.len() == 1 && is_camel(bytes);
    (pieces.len() >= 2 && pieces.iter().filter(|piece| word(piece)).count() * 3 >= pieces.len() * 2) || camel
}

/// Whether this is `severalWordsInOne`: capitals are rare and each is followed by small letters.
fn is_camel(bytes: &[u8]) -> bool {
    let digits = bytes.iter().filter(|byte| byte.is_ascii_digit()).count();
    let capitals = bytes.iter().filter(|byte| byte.is_ascii_uppercase()).count();
    let humps = bytes
        .windows(3)
        .filter(|three| {
            at(three, 0).is_ascii_uppercase() && at(three, 1).is_ascii_lowercase() && at(three, 2).is_ascii_lowercase()
        })
        .count();
    let small_first = at(bytes, 0).is_ascii_lowercase();
    (capitals > usize::from(!small_first) || bytes.len() <= 14)
        && digits <= 2
        && bytes.iter().all(u8::is_ascii_alphanumeric)
        && capitals <= humps + usize::from(small_first)
        && capitals * 3 <= bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chance_is_told_from_words() {
        let random = [
            "xoydvnlzzgwcyehizumzeevruvaeklwjra",
            "A9f3kQ02mZ7dPx41",
            "5f4dcc3b5aa765d61d8327deb882cf99",
            "rhoK1cbv0DOU_RTX_87O4MkX7AI",
        ];
        for text in random {
            assert!(body(text.as_bytes()) && !is_wordy(text.as_bytes()), "{text}");
        }
        for text in ["SalesResults-1.2", "NEXUS-GPT4-API-KEY", "DOC_Vector_5_32", "userNameField", "my-secret-name-1"] {
            assert!(is_wordy(text.as_bytes()), "{text}");
        }
        for text in ["xxxxxxxxxxxxxxxxxxxxxxxxxx", "555555555AAAAAAA555555555", "IOSFODNN7EXAMPLE", "<your token>"] {
            assert!(!body(text.as_bytes()), "{text}");
        }
        assert_eq!((longest_row(b"aabbb"), longest_ascent(b"xabcd1")), (3, 4));
    }
}
