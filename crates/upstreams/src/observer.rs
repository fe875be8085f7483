//! What is worth counting about the servers behind Gantry. Told here, counted elsewhere.
//!
//! Invariants
//! - OBS-1: a server is named only if the home tenant has defined it. Whatever other tenants call theirs never becomes a
//!   label, so that nobody can make up labels without end, or read them.
//! - OBS-2: telling never waits and never fails.

use std::fmt;
use std::sync::Arc;

use contract::ids::TenantId;

use crate::supervisor::ServerState;

/// Something that happened to a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpstreamEvent {
    /// It went from one state to another. `None`: it was not kept before, or is not any more.
    Moved {
        from: Option<ServerState>,
        to: Option<ServerState>,
    },
    /// It was started, or could not be. `again`: it had been started before.
    Started {
        done: bool,
        again: bool,
    },
    /// It was given up (MCP-008).
    GivenUp,
    /// A call on it has begun, or has ended.
    CallBegun,
    CallEnded,
    /// A call on it ended without anybody knowing what came of it (E3413).
    Indeterminate,
    /// A connection that had broken was made anew.
    Reconnected(ReconnectKind),
    /// Something it said reached nobody.
    Dropped(UnheardKind),
    /// So many bytes of its log were too much and are not kept.
    LogDropped {
        bytes: u64,
    },
}

/// What was made anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReconnectKind {
    /// A session that the server had forgotten.
    Session,
    /// The stream of an answer, taken up from its last event.
    Stream,
}

impl ReconnectKind {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Stream => "stream",
        }
    }
}

/// What reached nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnheardKind {
    /// An answer that nobody waits for.
    Answer,
    /// Progress of a call that is over, or of none.
    Notification,
    /// A question while too many others waited.
    Question,
    /// Something that is no message at all; it is in the server's log.
    Garbage,
}

impl UnheardKind {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Answer => "answer",
            Self::Notification => "notification",
            Self::Question => "question",
            Self::Garbage => "garbage",
        }
    }
}

/// Hears of it all. Must not wait and must not fail.
pub trait UpstreamObserver: Send + Sync + fmt::Debug {
    /// It happened to this server; `None` is one that has no name here (OBS-1).
    fn happened(&self, server: Option<&str>, event: UpstreamEvent);
}

/// Tells of one server.
#[derive(Debug, Clone)]
pub(crate) struct ServerTeller {
    observer: Arc<dyn UpstreamObserver>,
    server: Option<Arc<str>>,
}

impl ServerTeller {
    /// OBS-1.
    pub(crate) fn new(observer: Arc<dyn UpstreamObserver>, owner: &TenantId, server: &str) -> Self {
        Self { observer, server: (*owner == TenantId::home()).then(|| server.into()) }
    }

    pub(crate) fn tell(&self, event: UpstreamEvent) {
        self.observer.happened(self.server.as_deref(), event);
    }

    /// A call that has begun; dropping the value is its end, however it ends.
    pub(crate) fn call(&self) -> ObservedCall<'_> {
        self.tell(UpstreamEvent::CallBegun);
        ObservedCall(self)
    }
}

/// A call in flight.
#[derive(Debug)]
pub(crate) struct ObservedCall<'a>(&'a ServerTeller);

impl Drop for ObservedCall<'_> {
    fn drop(&mut self) {
        self.0.tell(UpstreamEvent::CallEnded);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct ObserverRecord(Mutex<Vec<(Option<String>, UpstreamEvent)>>);
    impl UpstreamObserver for ObserverRecord {
        fn happened(&self, server: Option<&str>, event: UpstreamEvent) {
            self.0.lock().unwrap().push((server.map(str::to_owned), event));
        }
    }

    #[test]
    fn servers_of_other_tenants_have_no_name_and_every_call_that_begins_ends() {
        let kept = Arc::new(ObserverRecord::default());
        let of = |tenant: &TenantId| ServerTeller::new(Arc::clone(&kept) as _, tenant, "files");
        drop(of(&TenantId::home()).call());
        of(&"acme".parse().unwrap()).tell(UpstreamEvent::GivenUp);
        let named = Some("files".to_owned());
        assert_eq!(
            *kept.0.lock().unwrap(),
            [
                (named.clone(), UpstreamEvent::CallBegun),
                (named, UpstreamEvent::CallEnded),
                (None, UpstreamEvent::GivenUp)
            ]
        );
    }
}
