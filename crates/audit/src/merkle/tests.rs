//! The tree against the public vectors, against a recursion written straight from RFC 6962, and against mutation.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;
use serde_json::Value;

use super::*;

const ROWS: &str = include_str!("../../testdata/merkle_dev.jsonl");

/// All leaves, hashed anew for every question: slow, and without a doubt.
struct Naive(Vec<TreeHash>);

impl Naive {
    fn of(size: u64) -> Self {
        Self((0..size).map(|n| leaf_hash(&n.to_be_bytes())).collect())
    }
}

impl TreeNodes for Naive {
    fn node(&self, level: u32, index: u64) -> io::Result<TreeHash> {
        let start = usize::try_from(index << level).unwrap();
        Ok(by_the_book(&self.0[start..start + (1 << level)]))
    }
}

/// MTH of RFC 6962 §2.1.
fn by_the_book(leaves: &[TreeHash]) -> TreeHash {
    match leaves {
        [] => empty_root(),
        [one] => *one,
        many => {
            let split = many.len().next_power_of_two() / 2;
            node_hash(&by_the_book(&many[..split]), &by_the_book(&many[split..]))
        }
    }
}

fn hash(value: &Value) -> Option<TreeHash> {
    STANDARD.decode(value.as_str()?).ok()?.try_into().ok()
}

#[test]
fn the_public_vectors_are_judged_as_their_authors_say() {
    let mut judged = 0;
    for row in ROWS.lines() {
        let row: Value = serde_json::from_str(row).unwrap();
        let number = |name: &str| row[name].as_u64().unwrap();
        // A hash of another length is no hash.
        let path: Option<Vec<TreeHash>> =
            row["proof"].as_array().map_or(Some(Vec::new()), |path| path.iter().map(hash).collect());
        let holds = match row["kind"].as_str().unwrap() {
            "inclusion" => match (path, hash(&row["leafHash"]), hash(&row["root"])) {
                (Some(path), Some(leaf), Some(root)) => {
                    verify_inclusion(number("leafIdx"), number("treeSize"), &leaf, &path, &root)
                }
                _ => false,
            },
            _ => match (path, hash(&row["root1"]), hash(&row["root2"])) {
                (Some(path), Some(old), Some(new)) => {
                    verify_consistency(number("size1"), number("size2"), &old, &new, &path)
                }
                _ => false,
            },
        };
        assert_eq!(holds, row["wantErr"] != true, "{}", row["id"]);
        judged += 1;
    }
    assert_eq!(judged, 49);
}

#[test]
fn known_hashes_are_met() {
    let hex = |hash: TreeHash| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    assert_eq!(hex(empty_root()), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    assert_eq!(hex(leaf_hash(b"")), "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d");
    assert_ne!(leaf_hash(&[[7; 32], [8; 32]].concat()), node_hash(&[7; 32], &[8; 32]), "a leaf is never a node");
}

#[test]
fn a_growing_tree_has_the_root_of_the_book_at_every_size() {
    let mut frontier = TreeFrontier::default();
    let mut made = 0;
    let all = Naive::of(130);
    for size in 0..=130 {
        assert_eq!(frontier.root(), by_the_book(&all.0[..size]));
        assert_eq!(root_of(&all, size as u64).unwrap(), frontier);
        assert_eq!(made, 2 * size - size.count_ones() as usize, "as many hashes as a tree file has");
        if let Some(leaf) = all.0.get(size) {
            frontier.push(*leaf, |_| made += 1);
        }
    }
}

#[test]
fn a_range_goes_on_to_the_root_with_what_stands_after_it() {
    let all = Naive::of(77);
    for (from, to, size) in [(0, 77, 77), (0, 0, 77), (5, 9, 77), (64, 65, 70), (13, 13, 14), (1, 76, 76)] {
        let mut edge = root_of(&all, from).unwrap();
        for leaf in &all.0[usize::try_from(from).unwrap()..usize::try_from(to).unwrap()] {
            edge.push(*leaf, |_| ());
        }
        for (level, hash) in range_tail(&all, to, size).unwrap() {
            assert!(edge.push_subtree(level, hash));
        }
        assert_eq!(edge.root(), root_of(&all, size).unwrap().root(), "{from}..{to} of {size}");
    }
    let mut edge = root_of(&all, 3).unwrap();
    assert!(!edge.push_subtree(1, [0; 32]), "three leaves are no place for a pair");
    assert!(!edge.push_subtree(64, [0; 32]));
    assert_eq!(TreeFrontier::from_peaks(3, vec![[0; 32]]), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_leaf_is_proven_and_no_change_of_the_proof_is(
        size in 1_u64..300, at in any::<prop::sample::Index>(), bit in 0_usize..256, step in any::<prop::sample::Index>(),
        other in 0_u64..400,
    ) {
        let all = Naive::of(size);
        let index = at.index(usize::try_from(size).unwrap()) as u64;
        let leaf = all.0[usize::try_from(index).unwrap()];
        let root = root_of(&all, size).unwrap().root();
        let path = inclusion_path(&all, index, size).unwrap();
        prop_assert!(verify_inclusion(index, size, &leaf, &path, &root));
        let flipped = |hash: &TreeHash| { let mut hash = *hash; hash[bit / 8] ^= 1 << (bit % 8); hash };
        prop_assert!(!verify_inclusion(index, size, &flipped(&leaf), &path, &root));
        prop_assert!(!verify_inclusion(index, size, &leaf, &path, &flipped(&root)));
        prop_assert!(other == index || !verify_inclusion(other, size, &leaf, &path, &root));
        // Another size may ask for the same steps, so a size is proven by the signature over it and the root, and here
        // only where the number of steps or their sides differ.
        if inclusion_path(&Naive::of(other.max(1)), index.min(other.max(1) - 1), other.max(1)).unwrap().len() != path.len() {
            prop_assert!(!verify_inclusion(index, other, &leaf, &path, &root));
        }
        let mut longer = path.clone();
        longer.push(root);
        prop_assert!(!verify_inclusion(index, size, &leaf, &longer, &root));
        if !path.is_empty() {
            let step = step.index(path.len());
            let mut changed = path.clone();
            changed[step] = flipped(&changed[step]);
            prop_assert!(!verify_inclusion(index, size, &leaf, &changed, &root));
            let mut shorter = path;
            shorter.remove(step);
            prop_assert!(!verify_inclusion(index, size, &leaf, &shorter, &root));
        }
    }

    #[test]
    fn every_beginning_is_proven_and_no_change_of_the_proof_is(
        new in 1_u64..300, at in any::<prop::sample::Index>(), bit in 0_usize..256, step in any::<prop::sample::Index>(),
    ) {
        let all = Naive::of(new);
        let old = at.index(usize::try_from(new).unwrap()) as u64 + 1;
        let (old_root, new_root) = (root_of(&all, old).unwrap().root(), root_of(&all, new).unwrap().root());
        let path = consistency_path(&all, old, new).unwrap();
        prop_assert!(verify_consistency(old, new, &old_root, &new_root, &path));
        let flipped = |hash: &TreeHash| { let mut hash = *hash; hash[bit / 8] ^= 1 << (bit % 8); hash };
        prop_assert!(!verify_consistency(old, new, &flipped(&old_root), &new_root, &path));
        prop_assert!(!verify_consistency(old, new, &old_root, &flipped(&new_root), &path));
        prop_assert!(!verify_consistency(new + 1, new, &old_root, &new_root, &path));
        let mut longer = path.clone();
        longer.push(new_root);
        prop_assert!(!verify_consistency(old, new, &old_root, &new_root, &longer));
        if !path.is_empty() {
            let step = step.index(path.len());
            let mut changed = path.clone();
            changed[step] = flipped(&changed[step]);
            prop_assert!(!verify_consistency(old, new, &old_root, &new_root, &changed));
            let mut shorter = path;
            shorter.remove(step);
            prop_assert!(!verify_consistency(old, new, &old_root, &new_root, &shorter));
        }
    }
}
