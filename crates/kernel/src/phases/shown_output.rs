//! What a caller is shown of the words of a tool, in a result and in a failure: the profile of the manifest (DESIGN §8.5), and
//! what a policy masks (VALID-012).
//!
//! An MCP server says a structured result twice: as `structuredContent`, which its schema describes, and as the same JSON in a
//! block of text, which nothing describes. Both are masked alike, and so is whatever else of the answer holds a masked value.
//!
//! Invariants
//! - SHOWN-1: what is hidden in one place of an answer is hidden in all of its places.
//! - SHOWN-2: a failure is masked like a result, and its sentences with it: what is hidden in its details is hidden in its message.
//!   What cannot be masked is left out.
//! - SHOWN-3: where members are masked, binary parts of an answer are left out, because nobody can say what is in them.
//!
//! Not here: what is sensitive (`ports::redactor`), and cutting (`verify`).

use std::sync::Arc;

use contract::error::Refusal;
use contract::error::tool_words::{CONTENT, STRUCTURED, TOOL_DATA, TOOL_WORDS};
use contract::manifest::OutputPolicy;
use contract::schema::PartMarks;
use ports::redactor::{RedactError, Redactor};
use ports::tool_version::ToolVersion;
use serde_json::Value;

use super::conditions::Conditions;
use super::opaque_content::withhold_opaque;
use super::summary::unredactable;
use crate::discretion;
use crate::hidden_values::HiddenValues;

/// Takes out of a result what its caller is not shown.
pub(super) fn redacted(
    redactor: &dyn Redactor,
    tool: &ToolVersion,
    conditions: &Conditions,
    result: Value,
) -> Result<Value, Refusal> {
    let output = ShownOutput::of(redactor, tool, conditions);
    Ok(output.masked(&result).map_err(unredactable)?.unwrap_or(result))
}

/// What whoever made a call is shown of what its tool says while it runs.
#[derive(Debug)]
pub(crate) struct ShownWords {
    redactor: Arc<dyn Redactor>,
    tool: Arc<ToolVersion>,
    conditions: Conditions,
}

impl ShownWords {
    pub(super) fn new(redactor: Arc<dyn Redactor>, tool: Arc<ToolVersion>, conditions: Conditions) -> Self {
        Self { redactor, tool, conditions }
    }

    /// The words as they are shown; nothing if nobody can say what is in them.
    pub(crate) fn of(&self, words: &str) -> Option<String> {
        let said = Value::String(words.to_owned());
        match redacted(&*self.redactor, &self.tool, &self.conditions, said) {
            Ok(Value::String(shown)) => Some(shown),
            Ok(_) | Err(_) => None,
        }
    }
}

/// SHOWN-2: takes out of a failure what its caller is not shown of the tool's words.
pub(super) fn redacted_failure(
    redactor: &dyn Redactor,
    tool: &ToolVersion,
    conditions: &Conditions,
    mut refusal: Refusal,
) -> Refusal {
    let output = ShownOutput::of(redactor, tool, conditions);
    let hidden = refusal.details.as_deref_mut().map_or(HiddenValues::None, |details| {
        let said = details.clone();
        output.mask_words(details);
        let hidden = discretion::hidden(&said, details);
        *details = hidden.taken_out_of(details.take());
        hidden
    });
    let sentences = std::iter::once(&mut refusal.message).chain(&mut refusal.hint);
    for sentence in sentences {
        mask_document_in(sentence, |words| output.masked_words(TOOL_DATA, words));
        if let Some(rest) = hidden.taken_out_of_text(sentence) {
            *sentence = rest;
        }
        if output.policy == OutputPolicy::Strict {
            *sentence = redactor.text(sentence).into_owned();
        }
    }
    refusal
}

/// Masks the JSON that a sentence ends in, if it does: before what a tool says stands that it failed. Other parts of it are left
/// as they are.
pub(super) fn mask_document_in(sentence: &mut String, mask: impl FnOnce(Value) -> Value) {
    let Some(at) = sentence.find(['{', '[']) else { return };
    let words = sentence.get(at..).and_then(|rest| serde_json::from_str::<Value>(rest).ok());
    let Some(words) = words else { return };
    let shown = mask(words.clone());
    if shown != words {
        sentence.truncate(at);
        sentence.push_str(&shown.to_string());
    }
}

/// Keeps what policies and activations demand for `said`, of which `shown` is what is left so far: members go, and with them
/// whatever nobody can look into. Every door comes here (SHOWN-3).
pub(super) fn obliged(redactor: &dyn Redactor, conditions: &Conditions, said: &Value, mut shown: Value) -> Value {
    conditions.redact(redactor, &mut shown);
    let mut shown = discretion::everywhere(said, shown);
    if conditions.masks() {
        withhold_opaque(&mut shown);
    }
    shown
}

/// What decides about the words of one tool.
struct ShownOutput<'a> {
    redactor: &'a dyn Redactor,
    policy: OutputPolicy,
    marks: Option<PartMarks<'a>>,
    conditions: &'a Conditions,
}

impl<'a> ShownOutput<'a> {
    fn of(redactor: &'a dyn Redactor, tool: &'a ToolVersion, conditions: &'a Conditions) -> Self {
        let policy = tool.manifest.output_policy.unwrap_or_default();
        Self { redactor, policy, marks: tool.result_marks(), conditions }
    }

    /// What is shown in place of a value; nothing if it can be shown as it is.
    fn masked(&self, value: &Value) -> Result<Option<Value>, RedactError> {
        let mut shown = self.profiled(value, self.marks.as_ref())?;
        if let Some(twins) = self.twins(shown.as_ref().unwrap_or(value))? {
            shown = Some(twins);
        }
        if shown.is_none() && !self.conditions.masks() {
            return Ok(None);
        }
        let shown = shown.unwrap_or_else(|| value.clone());
        Ok(Some(obliged(self.redactor, self.conditions, value, shown)))
    }

    fn profiled(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        match self.policy {
            OutputPolicy::Raw => Ok(None),
            OutputPolicy::Standard => self.redactor.fields(value, marks),
            OutputPolicy::Strict => self.redactor.value(value, marks).map(Some),
        }
    }

    /// The marks of what stands under [`STRUCTURED`], if there are any. Names say the same in a block of text as anywhere.
    fn structured(&self) -> Option<PartMarks<'a>> {
        self.marks.as_ref().map(|marks| marks.member(STRUCTURED)).filter(|marks| !marks.is_silent())
    }

    /// The same with the JSON in its blocks of text masked as the structured result is; nothing if there is none to mask.
    fn twins(&self, value: &Value) -> Result<Option<Value>, RedactError> {
        let Some(marks) = self.structured() else { return Ok(None) };
        let Some(blocks) = value.get(CONTENT).and_then(Value::as_array) else { return Ok(None) };
        let mut changed = None;
        for (index, block) in blocks.iter().enumerate() {
            let Some(Ok(inner)) = block.get("text").and_then(Value::as_str).map(serde_json::from_str::<Value>) else {
                continue;
            };
            if !inner.is_object() && !inner.is_array() {
                continue;
            }
            if let Some(shown) = self.profiled(&inner, Some(&marks))?.filter(|shown| *shown != inner) {
                let copy = changed.get_or_insert_with(|| value.clone());
                if let Some(text) = copy.pointer_mut(&format!("/{CONTENT}/{index}/text")) {
                    *text = Value::String(shown.to_string());
                }
            }
        }
        Ok(changed)
    }

    /// At every depth: failures are told inside of others, and in lists of them.
    fn mask_words(&self, details: &mut Value) {
        match details {
            Value::Object(members) => {
                for (name, member) in members.iter_mut() {
                    if TOOL_WORDS.contains(&name.as_str()) {
                        *member = self.masked_words(name, member.take());
                    } else {
                        self.mask_words(member);
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.mask_words(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Blocks and structure are like those of a result; other words may have its members.
    fn masked_words(&self, name: &str, words: Value) -> Value {
        let is_of_a_result = name == CONTENT || name == STRUCTURED;
        let (said, marks) = if is_of_a_result {
            (serde_json::json!({ name: words }), self.marks.clone())
        } else {
            (words, self.structured().or_else(|| self.marks.clone()))
        };
        let shown = Self { marks, ..*self }.masked(&said).map(|shown| shown.unwrap_or(said));
        match shown {
            Ok(mut shown) if is_of_a_result => shown.get_mut(name).map(Value::take).unwrap_or_default(),
            Ok(shown) => shown,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the words of a failed tool are left out");
                Value::Null
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_that_a_sentence_ends_in_is_masked_and_nothing_else_of_it() {
        let masked = |sentence: &str| {
            let mut sentence = sentence.to_owned();
            mask_document_in(&mut sentence, |_| json!({ "email": "[REDACTED]" }));
            sentence
        };
        assert_eq!(masked(r#"it failed: {"email":"x"}"#), r#"it failed: {"email":"[REDACTED]"}"#);
        for same in [r#"it failed: {"email":"[REDACTED]"}"#, "no {json", "none at all", "[1] it failed"] {
            assert_eq!(masked(same), same);
        }
    }
}
