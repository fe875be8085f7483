//! Proofs: that a leaf is in a tree, that a tree is the beginning of another, and the checks of both.
//!
//! Making a proof asks [`TreeNodes`] for complete subtrees only; the ragged right edge is put together from them. The checks
//! follow RFC 9162 §2.1.3.2 and §2.1.4.2, which say the same as RFC 6962 in a form that can be read as a program.

use std::io;

use super::{TreeFrontier, TreeHash, node_hash};

/// What [`TreeNodes`] says of a subtree it does not have.
pub const MISSING: &str = "the tree has no such subtree";

/// Complete subtrees of a tree.
pub trait TreeNodes {
    /// The hash of the `index`-th complete subtree of 2^`level` leaves.
    fn node(&self, level: u32, index: u64) -> io::Result<TreeHash>;
}

/// The edge of the tree of the first `size` leaves.
fn frontier(nodes: &impl TreeNodes, size: u64) -> io::Result<TreeFrontier> {
    let peaks = subtrees(0, size).map(|(level, index)| nodes.node(level, index)).collect::<io::Result<Vec<_>>>()?;
    TreeFrontier::from_peaks(size, peaks).ok_or_else(missing)
}

/// The edge, and with it the root, of the tree of the first `size` leaves.
pub fn root_of(nodes: &impl TreeNodes, size: u64) -> io::Result<TreeFrontier> {
    frontier(nodes, size)
}

/// The hashes that prove leaf `index` to be in the tree of the first `size` leaves, from the leaf upwards.
pub fn inclusion_path(nodes: &impl TreeNodes, index: u64, size: u64) -> io::Result<Vec<TreeHash>> {
    if index >= size {
        return Err(missing());
    }
    let (mut start, mut end) = (0, size);
    let mut path = Vec::new();
    // From the root downwards: at each split the half without the leaf belongs to the path.
    while end - start > 1 {
        let middle = start + split(end - start);
        if index < middle {
            path.push(hash_of(nodes, middle, end)?);
            end = middle;
        } else {
            path.push(hash_of(nodes, start, middle)?);
            start = middle;
        }
    }
    path.reverse();
    Ok(path)
}

/// The hashes that prove the tree of the first `old` leaves to be the beginning of that of the first `new` ones.
pub fn consistency_path(nodes: &impl TreeNodes, old: u64, new: u64) -> io::Result<Vec<TreeHash>> {
    if old > new {
        return Err(missing());
    }
    let mut path = Vec::new();
    if old == 0 || old == new {
        return Ok(path);
    }
    let (mut start, mut end) = (0, new);
    while end != old {
        let middle = start + split(end - start);
        if old <= middle {
            path.push(hash_of(nodes, middle, end)?);
            end = middle;
        } else {
            path.push(hash_of(nodes, start, middle)?);
            start = middle;
        }
    }
    if start != 0 {
        // The old tree is no subtree of the new one, so the checker needs what is left of it.
        path.push(hash_of(nodes, start, end)?);
    }
    path.reverse();
    Ok(path)
}

/// The complete subtrees that stand after leaf `from` in the tree of the first `size` leaves, in order, with their levels:
/// who has the edge at `from` can go on with them to the root.
pub fn range_tail(nodes: &impl TreeNodes, from: u64, size: u64) -> io::Result<Vec<(u32, TreeHash)>> {
    subtrees(from, size).map(|(level, index)| Ok((level, nodes.node(level, index)?))).collect()
}

/// Is `leaf` the leaf `index` of the tree of `size` leaves with this root?
pub fn verify_inclusion(index: u64, size: u64, leaf: &TreeHash, path: &[TreeHash], root: &TreeHash) -> bool {
    if index >= size {
        return false;
    }
    let (mut place, mut last) = (index, size - 1);
    let mut hash = *leaf;
    for step in path {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            hash = node_hash(step, &hash);
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            hash = node_hash(&hash, step);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    last == 0 && hash == *root
}

/// Is the tree of `old` leaves the beginning of that of `new` leaves? Every tree begins with the empty one.
pub fn verify_consistency(old: u64, new: u64, old_root: &TreeHash, new_root: &TreeHash, path: &[TreeHash]) -> bool {
    if old == new {
        return path.is_empty() && old_root == new_root;
    }
    if old == 0 {
        return path.is_empty();
    }
    if old > new {
        return false;
    }
    let mut steps = path.iter();
    // A whole subtree is its own first step.
    let first = if old.is_power_of_two() { Some(old_root) } else { steps.next() };
    let Some(first) = first else { return false };
    let (mut place, mut last) = (old - 1, new - 1);
    while place & 1 == 1 {
        (place, last) = (place >> 1, last >> 1);
    }
    let (mut of_old, mut of_new) = (*first, *first);
    for step in steps {
        if last == 0 {
            return false;
        }
        if place & 1 == 1 || place == last {
            of_old = node_hash(step, &of_old);
            of_new = node_hash(step, &of_new);
            while place & 1 == 0 && place != 0 {
                (place, last) = (place >> 1, last >> 1);
            }
        } else {
            of_new = node_hash(&of_new, step);
        }
        (place, last) = (place >> 1, last >> 1);
    }
    last == 0 && of_old == *old_root && of_new == *new_root
}

/// The largest power of two below `length`, which is at least 2.
fn split(length: u64) -> u64 {
    1 << (length - 1).ilog2()
}

/// The hash over leaves `start..end`, which are a subtree of RFC 6962's recursion.
fn hash_of(nodes: &impl TreeNodes, start: u64, end: u64) -> io::Result<TreeHash> {
    let parts = subtrees(start, end).map(|(level, index)| nodes.node(level, index)).collect::<io::Result<Vec<_>>>()?;
    let mut parts = parts.iter().rev();
    let last = parts.next().ok_or_else(missing)?;
    Ok(parts.fold(*last, |right, left| node_hash(left, &right)))
}

/// The largest complete subtrees that make up leaves `start..end`, in order.
fn subtrees(start: u64, end: u64) -> impl Iterator<Item = (u32, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let rest = end.checked_sub(at).filter(|rest| *rest > 0)?;
        let level = rest.ilog2().min(at.trailing_zeros());
        let index = at >> level;
        at += 1 << level;
        Some((level, index))
    })
}

fn missing() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, MISSING)
}
