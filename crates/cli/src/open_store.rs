//! The store as configured: a file of this machine or a database that many instances share, behind the same ports.
//!
//! Whoever needs the store names the port it needs; which adapter stands there is decided here and nowhere else.

use std::path::Path;
use std::sync::Arc;

use ports::access_store::AccessStore;
use ports::breaker_history::BreakerHistory;
use ports::change_bus::ChangeBus;
use ports::checkpoint_store::CheckpointStore;
use ports::health_store::HealthStore;
use ports::installation_store::InstallationStore;
use ports::job_store::JobStore;
use ports::ledger::Ledger;
use ports::log_heads::LogHeads;
use ports::presence::Presence;
use ports::record_archive::RecordArchive;
use ports::registry_store::RegistryStore;
use ports::sealed_texts::SealedTexts;
use ports::tool_search::ToolSearch;
use ports::upstream_store::UpstreamStore;
use ports::usage_store::UsageStore;
use ports::vector_store::VectorStore;
use ports::version_use::VersionUseStore;
use ports::webhook_store::WebhookStore;
use ports::workflow_runs::WorkflowRuns;
use store::postgres::{PoolNumbers, PostgresOpenError, PostgresStore, password_has_raw_signs, without_password};
use store::sqlite::{SqliteOptions, SqliteStore};
use store::transfer::MoveError;

use crate::config::store::StoreSection;
use crate::failure::CommandFailure;

/// An open store.
pub(crate) struct OpenStore {
    pub(crate) registry: Arc<dyn RegistryStore>,
    pub(crate) search: Arc<dyn ToolSearch>,
    pub(crate) access: Arc<dyn AccessStore>,
    pub(crate) upstreams: Arc<dyn UpstreamStore>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) jobs: Arc<dyn JobStore>,
    pub(crate) webhooks: Arc<dyn WebhookStore>,
    pub(crate) runs: Arc<dyn WorkflowRuns>,
    pub(crate) checkpoints: Arc<dyn CheckpointStore>,
    pub(crate) usage: Arc<dyn UsageStore>,
    pub(crate) health: Arc<dyn HealthStore>,
    pub(crate) version_use: Arc<dyn VersionUseStore>,
    #[expect(dead_code, reason = "search by meaning, which will ask it, is not there yet")]
    pub(crate) vectors: Arc<dyn VectorStore>,
    pub(crate) breaker_history: Arc<dyn BreakerHistory>,
    pub(crate) texts: Arc<dyn SealedTexts>,
    behind: Behind,
}

/// The adapter itself, for what no port has.
enum Behind {
    File(Arc<SqliteStore>),
    Database(Arc<PostgresStore>),
}

impl OpenStore {
    /// Opens it for reading and writing, and migrates it if need be.
    pub(crate) async fn open(section: &StoreSection, data_dir: &Path) -> Result<Self, CommandFailure> {
        match section.database() {
            Some(database) => {
                let store = PostgresStore::open(&database.url, &database.options())
                    .await
                    .map_err(|error| unusable(&database.url, &error))?;
                let store = Arc::new(store);
                Ok(Self::of(&store, Behind::Database(Arc::clone(&store))))
            }
            None => {
                let store = SqliteStore::open(&section.file(data_dir), &SqliteOptions::default())
                    .map_err(|error| CommandFailure::new(error.to_string()))?;
                let store = Arc::new(store);
                Ok(Self::of(&store, Behind::File(Arc::clone(&store))))
            }
        }
    }

    fn of<S>(store: &Arc<S>, behind: Behind) -> Self
    where
        S: RegistryStore
            + ToolSearch
            + AccessStore
            + UpstreamStore
            + Ledger
            + JobStore
            + WebhookStore
            + WorkflowRuns
            + CheckpointStore
            + UsageStore
            + HealthStore
            + VectorStore
            + BreakerHistory
            + VersionUseStore
            + SealedTexts
            + 'static,
    {
        Self {
            registry: Arc::clone(store) as _,
            search: Arc::clone(store) as _,
            access: Arc::clone(store) as _,
            upstreams: Arc::clone(store) as _,
            ledger: Arc::clone(store) as _,
            jobs: Arc::clone(store) as _,
            webhooks: Arc::clone(store) as _,
            runs: Arc::clone(store) as _,
            checkpoints: Arc::clone(store) as _,
            usage: Arc::clone(store) as _,
            health: Arc::clone(store) as _,
            version_use: Arc::clone(store) as _,
            vectors: Arc::clone(store) as _,
            breaker_history: Arc::clone(store) as _,
            texts: Arc::clone(store) as _,
            behind,
        }
    }

    /// Can other processes write it at the same time?
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.behind, Behind::Database(_))
    }

    /// What empties the log of a file; none if a server of its own keeps the store.
    pub(crate) fn file(&self) -> Option<Arc<SqliteStore>> {
        match &self.behind {
            Behind::File(store) => Some(Arc::clone(store)),
            Behind::Database(_) => None,
        }
    }

    /// What tells of changes that other instances make in the same store; none if there can be no others.
    pub(crate) async fn changes(&self) -> Result<Option<Arc<dyn ChangeBus>>, CommandFailure> {
        match &self.behind {
            Behind::File(_) => Ok(None),
            Behind::Database(store) => {
                let bus = store.bus().await.map_err(|error| CommandFailure::new(error.to_string()))?;
                Ok(Some(Arc::new(bus)))
            }
        }
    }

    /// What keeps the secrets that all instances know alike; none if there can be no others.
    pub(crate) fn installation(&self) -> Option<Arc<dyn InstallationStore>> {
        match &self.behind {
            Behind::File(_) => None,
            Behind::Database(store) => Some(Arc::clone(store) as _),
        }
    }

    /// Where instances tell each other how far their audit logs have come; none if there is only this one.
    pub(crate) fn log_heads(&self) -> Option<Arc<dyn LogHeads>> {
        match &self.behind {
            Behind::File(_) => None,
            Behind::Database(store) => Some(Arc::clone(store) as _),
        }
    }

    /// Who knows which instances are there, if the store does.
    pub(crate) fn presence(&self) -> Option<Arc<dyn Presence>> {
        match &self.behind {
            Behind::File(_) => None,
            Behind::Database(store) => Some(Arc::clone(store) as _),
        }
    }

    /// The archive of the records of all instances; none if there is only this one.
    pub(crate) fn archive(&self) -> Option<Arc<dyn RecordArchive>> {
        match &self.behind {
            Behind::File(_) => None,
            Behind::Database(store) => Some(Arc::clone(store) as _),
        }
    }

    /// The kind of store, and the newest shape of it that this program knows.
    pub(crate) fn shape(&self) -> String {
        match &self.behind {
            Behind::File(_) => format!("sqlite/{}", SqliteStore::shapes_known()),
            Behind::Database(_) => format!("postgres/{}", PostgresStore::shapes_known()),
        }
    }

    /// How many connections are in use, if there are any.
    pub(crate) fn connections(&self) -> Option<PoolNumbers> {
        match &self.behind {
            Behind::File(_) => None,
            Behind::Database(store) => Some(store.connections()),
        }
    }

    /// Takes no more work and finishes what was begun.
    pub(crate) async fn close(&self) {
        match &self.behind {
            Behind::File(store) => store.close().await,
            Behind::Database(store) => store.close().await,
        }
    }
}

/// What a database that cannot be used is refused with: which, why, and what to do.
pub(crate) fn unusable(url: &str, error: &PostgresOpenError) -> CommandFailure {
    let is_about_the_address = matches!(error, PostgresOpenError::Address(_) | PostgresOpenError::Unreachable(_));
    CommandFailure::new(format!("{}: {}", without_password(url), described(error))).hint(
        if is_about_the_address && password_has_raw_signs(url) {
            "in a password some signs mean something else: write `@` as %40, `#` as %23, `/` as %2F, `?` as %3F and `%` as %25"
        } else {
            "docs/postgres.md says what a database for Gantry needs"
        },
    )
}

/// The same where a whole store was to be moved from or to the database.
pub(crate) fn not_moved(url: &str, error: &MoveError) -> CommandFailure {
    match error {
        MoveError::Postgres(error) => unusable(url, error),
        other => CommandFailure::new(other.to_string()),
    }
}

/// The error with its causes: "cannot be reached" alone does not say whether a password or a port is wrong.
pub(crate) fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        source = cause.source();
    }
    text
}
