//! The topic, read by a consumer that has nothing to do with the sink, and held against what must be in it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// Makes the topic.
pub(super) fn create(reader: &Path, broker: &str, topic: &str, partitions: &str) -> Result<()> {
    let status = Command::new(reader).args(["create", broker, topic, partitions]).status();
    ensure!(status.context("cannot run the consumer")?.success(), "the topic was not made");
    Ok(())
}

/// What was found in the topic.
#[derive(Debug, Default)]
pub(super) struct Seen {
    messages: u64,
    sequences: BTreeSet<u64>,
    tenants: BTreeMap<String, u64>,
    /// Not CloudEvents, or under another key than their tenant's.
    invalid: u64,
    /// Came after a later one of the same tenant, when repetitions are left out.
    overtaken: u64,
    partitions: BTreeSet<i64>,
    records: u64,
    calls: u64,
    kills: u64,
    outages: Duration,
}

/// Reads the topic to its end.
pub(super) fn read(reader: &Path, broker: &str, topic: &str) -> Result<Seen> {
    let output = Command::new(reader).args(["read", broker, topic]).stderr(Stdio::inherit()).output();
    let output = output.context("cannot run the consumer")?;
    ensure!(output.status.success(), "the topic could not be read");
    let mut seen = Seen::default();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        seen.take(&serde_json::from_str(line).context("the consumer wrote no JSON")?);
    }
    Ok(seen)
}

impl Seen {
    /// Messages come in the order of their partition.
    fn take(&mut self, message: &Value) {
        self.messages += 1;
        self.partitions.extend(message.get("partition").and_then(Value::as_i64));
        let text = |name: &str| message.get("value").and_then(|event| event.get(name)).and_then(Value::as_str);
        let is_event = text("specversion") == Some("1.0")
            && text("id").is_some_and(|id| !id.is_empty())
            && text("source").is_some()
            && text("time").is_some()
            && text("type").is_some_and(|kind| kind.starts_with("ai.agent.tool."))
            && message.pointer("/value/data").is_some_and(Value::is_object);
        let tenant = message.get("key").and_then(Value::as_str).unwrap_or_default().to_owned();
        let of_tenant = text("partitionkey").unwrap_or("-") == tenant;
        let Some(sequence) = text("sequence").and_then(|text| text.parse::<u64>().ok()) else {
            self.invalid += 1;
            return;
        };
        if !is_event || !of_tenant {
            self.invalid += 1;
        }
        if self.sequences.insert(sequence) {
            let newest = self.tenants.entry(tenant).or_insert(sequence);
            if *newest > sequence {
                self.overtaken += 1;
            }
            *newest = sequence.max(*newest);
        }
    }

    /// Notes what must be in it, and how it came about.
    pub(super) fn expect(&mut self, records: u64, calls: u64, kills: u64, outages: Duration) {
        (self.records, self.calls, self.kills, self.outages) = (records, calls, kills, outages);
    }

    fn missing(&self) -> u64 {
        (0..self.records).filter(|sequence| !self.sequences.contains(sequence)).count() as u64
    }

    pub(super) fn is_good(&self) -> bool {
        self.missing() == 0 && self.invalid == 0 && self.overtaken == 0
    }

    /// For people.
    pub(super) fn table(&self) -> String {
        let repeated = self.messages.saturating_sub(self.invalid + self.sequences.len() as u64);
        let tenants: Vec<&str> = self.tenants.keys().map(String::as_str).collect();
        let rows = [
            ("calls answered", self.calls.to_string()),
            ("broker killed", format!("{} times, away {:.1} s in all", self.kills, self.outages.as_secs_f64())),
            ("gateway restarted", "once, while the broker was away".to_owned()),
            ("audit records", self.records.to_string()),
            ("messages in the topic", format!("{} in {} partitions", self.messages, self.partitions.len())),
            ("tenants", tenants.join(", ")),
            ("records missing", self.missing().to_string()),
            ("repeated", repeated.to_string()),
            ("not valid CloudEvents", self.invalid.to_string()),
            ("out of their tenant's order", self.overtaken.to_string()),
        ];
        let lines: Vec<String> = rows.iter().map(|(what, value)| format!("{what:<28} {value}")).collect();
        format!("{}\n{}", lines.join("\n"), if self.is_good() { "good" } else { "NOT good" })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn message(tenant: &str, sequence: u64) -> Value {
        json!({ "partition": 0, "offset": 0, "key": tenant, "value": { "specversion": "1.0", "id": "x", "source": "s",
            "time": "t", "type": "ai.agent.tool.succeeded", "partitionkey": tenant, "sequence": sequence.to_string(),
            "data": {} } })
    }

    fn seen(messages: &[Value], records: u64) -> Seen {
        let mut seen = Seen::default();
        messages.iter().for_each(|message| seen.take(message));
        seen.expect(records, 1, 1, Duration::ZERO);
        seen
    }

    #[test]
    fn every_record_must_be_there_in_its_tenants_order_and_may_be_there_twice() {
        let (a, b) = (|n| message("a", n), |n| message("b", n));
        assert!(seen(&[a(0), b(1), a(2), b(1), a(0)], 3).is_good());
        assert!(seen(&[b(1), a(0), a(2)], 3).is_good(), "tenants may overtake each other");
        assert!(!seen(&[a(0), b(1)], 3).is_good(), "one is missing");
        assert!(!seen(&[a(2), a(0), b(1)], 3).is_good(), "out of order");
        let mut other = a(0);
        other["key"] = json!("b");
        assert!(!seen(&[other], 1).is_good(), "under another's key");
        let mut none = a(0);
        none["value"]["type"] = json!("something");
        assert!(!seen(&[none], 1).is_good());
        assert!(!seen(&[json!({ "key": "a", "value": null })], 0).is_good());
    }
}
