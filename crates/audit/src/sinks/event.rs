//! A record as sinks get it: a CloudEvent, and the little a sink must know to send it.

use jiff::Timestamp;
use kernel::ports::clock::UnixMillis;
use serde_json::{Map, Value};

use super::source::Entry;

/// Stands for the tenant of records that belong to none, such as a refusal of somebody unknown. No tenant has this name.
pub const NO_TENANT: &str = "-";
/// The member of a CloudEvent that is no attribute.
const DATA: &str = "data";

/// Why a line of the log is no event.
#[derive(Debug, thiserror::Error)]
#[error("record {seq} of the audit log cannot be read; `gantry audit verify` says what is wrong with the log")]
pub struct EventError {
    pub seq: u64,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its index in the log.
    pub seq: u64,
    /// Whose it is; [`NO_TENANT`] if nobody's. Events of one tenant stay in order.
    pub tenant: String,
    /// When it happened.
    pub at: UnixMillis,
    /// The whole CloudEvent 1.0 in JSON, on one line.
    pub json: String,
}

impl Event {
    /// The event of a line.
    ///
    /// # Errors
    /// When the line is no record.
    pub fn of(entry: &Entry) -> Result<Self, EventError> {
        let unreadable = || EventError { seq: entry.seq };
        let line: Value = serde_json::from_str(&entry.line).map_err(|_| unreadable())?;
        let member = |name: &str| line.get(name).and_then(Value::as_str);
        let at: Timestamp = member("at").and_then(|at| at.parse().ok()).ok_or_else(unreadable)?;
        Ok(Self {
            seq: entry.seq,
            tenant: member("tenant").unwrap_or(NO_TENANT).to_owned(),
            at: UnixMillis(at.as_millisecond()),
            json: structured(&entry.line).ok_or_else(unreadable)?,
        })
    }

    /// The attributes of the event in the order of their names, and its data in JSON: what binary modes send.
    pub fn parts(&self) -> (Vec<(String, String)>, String) {
        // What `structured` wrote is an object.
        let members: Map<String, Value> = serde_json::from_str(&self.json).unwrap_or_default();
        let mut data = String::from("null");
        let mut attributes = Vec::with_capacity(members.len());
        for (name, value) in members {
            match value {
                value if name == DATA => data = value.to_string(),
                Value::String(text) => attributes.push((name, text)),
                Value::Null => {}
                other => attributes.push((name, other.to_string())),
            }
        }
        (attributes, data)
    }
}

fn structured(line: &str) -> Option<String> {
    let data: Value = serde_json::from_str(line).ok()?;
    let event = serde_json::json!({
        "specversion": "1.0", "type": "ai.agent.tool.x", "source": "tool-execution-layer", "id": data.get("seq")?.to_string(),
        "time": data.get("at")?, "datacontenttype": "application/json", "data": data,
    });
    Some(event.to_string())
}
