//! From names to addresses. The answer is only ever a proposal: the gate judges every address of it.
//!
//! Not here: how long a resolution may take and how many addresses are looked at ([`super::GateLimits`]).

use std::io;
use std::net::IpAddr;

use async_trait::async_trait;

/// Answers which addresses a name has.
#[async_trait]
pub trait HostResolver: std::fmt::Debug + Send + Sync {
    /// The addresses of a name, best first. The name is in lower case, has no dot at the end and is no address. An empty
    /// answer is one. Called once for each connection; the caller bounds the time and drops the future when it is over.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// Asks as every program of this machine does: the hosts file, the configured servers, their search list.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemResolver;

#[async_trait]
impl HostResolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let mut addresses: Vec<IpAddr> = Vec::new();
        for found in tokio::net::lookup_host((name, 0)).await? {
            if !addresses.contains(&found.ip()) {
                addresses.push(found.ip());
            }
        }
        Ok(addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_system_knows_itself() {
        let addresses = SystemResolver.resolve("localhost").await.unwrap();
        assert!(!addresses.is_empty() && addresses.iter().all(IpAddr::is_loopback), "{addresses:?}");
    }
}
