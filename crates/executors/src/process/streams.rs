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

use super::scrub::Scrubber;

/// A stream that a tool writes and Gantry reads.
pub type FromTool = Box<dyn AsyncRead + Send + Unpin>;
/// A stream that Gantry writes and a tool reads.
pub type ToTool = Box<dyn AsyncWrite + Send + Unpin>;

/// Lines of the end of a log that are shown.
const LINES_SHOWN: usize = 20;
/// Characters of one shown line.
const LINE_CHARS_SHOWN: usize = 1000;

/// Everything that leads to a tool's process and back.
pub struct Streams {
    pub stdin: ToTool,
    pub stdout: FromTool,
    pub stderr: FromTool,
}

impl Streams {
    /// Of a process.
    pub fn new(
        stdin: impl AsyncWrite + Send + Unpin + 'static,
        stdout: impl AsyncRead + Send + Unpin + 'static,
        stderr: impl AsyncRead + Send + Unpin + 'static,
    ) -> Self {
        Self { stdin: Box::new(stdin), stdout: Box::new(stdout), stderr: Box::new(stderr) }
    }
}

impl fmt::Debug for Streams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

/// The last lines of what a tool wrote, fit for a log. Secrets go first: a line that was cut might show half of one.
pub fn last_lines(bytes: &[u8], secrets: &Scrubber) -> String {
    let text = String::from_utf8_lossy(bytes);
    let text = secrets.text(&text);
    let lines: Vec<&str> = text.lines().collect();
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
pub(super) struct Tail {
    kept: VecDeque<u8>,
    kept_max: usize,
    seen: u64,
}

impl Tail {
    pub(super) fn new(kept_max: usize) -> Self {
        Self { kept: VecDeque::with_capacity(kept_max), kept_max, seen: 0 }
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) {
        self.seen = self.seen.saturating_add(bytes.len() as u64);
        self.kept.extend(bytes);
        let surplus = self.kept.len().saturating_sub(self.kept_max);
        self.kept.drain(..surplus);
    }

    /// How many bytes there were in all.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.seen = 0;
    }

    /// The whole lines among what is kept. Of a line whose beginning is gone nothing is shown: it could be the rest of a
    /// secret, which nobody would recognise as one.
    pub(super) fn to_vec(&self) -> Vec<u8> {
        let is_cut = self.seen > self.kept.len() as u64;
        let cut_line =
            if is_cut { self.kept.iter().position(|byte| *byte == b'\n').map(|end| end + 1) } else { Some(0) };
        self.kept.iter().copied().skip(cut_line.unwrap_or(self.kept.len())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn last_lines(bytes: &[u8]) -> String {
        super::last_lines(bytes, &Scrubber::default())
    }

    #[test]
    fn of_a_stream_the_end_is_kept() {
        let mut tail = Tail::new(8);
        for part in ["abc", "", "defgh\nijkl", "mn"] {
            tail.extend(part.as_bytes());
        }
        assert_eq!((tail.to_vec().as_slice(), tail.seen()), (&b"ijklmn"[..], 15));
        // The beginning of this line is gone, so what is left of it could be the end of a secret.
        tail.extend(b"opqrstuv");
        assert_eq!((tail.to_vec().as_slice(), tail.seen()), (&b""[..], 23));
        tail.clear();
        assert_eq!((tail.to_vec().len(), tail.seen()), (0, 0));
    }

    #[test]
    fn words_of_a_tool_cannot_forge_a_log_or_speak_to_a_terminal() {
        for (given, shown) in [
            (&b"one\ntwo\n"[..], "one\ntwo"),
            (b"\x1b[2Jred\rover", "\u{fffd}[2Jred\u{fffd}over"),
            (b"\xff\xfe bytes", "\u{fffd}\u{fffd} bytes"),
            ("a\u{202e}b\u{2028}c".as_bytes(), "a\u{fffd}b\u{fffd}c"),
            (b"tab\there", "tab\there"),
        ] {
            assert_eq!(last_lines(given), shown);
        }
        let many = (0..100).map(|n| format!("line {n}\n")).collect::<String>();
        assert_eq!(last_lines(many.as_bytes()).lines().count(), LINES_SHOWN);
        assert!(last_lines(many.as_bytes()).ends_with("line 99"));
        let long = last_lines("x".repeat(5000).as_bytes());
        assert_eq!(long.chars().count(), LINE_CHARS_SHOWN + 1);
        // The cut would fall into the secret.
        let line = format!("{}hunter22", "x".repeat(LINE_CHARS_SHOWN - 4));
        let scrubbed = super::last_lines(line.as_bytes(), &Scrubber::new(&[("password", "hunter22")]));
        assert!(!scrubbed.contains("hunt") && scrubbed.contains("[sec"), "{scrubbed}");
    }
}
