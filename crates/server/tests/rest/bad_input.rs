//! Bad requests, each with the status and the code it gets. Add a case, not a function.

use serde_json::{Value, json};

use crate::client::request;
use crate::stage::{ADMIN, Stage, manifest};

async fn check(stage: &Stage, raw: &str, expected: (u16, &str), says: &str) {
    let reply = stage.raw(raw.as_bytes(), false).await;
    let text = String::from_utf8_lossy(&reply.body).into_owned();
    assert_eq!((reply.status, reply.code().as_str()), expected, "{raw}\n{text}");
    assert!(text.contains(says), "{says}: {text}");
    if expected.1 == "-" {
        return;
    }
    let problem = reply.json();
    assert_eq!(problem["type"], format!("https://gantry.dev/errors/{}", expected.1));
    assert_eq!(problem["error"]["trace_id"], reply.header("x-trace-id").unwrap());
    assert_eq!(problem["detail"], problem["error"]["message"]);
    assert!(!problem["error"]["resolution"].as_str().unwrap().is_empty());
    assert!(!text.contains(ADMIN));
}

#[tokio::test]
async fn bodies_that_are_wrong_are_refused_with_place_and_remedy() {
    let stage = Stage::new().await;
    let deep = format!("{{\"tool_id\":{}1{}}}", "[".repeat(70), "]".repeat(70));
    let calls: Vec<Value> = (0..11).map(|_| json!({ "tool_id": "demo.echo_tool" })).collect();
    let eleven = json!({ "calls": calls }).to_string();
    for (path, body, expected, says) in [
        ("/v1/tools/invoke", "", (400, "E3004"), "there is no JSON here"),
        (
            "/v1/invocations/019b0000-0000-7000-8000-00000000ffff/resolve",
            "{\"outcome\":\"did_not_happen\",\"result\":1}",
            (400, "E3004"),
            "has no result",
        ),
        ("/v1/tools/invoke", "{\"tool_id\": \"a\", \"tool_id\": \"b\"}", (400, "E3004"), "stands twice"),
        ("/v1/tools/invoke", "{\n\"tool_id\": NaN}", (400, "E3004"), "\"line\":2"),
        ("/v1/tools/invoke", "[1,2", (400, "E3004"), "ends too early"),
        ("/v1/tools/invoke", &deep, (400, "E3004"), "nesting deeper"),
        ("/v1/tools/invoke", "[]", (400, "E3004"), "must be an object, not an array"),
        ("/v1/tools/invoke", "{}", (400, "E3004"), "`tool_id` is missing"),
        ("/v1/tools/invoke", "{\"tool_id\":\"x\",\"paramters\":{}}", (400, "E3004"), "did you mean `parameters`?"),
        ("/v1/tools/invoke", "{\"tool_id\":\"demo.ecko_tool\"}", (404, "E3101"), "did you mean `demo.echo_tool`?"),
        ("/v1/tools/invoke", "{\"tool_id\":\"demo.echo_tool\",\"tool_version\":\"?\"}", (400, "E3004"), "tool_version"),
        ("/v1/tools/invoke", "{\"tool_id\":\"demo.echo_tool\",\"tool_version\":\"^2\"}", (409, "E3103"), "1.0.0"),
        ("/v1/tools/invoke", "{\"tool_id\":\"demo.echo_tool\"}", (400, "E3301"), "text"),
        (
            "/v1/tools/invoke",
            "{\"tool_id\":\"demo.fail_tool\",\"parameters\":{\"text\":\"\"}}",
            (500, "E3401"),
            "fell over",
        ),
        (
            "/v1/tools/invoke",
            "{\"tool_id\":\"demo.echo_tool\",\"parameters\":{\"text\":\"unredactable\"}}",
            (500, "E3304"),
            "fewer levels",
        ),
        (
            "/v1/tools/invoke",
            "{\"tool_id\":\"demo.panic_tool\",\"parameters\":{\"text\":\"\"}}",
            (500, "E3000"),
            "inside the server",
        ),
        (
            "/v1/tools/invoke",
            "{\"tool_id\":\"demo.echo_tool\",\"parameters\":{\"text\":\"\"},\"execution_options\":{\"dry_run\":true}}",
            (501, "E3010"),
            "dry_run",
        ),
        ("/v1/tools/invoke/batch", "{\"calls\":[]}", (400, "E3004"), "0 calls"),
        ("/v1/tools/invoke/batch", &eleven, (400, "E3004"), "11 calls"),
        (
            "/v1/tools/invoke/batch",
            "{\"calls\":[{\"tool_id\":\"x\",\"critcal\":true}]}",
            (400, "E3004"),
            "in `calls[0]`",
        ),
        (
            "/v1/tools/invoke/batch",
            "{\"calls\":[{\"tool_id\":\"x\",\"critical\":1}]}",
            (400, "E3004"),
            "calls[0].critical",
        ),
        ("/v1/tools/register", "{}", (422, "E3105"), "reasons"),
        ("/v1/tools/register", "7", (422, "E3105"), "reasons"),
        ("/v1/tools/compare", "{\"old\":{}}", (400, "E3004"), "`new` is missing"),
        ("/v1/tools/compare", "{\"old\":7,\"new\":{}}", (400, "E3004"), "neither a schema nor a version"),
        (
            "/v1/tools/compare",
            "{\"old\":{\"tool_id\":\"x\",\"vresion\":\"1\"},\"new\":{}}",
            (400, "E3004"),
            "did you mean `version`?",
        ),
        ("/v1/tools/compare", "{\"old\":{\"tool_id\":\"demo.nope\"},\"new\":{}}", (404, "E3101"), "demo.nope"),
        ("/v1/tokens", "{\"sub\":\"a b\"}", (400, "E3004"), "subject"),
        ("/v1/tokens", "{\"sub\":\"a\",\"ttl_seconds\":0}", (400, "E3004"), "ttl_seconds"),
        ("/v1/tokens", "{\"sub\":\"a\",\"roles\":[\"admim\"]}", (400, "E3004"), "did you mean `admin`?"),
        ("/v1/tokens", "{\"sub\":\"a\",\"tools\":[{\"tool_id\":\"*x\"}]}", (400, "E3004"), "`tools[0].tool_id`"),
        ("/v1/tokens", "{\"sub\":\"a\",\"limits\":[{\"tool_id\":\"*\"}]}", (400, "E3004"), "`limits[0]`"),
        (
            "/v1/tokens",
            "{\"sub\":\"a\",\"limits\":[{\"tool_id\":\"*\",\"argument\":\"/a\"}]}",
            (400, "E3004"),
            "at least one of",
        ),
        ("/v1/tokens", "{\"sub\":\"a\",\"budget\":{\"cals\":1}}", (400, "E3004"), "did you mean `calls`?"),
        ("/v1/tokens", "{\"sub\":\"a\",\"budget\":{\"calls\":-1}}", (400, "E3004"), "`budget.calls`"),
        ("/v1/tokens/revoke", "{}", (400, "E3004"), "exactly one"),
        ("/v1/tokens/revoke", "{\"jti\":\"a\",\"sub\":\"b\"}", (400, "E3004"), "exactly one"),
        ("/v1/tokens/revoke", "{\"jit\":\"a\"}", (400, "E3004"), "did you mean `jti`?"),
        ("/v1/tools/explain", "{\"parameters\":{}}", (400, "E3004"), "`tool_id` is missing"),
        ("/v1/tools/demo.echo_tool/deprecate", "{\"version\":\"1\"}", (400, "E3004"), "`version`"),
        (
            "/v1/tools/demo.echo_tool/deprecate",
            "{\"migration_guide_url\":\"javascript:x\"}",
            (400, "E3004"),
            "not a web address",
        ),
        ("/v1/tools/demo.echo_tool/deprecate", "{\"version\":\"9.0.0\"}", (404, "E3102"), "9.0.0"),
        ("/v1/tools/demo.nope/remove", "", (404, "E3101"), "demo.nope"),
    ] {
        check(&stage, &request("POST", path, Some(ADMIN), Some(body)), expected, says).await;
    }
}

#[tokio::test]
async fn access_that_is_written_wrongly_is_refused_and_nothing_is_changed() {
    let stage = Stage::new().await;
    let many: Vec<Value> =
        (0..1001).map(|n| json!({ "tenant": format!("t{n}"), "agent_id": "a", "tool_id": "*" })).collect();
    let too_many = json!({ "activations": many }).to_string();
    for (path, body, expected, says) in [
        ("/v1/tenants", "{}", (400, "E3004"), "`tenants` is missing"),
        ("/v1/tenants", "{\"tenants\":[{\"tenant\":\"a b\"}]}", (400, "E3004"), "tenants[0]"),
        ("/v1/tenants", "{\"tenants\":[{\"tenant\":\"a\",\"tenant_id\":\"a\"}]}", (400, "E3004"), "given twice"),
        (
            "/v1/tenants",
            "{\"tenants\":[{\"tenant\":\"a\",\"visibility\":\"readonly\"}]}",
            (400, "E3004"),
            "did you mean `read_only`?",
        ),
        (
            "/v1/tenants",
            "{\"tenants\":[{\"tenant\":\"a\",\"tools\":[\"x*\"]}]}",
            (400, "E3004"),
            "`tenants[0].tools[0]`",
        ),
        ("/v1/tenants", "{\"tenants\":[{\"tenant\":\"local\",\"enabled\":false}]}", (400, "E3004"), "home tenant"),
        ("/v1/agents", "{\"agents\":[{}]}", (400, "E3004"), "`agent_id` is missing in `agents[0]`"),
        ("/v1/agents", "{\"agents\":[{\"agent_id\":\"a\",\"document\":\"x\"}]}", (400, "E3004"), "must be an object"),
        (
            "/v1/agents",
            "{\"agents\":[{\"agent_id\":\"did:web:a.example\",\"document\":{\"id\":\"did:web:b.example\"}}]}",
            (400, "E3004"),
            "DID document",
        ),
        ("/v1/activations", "{\"activations\":[{}]}", (400, "E3004"), "`tool_id` is missing"),
        ("/v1/activations", &too_many, (400, "E3004"), "1000"),
        (
            "/v1/activations",
            "{\"activations\":[{\"tool_id\":\"*\",\"policy_overrides\":{\"requires_approval\":false}}]}",
            (400, "E3004"),
            "stricter",
        ),
        (
            "/v1/activations",
            "{\"activations\":[{\"tool_id\":\"*\",\"policy_overrides\":{\"redcat\":[]}}]}",
            (400, "E3004"),
            "did you mean `redact`?",
        ),
        ("/v1/policies", "{\"policies\":7}", (400, "E3004"), "`policies` must be a string"),
        ("/v1/policies", "{\"policies\":\"permit (\"}", (400, "E3004"), "problems"),
    ] {
        check(&stage, &request("PUT", path, Some(ADMIN), Some(body)), expected, says).await;
    }
    assert_eq!(stage.admin("GET", "/v1/tenants", None).await.json()["tenants"].as_array().unwrap().len(), 1);
    assert_eq!(stage.admin("GET", "/v1/agents", None).await.json()["agents"], json!([]));
    assert_eq!(stage.admin("GET", "/v1/activations", None).await.json()["activations"], json!([]));
    assert_eq!(stage.admin("GET", "/v1/policies", None).await.json()["version"], Value::Null);
}

#[tokio::test]
async fn requests_that_are_wrong_outside_their_body_are_refused() {
    let stage = Stage::new().await;
    let get = |path: &str| request("GET", path, Some(ADMIN), None);
    let with = |header: &str| {
        format!(
            "POST /v1/tools/invoke HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {ADMIN}\r\n{header}\r\ncontent-length: 2\r\n\r\n{{}}"
        )
    };
    let headers = |n: usize| (0..n).map(|i| format!("x-{i}: 1\r\n")).collect::<String>();
    for (raw, expected, says) in [
        (get("/nowhere"), (404, "E3008"), "/nowhere"),
        (get("/v1/tools/"), (404, "E3008"), "/v1/tools/"),
        (get("/v1/tools/demo.echo_tool/versions/"), (404, "E3008"), "versions"),
        (request("DELETE", "/v1/tools", Some(ADMIN), None), (405, "E3007"), "DELETE"),
        (request("DELETE", "/v1/agents", Some(ADMIN), None), (405, "E3007"), "DELETE"),
        (request("DELETE", "/v1/agents/nobody", Some(ADMIN), None), (404, "E3207"), "`nobody`"),
        (request("DELETE", "/v1/agents/a%20b", Some(ADMIN), None), (400, "E3004"), "subject"),
        (request("DELETE", "/v1/agents/a?tenat=x", Some(ADMIN), None), (400, "E3004"), "did you mean `tenant`?"),
        (get("/v1/agents?tenant=a%20b"), (400, "E3004"), "tenant"),
        (get("/v1/activations?tenant=x&tenant=y"), (400, "E3004"), "stands twice"),
        (get("/v1/policies?version=1"), (400, "E3004"), "`version`"),
        (get("/v1/policies/versions/0.1"), (400, "E3004"), "whole number"),
        (get("/v1/policies/versions/7"), (404, "E3008"), "no version 7"),
        (get("/v1/tenants/nowhere/tools"), (404, "E3008"), "`nowhere`"),
        (get("/v1/agents/nobody/tools"), (404, "E3207"), "`nobody`"),
        (get("/v1/agents/nobody/tools/unavailable?x=1"), (400, "E3004"), "`x`"),
        (get("/v1/tools/invoke/batch"), (405, "E3007"), "GET"),
        (get("/v1/tools?page=0"), (400, "E3004"), "`page`"),
        (get("/v1/tools?page_size=201"), (400, "E3004"), "from 1 to 200"),
        (get("/v1/tools?lifecycle=dead"), (400, "E3004"), "`lifecycle`"),
        (get("/v1/tools?tier=x"), (400, "E3004"), "catalog, catalogue, tenant, agent"),
        (get("/v1/tools?categroy=x"), (400, "E3004"), "did you mean `category`?"),
        (get("/v1/tools/search"), (400, "E3004"), "`q` is missing"),
        (get("/v1/tools/search?q=%20"), (400, "E3004"), "`q` is missing"),
        (get("/v1/tools/search?q=x&limit=101"), (400, "E3004"), "from 1 to 100"),
        (get("/v1/tools/demo.echo_tool/versions/nonsense"), (400, "E3004"), "version"),
        (get("/v1/tools/demo.echo_tool/versions/7.0.0"), (404, "E3102"), "7.0.0"),
        (get("/v1/tools/%ff"), (400, "E3004"), "UTF-8"),
        (with("x: y"), (415, "E3006"), "no content-type"),
        (with("content-type: text/plain"), (415, "E3006"), "text/plain"),
        (with("content-type: application/json; charset=latin1"), (415, "E3006"), "latin1"),
        (
            with(&format!("authorization: Bearer {ADMIN}\r\ncontent-type: application/json")),
            (400, "E3004"),
            "stands twice",
        ),
        (format!("GET / HTTP/1.1\r\nhost: g\r\n{}\r\n", headers(70)), (400, "E3004"), "more than 64 headers"),
        (format!("GET / HTTP/1.1\r\nhost: g\r\n{}\r\n", headers(200)), (431, "-"), ""),
        (format!("GET / HTTP/1.1\r\nhost: g\r\nx: {}\r\n\r\n", "y".repeat(40_000)), (431, "-"), ""),
        ("GET / HTTP/1.1\r\nhost g\r\n\r\n".to_owned(), (400, "-"), ""),
        ("nonsense\r\n\r\n".to_owned(), (400, "-"), ""),
    ] {
        check(&stage, &raw, expected, says).await;
    }
    let allowed = stage.ask("PUT", "/v1/tools", Some(ADMIN), None).await;
    assert_eq!(allowed.header("allow"), Some("GET,HEAD"));
    let allowed = stage.ask("GET", "/v1/tools/invoke", Some(ADMIN), None).await;
    assert_eq!(allowed.header("allow"), Some("POST"));
}

#[tokio::test]
async fn without_a_token_the_body_is_not_even_looked_at() {
    let stage = Stage::new().await;
    let reply = stage.raw(request("POST", "/v1/tools/invoke", None, Some("not json")).as_bytes(), false).await;
    assert_eq!((reply.status, reply.code().as_str()), (401, "E3203"));
    // A large body of a stranger is refused before it is read: it is never sent here.
    let head = "POST /v1/tools/invoke HTTP/1.1\r\nhost: g\r\nauthorization: Bearer x\r\ncontent-type: application/json\r\ncontent-length: 900000\r\n\r\n";
    let reply = stage.raw(head.as_bytes(), false).await;
    assert_eq!((reply.status, reply.code().as_str()), (401, "E3203"));
}

#[tokio::test]
async fn every_reason_against_a_manifest_is_named_at_once() {
    let stage = Stage::new().await;
    let bad = manifest("x", "1", &json!({ "name": null, "protocol": "smoke", "timeout_clas": "standard" }));
    let reply = stage.admin("POST", "/v1/tools/register", Some(bad)).await;
    assert_eq!((reply.status, reply.code().as_str()), (422, "E3105"));
    assert!(reply.json()["error"]["details"]["reasons"].as_array().unwrap().len() >= 3);
}
