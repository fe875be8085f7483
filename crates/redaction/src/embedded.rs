//! JSON that stands in a string: a document, a string of JSON in which another document stands, or lines with a document each.
//!
//! A mark of the byte order before it, and lines that are no JSON, stay as they are.

use std::fmt::Write as _;

use serde_json::Value;

/// Strings of JSON inside of strings of JSON that are opened.
const NESTED_MAX: usize = 4;
/// Longest string that is tried as JSON.
const EMBEDDED_BYTES_MAX: usize = 1024 * 1024;
/// What some programs put before a document.
const BYTE_ORDER_MARK: char = '\u{feff}';

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

impl<'t> EmbeddedJson<'t> {
    /// Nothing if there is no document in the text, or too many of them stand in each other.
    pub(crate) fn of(text: &'t str, nested: usize) -> Option<Self> {
        if nested >= NESTED_MAX || text.len() > EMBEDDED_BYTES_MAX {
            return None;
        }
        let bare = text.trim_start_matches(BYTE_ORDER_MARK);
        let mark = text.get(..text.len() - bare.len()).unwrap_or_default();
        if let Some(document) = document(bare) {
            return Some(Self { pieces: vec![Piece::Text(mark), Piece::Document(document)] });
        }
        let mut pieces = vec![Piece::Text(mark)];
        for line in bare.split_inclusive('\n') {
            let content = line.trim_end_matches(['\n', '\r']);
            let end = line.get(content.len()..).unwrap_or_default();
            match document(content.trim_start_matches(BYTE_ORDER_MARK)) {
                Some(document) => pieces.extend([Piece::Document(document), Piece::Text(end)]),
                None => pieces.push(Piece::Text(line)),
            }
        }
        pieces.iter().any(|piece| matches!(piece, Piece::Document(_))).then_some(Self { pieces })
    }

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
fn document(text: &str) -> Option<Value> {
    let first = text.trim_start();
    let may_be = first.starts_with(['{', '[']) || first.starts_with('"') && first.contains(['{', '[']);
    may_be.then(|| serde_json::from_str(text).ok())?
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn emptied(text: &str) -> Option<String> {
        let change = |document: &mut Value| {
            *document = json!({});
            Ok::<_, ()>(true)
        };
        EmbeddedJson::of(text, 0)?.changed(change).unwrap()
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
        assert!(EmbeddedJson::of("{}", NESTED_MAX).is_none());
    }

    #[test]
    fn what_is_not_changed_is_not_written_again() {
        let same = EmbeddedJson::of("{ \"a\" : 1 }", 0).unwrap().changed(|_| Ok::<_, ()>(false));
        assert_eq!(same, Ok(None));
    }
}
