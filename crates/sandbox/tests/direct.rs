//! Programs that know no proxy, in real sandboxes: they ask for a name, open a socket, and reach what they may.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test crate")]

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use async_trait::async_trait;
use gantry_sandbox::egress::{EgressGate, EgressPolicy, EgressProxy, EgressUsage, HostResolver};
use gantry_sandbox::{Sandbox, SandboxNetwork, SandboxSpec};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

#[path = "world/around.rs"]
#[expect(dead_code, reason = "shared with the other test programs")]
mod around;

use around::{outcome, sandbox, sandbox_of_an_ordinary_user};

/// Every name leads to this machine.
#[derive(Debug)]
struct ToLoopback;

#[async_trait]
impl HostResolver for ToLoopback {
    async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        Ok(vec![IpAddr::from([127, 0, 0, 1])])
    }
}

/// A service of the machine that says what was said to it, in capitals.
async fn service() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut said = [0; 2];
            stream.read_exact(&mut said).await.unwrap();
            stream.write_all(&said.to_ascii_uppercase()).await.unwrap();
        }
    });
    port
}

/// Says `hi` to each place, and prints what it hears or which error it gets.
fn talk(places: &[(&str, u16)]) -> SandboxSpec {
    let places: Vec<String> = places.iter().map(|(host, port)| format!("('{host}', {port})")).collect();
    let text = format!(
        "import socket\nfor place in [{}]:\n  try:\n    s = socket.create_connection(place, 20)\n    s.sendall(b'hi')\n    \
         print(s.recv(2).decode() or 'closed')\n  except socket.gaierror: print('no such name')\n  except ConnectionResetError: print('closed')\n  except OSError as e: print(e.errno)",
        places.join(", ")
    );
    SandboxSpec::new(["python3", "-c", &text])
}

/// Runs it behind a gate with these rules; what it printed, and what the gate counted.
async fn run(sandbox: &Sandbox, rules: &[String], spec: SandboxSpec) -> (String, EgressUsage) {
    let policy = EgressPolicy {
        rules: rules.iter().map(|rule| rule.parse().unwrap()).collect(),
        open_networks: vec!["127.0.0.0/8".parse().unwrap()],
        ..EgressPolicy::default()
    };
    let direct = policy.direct_places_that_tell();
    let gate = Arc::new(EgressGate::new(policy, Arc::new(ToLoopback)));
    let mut child = sandbox.spawn(SandboxSpec { network: SandboxNetwork::Proxied, direct, ..spec }).await.unwrap();
    let proxy = EgressProxy::serve(child.sockets.take().unwrap(), Arc::clone(&gate));
    let (out, err, _) = outcome(child).await;
    assert_eq!(err, "");
    proxy.stop().await;
    (out, gate.meter().snapshot())
}

#[tokio::test]
async fn a_program_that_knows_no_proxy_reaches_what_it_may_by_name_and_by_address() {
    let port = service().await;
    for sandbox in [sandbox(), sandbox_of_an_ordinary_user()] {
        let rules =
            [format!("db.example.com:{port}"), format!("*.below.example.com:{port}"), format!("127.0.0.1:{port}")];
        let places =
            [("db.example.com", port), ("a.below.example.com", port), ("127.0.0.1", port), ("localhost", port)];
        let (out, usage) = run(&sandbox, &rules, talk(&places)).await;
        assert_eq!(out, "HI\nHI\nHI\nHI\n");
        assert_eq!((usage.connections, usage.violations, usage.bytes_sent), (4, 0, 8));
    }
}

#[tokio::test]
async fn what_it_may_not_reach_has_no_name_or_is_closed_and_is_written_down() {
    let port = service().await;
    let rules = [format!("db.example.com:{port}")];
    let places = [("other.example.com", port), ("db.example.com", 5432), ("db.example.com", port), ("10.1.2.3", port)];
    let (out, usage) = run(&sandbox(), &rules, talk(&places)).await;
    // The last has no route: nothing but the program's own loopback is there.
    assert_eq!(out, "no such name\nclosed\nHI\n101\n");
    let kept: Vec<String> = usage.kept.iter().map(ToString::to_string).collect();
    assert_eq!(kept, ["other.example.com", "db.example.com:5432"]);
    let (out, usage) = run(&sandbox(), &[], talk(&[("other.example.com", 443)])).await;
    assert_eq!((out.as_str(), usage.kept.len()), ("no such name\n", 1), "also if it may go nowhere");
}

#[tokio::test]
async fn an_address_that_a_rule_names_is_reached_although_it_is_not_the_sandbox_s() {
    // The machine's own address, where nobody listens at this port: the connection is made by the gate, and refused there.
    let port = service().await;
    let address = "127.0.0.9";
    let rules = [format!("{address}:{port}"), "192.0.2.7:9".to_owned()];
    let (out, usage) = run(&sandbox(), &rules, talk(&[("192.0.2.7", 9)])).await;
    // TEST-NET is not public, and a rule that names it does not open it; what counts is that the gate was asked.
    assert_eq!(out, "closed\n");
    assert_eq!(usage.kept.iter().map(ToString::to_string).collect::<Vec<_>>(), ["192.0.2.7:9"]);
}

#[tokio::test]
async fn without_a_network_no_name_is_found_and_nothing_is_waited_for() {
    let child = sandbox().spawn(talk(&[("db.example.com", 443)])).await.unwrap();
    assert_eq!(outcome(child).await.0, "no such name\n");
}
