//! Alert notices: the words about an alert that subscribers read, wherever they are told (webhooks).
//!
//! Not here: when an alert is raised (`health::alerts`), how a notice reaches its subscribers (`EventAnnouncer`).

use ports::event_announcer::AlertNotice;
use serde_json::{Map, Value, json};

use crate::health::alerts::{Alert, AlertReading, Reclassify};

/// An alert as subscribers are told of it.
pub(crate) fn notice_of(alert: &Alert) -> AlertNotice {
    let Alert { rule, tenant, tool, raised_at, resolved_at, .. } = alert.clone();
    AlertNotice { rule, tenant, tool, raised_at, resolved_at, data: members_of(alert) }
}

/// What subscribers read about an alert.
fn members_of(alert: &Alert) -> Map<String, Value> {
    let number = |of: fn(&AlertReading) -> f64| alert.reading.as_ref().map(of);
    let suggestion = alert
        .suggestion
        .map(|Reclassify { from, to }| json!({ "recommendation": Reclassify::NAME, "from": from, "to": to }));
    let members = [
        ("alert", Value::from(alert.rule.as_str())),
        ("tool_id", json!(alert.tool.as_ref().map(|(tool, _)| tool))),
        ("tool_version", json!(alert.tool.as_ref().map(|(_, version)| version))),
        ("value", json!(number(|reading| reading.value))),
        ("threshold", json!(number(|reading| reading.threshold))),
        ("raised_at", Value::from(alert.raised_at.to_string())),
        ("resolved_at", json!(alert.resolved_at.map(|at| at.to_string()))),
        ("suggestion", suggestion.unwrap_or_default()),
    ];
    members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
