//! `[[audit.sinks]]`: each place the audit log is carried to. (AUD-005, AUD-006)
//!
//! The tables of all kinds are read by one shape, so that a key of another kind is named as such and not as unknown.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::sinks::BatchLimits;
use audit::sinks::file::FileRotation;
use audit::sinks::http::{HttpMode, SecretHeader};
use executors::{CallTimes, OpenedNetworks};
use serde::Deserialize;
use serde_json::Value;

use super::super::settings::ConfigProblem;
use super::kafka_security::{self, KafkaSecuritySection, KafkaSecurityTable};

/// Sinks at most: each reads the whole log.
const SINKS_MAX: usize = 16;
/// Longest name: it becomes part of file names and labels.
const NAME_CHARS_MAX: usize = 40;
/// The topic, unless configured otherwise. (AUD-005)
const TOPIC: &str = "tool-execution-audit";
/// How long one delivery may take, unless configured otherwise.
const TIMEOUT_MS: u64 = 15_000;
const HOUR: Duration = Duration::from_secs(3600);

/// One table that makes sense.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct SinkTable {
    pub(crate) name: String,
    /// Is it given what was recorded before it was configured?
    pub(crate) from_the_beginning: bool,
    pub(crate) limits: BatchLimits,
    pub(crate) target: SinkTarget,
}

/// Where to.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum SinkTarget {
    File { dir: Option<PathBuf>, rotation: FileRotation },
    Http { url: String, mode: HttpMode, secret_header: Option<SecretHeader>, opened: OpenedNetworks, times: CallTimes },
    Kafka(KafkaTarget),
}

/// Where to, in Kafka's words.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KafkaTarget {
    pub(crate) brokers: Vec<String>,
    pub(crate) topic: String,
    /// Attributes go into headers.
    pub(crate) is_binary: bool,
    pub(crate) timeout: Duration,
    pub(crate) security: KafkaSecuritySection,
}

impl SinkTable {
    /// The word for its kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self.target {
            SinkTarget::File { .. } => "file",
            SinkTarget::Http { .. } => "http",
            SinkTarget::Kafka(_) => "kafka",
        }
    }

    /// The directory it writes to, if it is one of files.
    pub(crate) fn dir(&self, data_dir: &Path) -> Option<PathBuf> {
        match &self.target {
            SinkTarget::File { dir, .. } => {
                Some(dir.clone().unwrap_or_else(|| data_dir.join("audit-events").join(&self.name)))
            }
            SinkTarget::Http { .. } | SinkTarget::Kafka(_) => None,
        }
    }
}

/// Everything any table may have.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    name: String,
    kind: String,
    from: Option<String>,
    batch_records: Option<usize>,
    batch_bytes: Option<usize>,
    dir: Option<PathBuf>,
    rotate_bytes: Option<u64>,
    rotate_hours: Option<u32>,
    compress: Option<bool>,
    keep_files: Option<usize>,
    keep_days: Option<u32>,
    url: Option<String>,
    mode: Option<String>,
    header: Option<String>,
    credential: Option<String>,
    allow: Option<Vec<String>>,
    timeout_ms: Option<u64>,
    brokers: Option<Vec<String>>,
    topic: Option<String>,
}

/// Which keys belong to which kind, beside those all have.
const KEYS_OF: [(&str, &[&str]); 3] = [
    ("file", &["dir", "rotate_bytes", "rotate_hours", "compress", "keep_files", "keep_days"]),
    ("http", &["url", "mode", "header", "credential", "allow", "timeout_ms"]),
    ("kafka", &["brokers", "topic", "mode", "timeout_ms"]),
];
const KEYS_OF_ALL: [&str; 5] = ["name", "kind", "from", "batch_records", "batch_bytes"];

/// Every key that a table of some kind may have.
#[cfg(test)]
pub(crate) fn members() -> impl Iterator<Item = &'static str> {
    let of_kinds = KEYS_OF.iter().flat_map(|(_, keys)| keys.iter().copied());
    KEYS_OF_ALL.into_iter().chain(of_kinds).chain(kafka_security::KEYS)
}

/// Reads the tables, each in JSON. Everything wrong is a problem, and a table with one is left out.
pub(super) fn read(tables: &[String], problems: &mut Vec<ConfigProblem>) -> Vec<SinkTable> {
    if tables.len() > SINKS_MAX {
        problems.push(ConfigProblem::new("[[audit.sinks]]", format!("there are more than {SINKS_MAX}")));
    }
    let (mut sinks, mut names) = (Vec::new(), BTreeSet::new());
    for (index, text) in tables.iter().take(SINKS_MAX).enumerate() {
        match one(text) {
            Ok(sink) if !names.insert(sink.name.clone()) => {
                problems.push(ConfigProblem::new("[[audit.sinks]]", format!("two have the name `{}`", sink.name)));
            }
            Ok(sink) => sinks.push(sink),
            Err(wrong) => problems.push(ConfigProblem::new(format!("[[audit.sinks]] number {}", index + 1), wrong)),
        }
    }
    sinks
}

fn one(text: &str) -> Result<SinkTable, String> {
    let mut members: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let kind = members.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    let Some((kind, keys)) = KEYS_OF.iter().find(|(known, _)| *known == kind) else {
        return Err("`kind` must be one of file, http, kafka".to_owned());
    };
    let of_security: &[&str] = if *kind == "kafka" { &kafka_security::KEYS } else { &[] };
    for name in members.as_object().into_iter().flat_map(|members| members.keys()) {
        if ![KEYS_OF_ALL.as_slice(), *keys, of_security].iter().any(|known| known.contains(&name.as_str())) {
            let known = KEYS_OF_ALL.iter().chain(*keys).chain(of_security).copied().collect::<Vec<_>>().join(", ");
            return Err(format!("a sink of kind `{kind}` has no key `{name}`; it has {known}"));
        }
    }
    let security: KafkaSecurityTable = serde_json::from_value(members.clone()).map_err(|error| error.to_string())?;
    if let Some(members) = members.as_object_mut() {
        members.retain(|name, _| !kafka_security::KEYS.contains(&name.as_str()));
    }
    let table: Table = serde_json::from_value(members).map_err(|error| error.to_string())?;
    let is_word = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if !is_word(&table.name) || table.name.len() > NAME_CHARS_MAX {
        return Err(format!("`name` must be a word of at most {NAME_CHARS_MAX} small letters, digits and `-`"));
    }
    Ok(SinkTable {
        from_the_beginning: match table.from.as_deref() {
            None | Some("beginning") => true,
            Some("now") => false,
            Some(_) => return Err("`from` must be one of beginning, now".to_owned()),
        },
        limits: BatchLimits {
            records: within("batch_records", table.batch_records, BatchLimits::default().records, 1, 10_000)?,
            bytes: within("batch_bytes", table.batch_bytes, BatchLimits::default().bytes, 1024, 16 << 20)?,
        },
        target: match table.kind.as_str() {
            "file" => file(&table)?,
            "http" => http(&table)?,
            _ => SinkTarget::Kafka(kafka(&table, &security)?),
        },
        name: table.name,
    })
}

fn file(table: &Table) -> Result<SinkTarget, String> {
    let hours = within("rotate_hours", table.rotate_hours, 24, 1, 24 * 366)?;
    let days = table.keep_days.map(|days| within("keep_days", Some(days), days, 1, 36_600)).transpose()?;
    let files = table.keep_files.map(|files| within("keep_files", Some(files), files, 1, 1_000_000)).transpose()?;
    let rotation = FileRotation {
        bytes: within("rotate_bytes", table.rotate_bytes, FileRotation::default().bytes, 1024, 1 << 40)?,
        age: HOUR * hours,
        compress: table.compress.unwrap_or(true),
        keep_files: files,
        keep_for: days.map(|days| HOUR * 24 * days),
    };
    Ok(SinkTarget::File { dir: table.dir.clone(), rotation })
}

fn http(table: &Table) -> Result<SinkTarget, String> {
    let url = table.url.clone().ok_or("`url` is missing")?;
    let mode = HttpMode::from_word(table.mode.as_deref().unwrap_or("batched"))
        .ok_or("`mode` must be one of batched, structured, binary")?;
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let secret_header = match (table.header.as_deref().unwrap_or("authorization"), table.credential.clone()) {
        (_, None) if table.header.is_some() => {
            return Err("`header` needs a `credential`, which is its value".to_owned());
        }
        (_, None) => None,
        (name, _) if !is_name(name) || name.starts_with("ce-") || name.starts_with("content-") || name == "host" => {
            return Err(
                "`header` must be a name of a header in small letters, and none that the request has anyway".to_owned()
            );
        }
        (name, Some(credential)) => Some(SecretHeader { name: name.to_owned(), credential }),
    };
    let allow = table.allow.clone().unwrap_or_default();
    let opened = OpenedNetworks::read(allow.iter().map(String::as_str))
        .map_err(|(text, error)| format!("`allow`: `{text}`: {error}"))?;
    let times = CallTimes { total: timeout(table)?, ..CallTimes::default() };
    Ok(SinkTarget::Http { url, mode, secret_header, opened, times })
}

fn kafka(table: &Table, security: &KafkaSecurityTable) -> Result<KafkaTarget, String> {
    if !cfg!(feature = "kafka") {
        return Err("this build has no Kafka: build it with `cargo build -p gantry --features kafka`".to_owned());
    }
    let brokers = table.brokers.clone().filter(|brokers| !brokers.is_empty()).ok_or("`brokers` is missing")?;
    if let Some(wrong) = brokers.iter().find(|broker| !is_broker(broker)) {
        return Err(format!("`brokers`: `{wrong}` is not `host:port`"));
    }
    let topic = table.topic.clone().unwrap_or_else(|| TOPIC.to_owned());
    let is_topic = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > 249 || matches!(topic.as_str(), "." | "..") || !topic.chars().all(is_topic) {
        return Err("`topic` must have 1 to 249 letters, digits, `.`, `_` and `-`".to_owned());
    }
    let is_binary = match table.mode.as_deref() {
        None | Some("structured") => false,
        Some("binary") => true,
        Some(_) => return Err("`mode` must be one of structured, binary".to_owned()),
    };
    Ok(KafkaTarget { brokers, topic, is_binary, timeout: timeout(table)?, security: security.checked()? })
}

fn is_broker(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains([',', '/', ' ', '\0']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

fn timeout(table: &Table) -> Result<Duration, String> {
    within("timeout_ms", table.timeout_ms, TIMEOUT_MS, 100, 300_000).map(Duration::from_millis)
}

fn within<T: Copy + PartialOrd + std::fmt::Display>(
    name: &str,
    value: Option<T>,
    default: T,
    low: T,
    high: T,
) -> Result<T, String> {
    match value.unwrap_or(default) {
        value if value < low || value > high => Err(format!("`{name}` must be a whole number from {low} to {high}")),
        value => Ok(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables(text: &str) -> (Vec<SinkTable>, Vec<String>) {
        use super::super::super::settings::{ConfigFile, EffectiveSettings};
        let file = ConfigFile { name: "gantry.toml".into(), folder: "".into(), text: text.into() };
        let settings = EffectiveSettings::gather(Some(&file), &std::collections::BTreeMap::new(), Vec::new()).unwrap();
        let mut problems = Vec::new();
        let section = super::super::AuditSection::read(&settings, &mut problems);
        (section.sinks, problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn tables_are_read_with_their_defaults() {
        let (sinks, problems) = tables(
            "[[audit.sinks]]\nname = 'archive'\nkind = 'file'\nkeep_days = 400\n\
             [[audit.sinks]]\nname = 'siem'\nkind = 'http'\nurl = 'https://siem.example/x'\ncredential = 'siem'\nfrom = 'now'\n",
        );
        assert!(problems.is_empty(), "{problems:?}");
        let [archive, siem] = sinks.as_slice() else { panic!("{sinks:?}") };
        assert!(archive.from_the_beginning && !siem.from_the_beginning);
        assert_eq!((archive.kind(), siem.kind()), ("file", "http"));
        assert_eq!(archive.dir(Path::new("/d")).unwrap(), Path::new("/d/audit-events/archive"));
        let SinkTarget::File { rotation, .. } = &archive.target else { panic!() };
        assert_eq!(*rotation, FileRotation { keep_for: Some(HOUR * 24 * 400), ..FileRotation::default() });
        let SinkTarget::Http { mode, secret_header, .. } = &siem.target else { panic!() };
        assert_eq!((*mode, secret_header.as_ref().unwrap().name.as_str()), (HttpMode::Batched, "authorization"));
    }

    #[test]
    fn what_makes_no_sense_is_named_with_the_number_of_its_table() {
        let http = "kind = 'http'\nurl = 'https://a.example'";
        let cases: &[(&str, &str)] = &[
            ("name = 'a'", "`kind` must be one of file, http, kafka"),
            ("kind = 'file'", "missing field `name`"),
            ("name = 'A b'\nkind = 'file'", "`name` must be a word"),
            ("name = '../x'\nkind = 'file'", "`name` must be a word"),
            ("name = 'a'\nkind = 'file'\nurl = 'x'", "a sink of kind `file` has no key `url`"),
            ("name = 'a'\nkind = 'file'\nrotate_hours = 0", "`rotate_hours` must be a whole number from 1"),
            ("name = 'a'\nkind = 'file'\nbatch_records = 0", "`batch_records` must be"),
            ("name = 'a'\nkind = 'http'", "`url` is missing"),
            (&format!("name = 'a'\n{http}\nmode = 'x'"), "`mode` must be one of"),
            (&format!("name = 'a'\n{http}\nheader = 'x-key'"), "needs a `credential`"),
            (&format!("name = 'a'\n{http}\nheader = 'ce-id'\ncredential = 'x'"), "none that the request has"),
            (&format!("name = 'a'\n{http}\nallow = ['http:*']"), "`allow`: `http:*`"),
            (&format!("name = 'a'\n{http}\nfrom = 'then'"), "`from` must be one of"),
        ];
        for (text, word) in cases {
            let (sinks, problems) = tables(&format!("[[audit.sinks]]\n{text}\n"));
            assert!(sinks.is_empty() && problems.len() == 1, "{text}: {problems:?}");
            assert!(
                problems[0].starts_with("[[audit.sinks]] number 1: ") && problems[0].contains(word),
                "{problems:?}"
            );
        }
        let (_, problems) = tables(&"[[audit.sinks]]\nname = 'a'\nkind = 'file'\n".repeat(2));
        assert!(problems.len() == 1 && problems[0].contains("two have the name `a`"), "{problems:?}");
        let (_, problems) = tables(&"[[audit.sinks]]\nname = 'a'\nkind = 'file'\n".repeat(SINKS_MAX + 1));
        assert!(problems.iter().any(|problem| problem.contains("more than 16")), "{problems:?}");
    }

    #[test]
    fn kafka_is_refused_clearly_by_a_build_without_it() {
        let (sinks, problems) = tables("[[audit.sinks]]\nname = 'k'\nkind = 'kafka'\nbrokers = ['127.0.0.1:9092']\n");
        if cfg!(feature = "kafka") {
            let [SinkTable { target: SinkTarget::Kafka(target), .. }] = sinks.as_slice() else {
                panic!("{problems:?}")
            };
            assert_eq!((target.topic.as_str(), target.is_binary), (TOPIC, false));
        } else {
            assert!(
                sinks.is_empty() && problems.len() == 1 && problems[0].contains("--features kafka"),
                "{problems:?}"
            );
        }
    }
}
