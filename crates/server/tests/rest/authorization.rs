//! The authorization table: each operation × each kind of caller. A new operation must be entered here.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::document::operations;
use crate::stage::{ADMIN, Stage, manifest};

/// Answers to: no token, garbage, an expired token, an agent's token, the admin token.
type Row = (&'static str, &'static str, &'static str, [&'static str; 5]);

/// Whoever shows a good token.
const EVERYBODY: [&str; 5] = ["401 E3203", "401 E3203", "401 E3201", "200 -", "200 -"];
const ADMINISTRATORS: [&str; 5] = ["401 E3203", "401 E3203", "401 E3201", "403 E3206", "200 -"];
/// What this stage does not have, said to whoever shows a good token.
const NOT_HERE: [&str; 5] = ["401 E3203", "401 E3203", "401 E3201", "501 E3010", "501 E3010"];

/// What this stage does not have and only administrators may ask for.
const NOT_HERE_FOR_ADMINISTRATORS: [&str; 5] = ["401 E3203", "401 E3203", "401 E3201", "403 E3206", "501 E3010"];

/// What was never kept, for whoever shows a good token.
const NOT_KEPT: [&str; 5] = ["401 E3203", "401 E3203", "401 E3201", "404 E3903", "404 E3903"];

/// What is not there, for administrators.
const NONE_SUCH: [&str; 5] = ["401 E3203", "401 E3203", "401 E3201", "403 E3206", "404 E3702"];
/// What this stage does not have, and what only administrators may ask for.
const NOT_FOR_ADMINISTRATORS_EITHER: [&str; 5] = ["401 E3203", "401 E3203", "401 E3201", "403 E3206", "501 E3010"];
/// Nobody without a signature.
const SIGNED: [&str; 5] = ["401 E3202"; 5];

const TABLE: &[Row] = &[
    ("POST", "/v1/tools/register", "registerTool", ["401 E3203", "401 E3203", "401 E3201", "403 E3206", "201 -"]),
    ("GET", "/v1/tools", "listTools", EVERYBODY),
    ("GET", "/v1/tools/search?q=echo", "searchTools", EVERYBODY),
    ("GET", "/v1/tools/demo.echo_tool", "getTool", EVERYBODY),
    ("GET", "/v1/tools/demo.echo_tool/versions/1.0.0", "getToolVersion", EVERYBODY),
    ("POST", "/v1/tools/demo.echo_tool/deprecate", "deprecateTool", ADMINISTRATORS),
    ("POST", "/v1/tools/demo.echo_tool/sunset", "sunsetTool", ADMINISTRATORS),
    ("POST", "/v1/tools/demo.echo_tool/restore", "restoreTool", ADMINISTRATORS),
    ("POST", "/v1/tools/demo.fail_tool/remove", "removeTool", ADMINISTRATORS),
    ("POST", "/v1/tools/demo.echo_tool/quarantine", "quarantineTool", ADMINISTRATORS),
    ("POST", "/v1/tools/demo.echo_tool/release", "releaseTool", ADMINISTRATORS),
    ("GET", "/v1/tools/demo.echo_tool/deprecation", "getToolDeprecation", ADMINISTRATORS),
    ("GET", "/v1/tools/demo.echo_tool/logs", "toolLogs", ADMINISTRATORS),
    ("POST", "/v1/tools/compare", "compareSchemas", EVERYBODY),
    ("POST", "/v1/tools/negotiate", "negotiateSchemas", EVERYBODY),
    ("POST", "/v1/tools/invoke", "invokeTool", EVERYBODY),
    ("POST", "/rpc", "jsonRpc", EVERYBODY),
    ("POST", "/v1/tools/invoke/batch", "invokeBatch", EVERYBODY),
    ("POST", "/v1/tokens", "mintToken", ["401 E3203", "401 E3203", "401 E3201", "403 E3206", "201 -"]),
    ("POST", "/v1/tokens/revoke", "revokeTokens", ADMINISTRATORS),
    // Records cannot be read on this stage; what can be read where they can is told by the tests of the binary.
    ("GET", "/v1/audit", "searchAudit", NOT_HERE_FOR_ADMINISTRATORS),
    ("GET", "/v1/audit/checkpoint", "auditCheckpoint", NOT_HERE_FOR_ADMINISTRATORS),
    ("GET", "/v1/audit/proof/x-1", "auditProof", NOT_HERE_FOR_ADMINISTRATORS),
    ("POST", "/v1/audit/rotate-key", "rotateAuditKey", NOT_HERE_FOR_ADMINISTRATORS),
    ("POST", "/v1/keys/rotate", "rotateKeys", ADMINISTRATORS),
    ("GET", "/v1/tenants", "listTenants", ADMINISTRATORS),
    ("PUT", "/v1/tenants", "putTenants", ADMINISTRATORS),
    ("GET", "/v1/agents", "listAgents", ADMINISTRATORS),
    ("PUT", "/v1/agents", "putAgents", ADMINISTRATORS),
    ("DELETE", "/v1/agents/somebody", "removeAgent", ADMINISTRATORS),
    ("GET", "/v1/activations", "listActivations", ADMINISTRATORS),
    ("PUT", "/v1/activations", "putActivations", ADMINISTRATORS),
    ("PUT", "/v1/policies", "putPolicies", ADMINISTRATORS),
    ("GET", "/v1/policies", "getPolicies", ADMINISTRATORS),
    ("GET", "/v1/policies/versions/1", "getPolicyVersion", ADMINISTRATORS),
    // No servers stand behind this stage; who may do what with them is tested where they do.
    ("GET", "/v1/servers", "listServers", NOT_HERE),
    ("PUT", "/v1/servers/files", "putServer", NOT_HERE),
    ("DELETE", "/v1/servers/files", "removeServer", NOT_HERE),
    ("POST", "/v1/servers/files/restart", "restartServer", NOT_HERE),
    ("GET", "/v1/servers/files/logs", "serverLogs", NOT_HERE),
    ("GET", "/v1/servers/files/tools", "serverTools", NOT_HERE),
    ("POST", "/v1/servers/files/tools/read/accept", "acceptServerTool", NOT_HERE),
    ("POST", "/v1/servers/files/tools/read/reject", "rejectServerTool", NOT_HERE),
    ("POST", "/v1/servers/files/tools/read/classify", "classifyServerTool", NOT_HERE),
    ("GET", "/v1/instances", "listInstances", NOT_HERE_FOR_ADMINISTRATORS),
    ("GET", "/v1/breakers", "listBreakers", NOT_HERE_FOR_ADMINISTRATORS),
    ("GET", "/v1/breakers/history", "listBreakerTransitions", NOT_HERE_FOR_ADMINISTRATORS),
    ("POST", "/v1/breakers/mail/move", "moveBreaker", NOT_HERE_FOR_ADMINISTRATORS),
    ("POST", "/v1/tools/explain", "explainCall", EVERYBODY),
    ("GET", "/v1/tenants/local/tools", "listTenantTools", EVERYBODY),
    ("GET", "/v1/tenants/local/tools/demo.echo_tool", "getTenantTool", EVERYBODY),
    ("GET", "/v1/agents/agent-1/tools", "listAgentTools", EVERYBODY),
    ("GET", "/v1/agents/agent-1/tools/unavailable", "listUnavailableTools", EVERYBODY),
    ("POST", "/v1/affordances", "compileAffordances", EVERYBODY),
    ("GET", "/v1/tools/demo.echo_tool/health", "getToolHealth", EVERYBODY),
    ("GET", "/v1/health/tools", "listToolHealth", EVERYBODY),
    ("GET", "/v1/alerts", "listAlerts", ADMINISTRATORS),
    ("GET", "/v1/usage", "getUsage", EVERYBODY),
    ("GET", "/v1/analytics/tools", "getToolAnalytics", ADMINISTRATORS),
    ("GET", "/v1/recommendations", "getRecommendations", ADMINISTRATORS),
    // Nothing was kept of this call, which nobody has made.
    ("GET", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/checkpoints", "listCheckpoints", EVERYBODY),
    ("POST", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/checkpoints", "nameCheckpoint", NOT_KEPT),
    (
        "DELETE",
        "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/checkpoints/019b0000-0000-7000-8000-00000000fffe",
        "deleteCheckpoint",
        NOT_KEPT,
    ),
    ("POST", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/rollback", "rollBackInvocation", NOT_KEPT),
    ("POST", "/v1/tools/resume/019b0000-0000-7000-8000-00000000ffff", "resumeInvocation", NOT_KEPT),
    // No jobs are kept on this stage; who may do what with them is tested where they are.
    ("GET", "/v1/invocations", "listInvocations", NOT_HERE),
    ("GET", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff", "invocationStatus", NOT_HERE),
    ("POST", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/cancel", "cancelInvocation", NOT_HERE),
    ("GET", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/events", "invocationEvents", NOT_HERE),
    ("POST", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/retry", "retryInvocation", NOT_HERE),
    ("GET", "/v1/ledger", "listLedger", ADMINISTRATORS),
    ("POST", "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/resolve", "resolveInvocation", NONE_SUCH),
    // A subscription or delivery that is not there; what happens to one that is, is told in `webhooks`.
    ("GET", "/v1/webhooks", "listWebhooks", ADMINISTRATORS),
    ("POST", "/v1/webhooks", "addWebhook", ["401 E3203", "401 E3203", "401 E3201", "403 E3206", "201 -"]),
    ("DELETE", "/v1/webhooks/01890000-0000-7000-8000-000000000001", "removeWebhook", NONE_SUCH),
    ("POST", "/v1/webhooks/01890000-0000-7000-8000-000000000001/rotate", "rotateWebhookSecret", NONE_SUCH),
    ("POST", "/v1/webhooks/01890000-0000-7000-8000-000000000001/test", "testWebhook", NONE_SUCH),
    ("GET", "/v1/webhooks/deliveries", "listDeliveries", ADMINISTRATORS),
    ("GET", "/v1/webhooks/deliveries/01890000-0000-7000-8000-000000000001", "getDelivery", NONE_SUCH),
    ("POST", "/v1/webhooks/deliveries/01890000-0000-7000-8000-000000000001/resend", "resendDelivery", NONE_SUCH),
    // Tokens prove nothing here: signatures do.
    ("POST", "/jobs/generate_embedding", "takeJob", SIGNED),
    ("POST", "/v1/workflows/callback", "workflowCallback", SIGNED),
    (
        "GET",
        "/.well-known/oauth-protected-resource",
        "getResourceMetadata",
        ["200 -", "200 -", "200 -", "200 -", "200 -"],
    ),
    // The credential is in the body, and asked first, whatever an `authorization` header shows.
    ("POST", "/oauth/token", "exchangeToken", ["401 -", "401 -", "401 -", "401 -", "401 -"]),
    ("GET", "/.well-known/jwks.json", "getKeys", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
    ("GET", "/health/live", "isLive", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
    ("GET", "/health/ready", "isReady", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
    ("GET", "/health", "getHealth", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
    ("GET", "/metrics", "getMetrics", ADMINISTRATORS),
    // The log of this stage is nobody's.
    ("GET", "/v1/admin/log-level", "getLogLevel", NOT_FOR_ADMINISTRATORS_EITHER),
    ("PUT", "/v1/admin/log-level", "putLogLevel", NOT_FOR_ADMINISTRATORS_EITHER),
    ("POST", "/v1/admin/tool-folders/load", "loadToolFolders", NOT_FOR_ADMINISTRATORS_EITHER),
    ("GET", "/", "getRoot", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
    ("GET", "/docs", "getDocs", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
    ("GET", "/openapi.json", "getOpenapi", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
    ("GET", "/schemas/tool-manifest.schema.json", "getManifestSchema", ["200 -", "200 -", "200 -", "200 -", "200 -"]),
];

fn body(operation: &str) -> Option<Value> {
    match operation {
        "registerTool" => Some(manifest("other", "1.0.0", &json!({}))),
        "compareSchemas" => Some(json!({ "old": {}, "new": {} })),
        "negotiateSchemas" => Some(json!({ "expected": {}, "offered": {} })),
        "invokeTool" => Some(json!({ "tool_id": "demo.echo_tool", "parameters": { "text": "x" } })),
        "jsonRpc" => Some(json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.list" })),
        "invokeBatch" => Some(json!({ "calls": [{ "tool_id": "demo.echo_tool", "parameters": { "text": "x" } }] })),
        "quarantineTool" | "releaseTool" => Some(json!({ "reason": "to see who may" })),
        "mintToken" => Some(json!({ "sub": "somebody" })),
        "revokeTokens" => Some(json!({ "jti": "of-nobody" })),
        "putTenants" => Some(json!({ "tenants": [{ "tenant": "acme" }] })),
        // The agent of the table is made known here, so that its tools can be looked at by others.
        "putAgents" => Some(json!({ "agents": [{ "agent_id": "agent-1" }, { "agent_id": "somebody" }] })),
        "putActivations" => Some(json!({ "activations": [{ "tool_id": "demo.panic_tool" }] })),
        "addWebhook" => Some(json!({ "url": "https://r.example/" })),
        "takeJob" | "workflowCallback" => Some(json!({})),
        "putServer" => Some(json!({ "reach": { "type": "stdio", "command": "node" } })),
        "classifyServerTool" => Some(json!({ "side_effect_policy": "pure" })),
        "putLogLevel" => Some(json!({ "level": "info" })),
        "resolveInvocation" => Some(json!({ "outcome": "happened" })),
        "nameCheckpoint" => Some(json!({ "label": "mine" })),
        "rollBackInvocation" => Some(json!({ "checkpoint_id": "019b0000-0000-7000-8000-00000000fffe" })),
        "resumeInvocation" => Some(json!({ "parameters": { "text": "x" } })),
        "moveBreaker" => Some(json!({ "to": "open" })),
        "putPolicies" => Some(json!({ "policies": "permit (principal, action, resource);" })),
        "explainCall" => Some(json!({ "tool_id": "demo.echo_tool", "parameters": { "text": "x" } })),
        "compileAffordances" => Some(json!({ "objective": "echo", "token_budget": 500, "counter": "estimate" })),
        "exchangeToken" => Some(json!({ "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
            "subject_token": "x", "subject_token_type": "urn:ietf:params:oauth:token-type:jwt" })),
        _ => None,
    }
}

#[test]
fn every_operation_is_in_the_table() {
    let documented: BTreeSet<String> = operations()
        .into_iter()
        .map(|(_, _, operation)| operation["operationId"].as_str().unwrap().to_owned())
        .collect();
    let listed: BTreeSet<String> = TABLE.iter().map(|(_, _, operation, _)| (*operation).to_owned()).collect();
    assert_eq!(documented, listed);
}

#[tokio::test]
async fn each_caller_gets_what_the_table_says() {
    let config = gantry_server::ServerConfig { metrics_public: Some(false), ..Default::default() };
    let stage = Stage::with(config).await;
    let callers = [None, Some("garbage"), Some(stage.expired.as_str()), Some(stage.agent.as_str()), Some(ADMIN)];
    for (method, path, operation, expected) in TABLE {
        for (caller, expected) in callers.iter().zip(expected) {
            let reply = stage.ask(method, path, *caller, body(operation)).await;
            assert_eq!(format!("{} {}", reply.status, reply.code()), *expected, "{method} {path} as {caller:?}");
            if reply.status == 401 {
                let challenge = reply.header("www-authenticate").unwrap();
                assert!(challenge.contains("resource_metadata=\"http://gantry/.well-known/oauth-protected-resource\""));
                if *operation == "exchangeToken" {
                    continue;
                }
                assert_eq!(challenge.contains("error="), caller.is_some(), "{challenge}");
                assert_eq!(reply.json()["status"], "permission_denied");
            }
        }
    }
}

#[tokio::test]
async fn a_tool_the_token_does_not_name_is_not_found() {
    let stage = Stage::new().await;
    let hidden = manifest("hidden", "1.0.0", &json!({ "namespace": "secret" }));
    assert_eq!(stage.admin("POST", "/v1/tools/register", Some(hidden)).await.status, 201);
    let agent = Some(stage.agent.as_str());
    let shown = stage.ask("GET", "/v1/tools/secret.hidden_tool", agent, None).await;
    let absent = stage.ask("GET", "/v1/tools/secret.absent_tool", agent, None).await;
    assert_eq!((shown.status, shown.code()), (404, "E3101".to_owned()));
    assert_eq!((absent.status, absent.code()), (404, "E3101".to_owned()));
    let listed = stage.ask("GET", "/v1/tools?q=hidden", agent, None).await.json();
    assert_eq!(listed["pagination"]["total_count"], 0);
}

#[tokio::test]
async fn metrics_are_public_on_loopback_unless_configured_otherwise() {
    let stage = Stage::new().await;
    // Under another name than those of the machine itself, a proxy may hand on what comes from elsewhere.
    assert_eq!(stage.ask("GET", "/metrics", None, None).await.status, 401);
    let reply = stage.raw(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", false).await;
    assert_eq!(reply.status, 200);
    let text = String::from_utf8(reply.body).unwrap();
    assert!(text.starts_with("gantry_up 1\n") && text.contains("\ngantry_mcp_sessions 0\n"), "{text}");
}
