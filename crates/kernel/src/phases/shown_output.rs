//! What a caller is shown of the words of a tool, in a result and in a failure: the profile of the manifest (DESIGN §8.5), and
//! what a policy masks (VALID-012).
//!
//! An MCP server says a structured result twice: as `structuredContent`, which its schema describes, and as the same JSON in a
//! block of text, which nothing describes. Both are masked alike, and so is whatever else of the answer holds a masked value.
//!
//! Invariants
//! - SHOWN-1: what is hidden in one place of an answer is hidden in all of its places.
//! - SHOWN-2: a failure is masked like a result. What cannot be masked is left out.
//!
//! Not here: what is sensitive (`ports::redactor`), and cutting (`verify`).

use contract::canonical;
use contract::error::Refusal;
use contract::ids::ToolId;
use contract::manifest::{OutputPolicy, SideEffectPolicy};
use contract::version::VersionSpec;
use serde_json::Value;

use super::authorize::origin_of;
use super::conditions::Conditions;
use super::summary::unredactable;
use crate::access::Call;
use crate::discretion;
use crate::identity::Principal;
use crate::invoke::Kernel;
use crate::ports::redactor::{RedactError, Redactor};
use crate::registry::ToolVersion;

/// Where the schema of an imported tool describes what its server answers in structure.
const STRUCTURED_SCHEMA: &str = "/properties/structuredContent";
/// Blocks of an MCP answer.
const CONTENT: &str = "content";
/// Members of a failure's details that hold what a tool or its server said.
const TOOL_WORDS: [&str; 3] = [CONTENT, "tool_data", "upstream_data"];

/// Takes out of a result what its caller is not shown.
pub(super) fn redacted(
    redactor: &dyn Redactor,
    tool: &ToolVersion,
    conditions: &Conditions,
    result: Value,
) -> Result<Value, Refusal> {
    let output = ShownOutput::of(redactor, tool, conditions);
    Ok(output.masked(&result).map_err(|error| unredactable(&error))?.unwrap_or(result))
}

/// SHOWN-2: takes out of a failure what its caller is not shown of the tool's words.
pub(super) fn redacted_failure(
    redactor: &dyn Redactor,
    tool: &ToolVersion,
    conditions: &Conditions,
    mut refusal: Refusal,
) -> Refusal {
    let output = ShownOutput::of(redactor, tool, conditions);
    if output.policy == OutputPolicy::Strict {
        refusal.message = redactor.text(&refusal.message).into_owned();
        refusal.hint = refusal.hint.map(|hint| redactor.text(&hint).into_owned());
    }
    if let Some(details) = &mut refusal.details {
        output.mask_words(details);
    }
    refusal
}

/// What this reader may see, now, of what a call of a tool came to before: whatever activations and policies mask for it by
/// now is masked. The parameters of the call may be gone, so a policy that looks at them hears of none.
pub(crate) async fn masked_for(kernel: &Kernel, reader: &Principal, tool: &ToolId, said: Value) -> Value {
    let access = kernel.access().snapshot().clone();
    let mut conditions = Conditions::default();
    let hands = std::iter::once(reader.subject()).chain(reader.chain().iter().map(|link| &link.sub));
    for hand in hands {
        // Out of reach is out of calling; what was called before is still its own.
        if let Ok(Some(overrides)) = access.view(reader.tenant(), hand).reach(tool, || SideEffectPolicy::Pure) {
            conditions.add_overrides(overrides);
        }
    }
    let now = kernel.clock().now();
    let registry = kernel.registry().snapshot().clone();
    let found = registry.find(reader.tenant(), tool.as_str()).zip(VersionSpec::parse("").ok());
    if let Some(version) = found.and_then(|(found, newest)| found.resolve(&newest, now).ok()) {
        let arguments = Value::Object(serde_json::Map::new());
        let origin = origin_of(kernel, version).ok().flatten();
        let call = Call {
            caller: reader,
            tool: version,
            origin: origin.as_deref(),
            arguments_digest: canonical::digest(&arguments),
            arguments: &arguments,
            now,
        };
        if let Ok(decision) = kernel.access().decide(&access, call).await {
            decision.obligations.iter().for_each(|obligation| conditions.add(obligation));
        }
    }
    if !conditions.masks() {
        return said;
    }
    let own = kernel.parts.redactor.of_tenant(reader.tenant());
    let mut shown = said.clone();
    conditions.redact(own.as_deref().unwrap_or(&*kernel.parts.redactor), &mut shown);
    discretion::everywhere(&said, shown)
}

/// What decides about the words of one tool.
struct ShownOutput<'a> {
    redactor: &'a dyn Redactor,
    policy: OutputPolicy,
    schema: &'a Value,
    conditions: &'a Conditions,
}

impl<'a> ShownOutput<'a> {
    fn of(redactor: &'a dyn Redactor, tool: &'a ToolVersion, conditions: &'a Conditions) -> Self {
        let policy = tool.manifest.output_policy.unwrap_or_default();
        Self { redactor, policy, schema: &tool.manifest.result_schema, conditions }
    }

    /// What is shown in place of a value; nothing if it can be shown as it is.
    fn masked(&self, value: &Value) -> Result<Option<Value>, RedactError> {
        let mut shown = self.profiled(value, self.schema)?;
        if let Some(twins) = self.twins(shown.as_ref().unwrap_or(value))? {
            shown = Some(twins);
        }
        if self.conditions.masks() {
            self.conditions.redact(self.redactor, shown.get_or_insert_with(|| value.clone()));
        }
        // SHOWN-1.
        Ok(shown.map(|shown| discretion::everywhere(value, shown)))
    }

    fn profiled(&self, value: &Value, schema: &Value) -> Result<Option<Value>, RedactError> {
        match self.policy {
            OutputPolicy::Raw => Ok(None),
            OutputPolicy::Standard => self.redactor.fields(value, schema),
            OutputPolicy::Strict => self.redactor.value(value, Some(schema)).map(Some),
        }
    }

    /// The same with the JSON in its blocks of text masked as the structured result is; nothing if there is none to mask.
    fn twins(&self, value: &Value) -> Result<Option<Value>, RedactError> {
        let Some(schema) = self.schema.pointer(STRUCTURED_SCHEMA) else { return Ok(None) };
        let Some(blocks) = value.get(CONTENT).and_then(Value::as_array) else { return Ok(None) };
        let mut changed = None;
        for (index, block) in blocks.iter().enumerate() {
            let Some(Ok(inner)) = block.get("text").and_then(Value::as_str).map(serde_json::from_str::<Value>) else {
                continue;
            };
            if !inner.is_object() && !inner.is_array() {
                continue;
            }
            if let Some(shown) = self.profiled(&inner, schema)?.filter(|shown| *shown != inner) {
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

    /// Blocks are like those of a result; other words may have its members.
    fn masked_words(&self, name: &str, words: Value) -> Value {
        let (said, schema) = if name == CONTENT {
            (serde_json::json!({ CONTENT: words }), self.schema)
        } else {
            (words, self.schema.pointer(STRUCTURED_SCHEMA).unwrap_or(self.schema))
        };
        let shown = Self { schema, ..*self }.masked(&said).map(|shown| shown.unwrap_or(said));
        match shown {
            Ok(mut shown) if name == CONTENT => shown.get_mut(CONTENT).map(Value::take).unwrap_or_default(),
            Ok(shown) => shown,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the words of a failed tool are left out");
                Value::Null
            }
        }
    }
}
