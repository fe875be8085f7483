//! The first object or array inside a text that is JSON and fits.
//!
//! Fenced blocks come first, because a model that answers with one means it. Then every `{` and `[` is a candidate: its
//! balanced end is looked for with strings and escapes respected, and the piece is read strictly.
//!
//! Invariant
//! - EXTRACT-1: all candidates together may look at [`WORK_FACTOR`] times the text and no more, so that a megabyte of
//!   brackets takes milliseconds and not minutes. What lies beyond is not found.

use contract::json::{self, JsonLimits};
use serde_json::Value;

/// How many times the length of the text may be looked at.
const WORK_FACTOR: usize = 16;
/// And at least this many bytes, for short texts.
const WORK_MIN: usize = 64 * 1024;
const FENCE: &str = "```";

/// The first piece that is JSON and that `fits` accepts.
pub(super) fn find(text: &str, fits: &mut impl FnMut(&Value) -> bool) -> Option<Value> {
    let mut work = text.len().saturating_mul(WORK_FACTOR).max(WORK_MIN);
    fenced(text).find_map(|block| candidates(block, &mut work, fits)).or_else(|| candidates(text, &mut work, fits))
}

/// The insides of fenced blocks.
fn fenced(text: &str) -> impl Iterator<Item = &str> {
    text.split(FENCE).skip(1).step_by(2)
}

fn candidates(text: &str, work: &mut usize, fits: &mut impl FnMut(&Value) -> bool) -> Option<Value> {
    let mut from = 0;
    while let Some(start) = text.get(from..).and_then(|rest| rest.find(['{', '['])).map(|at| from + at) {
        let rest = text.get(start..).unwrap_or_default();
        let (looked_at, end) = balanced(rest.as_bytes(), *work);
        *work = work.saturating_sub(looked_at);
        if let Some(piece) = end.and_then(|end| rest.get(..end)) {
            let limits = JsonLimits { bytes_max: usize::MAX, ..JsonLimits::default() };
            if let Some(value) = json::read(piece.as_bytes(), &limits).ok().filter(|value| fits(value)) {
                return Some(value);
            }
            *work = work.saturating_sub(piece.len());
        }
        if *work == 0 {
            return None;
        }
        from = start + 1;
    }
    None
}

/// How many bytes were looked at, and where the bracket that opens the text is closed.
fn balanced(text: &[u8], limit: usize) -> (usize, Option<usize>) {
    let mut open: Vec<u8> = Vec::new();
    let mut in_string = false;
    let mut escaped = false;
    let mut looked_at = 0;
    for byte in text.iter().take(limit) {
        looked_at += 1;
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'{' => open.push(b'}'),
            b'[' => open.push(b']'),
            b'}' | b']' if open.pop() != Some(*byte) => return (looked_at, None),
            b'}' | b']' if open.is_empty() => return (looked_at, Some(looked_at)),
            _ => {}
        }
    }
    (looked_at, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_in_strings_and_escapes_do_not_count() {
        for (text, expected) in
            [(r#"{"a":"}"}"#, Some(9)), (r#"["\"]"] x"#, Some(7)), ("[1}", None), ("[[1]", None), ("[]]", Some(2))]
        {
            assert_eq!(balanced(text.as_bytes(), 1000).1, expected, "{text}");
        }
    }

    #[test]
    fn masses_of_brackets_are_given_up_soon() {
        for piece in ["[", "{\"a\":[", "[\"", "[1,", "{}{"] {
            let text = piece.repeat(200_000 / piece.len());
            let mut accept_none = |_: &Value| false;
            assert_eq!(find(&text, &mut accept_none), None, "{piece}");
        }
    }
}
