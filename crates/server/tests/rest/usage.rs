//! Use, cost, health, alerts and advice over the wire, with two tenants that must learn nothing of each other.

use serde_json::{Value, json};

use crate::stage::{Stage, manifest};

impl Stage {
    async fn shown(&self, path: &str, token: &str) -> Value {
        let reply = self.ask("GET", path, Some(token), None).await;
        assert_eq!(reply.status, 200, "{path}: {}", String::from_utf8_lossy(&reply.body));
        reply.json()
    }

    async fn call_as(&self, token: &str, tool: &str) -> u16 {
        let body = json!({ "tool_id": tool, "parameters": { "text": "abcdefgh" } });
        self.ask("POST", "/v1/tools/invoke", Some(token), Some(body)).await.status
    }

    async fn minted(&self, sub: &str, tenant: &str, role: &str) -> String {
        let tools = json!([{ "tool_id": "*" }]);
        self.mint(json!({ "sub": sub, "tenant": tenant, "roles": [role], "tools": tools, "user_did": format!("user-of-{sub}") })).await
    }

    /// A tool that has its price.
    async fn publish_priced(&self) {
        let unit = json!({ "unit": "character", "cost_per_unit": "0.0001", "input_field": "text" });
        let change = json!({ "cost_config": { "fixed_cost": "0.01", "per_unit": unit, "currency": "EUR" },
            "execution": { "type": "builtin", "handler": "echo" } });
        let reply = self.admin("POST", "/v1/tools/register", Some(manifest("priced", "1.0.0", &change))).await;
        assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
    }
}

#[tokio::test]
async fn use_and_cost_are_told_to_those_they_concern() {
    let stage = Stage::new().await;
    stage.publish_priced().await;
    let (ann, eve) = (stage.minted("ann", "local", "agent").await, stage.minted("eve", "acme", "agent").await);
    for _ in 0..3 {
        assert_eq!(stage.call_as(&ann, "demo.priced_tool").await, 200);
    }
    assert_eq!(stage.call_as(&ann, "demo.fail_tool").await, 500);
    assert_eq!(stage.call_as(&eve, "demo.priced_tool").await, 200);

    let own = stage.shown("/v1/usage?by=tool,agent,user", &ann).await;
    let line = own["usage"].as_array().unwrap().iter().find(|line| line["tool_id"] == "demo.priced_tool").unwrap();
    assert_eq!((&line["calls"], &line["errors"], &line["user"]), (&json!(3), &json!(0), &json!("user-of-ann")));
    let components = json!({ "external_api": "0.0324" });
    assert_eq!(line["cost"], json!([{ "currency": "EUR", "total": "0.0324", "components": components }]));
    let failed = own["usage"].as_array().unwrap().iter().find(|line| line["tool_id"] == "demo.fail_tool").unwrap();
    assert_eq!((&failed["calls"], &failed["errors"], &failed["cost"]), (&json!(1), &json!(1), &json!([])));

    // The answer and the record say the same.
    let answer = stage
        .ask(
            "POST",
            "/v1/tools/invoke",
            Some(&ann),
            Some(json!({ "tool_id": "demo.priced_tool", "parameters": { "text": "a" } })),
        )
        .await
        .json();
    let metadata = &answer["execution_metadata"];
    assert_eq!((&metadata["cost"], &metadata["cost_currency"]), (&json!("0.0101"), &json!("EUR")));
    let recorded = || {
        stage
            .paper
            .0
            .lock()
            .unwrap()
            .iter()
            .filter_map(|record| record.cost)
            .map(|cost| cost.total().to_string())
            .collect::<Vec<_>>()
    };
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while !recorded().contains(&"0.0101".to_owned()) {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", recorded());
        tokio::task::yield_now().await;
    }

    // An agent sees itself; an administrator its tenant; that of the installation every one.
    let eves = stage.shown("/v1/usage?by=agent", &eve).await;
    assert_eq!(eves["usage"].as_array().unwrap().len(), 1);
    assert_eq!((&eves["usage"][0]["agent"], &eves["usage"][0]["calls"]), (&json!("eve"), &json!(1)));
    for path in
        ["/v1/usage?agent=ann", "/v1/usage?tenant=local", "/v1/analytics/tools", "/v1/recommendations", "/v1/alerts"]
    {
        let refused = stage.ask("GET", path, Some(&eve), None).await;
        assert_eq!((refused.status, refused.code()), (403, "E3206".to_owned()), "{path}");
    }
    let operator = stage.minted("oscar", "acme", "operator").await;
    for path in ["/v1/usage?by=agent", "/v1/usage?by=user", "/v1/analytics/tools", "/v1/recommendations", "/v1/alerts"]
    {
        let text = stage.shown(path, &operator).await.to_string();
        assert!(!text.contains("ann") && !text.contains("fail_tool"), "{path}: {text}");
        let elsewhere = format!("{path}{}tenant=local", if path.contains('?') { '&' } else { '?' });
        assert_eq!(stage.ask("GET", &elsewhere, Some(&operator), None).await.code(), "E3206");
    }
    let tools = stage.shown("/v1/analytics/tools", &operator).await;
    let line = &tools["tools"][0];
    assert_eq!((&line["tool_id"], &line["calls"], &line["agents"]), (&json!("demo.priced_tool"), &json!(1), &json!(1)));
    assert_eq!((&line["error_rate"], &line["health"]), (&json!(0.0), &json!("healthy")));
    let all = stage.admin("GET", "/v1/usage?tenant=acme&by=agent", None).await.json();
    assert_eq!(all["usage"][0]["agent"], "eve");
}

#[tokio::test]
async fn a_call_that_failed_costs_its_fixed_part_and_one_that_never_began_nothing() {
    let stage = Stage::new().await;
    let prices = json!({ "fixed_cost": "0.01", "currency": "EUR",
        "per_unit": { "unit": "character", "cost_per_unit": "0.0001", "input_field": "text" } });
    let change = json!({ "cost_config": prices, "execution": { "type": "builtin", "handler": "fail" } });
    let reply = stage.admin("POST", "/v1/tools/register", Some(manifest("sorry", "1.0.0", &change))).await;
    assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
    let ann = stage.minted("ann", "local", "agent").await;
    assert_eq!(stage.call_as(&ann, "demo.sorry_tool").await, 500);
    let wrong = json!({ "tool_id": "demo.sorry_tool", "parameters": {} });
    assert_eq!(stage.ask("POST", "/v1/tools/invoke", Some(&ann), Some(wrong)).await.status, 400);
    let used = stage.shown("/v1/usage?by=tool", &ann).await;
    let components = json!({ "external_api": "0.01" });
    assert_eq!(used["usage"][0]["cost"], json!([{ "currency": "EUR", "total": "0.01", "components": components }]));
}

#[tokio::test]
async fn what_a_tool_says_in_its_result_that_it_has_cost_stands_for_its_price() {
    let stage = Stage::new().await;
    // The handler gives its parameters back, so the caller plays the tool that reports.
    let change = json!({ "cost_config": { "fixed_cost": "5", "currency": "EUR", "cost_field": "/text" },
        "execution": { "type": "builtin", "handler": "echo" } });
    assert_eq!(stage.admin("POST", "/v1/tools/register", Some(manifest("says", "1.0.0", &change))).await.status, 201);
    for (said, cost) in [("0.125", "0.125"), ("a lot", "5")] {
        let answer = stage.invoke("demo.says_tool", json!({ "text": said })).await.json();
        let metadata = &answer["execution_metadata"];
        assert_eq!((&metadata["cost"], &metadata["cost_currency"]), (&json!(cost), &json!("EUR")), "{said}");
    }
}

#[tokio::test]
async fn what_a_call_would_cost_is_told_before_it_is_made() {
    let stage = Stage::new().await;
    stage.publish_priced().await;
    let explain = async |tool: &str| {
        let body = json!({ "tool_id": tool, "parameters": { "text": "abcdefgh" } });
        stage.admin("POST", "/v1/tools/explain", Some(body)).await.json()["estimate"].clone()
    };
    let estimate = explain("demo.priced_tool").await;
    assert_eq!((&estimate["estimated_cost"], &estimate["currency"]), (&json!("0.0108"), &json!("EUR")));
    assert_eq!(estimate["confidence"], "estimate");
    assert!(estimate["estimated_latency_ms"].as_u64().unwrap() > 0, "{estimate}");
    assert_eq!(explain("demo.echo_tool").await["confidence"], "unknown");
    assert_eq!(explain("demo.no_such_tool").await, Value::Null, "what would be refused costs nothing");
}

#[tokio::test]
async fn the_removal_of_a_version_is_told() {
    let stage = Stage::new().await;
    let subscribed = json!({ "url": "https://r.example/hook", "events": ["tool.event"] });
    assert_eq!(stage.admin("POST", "/v1/webhooks", Some(subscribed)).await.status, 201);
    assert_eq!(stage.admin("POST", "/v1/tools/demo.echo_tool/deprecate", Some(json!({}))).await.status, 200);
    assert_eq!(stage.post.queue.0.lock().unwrap().len(), 0, "only what it was subscribed to");
    assert_eq!(stage.admin("POST", "/v1/tools/demo.echo_tool/remove", Some(json!({}))).await.status, 200);
    assert_eq!(stage.post.queue.0.lock().unwrap().len(), 1);
    let sent = stage.admin("GET", "/v1/webhooks/deliveries", None).await.json();
    assert!(sent.to_string().contains("tool.event"), "{sent}");
}

#[tokio::test]
async fn tools_that_describe_themselves_alike_are_advised_to_those_who_use_one() {
    let stage = Stage::new().await;
    for (name, description) in [
        ("first", "Converts an amount of money between currencies by the daily exchange rate."),
        ("second", "Converts an amount of money between currencies by the exchange rate of a past day."),
        ("third", "Draws a picture of a mountain for a postcard."),
    ] {
        let change = json!({ "description": description, "execution": { "type": "builtin", "handler": "echo" } });
        let reply = stage.admin("POST", "/v1/tools/register", Some(manifest(name, "1.0.0", &change))).await;
        assert_eq!(reply.status, 201, "{}", String::from_utf8_lossy(&reply.body));
    }
    // Words that more than one tool in five has say nothing about any of them, so there have to be others.
    for tune in ["alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"] {
        let description = format!("Plays the tune that is called {tune}, from its beginning to its end.");
        let change = json!({ "description": description, "execution": { "type": "builtin", "handler": "echo" } });
        let tool = manifest(&format!("tune_{tune}"), "1.0.0", &change);
        assert_eq!(stage.admin("POST", "/v1/tools/register", Some(tool)).await.status, 201);
    }
    let bot = stage.minted("bot", "acme", "agent").await;
    for _ in 0..3 {
        assert_eq!(stage.call_as(&bot, "demo.first_tool").await, 200);
    }
    let advice = stage.admin("GET", "/v1/recommendations?tenant=acme", None).await.json();
    let all = advice["recommendations"].as_array().unwrap();
    let alike = all.iter().find(|one| one["tool_id"] == "demo.second_tool").unwrap_or_else(|| panic!("{advice}"));
    assert_eq!((&alike["action"], &alike["agent"]), (&json!("try"), &json!("bot")));
    assert_eq!((&alike["similar_to"], &alike["count"]), (&json!("demo.first_tool"), &json!(3)));
    assert!((40..=100).contains(&alike["similarity"].as_u64().unwrap()), "{alike}");
    assert!(!advice.to_string().contains("demo.third_tool"), "{advice}");
}

#[tokio::test]
async fn pages_and_days_can_be_asked_for() {
    let stage = Stage::new().await;
    for day in 0..5 {
        stage.step(if day == 0 { 0 } else { 86_400 });
        assert_eq!(stage.invoke("demo.echo_tool", json!({ "text": "x" })).await.status, 200);
        stage.insights.flush().await.unwrap();
    }
    let get = async |query: &str| stage.admin("GET", &format!("/v1/usage{query}"), None).await.json();
    let days = |answer: &Value| {
        answer["usage"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| line["day"].as_str().unwrap_or("-").to_owned())
            .collect::<Vec<_>>()
    };
    let all = get("?by=day").await;
    assert_eq!(days(&all), ["2027-01-15", "2027-01-16", "2027-01-17", "2027-01-18", "2027-01-19"]);
    assert_eq!(days(&get("?by=day&from=2027-01-16&to=2027-01-17").await), ["2027-01-16", "2027-01-17"]);
    let second = get("?by=day&page=2&page_size=2").await;
    assert_eq!(
        (days(&second), &second["more"]),
        (vec!["2027-01-17".to_owned(), "2027-01-18".to_owned()], &json!(true))
    );
    assert_eq!(get("?by=day&page=3&page_size=2").await["more"], json!(false));
    assert_eq!(get("?by=tool&tool=demo.fail_tool").await["usage"], json!([]));
    for bad in [
        "from=yesterday",
        "from=2027-01-18&to=2027-01-17",
        "from=2020-01-01",
        "by=colour",
        "page=0",
        "page_size=501",
        "tool=Not+A+Tool",
        "frm=2027-01-18",
    ] {
        let reply = stage.admin("GET", &format!("/v1/usage?{bad}"), None).await;
        assert_eq!((reply.status, reply.code()), (400, "E3004".to_owned()), "{bad}");
    }
}

#[tokio::test]
async fn a_tool_that_fails_is_told_of_once_and_its_counts_stay_with_its_tenant() {
    let stage = Stage::new().await;
    let subscribed = json!({ "url": "https://r.example/hook", "events": ["alert.raised", "alert.resolved"] });
    assert_eq!(stage.admin("POST", "/v1/webhooks", Some(subscribed)).await.status, 201);
    let eve = stage.minted("eve", "acme", "agent").await;
    let health = async |token: &str| stage.shown("/v1/tools/demo.fail_tool/health", token).await;
    assert_eq!(health(crate::stage::ADMIN).await["versions"], json!([]), "nobody has called it");
    for _ in 0..25 {
        assert_eq!(stage.invoke("demo.fail_tool", json!({ "text": "x" })).await.status, 500);
    }
    for _ in 0..10 {
        stage.insights.look().await;
        stage.step(15);
    }
    let mine = health(crate::stage::ADMIN).await;
    let version = &mine["versions"][0];
    assert_eq!((&version["status"], &version["score"]), (&json!("unhealthy"), &json!(0.5)));
    assert_eq!((&version["window"]["calls"], &version["window"]["error_rate"]), (&json!(25), &json!(1.0)));
    assert_eq!(version["alerts"][0]["alert"], "ToolDegraded");
    let theirs = &health(&eve).await["versions"][0];
    assert_eq!(
        (&theirs["status"], theirs.get("window")),
        (&json!("unhealthy"), None),
        "how often is not theirs to know"
    );
    let listed = stage.admin("GET", "/v1/health/tools", None).await.json();
    assert_eq!(listed["tools"][0]["tool_id"], "demo.fail_tool");
    let raised = stage.admin("GET", "/v1/alerts", None).await.json();
    assert_eq!(
        (raised["alerts"].as_array().unwrap().len(), &raised["alerts"][0]["alert"]),
        (1, &json!("ToolDegraded"))
    );
    assert_eq!(stage.post.queue.0.lock().unwrap().len(), 1, "told once");

    stage.step(1_800);
    for _ in 0..40 {
        stage.insights.look().await;
        stage.step(15);
    }
    assert_eq!(stage.admin("GET", "/v1/alerts", None).await.json()["alerts"], json!([]));
    assert_eq!(stage.post.queue.0.lock().unwrap().len(), 2, "and once when it was over");
    assert_eq!(health(crate::stage::ADMIN).await["versions"][0]["status"], "unknown");
}

#[tokio::test]
async fn what_agents_look_for_and_lack_is_advised_with_its_count() {
    let stage = Stage::new().await;
    let effects = json!([{ "resource": "note", "op": "UPDATE", "scope": "one" }]);
    let change = json!({ "side_effect_policy": "idempotent", "side_effects": effects, "idempotency": {},
        "execution": { "type": "builtin", "handler": "echo" } });
    assert_eq!(stage.admin("POST", "/v1/tools/register", Some(manifest("write", "1.0.0", &change))).await.status, 201);
    let bot = stage.minted("bot", "acme", "agent").await;
    for _ in 0..3 {
        let found = stage.shown("/v1/tools/search?q=write", &bot).await;
        assert!(!found.to_string().contains("demo.write_tool"), "{found}");
    }
    assert_eq!(stage.call_as(&bot, "demo.write_tool").await, 404);
    // Others use two tools together.
    for number in 0..3 {
        let other = stage.minted(&format!("other-{number}"), "acme", "agent").await;
        assert_eq!(stage.call_as(&other, "demo.echo_tool").await, 200);
        assert_eq!(stage.call_as(&other, "demo.fail_tool").await, 500);
    }
    assert_eq!(stage.call_as(&bot, "demo.echo_tool").await, 200);
    let advice = stage.admin("GET", "/v1/recommendations?tenant=acme", None).await.json();
    let all = advice["recommendations"].as_array().unwrap();
    let need = all.iter().find(|one| one["tool_id"] == "demo.write_tool").unwrap();
    assert_eq!((&need["action"], &need["agent"], &need["count"]), (&json!("activate"), &json!("bot"), &json!(4)));
    let with = all.iter().find(|one| one["tool_id"] == "demo.fail_tool").unwrap();
    assert_eq!((&with["action"], &with["agent"]), (&json!("try"), &json!("bot")));
    assert_eq!((&with["used_with"], &with["count"]), (&json!("demo.echo_tool"), &json!(3)));
    assert_eq!(stage.admin("GET", "/v1/recommendations", None).await.json()["recommendations"], json!([]));

    // Once it has it, nobody advises it.
    let wish = json!({ "activations": [{ "tenant": "acme", "agent_id": "bot", "tool_id": "demo.write_tool", "enabled": true }] });
    assert_eq!(stage.admin("PUT", "/v1/activations", Some(wish)).await.status, 200);
    let advice = stage.admin("GET", "/v1/recommendations?tenant=acme", None).await.json();
    assert!(!advice.to_string().contains("demo.write_tool"), "{advice}");
}

#[tokio::test]
async fn every_dependency_is_named_by_itself() {
    let stage = Stage::new().await;
    let health = stage.admin("GET", "/health", None).await;
    let told = health.json();
    assert_eq!((health.status, &told["healthy"], &told["degraded"]), (200, &json!(true), &json!(true)));
    let checks = told["checks"].as_object().unwrap();
    let names: Vec<_> = checks
        .iter()
        .map(|(name, check)| (name.as_str(), check["healthy"] == true, check["required"] == true))
        .collect();
    let expected = [
        ("audit", true, true),
        ("audit_log", true, false),
        ("disk", false, false),
        ("door", true, true),
        ("local", true, false),
        ("servers", true, false),
        ("store", true, true),
    ];
    assert_eq!(names, expected, "a full disk is told and does not stop anything");
    assert_eq!(stage.ask("GET", "/health/ready", None, None).await.status, 200);
}
