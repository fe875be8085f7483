//! What is measured of TLS: when the certificate ends, how its reloading went, and what became of handshakes.
//!
//! Nothing of it is on the page while the doors speak in the clear, so that an alert on the certificate's end cannot fire.

use std::sync::atomic::Ordering;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

use crate::instruments::{self, InstrumentRegistry};

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OutcomeLabel {
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CertificateLabel {
    certificate: &'static str,
}

/// Gauges and counters of TLS.
#[derive(Debug)]
pub struct TlsMetrics {
    expiry: Family<CertificateLabel, Gauge>,
    reloads: Family<OutcomeLabel, Counter>,
    handshakes: Family<OutcomeLabel, Counter>,
}

impl TlsMetrics {
    pub(crate) fn new(registry: &mut InstrumentRegistry) -> Self {
        Self {
            expiry: registry.made(&instruments::CERTIFICATE_EXPIRY),
            reloads: registry.made(&instruments::CERTIFICATE_RELOADS),
            handshakes: registry.made(&instruments::TLS_HANDSHAKES),
        }
    }

    /// The certificate in force ends then, in seconds since 1970.
    pub fn certificate_expires_at(&self, seconds: i64) {
        self.expiry.get_or_create(&CertificateLabel { certificate: "server" }).set(seconds);
        // Both words are on the page from the start, so that the first failure is a rise and not a new line.
        for outcome in ["success", "failure"] {
            drop(self.reloads.get_or_create(&OutcomeLabel { outcome }));
        }
    }

    /// The files have changed, and the new ones are in force or cannot be used.
    pub fn certificate_reloaded(&self, in_force: bool) {
        let outcome = if in_force { "success" } else { "failure" };
        self.reloads.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// So many handshakes have had this outcome until now.
    pub fn handshakes(&self, outcome: &'static str, count: u64) {
        self.handshakes.get_or_create(&OutcomeLabel { outcome }).inner().store(count, Ordering::Relaxed);
    }
}
