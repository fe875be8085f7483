//! Vendor services: the queue whose messages come through the signed door, and the services outside that do what they ask for.
//! (ASYNC-010…014, FLOW-002…006)
//!
//! Gantry has no embeddings, workflows or push tokens of its own: [`CallOuts`] call the services that do, and an
//! [`InboundHandler`] makes jobs of the queue of these calls. Neither the kernel nor the jobs know any of them; they are met
//! through `jobs::inbound_jobs`.
//!
//! Not here: the rules of the door (`jobs::inbound_jobs`), where may be called (`CallsOut`).

mod call_outs;
mod embedding_job;
mod handler;
mod notification;
mod qstash;
mod reached;
mod workflow;

use contract::error::{ErrorCode, Refusal};
use serde_json::Value;

pub use call_outs::{CallOutAttempt, CallOutEnd, CallOutParts, CallOutStop, CallOutUrls, CallOuts};
pub use handler::InboundHandler;
pub use qstash::QstashReceiver;

/// A kind of job that can come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum InboundKind {
    GenerateEmbedding,
    ExecuteWorkflow,
    SendNotification,
}

impl InboundKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::GenerateEmbedding, Self::ExecuteWorkflow, Self::SendNotification];
    /// Their words, in the same order.
    const WORDS: &[&str] =
        &[Self::GenerateEmbedding.as_str(), Self::ExecuteWorkflow.as_str(), Self::SendNotification.as_str()];

    /// The word in the path, and the kind of the job.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::GenerateEmbedding => "generate_embedding",
            Self::ExecuteWorkflow => "execute_workflow",
            Self::SendNotification => "send_notification",
        }
    }

    /// The kind of a word.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == word)
    }
}

/// Reads a payload; what is wrong with it is said without repeating it.
fn typed<T: serde::de::DeserializeOwned>(payload: &Value, members: &str) -> Result<T, Refusal> {
    serde_json::from_value(payload.clone()).map_err(|_| {
        Refusal::new(ErrorCode::E3004, "the payload has other members than this type of job")
            .hint(format!("send a JSON object with {members}"))
    })
}
