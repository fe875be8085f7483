//! Phase 5, verify: what came back must be what the manifest promised, in shape and size.

use std::sync::Arc;

use contract::envelope::Truncation;
use contract::error::{ErrorCode, Refusal};
use contract::manifest::OutputPolicy;
use contract::schema::CoercionNote;
use serde_json::Value;

use super::execute::Executed;
use crate::ports::executor::Usage;
use crate::registry::ToolVersion;

/// Largest result, as JSON (VALID-013).
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;
/// Under the strict policy, longer strings are cut.
const STRICT_STRING_CHARS_MAX: usize = 10_000;
/// Under the strict policy, longer arrays are cut.
const STRICT_ARRAY_ITEMS_MAX: usize = 100;
/// What a cut string ends in.
const CUT_MARK: &str = "...[truncated]";

/// A call whose result may be returned.
#[derive(Debug)]
pub struct Verified {
    pub(super) tool: Arc<ToolVersion>,
    pub(super) coercions: Vec<CoercionNote>,
    pub(super) result: Value,
    pub(super) usage: Usage,
    pub(super) truncation: Option<Truncation>,
}

/// Runs the phase.
pub fn verify(executed: Executed) -> Result<Verified, Refusal> {
    let Executed { tool, coercions, output, conditions } = executed;
    let mut result = output.value;
    fits_the_schema(&tool, &result)?;
    let truncation = match tool.manifest.output_policy.unwrap_or_default() {
        OutputPolicy::Raw | OutputPolicy::Standard => None,
        OutputPolicy::Strict => cut_to_limits(&mut result),
    };
    conditions.redact(&mut result);
    fits_the_size(&tool, &result, conditions.result_bytes)?;
    Ok(Verified { tool, coercions, result, usage: output.usage, truncation })
}

/// VALID-006: the bad output is not returned, and the values in it are not told.
fn fits_the_schema(tool: &ToolVersion, result: &Value) -> Result<(), Refusal> {
    let Err(violations) = tool.result_schema()?.check(result) else { return Ok(()) };
    let first = violations.first().map_or("", |violation| violation.path.as_str());
    tracing::warn!(tool = %tool.id, version = %tool.version, path = first, violations = violations.len(), "TOOL_OUTPUT_SCHEMA_VIOLATION");
    Err(Refusal::new(
        ErrorCode::E3303,
        format!("`{}` {} answered with something its manifest does not allow", tool.id, tool.version),
    )
    .hint("tell the tool's author; the call itself was fine")
    .details(serde_json::json!({ "paths": violations.iter().map(|v| &v.path).take(10).collect::<Vec<_>>() })))
}

fn fits_the_size(tool: &ToolVersion, result: &Value, lowered: Option<u64>) -> Result<(), Refusal> {
    let lowered = lowered.map_or(OUTPUT_BYTES_MAX, |bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
    let bytes_max = OUTPUT_BYTES_MAX.min(lowered);
    let mut counter = ByteCounter { left: bytes_max };
    let fits = serde_json::to_writer(&mut counter, result).is_ok();
    if fits {
        return Ok(());
    }
    Err(Refusal::new(
        ErrorCode::E3407,
        format!("the result of `{}` {} is larger than {bytes_max} bytes", tool.id, tool.version),
    )
    .hint("ask for less, for example a page or a shorter range"))
}

/// Counts bytes and fails past the limit, so that measuring a huge result costs no memory.
struct ByteCounter {
    left: usize,
}

impl std::io::Write for ByteCounter {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.left = self.left.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::FileTooLarge)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn cut_to_limits(value: &mut Value) -> Option<Truncation> {
    let mut truncation = Truncation::default();
    cut(value, &mut truncation);
    (truncation != Truncation::default()).then_some(truncation)
}

fn cut(value: &mut Value, truncation: &mut Truncation) {
    match value {
        Value::String(text) => {
            if let Some((end, _)) = text.char_indices().nth(STRICT_STRING_CHARS_MAX) {
                text.truncate(end);
                text.push_str(CUT_MARK);
                truncation.strings_cut += 1;
            }
        }
        Value::Array(items) => {
            if items.len() > STRICT_ARRAY_ITEMS_MAX {
                items.truncate(STRICT_ARRAY_ITEMS_MAX);
                truncation.arrays_cut += 1;
            }
            items.iter_mut().for_each(|item| cut(item, truncation));
        }
        Value::Object(members) => members.values_mut().for_each(|member| cut(member, truncation)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strict_output_is_cut_at_every_depth_and_says_so() {
        let long = "ä".repeat(STRICT_STRING_CHARS_MAX + 1);
        let mut value = json!({ "a": [{ "b": long }], "c": vec![0; STRICT_ARRAY_ITEMS_MAX + 1] });
        let truncation = cut_to_limits(&mut value).unwrap();
        assert_eq!(truncation, Truncation { strings_cut: 1, arrays_cut: 1 });
        let text = value["a"][0]["b"].as_str().unwrap();
        assert!(text.ends_with(CUT_MARK) && text.chars().count() == STRICT_STRING_CHARS_MAX + CUT_MARK.len());
        assert_eq!(value["c"].as_array().unwrap().len(), STRICT_ARRAY_ITEMS_MAX);
        assert_eq!(cut_to_limits(&mut json!({ "short": [1, 2] })), None);
    }
}
