//! What the administrators of a tenant may put behind Gantry, and what only whoever operates it may: addresses that this
//! machine alone reaches, programs, paths, hosts. (EXEC-011, AUTH-006)

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::http_server::HttpServer;
use crate::support::{Answer, Gantry, Start, manifest, open_to_all};

/// A public address, so that nobody is asked about a name. Nothing is sent to it.
const PUBLIC: &str = "https://8.8.8.8/mcp";

/// A token of somebody who administers a tenant.
async fn chief(gantry: &Gantry, tenant: &str) -> String {
    gantry.mint(json!({ "sub": "did:example:chief", "tenant": tenant, "roles": ["admin", "agent"] })).await
}

async fn put(gantry: &Gantry, token: &str, name: &str, spec: Value) -> Answer {
    gantry.request(Method::PUT, &format!("/v1/servers/{name}"), Some(token), Some(spec)).await
}

async fn servers(gantry: &Gantry, token: &str) -> Vec<String> {
    let answer = gantry.request(Method::GET, "/v1/servers", Some(token), None).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["servers"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap().to_owned()).collect()
}

/// Lets the agents of a tenant use what it has.
async fn activate(gantry: &Gantry, tenant: &str) {
    let body = json!({ "activations": [{ "tenant": tenant, "tool_id": "inside.*", "enabled": true }] });
    let answer = gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

async fn call(gantry: &Gantry, token: &str, tool: &str) -> Answer {
    let body = json!({ "tool_id": tool, "parameters": {} });
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

fn at(url: &str) -> Value {
    json!({ "reach": { "type": "http", "url": url } })
}

fn program(command: &str, args: &[&str], permissions: &[String]) -> Value {
    json!({ "reach": { "type": "stdio", "command": command, "args": args, "permissions": permissions },
        "upkeep": { "start_timeout_seconds": 10 } })
}

fn listing(table: &Value) -> Start {
    Start::new().env("GANTRY_UPSTREAMS__TENANTS", json!([table]).to_string())
}

#[tokio::test]
async fn a_tenants_server_is_not_at_an_address_that_only_this_machine_reaches() {
    let gantry = Gantry::start().await;
    let inside = HttpServer::start().await;
    let token = chief(&gantry, "acme").await;
    let port = inside.address.port();
    for url in [
        inside.url(),
        format!("http://localhost:{port}/mcp"),
        format!("http://[::1]:{port}/mcp"),
        "https://127.0.0.1/mcp".to_owned(),
        "https://10.0.0.7/mcp".to_owned(),
        "https://192.168.1.1/mcp".to_owned(),
        "https://169.254.169.254/latest/meta-data/".to_owned(),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
    ] {
        for kind in ["http", "sse"] {
            let answer = put(&gantry, &token, "inside", json!({ "reach": { "type": kind, "url": url } })).await;
            assert_eq!(answer.refusal(), (403, "E3406"), "{kind} {url}: {}", answer.text);
        }
    }
    let fallback = json!({ "reach": at(PUBLIC)["reach"], "fallbacks": [inside.url()] });
    assert_eq!(put(&gantry, &token, "inside", fallback).await.refusal(), (403, "E3406"));
    let oauth = json!({ "token_url": inside.url(), "client_id": "x" });
    let with_token = json!({ "reach": { "type": "http", "url": PUBLIC, "oauth": oauth } });
    assert_eq!(put(&gantry, &token, "inside", with_token).await.refusal(), (403, "E3406"));
    assert_eq!(servers(&gantry, &token).await, Vec::<String>::new());
    assert_eq!(inside.asked(), 0, "nobody has been asked anything");
    // Whoever operates this may, and nobody can claim to be that.
    let own = put(&gantry, &gantry.token, "inside", inside.spec()).await;
    assert_eq!(own.status, 200, "{}", own.text);
    assert!(inside.asked() > 0, "{}", own.text);
    let mut claiming = inside.spec();
    claiming["set_by"] = json!("operator");
    assert_eq!(put(&gantry, &token, "inside", claiming).await.refusal(), (400, "E3004"));
}

#[tokio::test]
async fn an_address_that_the_operator_has_listed_is_open_to_that_tenant_and_leads_nowhere_else() {
    let (inside, secret) = (HttpServer::start().await, HttpServer::start().await);
    let pointing = HttpServer::redirecting(secret.url()).await;
    let hosts = [&inside, &pointing].map(|server| format!("http://{}", server.address));
    let gantry = listing(&json!({ "tenant": "acme", "hosts": hosts })).run().await;
    let (acme, globex) = (chief(&gantry, "acme").await, chief(&gantry, "globex").await);
    let added = put(&gantry, &acme, "inside", inside.spec()).await;
    assert_eq!(added.status, 200, "{}", added.text);
    activate(&gantry, "acme").await;
    let called = call(&gantry, &acme, "inside.hello").await;
    assert_eq!(called.status, 200, "{}", called.text);
    for (token, spec) in [(&acme, secret.spec()), (&globex, inside.spec())] {
        assert_eq!(put(&gantry, token, "other", spec).await.refusal(), (403, "E3406"));
    }
    let redirected = put(&gantry, &acme, "pointing", pointing.spec()).await;
    assert!(redirected.status != 200 || redirected.text.contains("NO_ANSWER"), "{}", redirected.text);
    assert!(pointing.asked() > 0, "{}", redirected.text);
    assert_eq!(secret.asked(), 0, "a redirect was followed to where the list does not lead");
}

#[tokio::test]
async fn a_tenant_starts_no_program_of_this_machine() {
    let place = TempDir::new().unwrap();
    open_to_all(place.path());
    let path = place.path().to_str().unwrap().to_owned();
    let gantry = Gantry::start().await;
    let token = chief(&gantry, "acme").await;
    for permissions in
        [Vec::new(), vec![format!("filesystem:write:{path}")], vec![format!("network:http://{}", gantry.address())]]
    {
        let script = format!("echo here > {path}/mark");
        let answer = put(&gantry, &token, "shell", program("/bin/sh", &["-c", &script], &permissions)).await;
        assert_eq!(answer.refusal(), (403, "E3206"), "{}", answer.text);
    }
    assert_eq!(servers(&gantry, &token).await, Vec::<String>::new());
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "something was started");
}

/// Waits until the log of a server has a word in it.
async fn logged(gantry: &Gantry, token: &str, name: &str, word: &str) {
    let start = std::time::Instant::now();
    loop {
        let path = format!("/v1/servers/{name}/logs");
        let answer = gantry.request(Method::GET, &path, Some(token), None).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        if answer.text.contains(word) {
            return;
        }
        assert!(start.elapsed() < crate::support::PATIENCE, "`{word}` is not in {}", answer.text);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_program_that_the_operator_has_listed_runs_with_what_is_listed_for_it() {
    let place = TempDir::new().unwrap();
    open_to_all(place.path());
    let open = |name: &str| {
        let path = place.path().canonicalize().unwrap().join(name);
        std::fs::create_dir(&path).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (given, kept) = (open("given"), open("kept"));
    let table = json!({ "tenant": "acme", "commands": ["/bin/sh -c"], "variables": ["WORD"], "paths": [given],
        "hosts": ["http://127.0.0.1:1"] });
    let gantry = listing(&table).run().await;
    let (acme, globex) = (chief(&gantry, "acme").await, chief(&gantry, "globex").await);
    let read = |path: &str| vec![format!("filesystem:read:{path}")];
    let script = ["-c", "echo \"started with $WORD\" >&2"];
    let mut fine = program("/bin/sh", &script, &read(&given));
    fine["reach"]["env"] = json!({ "WORD": "a word" });
    for (token, spec) in [
        (&globex, fine.clone()),
        (&acme, program("/bin/bash", &script, &[])),
        (&acme, program("/bin/sh", &["-x", "-c", "true"], &[])),
        (&acme, program("/bin/sh", &script, &read(&kept))),
        (&acme, program("/bin/sh", &script, &read(place.path().to_str().unwrap()))),
        (&acme, program("/bin/sh", &script, &["network:http://127.0.0.1:2".to_owned()])),
        (&acme, program("/bin/sh", &script, &["network:https:*".to_owned()])),
    ] {
        assert_eq!(put(&gantry, token, "shell", spec).await.refusal(), (403, "E3206"));
    }
    let mut with_another = fine.clone();
    with_another["reach"]["env"]["LD_PRELOAD"] = json!("x");
    assert_eq!(put(&gantry, &acme, "shell", with_another).await.refusal(), (403, "E3206"));
    // It says nothing that is MCP, so it is there without tools; that it was started its log says.
    let added = put(&gantry, &acme, "shell", fine).await;
    assert_eq!(added.status, 200, "{}", added.text);
    logged(&gantry, &acme, "shell", "started with a word").await;
}

async fn on(data: &Path, table: Option<&Value>) -> Gantry {
    table.map_or_else(Start::new, listing).data(data).run().await
}

#[tokio::test]
async fn a_server_that_the_operator_gives_to_a_tenant_stays_the_operators() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let inside = HttpServer::start().await;
    let gantry = on(&data, None).await;
    let added = put(&gantry, &gantry.token, "inside?tenant=acme", inside.spec()).await;
    assert_eq!(added.status, 200, "{}", added.text);
    assert!(added.body.pointer("/spec/set_by").is_none(), "{}", added.text);
    activate(&gantry, "acme").await;
    gantry.kill();
    // Who has put it there outlives the process.
    let gantry = on(&data, None).await;
    let token = chief(&gantry, "acme").await;
    let called = call(&gantry, &token, "inside.hello").await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert_eq!(put(&gantry, &token, "inside", inside.spec()).await.refusal(), (403, "E3406"));
    let called = call(&gantry, &token, "inside.hello").await;
    assert_eq!(called.status, 200, "what was refused has changed nothing: {}", called.text);
}

#[tokio::test]
async fn what_is_taken_off_the_list_does_not_run_any_more() {
    let home = TempDir::new().unwrap();
    let data = home.path().join("data");
    let inside = HttpServer::start().await;
    let table = json!({ "tenant": "acme", "hosts": [format!("http://{}", inside.address)] });
    let gantry = on(&data, Some(&table)).await;
    let token = chief(&gantry, "acme").await;
    assert_eq!(put(&gantry, &token, "inside", inside.spec()).await.status, 200);
    activate(&gantry, "acme").await;
    assert_eq!(call(&gantry, &token, "inside.hello").await.status, 200);
    gantry.kill();
    let gantry = on(&data, None).await;
    let before = inside.asked();
    let called = call(&gantry, &token, "inside.hello").await;
    assert_ne!(called.status, 200, "{}", called.text);
    assert_eq!(inside.asked(), before);
}

#[tokio::test]
async fn the_home_of_the_servers_user_is_given_to_no_tool_that_only_declares_it() {
    let place = TempDir::new().unwrap();
    open_to_all(place.path());
    let root = place.path().canonicalize().unwrap();
    let (home, tools) = (root.join("somebody"), root.join("tools/look"));
    std::fs::create_dir_all(home.join("notes")).unwrap();
    std::fs::create_dir_all(&tools).unwrap();
    let notes = home.join("notes").to_str().unwrap().to_owned();
    let manifest = json!({ "tool_id": "look", "namespace": "t", "version": "1.0.0", "name": "Look", "provider": "Test",
        "description": "Looks whether a folder is there.", "protocol": "native", "side_effect_policy": "pure",
        "timeout_class": "long_running", "parameters": { "type": "object" }, "result_schema": {},
        "required_permissions": [format!("filesystem:read:{notes}")],
        "execution": { "type": "process", "command": ["sh", "main.sh"] } });
    std::fs::write(tools.join("tool.json"), manifest.to_string()).unwrap();
    std::fs::write(tools.join("main.sh"), format!("cat >/dev/null; [ -d {notes} ] && echo '{{\"there\":true}}'\n"))
        .unwrap();
    let start = || {
        let folder = root.join("tools");
        Start::new().env("HOME", home.to_str().unwrap()).arg("--tools").arg(folder.to_str().unwrap())
    };
    let gantry = start().run().await;
    let refused = gantry.invoke("t.look", json!({})).await;
    assert_eq!(refused.code(), "E3405", "{}", refused.text);
    assert!(refused.text.contains("allowed_paths"), "{}", refused.text);
    let gantry = start().env("GANTRY_SANDBOX__ALLOWED_PATHS", &notes).run().await;
    let answer = gantry.invoke("t.look", json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

#[tokio::test]
async fn an_alias_is_a_name_that_no_tool_of_a_server_gets() {
    let inside = HttpServer::start().await;
    let host = format!("http://{}", inside.address);
    let gantry = listing(&json!({ "tenant": "acme", "hosts": [host] })).run().await;
    let aliased = gantry.register(manifest(json!({ "tool_id": "aliased", "aliases": ["hello"] }))).await;
    assert_eq!(aliased.status, 201, "{}", aliased.text);
    let meant = async || {
        let answer = gantry.invoke("hello", json!({ "expression": "6*7" })).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.body["result"]["result"].clone()
    };
    assert_eq!(meant().await, 42);
    let chief = chief(&gantry, "acme").await;
    for (token, name) in [(&gantry.token, "shared"), (&chief, "own")] {
        let mut spec = inside.spec();
        spec["namespace"] = "".into();
        let added = put(&gantry, token, name, spec).await;
        assert_eq!(added.status, 200, "{}", added.text);
        let listed = gantry.request(Method::GET, &format!("/v1/servers/{name}/tools"), Some(token), None).await;
        let id = listed.body["tools"][0]["tool_id"].as_str().unwrap_or_default();
        assert!(id.starts_with("hello_"), "{name}: {}", listed.text);
        assert_eq!(meant().await, 42, "the alias leads where it led");
    }
    let named = manifest(json!({ "tool_id": "hello", "namespace": null }));
    assert_eq!(gantry.register(named).await.refusal(), (409, "E3103"));
    assert_eq!(meant().await, 42);
}
