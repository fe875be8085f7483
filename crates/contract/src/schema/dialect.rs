//! Drafts of JSON Schema: which one a schema is written in, and the same schema in the words of 2020-12. (VALID-001)
//!
//! Everything else here reads 2020-12 and nothing else: admission, strictness, defaults, wording, comparison. So a schema of
//! an older draft is judged by the meta-schema of that draft and then translated once, keyword by keyword. Its author
//! sees it as it was written; what is checked is the translation, and it accepts what the old draft accepts.
//!
//! Invariants
//! - DIALECT-1: a word means what it means in the draft that the schema names. Words that came later are ignored there, so
//!   they are ignored here, and named as unchecked.
//! - DIALECT-2: every local reference leads to what it led to before, wherever the translation has put it.
//! - DIALECT-3: a schema that names no draft is 2020-12. Only if that meta-schema refuses it, it is read by the newest
//!   draft whose meta-schema does not: such a schema has no meaning in 2020-12 that could be mistaken.
//!
//! Not here: limits of size and depth (`admit`, before this file recurses), fetching anything (nobody does).

mod translation;

use std::borrow::Cow;

use jsonschema::meta::MetaValidator;
use serde_json::Value;

use super::SchemaError;
use super::document::META_SCHEMA;
use super::unchecked::UncheckedPart;

/// The drafts that are understood, oldest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Draft {
    Four,
    Six,
    Seven,
    Year2019,
    Year2020,
}

impl Draft {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Four => "draft-04",
            Self::Six => "draft-06",
            Self::Seven => "draft-07",
            Self::Year2019 => "2019-09",
            Self::Year2020 => "2020-12",
        }
    }

    /// By the address in `$schema`; authors write it with and without `#`, with `http` and with `https`.
    fn named(address: &str) -> Option<Self> {
        let address = address.trim_end_matches('#').trim_end_matches('/');
        let path = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"))?;
        match path.strip_prefix("json-schema.org/")? {
            "draft-04/schema" => Some(Self::Four),
            "draft-06/schema" => Some(Self::Six),
            "draft-07/schema" => Some(Self::Seven),
            "draft/2019-09/schema" => Some(Self::Year2019),
            // `json-schema.org/schema` is the newest, whichever it is.
            "draft/2020-12/schema" | "schema" => Some(Self::Year2020),
            _ => None,
        }
    }

    fn meta(self) -> MetaValidator<'static> {
        match self {
            Self::Four => jsonschema::draft4::meta::validator(),
            Self::Six => jsonschema::draft6::meta::validator(),
            Self::Seven => jsonschema::draft7::meta::validator(),
            Self::Year2019 => jsonschema::draft201909::meta::validator(),
            Self::Year2020 => jsonschema::draft202012::meta::validator(),
        }
    }

    /// Every reason why the schema is none by the meta-schema of this draft.
    pub(super) fn faults(self, schema: &Value) -> Vec<SchemaError> {
        let wrong = |error: jsonschema::ValidationError<'_>| {
            let text = error.masked_with("this value").to_string();
            let message = match self {
                Self::Year2020 => format!("not valid by the meta-schema: {text}"),
                older => format!("not valid by the meta-schema of {}: {text}", older.name()),
            };
            SchemaError { path: error.instance_path().as_str().to_owned(), message }
        };
        self.meta().iter_errors(schema).take(FAULTS_MAX).map(wrong).collect()
    }
}

/// Faults by the meta-schema that are spelt out.
const FAULTS_MAX: usize = 50;

/// The draft that a schema is to be read by, or why it cannot be told (DIALECT-3).
pub(super) fn draft_of(schema: &Value) -> Result<Draft, SchemaError> {
    match schema.get("$schema") {
        Some(named) => named.as_str().and_then(Draft::named).ok_or_else(|| SchemaError {
            path: "/$schema".to_owned(),
            message: format!(
                "only JSON Schema draft-04, draft-06, draft-07, 2019-09 and 2020-12 are understood: write `{META_SCHEMA}` or leave `$schema` out"
            ),
        }),
        None if schema.is_object() && !Draft::Year2020.meta().is_valid(schema) => {
            let older = [Draft::Year2019, Draft::Seven, Draft::Four].into_iter();
            Ok(older.into_iter().find(|draft| draft.meta().is_valid(schema)).unwrap_or(Draft::Year2020))
        }
        None => Ok(Draft::Year2020),
    }
}

/// A schema in the words of 2020-12, with what its draft does not let it say.
pub(super) fn translated<'s>(schema: &'s Value, draft: Draft) -> (Cow<'s, Value>, Vec<UncheckedPart>) {
    if draft == Draft::Year2020 {
        return (Cow::Borrowed(schema), Vec::new());
    }
    let (schema, ignored) = translation::translated(schema, draft);
    (Cow::Owned(schema), ignored)
}

/// A schema of any draft in the words of 2020-12, as its callers are to see it where a document has one dialect only: `$schema`
/// is gone if it named an older one. What is no valid schema of its draft stays as it is, for admission to refuse.
///
/// ```
/// use gantry_contract::schema::modern;
/// use serde_json::json;
///
/// let old = json!({ "$schema": "http://json-schema.org/draft-07/schema#", "items": [{ "type": "string" }] });
/// assert_eq!(*modern(&old), json!({ "prefixItems": [{ "type": "string" }] }));
/// ```
pub fn modern(schema: &Value) -> Cow<'_, Value> {
    match draft_of(schema) {
        Ok(draft) if draft != Draft::Year2020 && draft.meta().is_valid(schema) => translated(schema, draft).0,
        _ => Cow::Borrowed(schema),
    }
}

/// Whether a schema that names this address is read as 2020-12.
pub(super) fn is_current(address: &str) -> bool {
    Draft::named(address) == Some(Draft::Year2020)
}

/// A translated schema with the words in force that its draft ignores; nothing if there are none. No value is checked by it.
pub(super) fn with_ignored(schema: &Value) -> Option<Value> {
    let mut found = false;
    let schema = restored(schema, &mut found);
    found.then_some(schema)
}

// Depth is bounded by whoever asked for the translation.
fn restored(schema: &Value, found: &mut bool) -> Value {
    match schema {
        Value::Object(members) => {
            let mut out = serde_json::Map::new();
            for (name, member) in members {
                let word = name.strip_prefix(translation::IGNORED).filter(|word| !members.contains_key(*word));
                *found |= word.is_some();
                out.insert(word.unwrap_or(name).to_owned(), restored(member, found));
            }
            Value::Object(out)
        }
        Value::Array(items) => items.iter().map(|item| restored(item, found)).collect(),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests;
