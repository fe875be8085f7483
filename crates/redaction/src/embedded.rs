//! JSON that stands in a string: a document, a string of JSON in which another document stands, a line with such a string, or
//! documents anywhere in prose.
//!
//! What stands around them stays as it is, and so does a document in which nothing changes. Invariant: no bound lets a document pass
//! without being looked into. A text with one past a bound is [`Embedded::Unreadable`], and its reader hides all of it.

use std::fmt::Write as _;

use serde_json::Value;

use crate::json_in_text::{DEPTH_MAX, documents};

/// Strings of JSON inside of strings of JSON that are opened.
const NESTED_MAX: usize = 4;
/// Longest string that is tried as JSON.
const EMBEDDED_BYTES_MAX: usize = 1024 * 1024;
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
    /// A document, and its text.
    Document(Value, &'t str),
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
            if may_be {
                return Self::Unreadable;
            }
        }
        let mark = text.get(..text.len() - bare.len()).unwrap_or_default();
        let found = match read(bare) {
            Reading::Document(document) => {
                EmbeddedJson { pieces: vec![Piece::Text(mark), Piece::Document(document, bare)] }
            }
            Reading::Unreadable => return Self::Unreadable,
            Reading::None => match in_prose(mark, bare) {
                Some(found) => found,
                None => return Self::Unreadable,
            },
        };
        if !found.pieces.iter().any(|piece| matches!(piece, Piece::Document(..))) {
            Self::Nothing
        } else if nested >= NESTED_MAX {
            Self::Unreadable
        } else {
            Self::Documents(found)
        }
    }
}

/// The documents between other words, and lines that are a string with one; nothing if one of them cannot be looked into.
fn in_prose<'t>(mark: &'t str, text: &'t str) -> Option<EmbeddedJson<'t>> {
    let mut pieces = vec![Piece::Text(mark)];
    // Where the words begin that have not been looked into, and where the next line does.
    let (mut begin, mut place) = (0, 0);
    for (content, line) in lines(text) {
        let next = place + line.len();
        // Its quotes are part of it, so it is read as a whole.
        if content.trim_start().starts_with('"') {
            match read(content) {
                Reading::Document(document) => {
                    push_prose(text.get(begin..place)?, &mut pieces)?;
                    let end = line.trim_end_matches(['\n', '\r']).len();
                    pieces.push(Piece::Document(document, line.get(..end)?));
                    pieces.push(Piece::Text(line.get(end..)?));
                    begin = next;
                }
                Reading::None => {}
                Reading::Unreadable => return None,
            }
        }
        place = next;
    }
    push_prose(text.get(begin..)?, &mut pieces)?;
    Some(EmbeddedJson { pieces })
}

/// The documents of some prose, and what stands between them; nothing if one cannot be looked into.
fn push_prose<'t>(prose: &'t str, pieces: &mut Vec<Piece<'t>>) -> Option<()> {
    let mut place = 0;
    for range in documents(prose)? {
        let text = prose.get(range.clone())?;
        if text.len() > EMBEDDED_BYTES_MAX {
            return None;
        }
        // The scanner knows the grammar. What is refused all the same is too deep, or holds what the reader has no room for.
        let document = serde_json::from_str(text).ok()?;
        pieces.push(Piece::Text(prose.get(place..range.start)?));
        pieces.push(Piece::Document(document, text));
        place = range.end;
    }
    pieces.push(Piece::Text(prose.get(place..)?));
    Some(())
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
                Piece::Document(mut document, same) => {
                    if change(&mut document)? {
                        is_changed = true;
                        // Writing to a string cannot fail.
                        let _ = write!(text, "{document}");
                    } else {
                        text.push_str(same);
                    }
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
        Err(_) if levels(text) > DEPTH_MAX => Reading::Unreadable,
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
            ("{\"a\":1}\r\nsaid\n[\"b\"]\n", Some("{}\r\nsaid\n{}\n")),
            ("result: {\"a\":1} done", Some("result: {} done")),
            ("said\n{\n  \"a\": 1\n}\nand [\"b\"]", Some("said\n{}\nand {}")),
            ("said {\"a\":1}\n\"{\\\"a\\\":1}\"\nend", Some("said {}\n{}\nend")),
            ("see [1] and {} and {x}", None),
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
        let deep = format!("{}\"a\"{}", "[".repeat(130), "]".repeat(130));
        let long = format!("{{\"a\":\"{}\"}}", "x".repeat(EMBEDDED_BYTES_MAX));
        for text in [
            deep.clone(),
            format!("first\n{deep}\n"),
            format!("first {deep} last"),
            long.clone(),
            format!("first\n{long}"),
        ] {
            assert!(matches!(Embedded::of(&text, 0), Embedded::Unreadable), "{} bytes", text.len());
        }
        for text in ["{}", "words\n[\"a\"]\n", "words {\"a\":1}", "\"[]\""] {
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
