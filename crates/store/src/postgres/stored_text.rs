//! Text and words in columns.
//!
//! PostgreSQL's text has every character but NUL, which the people who name things may well use. It is kept as the two
//! characters DLE and `0`, and DLE itself twice, so that everything comes back as it was given and equal texts stay equal.

use std::borrow::Cow;

use ports::clock::UnixMillis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio_postgres::Row;

use super::faults::Fault;
use super::statement::{column, unreadable};

/// "Data link escape": says that the next character stands for something else.
const ESCAPE: char = '\u{10}';
/// What stands for NUL after it.
const NUL: char = '0';

/// The text as a column can hold it.
pub(super) fn kept(text: &str) -> Cow<'_, str> {
    // By bytes, of which both are one: several times as quick as by characters.
    if !text.bytes().any(|byte| matches!(char::from(byte), '\0' | ESCAPE)) {
        return Cow::Borrowed(text);
    }
    let mut kept = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => kept.extend([ESCAPE, NUL]),
            ESCAPE => kept.extend([ESCAPE, ESCAPE]),
            other => kept.push(other),
        }
    }
    Cow::Owned(kept)
}

/// The text as it was given.
pub(super) fn given(kept: &str) -> String {
    let mut text = String::with_capacity(kept.len());
    let mut characters = kept.chars();
    while let Some(character) = characters.next() {
        match (character, if character == ESCAPE { characters.next() } else { None }) {
            (ESCAPE, Some(NUL)) => text.push('\0'),
            (ESCAPE, Some(ESCAPE) | None) => text.push(ESCAPE),
            (ESCAPE, Some(other)) => text.extend([ESCAPE, other]),
            (other, _) => text.push(other),
        }
    }
    text
}

/// A column with such a text.
pub(super) fn free_text(row: &Row, name: &'static str) -> Result<String, Fault> {
    Ok(given(column::<&str>(row, name)?))
}

/// A column with such a text, or nothing.
pub(super) fn opt_free_text(row: &Row, name: &'static str) -> Result<Option<String>, Fault> {
    Ok(column::<Option<&str>>(row, name)?.map(given))
}

/// The word for a value that is one of a few, as it is on the wire.
pub(super) fn tag<T: Serialize>(value: T) -> String {
    let word = serde_json::to_value(value).unwrap_or_default();
    word.as_str().unwrap_or_default().to_owned()
}

/// A column with such a word.
pub(super) fn tagged<T: DeserializeOwned>(row: &Row, name: &'static str, of: &str) -> Result<T, Fault> {
    opt_tagged(row, name, of)?.ok_or_else(|| unreadable(name, of).into())
}

/// A column with such a word, or nothing.
pub(super) fn opt_tagged<T: DeserializeOwned>(row: &Row, name: &'static str, of: &str) -> Result<Option<T>, Fault> {
    let word: Option<String> = column(row, name)?;
    let value = word.map(|word| serde_json::from_value(Value::String(word))).transpose();
    value.map_err(|_| unreadable(name, of).into())
}

/// A column with JSON.
pub(super) fn json<T: DeserializeOwned>(row: &Row, name: &'static str, of: &str) -> Result<T, Fault> {
    serde_json::from_str(column(row, name)?).map_err(|_| unreadable(name, of).into())
}

/// A column with a moment.
pub(super) fn moment(row: &Row, name: &'static str) -> Result<UnixMillis, Fault> {
    Ok(UnixMillis(column(row, name)?))
}

/// A column with a moment, or nothing.
pub(super) fn opt_moment(row: &Row, name: &'static str) -> Result<Option<UnixMillis>, Fault> {
    Ok(column::<Option<i64>>(row, name)?.map(UnixMillis))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        #[test]
        fn every_text_comes_back_as_it_was_given(text in "[\\x00\\x10a0é]{0,20}|.{0,20}") {
            let stored = kept(&text);
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(given(&stored), text);
        }
    }
}
