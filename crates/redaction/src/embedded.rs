//! JSON that stands in a string: a document, a string of JSON in which another document stands, or lines with a document each.
//!
//! A mark of the byte order before it, and lines that are no JSON, stay as they are. Invariant: no bound lets a document pass
//! without being looked into. A text with one past a bound is [`Embedded::Unreadable`], and its reader hides all of it.

use std::fmt::Write as _;

use serde_json::Value;

/// Strings of JSON inside of strings of JSON that are opened.
const NESTED_MAX: usize = 4;
/// Longest string that is tried as JSON.
const EMBEDDED_BYTES_MAX: usize = 1024 * 1024;
/// Levels of a document past which the parser gives up.
const PARSED_DEPTH_MAX: usize = 127;
/// What some programs put before a document.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// What stands in a text.
#[derive(Debug)]
pub(crate) enum Embedded<'t> {
    /// No document.
    Nothing,
    Documents(EmbeddedJson<'t>),
    /// Documents that are too long or too deep to be looked into, or stand too deep in each other.
    Unreadable,
}

/// The documents of a text, and what stands between them.
#[derive(Debug)]
pub(crate) struct EmbeddedJson<'t> {
    pieces: Vec<Piece<'t>>,
}

#[derive(Debug)]
enum Piece<'t> {
    Text(&'t str),
    Document(Value),
}

/// One text that may be a document.
enum Reading {
    None,
    Document(Value),
    Unreadable,
}

impl<'t> Embedded<'t> {
    /// What stands in a text that stands in so many others.
    pub(crate) fn of(text: &'t str, nested: usize) -> Self {
        let bare = text.trim_start_matches(BYTE_ORDER_MARK);
        if text.len() > EMBEDDED_BYTES_MAX {
            let may_be = may_be_document(bare) || lines(bare).any(|(content, _)| may_be_document(content));
            return if may_be { Self::Unreadable } else { Self::Nothing };
        }
        let mark = text.get(..text.len() - bare.len()).unwrap_or_default();
        let found = match read(bare) {
            Reading::Document(document) => EmbeddedJson { pieces: vec![Piece::Text(mark), Piece::Document(document)] },
            Reading::Unreadable => return Self::Unreadable,
            Reading::None => match in_lines(mark, bare) {
                Some(found) => found,
                None => return Self::Unreadable,
            },
        };
        if !found.pieces.iter().any(|piece| matches!(piece, Piece::Document(_))) {
            Self::Nothing
        } else if nested >= NESTED_MAX {
            Self::Unreadable
        } else {
            Self::Documents(found)
        }
    }
}

/// The documents that stand in lines of their own; nothing if one of them cannot be looked into.
fn in_lines<'t>(mark: &'t str, text: &'t str) -> Option<EmbeddedJson<'t>> {
    let mut pieces = vec![Piece::Text(mark)];
    for (content, line) in lines(text) {
        match read(content) {
            Reading::Document(document) => {
                let end = line.trim_end_matches(['\n', '\r']).len();
                pieces.extend([Piece::Document(document), Piece::Text(line.get(end..).unwrap_or_default())]);
            }
            Reading::None => pieces.push(Piece::Text(line)),
            Reading::Unreadable => return None,
        }
    }
    Some(EmbeddedJson { pieces })
}

/// Lines: what may be a document, and the whole with its end.
fn lines(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let content = |line: &'_ str| -> usize { line.trim_end_matches(['\n', '\r']).len() };
    text.split_inclusive('\n').map(move |line| {
        let bare = line.get(..content(line)).unwrap_or_default();
        (bare.trim_start_matches(BYTE_ORDER_MARK), line)
    })
}

impl EmbeddedJson<'_> {
    /// The text with other documents in place of those that `change` gives one for; nothing if there is none.
    pub(crate) fn changed<E>(self, mut change: impl FnMut(&mut Value) -> Result<bool, E>) -> Result<Option<String>, E> {
        let (mut text, mut is_changed) = (String::new(), false);
        for piece in self.pieces {
            match piece {
                Piece::Text(same) => text.push_str(same),
                Piece::Document(mut document) => {
                    is_changed |= change(&mut document)?;
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{document}");
                }
            }
        }
        Ok(is_changed.then_some(text))
    }
}

/// An object, a list, or a string in which there may be one.
fn may_be_document(text: &str) -> bool {
    let first = text.trim_start();
    first.starts_with(['{', '[']) || first.starts_with('"') && first.contains(['{', '['])
}

fn read(text: &str) -> Reading {
    if !may_be_document(text) {
        return Reading::None;
    }
    match serde_json::from_str(text) {
        Ok(document) => Reading::Document(document),
        Err(_) if levels(text) > PARSED_DEPTH_MAX => Reading::Unreadable,
        Err(_) => Reading::None,
    }
}

/// How deep brackets stand in each other outside of strings.
fn levels(text: &str) -> usize {
    let (mut deepest, mut depth, mut in_string, mut escaped) = (0_usize, 0_usize, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn opened(text: &str) -> Option<EmbeddedJson<'_>> {
        match Embedded::of(text, 0) {
            Embedded::Documents(found) => Some(found),
            Embedded::Nothing | Embedded::Unreadable => None,
        }
    }

    fn emptied(text: &str) -> Option<String> {
        let change = |document: &mut Value| {
            *document = json!({});
            Ok::<_, ()>(true)
        };
        opened(text)?.changed(change).unwrap()
    }

    #[test]
    fn documents_are_found_and_what_is_between_them_stays() {
        for (text, expected) in [
            (" {\"a\":1} ", Some("{}")),
            ("\u{feff}[1]", Some("\u{feff}{}")),
            ("\"{\\\"a\\\":1}\"", Some("{}")),
            ("{\"a\":1}\r\nsaid\n[2]\n", Some("{}\r\nsaid\n{}\n")),
            ("{\n  \"a\": 1\n}", Some("{}")),
            ("{broken", None),
            ("\"only a word\"", None),
            ("words", None),
        ] {
            assert_eq!(emptied(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn what_is_past_a_bound_is_unreadable_and_never_taken_for_plain_text() {
        let deep = format!("{}1{}", "[".repeat(130), "]".repeat(130));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(EMBEDDED_BYTES_MAX));
        for text in [deep.clone(), format!("first\n{deep}\n"), long.clone(), format!("first\n{long}")] {
            assert!(matches!(Embedded::of(&text, 0), Embedded::Unreadable), "{} bytes", text.len());
        }
        for text in ["{}", "words\n[1]\n", "\"[]\""] {
            assert!(matches!(Embedded::of(text, NESTED_MAX), Embedded::Unreadable), "{text}");
        }
        for text in ["words".to_owned(), "{broken".to_owned(), "x".repeat(EMBEDDED_BYTES_MAX + 1)] {
            assert!(matches!(Embedded::of(&text, NESTED_MAX), Embedded::Nothing), "{} bytes", text.len());
        }
    }

    #[test]
    fn what_is_not_changed_is_not_written_again() {
        let same = opened("{ \"a\" : 1 }").unwrap().changed(|_| Ok::<_, ()>(false));
        assert_eq!(same, Ok(None));
    }
}
