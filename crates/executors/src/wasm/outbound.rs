//! Outgoing HTTP of guests: requests of `wasi:http/outgoing-handler`, sent over connections that somebody else has judged.
//!
//! The request is ours to send and the destination is the gate's to judge, so the two are apart: [`Outbound`] answers a
//! host and a port with a connection or a refusal, [`Sender`] speaks TLS and HTTP/1.1 over it. A redirect is an answer
//! like any other; a guest that follows it asks again and is judged again.
//!
//! Invariants
//! - WOUT-1: no byte leaves except through a connection the gate has given.
//! - WOUT-2: connections at once, headers and waiting are bounded; the call's deadline ends all of them.
//!
//! Not here: sockets (`grants` closes them), the rules about addresses (the gate).

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use http::uri::Scheme;
use http::{Method, Request, Response, Uri};
use http_body_util::BodyExt as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, WasiBody, WasiHttpHooks};

/// Requests of one call that may be under way at once.
const CONNECTIONS_MAX: usize = 16;
/// Waiting for a connection, unless the guest says less.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// Waiting for the head of an answer, unless the guest says less.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(600);
/// Header lines of an answer.
const HEADERS_MAX: usize = 100;
/// Bytes of the head of an answer, and of what is buffered of its body.
const BUFFER_BYTES_MAX: usize = 64 << 10;

/// A connection to somewhere.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Sync + Unpin + 'static> Stream for T {}

/// The gate between a guest and all networks.
#[async_trait]
pub(super) trait Outbound: Send + Sync + fmt::Debug {
    /// Connects, or refuses. A refusal by the rules is remembered as a violation.
    async fn connect(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, ConnectError>;

    /// What went through, and what was refused, so far.
    fn traffic(&self) -> Traffic;
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("the manifest does not allow this destination")]
    NotAllowed,
    #[error("the destination cannot be reached")]
    Unreachable(#[source] std::io::Error),
}

/// Bytes and refusals of one call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Traffic {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Destinations that were refused, the first few of them, as `host:port`.
    pub(super) violations: Vec<String>,
}

/// Sends what a guest asks to be sent.
#[derive(Debug)]
pub(super) struct Sender {
    gate: Arc<dyn Outbound>,
    connections: Arc<Semaphore>,
}

type Sent = (Response<WasiBody>, Box<dyn Future<Output = Result<(), Error>> + Send>);

impl Sender {
    pub(super) fn new(gate: Arc<dyn Outbound>) -> Self {
        Self { gate, connections: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

impl WasiHttpHooks for Sender {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _processed: Box<dyn Future<Output = Result<(), Error>> + Send>,
    ) -> Box<dyn Future<Output = Result<Sent, Error>> + Send> {
        let (gate, connections) = (Arc::clone(&self.gate), Arc::clone(&self.connections));
        Box::new(async move {
            let permit = connections.try_acquire_owned().map_err(|_| Error::ConnectionLimitReached)?;
            let (response, connection) = send(gate.as_ref(), request, options.unwrap_or_default()).await?;
            let io = async move {
                let _permit = permit;
                connection.await
            };
            Ok((response, Box::new(io) as Box<dyn Future<Output = _> + Send>))
        })
    }
}

async fn send(
    gate: &dyn Outbound,
    mut request: Request<WasiBody>,
    options: RequestOptions,
) -> Result<(Response<WasiBody>, impl Future<Output = Result<(), Error>> + Send + use<>), Error> {
    let destination = Destination::of(&request)?;
    // A tunnel would be a socket by another name.
    if request.method() == Method::CONNECT {
        return Err(Error::HttpRequestMethodInvalid);
    }
    let path = request.uri().path_and_query().cloned();
    let connect_max = options.connect_timeout.map_or(CONNECT_MAX, |asked| asked.min(CONNECT_MAX));
    let stream =
        tokio::time::timeout(connect_max, destination.connect(gate)).await.map_err(|_| Error::ConnectionTimeout)??;
    let (mut sender, connection) = hyper::client::conn::http1::Builder::new()
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    // Driven by a task of its own, which ends with the handle, and the handle with the call.
    let connection = wasmtime_wasi::runtime::spawn(connection);
    *request.uri_mut() = path.map_or_else(|| Uri::from_static("/"), Uri::from);
    let first_byte_max = options.first_byte_timeout.map_or(FIRST_BYTE_MAX, |asked| asked.min(FIRST_BYTE_MAX));
    let response = tokio::time::timeout(first_byte_max, sender.send_request(request))
        .await
        .map_err(|_| Error::ConnectionReadTimeout)??;
    let response = response.map(|body| body.map_err(Error::from).boxed_unsync());
    Ok((response, async move { connection.await.map_err(Error::from) }))
}

/// Where a request goes.
#[derive(Debug, PartialEq, Eq)]
struct Destination {
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    tls: bool,
}

impl Destination {
    fn of<B>(request: &Request<B>) -> Result<Self, Error> {
        let uri = request.uri();
        let authority = uri.authority().ok_or(Error::HttpRequestUriInvalid)?;
        // Names and passwords in addresses end up in headers and logs of others.
        if authority.as_str().contains('@') {
            return Err(Error::HttpRequestUriInvalid);
        }
        let tls = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err(Error::HttpProtocolError),
        };
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(Error::HttpRequestUriInvalid);
        }
        Ok(Self { host, port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }), tls })
    }

    async fn connect(&self, gate: &dyn Outbound) -> Result<Box<dyn Stream>, Error> {
        let stream = gate.connect(&self.host, self.port).await.map_err(|error| match error {
            ConnectError::NotAllowed => Error::HttpRequestDenied,
            ConnectError::Unreachable(error) => Error::Connect(error),
        })?;
        if !self.tls {
            return Ok(stream);
        }
        let name = ServerName::try_from(self.host.clone()).map_err(|_| Error::HttpRequestUriInvalid)?;
        let stream = tls()?.connect(name, stream).await.map_err(Error::Tls)?;
        Ok(Box::new(stream))
    }
}

/// The roots of the web, read once.
fn tls() -> Result<&'static TlsConnector, Error> {
    static CONNECTOR: OnceLock<Option<TlsConnector>> = OnceLock::new();
    let made = CONNECTOR.get_or_init(|| {
        let roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
        Some(TlsConnector::from(Arc::new(builder.with_root_certificates(roots).with_no_client_auth())))
    });
    made.as_ref().ok_or(Error::TlsProtocolError)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_is_read_from_the_address_alone() {
        let of = |uri: &str| Destination::of(&Request::builder().uri(uri).body(()).unwrap()).ok();
        let at = |host: &str, port, tls| Some(Destination { host: host.into(), port, tls });
        assert_eq!(of("https://example.com/a"), at("example.com", 443, true));
        assert_eq!(of("http://example.com:81/a"), at("example.com", 81, false));
        assert_eq!(of("http://[::1]:8080/"), at("::1", 8080, false));
        for refused in ["http://user@example.com/", "http://user:word@example.com/", "ftp://example.com/", "/path"] {
            assert_eq!(of(refused), None, "{refused}");
        }
    }
}
