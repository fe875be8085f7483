//! A number per principal: the how-manieth record of this tenant and subject a record is, so that a gap shows even to
//! somebody who sees the records of one principal only.
//!
//! The counts of at most [`PRINCIPALS_MAX`] principals are kept. When one more comes, all are forgotten and a new era
//! begins, in which everybody counts from 0 again. That is a rule about the lines alone, so whoever checks the log counts
//! along and comes to the same numbers.
//!
//! The counts are saved now and then (`principals.json`), with the root they belong to; after a crash the lines since then
//! are counted again.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::merkle::TreeHash;

/// The file's name.
pub(crate) const NAME: &str = "principals.json";
/// How many principals are counted at a time. One costs about a hundred bytes.
const PRINCIPALS_MAX: usize = 65_536;

/// A record's place among those of its principal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PrincipalTurn {
    pub(crate) era: u64,
    pub(crate) seq: u64,
}

/// The counts.
#[derive(Debug)]
pub(crate) struct PrincipalCounts {
    era: u64,
    max: usize,
    next: HashMap<Box<str>, u64>,
    /// How to take back what was counted since [`Self::begin`].
    undo: Option<Undo>,
}

#[derive(Debug, Default)]
struct Undo {
    before: Vec<(Box<str>, Option<u64>)>,
    /// The counts of the era that ended meanwhile; `before` is about them.
    ended: Option<HashMap<Box<str>, u64>>,
    eras: u64,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    size: u64,
    root: TreeHash,
    era: u64,
    next: HashMap<Box<str>, u64>,
}

impl Default for PrincipalCounts {
    fn default() -> Self {
        Self { era: 0, max: PRINCIPALS_MAX, next: HashMap::new(), undo: None }
    }
}

impl PrincipalCounts {
    /// The name under which a principal is counted. Neither part has a newline in it.
    pub(crate) fn name(tenant: &str, subject: &str) -> String {
        let mut name = String::with_capacity(tenant.len() + 1 + subject.len());
        Self::write_name(tenant, subject, &mut name);
        name
    }

    /// The same, in place of what stands in `name`.
    pub(crate) fn write_name(tenant: &str, subject: &str, name: &mut String) {
        name.clear();
        name.extend([tenant, "\n", subject]);
    }

    /// Counts one record.
    pub(crate) fn count(&mut self, name: &str) -> PrincipalTurn {
        if let Some(next) = self.next.get_mut(name) {
            let seq = *next;
            *next = seq.saturating_add(1);
            self.note(name, Some(seq));
            return PrincipalTurn { era: self.era, seq };
        }
        if self.next.len() >= self.max {
            let ended = std::mem::take(&mut self.next);
            self.era += 1;
            if let Some(undo) = &mut self.undo {
                undo.eras += 1;
                undo.ended.get_or_insert(ended);
            }
        }
        self.note(name, None);
        self.next.insert(name.into(), 1);
        PrincipalTurn { era: self.era, seq: 0 }
    }

    /// Believes a record about its place, and goes on from there.
    pub(crate) fn resume(&mut self, name: &str, turn: PrincipalTurn) {
        self.era = turn.era;
        self.next.insert(name.into(), turn.seq.saturating_add(1));
    }

    /// Is this one known?
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.next.contains_key(name)
    }

    /// From here on counting can be taken back.
    pub(crate) fn begin(&mut self) {
        self.undo = Some(Undo::default());
    }

    /// What was counted since [`Self::begin`] stands.
    pub(crate) fn commit(&mut self) {
        self.undo = None;
    }

    /// Takes back what was counted since [`Self::begin`].
    pub(crate) fn roll_back(&mut self) {
        let Some(undo) = self.undo.take() else { return };
        self.era -= undo.eras;
        if let Some(ended) = undo.ended {
            self.next = ended;
        }
        for (name, before) in undo.before.into_iter().rev() {
            match before {
                Some(count) => self.next.insert(name, count),
                None => self.next.remove(&name),
            };
        }
    }

    fn note(&mut self, name: &str, before: Option<u64>) {
        if let Some(undo) = self.undo.as_mut().filter(|undo| undo.ended.is_none())
            // What was before the first of several in a row is enough.
            && undo.before.last().is_none_or(|(last, _)| **last != *name)
        {
            undo.before.push((name.into(), before));
        }
    }

    /// Saves the counts after `size` records.
    pub(crate) fn save(&self, dir: &Path, size: u64, root: &TreeHash) -> io::Result<()> {
        let saved = Saved { size, root: *root, era: self.era, next: self.next.clone() };
        let path = dir.join(NAME);
        let new = path.with_extension("json.new");
        fs::write(&new, serde_json::to_vec(&saved)?)?;
        fs::rename(new, path)
    }

    /// The saved counts, and after how many records with which root they were saved. Counts that cannot be read are none.
    pub(crate) fn load(dir: &Path) -> Option<(Self, u64, TreeHash)> {
        let saved: Saved = serde_json::from_slice(&fs::read(dir.join(NAME)).ok()?).ok()?;
        let counts = Self { era: saved.era, next: saved.next, ..Self::default() };
        Some((counts, saved.size, saved.root))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counts: &mut PrincipalCounts, names: &[&str]) -> Vec<(u64, u64)> {
        names.iter().map(|name| counts.count(name)).map(|turn| (turn.era, turn.seq)).collect()
    }

    #[test]
    fn everybody_counts_from_nought_without_a_gap() {
        let mut counts = PrincipalCounts::default();
        assert_eq!(counted(&mut counts, &["a", "b", "a", "a"]), [(0, 0), (0, 0), (0, 1), (0, 2)]);
    }

    #[test]
    fn when_there_are_too_many_an_era_ends() {
        let mut counts = PrincipalCounts { max: 2, ..PrincipalCounts::default() };
        assert_eq!(counted(&mut counts, &["a", "b", "a", "c", "a"]), [(0, 0), (0, 0), (0, 1), (1, 0), (1, 0)]);
    }

    #[test]
    fn what_was_not_written_was_not_counted() {
        let mut counts = PrincipalCounts { max: 3, ..PrincipalCounts::default() };
        counted(&mut counts, &["a", "b", "a"]);
        for batch in [&["a", "c"][..], &["a", "a", "b", "a", "a"], &["c", "d", "a", "e", "f", "g", "h"], &[]] {
            counts.begin();
            counted(&mut counts, batch);
            counts.roll_back();
            assert_eq!((counts.era, counts.next.len(), counts.next["a"], counts.next["b"]), (0, 2, 2, 1), "{batch:?}");
        }
        counts.begin();
        counted(&mut counts, &["a"]);
        counts.commit();
        counts.roll_back();
        assert_eq!(counts.next["a"], 3);
    }

    #[test]
    fn saved_counts_come_back_and_broken_ones_are_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(PrincipalCounts::load(dir.path()).is_none());
        let mut counts = PrincipalCounts::default();
        counted(&mut counts, &["a", "a"]);
        counts.save(dir.path(), 2, &[5; 32]).unwrap();
        let (mut back, size, root) = PrincipalCounts::load(dir.path()).unwrap();
        assert_eq!((size, root, back.count("a").seq), (2, [5; 32], 2));
        fs::write(dir.path().join(NAME), "{").unwrap();
        assert!(PrincipalCounts::load(dir.path()).is_none());
    }
}
