//! Settings of the REST door: every limit has a name, a unit and a default here, and nowhere else.
//!
//! `cli` fills this from file, environment and flags; [`ServerConfig::validate`] names the first key that makes no sense.
//!
//! Not here: where to listen (the caller hands over a bound listener), limits inside JSON values (`contract::json`).

use std::time::Duration;

use base::SaturatingFrom as _;
use kernel::CallBounds;
use serde::{Deserialize, Serialize};

/// Most names in `allowed_hosts`.
const HOSTS_MAX: usize = 100;
/// Room for what is no call of a tool, at least.
pub(crate) const SPARE_MIN: usize = 64;

/// Limits of the door. What happens at each limit is said with it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// Open connections. Default 4096, 1 to 1,000,000. At the limit an idle one makes room for the next, strangers first;
    /// if all are busy, new ones wait in the listener's backlog.
    pub connections_max: usize,
    /// Calls that run at the same time. Default 1024, 1 to 1,000,000. One tenant may hold three quarters; further calls wait
    /// within their time.
    pub calls_max: usize,
    /// Calls that wait for their turn. Default 1024, 0 to 1,000,000. At the limit: E3001 with `retry_after_ms`.
    pub calls_waiting_max: usize,
    /// Requests other than calls (searches, listings, audit queries, changes) that are worked on at the same time. Default 32,
    /// 1 to 100,000. One tenant may hold three quarters; further ones wait for their turn.
    pub requests_max: usize,
    /// Requests other than calls that wait for their turn. Default 1024, 0 to 1,000,000. At the limit: E3001 with
    /// `retry_after_ms`.
    pub requests_waiting_max: usize,
    /// Milliseconds that a request other than a call waits for its turn. Default 10,000, 10 to 600,000. At the limit: E3001
    /// with `retry_after_ms`.
    pub request_wait_ms: u64,
    /// Bytes of one request body. Default 1 MiB, 1 KiB to 64 MiB. At the limit: E3005, and the rest is not read.
    pub body_bytes_max: usize,
    /// Header lines of one request. Default 64, 8 to 100. At the limit: E3004.
    pub headers_max: usize,
    /// Bytes of request line and headers together. Default 32 KiB, 4 KiB to 256 KiB. At the limit: 431 and the
    /// connection is closed.
    pub header_bytes_max: usize,
    /// Milliseconds from the first byte of a request (or from the connection) to the end of its headers. Default 10,000,
    /// 10 to 600,000. At the limit the connection is closed.
    pub header_read_timeout_ms: u64,
    /// Milliseconds for the whole body. Default 30,000, 10 to 600,000. At the limit: E3009.
    pub body_read_timeout_ms: u64,
    /// Milliseconds a connection may be idle between two requests. Default 75,000, 10 to 3,600,000. At the limit it is
    /// closed.
    pub idle_timeout_ms: u64,
    /// TLS handshakes under way; only after its handshake a connection counts against `connections_max`. Default 256, 1 to
    /// 100,000. At the limit new ones wait, and the oldest that has taken more than a second makes room.
    pub tls_handshakes_max: usize,
    /// Milliseconds for a TLS handshake. Default 10,000, 10 to 600,000. At the limit the connection is closed.
    pub tls_handshake_timeout_ms: u64,
    /// Milliseconds that calls have to finish once shutdown began. Default 30,000, 0 to 3,600,000. At the limit they are
    /// aborted.
    pub drain_timeout_ms: u64,
    /// Milliseconds between `/health/ready` turning 503 and the end of accepting, so that a load balancer can notice.
    /// Default 0, 0 to 600,000.
    pub lame_duck_ms: u64,
    /// May `/metrics` be read without a token? Default: only when listening on a loopback address.
    pub metrics_public: Option<bool>,
    /// Names under which clients find this server, besides the loopback ones; in lower case and without port. Asked for when
    /// it listens on a loopback address, or when there is any. At most 100. Another name: E3206.
    pub allowed_hosts: Vec<String>,
    /// Answer probes and metrics, and nothing else: the door of a worker. Default false. Everything else: E3010.
    pub probes_only: bool,
}

/// Why a configuration was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A number out of range.
    #[error("server.{key} is `{given}`: use {least} to {most}")]
    Range { key: &'static str, given: u64, least: u64, most: u64 },
    /// A host that is none, or too many of them.
    #[error(
        "server.allowed_hosts: `{given}` cannot be taken: use at most {HOSTS_MAX} names or addresses in lower case, without \
         scheme, port and path"
    )]
    Host { given: String },
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            connections_max: 4096,
            calls_max: 1024,
            calls_waiting_max: 1024,
            requests_max: 32,
            requests_waiting_max: 1024,
            request_wait_ms: 10_000,
            body_bytes_max: 1 << 20,
            headers_max: 64,
            header_bytes_max: 32 * 1024,
            header_read_timeout_ms: 10_000,
            body_read_timeout_ms: 30_000,
            idle_timeout_ms: 75_000,
            tls_handshakes_max: 256,
            tls_handshake_timeout_ms: 10_000,
            drain_timeout_ms: 30_000,
            lame_duck_ms: 0,
            metrics_public: None,
            allowed_hosts: Vec::new(),
            probes_only: false,
        }
    }
}

impl ServerConfig {
    /// Calls that run, calls that wait, and as much again that is not so far yet, or is turned away by the kernel. One tenant's
    /// share, and one agent's share of it, are at least what the kernel would let it have of the first two.
    pub fn calls_let_in(&self) -> usize {
        let spare = self.calls_max.max(SPARE_MIN);
        let waiting = self.calls_waiting_max.saturating_add(self.calls_waiting_max / 3).saturating_add(1);
        self.calls_max.saturating_add(waiting).saturating_add(spare)
    }

    /// How many calls a kernel behind such a door runs, and lets wait; so many of them may run code of a tool's author.
    pub fn call_bounds(&self, sandboxed_max: usize) -> CallBounds {
        CallBounds { calls_max: self.calls_max, waiting_max: self.calls_waiting_max, sandboxed_max }
    }

    /// Checks every key against its range.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let wide = |size: usize| u64::saturating_from(size);
        let ranges = [
            ("connections_max", wide(self.connections_max), 1, 1_000_000),
            ("calls_max", wide(self.calls_max), 1, 1_000_000),
            ("calls_waiting_max", wide(self.calls_waiting_max), 0, 1_000_000),
            ("requests_max", wide(self.requests_max), 1, 100_000),
            ("requests_waiting_max", wide(self.requests_waiting_max), 0, 1_000_000),
            ("request_wait_ms", self.request_wait_ms, 10, 600_000),
            ("body_bytes_max", wide(self.body_bytes_max), 1024, 64 << 20),
            ("headers_max", wide(self.headers_max), 8, 100),
            ("header_bytes_max", wide(self.header_bytes_max), 4 * 1024, 256 * 1024),
            ("header_read_timeout_ms", self.header_read_timeout_ms, 10, 600_000),
            ("body_read_timeout_ms", self.body_read_timeout_ms, 10, 600_000),
            ("idle_timeout_ms", self.idle_timeout_ms, 10, 3_600_000),
            ("tls_handshakes_max", wide(self.tls_handshakes_max), 1, 100_000),
            ("tls_handshake_timeout_ms", self.tls_handshake_timeout_ms, 10, 600_000),
            ("drain_timeout_ms", self.drain_timeout_ms, 0, 3_600_000),
            ("lame_duck_ms", self.lame_duck_ms, 0, 600_000),
        ];
        if let Some((key, given, least, most)) =
            ranges.into_iter().find(|(_, given, least, most)| given < least || given > most)
        {
            return Err(ConfigError::Range { key, given, least, most });
        }
        let is_no_host = |text: &String| crate::origin::host_of(text).as_deref() != Some(text.as_str());
        let beyond = self.allowed_hosts.get(HOSTS_MAX);
        match self.allowed_hosts.iter().find(|text| is_no_host(text)).or(beyond) {
            None => Ok(()),
            Some(given) => Err(ConfigError::Host { given: given.chars().take(100).collect() }),
        }
    }

    pub(crate) fn request_wait(&self) -> Duration {
        Duration::from_millis(self.request_wait_ms)
    }

    pub(crate) fn header_read_timeout(&self) -> Duration {
        Duration::from_millis(self.header_read_timeout_ms)
    }

    pub(crate) fn body_read_timeout(&self) -> Duration {
        Duration::from_millis(self.body_read_timeout_ms)
    }

    pub(crate) fn idle_timeout(&self) -> Duration {
        Duration::from_millis(self.idle_timeout_ms)
    }

    pub(crate) fn tls_handshake_timeout(&self) -> Duration {
        Duration::from_millis(self.tls_handshake_timeout_ms)
    }

    pub(crate) fn drain_timeout(&self) -> Duration {
        Duration::from_millis(self.drain_timeout_ms)
    }

    pub(crate) fn lame_duck(&self) -> Duration {
        Duration::from_millis(self.lame_duck_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_their_own_ranges() {
        assert_eq!(ServerConfig::default().validate(), Ok(()));
    }

    #[test]
    fn a_key_out_of_range_is_named_with_its_range() {
        let config = ServerConfig { headers_max: 4000, ..ServerConfig::default() };
        assert_eq!(config.validate().unwrap_err().to_string(), "server.headers_max is `4000`: use 8 to 100");
        for (host, fine) in [("tools.example.com", true), ("192.0.2.7", true), ("a:80", false), ("A.example", false)] {
            let config = ServerConfig { allowed_hosts: vec![host.to_owned()], ..ServerConfig::default() };
            assert_eq!(config.validate().is_ok(), fine, "{host}");
        }
    }
}
