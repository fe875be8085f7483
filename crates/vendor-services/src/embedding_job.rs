//! `generate_embedding`: a service outside makes the vector and keeps it. (ASYNC-012)
//!
//! Sent: `{"type", "id", "content"}`. Expected: `{"vectorDimensions": n}`, or the vector itself as `{"vector": […]}`.

use contract::error::{ErrorCode, Refusal};
use ports::audit_sink::AuditAction;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::call_outs::{CallOutEnd, CallOutStop, CallOuts};
use crate::{InboundKind, typed};

/// What the embedding is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Of {
    Knowledge,
    Memory,
}

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Payload {
    r#type: Of,
    id: String,
    content: String,
}

impl Payload {
    pub(crate) fn read(payload: &Value) -> Result<Self, Refusal> {
        let read: Self = typed(payload, "`type` (`knowledge` or `memory`), `id` and `content`")?;
        if read.id.is_empty() || read.content.is_empty() {
            return Err(Refusal::new(ErrorCode::E3004, "`id` and `content` must not be empty"));
        }
        Ok(read)
    }
}

pub(crate) async fn run(calls: &CallOuts, payload: &Value) -> Result<CallOutEnd, CallOutStop> {
    Payload::read(payload).map_err(CallOutStop::finally)?;
    let url = calls.url(InboundKind::GenerateEmbedding).map_err(CallOutStop::finally)?;
    let answer = calls.ask(url, payload).await?;
    let named = answer.get("vectorDimensions").and_then(Value::as_u64);
    let counted = answer.get("vector").and_then(Value::as_array).and_then(|vector| u64::try_from(vector.len()).ok());
    let Some(dimensions) = named.or(counted).filter(|dimensions| *dimensions > 0) else {
        return Err(CallOutStop::finally(Refusal::new(ErrorCode::E3502, "the service has not said what it made")));
    };
    Ok(CallOutEnd {
        result: json!({ "vectorDimensions": dimensions }),
        audit: Some((AuditAction::EmbeddingGenerated, format!("vectorDimensions={dimensions}"))),
    })
}
