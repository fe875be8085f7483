//! What keeps a tool in its place, as far as the kernel decides it: permissions, isolation, limits, what it may say.

use contract::error::ErrorCode;
use contract::manifest::Isolation;
use gantry_kernel::{IsolationDemand, IsolationPolicy, ResourceEnvelope};
use ports::executor::forbidden_destinations;
use serde_json::{Value, json};
use test_kernel::{ADMIN, TestKernel, TestKernelOptions, ToolScript, admin, greet, manifest, mint_request};

fn call_of(tool: &str) -> Value {
    json!({ "tool_id": tool, "parameters": { "name": "Ada" } })
}

#[tokio::test]
async fn words_that_cannot_be_granted_are_refused_at_registration_with_every_reason() {
    let stage = TestKernel::new().await;
    let publish = async |change: Value| stage.kernel.publish(admin(), manifest(change)).await;
    let refusal = publish(json!({
        "required_permissions": ["filesystem:read:relative", "tool:fine", "network:ssh://h", "filesystem:write:/data"],
        "requires_permission": "tool:a*b",
        "network_policy": { "allowed_domains": ["127.1"] },
    }))
    .await
    .unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3105);
    for path in [
        "/required_permissions/0",
        "/required_permissions/2",
        "/required_permissions/3",
        "/requires_permission",
        "/network_policy/allowed_domains/0",
    ] {
        assert!(refusal.message.contains(path), "{path} in {}", refusal.message);
    }
    assert!(!refusal.message.contains("/required_permissions/1"), "{}", refusal.message);
    publish(json!({ "required_permissions": ["filesystem:read:/data"] })).await.unwrap();
}

#[tokio::test]
async fn what_the_network_policy_opens_is_asked_of_the_token() {
    let stage = TestKernel::new().await;
    let policy = json!({ "allowed_domains": ["api.example.com"], "allowed_ports": [443] });
    stage.publish(json!({ "network_policy": policy })).await;
    stage.publish(json!({ "tool_id": "closed", "network_policy": { "allowed_domains": ["api.example.com"], "deny_all_egress": true } })).await;
    let token = async |scopes: Value| {
        let request = mint_request(json!({ "scopes": scopes, "tenant": "local" }));
        stage.kernel.mint_token(admin(), &request).await.unwrap().token
    };
    let (without, with) = (token(json!([])).await, token(json!(["network:https://api.example.com"])).await);
    assert_eq!(stage.code(&without, "greet").await, Some(ErrorCode::E3206));
    assert_eq!(stage.code(&with, "greet").await, None);
    assert_eq!(stage.code(&without, "closed").await, None, "what is closed needs no scope");
}

#[tokio::test]
async fn the_highest_isolation_anybody_demands_is_the_one_that_counts() {
    let demand = |level, tool: Option<&str>, tag: Option<&str>, tenant: Option<&str>| IsolationDemand {
        level,
        tool: tool.map(|text| text.parse().unwrap()),
        tag: tag.map(str::to_owned),
        tenant: tenant.map(|text| text.parse().unwrap()),
    };
    let isolation = IsolationPolicy::new(vec![
        demand(Isolation::Process, Some("demo.*"), None, None),
        demand(Isolation::Gvisor, None, Some("untrusted"), None),
        demand(Isolation::Microvm, Some("greet"), None, Some("acme")),
    ]);
    let stage = TestKernel::with(TestKernelOptions { isolation, ..TestKernelOptions::default() }).await;
    stage.publish(json!({})).await;
    stage.publish(json!({ "tool_id": "greet", "namespace": "demo" })).await;
    stage.publish(json!({ "tool_id": "tagged", "tags": ["untrusted"] })).await;

    stage.call(greet()).await.unwrap();
    assert_eq!(stage.tool.kept.lock().unwrap().unwrap().0, Isolation::Builtin, "nothing is demanded of it");
    // A built-in has no isolation at all, so that even the weakest demand refuses it.
    for (tool, word) in [("demo.greet", "process"), ("tagged", "gvisor")] {
        let failed = stage.call(call_of(tool)).await.unwrap_err();
        assert_eq!((failed.refusal.code, failed.envelope().retryable), (ErrorCode::E3405, false), "{tool}");
        assert!(failed.refusal.message.contains(word), "{}", failed.refusal.message);
    }
    let acme = stage.mint(json!({ "tenant": "acme" })).await;
    assert_eq!(stage.code(&acme, "greet").await, Some(ErrorCode::E3405));
    // There is no executor for it on this stage, which is said when it is published.
    let component = json!({ "tool_id": "component", "execution": { "type": "wasm", "component": "a.wasm" } });
    let refusal = stage.kernel.publish(admin(), manifest(component)).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3105);
    assert!(refusal.message.contains("which runs `builtin`, `process`"), "{}", refusal.message);
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_policy_can_demand_isolation_as_an_obligation() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let policies = r#"@obligations("isolation=gvisor") permit (principal, action, resource);"#;
    stage.kernel.put_policies(admin(), None, policies.into()).await.unwrap();
    let token = stage.mint(json!({})).await;
    assert_eq!(stage.code(&token, "greet").await, Some(ErrorCode::E3405));
}

#[tokio::test]
async fn limits_nest_and_are_never_widened() {
    let envelope = ResourceEnvelope {
        cpu_millicores: 2_000,
        memory_mb: 1_024,
        network_mbps: Some(50),
        scratch_mb: 2_048,
        ..ResourceEnvelope::default()
    };
    let stage = TestKernel::with(TestKernelOptions { envelope, ..TestKernelOptions::default() }).await;
    let program = json!({ "type": "process", "command": ["main"] });
    stage.publish(json!({ "execution": program, "resource_limits": { "cpu": "500m", "memory": "256Mi" } })).await;
    stage.publish(json!({ "tool_id": "glutton", "execution": program, "resource_limits": { "memory": "2Gi" } })).await;
    let asking =
        |limits: Value| json!({ "tool_id": "greet", "parameters": { "name": "Ada" }, "resource_limits": limits });
    for (asked, expected) in [
        (json!({}), (500, 256, Some(50), 1_024, false)),
        (json!({ "timeout_seconds": 1 }), (500, 256, Some(50), 1_024, false)),
        (json!({ "memory_mb_limit": 64, "network_bandwidth_mbps": 1 }), (500, 64, Some(1), 1_024, true)),
        (json!({ "memory_mb_limit": 512, "cpu_millicore_limit": 100 }), (100, 256, Some(50), 1_024, true)),
    ] {
        stage.call(asking(asked.clone())).await.unwrap();
        let (_, limits) = stage.tool.kept.lock().unwrap().unwrap();
        let found =
            (limits.cpu_millicores, limits.memory_mb, limits.network_mbps, limits.scratch_mb, limits.asked_by_caller);
        assert_eq!(found, expected, "{asked}");
    }
    let runs = stage.runs();
    for request in [
        call_of("glutton"),
        asking(json!({ "memory_mb_limit": 1_025 })),
        asking(json!({ "cpu_millicore_limit": 2_001 })),
        asking(json!({ "network_bandwidth_mbps": 51 })),
    ] {
        let failed = stage.call(request.clone()).await.unwrap_err();
        assert_eq!((failed.refusal.code, failed.envelope().retryable), (ErrorCode::E3407, false), "{request}");
    }
    assert_eq!(stage.runs(), runs, "nothing ran");
}

/// EXEC-005, and decision 0034: which calls count, whose they are, and that every end gives the place back.
#[tokio::test]
async fn an_agent_has_so_many_sandboxed_calls_at_once_and_every_end_gives_the_place_back() {
    let envelope = ResourceEnvelope { concurrent_calls_per_agent: 2, ..ResourceEnvelope::default() };
    let stage = TestKernel::with(TestKernelOptions { envelope, ..TestKernelOptions::default() }).await;
    stage.publish(json!({})).await;
    stage.publish(json!({ "tool_id": "boxed", "execution": { "type": "process", "command": ["a"] } })).await;
    let (one, other) = (stage.mint(json!({ "sub": "one" })).await, stage.mint(json!({ "sub": "other" })).await);
    let counted = stage.mint(json!({ "sub": "one", "budget": { "calls": 1 } })).await;

    *stage.tool.act.lock().unwrap() = ToolScript::Hang;
    let mut hanging: Vec<_> = (0..2).map(|_| Box::pin(stage.call_as(Some(&one), call_of("boxed")))).collect();
    for (earlier, call) in hanging.iter_mut().enumerate() {
        let runs = async {
            while stage.runs() == earlier {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            biased;
            _ = call => panic!("it hangs"),
            () = runs => {}
        }
    }
    *stage.tool.act.lock().unwrap() = ToolScript::Answer(json!({ "text": "hi" }));
    // One more waits, and so does one by another token of the same agent.
    let mut third = Box::pin(stage.call_as(Some(&one), call_of("boxed")));
    let mut fourth = Box::pin(stage.call_as(Some(&counted), call_of("boxed")));
    let both_wait = async {
        while stage.kernel.places()[1].1.waiting < 2 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        biased;
        _ = &mut third => panic!("it has no place"),
        _ = &mut fourth => panic!("it has no place"),
        () = both_wait => {}
    }
    drop(fourth);
    assert_eq!(stage.kernel.places()[1].1.waiting, 1);
    assert_eq!(stage.code(&one, "greet").await, None, "a built-in does not count");
    assert_eq!(stage.code(&other, "boxed").await, None, "another agent has places of its own");

    hanging.pop();
    assert!(third.await.is_ok(), "its turn has come");
    assert_eq!(stage.code(&counted, "boxed").await, None, "a call that was dropped, and no budget was spent before");
    *stage.tool.act.lock().unwrap() = ToolScript::Fail(contract::error::Refusal::new(ErrorCode::E3401, "no"));
    for _ in 0..3 {
        assert_eq!(stage.code(&one, "boxed").await, Some(ErrorCode::E3401), "a call that failed");
    }
}

#[tokio::test]
async fn what_a_tool_says_is_bounded_and_what_it_asks_for_is_refused_kindly() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Chat;
    let answer = stage.call(greet()).await.unwrap();
    assert_eq!(answer.result, json!({ "text": "E3010 E3010" }));
    let heard = stage.observer.2.lock().unwrap();
    let dropped = heard.iter().filter(|words| *words == "Dropped").count();
    assert_eq!(heard.len(), 1_001);
    assert!((900..1_000).contains(&dropped), "{dropped} of {}", heard.len());
    assert!(heard[0].contains("percent: Some(0.0)"), "{}", heard[0]);
}

#[tokio::test]
async fn a_forbidden_destination_is_in_the_record_cleaned_and_bounded() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let tool =
        stage.kernel.registry().snapshot().find(&"local".parse().unwrap(), "greet").unwrap().versions()[0].clone();
    let long = "x".repeat(500);
    let tried = ["evil.example:443", "a\nb\u{202e}:80", &long, "c:1", "d:1", "e:1"];
    *stage.tool.act.lock().unwrap() = ToolScript::Fail(forbidden_destinations(&tool, tried));
    let failed = stage.call_as(Some(ADMIN), greet()).await.unwrap_err();
    assert_eq!(failed.refusal.code, ErrorCode::E3406);
    let shown = failed.envelope().details.unwrap();
    assert_eq!(shown["destinations"].as_array().unwrap().len(), 5, "{shown}");
    let records = stage.records().await;
    assert_eq!((records[0].code, records[0].tool.as_ref().unwrap().as_str()), (Some(ErrorCode::E3406), "greet"));
    let note = records[0].note.as_deref().unwrap();
    assert!(note.starts_with("tried to connect to evil.example:443, ab:80, xxx"), "{note}");
    assert!(note.len() < 600 && !note.contains("e:1"), "{note}");
}

#[tokio::test]
async fn strict_output_is_cut_and_the_answer_says_where() {
    let stage = TestKernel::new().await;
    stage.publish(json!({ "output_policy": "strict" })).await;
    stage.publish(json!({ "tool_id": "standard_one" })).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Answer(json!({ "text": "x".repeat(20_000) }));
    let answer = stage.call(greet()).await.unwrap();
    let truncation = serde_json::to_value(answer.execution_metadata.truncation).unwrap();
    assert_eq!(
        truncation,
        json!({ "strings_cut": 1, "arrays_cut": 0, "places": [{ "path": "/text", "kept": 10_000, "of": 20_000 }] })
    );
    assert!(answer.result["text"].as_str().unwrap().ends_with("...[truncated]"));
    let whole = stage.call(call_of("standard_one")).await.unwrap();
    assert_eq!(whole.result["text"].as_str().unwrap().len(), 20_000);
    assert_eq!(whole.execution_metadata.truncation, None);
}
