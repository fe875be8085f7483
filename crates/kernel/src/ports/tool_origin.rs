//! The server behind an imported tool, as policies hear of it. (AUTH-006)
//!
//! Told by the executor that would run the tool ([`Executor::origin`](super::executor::Executor::origin)), because the kernel
//! knows no servers. It holds nothing in which secrets stand: no arguments, headers or queries.

use contract::canonical::{self, Digest};
use policy::Upstream;
use serde_json::json;

/// What a server is, and what it may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOrigin {
    server: String,
    transport: &'static str,
    command: Option<String>,
    addresses: Vec<String>,
    permissions: Vec<String>,
    hosts: Vec<String>,
    digest: Digest,
}

/// What an origin is made from; the members mean what those of [`Upstream`] and [`policy::ToolReach`] mean.
#[derive(Debug, Clone, Default)]
pub struct OriginParts {
    pub server: String,
    pub transport: &'static str,
    pub command: Option<String>,
    pub addresses: Vec<String>,
    pub permissions: Vec<String>,
    pub hosts: Vec<String>,
}

impl ToolOrigin {
    /// From its parts. Made once for each change of a server, not for each call.
    pub fn new(parts: OriginParts) -> Self {
        let OriginParts { server, transport, command, addresses, permissions, hosts } = parts;
        let digest = canonical::digest(&json!([server, transport, command, addresses, permissions, hosts]));
        Self { server, transport, command, addresses, permissions, hosts, digest }
    }

    /// What it may touch, in the words of manifests.
    pub fn permissions(&self) -> &[String] {
        &self.permissions
    }

    /// The hosts among them.
    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Of everything in it: what is remembered about a call depends on it.
    pub(crate) fn digest(&self) -> Digest {
        self.digest
    }

    /// Who it is.
    pub(crate) fn upstream(&self) -> Upstream<'_> {
        Upstream {
            server: &self.server,
            transport: self.transport,
            command: self.command.as_deref(),
            addresses: &self.addresses,
        }
    }
}
