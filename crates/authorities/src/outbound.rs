//! The one HTTP client behind every adapter of this crate, for hosts that the operator has named; and the way to hosts of
//! which others choose the name ([`get_guarded`]).
//!
//! Invariants
//! - AOUT-1: no redirect is followed and no proxy of the environment is used: a request, with its token, goes to the given
//!   host or nowhere.
//! - AOUT-2: an answer is read up to its limit and within its time, never further, whatever length was announced.
//! - AOUT-4: where somebody else chooses the name, the addresses it leads to are judged, and only those are connected to.
//! - AOUT-3: only status 200 is an answer. The body of any other is not read and reaches neither log nor caller.
//!
//! Not here: retries (the caller of each port knows whether there is time for one), private certificate authorities (the
//! roots are Mozilla's).

use std::time::Duration;

use ::outbound::{AddressGuard, ClientOptions, DeniedAddress, operators_client, pinned_client};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, StatusCode, Url};

use crate::bearer_token::BearerToken;

/// How long a connection may take to be made, if the request as a whole may take longer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Idle connections kept per host for the next request.
const IDLE_CONNECTIONS_MAX: usize = 8;

/// A client for requests to authorities. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct AuthorityClient {
    client: Client,
}

/// This machine cannot have an HTTP client.
pub use ::outbound::BuildError as OutboundError;

/// How long an answer may take, first byte of the request to last byte of the answer, and how long it may be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnswerBounds {
    pub(crate) time: Duration,
    pub(crate) bytes_max: usize,
}

/// Why there is no answer. Names no address and repeats nothing the other side said.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FetchError {
    #[error("no answer within {} ms", .0.as_millis())]
    TimedOut(Duration),
    #[error("no connection could be made")]
    NotConnected,
    /// It leads where it must not lead, or nowhere.
    #[error("{0}")]
    Denied(DeniedAddress),
    #[error("the answer broke off")]
    BrokenOff,
    #[error("the answer has status {0}")]
    Status(u16),
    #[error("the answer is longer than {0} bytes")]
    TooLong(usize),
}

impl AuthorityClient {
    /// Builds the client.
    ///
    /// # Errors
    /// The machine cannot have one.
    pub fn new() -> Result<Self, OutboundError> {
        let options = ClientOptions {
            connect: Some(CONNECT_TIMEOUT),
            idle_per_host: IDLE_CONNECTIONS_MAX,
            ..ClientOptions::default()
        };
        Ok(Self { client: operators_client(options)? })
    }

    /// Fetches a document.
    pub(crate) async fn get(&self, url: &Url, bounds: AnswerBounds) -> Result<Vec<u8>, FetchError> {
        read(self.client.get(url.clone()), bounds).await
    }

    /// Sends JSON and fetches the answer.
    pub(crate) async fn post(
        &self,
        url: &Url,
        token: Option<&BearerToken>,
        json: Vec<u8>,
        bounds: AnswerBounds,
    ) -> Result<Vec<u8>, FetchError> {
        let mut request = self.client.post(url.clone()).body(json);
        request = request.header(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token.header());
        }
        read(request, bounds).await
    }
}

/// Fetches a document from where the guard lets a request go (AOUT-4).
pub(crate) async fn get_guarded(guard: &AddressGuard, url: &Url, bounds: AnswerBounds) -> Result<Vec<u8>, FetchError> {
    let target = guard.target(url.as_str()).map_err(FetchError::Denied)?;
    let judging = tokio::time::timeout(bounds.time, guard.addresses(&target));
    let addresses = judging.await.map_err(|_| FetchError::TimedOut(bounds.time))?.map_err(FetchError::Denied)?;
    let options = ClientOptions { connect: Some(CONNECT_TIMEOUT), ..ClientOptions::default() };
    let client = pinned_client(addresses, options).map_err(|_| FetchError::NotConnected)?;
    read(client.get(url.clone()), bounds).await
}

/// AOUT-2, AOUT-3.
async fn read(request: RequestBuilder, bounds: AnswerBounds) -> Result<Vec<u8>, FetchError> {
    let request = request.header(ACCEPT, HeaderValue::from_static("application/json")).timeout(bounds.time);
    let mut response = request.send().await.map_err(|error| failed(&error, bounds))?;
    if response.status() != StatusCode::OK {
        return Err(FetchError::Status(response.status().as_u16()));
    }
    let mut answer = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| failed(&error, bounds))? {
        if answer.len() + chunk.len() > bounds.bytes_max {
            return Err(FetchError::TooLong(bounds.bytes_max));
        }
        answer.extend_from_slice(&chunk);
    }
    Ok(answer)
}

fn failed(error: &reqwest::Error, bounds: AnswerBounds) -> FetchError {
    // In this order: a connection that took too long is both.
    if error.is_connect() {
        FetchError::NotConnected
    } else if error.is_timeout() {
        FetchError::TimedOut(bounds.time)
    } else {
        FetchError::BrokenOff
    }
}
