//! What the audit record shows of a call's parameters: redacted, and bounded (AUD-010, VALID-012).
//!
//! Made as soon as the parameters are the ones that will run, so that a call whose parameters cannot be redacted does not
//! run: E3304. The digest in the record is of the parameters as they are.
//!
//! Only what can be shown is redacted, so the work is bounded as the summary is. What is left out for that is left out whole:
//! a text is handed to the redactor with its last byte or not at all, because half a secret may look like none.
//!
//! This is where a call gets the redactor that it keeps: with what its tenant adds to the rules, and with the values of the
//! credentials that its tool is given, which a caller may have got hold of and sent back. If those cannot be had, the record
//! shows nothing of the parameters: the call itself will not get them either. From then on it also knows the parameters
//! themselves (`discretion`).

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::schema::PartMarks;
use ports::audit_sink::JsonText;
use ports::redactor::{RedactError, Redactor};
use ports::tool_version::ToolVersion;
use serde_json::{Value, json};

use super::facts::CallFacts;
use super::validate::Validated;
use crate::discretion::{self, RecordRedaction};
use crate::invoke::Kernel;

/// Longest summary, bytes of JSON.
const SUMMARY_BYTES_MAX: usize = 2 * 1024;
/// Longest string in a summary that had to be shortened, characters.
const SHORT_CHARS_MAX: usize = 64;
/// Most items and members of one level of such a summary.
const SHORT_ITEMS_MAX: usize = 8;
/// Deepest level of such a summary.
const SHORT_DEPTH_MAX: usize = 4;
/// Longest text of which the beginning is shown, bytes: all of it is redacted for that.
const TEXT_BYTES_MAX: usize = 16 * 1024;
/// Longest name of a member that is shown, bytes.
const NAME_BYTES_MAX: usize = 256;
/// Texts and names that are redacted for one summary, bytes.
const LOOKED_AT_BYTES_MAX: usize = 32 * 1024;
/// Values over this are searched beside the event loop.
const LONG_BYTES: usize = 32 * 1024;
/// What stands for what was left out.
const LEFT_OUT: &str = "...[truncated]";
/// What stands for parameters in which a secret could stand that nobody can look for.
const WITHHELD: &str = "[REDACTED]";

/// Notes the summary of the parameters for the record, and the redactor of the call.
pub(crate) async fn summarise(
    kernel: &Kernel,
    facts: &mut CallFacts,
    validated: &mut Validated,
) -> Result<(), Refusal> {
    let tool = &validated.tool;
    validated.key.hide(&*kernel.parts.redactor);
    let (redactor, known) = redactor_of_tool(kernel, tool, validated.caller.tenant()).await;
    facts.redactor = redactor;
    if let Err(error) = known {
        tracing::warn!(error = &error as &dyn std::error::Error, "the record of a call shows no parameters");
        facts.parameters = Some(JsonText::of(&WITHHELD.into()));
    }
    if facts.parameters.is_none() {
        let shown = summary(&*facts.redactor, &validated.parameters, tool.parameter_marks().as_ref());
        let shown = shown.map_err(unredactable)?;
        facts.parameters = Some(shown);
    }
    let rules = Arc::clone(&facts.redactor);
    let discretion = Arc::new(RecordRedaction::new(rules, Arc::clone(tool), Arc::clone(&validated.parameters)));
    if is_long(&validated.parameters) {
        let known = Arc::clone(&discretion);
        let looked =
            super::validate::aside(kernel, facts, &validated.caller, (tool, validated.time_asked), move || {
                known.look()
            });
        looked.await?;
    }
    facts.redactor = discretion;
    Ok(())
}

/// Is it so much that searching it for what must not be seen holds up others?
pub(super) fn is_long(value: &Value) -> bool {
    let mut room = LONG_BYTES;
    !fits(value, &mut room)
}

/// The redactor for what is written about calls of a tool by this tenant: with what the tenant adds to the rules, and the values
/// of the credentials that the tool is given. An error says that these could not be had.
pub(super) async fn redactor_of_tool(
    kernel: &Kernel,
    tool: &ToolVersion,
    tenant: &TenantId,
) -> (Arc<dyn Redactor>, Result<(), RedactError>) {
    let shared = &kernel.parts.redactor;
    let rules = shared.of_tenant(tenant).unwrap_or_else(|| Arc::clone(shared));
    let kind = tool.manifest.execution.as_ref().map(contract::manifest::Execution::kind);
    let executor = kernel.parts.executors.iter().find(|executor| Some(executor.kind()) == kind);
    let Some(given) = executor.and_then(|executor| executor.credentials(tool, tenant)) else { return (rules, Ok(())) };
    match rules.knowing(&given).await {
        Ok(knowing) => (knowing.unwrap_or(rules), Ok(())),
        Err(error) => (rules, Err(error)),
    }
}

fn summary(
    redactor: &dyn Redactor,
    parameters: &Value,
    marks: Option<&PartMarks<'_>>,
) -> Result<JsonText, RedactError> {
    let mut room = SUMMARY_BYTES_MAX;
    if fits(parameters, &mut room) {
        return shown(redactor, parameters, marks);
    }
    let mut left = LOOKED_AT_BYTES_MAX;
    shown(redactor, &outlined(parameters, 0, &mut left), marks)
}

fn shown(redactor: &dyn Redactor, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<JsonText, RedactError> {
    redactor.value(value, marks).map(|shown| bounded(&discretion::everywhere(value, shown)))
}

/// E3304. What could not be redacted is not told.
pub(super) fn unredactable(error: RedactError) -> Refusal {
    tracing::error!(error = &error as &dyn std::error::Error, "REDACTION_FAILED");
    Refusal::new(ErrorCode::E3304, "the call could not be redacted for its record and was not carried on")
        .hint("send a value with fewer levels")
        .caused_by(error)
}

/// Whether the value has about so many bytes at most. Takes them off; stops at the first that are too many.
fn fits(value: &Value, room: &mut usize) -> bool {
    match value {
        Value::Null | Value::Bool(_) => take(room, 4),
        Value::Number(_) => take(room, 8),
        Value::String(text) => take(room, text.len().saturating_add(2)),
        Value::Array(items) => take(room, 2) && items.iter().all(|item| take(room, 1) && fits(item, room)),
        Value::Object(members) => {
            take(room, 2)
                && members.iter().all(|(name, member)| take(room, name.len().saturating_add(4)) && fits(member, room))
        }
    }
}

/// Takes so many off, if there are so many.
fn take(room: &mut usize, bytes: usize) -> bool {
    room.checked_sub(bytes).map(|left| *room = left).is_some()
}

/// What can be shown of a value that is too large, before it is redacted: texts whole or not at all, the beginnings of lists.
fn outlined(value: &Value, depth: usize, left: &mut usize) -> Value {
    // What stands for what was left out is looked at too.
    if !take(left, LEFT_OUT.len()) {
        return LEFT_OUT.into();
    }
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) if text.len() <= TEXT_BYTES_MAX && take(left, text.len()) => value.clone(),
        Value::String(_) => LEFT_OUT.into(),
        Value::Array(_) | Value::Object(_) if depth >= SHORT_DEPTH_MAX => LEFT_OUT.into(),
        Value::Array(items) => {
            let kept = items.iter().take(SHORT_ITEMS_MAX).map(|item| outlined(item, depth + 1, left));
            let more = (items.len() > SHORT_ITEMS_MAX).then(|| LEFT_OUT.into());
            Value::Array(kept.chain(more).collect())
        }
        Value::Object(members) => {
            let mut kept = serde_json::Map::new();
            for (name, member) in members.iter().take(SHORT_ITEMS_MAX) {
                if name.len() <= NAME_BYTES_MAX && take(left, name.len()) {
                    kept.insert(name.clone(), outlined(member, depth + 1, left));
                }
            }
            if kept.len() < members.len() {
                kept.insert(LEFT_OUT.to_owned(), (members.len() - kept.len()).into());
            }
            Value::Object(kept)
        }
    }
}

/// The value as JSON of at most [`SUMMARY_BYTES_MAX`] bytes. It stays JSON whatever is left out.
fn bounded(value: &Value) -> JsonText {
    let fitting = |value: &Value| Some(JsonText::of(value)).filter(|text| text.len() <= SUMMARY_BYTES_MAX);
    fitting(value)
        .or_else(|| fitting(&shortened(value, 0)))
        .or_else(|| fitting(&names(value)))
        .unwrap_or_else(|| JsonText::of(&json!({ LEFT_OUT: true })))
}

/// The names alone.
fn names(value: &Value) -> Value {
    let members = value.as_object().into_iter().flatten().map(|(name, _)| name);
    json!({ "members": members.take(SHORT_ITEMS_MAX).collect::<Vec<_>>(), LEFT_OUT: true })
}

/// The beginnings of texts and lists. What is left out was marked before, or is more than fits.
fn shortened(value: &Value, depth: usize) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => match text.char_indices().nth(SHORT_CHARS_MAX) {
            None => value.clone(),
            Some((end, _)) => Value::String(format!("{}{LEFT_OUT}", text.get(..end).unwrap_or_default())),
        },
        Value::Array(_) | Value::Object(_) if depth >= SHORT_DEPTH_MAX => LEFT_OUT.into(),
        Value::Array(items) => {
            let kept = items.iter().take(SHORT_ITEMS_MAX).map(|item| shortened(item, depth + 1));
            let more = (items.len() > SHORT_ITEMS_MAX).then(|| LEFT_OUT.into());
            Value::Array(kept.chain(more).collect())
        }
        Value::Object(members) => {
            // One more than was kept: the count of those that were not.
            let kept = members.iter().take(SHORT_ITEMS_MAX + 1);
            Value::Object(kept.map(|(name, member)| (name.clone(), shortened(member, depth + 1))).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Knows one secret by its end, as a private key is known by its last line, and counts what it is shown.
    #[derive(Debug, Default)]
    struct ByItsEnd {
        seen: AtomicUsize,
    }

    impl Redactor for ByItsEnd {
        fn value(&self, value: &Value, _: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
            self.seen.fetch_add(value.to_string().len(), Ordering::SeqCst);
            Ok(match value {
                Value::String(text) => self.text(text).into(),
                Value::Array(items) => items.iter().map(|item| self.value(item, None).unwrap()).collect(),
                Value::Object(members) => members
                    .iter()
                    .map(|(name, member)| (self.text(name).into_owned(), self.value(member, None).unwrap()))
                    .collect(),
                other => other.clone(),
            })
        }
        fn fields(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
            Ok(None)
        }
        fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
            if text.ends_with("END") { "[REDACTED]".into() } else { text.into() }
        }
        fn members(&self, _: &mut Value, _: &[Box<str>]) {}
    }

    fn shown(value: &Value) -> (JsonText, usize) {
        let redactor = ByItsEnd::default();
        let text = summary(&redactor, value, None).unwrap();
        (text, redactor.seen.into_inner())
    }

    /// Values that are too large to be shown, each in its own way.
    fn large() -> Vec<Value> {
        vec![
            json!({ "long": "ä".repeat(5_000), "n": 7 }),
            json!({ "longer": "a".repeat(1 << 20) }),
            json!({ "many": vec![json!({ "x": "y".repeat(100) }); 50_000] }),
            json!({ "k".repeat(3_000): 1 }),
            json!(vec![vec![vec![vec!["z".repeat(4_000); 9]; 9]; 9]; 9]),
            (0..200).map(|n| (format!("{n}{}", "x".repeat(100)), vec!["z".repeat(90); 20])).collect(),
            json!({ "line ends": "\n".repeat(2_000) }),
        ]
    }

    #[test]
    fn a_summary_is_bounded_and_stays_json() {
        assert_eq!(&*shown(&json!({ "a": 1 })).0, r#"{"a":1}"#);
        for value in large() {
            let (text, _) = shown(&value);
            assert!(text.len() <= SUMMARY_BYTES_MAX, "{}", text.len());
            serde_json::from_str::<Value>(&text).unwrap();
        }
        let kept: Value = serde_json::from_str(&shown(&large()[0]).0).unwrap();
        assert_eq!(kept["n"], 7);
        assert!(kept["long"].as_str().unwrap().ends_with(LEFT_OUT));
        let many: Value = (0..20).map(|n| (format!("m{n:02}"), "v".repeat(200))).collect();
        let kept: Value = serde_json::from_str(&shown(&many).0).unwrap();
        assert_eq!((kept.as_object().unwrap().len(), &kept[LEFT_OUT]), (SHORT_ITEMS_MAX + 1, &json!(12)));
    }

    #[test]
    fn no_more_is_redacted_than_can_be_shown() {
        // Levels are counted once each by the redactor of this test, and a few marks and brackets come with the texts.
        let most = (SHORT_DEPTH_MAX + 2) * 2 * LOOKED_AT_BYTES_MAX;
        for value in large() {
            let (_, seen) = shown(&value);
            assert!(seen <= most, "{seen}");
        }
    }

    #[test]
    fn half_a_secret_is_never_shown() {
        // What is known by its end must come to the redactor with its end, or not be shown at all.
        for length in [10, 1_000, 3_000, TEXT_BYTES_MAX - 3, TEXT_BYTES_MAX, 1 << 20] {
            let secret = format!("{}END", "s3cr3t".repeat(length.div_ceil(6)));
            for value in [
                json!({ "a": secret, "pad": "p".repeat(3_000) }),
                json!({ "pad": "p".repeat(TEXT_BYTES_MAX), "pad2": "p".repeat(TEXT_BYTES_MAX - 9), "z": secret }),
                json!([{ "deep": [{ "er": secret }] }, "p".repeat(3_000)]),
                json!({ secret.clone(): 1, "pad": "p".repeat(3_000) }),
            ] {
                let (text, _) = shown(&value);
                assert!(!text.contains("s3cr3t"), "{length}: {}", &*text);
            }
        }
    }
}
