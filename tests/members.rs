//! Every member of a manifest and of a request acts, or is refused with its reason.
//!
//! The test walks the schemas that the server itself publishes. Each member must have an arm below that tries it for real: a
//! member that is added to a schema and to nothing else fails here. What needs a machine room of its own (sandboxes, failing
//! services) names the test that shows it, and that test must be there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, manifest};

const TOOL: &str = "/v1/tools/invoke";

// ----------------------------------------------------------------------------------------------------------- walking

/// The members of a schema, by their names from the root: `retry_policy.max_attempts`, `execution.process.command`.
fn members(schema: &Value, definitions: &Value) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    collect(schema, definitions, "", &mut Vec::new(), &mut found);
    found
}

fn collect<'s>(
    schema: &'s Value,
    definitions: &'s Value,
    place: &str,
    within: &mut Vec<&'s str>,
    found: &mut BTreeSet<String>,
) {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next())
        && !within.contains(&name)
    {
        within.push(name);
        collect(&definitions[name], definitions, place, within, found);
        within.pop();
    }
    for (name, member) in schema["properties"].as_object().into_iter().flatten() {
        let path = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        collect(member, definitions, &path, within, found);
        found.insert(path);
    }
    collect_if_there(&schema["items"], definitions, place, within, found);
    for union in ["anyOf", "oneOf", "allOf"] {
        for branch in schema[union].as_array().into_iter().flatten() {
            // Each way of running has members of its own.
            let kind = branch["properties"]["type"]["const"].as_str();
            let place = kind.map_or_else(|| place.to_owned(), |kind| format!("{place}.{kind}"));
            collect(branch, definitions, &place, within, found);
        }
    }
}

fn collect_if_there<'s>(
    schema: &'s Value,
    definitions: &'s Value,
    place: &str,
    within: &mut Vec<&'s str>,
    found: &mut BTreeSet<String>,
) {
    if schema.is_object() {
        collect(schema, definitions, place, within, found);
    }
}

// ------------------------------------------------------------------------------------------------------------ trying

/// A server, and a counter that names tools.
struct Bench {
    gantry: Gantry,
    /// A token without any scope.
    narrow: String,
    tools: AtomicUsize,
}

impl Bench {
    async fn new() -> Self {
        let gantry = Gantry::start().await;
        let narrow = gantry.mint(json!({ "scopes": [] })).await;
        Self { gantry, narrow, tools: AtomicUsize::new(0) }
    }

    /// A manifest under a name of its own.
    fn manifest(&self, change: &Value) -> Value {
        let number = self.tools.fetch_add(1, Ordering::Relaxed);
        let mut whole = manifest(json!({ "tool_id": format!("tool_{number}") }));
        for (member, value) in change.as_object().unwrap() {
            whole[member] = value.clone();
        }
        whole
    }

    /// Publishes a tool with this change; answers its id.
    async fn published(&self, change: &Value) -> String {
        let whole = self.manifest(change);
        let answer = self.gantry.register(whole).await;
        assert_eq!(answer.status, 201, "{change}: {}", answer.text);
        answer.body["tool_id"].as_str().unwrap().to_owned()
    }

    /// The manifest with this change is refused, and the reason names the member.
    async fn refused(&self, change: Value, path: &str) {
        let answer = self.gantry.register(self.manifest(&change)).await;
        assert_eq!(answer.refusal(), (422, "E3105"), "{change}");
        assert!(answer.text.contains(path), "{change}: {}", answer.text);
    }

    /// What is only for people is shown to them as it was given.
    async fn shown(&self, change: Value) {
        let id = self.published(&change).await;
        let detail = self.gantry.get(&format!("/v1/tools/{id}")).await;
        for (member, value) in change.as_object().unwrap() {
            assert_eq!(detail.body["manifest"][member], *value, "{}", detail.text);
        }
    }

    async fn call(&self, id: &str, token: &str, more: &Value) -> Answer {
        let mut request = json!({ "tool_id": id, "parameters": { "expression": "1+1" } });
        for (member, value) in more.as_object().unwrap() {
            request[member] = value.clone();
        }
        self.gantry.request(Method::POST, TOOL, Some(token), Some(request)).await
    }

    /// The same call of two tools has different ends; `at` points to what is compared.
    async fn differs(&self, one: Value, other: Value, request: Value, at: &str) {
        self.differs_for(&self.gantry.token, (one, other), request, at).await;
    }

    async fn differs_for(&self, token: &str, (one, other): (Value, Value), request: Value, at: &str) {
        let mut ends = Vec::new();
        for change in [&one, &other] {
            let id = self.published(change).await;
            let answer = self.call(&id, token, &request).await;
            let part = answer.body.pointer(at).cloned().unwrap_or_default();
            ends.push(if at == "/status" { json!([answer.status, answer.code()]) } else { part });
        }
        assert_ne!(ends[0], ends[1], "{one} and {other} end the same");
    }

    /// Another test shows what this member does. It must be there, and the member's name must be in it, or in something of its
    /// file that it names.
    fn shown_by(member: &str, file: &str, test: &str) {
        let path = format!("{}/../../{file}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        let items = items(&text);
        let body = items.get(test).unwrap_or_else(|| panic!("{file} has no test {test}"));
        let name = member.rsplit('.').next().unwrap();
        let named = |body: &str| words(body).any(|word| word == name);
        let touched = named(body) || words(body).filter_map(|word| items.get(word)).any(|body| named(body));
        assert!(touched, "{test} of {file} does nothing with `{member}`");
    }
}

/// The functions and constants of a source file, by name.
fn items(source: &str) -> BTreeMap<&str, &str> {
    let mut found = BTreeMap::new();
    let mut start = 0;
    for line in source.split_inclusive('\n') {
        let (Some((_, rest)), bare) = (source.split_at_checked(start), line.trim_start()) else { continue };
        let indent = line.strip_suffix(bare).unwrap_or_default();
        start += line.len();
        let plain = bare.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ").trim_start_matches("pub ");
        let plain = plain.trim_start_matches("async ");
        let (named, end) = match (plain.strip_prefix("fn "), plain.strip_prefix("const ")) {
            (Some(named), _) => (named, format!("\n{indent}}}\n")),
            (None, Some(named)) => (named, ";\n".to_owned()),
            (None, None) => continue,
        };
        if let (Some(name), Some((body, _))) = (words(named).next(), rest.split_once(&end)) {
            found.insert(name, body);
        }
    }
    found
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

#[test]
fn a_citation_is_of_a_test_that_touches_its_member() {
    let source = "const SENT: &str = \"max_age\";\n\nfn helper() {\n    shared();\n}\n\nasync fn shows() {\n    helper(SENT);\n}\n";
    let items = items(source);
    assert_eq!(items.keys().copied().collect::<Vec<_>>(), ["SENT", "helper", "shows"]);
    assert!(words(items["SENT"]).any(|word| word == "max_age") && items["helper"].contains("shared"));
    assert!(!items["shows"].contains("shared"));
}

/// A day from today, as manifests write it.
fn day(from_today: i64) -> String {
    let said =
        std::process::Command::new("date").args(["-u", "-d", &format!("{from_today} days"), "+%F"]).output().unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

fn effects() -> Value {
    json!([{ "resource": "thing", "op": "DELETE", "scope": "tenant" }])
}

// ---------------------------------------------------------------------------------------------------------- manifest

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_of_a_manifest_acts_or_is_refused() {
    let bench = Bench::new().await;
    let schema = bench.gantry.get("/schemas/tool-manifest.schema.json").await.body;
    let members = members(&schema, &schema["$defs"]);
    assert!(members.len() > 100 && members.contains("retry_policy.max_attempts"), "{members:?}");
    for member in &members {
        let known =
            what_is_it(&bench, member).await || how_it_runs(&bench, member).await || about(&bench, member).await;
        assert!(known, "nothing says what `{member}` of a manifest does");
    }
}

/// Members about the contract, the rights and the effects of a tool.
async fn what_is_it(bench: &Bench, member: &str) -> bool {
    let none = || json!({});
    let expression =
        |guard: Value| json!({ "type": "object", "properties": { "expression": guard, "n": { "type": "integer" } } });
    match member {
        "tool_id" => bench.refused(json!({ "tool_id": "Not-Allowed" }), "/tool_id").await,
        "namespace" => {
            let id = bench.published(&json!({ "namespace": "elsewhere" })).await;
            assert!(id.starts_with("elsewhere."), "{id}");
        }
        "aliases" => {
            bench.published(&json!({ "aliases": ["tool-by-another-name"] })).await;
            let answer = bench.call("tool-by-another-name", &bench.gantry.token, &none()).await;
            assert_eq!(answer.body["result"]["result"], 2, "{}", answer.text);
        }
        "version" => {
            let id = bench.published(&json!({ "version": "3.1.4" })).await;
            let answer = bench.call(&id, &bench.gantry.token, &none()).await;
            assert_eq!(answer.body["tool_version"], "3.1.4");
        }
        "name" => bench.shown(json!({ "name": "A name for people" })).await,
        "description" => {
            bench.published(&json!({ "description": "Counts the xylophones of an orchestra." })).await;
            let found = bench.gantry.get("/v1/tools/search?q=xylophones").await;
            assert_eq!(found.body["results"].as_array().unwrap().len(), 1, "{}", found.text);
        }
        "provider" => bench.shown(json!({ "provider": "Somebody else" })).await,
        "protocol" => {
            bench
                .refused(json!({ "protocol": "native", "side_effect_policy": "unclassified" }), "/side_effect_policy")
                .await
        }
        "enabled" => bench.differs(none(), json!({ "enabled": false }), none(), "/status").await,
        "parameters" => {
            let other =
                json!({ "type": "object", "properties": { "expression": { "type": "string", "maxLength": 1 } } });
            bench.differs(none(), json!({ "parameters": other }), none(), "/status").await;
        }
        "result_schema" => {
            let other = json!({ "type": "object", "properties": { "result": { "type": "string" } } });
            bench.differs(none(), json!({ "result_schema": other }), none(), "/status").await;
        }
        "errors" | "errors.code" => {
            bench.refused(json!({ "errors": [{ "code": "E3201", "description": "Never." }] }), "/errors/0/code").await;
        }
        "errors.retryable" => {
            let declared = |retryable: bool| json!({ "errors": [{ "code": "E3301", "retryable": retryable, "description": "It is no sum." }] });
            let wrong = json!({ "parameters": { "expression": "1+" } });
            bench.differs(declared(true), declared(false), wrong, "/error/retryable").await;
        }
        "errors.description" => {
            Bench::shown_by(member, "tests/members.rs", "a_declared_error_says_what_to_do_about_it");
        }
        "coercion" => {
            let parameters = expression(json!({ "type": "string" }));
            let (one, other) =
                (json!({ "parameters": parameters }), json!({ "parameters": parameters, "coercion": "off" }));
            bench.differs(one, other, json!({ "parameters": { "expression": "1", "n": "5" } }), "/status").await;
        }
        "input_guard" => {
            let parameters = expression(json!({ "type": "string", "x-guard": "shell" }));
            let (one, other) =
                (json!({ "parameters": parameters }), json!({ "parameters": parameters, "input_guard": "off" }));
            bench.differs(one, other, json!({ "parameters": { "expression": "1; rm -rf x" } }), "/status").await;
            for guard in ["reject", "strip"] {
                let parameters = expression(json!({ "type": "string" }));
                bench.refused(json!({ "parameters": parameters, "input_guard": guard }), "/input_guard").await;
            }
        }
        "output_policy" => {
            let parser = |policy: &str| {
                json!({ "execution": { "type": "builtin", "handler": "json_parser" }, "output_policy": policy,
                    "parameters": { "type": "object", "properties": { "text": { "type": "string" } } }, "result_schema": { "type": "object" } })
            };
            let text = json!({ "parameters": { "text": "{\"mail\": \"jane.doe@example.com\"}" } });
            bench.differs(parser("raw"), parser("strict"), text, "/result").await;
        }
        "result_bytes_max" => {
            let parser = json!({ "execution": { "type": "builtin", "handler": "json_parser" }, "parameters": {
                "type": "object", "properties": { "text": { "type": "string" } } }, "result_schema": { "type": "object" } });
            let mut narrow = parser.clone();
            narrow[member] = json!(2048);
            let text = json!({ "parameters": { "text": json!({ "long": "x".repeat(4096) }).to_string() } });
            bench.differs(parser, narrow, text, "/status").await;
        }
        "required_permissions" | "requires_permission" | "network_policy" | "network_policy.allowed_domains" => {
            let change = match member {
                "required_permissions" => json!({ "required_permissions": ["filesystem:read:/data"] }),
                "requires_permission" => json!({ "requires_permission": "tool:web_search" }),
                _ => json!({ "network_policy": { "allowed_domains": ["example.com"] } }),
            };
            bench.differs_for(&bench.narrow, (none(), change), none(), "/status").await;
        }
        "network_policy.allowed_ports" | "network_policy.deny_all_egress" => {
            let ports = json!({ "network_policy": { "allowed_ports": [8443] } });
            bench.refused(ports, "/network_policy/allowed_ports").await;
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/untrusted.rs",
                "what_the_network_policy_opens_is_asked_of_the_token",
            );
        }
        "side_effect_policy" => {
            let other = json!({ "side_effect_policy": "irreversible", "side_effects": effects(), "idempotency": {} });
            bench.differs(none(), other, none(), "/status").await;
        }
        "side_effects" => {
            bench.refused(json!({ "side_effect_policy": "irreversible", "idempotency": {} }), "/side_effects").await
        }
        "side_effects.resource" | "side_effects.op" | "side_effects.scope" => {
            bench.shown(json!({ "side_effect_policy": "irreversible", "side_effects": effects(), "idempotency": { "key_fields": [], "window_seconds": 60 } })).await;
        }
        "idempotency" => {
            bench
                .refused(json!({ "side_effect_policy": "irreversible", "side_effects": effects() }), "/idempotency")
                .await
        }
        "idempotency.key_fields" => {
            bench.refused(json!({ "idempotency": { "key_fields": ["nothing"] } }), "/idempotency/key_fields/0").await;
        }
        "idempotency.window_seconds" => {
            Bench::shown_by(
                member,
                "crates/kernel/src/ledger/key.rs",
                "a_manifest_asks_for_a_longer_window_and_never_gets_a_shorter_one_than_a_day",
            );
        }
        "compensation_tool_id" => {
            let change = json!({ "side_effect_policy": "compensatable", "side_effects": effects(), "idempotency": {}, "compensation_tool_id": "demo.nowhere" });
            bench.refused(change, "/compensation_tool_id").await;
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/ledger.rs",
                "when_nobody_knows_gantry_says_so_and_repeats_nothing_until_a_person_has_looked",
            );
        }
        "requires_confirmation" | "requires_approval" => {
            bench.differs(none(), json!({ member: true }), none(), "/status").await
        }
        "confirmation_prompt" => bench.refused(json!({ member: "Really?" }), "/confirmation_prompt").await,
        "cache_ttl_seconds" => bench.refused(json!({ member: 60 }), "/cache_ttl_seconds").await,
        _ => return false,
    }
    true
}

/// Members about how a tool runs.
async fn how_it_runs(bench: &Bench, member: &str) -> bool {
    let none = || json!({});
    let background = || json!({ "execution_options": { "async_mode": true } });
    let estimate = "/polling_info/estimated_completion_seconds";
    match member {
        "execution" => {
            bench
                .differs(
                    none(),
                    json!({ "execution": { "type": "builtin", "handler": "datetime" } }),
                    none(),
                    "/status",
                )
                .await
        }
        "execution.builtin.type" | "execution.builtin.handler" => {
            let other = json!({ "execution": { "type": "builtin", "handler": "json_parser" } });
            bench.differs(none(), other, none(), "/status").await;
        }
        _ if member.starts_with("execution.process.") => match member {
            "execution.process.isolation" => {
                Bench::shown_by(
                    member,
                    "tests/sandbox/permissions.rs",
                    "isolation_that_this_machine_lacks_is_refused_with_what_is_missing",
                );
            }
            "execution.process.protocol" => Bench::shown_by(
                member,
                "tests/sandbox/sessions.rs",
                "a_session_speaks_on_the_way_and_fails_in_its_own_words",
            ),
            "execution.process.warm" => {
                Bench::shown_by(member, "tests/sandbox/sessions.rs", "a_warm_process_serves_one_call_after_another")
            }
            "execution.process.type" | "execution.process.command" | "execution.process.env" => {
                Bench::shown_by(
                    member,
                    "tests/ends_of_life.rs",
                    "a_tenants_own_process_tool_runs_where_the_operator_allows_it",
                );
            }
            _ => return false,
        },
        "execution.wasm.env" => {
            Bench::shown_by(member, "tests/sandbox/wasm.rs", "a_component_has_the_variables_of_its_manifest")
        }
        "execution.wasm.type" | "execution.wasm.component" => {
            Bench::shown_by(member, "tests/sandbox/wasm.rs", "each_word_opens_exactly_what_it_says");
        }
        "execution.oci.type" | "execution.oci.image" | "execution.oci.command" | "execution.oci.isolation" => {
            Bench::shown_by(
                member,
                "crates/executors/tests/executors/oci.rs",
                "a_root_directory_runs_under_each_isolation_that_is_to_be_had",
            );
        }
        "execution.oci.protocol" | "execution.oci.env" => {
            Bench::shown_by(
                member,
                "crates/executors/tests/executors/oci.rs",
                "a_container_speaks_the_protocol_and_has_the_variables_of_its_manifest",
            );
        }
        "execution.mcp.type" | "execution.mcp.server" | "execution.mcp.tool" | "execution.mcp.display" => {
            bench
                .refused(json!({ "execution": { "type": "mcp", "server": "files", "tool": "read" } }), "MCP servers")
                .await;
        }
        "execution.mcp.display.task_support" => {
            Bench::shown_by(
                member,
                "tests/mcp/fidelity.rs",
                "what_a_server_says_of_tasks_is_shown_and_a_tool_that_must_be_one_is_called_as_one",
            );
        }
        // What a server says of its tool, handed on as it was said.
        _ if member.starts_with("execution.mcp.display.") => {
            Bench::shown_by(
                member,
                "tests/mcp/fidelity.rs",
                "what_a_server_says_about_a_tool_is_what_clients_are_shown",
            );
        }
        _ if member.starts_with("execution.") => {
            let execution = match member.split('.').nth(1).unwrap() {
                "http" => {
                    json!({ "type": "http", "method": "GET", "url": "https://example.com", "headers": { "x": "y" } })
                }
                "openapi" => json!({ "type": "openapi", "document": "api.yaml", "operation_id": "getPet" }),
                "grpc" => json!({ "type": "grpc", "endpoint": "x", "service": "y", "method": "z" }),
                "websocket" => json!({ "type": "websocket", "url": "wss://example.com" }),
                "workflow" => json!({ "type": "workflow", "workflow_id": "w", "webhook_path": "/w" }),
                "composio" => json!({ "type": "composio", "action": "a", "entity_id": "e" }),
                "composite" => json!({ "type": "composite", "steps": [1, "anything"] }),
                _ => return false,
            };
            let name = member.rsplit('.').next().unwrap();
            assert!(execution.get(name).is_some(), "{member} is not tried");
            bench.refused(json!({ "execution": execution }), "/execution/type").await;
        }
        "timeout_class" => {
            bench.differs(json!({ member: "standard" }), json!({ member: "interactive" }), background(), estimate).await
        }
        "timeout_default" | "timeout_max" => bench.differs(none(), json!({ member: 2 }), background(), estimate).await,
        "retry_policy" | "retry_policy.max_attempts" => {
            let mut ends = Vec::new();
            for attempts in [1, 4] {
                let id = bench.published(&json!({ "retry_policy": { "max_attempts": attempts } })).await;
                let answer = bench.call(&id, &bench.gantry.token, &background()).await;
                let job = answer.body["invocation_id"].as_str().unwrap().to_owned();
                ends.push(bench.gantry.get(&format!("/v1/invocations/{job}")).await.body["attempts_max"].clone());
            }
            assert_eq!(ends, [1, 4]);
        }
        "retry_policy.backoff_multiplier" | "retry_policy.backoff_max_seconds" => {
            Bench::shown_by(
                member,
                "crates/kernel/src/resilience/guard.rs",
                "a_manifest_says_how_waits_grow_and_how_long_they_get",
            );
        }
        "retry_policy.retry_on_status_codes" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/resilience.rs",
                "the_status_of_the_service_itself_is_the_one_that_is_listed",
            );
        }
        "external_service" => {
            Bench::shown_by(member, "tests/resilience.rs", "a_failing_service_is_left_alone_tried_and_used_again");
        }
        "circuit_breaker_config" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/resilience.rs",
                "a_safe_call_is_tried_again_as_often_as_its_manifest_says",
            );
        }
        "circuit_breaker_config.health_percent" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/resilience.rs",
                "while_a_tool_is_unwell_one_failure_opens_its_breaker",
            );
        }
        "circuit_breaker_config.failure_threshold"
        | "circuit_breaker_config.success_threshold"
        | "circuit_breaker_config.timeout_seconds"
        | "circuit_breaker_config.half_open_max_calls"
        | "circuit_breaker_config.window_seconds"
        | "circuit_breaker_config.failure_percent"
        | "circuit_breaker_config.slow_percent"
        | "circuit_breaker_config.slow_after_ms"
        | "circuit_breaker_config.minimum_calls"
        | "circuit_breaker_config.canary_percent"
        | "circuit_breaker_config.canary_step_percent" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/resilience/settings_cases.rs",
                "nothing_said_means_the_defaults_and_a_manifest_says_it_for_its_own_tools",
            );
        }
        "stale_results" | "stale_results.max_age_seconds" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/resilience.rs",
                "while_a_service_is_left_alone_the_last_good_result_is_answered_and_marked_until_it_is_too_old",
            );
        }
        "stale_results.shared" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/resilience.rs",
                "nobody_is_given_what_another_caller_was_given_unless_it_is_the_same_for_all",
            );
        }
        "resource_limits" => bench.refused(json!({ member: { "memory": "64Mi" } }), "/resource_limits").await,
        "resource_limits.cpu" | "resource_limits.memory" | "resource_limits.ephemeral_storage" => {
            if member.ends_with("ephemeral_storage") {
                let component = json!({ "type": "wasm", "component": "main.wasm" });
                let limits = json!({ "memory": "64Mi", "ephemeral_storage": "8Mi" });
                bench
                    .refused(
                        json!({ "execution": component, "resource_limits": limits }),
                        "/resource_limits/ephemeral_storage",
                    )
                    .await;
            }
            Bench::shown_by(
                member,
                "tests/sandbox/limits.rs",
                "a_limit_is_the_least_that_anybody_says_and_asking_above_the_server_is_refused",
            );
        }
        "rate_limit" => bench.shown(json!({ member: { "max_per_minute": 5 } })).await,
        "rate_limit.max_per_minute" | "rate_limit.max_per_hour" | "rate_limit.max_per_day" => {
            let (_, name) = member.split_once('.').unwrap();
            let id = bench.published(&json!({ "rate_limit": { name: 1 } })).await;
            // An agent that nobody else is: the limit is counted by user.
            let agent = bench.gantry.mint(json!({ "sub": format!("did:example:{name}") })).await;
            assert_eq!(bench.call(&id, &agent, &none()).await.status, 200);
            assert_eq!(bench.call(&id, &agent, &none()).await.refusal(), (429, "E3003"));
        }
        "checkpoint_config" => {
            // Where nothing can be saved, it does nothing, whatever stands in it.
            for config in [json!({}), json!({ "macro_events": ["step"] }), json!({ "micro_interval_seconds": 60 })] {
                bench.refused(json!({ member: config }), "/checkpoint_config").await;
            }
            Bench::shown_by(member, "crates/kernel/tests/kernel/checkpoints.rs", "only_calls_that_want_it_save")
        }
        "checkpoint_config.enabled" => {
            bench.refused(json!({ "checkpoint_config": { "enabled": true } }), "/checkpoint_config/enabled").await;
            bench.refused(json!({ "checkpoint_config": { "enabled": false } }), "/checkpoint_config").await;
            Bench::shown_by(member, "tests/checkpoints.rs", "only_tools_that_can_save_are_said_to");
        }
        "checkpoint_config.micro_interval_seconds" => {
            Bench::shown_by(
                member,
                "crates/kernel/src/checkpoints/plan.rs",
                "the_caller_comes_before_the_manifest_and_that_before_the_class",
            );
        }
        "checkpoint_config.macro_events" => {
            Bench::shown_by(
                member,
                "crates/kernel/src/checkpoints/plan.rs",
                "a_name_that_is_a_declared_event_makes_a_macro_checkpoint",
            );
        }
        "checkpoint_config.compression_threshold_bytes" => {
            Bench::shown_by(
                member,
                "crates/kernel/src/checkpoints/plan.rs",
                "a_manifest_says_from_which_size_on_its_states_are_compressed",
            );
        }
        "priority" => {
            let mut levels = Vec::new();
            for change in [none(), json!({ "priority": 9 })] {
                let id = bench.published(&change).await;
                let answer = bench.call(&id, &bench.gantry.token, &background()).await;
                levels.push(priority_of(bench, &answer).await);
            }
            assert_eq!(levels, [5, 9]);
        }
        "document_dependencies"
        | "document_dependencies.document_pattern"
        | "document_dependencies.access_mode"
        | "document_dependencies.version_pinning" => {
            let wanted = json!([{ "document_pattern": "spec:*", "access_mode": "read", "version_pinning": true }]);
            bench.refused(json!({ "document_dependencies": wanted }), "/document_dependencies").await;
        }
        _ => return false,
    }
    true
}

/// Members about cost, watching, finding, the end and the documentation of a tool.
async fn about(bench: &Bench, member: &str) -> bool {
    let none = || json!({});
    let cost = |change: Value| json!({ "cost_config": change });
    let notice = "/execution_metadata/deprecation";
    match member {
        "cost_config" | "cost_config.fixed_cost" => {
            bench.differs(none(), cost(json!({ "fixed_cost": "0.5" })), none(), "/execution_metadata/cost").await
        }
        "cost_config.per_unit"
        | "cost_config.per_unit.unit"
        | "cost_config.per_unit.cost_per_unit"
        | "cost_config.per_unit.input_field" => {
            let priced = cost(
                json!({ "per_unit": { "unit": "character", "cost_per_unit": "0.1", "input_field": "expression" } }),
            );
            bench.differs(none(), priced, none(), "/execution_metadata/cost").await;
        }
        "cost_config.currency" => {
            let (one, other) =
                (cost(json!({ "fixed_cost": "1" })), cost(json!({ "fixed_cost": "1", "currency": "EUR" })));
            bench.differs(one, other, none(), "/execution_metadata/cost_currency").await;
        }
        "cost_config.cost_field" => {
            bench.differs(none(), cost(json!({ "cost_field": "/result" })), none(), "/execution_metadata/cost").await
        }
        "cost_config.tokens_field" => {
            bench
                .differs(none(), cost(json!({ "tokens_field": "/result" })), none(), "/execution_metadata/tokens_used")
                .await;
        }
        "observability.alert_timeout_rate" => {
            Bench::shown_by(
                member,
                "crates/insights/src/health/tests.rs",
                "the_manifest_says_how_many_of_its_calls_may_run_out_of_time",
            );
        }
        "observability" | "observability.alert_error_rate" | "observability.baseline_p99_ms" => {
            Bench::shown_by(
                member,
                "crates/insights/src/health/tests.rs",
                "the_manifest_has_the_last_word_about_its_thresholds",
            );
        }
        _ if member == "behaviour" || member.starts_with("behaviour.") => {
            let (_, name) = member.split_once('.').unwrap_or(("", "deterministic"));
            let value = if name == "examples" { json!([1]) } else { json!(true) };
            bench.refused(json!({ "behaviour": { name: value } }), "/behaviour").await;
        }
        "examples" => bench.refused(json!({ "examples": [{ "expression": 5, "no": 1 }] }), "/examples/0").await,
        "tags" | "categories" => {
            let id = bench.published(&json!({ member: ["sought_after"] })).await;
            let filter = if member == "tags" { "tags" } else { "category" };
            let found = bench.gantry.get(&format!("/v1/tools?{filter}=sought_after")).await;
            assert_eq!(found.body["tools"][0]["tool_id"], *id, "{}", found.text);
        }
        "lifecycle_state" => bench.differs(none(), json!({ member: "deprecated" }), none(), notice).await,
        "deprecation_date" => {
            bench.differs(none(), json!({ member: day(-1) }), none(), notice).await;
            bench.refused(json!({ member: day(-1), "sunset_date": day(-2) }), "/sunset_date").await;
        }
        "sunset_date" => {
            bench
                .differs(
                    json!({ "deprecation_date": day(-1) }),
                    json!({ "deprecation_date": day(-1), member: day(9) }),
                    none(),
                    "/execution_metadata/deprecation/sunset_at",
                )
                .await;
            bench.refused(json!({ member: day(-1) }), "/sunset_date").await;
        }
        "migration_guide_url" | "replacement_tool_id" => {
            let (value, at) = match member {
                "migration_guide_url" => ("https://example.com/move", "migration_guide"),
                _ => ("demo.new", "successor"),
            };
            bench.refused(json!({ member: value }), &format!("/{member}")).await;
            let (one, other) =
                (json!({ "deprecation_date": day(-1) }), json!({ "deprecation_date": day(-1), member: value }));
            bench.differs(one, other, none(), &format!("{notice}/{at}")).await;
        }
        "breaking_changes" => {
            let id = bench.published(&none()).await;
            let (_, name) = id.split_once('.').unwrap();
            let next = json!({ "tool_id": name, "version": "1.0.1", "breaking_changes": true });
            bench.refused(next, "/breaking_changes").await;
        }
        "license" => {
            bench.shown(json!({ member: "MIT OR Apache-2.0" })).await;
            bench.shown(json!({ member: "Proprietary" })).await;
            bench.refused(json!({ member: "Apache 2" }), "/license").await;
        }
        "changelog" => bench.shown(json!({ member: "Nothing new." })).await,
        "documentation_url" | "source_code_url" => bench.shown(json!({ member: "https://example.com/x" })).await,
        "author" | "author.name" | "author.email" | "author.url" => {
            let author = json!({ "name": "Jo", "email": "jo@example.com", "url": "https://example.com" });
            bench.shown(json!({ "author": author })).await;
        }
        _ => return false,
    }
    true
}

/// The priority that a call in the background waits with.
async fn priority_of(bench: &Bench, accepted: &Answer) -> u64 {
    let id = accepted.body["invocation_id"].as_str().unwrap_or_else(|| panic!("{}", accepted.text));
    let jobs = bench.gantry.get("/v1/invocations?limit=100").await;
    let jobs = jobs.body["invocations"].as_array().unwrap_or_else(|| panic!("{}", jobs.text));
    let job = jobs.iter().find(|job| job["invocation_id"] == id).unwrap();
    job["priority"].as_u64().unwrap()
}

// ----------------------------------------------------------------------------------------------------------- request

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_member_of_a_request_acts_or_is_refused() {
    let bench = Bench::new().await;
    let openapi = bench.gantry.get("/openapi.json").await.body;
    let schemas = &openapi["components"]["schemas"];
    let of_calls = members(&schemas["InvokeRequest"], schemas);
    assert!(of_calls.len() > 30, "{of_calls:?}");
    for member in &of_calls {
        assert!(of_a_call(&bench, member).await, "nothing says what `{member}` of a request does");
    }
    // A call of a batch is a call, and goes the same way; what it cannot have is refused there.
    let of_batches = members(&schemas["BatchRequest"], schemas);
    let own: Vec<&String> = of_batches.iter().filter(|name| !name.contains('.')).collect();
    assert_eq!(own, ["calls"], "a member of a batch that nothing tries");
    let of_batches: BTreeSet<String> =
        of_batches.iter().filter_map(|name| Some(name.strip_prefix("calls.")?.to_owned())).collect();
    let critical: Vec<&String> = of_batches.difference(&of_calls).collect();
    assert_eq!(critical, ["critical"]);
    Bench::shown_by(
        "critical",
        "tests/calls.rs",
        "a_batch_stops_at_the_first_critical_failure_and_answers_in_full_length",
    );
    for (options, code) in background_only() {
        let calls = json!({ "calls": [{ "tool_id": "calculator", "parameters": { "expression": "1" }, "execution_options": options }] });
        let answer = bench.gantry.post("/v1/tools/invoke/batch", calls).await;
        assert_eq!(answer.body["results"][0]["error"]["code"], code, "{options}: {}", answer.text);
    }
    // To go on from a checkpoint is a call, too, and what it cannot have is refused before the checkpoint is looked for.
    let of_resuming = members(&schemas["Resume"], schemas);
    let own: Vec<&String> = of_resuming.difference(&of_calls).collect();
    assert_eq!(own, ["checkpoint_id"]);
    Bench::shown_by(
        "checkpoint_id",
        "tests/checkpoints.rs",
        "a_call_killed_three_times_finishes_from_its_checkpoints_and_repeats_no_step",
    );
    for (options, code) in background_only() {
        let nobody = "/v1/tools/resume/00000000-0000-4000-8000-000000000000";
        let answer = bench.gantry.post(nobody, json!({ "execution_options": options })).await;
        assert_eq!(answer.code(), code, "{options}: {}", answer.text);
    }
}

/// Options that only a call in the background can have.
fn background_only() -> [(Value, &'static str); 3] {
    [
        (json!({ "callback": { "url": "https://example.com", "secret": "s" } }), "E3004"),
        (json!({ "priority": "high" }), "E3004"),
        (json!({ "async_mode": true }), "E3010"),
    ]
}

async fn of_a_call(bench: &Bench, member: &str) -> bool {
    let token = &bench.gantry.token;
    let call = async |more: Value| bench.call("calculator", token, &more).await;
    let options = |options: Value| json!({ "execution_options": options });
    match member {
        "tool_id" => assert_eq!(call(json!({ member: "no_such_tool" })).await.refusal(), (404, "E3101")),
        "tool_version" => assert_eq!(call(json!({ member: "^9.0.0" })).await.refusal(), (409, "E3103")),
        "parameters" => assert_eq!(call(json!({ member: { "expression": "2+3" } })).await.body["result"]["result"], 5),
        "invocation_id" => {
            let id = "7f3c1d2e-0000-4000-8000-0000000000aa";
            assert_eq!(call(json!({ member: id })).await.body["invocation_id"], id);
        }
        "agent_context" | "agent_context.agent_did" => {
            assert_eq!(
                call(json!({ "agent_context": { "agent_did": "did:web:other.example" } })).await.refusal(),
                (403, "E3206")
            );
        }
        "agent_context.tenant_id" => {
            assert_eq!(call(json!({ "agent_context": { "tenant_id": "other" } })).await.refusal(), (403, "E3206"))
        }
        "agent_context.user_did" => assert_eq!(
            call(json!({ "agent_context": { "user_did": "did:web:user.example" } })).await.refusal(),
            (403, "E3206")
        ),
        "agent_context.session_id" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/ledger.rs",
                "a_key_is_of_one_tool_one_caller_one_session_and_one_set_of_parameters",
            );
        }
        "agent_context.parent_sandbox_id" => {
            let answer = call(json!({ "agent_context": { "parent_sandbox_id": "sandbox-1" } })).await;
            assert_eq!(answer.refusal(), (501, "E3010"));
            assert!(answer.text.contains("agent_context.parent_sandbox_id"), "{}", answer.text);
        }
        "execution_options" | "execution_options.async_mode" => {
            assert_eq!(call(options(json!({ "async_mode": true }))).await.status, 202)
        }
        "execution_options.idempotency_key" => {
            let keyed = options(json!({ "idempotency_key": "members-1" }));
            assert_eq!(call(keyed.clone()).await.body["cached"], false);
            assert_eq!(call(keyed).await.body["cached"], true);
        }
        "execution_options.turn_group_id" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/ledger.rs",
                "what_must_not_happen_twice_needs_a_key_and_a_turn_is_one",
            );
        }
        "execution_options.wait_for_duplicate" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/ledger.rs",
                "who_does_not_want_to_wait_is_told_where_the_first_call_is",
            );
        }
        "execution_options.dry_run" => {
            assert_eq!(call(options(json!({ "dry_run": true }))).await.refusal(), (501, "E3010"))
        }
        "execution_options.require_approval" => {
            assert_eq!(call(options(json!({ "require_approval": true }))).await.refusal(), (403, "E3208"))
        }
        "execution_options.priority" => {
            assert_eq!(call(options(json!({ "priority": "normal" }))).await.status, 200, "the default changes nothing");
            for word in ["low", "high"] {
                assert_eq!(call(options(json!({ "priority": word }))).await.refusal(), (400, "E3004"), "{word}");
            }
            let accepted = call(options(json!({ "priority": "high", "async_mode": true }))).await;
            assert_eq!(priority_of(bench, &accepted).await, 8);
        }
        "execution_options.callback" | "execution_options.callback.webhook_id" => {
            let named = |id: &str| options(json!({ "callback": { "webhook_id": id } }));
            assert_eq!(call(named("nobody")).await.refusal(), (400, "E3004"), "no id at all");
            let answer = call(named("00000000-0000-4000-8000-000000000000")).await;
            assert_eq!(answer.code(), "E3702", "{}", answer.text);
            let shown = "the_end_of_a_call_is_told_to_those_who_asked_and_they_can_check_by_whom";
            Bench::shown_by(member, "tests/webhooks.rs", shown);
        }
        "execution_options.callback.url" | "execution_options.callback.secret" => {
            let answer =
                call(options(json!({ "callback": { "url": "https://example.com", "secret": "there_is_none" } }))).await;
            assert_eq!(answer.code(), "E3602", "{}", answer.text);
            let answer = call(options(json!({ "callback": { "url": "ftp://example.com", "secret": "x" } }))).await;
            assert_eq!(answer.refusal(), (400, "E3004"));
        }
        "resource_limits" | "resource_limits.timeout_seconds" => {
            assert_eq!(call(json!({ "resource_limits": { "timeout_seconds": -1 } })).await.refusal(), (400, "E3004"));
            let shown = "a_session_is_told_of_its_deadline_before_it_is_ended";
            Bench::shown_by("timeout_seconds", "tests/sandbox/sessions.rs", shown);
        }
        "resource_limits.cpu_millicore_limit"
        | "resource_limits.memory_mb_limit"
        | "resource_limits.network_bandwidth_mbps" => {
            let (_, name) = member.split_once('.').unwrap();
            let answer = call(json!({ "resource_limits": { name: 64 } })).await;
            assert_eq!(answer.refusal(), (501, "E3010"));
            assert!(answer.text.contains(name), "{}", answer.text);
            let shown = match name {
                "cpu_millicore_limit" => "the_cpu_of_a_call_is_bounded_by_what_was_asked",
                "memory_mb_limit" => "a_limit_is_the_least_that_anybody_says_and_asking_above_the_server_is_refused",
                _ => "the_bandwidth_of_a_call_is_bounded_by_what_was_asked",
            };
            Bench::shown_by(member, "tests/sandbox/limits.rs", shown);
        }
        "document_context"
        | "document_context.document_refs"
        | "document_context.version_pinning"
        | "document_context.query" => {
            let context = json!({ "document_refs": ["a"], "version_pinning": { "a": "1" }, "query": "q" });
            assert_eq!(call(json!({ "document_context": context })).await.refusal(), (501, "E3010"));
        }
        "checkpoint_config" | "checkpoint_config.resume_from_checkpoint_id" => {
            let id = json!({ "resume_from_checkpoint_id": "00000000-0000-4000-8000-000000000000" });
            let answer = call(json!({ "checkpoint_config": id })).await;
            assert_eq!(answer.refusal(), (404, "E3903"), "{}", answer.text);
        }
        "checkpoint_config.enable_checkpointing" => {
            let wish = json!({ "checkpoint_config": { "enable_checkpointing": true } });
            assert_eq!(call(wish).await.refusal(), (501, "E3010"), "a built-in tool has no way to save");
            Bench::shown_by(member, "crates/kernel/tests/kernel/checkpoints.rs", "only_calls_that_want_it_save")
        }
        "checkpoint_config.checkpoint_interval_seconds" => {
            Bench::shown_by(
                member,
                "crates/kernel/src/checkpoints/plan.rs",
                "the_caller_comes_before_the_manifest_and_that_before_the_class",
            );
        }
        "execution_mode" => assert_eq!(call(json!({ member: "async" })).await.status, 202),
        _ => return false,
    }
    true
}

#[tokio::test]
async fn an_explanation_says_what_the_call_would_come_to_whichever_way_it_is_made() {
    let bench = Bench::new().await;
    let token = &bench.gantry.token;
    let nobody = json!({ "webhook_id": "00000000-0000-4000-8000-000000000000" });
    for options in [
        json!({}),
        json!({ "priority": "normal" }),
        json!({ "priority": "high" }),
        json!({ "async_mode": true }),
        json!({ "async_mode": true, "priority": "high" }),
        json!({ "async_mode": true, "dry_run": true }),
        json!({ "callback": nobody }),
        json!({ "callback": { "url": "https://example.com", "secret": "there_is_none" }, "async_mode": true }),
        json!({ "dry_run": true }),
    ] {
        let request =
            json!({ "tool_id": "calculator", "parameters": { "expression": "1" }, "execution_options": options });
        let explained = bench.gantry.post("/v1/tools/explain", request.clone()).await;
        let called = bench.gantry.request(Method::POST, TOOL, Some(token), Some(request)).await;
        assert_eq!(explained.body["allowed"], called.status < 300, "{options}: {} {}", explained.text, called.text);
        if called.status >= 300 {
            assert_eq!(explained.body["code"], called.code(), "{options}: {} {}", explained.text, called.text);
        }
    }
}

#[tokio::test]
async fn a_declared_error_says_what_to_do_about_it() {
    let tools = tempfile::tempdir().unwrap();
    crate::support::open_to_all(tools.path());
    let folder = tools.path().join("fails");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("main.sh"), "#!/bin/sh\nexit 3\n").unwrap();
    let whole = manifest(json!({ "tool_id": "fails", "execution": { "type": "process", "command": ["sh", "main.sh"] },
        "errors": [{ "code": "E3401", "retryable": true, "description": "The printer is out of paper: refill it." }] }));
    std::fs::write(folder.join("tool.json"), whole.to_string()).unwrap();
    let gantry = crate::support::Start::new()
        .arg("--tools")
        .arg(tools.path().to_str().unwrap())
        .arg("--unsandboxed-processes")
        .run()
        .await;
    let answer = gantry.invoke("demo.fails", json!({ "expression": "1" })).await;
    assert_eq!(answer.refusal(), (500, "E3401"));
    assert_eq!(answer.body["error"]["resolution"], "The printer is out of paper: refill it.");
    assert_eq!(answer.body["error"]["retryable"], true);
}

#[tokio::test]
async fn a_tool_that_no_call_could_ever_run_is_refused_when_it_is_registered() {
    let gantry = Gantry::start().await;
    for (execution, place, words) in [
        (json!({ "type": "builtin", "handler": "calculater" }), "/execution/handler", "one of calculator"),
        (json!({ "type": "process", "command": ["sh", "main.sh"] }), "/execution", "`--tools`"),
        (json!({ "type": "wasm", "component": "main.wasm" }), "/execution", "`--tools`"),
        (json!({ "type": "oci", "image": "rootfs" }), "/execution", "`--tools`"),
    ] {
        let answer = gantry.register(manifest(json!({ "execution": execution }))).await;
        assert_eq!(answer.refusal(), (422, "E3105"), "{execution}");
        assert!(answer.text.contains(place) && answer.text.contains(words), "{execution}: {}", answer.text);
        assert_eq!(gantry.get("/v1/tools/demo.echo_sum").await.refusal(), (404, "E3101"));
    }
}

#[tokio::test]
async fn a_way_of_running_that_nothing_here_knows_is_refused_with_those_that_work() {
    let gantry = Gantry::start().await;
    let composite = manifest(json!({ "execution": { "type": "composite", "steps": [] } }));
    let answer = gantry.register(composite).await;
    assert_eq!(answer.refusal(), (422, "E3105"));
    for word in ["`composite` is not supported", "`builtin`", "`process`", "/execution/type"] {
        assert!(answer.text.contains(word), "{word}: {}", answer.text);
    }
    assert_eq!(gantry.get("/v1/tools/demo.echo_sum").await.refusal(), (404, "E3101"));
}
