//! Work for the cores: a tenant that has large things compared with large things is refused or has its turn, and the others are
//! answered meanwhile. What counts is how much would have to be done, never how long it takes.

use super::*;

/// A tool that nothing runs, for its schema alone: a thousand things to look for in one list.
fn bomb() -> Value {
    let kinds: Vec<Value> = (0..1_000).map(|kind| json!({ "contains": { "const": kind } })).collect();
    let list = json!({ "type": "array", "description": "what is looked through", "items": { "type": "integer" }, "allOf": kinds });
    json!({
        "tool_id": "bomb", "namespace": "hostile", "version": "1.0.0", "name": "Bomb",
        "description": "Looks for a thousand things in a list, for tests of what is shared.", "provider": "Demo",
        "protocol": "native", "side_effect_policy": "pure", "timeout_class": "interactive",
        "parameters": { "type": "object", "properties": { "list": list } }, "result_schema": { "type": "object" },
    })
}

/// Two ways at each of so many levels, each of which leads to the next.
fn tangle(levels: usize) -> Value {
    let next = |level: usize| json!({ "$ref": format!("#/$defs/a{}", level + 1) });
    let way = |word: &str, level: usize| {
        let mut members = serde_json::Map::new();
        members.insert("x".to_owned(), next(level));
        members.insert(format!("{word}{level}"), json!({ "const": level }));
        json!({ "properties": members })
    };
    let mut defs: serde_json::Map<String, Value> = (0..levels)
        .map(|level| (format!("a{level}"), json!({ "anyOf": [way("y", level), way("z", level)] })))
        .collect();
    defs.insert(format!("a{levels}"), json!({ "const": levels }));
    json!({ "$defs": defs, "$ref": "#/$defs/a0" })
}

/// A request beside the test.
fn ask(gantry: &Gantry, token: &str, path: &str, body: &Value) -> JoinHandle<Answer> {
    let request = reqwest::Client::new().post(format!("{}{path}", gantry.url)).bearer_auth(token);
    let request = request.header("content-type", "application/json").body(body.to_string());
    tokio::spawn(async move { Answer::of(request.send().await.unwrap()).await })
}

#[tokio::test]
async fn what_would_keep_the_cores_busy_for_long_is_refused_and_others_are_answered_meanwhile() {
    let gantry = Gantry::start().await;
    let boss = json!({ "sub": "did:example:boss", "tenant": "hostile", "roles": ["admin"] });
    let (boss, neighbour) = (gantry.mint(boss).await, token(&gantry, "acme", "ann").await);
    let registered = gantry.request(Method::POST, "/v1/tools/register", Some(&boss), Some(bomb())).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let call_with = |items: usize| json!({ "tool_id": "hostile.bomb", "parameters": { "list": vec![-1; items] } });
    let tangled = json!({ "old": tangle(12), "new": tangle(13) });
    let negotiated = json!({ "expected": tangle(12), "offered": tangle(13) });
    let hostile: Vec<_> = [
        ("/v1/tools/invoke", call_with(60_000)),
        ("/v1/tools/explain", call_with(60_000)),
        ("/v1/tools/invoke", call_with(300)),
        ("/v1/tools/compare", tangled),
        ("/v1/tools/negotiate", negotiated),
    ]
    .into_iter()
    .map(|(path, body)| ask(&gantry, &boss, path, &body))
    .collect();
    let answered = call(&gantry, &neighbour).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    let mut answers = Vec::new();
    for asked in hostile {
        answers.push(asked.await.unwrap());
    }
    let [long, explained, short, compared, negotiated] = <[Answer; 5]>::try_from(answers).unwrap_or_else(|_| panic!());
    assert_eq!(long.refusal().1, "E3301", "{}", long.text);
    assert!(long.text.contains("too large to be held against this schema"), "{}", long.text);
    assert!(explained.text.contains("too large to be held against this schema"), "{}", explained.text);
    // What takes a moment is looked at to its end, in a place of its own.
    assert_eq!(short.refusal().1, "E3301", "{}", short.text);
    assert!(!short.text.contains("too large"), "{}", short.text);
    assert_eq!((compared.status, &compared.body["verdict"]), (200, &json!("major")), "{}", compared.text);
    assert!(compared.text.contains("cannot_prove_compatible"), "{}", compared.text);
    assert_eq!(negotiated.status, 200, "{}", negotiated.text);
    assert!(negotiated.text.contains("cannot_prove_compatible"), "{}", negotiated.text);
    let metrics = gantry.get("/metrics").await.text;
    for resource in ["schema_checks", "builtin_computations", "policy_decisions"] {
        assert!(metrics.contains(&format!("gantry_places_max{{resource=\"{resource}\"}} 4")), "{resource}: {metrics}");
    }
}

#[tokio::test]
async fn policies_over_long_texts_are_decided_and_others_are_answered_meanwhile() {
    let gantry = Gantry::start().await;
    let boss = json!({ "sub": "did:example:boss", "tenant": "hostile", "roles": ["admin"] });
    let (boss, agent) = (gantry.mint(boss).await, token(&gantry, "hostile", "eve").await);
    let neighbour = token(&gantry, "acme", "ann").await;
    let pattern = "*a".repeat(30);
    let text = r#"context.arguments.text.hasTag("text") && context.arguments.text.getTag("text")"#;
    let policies = format!(
        r#"permit (principal, action, resource) when {{ {text} like "{pattern}b" || {text} like "{pattern}c" }};"#
    );
    let put = gantry.request(Method::PUT, "/v1/policies", Some(&boss), Some(json!({ "policies": policies }))).await;
    assert_eq!(put.status, 200, "{}", put.text);
    let body = json!({ "tool_id": "json_parser", "parameters": { "text": "a".repeat(900_000) } });
    let hostile: Vec<_> = (0..3).map(|_| ask(&gantry, &agent, "/v1/tools/invoke", &body)).collect();
    let answered = call(&gantry, &neighbour).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    for asked in hostile {
        let denied = asked.await.unwrap();
        assert_eq!(denied.refusal(), (403, "E3206"), "{}", denied.text);
    }
}
