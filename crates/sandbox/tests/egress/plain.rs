//! Plain HTTP: what a server gets to see, what comes back, and connections that stay.

use gantry_sandbox::egress::ProxyLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::stage::{DEADLINE, Server, Stage, policy, read_message};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// Where the names of these tests lead.
const HERE: &[&[&str]] = &[&["127.0.0.1"]];

#[tokio::test]
async fn a_server_sees_the_request_without_what_was_meant_for_the_proxy() {
    let mut server = Server::answering(
        "HTTP/1.1 200 Fine\r\nX-A: 1\r\nKeep-Alive: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nProxy-Thing: 1\r\nContent-Length: 2\r\n\r\nok",
    )
    .await;
    let port = server.port;
    let mut stage = Stage::new(&[format!("a.test:{port}")], &[("a.test", HERE)]).await;
    let mut tool = stage.tool().await;
    let asked = [
        format!("POST http://A.test:{port}/p?q=1 HTTP/1.1"),
        "Host: other.test".into(),
        "Proxy-Connection: keep-alive".into(),
        "Proxy-Authorization: Basic c2VjcmV0".into(),
        "Connection: keep-alive, X-Mine".into(),
        "X-Mine: 1".into(),
        "Keep-Alive: 5".into(),
        "TE: trailers".into(),
        "Upgrade: websocket".into(),
        "Content-Length: 5".into(),
        "Accept: */*".into(),
    ];
    tool.say(asked.join("\r\n") + "\r\n\r\nhello").await;
    let back = "HTTP/1.1 200 Fine\r\nX-A: 1\r\nContent-Length: 2\r\n\r\nok";
    assert_eq!(tool.hear_response().await, back);
    let seen = format!(
        "POST /p?q=1 HTTP/1.1\r\nHost: A.test:{port}\r\nAccept: */*\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello"
    );
    assert_eq!(server.heard().await, seen);
    // Counted is what was on the wire to and from the server, heads included.
    let usage = stage.usage().await;
    assert_eq!(usage.bytes_sent, seen.len() as u64);
    assert_eq!(
        usage.bytes_received,
        (back.len() + "Keep-Alive: 5\r\nConnection: X-Hop\r\nX-Hop: 1\r\nProxy-Thing: 1\r\n".len()) as u64
    );
}

#[tokio::test]
async fn every_request_of_a_connection_that_stays_is_checked() {
    let mut server = Server::answering(OK).await;
    let port = server.port;
    let stage = Stage::new(&[format!("a.test:{port}")], &[("a.test", HERE), ("b.test", HERE)]).await;
    let mut tool = stage.tool().await;
    for (host, status) in [("a.test", "200"), ("b.test", "403"), ("a.test", "200")] {
        tool.say(format!("GET http://{host}:{port}/ HTTP/1.1\r\nHost: a.test:{port}\r\n\r\n")).await;
        let response = tool.hear_response().await;
        assert_eq!(response.split(' ').nth(1), Some(status), "{host} {response}");
    }
    assert!(server.heard().await.contains("Host: a.test"));
    assert!(server.heard().await.contains("Host: a.test"));
    assert!(server.heard_no_more());
    assert_eq!(stage.names.asked(), ["a.test", "a.test"]);
    assert_eq!(stage.gate.meter().snapshot().kept[0].to_string(), format!("b.test:{port}"));
}

#[tokio::test]
async fn a_redirect_is_a_request_like_any_other() {
    let server =
        Server::answering("HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/latest\r\nContent-Length: 0\r\n\r\n")
            .await;
    let port = server.port;
    let stage = Stage::new(&[format!("a.test:{port}")], &[("a.test", HERE)]).await;
    let mut tool = stage.tool().await;
    tool.say(format!("GET http://a.test:{port}/ HTTP/1.1\r\nHost: a.test\r\n\r\n")).await;
    let response = tool.hear_response().await;
    let location = response.lines().find_map(|line| line.strip_prefix("Location: ")).unwrap();
    tool.say(format!("GET {location} HTTP/1.1\r\nHost: 169.254.169.254\r\n\r\n")).await;
    let refused = tool.hear_response().await;
    assert!(refused.starts_with("HTTP/1.1 403 Forbidden\r\n"), "{refused}");
    assert!(refused.contains("`network:http://169.254.169.254:80` in `required_permissions`"), "{refused}");
}

#[tokio::test]
async fn requests_sent_at_once_are_answered_in_turn() {
    let mut server = Server::answering(OK).await;
    let port = server.port;
    let stage = Stage::new(&[format!("a.test:{port}")], &[("a.test", HERE)]).await;
    let mut tool = stage.tool().await;
    let one = format!("GET http://a.test:{port}/1 HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc");
    let two = format!("GET http://a.test:{port}/2 HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    tool.say(one + &two).await;
    assert_eq!(tool.hear_response().await, OK);
    assert_eq!(tool.hear_all().await, OK.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    assert!(server.heard().await.starts_with("GET /1 ") && server.heard().await.starts_with("GET /2 "));
}

/// Method and version of the request, response of the server, what the program gets.
#[tokio::test]
async fn responses_come_back_in_a_form_the_program_understands() {
    let chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x\r\nabc\r\n0\r\nT: 1\r\n\r\n";
    let endless = "HTTP/1.0 200 OK\r\nX: 1\r\n\r\nabc";
    for (method, version, response, expected) in [
        (
            "GET",
            "1.1",
            chunks,
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        ),
        ("GET", "1.0", chunks, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabc"),
        ("GET", "1.1", endless, "HTTP/1.1 200 OK\r\nX: 1\r\nConnection: close\r\n\r\nabc"),
        (
            "HEAD",
            "1.1",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\nConnection: close\r\n\r\n",
        ),
        ("GET", "1.1", "HTTP/1.1 204 No\r\n\r\nignored", "HTTP/1.1 204 No\r\nConnection: close\r\n\r\n"),
        (
            "GET",
            "1.1",
            "HTTP/1.1 304 Same\r\nContent-Length: 9\r\n\r\n",
            "HTTP/1.1 304 Same\r\nContent-Length: 9\r\nConnection: close\r\n\r\n",
        ),
        (
            "GET",
            "1.1",
            "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
        ),
        (
            "GET",
            "1.0",
            "HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx",
            "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx",
        ),
    ] {
        let server = Server::answering(response).await;
        let stage = Stage::new(&[format!("a.test:{}", server.port)], &[("a.test", HERE)]).await;
        let mut tool = stage.tool().await;
        let url = format!("http://a.test:{}/", server.port);
        tool.say(format!("{method} {url} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n")).await;
        assert_eq!(tool.hear_all().await, expected, "{method} {version} {response}");
    }
}

#[tokio::test]
async fn a_server_that_wants_to_be_asked_first_is_asked() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let stage = Stage::new(&[format!("a.test:{port}")], &[("a.test", HERE)]).await;
    let mut tool = stage.tool().await;
    let head = "Host: a\r\nExpect: 100-continue\r\nTransfer-Encoding: chunked";
    tool.say(format!("PUT http://a.test:{port}/ HTTP/1.1\r\n{head}\r\n\r\n")).await;
    let (mut far, _) = timeout(DEADLINE, listener.accept()).await.unwrap().unwrap();
    let (seen, _) = read_message(&mut far).await;
    assert!(seen.contains("Expect: 100-continue\r\n") && seen.contains("Transfer-Encoding: chunked\r\n"), "{seen}");
    far.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
    assert_eq!(tool.hear(25).await, b"HTTP/1.1 100 Continue\r\n\r\n");
    tool.say("5\r\nhello\r\n0\r\n\r\n").await;
    let mut body = [0; 15];
    far.read_exact(&mut body).await.unwrap();
    assert_eq!(&body, b"5\r\nhello\r\n0\r\n\r\n");
    far.write_all(OK.as_bytes()).await.unwrap();
    assert_eq!(tool.hear_response().await, OK);
    // And the connection is as good as new.
    tool.say(format!("GET http://b.test:{port}/ HTTP/1.1\r\nHost: b\r\n\r\n")).await;
    assert!(tool.hear_response().await.starts_with("HTTP/1.1 403 "));
}

#[tokio::test]
async fn a_server_may_answer_before_it_has_read_all() {
    let server = Server::answering(OK).await;
    let stage = Stage::new(&[format!("a.test:{}", server.port)], &[("a.test", HERE)]).await;
    let mut tool = stage.tool().await;
    // The server takes no body of unknown length, so it answers at once; the rest of the body never comes.
    let url = format!("http://a.test:{}/", server.port);
    tool.say(format!("PUT {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel")).await;
    assert_eq!(tool.hear_all().await, OK);
}

#[tokio::test]
async fn what_a_server_must_not_answer_is_a_bad_gateway() {
    let (long, many) = ("x".repeat(9000), "HTTP/1.1 100 Continue\r\n\r\n".repeat(40));
    for response in [
        "",
        "HTTP/1.1 200",
        "SSH-2.0-OpenSSH_9.6\r\n",
        "\u{16}\u{3}\u{1}",
        "HTTP/1.1 200 OK\nContent-Length: 2\n\nok",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX: 1\r\n folded\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        &format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n"),
    ] {
        let server = Server::answering(response).await;
        let limits = ProxyLimits { head_bytes_max: 8 << 10, ..ProxyLimits::default() };
        let rules = policy(&[format!("a.test:{}", server.port)], &["127.0.0.0/8"]);
        let stage = Stage::with(rules, &[("a.test", HERE)], limits).await;
        let mut tool = stage.tool().await;
        tool.say(format!("GET http://a.test:{}/ HTTP/1.1\r\nHost: a\r\n\r\n", server.port)).await;
        let heard = tool.hear_all().await;
        assert!(heard.starts_with("HTTP/1.1 502 Bad Gateway\r\n"), "{response:.40} {heard}");
    }
    let server = Server::answering(many).await;
    let stage = Stage::new(&[format!("a.test:{}", server.port)], &[("a.test", HERE)]).await;
    let mut tool = stage.tool().await;
    tool.say(format!("GET http://a.test:{}/ HTTP/1.1\r\nHost: a\r\n\r\n", server.port)).await;
    assert!(tool.hear_all().await.matches("100 Continue").count() < 40);
}

#[tokio::test]
async fn a_response_that_breaks_off_is_not_made_whole() {
    for response in [
        "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    ] {
        let server = Server::answering(response).await;
        let stage = Stage::new(&[format!("a.test:{}", server.port)], &[("a.test", HERE)]).await;
        let mut tool = stage.tool().await;
        tool.say(format!("GET http://a.test:{}/ HTTP/1.1\r\nHost: a\r\n\r\n", server.port)).await;
        let heard = tool.hear_all().await;
        assert!(heard.starts_with("HTTP/1.1 200 ") && !heard.ends_with("0\r\n\r\n"), "{heard}");
    }
}
