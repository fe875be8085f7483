//! The only way out: what a program nobody trusts may reach, how it is reached, and what that amounted to.
//! (EXEC-013, HTTPX-008, EXEC-006, EXEC-017)
//!
//! ```text
//!   a program in its own network namespace          a WASM component, an HTTP adapter
//!                 │ 127.0.0.1:3128, or a name                     │
//!              Proxy  (HTTP, CONNECT, SOCKS5, direct)             │
//!                 └───────────────────┬───────────────────────────┘
//!                                   Gate ── Policy    which hosts, ports and addresses
//!                                     │  └─ Resolver  names to addresses, once for each connection
//!                                     │
//!                            Counted<TcpStream> ── Meter, bandwidth of the call
//! ```
//!
//! Decision and guarded connect ([`EgressGate`]) are apart from the protocol ([`EgressProxy`]), so that whoever speaks another
//! protocol is bound by the same decision.
//!
//! Invariants
//! - A name no rule covers is not even resolved: a query would carry data out.
//! - The address that was checked is the address that is connected to. Nothing resolves twice.
//! - One forbidden address in an answer refuses the whole name: an honest name has no reason for a mixed answer, and one
//!   that is being rebound has.
//! - Bounds never widen: [`EgressPolicy::within`] allows nothing that either side does not.
//!
//! Not here: what the words of a manifest mean, and what a violation costs the caller (`executors`). Nor what is said
//! inside a tunnel: TLS is end to end, so the name in it and the path of a URL are beyond a proxy that does not break it.

mod address;
mod cidr;
mod counted;
mod direct;
mod dns;
mod gate;
mod host;
mod meter;
mod policy;
mod proxy;
mod resolver;
mod rule;
mod throttle;

pub use address::AddressClass;
pub use cidr::{Cidr, CidrError};
pub use counted::MeteredStream;
pub use gate::{EgressGate, EgressRefusal, GateLimits, GateOwner};
pub use host::{EgressHost, HostError, HostPattern};
pub use meter::{EgressMeter, EgressUsage, EgressViolation, VIOLATIONS_MAX};
pub use policy::{EgressBounds, EgressPolicy};
pub use proxy::{EgressProxy, ProxyHandle, ProxyLimits, ProxySockets};
pub use resolver::{HostResolver, SystemResolver};
pub use rule::{EgressRule, PortSet, RuleError};
