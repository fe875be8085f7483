//! What a caller is told when a server elsewhere does not answer as it should: unknown if the call may have been executed, a
//! plain failure if it surely was not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use contract::error::ErrorCode;
use gantry_upstreams::UpstreamEvent;
use gantry_upstreams::spec::ServerReach;
use kernel::ports::executor::{ExecutionReach, Executor as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Rig, call, spec};

/// A server that answers calls with the bytes it was given, whatever they are, and closes the connection after each.
struct Wire {
    url: String,
    /// Calls that have come in.
    calls: Arc<AtomicUsize>,
    listening: tokio::task::JoinHandle<()>,
}

impl Wire {
    async fn answering(bytes: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap());
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&calls);
        let listening = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, bytes, Arc::clone(&counted)));
            }
        });
        Self { url, calls, listening }
    }

    fn rig(&self) -> Rig {
        let rig = Rig::new();
        rig.apply(spec(ServerReach::Http { url: self.url.clone(), headers: BTreeMap::new(), oauth: None }));
        rig
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

/// One request of a connection.
async fn serve(stream: TcpStream, bytes: &str, calls: Arc<AtomicUsize>) {
    let mut stream = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while stream.read_line(&mut line).await.unwrap() > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    let request: Value = serde_json::from_slice(&body).unwrap();
    let answer = if request["method"] == "tools/call" {
        calls.fetch_add(1, Ordering::SeqCst);
        bytes.replace("ID", &request["id"].to_string())
    } else {
        let result = json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {} });
        let body = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
}

/// An answer with this status and no words.
macro_rules! status {
    ($status:literal) => {
        concat!("HTTP/1.1 ", $status, "\r\nconnection: close\r\ncontent-length: 2\r\n\r\nno")
    };
}

/// An answer in JSON, as long as it is.
macro_rules! said {
    ($status:literal, $body:literal) => {
        concat!("HTTP/1.1 ", $status, "\r\nconnection: close\r\ncontent-type: application/json\r\n\r\n", $body)
    };
}

/// One that announces more than it says.
macro_rules! broken_off {
    ($status:literal) => {
        concat!(
            "HTTP/1.1 ",
            $status,
            "\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: 900\r\n\r\n{\"jsonrpc\":"
        )
    };
}

#[tokio::test]
async fn only_what_may_have_been_executed_is_unknown() {
    use ErrorCode::{E3301, E3413, E3502, E3504, E3603};
    for (bytes, unclassified, pure) in [
        // It was turned away.
        (status!("400 Bad Request"), E3502, E3502),
        (status!("404 Not Found"), E3502, E3502),
        (status!("405 Method Not Allowed"), E3502, E3502),
        (status!("409 Conflict"), E3502, E3502),
        (status!("413 Content Too Large"), E3502, E3502),
        (status!("422 Unprocessable Content"), E3502, E3502),
        (status!("307 Temporary Redirect"), E3502, E3502),
        (status!("401 Unauthorized"), E3603, E3603),
        (status!("403 Forbidden"), E3603, E3603),
        (status!("429 Too Many Requests"), E3504, E3504),
        (broken_off!("400 Bad Request"), E3502, E3502),
        // Its reason changes nothing about it.
        (said!("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no"}}"#), E3502, E3502),
        // It was answered, by an error.
        (said!("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no"}}"#), E3301, E3301),
        (
            said!("400 Bad Request", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"no"}}"#),
            E3502,
            E3502,
        ),
        // A server that is in order has not finished what it asks about.
        (said!("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required"}}"#), E3502, E3502),
        // It reached a server that failed, and nobody knows when.
        (status!("301 Moved Permanently"), E3413, E3502),
        (status!("302 Found"), E3413, E3502),
        (status!("303 See Other"), E3413, E3502),
        (status!("408 Request Timeout"), E3413, E3502),
        (status!("500 Internal Server Error"), E3413, E3502),
        (status!("502 Bad Gateway"), E3413, E3502),
        (status!("503 Service Unavailable"), E3413, E3502),
        (status!("504 Gateway Timeout"), E3413, E3502),
        (broken_off!("500 Internal Server Error"), E3413, E3502),
        (said!("500 Internal Server Error", "{}"), E3413, E3502),
        // It was answered, and not by anything that can be understood.
        (status!("200 OK"), E3413, E3502),
        (status!("202 Accepted"), E3413, E3502),
        (said!("200 OK", ""), E3413, E3502),
        (said!("200 OK", "garbage"), E3413, E3502),
        (said!("200 OK", r#"{"jsonrpc":"2.0","id":999999,"result":{"content":[]}}"#), E3413, E3502),
        (said!("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":[]}"#), E3413, E3502),
        (said!("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"task","taskId":"t"}}"#), E3413, E3502),
        // It broke off.
        (broken_off!("200 OK"), E3413, E3502),
        ("HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n\r\n: hello\n\n", E3413, E3502),
        ("HTTP/1.1 200 OK\r\ncontent-le", E3413, E3502),
        ("", E3413, E3502),
    ] {
        let wire = Wire::answering(bytes).await;
        let rig = wire.rig();
        let refused = rig.call_unclassified("tool", json!({})).await.unwrap_err();
        assert_eq!(refused.code, unclassified, "{bytes}: {refused:?}");
        assert_eq!(wire.calls(), 1, "{bytes}: sent once and no more");
        let unknown = rig.counted.times(|event| *event == UpstreamEvent::Indeterminate);
        assert_eq!(unknown, usize::from(unclassified == E3413), "{bytes}");
        if unclassified == E3413 {
            assert_eq!(refused.retryable, Some(false), "{bytes}");
            assert!(refused.message.contains("is not known") && refused.hint.is_some(), "{bytes}: {refused:?}");
        }
        assert!(!refused.message.contains("127.0.0.1"), "{bytes}: {refused:?}");
        let refused = rig.call("tool", json!({})).await.unwrap_err();
        assert_eq!(refused.code, pure, "{bytes}: {refused:?}");
        assert!(wire.calls() <= 3, "{bytes}: a pure one is repeated once at most");
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn an_error_of_a_server_that_may_have_been_in_the_middle_is_told_with_its_words_and_counted_as_unknown() {
    for bytes in [
        said!("200 OK", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#),
        said!("200 OK", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"half done"}}"#),
        said!(
            "500 Internal Server Error",
            r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"half done"}}"#
        ),
    ] {
        let wire = Wire::answering(bytes).await;
        let rig = wire.rig();
        for (policy, unknown) in [("unclassified", 1), ("pure", 1)] {
            let error = rig.executor.execute(call("tool", policy, json!({}))).await.unwrap_err();
            assert_eq!((error.refusal.code, error.reach), (ErrorCode::E3502, ExecutionReach::MayHaveRun), "{bytes}");
            assert!(error.refusal.details.unwrap().to_string().contains("half done"), "{bytes}");
            let counted = rig.counted.times(|event| *event == UpstreamEvent::Indeterminate);
            assert_eq!(counted, unknown, "{policy}: a tool that may be repeated leaves nothing unknown");
        }
        assert_eq!(wire.calls(), 2, "{bytes}: each was sent once");
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn a_connection_that_is_refused_before_anything_was_sent_is_a_plain_failure() {
    let wire = Wire::answering(status!("404 Not Found")).await;
    let rig = wire.rig();
    assert_eq!(rig.call_unclassified("tool", json!({})).await.unwrap_err().code, ErrorCode::E3502);
    assert_eq!(rig.state(), gantry_upstreams::ServerState::Ready, "it was met, and is thought to be there");
    wire.listening.abort();
    let url: url::Url = wire.url.parse().unwrap();
    rig.until("nobody listens", |_| {
        let address = (url.host_str().unwrap(), url.port().unwrap());
        std::net::TcpStream::connect(address).is_err()
    })
    .await;
    let refused = rig.call_unclassified("tool", json!({})).await.unwrap_err();
    assert_eq!((refused.code, refused.retryable), (ErrorCode::E3502, Some(true)), "{refused:?}");
    assert_eq!(wire.calls(), 1, "the second was never there");
    assert_eq!(rig.counted.times(|event| *event == UpstreamEvent::Indeterminate), 0);
    rig.upstreams.shut_down().await;
}
