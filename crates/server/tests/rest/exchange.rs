//! The token endpoint, as clients of OAuth meet it, and the metadata that leads there.

use serde_json::{Value, json};

use crate::client::{Reply, form, request};
use crate::stage::{ADMIN, Stage};

const GRANT: (&str, &str) = ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange");
const JWT: (&str, &str) = ("subject_token_type", "urn:ietf:params:oauth:token-type:jwt");
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";

/// The fields of a form, and the status, the word and the code it is refused with.
type Case<'a> = (&'a [(&'a str, &'a str)], u16, &'a str, &'a str);

async fn exchange(stage: &Stage, fields: &[(&str, &str)]) -> Reply {
    stage.raw(form("/oauth/token", fields, "").as_bytes(), false).await
}

/// The stage's user: a token that may be handed on.
async fn user(stage: &Stage) -> String {
    let wish = json!({ "sub": "ann", "roles": [], "tools": [{ "tool_id": "demo.*", "version_range": "^1" }],
        "scopes": ["filesystem:read:/data"], "budget": { "calls": 9 }, "ttl_seconds": 600 });
    stage.mint(wish).await
}

#[tokio::test]
async fn a_form_yields_a_narrower_token_that_works() {
    let stage = Stage::new().await;
    let ann = user(&stage).await;
    let reply = exchange(
        &stage,
        &[
            GRANT,
            JWT,
            ("subject_token", &ann),
            ("requested_token_type", ACCESS_TOKEN),
            ("audience", "gantry"),
            ("resource", "http://gantry/mcp"),
            ("client_id", "some-client"),
            ("scope", "filesystem:read:/data/in filesystem:read:/data/out"),
            ("sub", "bot"),
            ("tools", "[{\"tool_id\":\"demo.echo_tool\",\"version_range\":\"~1.0\"}]"),
            ("limits", "[{\"tool_id\":\"*\",\"argument\":\"/text\",\"one_of\":[\"yes\"]}]"),
            ("budget", "{\"calls\":2}"),
            ("roles", "agent"),
            ("ttl_seconds", "60"),
            ("session_id", "s-1"),
            ("actor_token", ""),
        ],
    )
    .await;
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let mut answer = reply.json();
    let child = answer["access_token"].take().as_str().unwrap().to_owned();
    assert_eq!(
        answer,
        json!({ "access_token": null, "issued_token_type": ACCESS_TOKEN, "token_type": "Bearer", "expires_in": 60,
            "scope": "filesystem:read:/data/in filesystem:read:/data/out" })
    );
    for (tool, text, expected) in [
        ("demo.echo_tool", "yes", "200 -"),
        ("demo.echo_tool", "no", "403 E3206"),
        ("demo.fail_tool", "yes", "403 E3204"),
        ("demo.echo_tool", "yes", "200 -"),
        ("demo.echo_tool", "yes", "402 E3211"),
    ] {
        let body = json!({ "tool_id": tool, "parameters": { "text": text } });
        let reply = stage.ask("POST", "/v1/tools/invoke", Some(&child), Some(body)).await;
        assert_eq!(format!("{} {}", reply.status, reply.code()), expected, "{tool} {text}");
    }
    // What is handed on ends with what it was made from.
    assert_eq!(stage.admin("POST", "/v1/tokens/revoke", Some(json!({ "sub": "ann" }))).await.status, 200);
    assert_eq!(stage.ask("GET", "/v1/tools", Some(&child), None).await.code(), "E3201");
}

#[tokio::test]
async fn json_is_taken_too_and_what_is_not_asked_for_is_inherited() {
    let stage = Stage::new().await;
    let ann = user(&stage).await;
    let body = json!({ "grant_type": GRANT.1, "subject_token": ann, "subject_token_type": JWT.1, "sub": "bot",
        "tools": [{ "tool_id": "demo.echo_tool", "version_range": "1.0.0" }], "roles": ["agent"], "budget": { "calls": 1 } });
    // The same token once more in the header does no harm.
    let reply = stage.ask("POST", "/oauth/token", Some(&ann), Some(body)).await;
    assert_eq!(reply.status, 200, "{}", String::from_utf8_lossy(&reply.body));
    let answer = reply.json();
    assert_eq!((&answer["issued_token_type"], &answer["expires_in"]), (&json!(JWT.1), &json!(600)));
    assert_eq!(answer["scope"], "filesystem:read:/data");
}

#[tokio::test]
async fn refusals_have_the_form_of_oauth() {
    let stage = Stage::new().await;
    let ann = user(&stage).await;
    let subject = ("subject_token", ann.as_str());
    let cases: &[Case<'_>] = &[
        (&[JWT, subject], 400, "invalid_request", "E3004"),
        (&[("grant_type", "client_credentials")], 400, "unsupported_grant_type", "E3004"),
        (&[GRANT, JWT], 400, "invalid_request", "E3004"),
        (&[GRANT, subject], 400, "invalid_request", "E3004"),
        (&[GRANT, subject, ("subject_token_type", "saml")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("requested_token_type", "saml")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("actor_token", "x")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, subject], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("limts", "[]")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("tools", "demo.*")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("tools", "[{\"tool_id\":\"*x\"}]")], 400, "invalid_request", "E3004"),
        (
            &[GRANT, JWT, subject, ("limits", "[{\"tool_id\":\"*\",\"argument\":\"/a\"}]")],
            400,
            "invalid_request",
            "E3004",
        ),
        (&[GRANT, JWT, subject, ("ttl_seconds", "0")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("ttl_seconds", "soon")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("roles", "king")], 400, "invalid_request", "E3004"),
        (&[GRANT, JWT, subject, ("audience", "https://other.example")], 400, "invalid_target", "E3004"),
        (&[GRANT, JWT, subject, ("resource", "http://gantry.evil/")], 400, "invalid_target", "E3004"),
        (&[GRANT, JWT, subject, ("scope", "nonsense")], 400, "invalid_scope", "E3004"),
        (&[GRANT, JWT, subject, ("scope", "filesystem:read:/")], 403, "invalid_scope", "E3206"),
        (&[GRANT, JWT, subject, ("tools", "[{\"tool_id\":\"*\"}]")], 403, "invalid_scope", "E3206"),
        (&[GRANT, JWT, subject, ("budget", "{\"calls\":10}")], 403, "invalid_scope", "E3206"),
        (&[GRANT, JWT, subject, ("ttl_seconds", "601")], 403, "invalid_scope", "E3206"),
        (&[GRANT, JWT, subject, ("roles", "admin")], 403, "invalid_scope", "E3206"),
        (&[GRANT, JWT, subject, ("sub", "did:example:nobody")], 404, "invalid_request", "E3207"),
        (&[GRANT, JWT, ("subject_token", ADMIN)], 403, "invalid_request", "E3206"),
        (&[GRANT, JWT, ("subject_token", &stage.expired)], 401, "invalid_request", "E3201"),
        (&[GRANT, JWT, ("subject_token", "garbage")], 401, "invalid_request", "E3203"),
    ];
    for (fields, status, error, code) in cases {
        let reply = exchange(&stage, fields).await;
        check(&reply, *status, error, code);
        assert_eq!(reply.header("www-authenticate").is_some(), *status == 401, "{fields:?}");
        assert!(!String::from_utf8_lossy(&reply.body).contains(&ann));
    }
}

#[tokio::test]
async fn bodies_and_headers_that_are_wrong_are_refused_in_the_form_of_oauth() {
    let stage = Stage::new().await;
    let ann = user(&stage).await;
    let fields = [GRANT, JWT, ("subject_token", ann.as_str())];
    let with = |header: &str| form("/oauth/token", &fields, header);
    let raw = |kind: &str, body: &str| {
        format!(
            "POST /oauth/token HTTP/1.1\r\nhost: g\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let form_type = "application/x-www-form-urlencoded";
    for (text, status, code) in [
        (with("authorization: Bearer other\r\n"), 400, "E3004"),
        (with("authorization: Basic YTpi\r\n"), 400, "E3004"),
        (raw("text/plain", "x"), 415, "E3006"),
        (raw(form_type, ""), 400, "E3004"),
        (raw(form_type, "grant_type=%ff"), 400, "E3004"),
        (raw(form_type, &"x".repeat(70_000)), 413, "E3005"),
        (raw("application/json", "{\"grant_type\":1}"), 400, "E3004"),
        (raw("application/json", "[]"), 400, "E3004"),
        (raw("application/json", "{\"a\":1,\"a\":1}"), 400, "E3004"),
    ] {
        check(&stage.raw(text.as_bytes(), false).await, status, "invalid_request", code);
    }
    let get = stage.raw(request("GET", "/oauth/token", None, None).as_bytes(), false).await;
    assert_eq!((get.status, get.header("allow")), (405, Some("POST")));
}

#[track_caller]
fn check(reply: &Reply, status: u16, error: &str, code: &str) {
    let text = String::from_utf8_lossy(&reply.body);
    assert_eq!((reply.status, reply.header("content-type")), (status, Some("application/json")), "{text}");
    assert_eq!(reply.header("cache-control"), Some("no-store"));
    let body = reply.json();
    assert_eq!((body["error"].as_str(), body["code"].as_str()), (Some(error), Some(code)), "{text}");
    assert_eq!(body["trace_id"].as_str(), reply.header("x-trace-id"));
    let description = body["error_description"].as_str().unwrap();
    assert!(description.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\'), "{description}");
}

#[tokio::test]
async fn a_token_cannot_be_handed_on_for_ever_nor_in_a_circle() {
    let stage = Stage::new().await;
    let mut token = user(&stage).await;
    let mut last = Value::Null;
    for holder in 0..20 {
        let sub = format!("bot-{holder}");
        let reply = exchange(&stage, &[GRANT, JWT, ("subject_token", &token), ("sub", &sub)]).await;
        last = reply.json();
        if reply.status != 200 {
            break;
        }
        token = last["access_token"].as_str().unwrap().to_owned();
        let back = exchange(&stage, &[GRANT, JWT, ("subject_token", &token), ("sub", "ann")]).await;
        assert_eq!((back.status, back.json()["code"].as_str()), (403, Some("E3206")), "{holder}");
    }
    assert_eq!(last["code"], "E3206");
}

#[tokio::test]
async fn the_metadata_names_the_address_that_was_asked() {
    let stage = Stage::new().await;
    let path = "/.well-known/oauth-protected-resource";
    let plain = stage.ask("GET", path, None, None).await;
    assert_eq!((plain.status, plain.header("cache-control")), (200, Some("no-store")));
    let plain = plain.json();
    assert_eq!(
        (&plain["resource"], &plain["authorization_servers"]),
        (&json!("http://gantry"), &json!(["http://gantry"]))
    );
    assert_eq!(plain["bearer_methods_supported"], json!(["header"]));
    let proxied = format!("GET {path} HTTP/1.1\r\nhost: tools.example.com\r\nx-forwarded-proto: https\r\n\r\n");
    assert_eq!(stage.raw(proxied.as_bytes(), false).await.json()["resource"], "https://tools.example.com");
    let nowhere = format!("GET {path} HTTP/1.1\r\nhost: a/b\r\n\r\n");
    assert_eq!(stage.raw(nowhere.as_bytes(), false).await.code(), "E3206");
}
