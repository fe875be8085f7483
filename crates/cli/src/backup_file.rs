//! The file a backup is in: a `tar` archive, compressed with gzip, which any machine can look into.
//!
//! ```text
//! backup.json                    what it is of, and which release made it
//! store/gantry.db                the store, if it is SQLite's file …
//! store/TABLE/columns.json       … or a table of PostgreSQL: its columns,
//! store/TABLE/000001.jsonl       and its rows, a line for each
//! audit/audit-000001.jsonl …     the audit log, as far as its newest checkpoint covers it
//! data/keys/signing.pem …        the secrets of the data directory, only if that was asked for
//! digests.json                   the SHA-256 of each of them, and rows and digest of each table
//! ```
//!
//! The digests come last, because a table is written while it is read; so nothing of a backup counts before all of it was
//! read. A file that ends too early has none, and is refused.
//!
//! Not here: what is in it (`commands::backup`), where it goes (`commands::restore`).

mod reader;
mod writer;

use contract::hex::lower_hex;
use std::collections::BTreeMap;
use std::io::{self, Read};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

pub(crate) use reader::BackupReader;
pub(crate) use writer::BackupWriter;

/// The form that this program writes and reads.
pub(crate) const FORMAT: u32 = 1;
pub(crate) const HEAD: &str = "backup.json";
pub(crate) const DIGESTS: &str = "digests.json";
pub(crate) const DATABASE: &str = "store/gantry.db";

/// Which store a backup is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum StoreKind {
    Sqlite,
    Postgres,
}

/// What a backup is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupHead {
    pub(crate) format: u32,
    /// The release that made it.
    pub(crate) gantry: String,
    pub(crate) made_at: String,
    pub(crate) store: StoreKind,
    /// How many steps of migration the database had taken; 0 for SQLite, whose file says it.
    pub(crate) steps: i32,
    pub(crate) audit_records: u64,
    /// Of all tables; 0 for SQLite.
    pub(crate) rows: u64,
    pub(crate) has_keys: bool,
}

/// What a file in the archive must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FileDigest {
    pub(crate) bytes: u64,
    pub(crate) sha256: String,
}

/// What a table in the archive must be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TableDigest {
    pub(crate) rows: u64,
    pub(crate) digest: String,
}

/// The last file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BackupDigests {
    pub(crate) files: BTreeMap<String, FileDigest>,
    pub(crate) tables: BTreeMap<String, TableDigest>,
}

/// Reads through to something and notes what went by.
pub(crate) struct HashingReader<R> {
    inner: R,
    sha: Sha256,
    bytes: u64,
}

impl<R: Read> HashingReader<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self { inner, sha: Sha256::new(), bytes: 0 }
    }

    pub(crate) fn digest(self) -> FileDigest {
        let sha256 = lower_hex(&self.sha.finalize());
        FileDigest { bytes: self.bytes, sha256 }
    }
}

impl<R: Read> Read for HashingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.sha.update(buffer.get(..read).unwrap_or_default());
        self.bytes += u64::try_from(read).unwrap_or_default();
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unpacked(bytes: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        flate2::read::GzDecoder::new(bytes).read_to_end(&mut text).ok().map(|_| text)
    }

    fn head() -> BackupHead {
        let (gantry, made_at) = ("0.1.0".into(), "2026-01-01T00:00:00Z".into());
        BackupHead {
            format: FORMAT,
            gantry,
            made_at,
            store: StoreKind::Sqlite,
            steps: 0,
            audit_records: 3,
            rows: 0,
            has_keys: false,
        }
    }

    fn written(finished: bool) -> Vec<u8> {
        let mut writer = BackupWriter::begin(Vec::new(), &head()).unwrap();
        writer.add(DATABASE, &b"database"[..], 8).unwrap();
        writer.add("audit/checkpoints", &b"one and more"[..], 3).unwrap();
        writer.table("usage", TableDigest { rows: 1, digest: "x".into() });
        if finished { writer.finish().unwrap() } else { writer.broken_off() }
    }

    fn read(bytes: &[u8]) -> Result<Vec<(String, String)>, String> {
        let read_head = BackupReader::new(bytes).head().map_err(|error| error.to_string())?;
        let mut found = Vec::new();
        let digests = BackupReader::new(bytes)
            .each(|name, content| {
                let mut text = String::new();
                content.read_to_string(&mut text)?;
                found.push((name.to_owned(), text));
                Ok(())
            })
            .map_err(|error| error.to_string())?;
        assert_eq!((read_head, digests.tables.len()), (head(), 1));
        Ok(found)
    }

    #[test]
    fn what_was_put_in_comes_out_and_only_as_much_as_was_asked_for() {
        let expected = [(DATABASE, "database"), ("audit/checkpoints", "one")];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(read(&written(true)).unwrap(), expected);
    }

    #[test]
    fn what_is_broken_off_or_changed_is_refused() {
        read(&written(false)).unwrap_err();
        let whole = written(true);
        read(whole.get(..whole.len() / 2).unwrap()).unwrap_err();
        read(b"").unwrap_err();
        read(b"no backup").unwrap_err();
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            *changed.get_mut(at).unwrap() ^= 0x41;
            // There are bytes that say nothing, such as the time in the head of gzip, or how far back the same zeros are.
            let harmless = unpacked(&changed).is_some_and(|text| Some(text) == unpacked(&whole));
            assert_eq!(read(&changed).is_ok(), harmless, "byte {at} of {}", whole.len());
        }
    }
}
