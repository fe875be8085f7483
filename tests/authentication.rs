//! Who asks comes first: a token is judged before anything else of a request, whatever the door, and subjects follow one rule.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Answer, Gantry, Start, client};

/// A good token with another signature.
async fn forged(gantry: &Gantry) -> String {
    let good = gantry.mint(json!({})).await;
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let first = if signature.starts_with('A') { 'B' } else { 'A' };
    format!("{signed}.{first}{}", signature.split_at(1).1)
}

async fn send_broken(gantry: &Gantry, method: &str, path: &str, token: &str) -> Answer {
    let method: Method = method.to_uppercase().parse().unwrap();
    let request = client().request(method, format!("{}{path}", gantry.url)).bearer_auth(token);
    Answer::of(request.header("content-type", "application/json").body("{ broken").send().await.unwrap()).await
}

#[tokio::test]
async fn a_forged_token_with_a_broken_body_is_401_on_every_route_of_the_document() {
    let gantry = Start::new().env("GANTRY_IDENTITY__AUTH_FAILURES_PER_MINUTE", "100000").run().await;
    let token = forged(&gantry).await;
    let document = gantry.get("/openapi.json").await.body;
    let mut walked = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            // What everybody may ask has no token to judge.
            if operation["security"] != json!([{ "token": [] }]) {
                continue;
            }
            let parts: Vec<&str> =
                path.split('/').map(|part| if part.starts_with('{') { "%20x" } else { part }).collect();
            let path = parts.join("/");
            let answer = send_broken(&gantry, method, &path, &token).await;
            assert_eq!(answer.refusal(), (401, "E3202"), "{method} {path}: {}", answer.text);
            walked += 1;
        }
    }
    assert!(walked > 60, "{walked}");
    for path in ["/mcp", "/mcp/desk", "/mcp/%20x", "/mcp/%FF"] {
        for method in ["POST", "GET", "DELETE", "PUT"] {
            let mcp = send_broken(&gantry, method, path, &token).await;
            assert_eq!(mcp.refusal(), (401, "E3202"), "{method} {path}: {}", mcp.text);
        }
    }
    // Whoever is known hears what is wrong, as everywhere.
    let unread = send_broken(&gantry, "POST", "/mcp/%FF", &gantry.token).await;
    assert_eq!(unread.refusal(), (400, "E3004"), "{}", unread.text);
    let exchange = json!({ "grant_type": "something", "subject_token": token, "nonsense": 1 });
    let exchanged = gantry.request(Method::POST, "/oauth/token", None, Some(exchange)).await;
    assert_eq!((exchanged.status, exchanged.body["code"].as_str()), (401, Some("E3202")), "{}", exchanged.text);
}

#[tokio::test]
async fn forged_tokens_count_as_failed_authentications_whatever_the_body() {
    let gantry = Start::new().env("GANTRY_IDENTITY__AUTH_FAILURES_PER_MINUTE", "5").run().await;
    let token = forged(&gantry).await;
    for path in ["/v1/tools/invoke", "/v1/tokens", "/mcp/%FF", "/rpc", "/v1/tools/invoke/batch"] {
        assert_eq!(send_broken(&gantry, "POST", path, &token).await.status, 401, "{path}");
    }
    let held = send_broken(&gantry, "POST", "/v1/tools/invoke", &token).await;
    assert_eq!(held.refusal(), (429, "E3003"), "{}", held.text);
    // Whoever has a good token does not wait for it.
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200);
}

#[tokio::test]
async fn what_stands_in_a_query_that_nothing_reads_is_refused_where_tokens_are_narrowed_and_at_the_mcp_door() {
    let gantry = Gantry::start().await;
    let ann = gantry.mint(json!({ "sub": "ann" })).await;
    let exchange = json!({ "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "subject_token": ann,
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt" });
    let wide = gantry.request(Method::POST, "/oauth/token?ttl_seconds=60", None, Some(exchange.clone())).await;
    assert_eq!((wide.status, wide.body["code"].as_str()), (400, Some("E3004")), "{}", wide.text);
    assert_eq!(gantry.request(Method::POST, "/oauth/token", None, Some(exchange)).await.status, 200);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let asked = gantry.request(Method::POST, "/mcp?dry_run=true", Some(&ann), Some(ping)).await;
    assert_eq!(asked.refusal(), (400, "E3004"), "{}", asked.text);
}

#[tokio::test]
async fn calls_without_a_token_fill_no_audit_log() {
    const RECORDED: u64 = 5;
    let gantry = Start::new().env("GANTRY_IDENTITY__AUTH_FAILURES_PER_MINUTE", RECORDED.to_string()).run().await;
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "1" } });
    for _ in 0..40 {
        let refused = gantry.request(Method::POST, "/v1/tools/invoke", None, Some(body.clone())).await;
        assert_eq!(refused.refusal(), (401, "E3203"), "{}", refused.text);
    }
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200);
    let log = std::fs::read_dir(gantry.data.join("audit")).unwrap();
    let texts = log.filter_map(|entry| std::fs::read_to_string(entry.unwrap().path()).ok());
    let recorded = texts.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>());
    let recorded = recorded.filter(|line| line.contains("E3203")).count() as u64;
    // On a slow machine some are given back meanwhile.
    assert!((RECORDED..20).contains(&recorded), "{recorded} of 40 are on record");
}

#[tokio::test]
async fn a_subject_that_looks_like_a_did_must_be_one_wherever_it_is_let_in() {
    let gantry = Gantry::start().await;
    let ann = gantry.mint(json!({ "sub": "ann", "roles": [] })).await;
    for sub in ["did:", "did:key:z6Mkbroken", "DID:example:x", "did:web:"] {
        let minted = gantry.post("/v1/tokens", json!({ "sub": sub, "tenant": "acme" })).await;
        assert_eq!(minted.refusal(), (400, "E3004"), "{sub}: {}", minted.text);
        let for_user = gantry.post("/v1/tokens", json!({ "sub": "x", "user_did": sub })).await;
        assert_eq!(for_user.refusal(), (400, "E3004"), "{sub}: {}", for_user.text);
        let agents = json!({ "agents": [{ "agent_id": sub, "tenant": "acme" }] });
        let introduced = gantry.request(Method::PUT, "/v1/agents", Some(&gantry.token), Some(agents)).await;
        assert_eq!(introduced.refusal(), (400, "E3004"), "{sub}: {}", introduced.text);
        let activation = json!({ "activations": [{ "agent_id": sub, "tenant": "acme", "tool_id": "calculator" }] });
        let activated = gantry.request(Method::PUT, "/v1/activations", Some(&gantry.token), Some(activation)).await;
        assert_eq!(activated.refusal(), (400, "E3004"), "{sub}: {}", activated.text);
        let exchange = json!({ "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange", "sub": sub,
            "subject_token": ann, "subject_token_type": "urn:ietf:params:oauth:token-type:jwt" });
        let exchanged = gantry.request(Method::POST, "/oauth/token", None, Some(exchange)).await;
        assert_eq!((exchanged.status, exchanged.body["code"].as_str()), (404, Some("E3207")), "{}", exchanged.text);
        assert_eq!(gantry.cli(&["token", "mint", "--sub", sub]).code(), 1, "{sub}");
    }
    let data = gantry.data.clone();
    let home = tempfile::tempdir().unwrap();
    // Without a server too.
    std::fs::create_dir_all(home.path().join("data/keys")).unwrap();
    for file in ["keys/signing.pem", "admin.token"] {
        std::fs::copy(data.join(file), home.path().join("data").join(file)).unwrap();
    }
    let mut mint = crate::support::gantry(&home.path().join("data"));
    let alone = crate::support::run(mint.args(["token", "mint", "--sub", "did:key:z6Mkbroken"]));
    assert!(alone.code() == 1 && alone.err().contains("DID"), "{}", alone.err());
    // A `did:key` that holds a key is as good as before.
    gantry.mint(json!({ "sub": "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK" })).await;
}

/// The status of a request with these header lines.
async fn status_of(gantry: &Gantry, path: &str, headers: &str) -> u16 {
    let mut stream = TcpStream::connect(gantry.address()).await.unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nauthorization: Bearer {}\r\nconnection: close\r\n{headers}\r\n", gantry.token);
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

#[tokio::test]
async fn a_server_on_loopback_answers_to_its_own_names_at_every_door() {
    let gantry = Gantry::start().await;
    for (headers, expected) in [
        ("host: 127.0.0.1\r\n", 200),
        ("host: localhost:7300\r\n", 200),
        ("host: tools.example.com\r\n", 403),
        ("host: localhost.rebound.example\r\n", 403),
        ("host: localhost\r\nhost: rebound.example\r\n", 403),
        ("", 403),
    ] {
        for path in ["/v1/tools", "/openapi.json", "/metrics"] {
            assert_eq!(status_of(&gantry, path, headers).await, expected, "{path} {headers:?}");
        }
        assert_eq!(status_of(&gantry, "/health/live", headers).await, 200, "a probe knows no names: {headers:?}");
    }
    let call = client().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(&gantry.token);
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "1" } }).to_string();
    let call = call.header("host", "rebound.example").header("content-type", "application/json").body(body);
    assert_eq!(Answer::of(call.send().await.unwrap()).await.refusal(), (403, "E3206"));

    let named = Start::new().env("GANTRY_SERVER__ALLOWED_HOSTS", "tools.example.com").run().await;
    assert_eq!(status_of(&named, "/v1/tools", "host: tools.example.com:443\r\n").await, 200);
    assert_eq!(status_of(&named, "/v1/tools", "host: rebound.example\r\n").await, 403);
    // Of a target and a header that name two hosts neither is taken.
    let target = |host: &str| format!("http://{host}/v1/tools");
    assert_eq!(status_of(&named, &target("tools.example.com"), "host: tools.example.com\r\n").await, 200);
    for host in ["rebound.example", "user@tools.example.com", "localhost"] {
        assert_eq!(status_of(&named, &target(host), "host: tools.example.com\r\n").await, 403, "{host}");
    }
}

#[tokio::test]
async fn metrics_that_are_not_public_are_for_those_who_look_after_the_installation() {
    let gantry = Start::new().env("GANTRY_SERVER__METRICS_PUBLIC", "false").run().await;
    let agent = gantry.mint(json!({})).await;
    let chief = gantry.mint(json!({ "sub": "chief", "roles": ["admin"] })).await;
    let own_agent = gantry.mint(json!({ "sub": "worker", "tenant": "local" })).await;
    let auditor =
        gantry.mint(json!({ "sub": "prometheus", "tenant": "local", "roles": ["auditor"], "tools": [] })).await;
    for (who, token, expected) in [
        ("nobody", None, 401),
        ("an agent of a tenant", Some(&agent), 403),
        ("the administrator of a tenant", Some(&chief), 403),
        ("an agent of the installation", Some(&own_agent), 403),
        ("an auditor of the installation", Some(&auditor), 200),
        ("the administrator", Some(&gantry.token), 200),
    ] {
        let answer = gantry.request(Method::GET, "/metrics", token.map(String::as_str), None).await;
        assert_eq!(answer.status, expected, "{who}: {}", answer.text);
    }
}

#[tokio::test]
async fn whoever_is_refused_before_the_body_has_come_hears_that_the_line_ends() {
    let gantry = Gantry::start().await;
    let mut stream = TcpStream::connect(gantry.address()).await.unwrap();
    let head = "POST /v1/tools/invoke HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
        authorization: Bearer nonsense\r\ncontent-length: 100\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer).to_ascii_lowercase();
    assert!(answer.starts_with("http/1.1 401") && answer.contains("\r\nconnection: close\r\n"), "{answer}");
}

#[tokio::test]
async fn metrics_are_public_only_under_names_of_the_machine_itself() {
    let named = Start::new().env("GANTRY_SERVER__ALLOWED_HOSTS", "tools.example.com").run().await;
    // As a proxy on this machine hands on what comes from elsewhere.
    let scrape = async |host: Option<&str>| {
        let request = crate::support::client().get(format!("{}/metrics", named.url));
        let request = host.into_iter().fold(request, |request, host| request.header("host", host));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(scrape(Some("tools.example.com")).await, 401);
    assert_eq!(scrape(Some("localhost")).await, 200);
    assert_eq!(scrape(None).await, 200);
}

#[tokio::test]
async fn revoking_what_is_not_one_s_own_is_answered_like_revoking_nothing() {
    let gantry = Gantry::start().await;
    let chief = gantry.mint(json!({ "sub": "chief", "tenant": "acme", "roles": ["admin"] })).await;
    let other = gantry.mint(json!({ "sub": "did:example:eve", "tenant": "globex" })).await;
    let own = gantry.mint(json!({ "sub": "did:example:ann", "tenant": "acme" })).await;
    let revoke = async |body: Value| gantry.request(Method::POST, "/v1/tokens/revoke", Some(&chief), Some(body)).await;
    let shape = |answer: &Answer| (answer.status, answer.body["revoked"].clone(), answer.body["message"].clone());
    let theirs = revoke(json!({ "jti": token_id(&other) })).await;
    let nobodys = revoke(json!({ "jti": "0190b6d4-0000-4000-8000-000000000000" })).await;
    assert_eq!(shape(&theirs), shape(&nobodys));
    assert_eq!((theirs.status, &theirs.body["revoked"]), (200, &json!(false)), "{}", theirs.text);
    let theirs = revoke(json!({ "sub": "did:example:eve" })).await;
    let nobodys = revoke(json!({ "sub": "did:example:nobody" })).await;
    assert_eq!((shape(&theirs), &theirs.body["revoked"]), (shape(&nobodys), &json!(false)), "{}", theirs.text);
    let sum = json!({ "tool_id": "calculator", "parameters": { "expression": "1" } });
    let call = async |token: &str| {
        gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(sum.clone())).await.status
    };
    assert_eq!(call(&other).await, 200, "another tenant's token is as good as before");
    let mine = revoke(json!({ "jti": token_id(&own) })).await;
    assert_eq!((mine.status, &mine.body["revoked"]), (200, &json!(true)), "{}", mine.text);
    assert_eq!(call(&own).await, 401);
    let again = gantry.mint(json!({ "sub": "did:example:bob", "tenant": "acme" })).await;
    assert_eq!(revoke(json!({ "sub": "did:example:bob" })).await.body["revoked"], true);
    assert_eq!(call(&again).await, 401);
    // Who gives its own token up is told so.
    let last = gantry.mint(json!({ "sub": "did:example:cat", "tenant": "acme" })).await;
    let given_up = json!({ "jti": token_id(&last) });
    let answer = gantry.request(Method::POST, "/v1/tokens/revoke", Some(&last), Some(given_up)).await;
    assert_eq!(answer.body["revoked"], true, "{}", answer.text);
}

fn token_id(token: &str) -> String {
    use base64::Engine as _;
    let claims = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(token.split('.').nth(1).unwrap()).unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["jti"].as_str().unwrap().to_owned()
}
