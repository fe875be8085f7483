//! Gaps: why one schema could not be shown to accept all that another does, and how that reads as a change.
//!
//! The prover knows a *narrow* side (whose values are to be accepted) and a *wide* side (that is to accept them); old and
//! new are one or the other depending on the question. Here the gap becomes a reason: `maximum_tightened` when the wide
//! side is the new one, `maximum_relaxed` when it is the old one.
//!
//! Not here: finding gaps (`prover`), the verdict (`compat`).

use serde_json::Value;

use super::{CompatReason, CompatVerdict};

/// One thing that stands against "everything the narrow side accepts, the wide side accepts".
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Gap {
    /// Place in the value; `*` stands for any item or any property.
    pub(super) path: String,
    pub(super) what: What,
    pub(super) narrow: Option<String>,
    pub(super) wide: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum What {
    Type,
    Values,
    Bound(&'static str),
    /// Another keyword whose values can only be equal or different.
    Keyword(&'static str),
    Required(String),
    /// Only the narrow side knows the property.
    NarrowOnly(String),
    /// Only the wide side knows the property.
    WideOnly(String),
    /// Properties that neither side names.
    Undeclared,
    /// Strings that used to be converted would not be any more.
    Coercion,
    Unproven(&'static str),
}

impl Gap {
    pub(super) fn new(path: &str, what: What) -> Self {
        Self { path: path.to_owned(), what, narrow: None, wide: None }
    }

    /// With what each side says, for the message.
    pub(super) fn saying(mut self, narrow: Option<&Value>, wide: Option<&Value>) -> Self {
        let short = |value: &Value| {
            let text = value.to_string();
            if text.chars().count() <= 80 { text } else { text.chars().take(79).chain(['…']).collect() }
        };
        self.narrow = narrow.map(short);
        self.wide = wide.map(short);
        self
    }

    /// The gap as a reason; `wide_is_new` says which side is which.
    pub(super) fn reason(&self, wide_is_new: bool, verdict: CompatVerdict) -> CompatReason {
        let pick = |tighter: &str, looser: &str| if wide_is_new { tighter.to_owned() } else { looser.to_owned() };
        let change = match &self.what {
            What::Type => pick("type_narrowed", "type_widened"),
            What::Values => pick("enum_narrowed", "enum_widened"),
            What::Bound(keyword) => {
                pick(&format!("{}_tightened", snake(keyword)), &format!("{}_relaxed", snake(keyword)))
            }
            What::Keyword(keyword) => {
                pick(&format!("{}_added_or_changed", snake(keyword)), &format!("{}_removed_or_changed", snake(keyword)))
            }
            What::Required(_) => pick("required_added", "required_removed"),
            What::NarrowOnly(_) => pick("property_removed", "property_added"),
            What::WideOnly(_) => pick("property_added", "property_removed"),
            What::Undeclared => pick("undeclared_properties_refused", "undeclared_properties_accepted"),
            What::Coercion => "coercion_changed".to_owned(),
            What::Unproven(_) if verdict == CompatVerdict::Major => "cannot_prove_compatible".to_owned(),
            What::Unproven(_) => "constraint_changed".to_owned(),
        };
        CompatReason { path: self.path.clone(), change, verdict, message: self.message(wide_is_new) }
    }

    fn message(&self, wide_is_new: bool) -> String {
        let (was, is) = if wide_is_new { (&self.narrow, &self.wide) } else { (&self.wide, &self.narrow) };
        let sides = |name: &str| match (was, is) {
            (Some(was), Some(is)) => format!("`{name}` was `{was}` and is now `{is}`"),
            (Some(was), None) => format!("`{name}` was `{was}` and is now gone"),
            (None, Some(is)) => format!("`{name}` is now `{is}`"),
            (None, None) => format!("`{name}` is not the same any more"),
        };
        match &self.what {
            What::Type => sides("type"),
            What::Values => sides("enum"),
            What::Bound(keyword) | What::Keyword(keyword) => sides(keyword),
            What::Required(name) if wide_is_new => format!("`{name}` is now required"),
            What::Required(name) => format!("`{name}` is no longer required"),
            What::NarrowOnly(name) if wide_is_new => format!("`{name}` is no longer known"),
            What::NarrowOnly(name) => format!("`{name}` is new"),
            What::WideOnly(name) if wide_is_new => format!("`{name}` is new"),
            What::WideOnly(name) => format!("`{name}` is no longer known"),
            What::Undeclared if wide_is_new => "properties that are not declared are no longer accepted".to_owned(),
            What::Undeclared => "properties that are not declared are now accepted".to_owned(),
            What::Coercion => "strings that stood for a number or boolean may be read differently".to_owned(),
            What::Unproven(keyword) => format!("it cannot be shown that `{keyword}` still accepts the same"),
        }
    }
}

fn snake(keyword: &str) -> String {
    let mut text = String::with_capacity(keyword.len() + 2);
    for letter in keyword.chars() {
        if letter.is_ascii_uppercase() {
            text.push('_');
        }
        text.push(letter.to_ascii_lowercase());
    }
    text
}
