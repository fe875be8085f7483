//! Outgoing HTTP of guests: to what the manifest declares, counted, and nowhere else. Servers are on loopback.

use std::sync::atomic::AtomicUsize;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::probe::{attempt, probe};
use super::*;

/// A server that counts connections and the bytes of what it is sent.
struct Server {
    port: u16,
    connections: Arc<AtomicUsize>,
    received: Arc<AtomicUsize>,
}

const ANSWER: &[u8] = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = Self { port, connections: Arc::default(), received: Arc::default() };
        let (connections, received) = (Arc::clone(&server.connections), Arc::clone(&server.received));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read_buf(&mut request).await {
                        Ok(0) | Err(_) => break,
                        Ok(_) => {}
                    }
                    // A TLS greeting is no request: the client is to be told so.
                    if request.first() == Some(&0x16) {
                        break;
                    }
                }
                received.store(request.len(), Ordering::SeqCst);
                let _ = stream.write_all(ANSWER).await;
            }
        });
        server
    }

    fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_declared_host_is_reached_and_every_byte_counted() {
    let server = Server::start().await;
    let tool = probe(&[format!("network:http://{}", server.authority())]);
    let output = HARNESS.call(&tool, json!({ "do": ["get", "http", server.authority(), "/path?q=1"] })).await.unwrap();
    assert_eq!(output.value, json!({ "answer": "status 204" }));
    assert_eq!(output.usage.network_bytes_sent, server.received.load(Ordering::SeqCst) as u64);
    assert_eq!(output.usage.network_bytes_received, ANSWER.len() as u64);
}

#[tokio::test]
async fn an_undeclared_destination_is_a_violation_and_never_connected_to() {
    let (declared, other) = (Server::start().await, Server::start().await);
    let with = probe(&[format!("network:http://{}", declared.authority())]);
    let without = probe(&[]);
    for (tool, authority) in [
        (&with, other.authority()),
        (&with, format!("localhost:{}", declared.port)),
        (&with, "169.254.169.254:80".to_owned()),
        (&without, declared.authority()),
    ] {
        let refusal = attempt(tool, &["get", "http", &authority, "/"]).await.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::E3406, "{authority}: {refusal}");
        assert!(refusal.resolution().contains("required_permissions"), "{}", refusal.resolution());
    }
    assert_eq!((declared.connections(), other.connections()), (0, 0));
}

#[tokio::test]
async fn what_fails_on_the_way_is_the_guests_to_handle() {
    let server = Server::start().await;
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let tool =
        probe(&[format!("network:https://{}", server.authority()), format!("network:http://127.0.0.1:{nobody}")]);
    for (scheme, authority) in [("http", format!("127.0.0.1:{nobody}")), ("https", server.authority())] {
        let answer = attempt(&tool, &["get", scheme, &authority, "/"]).await.unwrap();
        assert!(answer["refused"].as_str().unwrap().starts_with("error code"), "{scheme}: {answer}");
    }
    // A name in the address would end up in a header.
    let authority = format!("user:word@{}", server.authority());
    let answer = attempt(&tool, &["get", "http", &authority, "/"]).await.unwrap();
    assert!(answer["refused"].is_string(), "{answer}");
    assert_eq!(server.connections(), 1, "the one by TLS");
}
