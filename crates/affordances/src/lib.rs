//! What of the catalogue fits into a model's context: counting tokens, packing by usefulness, summarising the rest.
//! (LAZY-001…008)
//!
//! A model that is shown every tool pays for every tool. So it is shown an index, and the definitions that help most with
//! what it is about to do, within a budget of tokens that is never exceeded: what is counted is the very text that is sent.
//!
//! ```text
//!   Affordance ──► detail (line, minimal, top level, standard) ──► count ──► knapsack ──► AffordanceBlock, Packed
//!   ids, categories ──► summary ──► meta_tools (what a client sees in `lazy` exposure)
//! ```
//!
//! Everything is a function of what is handed in: no I/O, no clock, no order of a hash map shows in a result.
//!
//! Invariants
//! - AFF-1: what is sent never has more tokens than the budget, by the counter that the caller chose.
//! - AFF-2: the order in which tools are handed in changes nothing.
//! - AFF-3: a tool that does not fit does not keep smaller ones out.
//!
//! Not here: which tools somebody may know and how well they match (the kernel), names that models see (the MCP door).

mod affordance;
mod block;
mod counter;
mod detail;
mod knapsack;
mod memo;
mod meta_tools;
mod sentence;
mod summary;
mod top_level;

pub use affordance::Affordance;
pub use block::{AffordanceBlock, IndexForm, IndexRequest, IndexSource, LINE_TOKENS_MIN, PackedResults, compile, pack};
pub use counter::{CounterName, EstimatingCounter, MemoizedCounter, O200kBase, TokenCounter, TokenCounters};
pub use detail::{DetailLevel, NavigationHints, ToolEntry};
pub use knapsack::{ItemGroup, KnapsackItem, KnapsackSolution, SolutionMethod, solve};
pub use memo::CountMemo;
pub use meta_tools::{CALL_TOOL, DESCRIBE_TOOL, MetaTool, SEARCH_TOOLS, meta_tools};
pub use sentence::first_sentence;
pub use summary::{NamedTool, SUMMARY_TOKENS_MAX, summary};
