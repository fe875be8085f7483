//! Finding tools by words.

use std::fmt;

use async_trait::async_trait;
use contract::ids::{TenantId, ToolId};

use crate::registry_store::StoreError;

/// One tool that matches.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    pub tool: ToolId,
    /// Greater is better; comparable only within one answer.
    pub score: f64,
}

/// Full-text search over names, descriptions, tags and parameter names of the newest version of each tool that has a
/// version which is active or deprecated; for one tenant at a time.
#[async_trait]
pub trait ToolSearch: Send + Sync + fmt::Debug {
    /// At most `limit` hits among the tenant's own tools and those of the home tenant whose ids it does not have itself,
    /// best first; equal scores are ordered by tool id, so that answers are stable.
    /// A query without any searchable word has no hits. Every publication that was answered before the search began
    /// is found by it.
    /// What other tenants have published is neither found nor used to complete or correct a word.
    async fn search(&self, tenant: &TenantId, query: &str, limit: usize) -> Result<Vec<SearchHit>, StoreError>;
}
