//! `did:web`: a DID whose document stands on a web host. A DID without one is unknown (E3207).
//!
//! The question is only whether the DID exists, so what is kept of a document is that it was there. Answers are kept for
//! a while, by how much they are worth: a document 300 s, its absence 30 s, a host that gave no answer 5 s.
//!
//! Invariants
//! - DID-1: only hosts on the operator's list are contacted, by https, or by http if the host is this machine; and only at
//!   addresses that are public or that the operator has opened, because whoever holds a token chooses the name.
//! - DID-2: of any number of concurrent questions for one DID, one makes a request; the others wait for its answer.
//! - DID-3: an answer is not used when its time is over. If the host is then down, the DID cannot be resolved.
//! - DID-4: the document is JSON without duplicate members, and its `id` is the DID, letter by letter.
//!
//! Not here: keys in documents, other methods (they are unknown here), DIDs that certify themselves.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use contract::ids::Subject;
use contract::json::{JsonLimits, read};
use ports::clock::Clock;
use ports::did_resolver::{DidError, DidResolver};
use quick_cache::sync::{Cache, EntryAction, EntryResult};
use reqwest::Url;

use ::outbound::AddressGuard;

use crate::outbound::{AnswerBounds, FetchError, get_guarded};

mod hosts;
mod location;

pub use hosts::HostListError;

use hosts::HostList;

/// Longest document.
const DOCUMENT_BYTES_MAX: usize = 64 << 10;
/// Longest wait for one.
const FETCH_TIME_MAX: Duration = Duration::from_secs(2);
/// Longest wait altogether, including for others who asked first and gave up.
const WAIT_MAX: Duration = Duration::from_secs(4);
/// Remembered DIDs; the least used make room.
const REMEMBERED_MAX: usize = 10_000;
/// How long answers are used.
const FOUND_FOR: Duration = Duration::from_secs(300);
const UNKNOWN_FOR: Duration = Duration::from_secs(30);
const UNREACHABLE_FOR: Duration = Duration::from_secs(5);

/// Resolves `did:web` on listed hosts.
#[derive(Debug)]
pub struct DidWeb {
    guard: AddressGuard,
    hosts: HostList,
    clock: Arc<dyn Clock>,
    bounds: AnswerBounds,
    remembered: Cache<Subject, Remembered>,
}

/// An answer and the end of its use, on the monotonic clock.
#[derive(Debug, Clone)]
struct Remembered {
    answer: Result<(), DidError>,
    until: Duration,
}

impl DidWeb {
    /// For the hosts that may be asked: `example.com` (any port), `example.com:8443` (this port), `*.example.com` (what is
    /// below). With an empty list every `did:web` is unknown. `guard` says to which addresses they may lead
    /// ([`AddressGuard::for_listed_hosts`]).
    ///
    /// # Errors
    /// An entry is not a host.
    pub fn new(guard: AddressGuard, hosts: &[String], clock: Arc<dyn Clock>) -> Result<Self, HostListError> {
        Ok(Self {
            guard,
            hosts: HostList::new(hosts)?,
            clock,
            bounds: AnswerBounds { time: FETCH_TIME_MAX, bytes_max: DOCUMENT_BYTES_MAX },
            remembered: Cache::new(REMEMBERED_MAX),
        })
    }

    /// Waits less than the two seconds it would wait otherwise; never more.
    #[must_use]
    pub fn within(mut self, time: Duration) -> Self {
        self.bounds.time = time.min(FETCH_TIME_MAX);
        self
    }

    /// DID-2, DID-3. Whoever gets the guard asks; if it gives up, the next one waiting gets the guard.
    async fn remembered_or_asked(&self, did: &Subject, url: &Url) -> Result<(), DidError> {
        let now = self.clock.monotonic();
        let entry = self.remembered.entry_async(did, |_, remembered| {
            if now < remembered.until {
                EntryAction::Retain(remembered.answer.clone())
            } else {
                EntryAction::ReplaceWithGuard
            }
        });
        let guard = match entry.await {
            EntryResult::Retained(answer) => return answer,
            EntryResult::Vacant(guard) | EntryResult::Replaced(guard, _) => guard,
            EntryResult::Removed(..) | EntryResult::Timeout => return Err(DidError::Unreachable),
        };
        let answer = self.ask(did, url).await;
        let span = match answer {
            Ok(()) => FOUND_FOR,
            Err(DidError::Unknown) => UNKNOWN_FOR,
            Err(DidError::Unreachable) => UNREACHABLE_FOR,
        };
        let remembered = Remembered { answer: answer.clone(), until: self.clock.monotonic().saturating_add(span) };
        // Not kept only if the cache was emptied meanwhile, which nobody does.
        let _ = guard.insert(remembered);
        answer
    }

    async fn ask(&self, did: &Subject, url: &Url) -> Result<(), DidError> {
        match get_guarded(&self.guard, url, self.bounds).await {
            Ok(document) if is_document_of(&document, did) => Ok(()),
            Ok(_) => {
                tracing::warn!(%did, "the document of the DID is not valid");
                Err(DidError::Unknown)
            }
            Err(FetchError::Status(404 | 410)) => Err(DidError::Unknown),
            Err(error @ FetchError::TooLong(_)) => {
                tracing::warn!(%did, %error, "the document of the DID is not valid");
                Err(DidError::Unknown)
            }
            Err(error) => {
                tracing::warn!(%did, %error, "the DID could not be resolved");
                Err(DidError::Unreachable)
            }
        }
    }
}

#[async_trait]
impl DidResolver for DidWeb {
    async fn resolve(&self, did: &Subject) -> Result<(), DidError> {
        // DID-1: before anything is remembered, so that DIDs of strangers take no room.
        let url = location::of(did.as_str()).filter(|url| self.hosts.has(url)).ok_or(DidError::Unknown)?;
        match tokio::time::timeout(WAIT_MAX, self.remembered_or_asked(did, &url)).await {
            Ok(answer) => answer,
            Err(_) => Err(DidError::Unreachable),
        }
    }
}

/// DID-4.
fn is_document_of(document: &[u8], did: &Subject) -> bool {
    let limits = JsonLimits { bytes_max: DOCUMENT_BYTES_MAX, ..JsonLimits::default() };
    read(document, &limits).is_ok_and(|document| {
        document.as_object().and_then(|members| members.get("id")).and_then(|id| id.as_str()) == Some(did.as_str())
    })
}
