//! Calls to addresses that a tenant chose, which must not lead where only this server can go. (ASYNC-007, HTTPX-008)
//!
//! The decision is that of [`outbound::AddressGuard`]. Without a word of the operator that is every public host on port 443 with
//! https, within the bounds of `[egress]`; the operator's words (`[webhooks] allow`) are those of [`OpenedNetworks`].
//!
//! Invariants
//! - CALL-1: the client resolves nothing: whatever name it asks for, it is given the addresses that were judged.
//! - CALL-2: no redirect is followed, no proxy of the environment is used, no connection is kept for a later call.
//! - CALL-3: an answer is read up to [`ANSWER_BYTES_MAX`], and what comes beyond is left unread.
//!
//! Not here: who is called when (`jobs::webhooks`), connections of tools (`confinement`).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use outbound::{AddressGuard, ClientOptions, DeniedAddress, GuardedTarget};
pub use outbound::{OpenedError, OpenedNetworks};
use ports::call_out::{CallAnswer, CallOut, CallOutError, CallsOut};
use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use sandbox::egress::{EgressBounds, GateLimits, HostResolver};
use tokio::time::Instant;

/// As much of an answer is read.
pub const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Connections at once; one more waits for its next attempt.
const CONNECTIONS_MAX: usize = 64;

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
    guard: AddressGuard,
    times: CallTimes,
}

impl Default for CallTimes {
    fn default() -> Self {
        Self { connect: Duration::from_secs(5), total: Duration::from_secs(15) }
    }
}

impl GuardedCalls {
    /// Within the operator's bounds for everything that goes out, and with what the operator has opened.
    pub fn new(
        opened: OpenedNetworks,
        egress: &EgressBounds,
        times: CallTimes,
        resolver: Arc<dyn HostResolver>,
    ) -> Self {
        let limits =
            GateLimits { connections_max: CONNECTIONS_MAX, resolve_timeout: times.connect, ..GateLimits::default() };
        Self { guard: AddressGuard::for_tenants(opened, egress, limits, resolver), times }
    }

    async fn send(
        &self,
        target: &GuardedTarget,
        addresses: Vec<SocketAddr>,
        call: CallOut<'_>,
    ) -> Result<CallAnswer, CallOutError> {
        let started = Instant::now();
        // CALL-2: a client for this call, whose connections end with it.
        let options = ClientOptions {
            connect: Some(self.times.connect),
            total: Some(self.times.total),
            ..ClientOptions::default()
        };
        let client = outbound::pinned_client(addresses, options).map_err(|_| CallOutError::NotConnected)?;
        let request = client
            .post(target.url().clone())
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

    /// CALL-3.
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
        self.guard.target(url).map(|_| ()).map_err(|denied| self.denied(&denied))
    }

    async fn post(&self, call: CallOut<'_>) -> Result<CallAnswer, CallOutError> {
        let target = self.guard.target(call.url).map_err(|denied| self.denied(&denied))?;
        let addresses = self.guard.addresses(&target).await.map_err(|denied| self.denied(&denied))?;
        self.send(&target, addresses, call).await
    }
}

impl GuardedCalls {
    fn denied(&self, denied: &DeniedAddress) -> CallOutError {
        match denied {
            DeniedAddress::Address(why) => CallOutError::Address(why),
            DeniedAddress::Plaintext => CallOutError::Plaintext,
            DeniedAddress::NotAllowed(why) => CallOutError::NotAllowed(why),
            DeniedAddress::Unresolved => CallOutError::Unresolved,
            DeniedAddress::TimedOut => CallOutError::TimedOut(self.times.connect),
        }
    }
}
