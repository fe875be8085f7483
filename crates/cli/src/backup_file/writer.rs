//! Writing a backup: a compressed archive of files, with the digests of all of them at its end.

use std::io::{self, Read, Write};

use base::SaturatingFrom as _;
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

use super::{BackupDigests, BackupHead, DIGESTS, HEAD, HashingReader, TableDigest};

/// A backup that is being written.
pub(crate) struct BackupWriter<W: Write> {
    archive: Builder<GzEncoder<W>>,
    digests: BackupDigests,
}

impl<W: Write> BackupWriter<W> {
    /// Begins with what it is of.
    pub(crate) fn begin(to: W, head: &BackupHead) -> io::Result<Self> {
        let archive = Builder::new(GzEncoder::new(to, Compression::fast()));
        let mut writer = Self { archive, digests: BackupDigests::default() };
        writer.add_text(HEAD, &serde_json::to_string_pretty(head)?)?;
        Ok(writer)
    }

    /// Adds a file of so many bytes, which the content must have at least.
    pub(crate) fn add(&mut self, name: &str, content: impl Read, bytes: u64) -> io::Result<()> {
        let mut content = HashingReader::new(content.take(bytes));
        self.archive.append_data(&mut header(bytes), name, &mut content)?;
        let digest = content.digest();
        if digest.bytes != bytes {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("`{name}` became shorter while it was read"),
            ));
        }
        self.digests.files.insert(name.to_owned(), digest);
        Ok(())
    }

    /// Adds a small file.
    pub(crate) fn add_text(&mut self, name: &str, text: &str) -> io::Result<()> {
        self.add(name, text.as_bytes(), u64::saturating_from(text.len()))
    }

    /// Says what a table must be.
    pub(crate) fn table(&mut self, name: &str, digest: TableDigest) {
        self.digests.tables.insert(name.to_owned(), digest);
    }

    /// Ends with the digests. Without this a backup is none.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        let text = serde_json::to_string_pretty(&self.digests)?;
        let bytes = u64::saturating_from(text.len());
        self.archive.append_data(&mut header(bytes), DIGESTS, text.as_bytes())?;
        self.archive.into_inner()?.finish()
    }

    #[cfg(test)]
    pub(crate) fn broken_off(self) -> W {
        self.archive.into_inner().unwrap().finish().unwrap()
    }
}

fn header(bytes: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_size(bytes);
    header.set_mode(0o600);
    header
}
