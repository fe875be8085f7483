//! Objects and lists of JSON anywhere in a text: `the answer is {"a": 1}, they said`. Only where they stand; whoever finds them
//! reads them.
//!
//! The scanner knows the grammar (RFC 8259) and looks at each byte a bounded number of times: where something that began like
//! a document turns out to be none, everything around that place that was still open is none either, and what was closed by
//! then is a document by itself. So no text is read again from each of its brackets. Brackets that stand deeper in each other
//! than the reader goes down end the search: nothing can be said of such a text.
//!
//! Invariant: whatever `serde_json` reads as an object or a list with a string in it, and does not stand in a larger one, is
//! found. What holds no string has no names and no words, and is passed over.

use std::ops::Range;

/// Levels of a document past which the reader gives up.
pub(crate) const DEPTH_MAX: usize = 127;

/// The documents of a text in their order. None stands in another. Nothing if brackets stand too deep in each other.
pub(crate) fn documents(text: &str) -> Option<Vec<Range<usize>>> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut place = 0;
    while let Some(start) = next_bracket(bytes, place) {
        let scan = Scan::from(bytes, start);
        match scan.end {
            End::Closed(end) => {
                found.push(start..end);
                place = end;
            }
            End::Stopped(stopped) => {
                found.extend(scan.closed);
                // The byte that does not fit may itself begin something.
                place = stopped.max(start + 1);
            }
            End::TooDeep => return None,
        }
    }
    found.retain(|range| bytes.get(range.clone()).is_some_and(|document| document.contains(&b'"')));
    Some(found)
}

fn next_bracket(bytes: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    rest.iter().position(|byte| matches!(byte, b'{' | b'[')).map(|place| from + place)
}

/// What may come next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    /// The first value of a list, or its end.
    ItemOrEnd,
    Value,
    /// The first name of an object, or its end.
    NameOrEnd,
    Name,
    Colon,
    /// A comma, or the end of what is open.
    CommaOrEnd,
}

/// How an attempt ends.
enum End {
    /// It is a document up to here.
    Closed(usize),
    /// Here it turned out to be none.
    Stopped(usize),
    TooDeep,
}

/// One attempt to read a document.
struct Scan {
    end: End,
    /// Objects and lists that were closed within those that never were; none stands in another.
    closed: Vec<Range<usize>>,
}

impl Scan {
    /// From an opening bracket.
    fn from(bytes: &[u8], start: usize) -> Self {
        // The brackets that are open, and how many documents were closed when each began.
        let mut open: Vec<(usize, u8, usize)> = Vec::new();
        let mut closed: Vec<Range<usize>> = Vec::new();
        let (mut place, mut next) = (start, Next::Value);
        loop {
            let Some(&byte) = bytes.get(place) else { return Self { end: End::Stopped(place), closed } };
            let length = match (next, byte) {
                (_, b' ' | b'\t' | b'\n' | b'\r') => Some(1),
                (Next::ItemOrEnd | Next::Value, b'{' | b'[') if open.len() >= DEPTH_MAX => {
                    return Self { end: End::TooDeep, closed };
                }
                (Next::ItemOrEnd | Next::Value, b'{' | b'[') => {
                    open.push((place, byte, closed.len()));
                    next = if byte == b'{' { Next::NameOrEnd } else { Next::ItemOrEnd };
                    Some(1)
                }
                (Next::ItemOrEnd | Next::CommaOrEnd, b']') | (Next::NameOrEnd | Next::CommaOrEnd, b'}') => {
                    match open.pop() {
                        Some((began, bracket, before)) if bracket + 2 == byte => {
                            // What stands in it is part of it.
                            closed.truncate(before);
                            if open.is_empty() {
                                return Self { end: End::Closed(place + 1), closed: Vec::new() };
                            }
                            closed.push(began..place + 1);
                            next = Next::CommaOrEnd;
                            Some(1)
                        }
                        _ => None,
                    }
                }
                (Next::CommaOrEnd, b',') => {
                    let in_object = open.last().is_some_and(|(_, bracket, _)| *bracket == b'{');
                    next = if in_object { Next::Name } else { Next::Value };
                    Some(1)
                }
                (Next::Colon, b':') => {
                    next = Next::Value;
                    Some(1)
                }
                (Next::NameOrEnd | Next::Name, b'"') => {
                    next = Next::Colon;
                    string(bytes, place)
                }
                (Next::ItemOrEnd | Next::Value, _) => {
                    next = Next::CommaOrEnd;
                    if byte == b'"' { string(bytes, place) } else { word(bytes, place) }
                }
                _ => None,
            };
            match length {
                Some(length) => place += length,
                None => return Self { end: End::Stopped(place), closed },
            }
        }
    }
}

/// The length of the string that begins here, with its quotes.
fn string(bytes: &[u8], start: usize) -> Option<usize> {
    let mut place = start + 1;
    loop {
        match bytes.get(place)? {
            b'"' => return Some(place + 1 - start),
            b'\\' => match bytes.get(place + 1)? {
                b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => place += 2,
                b'u' => {
                    let digits = bytes.get(place + 2..place + 6)?;
                    if !digits.iter().all(u8::is_ascii_hexdigit) {
                        return None;
                    }
                    place += 6;
                }
                _ => return None,
            },
            0..0x20 => return None,
            _ => place += 1,
        }
    }
}

/// The length of the number or the word of the grammar that begins here.
fn word(bytes: &[u8], start: usize) -> Option<usize> {
    let rest = bytes.get(start..)?;
    if let Some(word) = [&b"true"[..], b"false", b"null"].into_iter().find(|word| rest.starts_with(word)) {
        return Some(word.len());
    }
    let digits = |from: usize| rest.iter().skip(from).take_while(|byte| byte.is_ascii_digit()).count();
    let mut length = usize::from(rest.first() == Some(&b'-'));
    let whole = digits(length);
    if whole == 0 || (whole > 1 && rest.get(length) == Some(&b'0')) {
        return None;
    }
    length += whole;
    if rest.get(length) == Some(&b'.') {
        let fraction = digits(length + 1);
        length = (fraction > 0).then_some(length + 1 + fraction)?;
    }
    if matches!(rest.get(length), Some(b'e' | b'E')) {
        let sign = usize::from(matches!(rest.get(length + 1), Some(b'+' | b'-')));
        let exponent = digits(length + 1 + sign);
        length = (exponent > 0).then_some(length + 1 + sign + exponent)?;
    }
    Some(length)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn found(text: &str) -> Vec<&str> {
        documents(text).unwrap().into_iter().map(|range| text.get(range).unwrap()).collect()
    }

    #[test]
    fn documents_are_found_wherever_they_stand() {
        for (text, expected) in [
            (r#"result: {"password":"x"} done"#, vec![r#"{"password":"x"}"#]),
            (r#"{"a":"}{"} and ["b"]"#, vec![r#"{"a":"}{"}"#, r#"["b"]"#]),
            ("see:\n{\n  \"a\": [1, -2.5e+3, true, null]\n}\nbye", vec!["{\n  \"a\": [1, -2.5e+3, true, null]\n}"]),
            // Around it is no JSON.
            (r#"{ note: {"a":"b"} }"#, vec![r#"{"a":"b"}"#]),
            (r#"fn x() { y({"a":"b"}); }"#, vec![r#"{"a":"b"}"#]),
            // It breaks off, and what was whole is whole.
            (r#"{"a":{"b":"c"},"d":{"e":["f"],"g":"#, vec![r#"{"b":"c"}"#, r#"["f"]"#]),
            (r#"{"a":oops {"b":"c"}}"#, vec![r#"{"b":"c"}"#]),
            (r#"[[["a"],]]"#, vec![r#"["a"]"#]),
            (r#"{{"a":"b"}}"#, vec![r#"{"a":"b"}"#]),
            // Nothing is in them.
            ("[1] {} [] [link](url) {x} [REDACTED]", vec![]),
            (r#"{"a":"\q"} {"a":01} {"a":1.} {"a" "b"} ["a" "b"] {"a":"b",} {"a":"b"]"#, vec![]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn a_text_is_not_read_again_from_each_of_its_brackets() {
        for open in ["[", "{\"a\":", "[\"x\",{\"a\":"] {
            let text = format!("{}oops ", open.repeat(60)).repeat(10_000);
            assert_eq!(found(&text), Vec::<&str>::new(), "{open}");
        }
        let text = format!("{}oops ", "{\"a\":[\"b\"],\"c\":".repeat(100)).repeat(1_000);
        assert_eq!(documents(&text).unwrap().len(), 100_000);
    }

    #[test]
    fn brackets_that_the_reader_would_not_follow_end_the_search() {
        let nested = |levels: usize| format!("say {}\"a\"{}", "[".repeat(levels), "]".repeat(levels));
        for levels in [1, 2, DEPTH_MAX] {
            let text = nested(levels);
            assert_eq!(found(&text), [text.get(4..).unwrap()], "{levels}");
            assert!(serde_json::from_str::<Value>(text.get(4..).unwrap()).is_ok(), "{levels}");
        }
        for text in [nested(DEPTH_MAX + 1), nested(10_000), "[".repeat(100_000)] {
            assert_eq!(documents(&text), None);
        }
    }

    proptest! {
        /// What the reader reads is found, and what is found the reader reads (but for numbers and halves of characters that
        /// it does not take).
        #[test]
        fn the_scanner_agrees_with_the_reader(text in r#"([{}\[\],:" ab1]|"a"|"b"|:1|\\u00e9|\n){0,24}"#) {
            for range in documents(&text).unwrap() {
                prop_assert!(serde_json::from_str::<Value>(text.get(range.clone()).unwrap()).is_ok(), "{range:?} of {text}");
            }
            if let Ok(value) = serde_json::from_str::<Value>(&text) && (value.is_object() || value.is_array()) && text.contains('"') {
                prop_assert_eq!(found(&text), vec![text.trim_matches([' ', '\n'])]);
            }
        }
    }
}
