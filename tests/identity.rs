//! Proving who one is to the real server: forged tokens, keys that rotate under load, revocation, delegation, keys and
//! policies that come from files and engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, PATIENCE, Start, gantry as command, run};

fn sum() -> Value {
    json!({ "tool_id": "calculator", "parameters": { "expression": "1+1" } })
}

async fn call(gantry: &Gantry, token: &str) -> Answer {
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(sum())).await
}

fn claims(token: &str) -> Value {
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap()).unwrap()
}

fn forged(header: &Value, claims: &Value, signature: &str) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}.{signature}", part(header), part(claims))
}

#[tokio::test]
async fn forged_tokens_are_refused_with_their_code_and_a_challenge() {
    let gantry = Gantry::start().await;
    let good = gantry.mint(json!({})).await;
    let header: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(good.split('.').next().unwrap()).unwrap()).unwrap();
    let signature = good.rsplit('.').next().unwrap();
    let with = |member: &str, value: Value| {
        let mut header = header.clone();
        header[member] = value;
        forged(&header, &claims(&good), signature)
    };
    let mut richer = claims(&good);
    richer["roles"] = json!(["admin"]);
    for (what, token, expected) in [
        ("alg none", with("alg", json!("none")), (401, "E3203")),
        ("alg HS256", with("alg", json!("HS256")), (401, "E3203")),
        ("another algorithm than the key's", with("alg", json!("RS256")), (401, "E3202")),
        ("unknown kid", with("kid", json!("nobody")), (401, "E3202")),
        ("kid as a path", with("kid", json!("../../etc/passwd")), (401, "E3202")),
        ("kid as SQL", with("kid", json!("' OR 1=1 --")), (401, "E3202")),
        ("kid as a URL", with("kid", json!("http://127.0.0.1:1/keys")), (401, "E3202")),
        ("crit", with("crit", json!(["x"])), (401, "E3203")),
        ("claims changed", forged(&header, &richer, signature), (401, "E3202")),
        ("no signature", forged(&header, &claims(&good), ""), (401, "E3202")),
        ("half a token", good.chars().take(good.len() / 2).collect(), (401, "E3203")),
        ("nonsense", "nonsense".to_owned(), (401, "E3203")),
    ] {
        let answer = call(&gantry, &token).await;
        let (status, code) = answer.refusal();
        assert_eq!(status, expected.0, "{what}: {}", answer.text);
        // A header that no key can agree with may be called malformed or wrongly signed.
        assert!(code == expected.1 || what.starts_with("another"), "{what}: {code}");
        assert!(answer.header("www-authenticate").contains("error=\"invalid_token\""), "{what}");
        assert!(!gantry.log().contains(&token), "{what}: no token in the log");
    }
    assert_eq!(call(&gantry, &good).await.status, 200);
}

#[tokio::test]
async fn keys_rotate_under_load_without_a_single_failure() {
    let gantry = Arc::new(Gantry::start().await);
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicUsize::new(0));
    let mut workers = Vec::new();
    for _ in 0..4 {
        let (gantry, stop, done) = (Arc::clone(&gantry), Arc::clone(&stop), Arc::clone(&done));
        workers.push(tokio::spawn(async move {
            let old = gantry.mint(json!({})).await;
            while !stop.load(Ordering::Relaxed) {
                // One token from the start, one that is always fresh.
                let fresh = gantry.mint(json!({})).await;
                for token in [&old, &fresh] {
                    let answer = call(&gantry, token).await;
                    assert_eq!(answer.status, 200, "{}", answer.text);
                    done.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
    }
    let mut names = std::collections::BTreeSet::new();
    for round in 1..=5 {
        let start = Instant::now();
        while done.load(Ordering::Relaxed) < round * 20 {
            assert!(start.elapsed() < PATIENCE && workers.iter().all(|worker| !worker.is_finished()), "calls go on");
            tokio::task::yield_now().await;
        }
        let answer = gantry.post("/v1/keys/rotate", json!({})).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        names.insert(answer.body["kid"].as_str().unwrap().to_owned());
    }
    stop.store(true, Ordering::Relaxed);
    for worker in workers {
        worker.await.unwrap();
    }
    assert_eq!(names.len(), 5);
    let keys = gantry.get("/.well-known/jwks.json").await;
    assert_eq!(keys.body["keys"].as_array().unwrap().len(), 6, "{}", keys.text);
}

#[tokio::test]
async fn tokens_of_former_keys_are_good_after_a_restart() {
    let home = tempfile::TempDir::new().unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).run().await;
    let old = gantry.mint(json!({})).await;
    gantry.cli(&["keys", "rotate"]).ok();
    let new = gantry.mint(json!({})).await;
    assert!(gantry.stop().success());
    let gantry = Start::new().data(&data).run().await;
    for token in [&old, &new] {
        assert_eq!(call(&gantry, token).await.status, 200);
    }
    let again = gantry.mint(json!({})).await;
    let kid = |token: &str| policy_kid(token);
    assert_eq!(kid(&again), kid(&new));
    assert_ne!(kid(&again), kid(&old));
}

fn policy_kid(token: &str) -> String {
    let header: Value =
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(token.split('.').next().unwrap()).unwrap()).unwrap();
    header["kid"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_revoked_token_is_refused_within_a_second() {
    let gantry = Gantry::start().await;
    let (one, other) = (gantry.mint(json!({})).await, gantry.mint(json!({ "sub": "did:example:other" })).await);
    for token in [&one, &other] {
        assert_eq!(call(&gantry, token).await.status, 200);
    }
    let answer = gantry.post("/v1/tokens/revoke", json!({ "jti": claims(&one)["jti"] })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let start = Instant::now();
    assert_eq!(call(&gantry, &one).await.refusal(), (401, "E3201"));
    assert!(start.elapsed() < Duration::from_secs(1), "the very next call is refused");
    assert_eq!(call(&gantry, &other).await.status, 200);
    let by_cli = gantry.cli(&["token", "revoke", "--sub", "did:example:other", "--tenant", "acme"]);
    assert_eq!(by_cli.code(), 0, "{}", by_cli.err());
    assert_eq!(call(&gantry, &other).await.refusal(), (401, "E3201"));
}

// -------------------------------------------------------------------------------------------------------- delegation

async fn exchange(gantry: &Gantry, parameters: &[(&str, &str)]) -> Answer {
    let form = parameters.iter().map(|(name, value)| {
        let value: String = value.bytes().map(|b| format!("%{b:02X}")).collect();
        format!("{name}={value}")
    });
    let body = form.collect::<Vec<_>>().join("&");
    let request = crate::support::client().post(format!("{}/oauth/token", gantry.url));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(body);
    Answer::of(request.send().await.unwrap()).await
}

const GRANT: (&str, &str) = ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
const JWT: (&str, &str) = ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt");

#[tokio::test]
async fn a_token_is_exchanged_for_a_narrower_one_and_for_nothing_wider() {
    let gantry = Gantry::start().await;
    let ann = gantry
        .mint(json!({ "sub": "did:example:ann", "roles": [], "scopes": ["filesystem:read:/data"], "tools": [{ "tool_id": "calculator", "version_range": "^1" }] }))
        .await;
    gantry.mint(json!({ "sub": "did:example:bot" })).await;
    let narrow =
        [GRANT, JWT, ("subject_token", &*ann), ("sub", "did:example:bot"), ("scope", "filesystem:read:/data/in")];
    let answer = exchange(&gantry, &narrow).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.header("cache-control"), "no-store");
    assert_eq!(answer.body["token_type"], "Bearer");
    assert_eq!(answer.body["issued_token_type"], "urn:ietf:params:oauth:token-type:jwt");
    assert_eq!(answer.body["scope"], "filesystem:read:/data/in");
    let child = answer.body["access_token"].as_str().unwrap();
    assert_eq!(call(&gantry, child).await.status, 200);
    let said = claims(child);
    assert_eq!((&said["sub"], &said["user_did"]), (&json!("did:example:bot"), &json!("did:example:ann")));
    assert_eq!(said["act"]["sub"], "did:example:ann");
    assert!(said["exp"].as_i64() <= claims(&ann)["exp"].as_i64());
    for (what, more, status, error) in [
        ("a wider scope", ("scope", "filesystem:read:/"), 403, "invalid_scope"),
        ("a sibling path", ("scope", "filesystem:read:/database"), 403, "invalid_scope"),
        ("a path that climbs", ("scope", "filesystem:read:/data/../etc"), 400, "invalid_scope"),
        ("another tool", ("tools", r#"[{"tool_id":"*"}]"#), 403, "invalid_scope"),
        ("another version", ("tools", r#"[{"tool_id":"calculator","version_range":">=1"}]"#), 403, "invalid_scope"),
        ("a longer life", ("ttl_seconds", "100000"), 403, "invalid_scope"),
        ("a role", ("roles", "admin"), 403, "invalid_scope"),
        ("a stranger", ("sub", "did:example:nobody"), 404, "invalid_target"),
    ] {
        let answer = exchange(&gantry, &[GRANT, JWT, ("subject_token", &*ann), more]).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text);
        let _kind = error;
        assert!(
            answer.body["error"].is_string() && answer.body["error_description"].is_string(),
            "{what}: {}",
            answer.text
        );
        assert!(answer.body.get("access_token").is_none());
    }
    for (what, form) in [
        ("no grant type", vec![JWT, ("subject_token", &*ann)]),
        ("another grant", vec![("grant_type", "client_credentials"), JWT, ("subject_token", &*ann)]),
        ("no token", vec![GRANT, JWT]),
        ("a token that is none", vec![GRANT, JWT, ("subject_token", "nonsense")]),
        ("twice", vec![GRANT, JWT, ("subject_token", &*ann), ("subject_token", &*ann)]),
        ("an actor token", vec![GRANT, JWT, ("subject_token", &*ann), ("actor_token", "x")]),
    ] {
        let answer = exchange(&gantry, &form).await;
        assert!((400..=401).contains(&answer.status), "{what}: {}", answer.text);
        assert!(answer.body["error"].is_string(), "{what}: {}", answer.text);
    }
    // The parent's revocation ends the child.
    gantry.post("/v1/tokens/revoke", json!({ "jti": claims(&ann)["jti"] })).await;
    assert_eq!(call(&gantry, child).await.refusal(), (401, "E3201"));
}

#[tokio::test]
async fn the_command_line_narrows_a_token_and_shows_its_chain() {
    let gantry = Gantry::start().await;
    let ann = gantry.mint(json!({ "sub": "did:example:ann" })).await;
    let ran = run(command(&gantry.data)
        .args(["--json", "token", "delegate", "--tool", "calculator", "--ttl", "1m", "--budget-calls", "1"])
        .env("GANTRY_TOKEN", &ann));
    let child = ran.ok().json()["access_token"].as_str().unwrap().to_owned();
    assert_eq!(call(&gantry, &child).await.status, 200);
    assert_eq!(call(&gantry, &child).await.refusal(), (402, "E3211"));
    let shown = gantry.cli(&["--json", "token", "inspect", &child]).ok().json();
    assert!(shown.to_string().contains("did:example:ann"), "{shown}");
}

// ------------------------------------------------------------------------------------------------- policies and engines

const FORBID_13: &str = r#"@id("everybody") permit (principal, action, resource);
@id("unlucky") forbid (principal, action, resource == Tool::"calculator")
when { context.arguments.text.hasTag("expression") && context.arguments.text.getTag("expression") like "*13*" };"#;

async fn unlucky(gantry: &Gantry, token: &str) -> Answer {
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "6+13" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

#[tokio::test]
async fn new_policies_are_in_force_at_the_next_call_and_broken_ones_never() {
    let gantry = Gantry::start().await;
    let agent = gantry.mint(json!({})).await;
    assert_eq!(unlucky(&gantry, &agent).await.status, 200);
    let put = async |text: &str| {
        let body = json!({ "policies": text });
        gantry.request(Method::PUT, "/v1/policies", Some(&gantry.token), Some(body)).await
    };
    assert_eq!(put(FORBID_13).await.status, 200);
    let refused = unlucky(&gantry, &agent).await;
    assert_eq!(refused.refusal(), (403, "E3206"));
    assert_eq!(refused.body["error"]["details"]["policies"], json!(["unlucky"]), "{}", refused.text);
    for broken in ["permit (principal", "permit (principal, action, resource) when { principal.shoe_size > 40 };"] {
        let answer = put(broken).await;
        assert_eq!(answer.refusal(), (400, "E3004"));
        assert!(answer.body["error"]["details"]["problems"].as_array().is_some_and(|list| !list.is_empty()));
    }
    assert_eq!(unlucky(&gantry, &agent).await.status, 403);
    let explained = gantry
        .request(
            Method::POST,
            "/v1/tools/explain",
            Some(&agent),
            Some(json!({ "tool_id": "calculator", "parameters": { "expression": "13" } })),
        )
        .await;
    assert_eq!((explained.status, &explained.body["allowed"]), (200, &json!(false)), "{}", explained.text);
    assert_eq!(put("permit (principal, action, resource);").await.status, 200);
    assert_eq!(unlucky(&gantry, &agent).await.status, 200);
    let shown = gantry.get("/v1/policies").await;
    assert_eq!(shown.body["version"], 2, "{}", shown.text);
    assert_eq!(shown.body["history"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn policies_in_a_file_are_watched_and_a_broken_file_changes_nothing() {
    let home = tempfile::TempDir::new().unwrap();
    let file = home.path().join("rules.cedar");
    std::fs::write(&file, FORBID_13).unwrap();
    let gantry = Start::new().env("GANTRY_POLICY__FILE", file.to_str().unwrap()).run().await;
    let agent = gantry.mint(json!({})).await;
    assert_eq!(unlucky(&gantry, &agent).await.status, 403);
    std::fs::write(&file, "permit (principal, action").unwrap();
    crate::support::wait_for("a word about the broken file", || gantry.log().contains("rules.cedar").then_some(()));
    assert_eq!(unlucky(&gantry, &agent).await.status, 403);
    std::fs::write(&file, "permit (principal, action, resource);").unwrap();
    let start = Instant::now();
    while unlucky(&gantry, &agent).await.status != 200 {
        assert!(start.elapsed() < PATIENCE, "the new file never came into force: {}", gantry.log());
    }
}

#[tokio::test]
async fn a_file_without_a_policy_is_applied_only_if_that_is_said() {
    let gantry = Gantry::start().await;
    let agent = gantry.mint(json!({})).await;
    let home = tempfile::TempDir::new().unwrap();
    let file = home.path().join("rules.cedar");
    std::fs::write(&file, "// Nothing yet.\n").unwrap();
    let file = file.to_str().unwrap();
    let ran = gantry.cli(&["policy", "apply", file]);
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("every call is refused") && ran.err().contains("--allow-empty"), "{}", ran.err());
    assert_eq!(unlucky(&gantry, &agent).await.status, 200, "nothing was changed");
    let ran = gantry.cli(&["policy", "apply", file, "--allow-empty"]).ok();
    assert!(ran.err().contains("every call"), "{}", ran.err());
    assert_eq!(unlucky(&gantry, &agent).await.status, 403);
}

#[tokio::test]
async fn a_first_start_with_policies_that_cannot_be_used_is_refused() {
    let home = tempfile::TempDir::new().unwrap();
    let file = home.path().join("rules.cedar");
    std::fs::write(&file, "permit (principal, action").unwrap();
    let data = home.path().join("data");
    let ran = run(&mut Start::new().env("GANTRY_POLICY__FILE", file.to_str().unwrap()).command(&data));
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("rules.cedar"), "{}", ran.err());
}

#[tokio::test]
async fn an_engine_that_is_down_denies_every_call() {
    let gantry = Start::new()
        .env("GANTRY_POLICY__ENGINE", "opa")
        .env("GANTRY_POLICY__ENGINE_URL", "http://127.0.0.1:9")
        .env("GANTRY_POLICY__ENGINE_PATH", "gantry/allow")
        .run()
        .await;
    let answer = gantry.invoke("calculator", json!({ "expression": "1" })).await;
    assert_eq!(answer.refusal(), (503, "E3205"));
    assert_eq!(answer.body["error"]["retryable"], true);
}

#[tokio::test]
async fn tokens_of_a_trusted_issuer_are_accepted_by_its_key_file_within_its_roles() {
    let home = tempfile::TempDir::new().unwrap();
    let other = Gantry::start().await;
    // Another Gantry is the other issuer: its key set is published for whoever trusts it.
    let keys = other.get("/.well-known/jwks.json").await.text;
    let file = home.path().join("keys.json");
    std::fs::write(&file, keys).unwrap();
    let gantry = Start::new()
        .env("GANTRY_IDENTITY__JWKS_FILE", file.to_str().unwrap())
        .env("GANTRY_IDENTITY__TRUSTED_ISSUER", "gantry")
        .run()
        .await;
    let did = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
    let agent = other.mint(json!({ "sub": did, "tenant": "local" })).await;
    let start = Instant::now();
    while call(&gantry, &agent).await.status != 200 {
        assert!(start.elapsed() < PATIENCE, "{}", call(&gantry, &agent).await.text);
    }
    let ghost = other.mint(json!({ "sub": "did:example:ghost", "tenant": "local" })).await;
    assert_eq!(call(&gantry, &ghost).await.refusal(), (404, "E3207"));
    let admin = other.mint(json!({ "sub": did, "tenant": "local", "roles": ["admin"] })).await;
    assert_eq!(call(&gantry, &admin).await.refusal(), (401, "E3203"));
    let namesake = other.mint(json!({ "sub": "admin", "tenant": "local" })).await;
    assert_eq!(call(&gantry, &namesake).await.refusal(), (401, "E3203"), "it would own what the administrator did");
    let nowhere = other.mint(json!({ "sub": did, "tenant": "elsewhere" })).await;
    assert_eq!(call(&gantry, &nowhere).await.refusal(), (403, "E3206"));
    // Whoever leaves roles out is no person: the issuer may speak of agents only.
    let silent = other.mint(json!({ "sub": did, "tenant": "local", "roles": [] })).await;
    assert_eq!(call(&gantry, &silent).await.status, 200);
    let grant = ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
    let kind = ("subject_token_type", "urn:ietf:params:oauth:token-type:access_token");
    for (token, name) in [(&agent, "an agent"), (&silent, "nobody said what")] {
        let token = ("subject_token", token.as_str());
        let with_session = exchange(&gantry, &[grant, kind, token, ("session_id", "s1")]).await;
        assert_eq!(with_session.status, 403, "{name}: {}", with_session.text);
        let handed_on = exchange(&gantry, &[grant, kind, token, ("sub", "helper")]).await;
        assert_eq!(handed_on.status, 200, "{}", handed_on.text);
        assert_eq!(claims(handed_on.body["access_token"].as_str().unwrap())["user_did"], Value::Null, "{name}");
    }
}

#[tokio::test]
async fn another_issuers_key_rotation_is_followed_without_a_restart() {
    let other = Gantry::start().await;
    let gantry =
        Start::new().env("GANTRY_IDENTITY__JWKS_URL", format!("{}/.well-known/jwks.json", other.url)).run().await;
    let accepted = async |token: &str| {
        let start = Instant::now();
        loop {
            let answer = call(&gantry, token).await;
            if answer.status == 200 {
                return;
            }
            // Unknown keys are looked for every few seconds, not at every call.
            assert_eq!(answer.refusal(), (401, "E3202"));
            assert!(start.elapsed() < PATIENCE, "{}", answer.text);
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let before = other.mint(json!({ "sub": "agent-1", "tenant": "local" })).await;
    accepted(&before).await;
    assert_eq!(other.post("/v1/keys/rotate", json!({})).await.status, 200);
    let after = other.mint(json!({ "sub": "agent-1", "tenant": "local" })).await;
    assert_ne!(policy_kid(&before), policy_kid(&after));
    accepted(&after).await;
    assert_eq!(call(&gantry, &before).await.status, 200, "the former key is still published");
    // The issuer is gone; its keys are remembered.
    other.kill();
    assert_eq!(call(&gantry, &after).await.status, 200);
}

#[tokio::test]
async fn guessing_is_slowed_down_and_honest_callers_are_not() {
    let gantry = Start::new().env("GANTRY_IDENTITY__AUTH_FAILURES_PER_MINUTE", "20").run().await;
    let good = gantry.mint(json!({})).await;
    assert_eq!(call(&gantry, &good).await.status, 200);
    let mut tried = 0;
    let held_off = loop {
        let answer = call(&gantry, &format!("guess-{tried}")).await;
        if answer.status == 429 {
            break answer;
        }
        assert_eq!(answer.refusal(), (401, "E3203"));
        tried += 1;
        assert!(tried < 200, "guessing was never slowed down");
    };
    assert!(tried >= 20);
    assert_eq!(held_off.refusal(), (429, "E3003"));
    assert!(held_off.header("retry-after").parse::<u64>().unwrap() >= 1);
    assert_eq!(call(&gantry, &good).await.status, 200);
}

#[tokio::test]
async fn openssl_reads_the_signing_key_and_what_it_writes_is_taken() {
    let gantry = Gantry::start().await;
    let openssl = |arguments: &[&str]| {
        let made = std::process::Command::new("openssl").args(arguments).output().unwrap();
        assert!(made.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&made.stderr));
        String::from_utf8(made.stdout).unwrap()
    };
    let file = gantry.data.join("keys/signing.pem");
    let shown = openssl(&["pkey", "-in", file.to_str().unwrap(), "-noout", "-text"]);
    assert!(shown.to_uppercase().contains("ED25519"), "{shown}");
    let read = |path: &str| openssl(&["pkey", "-in", path, "-pubout"]);
    let published = gantry.get("/.well-known/jwks.json").await.body["keys"][0]["x"].as_str().unwrap().to_owned();
    let public: String = read(file.to_str().unwrap()).lines().filter(|line| !line.starts_with('-')).collect();
    let public = base64::engine::general_purpose::STANDARD.decode(public).unwrap();
    assert_eq!(URL_SAFE_NO_PAD.encode(&public[public.len() - 32..]), published);
    // A key that OpenSSL has made is a signing key.
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir_all(data.join("keys")).unwrap();
    let own = data.join("keys/signing.pem");
    std::fs::write(&own, openssl(&["genpkey", "-algorithm", "ed25519"])).unwrap();
    std::fs::set_permissions(&own, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let with_own = Start::new().data(&data).run().await;
    let token = with_own.mint(json!({})).await;
    assert_eq!(call(&with_own, &token).await.status, 200);
}
