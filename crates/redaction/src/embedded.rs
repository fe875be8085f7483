//! JSON that stands in a string: a document, a string of JSON in which another document stands, a line with such a string,
//! documents anywhere in prose, or members of what is almost one (`loose_members`).
//!
//! What stands around them stays as it is, and so does a document in which nothing changes. Invariant: no bound lets a document pass
//! without being looked into. A text with one past a bound is [`EmbeddedText::Unreadable`], and its reader hides all of it.

use std::ops::Range;

use serde_json::{Value, json};

use crate::findings::REDACTED;
use crate::json_in_text::{DEPTH_MAX, documents};
use crate::loose_members::{LooseMember, LooseValue, ValueEnds, container_end, members};

/// Strings of JSON inside of strings of JSON that are opened.
const NESTED_MAX: usize = 4;
/// Longest string that is tried as JSON.
const EMBEDDED_BYTES_MAX: usize = 1024 * 1024;
/// What some programs put before a document.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// What stands in a text.
#[derive(Debug)]
pub(crate) enum EmbeddedText<'t> {
    /// No document.
    Nothing,
    Documents(EmbeddedJson<'t>),
    /// Documents that are too long or too deep to be looked into, or stand too deep in each other.
    Unreadable,
}

/// The documents of a text, and the members of what is almost one.
#[derive(Debug)]
pub(crate) struct EmbeddedJson<'t> {
    text: &'t str,
    /// In the order of their places. A member stands before the document that is its value.
    parts: Vec<Part<'t>>,
}

#[derive(Debug)]
enum Part<'t> {
    Document(Range<usize>, Value),
    Member(LooseMember<'t>),
}

impl Part<'_> {
    fn start(&self) -> usize {
        match self {
            Self::Document(range, _) => range.start,
            Self::Member(member) => member.value_start,
        }
    }
}

/// One text that may be a document.
enum Reading {
    None,
    Document(Value),
    Unreadable,
}

impl<'t> EmbeddedText<'t> {
    /// What stands in a text that stands in so many others.
    pub(crate) fn of(text: &'t str, nested: usize) -> Self {
        let bare = text.trim_start_matches(BYTE_ORDER_MARK);
        if text.len() > EMBEDDED_BYTES_MAX {
            let may_be = may_be_document(bare) || lines(bare).any(|(content, _)| may_be_document(content));
            if may_be {
                return Self::Unreadable;
            }
        }
        let parts = match read(bare) {
            Reading::Document(document) => vec![Part::Document(text.len() - bare.len()..text.len(), document)],
            Reading::Unreadable => return Self::Unreadable,
            Reading::None => match in_prose(text) {
                Some(parts) => parts,
                None => return Self::Unreadable,
            },
        };
        if parts.is_empty() {
            Self::Nothing
        } else if nested >= NESTED_MAX {
            Self::Unreadable
        } else {
            Self::Documents(EmbeddedJson { text, parts })
        }
    }
}

/// The documents between other words, lines that are a string with one, and members that stand in none of them; nothing if a
/// document cannot be looked into.
fn in_prose(text: &str) -> Option<Vec<Part<'_>>> {
    let mut documents = Vec::new();
    // Where the words begin that have not been looked into, and where the next line does.
    let (mut begin, mut place) = (0, 0);
    for (content, line) in lines(text) {
        let next = place + line.len();
        // Its quotes are part of it, so it is read as a whole.
        if content.trim_start().starts_with('"') {
            match read(content) {
                Reading::Document(document) => {
                    push_prose(text, begin..place, &mut documents)?;
                    let bare = line.trim_start_matches(BYTE_ORDER_MARK);
                    let start = next - bare.len();
                    documents.push((start..start + bare.trim_end_matches(['\n', '\r']).len(), document));
                    begin = next;
                }
                Reading::None => {}
                Reading::Unreadable => return None,
            }
        }
        place = next;
    }
    push_prose(text, begin..text.len(), &mut documents)?;
    let mut parts: Vec<Part<'_>> = Vec::new();
    let mut members = members(text).into_iter().peekable();
    for (range, document) in documents {
        while let Some(member) = members.next_if(|member| member.value_start <= range.start) {
            parts.push(Part::Member(member));
        }
        // Of what stands in a document, its reader takes care.
        while members.next_if(|member| member.value_start < range.end).is_some() {}
        parts.push(Part::Document(range, document));
    }
    parts.extend(members.map(Part::Member));
    Some(parts)
}

/// The documents of some prose; nothing if one cannot be looked into.
fn push_prose(text: &str, prose: Range<usize>, found: &mut Vec<(Range<usize>, Value)>) -> Option<()> {
    for range in documents(text.get(prose.clone())?)? {
        let range = prose.start + range.start..prose.start + range.end;
        let document = text.get(range.clone())?;
        if document.len() > EMBEDDED_BYTES_MAX {
            return None;
        }
        // The scanner knows the grammar. What is refused all the same is too deep, or holds what the reader has no room for.
        found.push((range, serde_json::from_str(document).ok()?));
    }
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
    /// The text with other documents in place of those that `change` gives one for; nothing if there is none. A member of what is
    /// almost a document is asked about as a document of its own.
    pub(crate) fn changed<E>(self, mut change: impl FnMut(&mut Value) -> Result<bool, E>) -> Result<Option<String>, E> {
        let text = self.text;
        let (mut shown, mut place, mut ends) = (String::new(), 0, ValueEnds::default());
        for part in self.parts {
            // It stands in something that is hidden already.
            if part.start() < place {
                continue;
            }
            let (range, words) = match part {
                Part::Document(range, mut document) => {
                    if !change(&mut document)? {
                        continue;
                    }
                    (range, document.to_string())
                }
                Part::Member(LooseMember { name, value_start }) => {
                    let (value, mut range) = ends.value(text, value_start);
                    let mut asked = json!({ unescaped(name): held(&value) });
                    if !change(&mut asked)? {
                        continue;
                    }
                    if value == LooseValue::Container {
                        range = value_start..container_end(text, value_start);
                    }
                    let hidden = asked.as_object().and_then(|members| members.values().next().cloned());
                    (range, written(&value, &hidden.unwrap_or_else(|| REDACTED.into())))
                }
            };
            shown.push_str(text.get(place..range.start).unwrap_or_default());
            shown.push_str(&words);
            place = range.end;
        }
        shown.push_str(text.get(place..).unwrap_or_default());
        Ok((shown != text).then_some(shown))
    }
}

/// A name without the escapes that JSON may write its letters with.
fn unescaped(name: &str) -> String {
    let read = name.contains('\\').then(|| serde_json::from_str(&format!("\"{name}\"")).ok());
    read.flatten().unwrap_or_else(|| name.to_owned())
}

/// What is asked about in place of a value. What is in a container is asked about by itself, if the container may be shown.
fn held(value: &LooseValue<'_>) -> Value {
    match value {
        LooseValue::Text { content, .. } => Value::from(*content),
        LooseValue::Scalar(scalar) => serde_json::from_str(scalar).unwrap_or_else(|_| Value::from(*scalar)),
        LooseValue::Container => Value::from("container"),
    }
}

/// A value in the quotes of the one whose place it takes.
fn written(former: &LooseValue<'_>, value: &Value) -> String {
    match (former, value) {
        (LooseValue::Text { quote, .. }, Value::String(text)) if !text.contains(['"', '\'', '\\', '\n']) => {
            format!("{quote}{text}{quote}")
        }
        _ => value.to_string(),
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
        match EmbeddedText::of(text, 0) {
            EmbeddedText::Documents(found) => Some(found),
            EmbeddedText::Nothing | EmbeddedText::Unreadable => None,
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
            assert!(matches!(EmbeddedText::of(&text, 0), EmbeddedText::Unreadable), "{} bytes", text.len());
        }
        for text in ["{}", "words\n[\"a\"]\n", "words {\"a\":1}", "\"[]\""] {
            assert!(matches!(EmbeddedText::of(text, NESTED_MAX), EmbeddedText::Unreadable), "{text}");
        }
        for text in ["words".to_owned(), "{broken".to_owned(), "x".repeat(EMBEDDED_BYTES_MAX + 1)] {
            assert!(matches!(EmbeddedText::of(&text, NESTED_MAX), EmbeddedText::Nothing), "{} bytes", text.len());
        }
    }

    #[test]
    fn what_is_not_changed_is_not_written_again() {
        let same = opened("{ \"a\" : 1 }").unwrap().changed(|_| Ok::<_, ()>(false));
        assert_eq!(same, Ok(None));
    }
}
