//! An HTTP server on loopback for tools to talk to, which counts connections and the bytes on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Answers every request with as many bytes as the number that is its path, after having read all of it.
pub(super) struct Loopback {
    pub(super) port: u16,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    connections: AtomicU64,
    received: AtomicU64,
    sent: AtomicU64,
}

impl Loopback {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let counts = Arc::<Counts>::default();
        let shared = Arc::clone(&counts);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                shared.connections.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(serve(stream, Arc::clone(&shared)));
            }
        });
        Self { port, counts }
    }

    pub(super) fn url(&self, bytes: usize) -> String {
        format!("http://127.0.0.1:{}/{bytes}", self.port)
    }

    pub(super) fn permission(&self) -> String {
        format!("network:http://127.0.0.1:{}", self.port)
    }

    pub(super) fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    pub(super) fn received(&self) -> u64 {
        self.counts.received.load(Ordering::SeqCst)
    }

    pub(super) fn sent(&self) -> u64 {
        self.counts.sent.load(Ordering::SeqCst)
    }
}

async fn serve(mut stream: TcpStream, counts: Arc<Counts>) -> std::io::Result<()> {
    let mut heard = Vec::new();
    let (body_at, head) = loop {
        if stream.read_buf(&mut heard).await? == 0 {
            return Ok(());
        }
        if let Some(at) = heard.windows(4).position(|four| four == b"\r\n\r\n") {
            break (at + 4, String::from_utf8_lossy(&heard[..at]).into_owned());
        }
    };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    while heard.len() < body_at + length.unwrap_or(0) {
        if stream.read_buf(&mut heard).await? == 0 {
            return Ok(());
        }
    }
    counts.received.fetch_add(heard.len() as u64, Ordering::SeqCst);
    let wanted: usize = head.split(['/', ' ']).find_map(|word| word.parse().ok()).unwrap_or(0);
    let mut answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {wanted}\r\nconnection: close\r\n\r\n").into_bytes();
    answer.resize(answer.len() + wanted, b'x');
    stream.write_all(&answer).await?;
    counts.sent.fetch_add(answer.len() as u64, Ordering::SeqCst);
    stream.shutdown().await
}
