//! The one error table (DESIGN §8.9, ERR-001…007): every code, its three names, its answers on every door, its remedy.
//!
//! Three sources brought three vocabularies: E-codes, snake_case names and upper-case kinds. [`ErrorCode`] is the key;
//! everything else is a column of [`TABLE`]. Doors, docs (`docs/errors/`), OpenAPI and tests read this table and
//! nothing else, so that a status or a name exists in one place only.
//!
//! Invariants (each has a test)
//! - ERR-A: the table has exactly one row per code, in ascending order.
//! - ERR-B: HTTP, JSON-RPC and gRPC answers are total functions of the code.
//! - ERR-C: a code is produced somewhere in the product exactly if [`Capability::is_answered`] says so (`cargo xtask check`).
//!
//! Not here: when to retry (the kernel decides per occurrence; [`Retryability`] is the table's general word).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::{InvocationId, TraceId};

mod kept_error;
mod reason;
mod table;
pub mod tool_words;
pub use kept_error::KeptError;
pub use reason::{MISSING_KEY, RefusalReason, RefusalSource};
pub use table::TABLE;
pub use tool_words::{InputFault, ToolWords};

/// One row of the table.
#[derive(Debug)]
pub struct ErrorRow {
    pub code: ErrorCode,
    /// What happened, in the words of the table.
    pub meaning: &'static str,
    pub http: u16,
    pub retry: Retryability,
    pub name: &'static str,
    pub kind: ErrorKind,
    /// Names that executors of the sources used for the same condition.
    pub executor_names: &'static [&'static str],
    /// What to do about it.
    pub resolution: &'static str,
    pub capability: Capability,
}

/// May the same call be sent again?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Retryability {
    /// The same call will fail in the same way.
    No,
    /// Yes, after a pause.
    Yes,
    /// Only if the call has no effects, or carries an idempotency key.
    WriteRules,
    /// Once something named in the resolution has changed (new token, refreshed state, confirmation).
    AfterChange,
}

impl Retryability {
    /// The wire's yes or no: would sending the very same call again be right for a caller who knows nothing more?
    pub fn retryable(self) -> bool {
        match self {
            Self::Yes | Self::WriteRules => true,
            Self::No | Self::AfterChange => false,
        }
    }
}

/// Which part of the product produces a code. Codes that nothing produces yet are reserved, not dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// Registry, validation, lifecycle of a call, doors, store.
    Core,
    /// Search by meaning: not built yet.
    Embeddings,
    /// Policies, external policy engines, DIDs, budgets of tokens.
    Identity,
    /// Isolation, egress and limits of tools nobody trusts, and the credentials handed to them.
    Sandbox,
    /// Secrets that are kept enciphered, in a vault or in a file: not built yet.
    SealedSecrets,
    Jobs,
    /// The form of audit records. It is built, and every record can be written in it.
    AuditForm,
    /// Documents and their servers: not built yet.
    Documents,
    Checkpoints,
    /// Asking a person before a call runs: not built yet.
    Approvals,
    /// Tools made of other tools: not built yet.
    Composites,
}

impl Capability {
    /// Does this release answer with the codes of this part?
    pub fn is_answered(self) -> bool {
        match self {
            Self::Core | Self::Identity | Self::Sandbox | Self::Jobs | Self::Checkpoints => true,
            Self::Embeddings
            | Self::SealedSecrets
            | Self::AuditForm
            | Self::Documents
            | Self::Approvals
            | Self::Composites => false,
        }
    }
}

/// The eleven classes of error that an agent loop reasons with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorKind {
    InvalidInput,
    AuthorizationDenied,
    ToolNotFound,
    DeadlineExceeded,
    UpstreamFailure,
    RateLimited,
    ResourceExhausted,
    PreconditionFailed,
    Conflict,
    InternalToolError,
    ApprovalRequired,
}

/// The canonical gRPC statuses that errors map to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum GrpcStatus {
    Ok = 0,
    Cancelled = 1,
    InvalidArgument = 3,
    DeadlineExceeded = 4,
    NotFound = 5,
    PermissionDenied = 7,
    ResourceExhausted = 8,
    FailedPrecondition = 9,
    Aborted = 10,
    Internal = 13,
    Unavailable = 14,
    Unauthenticated = 16,
}

impl ErrorKind {
    /// The fixed JSON-RPC number of the class (ERR-007).
    pub fn json_rpc_code(self) -> i32 {
        match self {
            Self::InvalidInput => -32602,
            Self::AuthorizationDenied => -32001,
            Self::ToolNotFound => -32002,
            Self::DeadlineExceeded => -32003,
            Self::UpstreamFailure => -32004,
            Self::RateLimited => -32005,
            Self::ResourceExhausted => -32006,
            Self::PreconditionFailed => -32007,
            Self::Conflict => -32008,
            Self::ApprovalRequired => -32009,
            Self::InternalToolError => -32603,
        }
    }

    /// The canonical gRPC status of the class; [`ErrorCode::grpc`] refines it where the HTTP status says more.
    pub fn grpc(self) -> GrpcStatus {
        match self {
            Self::InvalidInput => GrpcStatus::InvalidArgument,
            Self::AuthorizationDenied => GrpcStatus::PermissionDenied,
            Self::ToolNotFound => GrpcStatus::NotFound,
            Self::DeadlineExceeded => GrpcStatus::DeadlineExceeded,
            Self::UpstreamFailure => GrpcStatus::Unavailable,
            Self::RateLimited | Self::ResourceExhausted => GrpcStatus::ResourceExhausted,
            Self::PreconditionFailed | Self::ApprovalRequired => GrpcStatus::FailedPrecondition,
            Self::Conflict => GrpcStatus::Aborted,
            Self::InternalToolError => GrpcStatus::Internal,
        }
    }
}

impl ErrorCode {
    /// This code's row.
    pub fn row(self) -> &'static ErrorRow {
        table::row(self)
    }

    /// The HTTP status of the table.
    pub fn http(self) -> u16 {
        self.row().http
    }

    /// Can a tool itself end with this code? Those are what a manifest may declare (MAN-010).
    pub fn is_of_tools(self) -> bool {
        matches!(
            self,
            Self::E3301
                | Self::E3401
                | Self::E3402
                | Self::E3403
                | Self::E3404
                | Self::E3406
                | Self::E3407
                | Self::E3408
                | Self::E3414
                | Self::E3502
                | Self::E3503
                | Self::E3504
        )
    }

    /// The JSON-RPC error number.
    pub fn json_rpc(self) -> i32 {
        self.row().kind.json_rpc_code()
    }

    /// The canonical gRPC status: by class, refined where the HTTP status separates what the class joins.
    pub fn grpc(self) -> GrpcStatus {
        match self.row().http {
            200 => GrpcStatus::Ok,
            401 => GrpcStatus::Unauthenticated,
            404 => GrpcStatus::NotFound,
            499 => GrpcStatus::Cancelled,
            503 if self.row().kind != ErrorKind::RateLimited => GrpcStatus::Unavailable,
            504 => GrpcStatus::DeadlineExceeded,
            _ => self.row().kind.grpc(),
        }
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

// ---------------------------------------------------------------------------------------------------------- Refusal

/// An error on its way to a caller: the code, and words for this occurrence.
///
/// INVARIANT: `message` and `details` are fit for strangers. Causes that are not go into the log under the trace id.
#[derive(Debug, Clone)]
pub struct Refusal {
    pub code: ErrorCode,
    /// What happened, in a sentence for a person or a model.
    pub message: String,
    /// What to do, when this occurrence knows better than the table's general hint.
    pub hint: Option<String>,
    /// Boxed, because most refusals have none and every `Result` has room for one.
    pub details: Option<Box<Value>>,
    /// Overrides the table's general word where the occurrence knows better.
    pub retryable: Option<bool>,
    pub retry_after_ms: Option<u64>,
    /// What it is, for whoever decides by it; callers read the details.
    pub reason: Option<Box<RefusalReason>>,
    /// The error behind it, for the log.
    pub source: Option<RefusalSource>,
}

/// What callers are told and code decides by; the error behind it does not count.
impl PartialEq for Refusal {
    fn eq(&self, other: &Self) -> bool {
        let told = |it: &Self| (it.code, it.retryable, it.retry_after_ms);
        told(self) == told(other)
            && self.message == other.message
            && self.hint == other.hint
            && self.details == other.details
            && self.reason == other.reason
    }
}

impl Refusal {
    /// A refusal with words of its own.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: None,
            details: None,
            retryable: None,
            retry_after_ms: None,
            reason: None,
            source: None,
        }
    }

    /// Says what to do about this very occurrence.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds structured facts.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.details = Some(Box::new(details));
        self
    }

    /// Says what it is, and tells it in the details, if they do not tell it already.
    #[must_use]
    pub fn because(mut self, reason: RefusalReason) -> Self {
        if let Value::Object(members) = &mut **self.details.get_or_insert_with(|| Box::new(Value::Object(Map::new()))) {
            reason.tell(members);
        }
        self.reason = Some(Box::new(reason));
        self
    }

    /// Keeps the error behind it, for the log.
    #[must_use]
    pub fn caused_by(mut self, error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.source = Some(RefusalSource::new(error));
        self
    }

    /// Says whether this very occurrence may be retried.
    #[must_use]
    pub fn retryable(mut self, retryable: bool) -> Self {
        self.retryable = Some(retryable);
        self
    }

    /// The general remedy or this occurrence's own.
    pub fn resolution(&self) -> &str {
        self.hint.as_deref().unwrap_or_else(|| self.code.row().resolution)
    }

    /// The envelope that doors render.
    pub fn envelope(&self, trace_id: TraceId, invocation_id: Option<InvocationId>) -> ErrorEnvelope {
        let row = self.code.row();
        ErrorEnvelope {
            code: row.code,
            name: row.name,
            kind: row.kind,
            message: self.message.clone(),
            resolution: self.resolution().to_owned(),
            retryable: self.retryable.unwrap_or_else(|| row.retry.retryable()),
            retry_after_ms: self.retry_after_ms,
            details: self.details.as_deref().cloned(),
            trace_id,
            invocation_id,
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.message)
    }
}

impl std::error::Error for Refusal {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(RefusalSource::error)
    }
}

/// The error as it stands on the wire (DESIGN §3).
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct ErrorEnvelope {
    /// The key of the error table, for example `E3301`.
    pub code: ErrorCode,
    /// The snake_case name, for example `invalid_parameters`.
    pub name: &'static str,
    pub kind: ErrorKind,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub resolution: String,
    /// Whether the very same call may be sent again.
    pub retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    pub trace_id: TraceId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub invocation_id: Option<InvocationId>,
}

pub use table::ErrorCode;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_one_row_per_code_in_ascending_order() {
        let codes: Vec<&str> = TABLE.iter().map(|row| row.code.as_str()).collect();
        let mut sorted = codes.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(codes, sorted);
        for row in TABLE {
            assert!(std::ptr::eq(row.code.row(), *row), "{} finds its own row", row.code);
            assert_eq!(ErrorCode::ALL.iter().filter(|code| **code == row.code).count(), 1);
        }
        assert_eq!(ErrorCode::ALL.len(), TABLE.len());
    }

    #[test]
    fn every_code_of_the_normative_list_is_there() {
        let ranges = [
            3000..=3004,
            3101..=3106,
            3201..=3207,
            3301..=3305,
            3401..=3407,
            3501..=3504,
            3601..=3604,
            3701..=3704,
            3801..=3803,
            3851..=3856,
            3901..=3907,
        ];
        for number in ranges.into_iter().flatten() {
            assert!(TABLE.iter().any(|row| row.code.as_str() == format!("E{number}")), "E{number} is missing");
        }
    }

    #[test]
    fn the_three_mappings_are_total_and_sensible() {
        const NAMES: [&str; 19] = [
            "invalid_parameters",
            "tool_not_found",
            "tool_version_not_found",
            "permission_denied",
            "rate_limit_exceeded",
            "idempotency_conflict",
            "tool_execution_error",
            "sandbox_failure",
            "external_api_error",
            "circuit_breaker_open",
            "timeout",
            "resource_exhausted",
            "document_not_found",
            "document_unavailable",
            "document_version_conflict",
            "checkpoint_failed",
            "resume_failed",
            "state_conflict",
            "internal_error",
        ];
        for row in TABLE {
            let code = row.code;
            // E3703 is carried by the status `cancelled`, E3854 is a metric and no error (ERR-004).
            if !matches!(code, ErrorCode::E3703 | ErrorCode::E3854) {
                assert!(NAMES.contains(&row.name), "{code} has no name of the list: {}", row.name);
            }
            assert!((200..600).contains(&code.http()), "{code}");
            assert!((-32699..=-32000).contains(&code.json_rpc()), "{code}");
            let grpc_fits = match code.http() {
                400..500 => !matches!(code.grpc(), GrpcStatus::Ok | GrpcStatus::Internal),
                500..600 => !matches!(code.grpc(), GrpcStatus::Ok | GrpcStatus::InvalidArgument | GrpcStatus::NotFound),
                _ => true,
            };
            assert!(grpc_fits, "{code}: HTTP {} and gRPC {:?} tell different stories", code.http(), code.grpc());
            assert!(!row.resolution.is_empty() && !row.meaning.is_empty());
        }
    }

    #[test]
    fn each_executor_name_of_the_sources_leads_to_one_code() {
        for name in [
            "VALIDATION_ERROR",
            "INVALID_INPUT",
            "UNKNOWN_TOOL_TYPE",
            "TIMEOUT",
            "MCP_ERROR",
            "N8N_ERROR",
            "INVOCATION_ERROR",
        ] {
            assert_eq!(TABLE.iter().filter(|row| row.executor_names.contains(&name)).count(), 1, "{name}");
        }
    }

    #[test]
    fn an_envelope_has_the_three_names_and_the_remedy() {
        let refusal = Refusal::new(ErrorCode::E3301, "parameter `a` is missing");
        let json = serde_json::to_value(refusal.envelope(TraceId::from_bytes([7; 16]), None)).unwrap();
        assert_eq!(json["code"], "E3301");
        assert_eq!(json["name"], "invalid_parameters");
        assert_eq!(json["kind"], "INVALID_INPUT");
        assert_eq!(json["retryable"], false);
        assert_eq!(json["resolution"], ErrorCode::E3301.row().resolution);
        assert_eq!(json.get("invocation_id"), None);
    }
}
