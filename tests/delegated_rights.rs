//! A token that was handed on carries what held for every hand it passed: what is masked, what needs approval, what an engine
//! outside says, and the limits of its root. A name that an agent gives itself in a token exchange sheds none of it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, Start, manifest};

/// The same token under another name.
pub(crate) async fn renamed(gantry: &Gantry, token: &str, name: &str) -> String {
    let form = format!(
        "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Atoken-exchange&subject_token_type=urn%3Aietf%3Aparams%3Aoauth%3Atoken-type%3Ajwt&subject_token={token}&sub={name}"
    );
    let request = crate::support::client().post(format!("{}/oauth/token", gantry.url));
    let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
    let answer = Answer::of(request.send().await.unwrap()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["access_token"].as_str().unwrap().to_owned()
}

/// The token of `mallory`, then the same twice handed on under names of its own making.
async fn hands(gantry: &Gantry) -> [String; 3] {
    let mallory = gantry.mint(json!({ "sub": "mallory" })).await;
    let fresh = renamed(gantry, &mallory, "fresh-name").await;
    let fresher = renamed(gantry, &fresh, "fresher-name").await;
    [mallory, fresh, fresher]
}

async fn put_policies(gantry: &Gantry, text: &str) {
    let body = json!({ "policies": text });
    let answer = gantry.request(Method::PUT, "/v1/policies", Some(&gantry.token), Some(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

async fn call(gantry: &Gantry, token: &str, tool: &str) -> Answer {
    let body = json!({ "tool_id": tool, "parameters": { "expression": "6*7" } });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

async fn explain(gantry: &Gantry, token: &str, tool: &str) -> Answer {
    let body = json!({ "tool_id": tool, "parameters": { "expression": "6*7" } });
    let answer = gantry.request(Method::POST, "/v1/tools/explain", Some(token), Some(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer
}

const FREE_BUT_FOR_MALLORY: &str =
    r#"@id("others") permit (principal, action, resource) unless { principal == Agent::"mallory" };"#;

#[tokio::test]
async fn what_is_masked_for_an_agent_is_masked_under_every_name_it_gives_itself() {
    let gantry = Gantry::start().await;
    let tokens = hands(&gantry).await;
    let clear = call(&gantry, &tokens[0], "calculator").await;
    assert_eq!((clear.status, &clear.body["result"]["result"]), (200, &json!(42)), "{}", clear.text);
    let masked =
        r#"@id("masked") @obligations("redact=result") permit (principal == Agent::"mallory", action, resource);"#;
    put_policies(&gantry, &format!("{FREE_BUT_FOR_MALLORY}\n{masked}")).await;
    for token in &tokens {
        let answer = call(&gantry, token, "calculator").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        assert!(!answer.body["result"].to_string().contains("42"), "{}", answer.text);
        let explained = explain(&gantry, token, "calculator").await;
        assert_eq!(explained.body["obligations"], json!(["redact=result"]), "{}", explained.text);
    }
    // Somebody whom nothing is demanded of sees the result.
    let ann = gantry.mint(json!({ "sub": "ann" })).await;
    assert_eq!(call(&gantry, &ann, "calculator").await.body["result"]["result"], 42);
}

#[tokio::test]
async fn what_needs_approval_for_an_agent_needs_it_under_every_name_it_gives_itself() {
    let gantry = Gantry::start().await;
    let tokens = hands(&gantry).await;
    let approved =
        r#"@id("asked") @obligations("require_approval") permit (principal == Agent::"mallory", action, resource);"#;
    put_policies(&gantry, &format!("{FREE_BUT_FOR_MALLORY}\n{approved}")).await;
    for token in &tokens {
        assert_eq!(call(&gantry, token, "calculator").await.code(), "E3208");
    }
}

#[tokio::test]
async fn the_strictest_override_of_all_hands_is_shown_and_holds() {
    let gantry = Gantry::start().await;
    let tokens = hands(&gantry).await;
    let activations = json!({ "activations": [{ "tenant": "acme", "agent_id": "mallory", "tool_id": "calculator",
        "enabled": true, "policy_overrides": { "requires_confirmation": true } }] });
    let put = gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(activations)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    for (token, name) in tokens.iter().zip(["mallory", "fresh-name", "fresher-name"]) {
        assert_eq!(call(&gantry, token, "calculator").await.code(), "E3210");
        let path = format!("/v1/agents/{name}/tools");
        let list = gantry.request(Method::GET, &path, Some(token), None).await;
        let tools = list.body["tools"].as_array().unwrap_or_else(|| panic!("{}", list.text));
        let calculator = tools.iter().find(|tool| tool["name"] == "calculator" || tool["tool_id"] == "calculator");
        assert_eq!(calculator.unwrap()["requires_confirmation"], true, "{name}: {}", list.text);
    }
}

#[tokio::test]
async fn names_of_an_agents_own_making_share_its_limit_and_take_nothing_from_others() {
    let gantry = Gantry::start().await;
    let limited = manifest(json!({ "tool_id": "limited_sum", "rate_limit": { "max_per_day": 3 } }));
    assert_eq!(gantry.register(limited).await.status, 201);
    let tool = "demo.limited_sum";
    let victim = gantry.mint(json!({ "sub": "victim" })).await;
    let tokens = hands(&gantry).await;
    for token in &tokens {
        assert_eq!(call(&gantry, token, tool).await.status, 200);
    }
    let borrowed = renamed(&gantry, &tokens[0], "victim").await;
    for token in tokens.iter().chain([&borrowed]) {
        let answer = call(&gantry, token, tool).await;
        assert_eq!(answer.refusal(), (429, "E3003"), "{}", answer.text);
    }
    for _ in 0..3 {
        assert_eq!(
            call(&gantry, &victim, tool).await.status,
            200,
            "nobody spends what belongs to another of that name"
        );
    }
}

#[tokio::test]
async fn what_an_agent_uses_under_a_name_that_it_took_is_counted_as_its_own() {
    let gantry = Gantry::start().await;
    let loud = gantry.mint(json!({ "sub": "loud" })).await;
    let borrowed = renamed(&gantry, &loud, "neighbour").await;
    for token in [&borrowed, &loud] {
        assert_eq!(call(&gantry, token, "calculator").await.status, 200);
    }
    let used = gantry.get("/v1/usage?by=agent&tenant=acme").await;
    let calls = |agent: &str| {
        let rows = used.body["usage"].as_array().unwrap_or_else(|| panic!("{}", used.text));
        rows.iter().filter(|row| row["agent"] == agent).map(|row| row["calls"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!((calls("loud"), calls("neighbour")), (2, 0), "{}", used.text);
}

#[tokio::test]
async fn explaining_a_call_counts_nothing_and_says_when_a_limit_is_used_up() {
    let gantry = Gantry::start().await;
    let limited = manifest(json!({ "tool_id": "limited_sum", "rate_limit": { "max_per_day": 1 } }));
    assert_eq!(gantry.register(limited).await.status, 201);
    let tool = "demo.limited_sum";
    let agent = gantry.mint(json!({ "budget": { "calls": 1 } })).await;
    for _ in 0..5 {
        assert_eq!(explain(&gantry, &agent, tool).await.body["allowed"], true);
    }
    assert_eq!(call(&gantry, &agent, tool).await.status, 200, "nothing was spent by asking");
    let used_up = explain(&gantry, &agent, tool).await;
    assert_eq!((&used_up.body["allowed"], &used_up.body["code"]), (&json!(false), &json!("E3003")), "{}", used_up.text);
    let metrics = gantry.get("/metrics").await.text;
    let refused = metrics.lines().find(|line| line.starts_with(r#"gantry_rate_limit_refusals_total{scope="user"}"#));
    assert!(refused.is_none_or(|line| line.ends_with(" 0")), "asking was counted: {refused:?}");
}

#[tokio::test]
async fn an_override_or_obligation_of_time_never_gives_a_call_more_than_it_had() {
    let gantry = Gantry::start().await;
    // With a price, an explanation says how long the call may take.
    let slow = manifest(json!({ "tool_id": "quick_sum", "timeout_class": "long_running", "timeout_default": 1,
        "cost_config": { "fixed_cost": "0.01" } }));
    let registered = gantry.register(slow).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let tool = "demo.quick_sum";
    let agent = gantry.mint(json!({ "sub": "ann" })).await;
    let allowed_ms = async || {
        let explained = explain(&gantry, &agent, tool).await;
        explained.body["estimate"]["estimated_latency_ms"].as_u64().unwrap_or_else(|| panic!("{}", explained.text))
    };
    assert_eq!(allowed_ms().await, 1_000);
    let activations = json!({ "activations": [{ "tenant": "acme", "agent_id": "ann", "tool_id": tool,
        "enabled": true, "policy_overrides": { "timeout_seconds": 15 } }] });
    let put = gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(activations)).await;
    assert_eq!(put.status, 200, "{}", put.text);
    assert_eq!(allowed_ms().await, 1_000, "an override of 15 s");
    put_policies(&gantry, r#"@obligations("timeout_seconds=20") permit (principal, action, resource);"#).await;
    assert_eq!(allowed_ms().await, 1_000, "an obligation of 20 s");
}

// ------------------------------------------------------------------------------------------------------------ engine

/// An engine like OPA that lets everybody do everything but `mallory`.
struct Engine {
    url: String,
    asked: Arc<Mutex<Vec<Value>>>,
}

impl Engine {
    fn open(answer: fn(&Value) -> Value) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let kept = Arc::clone(&kept);
                std::thread::spawn(move || {
                    let (mut bytes, mut buffer) = (Vec::new(), [0; 65_536]);
                    while let Ok(count @ 1..) = stream.read(&mut buffer) {
                        bytes.extend_from_slice(&buffer[..count]);
                        let Some(body) = whole(&bytes) else { continue };
                        let input = serde_json::from_str::<Value>(&body).unwrap()["input"].take();
                        let text = json!({ "result": answer(&input) }).to_string();
                        kept.lock().unwrap().push(input);
                        let head = format!(
                            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                            text.len()
                        );
                        let _ = stream.write_all((head + &text).as_bytes());
                        return;
                    }
                });
            }
        });
        Self { url, asked }
    }

    async fn gantry(&self) -> Gantry {
        Start::new()
            .env("GANTRY_POLICY__ENGINE", "opa")
            .env("GANTRY_POLICY__ENGINE_URL", &*self.url)
            .env("GANTRY_POLICY__ENGINE_PATH", "gantry/authz")
            .env("GANTRY_POLICY__ENGINE_TIMEOUT_MS", "10000")
            .run()
            .await
    }

    /// About whom it was asked so far.
    fn agents(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().map(|input| input["agent"].as_str().unwrap().to_owned()).collect()
    }
}

/// The body, once all of it has come.
fn whole(bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8(bytes.to_vec()).ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let head = head.to_ascii_lowercase();
    let length: usize = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok())?;
    (body.len() >= length).then(|| body.to_owned())
}

#[tokio::test]
async fn an_engine_outside_is_asked_about_every_hand_and_its_obligations_hold_for_all() {
    let engine = Engine::open(|input| match input["agent"].as_str() {
        Some("mallory") => json!({ "allow": true, "obligations": ["redact=result"] }),
        _ => json!(true),
    });
    let gantry = engine.gantry().await;
    let [_, _, fresher] = hands(&gantry).await;
    let answer = call(&gantry, &fresher, "calculator").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert!(!answer.body["result"].to_string().contains("42"), "{}", answer.text);
    let mut agents = engine.agents();
    agents.sort();
    assert_eq!(agents, ["fresh-name", "fresher-name", "mallory"]);
    // What it has said is remembered.
    assert_eq!(call(&gantry, &fresher, "calculator").await.status, 200);
    assert_eq!(engine.agents().len(), 3);
}

#[tokio::test]
async fn an_engine_that_denies_one_hand_denies_the_call_and_says_whose() {
    let engine = Engine::open(|input| json!(input["agent"] != "mallory"));
    let gantry = engine.gantry().await;
    let [_, fresh, _] = hands(&gantry).await;
    let refused = call(&gantry, &fresh, "calculator").await;
    assert_eq!(refused.refusal(), (403, "E3206"), "{}", refused.text);
    assert!(refused.text.contains("`mallory`, who handed the token on"), "{}", refused.text);
    assert_eq!(refused.body["error"]["details"]["layer"], "engine");
}
