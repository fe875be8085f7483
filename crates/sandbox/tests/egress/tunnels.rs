//! Tunnels by `CONNECT`: bytes, ends, idleness, bounds.

use std::num::NonZeroU64;
use std::time::Duration;

use gantry_sandbox::egress::ProxyLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

use crate::stage::{DEADLINE, Stage, Tool, policy};

const ESTABLISHED: &str = "HTTP/1.1 200 Connection Established\r\n\r\n";

/// A listener, and the rule that admits it.
async fn listener() -> (TcpListener, u16, Vec<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port, vec![format!("127.0.0.1:{port}")])
}

/// A tunnel and its far end.
async fn tunnel(stage: &Stage, listener: &TcpListener) -> (Tool, TcpStream) {
    let mut tool = stage.tool().await;
    let port = listener.local_addr().unwrap().port();
    tool.say(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n")).await;
    let (far, _) = timeout(DEADLINE, listener.accept()).await.unwrap().unwrap();
    assert_eq!(tool.hear(ESTABLISHED.len()).await, ESTABLISHED.as_bytes());
    (tool, far)
}

#[tokio::test]
async fn bytes_pass_both_ways_and_are_counted_exactly() {
    let (listener, _, rules) = listener().await;
    let mut stage = Stage::new(&rules, &[]).await;
    let (mut tool, mut far) = tunnel(&stage, &listener).await;
    let (up, down) = (vec![b'u'; 300_001], vec![b'd'; 500_003]);
    let sending = up.clone();
    let back = tokio::spawn(async move {
        let mut heard = vec![0; 300_001];
        far.read_exact(&mut heard).await.unwrap();
        far.write_all(&down).await.unwrap();
        heard
    });
    tool.say(&sending).await;
    assert_eq!(tool.hear_all().await.len(), 500_003);
    assert!(back.await.unwrap() == up);
    let usage = stage.usage().await;
    assert_eq!((usage.bytes_sent, usage.bytes_received, usage.connections), (300_001, 500_003, 1));
}

#[tokio::test]
async fn bytes_sent_together_with_the_head_are_not_lost() {
    let (listener, port, rules) = listener().await;
    let stage = Stage::new(&rules, &[]).await;
    let mut tool = stage.tool().await;
    tool.say(format!("CONNECT 127.0.0.1:{port} HTTP/1.0\r\n\r\nearly")).await;
    let (mut far, _) = listener.accept().await.unwrap();
    let mut heard = [0; 5];
    far.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"early");
}

#[tokio::test]
async fn a_side_that_has_finished_still_hears_the_other() {
    let (listener, _, rules) = listener().await;
    let stage = Stage::new(&rules, &[]).await;

    let (mut tool, mut far) = tunnel(&stage, &listener).await;
    tool.say("question").await;
    tool.0.shutdown().await.unwrap();
    let mut heard = String::new();
    timeout(DEADLINE, far.read_to_string(&mut heard)).await.unwrap().unwrap();
    far.write_all(b"answer").await.unwrap();
    drop(far);
    assert_eq!((heard.as_str(), tool.hear_all().await.as_str()), ("question", "answer"));

    let (mut tool, mut far) = tunnel(&stage, &listener).await;
    far.write_all(b"greeting").await.unwrap();
    far.shutdown().await.unwrap();
    assert_eq!(tool.hear_all().await, "greeting");
    tool.say("late").await;
    drop(tool);
    let mut heard = String::new();
    timeout(DEADLINE, far.read_to_string(&mut heard)).await.unwrap().unwrap();
    assert_eq!(heard, "late");
}

#[tokio::test]
async fn a_tunnel_in_which_nothing_moves_is_ended() {
    let (listener, _, rules) = listener().await;
    let limits = ProxyLimits { idle_timeout: Duration::from_millis(800), ..ProxyLimits::default() };
    let stage = Stage::with(policy(&rules, &[]), &[], limits).await;
    let (mut tool, mut far) = tunnel(&stage, &listener).await;
    let before = Instant::now();
    // One direction alone keeps it alive, for longer than that.
    while before.elapsed() < Duration::from_millis(1200) {
        far.write_all(b"x").await.unwrap();
        tool.hear(1).await;
    }
    assert_eq!(tool.hear_all().await, "");
    let mut rest = Vec::new();
    let _ = timeout(DEADLINE, far.read_to_end(&mut rest)).await.unwrap();
    assert!(rest.is_empty());
}

#[tokio::test]
async fn with_its_handle_the_proxy_and_all_its_connections_are_gone() {
    let (listener, _, rules) = listener().await;
    for by_drop in [true, false] {
        let mut stage = Stage::new(&rules, &[]).await;
        let (mut tool, mut far) = tunnel(&stage, &listener).await;
        let mut waiting = stage.tool().await;
        match stage.proxy.take() {
            Some(proxy) if by_drop => drop(proxy),
            Some(proxy) => proxy.stop().await,
            None => {}
        }
        assert_eq!(tool.hear_all().await, "");
        assert_eq!(waiting.hear_all().await, "");
        let mut rest = Vec::new();
        let _ = timeout(DEADLINE, far.read_to_end(&mut rest)).await.unwrap();
        let gone = async { while TcpStream::connect(stage.address).await.is_ok() {} };
        timeout(DEADLINE, gone).await.unwrap();
    }
}

#[tokio::test]
async fn further_connections_wait_until_one_of_the_allowed_number_ends() {
    let (listener, port, rules) = listener().await;
    let limits = ProxyLimits { connections_max: 2, ..ProxyLimits::default() };
    let stage = Stage::with(policy(&rules, &[]), &[], limits).await;
    let (first, far) = tunnel(&stage, &listener).await;
    let _second = tunnel(&stage, &listener).await;
    let mut third = stage.tool().await;
    third.say(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n")).await;
    let early = timeout(Duration::from_millis(100), listener.accept()).await;
    assert!(early.is_err(), "the third connection was served beside two others");
    drop(first);
    drop(far);
    timeout(DEADLINE, listener.accept()).await.unwrap().unwrap();
    assert_eq!(third.hear(ESTABLISHED.len()).await, ESTABLISHED.as_bytes());
}

#[tokio::test]
async fn the_bandwidth_of_a_call_holds_over_its_tunnels() {
    let (listener, _, rules) = listener().await;
    let mut narrow = policy(&rules, &[]);
    narrow.bytes_per_second = NonZeroU64::new(100_000);
    let stage = Stage::with(narrow, &[], ProxyLimits::default()).await;
    let (mut one, mut far_one) = tunnel(&stage, &listener).await;
    let (mut two, mut far_two) = tunnel(&stage, &listener).await;
    let before = Instant::now();
    let up = async {
        one.say(vec![1; 25_000]).await;
        far_one.read_exact(&mut vec![0; 25_000]).await.unwrap();
    };
    let down = async {
        far_two.write_all(&vec![2; 25_000]).await.unwrap();
        two.hear(25_000).await;
    };
    tokio::join!(up, down);
    // Half a second of bandwidth, of which one burst and one chunk for each may come early.
    assert!(before.elapsed() > Duration::from_millis(250), "{:?}", before.elapsed());
}
