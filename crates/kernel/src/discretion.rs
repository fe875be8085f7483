//! The redactor of one call, which besides the rules knows what this call was told in confidence.
//!
//! A parameter goes from records because of its name or its mark in the schema, whatever it holds. The tool that is given it
//! can say it again where neither name nor mark stands beside it: in its log, in an error, in a result. So the values that
//! were hidden from the record for such a reason are looked for by themselves in everything else that is written about the
//! call.
//!
//! Invariants
//! - DISC-1: which values these are is found out when the first text is redacted: most calls say nothing. Of parameters that
//!   are long it is found out before the call runs (`phases/summary`).
//! - DISC-2: values shorter than [`VALUE_BYTES_MIN`] are not looked for, because they would be found by accident. All others are,
//!   however many there are (`hidden_values`).
//!
//! Not here: the rules (`ports::redactor`), and encodings of values: a tool that encodes what it was told is not stopped.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, OnceLock};

use contract::schema::PartMarks;
use ports::redactor::{RedactError, Redactor};
use ports::tool_version::ToolVersion;
use serde_json::Value;

use crate::hidden_values::HiddenValues;

/// Shortest value that is looked for.
const VALUE_BYTES_MIN: usize = 4;
/// What some programs put before a document.
const BYTE_ORDER_MARK: char = '\u{feff}';

/// Redacts what is written about one call.
pub(crate) struct RecordRedaction {
    rules: Arc<dyn Redactor>,
    tool: Arc<ToolVersion>,
    parameters: Arc<Value>,
    /// DISC-1.
    told: OnceLock<HiddenValues>,
}

/// It knows secrets, and outlives the call in what failed: nothing of them is shown.
impl fmt::Debug for RecordRedaction {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Discretion").field("tool", &self.tool.id).finish_non_exhaustive()
    }
}

impl RecordRedaction {
    pub(crate) fn new(rules: Arc<dyn Redactor>, tool: Arc<ToolVersion>, parameters: Arc<Value>) -> Self {
        Self { rules, tool, parameters, told: OnceLock::new() }
    }

    /// Finds it out now: for parameters that take long, and are looked at where that holds up nobody.
    pub(crate) fn look(&self) {
        self.told();
    }

    fn told(&self) -> &HiddenValues {
        self.told.get_or_init(|| {
            // The record was made of the same, so it can be.
            let shown = self.rules.value(&self.parameters, self.tool.parameter_marks().as_ref()).unwrap_or(Value::Null);
            hidden(&self.parameters, &shown)
        })
    }
}

/// The same as `shown`, where what was hidden of `value` in one place is hidden in all the others too: a password does not
/// become harmless by standing in a comment as well.
pub(crate) fn everywhere(value: &Value, shown: Value) -> Value {
    if *value == shown {
        return shown;
    }
    hidden(value, &shown).taken_out_of(shown)
}

/// The values that were hidden.
pub(crate) fn hidden(value: &Value, shown: &Value) -> HiddenValues {
    let mut told = Vec::new();
    gather(value, shown, &mut told);
    HiddenValues::new(&told)
}

impl Redactor for RecordRedaction {
    fn value(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        let shown = self.rules.value(value, marks)?;
        Ok(self.told().taken_out_of(shown))
    }

    fn fields(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        self.rules.fields(value, marks)
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.told().taken_out_of_text(text) {
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
        (Value::Object(members), Value::Object(theirs)) => {
            // A member whose name was changed stands under another; what it holds is taken for hidden.
            members.iter().for_each(|(name, member)| gather(member, theirs.get(name).unwrap_or(&Value::Null), told));
        }
        (Value::Array(items), Value::Array(theirs)) => {
            items.iter().zip(theirs).for_each(|(item, theirs)| gather(item, theirs, told));
        }
        (value, shown) if value == shown => {}
        // JSON in a text is looked into. Other parts of a text were found by their looks, as they will be elsewhere.
        (Value::String(text), Value::String(rest)) if !is_one_word(rest) => {
            for (value, shown) in nested(text, rest) {
                gather(&value, &shown, told);
            }
        }
        (Value::Array(items), _) => items.iter().for_each(|item| gather(item, &Value::Null, told)),
        (Value::Object(members), _) => members.values().for_each(|member| gather(member, &Value::Null, told)),
        (Value::String(text), _) => take(text, told),
        (Value::Number(number), _) => take(&number.to_string(), told),
        (Value::Null | Value::Bool(_), _) => {}
    }
}

/// The documents that two texts are the JSON of: one each, or one in each line.
fn nested(text: &str, rest: &str) -> Vec<(Value, Value)> {
    if let (Some(value), Some(shown)) = (document(text), document(rest)) {
        return vec![(value, shown)];
    }
    let pairs = text.lines().zip(rest.lines());
    pairs.filter_map(|(line, theirs)| Some((document(line)?, document(theirs)?))).collect()
}

/// The object, the list or the string that a text is the JSON of.
fn document(text: &str) -> Option<Value> {
    let text = text.trim_start_matches(BYTE_ORDER_MARK);
    text.trim_start().starts_with(['{', '[', '"']).then(|| serde_json::from_str(text).ok())?
}

/// DISC-2. As it is, and as it stands in JSON.
fn take(text: &str, told: &mut Vec<String>) {
    let text = text.trim();
    if text.len() < VALUE_BYTES_MIN {
        return;
    }
    let quoted = Value::from(text).to_string();
    let escaped = quoted.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or_default();
    if escaped != text {
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
    fn what_was_hidden_in_one_place_is_hidden_in_all_the_others() {
        let value =
            json!({ "password": "plain zebra", "text": "note plain zebra again", "list": [{ "plain zebra": 1 }] });
        let shown =
            json!({ "password": "[REDACTED]", "text": "note plain zebra again", "list": [{ "plain zebra": 1 }] });
        let expected =
            json!({ "password": "[REDACTED]", "text": "note [REDACTED] again", "list": [{ "[REDACTED]": 1 }] });
        assert_eq!(everywhere(&value, shown), expected);
        assert_eq!(everywhere(&value, value.clone()), value, "nothing was hidden");
    }

    #[test]
    fn json_in_a_text_is_looked_into_at_every_level() {
        let inner = |word: &str| json!({ "password": word }).to_string();
        let outer = |word: &str| json!({ "text": json!([inner(word)]).to_string() });
        let (text, shown) = (outer("p2-mango"), outer("[REDACTED]"));
        let mut told = Vec::new();
        gather(&text, &shown, &mut told);
        assert_eq!(told, ["p2-mango"]);
        // In lines, and in strings of JSON.
        let lines = |word: &str| json!({ "text": format!("said\n{}\n{}\n", inner(word), json!(inner(word))) });
        told.clear();
        gather(&lines("p3-mango"), &lines("[REDACTED]"), &mut told);
        assert_eq!(told, ["p3-mango", "p3-mango"]);
        told.clear();
        gather(&json!({ "text": "{ no json" }), &json!({ "text": "{ no [EMAIL_REDACTED]" }), &mut told);
        assert!(told.is_empty());
    }

    #[test]
    fn no_number_of_hidden_values_leaves_one_of_them_standing_elsewhere() {
        let word = |n: usize| format!("zebra {n:05} crossing");
        let rows: Vec<Value> = (0..5_000).map(|n| json!({ "password": word(n) })).collect();
        let hidden: Vec<Value> = (0..5_000).map(|_| json!({ "password": "[REDACTED]" })).collect();
        let prose: Vec<String> = (0..5_000).map(|n| format!("row {n} says {} again", word(n))).collect();
        let (value, shown) = (json!({ "rows": rows, "prose": prose }), json!({ "rows": hidden, "prose": prose }));
        let shown = everywhere(&value, shown);
        assert!(!shown.to_string().contains("crossing"));
        assert_eq!(shown["prose"][4_999], "row 4999 says [REDACTED] again");
    }
}
