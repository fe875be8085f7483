//! The line on stdout that spoils a result: a forgotten `print`, the greeting of a library.
//!
//! A result is exactly one JSON value, and nobody guesses which part of an output was meant. But the author who has printed
//! something beside it is told which line that was. Everybody reads its number; the line itself is the tool's words, and
//! goes where its log goes.

use contract::json::{self, JsonLimits};
use serde_json::Value;

/// Lines at the beginning that are taken for stray ones, at most: each is tried by reading what follows.
const LEADING_MAX: usize = 16;

/// A line that is not part of the result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct StrayLine<'a> {
    /// Counted from 1.
    pub(super) number: usize,
    pub(super) text: &'a [u8],
}

/// The first line of an output that does not belong to a result, if the rest is one: before it, or after it. Nothing of an output
/// that is a result, nor of one without any.
pub(super) fn find(output: &[u8]) -> Option<StrayLine<'_>> {
    after(output).or_else(|| before(output))
}

/// The result stands first.
fn after(output: &[u8]) -> Option<StrayLine<'_>> {
    let mut values = serde_json::Deserializer::from_slice(output).into_iter::<Value>();
    // A number, a word: `1 tool loaded` begins with a value and has none.
    let is_result = matches!(values.next(), Some(Ok(Value::Object(_) | Value::Array(_))));
    let end = values.byte_offset();
    let rest = output.get(end..).unwrap_or_default();
    let blank = rest.iter().position(|byte| !byte.is_ascii_whitespace())?;
    let at = end + blank;
    let passed = output.get(..at).unwrap_or_default();
    let number = passed.iter().filter(|byte| **byte == b'\n').count() + 1;
    is_result.then(|| StrayLine { number, text: line_at(output, at) })
}

/// The result stands last.
fn before(output: &[u8]) -> Option<StrayLine<'_>> {
    let mut start = 0;
    let mut first: Option<StrayLine<'_>> = None;
    for number in 1..=LEADING_MAX {
        let line = line_at(output, start);
        if first.is_none() && !line.trim_ascii().is_empty() {
            first = Some(StrayLine { number, text: line });
        }
        start += line.len() + 1;
        let rest = output.get(start..)?;
        // What was read is bounded by the call's limit already.
        let limits = JsonLimits { bytes_max: output.len(), ..JsonLimits::default() };
        if first.is_some() && matches!(json::read(rest, &limits), Ok(Value::Object(_) | Value::Array(_))) {
            return first;
        }
    }
    None
}

/// What stands from here to the end of the line.
fn line_at(output: &[u8], at: usize) -> &[u8] {
    let rest = output.get(at..).unwrap_or_default();
    let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    rest.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_beside_a_result_is_found_and_none_where_there_is_no_result() {
        for (output, found) in [
            ("loading\n{\"a\": 1}\n", Some((1, "loading"))),
            ("\n\none\ntwo\n{\"a\":\n 1}", Some((3, "one"))),
            ("[1]\ndone\n", Some((2, "done"))),
            ("{\"a\": 1} done", Some((1, "done"))),
            ("{}\n{}\n", Some((2, "{}"))),
            ("3 files read\n{\"a\": 1}", Some((1, "3 files read"))),
            ("{\"a\": 1}\n", None),
            ("not json", None),
            ("not json\nat all\n", None),
            ("{\"a\": ", None),
            ("", None),
        ] {
            let line = find(output.as_bytes());
            let line = line.as_ref().map(|line| (line.number, std::str::from_utf8(line.text).unwrap()));
            assert_eq!(line, found, "{output:?}");
        }
        let many = "line\n".repeat(LEADING_MAX + 1) + "{}";
        assert_eq!(find(many.as_bytes()), None, "bounded");
    }
}
