//! Finding tools by words: what every adapter shares. (REG-014, REG-015)
//!
//! ```text
//!  manifest ──▶ Document ──▶ the adapter's index ◀── rankings ◀── Plan ◀── query
//!               (words)                  │           (terms)     (words, vocabulary, spelling)
//!                                        └──▶ fuse ──▶ hits
//! ```
//!
//! An adapter keeps the terms of documents, counts in how many documents each term is, and ranks documents by BM25 over
//! weighted fields. Which terms to look up, what to do about misspelled ones and how to put several rankings together is
//! decided here, by pure functions, so that all adapters give the same kind of answer.
//!
//! Not here: embeddings. Search is lexical only.

mod document;
mod plan;
mod rank_fusion;
mod stop_words;
mod typo_distance;
mod words;

pub(crate) use document::{FIELD_WEIGHTS, ToolDocument, newest_searchable};
pub(crate) use plan::{HITS_MAX, SearchPlan, TermIndex};
pub(crate) use rank_fusion::{Ranking, fuse};

/// Raised whenever the same manifest would give other terms than before; stored indexes are then built anew.
pub(crate) const PIPELINE_VERSION: i64 = 1;
