//! What the audit record shows of a call's parameters: redacted, and bounded (AUD-010, VALID-012).
//!
//! Made as soon as the parameters are the ones that will run, so that a call whose parameters cannot be redacted does not
//! run: E3304. The digest in the record is of the parameters as they are.
//!
//! This is where a call gets the redactor that it keeps: with what its tenant adds to the rules, and with the values of the
//! credentials that its tool is given, which a caller may have got hold of and sent back. If those cannot be had, the record
//! shows nothing of the parameters: the call itself will not get them either. From then on it also knows the parameters
//! themselves (`discretion`).

use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use serde_json::{Value, json};

use super::facts::Facts;
use super::validate::Validated;
use crate::discretion::Discretion;
use crate::invoke::Kernel;
use crate::ports::redactor::RedactError;

/// Longest summary, bytes of JSON.
const SUMMARY_BYTES_MAX: usize = 2 * 1024;
/// Longest string in a summary that had to be shortened, characters.
const SHORT_CHARS_MAX: usize = 64;
/// Most items and members of one level of such a summary.
const SHORT_ITEMS_MAX: usize = 8;
/// Deepest level of such a summary.
const SHORT_DEPTH_MAX: usize = 4;
/// What stands for what was left out.
const LEFT_OUT: &str = "...[truncated]";
/// What stands for parameters in which a secret could stand that nobody can look for.
const WITHHELD: &str = r#""[REDACTED]""#;

/// Notes the summary of the parameters for the record, and the redactor of the call.
pub(crate) async fn summarise(kernel: &Kernel, facts: &mut Facts, validated: &mut Validated) -> Result<(), Refusal> {
    let tool = &validated.tool;
    validated.key.hide(&*kernel.parts.redactor);
    if let Some(own) = facts.redactor.of_tenant(validated.caller.tenant()) {
        facts.redactor = own;
    }
    let kind = tool.manifest.execution.as_ref().map(contract::manifest::Execution::kind);
    let executor = kernel.parts.executors.iter().find(|executor| Some(executor.kind()) == kind);
    if let Some(given) = executor.and_then(|executor| executor.credentials(tool, validated.caller.tenant())) {
        match facts.redactor.knowing(&given).await {
            Ok(knowing) => facts.redactor = knowing.unwrap_or_else(|| Arc::clone(&facts.redactor)),
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the record of a call shows no parameters");
                facts.parameters = Some(WITHHELD.into());
            }
        }
    }
    if facts.parameters.is_none() {
        let schema = &tool.manifest.parameters;
        let shown = facts.redactor.value(&validated.parameters, Some(schema)).map_err(|error| unredactable(&error))?;
        facts.parameters = Some(bounded(&shown));
    }
    let rules = Arc::clone(&facts.redactor);
    facts.redactor = Arc::new(Discretion::new(rules, Arc::clone(tool), Arc::clone(&validated.parameters)));
    Ok(())
}

/// E3304. What could not be redacted is not told.
pub(super) fn unredactable(error: &RedactError) -> Refusal {
    tracing::error!(error = error as &dyn std::error::Error, "REDACTION_FAILED");
    Refusal::new(ErrorCode::E3304, "the call could not be redacted for its record and was not carried on")
        .hint("send a value with fewer levels")
}

/// The value as JSON of at most [`SUMMARY_BYTES_MAX`] bytes. It stays JSON whatever is left out.
fn bounded(value: &Value) -> Arc<str> {
    let whole = value.to_string();
    if whole.len() <= SUMMARY_BYTES_MAX {
        return whole.into();
    }
    let short = shortened(value, 0).to_string();
    if short.len() <= SUMMARY_BYTES_MAX {
        return short.into();
    }
    let names: Vec<&String> =
        value.as_object().into_iter().flatten().map(|(name, _)| name).take(SHORT_ITEMS_MAX).collect();
    let outline = json!({ "members": names, LEFT_OUT: whole.len() }).to_string();
    if outline.len() <= SUMMARY_BYTES_MAX {
        outline.into()
    } else {
        json!({ LEFT_OUT: whole.len() }).to_string().into()
    }
}

fn shortened(value: &Value, depth: usize) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => match text.char_indices().nth(SHORT_CHARS_MAX) {
            None => value.clone(),
            Some((end, _)) => Value::String(format!("{}{LEFT_OUT}", text.get(..end).unwrap_or_default())),
        },
        Value::Array(_) | Value::Object(_) if depth >= SHORT_DEPTH_MAX => LEFT_OUT.into(),
        Value::Array(items) => {
            let mut kept: Vec<Value> =
                items.iter().take(SHORT_ITEMS_MAX).map(|item| shortened(item, depth + 1)).collect();
            if items.len() > SHORT_ITEMS_MAX {
                kept.push(LEFT_OUT.into());
            }
            Value::Array(kept)
        }
        Value::Object(members) => {
            let kept =
                members.iter().take(SHORT_ITEMS_MAX).map(|(name, member)| (name.clone(), shortened(member, depth + 1)));
            let left_out = (members.len() > SHORT_ITEMS_MAX)
                .then(|| (LEFT_OUT.to_owned(), (members.len() - SHORT_ITEMS_MAX).into()));
            Value::Object(kept.chain(left_out).collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_bounded_and_stays_json() {
        let small = json!({ "a": 1 });
        assert_eq!(&*bounded(&small), r#"{"a":1}"#);
        let values = [
            json!({ "long": "ä".repeat(5_000), "n": 7 }),
            json!({ "many": vec![json!({ "x": "y".repeat(100) }); 500] }),
            json!({ "k".repeat(3_000): 1 }),
            (0..200).map(|n| (format!("{n}{}", "x".repeat(100)), vec!["z".repeat(90); 20])).collect(),
        ];
        for value in values {
            let text = bounded(&value);
            assert!(text.len() <= SUMMARY_BYTES_MAX, "{}", text.len());
            serde_json::from_str::<Value>(&text).unwrap();
        }
        let kept: Value = serde_json::from_str(&bounded(&json!({ "long": "ä".repeat(5_000), "n": 7 }))).unwrap();
        assert_eq!(kept["n"], 7);
        assert!(kept["long"].as_str().unwrap().ends_with(LEFT_OUT));
    }
}
