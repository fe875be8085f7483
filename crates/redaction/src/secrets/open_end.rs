//! The end of a secret that is longer than what was looked at to judge it.
//!
//! A look is bounded, so that a text costs time in proportion to its length. What is hidden is not: a secret that goes on
//! behind the look is hidden to its end, wherever that is.

use crate::boundary::{at, run, run_back};

/// How a secret goes on behind what was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OpenEnd {
    /// Not at all.
    None,
    /// A value without quotes, with letters from beyond ASCII: to the next separator.
    Unquoted,
    /// A value in quotes: to the quote that closes it, and without one to the end of the line.
    Quoted(Quotes),
    /// The body of a private key.
    KeyBody,
    /// Everything of ASCII.
    Ascii,
    /// Characters of a kind, in the letters of `providers`.
    Kind(u8),
}

/// The quotes around a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Quotes {
    pub(super) quote: u8,
    /// Backslashes before the first one: the text is inside of a string itself.
    pub(super) escapes: usize,
}

/// How far secrets have been hidden, and what need not be searched again.
#[derive(Debug, Default)]
pub(super) struct Hidden {
    until: usize,
    /// From here on there is no such quote: `"`, `'` and the backtick.
    quoteless: [Option<usize>; 3],
}

impl OpenEnd {
    /// Whether a byte goes on with it.
    pub(super) fn has(self, byte: u8) -> bool {
        match self {
            Self::None => false,
            Self::Unquoted => {
                byte > b' '
                    && byte != 0x7f
                    && !matches!(
                        byte,
                        b'"' | b'\'' | b'`' | b',' | b';' | b')' | b'}' | b']' | b'&' | b'<' | b'>' | b'\\' | b'|'
                    )
            }
            Self::Quoted(quotes) => !quotes.may_end_at(byte),
            Self::KeyBody => {
                byte.is_ascii_alphanumeric()
                    || byte.is_ascii_whitespace()
                    || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_' | b'\\' | b':' | b',')
            }
            Self::Ascii => byte.is_ascii(),
            Self::Kind(kind) => super::providers::is_of(kind, byte),
        }
    }
}

impl Quotes {
    /// Whether a value can end before this byte.
    pub(super) fn may_end_at(self, byte: u8) -> bool {
        byte == self.quote || byte == b'\n' || byte == b'\r'
    }

    /// Where the value ends that goes on from `from`: at the quote that closes it, at the end of its line, or at `limit`.
    pub(super) fn close_or_line_end(self, bytes: &[u8], from: usize, limit: usize) -> usize {
        let mut place = from;
        loop {
            place = run(bytes, place, limit.saturating_sub(place), |byte| !self.may_end_at(byte));
            if place >= limit || at(bytes, place) != self.quote || self.closes(bytes, from, place) {
                return place;
            }
            place += 1;
        }
    }

    /// Whether the quote at `place` closes the value and is none inside of it, by the backslashes before it.
    fn closes(self, bytes: &[u8], from: usize, place: usize) -> bool {
        let slashes = place - run_back(bytes, place, place - from, |byte| byte == b'\\');
        match slashes.checked_sub(self.escapes) {
            // Fewer than before the first quote: the string ends in which the value stands.
            None => true,
            Some(more) => more % (2 * (self.escapes + 1)) == 0,
        }
    }
}

impl Hidden {
    /// The end of a secret that was found up to `end` and goes on as `rest` says. No byte is walked over twice: what is
    /// hidden already is passed over.
    pub(super) fn end_of(&mut self, bytes: &[u8], end: usize, rest: OpenEnd) -> usize {
        let end = match rest {
            OpenEnd::None => end,
            OpenEnd::Quoted(quotes) => {
                let line = quotes.close_or_line_end(bytes, end.max(self.until), usize::MAX);
                if at(bytes, line) == quotes.quote { line } else { self.next_quote(bytes, line, quotes.quote) }
            }
            _ if !rest.has(at(bytes, end)) => end,
            _ => run(bytes, end.max(self.until), usize::MAX, |byte| rest.has(byte)),
        };
        let end = end.min(bytes.len());
        self.until = self.until.max(end);
        end
    }

    /// The next quote behind the end of a line; the end of the line if there is none.
    fn next_quote(&mut self, bytes: &[u8], line: usize, quote: u8) -> usize {
        let memory = match quote {
            b'"' => 0,
            b'\'' => 1,
            _ => 2,
        };
        let Some(known) = self.quoteless.get_mut(memory) else { return line };
        if known.is_some_and(|from| line >= from) {
            return line;
        }
        let found = bytes.get(line..).and_then(|rest| rest.iter().position(|byte| *byte == quote));
        if found.is_none() {
            *known = Some(line);
        }
        found.map_or(line, |found| line + found)
    }
}
