//! The three shapes of policy engines: the question as it arrives, and what each answer comes to.

use std::time::Duration;

use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::SideEffectPolicy;
use contract::version::Version;
use gantry_authorities::{
    AuthorityClient, AuthorizeEngine, BearerToken, CheckPermissionEngine, EngineSettings, EngineSetupError, OpaEngine,
};
use policy::{
    Obligation, OutputSchema, PermissionScope, PolicyQuestion, PolicyUpstream, PolicyVerdict, Role, ToolFacts,
    ToolReach,
};
use ports::policy_engine::{EngineError, PolicyEngine};
use serde_json::{Value, json};

use crate::authority::{Authority, Behaviour, nobody};

#[derive(Debug, Clone, Copy, PartialEq)]
enum Shape {
    Authorize,
    CheckPermission,
    Opa,
}

const SHAPES: [Shape; 3] = [Shape::Authorize, Shape::CheckPermission, Shape::Opa];

impl Shape {
    fn engine(self, settings: &EngineSettings) -> Box<dyn PolicyEngine> {
        let out = AuthorityClient::new().unwrap();
        match self {
            Self::Authorize => Box::new(AuthorizeEngine::new(&out, settings).unwrap()),
            Self::CheckPermission => Box::new(CheckPermissionEngine::new(&out, settings).unwrap()),
            Self::Opa => Box::new(OpaEngine::new(&out, settings, "gantry/authz").unwrap()),
        }
    }

    /// An answer in this shape with further members beside the decision.
    fn answer(self, allowed: bool, further: Value) -> Value {
        let mut members = further;
        match self {
            Self::Authorize => members["decision"] = json!(if allowed { "allow" } else { "deny" }),
            Self::CheckPermission => members["allowed"] = json!(allowed),
            Self::Opa => {
                members["allow"] = json!(allowed);
                members = json!({"result": members, "decision_id": "4ca636c1"});
            }
        }
        members
    }
}

/// Everything a question borrows.
struct Facts {
    tenant: TenantId,
    agent: Subject,
    user: Subject,
    tool: ToolId,
    version: Version,
    scopes: Vec<PermissionScope>,
    required: Vec<String>,
    permissions: Vec<String>,
    hosts: Vec<String>,
    addresses: Vec<String>,
    tags: Vec<String>,
    categories: Vec<String>,
    arguments: Value,
}

impl Facts {
    fn new() -> Self {
        let required = ["filesystem:read:/tmp/workspace", "network:https://api.example.com", "credentials:aws_s3_read"];
        Self {
            tenant: "acme".parse().unwrap(),
            agent: "did:web:agents.example.com:mail".parse().unwrap(),
            user: "did:web:people.example.com:ada".parse().unwrap(),
            tool: "demo.refund".parse().unwrap(),
            version: Version::new(1, 2, 0),
            scopes: vec!["network:*".parse().unwrap()],
            required: required.map(str::to_owned).to_vec(),
            // Those, and what the network policy and the server behind the tool add.
            permissions: required.into_iter().chain(["network:https://mcp.example.com"]).map(str::to_owned).collect(),
            hosts: vec!["api.example.com".into(), "mcp.example.com".into()],
            addresses: vec!["https://mcp.example.com/mcp".into()],
            tags: vec!["money".into()],
            categories: vec!["finance".into()],
            arguments: json!({"amount": 12.5, "to": "ada@example.com"}),
        }
    }

    fn question(&self) -> PolicyQuestion<'_> {
        PolicyQuestion {
            tenant: &self.tenant,
            agent: &self.agent,
            user: Some(&self.user),
            session: Some("s-1"),
            roles: &[Role::Agent],
            scopes: &self.scopes,
            tool: ToolFacts {
                aliases: &[],
                id: &self.tool,
                version: &self.version,
                tags: &self.tags,
                categories: &self.categories,
                effects: SideEffectPolicy::Irreversible,
                required_permissions: &self.required,
                provider: "acme",
                reach: ToolReach {
                    permissions: &self.permissions,
                    hosts: &self.hosts,
                    upstream: Some(PolicyUpstream {
                        server: "refunds",
                        transport: "http",
                        command: None,
                        addresses: &self.addresses,
                    }),
                },
                output_schema: OutputSchema::Declared,
            },
            arguments: &self.arguments,
            now_ms: 1_800_000_000_123,
            environment: "production",
        }
    }
}

/// With all the time there is, so that a busy machine is not mistaken for a silent engine.
fn settings(url: String) -> EngineSettings {
    EngineSettings { timeout: Duration::from_secs(10), ..EngineSettings::new(url) }
}

async fn decide(shape: Shape, behaviour: Behaviour) -> Result<PolicyVerdict, EngineError> {
    let authority = Authority::start(behaviour).await;
    shape.engine(&settings(authority.url(""))).decide(&Facts::new().question()).await
}

#[tokio::test]
async fn contract_a_is_asked_with_subject_action_resource_and_context() {
    let authority = Authority::start(Behaviour::json(&json!({"decision": "allow"}))).await;
    let engine = Shape::Authorize.engine(&settings(authority.url("")));
    engine.decide(&Facts::new().question()).await.unwrap();
    let asked = authority.asked();
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("POST", "/v1/authorize"));
    assert_eq!(asked[0].headers["content-type"], "application/json");
    assert!(!asked[0].headers.contains_key("authorization"));
    let digest = contract::canonical::digest(&Facts::new().arguments).to_string();
    assert_eq!(
        asked[0].json(),
        json!({
            "subject": "did:web:agents.example.com:mail",
            "action": "tool.invoke",
            "resource": "tool:demo.refund:1.2.0",
            "context": {
                "required_permissions": [
                    "filesystem:read:/tmp/workspace", "network:https://api.example.com", "credentials:aws_s3_read",
                ],
                "permissions": [
                    "filesystem:read:/tmp/workspace", "network:https://api.example.com", "credentials:aws_s3_read",
                    "network:https://mcp.example.com",
                ],
                "hosts": ["api.example.com", "mcp.example.com"],
                "upstream": { "server": "refunds", "transport": "http", "addresses": ["https://mcp.example.com/mcp"] },
                "output_schema": "declared",
                "timestamp": "2027-01-15T08:00:00.123Z",
                "tenant": "acme",
                "user": "did:web:people.example.com:ada",
                "session": "s-1",
                "roles": ["agent"],
                "scopes": ["network:*"],
                "environment": "production",
                "risk": "high",
                "side_effects": "irreversible",
                "arguments_digest": digest,
            },
        })
    );
}

#[tokio::test]
async fn contract_b_is_asked_with_what_the_tool_touches_and_the_same_context() {
    let authority = Authority::start(Behaviour::json(&json!({"allowed": true, "reason": "policy_xyz"}))).await;
    let engine = Shape::CheckPermission.engine(&settings(authority.url("/abac/")));
    let verdict = engine.decide(&Facts::new().question()).await.unwrap();
    assert_eq!((verdict.allowed, verdict.reason.as_str()), (true, "policy_xyz"));
    let asked = authority.asked();
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("POST", "/abac/api/v1/abac/check-permission"));
    let digest = contract::canonical::digest(&Facts::new().arguments).to_string();
    assert_eq!(
        asked[0].json(),
        json!({
            "agent_id": "did:web:agents.example.com:mail",
            "resource_type": "tool",
            "resource_id": "demo.refund",
            "action": "execute",
            "context": {
                "filesystem_paths": ["/tmp/workspace"],
                "network_endpoints": ["https://api.example.com", "https://mcp.example.com"],
                "credentials": ["aws_s3_read"],
                "version": "1.2.0",
                "required_permissions": [
                    "filesystem:read:/tmp/workspace", "network:https://api.example.com", "credentials:aws_s3_read",
                ],
                "permissions": [
                    "filesystem:read:/tmp/workspace", "network:https://api.example.com", "credentials:aws_s3_read",
                    "network:https://mcp.example.com",
                ],
                "hosts": ["api.example.com", "mcp.example.com"],
                "upstream": { "server": "refunds", "transport": "http", "addresses": ["https://mcp.example.com/mcp"] },
                "output_schema": "declared",
                "timestamp": "2027-01-15T08:00:00.123Z",
                "tenant": "acme",
                "user": "did:web:people.example.com:ada",
                "session": "s-1",
                "roles": ["agent"],
                "scopes": ["network:*"],
                "environment": "production",
                "risk": "high",
                "side_effects": "irreversible",
                "arguments_digest": digest,
            },
        })
    );
}

#[tokio::test]
async fn opa_is_asked_with_the_whole_question() {
    let authority = Authority::start(Behaviour::json(&json!({"result": true}))).await;
    let engine = Shape::Opa.engine(&settings(authority.url("")));
    let facts = Facts::new();
    engine.decide(&facts.question()).await.unwrap();
    let nameless = PolicyQuestion { user: None, session: None, ..facts.question() };
    engine.decide(&nameless).await.unwrap();
    let asked = authority.asked();
    assert_eq!((asked[0].method.as_str(), asked[0].path.as_str()), ("POST", "/v1/data/gantry/authz"));
    let mut expected = json!({
        "input": {
            "action": "tool.invoke",
            "tenant": "acme",
            "agent": "did:web:agents.example.com:mail",
            "user": "did:web:people.example.com:ada",
            "session": "s-1",
            "roles": ["agent"],
            "scopes": ["network:*"],
            "tool": {
                "id": "demo.refund",
                "version": "1.2.0",
                "tags": ["money"],
                "categories": ["finance"],
                "side_effects": "irreversible",
                "required_permissions": [
                    "filesystem:read:/tmp/workspace", "network:https://api.example.com", "credentials:aws_s3_read",
                ],
                "provider": "acme",
                "permissions": [
                    "filesystem:read:/tmp/workspace", "network:https://api.example.com", "credentials:aws_s3_read",
                    "network:https://mcp.example.com",
                ],
                "hosts": ["api.example.com", "mcp.example.com"],
                "upstream": { "server": "refunds", "transport": "http", "addresses": ["https://mcp.example.com/mcp"] },
                "output_schema": "declared",
            },
            "arguments": {"amount": 12.5, "to": "ada@example.com"},
            "timestamp": "2027-01-15T08:00:00.123Z",
            "environment": "production",
            "risk": "high",
        },
    });
    assert_eq!(asked[0].json(), expected);
    for absent in ["user", "session"] {
        expected["input"].as_object_mut().unwrap().remove(absent);
    }
    assert_eq!(asked[1].json(), expected);
}

#[tokio::test]
async fn each_shape_allows_denies_and_obliges() {
    for shape in SHAPES {
        let answer = shape.answer(true, json!({"reason": "office hours"}));
        let allowed = decide(shape, Behaviour::json(&answer)).await.unwrap();
        assert_eq!(
            allowed,
            PolicyVerdict { allowed: true, determining: vec![], obligations: vec![], reason: "office hours".into() }
        );
        let answer = shape.answer(false, json!({"reason": "too late\n"}));
        let denied = decide(shape, Behaviour::json(&answer)).await.unwrap();
        assert_eq!(
            denied,
            PolicyVerdict { allowed: false, determining: vec![], obligations: vec![], reason: "too late".into() }
        );
        let obligations = json!({"obligations": ["require_approval", {"type": "redact", "value": "email"}]});
        let obliged = decide(shape, Behaviour::json(&shape.answer(true, obligations))).await.unwrap();
        assert!(obliged.allowed);
        assert_eq!(obliged.obligations, [Obligation::Redact("email".into()), Obligation::RequireApproval]);
        let unknown = json!({"obligations": ["redact=email", "notify=security"]});
        let refused = decide(shape, Behaviour::json(&shape.answer(true, unknown))).await.unwrap();
        assert!(!refused.allowed && refused.obligations.is_empty());
        assert_eq!(refused.reason, "the policy engine demands the unknown obligation `notify=security`");
    }
}

#[tokio::test]
async fn other_words_than_allow_are_denials_of_contract_a() {
    for word in ["deny", "Allow", "ALLOW", "allow ", "allowed", "permit", "not_applicable", ""] {
        let verdict = decide(Shape::Authorize, Behaviour::json(&json!({"decision": word}))).await.unwrap();
        assert!(!verdict.allowed, "{word}");
    }
}

#[tokio::test]
async fn what_is_undefined_in_opa_is_denied_explicitly() {
    for (answer, allowed) in [
        (json!({}), false),
        (json!({"decision_id": "x"}), false),
        (json!({"result": {}}), false),
        (json!({"result": {"reason": "no rule"}}), false),
        (json!({"result": false}), false),
        (json!({"result": true}), true),
        (json!({"result": {"allow": true}}), true),
    ] {
        let verdict = decide(Shape::Opa, Behaviour::json(&answer)).await.unwrap();
        assert_eq!(verdict.allowed, allowed, "{answer}");
    }
}

#[tokio::test]
async fn an_answer_that_is_no_decision_never_allows() {
    use Shape::{Authorize, CheckPermission, Opa};
    for (shape, answer) in [
        (Authorize, r"{}"),
        (Authorize, r#"{"decision": true}"#),
        (Authorize, r#"{"decision": null}"#),
        (Authorize, r#"{"decision": ["allow"]}"#),
        (Authorize, r#"{"allowed": true}"#),
        (Authorize, r#"{"decision": "deny", "decision": "allow"}"#),
        (Authorize, r#"{"decision": "allow", "reason": 5}"#),
        (Authorize, r#"{"decision": "allow", "obligations": "redact=email"}"#),
        (Authorize, r#"{"decision": "allow", "obligations": [1]}"#),
        (CheckPermission, r"{}"),
        (CheckPermission, r#"{"allowed": "true"}"#),
        (CheckPermission, r#"{"allowed": 1}"#),
        (CheckPermission, r#"{"allowed": null}"#),
        (CheckPermission, r#"{"Allowed": true}"#),
        (CheckPermission, r#"{"allowed": false, "allowed": true}"#),
        (CheckPermission, r#"{"allowed": true, "reason": {}}"#),
        (Opa, r#"{"result": null}"#),
        (Opa, r#"{"result": "true"}"#),
        (Opa, r#"{"result": 1}"#),
        (Opa, r#"{"result": [true]}"#),
        (Opa, r#"{"result": {"allow": "true"}}"#),
        (Opa, r#"{"result": {"allow": null}}"#),
        (Opa, r#"{"result": {"allow": false, "allow": true}}"#),
        (Opa, r#"{"result": false, "result": true}"#),
        (Opa, r#"{"result": {"allow": true, "obligations": {}}}"#),
    ] {
        let decided = decide(shape, Behaviour::text(answer)).await;
        assert!(decided.is_err(), "{shape:?} {answer}: {decided:?}");
    }
    for shape in SHAPES {
        let fine = shape.answer(true, json!({})).to_string();
        for broken in ["", "true", "\"allow\"", "[]", "<html>", "{", &format!("{fine}{fine}"), &format!("{fine},")] {
            let decided = decide(shape, Behaviour::text(broken)).await;
            assert!(decided.is_err(), "{shape:?} {broken}: {decided:?}");
        }
        let mut not_utf8 = fine.clone().into_bytes();
        not_utf8.insert(2, 0xff);
        assert!(decide(shape, Behaviour::Answer(200, not_utf8)).await.is_err());
    }
}

#[tokio::test]
async fn a_faulty_server_never_allows() {
    for shape in SHAPES {
        let fine = shape.answer(true, json!({})).to_string();
        for status in [201, 202, 400, 401, 403, 404, 500, 503] {
            let error = decide(shape, Behaviour::Answer(status, fine.clone().into_bytes())).await.unwrap_err();
            assert!(error.to_string().ends_with(&format!("the answer has status {status}")), "{error}");
        }
        let huge = format!("{fine}{}", " ".repeat(64 << 10));
        let error = decide(shape, Behaviour::text(&huge)).await.unwrap_err().to_string();
        assert_eq!(error, "the policy engine gave no decision: the answer is longer than 65536 bytes");

        let elsewhere = Authority::start(Behaviour::text(&fine)).await;
        let error = decide(shape, Behaviour::Redirect(elsewhere.url("/"))).await.unwrap_err().to_string();
        assert_eq!(
            (error.as_str(), elsewhere.count()),
            ("the policy engine gave no decision: the answer has status 307", 0)
        );

        let (_kept, address) = nobody();
        let down = shape.engine(&settings(format!("http://{address}")));
        let error = down.decide(&Facts::new().question()).await.unwrap_err().to_string();
        assert_eq!(error, "the policy engine gave no decision: no connection could be made");

        let silent = Authority::start(Behaviour::Silence).await;
        let settings = EngineSettings { timeout: Duration::from_millis(60), ..settings(silent.url("")) };
        let error = shape.engine(&settings).decide(&Facts::new().question()).await.unwrap_err().to_string();
        assert_eq!(error, "the policy engine gave no decision: no answer within 60 ms");
    }
}

#[tokio::test]
async fn the_token_goes_to_the_engine_and_into_no_error() {
    for shape in SHAPES {
        let authority = Authority::start(Behaviour::Answer(401, b"Bearer s3cret is wrong".to_vec())).await;
        let token = Some(BearerToken::new("s3cret").unwrap());
        let engine = shape.engine(&EngineSettings { token, ..settings(authority.url("")) });
        let error = engine.decide(&Facts::new().question()).await.unwrap_err();
        assert_eq!(authority.asked()[0].headers["authorization"], "Bearer s3cret");
        assert!(!format!("{error} {error:?} {engine:?}").contains("s3cret"));
    }
}

#[test]
fn a_path_that_is_no_rule_is_refused() {
    let out = AuthorityClient::new().unwrap();
    let settings = EngineSettings::new("http://127.0.0.1:8181");
    for fine in ["gantry/authz", "/gantry/authz/", "allow"] {
        assert!(OpaEngine::new(&out, &settings, fine).is_ok(), "{fine}");
    }
    for bad in ["", "/", "a//b", "../v1/policies", "a/..", "a?b", "a b", "a%2Fb", "a.b"] {
        let error = OpaEngine::new(&out, &settings, bad).map(drop).unwrap_err();
        assert_eq!(error, EngineSetupError::Path { given: bad.to_owned() });
    }
}
