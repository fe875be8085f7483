//! Private keys in a text that is seen in pieces: lines one by one, or the end of a stream whose beginning is gone.
//!
//! The redaction knows a private key by its first line. Whoever shows a text in pieces asks here first, because the lines in
//! the middle of a key look like nothing in particular.
//!
//! Invariants
//! - KEY-1: from the first line of a key to its last one nothing is shown, however long the key is.
//! - KEY-2: a key that has no last line ends at the first line that cannot be part of one, so that a log in which somebody
//!   only speaks of keys goes on.
//!
//! Not here: keys that stand in one piece of text (`redaction`).

use std::borrow::Cow;

/// How a block of a key begins and ends. The label between the marks says what is in it.
const BEGINS: &str = "-----BEGIN ";
const ENDS: &str = "-----END ";
const MARK: &str = "-----";
/// Labels of blocks that hold something secret have these words.
const PRIVATE: &str = "PRIVATE KEY";
/// Longest label, bytes.
const LABEL_BYTES_MAX: usize = 69;
/// The first and the last member of a key file of `PuTTY`.
const PUTTY_BEGINS: &str = "PuTTY-User-Key-File-";
const PUTTY_ENDS: &str = "Private-MAC:";
/// Bytes of a text that went by which are looked at again with what follows: a mark can be cut.
const CARRIED_BYTES: usize = 96;
/// A run of base64 so long is no word.
const BODY_RUN_MIN: usize = 24;
/// What stands for a key.
const HIDDEN: &str = "[REDACTED]";

/// Whether a text that is seen in pieces is inside of a private key.
#[derive(Debug, Clone, Default)]
pub struct KeyBlock {
    is_open: bool,
    /// The end of what went by.
    carried: String,
}

/// A mark in a text, and where what follows it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mark {
    Begin { at: usize },
    End { after: usize },
}

impl KeyBlock {
    /// A piece of text went by that nobody is shown.
    pub fn pass(&mut self, text: &str) {
        self.carried.push_str(text);
        if let Some(mark) = marks(&self.carried).last() {
            self.is_open = matches!(mark, Mark::Begin { .. });
        }
        let surplus = self.carried.len().saturating_sub(CARRIED_BYTES);
        self.carried.drain(..self.carried.ceil_char_boundary(surplus));
    }

    /// What may be shown of the lines that follow.
    pub fn lines<'a>(&mut self, text: &'a str) -> Cow<'a, str> {
        if !self.is_open {
            return Cow::Borrowed(text);
        }
        let mut rest = text;
        while self.is_open && !rest.is_empty() {
            let (line, behind) = rest.split_once('\n').unwrap_or((rest, ""));
            match marks(line).find_map(Mark::end) {
                Some(after) => {
                    self.is_open = false;
                    rest = rest.get(after..).unwrap_or_default();
                }
                None if may_be_body(line) => rest = behind,
                // KEY-2.
                None => self.is_open = false,
            }
        }
        Cow::Owned(format!("{HIDDEN}\n{}", rest.trim_start_matches(['\r', '\n'])))
    }

    /// What may be shown of the next line of a text that is shown line by line. Nothing of a line inside of a key.
    pub fn line<'a>(&mut self, line: &'a str) -> Option<Cow<'a, str>> {
        let mut rest = line;
        if self.is_open {
            match marks(line).find_map(Mark::end) {
                Some(after) => {
                    self.is_open = false;
                    rest = line.get(after..).unwrap_or_default().trim_start();
                    if rest.is_empty() {
                        return None;
                    }
                }
                None if may_be_body(line) => return None,
                // KEY-2.
                None => self.is_open = false,
            }
        }
        // A key that stands in one line as a whole is known to the redaction.
        match marks(rest).last() {
            Some(Mark::Begin { at }) => {
                self.is_open = true;
                Some(Cow::Owned(format!("{}{HIDDEN}", rest.get(..at).unwrap_or_default())))
            }
            _ => Some(Cow::Borrowed(rest)),
        }
    }
}

impl Mark {
    fn end(self) -> Option<usize> {
        match self {
            Self::End { after } => Some(after),
            Self::Begin { .. } => None,
        }
    }
}

/// The marks of private keys in a text, in order.
fn marks(text: &str) -> impl Iterator<Item = Mark> + '_ {
    let mut place = 0;
    std::iter::from_fn(move || {
        loop {
            let rest = text.get(place..)?;
            let at = place + rest.find(['-', 'P'])?;
            let here = text.get(at..)?;
            let (mark, after) = mark_at(here, at);
            place = after;
            if mark.is_some() {
                return mark;
            }
        }
    })
}

/// The mark that begins a text, which stands at `at`, and from where to look for the next one.
fn mark_at(here: &str, at: usize) -> (Option<Mark>, usize) {
    if here.starts_with(PUTTY_BEGINS) {
        return (Some(Mark::Begin { at }), at + PUTTY_BEGINS.len());
    }
    if here.starts_with(PUTTY_ENDS) {
        // The rest of the line is a code of the key.
        let after = at + here.find('\n').unwrap_or(here.len());
        return (Some(Mark::End { after }), after);
    }
    let labelled = |word: &str| {
        let label = here.strip_prefix(word)?;
        // No further: the time is linear in the text.
        let label = label.get(..label.floor_char_boundary(LABEL_BYTES_MAX + MARK.len()))?;
        let end = label.find(MARK)?;
        label.get(..end)?.contains(PRIVATE).then_some(at + word.len() + end + MARK.len())
    };
    if let Some(after) = labelled(BEGINS) {
        return (Some(Mark::Begin { at }), after);
    }
    match labelled(ENDS) {
        Some(after) => (Some(Mark::End { after }), after),
        None => (None, at + 1),
    }
}

/// Whether a line can stand inside of a key: its body, a header of it, or nothing at all. What a log puts before each line is
/// allowed for.
fn may_be_body(line: &str) -> bool {
    let line = line.trim();
    let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'=' | b'-' | b'_');
    let is_header = || {
        let name = line.split_once(':').map(|(name, _)| name);
        name.is_some_and(|name| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-'))
    };
    let has_run = || line.as_bytes().split(|byte| !is_base64(*byte)).any(|run| run.len() >= BODY_RUN_MIN);
    line.bytes().all(is_base64) || is_header() || has_run()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEGIN: &str = "-----BEGIN RSA PRIVATE KEY-----";
    const END: &str = "-----END RSA PRIVATE KEY-----";
    const BODY: &str = "MIIEowIBAAKCAQEAx7Zq0fYV3nQ1b8mJcT5kHs2Lw9RdEaGvXoPi4UyN6t";

    fn shown(lines: &[&str]) -> Vec<String> {
        let mut block = KeyBlock::default();
        lines.iter().filter_map(|line| block.line(line).map(Cow::into_owned)).collect()
    }

    #[test]
    fn of_a_key_over_many_lines_nothing_is_shown_but_that_there_was_one() {
        let mut lines = vec!["before", "at 12:00 key: -----BEGIN RSA PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED", ""];
        lines.extend([BODY; 400]);
        lines.extend(["Zg==", "-----END RSA PRIVATE KEY----- and on", "after"]);
        assert_eq!(shown(&lines), ["before", "at 12:00 key: [REDACTED]", "and on", "after"]);
        let putty = ["PuTTY-User-Key-File-3: ssh-ed25519", "Encryption: none", BODY, "Private-MAC: 0f0f", "after"];
        assert_eq!(shown(&putty), ["[REDACTED]", "after"]);
        let prefixed =
            ["[err] -----BEGIN EC PRIVATE KEY-----", &format!("[err] {BODY}"), "-----END EC PRIVATE KEY-----"];
        assert_eq!(shown(&prefixed), ["[err] [REDACTED]"]);
    }

    #[test]
    fn a_key_without_an_end_ends_where_nothing_of_it_can_be() {
        let lines = [BEGIN, BODY, "the server goes on as it did", BODY];
        assert_eq!(shown(&lines), ["[REDACTED]", "the server goes on as it did", BODY]);
        let spoken = ["it has no -----BEGIN PRIVATE KEY----- line", "so it is no key"];
        assert_eq!(shown(&spoken), ["it has no [REDACTED]", "so it is no key"]);
        let public = ["-----BEGIN PUBLIC KEY-----", BODY, "-----END PUBLIC KEY-----", "-----BEGIN CERTIFICATE-----"];
        assert_eq!(shown(&public), public);
        let whole = format!("{BEGIN}\\n{BODY}\\n{END}");
        assert_eq!(shown(&[&whole, "after"]), [whole.as_str(), "after"], "the redaction knows it");
    }

    #[test]
    fn what_went_by_decides_about_what_follows_wherever_it_was_cut() {
        let text = format!("start\n{BEGIN}\n{BODY}\n{BODY}\n{END}\nafter it\n");
        for cut in 0..text.len() {
            let (gone, rest) = text.split_at(cut);
            // Whoever cuts shows whole lines only.
            let (half, rest) = rest.split_once('\n').unwrap_or((rest, ""));
            let mut block = KeyBlock::default();
            for piece in gone.as_bytes().chunks(7) {
                block.pass(std::str::from_utf8(piece).unwrap());
            }
            block.pass(half);
            block.pass("\n");
            let shown = block.lines(rest).into_owned();
            let inside = cut > "start\n".len();
            assert!(!inside || !shown.contains(BODY), "{cut}: {shown}");
            assert!(rest.is_empty() || shown.ends_with("after it\n"), "{cut}: {shown}");
        }
    }
}
