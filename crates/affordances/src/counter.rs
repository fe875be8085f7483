//! Counting tokens, by a counter that is named in every answer (LAZY-007).
//!
//! [`O200kBase`] is the real tokenizer of that vocabulary. Its tables are made when the first text is counted and not
//! before: they take about 50 MB and the better part of a second, which somebody who never asks should not pay.
//! All clones of one counter share one set of tables; it goes with the last of them. Nothing is global.
//!
//! [`EstimatingCounter`] needs no tables: four characters a token. It is a declared guess, good enough for a caller that wants to
//! know roughly and fast.
//!
//! A text that the tokenizer cannot take counts as one token a byte, which no tokenizer exceeds: too much is counted
//! rather than too little.

use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};
use tiktoken_rs::CoreBPE;

use crate::memo::CountMemo;

/// Longest text that is tokenized; a longer one counts as one token a byte.
const TEXT_BYTES_MAX: usize = 8 * 1024 * 1024;
/// What [`EstimatingCounter`] takes for one token.
const CHARS_PER_TOKEN: usize = 4;

/// Says how many tokens a text has. The same text always has the same number.
pub trait TokenCounter: fmt::Debug + Send + Sync {
    /// Which counter this is.
    fn name(&self) -> CounterName;

    /// The tokens of this text.
    fn count(&self, text: &str) -> usize;
}

/// The counters there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CounterName {
    /// The tokenizer of that vocabulary.
    #[default]
    #[serde(rename = "o200k_base")]
    O200kBase,
    /// Four characters a token.
    Estimate,
}

impl CounterName {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::O200kBase => "o200k_base",
            Self::Estimate => "estimate",
        }
    }
}

/// The real tokenizer. Cheap to clone.
#[derive(Clone, Default)]
pub struct O200kBase {
    /// `None` inside: the tables could not be made.
    tables: Arc<OnceLock<Option<CoreBPE>>>,
}

/// Four characters a token.
#[derive(Debug, Clone, Copy, Default)]
pub struct EstimatingCounter;

/// The counters of one server and what they have counted. Made once and shared.
#[derive(Debug, Default)]
pub struct TokenCounters {
    o200k_base: O200kBase,
    estimate: EstimatingCounter,
    memo: CountMemo,
}

/// A counter, and where its counts are remembered, if they are.
#[derive(Debug, Clone, Copy)]
pub struct MemoizedCounter<'a> {
    counter: &'a dyn TokenCounter,
    memo: Option<&'a CountMemo>,
}

// -------------------------------------------------------------------------------------------------------- O200kBase

impl O200kBase {
    /// Have the tables been made?
    pub fn is_loaded(&self) -> bool {
        self.tables.get().is_some()
    }
}

impl TokenCounter for O200kBase {
    fn name(&self) -> CounterName {
        CounterName::O200kBase
    }

    fn count(&self, text: &str) -> usize {
        if text.len() > TEXT_BYTES_MAX {
            return text.len();
        }
        let Some(tables) = self.tables.get_or_init(|| tiktoken_rs::o200k_base().ok()) else { return text.len() };
        // No special tokens: a tool that writes one into its description writes ordinary text.
        tables.count(text, &HashSet::new()).unwrap_or(text.len())
    }
}

impl fmt::Debug for O200kBase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("O200kBase").field("loaded", &self.is_loaded()).finish()
    }
}

// --------------------------------------------------------------------------------------------------------- Estimate

impl TokenCounter for EstimatingCounter {
    fn name(&self) -> CounterName {
        CounterName::Estimate
    }

    fn count(&self, text: &str) -> usize {
        // Outside of ASCII a character is mostly a token of its own.
        let wide = text.chars().filter(|c| !c.is_ascii()).count();
        let plain = text.chars().filter(char::is_ascii).count();
        wide.saturating_add(plain.div_ceil(CHARS_PER_TOKEN))
    }
}

// -------------------------------------------------------------------------------------------------------- Counters

impl TokenCounters {
    /// The counter of this name, with the memory of all.
    pub fn counting(&self, name: CounterName) -> MemoizedCounter<'_> {
        let counter: &dyn TokenCounter = match name {
            CounterName::O200kBase => &self.o200k_base,
            CounterName::Estimate => &self.estimate,
        };
        MemoizedCounter { counter, memo: Some(&self.memo) }
    }
}

impl<'a> MemoizedCounter<'a> {
    /// Counts anew every time.
    pub const fn without_memory(counter: &'a dyn TokenCounter) -> Self {
        Self { counter, memo: None }
    }

    /// Which counter counts.
    pub fn name(&self) -> CounterName {
        self.counter.name()
    }

    /// The tokens of a text that is seen once.
    pub fn count(&self, text: &str) -> usize {
        self.counter.count(text)
    }

    /// The tokens of a text that will be seen again, such as a definition of a tool.
    pub fn count_again(&self, text: &str) -> usize {
        match self.memo {
            // Looking an estimate up takes longer than making it.
            Some(memo) if self.name() != CounterName::Estimate => memo.count(self.counter, text),
            _ => self.counter.count(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_made_when_the_first_text_is_counted() {
        let counters = TokenCounters::default();
        assert_eq!(counters.counting(CounterName::Estimate).count("abcdefghi"), 3);
        assert!(!counters.o200k_base.is_loaded());
        let clone = counters.o200k_base.clone();
        assert_eq!(counters.counting(CounterName::O200kBase).count("hello world"), 2);
        assert!(clone.is_loaded());
    }

    #[test]
    fn known_texts_have_known_counts() {
        let counter = O200kBase::default();
        for (text, expected) in [
            ("", 0),
            ("hello", 1),
            ("tiktoken is great!", 6),
            ("お誕生日おめでとう", 8),
            ("2 + 2 = 4", 7),
            // Seven tokens of ordinary text instead of one that ends a conversation.
            ("<|endoftext|>", 7),
        ] {
            assert_eq!(counter.count(text), expected, "{text}");
        }
    }

    #[test]
    fn hostile_texts_are_counted_and_never_by_more_than_their_bytes() {
        let counter = O200kBase::default();
        for text in ["a".repeat(200_000), " ".repeat(200_000), "\n \r".repeat(50_000), "{\"".repeat(50_000)] {
            let tokens = counter.count(&text);
            assert!(tokens > 0 && tokens <= text.len(), "{tokens}");
        }
        let long = "x".repeat(TEXT_BYTES_MAX + 1);
        assert_eq!(counter.count(&long), long.len());
    }

    #[test]
    fn an_estimate_is_four_characters_a_token() {
        for (text, expected) in [("", 0), ("abc", 1), ("abcd", 1), ("abcde", 2), ("ää", 2), ("abcdä", 2)] {
            assert_eq!(EstimatingCounter.count(text), expected, "{text}");
        }
    }
}
