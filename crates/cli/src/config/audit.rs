//! `[audit]`: where the audit log is, and where it is carried to.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::PrivatePath;
use super::problems::SectionProblems;
use super::section::ConfigSection;
use super::tables::ConfigTables;

mod kafka_security;
pub(crate) mod sinks;

use sinks::{SinkMembers, SinkTable};

/// Where the audit log is, and where it is carried to.
#[derive(Debug, Deserialize, JsonSchema, Default)]
#[serde(deny_unknown_fields, default)]
#[schemars(extend("x-since" = "0.2"))]
pub(crate) struct AuditKeys {
    /// Directory of the audit files `audit-000001.jsonl`, …. A call that cannot be recorded there does not run.
    #[schemars(extend("x-unset" = "`audit` in the data directory", "x-since" = "0.1"))]
    pub(super) dir: Option<PrivatePath>,
    /// A file, best on a disk that others look after, to which every signed checkpoint of the audit log is appended.
    /// `gantry audit verify --checkpoint FILE` then also finds a log that was rolled back as a whole.
    #[schemars(extend("x-unset" = "none"))]
    // ['What others hold against the log: who may write it can hide that the log was rolled back.']
    pub(super) witness_file: Option<PrivatePath>,
    /// A URL to which every signed checkpoint of the audit log is sent by POST, as text. A witness that does not answer
    /// never stops the log: it is tried four times, and the next checkpoint covers what it missed.
    #[schemars(extend("x-unset" = "none"))]
    pub(super) witness_url: Option<String>,
    /// Places that get every audit record as a CloudEvent, at least once and in order: `[[audit.sinks]]` with a `name` and
    /// `kind = "file"`, `"http"` or `"kafka"`. What each of them takes is in [audit-sinks.md](audit-sinks.md). A sink that
    /// is down stops no call and loses no record: it goes on where it stood.
    pub(super) sinks: ConfigTables<SinkMembers>,
}

/// The section's values.
#[derive(Debug)]
pub(crate) struct AuditSection {
    dir: Option<PathBuf>,
    witness_file: Option<PathBuf>,
    witness_url: Option<String>,
    pub(crate) sinks: Vec<SinkTable>,
}

impl ConfigSection for AuditKeys {
    const NAME: &'static str = "audit";
    type Checked = AuditSection;

    fn checked(self, problems: &mut SectionProblems<'_>) -> AuditSection {
        if self.witness_url.as_deref().is_some_and(|url| !is_http(url)) {
            let message =
                "must be the address of an HTTP service, for example `https://witness.example.com/checkpoints`";
            problems.at("witness_url", message);
        }
        AuditSection {
            dir: self.dir.map(Into::into),
            witness_file: self.witness_file.map(Into::into),
            witness_url: self.witness_url,
            sinks: sinks::checked(self.sinks, problems),
        }
    }
}

/// Said with all other problems, and by `gantry doctor`, and not at the first checkpoint.
fn is_http(url: &str) -> bool {
    url.parse::<reqwest::Url>().is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

impl AuditSection {
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
