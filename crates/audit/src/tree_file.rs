//! `tree.bin`: the hashes of all complete subtrees, in the order in which they became complete.
//!
//! A leaf is followed by the subtrees it completes, so the file is only ever appended to, the place of every subtree is
//! arithmetic, and the file of `n` leaves has exactly `2n - ones(n)` hashes of 32 bytes. It proves nothing by itself: it is
//! made from the lines and made again if it is missing, short or does not lead to the signed root.
//!
//! Invariants
//! - TREE-1: the hashes of the first `n` leaves never change, so cutting back to `n` leaves is cutting the file.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use crate::merkle::{MISSING, TreeHash, TreeNodes};
use crate::room;

/// The file's name.
pub(crate) const NAME: &str = "tree.bin";
/// Under which it is made again.
const NEW_NAME: &str = "tree.bin.new";
const HASH_BYTES: u64 = 32;

/// How much of the file is read at once by who reads leaf after leaf.
const WINDOW_BYTES: usize = 64 * 1024;

/// The hashes of a log.
#[derive(Debug)]
pub(crate) struct TreeFile {
    file: File,
}

/// Reads leaf after leaf, many at once. One out of order costs a read of its own.
#[derive(Debug, Default)]
pub(crate) struct LeafReader {
    /// Where in the file the window begins.
    start: u64,
    window: Vec<u8>,
}

impl TreeFile {
    /// Opens it for appending, making it if it is not there.
    pub(crate) fn open(dir: &Path) -> io::Result<Self> {
        let path = dir.join(NAME);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        Ok(Self { file })
    }

    /// Begins another one beside it, which takes its place once it is whole.
    pub(crate) fn begin_anew(dir: &Path) -> io::Result<Self> {
        let path = dir.join(NEW_NAME);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok(Self { file })
    }

    /// Takes the place of the former one.
    pub(crate) fn put_in_place(&self, dir: &Path) -> io::Result<()> {
        self.sync()?;
        fs::rename(dir.join(NEW_NAME), dir.join(NAME))
    }

    /// Opens it for reading; `None` if it is not there.
    pub(crate) fn open_to_read(dir: &Path) -> io::Result<Option<Self>> {
        match File::open(dir.join(NAME)) {
            Ok(file) => Ok(Some(Self { file })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// How many leaves it has, as far as its length says: the hashes of a leaf that are not all there do not count.
    pub(crate) fn leaves(&self) -> io::Result<u64> {
        let hashes = self.file.metadata()?.len() / HASH_BYTES;
        // 2n - ones(n) grows with n, and n is at most a little more than half of it.
        let (mut low, mut high) = (0, hashes / 2 + u64::from(u64::BITS));
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if hashes_of(middle) <= hashes { low = middle } else { high = middle - 1 }
        }
        Ok(low)
    }

    /// Writes the hashes that came with the leaves after the first `leaves`.
    pub(crate) fn append(&self, leaves: u64, hashes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(hashes, hashes_of(leaves) * HASH_BYTES)
    }

    /// Takes room for the hashes of leaves to come. False if there is none.
    pub(crate) fn make_room(&self, leaves: u64) -> io::Result<bool> {
        room::take(&self.file, hashes_of(leaves) * HASH_BYTES, room::TREE_BYTES)
    }

    /// Cuts back to the first `leaves`.
    pub(crate) fn cut(&self, leaves: u64) -> io::Result<()> {
        self.file.set_len(hashes_of(leaves) * HASH_BYTES)
    }

    /// Makes it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }
}

impl TreeNodes for TreeFile {
    fn node(&self, level: u32, index: u64) -> io::Result<TreeHash> {
        let last_leaf =
            index.checked_add(1).and_then(|next| next.checked_mul(1_u64.checked_shl(level)?)?.checked_sub(1));
        let last_leaf = last_leaf.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, MISSING))?;
        let place = hashes_of(last_leaf) + u64::from(level);
        let mut hash = TreeHash::default();
        self.file.read_exact_at(&mut hash, place * HASH_BYTES)?;
        Ok(hash)
    }
}

impl LeafReader {
    /// The hash of a leaf; none if the file does not have it.
    pub(crate) fn leaf(&mut self, tree: &TreeFile, index: u64) -> Option<TreeHash> {
        let place = index.checked_mul(2)?.checked_sub(u64::from(index.count_ones()))?.checked_mul(HASH_BYTES)?;
        if let Some(hash) = self.seen(place) {
            return Some(hash);
        }
        let end = self.start.saturating_add(self.window.len() as u64);
        // Just after the window, or somewhere else altogether?
        if place < end || place - end > WINDOW_BYTES as u64 {
            return tree.node(0, index).ok();
        }
        self.start = place;
        self.window.resize(WINDOW_BYTES, 0);
        let mut read = 0;
        while let Some(room) = self.window.get_mut(read..).filter(|room| !room.is_empty()) {
            match tree.file.read_at(room, place.saturating_add(read as u64)) {
                Ok(0) | Err(_) => break,
                Ok(more) => read += more,
            }
        }
        self.window.truncate(read);
        self.seen(place)
    }

    fn seen(&self, place: u64) -> Option<TreeHash> {
        let offset = usize::try_from(place.checked_sub(self.start)?).ok()?;
        self.window.get(offset..offset.checked_add(size_of::<TreeHash>())?)?.try_into().ok()
    }
}

/// The number of hashes of a tree of `leaves` leaves.
fn hashes_of(leaves: u64) -> u64 {
    leaves * 2 - u64::from(leaves.count_ones())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::merkle::{TreeFrontier, inclusion_path, leaf_hash, root_of, verify_inclusion};

    #[test]
    fn what_was_appended_leads_to_the_root_and_proves_every_leaf() {
        let dir = tempfile::tempdir().unwrap();
        let tree = TreeFile::open(dir.path()).unwrap();
        let mut frontier = TreeFrontier::default();
        for n in 0..200_u64 {
            assert_eq!(tree.leaves().unwrap(), n);
            let mut made = Vec::new();
            frontier.push(leaf_hash(&n.to_be_bytes()), |hash| made.extend_from_slice(hash));
            tree.append(n, &made).unwrap();
            assert_eq!(root_of(&tree, n + 1).unwrap(), frontier);
        }
        for n in 0..200_u64 {
            let path = inclusion_path(&tree, n, 200).unwrap();
            assert!(verify_inclusion(n, 200, &leaf_hash(&n.to_be_bytes()), &path, &frontier.root()));
        }
        let mut leaves = LeafReader::default();
        for n in (0..200_u64).chain([0, 199, 7, 8, 150]) {
            assert_eq!(leaves.leaf(&tree, n), Some(leaf_hash(&n.to_be_bytes())), "{n}");
        }
        assert!(leaves.leaf(&tree, 200).is_none() && leaves.leaf(&tree, u64::MAX).is_none());
        assert!(tree.node(0, 200).is_err());
        assert!(tree.node(9, 0).is_err());
        assert!(tree.node(64, 1).is_err());
    }

    #[test]
    fn a_leaf_whose_hashes_are_not_all_there_does_not_count() {
        let dir = tempfile::tempdir().unwrap();
        let tree = TreeFile::open(dir.path()).unwrap();
        for (bytes, leaves) in [(0, 0), (31, 0), (32, 1), (64, 1), (95, 1), (96, 2), (128, 3), (192, 3), (224, 4)] {
            tree.file.set_len(bytes).unwrap();
            assert_eq!(tree.leaves().unwrap(), leaves, "{bytes} bytes");
        }
        tree.cut(2).unwrap();
        assert_eq!(tree.file.metadata().unwrap().len(), 96);
        assert!(TreeFile::open_to_read(&dir.path().join("none")).unwrap().is_none());
    }
}
