//! A forwarder that adds the token: the suites cannot, and Gantry lets nobody in without one.
//!
//! It changes nothing else, so that the checks of headers reach the gateway as they were made. Every connection carries
//! one request, which is all the bookkeeping that forwarding bytes needs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Heads larger than this are no requests of a suite.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// A request whose head takes longer is dropped.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);

/// A running forwarder; it ends with its handle.
pub(super) struct Proxy {
    address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Proxy {
    pub(super) async fn start(gateway: SocketAddr, token: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let added: Arc<str> = Arc::from(format!("authorization: Bearer {token}\r\nconnection: close\r\n"));
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let added = Arc::clone(&added);
                // A connection that breaks is between the two who talk.
                tokio::spawn(async move { drop(forward(client, gateway, &added).await) });
            }
        });
        Ok(Self { address, task })
    }

    /// Where the suite finds the MCP door.
    pub(super) fn url(&self) -> String {
        format!("http://localhost:{}/mcp", self.address.port())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn forward(mut client: TcpStream, gateway: SocketAddr, added: &str) -> Result<()> {
    client.set_nodelay(true)?;
    let mut head = Vec::new();
    let line_end = tokio::time::timeout(HEAD_TIME_MAX, async {
        loop {
            if client.read_buf(&mut head).await? == 0 {
                bail!("the client hung up");
            }
            if head.windows(4).any(|window| window == b"\r\n\r\n") {
                return head.windows(2).position(|window| window == b"\r\n").context("a head without lines");
            }
            if head.len() > HEAD_BYTES_MAX {
                bail!("the head is too large");
            }
        }
    })
    .await??;
    let mut server = TcpStream::connect(gateway).await?;
    server.set_nodelay(true)?;
    let (request_line, rest) = head.split_at(line_end + 2);
    server.write_all(request_line).await?;
    server.write_all(added.as_bytes()).await?;
    server.write_all(&without_connection(rest)).await?;
    tokio::io::copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}

/// The headers without the client's own word about the connection; the body, if some of it came along, as it is.
fn without_connection(rest: &[u8]) -> Vec<u8> {
    let Some(end) = rest.windows(4).position(|window| window == b"\r\n\r\n") else { return rest.to_vec() };
    let (head, body) = rest.split_at(end + 4);
    let mut kept = Vec::with_capacity(rest.len());
    for line in head.split_inclusive(|byte| *byte == b'\n') {
        if !line.to_ascii_lowercase().starts_with(b"connection:") {
            kept.extend_from_slice(line);
        }
    }
    kept.extend_from_slice(body);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_word_about_the_connection_is_taken_away() {
        let head = b"Host: localhost\r\nConnection: keep-alive\r\nMcp-Method: ping\r\n\r\nconnection: body";
        let kept = without_connection(head);
        assert_eq!(kept, b"Host: localhost\r\nMcp-Method: ping\r\n\r\nconnection: body");
    }

    #[tokio::test]
    async fn the_token_is_added_and_the_rest_is_as_it_was() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Proxy::start(listener.local_addr().unwrap(), "secret").await.unwrap();
        let mut client = TcpStream::connect(proxy.address).await.unwrap();
        client.write_all(b"POST /mcp HTTP/1.1\r\nHost: evil.example\r\n\r\nbody").await.unwrap();
        client.shutdown().await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let mut seen = String::new();
        server.read_to_string(&mut seen).await.unwrap();
        let expected =
            "POST /mcp HTTP/1.1\r\nauthorization: Bearer secret\r\nconnection: close\r\nHost: evil.example\r\n\r\nbody";
        assert_eq!(seen, expected);
    }
}
