//! A record as sinks get it: its line, the CloudEvent it stands for, and the little a sink must know to send it.
//!
//! The CloudEvent is made when a sink asks for it: one that keeps lines never does.

use std::borrow::Cow;
use std::sync::OnceLock;

use jiff::Timestamp;
use ports::clock::UnixMillis;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::cloud_event::cloud_event;
use crate::reader::LogEntry;

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
pub struct SinkEvent {
    /// Its index in the log.
    pub seq: u64,
    /// Whose it is; [`NO_TENANT`] if nobody's. Events of one tenant stay in order.
    pub tenant: String,
    /// When it happened.
    pub at: UnixMillis,
    /// The line as the log has it.
    pub line: String,
    json: OnceLock<String>,
}

/// What every record has.
#[derive(Deserialize)]
struct Head<'a> {
    #[serde(rename = "seq")]
    _seq: u64,
    #[serde(borrow, rename = "id")]
    _id: Cow<'a, str>,
    #[serde(borrow, rename = "action")]
    _action: Cow<'a, str>,
    #[serde(borrow)]
    at: Cow<'a, str>,
    #[serde(borrow)]
    tenant: Option<Cow<'a, str>>,
}

impl SinkEvent {
    /// The event of a line.
    ///
    /// # Errors
    /// When the line is no record.
    pub fn of(entry: &LogEntry) -> Result<Self, EventError> {
        let unreadable = || EventError { seq: entry.seq };
        let head: Head<'_> = serde_json::from_str(&entry.line).map_err(|_| unreadable())?;
        let at: Timestamp = head.at.parse().map_err(|_| unreadable())?;
        let tenant = head.tenant.as_deref().filter(|tenant| !tenant.is_empty());
        Ok(Self {
            seq: entry.seq,
            tenant: tenant.unwrap_or(NO_TENANT).to_owned(),
            at: UnixMillis(at.as_millisecond()),
            line: entry.line.clone(),
            json: OnceLock::new(),
        })
    }

    /// The whole CloudEvent 1.0 in JSON, on one line.
    pub fn json(&self) -> &str {
        // What `of` has looked at is a record, and every record is an event.
        self.json.get_or_init(|| cloud_event(&self.line).map(|event| event.to_string()).unwrap_or_default())
    }

    /// The attributes of the event in the order of their names, and its data in JSON: what binary modes send.
    pub fn parts(&self) -> (Vec<(String, String)>, String) {
        // A CloudEvent is an object.
        let members: Map<String, Value> = serde_json::from_str(self.json()).unwrap_or_default();
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(line: &str) -> LogEntry {
        LogEntry { seq: 4, line: line.to_owned() }
    }

    #[test]
    fn an_event_knows_whose_it_is_and_can_be_taken_apart() {
        let line = r#"{"seq":4,"id":"i-4","at":"2027-01-15T08:00:00.000Z","action":"token_minted","tenant":"acme","note":"a\nb"}"#;
        let event = SinkEvent::of(&entry(line)).unwrap();
        assert_eq!((event.tenant.as_str(), event.at), ("acme", UnixMillis(1_800_000_000_000)));
        assert!(!event.json().contains('\n') && event.json().contains(r#""partitionkey":"acme""#));
        let (attributes, data) = event.parts();
        assert!(attributes.contains(&("id".to_owned(), "i-4".to_owned())));
        assert!(attributes.iter().all(|(name, _)| name != "data"));
        assert_eq!(serde_json::from_str::<Value>(&data).unwrap()["note"], "a\nb");
        let nobodys = line.replace(r#""tenant":"acme","#, "");
        assert_eq!(SinkEvent::of(&entry(&nobodys)).unwrap().tenant, NO_TENANT);
    }

    #[test]
    fn what_is_no_record_is_named_by_its_number() {
        for line in ["", "{}", "[]", r#"{"seq":4,"id":"i","action":"x","at":"yesterday"}"#] {
            assert_eq!(SinkEvent::of(&entry(line)).unwrap_err().seq, 4, "{line}");
        }
    }
}
