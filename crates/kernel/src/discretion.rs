//! The redactor of one call, which besides the rules knows what this call was told in confidence.
//!
//! A parameter goes from records because of its name or its mark in the schema, whatever it holds. The tool that is given it
//! can say it again where neither name nor mark stands beside it: in its log, in an error, in a result. So the values that
//! were hidden from the record for such a reason are looked for by themselves in everything else that is written about the
//! call.
//!
//! Invariants
//! - DISC-1: which values these are is found out when the first text is redacted: most calls say nothing.
//! - DISC-2: values shorter than [`VALUE_BYTES_MIN`] are not looked for, because they would be found by accident; of more than
//!   [`VALUES_MAX`] the first ones are.
//!
//! Not here: the rules (`ports::redactor`), and encodings of values: a tool that encodes what it was told is not stopped.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use crate::ports::redactor::{RedactError, Redactor};
use crate::registry::ToolVersion;

/// Shortest value that is looked for.
const VALUE_BYTES_MIN: usize = 4;
/// Most values that are looked for.
const VALUES_MAX: usize = 256;
/// What takes the place of such a value.
const HIDDEN: &str = "[REDACTED]";

/// Redacts what is written about one call.
#[derive(Debug)]
pub(crate) struct Discretion {
    rules: Arc<dyn Redactor>,
    tool: Arc<ToolVersion>,
    parameters: Arc<Value>,
    /// DISC-1. Longest first, so that a value inside another does not break it up.
    told: OnceLock<Vec<String>>,
}

impl Discretion {
    pub(crate) fn new(rules: Arc<dyn Redactor>, tool: Arc<ToolVersion>, parameters: Arc<Value>) -> Self {
        Self { rules, tool, parameters, told: OnceLock::new() }
    }

    fn told(&self) -> &[String] {
        self.told.get_or_init(|| {
            // The record was made of the same, so it can be.
            let shown = self.rules.value(&self.parameters, self.tool.parameter_marks()).unwrap_or(Value::Null);
            let mut told = Vec::new();
            gather(&self.parameters, &shown, &mut told);
            told.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
            told.dedup();
            told
        })
    }

    fn without(&self, text: &str) -> Option<String> {
        let told = self.told();
        if !told.iter().any(|value| text.contains(value)) {
            return None;
        }
        Some(told.iter().fold(text.to_owned(), |text, value| text.replace(value, HIDDEN)))
    }

    fn clear(&self, value: Value) -> Value {
        match value {
            Value::String(text) => Value::String(self.without(&text).unwrap_or(text)),
            Value::Number(number) if self.told().contains(&number.to_string()) => HIDDEN.into(),
            Value::Array(items) => items.into_iter().map(|item| self.clear(item)).collect(),
            Value::Object(members) => members
                .into_iter()
                .map(|(name, member)| (self.without(&name).unwrap_or(name), self.clear(member)))
                .collect(),
            other => other,
        }
    }
}

impl Redactor for Discretion {
    fn value(&self, value: &Value, schema: Option<&Value>) -> Result<Value, RedactError> {
        let shown = self.rules.value(value, schema)?;
        Ok(if self.told().is_empty() { shown } else { self.clear(shown) })
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.without(text) {
            None => self.rules.text(text),
            Some(rest) => Cow::Owned(self.rules.text(&rest).into_owned()),
        }
    }

    fn finds(&self, text: &str) -> bool {
        self.rules.finds(text)
    }

    fn members(&self, value: &mut Value, names: &[Box<str>]) {
        self.rules.members(value, names);
    }
}

/// Everything of a value in whose place one word stands.
fn gather(value: &Value, shown: &Value, told: &mut Vec<String>) {
    match (value, shown) {
        _ if told.len() >= VALUES_MAX => {}
        (Value::Object(members), Value::Object(theirs)) => {
            // A member whose name was changed stands under another; what it holds is taken for hidden.
            members.iter().for_each(|(name, member)| gather(member, theirs.get(name).unwrap_or(&Value::Null), told));
        }
        (Value::Array(items), Value::Array(theirs)) => {
            items.iter().zip(theirs).for_each(|(item, theirs)| gather(item, theirs, told));
        }
        (value, shown) if value == shown => {}
        // Part of a text was found by its looks, as it will be elsewhere.
        (Value::String(_), Value::String(rest)) if !is_one_word(rest) => {}
        (Value::Array(items), _) => items.iter().for_each(|item| gather(item, &Value::Null, told)),
        (Value::Object(members), _) => members.values().for_each(|member| gather(member, &Value::Null, told)),
        (Value::String(text), _) => take(text, told),
        (Value::Number(number), _) => take(&number.to_string(), told),
        (Value::Null | Value::Bool(_), _) => {}
    }
}

/// DISC-2. As it is, and as it stands in JSON.
fn take(text: &str, told: &mut Vec<String>) {
    let text = text.trim();
    if text.len() < VALUE_BYTES_MIN || told.len() >= VALUES_MAX {
        return;
    }
    let quoted = Value::from(text).to_string();
    let escaped = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    if escaped != text && escaped.len() >= VALUE_BYTES_MIN {
        told.push(escaped.to_owned());
    }
    told.push(text.to_owned());
}

/// Does one of the words stand there that take the place of something, and nothing else?
fn is_one_word(text: &str) -> bool {
    text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).is_some_and(|word| !word.contains(['[', ']', ' ']))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_hidden_by_name_or_mark_is_gathered_and_nothing_else() {
        let value = json!({ "password": "open \"sesame\"", "n": 12345, "list": ["long word", "kept"], "pin": 77,
            "text": "mail a@b.example now", "deep": { "key": { "a": "inner value", "b": null } }, "same": "same" });
        let shown = json!({ "password": "[REDACTED]", "n": "[PHONE_REDACTED]", "list": ["[REDACTED]", "kept"],
            "pin": "[REDACTED]", "text": "mail [EMAIL_REDACTED] now", "deep": { "key": "[REDACTED]" }, "same": "same" });
        let mut told = Vec::new();
        gather(&value, &shown, &mut told);
        told.sort();
        assert_eq!(told, ["12345", "inner value", "long word", "open \"sesame\"", "open \\\"sesame\\\""]);
    }

    #[test]
    fn values_are_bounded() {
        let many = Value::Array((0..10_000).map(|n| json!(format!("value {n}"))).collect());
        let mut told = Vec::new();
        gather(&many, &json!("[REDACTED]"), &mut told);
        assert_eq!(told.len(), VALUES_MAX);
    }
}
