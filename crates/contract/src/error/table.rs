//! The rows themselves, and the enum they key. One macro call makes both, so that neither can lack what the other has.
//!
//! Statuses and resolutions of the first 58 codes are normative (ERR-003). E3005…E3010, E3107…E3108, E3208…E3211,
//! E3408…E3414, E3857 and E3908 are ours, for conditions the sources name without a code (ERR-006; decision 0003).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Capability, ErrorKind, ErrorRow, Retryability};

macro_rules! error_table {
    ($($code:ident $http:literal $retry:ident $name:literal $kind:ident [$($executor:literal),*] $capability:ident $meaning:literal => $resolution:literal;)*) => {
        /// The key of the error table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
        pub enum ErrorCode {
            $(#[doc = $meaning] $code,)*
        }

        impl ErrorCode {
            /// All codes, ascending.
            pub const ALL: &'static [Self] = &[$(Self::$code,)*];

            /// The code as text, for example `E3301`.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => stringify!($code),)*
                }
            }
        }

        $(
            static $code: ErrorRow = ErrorRow {
                code: ErrorCode::$code,
                meaning: $meaning,
                http: $http,
                retry: Retryability::$retry,
                name: $name,
                kind: ErrorKind::$kind,
                executor_names: &[$($executor,)*],
                resolution: $resolution,
                capability: Capability::$capability,
            };
        )*

        /// Every row, ascending by code.
        pub static TABLE: &[&ErrorRow] = &[$(&$code,)*];

        pub(super) fn row(code: ErrorCode) -> &'static ErrorRow {
            match code {
                $(ErrorCode::$code => &$code,)*
            }
        }
    };
}

// code http retry name kind [names in the sources' executors] capability meaning => resolution
error_table! {
    E3000 500 WriteRules "internal_error" InternalToolError [] Core "Internal server error" => "Retry with exponential backoff";
    E3001 503 Yes "internal_error" UpstreamFailure [] Core "Service temporarily unavailable" => "Wait and retry";
    E3002 504 WriteRules "timeout" DeadlineExceeded [] Core "Request timeout" => "Increase timeout or optimise tool";
    E3003 429 Yes "rate_limit_exceeded" RateLimited [] Identity "Rate limit exceeded" => "Slow down request rate";
    E3004 400 No "invalid_parameters" InvalidInput [] Core "Invalid request format" => "Check request schema";
    E3005 413 No "invalid_parameters" InvalidInput [] Core "Request body too large" => "Send less, or ask the operator to raise the limit";
    E3006 415 No "invalid_parameters" InvalidInput [] Core "Unsupported content type" => "Send JSON with content-type: application/json";
    E3007 405 No "invalid_parameters" InvalidInput [] Core "Method not allowed" => "See the allow header and /openapi.json";
    E3008 404 No "invalid_parameters" InvalidInput [] Core "No such endpoint" => "See /openapi.json for the endpoints there are";
    E3009 408 Yes "timeout" DeadlineExceeded [] Core "Request not received in time" => "Send the whole request without long pauses";
    E3010 501 No "invalid_parameters" PreconditionFailed [] Core "Feature not available on this server" => "Leave the option out, or use a server that has it";
    E3101 404 No "tool_not_found" ToolNotFound [] Core "Tool not found" => "Verify tool_id exists in registry";
    E3102 404 No "tool_version_not_found" ToolNotFound [] Core "Tool version not found" => "Check available versions";
    E3103 409 No "invalid_parameters" PreconditionFailed [] Core "Tool version conflict" => "Resolve version range constraints";
    E3104 410 No "tool_version_not_found" PreconditionFailed [] Core "Tool deprecated (answered for removed versions)" => "Use recommended replacement tool";
    E3105 422 No "invalid_parameters" InvalidInput ["UNKNOWN_TOOL_TYPE"] Core "Tool manifest invalid" => "Fix manifest schema";
    E3106 500 Yes "internal_error" UpstreamFailure [] Embeddings "Semantic search failed" => "Check Ollama service availability";
    E3107 423 No "tool_execution_error" PreconditionFailed [] Core "Tool quarantined" => "Ask an operator to review and release the tool";
    E3108 503 Yes "external_api_error" UpstreamFailure [] Core "Tool unavailable" => "Wait until the server behind the tool is back, or bind the tool to an executor this server has";
    E3201 401 AfterChange "permission_denied" AuthorizationDenied [] Core "Token expired" => "Obtain new capability token";
    E3202 401 No "permission_denied" AuthorizationDenied [] Core "Invalid token signature" => "Verify token signing key";
    E3203 401 No "permission_denied" AuthorizationDenied [] Core "Malformed token" => "Check JWT format";
    E3204 403 No "permission_denied" AuthorizationDenied [] Core "Tool not in capability token" => "Request token with tool permission";
    E3205 503 Yes "internal_error" UpstreamFailure [] Identity "ABAC engine error" => "Check ABAC service health";
    E3206 403 No "permission_denied" AuthorizationDenied [] Core "Permission denied" => "Request additional permissions";
    E3207 404 No "permission_denied" AuthorizationDenied [] Identity "DID not found" => "Verify agent DID registration";
    E3208 403 AfterChange "permission_denied" ApprovalRequired [] Core "Approval required" => "Ask for an approval, then send the call again";
    E3209 403 No "permission_denied" AuthorizationDenied [] Approvals "Approval denied" => "Talk to the approver; do not repeat the call unchanged";
    E3210 409 AfterChange "permission_denied" ApprovalRequired [] Core "Confirmation required" => "Confirm the call, then send it again";
    E3211 402 No "resource_exhausted" ResourceExhausted [] Identity "Budget exceeded" => "Raise the budget or wait for the next period";
    E3301 400 No "invalid_parameters" InvalidInput ["VALIDATION_ERROR", "INVALID_INPUT"] Core "Schema validation failed" => "Fix parameters to match schema";
    E3302 400 No "invalid_parameters" InvalidInput [] Core "Type coercion failed" => "Provide correct parameter types";
    E3303 500 No "tool_execution_error" InternalToolError [] Core "Result validation failed" => "Tool returned invalid output";
    E3304 500 No "internal_error" InternalToolError [] Core "PII sanitization error" => "Check sanitization rules";
    E3305 400 No "invalid_parameters" InvalidInput [] Core "Injection attack detected" => "Remove malicious input";
    E3401 500 No "tool_execution_error" InternalToolError [] Core "Tool execution failed" => "Check tool logs";
    E3402 504 WriteRules "timeout" DeadlineExceeded ["TIMEOUT"] Core "Tool timeout" => "Increase timeout or optimise tool";
    E3403 500 No "resource_exhausted" ResourceExhausted [] Sandbox "Tool OOM killed" => "Increase memory limit";
    E3404 500 WriteRules "tool_execution_error" InternalToolError [] Core "Tool crashed" => "Check tool stability";
    E3405 500 Yes "sandbox_failure" InternalToolError [] Core "Sandbox creation failed" => "Check Kubernetes cluster health";
    E3406 403 No "permission_denied" AuthorizationDenied [] Sandbox "Network policy violation" => "Verify allowed domains";
    E3407 429 No "resource_exhausted" ResourceExhausted [] Core "Resource limit exceeded" => "Reduce resource usage";
    E3408 412 No "invalid_parameters" PreconditionFailed [] Core "Precondition failed" => "Bring about the condition named in the message first";
    E3409 409 AfterChange "state_conflict" Conflict [] Checkpoints "Concurrency conflict" => "Read the current state, then decide anew";
    E3410 409 No "idempotency_conflict" Conflict [] Jobs "Idempotency conflict: same key, other parameters" => "Use a new idempotency key for a new call";
    E3411 503 No "external_api_error" UpstreamFailure [] Core "Retry budget exhausted" => "Wait before trying again; the upstream is failing for everybody";
    E3412 500 No "tool_execution_error" InternalToolError [] Composites "Composite partial failure" => "Look at the steps in the details; what could be undone was undone";
    E3413 500 No "tool_execution_error" InternalToolError [] Jobs "Outcome unknown" => "Find out whether the effect happened before repeating the call";
    E3414 413 No "resource_exhausted" ResourceExhausted [] Core "Result too large" => "Ask for less, for example a page; or let the tool's limit be raised";
    E3501 503 Yes "circuit_breaker_open" UpstreamFailure [] Core "Circuit breaker open" => "Wait for timeout period";
    E3502 503 Yes "external_api_error" UpstreamFailure ["MCP_ERROR", "N8N_ERROR", "INVOCATION_ERROR"] Core "External service unavailable" => "Check service health";
    E3503 504 WriteRules "external_api_error" UpstreamFailure [] Core "External service timeout" => "Increase timeout or check service";
    E3504 429 Yes "rate_limit_exceeded" RateLimited [] Core "Rate limit exceeded (external)" => "Reduce request rate";
    E3601 503 Yes "internal_error" UpstreamFailure [] Sandbox "Vault unavailable" => "Check Vault service";
    E3602 404 No "internal_error" PreconditionFailed [] Sandbox "Credential not found" => "Provision credentials in Vault";
    E3603 401 No "internal_error" PreconditionFailed [] Core "Credential expired" => "Rotate credentials";
    E3604 500 No "internal_error" InternalToolError [] SealedSecrets "Credential decryption failed" => "Verify encryption keys";
    E3701 503 Yes "resource_exhausted" RateLimited [] Jobs "Job queue full" => "Wait and retry";
    E3702 404 No "invalid_parameters" PreconditionFailed [] Jobs "Job not found" => "Verify invocation_id";
    E3703 499 No "cancelled" PreconditionFailed [] Jobs "Job cancelled" => "Resubmit if needed";
    E3704 500 Yes "external_api_error" UpstreamFailure [] Jobs "Webhook delivery failed" => "Check webhook endpoint";
    E3801 503 Yes "internal_error" UpstreamFailure [] Core "Kafka unavailable" => "Check Kafka cluster";
    E3802 500 No "internal_error" InternalToolError [] AuditForm "Event serialization failed" => "Check event schema";
    E3803 503 Yes "resource_exhausted" RateLimited [] Core "Audit backpressure" => "Reduce event rate";
    E3851 503 Yes "document_unavailable" UpstreamFailure [] Documents "MCP server unavailable (documents)" => "Check document-consolidator service";
    E3852 404 No "document_not_found" PreconditionFailed [] Documents "Document not found" => "Verify document exists";
    E3853 504 Yes "document_unavailable" DeadlineExceeded [] Documents "Document query timeout" => "Simplify query or increase timeout";
    E3854 200 No "none" InternalToolError [] Documents "Document cache miss" => "Normal, query will hit database";
    E3855 403 No "permission_denied" AuthorizationDenied [] Documents "Document permission denied" => "Request document access";
    E3856 500 No "internal_error" UpstreamFailure [] Documents "MCP protocol error (documents)" => "Check MCP server logs";
    E3857 409 No "document_version_conflict" Conflict [] Documents "Document version conflict" => "Read the newest version, then decide anew";
    E3901 503 Yes "checkpoint_failed" UpstreamFailure [] Documents "MCP server unavailable (state)" => "Check context-orchestrator service";
    E3902 500 Yes "checkpoint_failed" InternalToolError [] Checkpoints "Checkpoint creation failed" => "Check PostgreSQL/Redis health";
    E3903 404 No "resume_failed" PreconditionFailed [] Checkpoints "Checkpoint not found" => "Verify checkpoint_id";
    E3904 500 No "resume_failed" InternalToolError [] Checkpoints "Checkpoint corrupted" => "Use earlier checkpoint";
    E3905 500 No "resume_failed" InternalToolError [] Checkpoints "Resume failed" => "Restart from scratch";
    E3906 500 No "checkpoint_failed" ResourceExhausted [] Checkpoints "State serialization failed" => "Reduce state size";
    E3907 500 No "internal_error" UpstreamFailure [] Documents "MCP protocol error (state)" => "Check MCP server logs";
    E3908 409 AfterChange "state_conflict" Conflict [] Checkpoints "State conflict" => "Read the current state, then decide anew";
}
