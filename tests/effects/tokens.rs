//! The place that gives tokens for the bank, and takes its time when the test says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

/// A token endpoint of OAuth on loopback. Each token is another one.
pub(super) struct TokenPlace {
    pub(super) url: String,
    /// Who asks now is never answered.
    pub(super) is_silent: Arc<AtomicBool>,
    pub(super) asked: Arc<AtomicUsize>,
}

impl TokenPlace {
    pub(super) async fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/token", listener.local_addr().unwrap());
        let place = Self { url, is_silent: Arc::default(), asked: Arc::default() };
        let (is_silent, asked) = (Arc::clone(&place.is_silent), Arc::clone(&place.asked));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (is_silent, asked) = (Arc::clone(&is_silent), Arc::clone(&asked));
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).await;
                    let number = asked.fetch_add(1, Ordering::SeqCst);
                    if is_silent.load(Ordering::SeqCst) {
                        // Until whoever asks goes away.
                        while stream.read(&mut request).await.is_ok_and(|read| read > 0) {}
                        return;
                    }
                    let token =
                        format!(r#"{{"access_token":"token-{number}","token_type":"Bearer","expires_in":3600}}"#);
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{token}",
                        token.len()
                    );
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        place
    }
}
