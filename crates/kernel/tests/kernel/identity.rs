//! Who is calling: keys that change, tokens that are revoked, limited, counted and handed on, DIDs that are known or not.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use contract::error::ErrorCode;
use contract::ids::TenantId;
use gantry_kernel::{DelegationRequest, ExternalIssuer, RevocationRequest};
use policy::{BearerSecret, CallBudget, NarrowingRequest, Role, SigningKey, TokenMinter};
use ports::access_store::AccessStore as _;
use ports::actor::Actor;
use ports::audit_sink::AuditAction;
use ports::key_source::KeySource;
use serde_json::{Value, json};
use test_kernel::{
    KnownDids, MemoryVault, START, ScriptedKeys, TestKernel, TestKernelOptions, admin, as_holder, mint_request,
};

/// A token of another issuer.
fn foreign(key: &SigningKey, change: Value) -> String {
    let minter = TokenMinter { issuer: "https://issuer.example".into(), audience: "gantry".into() };
    minter.mint(&mint_request(change), key, "foreign-1".into(), START).unwrap().0
}

fn key_set(keys: &[&SigningKey]) -> String {
    json!({ "keys": keys.iter().map(|key| key.verifying_key().to_jwk()).collect::<Vec<_>>() }).to_string()
}

fn issuer(source: Option<Arc<dyn KeySource>>) -> Option<ExternalIssuer> {
    Some(ExternalIssuer {
        name: "https://issuer.example".into(),
        roles: vec![Role::Agent],
        keys: Vec::new(),
        source,
        refresh_every: Duration::from_secs(300),
    })
}

async fn with_tenant(props: TestKernelOptions) -> TestKernel {
    let stage = TestKernel::with(props).await;
    stage.publish(json!({})).await;
    // Introduces `acme` and `agent-1`.
    stage.mint(json!({})).await;
    stage
}

#[tokio::test]
async fn keys_of_another_issuer_are_fetched_when_needed_and_not_more_often_than_allowed() {
    let (first, second, stranger) =
        (SigningKey::from_seed(&[1; 32]), SigningKey::from_seed(&[2; 32]), SigningKey::from_seed(&[3; 32]));
    let board = Arc::new(ScriptedKeys::default());
    *board.text.lock().unwrap() = Some(key_set(&[&first]));
    let stage = with_tenant(TestKernelOptions {
        external: issuer(Some(Arc::clone(&board) as _)),
        ..TestKernelOptions::default()
    })
    .await;
    let looks = || board.looks.load(Ordering::SeqCst);

    assert_eq!(stage.code(&foreign(&first, json!({})), "greet").await, None);
    assert_eq!(looks(), 1);
    // Unknown names, however many, do not make the set be fetched again at once.
    for _ in 0..20 {
        assert_eq!(stage.code(&foreign(&stranger, json!({})), "greet").await, Some(ErrorCode::E3202));
    }
    assert_eq!(looks(), 1);
    // Rotation: the new key is found as soon as it may be looked for; the old one is gone once the set says so.
    stage.step(6);
    *board.text.lock().unwrap() = Some(key_set(&[&second]));
    assert_eq!(stage.code(&foreign(&second, json!({})), "greet").await, None);
    assert_eq!(looks(), 2);
    assert_eq!(stage.code(&foreign(&first, json!({})), "greet").await, Some(ErrorCode::E3202));
    // A set that is down or nonsense leaves the former keys in force.
    for text in [None, Some("<html>".to_owned()), Some(json!({ "keys": [] }).to_string())] {
        stage.step(6);
        *board.text.lock().unwrap() = text;
        assert_eq!(stage.code(&foreign(&stranger, json!({})), "greet").await, Some(ErrorCode::E3202));
        assert_eq!(stage.code(&foreign(&second, json!({ "ttl_seconds": 3600 })), "greet").await, None);
    }
}

#[tokio::test]
async fn another_issuer_gives_no_roles_it_was_not_trusted_with() {
    let key = SigningKey::from_seed(&[1; 32]);
    let board = Arc::new(ScriptedKeys::default());
    *board.text.lock().unwrap() = Some(key_set(&[&key]));
    let stage = with_tenant(TestKernelOptions {
        external: issuer(Some(Arc::clone(&board) as _)),
        ..TestKernelOptions::default()
    })
    .await;
    let admin_token = foreign(&key, json!({ "roles": ["admin"], "tenant": "local" }));
    assert_eq!(stage.code(&admin_token, "greet").await, Some(ErrorCode::E3203));
    // Nor can it speak in this server's own name.
    let forged = TokenMinter::default().mint(&mint_request(json!({})), &key, "f".into(), START).unwrap().0;
    assert_eq!(stage.code(&forged, "greet").await, Some(ErrorCode::E3203));
    // Nor bring tenants into being.
    assert_eq!(stage.code(&foreign(&key, json!({ "tenant": "nowhere" })), "greet").await, Some(ErrorCode::E3206));
}

#[tokio::test]
async fn the_signing_key_is_replaced_without_a_token_becoming_invalid() {
    let drawer = Arc::new(MemoryVault::default());
    let stage = with_tenant(TestKernelOptions { drawer: Arc::clone(&drawer), ..TestKernelOptions::default() }).await;
    let before = stage.mint(json!({})).await;
    assert_eq!(stage.code(&before, "greet").await, None);
    let kid = stage.kernel.rotate_keys(admin()).await.unwrap();
    let after = stage.mint(json!({})).await;
    assert_eq!(policy::key_id(&after), Some(kid.clone()));
    assert_ne!(policy::key_id(&before), Some(kid));
    for token in [&before, &after] {
        assert_eq!(stage.code(token, "greet").await, None);
    }
    assert_eq!(stage.kernel.identity().own_keys().len(), 2);
    // A key that cannot be kept is not used.
    drawer.stuck.store(true, Ordering::SeqCst);
    assert_eq!(stage.kernel.rotate_keys(admin()).await.unwrap_err().code, ErrorCode::E3001);
    assert_eq!(stage.kernel.identity().own_keys().len(), 2);
    let agent = stage.mint(json!({})).await;
    assert_eq!(stage.kernel.rotate_keys(as_holder(&agent)).await.unwrap_err().code, ErrorCode::E3206);
}

#[tokio::test]
async fn revoked_tokens_are_refused_at_the_next_call_though_they_are_remembered() {
    let stage = with_tenant(TestKernelOptions::default()).await;
    let (one, other) = (stage.mint(json!({})).await, stage.mint(json!({})).await);
    for token in [&one, &other] {
        assert_eq!(stage.code(token, "greet").await, None);
    }
    let jti = |token: &str| claims(token)["jti"].as_str().unwrap().to_owned();
    let by_id = RevocationRequest { jti: Some(jti(&one)), ..RevocationRequest::default() };
    stage.kernel.revoke_tokens(admin(), &by_id).await.unwrap();
    assert_eq!(stage.code(&one, "greet").await, Some(ErrorCode::E3201));
    assert_eq!(stage.code(&other, "greet").await, None);

    let by_subject = |tenant: &str| RevocationRequest {
        sub: Some("agent-1".parse().unwrap()),
        tenant: Some(tenant.parse().unwrap()),
        ..RevocationRequest::default()
    };
    // The same name in another tenant is somebody else.
    stage.kernel.revoke_tokens(admin(), &by_subject("globex")).await.unwrap();
    assert_eq!(stage.code(&other, "greet").await, None);
    stage.kernel.revoke_tokens(admin(), &by_subject("acme")).await.unwrap();
    assert_eq!(stage.code(&other, "greet").await, Some(ErrorCode::E3201));
    // Tokens issued after the revocation are good again.
    stage.step(1);
    let later = stage.mint(json!({})).await;
    assert_eq!(stage.code(&later, "greet").await, None);
    // An operator of one tenant voids nothing of another's, though it may know a token's id.
    let operator = stage.mint(json!({ "sub": "op", "tenant": "globex", "roles": ["operator"] })).await;
    let of_others = RevocationRequest { jti: Some(jti(&later)), ..RevocationRequest::default() };
    stage.kernel.revoke_tokens(as_holder(&operator), &of_others).await.unwrap();
    assert_eq!(stage.code(&later, "greet").await, None);
    // Whoever holds a token may give it up, and nobody else's.
    let own = RevocationRequest { jti: Some(jti(&later)), ..RevocationRequest::default() };
    let another = stage.mint(json!({})).await;
    assert_eq!(stage.kernel.revoke_tokens(as_holder(&another), &own).await.unwrap_err().code, ErrorCode::E3206);
    stage.kernel.revoke_tokens(as_holder(&later), &own).await.unwrap();
    assert_eq!(stage.code(&later, "greet").await, Some(ErrorCode::E3201));
}

#[tokio::test]
async fn a_token_is_handed_on_only_narrower_and_ends_with_its_parents() {
    let stage = with_tenant(TestKernelOptions::default()).await;
    stage.publish(json!({ "tool_id": "other" })).await;
    let user = stage
        .mint(json!({ "sub": "did:example:ann", "roles": [], "tools": [{ "tool_id": "greet" }], "ttl_seconds": 50 }))
        .await;
    stage.mint(json!({ "sub": "did:example:bot" })).await;
    let wish = |tools: Value| DelegationRequest {
        sub: Some("did:example:bot".parse().unwrap()),
        wish: NarrowingRequest { tools: Some(serde_json::from_value(tools).unwrap()), ..NarrowingRequest::default() },
        ..DelegationRequest::default()
    };
    let wider = stage.kernel.delegate_token(as_holder(&user), &wish(json!([{ "tool_id": "*" }]))).await.unwrap_err();
    assert_eq!(wider.code, ErrorCode::E3206);
    let child = stage.kernel.delegate_token(as_holder(&user), &wish(json!([{ "tool_id": "greet" }]))).await.unwrap();
    assert_eq!(child.claims.exp, claims(&user)["exp"].as_i64().unwrap());
    assert_eq!(child.claims.user_did.as_ref().unwrap().as_str(), "did:example:ann");
    assert_eq!(stage.code(&child.token, "greet").await, None);
    assert_eq!(stage.code(&child.token, "other").await, Some(ErrorCode::E3204));
    // For one purpose, by the same agent; but not back to where it came from.
    let same = DelegationRequest::default();
    let grandchild = stage.kernel.delegate_token(as_holder(&child.token), &same).await.unwrap();
    assert_eq!(stage.code(&grandchild.token, "greet").await, None);
    let back = DelegationRequest { sub: Some("did:example:ann".parse().unwrap()), ..DelegationRequest::default() };
    assert_eq!(stage.kernel.delegate_token(as_holder(&child.token), &back).await.unwrap_err().code, ErrorCode::E3206);
    let stranger =
        DelegationRequest { sub: Some("did:example:nobody".parse().unwrap()), ..DelegationRequest::default() };
    assert_eq!(stage.kernel.delegate_token(as_holder(&user), &stranger).await.unwrap_err().code, ErrorCode::E3207);
    let role = DelegationRequest { roles: Some(vec![Role::Admin]), ..DelegationRequest::default() };
    assert_eq!(stage.kernel.delegate_token(as_holder(&user), &role).await.unwrap_err().code, ErrorCode::E3206);
    // The parent's end is the end of all.
    let revoke =
        RevocationRequest { jti: Some(claims(&user)["jti"].as_str().unwrap().into()), ..RevocationRequest::default() };
    stage.kernel.revoke_tokens(admin(), &revoke).await.unwrap();
    for token in [&user, &child.token, &grandchild.token] {
        assert_eq!(stage.code(token, "greet").await, Some(ErrorCode::E3201));
    }
    let records = stage.all_records().await;
    let called =
        records.iter().rev().find(|r| r.action == AuditAction::InvocationFinished && r.code.is_none()).unwrap();
    let who = called.who.as_ref().unwrap();
    let chain: Vec<&str> = who.chain.iter().map(|link| link.subject.as_str()).collect();
    assert_eq!(chain, ["did:example:bot", "did:example:ann"], "the audit log knows through whose hands it went");
    assert_eq!(records.iter().filter(|r| r.action == AuditAction::TokenDelegated).count(), 2);
    let refused: Vec<_> = records.iter().filter(|r| r.action == AuditAction::ActRefused).collect();
    let codes: Vec<_> = refused.iter().map(|r| r.code.unwrap()).collect();
    assert_eq!(codes, [ErrorCode::E3206, ErrorCode::E3206, ErrorCode::E3207, ErrorCode::E3206], "each refusal too");
    let asked: Vec<&str> = refused.iter().map(|r| r.who.as_ref().unwrap().subject.as_str()).collect();
    assert_eq!(asked, ["did:example:ann", "did:example:bot", "did:example:ann", "did:example:ann"]);
    assert!(refused.iter().all(|r| r.note.as_deref() == Some("may not hand its token on like that")));
}

#[tokio::test]
async fn a_revocation_is_forgotten_once_its_token_could_not_be_used_anyway() {
    let stage = with_tenant(TestKernelOptions { leeway_seconds: 30, ..TestKernelOptions::default() }).await;
    let by_id = |token: &str| RevocationRequest {
        jti: Some(claims(token)["jti"].as_str().unwrap().to_owned()),
        ..RevocationRequest::default()
    };
    let kept = async || stage.store.load().await.unwrap().revocations.len();
    let (given_up, taken) = (stage.mint(json!({})).await, stage.mint(json!({})).await);
    stage.kernel.revoke_tokens(as_holder(&given_up), &by_id(&given_up)).await.unwrap();
    // Its id says nothing about its life, so this one stays.
    stage.kernel.revoke_tokens(admin(), &by_id(&taken)).await.unwrap();
    assert_eq!(kept().await, 2);
    stage.step(80);
    assert_eq!(stage.code(&given_up, "greet").await, Some(ErrorCode::E3201), "within the leeway it still counts");
    stage.kernel.revoke_tokens(admin(), &by_id(&taken)).await.unwrap();
    assert_eq!(kept().await, 2);
    // The widest disagreement of clocks is ten minutes.
    stage.step(610);
    stage.kernel.revoke_tokens(admin(), &by_id(&taken)).await.unwrap();
    assert_eq!(kept().await, 1);
    assert_eq!(stage.code(&given_up, "greet").await, Some(ErrorCode::E3201), "expired");
}

#[tokio::test]
async fn a_chain_has_an_end() {
    let stage = with_tenant(TestKernelOptions::default()).await;
    let mut token = stage.mint(json!({})).await;
    for _ in 0..policy::DELEGATION_DEPTH_MAX {
        token = stage.kernel.delegate_token(as_holder(&token), &DelegationRequest::default()).await.unwrap().token;
        assert_eq!(stage.code(&token, "greet").await, None);
    }
    let deeper = stage.kernel.delegate_token(as_holder(&token), &DelegationRequest::default()).await.unwrap_err();
    assert_eq!(deeper.code, ErrorCode::E3206);
}

#[tokio::test]
async fn a_budget_of_calls_is_shared_by_everything_delegated_from_it() {
    let stage = with_tenant(TestKernelOptions::default()).await;
    let parent = stage.mint(json!({ "budget": { "calls": 3 } })).await;
    let wish = NarrowingRequest { budget: Some(CallBudget { calls: Some(2) }), ..NarrowingRequest::default() };
    let request = DelegationRequest { wish, ..DelegationRequest::default() };
    let child = stage.kernel.delegate_token(as_holder(&parent), &request).await.unwrap().token;
    let wide = NarrowingRequest { budget: Some(CallBudget { calls: Some(4) }), ..NarrowingRequest::default() };
    let wide = DelegationRequest { wish: wide, ..DelegationRequest::default() };
    assert_eq!(stage.kernel.delegate_token(as_holder(&parent), &wide).await.unwrap_err().code, ErrorCode::E3206);
    assert_eq!(stage.code(&child, "greet").await, None);
    assert_eq!(stage.code(&child, "greet").await, None);
    assert_eq!(stage.code(&child, "greet").await, Some(ErrorCode::E3211));
    // What was refused has cost nothing: the parent has one call left, not none.
    assert_eq!(stage.code(&parent, "greet").await, None);
    assert_eq!(stage.code(&parent, "greet").await, Some(ErrorCode::E3211));
    assert_eq!(stage.runs(), 3);
}

#[tokio::test]
async fn a_budget_of_another_issuers_token_is_shared_with_what_is_exchanged_from_it() {
    let key = SigningKey::from_seed(&[1; 32]);
    let board = Arc::new(ScriptedKeys::default());
    *board.text.lock().unwrap() = Some(key_set(&[&key]));
    let stage = with_tenant(TestKernelOptions {
        external: issuer(Some(Arc::clone(&board) as _)),
        ..TestKernelOptions::default()
    })
    .await;
    let parent = foreign(&key, json!({ "budget": { "calls": 1 } }));
    let child = stage.kernel.delegate_token(as_holder(&parent), &DelegationRequest::default()).await.unwrap().token;
    assert_eq!(stage.code(&parent, "greet").await, None);
    assert_eq!(stage.code(&child, "greet").await, Some(ErrorCode::E3211));
}

#[tokio::test]
async fn tokens_of_two_issuers_with_one_id_are_two_tokens_for_whoever_revokes_one() {
    let key = SigningKey::from_seed(&[1; 32]);
    let board = Arc::new(ScriptedKeys::default());
    *board.text.lock().unwrap() = Some(key_set(&[&key]));
    let stage = with_tenant(TestKernelOptions {
        external: issuer(Some(Arc::clone(&board) as _)),
        ..TestKernelOptions::default()
    })
    .await;
    let minter = TokenMinter { issuer: "https://issuer.example".into(), audience: "gantry".into() };
    let twins = async || {
        let ours = stage.mint(json!({})).await;
        let id = claims(&ours)["jti"].as_str().unwrap().to_owned();
        let theirs = minter.mint(&mint_request(json!({})), &key, id.clone(), START).unwrap().0;
        (ours, theirs, id)
    };
    let codes = async |one: &str, other: &str| (stage.code(one, "greet").await, stage.code(other, "greet").await);
    let void = Some(ErrorCode::E3201);
    let of = |jti: &str, issuer: Option<&str>| RevocationRequest {
        jti: Some(jti.to_owned()),
        issuer: issuer.map(str::to_owned),
        ..RevocationRequest::default()
    };
    // Whoever gives up its token gives up that one only, and what was handed on from it.
    let (ours, theirs, id) = twins().await;
    let child = stage.kernel.delegate_token(as_holder(&theirs), &DelegationRequest::default()).await.unwrap().token;
    let kept = stage.kernel.delegate_token(as_holder(&ours), &DelegationRequest::default()).await.unwrap().token;
    stage.kernel.revoke_tokens(as_holder(&theirs), &of(&id, None)).await.unwrap();
    assert_eq!(codes(&ours, &theirs).await, (None, void));
    assert_eq!(codes(&kept, &child).await, (None, void));
    stage.kernel.revoke_tokens(as_holder(&ours), &of(&id, None)).await.unwrap();
    assert_eq!(codes(&ours, &theirs).await, (void, void), "the second takes nothing back of the first");
    // It cannot give up another's by naming its issuer.
    let (ours, theirs, id) = twins().await;
    let others = of(&id, claims(&ours)["iss"].as_str());
    assert_eq!(stage.kernel.revoke_tokens(as_holder(&theirs), &others).await.unwrap_err().code, ErrorCode::E3206);
    // An administrator says whose it is, or means every one.
    stage.kernel.revoke_tokens(admin(), &of(&id, Some("https://issuer.example"))).await.unwrap();
    assert_eq!(codes(&ours, &theirs).await, (None, void));
    stage.kernel.revoke_tokens(admin(), &of(&id, None)).await.unwrap();
    assert_eq!(codes(&ours, &theirs).await, (void, void));
    for wrong in ["", "a\nb"] {
        assert_eq!(
            stage.kernel.revoke_tokens(admin(), &of(&id, Some(wrong))).await.unwrap_err().code,
            ErrorCode::E3004
        );
    }
}

#[tokio::test]
async fn limits_of_a_token_hold_for_the_arguments_that_run() {
    let stage = with_tenant(TestKernelOptions::default()).await;
    let token = stage.mint(json!({ "limits": [{ "tool_id": "greet", "argument": "/times", "max": 2 }] })).await;
    let call = |times: Value| json!({ "tool_id": "greet", "parameters": { "name": "Ada", "times": times } });
    let code = async |times: Value| stage.call_as(Some(&token), call(times)).await.err().map(|f| f.refusal.code);
    assert_eq!(code(json!(2)).await, None);
    assert_eq!(code(json!(3)).await, Some(ErrorCode::E3206));
    // A string that becomes a number is judged as the number it becomes.
    assert_eq!(code(json!("3")).await, Some(ErrorCode::E3206));
    // The default is filled in before it is judged.
    assert_eq!(stage.code(&token, "greet").await, None);
}

#[tokio::test]
async fn subjects_that_nobody_knows_are_refused() {
    let key = SigningKey::from_seed(&[1; 32]);
    let board = Arc::new(ScriptedKeys::default());
    *board.text.lock().unwrap() = Some(key_set(&[&key]));
    let dids = Arc::new(KnownDids::default());
    dids.0.lock().unwrap().push("did:web:agents.example".into());
    let props = TestKernelOptions {
        external: issuer(Some(Arc::clone(&board) as _)),
        dids: Some(Arc::clone(&dids)),
        ..TestKernelOptions::default()
    };
    let stage = with_tenant(props).await;
    let self_certified = policy::Did::of_key(&key);
    let unknown = Some(ErrorCode::E3207);
    for (sub, expected) in [
        ("plain-name", None),
        (self_certified.as_str(), None),
        ("did:web:agents.example", None),
        ("did:web:elsewhere.example", unknown),
        ("did:example:ghost", unknown),
    ] {
        assert_eq!(stage.code(&foreign(&key, json!({ "sub": sub })), "greet").await, expected, "{sub}");
    }
    // Whoever an administrator mints a token for is thereby known, until forgotten.
    let tenant: TenantId = "acme".parse().unwrap();
    let own = stage.mint(json!({ "sub": "did:example:ghost" })).await;
    assert_eq!(stage.code(&own, "greet").await, None);
    assert_eq!(stage.code(&foreign(&key, json!({ "sub": "did:example:ghost" })), "greet").await, None);
    stage.kernel.forget_agent(admin(), Some(&tenant), &"did:example:ghost".parse().unwrap()).await.unwrap();
    assert_eq!(stage.code(&own, "greet").await, unknown);
    // Nor is anything good that it has handed on.
    let again = stage.mint(json!({ "sub": "did:example:brief" })).await;
    let helper = DelegationRequest { sub: Some("helper".parse().unwrap()), ..DelegationRequest::default() };
    let handed_on = stage.kernel.delegate_token(as_holder(&again), &helper).await.unwrap().token;
    assert_eq!(stage.code(&handed_on, "greet").await, None);
    stage.kernel.forget_agent(admin(), Some(&tenant), &"did:example:brief".parse().unwrap()).await.unwrap();
    assert_eq!(stage.code(&handed_on, "greet").await, unknown);
}

#[tokio::test]
async fn clocks_may_differ_by_what_the_configuration_says_and_not_a_second_more() {
    let stage = with_tenant(TestKernelOptions { leeway_seconds: 30, ..TestKernelOptions::default() }).await;
    let token = stage.mint(json!({ "ttl_seconds": 60 })).await;
    stage.step(89);
    assert_eq!(stage.code(&token, "greet").await, None);
    stage.step(1);
    assert_eq!(stage.code(&token, "greet").await, Some(ErrorCode::E3201));
}

#[tokio::test]
async fn an_address_that_keeps_failing_is_held_off_and_a_good_token_is_not() {
    let stage = with_tenant(TestKernelOptions { failures_per_minute: Some(5), ..TestKernelOptions::default() }).await;
    let source: Option<IpAddr> = Some("192.0.2.7".parse().unwrap());
    let good = stage.mint(json!({})).await;
    let try_as = async |token: &str| {
        let actor = Actor { credential: Some(BearerSecret(token)), source, ..admin() };
        stage.kernel.recognise(actor).await.map(|_| ()).map_err(|refusal| refusal.code)
    };
    assert_eq!(try_as(&good).await, Ok(()));
    for _ in 0..5 {
        assert_eq!(try_as("nonsense").await, Err(ErrorCode::E3203));
    }
    assert_eq!(try_as("nonsense").await, Err(ErrorCode::E3003));
    assert_eq!(try_as(&good).await, Ok(()));
    stage.step(12);
    assert_eq!(try_as("nonsense").await, Err(ErrorCode::E3203));
}

#[tokio::test]
async fn acts_that_were_refused_are_recorded() {
    let stage = with_tenant(TestKernelOptions::default()).await;
    let agent = stage.mint(json!({})).await;
    assert!(stage.kernel.mint_token(as_holder(&agent), &mint_request(json!({ "roles": ["admin"] }))).await.is_err());
    let records = stage.all_records().await;
    let refused = records.iter().find(|r| r.action == AuditAction::ActRefused).unwrap();
    assert_eq!((refused.code, refused.who.as_ref().unwrap().subject.as_str()), (Some(ErrorCode::E3206), "agent-1"));
}

/// The claims of a token, unverified.
fn claims(token: &str) -> Value {
    use base64::Engine as _;
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}
