//! What a caller is told when a server elsewhere does not answer as it should: unknown if the call may have been executed, a
//! plain failure if it surely was not.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use contract::error::ErrorCode;
use gantry_upstreams::UpstreamEvent;
use gantry_upstreams::spec::ServerReach;
use ports::executor::{ExecutionReach, Executor as _};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use sandbox::egress::HostResolver;

use crate::rig::{FailingResolver, Rig, ThenResolved, bounds, call, spec};

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

    /// The server by a name that is resolved for each connection: so many times, and then so.
    fn rig_by_name(&self, good: u32, then: ThenResolved) -> (Rig, Arc<FailingResolver>) {
        let resolver = Arc::new(FailingResolver { asked: AtomicU32::new(0), good, then });
        let resolving: Arc<dyn HostResolver> = Arc::clone(&resolver) as _;
        let rig = Rig::resolving(bounds(), &resolving);
        let url = self.url.replace("127.0.0.1", "server.example");
        rig.apply(spec(ServerReach::Http { url, headers: BTreeMap::new(), oauth: None }));
        (rig, resolver)
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
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

/// Before bytes: the first round of each call is answered with a question, and these are for the second.
const ASKS_FIRST: &str = "ASKS ";

/// In place of an answer: none, on a connection that stays.
const STAYS: &str = "STAYS";

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
        let bytes = if bytes.starts_with(ASKS_FIRST) && request["params"]["requestState"].is_null() {
            said!("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required","requestState":"s"}}"#)
        } else {
            bytes.trim_start_matches(ASKS_FIRST)
        };
        bytes.replace("ID", &request["id"].to_string())
    } else {
        let result = json!({ "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {} });
        let body = json!({ "jsonrpc": "2.0", "id": request["id"], "result": result }).to_string();
        format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    if answer == STAYS {
        // Until the other side goes.
        let _ = stream.read_u8().await;
        return;
    }
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
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
        // Its reason changes nothing about it, if it is one that only a transport has.
        (
            said!("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"no session"}}"#),
            E3502,
            E3502,
        ),
        // It was answered, by an error.
        (said!("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no"}}"#), E3301, E3301),
        (
            said!("400 Bad Request", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32020,"message":"no"}}"#),
            E3502,
            E3502,
        ),
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
        // It was answered with a question that nobody can answer, by a server that has begun.
        (said!("200 OK", r#"{"jsonrpc":"2.0","id":ID,"result":{"resultType":"input_required"}}"#), E3413, E3502),
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

/// The second round of a call that was answered with a question.
macro_rules! second {
    ($answer:expr) => {
        concat!("ASKS ", $answer)
    };
}

#[tokio::test]
async fn a_call_that_was_answered_once_is_never_a_plain_failure_whatever_its_second_round_meets() {
    use ErrorCode::{E3502, E3504, E3603};
    for (bytes, pure) in [
        (second!(status!("400 Bad Request")), E3502),
        (second!(status!("404 Not Found")), E3502),
        (second!(status!("307 Elsewhere")), E3502),
        (second!(status!("401 Unauthorized")), E3603),
        (second!(status!("429 Too Many Requests")), E3504),
        (second!(status!("500 Oh")), E3502),
        (
            second!(said!("400 Bad Request", r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32022,"message":"no"}}"#)),
            E3502,
        ),
        (second!(""), E3502),
    ] {
        let wire = Wire::answering(bytes).await;
        let rig = wire.rig();
        let error = rig.executor.execute(call("tool", "unclassified", json!({}))).await.unwrap_err();
        assert_eq!((error.refusal.code, error.reach), (ErrorCode::E3413, ExecutionReach::MayHaveRun), "{bytes}");
        assert_eq!(wire.calls(), 2, "{bytes}: two rounds, and no third");
        assert_eq!(rig.counted.times(|event| *event == UpstreamEvent::Indeterminate), 1, "{bytes}");
        assert_eq!(rig.call("tool", json!({})).await.unwrap_err().code, pure, "{bytes}");
        rig.upstreams.shut_down().await;
    }
}

#[tokio::test]
async fn a_server_that_is_gone_when_the_second_round_comes_may_have_done_it_in_the_first() {
    let wire = Wire::answering(second!(status!("200 OK"))).await;
    // One connection to meet it, one for the first round.
    let (rig, _) = wire.rig_by_name(2, ThenResolved::Elsewhere);
    let asked = call("tool", "unclassified", json!({}));
    let dispatch = Arc::clone(&asked.dispatch);
    let error = rig.executor.execute(asked).await.unwrap_err();
    assert_eq!((error.refusal.code, error.reach), (ErrorCode::E3413, ExecutionReach::MayHaveRun));
    assert_eq!(dispatch.reach(), ExecutionReach::MayHaveRun, "and so for who ends the call from outside");
    assert_eq!(wire.calls(), 1);
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_call_that_waits_for_its_connection_was_not_sent() {
    let wire = Wire::answering(status!("200 OK")).await;
    let (rig, resolver) = wire.rig_by_name(1, ThenResolved::Never);
    let waiting = call("tool", "unclassified", json!({}));
    let dispatch = Arc::clone(&waiting.dispatch);
    let executor = rig.executor.clone();
    let running = tokio::spawn(async move { executor.execute(waiting).await });
    rig.until("the call wants its connection", |_| resolver.asked.load(Ordering::SeqCst) == 2).await;
    assert_eq!(dispatch.reach(), ExecutionReach::NotSent);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!((dispatch.reach(), wire.calls()), (ExecutionReach::NotSent, 0));
    rig.upstreams.shut_down().await;
}

#[tokio::test]
async fn a_call_that_has_its_connection_may_have_run_from_there_on() {
    // Says nothing, and does not hang up.
    let wire = Wire::answering(STAYS).await;
    let (rig, _) = wire.rig_by_name(u32::MAX, ThenResolved::Never);
    let waiting = call("tool", "unclassified", json!({}));
    let dispatch = Arc::clone(&waiting.dispatch);
    let executor = rig.executor.clone();
    let running = tokio::spawn(async move { executor.execute(waiting).await });
    rig.until("the call is there", |_| wire.calls() == 1).await;
    assert_eq!(dispatch.reach(), ExecutionReach::MayHaveRun);
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    rig.upstreams.shut_down().await;
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
