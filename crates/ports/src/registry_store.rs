//! The durable truth about published versions.
//!
//! A tool belongs to the tenant that published it: what names a tool is (tenant, tool id), everywhere. Who sees
//! whose tools is decided above, by the registry.

use std::fmt;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::Manifest;
use contract::version::Version;

use crate::clock::UnixMillis;
use crate::lifecycle::Lifecycle;

/// A published version, on its way into the store or out of it.
#[derive(Debug, Clone)]
pub struct StoredVersion {
    /// Whose tool it is.
    pub tenant: TenantId,
    pub tool: ToolId,
    pub version: Version,
    pub manifest: Manifest,
    pub digest: Digest,
    pub lifecycle: Lifecycle,
    pub published_at: UnixMillis,
    pub published_by: Subject,
}

/// What became of a publication.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The version was not there; now it is, durably.
    New,
    /// The very same content was published before.
    Same,
    /// Other content was published under this version before; nothing was changed.
    Different { published: Digest },
}

/// What became of a lifecycle change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifecycleChange {
    Done,
    /// No such version.
    Unknown,
    /// Somebody changed it meanwhile; this is what it is now.
    Stale(Lifecycle),
}

/// That a person has taken a tool out of use, in every version (REG-024).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolQuarantine {
    /// Whose tool it is.
    pub tenant: TenantId,
    pub tool: ToolId,
    pub reason: String,
    pub by: Subject,
    /// The tenant of `by`. What the home tenant took out of use, nobody else puts back: see [`ToolQuarantine::yields_to`].
    pub by_tenant: TenantId,
    pub at: UnixMillis,
}

impl ToolQuarantine {
    /// May people of this tenant lift it, or put another in its place? Those of the installation may always; others only where
    /// the installation has not spoken.
    pub fn yields_to(&self, tenant: &TenantId) -> bool {
        tenant.is_home() || !self.by_tenant.is_home()
    }
}

/// What became of a change of a quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineChange {
    Done,
    /// There is none to lift.
    Unknown,
    /// It is the installation's and stays as it is.
    Withheld,
}

/// Why the store could not answer. The variants are what callers can act upon; causes go to the log.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was written; trying again later may help (locked, disk full).
    #[error("the store is not available at the moment")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What was read does not make sense; a person must look.
    #[error("the store holds data that cannot be read")]
    Corrupt(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// The trouble in the terms of the error table; the cause goes to the log, and is the refusal's source.
    pub fn refusal(self) -> Refusal {
        tracing::error!(error = &self as &dyn std::error::Error, "the store failed");
        let refusal = match &self {
            Self::Unavailable(_) => Refusal::new(ErrorCode::E3001, self.to_string())
                .hint("nothing was changed; try again in a moment, and if it stays, look at the server's log and disk"),
            Self::Corrupt(_) => Refusal::new(ErrorCode::E3000, self.to_string())
                .hint("an operator must look at the data directory; `gantry doctor` says more")
                .retryable(false),
        };
        refusal.caused_by(self)
    }
}

/// Keeps published versions.
#[async_trait]
pub trait RegistryStore: Send + Sync + fmt::Debug {
    /// Everything that was ever published, by any tenant, removed versions included, ordered by tenant, then by tool,
    /// then by version precedence.
    async fn load(&self) -> Result<Vec<StoredVersion>, StoreError>;

    /// Publishes a version, atomically: of any number of concurrent publications of one (tenant, tool, version), one is
    /// `New`. `New` and `Same` are answered only once the version is durable. A published version is never changed.
    async fn publish(&self, version: StoredVersion) -> Result<PublishOutcome, StoreError>;

    /// Are the versions here drafts, whose content a publication replaces? Only a store that nothing else uses says yes, on a
    /// server for the development of a tool; [`publish`](Self::publish) answers `New` then for other content too.
    fn holds_drafts(&self) -> bool {
        false
    }

    /// Moves a version from one lifecycle record to another, atomically, if it still has the first.
    /// `Done` is answered only once the change is durable.
    async fn change_lifecycle(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        version: &Version,
        from: &Lifecycle,
        to: &Lifecycle,
    ) -> Result<LifecycleChange, StoreError>;

    /// Every tool that is in quarantine, of every tenant.
    async fn quarantines(&self) -> Result<Vec<ToolQuarantine>, StoreError>;

    /// Puts a tool into quarantine, durably and atomically; one that is in it already gets the new reason, if it
    /// [yields](Quarantine::yields_to) to the tenant of whoever gives it.
    async fn put_quarantine(&self, quarantine: &ToolQuarantine) -> Result<QuarantineChange, StoreError>;

    /// Takes a tool of `tenant` out of quarantine for people of the tenant `by`, durably and atomically, if it yields to them.
    async fn remove_quarantine(
        &self,
        tenant: &TenantId,
        tool: &ToolId,
        by: &TenantId,
    ) -> Result<QuarantineChange, StoreError>;

    /// Can the store be read and written? For readiness probes; bounded by the caller.
    async fn ping(&self) -> Result<(), StoreError>;
}
