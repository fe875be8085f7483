//! The right edge of a tree: all that is needed to go on and to tell the root.

use super::{Hash, empty_root, node_hash};

/// The complete subtrees of a growing tree, the largest first: one per binary digit 1 of its size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// The edge of a tree of `size` leaves; `None` if the number of subtrees is not that of such a tree.
    pub fn from_peaks(size: u64, peaks: Vec<Hash>) -> Option<Self> {
        (peaks.len() == size.count_ones() as usize).then_some(Self { size, peaks })
    }

    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The complete subtrees, the largest first.
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }

    /// Adds a leaf. `made` is told the leaf and every subtree it completes, in the order of a tree file.
    pub fn push(&mut self, leaf: Hash, made: impl FnMut(&Hash)) {
        self.join(0, leaf, made);
    }

    /// Adds a complete subtree of 2^`level` leaves; `false` if it does not fit here.
    pub fn push_subtree(&mut self, level: u32, hash: Hash) -> bool {
        let fits =
            level < u64::BITS && self.size.trailing_zeros() >= level && self.size.checked_add(1 << level).is_some();
        if fits {
            self.join(level, hash, |_| ());
        }
        fits
    }

    fn join(&mut self, level: u32, mut hash: Hash, mut made: impl FnMut(&Hash)) {
        made(&hash);
        let added = 1_u64 << level;
        let mut carry = added;
        while self.size & carry != 0 {
            let Some(left) = self.peaks.pop() else { break };
            hash = node_hash(&left, &hash);
            made(&hash);
            carry <<= 1;
        }
        self.peaks.push(hash);
        self.size = self.size.saturating_add(added);
    }

    /// The root of the tree as it is.
    pub fn root(&self) -> Hash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return empty_root() };
        peaks.fold(*last, |right, left| node_hash(left, &right))
    }
}
