//! Calls to addresses a tenant chose, against receivers on loopback that behave badly, and resolvers that lie.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gantry_executors::guarded_calls::{ANSWER_BYTES_MAX, CallTimes, GuardedCalls, OpenedNetworks};
use ports::call_out::{CallAnswer, CallOut, CallOutError, CallsOut as _};
use sandbox::egress::{EgressBounds, HostResolver};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// Answers every name with these, and counts how often it is asked.
#[derive(Debug, Default)]
struct Says(Vec<IpAddr>, AtomicUsize);

#[async_trait::async_trait]
impl HostResolver for Says {
    async fn resolve(&self, _: &str) -> std::io::Result<Vec<IpAddr>> {
        self.1.fetch_add(1, Ordering::SeqCst);
        Ok(self.0.clone())
    }
}

fn says(addresses: &[&str]) -> Arc<Says> {
    Arc::new(Says(addresses.iter().map(|address| address.parse().unwrap()).collect(), AtomicUsize::new(0)))
}

fn calls(allow: &[&str], resolver: Arc<Says>) -> GuardedCalls {
    calls_within(&EgressBounds::default(), allow, resolver)
}

fn calls_within(egress: &EgressBounds, allow: &[&str], resolver: Arc<Says>) -> GuardedCalls {
    let times = CallTimes { connect: Duration::from_secs(2), total: Duration::from_secs(2) };
    GuardedCalls::new(OpenedNetworks::read(allow.iter().copied()).unwrap(), egress, times, resolver)
}

async fn post(calls: &GuardedCalls, url: &str) -> Result<CallAnswer, CallOutError> {
    calls.post(CallOut { url, headers: &[("gantry-event", "webhook.test".into())], body: b"{}" }).await
}

/// A receiver that answers each connection with these bytes, and counts them. With `hang` it never answers.
async fn receiver(answer: Vec<u8>, hang: bool) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, seen) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let count = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            count.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            // In a task of its own, which holds the connection open until the caller has had enough.
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = stream.read(&mut head).await;
                if !hang {
                    let _ = stream.write_all(&answer).await;
                }
                while stream.read(&mut head).await.is_ok_and(|count| count > 0) {}
            });
        }
    });
    (address, seen)
}

fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len()).into_bytes()
}

#[tokio::test]
async fn what_must_not_be_called_is_refused_before_anybody_is_connected_to() {
    let not_public = CallOutError::NotAllowed("it is not public");
    let port = CallOutError::NotAllowed("its port is not 443");
    let calls = calls(&["hooks.example.com:8443", "10.0.0.7:443", "http://10.0.0.8:8080"], says(&["8.8.8.8"]));
    for (url, expected) in [
        ("https://hooks.example.com/a?b=c", Ok(())),
        ("https://hooks.example.com:8443/", Ok(())),
        ("https://10.0.0.7/", Ok(())),
        ("http://10.0.0.8:8080/", Ok(())),
        ("http://hooks.example.com/", Err(CallOutError::Plaintext)),
        ("http://10.0.0.8/", Err(CallOutError::Plaintext)),
        ("http://10.0.0.7:443/", Err(CallOutError::Plaintext)),
        ("https://other.example.com:8443/", Err(port.clone())),
        ("https://hooks.example.com:22/", Err(port)),
        ("https://10.0.0.9/", Err(not_public.clone())),
        ("https://127.0.0.1/", Err(not_public.clone())),
        ("https://2130706433/", Err(not_public.clone())),
        ("https://0x7f.1/", Err(not_public.clone())),
        ("https://[::1]/", Err(not_public.clone())),
        ("https://[::ffff:127.0.0.1]/", Err(not_public.clone())),
        ("https://169.254.169.254/latest/meta-data/", Err(not_public.clone())),
        ("https://[fd00:ec2::254]/", Err(not_public.clone())),
        ("https://0.0.0.0/", Err(not_public)),
        ("https://user@hooks.example.com/", Err(CallOutError::Address("it has a user or a password in it"))),
        ("https://:pw@hooks.example.com/", Err(CallOutError::Address("it has a user or a password in it"))),
        ("https://hooks.example.com/#a", Err(CallOutError::Address("it has a fragment"))),
        ("file:///etc/passwd", Err(CallOutError::Address("it has no host"))),
        ("ftp://hooks.example.com/", Err(CallOutError::Address("it must begin with `https://`"))),
        ("hooks.example.com", Err(CallOutError::Address("it is not a URL"))),
        ("", Err(CallOutError::Address("it is not a URL"))),
    ] {
        assert_eq!(calls.check(url), expected, "{url}");
    }
}

#[tokio::test]
async fn the_operators_bounds_hold_for_what_others_name() {
    let egress = EgressBounds {
        rules: Some(vec!["*.example.com:443".parse().unwrap()]),
        networks: Some(vec!["8.8.8.0/24".parse().unwrap()]),
        ..EgressBounds::default()
    };
    let within = calls_within(&egress, &["other.test:8443"], says(&["8.8.8.8"]));
    for (url, is_open) in [
        ("https://hooks.example.com/", true),
        ("https://other.test:8443/", true),
        ("https://other.test/", false),
        ("https://hooks.example.com:8443/", false),
    ] {
        assert_eq!(within.check(url).is_ok(), is_open, "{url}");
    }
    let outside = calls_within(&egress, &[], says(&["9.9.9.9"]));
    let denied = post(&outside, "https://hooks.example.com/").await;
    assert_eq!(denied.unwrap_err(), CallOutError::NotAllowed("it leads out of the open networks"));
}

#[tokio::test]
async fn where_a_name_leads_is_judged_after_it_was_resolved() {
    for addresses in [
        &["127.0.0.1"][..],
        &["10.0.0.1"],
        &["169.254.169.254"],
        &["::1"],
        &["fe80::1"],
        &["fd00:ec2::254"],
        &["64:ff9b::7f00:1"],
        &["100.64.0.1"],
        &["0.0.0.0"],
        // One bad address in an answer spoils it: it may be the one that is connected to.
        &["8.8.8.8", "127.0.0.1"],
    ] {
        let calls = calls(&[], says(addresses));
        let refused = post(&calls, "https://rebound.example.com/").await.unwrap_err();
        assert_eq!(refused.word(), "address_not_allowed", "{addresses:?}");
        assert!(refused.is_final() && calls.check("https://rebound.example.com/").is_ok());
    }
    assert_eq!(post(&calls(&[], says(&[])), "https://nowhere.example.com/").await, Err(CallOutError::Unresolved));
    for url in ["https://127.0.0.1/", "https://[::1]/", "https://localhost/"] {
        let resolver = says(&["8.8.8.8"]);
        assert_eq!(
            post(&calls(&[], Arc::clone(&resolver)), url).await.unwrap_err().word(),
            "address_not_allowed",
            "{url}"
        );
        assert_eq!(resolver.1.load(Ordering::SeqCst), 0, "nobody was asked about {url}");
    }
}

#[tokio::test]
async fn the_address_that_was_judged_is_the_one_connected_to_and_names_are_resolved_once() {
    let (address, seen) = receiver(answer("204 No Content", "", ""), false).await;
    let resolver = says(&["127.0.0.1"]);
    let port = address.port();
    let rule = format!("http://hooks.example.com:{port}");
    let calls = calls(&[&rule, "127.0.0.0/8"], Arc::clone(&resolver));
    // No server of names is asked on the way: nobody else knows this name.
    let answered = post(&calls, &format!("http://HOOKS.example.com.:{port}/")).await.unwrap();
    assert_eq!((answered.status, seen.load(Ordering::SeqCst)), (204, 1));
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn receivers_that_misbehave_cost_a_bounded_time_and_a_bounded_answer() {
    let long = "x".repeat(ANSWER_BYTES_MAX * 3);
    let cases = [
        (answer("200 OK", "", "{\"a\":1}"), false, Ok((200, 7))),
        (answer("500 Internal Server Error", "", "stack trace"), false, Ok((500, 11))),
        (answer("200 OK", "", &long), false, Ok((200, ANSWER_BYTES_MAX))),
        (answer("302 Found", "location: http://127.0.0.1:1/\r\n", ""), false, Err(CallOutError::Redirect(302))),
        (answer("308 Permanent Redirect", "location: /b\r\n", ""), false, Err(CallOutError::Redirect(308))),
        (
            b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{".to_vec(),
            false,
            Err(CallOutError::TimedOut(Duration::from_secs(2))),
        ),
        (b"nonsense\r\n\r\n".to_vec(), false, Err(CallOutError::BrokenOff)),
        (Vec::new(), true, Err(CallOutError::TimedOut(Duration::from_secs(2)))),
    ];
    let running = cases.map(|(bytes, hang, expected)| async move {
        let (address, seen) = receiver(bytes, hang).await;
        let calls = calls(&[&format!("http://{address}")], says(&[]));
        let got = post(&calls, &format!("http://{address}/hook")).await;
        assert_eq!(got.map(|answer| (answer.status, answer.body.len())), expected);
        assert_eq!(seen.load(Ordering::SeqCst), 1, "once, and nowhere else");
    });
    let started = tokio::time::Instant::now();
    for case in running.map(tokio::spawn) {
        case.await.unwrap();
    }
    assert!(started.elapsed() < Duration::from_secs(30));
}

#[tokio::test]
async fn nobody_listening_is_no_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let calls = calls(&[&format!("http://{address}")], says(&[]));
    assert_eq!(post(&calls, &format!("http://{address}/")).await, Err(CallOutError::NotConnected));
}

#[test]
fn words_that_open_nothing_are_named() {
    for text in ["http:*", "http://*", "10.0.0.1/8", "a b", "host:0", ""] {
        assert_eq!(OpenedNetworks::read([text]).unwrap_err().0, text);
    }
    assert!(OpenedNetworks::read(["https://a.example", "http://a.example:8080", "10.0.0.0/8", "[::1]:9000"]).is_ok());
}
