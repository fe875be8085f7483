//! A policy engine outside this process, asked after the embedded one has allowed (AUTH-006, AUTH-007).

use std::fmt;

use async_trait::async_trait;
use policy::{PolicyQuestion, PolicyVerdict};

/// Nobody could decide, so the answer is no (E3205). The text goes to the log.
#[derive(Debug, thiserror::Error)]
#[error("the policy engine gave no decision: {0}")]
pub struct EngineError(pub String);

/// Decides.
#[async_trait]
pub trait PolicyEngine: Send + Sync + fmt::Debug {
    /// One decision. The adapter bounds the wait. An obligation that is not known makes the verdict a denial.
    async fn decide(&self, question: &PolicyQuestion<'_>) -> Result<PolicyVerdict, EngineError>;
}
