//! Shapes of the keys that known providers give out, as their own documentation and announcements for secret scanning
//! describe them: a fixed mark, and so many characters of a kind before and after it.
//!
//! A row is what stands before the mark, the mark, and what follows it. Parts are written as a letter for the characters and
//! a length: `a36`, `k20-60`, `h32+`; `'.'` is that text; `?` before a part means that it may be missing.

use super::open_end::OpenEnd;
use super::plausible;
use crate::boundary::{at, before, begins, is_word, run, run_back};

mod table;

pub(super) use table::PROVIDERS;

/// Characters of a part without an upper bound that are looked at.
const PART_MAX: usize = 512;

/// A row of the table.
#[derive(Debug)]
pub(super) struct Row(pub(super) &'static str, pub(super) &'static str, pub(super) &'static str);

impl Row {
    /// The mark that is searched for.
    pub(super) const fn literal(&self) -> &'static str {
        self.1
    }
}

/// A row, read.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    mark: &'static str,
    left: Vec<Part>,
    right: Vec<Part>,
}

#[derive(Debug, Clone)]
struct Part {
    what: What,
    least: usize,
    most: usize,
    optional: bool,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Of(u8),
    Text(&'static str),
}

/// Whether a byte is of the kind a letter stands for.
pub(super) fn is_of(kind: u8, byte: u8) -> bool {
    match kind {
        b'd' => byte.is_ascii_digit(),
        b'h' => byte.is_ascii_digit() || matches!(byte, b'a'..=b'f'),
        b'H' => byte.is_ascii_hexdigit(),
        b'a' => byte.is_ascii_alphanumeric(),
        b'l' => byte.is_ascii_lowercase() || byte.is_ascii_digit(),
        b'u' => byte.is_ascii_uppercase() || byte.is_ascii_digit(),
        b'U' => byte.is_ascii_uppercase() || matches!(byte, b'2'..=b'7'),
        b'x' => byte.is_ascii_alphabetic(),
        b'w' => is_word(byte),
        b'k' => is_word(byte) || byte == b'-',
        b't' => is_word(byte) || matches!(byte, b'-' | b'.'),
        b'c' => is_word(byte) || matches!(byte, b'-' | b'.' | b'~'),
        b'b' => is_word(byte) || matches!(byte, b'-' | b'+' | b'/' | b'='),
        b'p' => is_word(byte) || matches!(byte, b'-' | b'/' | b'%' | b'.' | b'@' | b'='),
        _ => false,
    }
}

impl Part {
    fn of(text: &'static str) -> Self {
        let (text, optional) = text.strip_prefix('?').map_or((text, false), |rest| (rest, true));
        if let Some(literal) = text.strip_prefix('\'') {
            return Self { what: What::Text(literal.trim_end_matches('\'')), least: 0, most: 0, optional };
        }
        let (kind, length) = text.split_at_checked(1).unwrap_or_default();
        let number = |text: &str| text.parse().unwrap_or(0);
        let (least, most) = match (length.strip_suffix('+'), length.split_once('-')) {
            (Some(least), _) => (number(least), PART_MAX),
            (None, Some((least, most))) => (number(least), number(most)),
            (None, None) => (number(length), number(length)),
        };
        Self { what: What::Of(at(kind.as_bytes(), 0)), least, most, optional }
    }

    /// Where the part ends that begins at `from`.
    fn end(&self, bytes: &[u8], from: usize) -> Option<usize> {
        match self.what {
            What::Of(kind) => {
                let end = run(bytes, from, self.most, |byte| is_of(kind, byte));
                (end - from >= self.least).then_some(end)
            }
            What::Text(text) => bytes.get(from..)?.starts_with(text.as_bytes()).then(|| from + text.len()),
        }
        .or_else(|| self.optional.then_some(from))
    }
}

impl Shape {
    pub(super) fn of(row: &Row) -> Self {
        let parts = |text: &'static str| text.split(' ').filter(|part| !part.is_empty()).map(Part::of).collect();
        Self { mark: row.1, left: parts(row.0), right: parts(row.2) }
    }

    /// The key around its mark at `start..end`, and how it goes on.
    pub(super) fn around(&self, bytes: &[u8], start: usize, end: usize) -> Option<(usize, usize, OpenEnd)> {
        if bytes.get(start..end)? != self.mark.as_bytes() {
            return None;
        }
        let mut first = start;
        for part in self.left.iter().rev() {
            let What::Of(kind) = part.what else { return None };
            let left = run_back(bytes, first, part.most, |byte| is_of(kind, byte));
            if first - left < part.least {
                return None;
            }
            first = left;
        }
        // Inside of base64 anything can stand.
        if !begins(bytes, first)
            || (matches!(before(bytes, first), b'+') || (before(bytes, first) == b'/' && self.bare()))
        {
            return None;
        }
        let (mut last, mut rest) = (end, OpenEnd::None);
        for part in &self.right {
            let from = last;
            last = part.end(bytes, from)?;
            // Longer than the look: no other part is looked for, and all of it is hidden.
            if let What::Of(kind) = part.what
                && last - from == PART_MAX
                && is_of(kind, at(bytes, last))
            {
                rest = OpenEnd::Kind(kind);
                break;
            }
        }
        let whole = rest != OpenEnd::None || !is_word(at(bytes, last));
        let body: Vec<u8> = [bytes.get(first..start)?, bytes.get(end..last)?].concat();
        if !whole || !plausible::body(&body) || !self.random(&body) {
            return None;
        }
        let scheme = bytes.get(..first)?;
        let scheme = [&b"https://"[..], b"http://"].into_iter().find(|it| self.is_url() && scheme.ends_with(it));
        Some((first - scheme.map_or(0, <[u8]>::len), last, rest))
    }

    fn is_url(&self) -> bool {
        self.mark.contains('/')
    }

    /// A mark of letters and digits only, which chance brings about.
    fn bare(&self) -> bool {
        self.mark.bytes().all(|byte| byte.is_ascii_alphanumeric())
    }

    /// Marks that are words of every language need more: digits in what follows, and no words in it.
    fn random(&self, body: &[u8]) -> bool {
        let digits = body.iter().filter(|byte| byte.is_ascii_digit()).count();
        let common = !self.left.is_empty() && self.mark.starts_with('_')
            || matches!(self.mark, "sk-" | "key-" | "s." | "api-" | "re_" | "tk-");
        !common || (digits >= 2 && !plausible::is_wordy(body))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_can_be_read_and_asks_for_something() {
        for row in PROVIDERS {
            let shape = Shape::of(row);
            let least: usize = shape.left.iter().chain(&shape.right).map(|part| part.least).sum();
            assert!(least >= 10 && row.literal().is_ascii(), "{row:?}");
            for part in shape.left.iter().chain(&shape.right) {
                let known = match part.what {
                    What::Of(kind) => b"dhHaluUxwktcbp".contains(&kind) && part.most >= part.least && part.most > 0,
                    What::Text(text) => !text.is_empty(),
                };
                assert!(known, "{row:?}: {part:?}");
            }
        }
    }
}
