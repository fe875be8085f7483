//! Texts in the store that whoever has its key seals: what stands there in clear, from before, is found and replaced.
//!
//! A text is written sealed by the adapter around the port it belongs to. This port is for what was written before there was
//! a seal on it, and knows nothing of keys.
//!
//! Invariant every adapter keeps
//! - TEXT-1: a text is replaced only while it is the one that was read. Whatever has changed meanwhile stays.
//!
//! Not here: the payloads of jobs (`job_store`) and checkpoints (`checkpoint_store`), which those ports rewrite or forget.

use std::fmt;

use async_trait::async_trait;
use contract::ids::TenantId;

use crate::registry_store::StoreError;

/// Most texts of one page.
pub const TEXTS_PAGE_MAX: usize = 100;

/// Where a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TextPlace {
    /// What a workflow outside was asked with, what it answered, and with what it failed: JSON.
    RunInput,
    RunOutput,
    RunError,
    /// What a webhook is told: text.
    DeliveryBody,
    /// How an MCP server is reached: a JSON object.
    ServerSpec,
}

impl TextPlace {
    /// Every place.
    pub const ALL: [Self; 5] = [Self::RunInput, Self::RunOutput, Self::RunError, Self::DeliveryBody, Self::ServerSpec];

    /// Table, column, and the column that names a row within its tenant, as every store calls them.
    pub fn columns(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::RunInput => ("workflow_runs", "input", "id"),
            Self::RunOutput => ("workflow_runs", "output", "id"),
            Self::RunError => ("workflow_runs", "error", "id"),
            Self::DeliveryBody => ("webhook_deliveries", "body", "id"),
            Self::ServerSpec => ("upstream_servers", "spec", "name"),
        }
    }

    /// What stands there in place of a text that was taken away. Nobody has written it.
    pub fn nothing(self) -> &'static str {
        match self {
            Self::RunInput | Self::RunOutput | Self::RunError => "null",
            Self::DeliveryBody => "",
            Self::ServerSpec => "{}",
        }
    }
}

/// A text, and whose it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredText {
    pub tenant: TenantId,
    /// What names it within its tenant.
    pub row: String,
    pub text: String,
}

/// Finds and replaces them.
#[async_trait]
pub trait SealedTexts: Send + Sync + fmt::Debug {
    /// Up to [`TEXTS_PAGE_MAX`] texts of a place that do not begin with `sealed`, in no order. [`TextPlace::nothing`] is none.
    async fn clear_texts(&self, place: TextPlace, sealed: &str) -> Result<Vec<StoredText>, StoreError>;

    /// Puts another text in the place of this one; false, and nothing is written, if it is not there any more (TEXT-1).
    async fn replace_text(&self, place: TextPlace, was: &StoredText, text: &str) -> Result<bool, StoreError>;
}
