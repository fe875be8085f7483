//! What redaction costs, for benches: how much JSON goes through on one core. (A feature; never on in a release.)
//!
//! Time is that which the thread spent on a core, so others on the machine do not count. The documents are made here, the same
//! every time: calls and results of tools as agents make them, some with nothing to find and some with something in every record.
//! What the numbers are judged by belongs to whoever asks (`cargo xtask bench --only audit`, and the example of this crate).

use std::fs;

use serde_json::{Value, json};

use crate::{RedactionAdditions, RedactionEngine};

/// Where the system tells how long this thread was on a core, in nanoseconds, before anything else.
const ON_CPU: &str = "/proc/thread-self/schedstat";

/// Why something could not be measured.
pub type RedactionMeasureError = Box<dyn std::error::Error + Send + Sync>;

/// How fast one kind of document goes through, in megabytes of JSON text a second of one core.
#[derive(Debug, Clone)]
pub struct RedactionSpeed {
    pub what: &'static str,
    /// As a text: a line of a log.
    pub text_mb_per_second: f64,
    /// As a value, names and marks looked at: the parameters of a call.
    pub value_mb_per_second: f64,
    /// Places found in all of the text, so that nobody measures an engine that finds nothing.
    pub findings: usize,
}

/// Looks `rounds` times at `bytes` of each kind of document; the best round counts.
pub fn speeds(bytes: usize, rounds: u32) -> Result<Vec<RedactionSpeed>, RedactionMeasureError> {
    let engine = RedactionEngine::new(&RedactionAdditions::default())?;
    Ok(vec![
        speed(&engine, "ordinary", ordinary, bytes, rounds)?,
        speed(&engine, "with personal data", personal, bytes, rounds)?,
    ])
}

fn speed(
    engine: &RedactionEngine,
    what: &'static str,
    make: fn(usize) -> Value,
    bytes: usize,
    rounds: u32,
) -> Result<RedactionSpeed, RedactionMeasureError> {
    let (mut values, mut texts, mut made) = (Vec::new(), Vec::new(), 0);
    while made < bytes {
        let value = make(values.len());
        let text = value.to_string();
        made += text.len();
        values.push(value);
        texts.push(text);
    }
    let megabytes = f64::from(u32::try_from(made)?) / 1e6;
    let (mut text_best, mut value_best, mut findings) = (f64::MAX, f64::MAX, 0);
    for _ in 0..rounds {
        let before = on_cpu()?;
        findings = texts.iter().map(|text| engine.findings(text).len()).sum();
        text_best = text_best.min(on_cpu()? - before);
        let before = on_cpu()?;
        for value in &values {
            std::hint::black_box(engine.shown(value, None)?);
        }
        value_best = value_best.min(on_cpu()? - before);
    }
    Ok(RedactionSpeed {
        what,
        text_mb_per_second: megabytes / text_best,
        value_mb_per_second: megabytes / value_best,
        findings,
    })
}

/// Seconds that this thread has been on a core.
fn on_cpu() -> Result<f64, RedactionMeasureError> {
    let figures = fs::read_to_string(ON_CPU)?;
    let nanoseconds: u64 = figures.split_whitespace().next().ok_or("the system tells no time of threads")?.parse()?;
    Ok(std::time::Duration::from_nanos(nanoseconds).as_secs_f64())
}

/// A call and its result, with nothing in it that must not be seen.
fn ordinary(index: usize) -> Value {
    json!({
        "invocation_id": format!("018f3c2e-7b1a-7c3d-9e4f-{index:012x}"), "tool_id": "search_documents",
        "tool_version": "1.4.2", "started_at": "2026-03-14T09:26:53.589Z", "duration_ms": index % 977,
        "status": "success", "tenant": "acme",
        "parameters": {
            "query": "quarterly report on storage costs in the northern region", "limit": 20, "offset": index * 20,
            "filters": { "author": "finance", "tags": ["budget", "storage", "q3"], "updated_after": "2025-12-01" },
            "max_tokens": 4096,
        },
        "result": { "total": 1729 + index, "items": [
            { "id": index * 31, "title": "Storage: what it cost us, and why", "score": 0.8731,
              "path": "/reports/2025/q3/storage.md",
              "excerpt": "The cost of storage grew by 12 percent over the quarter, mostly because of the new archive, \
                          which keeps everything twice." },
            { "id": index * 37, "title": "Plans for the archive", "score": 0.5512, "path": "/plans/archive.md",
              "checksum": format!("{:032x}", index * 7919),
              "excerpt": "Moving cold data to cheaper disks, deleting what nobody reads, and asking before keeping \
                          things for ever." },
        ] },
    })
}

/// A case of a help desk: a person in every record, and a key now and then.
fn personal(index: usize) -> Value {
    let note =
        if index.is_multiple_of(10) { "the api_key=sk-live-9f8e7d6c5b4a39281706 leaked" } else { "call before noon" };
    json!({
        "case": index, "opened_at": "2026-03-14T09:26:53Z", "priority": "normal", "channel": "mail",
        "customer": { "name": "Ada", "mail": format!("ada{index}@example.org"), "phone": "+44 20 7946 0958" },
        "seen_from": "192.0.2.17", "note": note,
        "history": ["opened the case", "asked for the invoice of March", "was told that it had been sent",
            "wrote again and asked to be called, because the invoice did not arrive after all"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_measured_finds_what_is_there_and_nothing_else() {
        let speeds = speeds(100_000, 1).unwrap();
        assert_eq!(speeds[0].findings, 0);
        assert!(speeds[1].findings > 500, "{speeds:?}");
        assert!(speeds.iter().all(|speed| speed.text_mb_per_second > 0.0 && speed.value_mb_per_second > 0.0));
    }
}
