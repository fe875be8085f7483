//! A record as a CloudEvent 1.0, structured. (AUD-003, AUD-004, X-26)
//!
//! Types are `ai.agent.tool.<event>`: for calls the event says how they stand (`invoked`, `succeeded`, `failed`, `timeout`,
//! `denied`, `cancelled`, `approval_required`, …), for everything else it is the record's action. Several records belong to
//! one call, so the event's `id` is the record's own and the call's is the extension `invocationid`.
//!
//! Extensions are those of the CloudEvents documents where they exist: `partitionkey` (the tenant) and `sequence` (the
//! number in the log, as text). Their names have lower-case letters and digits only, as the specification demands.
//!
//! Not here: how events are sent (`sinks`), what a record may contain (`line`).

use contract::error::{ErrorCode, ErrorKind};
use serde_json::{Map, Value, json};

/// The `source` of all events.
pub const SOURCE: &str = "tool-execution-layer";
/// How all types begin.
pub const TYPE_PREFIX: &str = "ai.agent.tool.";

/// Why a line is no event.
#[derive(Debug, thiserror::Error)]
pub enum CloudEventError {
    #[error("the line is not a JSON object")]
    NotAnObject,
    #[error("the record has no `{0}`")]
    Missing(&'static str),
}

/// The record of a line as a structured CloudEvent.
pub fn cloud_event(line: &str) -> Result<Value, CloudEventError> {
    let Ok(Value::Object(mut record)) = serde_json::from_str::<Value>(line) else {
        return Err(CloudEventError::NotAnObject);
    };
    let kind = event_type(&record).ok_or(CloudEventError::Missing("action"))?;
    let id = text(&record, "id").ok_or(CloudEventError::Missing("id"))?;
    let time = text(&record, "at").ok_or(CloudEventError::Missing("at"))?;
    let sequence = record.get("seq").and_then(Value::as_u64).ok_or(CloudEventError::Missing("seq"))?;
    let mut event = Map::new();
    let mut set = |name: &str, value: Option<String>| {
        // CloudEvents: an attribute that is there is not empty.
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            event.insert(name.to_owned(), Value::String(value));
        }
    };
    set("specversion", Some("1.0".to_owned()));
    set("id", Some(id));
    set("source", Some(SOURCE.to_owned()));
    set("type", Some(kind));
    set("time", Some(time));
    set("datacontenttype", Some("application/json".to_owned()));
    set("subject", text(&record, "tool_id"));
    set("partitionkey", text(&record, "tenant"));
    set("sequence", Some(sequence.to_string()));
    set("invocationid", text(&record, "invocation_id"));
    set("traceid", text(&record, "trace_id"));
    // Nobody who gets the event has the key of the code.
    for name in ["id", "at", "mac"] {
        record.remove(name);
    }
    event.insert("data".to_owned(), Value::Object(data(record)));
    Ok(Value::Object(event))
}

/// The canonical type of a record.
fn event_type(record: &Map<String, Value>) -> Option<String> {
    let action = record.get("action")?.as_str()?;
    let event = match action {
        "invocation_started" => "invoked",
        "invocation_accepted" => "accepted",
        "invocation_finished" => finished(record),
        "invocation_resolved" => "resolved",
        "invocation_cancel_asked" => "cancel_asked",
        "tool_registered" => "registered",
        "tool_lifecycle_changed" => "lifecycle_changed",
        "tool_pin_changed" => "pin_changed",
        other => other,
    };
    Some(format!("{TYPE_PREFIX}{event}"))
}

fn finished(record: &Map<String, Value>) -> &'static str {
    let code = record.get("code").and_then(|code| serde_json::from_value::<ErrorCode>(code.clone()).ok());
    if code.is_some_and(|code| code.row().kind == ErrorKind::ApprovalRequired) {
        return "approval_required";
    }
    match record.get("status").and_then(Value::as_str) {
        Some("success") => "succeeded",
        Some("timeout") => "timeout",
        Some("cancelled") => "cancelled",
        Some("permission_denied") => "denied",
        Some("pending_approval") => "approval_required",
        Some("indeterminate") => "indeterminate",
        Some("pending") => "accepted",
        _ => "failed",
    }
}

/// The record's members under the names AUD-003 gives them; the others keep theirs.
fn data(mut record: Map<String, Value>) -> Map<String, Value> {
    for (ours, theirs) in [("subject", "agent_id"), ("tenant", "tenant_id")] {
        if let Some(value) = record.remove(ours) {
            record.insert(theirs.to_owned(), value);
        }
    }
    let mut result = Map::new();
    for (ours, theirs) in [("status", "status"), ("result_digest", "digest"), ("result_summary", "summary")] {
        result.extend(record.remove(ours).map(|value| (theirs.to_owned(), value)));
    }
    if !result.is_empty() {
        record.insert("result".to_owned(), Value::Object(result));
    }
    if let Some(code) = record.remove("code") {
        record.insert("error".to_owned(), json!({ "code": code }));
    }
    record
}

fn text(record: &Map<String, Value>, name: &str) -> Option<String> {
    record.get(name)?.as_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(more: &Value) -> String {
        let mut line = json!({
            "seq": 7, "id": "ab-7", "at": "2027-01-15T08:00:00.000Z", "action": "invocation_finished",
            "trace_id": "07".repeat(16), "invocation_id": "0198", "tenant": "acme", "subject": "did:example:bot",
            "tool_id": "calculator", "tool_version": "1.0.0", "duration_ms": 3,
        });
        line.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        line.to_string()
    }

    #[test]
    fn an_event_has_the_attributes_of_the_specification_and_the_data_of_the_requirement() {
        let event = cloud_event(&line(&json!({
            "status": "error", "code": "E3401", "result_digest": "d", "result_summary": { "type": "null" },
        })))
        .unwrap();
        assert_eq!(
            event,
            json!({
                "specversion": "1.0", "id": "ab-7", "source": "tool-execution-layer", "type": "ai.agent.tool.failed",
                "time": "2027-01-15T08:00:00.000Z", "datacontenttype": "application/json", "subject": "calculator",
                "partitionkey": "acme", "sequence": "7", "invocationid": "0198", "traceid": "07".repeat(16),
                "data": {
                    "seq": 7, "action": "invocation_finished", "trace_id": "07".repeat(16), "invocation_id": "0198",
                    "agent_id": "did:example:bot", "tenant_id": "acme", "tool_id": "calculator", "tool_version": "1.0.0",
                    "duration_ms": 3, "result": { "status": "error", "digest": "d", "summary": { "type": "null" } }, "error": { "code": "E3401" },
                },
            })
        );
        let names = event.as_object().unwrap().keys();
        assert!(
            names.into_iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit()))
        );
    }

    #[test]
    fn every_end_of_a_call_has_its_canonical_type() {
        let cases = [
            (json!({ "action": "invocation_started" }), "invoked"),
            (json!({ "status": "success" }), "succeeded"),
            (json!({ "status": "error" }), "failed"),
            (json!({ "status": "timeout", "code": "E3402" }), "timeout"),
            (json!({ "status": "cancelled" }), "cancelled"),
            (json!({ "status": "permission_denied", "code": "E3201" }), "denied"),
            (json!({ "status": "permission_denied", "code": "E3208" }), "approval_required"),
            (json!({ "status": "indeterminate" }), "indeterminate"),
            (json!({ "action": "token_minted" }), "token_minted"),
            (json!({ "action": "tool_registered" }), "registered"),
        ];
        for (more, event) in cases {
            assert_eq!(cloud_event(&line(&more)).unwrap()["type"], format!("ai.agent.tool.{event}"));
        }
    }

    #[test]
    fn what_is_no_record_is_no_event() {
        for bad in ["", "[]", "7", "{", r#"{"seq":1,"id":"x","at":"y"}"#, r#"{"seq":1,"at":"y","action":"x"}"#] {
            assert!(cloud_event(bad).is_err(), "{bad}");
        }
    }
}
