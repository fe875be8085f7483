//! Questions to a running log: the kernel's [`AuditLog`]. (AUD-014)
//!
//! A question goes backwards from the end and looks at [`SCAN_MAX`] records at most, so that it costs the same however
//! long the log is; whoever wants more goes on from where it ended.

use std::io;

use async_trait::async_trait;
use base::SaturatingFrom as _;
use ports::audit_log::{AuditCheckpoint, AuditLog, AuditPage, AuditProof, AuditQuery};
use ports::audit_sink::AuditError;
use serde_json::Value;

use crate::file_log::FileLog;
use crate::reader::LogReader;

/// Records that one question looks at.
const SCAN_MAX: u64 = 50_000;
/// Records read at once.
const AT_ONCE: u64 = 1_000;

#[async_trait]
impl AuditLog for FileLog {
    async fn search(&self, query: &AuditQuery) -> Result<AuditPage, AuditError> {
        let (reader, size, query) = (self.reader(), self.size(), query.clone());
        let found = tokio::task::spawn_blocking(move || search(&reader, size, &query)).await;
        found.map_err(|gone| AuditError(gone.into()))?.map_err(|error| AuditError(error.into()))
    }

    async fn checkpoint(&self) -> Result<AuditCheckpoint, AuditError> {
        let note = Self::checkpoint(self).await?;
        Ok(AuditCheckpoint { note, key: self.key().await?.to_string() })
    }

    async fn proof(&self, id: &str) -> Result<Option<AuditProof>, AuditError> {
        let Some(proof) = self.prove(id).await? else { return Ok(None) };
        let record: Option<Value> = serde_json::from_str(&proof.record).ok();
        let tenant = record.as_ref().and_then(|record| record.get("tenant")?.as_str()).map(str::to_owned);
        let document = serde_json::to_value(&proof).map_err(|error| AuditError(error.into()))?;
        Ok(Some(AuditProof { tenant, document }))
    }

    fn is_whole(&self) -> bool {
        Self::is_whole(self)
    }

    async fn rotate_key(&self) -> Result<Option<String>, AuditError> {
        Self::rotate_key(self).await.map(Some)
    }
}

fn search(reader: &LogReader, size: u64, query: &AuditQuery) -> io::Result<AuditPage> {
    let wanted = Wanted::new(query);
    let mut end = query.before.unwrap_or(size).min(size);
    let last = end.saturating_sub(SCAN_MAX);
    let mut records = Vec::new();
    while end > last {
        let start = end.saturating_sub(AT_ONCE).max(last);
        let most = usize::saturating_from(end - start);
        for entry in reader.read(start, most)?.into_iter().rev() {
            if let Some(record) = wanted.matching(&entry.line) {
                records.push(record);
                if records.len() >= query.limit {
                    return Ok(AuditPage { records, next: Some(entry.seq).filter(|seq| *seq > 0) });
                }
            }
        }
        end = start;
    }
    Ok(AuditPage { records, next: Some(end).filter(|end| *end > 0) })
}

/// A question made ready: most lines are passed over without being parsed.
struct Wanted<'a> {
    query: &'a AuditQuery,
    equal: Vec<(&'static str, String)>,
}

impl<'a> Wanted<'a> {
    fn new(query: &'a AuditQuery) -> Self {
        let tenant = query.tenant.as_ref().map(ToString::to_string);
        let wishes = [
            ("tenant", tenant),
            ("tool_id", query.tool.clone()),
            ("subject", query.subject.clone()),
            ("trace_id", query.trace_id.clone()),
            ("action", query.action.clone()),
        ];
        Self { query, equal: wishes.into_iter().filter_map(|(name, value)| Some((name, value?))).collect() }
    }

    fn matching(&self, line: &str) -> Option<Value> {
        // The value stands in the line as JSON writes it, or the line is none of those wanted.
        let has = |value: &String| serde_json::to_string(value).is_ok_and(|written| line.contains(&written));
        if !self.equal.iter().all(|(_, value)| has(value)) {
            return None;
        }
        let record: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| record.get(name).and_then(Value::as_str);
        let at = text("at").unwrap_or_default();
        let is_wanted = self.equal.iter().all(|(name, value)| text(name) == Some(value))
            && self.query.from.as_deref().is_none_or(|from| at >= from)
            && self.query.to.as_deref().is_none_or(|to| at < to);
        is_wanted.then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stage::LogPlace;

    async fn notes(log: &FileLog, query: AuditQuery) -> (Vec<String>, Option<u64>) {
        let page =
            log.search(&AuditQuery { limit: if query.limit == 0 { 500 } else { query.limit }, ..query }).await.unwrap();
        (page.records.iter().map(|record| record["note"].as_str().unwrap_or("-").to_owned()).collect(), page.next)
    }

    #[tokio::test]
    async fn questions_are_answered_newest_first_and_go_on_where_they_ended() {
        let place = LogPlace::new().with_records(&[7]).await;
        let log = place.open();
        let all = |limit, before| AuditQuery { limit, before, ..AuditQuery::default() };
        assert_eq!(notes(&log, all(3, None)).await, (vec!["n6".into(), "n5".into(), "n4".into()], Some(5)));
        assert_eq!(notes(&log, all(3, Some(5))).await.0, ["n3", "n2", "n1"]);
        assert_eq!(notes(&log, all(3, Some(2))).await, (vec!["n0".into(), "-".into()], None));
        assert_eq!(notes(&log, all(3, Some(0))).await, (vec![], None));
    }

    #[tokio::test]
    async fn everything_asked_for_must_hold() {
        let place = LogPlace::new().with_records(&[7]).await;
        let log = place.open();
        let of = |query: AuditQuery| async { notes(&log, query).await.0.len() };
        let acme = || Some("acme".parse().unwrap());
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(of(AuditQuery { tenant: acme(), ..AuditQuery::default() }).await, 7);
        assert_eq!(of(AuditQuery { tenant: Some("other".parse().unwrap()), ..AuditQuery::default() }).await, 0);
        let third = AuditQuery { tenant: acme(), subject: text("did:example:third"), ..AuditQuery::default() };
        assert_eq!(of(third.clone()).await, 2);
        assert_eq!(of(AuditQuery { tool: text("calculator"), ..third.clone() }).await, 2);
        assert_eq!(of(AuditQuery { tool: text("calc"), ..third.clone() }).await, 0);
        assert_eq!(of(AuditQuery { action: text("log_begun"), ..AuditQuery::default() }).await, 1);
        assert_eq!(of(AuditQuery { trace_id: text(&"07".repeat(16)), ..third.clone() }).await, 2);
        assert_eq!(of(AuditQuery { from: text("2027-01-15"), to: text("2027-01-16"), ..third.clone() }).await, 2);
        assert_eq!(of(AuditQuery { to: text("2027-01-15"), ..third }).await, 0);
    }

    #[tokio::test]
    async fn a_proof_says_whose_record_it_is() {
        let place = LogPlace::new().with_records(&[2]).await;
        let log = place.open();
        let id = log.search(&AuditQuery { limit: 1, ..AuditQuery::default() }).await.unwrap().records[0]["id"].clone();
        let proof = AuditLog::proof(&log, id.as_str().unwrap()).await.unwrap().unwrap();
        assert_eq!(proof.tenant.as_deref(), Some("acme"));
        let head = AuditLog::checkpoint(&log).await.unwrap();
        let key = head.key.parse().unwrap();
        assert!(crate::InclusionProof::parse(&proof.document.to_string()).unwrap().verify(&key).is_ok());
    }
}
