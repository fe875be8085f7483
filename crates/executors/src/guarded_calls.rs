//! Calls to addresses that a tenant chose, which must not lead where only this server can go. (ASYNC-007, HTTPX-008)
//!
//! The decision is the egress gate's, the same that stands before tools nobody trusts: which hosts and ports, then the name
//! is resolved once, every address is judged, and the connection goes to what was judged. Without a word of the operator
//! that is every public host on port 443 with https.
//!
//! The operator's words (`[webhooks] allow`):
//! - `hooks.example.com:8443`: this port of this host too;
//! - `10.0.0.7:8443`: this very address, though it is not public;
//! - `http://10.0.0.7:8080`: the same without TLS;
//! - `10.1.0.0/16`: names may lead into this network.
//!
//! Invariants
//! - OUT-1: the client resolves nothing: whatever name it asks for, it is given the addresses that were judged.
//! - OUT-2: no redirect is followed, no proxy of the environment is used, no connection is kept for a later call.
//! - OUT-3: an answer is read up to [`ANSWER_BYTES_MAX`], and what comes beyond is left unread.
//!
//! Not here: who is called when (`kernel::webhooks`), connections of tools (`confinement`).

use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use kernel::ports::call_out::{CallAnswer, CallOut, CallOutError, CallsOut};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Response, Url, redirect};
use sandbox::egress::{
    AddressClass, Cidr, CidrError, Gate, GateLimits, Host, HostPattern, Policy, Ports, Refused, Resolver, Rule,
    RuleError,
};
use tokio::time::Instant;

/// As much of an answer is read.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The port that is open without a word of the operator.
const HTTPS_PORT: u16 = 443;
/// Connections at once; one more waits for its next attempt.
const CONNECTIONS_MAX: usize = 64;

/// What the operator has opened beyond public hosts by https on port 443.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Opened {
    rules: Vec<Rule>,
    /// Those of the rules that may be called without TLS.
    plaintext: Vec<Rule>,
    networks: Vec<Cidr>,
}

/// Why a text opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenedError {
    #[error(transparent)]
    Rule(#[from] RuleError),
    #[error(transparent)]
    Network(#[from] CidrError),
    /// `http://*`, `http:*`.
    #[error("plain http is allowed for one host at a time: write `http://host:port`")]
    PlaintextEverywhere,
}

/// How long a call may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallTimes {
    /// Resolving and connecting, TLS included.
    pub connect: Duration,
    /// All of it, to the last byte that is read.
    pub total: Duration,
}

/// Calls out, guarded.
#[derive(Debug)]
pub struct GuardedCalls {
    gate: Gate,
    opened: Opened,
    times: CallTimes,
}

impl Default for CallTimes {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), total: Duration::from_secs(15) }
    }
}

impl Opened {
    /// Reads the operator's words.
    ///
    /// # Errors
    /// The first that cannot be read, with its text.
    pub fn read<'t>(texts: impl IntoIterator<Item = &'t str>) -> Result<Self, (String, OpenedError)> {
        let mut opened = Self::default();
        for text in texts {
            opened.add(text).map_err(|error| (text.to_owned(), error))?;
        }
        Ok(opened)
    }

    fn add(&mut self, text: &str) -> Result<(), OpenedError> {
        let text = text.trim();
        if text.contains('/') && !text.contains("://") {
            self.networks.push(Cidr::from_str(text)?);
            return Ok(());
        }
        let rule = Rule::from_str(text)?;
        if text.to_ascii_lowercase().starts_with("http:") {
            if rule.host == HostPattern::Any {
                return Err(OpenedError::PlaintextEverywhere);
            }
            self.plaintext.push(rule.clone());
        }
        self.rules.push(rule);
        Ok(())
    }
}

impl GuardedCalls {
    /// With what the operator has opened.
    pub fn new(opened: Opened, times: CallTimes, resolver: Arc<dyn Resolver>) -> Self {
        let anywhere = Rule { host: HostPattern::Any, ports: Ports::from([HTTPS_PORT]) };
        let policy = Policy {
            rules: std::iter::once(anywhere).chain(opened.rules.iter().cloned()).collect(),
            open_networks: opened.networks.clone(),
            ..Policy::default()
        };
        let limits =
            GateLimits { connections_max: CONNECTIONS_MAX, resolve_timeout: times.connect, ..GateLimits::default() };
        Self { gate: Gate::with_limits(policy, resolver, limits), opened, times }
    }

    /// The address taken apart, if its shape, scheme and port are good.
    fn target(&self, text: &str) -> Result<(Url, Host, u16), CallOutError> {
        let url = Url::parse(text).map_err(|_| CallOutError::Address("it is not a URL"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(CallOutError::Address("it has a user or a password in it"));
        }
        if url.fragment().is_some() {
            return Err(CallOutError::Address("it has a fragment"));
        }
        let host = url.host_str().ok_or(CallOutError::Address("it has no host"))?;
        let host =
            Host::from_str(host).map_err(|_| CallOutError::Address("its host is neither a name nor an address"))?;
        let port = url.port_or_known_default().ok_or(CallOutError::Address("it has no port"))?;
        match url.scheme() {
            "https" => {}
            "http" if self.opened.plaintext.iter().any(|rule| rule.admits(&host, port)) => {}
            "http" => return Err(CallOutError::Plaintext),
            _ => return Err(CallOutError::Address("it must begin with `https://`")),
        }
        if !self.gate.policy().admits(&host, port) {
            return Err(CallOutError::NotAllowed("its port is not 443"));
        }
        Ok((url, host, port))
    }

    async fn send(&self, url: &Url, addresses: Vec<SocketAddr>, call: CallOut<'_>) -> Result<CallAnswer, CallOutError> {
        let started = Instant::now();
        // OUT-2: a client for this call, whose connections end with it.
        let client = Client::builder()
            .redirect(redirect::Policy::none())
            .no_proxy()
            .http1_only()
            .dns_resolver(Arc::new(Judged(addresses)))
            .connect_timeout(self.times.connect)
            .timeout(self.times.total)
            .pool_max_idle_per_host(0)
            .user_agent(concat!("gantry/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|_| CallOutError::NotConnected)?;
        let request = client
            .post(url.clone())
            .header(ACCEPT, HeaderValue::from_static("application/json"))
            .body(call.body.to_vec());
        let unsendable = CallOutError::Address("a header cannot be sent");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for (name, value) in call.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| unsendable.clone())?;
            headers.insert(name, HeaderValue::from_str(value).map_err(|_| unsendable.clone())?);
        }
        let response = request.headers(headers).send().await.map_err(|error| self.failed(&error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(CallOutError::Redirect(status.as_u16()));
        }
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let body = self.read(response).await?;
        Ok(CallAnswer { status: status.as_u16(), body, took: started.elapsed(), retry_after })
    }

    /// OUT-3.
    async fn read(&self, mut response: Response) -> Result<Vec<u8>, CallOutError> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.failed(&error))? {
            let room = ANSWER_BYTES_MAX - body.len();
            body.extend(chunk.iter().take(room));
            if body.len() == ANSWER_BYTES_MAX {
                break;
            }
        }
        Ok(body)
    }

    fn failed(&self, error: &reqwest::Error) -> CallOutError {
        if error.is_timeout() {
            CallOutError::TimedOut(self.times.total)
        } else if error.is_connect() {
            CallOutError::NotConnected
        } else {
            CallOutError::BrokenOff
        }
    }
}

#[async_trait]
impl CallsOut for GuardedCalls {
    fn check(&self, url: &str) -> Result<(), CallOutError> {
        let (_, host, port) = self.target(url)?;
        let Host::Address(address) = host else { return Ok(()) };
        let named =
            |rule: &Rule| matches!(&rule.host, HostPattern::Exact(_)) && rule.admits(&Host::Address(address), port);
        let opened =
            self.opened.rules.iter().any(named) || self.opened.networks.iter().any(|net| net.contains(address));
        match AddressClass::of(address) {
            AddressClass::Public => Ok(()),
            _ if opened => Ok(()),
            _ => Err(CallOutError::NotAllowed("it is not public")),
        }
    }

    async fn post(&self, call: CallOut<'_>) -> Result<CallAnswer, CallOutError> {
        let (url, host, port) = self.target(call.url)?;
        let addresses = self.gate.resolve(&host.to_string(), port).await.map_err(|refused| self.refused(&refused))?;
        self.send(&url, addresses, call).await
    }
}

impl GuardedCalls {
    /// The gate's words are for whoever wrote a tool; these are for whoever chose an address.
    fn refused(&self, refused: &Refused) -> CallOutError {
        match refused {
            Refused::NotAHost { .. } => CallOutError::Address("its host is neither a name nor an address"),
            Refused::NotAllowed { .. } => CallOutError::NotAllowed("its port is not 443"),
            Refused::ForbiddenAddress { .. } => CallOutError::NotAllowed("it leads to an address that is not public"),
            Refused::OutsideNetworks { .. } => CallOutError::NotAllowed("it leads out of the open networks"),
            Refused::Unresolvable { .. } => CallOutError::Unresolved,
            Refused::TooMany | Refused::Unreachable { .. } => CallOutError::NotConnected,
            Refused::TimedOut { .. } => CallOutError::TimedOut(self.times.connect),
        }
    }
}

/// OUT-1.
#[derive(Debug)]
struct Judged(Vec<SocketAddr>);

impl Resolve for Judged {
    fn resolve(&self, _: Name) -> Resolving {
        let addresses: Addrs = Box::new(self.0.clone().into_iter());
        Box::pin(std::future::ready(Ok(addresses)))
    }
}
