//! The error table against the normative catalogue: every code has exactly this meaning, status and hint (ERR-003).
//!
//! The catalogue is written down here a second time on purpose: a row that is changed by mistake differs from it.

use gantry_contract::error::{ErrorCode, TABLE};

/// Code, meaning, HTTP status, hint.
const CATALOGUE: [(&str, &str, u16, &str); 58] = [
    ("E3000", "Internal server error", 500, "Retry with exponential backoff"),
    ("E3001", "Service temporarily unavailable", 503, "Wait and retry"),
    ("E3002", "Request timeout", 504, "Increase timeout or optimise tool"),
    ("E3003", "Rate limit exceeded", 429, "Slow down request rate"),
    ("E3004", "Invalid request format", 400, "Check request schema"),
    ("E3101", "Tool not found", 404, "Verify tool_id exists in registry"),
    ("E3102", "Tool version not found", 404, "Check available versions"),
    ("E3103", "Tool version conflict", 409, "Resolve version range constraints"),
    ("E3104", "Tool deprecated (answered for removed versions)", 410, "Use recommended replacement tool"),
    ("E3105", "Tool manifest invalid", 422, "Fix manifest schema"),
    ("E3106", "Semantic search failed", 500, "Check Ollama service availability"),
    ("E3201", "Token expired", 401, "Obtain new capability token"),
    ("E3202", "Invalid token signature", 401, "Verify token signing key"),
    ("E3203", "Malformed token", 401, "Check JWT format"),
    ("E3204", "Tool not in capability token", 403, "Request token with tool permission"),
    ("E3205", "ABAC engine error", 503, "Check ABAC service health"),
    ("E3206", "Permission denied", 403, "Request additional permissions"),
    ("E3207", "DID not found", 404, "Verify agent DID registration"),
    ("E3301", "Schema validation failed", 400, "Fix parameters to match schema"),
    ("E3302", "Type coercion failed", 400, "Provide correct parameter types"),
    ("E3303", "Result validation failed", 500, "Tool returned invalid output"),
    ("E3304", "PII sanitization error", 500, "Check sanitization rules"),
    ("E3305", "Injection attack detected", 400, "Remove malicious input"),
    ("E3401", "Tool execution failed", 500, "Check tool logs"),
    ("E3402", "Tool timeout", 504, "Increase timeout or optimise tool"),
    ("E3403", "Tool OOM killed", 500, "Increase memory limit"),
    ("E3404", "Tool crashed", 500, "Check tool stability"),
    ("E3405", "Sandbox creation failed", 500, "Check Kubernetes cluster health"),
    ("E3406", "Network policy violation", 403, "Verify allowed domains"),
    ("E3407", "Resource limit exceeded", 429, "Reduce resource usage"),
    ("E3501", "Circuit breaker open", 503, "Wait for timeout period"),
    ("E3502", "External service unavailable", 503, "Check service health"),
    ("E3503", "External service timeout", 504, "Increase timeout or check service"),
    ("E3504", "Rate limit exceeded (external)", 429, "Reduce request rate"),
    ("E3601", "Vault unavailable", 503, "Check Vault service"),
    ("E3602", "Credential not found", 404, "Provision credentials in Vault"),
    ("E3603", "Credential expired", 401, "Rotate credentials"),
    ("E3604", "Credential decryption failed", 500, "Verify encryption keys"),
    ("E3701", "Job queue full", 503, "Wait and retry"),
    ("E3702", "Job not found", 404, "Verify invocation_id"),
    ("E3703", "Job cancelled", 499, "Resubmit if needed"),
    ("E3704", "Webhook delivery failed", 500, "Check webhook endpoint"),
    ("E3801", "Kafka unavailable", 503, "Check Kafka cluster"),
    ("E3802", "Event serialization failed", 500, "Check event schema"),
    ("E3803", "Audit backpressure", 503, "Reduce event rate"),
    ("E3851", "MCP server unavailable (documents)", 503, "Check document-consolidator service"),
    ("E3852", "Document not found", 404, "Verify document exists"),
    ("E3853", "Document query timeout", 504, "Simplify query or increase timeout"),
    ("E3854", "Document cache miss", 200, "Normal, query will hit database"),
    ("E3855", "Document permission denied", 403, "Request document access"),
    ("E3856", "MCP protocol error (documents)", 500, "Check MCP server logs"),
    ("E3901", "MCP server unavailable (state)", 503, "Check context-orchestrator service"),
    ("E3902", "Checkpoint creation failed", 500, "Check PostgreSQL/Redis health"),
    ("E3903", "Checkpoint not found", 404, "Verify checkpoint_id"),
    ("E3904", "Checkpoint corrupted", 500, "Use earlier checkpoint"),
    ("E3905", "Resume failed", 500, "Restart from scratch"),
    ("E3906", "State serialization failed", 500, "Reduce state size"),
    ("E3907", "MCP protocol error (state)", 500, "Check MCP server logs"),
];

#[test]
fn every_code_of_the_catalogue_has_its_meaning_status_and_hint() {
    for (code, meaning, status, hint) in CATALOGUE {
        let row = TABLE.iter().find(|row| row.code.as_str() == code).unwrap_or_else(|| panic!("{code} is missing"));
        assert_eq!((row.meaning, row.http, row.resolution), (meaning, status, hint), "{code}");
    }
}

#[test]
fn what_is_not_in_the_catalogue_is_ours_and_named_as_such() {
    let ours = [
        "E3005", "E3006", "E3007", "E3008", "E3009", "E3010", "E3107", "E3108", "E3208", "E3209", "E3210", "E3211",
        "E3408", "E3409", "E3410", "E3411", "E3412", "E3413", "E3414", "E3857", "E3908",
    ];
    let others =
        ErrorCode::ALL.iter().map(|code| code.as_str()).filter(|code| CATALOGUE.iter().all(|row| row.0 != *code));
    assert_eq!(others.collect::<Vec<_>>(), ours, "a new code belongs into one of the two lists (decision 0003)");
}
