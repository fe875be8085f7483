//! Who may use what, over the wire: tenants, agents, activations, policies, what can be discovered, and why a call would
//! be refused.

use serde_json::{Value, json};

use crate::client::Reply;
use crate::stage::{AGENT, Stage, manifest};

const BOT: &str = "did:web:agents.example.com:bot";
const BOT_IN_PATH: &str = "did%3Aweb%3Aagents.example.com%3Abot";

impl Stage {
    async fn put(&self, path: &str, body: Value) -> Value {
        let reply = self.admin("PUT", path, Some(body)).await;
        assert_eq!(reply.status, 200, "{path}: {}", String::from_utf8_lossy(&reply.body));
        reply.json()
    }

    async fn token_of(&self, sub: &str, tenant: &str, roles: &[&str]) -> String {
        self.mint(json!({ "sub": sub, "tenant": tenant, "roles": roles, "tools": [{ "tool_id": "*" }] })).await
    }

    /// A tool that changes something.
    async fn publish_writer(&self) {
        let effects = json!([{ "resource": "note", "op": "UPDATE", "scope": "one" }]);
        let change = json!({ "side_effect_policy": "idempotent", "side_effects": effects, "idempotency": {},
            "execution": { "type": "builtin", "handler": "echo" } });
        let reply = self.admin("POST", "/v1/tools/register", Some(manifest("write", "1.0.0", &change))).await;
        assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
    }
}

fn ids(answer: &Value) -> Vec<&str> {
    answer["tools"].as_array().unwrap().iter().map(|tool| tool["tool_id"].as_str().unwrap()).collect()
}

fn refusal(reply: &Reply) -> (u16, String) {
    (reply.status, reply.code())
}

#[tokio::test]
async fn tenants_are_added_changed_and_switched_off() {
    let stage = Stage::new().await;
    let added =
        stage.put("/v1/tenants", json!({ "tenants": [{ "tenant_id": "acme", "tools": ["demo.echo_tool"] }] })).await;
    let expected = json!({ "tenant_id": "acme", "name": "acme", "visibility": null, "tools": ["demo.echo_tool"], "enabled": true });
    assert_eq!(added["tenants"], json!([expected]));
    let agent = stage.token_of("ann", "acme", &["agent"]).await;
    let listed = async || stage.ask("GET", "/v1/tools", Some(&agent), None).await;
    assert_eq!(ids(&listed().await.json()), ["demo.echo_tool"]);
    // What is not said stays as it is; the other name is understood; what was answered can be sent back.
    stage.put("/v1/tenants", json!({ "tenants": [{ "tenant": "acme", "visibility": "disabled" }] })).await;
    assert!(ids(&listed().await.json()).is_empty());
    let all = stage.admin("GET", "/v1/tenants", None).await.json();
    assert_eq!(stage.put("/v1/tenants", all.clone()).await, all);
    stage.put("/v1/tenants", json!({ "tenants": [{ "tenant": "acme", "enabled": false }] })).await;
    assert_eq!(refusal(&listed().await), (403, "E3206".to_owned()));
}

#[tokio::test]
async fn agents_are_introduced_listed_and_forgotten() {
    let stage = Stage::new().await;
    let document = json!({ "id": BOT });
    let put =
        json!({ "agents": [{ "agent_id": BOT, "tenant": "acme", "document": document }, { "agent_id": "plain" }] });
    let put = stage.put("/v1/agents", put).await;
    assert_eq!((&put["agents"][0]["tenant"], &put["agents"][1]["tenant"]), (&json!("acme"), &json!("local")));
    let listed = stage.admin("GET", "/v1/agents?tenant=acme", None).await.json();
    let expected = json!({ "agent_id": BOT, "tenant": "acme", "document": document,
        "added_at": "2027-01-15T08:00:00.000Z", "added_by": "admin" });
    assert_eq!(listed["agents"], json!([expected]));
    let token = stage.token_of(BOT, "acme", &["agent"]).await;
    let list = async || stage.ask("GET", "/v1/tools", Some(&token), None).await;
    assert_eq!(list().await.status, 200);
    let path = format!("/v1/agents/{BOT_IN_PATH}?tenant=acme");
    let removed = stage.admin("DELETE", &path, None).await;
    assert_eq!((removed.status, removed.json()), (200, json!({ "removed": true })));
    assert_eq!(refusal(&list().await), (404, "E3207".to_owned()));
    assert_eq!(refusal(&stage.admin("DELETE", &path, None).await), (404, "E3207".to_owned()));
}

#[tokio::test]
async fn activations_decide_what_an_agent_sees_calls_and_could_have() {
    let stage = Stage::new().await;
    stage.publish_writer().await;
    let bot = stage.token_of(BOT, "acme", &["agent"]).await;
    let see = async |path: &str| stage.ask("GET", path, Some(&bot), None).await.json();
    let tools = format!("/v1/agents/{BOT_IN_PATH}/tools");
    let unavailable = format!("{tools}/unavailable");
    // Without activations a tenant other than the home has what changes nothing.
    assert_eq!(ids(&see(&tools).await), ["demo.echo_tool", "demo.fail_tool", "demo.gate_tool", "demo.panic_tool"]);
    let missing = see(&unavailable).await;
    assert_eq!(
        missing["tools"],
        json!([{ "tool_id": "demo.write_tool", "version": "1.0.0", "name": "The write tool", "categories": ["demo"],
            "description": "Does write with whatever text it is given.", "why_unavailable": "never_activated" }])
    );
    let put = json!({ "activations": [
        { "tenant": "acme", "tool_id": "demo.*", "enabled": false },
        { "tenant": "acme", "agent_id": BOT, "tool_id": "demo.write_tool", "policy_overrides": { "requires_confirmation": true } },
        { "tenant": "acme", "agent_id": "*", "tool_id": "demo.echo_tool" },
    ] });
    let put = stage.put("/v1/activations", put).await;
    assert_eq!(put["activations"][0]["agent_id"], "*");
    let listed = stage.admin("GET", "/v1/activations?tenant=acme", None).await.json();
    assert_eq!(listed["activations"].as_array().unwrap().len(), 3);
    assert_eq!(stage.put("/v1/activations", listed.clone()).await, listed);
    assert_eq!(stage.admin("GET", "/v1/activations", None).await.json(), listed);

    let enabled = see(&tools).await;
    assert_eq!(ids(&enabled), ["demo.echo_tool", "demo.write_tool"]);
    assert_eq!((&enabled["agent_id"], &enabled["tools"][1]["requires_confirmation"]), (&json!(BOT), &json!(true)));
    assert!(enabled["tools"][0]["parameter_schema"].is_object());
    assert!(
        see(&unavailable).await["tools"]
            .as_array()
            .unwrap()
            .iter()
            .all(|t| t["why_unavailable"] == "disabled_for_agent")
    );
    assert_eq!(ids(&see("/v1/tools?tier=agent").await), ["demo.echo_tool", "demo.write_tool"]);
    assert_eq!(ids(&see("/v1/tools?tier=tenant").await).len(), 5);
    for tier in ["catalog", "catalogue"] {
        let path = format!("/v1/tools?tier={tier}");
        assert_eq!(refusal(&stage.ask("GET", &path, Some(&bot), None).await), (403, "E3206".to_owned()));
        assert_eq!(ids(&stage.admin("GET", &path, None).await.json()).len(), 5);
    }
    let available = see("/v1/tenants/acme/tools").await;
    assert_eq!(ids(&available).len(), 5);
    let first = &available["tools"][0];
    assert_eq!((&first["gateway"], &first["side_effect_policy"]), (&json!("builtin"), &json!("pure")));
    let call = json!({ "tool_id": "demo.fail_tool", "parameters": { "text": "x" } });
    assert_eq!(stage.ask("POST", "/v1/tools/invoke", Some(&bot), Some(call)).await.code(), "E3101");
}

#[tokio::test]
async fn what_belongs_to_another_tenant_is_answered_like_what_does_not_exist() {
    let stage = Stage::new().await;
    let chief = stage.token_of("chief", "acme", &["admin"]).await;
    stage.token_of("spy", "globex", &["agent"]).await;
    let ask = async |method: &str, path: &str, body: Option<Value>| stage.ask(method, path, Some(&chief), body).await;
    let policies = "permit (principal, action, resource);";
    for (method, path, body) in [
        ("GET", "/v1/agents?tenant={}", Value::Null),
        ("GET", "/v1/activations?tenant={}", Value::Null),
        ("GET", "/v1/policies?tenant={}", Value::Null),
        ("GET", "/v1/policies/versions/1?tenant={}", Value::Null),
        ("DELETE", "/v1/agents/spy?tenant={}", Value::Null),
        ("GET", "/v1/tenants/{}/tools", Value::Null),
        ("PUT", "/v1/tenants", json!({ "tenants": [{ "tenant": "{}" }] })),
        ("PUT", "/v1/agents", json!({ "agents": [{ "agent_id": "x", "tenant": "{}" }] })),
        ("PUT", "/v1/activations", json!({ "activations": [{ "tenant": "{}", "tool_id": "*" }] })),
        ("PUT", "/v1/policies", json!({ "tenant": "{}", "policies": policies })),
        ("POST", "/v1/tokens/revoke", json!({ "tenant": "{}", "sub": "spy" })),
    ] {
        let mut told = Vec::new();
        for tenant in ["globex", "nowhere"] {
            let body =
                (!body.is_null()).then(|| serde_json::from_str(&body.to_string().replace("{}", tenant)).unwrap());
            let reply = ask(method, &path.replace("{}", tenant), body).await;
            let detail = reply.json()["detail"].as_str().unwrap().replace(tenant, "…");
            assert!([403, 404].contains(&reply.status), "{method} {path}: {}", reply.status);
            told.push((refusal(&reply), detail));
        }
        assert_eq!(told[0], told[1], "{method} {path}");
    }
    for agent in ["spy", "nobody"] {
        for path in [format!("/v1/agents/{agent}/tools"), format!("/v1/agents/{agent}/tools/unavailable")] {
            assert_eq!(refusal(&ask("GET", &path, None).await), (404, "E3207".to_owned()), "{path}");
        }
    }
    let mine = ask("GET", "/v1/tenants", None).await.json();
    assert_eq!((mine["tenants"].as_array().unwrap().len(), &mine["tenants"][0]["tenant_id"]), (1, &json!("acme")));
    // An agent that is not the one asked about learns no more.
    let path = "/v1/agents/chief/tools";
    assert_eq!(refusal(&stage.ask("GET", path, Some(&stage.agent), None).await), (404, "E3207".to_owned()));
    let own = stage.ask("GET", &format!("/v1/agents/{AGENT}/tools"), Some(&stage.agent), None).await;
    assert_eq!(own.status, 200);
}

#[tokio::test]
async fn policies_are_in_force_for_the_next_call_and_their_history_stays() {
    let stage = Stage::new().await;
    let none = stage.admin("GET", "/v1/policies", None).await.json();
    assert_eq!(
        none,
        json!({ "tenant": null, "policies": null, "version": null, "names": [], "usable": true, "history": [] })
    );
    let text = "@id(\"all\")\npermit (principal, action, resource);\n@id(\"no_echo\")\nforbid (principal, action, resource) \
                when { resource.tags.contains(\"echo\") };";
    let put = stage.put("/v1/policies", json!({ "policies": text })).await;
    assert_eq!(put, json!({ "version": 1, "added_at": "2027-01-15T08:00:00.000Z", "added_by": "admin" }));
    let call = json!({ "tool_id": "demo.echo_tool", "parameters": { "text": "x" } });
    let invoke = async || stage.ask("POST", "/v1/tools/invoke", Some(&stage.agent), Some(call.clone())).await;
    let explain = async || stage.ask("POST", "/v1/tools/explain", Some(&stage.agent), Some(call.clone())).await.json();
    let refused = invoke().await;
    assert_eq!(refusal(&refused), (403, "E3206".to_owned()));
    assert_eq!(refused.json()["error"]["details"]["policies"], json!(["no_echo"]));
    let why = explain().await;
    assert_eq!(
        (&why["allowed"], &why["code"], &why["policies"]),
        (&json!(false), &json!("E3206"), &json!(["no_echo"]))
    );
    assert_eq!(why["message"], refused.json()["detail"]);
    // What cannot be used changes nothing.
    let broken = stage.admin("PUT", "/v1/policies", Some(json!({ "policies": "permit (principal" }))).await;
    assert_eq!(
        (broken.status, broken.json()["error"]["details"]["problems"].as_array().unwrap().is_empty()),
        (400, false)
    );
    assert_eq!(invoke().await.status, 403);
    let open = "@id(\"masked\")\n@obligations(\"redact=text\")\npermit (principal, action, resource);";
    assert_eq!(stage.put("/v1/policies", json!({ "policies": open })).await["version"], 2);
    let allowed = explain().await;
    let decided = json!({ "allowed": allowed["allowed"], "policies": allowed["policies"], "obligations": allowed["obligations"] });
    assert_eq!(decided, json!({ "allowed": true, "policies": ["masked"], "obligations": ["redact=text"] }));
    assert_eq!(allowed["estimate"]["confidence"], "unknown");
    assert_eq!(invoke().await.status, 200);
    let shown = stage.admin("GET", "/v1/policies", None).await.json();
    assert_eq!(
        (&shown["policies"], &shown["names"], &shown["usable"]),
        (&json!(open), &json!(["masked"]), &json!(true))
    );
    let versions: Vec<_> =
        shown["history"].as_array().unwrap().iter().map(|one| one["version"].as_u64().unwrap()).collect();
    assert_eq!(versions, [2, 1]);
    let first = stage.admin("GET", "/v1/policies/versions/1", None).await.json();
    assert_eq!((&first["policies"], &first["version"], &first["tenant"]), (&json!(text), &json!(1), &Value::Null));
}

#[tokio::test]
async fn an_explanation_runs_nothing_and_spends_nothing() {
    let stage = Stage::new().await;
    let token = stage.mint(json!({ "sub": "ann", "tools": [{ "tool_id": "demo.*" }], "budget": { "calls": 1 } })).await;
    let ask = async |path: &str, tool: &str, parameters: Value| {
        let body = json!({ "tool_id": tool, "parameters": parameters });
        stage.ask("POST", path, Some(&token), Some(body)).await
    };
    let explain = async |tool: &str, parameters: Value| ask("/v1/tools/explain", tool, parameters).await.json();
    for _ in 0..3 {
        assert_eq!(explain("demo.panic_tool", json!({ "text": "x" })).await["allowed"], true);
    }
    for (tool, parameters, code) in
        [("demo.nothing", json!({}), "E3101"), ("demo.echo_tool", json!({ "text": 7, "x": {} }), "E3301")]
    {
        let why = explain(tool, parameters).await;
        assert_eq!((&why["allowed"], &why["code"], &why["policies"]), (&json!(false), &json!(code), &json!([])));
        assert!(why["resolution"].is_string());
    }
    assert_eq!(ask("/v1/tools/invoke", "demo.echo_tool", json!({ "text": "x" })).await.status, 200);
    assert_eq!(ask("/v1/tools/invoke", "demo.echo_tool", json!({ "text": "x" })).await.code(), "E3211");
    let reserved = manifest("x", "1.0.0", &json!({ "tool_id": "explain", "namespace": null }));
    assert_eq!(stage.admin("POST", "/v1/tools/register", Some(reserved)).await.code(), "E3105");
}
