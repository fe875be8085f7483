//! SOCKS5 on the same port.

use std::time::Duration;

use gantry_sandbox::egress::ProxyLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::stage::{Stage, Victim, policy};

/// A request for an address in its wire form.
fn request(command: u8, kind: u8, address: &[u8], port: u16) -> Vec<u8> {
    [&[5, command, 0, kind], address, &port.to_be_bytes()].concat()
}

/// A name in its wire form.
fn name(text: &str) -> Vec<u8> {
    [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat()
}

const MAPPED: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1];

#[tokio::test]
async fn names_and_addresses_of_both_kinds_are_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let rules = [format!("127.0.0.1:{port}"), format!("a.test:{port}")];
    let mut stage = Stage::new(&rules, &[("a.test", &[&["127.0.0.1"]])]).await;
    for (kind, address) in [(1, vec![127, 0, 0, 1]), (3, name("A.test.")), (3, name("127.0.0.1")), (4, MAPPED.to_vec())]
    {
        let mut tool = stage.tool().await;
        tool.say([5, 2, 2, 0]).await;
        assert_eq!(tool.hear(2).await, [5, 0]);
        tool.say(request(1, kind, &address, port)).await;
        assert_eq!(tool.hear(10).await, [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        let (mut far, _) = listener.accept().await.unwrap();
        tool.say("ping").await;
        far.read_exact(&mut [0; 4]).await.unwrap();
        far.write_all(b"pong!").await.unwrap();
        assert_eq!(tool.hear(5).await, b"pong!");
    }
    let usage = stage.usage().await;
    assert_eq!((usage.bytes_sent, usage.bytes_received, usage.connections), (16, 20, 4));
}

#[tokio::test]
async fn everything_else_is_refused_with_its_code() {
    let victim = Victim::on("127.0.0.1:0");
    let open = victim.port();
    let rules = [format!("a.test:{open}"), format!("inward.test:{open}"), "127.0.0.9:9".into()];
    let mut stage =
        Stage::with(policy(&rules, &[]), &[("inward.test", &[&["127.0.0.1"]])], ProxyLimits::default()).await;
    for (bytes, code) in [
        (request(1, 1, &[127, 0, 0, 1], open), 2),
        (request(1, 1, &[169, 254, 169, 254], 80), 2),
        (request(1, 3, &name("b.test"), open), 2),
        (request(1, 3, &name("inward.test"), open), 2),
        (request(1, 3, &name("2130706433"), open), 2),
        (request(1, 3, &name("0x7f.1"), open), 2),
        (request(1, 3, &name(""), open), 2),
        (request(1, 3, &[3, 0xff, 0xfe, 0], open), 2),
        (request(1, 4, &MAPPED, open), 2),
        (request(1, 3, &name("a.test"), open), 4),
        (request(1, 1, &[127, 0, 0, 9], 9), 5),
        (request(2, 1, &[127, 0, 0, 1], open), 7),
        (request(3, 1, &[127, 0, 0, 1], open), 7),
        (request(9, 1, &[127, 0, 0, 1], open), 7),
        (request(1, 2, &[127, 0, 0, 1], open), 8),
        (vec![4, 1, 0, 1, 127, 0, 0, 1, 0, 80], 1),
    ] {
        let mut tool = stage.tool().await;
        tool.say([5, 1, 0]).await;
        assert_eq!(tool.hear(2).await, [5, 0]);
        tool.say(&bytes).await;
        assert_eq!(tool.hear(10).await[..2], [5, code], "{bytes:?}");
        assert_eq!(tool.hear_all().await, "");
    }
    assert!(victim.was_left_alone());
    let usage = stage.usage().await;
    assert_eq!((usage.violations, usage.connections), (9, 0));
}

#[tokio::test]
async fn a_program_that_insists_on_a_password_is_not_served() {
    let stage = Stage::new(&["*:*".into()], &[]).await;
    for greeting in [&[5, 1, 2][..], &[5, 0], &[5, 2, 1, 2]] {
        let mut tool = stage.tool().await;
        tool.say(greeting).await;
        assert_eq!(tool.hear(2).await, [5, 0xff]);
        assert_eq!(tool.hear_all().await, "");
    }
}

#[tokio::test]
async fn half_a_request_is_not_waited_for() {
    let limits = ProxyLimits { head_timeout: Duration::from_millis(100), ..ProxyLimits::default() };
    let stage = Stage::with(policy(&["*:*".into()], &[]), &[], limits).await;
    let mut tool = stage.tool().await;
    tool.say([5, 1, 0, 5, 1, 0, 3, 200]).await;
    assert_eq!(tool.hear_all().await.as_bytes(), [5, 0]);
}
