//! A bounded pool of connections.
//!
//! A connection is handed to one piece of work at a time and comes back only if that work ended in order: one that was
//! left in the middle of a transaction, by a fault or because its future was dropped, is closed instead, which makes the
//! server undo what was begun.
//!
//! Invariants
//! - POOL-1: never more connections than the bound; who waits, waits for a bounded time.
//! - POOL-2: no connection with an open transaction is ever handed out.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::{MutexExt as _, SaturatingFrom as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_postgres::{Client, Config, Connection, Socket};

use super::PostgresOptions;
use super::faults::{Busy, Fault};
use super::tls::{Encrypted, Tls};

/// Connections to one database.
#[derive(Clone)]
pub(super) struct Pool(Arc<Shared>);

struct Shared {
    config: Config,
    tls: Tls,
    idle: Mutex<Vec<Client>>,
    places: Arc<Semaphore>,
    wait_max: Duration,
    statement_max: Duration,
    connections_max: usize,
}

/// Numbers for metrics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolNumbers {
    /// In use at this moment.
    pub used: usize,
    /// Open, but waiting for work.
    pub idle: usize,
    /// The bound.
    pub max: usize,
}

/// A connection in somebody's hands.
pub(super) struct Lease {
    client: Option<Client>,
    shared: Arc<Shared>,
    _place: OwnedSemaphorePermit,
}

impl Pool {
    pub(super) fn new(config: Config, tls: Tls, options: &PostgresOptions) -> Self {
        Self(Arc::new(Shared {
            config,
            tls,
            idle: Mutex::new(Vec::new()),
            places: Arc::new(Semaphore::new(options.connections_max.max(1))),
            wait_max: options.connection_wait,
            statement_max: options.statement_max,
            connections_max: options.connections_max.max(1),
        }))
    }

    /// A connection without an open transaction. [`Lease::give_back`] when the work has ended in order.
    pub(super) async fn take(&self) -> Result<Lease, Fault> {
        let waited = tokio::time::timeout(self.0.wait_max, self.lease()).await;
        waited.unwrap_or_else(|_| {
            let taken = self.0.places.available_permits() == 0;
            Err(if taken { Busy::ConnectionsTaken } else { Busy::NoAnswer }.into())
        })
    }

    /// A connection that is not of the pool, for whoever needs one for good. Beyond the bound, so one for each instance.
    pub(super) async fn connect_apart(&self) -> Result<(Client, Connection<Socket, Encrypted>), Fault> {
        Ok(self.0.config.connect(self.0.tls.clone()).await?)
    }

    /// How long one statement may take.
    pub(super) fn statement_max(&self) -> Duration {
        self.0.statement_max
    }

    /// Numbers for metrics.
    pub(super) fn connections(&self) -> PoolNumbers {
        let used = self.0.connections_max.saturating_sub(self.0.places.available_permits());
        PoolNumbers { used, idle: self.0.idle().len(), max: self.0.connections_max }
    }

    /// Hands out no more connections, waits a bounded time for those in use, and closes all.
    pub(super) async fn close(&self) {
        let all = u32::saturating_from(self.0.connections_max);
        // Whoever still works then is cut off by the end of the process.
        let _ = tokio::time::timeout(self.0.wait_max, self.0.places.acquire_many(all)).await;
        self.0.places.close();
        self.0.idle().clear();
    }

    async fn lease(&self) -> Result<Lease, Fault> {
        let place = Arc::clone(&self.0.places).acquire_owned().await.map_err(|_| Busy::Closed)?;
        let kept = loop {
            let kept = self.0.idle().pop();
            match kept {
                Some(client) if client.is_closed() => {}
                other => break other,
            }
        };
        let client = match kept {
            Some(client) => client,
            None => self.0.connect().await?,
        };
        Ok(Lease { client: Some(client), shared: Arc::clone(&self.0), _place: place })
    }
}

impl Shared {
    async fn connect(&self) -> Result<Client, Fault> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        // Ends when the client is dropped or the server goes; what went wrong is told to whoever waits for an answer.
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error = &error as &dyn std::error::Error, "a connection to the database ended");
            }
        });
        Ok(client)
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Client>> {
        self.idle.lock_unpoisoned()
    }
}

impl Lease {
    /// The connection. It is there until the lease is given back.
    pub(super) fn client(&self) -> Result<&Client, Fault> {
        self.client.as_ref().ok_or_else(|| Busy::Closed.into())
    }

    /// The server is not the one to work with: nobody gets a connection to it that was made before.
    pub(super) fn forget_idle(&self) {
        self.shared.idle().clear();
    }

    /// The work has ended in order: somebody else may have the connection.
    pub(super) fn give_back(mut self) {
        if let Some(client) = self.client.take()
            && !client.is_closed()
            && !self.shared.places.is_closed()
        {
            self.shared.idle().push(client);
        }
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the configuration: it has the password.
        f.debug_tuple("Pool").field(&self.connections()).finish()
    }
}
