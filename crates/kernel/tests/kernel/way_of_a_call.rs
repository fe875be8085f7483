//! The way of a call through the six phases.

use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::envelope::InvocationStatus;
use contract::error::{ErrorCode, Refusal};
use gantry_kernel::IncomingCall;
use policy::BearerSecret;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::lifecycle::LifecycleAction;
use serde_json::{Value, json};
use test_kernel::{ADMIN, TestKernel, TestKernelOptions, ToolScript, admin, arrival, greet, manifest};

#[tokio::test]
async fn a_call_passes_all_phases_and_leaves_one_record() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let answer =
        stage.call(json!({ "tool_id": "greet", "parameters": { "name": "Ada", "times": "3" } })).await.unwrap();
    assert_eq!(answer.result, json!({ "text": "hi" }));
    assert_eq!(answer.status, InvocationStatus::Success);
    assert_eq!(answer.tool_version.to_string(), "1.0.0");
    assert_eq!(answer.execution_metadata.coercions.len(), 1);
    assert_eq!(answer.execution_metadata.started_at, "2027-01-15T08:00:00.000Z");
    // What ran is what was validated: the string became a number.
    assert_eq!(*stage.tool.calls.lock().unwrap(), [json!({ "name": "Ada", "times": 3 })]);
    assert_eq!(*stage.observer.0.lock().unwrap(), [(Some("greet".into()), InvocationStatus::Success, None)]);
    let records = stage.records().await;
    assert_eq!(records.len(), 1);
    assert_eq!(records[0].who.as_ref().unwrap().subject.as_str(), "admin");
    assert!(records[0].parameters_digest.is_some());
}

#[tokio::test]
async fn the_record_shows_the_parameters_without_what_must_not_be_seen() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let name = "Ada, ada@example.org, password=supersecret";
    stage.call(json!({ "tool_id": "greet", "parameters": { "name": name } })).await.unwrap();
    assert_eq!(stage.tool.calls.lock().unwrap()[0]["name"], name, "the tool gets what was sent");
    let records = stage.records().await;
    let shown: Value = serde_json::from_str(records[0].parameters.as_deref().unwrap()).unwrap();
    assert_eq!(shown["name"], "Ada, [EMAIL_REDACTED], password=[REDACTED]");
}

#[tokio::test]
async fn each_phase_refuses_what_is_its_business_and_nothing_runs() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    stage.publish(json!({ "tool_id": "off_tool", "enabled": false })).await;
    stage.publish(json!({ "tool_id": "catalogued", "execution": null })).await;
    let effects = json!([{ "resource": "r", "op": "CREATE", "scope": "s" }]);
    stage.publish(json!({ "tool_id": "destroy", "side_effect_policy": "irreversible", "side_effects": effects, "idempotency": {} })).await;
    stage.publish(json!({ "tool_id": "book_it", "side_effect_policy": "compensatable", "side_effects": effects, "idempotency": {}, "compensation_tool_id": "greet" })).await;
    stage.publish(json!({ "tool_id": "ask_first", "requires_confirmation": true })).await;
    stage.publish(json!({ "tool_id": "ask_boss", "requires_approval": true })).await;
    let call = |tool: &str| json!({ "tool_id": tool, "parameters": { "name": "Ada" } });
    let with = |member: &str, value: Value| {
        let mut request = greet();
        request[member] = value;
        request
    };
    let cases = [
        (call("greeet"), ErrorCode::E3101),
        (with("tool_version", json!("2.0.0")), ErrorCode::E3102),
        (with("tool_version", json!("^2")), ErrorCode::E3103),
        (with("tool_version", json!("not a range")), ErrorCode::E3004),
        (with("parameters", json!({})), ErrorCode::E3301),
        (with("parameters", json!({ "name": "Ada", "nmae": 1 })), ErrorCode::E3301),
        (with("parameters", json!({ "name": "Ada", "times": "many" })), ErrorCode::E3302),
        (with("parameters", json!({ "name": "Ada", "times": 0 })), ErrorCode::E3301),
        (with("execution_options", json!({ "async_mode": true })), ErrorCode::E3010),
        (with("execution_options", json!({ "dry_run": true })), ErrorCode::E3010),
        (with("execution_mode", json!("async")), ErrorCode::E3010),
        (with("document_context", json!({})), ErrorCode::E3010),
        (with("execution_options", json!({ "idempotency_key": "" })), ErrorCode::E3004),
        (with("execution_options", json!({ "idempotency_key": "k".repeat(256) })), ErrorCode::E3004),
        (with("execution_options", json!({ "require_approval": true })), ErrorCode::E3208),
        (with("resource_limits", json!({ "timeout_seconds": 0 })), ErrorCode::E3004),
        (with("agent_context", json!({ "agent_did": "did:key:somebody-else" })), ErrorCode::E3206),
        (with("agent_context", json!({ "tenant_id": "other" })), ErrorCode::E3206),
        (call("off_tool"), ErrorCode::E3108),
        (call("catalogued"), ErrorCode::E3108),
        (call("destroy"), ErrorCode::E3208),
        (call("book_it"), ErrorCode::E3004),
        (call("ask_first"), ErrorCode::E3210),
        (call("ask_boss"), ErrorCode::E3208),
    ];
    let count = cases.len();
    for (request, code) in cases {
        assert_eq!(stage.refusal(request.clone()).await, code, "{request}");
    }
    assert_eq!(stage.runs(), 0, "nothing ran");
    assert_eq!(stage.records().await.len(), count, "every refusal is recorded");
}

#[tokio::test]
async fn guarded_text_is_refused_or_stripped_and_what_is_validated_is_what_runs() {
    let stage = TestKernel::new().await;
    let parameters = json!({ "type": "object", "required": ["name"], "properties": {
        "name": { "type": "string", "minLength": 3, "x-guard": "shell" },
        "note": { "type": "string" },
        "file": { "type": "string", "x-guard": "path" },
    }});
    for (tool, mode) in [("greet", Value::Null), ("strip_it", json!("strip")), ("open_door", json!("off"))] {
        stage.publish(json!({ "tool_id": tool, "parameters": parameters, "input_guard": mode })).await;
    }
    let call = |tool: &str, parameters: Value| json!({ "tool_id": tool, "parameters": parameters });
    let hostile = json!({ "name": "Ada; reboot", "note": "; DROP TABLE documents;--" });

    let failed = stage.call(call("greet", hostile.clone())).await.unwrap_err();
    let envelope = serde_json::to_value(failed.envelope()).unwrap();
    assert_eq!(envelope["code"], "E3305");
    assert_eq!(envelope["details"]["errors"][0]["path"], "/name");
    assert_eq!(envelope["details"]["errors"][0]["guard"], "shell");
    assert!(!envelope.to_string().contains("reboot"), "the text is not repeated: {envelope}");
    assert!(envelope["resolution"].as_str().unwrap().contains("x-guard"));
    assert_eq!(stage.refusal(call("greet", json!({ "name": ";" }))).await, ErrorCode::E3301, "the schema comes first");

    let answer = stage.call(call("strip_it", hostile.clone())).await.unwrap();
    assert_eq!(answer.execution_metadata.coercions[0].path, "/name");
    let cases = [
        (json!({ "name": "a;b;" }), ErrorCode::E3301, "too short once stripped"),
        (json!({ "name": "Ada", "file": "../x" }), ErrorCode::E3305, "no path is made by deleting"),
    ];
    for (parameters, code, why) in cases {
        assert_eq!(stage.refusal(call("strip_it", parameters)).await, code, "{why}");
    }
    stage.call(call("open_door", hostile.clone())).await.unwrap();
    stage.call(call("greet", json!({ "name": "Ada", "note": ";" }))).await.unwrap();
    let stripped = json!({ "name": "Ada reboot", "note": "; DROP TABLE documents;--" });
    assert_eq!(*stage.tool.calls.lock().unwrap(), [stripped, hostile, json!({ "name": "Ada", "note": ";" })]);
}

#[tokio::test]
async fn a_slip_in_the_name_gets_a_suggestion_from_what_the_caller_may_know() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let failed = stage.call(json!({ "tool_id": "gret" })).await.unwrap_err();
    assert_eq!(failed.refusal.resolution(), "did you mean `greet`?");
    let blind = stage.token(json!([{ "tool_id": "other.*" }]), json!([]), 60).await;
    let failed = stage.call_as(Some(&blind), json!({ "tool_id": "gret" })).await.unwrap_err();
    assert!(!failed.refusal.resolution().contains("greet"), "a stranger learns no names");
}

#[tokio::test]
async fn tokens_open_exactly_what_they_name_for_as_long_as_they_live() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    stage.publish(json!({ "version": "2.0.0" })).await;
    stage.publish(json!({ "tool_id": "reader", "required_permissions": ["filesystem:read:/data"] })).await;
    let code = async |token: Option<&str>, request: Value| match stage.call_as(token, request).await {
        Ok(_) => None,
        Err(failed) => Some((failed.refusal.code, failed.status)),
    };
    let pinned =
        |version: &str| json!({ "tool_id": "greet", "tool_version": version, "parameters": { "name": "Ada" } });
    let reader = json!({ "tool_id": "reader", "parameters": { "name": "Ada" } });

    let first_only = stage.token(json!([{ "tool_id": "greet", "version_range": "^1" }]), json!([]), 60).await;
    let denied = InvocationStatus::PermissionDenied;
    assert_eq!(code(Some(&first_only), pinned("1.0.0")).await, None);
    assert_eq!(code(Some(&first_only), pinned("2.0.0")).await, Some((ErrorCode::E3204, denied)));
    assert_eq!(code(Some(&first_only), reader.clone()).await, Some((ErrorCode::E3204, denied)));

    let all = json!([{ "tool_id": "*" }]);
    let narrow = stage.token(all.clone(), json!(["filesystem:read:/other"]), 60).await;
    assert_eq!(code(Some(&narrow), reader.clone()).await, Some((ErrorCode::E3206, denied)));
    let wide = stage.token(all, json!(["filesystem:read:*"]), 60).await;
    assert_eq!(code(Some(&wide), reader.clone()).await, None);

    assert_eq!(code(None, greet()).await, Some((ErrorCode::E3203, denied)));
    assert_eq!(code(Some("nonsense"), greet()).await, Some((ErrorCode::E3203, denied)));
    // Remembered tokens do not outlive themselves.
    stage.clock.now.fetch_add(60_000, Ordering::SeqCst);
    assert_eq!(code(Some(&wide), reader).await, Some((ErrorCode::E3201, denied)));
}

#[tokio::test]
async fn agents_cannot_administer() {
    let stage = TestKernel::new().await;
    let token = stage.token(json!([{ "tool_id": "*" }]), json!(["*"]), 60).await;
    let agent = Actor { credential: Some(BearerSecret(&token)), ..admin() };
    assert_eq!(stage.kernel.publish(agent, manifest(json!({}))).await.unwrap_err().code, ErrorCode::E3206);
    assert_eq!(
        stage.kernel.change_lifecycle(agent, "greet", None, &LifecycleAction::Remove).await.unwrap_err().code,
        ErrorCode::E3206
    );
}

#[tokio::test]
async fn a_tool_that_takes_too_long_is_left_and_says_so() {
    let stage = TestKernel::with(TestKernelOptions { impatient: true, ..TestKernelOptions::default() }).await;
    stage.publish(json!({})).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Hang;
    let failed = stage.call(greet()).await.unwrap_err();
    assert_eq!((failed.refusal.code, failed.status), (ErrorCode::E3402, InvocationStatus::Timeout));
    assert!(failed.envelope().retryable, "a pure tool may be tried again");
}

#[tokio::test]
async fn output_that_breaks_the_manifests_promise_is_not_returned() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let secret = "the-value-nobody-may-see";
    for (output, code, words) in [
        (json!({ "text": [secret] }), ErrorCode::E3303, "at `/text`: expected string"),
        (json!({ "other": secret }), ErrorCode::E3303, "`text` is required"),
        (json!(null), ErrorCode::E3303, "expected object"),
        (json!({ "text": "x".repeat(2 * 1024 * 1024) }), ErrorCode::E3414, "larger than"),
    ] {
        *stage.tool.act.lock().unwrap() = ToolScript::Answer(output);
        let failed = stage.call(greet()).await.unwrap_err();
        assert_eq!(failed.refusal.code, code);
        assert!(failed.envelope().message.contains(words), "{}", failed.envelope().message);
        assert!(!serde_json::to_string(&failed.envelope()).unwrap().contains(secret));
    }
}

#[tokio::test]
async fn what_the_tool_itself_refuses_comes_through_with_its_code() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Fail(Refusal::new(ErrorCode::E3502, "the service is away"));
    let failed = stage.call(greet()).await.unwrap_err();
    assert_eq!(failed.refusal.code, ErrorCode::E3502);
    assert_eq!(failed.envelope().message, "the service is away");
}

#[tokio::test]
async fn a_call_that_cannot_be_recorded_does_not_run_until_it_can() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    stage.audit.broken.store(true, Ordering::SeqCst);
    // The call that meets the breakage has room already, and runs; but what cannot be recorded is not answered.
    assert_eq!(stage.refusal(greet()).await, ErrorCode::E3801);
    assert_eq!(stage.runs(), 1);
    // Those after it find the log unwritable.
    assert_eq!(stage.refusal(greet()).await, ErrorCode::E3801);
    assert_eq!(stage.runs(), 1);
}

#[tokio::test]
async fn a_tool_with_effects_leaves_a_record_of_its_start_and_of_its_end() {
    let stage = TestKernel::new().await;
    let effects = json!([{ "resource": "r", "op": "UPDATE", "scope": "s" }]);
    stage.publish(json!({ "side_effect_policy": "idempotent", "side_effects": effects, "idempotency": {} })).await;
    stage.call(greet()).await.unwrap();
    let records = stage.records().await;
    let actions: Vec<_> = records.iter().map(|record| record.action).collect();
    assert_eq!(actions, [AuditAction::InvocationStarted, AuditAction::InvocationFinished]);
    for record in records {
        let judged = record.judged.unwrap();
        assert_eq!(serde_json::to_value(&judged.effects).unwrap(), effects, "both say what it declares to touch");
        let has_ended = record.action == AuditAction::InvocationFinished;
        assert_eq!(judged.result_shape.map(|shape| shape.kind), has_ended.then_some("object"));
    }
}

#[tokio::test]
async fn versions_live_and_end_as_the_lifecycle_says() {
    let stage = TestKernel::new().await;
    for version in ["1.0.0", "1.1.0", "1.2.0", "2.0.0"] {
        stage.publish(json!({ "version": version })).await;
    }
    let resolved = async |spec: &str| {
        let request = json!({ "tool_id": "greet", "tool_version": spec, "parameters": { "name": "Ada" } });
        stage
            .call(request)
            .await
            .map(|a| (a.tool_version.to_string(), a.execution_metadata.deprecation))
            .map_err(|f| f.refusal.code)
    };
    let found = |version: &str| Ok((version.to_owned(), None));
    assert_eq!(resolved("^1.0.0").await, found("1.2.0"));
    assert_eq!(resolved("~1.1.0").await, found("1.1.0"));
    assert_eq!(resolved("LATEST").await, found("2.0.0"));
    assert_eq!(resolved("1.x").await, found("1.2.0"));

    let deprecate = LifecycleAction::Deprecate { successor: Some("hello".into()), migration_guide: None };
    let second = "2.0.0".parse().unwrap();
    stage.kernel.change_lifecycle(admin(), "greet", Some(&second), &deprecate).await.unwrap();
    assert_eq!(resolved("LATEST").await, found("1.2.0"), "LATEST avoids what is deprecated");
    let (version, notice) = resolved("^2").await.unwrap();
    assert_eq!((version.as_str(), notice.unwrap().successor.as_deref()), ("2.0.0", Some("hello")));

    // Ninety days later only exact pins are served.
    stage.clock.now.fetch_add(90 * 86_400_000, Ordering::SeqCst);
    assert_eq!(resolved("^2").await, Err(ErrorCode::E3103));
    assert_eq!(resolved("2.0.0").await.unwrap().0, "2.0.0");

    stage.kernel.change_lifecycle(admin(), "greet", Some(&second), &LifecycleAction::Remove).await.unwrap();
    assert_eq!(resolved("2.0.0").await, Err(ErrorCode::E3104));
    let restore = stage.kernel.change_lifecycle(admin(), "greet", Some(&second), &LifecycleAction::Restore).await;
    assert_eq!(restore.unwrap_err().code, ErrorCode::E3408);
}

#[tokio::test]
async fn numbers_must_tell_the_truth_about_schemas() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let narrower = json!({ "type": "object", "properties": { "name": { "type": "string", "maxLength": 3 } }, "required": ["name"] });
    let publish = async |change: Value| {
        stage.kernel.publish(admin(), manifest(change)).await.map(|r| r.created).map_err(|r| r.code)
    };
    assert_eq!(publish(json!({})).await, Ok(false), "the same again is not new");
    assert_eq!(publish(json!({ "description": "Greets somebody in other words." })).await, Err(ErrorCode::E3103));
    assert_eq!(publish(json!({ "version": "1.1.0", "parameters": narrower })).await, Err(ErrorCode::E3105));
    assert_eq!(
        publish(json!({ "version": "2.0.0", "parameters": narrower, "breaking_changes": false })).await,
        Err(ErrorCode::E3105)
    );
    assert_eq!(
        publish(json!({ "version": "2.0.0", "parameters": narrower, "breaking_changes": true })).await,
        Ok(true)
    );
    assert_eq!(publish(json!({ "version": "1.0.1", "breaking_changes": true })).await, Err(ErrorCode::E3105));
    assert_eq!(publish(json!({ "tool_id": "other_tool", "aliases": ["greet"] })).await, Err(ErrorCode::E3105));
}

#[tokio::test]
async fn an_alias_leads_to_its_tool() {
    let stage = TestKernel::new().await;
    stage.publish(json!({ "aliases": ["tool-greet"] })).await;
    let answer = stage.call(json!({ "tool_id": "tool-greet", "parameters": { "name": "Ada" } })).await.unwrap();
    assert_eq!(answer.tool_id, "greet");
}

#[tokio::test]
async fn a_parents_deadline_that_has_passed_refuses_the_call() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let arrival = IncomingCall { parent_left: Some(Duration::ZERO), ..arrival(Some(ADMIN), greet()) };
    assert_eq!(stage.kernel.invoke(arrival).await.unwrap_err().refusal.code, ErrorCode::E3002);
    assert_eq!(stage.runs(), 0);
}
