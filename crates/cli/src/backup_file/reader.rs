//! Reading a backup: its head by itself, then everything from its beginning to its end.

use std::collections::BTreeMap;
use std::io::{self, Read};

use flate2::read::GzDecoder;
use tar::Archive;

use super::{BackupDigests, BackupHead, DIGESTS, FORMAT, FileDigest, HEAD, HashingReader};

/// The longest head or list of digests that is read.
const TEXT_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A backup.
pub(crate) struct BackupReader<R: Read> {
    archive: Archive<GzDecoder<R>>,
}

impl<R: Read> BackupReader<R> {
    pub(crate) fn new(from: R) -> Self {
        Self { archive: Archive::new(GzDecoder::new(from)) }
    }

    /// What it is of, which is the first thing in it.
    pub(crate) fn head(mut self) -> io::Result<BackupHead> {
        let mut entries = self.archive.entries().map_err(|_| no_backup())?;
        let mut first = entries.next().ok_or_else(no_backup)?.map_err(|_| no_backup())?;
        if first.path().map_err(|_| no_backup())?.to_str() != Some(HEAD) {
            return Err(no_backup());
        }
        let head: BackupHead = serde_json::from_str(&text(&mut first)?).map_err(|_| no_backup())?;
        if head.format > FORMAT {
            return Err(invalid("the backup was made by a newer Gantry: upgrade this binary"));
        }
        Ok(head)
    }

    /// Hands everything but head and digests to `take`, which must read what it is given to its end, and compares all with
    /// the digests at the end.
    pub(crate) fn each(
        mut self,
        mut take: impl FnMut(&str, &mut dyn Read) -> io::Result<()>,
    ) -> io::Result<BackupDigests> {
        let mut seen: BTreeMap<String, FileDigest> = BTreeMap::new();
        let mut said = None;
        for entry in self.archive.entries()? {
            let mut entry = entry?;
            let name = entry.path()?.to_str().map(str::to_owned).ok_or_else(no_backup)?;
            if name == DIGESTS {
                said = Some(serde_json::from_str::<BackupDigests>(&text(&mut entry)?).map_err(|_| damaged(&name))?);
                break;
            }
            let mut content = HashingReader::new(&mut entry);
            if name == HEAD {
                io::copy(&mut content, &mut io::sink())?;
            } else {
                take(&name, &mut content)?;
            }
            if seen.insert(name.clone(), content.digest()).is_some() {
                return Err(damaged(&name));
            }
        }
        let said = said.ok_or_else(|| invalid("the backup ends too early: it was broken off, or cut"))?;
        let digests = compared(said, &seen)?;
        // What is between the files is in no digest, but in the checksum at the very end.
        let rest = io::copy(&mut self.archive.into_inner(), &mut io::sink());
        rest.map_err(|_| invalid("the backup is damaged: its checksum does not fit"))?;
        Ok(digests)
    }
}

fn compared(digests: BackupDigests, seen: &BTreeMap<String, FileDigest>) -> io::Result<BackupDigests> {
    if let Some((name, _)) = digests.files.iter().find(|(name, digest)| seen.get(*name) != Some(digest)) {
        return Err(damaged(name));
    }
    match seen.keys().find(|name| !digests.files.contains_key(*name)) {
        Some(name) => Err(damaged(name)),
        None => Ok(digests),
    }
}

fn text(from: &mut impl Read) -> io::Result<String> {
    let mut text = String::new();
    from.take(TEXT_BYTES_MAX).read_to_string(&mut text)?;
    Ok(text)
}

fn no_backup() -> io::Error {
    invalid("it is no backup of Gantry")
}

fn damaged(name: &str) -> io::Error {
    invalid(&format!("`{name}` in the backup is not what it was when it was written: the backup is damaged"))
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message.to_owned())
}
