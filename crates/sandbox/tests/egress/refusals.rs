//! What the proxy refuses by itself: destinations, and heads that are too large, too slow, or mean two things.

use std::time::Duration;

use gantry_sandbox::egress::{GateOwner, ProxyLimits};
use tokio::net::TcpListener;

use crate::stage::{DEADLINE, Stage, Victim, policy};

const HERE: &[&[&str]] = &[&["127.0.0.1"]];

#[tokio::test]
async fn a_refusal_says_what_to_declare() {
    let mut stage = Stage::with(
        policy(&["a.test:443".into(), "inward.test:443".into()], &[]),
        &[("inward.test", HERE)],
        ProxyLimits::default(),
    )
    .await;
    for (request, status, text) in [
        (
            "CONNECT b.test:443 HTTP/1.1",
            "403 Forbidden",
            "declare `network:https://b.test:443` in `required_permissions`",
        ),
        ("CONNECT b.test:80 HTTP/1.1", "403 Forbidden", "declare `network:http://b.test:80` in `required_permissions`"),
        ("CONNECT a.test:25 HTTP/1.1", "403 Forbidden", "declare `network:https://a.test:25` in"),
        ("GET http://B.test/x HTTP/1.1", "403 Forbidden", "declare `network:http://b.test:80` in"),
        ("CONNECT [::1]:443 HTTP/1.1", "403 Forbidden", "declare `network:https://[::1]:443` in"),
        ("CONNECT inward.test:443 HTTP/1.1", "403 Forbidden", "`inward.test:443` leads to a loopback address"),
        ("CONNECT a.test:443 HTTP/1.1", "502 Bad Gateway", "the name `a.test` could not be resolved"),
        ("CONNECT 0x7f.1:443 HTTP/1.1", "400 Bad Request", "`0x7f.1` is neither a host name"),
        ("GET http://2130706433/ HTTP/1.1", "400 Bad Request", "`2130706433` is neither a host name"),
    ] {
        let mut tool = stage.tool().await;
        tool.say(format!("{request}\r\nHost: b.test\r\nConnection: close\r\n\r\n")).await;
        let heard = tool.hear_all().await;
        assert!(heard.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{request} {heard}");
        assert!(heard.contains(text) && heard.contains("Connection: close\r\n"), "{request} {heard}");
    }
    assert_eq!(stage.usage().await.violations, 8);
}

#[tokio::test]
async fn a_server_reads_the_command_that_grants_the_host_and_no_member_of_a_manifest() {
    let owner = GateOwner::Server("weather".into());
    let stage = Stage::of(owner, policy(&["a.test:443".into()], &[]), &[], ProxyLimits::default()).await;
    for (request, host) in [
        ("CONNECT b.test:443 HTTP/1.1", "b.test"),
        ("CONNECT b.test:80 HTTP/1.1", "http://b.test"),
        ("CONNECT b.test:5432 HTTP/1.1", "b.test:5432"),
        ("GET http://b.test/x HTTP/1.1", "http://b.test"),
        ("CONNECT [::1]:443 HTTP/1.1", "[::1]:443"),
    ] {
        let mut tool = stage.tool().await;
        tool.say(format!("{request}\r\nHost: b.test\r\nConnection: close\r\n\r\n")).await;
        let heard = tool.hear_all().await;
        let command = format!("`gantry server grant weather --allow-host {host}` lets it");
        assert!(heard.contains(&command) && !heard.contains("required_permissions"), "{request} {heard}");
    }
}

#[tokio::test]
async fn an_answer_to_head_has_no_body() {
    let stage = Stage::new(&[], &[]).await;
    let mut tool = stage.tool().await;
    tool.say("HEAD http://b.test/ HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n").await;
    let heard = tool.hear_all().await;
    assert!(heard.starts_with("HTTP/1.1 403 ") && heard.ends_with("\r\n\r\n"), "{heard}");
}

#[tokio::test]
async fn heads_that_two_readers_could_read_in_two_ways_go_nowhere() {
    let victim = Victim::on("127.0.0.1:0");
    let mut stage = Stage::new(&["*:*".into()], &[("a.test", HERE)]).await;
    let url = format!("http://a.test:{}/", victim.port());
    for head in [
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\nabc"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\nabc"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\nabc"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999999\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: identity\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding:\r\n chunked\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n"),
        format!("GET {url} HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nX: 1\r\n folded\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\nX: 1\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nX: a\0b\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a b\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: a/b\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost: u@a\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nHost:\r\n\r\n"),
        format!("GET {url} HTTP/1.1\r\nX: no host\r\n\r\n"),
        format!("GET {url} HTTP/2.0\r\nHost: a\r\n\r\n"),
        format!("GET  {url} HTTP/1.1\r\nHost: a\r\n\r\n"),
        format!("GET {url}\r\nHost: a\r\n\r\n"),
        format!("G\u{e4}T {url} HTTP/1.1\r\nHost: a\r\n\r\n"),
        "GET / HTTP/1.1\r\nHost: a.test\r\n\r\n".into(),
        "GET http://user@a.test/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "GET https://a.test/ HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        format!("CONNECT a.test:{} HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", victim.port()),
        format!("CONNECT a.test:{} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", victim.port()),
        "CONNECT a.test HTTP/1.1\r\nHost: a\r\n\r\n".into(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(),
    ] {
        let mut tool = stage.tool().await;
        tool.say(&head).await;
        let heard = tool.hear_all().await;
        assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{head:?} {heard}");
    }
    assert!(victim.was_left_alone() && stage.names.asked().is_empty());
    assert_eq!(stage.usage().await.connections, 0);
}

#[tokio::test]
async fn bytes_that_are_no_protocol_are_answered_at_once() {
    let stage = Stage::new(&["*:*".into()], &[]).await;
    for bytes in
        [&b"\x16\x03\x01\x02\x00\x01"[..], b"\x04\x01\x00\x50", b"\0\0\0\0", b"\r\n\r\n", b"\xff\xfe", b"GET\x01"]
    {
        let mut tool = stage.tool().await;
        tool.say(bytes).await;
        let heard = tool.hear_all().await;
        assert!(heard.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{bytes:?} {heard}");
    }
    // And a program that says nothing, or half of something, and leaves, does no harm.
    for bytes in [&b""[..], b"GET http", b"\x05", b"\x05\x01\x00\x05"] {
        let mut tool = stage.tool().await;
        tool.say(bytes).await;
    }
    let mut tool = stage.tool().await;
    tool.say("GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n\r\n").await;
    assert!(tool.hear_response().await.starts_with("HTTP/1.1 502 "));
}

#[tokio::test]
async fn a_head_without_end_is_cut_off() {
    let stage = Stage::new(&["*:*".into()], &[]).await;
    let start = "GET http://a.test/ HTTP/1.1\r\nHost: a.test\r\n";
    for head in [
        format!("{start}X: {}", "x".repeat(40 << 10)),
        format!("GET http://a.test/{} HTTP/1.1\r\n\r\n", "x".repeat(40 << 10)),
        format!("{start}{}\r\n", "X: 1\r\n".repeat(200)),
    ] {
        let mut tool = stage.tool().await;
        tool.say(&head).await;
        let heard = tool.hear_all().await;
        assert!(heard.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{heard}");
    }
}

#[tokio::test]
async fn a_head_that_drips_is_not_waited_for() {
    let limits = ProxyLimits { head_timeout: Duration::from_millis(200), ..ProxyLimits::default() };
    let stage = Stage::with(policy(&["*:*".into()], &[]), &[], limits).await;
    let mut tool = stage.tool().await;
    let dripping = async {
        tool.say("GET http://a.test/ HTTP/1.1\r\nX: ").await;
        let (mut reader, mut writer) = tool.0.split();
        let mut heard = Vec::new();
        let drip = async {
            // Always busy, never done, and never as much as the bound of size.
            let mut pace = tokio::time::interval(Duration::from_millis(5));
            for _ in 0..20_000 {
                pace.tick().await;
                if tokio::io::AsyncWriteExt::write_all(&mut writer, b"x").await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            _ = tokio::io::AsyncReadExt::read_to_end(&mut reader, &mut heard) => {}
            () = drip => {}
        }
        String::from_utf8_lossy(&heard).into_owned()
    };
    let heard = tokio::time::timeout(DEADLINE, dripping).await.unwrap();
    assert!(heard.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{heard}");
}

#[tokio::test]
async fn a_server_that_stays_silent_is_a_gateway_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let limits = ProxyLimits { idle_timeout: Duration::from_millis(500), ..ProxyLimits::default() };
    let stage = Stage::with(policy(&[format!("127.0.0.1:{port}")], &[]), &[], limits).await;
    let mut tool = stage.tool().await;
    tool.say(format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: a\r\n\r\n")).await;
    assert!(tool.hear_all().await.starts_with("HTTP/1.1 504 Gateway Timeout\r\n"));
}

#[tokio::test]
async fn a_refused_request_with_a_body_cannot_pass_another_one_in_it() {
    let victim = Victim::on("127.0.0.1:0");
    let mut stage = Stage::new(&[format!("a.test:{}", victim.port())], &[("a.test", HERE)]).await;
    let mut tool = stage.tool().await;
    let inner = format!("GET http://a.test:{}/ HTTP/1.1\r\nHost: a\r\n\r\n", victim.port());
    let length = inner.len();
    tool.say(format!("POST http://b.test/ HTTP/1.1\r\nHost: b\r\nContent-Length: {length}\r\n\r\n{inner}")).await;
    let heard = tool.hear_all().await;
    assert!(heard.starts_with("HTTP/1.1 403 ") && heard.matches("HTTP/1.1").count() == 1, "{heard}");
    assert!(victim.was_left_alone());
    assert_eq!(stage.usage().await.connections, 0);
}
