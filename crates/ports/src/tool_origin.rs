//! What stands behind a tool outside this process, as policies hear of it: the server of an imported tool, or the service
//! that a built-in one asks. (AUTH-006)
//!
//! Told by the executor that would run the tool ([`Executor::origin`](crate::executor::Executor::origin)), because the kernel
//! knows no servers. It holds nothing in which secrets stand: no arguments, headers or queries.

use contract::canonical::{self, Digest};
use policy::PolicyUpstream;
use serde_json::json;

/// What stands behind a tool, and what it may touch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOrigin {
    server: Option<String>,
    transport: &'static str,
    command: Option<String>,
    addresses: Vec<String>,
    permissions: Vec<String>,
    hosts: Vec<String>,
    digest: Digest,
}

/// What an origin is made from; the members mean what those of [`PolicyUpstream`] and [`policy::ToolReach`] mean.
#[derive(Debug, Clone, Default)]
pub struct OriginParts {
    /// `None`: the tool is this server's own, and only what it may touch is told.
    pub server: Option<String>,
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
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Who the server of an imported tool is.
    pub fn upstream(&self) -> Option<PolicyUpstream<'_>> {
        Some(PolicyUpstream {
            server: self.server.as_deref()?,
            transport: self.transport,
            command: self.command.as_deref(),
            addresses: &self.addresses,
        })
    }
}
