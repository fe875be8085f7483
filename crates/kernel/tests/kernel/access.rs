//! Who may use what: tenants that do not see each other, activations, policies that take effect at once, engines outside.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use contract::error::ErrorCode;
use contract::ids::TenantId;
use gantry_kernel::registry::ListFilter;
use gantry_kernel::{AccessSettings, ActivationWish, DelegationRequest, TenantWish, VisibilityTier};
use policy::{PolicyOverrides, PolicyVerdict, VisibilityDefault, WhyUnavailable};
use ports::change_bus::{BusChange, ChangeBus as _};
use serde_json::{Value, json};
use shared_state::MemoryBus;
use test_kernel::{
    ADMIN, ScriptedEngine, TestKernel, TestKernelOptions, ToolScript, admin, arrival, as_holder, greet, manifest,
};

fn tenant(name: &str) -> TenantId {
    name.parse().unwrap()
}

fn activation(tenant: &str, agent: Option<&str>, tool: &str, enabled: bool) -> ActivationWish {
    ActivationWish {
        tenant: Some(tenant.parse().unwrap()),
        agent: agent.map(|agent| agent.parse().unwrap()),
        tool: tool.parse().unwrap(),
        enabled,
        overrides: PolicyOverrides::default(),
        replaces: gantry_kernel::ReplacedActivation::default(),
    }
}

async fn listed(stage: &TestKernel, token: &str, tier: Option<VisibilityTier>) -> Vec<String> {
    let filter = ListFilter { page: 1, page_size: 200, ..ListFilter::default() };
    let page = stage.kernel.list_tools(as_holder(token), &filter, tier).await.unwrap();
    page.tools.iter().map(|listed| listed.tool.id.to_string()).collect()
}

async fn found(stage: &TestKernel, token: &str) -> Vec<String> {
    let hits = stage.kernel.search_tools(as_holder(token), "greets somebody", 50).await.unwrap();
    let mut ids: Vec<String> = hits.iter().map(|hit| hit.tool.id.to_string()).collect();
    ids.sort();
    ids
}

async fn unavailable(stage: &TestKernel, token: &str, agent: &str) -> Vec<(String, WhyUnavailable)> {
    let list = stage.kernel.unavailable_tools(as_holder(token), &agent.parse().unwrap()).await.unwrap();
    list.iter().map(|one| (one.current.id.to_string(), one.why)).collect()
}

fn idempotent(tool: &str) -> Value {
    let effects = json!([{ "resource": "r", "op": "UPDATE", "scope": "s" }]);
    json!({ "tool_id": tool, "side_effect_policy": "idempotent", "side_effects": effects, "idempotency": {} })
}

#[tokio::test]
async fn two_tenants_and_three_agents_see_and_use_exactly_what_was_configured() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    stage.publish(idempotent("writer")).await;
    let ann = stage.mint(json!({ "sub": "ann" })).await;
    let bob = stage.mint(json!({ "sub": "bob" })).await;
    let eve = stage.mint(json!({ "sub": "eve", "tenant": "globex" })).await;
    // By default what changes nothing may be used, and nothing else.
    for token in [&ann, &bob, &eve] {
        assert_eq!(listed(&stage, token, None).await, ["greet"]);
        assert_eq!(stage.code(token, "writer").await, Some(ErrorCode::E3101));
    }
    let wishes = vec![
        activation("acme", Some("ann"), "writer", true),
        activation("acme", Some("bob"), "greet", false),
        activation("globex", None, "*", true),
        activation("globex", Some("eve"), "greet", false),
    ];
    stage.kernel.put_activations(admin(), wishes).await.unwrap();
    let both = vec!["greet".to_owned(), "writer".to_owned()];
    for (token, agent, may, may_not) in [
        (&ann, "ann", both.clone(), vec![]),
        (
            &bob,
            "bob",
            vec![],
            vec![("greet", WhyUnavailable::DisabledForAgent), ("writer", WhyUnavailable::NeverActivated)],
        ),
        (&eve, "eve", vec!["writer".to_owned()], vec![("greet", WhyUnavailable::DisabledForAgent)]),
    ] {
        assert_eq!(listed(&stage, token, None).await, may, "{agent} lists");
        assert_eq!(listed(&stage, token, Some(VisibilityTier::Agent)).await, may, "{agent} lists");
        assert_eq!(listed(&stage, token, Some(VisibilityTier::Tenant)).await, both, "{agent}'s tenant has both");
        assert_eq!(found(&stage, token).await, may, "{agent} searches");
        for tool in &both {
            let expected = (!may.contains(tool)).then_some(ErrorCode::E3101);
            assert_eq!(stage.code(token, tool).await, expected, "{agent} calls {tool}");
        }
        let expected: Vec<_> = may_not.into_iter().map(|(tool, why)| (tool.to_owned(), why)).collect();
        assert_eq!(unavailable(&stage, token, agent).await, expected, "{agent} asks what it could do");
    }
    // Nobody looks at another agent, and an agent does not see the catalogue.
    let other = stage.kernel.unavailable_tools(as_holder(&ann), &"bob".parse().unwrap()).await.unwrap_err();
    assert_eq!(other.code, ErrorCode::E3207);
    let filter = ListFilter { page: 1, page_size: 10, ..ListFilter::default() };
    let refused = stage.kernel.list_tools(as_holder(&ann), &filter, Some(VisibilityTier::Catalogue)).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3206);
}

#[tokio::test]
async fn a_tenants_own_tools_do_not_exist_for_anybody_else() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let author = stage.mint(json!({ "sub": "author", "roles": ["tool_author", "operator"] })).await;
    let eve = stage.mint(json!({ "sub": "eve", "tenant": "globex", "roles": ["tool_author", "operator"] })).await;
    let secret = |version: &str| manifest(json!({ "tool_id": "secret_tool", "version": version, "execution": null }));
    stage.kernel.publish(as_holder(&author), secret("1.0.0")).await.unwrap();
    // It is there, and only catalogued: built-in handlers are for the shared catalogue.
    assert_eq!(stage.code(&author, "secret_tool").await, Some(ErrorCode::E3108));
    let handler = manifest(json!({ "tool_id": "greet_again" }));
    let copied = stage.kernel.publish(as_holder(&author), handler).await.unwrap_err();
    assert_eq!(copied.code, ErrorCode::E3105);
    assert_eq!(listed(&stage, &eve, None).await, ["greet"]);
    // By its name it is as unknown as one that nobody has.
    let of = async |name: &str| {
        let shown = stage.kernel.tool(as_holder(&eve), name).await.unwrap_err();
        let called = stage.call_as(Some(&eve), json!({ "tool_id": name, "parameters": {} })).await.unwrap_err();
        (shown.code, shown.hint, called.refusal.code, called.refusal.hint)
    };
    assert_eq!(of("secret_tool").await, of("xecret_xool").await);
    // The same id is free for every tenant, but not one that the shared catalogue has.
    stage.kernel.publish(as_holder(&eve), secret("7.0.0")).await.unwrap();
    let taken = stage
        .kernel
        .publish(as_holder(&eve), manifest(json!({ "version": "9.0.0", "execution": null })))
        .await
        .unwrap_err();
    assert_eq!(taken.code, ErrorCode::E3103);
    let remove = ports::lifecycle::LifecycleAction::Remove;
    assert!(stage.kernel.change_lifecycle(as_holder(&eve), "greet", None, &remove).await.is_err());
    assert_eq!(stage.code(&author, "greet").await, None);
}

#[tokio::test]
async fn a_tenant_has_the_shared_tools_it_was_given_and_nothing_when_switched_off() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    stage.publish(json!({ "tool_id": "stats", "namespace": "demo" })).await;
    let agent = stage.mint(json!({})).await;
    let wish = |tools: &[&str], enabled: bool| TenantWish {
        tenant: tenant("acme"),
        name: None,
        visibility: None,
        tools: Some(tools.iter().map(|pattern| pattern.parse().unwrap()).collect()),
        enabled: Some(enabled),
    };
    stage.kernel.put_tenants(admin(), &[wish(&["demo.*"], true)]).await.unwrap();
    assert_eq!(listed(&stage, &agent, Some(VisibilityTier::Tenant)).await, ["demo.stats"]);
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3101));
    assert_eq!(unavailable(&stage, &agent, "agent-1").await, []);
    stage.kernel.put_tenants(admin(), &[wish(&["*"], false)]).await.unwrap();
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3206));
    // The administrators' own tenant cannot lock itself out.
    let home = TenantWish { tenant: TenantId::home(), ..wish(&["*"], false) };
    assert_eq!(stage.kernel.put_tenants(admin(), &[home]).await.unwrap_err().code, ErrorCode::E3004);
}

#[tokio::test]
async fn administrators_of_a_tenant_administer_that_tenant_only() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let chief = stage.mint(json!({ "sub": "chief", "roles": ["admin"] })).await;
    let wish =
        |name: &str| TenantWish { tenant: tenant(name), name: None, visibility: None, tools: None, enabled: None };
    assert_eq!(stage.kernel.put_tenants(as_holder(&chief), &[wish("acme")]).await.unwrap_err().code, ErrorCode::E3206);
    // The same answer whether the other tenant exists or not.
    stage.mint(json!({ "tenant": "globex" })).await;
    let mut answers = Vec::new();
    for name in ["globex", "nowhere"] {
        let put = stage.kernel.put_activations(as_holder(&chief), vec![activation(name, None, "greet", false)]).await;
        let policies = stage.kernel.put_policies(as_holder(&chief), Some(&tenant(name)), PERMIT.into()).await;
        let minted =
            stage.kernel.mint_token(as_holder(&chief), &test_kernel::mint_request(json!({ "tenant": name }))).await;
        let shown = stage.kernel.tenant_tools(as_holder(&chief), &tenant(name)).await.map(|tools| tools.len());
        answers.push((put.unwrap_err(), policies.unwrap_err(), minted.unwrap_err(), shown.unwrap_err().code));
    }
    assert_eq!(answers[0], answers[1]);
    let own = vec![activation("acme", None, "greet", false)];
    stage.kernel.put_activations(as_holder(&chief), own).await.unwrap();
    let agent = stage.mint(json!({})).await;
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3101));
    let tenants = stage.kernel.tenants(as_holder(&chief)).await.unwrap();
    assert_eq!(tenants.iter().map(|record| record.tenant.as_str()).collect::<Vec<_>>(), ["acme"]);
}

#[tokio::test]
async fn overrides_only_tighten() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let agent = stage.mint(json!({})).await;
    let with =
        |overrides: PolicyOverrides| vec![ActivationWish { overrides, ..activation("acme", None, "greet", true) }];
    let put = async |overrides: PolicyOverrides| stage.kernel.put_activations(admin(), with(overrides)).await;
    put(PolicyOverrides { requires_confirmation: Some(true), ..Default::default() }).await.unwrap();
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3210));
    let enabled = stage.kernel.agent_tools(as_holder(&agent), &"agent-1".parse().unwrap()).await.unwrap();
    assert!(enabled.iter().all(|tool| tool.requires_confirmation));
    put(PolicyOverrides { requires_approval: Some(true), ..Default::default() }).await.unwrap();
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3208));
    put(PolicyOverrides { redact: vec!["text".into()], ..Default::default() }).await.unwrap();
    let answer = stage.call_as(Some(&agent), greet()).await.unwrap();
    assert_eq!(answer.result, json!({ "text": "[REDACTED]" }));
    let loosened = put(PolicyOverrides { requires_confirmation: Some(false), ..Default::default() }).await.unwrap_err();
    assert_eq!(loosened.code, ErrorCode::E3004);
}

#[tokio::test]
async fn the_default_decides_where_no_activation_does() {
    for (default, pure, writing) in [
        (VisibilityDefault::Enabled, None, None),
        (VisibilityDefault::ReadOnly, None, Some(ErrorCode::E3101)),
        (VisibilityDefault::Disabled, Some(ErrorCode::E3101), Some(ErrorCode::E3101)),
    ] {
        let settings = AccessSettings { visibility: Some(default), ..AccessSettings::default() };
        let stage = TestKernel::with(TestKernelOptions { settings, ..TestKernelOptions::default() }).await;
        stage.publish(json!({})).await;
        stage.publish(idempotent("writer")).await;
        let agent = stage.mint(json!({})).await;
        assert_eq!(stage.code(&agent, "greet").await, pure, "{default:?}");
        assert_eq!(stage.code(&agent, "writer").await, writing, "{default:?}");
    }
}

// ---------------------------------------------------------------------------------------------------------- policies

const PERMIT: &str = "permit (principal, action, resource);";
const NO_LOUD_GREETINGS: &str = r#"
    @id("everybody") permit (principal, action, resource);
    @id("no-loud-greetings") forbid (principal, action, resource == Tool::"greet")
    when { context.arguments.number.hasTag("times") && context.arguments.number.getTag("times") > 3 };"#;

fn loud(times: i64) -> Value {
    json!({ "tool_id": "greet", "parameters": { "name": "Ada", "times": times } })
}

#[tokio::test]
async fn policies_see_the_arguments_take_effect_at_once_and_say_why() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let agent = stage.mint(json!({})).await;
    assert!(stage.call_as(Some(&agent), loud(9)).await.is_ok());
    let record = stage.kernel.put_policies(admin(), None, NO_LOUD_GREETINGS.into()).await.unwrap();
    assert_eq!(record.version, 1);
    let refused = stage.call_as(Some(&agent), loud(9)).await.unwrap_err().refusal;
    assert_eq!(refused.code, ErrorCode::E3206);
    assert!(refused.message.contains("no-loud-greetings"), "{}", refused.message);
    assert_eq!(refused.details.unwrap()["policies"], json!(["no-loud-greetings"]));
    assert!(stage.call_as(Some(&agent), loud(3)).await.is_ok());
    // Text that cannot be used changes nothing.
    for broken in ["permit (", "permit (principal, action, resource) when { resource.colour == \"red\" };"] {
        let refused = stage.kernel.put_policies(admin(), None, broken.into()).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::E3004, "{broken}");
    }
    assert!(stage.call_as(Some(&agent), loud(9)).await.is_err());
    stage.kernel.put_policies(admin(), None, PERMIT.into()).await.unwrap();
    assert!(stage.call_as(Some(&agent), loud(9)).await.is_ok());
    let view = stage.kernel.policies(admin(), None).await.unwrap();
    assert_eq!(view.history.iter().map(|version| version.version).collect::<Vec<_>>(), [2, 1]);
    assert_eq!(stage.kernel.policy_version(admin(), None, 1).await.unwrap().text, NO_LOUD_GREETINGS);
    assert_eq!(stage.kernel.policies(as_holder(&agent), None).await.unwrap_err().code, ErrorCode::E3206);
}

#[tokio::test]
async fn policies_decide_alike_about_short_and_long_texts_and_about_none_that_would_take_too_long() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let agent = stage.mint(json!({})).await;
    // Each character may have to be held against the whole piece between the two `*`.
    let piece = format!("{}b", "a".repeat(4_000));
    let named = r#"context.arguments.text.hasTag("name") && context.arguments.text.getTag("name")"#;
    let text = format!(
        r#"@id("everybody") permit (principal, action, resource);
           @id("no-long-names") forbid (principal, action, resource) when {{ {named} like "*{piece}*" }};"#
    );
    stage.kernel.put_policies(admin(), None, text).await.unwrap();
    let called = async |name: String| {
        let call = json!({ "tool_id": "greet", "parameters": { "name": name } });
        stage.call_as(Some(&agent), call).await.map(|_| ()).map_err(|failed| failed.refusal)
    };
    // Decided where everybody is answered, and beside it.
    for length in [100, 20_000] {
        assert_eq!(called("a".repeat(length)).await, Ok(()), "{length}");
    }
    let forbidden = called(format!("{}{piece}", "a".repeat(20_000))).await.unwrap_err();
    assert_eq!(forbidden.code, ErrorCode::E3206);
    assert!(forbidden.message.contains("no-long-names"), "{}", forbidden.message);
    let endless = called("a".repeat(600_000)).await.unwrap_err();
    assert_eq!((endless.code, endless.retryable), (ErrorCode::E3205, Some(false)), "{}", endless.message);
    assert!(endless.message.contains("too long to decide"), "{}", endless.message);
    let place = stage.kernel.places().into_iter().find(|(name, _)| *name == "policy_decisions");
    assert_eq!(place.map(|(_, usage)| usage.held), Some(0));
}

#[tokio::test]
async fn a_tenants_policies_are_asked_besides_the_platforms_and_for_that_tenant_only() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let chief = stage.mint(json!({ "sub": "chief", "roles": ["admin"] })).await;
    let agent = stage.mint(json!({})).await;
    let other = stage.mint(json!({ "tenant": "globex" })).await;
    let nothing = r#"@id("closed") forbid (principal, action, resource);"#;
    stage.kernel.put_policies(as_holder(&chief), None, nothing.into()).await.unwrap();
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3206));
    assert_eq!(stage.code(&other, "greet").await, None);
    // A tenant's permit does not undo what the platform forbids.
    stage.kernel.put_policies(as_holder(&chief), None, PERMIT.into()).await.unwrap();
    stage.kernel.put_policies(admin(), None, nothing.into()).await.unwrap();
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3206));
}

#[tokio::test]
async fn obligations_are_honoured() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let agent = stage.mint(json!({})).await;
    let with = async |obligations: &str| {
        let text = format!("@obligations(\"{obligations}\") permit (principal, action, resource);");
        stage.kernel.put_policies(admin(), None, text).await.unwrap();
        stage.call_as(Some(&agent), greet()).await.map(|answer| answer.result).map_err(|failed| failed.refusal.code)
    };
    assert_eq!(with("redact=text").await, Ok(json!({ "text": "[REDACTED]" })));
    assert_eq!(with("require_approval").await, Err(ErrorCode::E3208));
    assert_eq!(with("require_confirmation").await, Err(ErrorCode::E3210));
    assert_eq!(with("result_bytes=5").await, Err(ErrorCode::E3414));
    assert_eq!(with("timeout_seconds=1, redact=other").await, Ok(json!({ "text": "hi" })));
    let unknown = "@obligations(\"sing=loudly\") permit (principal, action, resource);".to_owned();
    assert_eq!(stage.kernel.put_policies(admin(), None, unknown).await.unwrap_err().code, ErrorCode::E3004);
}

#[tokio::test]
async fn a_lowered_time_limit_ends_the_call() {
    let stage = TestKernel::with(TestKernelOptions { impatient: true, ..TestKernelOptions::default() }).await;
    stage.publish(json!({})).await;
    *stage.tool.act.lock().unwrap() = ToolScript::Hang;
    let text = "@obligations(\"timeout_seconds=2\") permit (principal, action, resource);".to_owned();
    stage.kernel.put_policies(admin(), None, text).await.unwrap();
    let failed = stage.call(greet()).await.unwrap_err();
    assert_eq!(failed.refusal.code, ErrorCode::E3402);
    assert!(failed.refusal.message.contains("2000 ms"), "{}", failed.refusal.message);
}

#[tokio::test]
async fn decisions_are_remembered_per_caller_and_context_and_forgotten_when_anything_changes() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let (ann, bob) = (stage.mint(json!({ "sub": "ann" })).await, stage.mint(json!({ "sub": "bob" })).await);
    stage.kernel.put_policies(admin(), None, NO_LOUD_GREETINGS.into()).await.unwrap();
    let remembered = async |token: &str, times: i64| {
        let _either = stage.call_as(Some(token), loud(times)).await;
        *stage.observer.1.lock().unwrap().last().unwrap()
    };
    assert!(!remembered(&ann, 1).await && remembered(&ann, 1).await);
    // Other arguments are another question, because these policies read them; so is another caller.
    assert!(!remembered(&ann, 2).await && !remembered(&bob, 1).await);
    // A denial is remembered as well, and stays a denial.
    assert!(!remembered(&ann, 9).await && remembered(&ann, 9).await);
    assert!(stage.call_as(Some(&ann), loud(9)).await.is_err());
    stage.step(50);
    assert!(remembered(&ann, 1).await);
    stage.kernel.put_activations(admin(), vec![activation("acme", None, "greet", true)]).await.unwrap();
    assert!(!remembered(&ann, 1).await);
    // Another token of the same agent with the same rights asks the same question; a narrower one does not.
    let again = stage.mint(json!({ "sub": "ann", "ttl_seconds": 3600 })).await;
    assert!(remembered(&again, 1).await);
    stage.step(301);
    assert!(!remembered(&again, 1).await, "nothing is remembered for longer than five minutes");
}

#[tokio::test]
async fn a_policy_about_time_is_asked_anew_as_time_passes() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    let agent = stage.mint(json!({ "ttl_seconds": 86400 })).await;
    // The stage's clock starts at 08:00.
    let office = "permit (principal, action, resource) when { context.hour >= 8 && context.hour < 9 };".to_owned();
    stage.kernel.put_policies(admin(), None, office).await.unwrap();
    assert_eq!(stage.code(&agent, "greet").await, None);
    stage.step(3599);
    assert_eq!(stage.code(&agent, "greet").await, None);
    stage.step(1);
    assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3206));
}

#[tokio::test]
async fn an_engine_outside_can_deny_and_its_silence_denies_too() {
    let yes = PolicyVerdict { allowed: true, determining: vec![], obligations: vec![], reason: String::new() };
    let oracle = Arc::new(ScriptedEngine(Mutex::new(Ok(yes.clone())), AtomicUsize::new(0)));
    let stage =
        TestKernel::with(TestKernelOptions { engine: Some(Arc::clone(&oracle)), ..TestKernelOptions::default() }).await;
    stage.publish(json!({})).await;
    let agent = stage.mint(json!({})).await;
    assert_eq!(stage.code(&agent, "greet").await, None);
    assert_eq!(stage.code(&agent, "greet").await, None);
    assert_eq!(oracle.1.load(Ordering::SeqCst), 1, "the second answer was remembered");
    *oracle.0.lock().unwrap() = Err(());
    stage.kernel.put_activations(admin(), vec![activation("acme", None, "greet", true)]).await.unwrap();
    let call = json!({ "tool_id": "greet", "parameters": { "name": "Ada" } });
    let undecided = stage.call_as(Some(&agent), call).await.unwrap_err().refusal;
    assert_eq!((undecided.code, undecided.retry_after_ms), (ErrorCode::E3205, Some(1000)));
    // Trouble is not remembered: the next call asks again.
    let no = PolicyVerdict { allowed: false, reason: "not on Mondays".into(), ..yes };
    *oracle.0.lock().unwrap() = Ok(no);
    let refused = stage.call_as(Some(&agent), greet()).await.unwrap_err().refusal;
    assert_eq!(refused.code, ErrorCode::E3206);
    assert!(refused.message.contains("not on Mondays"));
    assert_eq!(oracle.1.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn word_that_an_engine_decides_otherwise_voids_what_is_remembered() {
    let yes = PolicyVerdict { allowed: true, determining: vec![], obligations: vec![], reason: String::new() };
    let no = PolicyVerdict { allowed: false, reason: "not any more".into(), ..yes.clone() };
    for word in [BusChange::Decisions, BusChange::Lost] {
        let oracle = Arc::new(ScriptedEngine(Mutex::new(Ok(yes.clone())), AtomicUsize::new(0)));
        let bus = Arc::new(MemoryBus::default());
        let props = TestKernelOptions {
            engine: Some(Arc::clone(&oracle)),
            bus: Some(Arc::clone(&bus)),
            ..TestKernelOptions::default()
        };
        let stage = TestKernel::with(props).await;
        stage.publish(json!({})).await;
        let agent = stage.mint(json!({})).await;
        let story = async {
            assert_eq!(stage.code(&agent, "greet").await, None);
            *oracle.0.lock().unwrap() = Ok(no.clone());
            // Changes that say nothing of decisions leave them alone.
            bus.publish(BusChange::Registry { generation: 1 }).await;
            tokio::task::yield_now().await;
            assert_eq!(stage.code(&agent, "greet").await, None);
            bus.publish(word.clone()).await;
            while stage.code(&agent, "greet").await.is_none() {
                tokio::task::yield_now().await;
            }
            assert_eq!(stage.code(&agent, "greet").await, Some(ErrorCode::E3206));
            assert_eq!(oracle.1.load(Ordering::SeqCst), 2, "{word:?}");
        };
        tokio::select! {
            () = stage.kernel.access().follow() => panic!("following has ended"),
            told = tokio::time::timeout(std::time::Duration::from_secs(30), story) => told.unwrap(),
        }
    }
}

#[tokio::test]
async fn word_about_some_voids_what_is_remembered_about_them_and_nothing_else() {
    let yes = PolicyVerdict { allowed: true, determining: vec![], obligations: vec![], reason: String::new() };
    let oracle = Arc::new(ScriptedEngine(Mutex::new(Ok(yes)), AtomicUsize::new(0)));
    let bus = Arc::new(MemoryBus::default());
    let props = TestKernelOptions {
        engine: Some(Arc::clone(&oracle)),
        bus: Some(Arc::clone(&bus)),
        ..TestKernelOptions::default()
    };
    let stage = TestKernel::with(props).await;
    stage.publish(json!({})).await;
    let ann = stage.mint(json!({ "sub": "ann" })).await;
    let bob = stage.mint(json!({ "sub": "bob", "user_did": "did:example:uma" })).await;
    let to_cy = DelegationRequest { sub: Some("cy".parse().unwrap()), ..DelegationRequest::default() };
    let cy = stage.kernel.delegate_token(as_holder(&ann), &to_cy).await.unwrap().token;
    let everybody = [&ann, &bob, &cy];
    let story = async {
        // How often the engine is asked for each: once for every hand at first, and then for those whom the word names.
        let asked_about = async || {
            let mut asked = [0; 3];
            for (token, asked) in everybody.iter().zip(&mut asked) {
                let before = oracle.1.load(Ordering::SeqCst);
                assert_eq!(stage.code(token, "greet").await, None);
                *asked = oracle.1.load(Ordering::SeqCst) - before;
            }
            asked
        };
        // Whoever follows the bus gets its turn: to listen at first, and then to hear.
        let turns = async || {
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
        };
        let after = async |named: &[&str]| {
            bus.publish(BusChange::DecisionsOf { subjects: named.iter().map(|name| name.parse().unwrap()).collect() })
                .await;
            turns().await;
            asked_about().await
        };
        turns().await;
        assert_eq!(asked_about().await, [1, 1, 2], "cy acts with what ann handed on");
        assert_eq!(asked_about().await, [0; 3]);
        assert_eq!(after(&["bob"]).await, [0, 1, 0]);
        assert_eq!(after(&["did:example:uma"]).await, [0, 1, 0], "whom somebody acts for");
        assert_eq!(after(&["ann"]).await, [1, 0, 2], "cy acts with what ann handed on");
        assert_eq!(after(&["cy", "bob"]).await, [0, 1, 2]);
        assert_eq!(after(&["dan"]).await, [0; 3], "nobody who has called");
        assert_eq!(after(&[]).await, [1, 1, 2], "whoever is not named may be meant");
    };
    tokio::select! {
        () = stage.kernel.access().follow() => panic!("following has ended"),
        told = tokio::time::timeout(std::time::Duration::from_secs(30), story) => told.unwrap(),
    }
}

#[tokio::test]
async fn a_cached_allow_never_helps_a_token_that_does_not_name_the_tool() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    stage.kernel.put_policies(admin(), None, PERMIT.into()).await.unwrap();
    let wide = stage.mint(json!({})).await;
    let narrow = stage.mint(json!({ "tools": [{ "tool_id": "other_tool" }] })).await;
    assert_eq!(stage.code(&wide, "greet").await, None);
    assert_eq!(stage.code(&narrow, "greet").await, Some(ErrorCode::E3204));
}

#[tokio::test]
async fn a_fresh_name_is_no_way_around_what_an_agent_may_not_do() {
    let settings = AccessSettings { visibility: Some(VisibilityDefault::Enabled), ..AccessSettings::default() };
    let stage = TestKernel::with(TestKernelOptions { settings, ..TestKernelOptions::default() }).await;
    stage.publish(json!({})).await;
    let mallory = stage.mint(json!({ "sub": "mallory" })).await;
    let fresh = DelegationRequest { sub: Some("fresh-name".parse().unwrap()), ..DelegationRequest::default() };
    let other = stage.kernel.delegate_token(as_holder(&mallory), &fresh).await.unwrap().token;
    let again = DelegationRequest { sub: Some("fresher-name".parse().unwrap()), ..DelegationRequest::default() };
    let third = stage.kernel.delegate_token(as_holder(&other), &again).await.unwrap().token;
    let codes = async || {
        [stage.code(&mallory, "greet").await, stage.code(&other, "greet").await, stage.code(&third, "greet").await]
    };
    assert_eq!(codes().await, [None; 3]);
    // Disabled by an activation,
    stage.kernel.put_activations(admin(), vec![activation("acme", Some("mallory"), "greet", false)]).await.unwrap();
    assert_eq!(codes().await, [Some(ErrorCode::E3101); 3]);
    for token in [&mallory, &other, &third] {
        assert_eq!(listed(&stage, token, None).await, Vec::<String>::new(), "what cannot be called is not listed");
    }
    // asked for a confirmation,
    let overrides = PolicyOverrides { requires_confirmation: Some(true), ..Default::default() };
    let confirm = ActivationWish { overrides, ..activation("acme", Some("mallory"), "greet", true) };
    stage.kernel.put_activations(admin(), vec![confirm]).await.unwrap();
    assert_eq!(codes().await, [Some(ErrorCode::E3210); 3]);
    stage.kernel.put_activations(admin(), vec![activation("acme", Some("mallory"), "greet", true)]).await.unwrap();
    assert_eq!(codes().await, [None; 3]);
    // or forbidden by a policy: it goes along with the token.
    let text = "permit (principal, action, resource); forbid (principal == Agent::\"mallory\", action, resource);";
    stage.kernel.put_policies(admin(), None, text.into()).await.unwrap();
    assert_eq!(codes().await, [Some(ErrorCode::E3206); 3]);
    // What a permit demands of it is demanded of every name,
    let others = "permit (principal, action, resource) unless { principal == Agent::\"mallory\" };";
    let demanding = |duty: &str| {
        format!("{others} @obligations(\"{duty}\") permit (principal == Agent::\"mallory\", action, resource);")
    };
    stage.kernel.put_policies(admin(), None, demanding("require_approval")).await.unwrap();
    assert_eq!(codes().await, [Some(ErrorCode::E3208); 3]);
    // and masked for every name.
    stage.kernel.put_policies(admin(), None, demanding("redact=text")).await.unwrap();
    for token in [&mallory, &other, &third] {
        let answer = stage.call_as(Some(token), greet()).await.unwrap();
        assert!(!answer.result.to_string().contains("hi"), "{answer:?}");
    }
    // So does what is forbidden to a role that was left behind.
    let auditor = stage.mint(json!({ "sub": "nosy", "roles": ["agent", "auditor"] })).await;
    let plain = stage.kernel.delegate_token(as_holder(&auditor), &DelegationRequest::default()).await.unwrap().token;
    let text = "permit (principal, action, resource); forbid (principal, action, resource) when { principal.roles.contains(\"auditor\") };";
    stage.kernel.put_policies(admin(), None, text.into()).await.unwrap();
    assert_eq!(stage.code(&auditor, "greet").await, Some(ErrorCode::E3206));
    assert_eq!(stage.code(&plain, "greet").await, Some(ErrorCode::E3206));
    // And an agent gives itself neither a user nor a session that policies ask for.
    let text = "permit (principal, action, resource) when { principal has user };";
    stage.kernel.put_policies(admin(), None, text.into()).await.unwrap();
    for token in [&mallory, &other, &third] {
        assert_eq!(stage.code(token, "greet").await, Some(ErrorCode::E3206));
    }
    let person = stage.mint(json!({ "sub": "ann", "roles": [] })).await;
    let agent = stage.kernel.delegate_token(as_holder(&person), &fresh).await.unwrap().token;
    assert_eq!(stage.code(&agent, "greet").await, None);
    stage.kernel.put_policies(admin(), None, PERMIT.into()).await.unwrap();
    // Nor does the name of somebody who may more help: what counts is what every hand of the chain may do.
    stage.mint(json!({ "sub": "boss" })).await;
    let as_boss = DelegationRequest { sub: Some("boss".parse().unwrap()), ..DelegationRequest::default() };
    let borrowed = stage.kernel.delegate_token(as_holder(&mallory), &as_boss).await.unwrap().token;
    let boss_only = "permit (principal == Agent::\"boss\", action, resource);";
    stage.kernel.put_policies(admin(), None, boss_only.into()).await.unwrap();
    assert_eq!(stage.code(&borrowed, "greet").await, Some(ErrorCode::E3206));
    stage.kernel.put_policies(admin(), None, PERMIT.into()).await.unwrap();
    // Nor shedding the role that says one is an agent, so as to pass for a person.
    let shed =
        DelegationRequest { sub: Some("x".parse().unwrap()), roles: Some(vec![]), ..DelegationRequest::default() };
    let shed = stage.kernel.delegate_token(as_holder(&mallory), &shed).await.unwrap();
    assert_eq!(shed.claims.roles, [policy::Role::Agent]);
    assert_eq!(shed.claims.user_did, None);
    // The same names with rights of their own are not concerned.
    let own = stage.mint(json!({ "sub": "fresh-name" })).await;
    assert_eq!(stage.code(&own, "greet").await, None);
}

#[tokio::test]
async fn a_call_can_be_explained_without_being_run() {
    let stage = TestKernel::new().await;
    stage.publish(json!({})).await;
    stage.kernel.put_policies(admin(), None, NO_LOUD_GREETINGS.into()).await.unwrap();
    let agent = stage.mint(json!({ "budget": { "calls": 1 } })).await;
    let explain = async |times: i64| stage.kernel.explain(arrival(Some(&agent), loud(times))).await.unwrap();
    let fine = explain(1).await;
    assert!(fine.refusal.is_none());
    assert_eq!(fine.policies, ["everybody"]);
    let loud = explain(9).await.refusal.unwrap();
    assert!(loud.message.contains("no-loud-greetings"));
    assert_eq!(stage.runs(), 0);
    // Nothing was spent by asking.
    assert_eq!(stage.code(&agent, "greet").await, None);
    assert_eq!(stage.kernel.explain(arrival(None, greet())).await.unwrap_err().code, ErrorCode::E3203);
    assert_eq!(stage.call_as(Some(ADMIN), greet()).await.map(|_| ()).map_err(|f| f.refusal.code), Ok(()));
}
