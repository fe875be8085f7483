//! A seal: the small file beside compiled code that says what the code was made from, and lets anybody see that it is still
//! the file that was written.
//!
//! Reading all of the code to compare its digest takes longer than loading it. So the seal also has what the file system
//! says of the file: every write to it, every replacement and every restored backup shows there, and then the digest
//! decides.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;

use contract::canonical::Digest;

/// What a seal starts with; the number changes with the layout.
const MAGIC: &[u8; 8] = b"GNTWASM2";
/// Magic, digest of the component, hash of the engine.
const ORIGIN_BYTES: usize = 8 + 32 + 8;
const DIGEST_BYTES: usize = 32;
/// Device, inode, size, and the two times.
const STAMP_BYTES: usize = 7 * 8;
/// Every seal is this long.
pub(super) const SEAL_BYTES: usize = ORIGIN_BYTES + DIGEST_BYTES + STAMP_BYTES;

/// What compiled code was made from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'d> {
    pub(super) source: &'d Digest,
    /// Of everything compiled code depends on beside its source.
    pub(super) engine_hash: u64,
}

/// The parts of a seal that belongs to an origin.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Seal {
    digest: [u8; DIGEST_BYTES],
    stamp: [u8; STAMP_BYTES],
}

impl Seal {
    pub(super) fn new(digest: &Digest, file: &Metadata) -> Self {
        Self { digest: *digest.as_bytes(), stamp: stamp(file) }
    }

    pub(super) fn written(&self, origin: Origin<'_>) -> Vec<u8> {
        [&*start(origin), &self.digest, &self.stamp].concat()
    }

    /// `None`: not a seal, or one of something else.
    pub(super) fn read(bytes: &[u8], origin: Origin<'_>) -> Option<Self> {
        let (digest, stamp) = bytes.strip_prefix(&*start(origin))?.split_at_checked(DIGEST_BYTES)?;
        Some(Self { digest: digest.try_into().ok()?, stamp: stamp.try_into().ok()? })
    }

    /// The file has not been touched since it was sealed.
    pub(super) fn is_intact_on(&self, file: &Metadata) -> bool {
        self.stamp == stamp(file)
    }

    /// This is the code that was sealed.
    pub(super) fn covers(&self, code: &[u8]) -> bool {
        self.digest == *Digest::of_bytes(code).as_bytes()
    }
}

fn start(origin: Origin<'_>) -> Vec<u8> {
    [MAGIC.as_slice(), origin.source.as_bytes(), &origin.engine_hash.to_be_bytes()].concat()
}

fn stamp(file: &Metadata) -> [u8; STAMP_BYTES] {
    let times = [file.mtime(), file.mtime_nsec(), file.ctime(), file.ctime_nsec()].map(i64::cast_unsigned);
    let mut stamp = [0; STAMP_BYTES];
    let numbers = [file.dev(), file.ino(), file.size()].into_iter().chain(times);
    for (slot, number) in stamp.chunks_exact_mut(8).zip(numbers) {
        slot.copy_from_slice(&number.to_be_bytes());
    }
    stamp
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seal_is_read_back_for_its_own_origin_only() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let (source, other) = (Digest::of_bytes(b"source"), Digest::of_bytes(b"other"));
        let origin = Origin { source: &source, engine_hash: 7 };
        let seal = Seal::new(&Digest::of_bytes(b"code"), &file.as_file().metadata().unwrap());
        let written = seal.written(origin);
        assert_eq!(written.len(), SEAL_BYTES);
        assert_eq!(Seal::read(&written, origin), Some(Seal { ..seal }));
        assert_eq!(Seal::read(&written, Origin { source: &other, ..origin }), None);
        assert_eq!(Seal::read(&written, Origin { engine_hash: 8, ..origin }), None);
        for length in [0, 1, ORIGIN_BYTES, SEAL_BYTES - 1] {
            assert_eq!(Seal::read(&written[..length], origin), None, "{length}");
        }
        assert_eq!(Seal::read(&[written, vec![0]].concat(), origin), None);
    }

    #[test]
    fn a_file_that_was_touched_is_not_intact_and_its_code_is_still_known() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let before = file.as_file().metadata().unwrap();
        let seal = Seal::new(&Digest::of_bytes(b"code"), &before);
        assert!(seal.is_intact_on(&file.as_file().metadata().unwrap()));
        std::fs::write(file.path(), b"code").unwrap();
        assert!(!seal.is_intact_on(&file.as_file().metadata().unwrap()));
        assert!(seal.covers(b"code"));
        assert!(!seal.covers(b"cod3"));
    }
}
