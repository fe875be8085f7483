//! `log.json`: what kind of log a directory holds, and which files were there before it.
//!
//! Files from before logs were numbered have no marker. They are never appended to: the log begins with the next file
//! number, and its first record names their digests, so that they cannot be changed unseen from then on.

use contract::hex::lower_hex;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use ports::entropy::Entropy;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::segments;

/// The file's name.
pub(crate) const NAME: &str = "log.json";
/// The form of the log this program writes. 1 had neither numbers nor a marker.
pub(crate) const FORMAT: u32 = 2;

/// What the marker says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LogMark {
    pub(crate) format: u32,
    /// The first part of the ids of all records.
    pub(crate) id: String,
    /// Whose log it is, as checkpoints say it.
    pub(crate) origin: String,
    /// The public half of the first key.
    pub(crate) key: String,
    pub(crate) first_file: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) before: Vec<FormerFile>,
}

/// A file from before the log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FormerFile {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

impl LogMark {
    /// The marker of a directory; `None` if it has none.
    pub(crate) fn read(dir: &Path) -> io::Result<Option<Self>> {
        match fs::read(dir.join(NAME)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes it durably.
    pub(crate) fn write(&self, dir: &Path) -> io::Result<()> {
        let new = dir.join("log.json.new");
        fs::write(&new, serde_json::to_vec_pretty(self)?)?;
        File::open(&new)?.sync_all()?;
        fs::rename(new, dir.join(NAME))?;
        File::open(dir)?.sync_all()
    }
}

/// A new name for a log.
pub(crate) fn fresh_id(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 8];
    entropy.fill(&mut bytes);
    lower_hex(&bytes)
}

/// The files that are there already, with their digests.
pub(crate) fn former_files(dir: &Path) -> io::Result<Vec<FormerFile>> {
    let mut found = Vec::new();
    for number in segments::numbers(dir)? {
        let name = segments::file_name(number);
        let mut hasher = Sha256::new();
        let bytes = io::copy(&mut File::open(dir.join(&name))?, &mut hasher)?;
        found.push(FormerFile { name, bytes, sha256: lower_hex(&hasher.finalize()) });
    }
    Ok(found)
}
