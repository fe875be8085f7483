//! Measures redaction on labelled text: precision and recall per kind. (issue 7)
//!
//! Run by `cargo xtask redaction-eval [--part all|fit|held-out] [--why] [FILE…]`, and with `--speed` by
//! `cargo run --release -p gantry-redaction --example redaction_eval -- --speed`.
//! Rows are sentences with the places that are personal data or secrets. A finding is a hit if it is of the same kind and
//! overlaps a labelled place by at least half of their union. Of rows that are look-alikes of secrets, any finding of a
//! secret is a false alarm. Rules were written while looking at every second row (`fit`); the others (`held-out`) judge them.
//!
//! Not here: the rules. They are in the crate, and this file knows nothing of them.
#![expect(clippy::print_stdout, reason = "a measurement is printed")]

use std::collections::BTreeMap;
use std::error::Error;

use redaction::{RedactionAdditions, RedactionEngine, RedactionKind};
use serde_json::{Value, json};

/// Where our own rows are.
const OWN: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/pii_dev.jsonl"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/secrets_dev.jsonl"),
];
/// Bytes that the speed is measured on, and how often.
const SPEED_BYTES: usize = 32 * 1024 * 1024;
const SPEED_ROUNDS: u32 = 5;

#[derive(Debug)]
struct Row {
    id: String,
    text: String,
    spans: Vec<Span>,
    label: Option<String>,
}

#[derive(Debug)]
struct Span {
    kind: String,
    start: usize,
    end: usize,
}

impl Row {
    fn of(line: &str) -> Result<Self, Box<dyn Error>> {
        let row: Value = serde_json::from_str(line)?;
        let text = |value: &Value, member: &str| value.get(member).and_then(Value::as_str).map(str::to_owned);
        let number = |value: &Value, member: &str| {
            value.get(member).and_then(Value::as_u64).and_then(|it| usize::try_from(it).ok())
        };
        let span = |span: &Value| {
            Some(Span { kind: text(span, "type")?, start: number(span, "start")?, end: number(span, "end")? })
        };
        let spans = row.get("spans").and_then(Value::as_array).into_iter().flatten();
        Ok(Self {
            id: text(&row, "id").unwrap_or_default(),
            text: text(&row, "text").ok_or("a row has no text")?,
            spans: spans.map(|it| span(it).ok_or("a span is incomplete")).collect::<Result<_, _>>()?,
            label: text(&row, "label"),
        })
    }
}

#[derive(Debug, Default, Clone, Copy)]
struct Score {
    hits: usize,
    missed: usize,
    false_alarms: usize,
}

impl Score {
    fn add(&mut self, other: Self) {
        self.hits += other.hits;
        self.missed += other.missed;
        self.false_alarms += other.false_alarms;
    }

    fn line(self) -> String {
        let Self { hits, missed, false_alarms } = self;
        let (precision, recall) = (ratio(hits, hits + false_alarms), ratio(hits, hits + missed));
        format!("precision {precision}  recall {recall}  ({hits} hits, {missed} missed, {false_alarms} false)")
    }
}

/// Three digits behind the point, without going through floats for counts.
fn ratio(part: usize, whole: usize) -> String {
    let thousandths = (part * 1000 + whole / 2).checked_div(whole).unwrap_or(1000);
    format!("{}.{:03}", thousandths / 1000, thousandths % 1000)
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut files, mut part, mut why) = (Vec::new(), "all".to_owned(), false);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--why" => why = true,
            "--speed" => return speed(),
            "--part" => part = arguments.next().ok_or("--part needs all, fit or held-out")?,
            option if option.starts_with("--") => return Err(format!("there is no option `{option}`").into()),
            _ => files.push(argument),
        }
    }
    if files.is_empty() {
        files = OWN.map(str::to_owned).into();
    }
    let engine = RedactionEngine::new(&RedactionAdditions::default())?;
    let mut personal: BTreeMap<&str, Score> = BTreeMap::new();
    let (mut secrets, mut alarms, mut look_alikes) = (Score::default(), 0, 0);
    for file in &files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("cannot read `{file}`: {error}"))?;
        for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            if (part == "fit" && index % 2 == 1) || (part == "held-out" && index % 2 == 0) {
                continue;
            }
            let row = Row::of(line).map_err(|error| format!("line {} of `{file}`: {error}", index + 1))?;
            let found = findings(&engine, &row.text);
            for kind in RedactionKind::ALL {
                let score = score(&row, &found, kind, why);
                match (kind, row.label.as_deref()) {
                    // Kinds that a file does not label are not scored on it.
                    (RedactionKind::Secret, Some("not_secret")) => {
                        look_alikes += 1;
                        alarms += usize::from(score.false_alarms > 0);
                    }
                    (RedactionKind::Secret, Some(_)) => secrets.add(score),
                    (_, None) if kind != RedactionKind::Secret => personal.entry(label(kind)).or_default().add(score),
                    _ => {}
                }
            }
        }
    }
    report(&personal, secrets, alarms, look_alikes);
    Ok(())
}

fn report(personal: &BTreeMap<&str, Score>, secrets: Score, alarms: usize, look_alikes: usize) {
    let mut total = Score::default();
    for (kind, score) in personal {
        total.add(*score);
        println!("{kind:<12} {}", score.line());
    }
    if !personal.is_empty() {
        println!("{:<12} {}", "PII", total.line());
    }
    if secrets.hits + secrets.missed + look_alikes > 0 {
        let recall = ratio(secrets.hits, secrets.hits + secrets.missed);
        let share = ratio(alarms, look_alikes.max(1));
        println!(
            "{:<12} recall {recall}  false positives {share}  ({} of {} found, {alarms} of {look_alikes} look-alikes taken)",
            "secrets",
            secrets.hits,
            secrets.hits + secrets.missed
        );
    }
}

/// What the engine finds, in code points.
fn findings(engine: &RedactionEngine, text: &str) -> Vec<(RedactionKind, usize, usize)> {
    let points = |bytes: usize| text.get(..bytes).map_or(0, |before| before.chars().count());
    engine.findings(text).into_iter().map(|it| (it.kind, points(it.start), points(it.end))).collect()
}

fn score(row: &Row, found: &[(RedactionKind, usize, usize)], kind: RedactionKind, why: bool) -> Score {
    let mut score = Score::default();
    let mut open: Vec<&(RedactionKind, usize, usize)> = found.iter().filter(|it| it.0 == kind).collect();
    for span in row.spans.iter().filter(|span| span.kind == label(kind)) {
        let hit = open.iter().position(|(_, start, end)| {
            let shared = span.end.min(*end).saturating_sub(span.start.max(*start));
            2 * shared >= span.end.max(*end) - span.start.min(*start)
        });
        if let Some(hit) = hit {
            open.remove(hit);
            score.hits += 1;
        } else {
            score.missed += 1;
            if why {
                let part: String = row.text.chars().skip(span.start).take(span.end - span.start).collect();
                println!("missed {} {part:?} in {} {:?}", label(kind), row.id, row.text);
            }
        }
    }
    score.false_alarms = open.len();
    for (_, start, end) in open.iter().filter(|_| why && (kind != RedactionKind::Secret || row.label.is_some())) {
        let part: String = row.text.chars().skip(*start).take(end - start).collect();
        println!("false {} {part:?} in {} {:?}", label(kind), row.id, row.text);
    }
    score
}

/// What the rows call a kind.
const fn label(kind: RedactionKind) -> &'static str {
    match kind {
        RedactionKind::Email => "email",
        RedactionKind::Phone => "phone",
        RedactionKind::Ssn => "us_ssn",
        RedactionKind::CreditCard => "credit_card",
        RedactionKind::Iban => "iban",
        RedactionKind::IpAddress => "ip",
        RedactionKind::Secret => "secret",
    }
}

/// Seconds that this thread has been on a core: others on the machine do not count.
fn on_cpu() -> Result<f64, Box<dyn Error>> {
    let figures = std::fs::read_to_string("/proc/self/schedstat")?;
    let nanoseconds: u64 = figures.split_whitespace().next().ok_or("no time")?.parse()?;
    Ok(std::time::Duration::from_nanos(nanoseconds).as_secs_f64())
}

/// How fast texts of JSON go through, without and with something to find in them.
fn speed() -> Result<(), Box<dyn Error>> {
    let engine = RedactionEngine::new(&RedactionAdditions::default())?;
    let record = |index: usize| {
        json!({
            "invocation_id": format!("018f3c2e-7b1a-7c3d-9e4f-{index:012x}"), "tool_id": "search_documents", "tool_version": "1.4.2",
            "started_at": "2026-03-14T09:26:53.589Z", "duration_ms": index % 977, "status": "success", "tenant": "acme",
            "parameters": { "query": "quarterly report on storage costs in the northern region", "limit": 20, "offset": index * 20,
                "filters": { "author": "finance", "tags": ["budget", "storage", "q3"], "updated_after": "2025-12-01" }, "max_tokens": 4096 },
            "result": { "total": 1729 + index, "items": [
                { "id": index * 31, "title": "Storage: what it cost us, and why", "score": 0.8731, "path": "/reports/2025/q3/storage.md",
                  "excerpt": "The cost of storage grew by 12 percent over the quarter, mostly because of the new archive, which keeps everything twice." },
                { "id": index * 37, "title": "Plans for the archive", "score": 0.5512, "path": "/plans/archive.md", "checksum": format!("{:032x}", index * 7919),
                  "excerpt": "Moving cold data to cheaper disks, deleting what nobody reads, and asking before keeping things for ever." } ] },
        })
        .to_string()
    };
    let personal = |index: usize| {
        json!({ "name": "Ada", "mail": format!("ada{index}@example.org"), "phone": "+44 20 7946 0958", "ip": "192.0.2.17", "note": "call before noon",
            "history": ["opened the case", "asked for the invoice of March", "was told that it had been sent"], "count": index }).to_string()
    };
    for (what, make) in
        [("ordinary JSON", &record as &dyn Fn(usize) -> String), ("JSON with personal data in every record", &personal)]
    {
        let mut text = String::with_capacity(SPEED_BYTES + 4096);
        let mut index = 0;
        while text.len() < SPEED_BYTES {
            text.push_str(&make(index));
            text.push('\n');
            index += 1;
        }
        let mut best = f64::MAX;
        let mut found = 0;
        for _ in 0..SPEED_ROUNDS {
            let before = on_cpu()?;
            found = text.lines().map(|line| engine.findings(line).len()).sum();
            best = best.min(on_cpu()? - before);
        }
        let megabytes = f64::from(u32::try_from(text.len())?) / 1e6;
        println!("{what}: {:.0} MB/s of a core, {found} findings in {index} records", megabytes / best);
    }
    Ok(())
}
