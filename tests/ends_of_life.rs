//! How tools end and are taken out of use: dates that pass, people who step in, and whose code may run at all.

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Gantry, PATIENCE, Start, manifest, open_to_all, wait_for};

/// The environment of a server whose clock goes ahead by so much; monotonic time is as it is.
fn ahead(start: Start, shift: &str) -> Start {
    let said = std::process::Command::new("faketime").args(["-f", "+0s", "printenv", "LD_PRELOAD"]).output().unwrap();
    let library = String::from_utf8(said.stdout).unwrap().trim().to_owned();
    assert!(!library.is_empty(), "faketime says nothing");
    start.env("LD_PRELOAD", library).env("FAKETIME", shift).env("FAKETIME_DONT_FAKE_MONOTONIC", "1")
}

fn pinned(version: &str) -> Value {
    json!({ "tool_id": "demo.echo_sum", "tool_version": version, "parameters": { "expression": "1+1" } })
}

#[tokio::test]
async fn a_version_whose_date_of_removal_has_passed_is_gone_also_for_exact_pins() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).run().await;
    assert_eq!(gantry.register(manifest(json!({}))).await.status, 201);
    assert_eq!(gantry.register(manifest(json!({ "version": "2.0.0" }))).await.status, 201);
    let body = json!({ "version": "1.0.0", "replacement_tool_id": "demo.better" });
    let deprecated = gantry.post("/v1/tools/demo.echo_sum/deprecate", body).await;
    assert_eq!(deprecated.status, 200, "{}", deprecated.text);
    assert!(gantry.stop().success());

    let later = ahead(Start::new().data(&data), "+100d").run().await;
    let answer = later.post("/v1/tools/invoke", pinned("1.0.0")).await;
    assert_eq!(answer.status, 200, "past its sunset it is served to exact pins: {}", answer.text);
    assert!(later.stop().success());

    let after = ahead(Start::new().data(&data), "+181d").run().await;
    let answer = after.post("/v1/tools/invoke", pinned("1.0.0")).await;
    assert_eq!(answer.refusal(), (410, "E3104"));
    assert_eq!(answer.body["error"]["details"]["replacement_tool_id"], "demo.better", "{}", answer.text);
    assert_eq!(after.post("/v1/tools/invoke", pinned("2.0.0")).await.status, 200);
    let versions = after.get("/v1/tools/demo.echo_sum").await;
    assert_eq!(versions.body["versions"][0]["lifecycle_state"], "removed", "{}", versions.text);
    let restored = after.post("/v1/tools/demo.echo_sum/restore", json!({ "version": "1.0.0" })).await;
    assert_eq!(restored.refusal(), (412, "E3408"), "what is removed does not come back");
}

#[tokio::test]
async fn calls_of_a_version_that_ends_are_counted_and_the_count_survives() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).run().await;
    assert_eq!(gantry.register(manifest(json!({ "lifecycle_state": "deprecated" }))).await.status, 201);
    for _ in 0..3 {
        assert_eq!(gantry.post("/v1/tools/invoke", pinned("1.0.0")).await.status, 200);
    }
    let counted = gantry.get("/v1/tools/demo.echo_sum/deprecation").await;
    assert_eq!(counted.body["versions"][0]["calls_last_7_days"], 3, "{}", counted.text);
    assert!(gantry.stop().success());
    let again = Start::new().data(&data).run().await;
    assert_eq!(again.post("/v1/tools/invoke", pinned("1.0.0")).await.status, 200);
    let counted = again.get("/v1/tools/demo.echo_sum/deprecation").await;
    assert_eq!(counted.body["versions"][0]["calls_last_24_hours"], 4, "{}", counted.text);
}

#[tokio::test]
async fn calls_that_mean_an_old_version_are_warned_of_in_the_log() {
    let gantry = Gantry::start().await;
    assert_eq!(gantry.register(manifest(json!({ "lifecycle_state": "deprecated" }))).await.status, 201);
    assert_eq!(gantry.register(manifest(json!({ "version": "1.1.0" }))).await.status, 201);
    assert_eq!(gantry.register(manifest(json!({ "version": "1.2.0" }))).await.status, 201);
    // What is only asked about is not called: nothing is said of it, before or after the others.
    let asked = json!({ "tool_id": "asked_about", "lifecycle_state": "deprecated" });
    assert_eq!(gantry.register(manifest(asked)).await.status, 201);
    let explained =
        json!({ "tool_id": "demo.asked_about", "tool_version": "1.0.0", "parameters": { "expression": "1" } });
    let explained = gantry.post("/v1/tools/explain", explained).await;
    assert_eq!((explained.status, &explained.body["allowed"]), (200, &json!(true)), "{}", explained.text);
    for version in ["1.0.0", "1.1.0", "^1.0.0"] {
        assert_eq!(gantry.post("/v1/tools/invoke", pinned(version)).await.status, 200, "{version}");
    }
    let said = wait_for("both warnings", || {
        let log = gantry.log();
        let both = ["a version that is on its way out is called", "a narrow version constraint misses a newer version"];
        both.iter().all(|text| log.contains(text)).then_some(log)
    });
    assert!(said.contains("1.2.0"), "the newest is named: {said}");
    let of_the_other = said.lines().find(|line| line.contains("asked_about") && line.contains("on its way out"));
    assert_eq!(of_the_other, None, "an explanation is no call");
    assert!(!said.contains("^1.0.0"), "a range that finds the newest is nothing to warn of: {said}");
}

#[tokio::test]
async fn who_administers_the_installation_takes_a_tool_of_a_tenant_out_of_use() {
    let gantry = Gantry::start().await;
    let boss = async |tenant: &str| {
        gantry
            .mint(json!({ "tenant": tenant, "roles": ["admin", "agent"], "sub": format!("did:example:{tenant}") }))
            .await
    };
    let (shop, other) = (boss("shop").await, boss("other").await);
    let own = manifest(json!({ "tool_id": "own", "execution": null }));
    let registered = gantry.request(Method::POST, "/v1/tools/register", Some(&shop), Some(own)).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let call = async || {
        let request = json!({ "tool_id": "demo.own", "parameters": { "expression": "1" } });
        gantry.request(Method::POST, "/v1/tools/invoke", Some(&shop), Some(request)).await
    };
    let before = call().await;
    assert_ne!(before.code(), "E3107", "{}", before.text);
    let path = "/v1/tools/demo.own/quarantine?tenant=shop";
    let reason = || json!({ "reason": "it was reported" });
    assert_eq!(gantry.request(Method::POST, path, Some(&other), Some(reason())).await.refusal(), (403, "E3206"));
    assert_eq!(gantry.post("/v1/tools/demo.own/quarantine", reason()).await.refusal(), (404, "E3101"));
    assert_eq!(gantry.post(path, reason()).await.status, 200);
    assert_eq!(call().await.refusal(), (423, "E3107"));
    // The tenant's people neither put it back nor make it a quarantine of their own that they could lift.
    let operator = gantry.mint(json!({ "tenant": "shop", "roles": ["operator"], "sub": "did:example:keeper" })).await;
    for token in [&shop, &operator] {
        for act in ["release", "quarantine", "release"] {
            let path = format!("/v1/tools/demo.own/{act}");
            let answer = gantry.request(Method::POST, &path, Some(token), Some(reason())).await;
            assert_eq!(answer.refusal(), (403, "E3206"), "{act}");
        }
        assert_eq!(call().await.refusal(), (423, "E3107"));
    }
    gantry.cli(&["tool", "release", "demo.own", "--tenant", "shop", "--reason", "it was looked at"]).ok();
    assert_eq!(call().await.code(), before.code());
    // What they took out of use themselves they put back.
    for (act, token) in [("quarantine", &shop), ("release", &operator)] {
        let path = format!("/v1/tools/demo.own/{act}");
        let answer = gantry.request(Method::POST, &path, Some(token), Some(reason())).await;
        assert_eq!(answer.status, 200, "{act}: {}", answer.text);
    }
    assert_eq!(call().await.code(), before.code());
}

#[tokio::test]
async fn people_take_any_tool_out_of_use_and_put_it_back() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let gantry = Start::new().data(&data).run().await;
    let shop = gantry.mint(json!({ "tenant": "shop", "roles": ["admin"], "sub": "did:web:shop.example" })).await;
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200);
    // Who does not keep the tool cannot.
    let reason = || json!({ "reason": "it miscounts" });
    let path = "/v1/tools/calculator/quarantine";
    let answer = gantry.request(Method::POST, path, Some(&shop), Some(reason())).await;
    assert_eq!(answer.refusal(), (403, "E3206"));
    for bad in [json!({}), json!({ "reason": " " }), json!({ "reason": "x".repeat(501) })] {
        assert_eq!(gantry.post(path, bad.clone()).await.refusal(), (400, "E3004"), "{bad}");
    }
    assert_eq!(gantry.post("/v1/tools/calculator/release", reason()).await.refusal(), (412, "E3408"));

    let held = gantry.post(path, reason()).await;
    assert_eq!(
        (held.status, &held.body["quarantined"], &held.body["reason"]),
        (200, &json!(true), &json!("it miscounts"))
    );
    let refused = gantry.invoke("calculator", json!({ "expression": "1" })).await;
    assert_eq!(refused.refusal(), (423, "E3107"));
    let listed =
        gantry.request(Method::GET, "/v1/agents/did:web:shop.example/tools/unavailable", Some(&shop), None).await;
    assert!(listed.text.contains("quarantined"), "{}", listed.text);
    assert!(gantry.stop().success());

    // It stays so, and is released by name, with the act in the record.
    let gantry = Start::new().data(&data).run().await;
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.refusal(), (423, "E3107"));
    let released = gantry.cli(&["tool", "release", "calculator", "--reason", "it was mended", "--json"]).ok();
    assert_eq!(released.json()["quarantined"], false);
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200);
    gantry.cli(&["tool", "quarantine", "calculator", "--reason", "again"]).ok();
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.refusal(), (423, "E3107"));
    let notes = ["quarantine calculator: it miscounts", "release calculator: it was mended"];
    let start = std::time::Instant::now();
    loop {
        let recorded = gantry.get("/v1/audit?action=tool_lifecycle_changed").await;
        if notes.iter().all(|note| recorded.text.contains(note)) {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "{}", recorded.text);
    }
}

/// A tool that answers with a word of its own.
fn tool_folder(dir: &std::path::Path, name: &str, word: &str) {
    let folder = dir.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    open_to_all(dir);
    std::fs::write(folder.join("main.sh"), "cat > /dev/null\nprintf '{\"word\": \"%s\"}' \"$WORD\"\n").unwrap();
    let whole =
        manifest(json!({ "tool_id": name, "parameters": { "type": "object" }, "result_schema": { "type": "object" },
        "execution": { "type": "process", "command": ["sh", "main.sh"], "env": { "WORD": word } } }));
    std::fs::write(folder.join("tool.json"), whole.to_string()).unwrap();
}

#[tokio::test]
async fn a_tenants_own_process_tool_runs_where_the_operator_allows_it() {
    let tools = tempfile::tempdir().unwrap();
    open_to_all(tools.path());
    tool_folder(&tools.path().join("shared"), "common", "ours");
    tool_folder(&tools.path().join("shop"), "own", "theirs");
    let shop_dir = tools.path().join("shop");
    let gantry = Start::new()
        .arg("--tools")
        .arg(tools.path().join("shared").to_str().unwrap())
        .arg("--unsandboxed-processes")
        .env("GANTRY_TOOLS__TENANTS", format!("shop={}", shop_dir.display()))
        .run()
        .await;
    let token =
        async |tenant: &str| gantry.mint(json!({ "tenant": tenant, "sub": format!("did:example:{tenant}") })).await;
    let (shop, other) = (token("shop").await, token("other").await);
    let call = async |tool: &str, token: &str| {
        let request = json!({ "tool_id": tool, "parameters": {} });
        gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(request)).await
    };
    let own = call("demo.own", &shop).await;
    assert_eq!(own.body["result"]["word"], "theirs", "{}", own.text);
    assert_eq!(call("demo.common", &shop).await.body["result"]["word"], "ours");
    for stranger in [&other, &gantry.token] {
        assert_eq!(call("demo.own", stranger).await.refusal(), (404, "E3101"), "nobody else sees it");
    }

    // What a tenant registers by itself brings no code, whatever it is called, and is refused with the way to bring some.
    let admin = gantry.mint(json!({ "tenant": "other", "roles": ["admin", "agent"], "sub": "did:example:boss" })).await;
    let whole = manifest(json!({ "tool_id": "own", "execution": { "type": "process", "command": ["sh", "main.sh"] },
        "parameters": { "type": "object" }, "result_schema": { "type": "object" } }));
    let registered = gantry.request(Method::POST, "/v1/tools/register", Some(&admin), Some(whole)).await;
    assert_eq!(registered.refusal(), (422, "E3105"));
    assert!(registered.text.contains("`[tools] tenants`"), "{}", registered.text);
    assert_eq!(call("demo.own", &admin).await.refusal(), (404, "E3101"));

    // A folder is watched like any other.
    tool_folder(&shop_dir, "later", "new");
    let start = std::time::Instant::now();
    while call("demo.later", &shop).await.status != 200 {
        assert!(start.elapsed() < PATIENCE, "the new tool did not appear: {}", gantry.log());
    }
}
