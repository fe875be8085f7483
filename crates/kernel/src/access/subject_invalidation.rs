//! Of whom an authority outside has said that it decides otherwise now. (AUTH-011)
//!
//! Every such word has a number, and a subject has the number of the last word that named it. What is remembered about a call
//! is remembered under the highest number of everybody it concerns, so a later word about one of them makes it unreachable
//! and leaves what concerns nobody named where it is.
//!
//! Invariants
//! - NAM-1: a mark that was made before a word about one of its subjects is equal to none that is made after it.
//! - NAM-2: a mark of subjects that no word has named stays what it was, until everybody is named.
//! - NAM-3: no more than `subjects_max` subjects are held; a word that would make them more names everybody. That forgets
//!   too much, never too little.
//!
//! Not here: the memory itself (`decisions`), who says such words (`ports::change_bus`).

use std::sync::Arc;

use arc_swap::ArcSwap;
use contract::ids::Subject;

/// Subjects whose numbers are held.
const SUBJECTS_MAX: usize = 10_000;

/// What was said so far. Read without a lock.
#[derive(Debug)]
pub(super) struct SubjectInvalidations {
    said: ArcSwap<InvalidationState>,
    subjects_max: usize,
}

/// Round and subjects lie in one value: a round of before with subjects of after would be a mark that was in use once.
#[derive(Debug, Clone, Default)]
struct InvalidationState {
    /// How often everybody was named.
    round: u64,
    /// The number of the last word.
    word: u64,
    subjects: imbl::HashMap<Subject, u64>,
}

/// The state of things for those whom a decision concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct InvalidationMark {
    round: u64,
    word: u64,
}

impl SubjectInvalidations {
    pub(super) fn new() -> Self {
        Self::bounded(SUBJECTS_MAX)
    }

    fn bounded(subjects_max: usize) -> Self {
        Self { said: ArcSwap::default(), subjects_max }
    }

    /// The mark of what concerns these.
    pub(super) fn mark<'s>(&self, subjects: impl IntoIterator<Item = &'s Subject>) -> InvalidationMark {
        let said = self.said.load();
        // Mostly nobody was named at all.
        let word = if said.subjects.is_empty() {
            0
        } else {
            subjects.into_iter().filter_map(|subject| said.subjects.get(subject)).copied().max().unwrap_or(0)
        };
        InvalidationMark { round: said.round, word }
    }

    /// A word about these. Nobody in it means everybody. Answers whether it was everybody.
    pub(super) fn name(&self, subjects: &[Subject]) -> bool {
        let mut everybody = false;
        self.said.rcu(|said| {
            let mut next = InvalidationState::clone(said);
            next.word = next.word.saturating_add(1);
            // Looked at first: what is too much need not be taken in to be thrown away.
            if !subjects.is_empty() && subjects.len() <= self.subjects_max {
                next.subjects.extend(subjects.iter().map(|subject| (subject.clone(), next.word)));
                everybody = next.subjects.len() > self.subjects_max;
            } else {
                everybody = true;
            }
            if everybody {
                next.subjects = imbl::HashMap::default();
                next.round = next.round.saturating_add(1);
            }
            Arc::new(next)
        });
        everybody
    }

    /// A word about everybody.
    pub(super) fn name_everybody(&self) {
        self.name(&[]);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;

    /// Few enough that words name each other's subjects, and more than are held.
    const PEOPLE: u8 = 8;
    const HELD: usize = 5;

    fn person(number: u8) -> Subject {
        format!("did:example:{number}").parse().unwrap()
    }

    fn people(numbers: &BTreeSet<u8>) -> Vec<Subject> {
        numbers.iter().copied().map(person).collect()
    }

    #[test]
    fn a_word_changes_the_mark_of_whom_it_names_and_of_nobody_else() {
        let naming = SubjectInvalidations::new();
        let (ann, bob) = (person(1), person(2));
        let (of_ann, of_bob, of_both) = (naming.mark([&ann]), naming.mark([&bob]), naming.mark([&ann, &bob]));
        assert!(!naming.name(std::slice::from_ref(&ann)));
        assert_ne!(naming.mark([&ann]), of_ann);
        assert_eq!(naming.mark([&bob]), of_bob);
        assert_ne!(naming.mark([&bob, &ann]), of_both, "whoever handed on or is acted for counts as well");
    }

    #[test]
    fn a_word_about_nobody_and_one_about_too_many_are_about_everybody() {
        for subjects in [0, HELD + 1] {
            let naming = SubjectInvalidations::bounded(HELD);
            let before = naming.mark([&person(200)]);
            let named: Vec<Subject> = (0..subjects).map(|n| person(u8::try_from(n).unwrap())).collect();
            assert!(naming.name(&named));
            assert_ne!(naming.mark([&person(200)]), before, "{subjects} named");
        }
    }

    #[test]
    fn what_is_held_is_bounded_however_many_are_named() {
        let naming = SubjectInvalidations::bounded(HELD);
        for n in 0..u8::MAX {
            naming.name(&[person(n)]);
            assert!(naming.said.load().subjects.len() <= HELD);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn nothing_stale_survives_a_naming_and_what_concerns_others_does(
            words in prop::collection::vec((prop::collection::btree_set(0..PEOPLE, 1..4), prop::collection::btree_set(0..PEOPLE, 0..7)), 1..40),
        ) {
            let naming = SubjectInvalidations::bounded(HELD);
            // Of each mark: after how many words a decision was remembered under it, and whom it concerns.
            let mut remembered: HashMap<(BTreeSet<u8>, InvalidationMark), usize> = HashMap::new();
            let mut said: Vec<(BTreeSet<u8>, bool)> = Vec::new();
            for (concerned, named) in words {
                remembered.insert((concerned.clone(), naming.mark(&people(&concerned))), said.len());
                let everybody = naming.name(&people(&named));
                prop_assert!(!named.is_empty() || everybody);
                said.push((named, everybody));
                for ((concerned, mark), words_before) in &remembered {
                    let since = said.get(*words_before..).unwrap_or_default();
                    let void = since.iter().any(|(named, everybody)| *everybody || !named.is_disjoint(concerned));
                    let reachable = naming.mark(&people(concerned)) == *mark;
                    prop_assert_eq!(reachable, !void, "{:?} after {:?}", concerned, since);
                }
            }
        }
    }
}
