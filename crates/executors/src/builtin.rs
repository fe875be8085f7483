//! The tools that are part of Gantry and run inside it: calculator, dates, JSON, text, reasoning (LOCAL-001, REG-027).
//!
//! One file per tool, its manifest beside it as the author of any other tool would write it. The set is fixed: a manifest
//! may bind to one of these handlers by name, and to nothing else inside this process.
//!
//! Invariants
//! - BUILTIN-1: no handler blocks the runtime for long: large texts are worked on by the blocking pool, everything else
//!   is bounded to well under a millisecond.
//! - BUILTIN-2: the only way out is the model adapter.
//!
//! Not here: rights, deadlines, retries and records. The kernel has them for every kind of tool.

use std::sync::Arc;

use async_trait::async_trait;
use contract::error::{ErrorCode, Refusal};
use contract::ids::TenantId;
use contract::manifest::{Execution, Isolation, Manifest, ManifestError, ManifestFormat};
use fair_places::{ComputationPermits, NotComputed, PlaceUsage};
use ports::clock::Clock;
use ports::executor::{Executor, ExecutorError, ToolCall, ToolOutput};
use ports::tool_origin::ToolOrigin;
use ports::tool_version::ToolVersion;
use serde_json::Value;

use crate::model::{ModelClient, not_configured};

mod arguments;
mod calculator;
mod datetime;
mod deep_reasoning;
mod json_parser;
mod text_transform;

/// Bytes of text from which work goes to the blocking pool (BUILTIN-1).
const INLINE_BYTES_MAX: usize = 4 * 1024;

/// The built-in handlers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Handler {
    Calculator,
    Datetime,
    JsonParser,
    TextTransform,
    DeepReasoning,
}

/// Name, handler and manifest of each built-in.
const HANDLERS: [(&str, Handler, &str); 5] = [
    ("calculator", Handler::Calculator, include_str!("builtin/calculator.toml")),
    ("datetime", Handler::Datetime, include_str!("builtin/datetime.toml")),
    ("json_parser", Handler::JsonParser, include_str!("builtin/json_parser.toml")),
    ("text_transform", Handler::TextTransform, include_str!("builtin/text_transform.toml")),
    ("deep_reasoning", Handler::DeepReasoning, include_str!("builtin/deep_reasoning.toml")),
];

/// The manifests of the built-ins, for registration at start.
///
/// # Errors
/// A manifest that this build's own rules refuse; a test keeps that from happening.
pub fn manifests() -> Result<Vec<Manifest>, ManifestError> {
    HANDLERS.iter().map(|(_, _, text)| Manifest::read(text, ManifestFormat::Toml)).collect()
}

/// Runs tools of type `builtin`.
#[derive(Debug)]
pub struct BuiltinExecutor {
    clock: Arc<dyn Clock>,
    model: Option<ModelClient>,
    /// What policies hear of the handlers that may ask the model.
    model_origin: Option<Arc<ToolOrigin>>,
    /// Long texts and schemas are worked on here, and go on when their call has ended.
    computations: ComputationPermits,
}

impl BuiltinExecutor {
    /// With a clock for `datetime`, and the model for the operations that need one.
    pub fn new(clock: Arc<dyn Clock>, model: Option<ModelClient>) -> Self {
        let model_origin = model.as_ref().map(|model| Arc::new(model.origin()));
        Self { clock, model, model_origin, computations: ComputationPermits::default() }
    }
}

#[async_trait]
impl Executor for BuiltinExecutor {
    fn kind(&self) -> &'static str {
        "builtin"
    }

    fn admits(&self, _tenant: &TenantId, manifest: &Manifest) -> Result<(), ManifestError> {
        let Some(Execution::Builtin { handler }) = &manifest.execution else { return Ok(()) };
        if HANDLERS.iter().any(|(name, _, _)| name == handler) {
            return Ok(());
        }
        let known = contract::nearest::by_nearness(handler, HANDLERS.iter().map(|(name, _, _)| *name));
        let shown: String = handler.chars().take(64).collect();
        let said = format!("there is no built-in handler `{shown}`: bind the tool to one of {}", known.join(", "));
        Err(ManifestError::one("/execution/handler", said))
    }

    fn saves(&self, _manifest: &Manifest) -> bool {
        false
    }

    fn places(&self) -> Vec<(&'static str, PlaceUsage)> {
        vec![("builtin_computations", self.computations.usage())]
    }

    fn ready(&self, _tool: &ToolVersion, binding: &Execution, _demand: Isolation) -> Result<(), Refusal> {
        match handler(binding)? {
            Handler::DeepReasoning if self.model.is_none() => Err(not_configured("`deep_reasoning`")),
            _ => Ok(()),
        }
    }

    fn origin(&self, tool: &ToolVersion) -> Result<Option<Arc<ToolOrigin>>, Refusal> {
        let Some(binding) = &tool.manifest.execution else { return Ok(None) };
        Ok(match handler(binding)? {
            Handler::Calculator | Handler::Datetime => None,
            // By what they may do, not by what this call will: which of the two it is, is decided while it runs.
            Handler::JsonParser | Handler::TextTransform | Handler::DeepReasoning => self.model_origin.clone(),
        })
    }

    async fn execute(&self, call: ToolCall) -> Result<ToolOutput, ExecutorError> {
        let parameters = &call.parameters;
        let binding = call.tool.manifest.execution.as_ref().ok_or_else(unbound).map_err(ExecutorError::not_sent)?;
        let answered = ExecutorError::answered;
        match handler(binding).map_err(ExecutorError::not_sent)? {
            Handler::Calculator => calculator::run(parameters).map(ToolOutput::of).map_err(answered),
            Handler::Datetime => datetime::run(parameters, self.clock.now()).map(ToolOutput::of).map_err(answered),
            Handler::JsonParser => self.json_parser(&call).await,
            Handler::TextTransform => self.text_transform(&call).await,
            Handler::DeepReasoning => {
                deep_reasoning::run(parameters, self.model.as_ref(), self.clock.as_ref(), call.time_left).await
            }
        }
    }
}

impl BuiltinExecutor {
    async fn json_parser(&self, call: &ToolCall) -> Result<ToolOutput, ExecutorError> {
        match self.aside(call, json_parser::search).await? {
            json_parser::Search::Done(value) => Ok(ToolOutput::of(value)),
            json_parser::Search::AskModel { schema, otherwise } => {
                json_parser::by_model(&call.parameters, &schema, otherwise, self.model.as_ref(), call.time_left).await
            }
        }
    }

    async fn text_transform(&self, call: &ToolCall) -> Result<ToolOutput, ExecutorError> {
        let offline = self.aside(call, |parameters| {
            let (operation, text) = text_transform::read(parameters)?;
            Ok(text_transform::offline(&operation, text))
        });
        if let Some(value) = offline.await? {
            return Ok(ToolOutput::of(value));
        }
        let (operation, text) = text_transform::read(&call.parameters).map_err(ExecutorError::answered)?;
        text_transform::by_model(&operation, text, self.model.as_ref(), call.time_left).await
    }

    /// Runs pure work here if it is small, and beside the event loop if it is not.
    async fn aside<T, F>(&self, call: &ToolCall, work: F) -> Result<T, ExecutorError>
    where
        T: Send + 'static,
        F: FnOnce(&Value) -> Result<T, Refusal> + Send + 'static,
    {
        let parameters = &call.parameters;
        let text_bytes = parameters.get("text").and_then(Value::as_str).map_or(0, str::len);
        if text_bytes <= INLINE_BYTES_MAX && parameters.get("schema").is_none() {
            return work(parameters).map_err(ExecutorError::answered);
        }
        let parameters = Arc::clone(parameters);
        let done = self.computations.run(&call.tenant, call.agent.as_str(), move || work(&parameters)).await;
        match done {
            Ok(done) => done.map_err(ExecutorError::answered),
            Err(NotComputed::Full) => {
                let refusal = Refusal::new(ErrorCode::E3003, "too many calls of built-in tools wait for their turn");
                Err(ExecutorError::not_sent(refusal.hint("nothing was run; try again in a second")))
            }
            Err(NotComputed::Stopped) => {
                let refusal = Refusal::new(ErrorCode::E3404, "the tool stopped unexpectedly");
                Err(ExecutorError::may_have_run(refusal.hint("report this with the trace id")))
            }
        }
    }
}

/// The handler that a manifest binds to; an unknown one is refused with those there are, the nearest first.
fn handler(binding: &Execution) -> Result<Handler, Refusal> {
    let Execution::Builtin { handler } = binding else { return Err(unbound()) };
    HANDLERS.iter().find(|(name, _, _)| name == handler).map(|(_, found, _)| *found).ok_or_else(|| {
        let known = contract::nearest::by_nearness(handler, HANDLERS.iter().map(|(name, _, _)| *name));
        let shown: String = handler.chars().take(64).collect();
        Refusal::new(ErrorCode::E3108, format!("there is no built-in handler `{shown}`"))
            .hint(format!("bind the tool to one of {}", known.join(", ")))
            .retryable(false)
    })
}

fn unbound() -> Refusal {
    Refusal::new(ErrorCode::E3108, "the tool is not bound to a built-in handler").retryable(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_manifest_is_admitted_and_names_its_own_handler() {
        let manifests = manifests().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(manifests.len(), HANDLERS.len());
        for (manifest, (name, _, _)) in manifests.iter().zip(HANDLERS) {
            assert_eq!(manifest.tool_id, name);
            assert_eq!(manifest.version.major(), 1, "{name}");
            assert_eq!(manifest.aliases, [format!("tool-{}", name.replace('_', "-"))]);
            assert_eq!(manifest.execution, Some(Execution::Builtin { handler: name.to_owned() }));
            assert!(!manifest.examples.is_empty() && !manifest.errors.is_empty() && !manifest.tags.is_empty());
        }
    }

    #[test]
    fn an_unknown_handler_is_refused_with_the_nearest_first() {
        let refusal = handler(&Execution::Builtin { handler: "calculater".into() }).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::E3108);
        assert!(refusal.resolution().starts_with("bind the tool to one of calculator, "), "{}", refusal.resolution());
    }
}
