//! Connections: strangers, slow bodies and calls that never end leave room for other tenants.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use serde_json::json;

use super::{Stage, begin, call, metric, submit, token, until};
use crate::support::{Answer, Gantry, PATIENCE, Start, client};

/// A connection, and requests on it that go on where they stopped.
pub(super) struct Wire(TcpStream);

impl Wire {
    fn connect(gantry: &Gantry) -> Self {
        let stream = TcpStream::connect(gantry.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    /// A request whose body has begun and never ends.
    pub(super) fn begin(gantry: &Gantry, path: &str, media: &str, token: Option<&str>) -> Self {
        let mut wire = Self::connect(gantry);
        let who = token.map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{who}content-type: {media}\r\ncontent-length: 100\r\n\r\n{{",
            gantry.address()
        );
        wire.0.write_all(head.as_bytes()).unwrap();
        wire
    }

    /// A call that is answered, on this very connection.
    fn call(&mut self, gantry: &Gantry, token: &str) {
        let body = json!({ "tool_id": "calculator", "parameters": { "expression": "6 * 7" } }).to_string();
        let request = format!(
            "POST /v1/tools/invoke HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            gantry.address(),
            body.len()
        );
        self.0.write_all(request.as_bytes()).unwrap();
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        while !String::from_utf8_lossy(&bytes).contains("\"status\":\"success\"") {
            match self.0.read(&mut buffer) {
                Ok(count @ 1..) => bytes.extend_from_slice(&buffer[..count]),
                end => panic!("{end:?} after {}", String::from_utf8_lossy(&bytes)),
            }
        }
    }
}

/// A door with room for twenty, where nobody is sent away for being slow: room is made for newcomers, not by time.
async fn narrow_door() -> Gantry {
    let start = Start::new().env("GANTRY_SERVER__CONNECTIONS_MAX", "20");
    let start = start.env("GANTRY_SERVER__HEADER_READ_TIMEOUT_MS", "600000");
    start.env("GANTRY_SERVER__BODY_READ_TIMEOUT_MS", "600000").run().await
}

/// Two tenants that go on: each stays connected, and comes anew.
struct Neighbours {
    known: Vec<(String, Wire)>,
}

impl Neighbours {
    async fn connect(gantry: &Gantry) -> Self {
        let mut known = Vec::new();
        for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
            let (token, mut wire) = (token(gantry, tenant, agent).await, Wire::connect(gantry));
            wire.call(gantry, &token);
            known.push((token, wire));
        }
        Self { known }
    }

    async fn go_on(&mut self, gantry: &Gantry) {
        for _ in 0..3 {
            for (token, _) in &self.known {
                Wire::connect(gantry).call(gantry, token);
            }
            let fresh = Answer::of(client().get(format!("{}/health/live", gantry.url)).send().await.unwrap()).await;
            assert_eq!(fresh.status, 200);
        }
        for (token, wire) in &mut self.known {
            wire.call(gantry, token);
        }
        assert!(metric(gantry, "gantry_server_connections_evicted_total ").await.unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_strangers_make_room_and_clients_of_tenants_stay_connected() {
    let gantry = narrow_door().await;
    let mut neighbours = Neighbours::connect(&gantry).await;
    let strangers: Vec<Wire> = (0..50).map(|_| Wire::connect(&gantry)).collect();
    let mut slow = Wire::connect(&gantry);
    slow.0.write_all(b"GET /health/live HTTP/1.1\r\nx-slow: ").unwrap();
    neighbours.go_on(&gantry).await;
    drop((strangers, slow));
}

#[tokio::test(flavor = "multi_thread")]
async fn strangers_whose_bodies_never_end_make_room() {
    let gantry = narrow_door().await;
    let mut neighbours = Neighbours::connect(&gantry).await;
    let form = "application/x-www-form-urlencoded";
    let strangers: Vec<Wire> = (0..50).map(|_| Wire::begin(&gantry, "/oauth/token", form, None)).collect();
    neighbours.go_on(&gantry).await;
    drop(strangers);
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_tenant_whose_bodies_never_end_make_room_for_those_of_others() {
    let gantry = narrow_door().await;
    let mut neighbours = Neighbours::connect(&gantry).await;
    let mallory = token(&gantry, "mallory", "mallory").await;
    for path in ["/v1/tools/invoke", "/mcp", "/rpc"] {
        let slow: Vec<Wire> = (0..50).map(|_| Wire::begin(&gantry, path, "application/json", Some(&mallory))).collect();
        neighbours.go_on(&gantry).await;
        drop(slow);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_of_one_tenant_with_calls_that_never_end_are_three_quarters_of_all_at_most() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_SERVER__CONNECTIONS_MAX", "20").run().await;
    let mut agents = Vec::new();
    for number in 0..25 {
        agents.push(token(&gantry, "mallory", &format!("mallory-{number}")).await);
    }
    let mut held: Vec<_> = Vec::new();
    for (number, agent) in agents.iter().enumerate() {
        held.push(begin(&gantry, agent, &stage.parameters("gate", "held")));
        until("the call runs or is refused", async || {
            let refused = held.iter().filter(|call| call.is_finished()).count();
            (stage.noted().len() + refused == number + 1).then_some(())
        })
        .await;
    }
    assert_eq!(stage.noted().len(), 15, "three quarters of twenty");
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let answer = call(&gantry, &other).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    stage.open("gate");
    let (mut done, mut refused) = (0, 0);
    for call in held {
        let answer = call.await.unwrap();
        match answer.status {
            200 => done += 1,
            _ => {
                assert_eq!(answer.refusal(), (503, "E3001"), "{}", answer.text);
                assert!(!answer.header("retry-after").is_empty());
                refused += 1;
            }
        }
    }
    assert_eq!((done, refused), (15, 10));
}

#[tokio::test(flavor = "multi_thread")]
async fn two_tenants_with_calls_that_never_end_leave_connections_for_a_third() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_SERVER__CONNECTIONS_MAX", "20").run().await;
    let mut agents = Vec::new();
    for tenant in ["mallory", "trudy"] {
        for number in 0..20 {
            agents.push(token(&gantry, tenant, &format!("{tenant}-{number}")).await);
        }
    }
    let mut held: Vec<_> = Vec::new();
    for (number, agent) in agents.iter().enumerate() {
        held.push(begin(&gantry, agent, &stage.parameters("gate", "held")));
        until("the call runs or is refused", async || {
            let refused = held.iter().filter(|call| call.is_finished()).count();
            (stage.noted().len() + refused == number + 1).then_some(())
        })
        .await;
    }
    assert_eq!(stage.noted().len(), 18, "three quarters of twenty, and three quarters of the five that are left");
    for (tenant, agent) in [("acme", "ann"), ("zeta", "zoe")] {
        let other = token(&gantry, tenant, agent).await;
        let answer = call(&gantry, &other).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    }
    stage.open("gate");
    let mut done = 0;
    for call in held {
        done += usize::from(call.await.unwrap().status == 200);
    }
    assert_eq!(done, 18);
}

/// There is room for more streams than for connections, and each has a connection to itself.
#[tokio::test(flavor = "multi_thread")]
async fn event_streams_of_one_agent_leave_connections_for_other_tenants() {
    let stage = Stage::new();
    let gantry = stage.start().env("GANTRY_SERVER__CONNECTIONS_MAX", "20").run().await;
    let (agent, other) = (token(&gantry, "mallory", "mallory").await, token(&gantry, "acme", "ann").await);
    let id = submit(&gantry, &agent, "demo.gated", stage.parameters("gate", "held"), "normal").await;
    let (mut streams, mut refused) = (Vec::new(), 0);
    for _ in 0..30 {
        let mut wire = Wire::connect(&gantry);
        let head = format!(
            "GET /v1/invocations/{id}/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {agent}\r\n\r\n",
            gantry.address()
        );
        wire.0.write_all(head.as_bytes()).unwrap();
        let mut status = [0; 12];
        match wire.0.read_exact(&mut status) {
            Ok(()) if status.ends_with(b" 200") => streams.push(wire),
            _ => refused += 1,
        }
    }
    assert!(streams.len() <= 15 && refused >= 15, "{} streams, {refused} refused", streams.len());
    for _ in 0..3 {
        Wire::connect(&gantry).call(&gantry, &other);
    }
    stage.open("gate");
}
