//! Members of something that is almost JSON: cut off in the middle, with `NaN`, a comma too many, single quotes, or names
//! without quotes. No reader makes a document of it, and people read it all the same.
//!
//! Only where members stand; whoever finds them asks whether their names may be shown. A name in quotes with a colon behind it
//! is a member wherever it stands; one without quotes only behind `{` or `,` inside of an open brace, because prose has colons too.
//!
//! Invariants: what is hidden goes to the end of the value, and to the end of the text if no end can be told. Every byte is
//! looked at a bounded number of times.

use std::collections::HashMap;
use std::ops::Range;

/// Longest name that is looked for, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// A name, and where its value begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LooseMember<'t> {
    pub(crate) name: &'t str,
    pub(crate) value_start: usize,
}

/// A value as it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LooseValue<'t> {
    /// What stands between quotes, and how such a quote is written.
    Text { content: &'t str, quote: &'t str },
    /// A number or a word.
    Scalar(&'t str),
    /// An object or a list that may not be whole.
    Container,
}

/// The members of a text, in their order.
pub(crate) fn members(text: &str) -> Vec<LooseMember<'_>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let (mut place, mut open, mut may_begin) = (0, 0_usize, false);
    while let Some(&byte) = bytes.get(place) {
        match byte {
            b'"' | b'\'' => {
                let escapes = escapes_before(bytes, place);
                if let Some(member) = quoted(text, place, byte, escapes) {
                    place = member.value_start;
                    found.push(member);
                    may_begin = false;
                    continue;
                }
                may_begin = false;
            }
            b'{' => {
                open += 1;
                may_begin = true;
            }
            b'}' => {
                open = open.saturating_sub(1);
                may_begin = false;
            }
            b',' => may_begin = true,
            b' ' | b'\t' | b'\r' | b'\n' | b'\\' => {}
            _ if may_begin && open > 0 => {
                may_begin = false;
                let end = place + bare_name(text.get(place..).unwrap_or_default());
                if let Some(member) = followed_by_colon(text, place..end, end) {
                    place = member.value_start;
                    found.push(member);
                    continue;
                }
                place = end.max(place + 1);
                continue;
            }
            _ => may_begin = false,
        }
        place += 1;
    }
    found
}

fn quoted(text: &str, place: usize, quote: u8, escapes: usize) -> Option<LooseMember<'_>> {
    let bytes = text.as_bytes();
    let start = place + 1;
    let look = bytes.get(start..(start + NAME_BYTES_MAX).min(bytes.len()))?;
    let length = look.iter().position(|byte| *byte == quote || *byte == b'\n')?;
    let end = start + length;
    if bytes.get(end) != Some(&quote) || length <= escapes {
        return None;
    }
    // The backslashes of an escaped quote are not part of the name.
    followed_by_colon(text, start..end.saturating_sub(escapes), end + 1)
}

fn followed_by_colon(text: &str, name: Range<usize>, after: usize) -> Option<LooseMember<'_>> {
    let rest = text.get(after..)?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start();
    let name = text.get(name).filter(|name| !name.is_empty())?;
    Some(LooseMember { name, value_start: text.len() - value.len() })
}

/// The length of a name that stands without quotes.
fn bare_name(text: &str) -> usize {
    let is_of_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '-' | '$' | '.');
    let end = text.find(|letter: char| !is_of_name(letter)).unwrap_or(text.len());
    if end > NAME_BYTES_MAX { 0 } else { end }
}

fn escapes_before(bytes: &[u8], place: usize) -> usize {
    let before = bytes.get(..place).unwrap_or_default();
    before.iter().rev().take_while(|byte| **byte == b'\\').count()
}

/// Finds the ends of values. What was found once serves every value that begins before it.
#[derive(Debug, Default)]
pub(crate) struct ValueEnds {
    known: HashMap<(u8, usize), Range<usize>>,
}

impl ValueEnds {
    /// The value that begins here, and where it stands.
    pub(crate) fn value<'t>(&mut self, text: &'t str, start: usize) -> (LooseValue<'t>, Range<usize>) {
        let bytes = text.as_bytes();
        let escapes = bytes.get(start..).unwrap_or_default().iter().take_while(|byte| **byte == b'\\').count();
        match bytes.get(start + escapes) {
            Some(quote @ (b'"' | b'\'')) => {
                let content = start + escapes + 1;
                let close = self.first(*quote, escapes, content, || closing_quote(bytes, content, *quote, escapes));
                let value = LooseValue::Text {
                    content: text.get(content..close.saturating_sub(escapes).max(content)).unwrap_or_default(),
                    quote: text.get(start..content).unwrap_or_default(),
                };
                (value, start..(close + 1).min(text.len()))
            }
            Some(b'{' | b'[') if escapes == 0 => (LooseValue::Container, start..start),
            _ => {
                let end = self.first(0, 0, start, || {
                    let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b'\n');
                    let rest = bytes.get(start..).unwrap_or_default();
                    start + rest.iter().position(ends).unwrap_or(rest.len())
                });
                let scalar = text.get(start..end).unwrap_or_default().trim_end();
                (LooseValue::Scalar(scalar), start..start + scalar.len())
            }
        }
    }

    fn first(&mut self, kind: u8, escapes: usize, from: usize, find: impl FnOnce() -> usize) -> usize {
        if let Some(known) = self.known.get(&(kind, escapes)).filter(|known| (known.start..=known.end).contains(&from))
        {
            return known.end;
        }
        let end = find();
        self.known.insert((kind, escapes), from..end);
        end
    }
}

/// A quote that is written like the first one and ends something: a comma, a bracket, the end of a line or of the text follows.
fn closing_quote(bytes: &[u8], from: usize, quote: u8, escapes: usize) -> usize {
    let mut place = from;
    while let Some(&byte) = bytes.get(place) {
        if byte == quote && escapes_before(bytes, place) == escapes {
            let mut rest = bytes.get(place + 1..).unwrap_or_default().iter();
            let next = rest.find(|byte| !matches!(byte, b' ' | b'\t' | b'\r'));
            if next.is_none_or(|next| matches!(next, b',' | b'}' | b']' | b'\n' | b'\\')) {
                return place;
            }
        }
        place += 1;
    }
    bytes.len()
}

/// Where an object or a list ends; the end of the text if it does not.
pub(crate) fn container_end(text: &str, start: usize) -> usize {
    let (mut depth, mut in_string, mut escaped) = (0_usize, false, false);
    for (place, byte) in text.bytes().enumerate().skip(start) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return place + 1;
                }
            }
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn found(text: &str) -> Vec<(&str, LooseValue<'_>)> {
        let mut ends = ValueEnds::default();
        members(text).into_iter().map(|member| (member.name, ends.value(text, member.value_start).0)).collect()
    }

    fn text<'t>(content: &'t str, quote: &'t str) -> LooseValue<'t> {
        LooseValue::Text { content, quote }
    }

    #[test]
    fn members_are_found_in_what_no_reader_reads() {
        for (given, expected) in [
            (r#"{"a": "b", "c": "d"#, vec![("a", text("b", "\"")), ("c", text("d", "\""))]),
            (r#"{"a": NaN, "b": [1,], }"#, vec![("a", LooseValue::Scalar("NaN")), ("b", LooseValue::Container)]),
            ("{'a': 'it's', b: 12}", vec![("a", text("it's", "'")), ("b", LooseValue::Scalar("12"))]),
            (r#"{\"a\": \"b\", NaN}"#, vec![("a", text("b", "\\\""))]),
            (
                r#"{"a": "say "hi" now", "b": x"#,
                vec![("a", text("say \"hi\" now", "\"")), ("b", LooseValue::Scalar("x"))],
            ),
            ("half\": 1, \"a\" :\n \"b", vec![("a", text("b", "\""))]),
            ("{ｎａｍｅ: 'x'}", vec![("ｎａｍｅ", text("x", "'"))]),
            ("note, name: x and \"quoted\" words; time: 12:30", vec![]),
        ] {
            assert_eq!(found(given), expected, "{given}");
        }
    }

    #[test]
    fn time_is_linear_in_the_text() {
        for piece in ["\"a\":", "\"a\":x", "{'a':\"", "\\\"a\\\":\\\"", "{a:", ",a", "\"a\": 'b "] {
            let long = piece.repeat(40_000);
            assert!(found(&long).len() <= 40_000);
        }
    }

    proptest! {
        #[test]
        fn any_text_has_values_within_it(given in "[\"'{},:\\\\ a\n\u{fe0f}]{0,40}") {
            let mut ends = ValueEnds::default();
            for member in members(&given) {
                let (_, range) = ends.value(&given, member.value_start);
                prop_assert!(given.get(range).is_some());
            }
        }
    }
}
