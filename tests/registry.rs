//! The registry over REST: publishing, listing, searching, comparing, negotiating.

use serde_json::{Value, json};

use crate::support::{Gantry, Start, manifest};

#[tokio::test]
async fn a_published_version_never_changes() {
    let gantry = Gantry::start().await;
    let first = gantry.register(manifest(json!({}))).await;
    assert_eq!(first.status, 201, "{}", first.text);
    assert_eq!(first.body["tool_id"], "demo.echo_sum");
    let again = gantry.register(manifest(json!({}))).await;
    assert_eq!((again.status, &again.body["digest"]), (200, &first.body["digest"]));
    let other = gantry.register(manifest(json!({ "description": "Something else under the same number." }))).await;
    assert_eq!(other.refusal(), (409, "E3103"));
    let build = gantry.register(manifest(json!({ "version": "1.0.0+build.2" }))).await;
    assert_eq!(build.refusal(), (409, "E3103"), "build metadata does not make another version");
    let kept = gantry.get("/v1/tools/demo.echo_sum/versions/1.0.0").await;
    assert_eq!(kept.body["manifest"]["description"], manifest(json!({}))["description"], "{}", kept.text);
}

#[tokio::test]
async fn two_writers_of_one_version_get_one_publication() {
    let gantry = Gantry::start().await;
    let calls = (0..16).map(|n| {
        let gantry = &gantry;
        // Half of them agree, half of them do not.
        let text = if n % 2 == 0 { "The one description of it." } else { "The other description of it." };
        async move { gantry.register(manifest(json!({ "description": text }))).await.status }
    });
    let mut statuses = futures_util::future::join_all(calls).await;
    statuses.sort_unstable();
    assert_eq!(statuses.iter().filter(|s| **s == 201).count(), 1, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|s| **s == 200).count(), 7, "{statuses:?}");
    assert_eq!(statuses.iter().filter(|s| **s == 409).count(), 8, "{statuses:?}");
}

#[tokio::test]
async fn an_inadmissible_manifest_is_refused_with_every_reason() {
    let gantry = Gantry::start().await;
    let answer = gantry
        .register(manifest(
            json!({ "tool_id": "Bad-Id", "version": "one", "side_effect_policy": null, "timeout_class": null }),
        ))
        .await;
    assert_eq!(answer.refusal(), (422, "E3105"));
    let reasons = answer.body["error"]["details"]["reasons"].as_array().unwrap();
    let text = answer.text.clone();
    assert!(reasons.len() >= 4, "{text}");
    for part in ["/tool_id", "/version", "side_effect_policy", "timeout_class"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(gantry.get("/v1/tools/demo.echo_sum").await.refusal(), (404, "E3101"));
}

#[tokio::test]
async fn schemas_of_every_draft_are_published_and_what_is_not_checked_is_named() {
    let gantry = Gantry::start().await;
    let draft = |name: &str| format!("http://json-schema.org/{name}/schema#");
    let drafts =
        [draft("draft-04"), draft("draft-06"), draft("draft-07"), draft("draft/2019-09"), draft("draft/2020-12")];
    for (index, address) in drafts.iter().enumerate() {
        let parameters = json!({ "$schema": address, "type": "object", "properties": {
            "name": { "type": "string", "pattern": "^(?!\\s*$).+" } } });
        let change = json!({ "tool_id": format!("draft_{index}"), "parameters": parameters });
        let answer = gantry.register(manifest(change)).await;
        assert_eq!(answer.status, 201, "{address}: {}", answer.text);
        assert!(!answer.body["warnings"].to_string().contains("/parameters"), "{address}: {}", answer.text);
        let kept = gantry.get(&format!("/v1/tools/demo.draft_{index}")).await;
        assert_eq!(kept.body["manifest"]["parameters"], parameters, "what the author wrote is kept: {}", kept.text);
        assert_eq!(kept.body["unchecked"], Value::Null, "{}", kept.text);
    }
    let parameters = json!({ "$schema": drafts[0], "type": "object", "properties": {
        "kind": { "const": "a" }, "twice": { "type": "string", "pattern": "^(.)\\1$" } } });
    let answer = gantry.register(manifest(json!({ "tool_id": "partly", "parameters": parameters }))).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let kept = gantry.get("/v1/tools/demo.partly").await;
    for place in ["/parameters/properties/kind/const", "/parameters/properties/twice/pattern"] {
        assert!(answer.body["warnings"].to_string().contains(place), "{}", answer.text);
        assert!(kept.body["unchecked"].to_string().contains(place), "{}", kept.text);
    }
    let unknown = json!({ "$schema": "https://example.com/mine", "type": "object" });
    let refused = gantry.register(manifest(json!({ "tool_id": "private", "parameters": unknown }))).await;
    assert_eq!(refused.refusal(), (422, "E3105"));
}

#[tokio::test]
async fn listings_filter_and_page_in_a_stable_order() {
    let gantry = Gantry::start().await;
    for n in 0..12 {
        let change = json!({ "tool_id": format!("tool_{n:02}"), "tags": [if n % 2 == 0 { "even" } else { "odd" }],
            "categories": [if n < 6 { "low" } else { "high" }] });
        assert_eq!(gantry.register(manifest(change)).await.status, 201);
    }
    let ids = async |query: &str| -> (Vec<String>, Value) {
        let answer = gantry.get(&format!("/v1/tools?{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {}", answer.text);
        let ids = answer.body["tools"]
            .as_array()
            .unwrap()
            .iter()
            .map(|t| t["tool_id"].as_str().unwrap().to_owned())
            .collect();
        (ids, answer.body["pagination"].clone())
    };
    let (evens, pagination) = ids("tags=even&category=low").await;
    assert_eq!(evens, ["demo.tool_00", "demo.tool_02", "demo.tool_04"]);
    assert_eq!(pagination, json!({ "total_count": 3, "page": 1, "page_size": 50 }));
    let (page, pagination) = ids("q=tool_&page=2&page_size=5").await;
    assert_eq!(page, ["demo.tool_05", "demo.tool_06", "demo.tool_07", "demo.tool_08", "demo.tool_09"]);
    assert_eq!(pagination["total_count"], 12);
    assert!(ids("page=99").await.0.is_empty());
    for bad in ["page=0", "page_size=0", "page_size=201", "page=x", "lifecycle=zombie", "unknown=1"] {
        assert_eq!(gantry.get(&format!("/v1/tools?{bad}")).await.refusal(), (400, "E3004"), "{bad}");
    }
}

#[tokio::test]
async fn search_finds_by_words_stems_parts_of_names_and_slips() {
    let gantry = Gantry::start().await;
    for (id, name, description) in [
        ("send_email", "E-mail sender", "Sends a message to a user by e-mail."),
        ("weather_now", "Current weather", "Tells temperature and wind for a city."),
        ("invoice_pdf", "Invoice maker", "Renders invoices as PDF documents for customers."),
    ] {
        gantry.register(manifest(json!({ "tool_id": id, "name": name, "description": description }))).await;
    }
    for (query, expected) in [
        ("send message to user", "demo.send_email"),
        ("rendering an invoice", "demo.invoice_pdf"),
        ("wether", "demo.weather_now"),
        ("temperatures", "demo.weather_now"),
        ("invoic", "demo.invoice_pdf"),
    ] {
        let path = format!("/v1/tools/search?q={}", query.replace(' ', "%20"));
        let answer = gantry.get(&path).await;
        assert_eq!(answer.body["results"][0]["tool_id"], expected, "{query}: {}", answer.text);
        assert!(answer.body["results"][0]["score"].is_number());
    }
    for hostile in ["%22", "NEAR(a%20b)", "*", "a%00b", "'%20OR%201=1--", "%F0%9F%98%80"] {
        assert_eq!(gantry.get(&format!("/v1/tools/search?q={hostile}")).await.status, 200, "{hostile}");
    }
    assert_eq!(gantry.get("/v1/tools/search").await.refusal(), (400, "E3004"));
    assert_eq!(gantry.get("/v1/tools/search?q=a&limit=0").await.refusal(), (400, "E3004"));
}

#[tokio::test]
async fn versions_and_schemas_are_compared_and_negotiated() {
    let gantry = Gantry::start().await;
    gantry.register(manifest(json!({}))).await;
    let parameters = json!({ "type": "object", "properties": { "expression": { "type": "string" }, "digits": { "type": "integer", "default": 2 } }, "required": ["expression"] });
    assert_eq!(gantry.register(manifest(json!({ "version": "1.1.0", "parameters": parameters }))).await.status, 201);
    let published = |version: &str| json!({ "tool_id": "demo.echo_sum", "version": version });
    let answer =
        gantry.post("/v1/tools/compare", json!({ "old": published("1.0.0"), "new": published("1.1.0") })).await;
    assert_eq!(answer.body["verdict"], "minor", "{}", answer.text);
    let answer =
        gantry.post("/v1/tools/compare", json!({ "old": published("1.1.0"), "new": published("1.0.0") })).await;
    assert_eq!(answer.body["verdict"], "major", "{}", answer.text);
    assert!(!answer.body["reasons"].as_array().unwrap().is_empty());
    let wanted =
        json!({ "type": "object", "properties": { "expression": { "type": "string" } }, "required": ["expression"] });
    let answer = gantry.post("/v1/tools/negotiate", json!({ "expected": wanted, "offered": published("1.1.0") })).await;
    assert_eq!(answer.body["outcome"], "full_match", "{}", answer.text);
    let wanted =
        json!({ "type": "object", "properties": { "nothing": { "type": "string" } }, "required": ["nothing"] });
    let answer = gantry.post("/v1/tools/negotiate", json!({ "expected": wanted, "offered": published("1.1.0") })).await;
    assert_eq!(answer.body["outcome"], "incompatible", "{}", answer.text);
    assert_eq!(
        gantry
            .post("/v1/tools/compare", json!({ "old": published("9.9.9"), "new": published("1.0.0") }))
            .await
            .refusal(),
        (404, "E3102")
    );
}

#[tokio::test]
async fn a_breaking_schema_under_a_minor_number_is_refused() {
    let gantry = Gantry::start().await;
    gantry.register(manifest(json!({}))).await;
    let narrower = json!({ "type": "object", "properties": { "expression": { "type": "string", "maxLength": 5 } }, "required": ["expression"] });
    let answer = gantry.register(manifest(json!({ "version": "1.1.0", "parameters": narrower }))).await;
    assert_eq!(answer.refusal(), (422, "E3105"));
    assert!(answer.text.contains("major"), "{}", answer.text);
    assert_eq!(gantry.register(manifest(json!({ "version": "2.0.0", "parameters": narrower }))).await.status, 201);
}

#[tokio::test]
async fn what_was_published_is_there_after_a_restart() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).run().await;
    gantry.register(manifest(json!({}))).await;
    let token = gantry.token.clone();
    assert!(gantry.stop().success());
    let gantry = Start::new().data(&data).run().await;
    assert_eq!(gantry.token, token, "the admin token stays");
    let answer = gantry.invoke("demo.echo_sum", json!({ "expression": "2 * 21" })).await;
    assert_eq!(answer.body["result"]["result"], 42, "{}", answer.text);
    let hits = gantry.get("/v1/tools/search?q=arithmetic").await;
    assert!(hits.text.contains("demo.echo_sum"), "{}", hits.text);
}
