//! What has been counted already: a bounded memory, by counter and digest of the text.
//!
//! The key is the text itself, so a change of a tool needs no invalidation (LAZY-008, REG-023): what changed has another
//! digest, and what did not is still right. The same definition in two details is two texts. At the bound the oldest
//! count is forgotten, which costs a count and no correctness.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use base::MutexExt as _;
use contract::canonical::Digest;

use crate::counter::{CounterName, TokenCounter};

/// Counts that are kept: three details and a line for each of four thousand tools, about 2 MB.
const COUNTS_MAX: usize = 16_384;

/// Remembers counts.
#[derive(Debug)]
pub struct CountMemo {
    counts_max: usize,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    counts: HashMap<(CounterName, Digest), usize>,
    oldest_first: VecDeque<(CounterName, Digest)>,
}

impl Default for CountMemo {
    fn default() -> Self {
        Self::with_capacity(COUNTS_MAX)
    }
}

impl CountMemo {
    /// A memory for this many counts.
    pub fn with_capacity(counts_max: usize) -> Self {
        Self { counts_max, known: Mutex::default() }
    }

    /// The tokens of `text` by `counter`, counted only if they are not known.
    pub fn count(&self, counter: &dyn TokenCounter, text: &str) -> usize {
        let key = (counter.name(), Digest::of_bytes(text.as_bytes()));
        if let Some(tokens) = self.with(|known| known.counts.get(&key).copied()) {
            return tokens;
        }
        // Outside of the lock: two who count the same text at once get the same number.
        let tokens = counter.count(text);
        self.with(|known| {
            if known.counts.insert(key, tokens).is_none() {
                known.oldest_first.push_back(key);
            }
            while known.counts.len() > self.counts_max {
                let Some(oldest) = known.oldest_first.pop_front() else { break };
                known.counts.remove(&oldest);
            }
        });
        tokens
    }

    /// How many counts are known.
    pub fn len(&self) -> usize {
        self.with(|known| known.counts.len())
    }

    /// Is none known?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn with<T>(&self, work: impl FnOnce(&mut Known) -> T) -> T {
        // Whoever panicked here left numbers that are right.
        work(&mut self.known.lock_unpoisoned())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Tally(AtomicUsize);

    impl TokenCounter for Tally {
        fn name(&self) -> CounterName {
            CounterName::O200kBase
        }
        fn count(&self, text: &str) -> usize {
            self.0.fetch_add(1, Ordering::SeqCst);
            text.len()
        }
    }

    #[test]
    fn a_text_is_counted_once_and_the_oldest_is_forgotten_first() {
        let (memo, tally) = (CountMemo::with_capacity(2), Tally::default());
        let counted = || tally.0.load(Ordering::SeqCst);
        for (text, counts) in [("a", 1), ("a", 1), ("bb", 2), ("a", 2), ("ccc", 3), ("bb", 3), ("a", 4), ("ccc", 4)] {
            assert_eq!(memo.count(&tally, text), text.len());
            assert_eq!(counted(), counts, "{text}");
            assert!(memo.len() <= 2);
        }
    }
}
