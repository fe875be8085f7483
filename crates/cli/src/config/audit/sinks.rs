//! `[[audit.sinks]]`: each place the audit log is carried to. (AUD-005, AUD-006)
//!
//! Each kind has a shape of its own, beside that of all; a key of another kind is named as such and not as unknown.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use audit::sinks::BatchLimits;
use audit::sinks::file::FileRotation;
use audit::sinks::http::{HttpMode, SecretHeader};
use executors::{CallTimes, OpenedNetworks};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::paths::PrivatePath;
use super::super::problems::SectionProblems;
use super::super::schema;
use super::super::section::field_names;
use super::super::tables::{ConfigTables, table};
use super::kafka_security::{KafkaSecuritySection, KafkaSecurityTable};

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

/// What a table of any kind has.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SinkBase {
    /// A word of small letters, digits and `-`, which no other sink has.
    name: String,
    kind: SinkKind,
    /// Is it given what was recorded before it was configured?
    #[serde(default)]
    from: SinkStart,
    /// Records of one delivery at most.
    #[schemars(range(min = 1, max = 10_000))]
    batch_records: Option<usize>,
    /// Bytes of one delivery at most.
    #[schemars(range(min = 1_024, max = 16_777_216))]
    batch_bytes: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SinkKind {
    File,
    Http,
    Kafka,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SinkStart {
    #[default]
    Beginning,
    Now,
}

/// What a table of the kind `file` has besides.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct FileSink {
    /// The directory of the files; unset, one of its name in the data directory.
    dir: Option<PrivatePath>,
    /// Bytes from which on a file is followed by the next.
    #[schemars(range(min = 1_024, max = 1_099_511_627_776_u64))]
    rotate_bytes: u64,
    /// Hours after which a file is followed by the next.
    #[schemars(range(min = 1, max = 8_784))]
    rotate_hours: u32,
    /// Are files compressed that have had their time?
    compress: bool,
    /// So many files are kept.
    #[schemars(range(min = 1, max = 1_000_000))]
    keep_files: Option<usize>,
    /// For so many days files are kept.
    #[schemars(range(min = 1, max = 36_600))]
    keep_days: Option<u32>,
}

impl Default for FileSink {
    fn default() -> Self {
        Self {
            dir: None,
            rotate_bytes: FileRotation::default().bytes,
            rotate_hours: 24,
            compress: FileRotation::default().compress,
            keep_files: None,
            keep_days: None,
        }
    }
}

/// What a table of the kind `http` has besides.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct HttpSink {
    /// Where records are sent.
    url: Option<String>,
    mode: HttpWord,
    /// The header that `credential` goes into; unset, `authorization`.
    header: Option<String>,
    /// The credential of the home tenant whose value is sent.
    credential: Option<String>,
    /// What may be called beyond public hosts, in the words of `[webhooks] allow`.
    allow: Vec<String>,
    /// Milliseconds that one delivery may take.
    #[schemars(range(min = 100, max = 300_000))]
    timeout_ms: u64,
}

impl Default for HttpSink {
    fn default() -> Self {
        Self {
            url: None,
            mode: HttpWord::Batched,
            header: None,
            credential: None,
            allow: Vec::new(),
            timeout_ms: TIMEOUT_MS,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum HttpWord {
    Batched,
    Structured,
    Binary,
}

/// What a table of the kind `kafka` has besides, and besides what is about security.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct KafkaSink {
    /// Brokers to begin with, as `host:port`.
    brokers: Vec<String>,
    /// Where records are written.
    topic: String,
    mode: KafkaWord,
    /// Milliseconds that one delivery may take.
    #[schemars(range(min = 100, max = 300_000))]
    timeout_ms: u64,
}

impl Default for KafkaSink {
    fn default() -> Self {
        Self { brokers: Vec::new(), topic: TOPIC.to_owned(), mode: KafkaWord::Structured, timeout_ms: TIMEOUT_MS }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum KafkaWord {
    Structured,
    Binary,
}

/// A table as it is written, of whatever kind.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct SinkMembers(Map<String, Value>);

impl JsonSchema for SinkMembers {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "SinkMembers".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "oneOf": [
            of_kind("file", &[schema::of::<FileSink>()]),
            of_kind("http", &[schema::of::<HttpSink>()]),
            of_kind("kafka", &[schema::of::<KafkaSink>(), schema::of::<KafkaSecurityTable>()]),
        ] })
    }
}

/// The schema of a table of one kind: what all have, and what it has besides.
fn of_kind(kind: &str, own: &[Value]) -> Value {
    let mut schema = schema::of::<SinkBase>();
    if let Some(known) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        let own = own.iter().filter_map(|own| own.get("properties")?.as_object()).flatten();
        known.extend(own.map(|(name, member)| (name.clone(), member.clone())));
        known.insert("kind".to_owned(), serde_json::json!({ "const": kind }));
    }
    schema
}

/// The tables that make sense. Everything wrong is a problem, and a table with one is left out.
pub(super) fn checked(tables: ConfigTables<SinkMembers>, problems: &mut SectionProblems<'_>) -> Vec<SinkTable> {
    const PLACE: &str = "[[audit.sinks]]";
    let (mut sinks, mut names) = (Vec::new(), BTreeSet::new());
    for (_, sink) in tables.each(PLACE, SINKS_MAX, problems, one) {
        match names.insert(sink.name.clone()) {
            true => sinks.push(sink),
            false => problems.at_place(PLACE, format!("two have the name `{}`", sink.name)),
        }
    }
    sinks
}

fn one(SinkMembers(members): SinkMembers) -> Result<SinkTable, String> {
    let kind = members.get("kind").and_then(|kind| SinkKind::deserialize(kind).ok());
    let kind = kind.ok_or("`kind` must be one of file, http, kafka")?;
    let of_all = field_names::<SinkBase>();
    let of_security = field_names::<KafkaSecurityTable>();
    let own = match kind {
        SinkKind::File => field_names::<FileSink>().to_vec(),
        SinkKind::Http => field_names::<HttpSink>().to_vec(),
        SinkKind::Kafka => [field_names::<KafkaSink>(), of_security].concat(),
    };
    let known = [of_all, own.as_slice()].concat();
    if let Some(name) = members.keys().find(|name| !known.contains(&name.as_str())) {
        let kind = members.get("kind").and_then(Value::as_str).unwrap_or_default();
        return Err(format!("a sink of kind `{kind}` has no key `{name}`; it has {}", known.join(", ")));
    }
    let (of_all, own) = split(members, of_all);
    let base: SinkBase = table(&of_all)?;
    let is_word = |text: &str| {
        text.starts_with(|first: char| first.is_ascii_lowercase())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if !is_word(&base.name) || base.name.len() > NAME_CHARS_MAX {
        return Err(format!("`name` must be a word of at most {NAME_CHARS_MAX} small letters, digits and `-`"));
    }
    let usual = BatchLimits::default();
    Ok(SinkTable {
        from_the_beginning: base.from == SinkStart::Beginning,
        limits: BatchLimits {
            records: base.batch_records.unwrap_or(usual.records),
            bytes: base.batch_bytes.unwrap_or(usual.bytes),
        },
        target: match base.kind {
            SinkKind::File => file(table(&Value::Object(own))?),
            SinkKind::Http => http(table(&Value::Object(own))?)?,
            SinkKind::Kafka => {
                let (of_security, own) = split(own, of_security);
                SinkTarget::Kafka(kafka(table(&Value::Object(own))?, &table(&of_security)?)?)
            }
        },
        name: base.name,
    })
}

/// The members of these names, and the others.
fn split(members: Map<String, Value>, names: &[&str]) -> (Value, Map<String, Value>) {
    let (of_them, others): (Map<_, _>, Map<_, _>) =
        members.into_iter().partition(|(name, _)| names.contains(&name.as_str()));
    (Value::Object(of_them), others)
}

fn file(table: FileSink) -> SinkTarget {
    let rotation = FileRotation {
        bytes: table.rotate_bytes,
        age: HOUR * table.rotate_hours,
        compress: table.compress,
        keep_files: table.keep_files,
        keep_for: table.keep_days.map(|days| HOUR * 24 * days),
    };
    SinkTarget::File { dir: table.dir.map(Into::into), rotation }
}

fn http(table: HttpSink) -> Result<SinkTarget, String> {
    let url = table.url.ok_or("`url` is missing")?;
    let mode = match table.mode {
        HttpWord::Batched => HttpMode::Batched,
        HttpWord::Structured => HttpMode::Structured,
        HttpWord::Binary => HttpMode::Binary,
    };
    let is_name = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let secret_header = match (table.header.as_deref().unwrap_or("authorization"), table.credential) {
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
    let opened = OpenedNetworks::read(table.allow.iter().map(String::as_str))
        .map_err(|(text, error)| format!("`allow`: `{text}`: {error}"))?;
    let times = CallTimes { total: Duration::from_millis(table.timeout_ms), ..CallTimes::default() };
    Ok(SinkTarget::Http { url, mode, secret_header, opened, times })
}

fn kafka(table: KafkaSink, security: &KafkaSecurityTable) -> Result<KafkaTarget, String> {
    if !cfg!(feature = "kafka") {
        return Err("this build has no Kafka: build it with `cargo build -p gantry --features kafka`".to_owned());
    }
    let KafkaSink { brokers, topic, mode, timeout_ms } = table;
    if brokers.is_empty() {
        return Err("`brokers` is missing".to_owned());
    }
    if let Some(wrong) = brokers.iter().find(|broker| !is_broker(broker)) {
        return Err(format!("`brokers`: `{wrong}` is not `host:port`"));
    }
    let is_topic = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    if topic.is_empty() || topic.len() > 249 || matches!(topic.as_str(), "." | "..") || !topic.chars().all(is_topic) {
        return Err("`topic` must have 1 to 249 letters, digits, `.`, `_` and `-`".to_owned());
    }
    let timeout = Duration::from_millis(timeout_ms);
    Ok(KafkaTarget { brokers, topic, is_binary: mode == KafkaWord::Binary, timeout, security: security.checked()? })
}

fn is_broker(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains([',', '/', ' ', '\0']) && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::section_tests::of_file;
    use super::super::AuditKeys;
    use super::*;

    fn tables(text: &str) -> (Vec<SinkTable>, Vec<String>) {
        let (section, problems) = of_file::<AuditKeys>(text);
        (section.sinks, problems)
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
