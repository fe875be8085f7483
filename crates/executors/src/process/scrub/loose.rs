//! Secrets that are written with something in between: base64 and hexadecimal broken into lines, digits in groups
//! (`73:33:63`, `7333 6372`, `\x73\x33`, `0x73, 0x33`), and percent-encoding of every single character, which is
//! hexadecimal with `%` in between.
//!
//! The text is read as a stream of digits in which what stands between them is skipped, and the secret's digits are looked
//! for in that; a place in the stream is known by its place in the text. One pass for hexadecimal and one for base64,
//! however the digits are grouped; a text in which nothing is found is not copied.
//!
//! Not found: a dump with addresses or a column of text in every line, if the secret goes over the end of a line.

use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;

/// Fewer digits of base64 than these are looked for only where they stand together: words that follow each other could be
/// taken for them.
const BASE64_DIGITS_MIN: usize = 8;
/// Stands for whatever is neither a digit nor skipped, so that nothing is found across it.
const BARRIER: u8 = 0;

/// The digits of one secret.
pub(super) struct Digits {
    base: Base,
    text: String,
    pub(super) label: String,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Base {
    Hexadecimal,
    /// Both alphabets, in the letters of the usual one.
    SixtyFour,
}

/// Everything to look for of one secret.
pub(super) fn digits(secret: &str, label: &str) -> impl Iterator<Item = Digits> {
    let hex = secret
        .bytes()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(|half| b"0123456789abcdef".get(usize::from(half)));
    let of = |base, text: String| Digits { base, text, label: label.to_owned() };
    // A byte can stand at three places in a group of base64.
    let base64 = [&b""[..], b"\0", b"\0\0"].map(|padding| {
        let (before, bytes) = (padding.len(), [padding, secret.as_bytes()].concat());
        super::core_of(&STANDARD_NO_PAD.encode(&bytes), before, bytes.len())
    });
    let base64 = base64.into_iter().filter(|text| text.len() >= BASE64_DIGITS_MIN);
    let mut all = vec![of(Base::Hexadecimal, hex.map(|digit| char::from(*digit)).collect())];
    all.extend(base64.map(|text| of(Base::SixtyFour, text)));
    all.into_iter()
}

/// Where in the text these digits stand, each with what is to stand there; in order, none over another.
pub(super) fn places<'d>(text: &str, all: &'d [Digits]) -> Vec<(Range<usize>, &'d str)> {
    let mut found = Vec::new();
    for base in [Base::Hexadecimal, Base::SixtyFour] {
        let wanted: Vec<&Digits> = all.iter().filter(|digits| digits.base == base).collect();
        if wanted.is_empty() {
            continue;
        }
        let stream: String = Reading::new(text, base).map(|(_, digit)| char::from(digit)).collect();
        let hits: Vec<(Range<usize>, &str)> = wanted
            .into_iter()
            .flat_map(|digits| {
                stream.match_indices(&digits.text).map(|(at, _)| (at..at + digits.text.len(), digits.label.as_str()))
            })
            .collect();
        if hits.is_empty() {
            continue;
        }
        // Only now, because most texts have none.
        let at: Vec<usize> = Reading::new(text, base).map(|(at, _)| at).collect();
        found.extend(hits.into_iter().filter_map(|(range, label)| {
            let (first, last) = (*at.get(range.start)?, *at.get(range.end.checked_sub(1)?)?);
            Some((with_sign(text, first)..last + 1, label))
        }));
    }
    super::without_overlaps(found)
}

/// Whether there is such a place.
pub(super) fn finds(text: &str, all: &[Digits]) -> bool {
    !places(text, all).is_empty()
}

/// The sign that belongs to the first digit.
fn with_sign(text: &str, first: usize) -> usize {
    let before = text.as_bytes().get(..first).unwrap_or_default();
    [&b"%"[..], b"\\x", b"\\X", b"0x", b"0X"]
        .iter()
        .find(|sign| before.ends_with(sign))
        .map_or(first, |sign| first - sign.len())
}

// ---------------------------------------------------------------------------------------------------------- Reading

/// The digits of a text, each with its place. All are ASCII, so a place in the stream is a place in its text.
struct Reading<'t> {
    text: &'t [u8],
    at: usize,
    base: Base,
}

impl<'t> Reading<'t> {
    fn new(text: &'t str, base: Base) -> Self {
        Self { text: text.as_bytes(), at: 0, base }
    }
}

impl Iterator for Reading<'_> {
    type Item = (usize, u8);

    fn next(&mut self) -> Option<(usize, u8)> {
        loop {
            let at = self.at;
            let (byte, next) = (*self.text.get(at)?, self.text.get(at + 1).copied());
            let hex = self.base == Base::Hexadecimal;
            let skipped = match (byte, next) {
                // A line end as it stands in escaped text; a sign before digits.
                (b'\\', Some(b'n' | b'r' | b't')) => 2,
                (b'\\' | b'0', Some(b'x' | b'X')) if hex => 2,
                (b' ' | b'\t' | b'\r' | b'\n' | b'"' | b'\'' | b'\\', _) => 1,
                (b'%' | b':' | b'-' | b',' | b'.', _) if hex => 1,
                _ => 0,
            };
            self.at += skipped.max(1);
            if skipped == 0 {
                return Some((at, if hex { hex_digit(byte) } else { base64_digit(byte) }));
            }
        }
    }
}

fn hex_digit(byte: u8) -> u8 {
    if byte.is_ascii_hexdigit() { byte.to_ascii_lowercase() } else { BARRIER }
}

fn base64_digit(byte: u8) -> u8 {
    match byte {
        b'-' => b'+',
        b'_' => b'/',
        b'+' | b'/' => byte,
        byte if byte.is_ascii_alphanumeric() => byte,
        _ => BARRIER,
    }
}
