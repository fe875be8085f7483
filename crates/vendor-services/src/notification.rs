//! `send_notification`: to every device of somebody, through a service outside that knows the devices. (ASYNC-014)
//!
//! One address, three questions, told apart by `action`:
//! - `{"action": "tokens", "userId"}` is answered with `{"tokens": ["…"]}`; none means that there is nothing to do;
//! - `{"action": "send", "token", "title", "body", "data"}` with `{}`, or with `{"error": "INVALID_TOKEN"}` or another word;
//! - `{"action": "remove", "userId", "token"}` is sent for every token that was called invalid.
//!
//! A repeated job sends again: the service should know a notification by its `idempotencyKey`, which is in every `send`.

use contract::canonical;
use contract::error::{ErrorCode, Refusal};
use ports::audit_sink::AuditAction;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::call_outs::{CallOutEnd, CallOutStop, CallOuts};
use crate::{InboundKind, typed};

/// Devices of one person; further ones are left out.
const TOKENS_MAX: usize = 100;
/// The word for a device that is gone.
const INVALID: &str = "INVALID_TOKEN";

/// What is asked for.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(crate) struct Payload {
    user_id: String,
    title: String,
    body: String,
    #[serde(default)]
    data: Map<String, Value>,
}

impl Payload {
    pub(crate) fn read(payload: &Value) -> Result<Self, Refusal> {
        let read: Self = typed(payload, "`userId`, `title`, `body` and, if wanted, `data`")?;
        if read.user_id.is_empty() || read.title.is_empty() {
            return Err(Refusal::new(ErrorCode::E3004, "`userId` and `title` must not be empty"));
        }
        Ok(read)
    }
}

pub(crate) async fn run(calls: &CallOuts, payload: &Value) -> Result<CallOutEnd, CallOutStop> {
    let Payload { user_id, title, body, data } = Payload::read(payload).map_err(CallOutStop::finally)?;
    let url = calls.url(InboundKind::SendNotification).map_err(CallOutStop::finally)?;
    let known = calls.ask(url, &json!({ "action": "tokens", "userId": user_id })).await?;
    let Some(known) = known.get("tokens").and_then(Value::as_array) else {
        return Err(CallOutStop::finally(Refusal::new(
            ErrorCode::E3502,
            "the service has not said which devices there are",
        )));
    };
    let tokens: Vec<&str> = known.iter().filter_map(Value::as_str).take(TOKENS_MAX).collect();
    let key = canonical::digest(payload).to_string();
    let (mut sent, mut failed) = (0_usize, 0_usize);
    for token in &tokens {
        let send = json!({
            "action": "send", "token": token, "title": title, "body": body, "data": data, "idempotencyKey": key,
        });
        // One device that cannot be reached does not keep the others waiting.
        match calls.ask(url, &send).await {
            Ok(answer) => match answer.get("error").and_then(Value::as_str) {
                None => sent += 1,
                Some(INVALID) => {
                    // It stays known if this fails, and is called invalid again next time.
                    let _ = calls.ask(url, &json!({ "action": "remove", "userId": user_id, "token": token })).await;
                }
                Some(_) => failed += 1,
            },
            Err(_) => failed += 1,
        }
    }
    if failed > 0 && sent == 0 {
        return Err(CallOutStop::for_now(Refusal::new(ErrorCode::E3502, "no device could be reached")));
    }
    let count = tokens.len();
    Ok(CallOutEnd {
        result: json!({ "tokenCount": count, "successCount": sent }),
        audit: (count > 0).then(|| (AuditAction::NotificationSent, format!("tokenCount={count} successCount={sent}"))),
    })
}
