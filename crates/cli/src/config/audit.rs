//! `[audit]`: where the audit log is, and where it is carried to.

use std::path::{Path, PathBuf};

use super::key::{ConfigKey, KeyKind};
use super::settings::{ConfigProblem, EffectiveSettings};

mod kafka_security;
pub(crate) mod sinks;

use sinks::SinkTable;

/// The directory of the log.
pub(crate) const DIR: ConfigKey = ConfigKey {
    section: "audit",
    name: "dir",
    kind: KeyKind::Text,
    default: None,
    unset: "`audit` in the data directory",
    doc: "Directory of the audit files `audit-000001.jsonl`, …. A call that cannot be recorded there does not run.",
    since: "0.1",
};

/// A file to which checkpoints are copied.
const WITNESS_FILE: ConfigKey = ConfigKey {
    section: "audit",
    name: "witness_file",
    kind: KeyKind::Text,
    default: None,
    unset: "none",
    doc: "A file, best on a disk that others look after, to which every signed checkpoint of the audit log is appended. \
          `gantry audit verify --checkpoint FILE` then also finds a log that was rolled back as a whole.",
    since: "0.2",
};

/// A service to which checkpoints are sent.
const WITNESS_URL: ConfigKey = ConfigKey {
    section: "audit",
    name: "witness_url",
    kind: KeyKind::Text,
    default: None,
    unset: "none",
    doc: "A URL to which every signed checkpoint of the audit log is sent by POST, as text. A witness that does not answer \
          never stops the log: it is tried four times, and the next checkpoint covers what it missed.",
    since: "0.2",
};

/// Where it is carried to.
const SINKS: ConfigKey = ConfigKey {
    section: "audit",
    name: "sinks",
    kind: KeyKind::Tables,
    default: Some(""),
    unset: "",
    doc: "Places that get every audit record as a CloudEvent, at least once and in order: `[[audit.sinks]]` with a `name` and `kind = \
          \"file\"`, `\"http\"` or `\"kafka\"`. What each of them takes is in [audit-sinks.md](audit-sinks.md). A sink that is down \
          stops no call and loses no record: it goes on where it stood.",
    since: "0.2",
};

/// Said with all other problems, and by `gantry doctor`, and not at the first checkpoint.
fn checked_url(url: &str, problems: &mut Vec<ConfigProblem>) -> String {
    let is_http = |url: &reqwest::Url| matches!(url.scheme(), "http" | "https") && url.has_host();
    if !url.parse::<reqwest::Url>().is_ok_and(|url| is_http(&url)) {
        let message = "must be the address of an HTTP service, for example `https://witness.example.com/checkpoints`";
        problems.push(ConfigProblem::new(WITNESS_URL.title(), message));
    }
    url.to_owned()
}

/// All keys of the section.
pub(super) const KEYS: &[&ConfigKey] = &[&DIR, &WITNESS_FILE, &WITNESS_URL, &SINKS];

/// The section's values.
#[derive(Debug)]
pub(crate) struct AuditSection {
    dir: Option<PathBuf>,
    witness_file: Option<PathBuf>,
    witness_url: Option<String>,
    pub(crate) sinks: Vec<SinkTable>,
}

impl AuditSection {
    pub(super) fn read(settings: &EffectiveSettings, problems: &mut Vec<ConfigProblem>) -> Self {
        Self {
            dir: settings.text(&DIR).map(PathBuf::from),
            witness_file: settings.text(&WITNESS_FILE).map(PathBuf::from),
            witness_url: settings.text(&WITNESS_URL).map(|url| checked_url(url, problems)),
            sinks: sinks::read(settings.list(&SINKS), problems),
        }
    }

    /// To which file checkpoints are copied.
    pub(crate) fn witness_file(&self) -> Option<PathBuf> {
        self.witness_file.clone()
    }

    /// To whom checkpoints are sent.
    pub(crate) fn witness_url(&self) -> Option<&str> {
        self.witness_url.as_deref()
    }

    /// The directory of the log.
    pub(crate) fn dir(&self, data_dir: &Path) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| data_dir.join("audit"))
    }
}
