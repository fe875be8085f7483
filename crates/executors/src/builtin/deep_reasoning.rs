//! `deep_reasoning`: a hard problem handed to the model for reasoning (LOCAL-008, LOCAL-009).
//!
//! Deterministic as far as a model can be (temperature 0), at most 8,000 tokens. It is a remote call in the coat of a
//! local tool, so its manifest says `long_running` and the price is configuration.
//!
//! Not here: the choice of the model (`[model] reasoning_model`).

use std::time::Duration;

use base::SaturatingFrom as _;
use ports::clock::Clock;
use ports::executor::{ExecutorError, ToolOutput};
use serde_json::{Value, json};

use super::arguments::ToolArguments;
use crate::model::{ModelClient, ModelPrompt, not_configured};

/// Tokens of the answer at most (LOCAL-008).
const TOKENS_MAX: u32 = 8000;

/// Asks the model.
pub(super) async fn run(
    parameters: &Value,
    model: Option<&ModelClient>,
    clock: &dyn Clock,
    time_left: Duration,
) -> Result<ToolOutput, ExecutorError> {
    let arguments = ToolArguments::of(parameters);
    let problem = arguments.required_text("problem").map_err(ExecutorError::answered)?;
    let context = arguments.text("context").map_err(ExecutorError::answered)?;
    let model = model.ok_or_else(|| ExecutorError::not_sent(not_configured("`deep_reasoning`")))?;
    let prompt = ModelPrompt { text: prompt(problem, context), tokens_max: TOKENS_MAX, reasoning: true };
    let started = clock.monotonic();
    let answer = model.complete(&prompt, time_left).await?;
    let duration = clock.monotonic().saturating_sub(started);
    let value = json!({
        "reasoning": answer.text,
        "model": answer.model,
        "tokensUsed": answer.tokens.unwrap_or(0),
        "durationMs": u64::saturating_from(duration.as_millis()),
    });
    Ok(ToolOutput { value, usage: answer.usage() })
}

/// Role, context if there is one, problem, and what the answer should look like.
fn prompt(problem: &str, context: Option<&str>) -> String {
    let context = context.map_or_else(String::new, |context| format!("CONTEXT:\n{context}\n\n"));
    format!(
        "You are a specialist in careful reasoning. Work through the following problem step by step, checking each \
         step before you go on.\n\n{context}PROBLEM:\n{problem}\n\nWrite down your reasoning first. Then state the \
         final answer clearly on a line of its own that begins with \"Answer:\"."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prompt_has_a_context_block_only_if_there_is_context() {
        let bare = prompt("2+2?", None);
        assert!(bare.contains("step by step") && bare.contains("PROBLEM:\n2+2?") && !bare.contains("CONTEXT:"));
        assert!(prompt("2+2?", Some("integers")).contains("CONTEXT:\nintegers\n\nPROBLEM:"));
    }
}
