//! What the tests play on: servers on loopback, a proxy in front of a gate, and a program that speaks raw bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use gantry_sandbox::egress::{
    EgressGate, EgressPolicy, EgressProxy, EgressUsage, GateLimits, GateOwner, ProxyHandle, ProxyLimits,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::names::Names;

/// No test waits longer for anything.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

/// A listener that nobody should connect to.
pub(crate) struct Victim(std::net::TcpListener);

impl Victim {
    pub(crate) fn on(address: &str) -> Self {
        let listener = std::net::TcpListener::bind(address).unwrap();
        listener.set_nonblocking(true).unwrap();
        Self(listener)
    }

    pub(crate) fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    /// On loopback a connection is in the queue as soon as the other side has it, so one look is enough.
    pub(crate) fn was_left_alone(&self) -> bool {
        self.0.accept().is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock)
    }
}

/// A policy of these rules and open networks.
pub(crate) fn policy(rules: &[String], open: &[&str]) -> EgressPolicy {
    EgressPolicy {
        rules: rules.iter().map(|r| r.parse().unwrap()).collect(),
        open_networks: open.iter().map(|c| c.parse().unwrap()).collect(),
        ..EgressPolicy::default()
    }
}

/// A proxy, its gate, and the names it knows.
pub(crate) struct Stage {
    pub(crate) proxy: Option<ProxyHandle>,
    pub(crate) gate: Arc<EgressGate>,
    pub(crate) names: Arc<Names>,
    pub(crate) address: SocketAddr,
}

impl Stage {
    /// A proxy for these rules, with loopback open: the names of the tests lead there.
    pub(crate) async fn new(rules: &[String], names: &[(&str, &[&[&str]])]) -> Self {
        Self::with(policy(rules, &["127.0.0.0/8"]), names, ProxyLimits::default()).await
    }

    pub(crate) async fn with(policy: EgressPolicy, names: &[(&str, &[&[&str]])], limits: ProxyLimits) -> Self {
        Self::of(GateOwner::Tool, policy, names, limits).await
    }

    /// The way out of somebody else than a tool.
    pub(crate) async fn of(
        owner: GateOwner,
        policy: EgressPolicy,
        names: &[(&str, &[&[&str]])],
        limits: ProxyLimits,
    ) -> Self {
        let names = Arc::new(Names::new(names));
        let gate = Arc::new(EgressGate::with_limits(policy, names.clone(), GateLimits::default()).owned_by(owner));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let proxy = Some(EgressProxy::serve_with(listener, gate.clone(), limits));
        Self { proxy, gate, names, address }
    }

    /// A connection of the program to its proxy.
    pub(crate) async fn tool(&self) -> Tool {
        Tool(TcpStream::connect(self.address).await.unwrap())
    }

    /// Ends the proxy, so that the counts stand still.
    pub(crate) async fn usage(&mut self) -> EgressUsage {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
        self.gate.meter().snapshot()
    }
}

/// The program's end of a connection.
pub(crate) struct Tool(pub(crate) TcpStream);

impl Tool {
    pub(crate) async fn say(&mut self, bytes: impl AsRef<[u8]>) {
        timeout(DEADLINE, self.0.write_all(bytes.as_ref())).await.unwrap().unwrap();
    }

    pub(crate) async fn hear(&mut self, bytes: usize) -> Vec<u8> {
        let mut heard = vec![0; bytes];
        timeout(DEADLINE, self.0.read_exact(&mut heard)).await.unwrap().unwrap();
        heard
    }

    /// Everything until the connection ends, or what came before it broke.
    pub(crate) async fn hear_all(&mut self) -> String {
        let mut heard = Vec::new();
        let _ = timeout(DEADLINE, self.0.read_to_end(&mut heard)).await.unwrap();
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// One response with a `Content-Length`.
    pub(crate) async fn hear_response(&mut self) -> String {
        let (head, body) = read_message(&mut self.0).await;
        head + &body
    }
}

/// Reads a head and the body its `Content-Length` announces.
pub(crate) async fn read_message(stream: &mut TcpStream) -> (String, String) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let byte = timeout(DEADLINE, stream.read_u8()).await.unwrap();
        head.push(byte.unwrap_or_else(|_| panic!("ended after {}", String::from_utf8_lossy(&head))));
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    timeout(DEADLINE, stream.read_exact(&mut body)).await.unwrap().unwrap();
    (head, String::from_utf8(body).unwrap())
}

/// A server that reads one message of each connection, answers it with these bytes, and hangs up.
pub(crate) struct Server {
    pub(crate) port: u16,
    heard: tokio::sync::mpsc::Receiver<String>,
    task: tokio::task::JoinHandle<()>,
}

impl Server {
    pub(crate) async fn answering(response: impl Into<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (tell, heard) = tokio::sync::mpsc::channel(64);
        let response = response.into();
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (head, body) = read_message(&mut stream).await;
                tell.send(head + &body).await.unwrap();
                stream.write_all(&response).await.unwrap();
            }
        });
        Self { port, heard, task }
    }

    /// The next message it got.
    pub(crate) async fn heard(&mut self) -> String {
        timeout(DEADLINE, self.heard.recv()).await.unwrap().unwrap()
    }

    /// Has it got no more than what was asked for with [`Server::heard`]?
    pub(crate) fn heard_no_more(&mut self) -> bool {
        self.heard.try_recv().is_err()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}
