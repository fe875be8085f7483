//! Calling somebody outside by HTTP, at an address that a tenant or an operator has chosen. (ASYNC-007, ASYNC-012…014)
//!
//! Whoever chooses an address must not thereby reach what only this server can reach. So an adapter
//! - resolves the name once, judges every address, and connects to what was judged and to nothing else;
//! - refuses what is not public unless the operator has opened it, and plain http unless the operator allows it there;
//! - follows no redirect, uses no proxy of the environment, and reads an answer to a small bound;
//! - bounds the connection and the whole.
//!
//! Not here: tools that speak HTTP (executors), authorities that decide who is let in (`authorities`).

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;

/// A POST of JSON.
#[derive(Debug, Clone, Copy)]
pub struct CallOut<'a> {
    pub url: &'a str,
    /// Beside those every request has; names in lower case. A `content-type` here stands in place of `application/json`.
    pub headers: &'a [(&'a str, String)],
    pub body: &'a [u8],
}

/// An answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallAnswer {
    pub status: u16,
    /// As much as was read; never more than the adapter's bound.
    pub body: Vec<u8>,
    pub took: Duration,
    /// What it says in `retry-after`, as it says it.
    pub retry_after: Option<String>,
}

/// Why there is no answer. Fit to be shown to whoever chose the address: names nothing that was not asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallOutError {
    /// Not an address that can be called at all.
    #[error("the address cannot be called: {0}")]
    Address(&'static str),
    /// Plain http where the operator has not allowed it.
    #[error(
        "the address must begin with `https://`; the operator can allow `http://` for a host with `[webhooks] allow`"
    )]
    Plaintext,
    /// The port, or where the name leads, is not open.
    #[error("the address is not open to calls from here: {0}")]
    NotAllowed(&'static str),
    /// The name has no address.
    #[error("the name could not be resolved")]
    Unresolved,
    /// Nobody accepted the connection, or the certificate is not good.
    #[error("no connection could be made")]
    NotConnected,
    /// Too slow.
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    /// It points elsewhere, where nobody goes.
    #[error("the answer is a redirect ({0}), and redirects are not followed: give the address it leads to")]
    Redirect(u16),
    /// The answer broke off.
    #[error("the answer broke off")]
    BrokenOff,
}

impl CallOutError {
    /// The word for logs and lists.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Address(_) => "bad_address",
            Self::Plaintext => "plaintext_not_allowed",
            Self::NotAllowed(_) => "address_not_allowed",
            Self::Unresolved => "unresolved",
            Self::NotConnected => "not_connected",
            Self::TimedOut(_) => "timed_out",
            Self::Redirect(_) => "redirect",
            Self::BrokenOff => "broken_off",
        }
    }

    /// Would another try be refused in the same way?
    pub fn is_final(&self) -> bool {
        match self {
            Self::Address(_) | Self::Plaintext | Self::NotAllowed(_) => true,
            Self::Unresolved | Self::NotConnected | Self::TimedOut(_) | Self::Redirect(_) | Self::BrokenOff => false,
        }
    }
}

/// Calls out.
#[async_trait]
pub trait CallsOut: Send + Sync + fmt::Debug {
    /// What can be said about an address without asking anybody: its shape, its scheme, its port, and an address that is
    /// written as a number. A name may still lead where it must not.
    fn check(&self, url: &str) -> Result<(), CallOutError>;

    /// Sends it, once. Bounded in time by the adapter.
    async fn post(&self, call: CallOut<'_>) -> Result<CallAnswer, CallOutError>;
}
