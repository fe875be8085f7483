//! `[audit]`: where the audit log is, and where it is carried to.

use std::path::{Path, PathBuf};

use super::key::{Key, Kind};
use super::settings::{Problem, Settings};

pub(crate) mod sinks;

use sinks::SinkTable;

/// The directory of the log.
pub(crate) const DIR: Key = Key {
    section: "audit",
    name: "dir",
    kind: Kind::Text,
    default: None,
    unset: "`audit` in the data directory",
    doc: "Directory of the audit files `audit-000001.jsonl`, …. A call that cannot be recorded there does not run.",
    since: "0.1",
};

/// Where it is carried to.
const SINKS: Key = Key {
    section: "audit",
    name: "sinks",
    kind: Kind::Tables,
    default: Some(""),
    unset: "",
    doc: "Places that get every audit record as a CloudEvent, at least once and in order: `[[audit.sinks]]` with a `name` and `kind = \
          \"file\"`, `\"http\"` or `\"kafka\"`. What each of them takes is in [audit-sinks.md](audit-sinks.md). A sink that is down \
          stops no call and loses no record: it goes on where it stood.",
    since: "0.2",
};

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&DIR, &SINKS];

/// The section's values.
#[derive(Debug)]
pub(crate) struct AuditSection {
    dir: Option<PathBuf>,
    pub(crate) sinks: Vec<SinkTable>,
}

impl AuditSection {
    pub(super) fn read(settings: &Settings, problems: &mut Vec<Problem>) -> Self {
        Self { dir: settings.text(&DIR).map(PathBuf::from), sinks: sinks::read(settings.list(&SINKS), problems) }
    }

    /// The directory of the log.
    pub(crate) fn dir(&self, data_dir: &Path) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| data_dir.join("audit"))
    }
}
