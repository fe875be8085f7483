//! The gate: decides, and makes exactly the connection it decided on. (EXEC-013, HTTPX-008)
//!
//! The order matters, and each step ends the attempt: read the host · does a rule admit host and port? · only then
//! resolve · is every address allowed? · connect to those addresses, one after the other. There is no second resolution,
//! so a name that changes its mind is judged anew with the next connection and cannot change under this one.
//!
//! Not here: protocols (`proxy`), and what a refusal costs the caller. The gate writes refusals down in its [`EgressMeter`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use super::address::{AddressClass, is_own};
use super::counted::MeteredStream;
use super::host::EgressHost;
use super::meter::EgressMeter;
use super::policy::{EgressPolicy, Objection};
use super::resolver::HostResolver;
use super::throttle::Throttle;

/// The way out for one call: its policy, its bandwidth, its counts.
#[derive(Debug)]
pub struct EgressGate {
    policy: EgressPolicy,
    resolver: Arc<dyn HostResolver>,
    limits: GateLimits,
    meter: Arc<EgressMeter>,
    throttle: Option<Arc<Throttle>>,
    places: Arc<Semaphore>,
    owner: GateOwner,
}

/// Whose way out it is, which decides what a refusal advises.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum GateOwner {
    /// A tool, whose manifest declares where it connects to.
    #[default]
    Tool,
    /// The MCP server of this name, which is granted hosts.
    Server(Box<str>),
}

/// What one call may ask of the network at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GateLimits {
    /// Connections open or being made; one more is [`EgressRefusal::TooMany`].
    pub connections_max: usize,
    /// How long a name may take to resolve.
    pub resolve_timeout: Duration,
    /// As many addresses of a name are judged and tried; further ones are as if they were not in the answer.
    pub addresses_max: usize,
    /// How long one address may take to answer.
    pub address_timeout: Duration,
    /// How long all of them may take together.
    pub connect_timeout: Duration,
}

/// Why there is no connection. The texts are for whoever wrote the tool.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EgressRefusal {
    /// Not a name, and not an address in its usual spelling.
    #[error("`{host}` is neither a host name in ASCII nor an address in its usual spelling")]
    NotAHost { host: Box<str>, port: u16 },
    /// No rule admits it.
    #[error("`{host}:{port}` is not among the places this program may reach")]
    NotAllowed { host: Box<str>, port: u16 },
    /// A rule admits the host, and it leads where nobody should be led.
    #[error("`{host}:{port}` leads to a {class} address, which is not open to this program")]
    ForbiddenAddress { host: Box<str>, port: u16, class: AddressClass },
    /// A rule admits the host, and it leads out of the networks the call is held to.
    #[error("`{host}:{port}` leads out of the networks that are open to this program")]
    OutsideNetworks { host: Box<str>, port: u16 },
    /// As many connections as the call may have.
    #[error("this program has as many connections open as it may have")]
    TooMany,
    /// The name has no address, or nobody would say which.
    #[error("the name `{host}` could not be resolved")]
    Unresolvable { host: Box<str> },
    /// No address accepted the connection.
    #[error("`{host}:{port}` could not be reached")]
    Unreachable { host: Box<str>, port: u16 },
    /// Resolving or connecting took too long.
    #[error("`{host}:{port}` did not answer in time")]
    TimedOut { host: Box<str>, port: u16 },
}

/// Characters of a text that is no host which are repeated in messages.
const QUOTED_CHARS_MAX: usize = 64;

// ------------------------------------------------------------------------------------------------------------ Gate

impl EgressGate {
    /// A gate with the usual limits.
    #[must_use]
    pub fn new(policy: EgressPolicy, resolver: Arc<dyn HostResolver>) -> Self {
        Self::with_limits(policy, resolver, GateLimits::default())
    }

    /// A gate with limits of one's own.
    #[must_use]
    pub fn with_limits(policy: EgressPolicy, resolver: Arc<dyn HostResolver>, limits: GateLimits) -> Self {
        let throttle = policy.bytes_per_second.map(|rate| Arc::new(Throttle::new(rate)));
        let places = Arc::new(Semaphore::new(limits.connections_max.min(Semaphore::MAX_PERMITS)));
        Self { policy, resolver, limits, meter: Arc::default(), throttle, places, owner: GateOwner::Tool }
    }

    /// The same for somebody else than a tool.
    #[must_use]
    pub fn owned_by(self, owner: GateOwner) -> Self {
        Self { owner, ..self }
    }

    /// Whose it is.
    #[must_use]
    pub const fn owner(&self) -> &GateOwner {
        &self.owner
    }

    /// What went through and what was refused; still readable when the gate is gone.
    #[must_use]
    pub const fn meter(&self) -> &Arc<EgressMeter> {
        &self.meter
    }

    /// What this gate goes by.
    #[must_use]
    pub const fn policy(&self) -> &EgressPolicy {
        &self.policy
    }

    /// Makes a connection, if it may be made. IPv6 addresses may be written with or without brackets.
    pub async fn connect(&self, host: &str, port: u16) -> Result<MeteredStream<TcpStream>, EgressRefusal> {
        // The place is taken before the name is resolved, so that resolutions are bounded too.
        let place = self.places.clone().try_acquire_owned().map_err(|_| EgressRefusal::TooMany)?;
        let addresses = self.resolve(host, port).await?;
        self.dial(&addresses, host, port, place).await
    }

    /// As much of the decision as needs nobody to be asked: the host and its port, and the address if it is written as one
    /// or means this machine. What passes may still be refused when its name is resolved.
    ///
    /// # Errors
    /// It is refused whatever its name leads to.
    pub fn check(&self, host: &EgressHost, port: u16) -> Result<(), EgressRefusal> {
        let name = || host.to_string().into_boxed_str();
        if !self.policy.admits(host, port) {
            return Err(EgressRefusal::NotAllowed { host: name(), port });
        }
        let address = match host {
            EgressHost::Address(address) => *address,
            EgressHost::Name(name) if is_localhost(name) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            EgressHost::Name(_) => return Ok(()),
        };
        self.judge(host, port, address)
    }

    /// The decision alone: the addresses to which a connection may be made *now*. For clients that connect themselves;
    /// they must use these addresses, for this connection only, and none but these.
    pub async fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, EgressRefusal> {
        let decided = self.decide(host, port).await;
        if let Err(refused) = &decided
            && let Some((host, port)) = refused.violation()
        {
            tracing::debug!(host, port, %refused, "egress refused");
            self.meter.violated(host, port);
        }
        decided
    }

    /// Writes down that a name was asked for which no rule covers.
    pub(super) fn refuse_name(&self, name: &str) {
        tracing::debug!(name, "egress refused: no rule covers the name");
        self.meter.violated(name, 0);
    }

    async fn decide(&self, text: &str, port: u16) -> Result<Vec<SocketAddr>, EgressRefusal> {
        let Ok(host) = text.parse::<EgressHost>() else {
            return Err(EgressRefusal::NotAHost { host: quoted(text), port });
        };
        let name = || host.to_string().into_boxed_str();
        if !self.policy.admits(&host, port) {
            return Err(EgressRefusal::NotAllowed { host: name(), port });
        }
        let addresses = self.addresses(&host, port).await?;
        for address in &addresses {
            self.judge(&host, port, *address)?;
        }
        Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect())
    }

    fn judge(&self, host: &EgressHost, port: u16, address: IpAddr) -> Result<(), EgressRefusal> {
        let name = || host.to_string().into_boxed_str();
        self.policy.judge(host, port, address, is_own(address)).map_err(|objection| match objection {
            Objection::Class(class) => EgressRefusal::ForbiddenAddress { host: name(), port, class },
            Objection::Outside => EgressRefusal::OutsideNetworks { host: name(), port },
        })
    }

    async fn addresses(&self, host: &EgressHost, port: u16) -> Result<Vec<IpAddr>, EgressRefusal> {
        let name = match host {
            EgressHost::Address(address) => return Ok(vec![*address]),
            // Nobody is asked: a resolver that has another opinion about this name is wrong.
            EgressHost::Name(name) if is_localhost(name) => return Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            EgressHost::Name(name) => name,
        };
        let mut found: Vec<IpAddr> = match timeout(self.limits.resolve_timeout, self.resolver.resolve(name)).await {
            Ok(Ok(found)) => found,
            Ok(Err(_)) => Vec::new(),
            Err(_) => return Err(EgressRefusal::TimedOut { host: name.clone(), port }),
        };
        if found.is_empty() {
            return Err(EgressRefusal::Unresolvable { host: name.clone() });
        }
        found.truncate(self.limits.addresses_max);
        Ok(found.into_iter().map(|address| address.to_canonical()).collect())
    }

    async fn dial(
        &self,
        addresses: &[SocketAddr],
        host: &str,
        port: u16,
        place: OwnedSemaphorePermit,
    ) -> Result<MeteredStream<TcpStream>, EgressRefusal> {
        let deadline = Instant::now() + self.limits.connect_timeout;
        let mut late = false;
        for address in addresses {
            let until = deadline.min(Instant::now() + self.limits.address_timeout);
            match timeout_at(until, TcpStream::connect(*address)).await {
                Ok(Ok(stream)) => {
                    // What is relayed comes in pieces that somebody waits for. A socket that refuses still works.
                    let _ = stream.set_nodelay(true);
                    self.meter.connected();
                    return Ok(MeteredStream::new(stream, self.meter.clone(), self.throttle.clone(), Some(place)));
                }
                Ok(Err(_)) => {}
                Err(_) => late = true,
            }
        }
        let host = quoted(host);
        Err(if late { EgressRefusal::TimedOut { host, port } } else { EgressRefusal::Unreachable { host, port } })
    }
}

// ---------------------------------------------------------------------------------------------------------- limits

impl Default for GateLimits {
    fn default() -> Self {
        Self {
            connections_max: 64,
            resolve_timeout: Duration::from_secs(5),
            addresses_max: 16,
            address_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(15),
        }
    }
}

// --------------------------------------------------------------------------------------------------------- Refused

impl EgressRefusal {
    /// Did the call try what it must not? The others are misfortunes.
    #[must_use]
    pub fn is_violation(&self) -> bool {
        self.violation().is_some()
    }

    fn violation(&self) -> Option<(&str, u16)> {
        match self {
            Self::NotAHost { host, port }
            | Self::NotAllowed { host, port }
            | Self::ForbiddenAddress { host, port, .. }
            | Self::OutsideNetworks { host, port } => Some((host, *port)),
            Self::TooMany | Self::Unresolvable { .. } | Self::Unreachable { .. } | Self::TimedOut { .. } => None,
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- parts

/// RFC 6761: these names are this machine.
fn is_localhost(name: &str) -> bool {
    name == "localhost" || name.ends_with(".localhost")
}

/// A bounded piece of a stranger's text that disturbs no message and no log.
fn quoted(text: &str) -> Box<str> {
    let plain = |c: char| if c.is_ascii_graphic() && c != '`' { c } else { '?' };
    text.chars().take(QUOTED_CHARS_MAX).map(plain).collect::<String>().into()
}
