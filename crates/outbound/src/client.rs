//! Clients: for addresses of the operator, for one judged origin, and for addresses that were judged already.

use std::any::Any;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{CONTENT_LENGTH, LOCATION};
use reqwest::{Body, Client, ClientBuilder, Method, RequestBuilder, Response, StatusCode, redirect};
use sandbox::egress::EgressHost;
use url::Url;

use crate::guard::{AddressGuard, DeniedAddress, GuardedTarget};

/// Redirects within one origin that are followed for one request.
const REDIRECTS_MAX: usize = 3;

/// How a client behaves.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClientOptions {
    /// Resolving and connecting, TLS included; `None` is bounded by `total` alone.
    pub connect: Option<Duration>,
    /// All of a request, to the last byte that is read; `None` is the caller's to bound.
    pub total: Option<Duration>,
    /// Idle connections kept per host for the next request.
    pub idle_per_host: usize,
    /// Use the proxy that the environment names: only for the command line of a person.
    pub environment_proxy: bool,
}

/// This machine cannot have an HTTP client.
#[derive(Debug, thiserror::Error)]
#[error("the HTTP client cannot be built")]
pub struct BuildError(#[source] reqwest::Error);

/// A client for one origin that was judged. Clones share their connections.
#[derive(Debug, Clone)]
pub struct OriginClient {
    http: Client,
    origin: Url,
}

/// A client for addresses that the operator has named in the configuration, or a person on the command line. It follows no
/// redirect.
///
/// # Errors
/// The machine cannot have one.
pub fn operators_client(options: ClientOptions) -> Result<Client, BuildError> {
    builder(options).redirect(redirect::Policy::none()).build().map_err(BuildError)
}

/// As [`operators_client`], with TLS as the caller has set it up: `tls` is a `rustls::ClientConfig`.
///
/// # Errors
/// The machine cannot have one, or `tls` is something else.
pub fn operators_client_with_tls(options: ClientOptions, tls: impl Any) -> Result<Client, BuildError> {
    builder(options).use_preconfigured_tls(tls).redirect(redirect::Policy::none()).build().map_err(BuildError)
}

/// A client that connects to these addresses, which were judged just now, and to no others. It follows no redirect and
/// keeps no connection, so it is good for one call.
///
/// # Errors
/// The machine cannot have one.
pub fn pinned_client(addresses: Vec<SocketAddr>, options: ClientOptions) -> Result<Client, BuildError> {
    builder(ClientOptions { idle_per_host: 0, ..options })
        .redirect(redirect::Policy::none())
        .http1_only()
        .dns_resolver(Arc::new(Pinned(addresses)))
        .build()
        .map_err(BuildError)
}

/// What the guard has said against a request that failed, if it was the guard.
#[must_use]
pub fn denial(error: &reqwest::Error) -> Option<&DeniedAddress> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(denied) = error.downcast_ref::<DeniedAddress>() {
            return Some(denied);
        }
        cause = error.source();
    }
    None
}

fn builder(options: ClientOptions) -> ClientBuilder {
    let mut builder = Client::builder()
        .pool_max_idle_per_host(options.idle_per_host)
        .tcp_nodelay(true)
        .user_agent(concat!("gantry/", env!("CARGO_PKG_VERSION")));
    // OUT-3.
    if !options.environment_proxy {
        builder = builder.no_proxy();
    }
    if let Some(connect) = options.connect {
        builder = builder.connect_timeout(connect);
    }
    match options.total {
        Some(total) => builder.timeout(total),
        None => builder,
    }
}

impl AddressGuard {
    /// A client for the origin of a target. Each connection it makes is judged anew.
    ///
    /// # Errors
    /// The machine cannot have one.
    pub fn client(
        self: &Arc<Self>,
        target: &GuardedTarget,
        options: ClientOptions,
    ) -> Result<OriginClient, BuildError> {
        // OUT-2, OUT-4.
        let same_origin = redirect::Policy::custom(|attempt| {
            let stays = attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
            let is_same_request =
                matches!(attempt.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT);
            if stays && is_same_request && attempt.previous().len() <= REDIRECTS_MAX {
                attempt.follow()
            } else {
                attempt.stop()
            }
        });
        let http = builder(options)
            // OUT-5.
            .http1_only()
            .redirect(same_origin)
            .dns_resolver(Arc::new(Judging { guard: Arc::clone(self), target: target.clone() }))
            .build()
            .map_err(BuildError)?;
        let mut origin = target.url().clone();
        origin.set_path("");
        origin.set_query(None);
        Ok(OriginClient { http, origin })
    }
}

impl OriginClient {
    /// A request to the path and query of `url` at the origin of this client, whatever host `url` has.
    pub fn request(&self, method: Method, url: &Url) -> RequestBuilder {
        let mut own = self.origin.clone();
        own.set_path(url.path());
        own.set_query(url.query());
        self.http.request(method, own)
    }

    /// Sends what `build` makes of an address, with this body, and follows redirects as the client does for other requests.
    /// `leaves` hears each time that a connection is there and the first byte of the request is about to be written to it:
    /// while a name is resolved, a connection made or TLS agreed upon, nothing has left (OUT-5).
    ///
    /// # Errors
    /// As `reqwest` has them.
    pub async fn post_noting(
        &self,
        url: &Url,
        body: &Bytes,
        build: impl Fn(RequestBuilder) -> RequestBuilder + Send + Sync,
        leaves: impl Fn() + Clone + Send + Sync + 'static,
    ) -> Result<Response, reqwest::Error> {
        let mut at = url.clone();
        for _ in 0..REDIRECTS_MAX {
            let response = self.post_once(&at, body, &build, leaves.clone()).await?;
            match same_origin_again(&response) {
                Some(next) => at = next,
                None => return Ok(response),
            }
        }
        self.post_once(&at, body, &build, leaves).await
    }

    async fn post_once(
        &self,
        url: &Url,
        body: &Bytes,
        build: impl Fn(RequestBuilder) -> RequestBuilder + Send + Sync,
        leaves: impl Fn() + Send + Sync + 'static,
    ) -> Result<Response, reqwest::Error> {
        // Over HTTP/1.1 the body is asked for its first part after the connection is there, and before the head is written:
        // both go into one buffer.
        let noted = Full::new(body.clone()).map_frame(move |frame| {
            leaves();
            frame
        });
        // Its length is not known to whoever wraps it.
        let request = self.request(Method::POST, url).header(CONTENT_LENGTH, body.len());
        build(request).body(Body::wrap(noted)).send().await
    }
}

/// Where the same request is wanted again, if that is at the same origin (OUT-2, OUT-4). A body that is noted cannot be
/// repeated by the client itself.
fn same_origin_again(response: &Response) -> Option<Url> {
    if !matches!(response.status(), StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT) {
        return None;
    }
    let next = response.url().join(response.headers().get(LOCATION)?.to_str().ok()?).ok()?;
    (next.origin() == response.url().origin()).then_some(next)
}

/// OUT-1, for many connections.
#[derive(Debug)]
struct Judging {
    guard: Arc<AddressGuard>,
    target: GuardedTarget,
}

impl Resolve for Judging {
    fn resolve(&self, name: Name) -> Resolving {
        let (guard, target) = (Arc::clone(&self.guard), self.target.clone());
        Box::pin(async move {
            let judged = match name.as_str().parse::<EgressHost>() {
                Ok(host) if host == *target.host() => guard.addresses(&target).await,
                _ => Err(DeniedAddress::NotAllowed("it is another host")),
            };
            judged
                .map(|addresses| Box::new(addresses.into_iter()) as Addrs)
                .map_err(|denied| Box::new(denied) as Box<dyn std::error::Error + Send + Sync>)
        })
    }
}

/// OUT-1, for one call.
#[derive(Debug)]
struct Pinned(Vec<SocketAddr>);

impl Resolve for Pinned {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::net::{IpAddr, Ipv4Addr};

    use sandbox::egress::{EgressBounds, GateLimits, HostResolver};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::opened::OpenedNetworks;

    #[derive(Debug)]
    struct ClientOrigin;

    #[async_trait::async_trait]
    impl HostResolver for ClientOrigin {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            Ok(vec![Ipv4Addr::LOCALHOST.into()])
        }
    }

    fn guard(opened: &[&str]) -> Arc<AddressGuard> {
        let opened = OpenedNetworks::read(opened.iter().copied()).unwrap();
        Arc::new(AddressGuard::for_tenants(
            opened,
            &EgressBounds::default(),
            GateLimits::default(),
            Arc::new(ClientOrigin),
        ))
    }

    /// Answers every request with this.
    async fn answering(answer: String) -> u16 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = answer.clone();
                tokio::spawn(async move {
                    let mut request = [0; 4096];
                    let _ = stream.read(&mut request).await;
                    let _ = stream.write_all(answer.as_bytes()).await;
                });
            }
        });
        port
    }

    const FOUND: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nhi";

    #[tokio::test]
    async fn a_name_that_leads_inside_is_denied_when_it_is_connected_to() {
        let guard = guard(&[]);
        let target = guard.target("https://inside.example/").unwrap();
        let client = guard.client(&target, ClientOptions::default()).unwrap();
        let error = client.request(Method::GET, target.url()).send().await.unwrap_err();
        assert!(matches!(denial(&error), Some(DeniedAddress::NotAllowed(_))), "{error:?}");
    }

    #[tokio::test]
    async fn a_request_stays_at_the_origin_that_was_judged() {
        let port = answering(FOUND.to_owned()).await;
        let guard = guard(&[&format!("http://127.0.0.1:{port}")]);
        let target = guard.target(&format!("http://127.0.0.1:{port}/a")).unwrap();
        let client = guard.client(&target, ClientOptions::default()).unwrap();
        let elsewhere = Url::parse("http://127.0.0.1:1/b").unwrap();
        let response = client.request(Method::GET, &elsewhere).send().await.unwrap();
        assert_eq!((response.status().as_u16(), response.url().port()), (200, Some(port)));
    }

    #[tokio::test]
    async fn a_redirect_that_would_make_another_request_of_it_is_not_followed() {
        for (status, followed) in [(301, false), (302, false), (303, false), (307, true), (308, true)] {
            let redirect = format!(
                "HTTP/1.1 {status} Elsewhere\r\nlocation: /other\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let port = answering(redirect).await;
            let guard = guard(&[&format!("http://127.0.0.1:{port}")]);
            let target = guard.target(&format!("http://127.0.0.1:{port}/a")).unwrap();
            let client = guard.client(&target, ClientOptions::default()).unwrap();
            let response = client.request(Method::POST, target.url()).body("x").send().await.unwrap();
            // Whoever answers is always told to go on; the last answer is handed over.
            let path = if followed { "/other" } else { "/a" };
            assert_eq!((response.status().as_u16(), response.url().path()), (status, path));
        }
    }

    #[tokio::test]
    async fn a_request_leaves_when_its_connection_is_there_and_not_before() {
        let times = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = Arc::clone(&times);
        let leaves = move || {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        };
        let left = || times.load(std::sync::atomic::Ordering::SeqCst);
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let again = "HTTP/1.1 307 Elsewhere\r\nlocation: /b\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
        let away = again.replace("/b", "http://127.0.0.1:1/b");
        for (port, times, status) in [
            (nobody, 0, None),
            (answering(FOUND.to_owned()).await, 1, Some(200)),
            (answering(again.to_owned()).await, 1 + 1 + REDIRECTS_MAX, Some(307)),
            (answering(away).await, 2 + 1 + REDIRECTS_MAX, Some(307)),
        ] {
            let address = format!("http://127.0.0.1:{port}");
            let guard = guard(&[&address]);
            let target = guard.target(&address).unwrap();
            let client = guard.client(&target, ClientOptions::default()).unwrap();
            let body = Bytes::from_static(b"{}");
            let sent = client.post_noting(target.url(), &body, |request| request, leaves.clone()).await;
            assert_eq!(sent.ok().map(|response| response.status().as_u16()), status);
            assert_eq!(left(), times);
        }
    }

    #[tokio::test]
    async fn a_redirect_to_another_origin_is_not_followed() {
        let secret = answering(FOUND.to_owned()).await;
        let redirect = format!(
            "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:{secret}/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
        );
        let port = answering(redirect).await;
        let guard = guard(&[&format!("http://127.0.0.1:{port}")]);
        let target = guard.target(&format!("http://127.0.0.1:{port}/")).unwrap();
        let client = guard.client(&target, ClientOptions::default()).unwrap();
        let response = client.request(Method::POST, target.url()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), 307);
    }
}
