//! Clients that are slow, endless or half gone. Time-outs are made short; nothing here waits for a fixed time.

use std::sync::atomic::Ordering;

use gantry_server::ServerConfig;
use serde_json::json;

use crate::client::{Client, request};
use crate::stage::{ADMIN, Stage};

/// Time-outs short enough for a test.
fn hasty() -> ServerConfig {
    ServerConfig {
        header_read_timeout_ms: 100,
        body_read_timeout_ms: 100,
        idle_timeout_ms: 100,
        ..ServerConfig::default()
    }
}

fn head(more: &str) -> String {
    format!(
        "POST /v1/tools/invoke HTTP/1.1\r\nhost: g\r\nauthorization: Bearer {ADMIN}\r\ncontent-type: application/json\r\n{more}\r\n\r\n"
    )
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_headers_is_disconnected() {
    let stage = Stage::with(hasty()).await;
    for start in ["", "GET / HT", "GET / HTTP/1.1\r\nhost: g\r\nx-slow: "] {
        let mut client = Client::connect(stage.address).await;
        client.send(start.as_bytes()).await;
        client.closed().await;
    }
}

#[tokio::test]
async fn an_idle_connection_is_closed_after_its_time_and_not_in_the_middle_of_a_call() {
    let stage = Stage::with(hasty()).await;
    let mut waiting = stage.start_gated().await;
    let mut idle = Client::connect(stage.address).await;
    idle.send(request("GET", "/health/live", None, None).as_bytes()).await;
    assert_eq!(idle.reply().await.status, 200);
    idle.closed().await;
    // The call has outlasted all three time-outs.
    stage.tools.gate.add_permits(1);
    assert_eq!(waiting.reply().await.status, 200);
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_body_gets_e3009() {
    let stage = Stage::with(hasty()).await;
    for (more, start) in [("content-length: 100", "{\"tool_id\":"), ("transfer-encoding: chunked", "5\r\n{\"too\r\n")] {
        let mut client = Client::connect(stage.address).await;
        client.send(format!("{}{start}", head(more)).as_bytes()).await;
        let reply = client.reply().await;
        assert_eq!((reply.status, reply.code().as_str()), (408, "E3009"), "{more}");
        client.closed().await;
    }
}

#[tokio::test]
async fn a_body_beyond_the_limit_is_refused_by_its_announced_length() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.address).await;
    client.send(head("content-length: 1048577").as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "E3005"));
    assert_eq!(reply.header("connection"), Some("close"));
}

#[tokio::test]
async fn a_client_that_sends_ten_megabytes_regardless_still_reads_the_answer() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.address).await;
    client.send(head("content-length: 10485760").as_bytes()).await;
    client.send(&vec![b' '; 10 << 20]).await;
    assert_eq!(client.reply().await.code(), "E3005");
}

#[tokio::test]
async fn a_body_without_an_announced_length_is_refused_once_it_is_too_long() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.address).await;
    client.send(head("transfer-encoding: chunked").as_bytes()).await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..20 {
        client.send(chunk.as_bytes()).await;
    }
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.code().as_str()), (413, "E3005"));
    client.closed().await;
}

#[tokio::test]
async fn a_body_of_exactly_the_limit_in_many_pieces_is_read() {
    let stage = Stage::new().await;
    let body = json!({ "tool_id": "demo.echo_tool", "parameters": { "text": "x" } }).to_string();
    let body = format!("{body}{}", " ".repeat((1 << 20) - body.len()));
    let mut client = Client::connect(stage.address).await;
    client.send(head(&format!("content-length: {}", body.len())).as_bytes()).await;
    for piece in body.as_bytes().chunks(100_000) {
        client.send(piece).await;
    }
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.json()["result"]["text"].as_str()), (200, Some("x")));
}

#[tokio::test]
async fn a_body_with_broken_framing_is_refused() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.address).await;
    client.send(format!("{}zz\r\n", head("transfer-encoding: chunked")).as_bytes()).await;
    let reply = client.reply().await;
    assert_eq!((reply.status, reply.code().as_str()), (400, "E3004"));
}

#[tokio::test]
async fn a_client_that_closes_its_own_side_still_gets_the_answer() {
    let stage = Stage::new().await;
    let mut client = stage.start_gated().await;
    client.close_own_side().await;
    stage.tools.gate.add_permits(1);
    assert_eq!(client.reply().await.status, 200);
}

#[tokio::test]
async fn a_call_whose_client_has_gone_is_carried_to_its_end_and_recorded() {
    let mut stage = Stage::new().await;
    let before = stage.paper.records();
    drop(stage.start_gated().await);
    stage.tools.gate.add_permits(1);
    stage.stop();
    let (tools, paper) = (stage.tools.clone(), stage.paper.clone());
    let drained = stage.drained().await;
    assert_eq!(drained.aborted, 0);
    assert_eq!(tools.finished.load(Ordering::SeqCst), 1);
    // The recorder lets records gather for a moment.
    let recorded = async {
        while paper.records() <= before {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(20), recorded).await.expect("the call is recorded");
}

#[tokio::test]
async fn requests_may_be_pipelined() {
    let stage = Stage::new().await;
    let mut client = Client::connect(stage.address).await;
    client.send(request("GET", "/health/live", None, None).repeat(3).as_bytes()).await;
    for _ in 0..3 {
        assert_eq!(client.reply().await.status, 200);
    }
}

#[tokio::test]
async fn beyond_the_limit_of_calls_callers_are_told_to_wait() {
    let config = ServerConfig { calls_max: 1, calls_waiting_max: 0, ..ServerConfig::default() };
    let stage = Stage::with(config).await;
    let mut first = stage.start_gated().await;
    let reply = stage.invoke("demo.echo_tool", json!({ "text": "x" })).await;
    assert_eq!((reply.status, reply.code().as_str(), reply.header("retry-after")), (503, "E3001", Some("1")));
    assert_eq!(stage.ask("GET", "/health/live", None, None).await.status, 200);
    stage.tools.gate.add_permits(1);
    assert_eq!(first.reply().await.status, 200);
    assert_eq!(stage.invoke("demo.echo_tool", json!({ "text": "x" })).await.status, 200);
}

#[tokio::test]
async fn beyond_the_limit_of_connections_new_ones_wait_for_room() {
    let stage = Stage::with(ServerConfig { connections_max: 1, ..ServerConfig::default() }).await;
    let mut first = Client::connect(stage.address).await;
    first.send(request("GET", "/health/live", None, None).as_bytes()).await;
    assert_eq!(first.reply().await.status, 200);
    let mut second = Client::connect(stage.address).await;
    second.send(request("GET", "/health/live", None, None).as_bytes()).await;
    drop(first);
    assert_eq!(second.reply().await.status, 200);
}
