//! Parts of a schema that are kept but not checked, each with its reason.
//!
//! A tool whose schema says something that nothing here can check is still worth having: everything else about its calls
//! is checked, and the part is named where the tool is published and shown. Leaving it out silently would be a promise
//! that nobody keeps; refusing the tool would keep it from everybody for the sake of one pattern.
//!
//! A default that its own schema refuses is named among them, too: it is kept, and filled in nowhere (`defaults`).
//!
//! Not here: what an older draft ignores by itself (`dialect`), patterns that are no regular expressions (`admit` refuses).

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::document::{SchemaDocument, join};
use super::look_around::{self, LookAround, PatternFault};
use super::violation_text::short;

/// One part that is not checked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct UncheckedPart {
    /// JSON pointer into the schema.
    pub path: String,
    /// What is not checked, and why.
    pub message: String,
}

/// The schema without what cannot be checked, and the parts that are gone.
pub(super) fn without<'s>(schema: Cow<'s, Value>) -> (Cow<'s, Value>, Vec<UncheckedPart>) {
    let mut parts = Vec::new();
    let mut removals: Vec<(String, Removal)> = Vec::new();
    for (pointer, place) in SchemaDocument::new(&schema).positions() {
        let pattern = place.get("pattern").and_then(Value::as_str);
        if let Some(pattern) = pattern.filter(|pattern| refers_back(pattern)) {
            let shown = short(pattern);
            parts.push(UncheckedPart {
                path: join(&pointer, "pattern"),
                message: format!("the pattern `{shown}` refers back to a group: it is not checked"),
            });
            removals.push((pointer.clone(), Removal::Pattern));
        }
        let Some(named) = place.get("patternProperties").and_then(Value::as_object) else { continue };
        for pattern in named.keys().filter(|pattern| look_around::is_needed(pattern)) {
            let shown = short(pattern);
            parts.push(UncheckedPart {
                path: join(&join(&pointer, "patternProperties"), pattern),
                message: format!(
                    "the pattern `{shown}` of property names has look-around or refers back: neither these properties nor undeclared ones are checked here"
                ),
            });
            removals.push((pointer.clone(), Removal::Names(pattern.clone())));
        }
    }
    if removals.is_empty() {
        return (schema, parts);
    }
    let mut schema = schema.into_owned();
    for (pointer, removal) in removals {
        let Some(Value::Object(place)) = schema.pointer_mut(&pointer) else { continue };
        match removal {
            Removal::Pattern => {
                place.remove("pattern");
            }
            Removal::Names(pattern) => {
                if let Some(Value::Object(named)) = place.get_mut("patternProperties") {
                    named.remove(&pattern);
                }
                // Any name might have been one of these.
                place.insert("additionalProperties".to_owned(), Value::Bool(true));
            }
        }
    }
    (Cow::Owned(schema), parts)
}

enum Removal {
    Pattern,
    Names(String),
}

fn refers_back(pattern: &str) -> bool {
    look_around::is_needed(pattern) && LookAround::compile(pattern).err() == Some(PatternFault::BackReference)
}
