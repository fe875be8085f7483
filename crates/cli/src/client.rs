//! The CLI's way to a server: REST with a token, errors as [`CommandFailure`]s.
//!
//! Nobody listening is told apart from everything else, because some commands can then work from the data directory.
//!
//! Not here: retries. A person is waiting, and decides.

use std::time::Duration;

use outbound::{ClientOptions, operators_client_with_tls};
use reqwest::{Method, StatusCode};
use serde_json::Value;

use crate::failure::CommandFailure;
use crate::server_trust::{ServerTrust, tls_error};

/// To connect; a local server answers in less than a millisecond.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle connections kept for the next request: none. Between two of them a package may be installed, the server closes what was idle
/// too long, and a request that leaves in that moment is lost, with nobody to know whether it was heard.
const IDLE_CONNECTIONS_MAX: usize = 0;
/// For an answer, unless a call says that it may take longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// More than any answer of a server of ours.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Talks to one server.
#[derive(Debug)]
pub(crate) struct ServerClient {
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    trust: ServerTrust,
}

/// Why there is no answer to work with.
#[derive(Debug)]
pub(crate) enum ClientError {
    /// Nobody listens there.
    NotRunning { base: String },
    /// There is an answer, and it is no; or the talk broke off.
    Failed(CommandFailure),
}

impl From<ClientError> for CommandFailure {
    fn from(error: ClientError) -> Self {
        match error {
            ClientError::NotRunning { base } => Self::new(format!("no server answers at {base}"))
                .hint("start one with `gantry serve`, or name another with --server URL"),
            ClientError::Failed(failure) => failure,
        }
    }
}

impl ServerClient {
    /// For the server at `base`.
    pub(crate) fn new(base: &str, token: Option<String>, trust: ServerTrust) -> Result<Self, CommandFailure> {
        let url = reqwest::Url::parse(base).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
        let Some(host) = url.as_ref().and_then(reqwest::Url::host_str) else {
            return Err(CommandFailure::usage(format!("`{base}` is not the address of a server"))
                .hint("write for example --server http://127.0.0.1:7300"));
        };
        let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        let http = connected(&trust, !is_local, IDLE_CONNECTIONS_MAX)?;
        Ok(Self { http, base: base.trim_end_matches('/').to_owned(), token, trust })
    }

    /// What reaches the same server in the same way, for talks of another kind that keep up to `idle` connections.
    pub(crate) fn connector(&self, idle: usize) -> Result<reqwest::Client, CommandFailure> {
        connected(&self.trust, false, idle)
    }

    /// The server's address.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Asks.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.send(Method::GET, path, None, ANSWER_TIMEOUT).await
    }

    /// Sends a body.
    pub(crate) async fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.send(Method::POST, path, Some(body), ANSWER_TIMEOUT).await
    }

    /// Puts something in its place.
    pub(crate) async fn put(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.send(Method::PUT, path, Some(body), ANSWER_TIMEOUT).await
    }

    /// Puts something in its place that may take as long as `patience`.
    pub(crate) async fn put_patiently(
        &self,
        path: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Value, ClientError> {
        self.send(Method::PUT, path, Some(body), patience).await
    }

    /// Takes something away.
    pub(crate) async fn delete(&self, path: &str) -> Result<Value, ClientError> {
        self.send(Method::DELETE, path, None, ANSWER_TIMEOUT).await
    }

    /// Sends a body whose answer may take as long as `patience`.
    pub(crate) async fn post_patiently(
        &self,
        path: &str,
        body: &Value,
        patience: Duration,
    ) -> Result<Value, ClientError> {
        self.send(Method::POST, path, Some(body), patience).await
    }

    /// A stream of events, for as long as the server sends some.
    pub(crate) async fn events(&self, path: &str) -> Result<reqwest::Response, ClientError> {
        let mut request = self.http.get(format!("{}{path}", self.base)).header("accept", "text/event-stream");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| self.no_answer(&error))?;
        if response.status().is_success() {
            return Ok(response);
        }
        let status = response.status();
        let bytes = self.bytes_of(response).await?;
        match self.document(status, &bytes) {
            Ok(_) => Err(self.stranger("answered with something else than a stream of events")),
            Err(error) => Err(error),
        }
    }

    /// What the server says about its own health; also when it says that it is not well.
    pub(crate) async fn health(&self) -> Result<Value, ClientError> {
        let mut request = self.http.get(format!("{}/health", self.base)).timeout(CONNECT_TIMEOUT);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let response = request.send().await.map_err(|error| self.no_answer(&error))?;
        let status = response.status();
        let bytes = self.bytes_of(response).await?;
        let document: Option<Value> = serde_json::from_slice(&bytes).ok();
        document
            .filter(|document| document.get("healthy").is_some_and(Value::is_boolean))
            .ok_or_else(|| self.stranger(&format!("answered with status {status} when asked for its health")))
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        patience: Duration,
    ) -> Result<Value, ClientError> {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).timeout(patience);
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let response = request.send().await.map_err(|error| self.no_answer(&error))?;
        let status = response.status();
        let bytes = self.bytes_of(response).await?;
        self.document(status, &bytes)
    }

    async fn bytes_of(&self, mut response: reqwest::Response) -> Result<Vec<u8>, ClientError> {
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.no_answer(&error))? {
            if bytes.len() + chunk.len() > ANSWER_BYTES_MAX {
                return Err(self.stranger("answered with more than any Gantry would"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn document(&self, status: StatusCode, bytes: &[u8]) -> Result<Value, ClientError> {
        let document: Option<Value> = serde_json::from_slice(bytes).ok();
        match document {
            Some(document) if status.is_success() => Ok(document),
            Some(document) => Err(match CommandFailure::from_problem(document) {
                Some(failure) => ClientError::Failed(self.advised(status, failure)),
                None => self.stranger(&format!("answered with status {status}")),
            }),
            None => Err(self.stranger(&format!("answered with status {status} and no JSON"))),
        }
    }

    /// A refused token needs another hint here than it does for an agent.
    fn advised(&self, status: StatusCode, failure: CommandFailure) -> CommandFailure {
        if status != StatusCode::UNAUTHORIZED {
            failure
        } else if self.token.is_none() {
            failure.hint(
                "no token was found: run it where the server's data directory is, or give --data-dir, --token-file or GANTRY_TOKEN",
            )
        } else if failure.has_code("E3201") {
            // Ended or revoked: the server's own advice is the right one.
            failure
        } else {
            failure.hint(format!(
                "the server at {} does not accept this token: check --data-dir, --token-file, GANTRY_TOKEN and --server",
                self.base
            ))
        }
    }

    fn no_answer(&self, error: &reqwest::Error) -> ClientError {
        if let Some(reason) = tls_error(error) {
            ClientError::Failed(CommandFailure::new(format!("there is no TLS with {}: {reason}", self.base)).hint(
                "check the address, the authority (--ca), and the certificate to show (--client-cert), if the server \
                     demands one",
            ))
        } else if error.is_connect() {
            ClientError::NotRunning { base: self.base.clone() }
        } else if error.is_timeout() {
            ClientError::Failed(
                CommandFailure::new(format!("the server at {} did not answer in time", self.base))
                    .hint("what was asked may still be under way; `gantry doctor` looks at the server"),
            )
        } else {
            ClientError::Failed(
                CommandFailure::new(format!("the connection to {} broke off before the answer", self.base))
                    .hint("look at the server's log"),
            )
        }
    }

    fn stranger(&self, what: &str) -> ClientError {
        ClientError::Failed(
            CommandFailure::new(format!("what listens at {} is not a Gantry server: it {what}", self.base))
                .hint("name the right one with --server URL"),
        )
    }
}

/// No redirect is followed: a token must not travel to wherever an answer points.
fn connected(trust: &ServerTrust, environment_proxy: bool, idle: usize) -> Result<reqwest::Client, CommandFailure> {
    let options = ClientOptions {
        connect: Some(CONNECT_TIMEOUT),
        idle_per_host: idle,
        environment_proxy,
        ..ClientOptions::default()
    };
    operators_client_with_tls(options, trust.config()?)
        .map_err(|_| CommandFailure::new("the HTTP client cannot be set up on this machine"))
}

/// One segment of a path, whatever is in it.
pub(crate) fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.extend(
                [byte >> 4, byte & 15]
                    .map(|nibble| char::from_digit(nibble.into(), 16).unwrap_or('0').to_ascii_uppercase()),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_cannot_leave_its_place() {
        for (text, expected) in [
            ("demo.word_stats", "demo.word_stats"),
            ("^1.0.0", "%5E1.0.0"),
            ("a/b?c#d", "a%2Fb%3Fc%23d"),
            (">=1 <2", "%3E%3D1%20%3C2"),
            ("ü", "%C3%BC"),
        ] {
            assert_eq!(segment(text), expected);
        }
    }

    /// Answers the first request on each connection, and closes it when there is a second.
    fn impatient(listener: &std::net::TcpListener) {
        use std::io::{Read as _, Write as _};
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = [0; 4096];
                let mut is_answered = false;
                while stream.read(&mut request).is_ok_and(|length| length > 0) && !is_answered {
                    is_answered = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}").is_ok();
                }
            });
        }
    }

    #[tokio::test]
    async fn a_connection_that_was_idle_is_not_used_again() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || impatient(&listener));
        let client = ServerClient::new(&base, None, ServerTrust::default()).unwrap();
        for _ in 0..3 {
            assert!(client.get("/v1/servers").await.is_ok());
        }
    }

    #[test]
    fn only_addresses_of_servers_are_taken() {
        for bad in ["", "localhost", "ftp://x", "/tmp", "http://"] {
            assert!(ServerClient::new(bad, None, ServerTrust::default()).is_err(), "{bad}");
        }
        let client = ServerClient::new("http://[::1]:7300/", None, ServerTrust::default()).unwrap();
        assert_eq!(client.base(), "http://[::1]:7300");
    }

    #[test]
    fn answers_of_strangers_are_told_apart_from_refusals() {
        let client = ServerClient::new("http://127.0.0.1:1", None, ServerTrust::default()).unwrap();
        let text = |status, body: &str| match client.document(status, body.as_bytes()) {
            Ok(_) => "fine".to_owned(),
            Err(error) => CommandFailure::from(error).message,
        };
        assert_eq!(text(StatusCode::OK, "{}"), "fine");
        assert!(text(StatusCode::OK, "<html>").contains("not a Gantry server"));
        assert!(text(StatusCode::NOT_FOUND, r#"{"detail":"x"}"#).contains("not a Gantry server"));
        assert_eq!(
            text(StatusCode::NOT_FOUND, r#"{"error":{"code":"E3101","message":"there is no tool"}}"#),
            "there is no tool"
        );
    }
}
