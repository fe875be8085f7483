//! The two wire shapes: how a question is written and where in the answer the text stands.
//!
//! Answers are read leniently (servers add members freely) but an answer without text is none.

use serde_json::{Value, json};

use super::{ModelPrompt, ModelProvider};

/// What could be read from an answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) model: Option<String>,
    pub(super) tokens: Option<u64>,
}

/// The body of a request.
pub(super) fn request(provider: ModelProvider, model: &str, prompt: &ModelPrompt) -> Vec<u8> {
    let messages = json!([{ "role": "user", "content": prompt.text }]);
    let body = match provider {
        ModelProvider::Openai => json!({
            "model": model, "messages": messages, "max_tokens": prompt.tokens_max, "temperature": 0, "stream": false,
        }),
        ModelProvider::Ollama => json!({
            "model": model, "messages": messages, "stream": false,
            "options": { "temperature": 0, "num_predict": prompt.tokens_max },
        }),
    };
    body.to_string().into_bytes()
}

/// The answer in a body; `None` if it has none.
pub(super) fn answer(provider: ModelProvider, body: &[u8]) -> Option<Answer> {
    let body: Value = serde_json::from_slice(body).ok()?;
    let number = |pointer: &str| body.pointer(pointer).and_then(Value::as_u64);
    let (text, tokens) = match provider {
        ModelProvider::Openai => {
            let summed = || number("/usage/prompt_tokens")?.checked_add(number("/usage/completion_tokens")?);
            (body.pointer("/choices/0/message/content")?, number("/usage/total_tokens").or_else(summed))
        }
        ModelProvider::Ollama => {
            // A cached prompt is reported without its count.
            let counted = number("/eval_count").map(|n| n.saturating_add(number("/prompt_eval_count").unwrap_or(0)));
            (body.pointer("/message/content")?, counted)
        }
    };
    let model = body.get("model").and_then(Value::as_str).filter(|name| name.len() <= 200).map(str::to_owned);
    Some(Answer { text: text.as_str()?.to_owned(), model, tokens })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_shapes_are_read_and_anything_else_is_not() {
        let openai = json!({ "model": "m1", "choices": [{ "message": { "role": "assistant", "content": "hi" } }],
                             "usage": { "prompt_tokens": 3, "completion_tokens": 4 } });
        let read = answer(ModelProvider::Openai, openai.to_string().as_bytes());
        assert_eq!(read, Some(Answer { text: "hi".into(), model: Some("m1".into()), tokens: Some(7) }));
        let ollama = json!({ "message": { "content": "ho" }, "eval_count": 5 });
        let read = answer(ModelProvider::Ollama, ollama.to_string().as_bytes());
        assert_eq!(read, Some(Answer { text: "ho".into(), model: None, tokens: Some(5) }));
        for bad in ["", "<html>", "{}", "[]", r#"{"choices":[]}"#, r#"{"choices":[{"message":{"content":null}}]}"#] {
            assert_eq!(answer(ModelProvider::Openai, bad.as_bytes()), None, "{bad}");
            assert_eq!(answer(ModelProvider::Ollama, bad.as_bytes()), None, "{bad}");
        }
    }
}
