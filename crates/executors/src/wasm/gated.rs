//! The sandbox's egress gate, as the outgoing HTTP of a guest knows it.

use std::sync::Arc;

use async_trait::async_trait;
use sandbox::egress::EgressGate;

use super::outbound::{ConnectError, Outbound, Stream, Traffic};

/// The gate of one call.
#[derive(Debug)]
pub(super) struct Gated(pub(super) Arc<EgressGate>);

#[async_trait]
impl Outbound for Gated {
    async fn connect(&self, host: &str, port: u16) -> Result<Box<dyn Stream>, ConnectError> {
        match self.0.connect(host, port).await {
            Ok(stream) => Ok(Box::new(stream)),
            Err(refused) if refused.is_violation() => Err(ConnectError::NotAllowed),
            Err(other) => Err(ConnectError::Unreachable(std::io::Error::other(other))),
        }
    }

    fn traffic(&self) -> Traffic {
        let seen = self.0.meter().snapshot();
        let violations = seen.kept.iter().map(|tried| format!("{}:{}", tried.host, tried.port)).collect();
        Traffic { sent: seen.bytes_sent, received: seen.bytes_received, violations }
    }
}
