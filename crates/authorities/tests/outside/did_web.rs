//! `did:web` documents on hosts that are listed, and those that are not.

use std::io;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::Subject;
use gantry_authorities::DidWeb;
use outbound::{AddressGuard, GateLimits, HostResolver};
use ports::clock::Clock;
use ports::did_resolver::{DidError, DidResolver as _};
use serde_json::json;
use tokio::task::JoinSet;

use crate::authority::{Authority, Behaviour, nobody};
use crate::manual_clock::ManualClock;

/// A server, a DID on it, and a resolver that may ask it.
struct Fixture {
    authority: Authority,
    did: Subject,
    clock: Arc<ManualClock>,
    resolver: Arc<DidWeb>,
}

/// A name server for which every name is this machine.
#[derive(Debug)]
struct Home;

#[async_trait]
impl HostResolver for Home {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![Ipv4Addr::LOCALHOST.into()])
    }
}

/// With these networks opened by the operator.
fn guard(open: &[&str]) -> AddressGuard {
    let open: Vec<_> = open.iter().map(|network| network.parse().unwrap()).collect();
    AddressGuard::for_listed_hosts(&open, GateLimits::default(), Arc::new(Home))
}

fn resolver(hosts: &[&str], clock: &Arc<ManualClock>) -> Arc<DidWeb> {
    guarded(guard(&["127.0.0.0/8"]), hosts, clock)
}

fn guarded(guard: AddressGuard, hosts: &[&str], clock: &Arc<ManualClock>) -> Arc<DidWeb> {
    let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
    let clock = Arc::clone(clock) as Arc<dyn Clock>;
    Arc::new(DidWeb::new(guard, &hosts, clock).unwrap())
}

fn did_at(port: u16, rest: &str) -> Subject {
    format!("did:web:127.0.0.1%3A{port}{rest}").parse().unwrap()
}

fn document(did: &Subject) -> Behaviour {
    Behaviour::json(&json!({"@context": "https://www.w3.org/ns/did/v1", "id": did.as_str()}))
}

impl Fixture {
    async fn new() -> Self {
        let authority = Authority::start(Behaviour::text("")).await;
        let did = did_at(authority.address.port(), ":user:alice");
        authority.behave(document(&did));
        let clock = Arc::new(ManualClock::default());
        Self { resolver: resolver(&["127.0.0.1"], &clock), authority, did, clock }
    }

    async fn resolve(&self) -> Result<(), DidError> {
        self.resolver.resolve(&self.did).await
    }
}

#[tokio::test]
async fn a_document_is_found_where_its_did_says() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.resolve().await, Ok(()));
    let root = did_at(fixture.authority.address.port(), "");
    fixture.authority.behave(document(&root));
    assert_eq!(fixture.resolver.resolve(&root).await, Ok(()));
    let paths: Vec<_> = fixture.authority.asked().into_iter().map(|asked| asked.path).collect();
    assert_eq!(paths, ["/user/alice/did.json", "/.well-known/did.json"]);
}

#[tokio::test]
async fn nobody_is_asked_who_is_not_on_the_list() {
    let Fixture { authority, did, clock, resolver: any_port } = Fixture::new().await;
    let port = authority.address.port();
    for hosts in [&[][..], &["localhost"], &["*.example.com"], &["127.0.0.2"], &["127.0.0.1:9"]] {
        assert_eq!(resolver(hosts, &clock).resolve(&did).await, Err(DidError::Unknown), "{hosts:?}");
    }
    for other in ["did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK", "did:ion:x", "admin", "did:web:"] {
        assert_eq!(any_port.resolve(&other.parse().unwrap()).await, Err(DidError::Unknown), "{other}");
    }
    for hidden in ["2130706433", "0x7f.1", "127.1"] {
        let did = format!("did:web:{hidden}%3A{port}").parse().unwrap();
        assert_eq!(any_port.resolve(&did).await, Err(DidError::Unknown), "{hidden}");
    }
    assert_eq!(authority.count(), 0);
    assert_eq!(resolver(&[&format!("127.0.0.1:{port}")], &clock).resolve(&did).await, Ok(()));
}

#[tokio::test]
async fn a_listed_name_that_leads_to_a_private_address_is_not_asked_unless_the_operator_has_opened_it() {
    let Fixture { authority, did, clock, .. } = Fixture::new().await;
    let port = authority.address.port();
    // Whoever has a name below a listed one decides where it leads; here to this machine.
    let inside = TcpListener::bind("127.0.0.1:0").unwrap();
    inside.set_nonblocking(true).unwrap();
    let below: Subject =
        format!("did:web:inside.example.com%3A{}", inside.local_addr().unwrap().port()).parse().unwrap();
    let local: Subject = format!("did:web:localhost%3A{port}").parse().unwrap();
    for (host, did) in [("*.example.com", &below), ("127.0.0.1", &did), ("localhost", &local)] {
        let closed = guarded(guard(&[]), &[host], &clock);
        assert_eq!(closed.resolve(did).await, Err(DidError::Unreachable), "{host}");
    }
    assert_eq!(authority.count(), 0, "nobody was asked");
    assert_eq!(inside.accept().unwrap_err().kind(), io::ErrorKind::WouldBlock, "nobody was connected to");
    // As the operator wants it.
    let opened = guarded(guard(&["127.0.0.0/8"]), &["127.0.0.1"], &clock);
    assert_eq!(opened.resolve(&did).await, Ok(()));
}

#[tokio::test]
async fn every_answer_but_a_document_is_a_no() {
    let fixture = Fixture::new().await;
    let did = fixture.did.as_str();
    let upper = did.to_uppercase();
    let padded = format!("{{\"id\": \"{did}\"}}{}", " ".repeat(70_000));
    for (behaviour, expected) in [
        (Behaviour::Answer(404, vec![]), DidError::Unknown),
        (Behaviour::Answer(410, vec![]), DidError::Unknown),
        (Behaviour::json(&json!({"id": "did:web:example.com"})), DidError::Unknown),
        (Behaviour::json(&json!({"id": upper})), DidError::Unknown),
        (Behaviour::json(&json!({"id": [did]})), DidError::Unknown),
        (Behaviour::json(&json!({})), DidError::Unknown),
        (Behaviour::json(&json!([did])), DidError::Unknown),
        (Behaviour::json(&json!(did)), DidError::Unknown),
        (Behaviour::text(&format!("{{\"id\": \"did:web:example.com\", \"id\": \"{did}\"}}")), DidError::Unknown),
        (Behaviour::text(&format!("{{\"id\": \"{did}\"")), DidError::Unknown),
        (Behaviour::text("<html>"), DidError::Unknown),
        (Behaviour::text(""), DidError::Unknown),
        (Behaviour::text(&padded), DidError::Unknown),
        (Behaviour::Answer(500, vec![]), DidError::Unreachable),
        (Behaviour::Answer(503, vec![]), DidError::Unreachable),
        (Behaviour::Answer(429, vec![]), DidError::Unreachable),
        (Behaviour::Answer(403, vec![]), DidError::Unreachable),
        (Behaviour::Redirect(fixture.authority.url("/elsewhere")), DidError::Unreachable),
    ] {
        let before = fixture.authority.count();
        fixture.authority.behave(behaviour.clone());
        assert_eq!(fixture.resolve().await, Err(expected), "{behaviour:?}");
        assert_eq!(fixture.authority.count(), before + 1, "{behaviour:?}");
        fixture.clock.advance(30);
    }
}

#[tokio::test]
async fn a_host_that_is_down_or_silent_cannot_say() {
    let clock = Arc::new(ManualClock::default());
    let (_kept, address) = nobody();
    let down = did_at(address.port(), "");
    assert_eq!(resolver(&["127.0.0.1"], &clock).resolve(&down).await, Err(DidError::Unreachable));

    let authority = Authority::start(Behaviour::Silence).await;
    let quick = DidWeb::new(guard(&["127.0.0.0/8"]), &["127.0.0.1".into()], clock).unwrap();
    let quick = quick.within(Duration::from_millis(60));
    let did = did_at(authority.address.port(), "");
    assert_eq!(quick.resolve(&did).await, Err(DidError::Unreachable));
}

#[tokio::test]
async fn concurrent_questions_make_one_request() {
    let fixture = Fixture::new().await;
    let body = json!({"id": fixture.did.as_str()}).to_string().into_bytes();
    fixture.authority.behave(Behaviour::OnCommand(body));
    let mut asking = JoinSet::new();
    for _ in 0..32 {
        let (resolver, did) = (Arc::clone(&fixture.resolver), fixture.did.clone());
        asking.spawn(async move { resolver.resolve(&did).await });
    }
    fixture.authority.arrival().await;
    fixture.authority.go_on();
    assert_eq!(asking.join_all().await, vec![Ok(()); 32]);
    assert_eq!(fixture.authority.count(), 1);
}

#[tokio::test]
async fn when_the_one_who_asks_gives_up_the_next_one_asks() {
    let fixture = Fixture::new().await;
    fixture.authority.behave(Behaviour::Silence);
    let (resolver, did) = (Arc::clone(&fixture.resolver), fixture.did.clone());
    let first = tokio::spawn(async move { resolver.resolve(&did).await });
    fixture.authority.arrival().await;
    fixture.authority.behave(document(&fixture.did));
    let (resolver, did) = (Arc::clone(&fixture.resolver), fixture.did.clone());
    let second = tokio::spawn(async move { resolver.resolve(&did).await });
    tokio::task::yield_now().await;
    first.abort();
    assert_eq!(second.await.unwrap(), Ok(()));
    assert_eq!(fixture.authority.count(), 2);
}

#[tokio::test]
async fn answers_are_used_for_as_long_as_they_are_worth() {
    let found = |did: &Subject| (document(did), Ok(()));
    for (first, seconds) in [
        (None, 300),
        (Some((Behaviour::Answer(404, vec![]), Err(DidError::Unknown))), 30),
        (Some((Behaviour::Answer(500, vec![]), Err(DidError::Unreachable))), 5),
    ] {
        let fixture = Fixture::new().await;
        let (behaviour, expected) = first.unwrap_or_else(|| found(&fixture.did));
        fixture.authority.behave(behaviour);
        assert_eq!(fixture.resolve().await, expected);
        // Another answer is not heard before the first one's time is over.
        let after = if expected.is_ok() {
            fixture.authority.behave(Behaviour::Answer(410, vec![]));
            Err(DidError::Unknown)
        } else {
            fixture.authority.behave(document(&fixture.did));
            Ok(())
        };
        fixture.clock.advance(seconds - 1);
        assert_eq!((fixture.resolve().await, fixture.authority.count()), (expected, 1), "{seconds}");
        fixture.clock.advance(1);
        assert_eq!((fixture.resolve().await, fixture.authority.count()), (after, 2), "{seconds}");
    }
}

#[tokio::test]
async fn a_document_whose_time_is_over_does_not_help_when_the_host_is_down() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.resolve().await, Ok(()));
    fixture.authority.behave(Behaviour::Answer(500, vec![]));
    fixture.clock.advance(300);
    assert_eq!(fixture.resolve().await, Err(DidError::Unreachable));
    fixture.authority.behave(document(&fixture.did));
    assert_eq!(fixture.resolve().await, Err(DidError::Unreachable));
    fixture.clock.advance(5);
    assert_eq!(fixture.resolve().await, Ok(()));
    assert_eq!(fixture.authority.count(), 3);
}
