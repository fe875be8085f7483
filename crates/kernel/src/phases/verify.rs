//! Phase 5, verify: what came back must be what the manifest promised, in shape and size.

use std::sync::Arc;

use base::SaturatingFrom as _;
use contract::envelope::{CutPlace, Truncation};
use contract::error::{ErrorCode, Refusal};
use contract::event_name::EventName;
use contract::ids::TenantId;
use contract::manifest::OutputPolicy;
use contract::schema::CoercionNote;
use ports::executor::ResourceUsage;
use ports::redactor::Redactor;
use ports::tool_version::ToolVersion;
use serde_json::Value;

use super::conditions::Conditions;
use super::execute::{Executed, Output};
use super::facts::CallFacts;
use super::shown_output::redacted;
use super::summary::{is_long, redactor_of_tool, unredactable};
use super::validate::CHECK_WORK_INLINE_MAX;
use crate::invoke::Kernel;
use crate::ledger::KeptResult;
use crate::resilience::last_results::{LastResult, ResultKey};

/// Under the strict policy, longer strings are cut.
const STRICT_STRING_CHARS_MAX: usize = 10_000;
/// Under the strict policy, longer arrays are cut.
const STRICT_ARRAY_ITEMS_MAX: usize = 100;
/// What a cut string ends in. A cut array has no mark of its own, because an item that the tool did not return would break
/// its schema and be counted by whoever reads it; the metadata of the call say where something is missing.
const CUT_MARK: &str = "...[truncated]";
/// Most places that the metadata name.
const CUT_PLACES_MAX: usize = 20;
/// Longest sentence about what is wrong with a result; the rest of a schema's words is cut.
const WRONG_CHARS_MAX: usize = 300;

/// A call whose result may be returned.
#[derive(Debug)]
pub struct Verified {
    pub(super) tool: Arc<ToolVersion>,
    pub(super) coercions: Vec<CoercionNote>,
    pub(super) result: Value,
    pub(super) usage: ResourceUsage,
    pub(super) truncation: Option<Truncation>,
    /// When it ran, if that was in an earlier call.
    pub(super) ran: Option<Ran>,
    /// What the tool answered, before anything was taken out of it, and under what it is kept, if it is.
    pub(super) to_keep: Option<(ResultKey, Value)>,
}

/// When an earlier call ran.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) started_at: String,
    pub(super) completed_at: String,
    pub(super) duration_ms: u64,
}

impl Ran {
    fn of(last: &LastResult) -> Self {
        let (started_at, completed_at) = (last.started_at.clone(), last.completed_at.clone());
        Self { started_at, completed_at, duration_ms: last.duration_ms }
    }
}

/// Runs the phase. What takes long is done where it holds up nobody else. (decision 0115)
pub async fn verify(kernel: &Kernel, facts: &CallFacts, executed: Executed) -> Result<Verified, Refusal> {
    let redactor = Arc::clone(&facts.redactor);
    let Some(caller) = facts.caller.as_ref().filter(|_| takes_long(&executed)) else {
        return verified(&*redactor, executed);
    };
    kernel.concurrency.check_answer(caller, move || verified(&*redactor, executed)).await?
}

/// Is it much that is held against the schema, or searched for what must not be seen?
fn takes_long(executed: &Executed) -> bool {
    let (result, is_checked) = match &executed.output {
        Output::Fresh(output) => (&output.value, true),
        Output::Kept(kept) => (&kept.result, false),
        Output::Stale(former) => (&former.last.value, true),
    };
    let work = || executed.tool.result_schema().map_or(0, |schema| schema.work(result));
    is_long(result) || (is_checked && work() > CHECK_WORK_INLINE_MAX)
}

fn verified(redactor: &dyn Redactor, executed: Executed) -> Result<Verified, Refusal> {
    let Executed { tool, coercions, output, conditions, result_bytes_max, result_key } = executed;
    let (result, usage, ran) = match output {
        Output::Fresh(output) => (output.value, output.usage, None),
        // Its size was counted when it was verified.
        Output::Kept(kept) => return verify_again(redactor, tool, coercions, *kept, &conditions),
        // It was good for whoever called then; what this caller may see of it is asked from the beginning.
        Output::Stale(former) => {
            let (ran, value) = (Ran::of(&former.last), former.last.value.clone());
            (value, ResourceUsage::default(), Some(ran))
        }
    };
    fits_the_schema(&tool, &result)?;
    let unmasked = result_key.map(|key| (key, result.clone()));
    let (result, truncation) = profiled(redactor, &tool, &conditions, result, result_bytes_max)?;
    Ok(Verified { tool, coercions, result, usage, truncation, ran, to_keep: unmasked })
}

/// What may be returned and kept of a result that fits its schema.
fn profiled(
    redactor: &dyn Redactor,
    tool: &ToolVersion,
    conditions: &Conditions,
    result: Value,
    bytes_max: u64,
) -> Result<(Value, Option<Truncation>), Refusal> {
    let is_cut = tool.manifest.output_policy.unwrap_or_default() == OutputPolicy::Strict;
    // VALID-013, counted once: what the tool said, before other words take the place of what is hidden; or what is left of it
    // where it is cut.
    if !is_cut {
        fits_the_size(tool, &result, bytes_max)?;
    }
    // Redacted before it is cut: of a secret that was cut, what is left may look like none.
    let mut result = redacted(redactor, tool, conditions, result)?;
    let truncation = if is_cut { cut_to_limits(&mut result) } else { None };
    if is_cut {
        fits_the_size(tool, &result, bytes_max)?;
    }
    obeys_the_size(tool, &result, conditions)?;
    Ok((result, truncation))
}

/// A result that a person says came of a call: shown and kept as if the tool had given it, but for what is masked for single
/// callers, who are asked about when they read it. That it fits the schema was seen before.
pub(crate) async fn profile_of_person(
    kernel: &Kernel,
    tool: &ToolVersion,
    tenant: &TenantId,
    result: Value,
) -> Result<(Value, Option<Truncation>), Refusal> {
    let (redactor, known) = redactor_of_tool(kernel, tool, tenant).await;
    known.map_err(unredactable)?;
    let bytes_max = kernel.parts.envelope.result_bytes_of(&tool.manifest)?;
    profiled(&*redactor, tool, &Conditions::default(), result, bytes_max)
}

/// A result that passed before: what this caller may see of it now is asked again (IDEM-016), its shape is not.
fn verify_again(
    redactor: &dyn Redactor,
    tool: Arc<ToolVersion>,
    coercions: Vec<CoercionNote>,
    kept: KeptResult,
    conditions: &Conditions,
) -> Result<Verified, Refusal> {
    let KeptResult { result, truncation, usage, started_at, completed_at, duration_ms } = kept;
    let result = redacted(redactor, &tool, conditions, result)?;
    obeys_the_size(&tool, &result, conditions)?;
    let ran = Some(Ran { started_at, completed_at, duration_ms });
    Ok(Verified { tool, coercions, result, usage, truncation, ran, to_keep: None })
}

/// VALID-006: the bad output is not returned, and the values in it are not told.
fn fits_the_schema(tool: &ToolVersion, result: &Value) -> Result<(), Refusal> {
    let Err(violations) = tool.result_schema()?.check(result) else { return Ok(()) };
    let first = violations.first().map_or("", |violation| violation.path.as_str());
    // What is expected and of what kind is there, never the value: schemas of results do not quote.
    let wrong: String =
        violations.first().map_or("", |violation| violation.message.as_str()).chars().take(WRONG_CHARS_MAX).collect();
    let place = if first.is_empty() { String::new() } else { format!("at `{first}`: ") };
    tracing::warn!(tool = %tool.id, version = %tool.version, path = first, violations = violations.len(), "{}", EventName::ToolOutputSchemaViolation);
    Err(Refusal::new(
        ErrorCode::E3303,
        format!("`{}` {} answered with something its manifest does not allow: {place}{wrong}", tool.id, tool.version),
    )
    .hint("tell the tool's author; the call itself was fine")
    .details(serde_json::json!({ "paths": violations.iter().map(|v| &v.path).take(10).collect::<Vec<_>>() })))
}

/// What a policy demands of what is shown (`result_bytes`), counted after everything was hidden that its caller may not see.
pub(super) fn obeys_the_size(tool: &ToolVersion, result: &Value, conditions: &Conditions) -> Result<(), Refusal> {
    conditions.result_bytes.map_or(Ok(()), |bytes| fits_the_size(tool, result, bytes))
}

fn fits_the_size(tool: &ToolVersion, result: &Value, bytes_max: u64) -> Result<(), Refusal> {
    let mut counter = ByteCounter { left: bytes_max };
    let fits = serde_json::to_writer(&mut counter, result).is_ok();
    if fits {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::E3414,
        format!("the result of `{}` {} is larger than {bytes_max} bytes", tool.id, tool.version),
    )
    .details(serde_json::json!({ "result_bytes_max": bytes_max }))
    .hint("ask for less, for example a page or a shorter range"))
}

/// Counts bytes and fails past the limit, so that measuring a huge result costs no memory.
struct ByteCounter {
    left: u64,
}

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = u64::saturating_from(bytes.len());
        self.left = self.left.checked_sub(count).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn cut_to_limits(value: &mut Value) -> Option<Truncation> {
    let mut truncation = Truncation::default();
    cut(value, &mut String::new(), &mut truncation);
    (truncation != Truncation::default()).then_some(truncation)
}

/// Cuts `value`, which stands at `path` (a JSON pointer).
fn cut(value: &mut Value, path: &mut String, truncation: &mut Truncation) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(STRICT_STRING_CHARS_MAX) {
                note(truncation, path, STRICT_STRING_CHARS_MAX, text.chars().count());
                truncation.strings_cut += 1;
                text.truncate(end);
                text.push_str(CUT_MARK);
            }
        }
        Value::Array(items) => {
            if items.len() > STRICT_ARRAY_ITEMS_MAX {
                note(truncation, path, STRICT_ARRAY_ITEMS_MAX, items.len());
                truncation.arrays_cut += 1;
                items.truncate(STRICT_ARRAY_ITEMS_MAX);
            }
            for (index, item) in items.iter_mut().enumerate() {
                below(path, &index.to_string(), |path| cut(item, path, truncation));
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                below(path, &name.replace('~', "~0").replace('/', "~1"), |path| cut(member, path, truncation));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Goes one segment down and comes back.
fn below(path: &mut String, segment: &str, work: impl FnOnce(&mut String)) {
    let length = path.len();
    path.push('/');
    path.push_str(segment);
    work(path);
    path.truncate(length);
}

fn note(truncation: &mut Truncation, path: &str, kept: usize, of: usize) {
    if truncation.places.len() < CUT_PLACES_MAX {
        truncation.places.push(CutPlace { path: path.to_owned(), kept, of });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strict_output_is_cut_at_every_depth_and_says_so() {
        let long = "ä".repeat(STRICT_STRING_CHARS_MAX + 1);
        let mut value = json!({ "a": [{ "b/c": long }], "c": vec![0; STRICT_ARRAY_ITEMS_MAX + 1] });
        let truncation = cut_to_limits(&mut value).unwrap();
        assert_eq!((truncation.strings_cut, truncation.arrays_cut), (1, 1));
        let places: Vec<_> = truncation.places.iter().map(|place| (&*place.path, place.kept, place.of)).collect();
        assert_eq!(places, [("/a/0/b~1c", 10_000, 10_001), ("/c", 100, 101)]);
        let text = value["a"][0]["b/c"].as_str().unwrap();
        assert!(text.ends_with(CUT_MARK) && text.chars().count() == STRICT_STRING_CHARS_MAX + CUT_MARK.len());
        assert_eq!(value["c"].as_array().unwrap().len(), STRICT_ARRAY_ITEMS_MAX);
        assert_eq!(cut_to_limits(&mut json!({ "short": [1, 2] })), None);

        let mut many = Value::Array(vec![json!("x".repeat(STRICT_STRING_CHARS_MAX + 1)); 50]);
        let truncation = cut_to_limits(&mut many).unwrap();
        assert_eq!((truncation.strings_cut, truncation.places.len()), (50, CUT_PLACES_MAX), "the list is bounded");
    }
}
