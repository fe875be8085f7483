//! Finding tools by words.

use std::fmt;

use async_trait::async_trait;
use contract::ids::ToolId;

use super::registry_store::StoreError;

/// One tool that matches.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    pub tool: ToolId,
    /// Greater is better; comparable only within one answer.
    pub score: f64,
}

/// Full-text search over names, descriptions, tags and parameter names of the newest version of each tool that has a
/// version which is active or deprecated.
#[async_trait]
pub trait ToolSearch: Send + Sync + fmt::Debug {
    /// At most `limit` hits, best first; equal scores are ordered by tool id, so that answers are stable.
    /// A query without any searchable word has no hits. Every publication that was answered before the search began
    /// is found by it.
    async fn search(&self, query: &str, limit: usize) -> Result<Vec<SearchHit>, StoreError>;
}
