//! The gate itself: what is decided before a name is resolved, after it, and what is connected to.

use std::sync::Arc;
use std::time::Duration;

use gantry_sandbox::egress::{
    AddressClass, EgressGate, EgressPolicy, EgressRefusal, EgressUsage, EgressViolation, GateLimits, HostResolver,
    SystemResolver,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::names::{Names, Silence};
use crate::stage::{Victim, policy};

fn gate(policy: EgressPolicy, names: &Arc<Names>) -> EgressGate {
    EgressGate::new(policy, names.clone())
}

#[tokio::test]
async fn a_declared_address_is_reached_and_its_bytes_are_counted() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let gate = gate(policy(&[format!("127.0.0.1:{port}")], &[]), &Arc::default());
    for host in ["127.0.0.1", "::ffff:127.0.0.1", "[::ffff:7f00:1]"] {
        let mut near = gate.connect(host, port).await.unwrap();
        let (mut far, _) = server.accept().await.unwrap();
        near.write_all(b"1234567").await.unwrap();
        far.read_exact(&mut [0; 7]).await.unwrap();
        far.write_all(b"123").await.unwrap();
        near.read_exact(&mut [0; 3]).await.unwrap();
    }
    let expected = EgressUsage { bytes_sent: 21, bytes_received: 9, connections: 3, violations: 0, kept: Vec::new() };
    assert_eq!(gate.meter().snapshot(), expected);
}

#[tokio::test]
async fn what_no_rule_admits_is_not_even_resolved() {
    let names = Arc::new(Names::new(&[("data.evil.test", &[&["8.8.8.8"]])]));
    let gate = gate(policy(&["*.good.test:443".into(), "good.test:443".into()], &[]), &names);
    for (host, port) in [("data.evil.test", 443), ("good.test", 80), ("good.test", 25), ("x.good.test", 0)] {
        let refused = gate.connect(host, port).await.unwrap_err();
        assert_eq!(refused, EgressRefusal::NotAllowed { host: host.into(), port });
        assert!(refused.is_violation());
    }
    assert_eq!(names.asked(), Vec::<String>::new());
    let usage = gate.meter().snapshot();
    assert_eq!((usage.violations, usage.connections), (4, 0));
    assert_eq!(usage.kept[0], EgressViolation { host: "data.evil.test".into(), port: 443, times: 1 });
}

#[tokio::test]
async fn odd_spellings_of_addresses_are_neither_addresses_nor_names() {
    let (victim, names) = (Victim::on("127.0.0.1:0"), Arc::new(Names::default()));
    let gate = gate(policy(&["*:*".into(), format!("127.0.0.1:{}", victim.port())], &[]), &names);
    for host in [
        "127.1",
        "0x7f.1",
        "0x7f000001",
        "2130706433",
        "017700000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "0",
        "127.0.0.01",
        "①②⑦.⓪.⓪.①",
        "localhost%00",
        "[::1%lo]",
        "127.0.0.1\0",
        "",
        ".",
        "127.0.0.1 ",
        "a b",
        "a`b",
    ] {
        let refused = gate.connect(host, victim.port()).await.unwrap_err();
        assert!(matches!(refused, EgressRefusal::NotAHost { .. }) && refused.is_violation(), "{host} {refused}");
        assert!(refused.to_string().is_ascii(), "{refused}");
    }
    assert!(victim.was_left_alone() && names.asked().is_empty());
}

#[tokio::test]
async fn a_message_repeats_only_a_bounded_part_of_what_was_asked_for() {
    let gate = gate(policy(&[], &[]), &Arc::default());
    let refused = gate.connect(&"\u{1b}[31m".repeat(10_000), 80).await.unwrap_err().to_string();
    assert!(refused.len() < 200 && !refused.contains('\u{1b}'), "{refused}");
}

#[tokio::test]
async fn names_that_lead_inwards_are_refused_before_any_connect() {
    let victim = Victim::on("127.0.0.1:0");
    let port = victim.port();
    for (addresses, class) in [
        (&["127.0.0.1"][..], AddressClass::Loopback),
        (&["::1"], AddressClass::Loopback),
        (&["::ffff:127.0.0.1"], AddressClass::Loopback),
        (&["64:ff9b::7f00:1"], AddressClass::Loopback),
        (&["2002:7f00:1::"], AddressClass::Loopback),
        (&["0.0.0.0"], AddressClass::Unspecified),
        (&["::"], AddressClass::Unspecified),
        (&["10.0.0.1"], AddressClass::Private),
        (&["192.168.0.1"], AddressClass::Private),
        (&["fd00::1"], AddressClass::Private),
        (&["100.64.0.1"], AddressClass::Shared),
        (&["169.254.1.1"], AddressClass::LinkLocal),
        (&["fe80::1"], AddressClass::LinkLocal),
        (&["169.254.169.254"], AddressClass::Metadata),
        (&["fd00:ec2::254"], AddressClass::Metadata),
        (&["100.100.100.200"], AddressClass::Metadata),
        (&["255.255.255.255"], AddressClass::Multicast),
    ] {
        let names = Arc::new(Names::new(&[("h.test", &[addresses])]));
        let gate = gate(policy(&[format!("h.test:{port}")], &[]), &names);
        let expected = EgressRefusal::ForbiddenAddress { host: "h.test".into(), port, class };
        // The decision alone first: if it were wrong, nothing should leave this machine because of a test.
        assert_eq!(gate.resolve("h.test", port).await, Err(expected.clone()), "{addresses:?}");
        assert_eq!(gate.connect("h.test", port).await.unwrap_err(), expected, "{addresses:?}");
        assert_eq!(gate.meter().snapshot().violations, 2);
    }
    assert!(victim.was_left_alone());
}

#[tokio::test]
async fn a_mixed_answer_is_refused_as_a_whole_wherever_the_bad_address_stands() {
    let victim = Victim::on("127.0.0.1:0");
    let port = victim.port();
    let open = Victim::on(&format!("127.0.0.2:{port}"));
    for addresses in [&["127.0.0.1", "127.0.0.2"][..], &["127.0.0.2", "127.0.0.1"], &["127.0.0.2", "::1"]] {
        let names = Arc::new(Names::new(&[("h.test", &[addresses])]));
        let gate = gate(policy(&[format!("h.test:{port}")], &["127.0.0.2/32"]), &names);
        let refused = gate.connect("h.test", port).await.unwrap_err();
        assert!(matches!(refused, EgressRefusal::ForbiddenAddress { .. }), "{addresses:?} {refused}");
        assert_eq!(gate.meter().snapshot().connections, 0);
    }
    assert!(victim.was_left_alone() && open.was_left_alone());
}

#[tokio::test]
async fn localhost_is_this_machine_whatever_a_resolver_says() {
    let victim = Victim::on("127.0.0.1:0");
    let port = victim.port();
    let names = Arc::new(Names::new(&[("localhost", &[&["8.8.8.8"]])]));
    for resolver in [names.clone() as Arc<dyn HostResolver>, Arc::new(SystemResolver)] {
        let rules = [format!("localhost:{port}"), format!("*.localhost:{port}")];
        let shut = EgressGate::new(policy(&rules, &[]), resolver.clone());
        for host in ["localhost", "LOCALHOST.", "a.localhost"] {
            let refused = shut.connect(host, port).await.unwrap_err();
            assert!(
                matches!(refused, EgressRefusal::ForbiddenAddress { class: AddressClass::Loopback, .. }),
                "{refused}"
            );
        }
        assert!(victim.was_left_alone());
        let open = EgressGate::new(policy(&rules, &["127.0.0.0/8"]), resolver);
        open.connect("localhost", port).await.unwrap();
        assert!(!victim.was_left_alone());
    }
    assert!(names.asked().is_empty());
}

#[tokio::test]
async fn a_name_that_is_rebound_is_judged_again_and_nothing_is_connected() {
    // Both have the same port, on two addresses of loopback of which one is open.
    let victim = Victim::on("127.0.0.1:0");
    let port = victim.port();
    let server = TcpListener::bind(("127.0.0.2", port)).await.unwrap();
    let names = Arc::new(Names::new(&[("h.test", &[&["127.0.0.2"], &["127.0.0.1"]])]));
    let gate = gate(policy(&[format!("h.test:{port}")], &["127.0.0.2/32"]), &names);

    let mut first = gate.connect("h.test", port).await.unwrap();
    let (mut far, _) = server.accept().await.unwrap();
    let second = gate.connect("h.test", port).await.unwrap_err();
    assert!(matches!(second, EgressRefusal::ForbiddenAddress { class: AddressClass::Loopback, .. }), "{second}");
    assert!(victim.was_left_alone());
    // One resolution for each connection: there was none in between that could have been answered otherwise.
    assert_eq!(names.asked(), ["h.test", "h.test"]);
    // The connection that was made stays where it was judged.
    first.write_all(b"x").await.unwrap();
    assert_eq!(far.read_u8().await.unwrap(), b'x');
}

#[tokio::test]
async fn addresses_are_tried_in_order_until_one_answers() {
    let server = TcpListener::bind("127.0.0.3:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let names = Arc::new(Names::new(&[("h.test", &[&["127.0.0.4", "127.0.0.3", "127.0.0.5"]])]));
    let gate = gate(policy(&[format!("h.test:{port}")], &["127.0.0.0/8"]), &names);
    let stream = gate.connect("h.test", port).await.unwrap();
    assert_eq!(stream.get_ref().peer_addr().unwrap().to_string(), format!("127.0.0.3:{port}"));
    assert_eq!(gate.meter().snapshot().connections, 1);
}

#[tokio::test]
async fn addresses_beyond_the_limit_are_neither_judged_nor_used() {
    let names = Arc::new(Names::new(&[("h.test", &[&["8.8.8.8", "1.1.1.1", "10.0.0.1"]])]));
    let limits = GateLimits { addresses_max: 2, ..GateLimits::default() };
    let gate = EgressGate::with_limits(policy(&["h.test:443".into()], &[]), names, limits);
    let addresses = gate.resolve("h.test", 443).await.unwrap();
    assert_eq!(addresses.iter().map(ToString::to_string).collect::<Vec<_>>(), ["8.8.8.8:443", "1.1.1.1:443"]);
}

#[tokio::test]
async fn misfortunes_are_told_apart_and_are_no_violations() {
    // Nobody in these tests listens on this address.
    let closed = 9;
    let names = Arc::new(Names::new(&[("empty.test", &[&[]]), ("closed.test", &[&["127.0.0.9"]])]));
    let gate = gate(policy(&["*:*".into()], &["127.0.0.0/8"]), &names);
    for (host, expected) in [
        ("unknown.test", EgressRefusal::Unresolvable { host: "unknown.test".into() }),
        ("empty.test", EgressRefusal::Unresolvable { host: "empty.test".into() }),
        ("closed.test", EgressRefusal::Unreachable { host: "closed.test".into(), port: closed }),
    ] {
        let refused = gate.connect(host, closed).await.unwrap_err();
        assert!(refused == expected && !refused.is_violation(), "{refused}");
    }
    assert_eq!(gate.meter().snapshot(), EgressUsage::default());
}

#[tokio::test(start_paused = true)]
async fn a_resolver_that_never_answers_is_not_waited_for() {
    let gate = EgressGate::new(policy(&["h.test:443".into()], &[]), Arc::new(Silence));
    let before = tokio::time::Instant::now();
    let refused = gate.connect("h.test", 443).await.unwrap_err();
    assert_eq!(refused, EgressRefusal::TimedOut { host: "h.test".into(), port: 443 });
    assert!(before.elapsed() < GateLimits::default().resolve_timeout + Duration::from_millis(10));
}

#[tokio::test]
async fn a_call_has_a_bounded_number_of_connections() {
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let limits = GateLimits { connections_max: 2, ..GateLimits::default() };
    let gate = EgressGate::with_limits(policy(&[format!("127.0.0.1:{port}")], &[]), Arc::new(Silence), limits);
    let first = gate.connect("127.0.0.1", port).await.unwrap();
    let _second = gate.connect("127.0.0.1", port).await.unwrap();
    assert_eq!(gate.connect("127.0.0.1", port).await.unwrap_err(), EgressRefusal::TooMany);
    drop(first);
    gate.connect("127.0.0.1", port).await.unwrap();
}
