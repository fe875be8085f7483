//! Versions under development: a registry store in which the content of a version can be replaced, for `gantry tool dev` alone.
//! (decision 0106)
//!
//! It stands before the store of a server that was started for development, on a data directory of its own. What is published
//! first goes to that store; what replaces it stays in memory, and is gone with the server. No other command puts it there, so on
//! every other server a published version never changes, whatever anybody asks for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;
use base::MutexExt as _;
use contract::ids::{TenantId, ToolId};
use contract::version::Version;
use ports::lifecycle::Lifecycle;
use ports::registry_store::{
    LifecycleChange, PublishOutcome, QuarantineChange, RegistryStore, StoreError, StoredVersion, ToolQuarantine,
};

/// Versions that were replaced at once; a folder has one tool, and its author a few numbers.
const DRAFTS_MAX: usize = 1_000;

/// By tenant, tool and written version.
type Drafts = HashMap<(TenantId, ToolId, String), StoredVersion>;

/// A store whose versions are drafts.
#[derive(Debug)]
pub(crate) struct DraftRegistry {
    store: Arc<dyn RegistryStore>,
    drafts: Mutex<Drafts>,
}

impl DraftRegistry {
    /// Before this store.
    pub(crate) fn before(store: Arc<dyn RegistryStore>) -> Self {
        Self { store, drafts: Mutex::default() }
    }

    fn drafts(&self) -> MutexGuard<'_, Drafts> {
        self.drafts.lock_unpoisoned()
    }
}

fn key(version: &StoredVersion) -> (TenantId, ToolId, String) {
    (version.tenant.clone(), version.tool.clone(), version.version.to_string())
}

#[async_trait]
impl RegistryStore for DraftRegistry {
    fn holds_drafts(&self) -> bool {
        true
    }

    async fn load(&self) -> Result<Vec<StoredVersion>, StoreError> {
        let mut stored = self.store.load().await?;
        let drafts = self.drafts();
        for version in &mut stored {
            if let Some(draft) = drafts.get(&key(version)) {
                let lifecycle = version.lifecycle.clone();
                *version = StoredVersion { lifecycle, ..draft.clone() };
            }
        }
        Ok(stored)
    }

    async fn publish(&self, version: StoredVersion) -> Result<PublishOutcome, StoreError> {
        let published = self.store.publish(version.clone()).await?;
        let mut drafts = self.drafts();
        match published {
            PublishOutcome::Different { published } if drafts.len() >= DRAFTS_MAX => {
                Ok(PublishOutcome::Different { published })
            }
            PublishOutcome::Different { .. } => {
                drafts.insert(key(&version), version);
                Ok(PublishOutcome::New)
            }
            // What was published first is in force again.
            PublishOutcome::Same => {
                drafts.remove(&key(&version));
                Ok(PublishOutcome::Same)
            }
            PublishOutcome::New => Ok(PublishOutcome::New),
        }
    }

    async fn change_lifecycle(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        version: &Version,
        from: &Lifecycle,
        to: &Lifecycle,
    ) -> Result<LifecycleChange, StoreError> {
        self.store.change_lifecycle(tenant, tool, version, from, to).await
    }

    async fn quarantines(&self) -> Result<Vec<ToolQuarantine>, StoreError> {
        self.store.quarantines().await
    }

    async fn put_quarantine(&self, quarantine: &ToolQuarantine) -> Result<QuarantineChange, StoreError> {
        self.store.put_quarantine(quarantine).await
    }

    async fn remove_quarantine(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        by: &TenantId,
    ) -> Result<QuarantineChange, StoreError> {
        self.store.remove_quarantine(tenant, tool, by).await
    }

    async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }
}
