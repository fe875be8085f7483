//! The streams between Gantry and a tool's process, however the process was made.
//!
//! Both conversations ([`simple`](super::simple) and [`session`](super::session)) work on these and know neither pipes
//! nor processes. So the same code talks to a plain child, to a sandboxed one, to a container, and in tests to a pipe in
//! memory.
//!
//! Invariants
//! - STRM-1: whatever is read has a bound with a name; a tool that writes for ever costs time, not memory.
//! - STRM-2: what a tool says for the log is cleaned of control characters before anybody sees it, so that it can
//!   neither forge lines of the log nor speak to a terminal.
//!
//! Not here: who ends the process, and when.

use std::collections::VecDeque;
use std::fmt;

use tokio::io::{AsyncRead, AsyncWrite};

use super::key_block::KeyBlock;
use super::log_end::LogEnd;

/// A stream that a tool writes and Gantry reads.
pub type FromTool = Box<dyn AsyncRead + Send + Unpin>;
/// A stream that Gantry writes and a tool reads.
pub type ToTool = Box<dyn AsyncWrite + Send + Unpin>;

/// Lines of the end of a log that are shown.
const LINES_SHOWN: usize = 20;
/// Characters of one shown line.
const LINE_CHARS_SHOWN: usize = 1000;

/// Everything that leads to a tool's process and back.
pub struct ProcessStreams {
    pub stdin: ToTool,
    pub stdout: FromTool,
    pub stderr: FromTool,
    /// Where the end of what came from `stderr` is kept.
    pub log: LogEnd,
}

impl ProcessStreams {
    /// Of a process.
    pub fn new(
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stderr: impl AsyncRead + Send + Unpin + 'static,
    ) -> Self {
        Self { stdin: Box::new(stdin), stdout: Box::new(stdout), stderr: Box::new(stderr), log: LogEnd::default() }
    }
}

impl fmt::Debug for ProcessStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

/// The last lines of what a tool wrote, fit for a log. The text was redacted as a whole before: half a secret looks like none.
pub fn last_lines(redacted: &str) -> String {
    let lines: Vec<&str> = redacted.lines().collect();
    let last = lines.get(lines.len().saturating_sub(LINES_SHOWN)..).unwrap_or_default();
    last.iter().map(|line| clean(line, LINE_CHARS_SHOWN)).collect::<Vec<_>>().join("\n")
}

/// One line of a tool's words: without control characters and characters that turn text around, and cut at `chars_max`.
pub(super) fn clean(text: &str, chars_max: usize) -> String {
    let mut cleaned: String = text
        .chars()
        .take(chars_max)
        .map(|c| if (c.is_control() && c != '\t') || turns_text(c) { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.chars().nth(chars_max).is_some() {
        cleaned.push('…');
    }
    cleaned
}

/// Separators of lines and paragraphs, and the marks that change the direction of what follows.
fn turns_text(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

// ------------------------------------------------------------------------------------------------------------- Tail

/// The end of a stream: the last bytes of however many there were.
#[derive(Debug)]
pub(crate) struct StreamTail {
    kept: VecDeque<u8>,
    kept_max: usize,
    seen: u64,
    /// Whether what went by ends inside of a private key.
    lost: KeyBlock,
}

impl StreamTail {
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { kept: VecDeque::with_capacity(kept_max), kept_max, seen: 0, lost: KeyBlock::default() }
    }

    /// Keeps so many bytes from now on.
    pub(super) fn keep(&mut self, kept_max: usize) {
        self.kept_max = kept_max;
    }

    /// Would what comes next begin a line?
    pub(super) fn ends_with_line(&self) -> bool {
        self.kept.back().is_none_or(|byte| *byte == b'\n')
    }

    pub(crate) fn extend(&mut self, bytes: &[u8]) {
        self.seen = self.seen.saturating_add(bytes.len() as u64);
        self.kept.extend(bytes);
        let surplus = self.kept.len().saturating_sub(self.kept_max);
        self.lose(surplus);
    }

    /// How many bytes there were in all.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Counts anew. A key that was being written may still be.
    pub(super) fn clear(&mut self) {
        self.lose(self.kept.len());
        self.seen = 0;
    }

    fn lose(&mut self, count: usize) {
        if count > 0 {
            let lost: Vec<u8> = self.kept.drain(..count).collect();
            self.lost.pass(&String::from_utf8_lossy(&lost));
        }
    }

    /// The whole lines among what is kept, without the rest of a private key that began before. Of a line whose beginning is
    /// gone nothing is shown: it could be the rest of a secret, which nobody would recognise as one.
    pub(crate) fn text(&self) -> String {
        let is_cut = self.seen > self.kept.len() as u64;
        let cut_line =
            if is_cut { self.kept.iter().position(|byte| *byte == b'\n').map(|end| end + 1) } else { Some(0) };
        let cut_line = cut_line.unwrap_or(self.kept.len());
        let mut before = self.lost.clone();
        let gone: Vec<u8> = self.kept.iter().copied().take(cut_line).collect();
        before.pass(&String::from_utf8_lossy(&gone));
        let whole: Vec<u8> = self.kept.iter().copied().skip(cut_line).collect();
        before.lines(&String::from_utf8_lossy(&whole)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_stream_the_end_is_kept() {
        let mut tail = StreamTail::new(8);
        for part in ["abc", "", "defgh\nijkl", "mn"] {
            tail.extend(part.as_bytes());
        }
        assert_eq!((tail.text().as_str(), tail.seen()), ("ijklmn", 15));
        // The beginning of this line is gone, so what is left of it could be the end of a secret.
        tail.extend(b"opqrstuv");
        assert_eq!((tail.text().as_str(), tail.seen()), ("", 23));
        tail.clear();
        assert_eq!((tail.text().len(), tail.seen()), (0, 0));
    }

    #[test]
    fn words_of_a_tool_cannot_forge_a_log_or_speak_to_a_terminal() {
        for (given, shown) in [
            ("one\ntwo\n", "one\ntwo"),
            ("\x1b[2Jred\rover", "\u{fffd}[2Jred\u{fffd}over"),
            ("a\u{202e}b\u{2028}c", "a\u{fffd}b\u{fffd}c"),
            ("tab\there", "tab\there"),
        ] {
            assert_eq!(last_lines(given), shown);
        }
        let many = (0..100).map(|n| format!("line {n}\n")).collect::<String>();
        assert_eq!(last_lines(&many).lines().count(), LINES_SHOWN);
        assert!(last_lines(&many).ends_with("line 99"));
        let long = last_lines(&"x".repeat(5000));
        assert_eq!(long.chars().count(), LINE_CHARS_SHOWN + 1);
    }

    #[test]
    fn of_a_key_whose_beginning_is_gone_nothing_is_kept() {
        let body = "MIIEowIBAAKCAQEAx7Zq0fYV3nQ1b8mJcT5kHs2Lw9RdEaGvXoPi4UyN6t";
        let mut tail = StreamTail::new(1000);
        tail.extend(b"-----BEGIN PRIVATE KEY-----\n");
        for _ in 0..100 {
            tail.extend(format!("{body}\n").as_bytes());
            assert!(tail.seen() < 1000 || !tail.text().contains("MIIE"), "{}", tail.text());
        }
        // What a process writes in the next call may be the rest of what it wrote in this one.
        tail.clear();
        tail.extend(format!("{body}\n").as_bytes());
        assert_eq!(tail.text(), "[REDACTED]\n");
        tail.extend(b"-----END PRIVATE KEY-----\nit goes on\n");
        assert_eq!(tail.text(), "[REDACTED]\nit goes on\n");
    }
}
