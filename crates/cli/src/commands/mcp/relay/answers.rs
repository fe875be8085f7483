//! What the server gives back, read up to a bound, and what it means for a call if it cannot be read.

use std::collections::VecDeque;

use serde_json::Value;
use upstreams::sse_events::SseEvents;

/// Longest message of the server that is read.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 << 20;

/// Why a message has no answer, in terms of what became of it.
pub(super) fn unsent(error: &reqwest::Error) -> String {
    if error.is_connect() {
        "the Gantry server cannot be reached: the call did not run".to_owned()
    } else if error.is_builder() {
        "the message cannot be sent as it is: the call did not run".to_owned()
    } else {
        "the connection to the Gantry server broke: whether the call ran is not known".to_owned()
    }
}

fn too_long() -> String {
    "the Gantry server sends more than fits into one message: whether the call ran is not known".to_owned()
}

fn broken_off() -> String {
    "the answer of the Gantry server broke off: whether the call ran is not known".to_owned()
}

/// The kind of a body, in lower case and without parameters.
pub(super) fn media_of(response: &reqwest::Response) -> String {
    let media = response.headers().get("content-type").and_then(|media| media.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// The body of an answer, up to its bound.
pub(super) async fn json_of(mut response: reqwest::Response) -> Result<Value, String> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|_| broken_off())? {
        if body.len() + piece.len() > MESSAGE_BYTES_MAX {
            return Err(too_long());
        }
        body.extend_from_slice(&piece);
    }
    serde_json::from_slice(&body).map_err(|_| broken_off())
}

/// The messages of a stream, one after the other.
#[derive(Debug)]
pub(super) struct Messages {
    response: reqwest::Response,
    events: SseEvents,
    found: VecDeque<Value>,
}

impl Messages {
    pub(super) fn of(response: reqwest::Response) -> Self {
        Self { response, events: SseEvents::new(MESSAGE_BYTES_MAX), found: VecDeque::new() }
    }

    /// The next one; `None` at the end of the stream. Events that hold none, such as signs of life, are passed over.
    pub(super) async fn next(&mut self) -> Result<Option<Value>, String> {
        loop {
            if let Some(message) = self.found.pop_front() {
                return Ok(Some(message));
            }
            let Some(piece) = self.response.chunk().await.map_err(|_| broken_off())? else { return Ok(None) };
            let events = self.events.push(&piece).map_err(|_| too_long())?;
            self.found.extend(events.iter().filter_map(|event| serde_json::from_str::<Value>(&event.data).ok()));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    /// From somebody who says just this, whatever is asked.
    async fn response(body: &'static str) -> reqwest::Response {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: Text/Event-Stream; charset=utf-8\r\n\r\n";
        let saying = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            // All of the question first: to close with some of it unread would break the answer off.
            let mut asked = Vec::new();
            while !asked.ends_with(b"\r\n\r\n") {
                asked.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        };
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        tokio::join!(saying, http.get(url).send()).1.unwrap()
    }

    #[tokio::test]
    async fn messages_are_found_whatever_stands_around_them() {
        let text =
            "id: 1\ndata: {\"a\":1}\n\n: keep-alive\n\ndata: \nretry: 3000\n\r\ndata: {\"b\":\r\ndata: 2}\r\n\r\n";
        assert_eq!(media_of(&response(text).await), "text/event-stream");
        let mut messages = Messages::of(response(text).await);
        assert_eq!(messages.next().await.unwrap(), Some(json!({ "a": 1 })));
        assert_eq!(messages.next().await.unwrap(), Some(json!({ "b": 2 })));
        assert_eq!(messages.next().await.unwrap(), None);
    }

    #[tokio::test]
    async fn an_answer_that_is_none_says_what_is_not_known() {
        assert_eq!(json_of(response("{\"a\":[1]}").await).await.unwrap(), json!({ "a": [1] }));
        assert!(json_of(response("{\"a\":").await).await.unwrap_err().contains("is not known"));
    }
}
