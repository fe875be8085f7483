//! What a call did on the network: bytes, connections, and what it tried and must not.
//!
//! Bytes are those of the streams to and from upstream: what this side hands to the kernel and takes from it. Heads of
//! HTTP, TLS and the end-to-end parts of tunnels are in; headers of TCP and IP are not, and neither is the talk between
//! the program and the proxy.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::MutexExt as _;
use tokio::sync::Notify;

/// As many different violations are kept; further ones are only counted.
pub const VIOLATIONS_MAX: usize = 32;

/// Counts of one call, shared by all its connections.
#[derive(Debug, Default)]
pub struct EgressMeter {
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    connections: AtomicU64,
    violations: AtomicU64,
    kept: Mutex<Vec<EgressViolation>>,
    violated: Notify,
}

/// What a [`EgressMeter`] showed at one moment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressUsage {
    pub bytes_sent: u64,
    pub bytes_received: u64,
    /// Connections that were made, not those that were tried.
    pub connections: u64,
    /// All violations, repeated ones included.
    pub violations: u64,
    /// The first [`VIOLATIONS_MAX`] different ones.
    pub kept: Vec<EgressViolation>,
}

/// Somewhere the call must not go, and how often it tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressViolation {
    /// What was asked for, bounded and without characters that disturb a log.
    pub host: Box<str>,
    /// 0: only its name was asked for, so nobody knows for which port.
    pub port: u16,
    pub times: u64,
}

impl EgressMeter {
    /// The counts as they are now. While connections live, the numbers of one snapshot need not be of one instant.
    #[must_use]
    pub fn snapshot(&self) -> EgressUsage {
        EgressUsage {
            bytes_sent: self.bytes_sent.load(Ordering::Relaxed),
            bytes_received: self.bytes_received.load(Ordering::Relaxed),
            connections: self.connections.load(Ordering::Relaxed),
            violations: self.violations.load(Ordering::Relaxed),
            kept: self.kept.lock_unpoisoned().clone(),
        }
    }

    /// Comes when something was tried, since the last time this was waited for, that must not be and is kept. For one listener.
    pub async fn next_violation(&self) {
        self.violated.notified().await;
    }

    pub(super) fn sent(&self, bytes: usize) {
        self.bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn connected(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn violated(&self, host: &str, port: u16) {
        self.violations.fetch_add(1, Ordering::Relaxed);
        let mut kept = self.kept.lock_unpoisoned();
        if let Some(known) = kept.iter_mut().find(|v| *v.host == *host && v.port == port) {
            known.times = known.times.saturating_add(1);
        } else if kept.len() < VIOLATIONS_MAX {
            kept.push(EgressViolation { host: host.into(), port, times: 1 });
            self.violated.notify_one();
        }
    }
}

impl fmt::Display for EgressViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            0 => f.write_str(&self.host),
            port => write!(f, "{}:{port}", self.host),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn violations_are_all_counted_and_a_bounded_number_is_kept() {
        let meter = EgressMeter::default();
        for round in 0..3u16 {
            for host in 0..100u16 {
                meter.violated(&format!("h{host}"), 80 + round % 2);
            }
        }
        let usage = meter.snapshot();
        assert_eq!(usage.violations, 300);
        assert_eq!(usage.kept.len(), VIOLATIONS_MAX);
        assert_eq!(usage.kept[0], EgressViolation { host: "h0".into(), port: 80, times: 2 });
        assert_eq!(usage.kept[0].to_string(), "h0:80");
    }
}
