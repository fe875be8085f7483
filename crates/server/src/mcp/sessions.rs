//! Sessions of clients that speak an older revision: bounded in number, closed when idle, and each bound to whoever made it
//! and to the path it was made at.
//!
//! The mechanics (streams, routing, resumption) are `rmcp`'s; here is who may use which, and how many there may be. The
//! revision 2026-07-28 has no sessions and never comes here.
//!
//! Invariants
//! - MSESS-1: a session answers to its own principal only. To everybody else it is not there.
//! - MSESS-2: there are never more than the configuration allows, in all, of one tenant and of one agent, also when many begin at once.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use fair_places::{FairPermit, PlaceUsage};
use futures_util::{Stream, StreamExt as _};
use policy::Caller;
use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_server::session::local::{LocalSessionManager, LocalSessionManagerError};
use rmcp::transport::streamable_http_server::session::{RestoreOutcome, ServerSseMessage, SessionId, SessionManager};

use super::call_logs;
use super::config::McpConfig;
use super::earlier_tasks;
use super::quota::{McpQuota, QuotaExceeded};

/// Whose a session is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SessionOwner {
    pub(crate) principal: String,
    pub(crate) toolset: Option<Arc<str>>,
}

/// All sessions.
#[derive(Debug)]
pub(crate) struct SessionTable {
    inner: LocalSessionManager,
    owners: Mutex<HashMap<SessionId, Known>>,
    /// Those with tasks of their revision (`earlier_tasks::REVISION`).
    with_tasks: Mutex<HashSet<SessionId>>,
    places: McpQuota,
    sessions_max: usize,
    /// Held by whoever begins a session of another instance again.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Known {
    owner: SessionOwner,
    _place: FairPermit,
    /// Of the one revision that has batches?
    batches: bool,
}

/// Why a session could not be had.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionsError {
    /// MSESS-2.
    #[error("there are too many sessions")]
    Full,
    /// As the mechanics say.
    #[error(transparent)]
    Inner(#[from] LocalSessionManagerError),
}

impl SessionTable {
    /// None yet.
    pub(crate) fn new(config: &McpConfig) -> Self {
        let mut inner = LocalSessionManager::default();
        inner.session_config.keep_alive = Some(config.session_idle());
        let places = McpQuota::new(config.sessions_max, config.sessions_per_principal_max);
        Self {
            inner,
            owners: Mutex::default(),
            with_tasks: Mutex::default(),
            places,
            sessions_max: config.sessions_max,
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// A place for one more, before it begins (MSESS-2).
    pub(crate) fn place(&self, caller: &Caller) -> Result<FairPermit, QuotaExceeded> {
        self.places.take(caller)
    }

    /// How many of the places are taken.
    pub(crate) fn usage(&self) -> PlaceUsage {
        self.places.usage()
    }

    /// Notes whose a new session is, and what place it has.
    pub(crate) async fn belongs(&self, id: &str, owner: SessionOwner, place: FairPermit, batches: bool) {
        let id: SessionId = Arc::from(id);
        let known = Known { owner, _place: place, batches };
        self.owners.lock_unpoisoned().insert(Arc::clone(&id), known);
        // It may have ended before anybody knew whose it was.
        if !self.inner.sessions.read().await.contains_key(&id) {
            self.forget(&id);
        }
    }

    /// Is this session there, and this caller's?
    pub(crate) fn is_of(&self, id: &str, owner: &SessionOwner) -> bool {
        let owners = self.owners.lock_unpoisoned();
        owners.get(id).is_some_and(|known| known.owner == *owner)
    }

    /// May this session send several messages at once?
    pub(crate) fn takes_batches(&self, id: &str) -> bool {
        let owners = self.owners.lock_unpoisoned();
        owners.get(id).is_some_and(|known| known.batches)
    }

    /// Waits until nobody else begins a session of another instance again.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Ends a session, if it is here.
    pub(crate) async fn end(&self, id: &str) {
        // Whatever cannot be closed is closed when it is idle.
        let _ = self.close_session(&Arc::from(id)).await;
    }

    /// How many there are.
    pub(crate) async fn count(&self) -> usize {
        self.inner.sessions.read().await.len()
    }

    fn forget(&self, id: &SessionId) {
        self.owners.lock_unpoisoned().remove(id);
        self.with_tasks.lock_unpoisoned().remove(id);
    }

    fn has_tasks(&self, id: &SessionId) -> bool {
        self.with_tasks.lock_unpoisoned().contains(id)
    }

    /// A stream as the session is to see it.
    fn shown(
        &self,
        id: &SessionId,
        stream: impl Stream<Item = ServerSseMessage> + Send + Sync + 'static,
    ) -> impl Stream<Item = ServerSseMessage> + Send + Sync + 'static {
        let has_tasks = self.has_tasks(id);
        stream.map(call_logs::given).map(move |sent| if has_tasks { earlier_tasks::given(sent) } else { sent })
    }
}

impl SessionManager for SessionTable {
    type Error = SessionsError;
    type Transport = <LocalSessionManager as SessionManager>::Transport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), Self::Error> {
        if self.count().await >= self.sessions_max {
            return Err(SessionsError::Full);
        }
        Ok(self.inner.create_session().await?)
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, Self::Error> {
        let (answer, has_tasks) = earlier_tasks::announced(self.inner.initialize_session(id, message).await?);
        if has_tasks {
            self.with_tasks.lock_unpoisoned().insert(Arc::clone(id));
        }
        Ok(answer)
    }

    async fn restore_session(&self, id: SessionId) -> Result<RestoreOutcome<Self::Transport>, Self::Error> {
        if self.count().await >= self.sessions_max {
            return Err(SessionsError::Full);
        }
        Ok(self.inner.restore_session(id).await?)
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, Self::Error> {
        Ok(self.inner.has_session(id).await?)
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), Self::Error> {
        self.forget(id);
        Ok(self.inner.close_session(id).await?)
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        let message = call_logs::taken(if self.has_tasks(id) { earlier_tasks::taken(message) } else { message });
        Ok(self.shown(id, self.inner.create_stream(id, message).await?))
    }

    async fn accept_message(&self, id: &SessionId, message: ClientJsonRpcMessage) -> Result<(), Self::Error> {
        Ok(self.inner.accept_message(id, message).await?)
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        // What came too late for the stream of its call.
        Ok(self.inner.create_standalone_stream(id).await?.map(call_logs::given))
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, Self::Error> {
        Ok(self.shown(id, self.inner.resume(id, last_event_id).await?))
    }
}
