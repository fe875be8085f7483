//! Tools on disk: folders that are loaded, watched and run.

use std::path::Path;

use reqwest::Method;
use serde_json::json;

use crate::support::{Gantry, PATIENCE, Start, gantry, manifest, open_to_all, run, wait_for};

fn scaffold(home: &Path) {
    run(gantry(&home.join("data")).args(["tool", "new", "word_stats", "--dir"]).arg(home.join("tools"))).ok();
}

async fn until_listed(gantry: &Gantry, id: &str, version: &str) {
    let start = std::time::Instant::now();
    loop {
        let answer = gantry.get(&format!("/v1/tools/{id}/versions/{version}")).await;
        if answer.status == 200 {
            return;
        }
        assert!(start.elapsed() < PATIENCE, "{id} {version} was not loaded: {}", gantry.log());
    }
}

#[tokio::test]
async fn a_scaffolded_tool_runs_by_itself_and_behind_gantry() {
    let home = tempfile::tempdir().unwrap();
    scaffold(home.path());
    let folder = std::fs::read_dir(home.path().join("tools")).unwrap().next().unwrap().unwrap().path();
    assert!(folder.join("tool.toml").try_exists().unwrap());
    open_to_all(home.path());
    let started = Start::new().arg("--tools").arg(home.path().join("tools").to_str().unwrap()).run().await;
    let listed = started.get("/v1/tools?q=word_stats").await;
    let id = listed.body["tools"][0]["tool_id"].as_str().expect("the tool is listed").to_owned();
    let answer = started.invoke(&id, json!({ "name": "Ada" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    assert_eq!(answer.body["status"], "success");
}

#[tokio::test]
async fn without_a_sandbox_what_it_would_keep_is_refused() {
    let home = tempfile::tempdir().unwrap();
    for (id, change) in [
        ("plain", json!({})),
        ("with_network", json!({ "required_permissions": ["network:http://127.0.0.1:80"] })),
        ("with_secret", json!({ "required_permissions": ["credentials:api_key"] })),
        ("in_session", json!({ "execution": { "type": "process", "command": ["cat"], "protocol": "gantry/1" } })),
        ("with_limits", json!({ "resource_limits": { "memory": "64Mi" } })),
        ("in_gvisor", json!({ "execution": { "type": "process", "command": ["cat"], "isolation": "gvisor" } })),
    ] {
        let folder = home.path().join("tools").join(id);
        std::fs::create_dir_all(&folder).unwrap();
        let mut written = manifest(json!({ "tool_id": id, "parameters": { "type": "object" },
            "result_schema": { "type": "object" }, "execution": { "type": "process", "command": ["cat"] } }));
        written.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        std::fs::write(folder.join("tool.json"), written.to_string()).unwrap();
    }
    let tools = home.path().join("tools");
    let started = Start::new().arg("--tools").arg(tools.to_str().unwrap()).arg("--unsandboxed-processes").run().await;
    assert_eq!(started.invoke("demo.plain", json!({})).await.status, 200);
    let bounded = json!({ "tool_id": "demo.plain", "parameters": {}, "resource_limits": { "memory_mb_limit": 64 } });
    let answer = started.post("/v1/tools/invoke", bounded).await;
    assert_eq!(answer.refusal().1, "E3405", "{}", answer.text);
    for (id, code, words) in [
        ("with_network", "E3405", "--unsandboxed-processes"),
        ("with_secret", "E3405", "--unsandboxed-processes"),
        ("in_gvisor", "E3405", "--unsandboxed-processes"),
    ] {
        let answer = started.invoke(&format!("demo.{id}"), json!({})).await;
        assert_eq!(answer.refusal().1, code, "{id}: {}", answer.text);
        assert!(answer.text.contains(words), "{id}: {}", answer.text);
    }
    // What the manifest alone decides is refused before anybody can call it.
    for (id, place) in [("in_session", "/execution/protocol"), ("with_limits", "/resource_limits")] {
        assert_eq!(started.invoke(&format!("demo.{id}"), json!({})).await.refusal(), (404, "E3101"), "{id}");
        let log = started.log();
        let told = log
            .lines()
            .any(|line| line.contains(id) && line.contains(place) && line.contains("--unsandboxed-processes"));
        assert!(told, "{id}: {log}");
    }
}

#[tokio::test]
async fn limits_of_a_tool_that_was_published_with_a_sandbox_are_not_forgotten_without_one() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("tools/bounded");
    std::fs::create_dir_all(&folder).unwrap();
    let written = manifest(
        json!({ "tool_id": "bounded", "parameters": { "type": "object" }, "resource_limits": { "memory": "64Mi" },
        "result_schema": { "type": "object" }, "execution": { "type": "process", "command": ["cat"] } }),
    );
    std::fs::write(folder.join("tool.json"), written.to_string()).unwrap();
    open_to_all(home.path());
    let (tools, data) = (home.path().join("tools"), home.path().join("data"));
    let start = || Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap());
    let walled = start().run().await;
    assert_eq!(walled.invoke("demo.bounded", json!({})).await.status, 200);
    walled.stop();
    let open = start().arg("--unsandboxed-processes").run().await;
    let answer = open.invoke("demo.bounded", json!({})).await;
    assert_eq!(answer.refusal().1, "E3405", "{}", answer.text);
    assert!(answer.text.contains("--unsandboxed-processes"), "{}", answer.text);
}

#[tokio::test]
async fn the_example_tool_of_the_documentation_answers() {
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tools");
    let started = Start::new().arg("--tools").arg(tools).run().await;
    let answer = started.invoke("demo.word_stats", json!({ "text": "a b" })).await;
    assert_eq!(answer.body["result"]["words"], 2, "{}", answer.text);
    let answer = started.invoke("demo.word_stats", json!({ "text": 5 })).await;
    assert_eq!(answer.refusal(), (400, "E3301"));
}

#[tokio::test]
async fn a_watched_folder_takes_new_versions_and_survives_broken_ones() {
    let home = tempfile::tempdir().unwrap();
    let tools = home.path().join("tools");
    let folder = tools.join("greeter");
    std::fs::create_dir_all(&folder).unwrap();
    let write = |version: &str, name: &str| {
        let manifest = format!(
            r#"
tool_id = "greeter"
namespace = "demo"
version = "{version}"
name = "{name}"
description = "Greets whoever it is told to greet."
provider = "Demo"
protocol = "native"
side_effect_policy = "pure"
timeout_class = "standard"
parameters = {{ type = "object", properties = {{ who = {{ type = "string" }} }}, required = ["who"] }}
result_schema = {{ type = "object" }}
[execution]
type = "process"
command = ["python3", "main.py"]
"#
        );
        std::fs::write(folder.join("tool.toml"), manifest).unwrap();
    };
    write("1.0.0", "Greeter");
    std::fs::write(
        folder.join("main.py"),
        "import json,sys\nprint(json.dumps({'hello': json.load(sys.stdin)['who']}))\n",
    )
    .unwrap();
    open_to_all(home.path());
    let started = Start::new().arg("--tools").arg(tools.to_str().unwrap()).run().await;
    until_listed(&started, "demo.greeter", "1.0.0").await;
    write("1.0.1", "x");
    let start = std::time::Instant::now();
    while !started.log().contains("/name") {
        assert!(start.elapsed() < PATIENCE, "the broken manifest is not reported: {}", started.log());
        tokio::task::yield_now().await;
    }
    write("1.1.0", "Greeter");
    until_listed(&started, "demo.greeter", "1.1.0").await;
    let answer = started.invoke("demo.greeter", json!({ "who": "Ada; rm -rf /" })).await;
    assert_eq!(answer.body["result"]["hello"], "Ada; rm -rf /", "{}", answer.text);
    assert_eq!(answer.body["tool_version"], "1.1.0");
}

#[tokio::test]
async fn tools_that_misbehave_get_the_code_for_it() {
    let home = tempfile::tempdir().unwrap();
    let tools = home.path().join("tools");
    for (id, program) in [
        ("exits_badly", "import sys; sys.stderr.write('secret reason'); sys.exit(3)"),
        ("prints_junk", "print('this is not json')"),
        ("kills_itself", "import os; os.kill(os.getpid(), 9)"),
        ("talks_too_much", "print('[' + '1,' * 2000000 + '1]')"),
        ("never_ends", "while True: pass"),
        ("wrong_shape", "print('[1]')"),
        ("shows_environment", "import os, json; print(json.dumps({'keys': sorted(os.environ)}))"),
    ] {
        let folder = tools.join(id);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("main.py"), program).unwrap();
        let manifest = json!({ "tool_id": id, "namespace": "bad", "version": "1.0.0", "name": id, "description": "A tool that misbehaves on purpose.",
            "provider": "Test", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
            "parameters": { "type": "object" }, "result_schema": { "type": "object" },
            "execution": { "type": "process", "command": ["python3", "main.py"] } });
        std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
    }
    open_to_all(home.path());
    let started = Start::new().arg("--tools").arg(tools.to_str().unwrap()).env("SECRET_OF_THE_SERVER", "x").run().await;
    for (id, code) in [
        ("exits_badly", "E3401"),
        ("prints_junk", "E3401"),
        ("kills_itself", "E3404"),
        ("talks_too_much", "E3414"),
        ("wrong_shape", "E3303"),
    ] {
        let answer = started.invoke(&format!("bad.{id}"), json!({})).await;
        assert_eq!(answer.refusal().1, code, "{id}: {}", answer.text);
        assert!(!answer.body["error"].to_string().contains("secret reason"), "{}", answer.text);
    }
    // Who may see what a tool wrote is shown it where the call failed.
    let failed = started.cli(&["call", "bad.exits_badly"]);
    assert!(failed.err().contains("│ secret reason"), "{}", failed.err());
    let body = json!({ "tool_id": "bad.never_ends", "parameters": {}, "resource_limits": { "timeout_seconds": 0.5 } });
    let answer = started.post("/v1/tools/invoke", body).await;
    assert_eq!(answer.refusal(), (504, "E3402"), "{}", answer.text);
    assert_eq!(answer.body["status"], "timeout");
    let answer = started.invoke("bad.shows_environment", json!({})).await;
    assert!(!answer.text.contains("SECRET_OF_THE_SERVER") && !answer.text.contains("GANTRY"), "{}", answer.text);
}

#[tokio::test]
async fn of_two_folders_with_the_same_tool_and_version_neither_is_taken() {
    let home = tempfile::tempdir().unwrap();
    let put = |folder: &str, id: &str| {
        let folder = home.path().join("tools").join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let written =
            manifest(json!({ "tool_id": id, "parameters": { "type": "object" }, "result_schema": { "type": "object" },
            "execution": { "type": "process", "command": ["cat"] } }));
        std::fs::write(folder.join("tool.json"), written.to_string()).unwrap();
    };
    put("a", "twice");
    put("b", "twice");
    put("c", "once");
    let tools = home.path().join("tools");
    let started = Start::new().arg("--tools").arg(tools.to_str().unwrap()).arg("--unsandboxed-processes").run().await;
    until_listed(&started, "demo.once", "1.0.0").await;
    assert_eq!(started.invoke("demo.twice", json!({})).await.refusal(), (404, "E3101"));
    let log = started.log();
    for folder in ["tools/a", "tools/b"] {
        assert!(log.lines().any(|line| line.contains("is left out") && line.contains(folder)), "{folder}: {log}");
    }
    std::fs::remove_dir_all(tools.join("a")).unwrap();
    until_listed(&started, "demo.twice", "1.0.0").await;
    assert_eq!(started.invoke("demo.twice", json!({})).await.status, 200);
}

/// A tool that answers with what it is told, in a folder of its own.
fn put_echo(dir: &Path, id: &str, change: &serde_json::Value) {
    let folder = dir.join(id);
    std::fs::create_dir_all(&folder).unwrap();
    open_to_all(dir);
    let mut written =
        manifest(json!({ "tool_id": id, "parameters": { "type": "object" }, "result_schema": { "type": "object" },
        "execution": { "type": "process", "command": ["cat"] } }));
    written.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    std::fs::write(folder.join("tool.json"), written.to_string()).unwrap();
}

fn until_logged(gantry: &Gantry, word: &str) {
    wait_for(word, || gantry.log().contains(word).then_some(()));
}

#[tokio::test]
async fn a_tenants_administrator_decides_nothing_about_what_runs_in_the_operators_folder() {
    let home = tempfile::tempdir().unwrap();
    let (tools, mark) = (home.path().join("tools"), home.path().join("mark"));
    std::fs::create_dir(&tools).unwrap();
    put_echo(&tools, "first", &json!({}));
    let gantry = Start::new()
        .arg("--unsandboxed-processes")
        .env("GANTRY_TOOLS__TENANTS", format!("shop={}", tools.display()))
        .run()
        .await;
    let chief = gantry.mint(json!({ "tenant": "shop", "roles": ["admin", "agent"] })).await;
    let call = async |tool: &str, version: &str| {
        let body = json!({ "tool_id": tool, "tool_version": version, "parameters": {} });
        gantry.request(Method::POST, "/v1/tools/invoke", Some(&chief), Some(body)).await
    };
    assert_eq!(call("demo.first", "1.0.0").await.status, 200);
    let script = format!("echo here > {}; echo '{{}}'", mark.display());
    for (id, version) in [("first", "1.1.0"), ("second", "1.0.0")] {
        let theirs = manifest(json!({ "tool_id": id, "version": version, "parameters": { "type": "object" },
            "result_schema": { "type": "object" },
            "execution": { "type": "process", "command": ["/bin/sh", "-c", script] } }));
        let registered = gantry.request(Method::POST, "/v1/tools/register", Some(&chief), Some(theirs)).await;
        assert_eq!(registered.refusal(), (422, "E3105"), "{}", registered.text);
    }
    // The operator comes to the same versions, with manifests of their own: those run.
    put_echo(&tools, "first", &json!({ "version": "1.1.0" }));
    put_echo(&tools, "second", &json!({}));
    // Folders are looked at in the order of their tools' names, so the others have been seen when this one runs.
    put_echo(&tools, "third", &json!({}));
    let start = std::time::Instant::now();
    while call("demo.third", "1.0.0").await.status != 200 {
        assert!(start.elapsed() < PATIENCE, "the last folder is not loaded: {}", gantry.log());
    }
    for (tool, version) in [("demo.first", "1.1.0"), ("demo.second", "1.0.0")] {
        let answer = call(tool, version).await;
        assert_eq!(answer.status, 200, "{tool}: {}", answer.text);
    }
    assert!(!mark.exists(), "what the tenant's administrator wanted was run");
}

#[tokio::test]
async fn an_edited_manifest_without_a_new_version_does_not_run() {
    let home = tempfile::tempdir().unwrap();
    let tools = home.path().join("tools");
    std::fs::create_dir(&tools).unwrap();
    put_echo(&tools, "echo", &json!({}));
    let gantry = Start::new().arg("--tools").arg(tools.to_str().unwrap()).arg("--unsandboxed-processes").run().await;
    assert_eq!(gantry.invoke("demo.echo", json!({})).await.status, 200);
    put_echo(&tools, "echo", &json!({ "execution": { "type": "process", "command": ["cat", "-u"] } }));
    let start = std::time::Instant::now();
    while gantry.invoke("demo.echo", json!({})).await.status == 200 {
        assert!(start.elapsed() < PATIENCE, "what was not published runs: {}", gantry.log());
    }
    assert_eq!(gantry.invoke("demo.echo", json!({})).await.refusal(), (503, "E3108"));
    until_logged(&gantry, "tools/echo` is not taken");
    put_echo(&tools, "echo", &json!({}));
    let start = std::time::Instant::now();
    while gantry.invoke("demo.echo", json!({})).await.status != 200 {
        assert!(start.elapsed() < PATIENCE, "what was put back does not run: {}", gantry.log());
    }
}

#[tokio::test]
async fn a_folder_that_is_added_to_a_running_server_is_kept_and_outlives_a_restart() {
    let home = tempfile::tempdir().unwrap();
    scaffold(home.path());
    let folder = home.path().join("tools/word_stats");
    let data = home.path().join("data");
    let started = Start::new().data(&data).run().await;
    let added = started.cli(&["tool", "add", folder.to_str().unwrap()]).ok().out();
    assert!(added.contains("word_stats 0.1.0 registered"), "{added}");
    let answer = started.invoke("word_stats", json!({ "name": "Ada" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let again = started.cli(&["tool", "add", folder.to_str().unwrap()]).ok().out();
    assert!(again.contains("was registered before with the same content"), "{again}");

    // A version never runs two programs.
    let program = folder.join("main.py");
    std::fs::write(&program, std::fs::read_to_string(&program).unwrap().replace("Hello", "Hi")).unwrap();
    let refused = started.cli(&["tool", "add", folder.to_str().unwrap()]);
    assert_ne!(refused.code(), 0, "{}", refused.out());
    assert!(refused.err().contains("raise `version`"), "{}", refused.err());

    std::fs::remove_dir_all(&folder).unwrap();
    started.shut_down();
    let started = Start::new().data(&data).run().await;
    let answer = started.invoke("word_stats", json!({ "name": "Ada" })).await;
    assert_eq!(answer.body["result"]["greeting"], "Hello, Ada!", "{}", answer.text);
}

#[tokio::test]
async fn a_kept_folder_that_was_changed_in_the_data_directory_does_not_run() {
    let home = tempfile::tempdir().unwrap();
    scaffold(home.path());
    let (folder, data) = (home.path().join("tools/word_stats"), home.path().join("data"));
    let started = Start::new().data(&data).run().await;
    started.cli(&["tool", "add", folder.to_str().unwrap()]).ok();
    assert_eq!(started.invoke("word_stats", json!({ "name": "Ada" })).await.status, 200);
    started.shut_down();

    let program = data.join("tools/word_stats-0.1.0/main.py");
    std::fs::write(&program, std::fs::read_to_string(&program).unwrap().replace("Hello", "Hi")).unwrap();
    let started = Start::new().data(&data).run().await;
    assert_eq!(started.invoke("word_stats", json!({ "name": "Ada" })).await.refusal(), (503, "E3108"));
    let log = started.log();
    assert!(log.contains("word_stats-0.1.0") && log.contains("gantry tool add DIR"), "{log}");
    let doctor = started.cli(&["doctor", "--json"]).json();
    let check =
        doctor["checks"].as_array().unwrap().iter().find(|check| check["check"] == "kept tools").unwrap().clone();
    assert_eq!(check["status"], "failed", "{check}");
    assert!(check["detail"].as_str().unwrap().contains("word_stats-0.1.0"), "{check}");

    let again = started.cli(&["tool", "add", folder.to_str().unwrap()]).ok();
    assert!(again.err().contains("is again what was added"), "{}", again.err());
    let answer = started.invoke("word_stats", json!({ "name": "Ada" })).await;
    assert_eq!(answer.body["result"]["greeting"], "Hello, Ada!", "{}", answer.text);
}

#[tokio::test]
async fn a_folder_is_not_claimed_twice_and_one_that_is_not_admitted_leaves_nothing() {
    let home = tempfile::tempdir().unwrap();
    scaffold(home.path());
    open_to_all(home.path());
    let (tools, data) = (home.path().join("tools"), home.path().join("data"));
    let started = Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap()).run().await;
    // It runs from where it is; a copy would keep both from being taken.
    let added = started.cli(&["tool", "add", tools.join("word_stats").to_str().unwrap()]).ok().out();
    assert!(added.contains("was registered before"), "{added}");
    assert_eq!(started.invoke("word_stats", json!({ "name": "Ada" })).await.status, 200);

    // A compensation that is not there, which only the server knows.
    let broken = home.path().join("broken");
    let lacking = json!({ "side_effect_policy": "compensatable", "compensation_tool_id": "demo.nobody",
        "side_effects": [{ "resource": "order", "op": "CREATE", "scope": "one" }], "idempotency": {} });
    put_echo(&broken, "broken", &lacking);
    let refused = started.cli(&["tool", "add", broken.join("broken").to_str().unwrap()]);
    assert_ne!(refused.code(), 0, "{}", refused.out());
    assert!(refused.err().contains("demo.nobody"), "{}", refused.err());
    assert_eq!(std::fs::read_dir(data.join("tools")).unwrap().count(), 0, "nothing stays");
}

#[tokio::test]
async fn a_folder_that_is_added_without_a_server_is_registered_by_the_next_one() {
    let home = tempfile::tempdir().unwrap();
    scaffold(home.path());
    let (folder, data) = (home.path().join("tools/word_stats"), home.path().join("data"));
    let kept = run(gantry(&data).args(["tool", "add"]).arg(&folder)).ok().out();
    assert!(kept.contains("the next one registers it"), "{kept}");
    let started = Start::new().data(&data).run().await;
    assert_eq!(started.invoke("word_stats", json!({ "name": "Ada" })).await.status, 200);
}
