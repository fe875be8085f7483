//! The breaker of a service behind a tool that all tenants share: what one tenant provokes is held against that tenant, and a
//! service that fails for several is left alone by everybody.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Stage, lines, token};
use crate::support::{Answer, Gantry};

/// A tool whose service fails whenever its caller wants it to (exit code 69), and that notes its runs.
const FICKLE: &str = r#"
wish=$(cat)
member() { printf %s "$wish" | sed -n "s/.*\"$1\": *\"\([^\"]*\)\".*/\1/p"; }
echo run >> "$(member note)"
[ "$(member service)" = well ] || exit 69
printf '{"done": true}'
"#;

fn fickle_tool(stage: &Stage) {
    let tool = stage.path("tools/fickle");
    std::fs::create_dir_all(&tool).unwrap();
    std::fs::write(tool.join("main.sh"), FICKLE).unwrap();
    let text = |about: &str| json!({ "type": "string", "description": about });
    let manifest = json!({
        "tool_id": "fickle", "namespace": "demo", "version": "1.0.0", "name": "Fickle",
        "description": "Fails as its caller wants it, for tests of what is shared.", "provider": "Demo",
        "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard", "external_service": "fickle",
        "circuit_breaker_config": { "failure_threshold": 5, "window_seconds": 300, "timeout_seconds": 300 },
        "retry_policy": { "max_attempts": 1 },
        "parameters": { "type": "object", "properties": { "service": text("well or not"), "note": text("a file") },
            "required": ["service", "note"] },
        "result_schema": { "type": "object" },
        "execution": { "type": "process", "command": ["sh", "main.sh"], "protocol": "simple" },
    });
    std::fs::write(tool.join("tool.json"), manifest.to_string()).unwrap();
}

async fn call(stage: &Stage, gantry: &Gantry, token: &str, service: &str) -> Answer {
    let parameters = json!({ "service": service, "note": stage.path("runs") });
    let body = json!({ "tool_id": "demo.fickle", "parameters": parameters });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

fn runs(stage: &Stage) -> usize {
    lines(&stage.path("runs")).len()
}

async fn states(gantry: &Gantry) -> Vec<(String, String)> {
    let answer = gantry.get("/v1/breakers?service=fickle").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let all = answer.body["breakers"].as_array().unwrap();
    all.iter().map(|breaker| (text(&breaker["breaker"]), text(&breaker["state"]))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_that_one_tenant_provokes_close_the_service_to_that_tenant_only() {
    let stage = Stage::new();
    fickle_tool(&stage);
    let gantry = stage.start().run().await;
    let (acme, zeta) = (token(&gantry, "acme", "ann").await, token(&gantry, "zeta", "zoe").await);
    let mut codes = Vec::new();
    for number in 0..20 {
        let agent = token(&gantry, "mallory", &format!("mallory-{number}")).await;
        codes.push(call(&stage, &gantry, &agent, "ill").await.code().to_owned());
    }
    assert_eq!(codes[..5], ["E3502"; 5]);
    assert_eq!(codes[5..], ["E3501"; 15], "the service is left alone by whoever fails");
    assert_eq!(runs(&stage), 5);
    for other in [&acme, &zeta, &gantry.token] {
        let answer = call(&stage, &gantry, other, "well").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    let all = states(&gantry).await;
    let is = |name: &str, state: &str| all.contains(&(name.to_owned(), state.to_owned()));
    assert!(is("mallory/fickle", "open") && is("acme/fickle", "closed") && is("fickle", "closed"), "{all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_fails_for_several_tenants_is_left_alone_by_all() {
    let stage = Stage::new();
    fickle_tool(&stage);
    let gantry = stage.start().run().await;
    for tenant in ["mallory", "acme", "zeta"] {
        let agent = token(&gantry, tenant, "agent").await;
        for _ in 0..2 {
            let answer = call(&stage, &gantry, &agent, "ill").await;
            assert!(["E3502", "E3501"].contains(&answer.code()), "{}", answer.text);
        }
    }
    assert_eq!(runs(&stage), 5, "five failures, of three tenants, are enough");
    let newcomer = token(&gantry, "globex", "gus").await;
    let refused = call(&stage, &gantry, &newcomer, "well").await;
    assert_eq!(refused.refusal(), (503, "E3501"), "{}", refused.text);
    assert_eq!((runs(&stage), refused.body["error"]["details"]["breaker"].as_str()), (5, Some("fickle")));
}
