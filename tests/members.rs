//! Every member of a manifest and of a request acts, or is refused with its reason.
//!
//! The test walks the schemas that the server itself publishes. Each member must have an arm below that tries it for real: a
//! member that is added to a schema and to nothing else fails here. What needs a machine room of its own (sandboxes, failing
//! services) names the test that shows it, and that test must be there.

mod bench;
mod requests;

use serde_json::{Value, json};

use crate::support::Answer;

use bench::{Bench, members};

const TOOL: &str = "/v1/tools/invoke";

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
            Bench::shown_by(member, "tests/members/requests.rs", "a_declared_error_says_what_to_do_about_it");
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
                "crates/kernel/tests/kernel/stale_results.rs",
                "while_a_service_is_left_alone_the_last_good_result_is_answered_and_marked_until_it_is_too_old",
            );
        }
        "stale_results.shared" => {
            Bench::shown_by(
                member,
                "crates/kernel/tests/kernel/stale_results.rs",
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
