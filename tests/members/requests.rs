//! Members of a request, one by one; and what a registration is told of ways of running that nothing here has.

use std::collections::BTreeSet;

use reqwest::Method;
use serde_json::{Value, json};

use super::TOOL;
use super::bench::{Bench, members};
use super::priority_of;
use crate::support::{Gantry, Start, manifest, open_to_all};

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
    open_to_all(tools.path());
    let folder = tools.path().join("fails");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("main.sh"), "#!/bin/sh\nexit 3\n").unwrap();
    let whole = manifest(json!({ "tool_id": "fails", "execution": { "type": "process", "command": ["sh", "main.sh"] },
        "errors": [{ "code": "E3401", "retryable": true, "description": "The printer is out of paper: refill it." }] }));
    std::fs::write(folder.join("tool.json"), whole.to_string()).unwrap();
    let gantry =
        Start::new().arg("--tools").arg(tools.path().to_str().unwrap()).arg("--unsandboxed-processes").run().await;
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
