//! Calls that outlast the stream of the client that made them: those of a tool with effects that carry an idempotency key.
//!
//! Such a call is ended by a word of its client, never by a line that breaks: whoever calls again with the key gets what came
//! of it. The token of a request says neither which of the two it was, so a cancellation that was said is noted here by the
//! id of the request it is about.
//!
//! Bounded by the calls in flight.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use base::MutexExt as _;
use rmcp::model::RequestId;
use tokio_util::sync::CancellationToken;

type Calls = HashMap<RequestId, CancellationToken>;

/// Those of one client.
#[derive(Debug, Clone, Default)]
pub(crate) struct DetachedCalls(Arc<Mutex<Calls>>);

/// One of them; forgotten when it is dropped.
#[derive(Debug)]
pub(crate) struct DetachedCall {
    id: RequestId,
    calls: DetachedCalls,
    /// Cancelled by a word of the client.
    pub(crate) cancellation: CancellationToken,
}

impl DetachedCalls {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        self.0.lock_unpoisoned()
    }

    /// Notes a call by the request that made it. The end of the doors ends it, too.
    pub(crate) fn note(&self, id: RequestId, ending: &CancellationToken) -> DetachedCall {
        let cancellation = ending.child_token();
        self.calls().insert(id.clone(), cancellation.clone());
        DetachedCall { id, calls: self.clone(), cancellation }
    }

    /// The client does not want it any more.
    pub(crate) fn cancel(&self, id: &RequestId) {
        if let Some(cancellation) = self.calls().get(id) {
            cancellation.cancel();
        }
    }
}

impl Drop for DetachedCall {
    fn drop(&mut self) {
        self.calls.calls().remove(&self.id);
    }
}
