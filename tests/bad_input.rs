//! What careless and hostile clients send: each gets a code, a reason and a remedy, and the server goes on.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Answer, Gantry, Start, client, manifest};

const INVOKE: &str = "/v1/tools/invoke";

#[tokio::test]
async fn malformed_bodies_are_refused_with_a_place_and_a_reason() {
    let gantry = Gantry::start().await;
    let deep = |depth: usize| {
        format!(
            r#"{{"tool_id":"calculator","parameters":{{"expression":{}1{}}}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        )
    };
    let cases: Vec<(&str, String, u16, &str)> = vec![
        ("not JSON", "{".into(), 400, "E3004"),
        ("empty", String::new(), 400, "E3004"),
        ("trailing comma", r#"{"tool_id":"calculator",}"#.into(), 400, "E3004"),
        ("an array", "[]".into(), 400, "E3004"),
        ("a string", "\"x\"".into(), 400, "E3004"),
        ("duplicate keys", r#"{"tool_id":"calculator","tool_id":"datetime","parameters":{}}"#.into(), 400, "E3004"),
        (
            "duplicate keys inside",
            r#"{"tool_id":"calculator","parameters":{"expression":"1","expression":"2"}}"#.into(),
            400,
            "E3004",
        ),
        ("NaN", r#"{"tool_id":"calculator","parameters":{"expression":NaN}}"#.into(), 400, "E3004"),
        ("Infinity", r#"{"tool_id":"calculator","parameters":{"expression":-Infinity}}"#.into(), 400, "E3004"),
        ("a number beyond all", r#"{"tool_id":"calculator","parameters":{"expression":1e999}}"#.into(), 400, "E3004"),
        ("100 deep", deep(100), 400, "E3004"),
        ("100,000 deep", deep(100_000), 400, "E3004"),
        ("unknown member", r#"{"tool_id":"calculator","paramters":{}}"#.into(), 400, "E3004"),
        ("wrong type", r#"{"tool_id":5,"parameters":{}}"#.into(), 400, "E3004"),
        ("parameters as a list", r#"{"tool_id":"calculator","parameters":[1]}"#.into(), 400, "E3004"),
        ("no tool", r#"{"parameters":{}}"#.into(), 400, "E3004"),
        (
            "an id that is no UUID",
            r#"{"tool_id":"calculator","invocation_id":"inv_abc123","parameters":{}}"#.into(),
            400,
            "E3004",
        ),
        ("a lone surrogate", r#"{"tool_id":"calculator","parameters":{"expression":"\ud800"}}"#.into(), 400, "E3004"),
        ("unknown tool", r#"{"tool_id":"nowhere","parameters":{}}"#.into(), 404, "E3101"),
        ("a tool id that cannot be", r#"{"tool_id":"../../etc/passwd","parameters":{}}"#.into(), 404, "E3101"),
        ("unknown version", r#"{"tool_id":"calculator","tool_version":"9.9.9","parameters":{}}"#.into(), 404, "E3102"),
        (
            "a range nothing meets",
            r#"{"tool_id":"calculator","tool_version":">=9","parameters":{}}"#.into(),
            409,
            "E3103",
        ),
        (
            "conflicting range",
            r#"{"tool_id":"calculator","tool_version":">2 <1","parameters":{}}"#.into(),
            409,
            "E3103",
        ),
    ];
    for (what, body, status, code) in cases {
        let answer = gantry.post_raw(INVOKE, "application/json", body).await;
        assert_eq!(answer.refusal(), (status, code), "{what}: {}", answer.text);
    }
    let answer = gantry.post_raw(INVOKE, "application/json", vec![b'{', 0xff, b'}']).await;
    assert_eq!(answer.refusal(), (400, "E3004"), "not UTF-8");
    let answer = gantry.post_raw(INVOKE, "application/json", r#"{"tool_id":"calculator","paramters":{}}"#).await;
    assert!(answer.text.contains("parameters"), "suggests the right name: {}", answer.text);
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200, "still there");
}

#[tokio::test]
async fn a_query_that_nothing_reads_is_refused_also_where_a_body_asks() {
    let gantry = Gantry::start().await;
    let call = || json!({ "tool_id": "calculator", "parameters": { "expression": "1" } });
    let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.list" });
    for (method, path, body) in [
        (Method::POST, "/v1/tools/invoke?dry_run=true", call()),
        (Method::POST, "/v1/tools/invoke/batch?dry_run=true", json!({ "invocations": [call()] })),
        (Method::POST, "/v1/tools/explain?tenant=acme", call()),
        (Method::POST, "/v1/tools/register?dry_run=true", manifest(json!({}))),
        (Method::POST, "/v1/tokens?ttl_seconds=60", json!({ "sub": "somebody" })),
        (Method::PUT, "/v1/policies?dry_run=true", json!({ "policies": "permit (principal, action, resource);" })),
        (Method::PUT, "/v1/tenants?tenant=acme", json!({ "tenants": [] })),
        (Method::POST, "/v1/tools/calculator/quarantine?until=tomorrow", json!({ "reason": "a test" })),
        (Method::POST, "/rpc?trace=1", rpc),
    ] {
        let answer = gantry.request(method.clone(), path, Some(&gantry.token), Some(body.clone())).await;
        assert_eq!(answer.refusal(), (400, "E3004"), "{path}");
        assert!(answer.text.contains("there is no query parameter"), "{path}: {}", answer.text);
        // Who asks comes first.
        let nobody = gantry.request(method, path, None, Some(body)).await;
        assert_eq!(nobody.status, 401, "{path}: {}", nobody.text);
    }
    assert_eq!(gantry.get("/v1/tools/demo.echo_sum").await.status, 404, "nothing was registered");
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200, "nor taken out of use");
}

#[tokio::test]
async fn wrong_content_types_methods_and_paths_have_codes_of_their_own() {
    let gantry = Gantry::start().await;
    let body = json!({ "tool_id": "calculator", "parameters": { "expression": "1" } }).to_string();
    for content_type in ["text/plain", "application/xml", "application/x-www-form-urlencoded"] {
        let answer = gantry.post_raw(INVOKE, content_type, body.clone()).await;
        assert_eq!(answer.refusal(), (415, "E3006"), "{content_type}");
    }
    let answer = gantry.post_raw(INVOKE, "application/json; charset=utf-8", body.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    for (coding, expected) in [("gzip", 415), ("br, identity", 415), ("identity", 200)] {
        let asked = client().post(format!("{}{INVOKE}", gantry.url)).bearer_auth(&gantry.token);
        let asked = asked.header("content-type", "application/json").header("content-encoding", coding);
        let answer = Answer::of(asked.body(body.clone()).send().await.unwrap()).await;
        assert_eq!(answer.status, expected, "{coding}: {}", answer.text);
        assert!(
            expected == 200 || answer.code() == "E3006" && answer.text.contains("content-encoding"),
            "{}",
            answer.text
        );
    }
    let answer = gantry.get(INVOKE).await;
    assert_eq!(answer.refusal(), (405, "E3007"));
    assert_eq!(answer.header("allow"), "POST");
    assert_eq!(gantry.get("/v1/nowhere").await.refusal(), (404, "E3008"));
}

#[tokio::test]
async fn ten_megabytes_are_refused_without_being_read() {
    let gantry = Gantry::start().await;
    let body =
        format!(r#"{{"tool_id":"calculator","parameters":{{"expression":"{}"}}}}"#, "1".repeat(10 * 1024 * 1024));
    // The server may close before everything is sent; then the refusal is read from a raw connection.
    let mut stream = TcpStream::connect(gantry.address()).await.unwrap();
    let head = format!(
        "POST {INVOKE} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        gantry.token,
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_answer(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(answer.contains("E3005"), "{answer}");

    let mut stream = TcpStream::connect(gantry.address()).await.unwrap();
    let head = format!(
        "POST {INVOKE} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        gantry.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("{:x}\r\n{}\r\n", 64 * 1024, "1".repeat(64 * 1024));
    for _ in 0..64 {
        if stream.write_all(chunk.as_bytes()).await.is_err() {
            break;
        }
    }
    let answer = read_answer(&mut stream).await;
    assert!(answer.is_empty() || answer.contains("E3005"), "{answer}");
    assert_eq!(gantry.invoke("calculator", json!({ "expression": "1" })).await.status, 200);
}

#[tokio::test]
async fn oversized_headers_and_garbage_end_the_connection_and_nothing_else() {
    let gantry = Gantry::start().await;
    let many: String = (0..500).map(|n| format!("x-{n}: y\r\n")).collect();
    for request in [
        format!("GET /health/live HTTP/1.1\r\nhost: x\r\n{many}\r\n"),
        format!("GET /health/live HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n", "y".repeat(1024 * 1024)),
        "\u{0}\u{1}\u{2} nonsense\r\n\r\n".to_owned(),
        "GET /health/live HTTP/9.9\r\n\r\n".to_owned(),
    ] {
        let mut stream = TcpStream::connect(gantry.address()).await.unwrap();
        // The server may hang up while we still write; that is its right.
        let _ = stream.write_all(request.as_bytes()).await;
        let answer = read_answer(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    assert_eq!(gantry.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn slow_clients_are_cut_off() {
    let gantry = Start::new()
        .env("GANTRY_SERVER__HEADER_READ_TIMEOUT_MS", "300")
        .env("GANTRY_SERVER__BODY_READ_TIMEOUT_MS", "300")
        .run()
        .await;
    let mut headers = TcpStream::connect(gantry.address()).await.unwrap();
    headers.write_all(b"GET /health/live HTTP/1.1\r\nhost:").await.unwrap();
    let answer = read_answer(&mut headers).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");

    let mut body = TcpStream::connect(gantry.address()).await.unwrap();
    let head = format!(
        "POST {INVOKE} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
        gantry.token
    );
    body.write_all(head.as_bytes()).await.unwrap();
    let answer = read_answer(&mut body).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("E3009"), "{answer}");
}

#[tokio::test]
async fn hostile_schemas_are_refused_and_hostile_patterns_do_no_harm() {
    let gantry = Gantry::start().await;
    let with = |property: Value| {
        manifest(
            json!({ "parameters": { "type": "object", "properties": { "expression": property }, "required": ["expression"] } }),
        )
    };
    for property in [
        json!({ "$ref": "http://169.254.169.254/latest/meta-data" }),
        json!({ "$ref": "https://example.com/schema.json" }),
        json!({ "$ref": "file:///etc/passwd" }),
        json!({ "$ref": "#/nowhere" }),
        json!({ "type": "string", "pattern": "(((a{100}){100}){100})" }),
        json!({ "type": "string", "pattern": "(" }),
        json!({ "type": "strin" }),
        json!({ "minLength": -1 }),
    ] {
        let answer = gantry.register(with(property.clone())).await;
        assert_eq!(answer.refusal(), (422, "E3105"), "{property}");
        assert!(answer.text.contains("/parameters"), "{}", answer.text);
    }
    // Catastrophic for a backtracking engine, harmless for a linear one.
    assert_eq!(gantry.register(with(json!({ "type": "string", "pattern": "^(a+)+$" }))).await.status, 201);
    let answer = gantry.invoke("demo.echo_sum", json!({ "expression": format!("{}!", "a".repeat(50_000)) })).await;
    assert_eq!(answer.refusal(), (400, "E3301"));
    // Look-around is checked within a bound; a back-reference is kept, and said to be unchecked.
    for (id, pattern, unchecked) in [("looks", "^(?=a)(a+)+$", false), ("repeats", "(a)\\1", true)] {
        let schema = json!({ "type": "string", "pattern": pattern });
        let schema = json!({ "type": "object", "properties": { "expression": schema }, "required": ["expression"] });
        let answer = gantry.register(manifest(json!({ "tool_id": id, "parameters": schema }))).await;
        assert_eq!(answer.status, 201, "{}", answer.text);
        assert_eq!(answer.text.contains("it is not checked"), unchecked, "{}", answer.text);
    }
    let answer = gantry.invoke("demo.looks", json!({ "expression": format!("{}!", "a".repeat(50_000)) })).await;
    assert_eq!(answer.refusal(), (400, "E3301"));
}

#[tokio::test]
async fn guarded_fields_refuse_attacks_and_unguarded_ones_take_them_as_data() {
    let gantry = Gantry::start().await;
    let with = |guard: Value, version: &str| {
        let property = json!({ "type": "string", "x-guard": guard });
        manifest(json!({
            "version": version,
            "parameters": { "type": "object", "properties": { "expression": property }, "required": ["expression"] },
        }))
    };
    let answer = gantry.register(with(json!("shel"), "1.0.0")).await;
    assert_eq!(answer.refusal(), (422, "E3105"));
    assert!(answer.text.contains("/parameters/properties/expression/x-guard"), "{}", answer.text);
    assert!(answer.text.contains("did you mean `shell`?"), "{}", answer.text);

    // Another guard is a breaking change, so each comes under a new major number.
    for (version, guard, hostile) in [
        ("1.0.0", json!("shell"), "1; cat /etc/passwd"),
        ("2.0.0", json!("sql"), "1 OR 1=1 --"),
        ("3.0.0", json!("html"), "<script>steal()</script>"),
        ("4.0.0", json!(["path", "shell"]), "..%2f..%2fetc/passwd"),
        ("5.0.0", json!("url"), "http://2852039166/latest/meta-data"),
    ] {
        assert_eq!(gantry.register(with(guard.clone(), version)).await.status, 201, "{guard}");
        let answer = gantry.invoke("demo.echo_sum", json!({ "expression": hostile })).await;
        assert_eq!(answer.refusal(), (400, "E3305"), "{guard}: {}", answer.text);
        assert!(answer.text.contains("/expression"), "{}", answer.text);
        assert!(!answer.text.contains(hostile), "the text is not repeated: {}", answer.text);
    }
    // The same text in a field nobody marked is data (VALID-008).
    let hostile = "\"; DROP TABLE documents;--";
    let answer = gantry.invoke("text_transform", json!({ "text": hostile, "operation": "word_count" })).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
}

/// Reads until the other side closes or a whole head and the error code have come.
async fn read_answer(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        let read = tokio::time::timeout(crate::support::PATIENCE, stream.read(&mut chunk)).await.expect("an end");
        match read {
            Ok(0) | Err(_) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
        }
        if bytes.windows(4).any(|w| w == b"\"}}}") || bytes.ends_with(b"}") {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
