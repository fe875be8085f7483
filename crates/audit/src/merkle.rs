//! The Merkle tree of RFC 6962 (§2.1): hashing, growing, proving, checking. Pure: no file, no clock.
//!
//! A leaf is hashed with a 0 before it and a node with a 1, so that no leaf can be passed off as a node. The tree of `n`
//! leaves is the complete trees of the binary digits of `n`, largest first, joined from the right. Complete subtrees never
//! change, which is why [`TreeFrontier`] grows in constant time on average and why [`TreeNodes`] can be a file that is only
//! appended to.
//!
//! Not here: where nodes are kept (`tree_file`), who signs roots (`note`).

use sha2::{Digest as _, Sha256};

mod frontier;
mod proof;

pub use frontier::TreeFrontier;
pub use proof::{
    MISSING, TreeNodes, consistency_path, inclusion_path, range_tail, root_of, verify_consistency, verify_inclusion,
};

/// A SHA-256 hash of a leaf or a node.
pub type TreeHash = [u8; 32];

/// The hash of a leaf's bytes.
pub fn leaf_hash(bytes: &[u8]) -> TreeHash {
    let mut hasher = Sha256::new();
    hasher.update([0]);
    hasher.update(bytes);
    hasher.finalize().into()
}

/// The hash of two subtrees side by side.
pub fn node_hash(left: &TreeHash, right: &TreeHash) -> TreeHash {
    let mut bytes = [1; 65];
    let (head, tail) = bytes.split_at_mut(33);
    if let Some(place) = head.get_mut(1..) {
        place.copy_from_slice(left);
    }
    tail.copy_from_slice(right);
    Sha256::digest(bytes).into()
}

/// The root of a tree without leaves.
pub fn empty_root() -> TreeHash {
    Sha256::digest([]).into()
}

#[cfg(test)]
mod tests;
