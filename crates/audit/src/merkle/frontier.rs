//! The right edge of a tree: all that is needed to go on and to tell the root.

use super::{TreeHash, empty_root, node_hash};

/// The complete subtrees of a growing tree, the largest first: one per binary digit 1 of its size.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TreeFrontier {
    size: u64,
    peaks: Vec<TreeHash>,
}

impl TreeFrontier {
    /// The edge of a tree of `size` leaves; `None` if the number of subtrees is not that of such a tree.
    pub fn from_peaks(size: u64, peaks: Vec<TreeHash>) -> Option<Self> {
        (peaks.len() == size.count_ones() as usize).then_some(Self { size, peaks })
    }

    /// How many leaves there are.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The complete subtrees, the largest first.
    pub fn peaks(&self) -> &[TreeHash] {
        &self.peaks
    }

    /// Adds a leaf. `made` is told the leaf and every subtree it completes, in the order of a tree file.
    pub fn push(&mut self, leaf: TreeHash, made: impl FnMut(&TreeHash)) {
        self.join(0, leaf, made);
    }

    /// Adds a complete subtree of 2^`level` leaves; `false` if it does not fit here.
    pub fn push_subtree(&mut self, level: u32, hash: TreeHash) -> bool {
        let fits =
            level < u64::BITS && self.size.trailing_zeros() >= level && self.size.checked_add(1 << level).is_some();
        if fits {
            self.join(level, hash, |_| ());
        }
        fits
    }

    fn join(&mut self, level: u32, mut hash: TreeHash, mut made: impl FnMut(&TreeHash)) {
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
    pub fn root(&self) -> TreeHash {
        let mut peaks = self.peaks.iter().rev();
        let Some(last) = peaks.next() else { return empty_root() };
        peaks.fold(*last, |right, left| node_hash(left, &right))
    }
}
