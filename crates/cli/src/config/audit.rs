//! `[audit]`: where the audit log is.

use std::path::{Path, PathBuf};

use super::key::{Key, Kind};
use super::settings::Settings;

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

/// All keys of the section.
pub(super) const KEYS: &[&Key] = &[&DIR];

/// The section's values.
#[derive(Debug)]
pub(crate) struct AuditSection {
    dir: Option<PathBuf>,
}

impl AuditSection {
    pub(super) fn read(settings: &Settings) -> Self {
        Self { dir: settings.text(&DIR).map(PathBuf::from) }
    }

    /// The directory of the log.
    pub(crate) fn dir(&self, data_dir: &Path) -> PathBuf {
        self.dir.clone().unwrap_or_else(|| data_dir.join("audit"))
    }
}
