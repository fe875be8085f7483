//! What can be done with the registry: publish, change a lifecycle, list, search. Writes go to the store first and into
//! the snapshot after; nothing is acknowledged that is not durable.
//!
//! Everything is done as some tenant, which changes its own tools only and sees its own and the shared ones. Whether the
//! caller may know a shared tool is asked of a predicate, because it depends on more than the tenant.

use std::collections::BTreeSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::{AdmissionFinding, LifecycleState, Manifest, ManifestError};
use contract::version::Version;
use ports::clock::{Clock, UnixMillis};
use ports::lifecycle::{Lifecycle, LifecycleAction};
use ports::observer::Observer;
use ports::registry_store::{LifecycleChange, PublishOutcome, RegistryStore, StoreError, StoredVersion};
use ports::tool_search::ToolSearch;
use ports::tool_version::ToolVersion;
use serde_json::json;

use super::match_warnings::MatchWarnings;
use super::quarantine;
use super::rules::{self, Seen};
use super::snapshot::{RegisteredTool, RegistrySnapshot};
use super::turns::Turns;
use crate::availability::{QuarantinedTools, ToolAvailability};

/// Largest page of a listing (API-006).
pub const PAGE_SIZE_MAX: usize = 200;
/// Page size when none is asked for.
pub const PAGE_SIZE_DEFAULT: usize = 50;
/// Most search hits in one answer.
pub const SEARCH_LIMIT_MAX: usize = 100;
/// Hits asked of the index per hit wanted, because some will not be for this caller's eyes.
const SEARCH_OVERFETCH: usize = 4;

/// What became of a registration.
#[derive(Debug, Clone)]
pub struct RegistrationOutcome {
    pub version: Arc<ToolVersion>,
    /// False: the very same content was there already.
    pub created: bool,
}

/// What a listing should contain.
#[derive(Debug, Clone, Default)]
pub struct ListFilter {
    pub category: Option<String>,
    /// Every one of them must be there.
    pub tags: Vec<String>,
    /// Part of the id, name or description, any case.
    pub text: Option<String>,
    pub lifecycle: Option<LifecycleState>,
    /// From 1.
    pub page: usize,
    pub page_size: usize,
}

/// One line of a listing or search.
#[derive(Debug, Clone)]
pub struct ListingEntry {
    pub tool: Arc<RegisteredTool>,
    /// The version that stands for the tool.
    pub current: Arc<ToolVersion>,
    /// For search only.
    pub score: Option<f64>,
}

/// One page of a listing.
#[derive(Debug, Clone)]
pub struct ToolPage {
    pub tools: Vec<ListingEntry>,
    pub total_count: usize,
}

/// The registry.
#[derive(Debug)]
pub struct Registry {
    pub(super) snapshot: ArcSwap<RegistrySnapshot>,
    pub(super) store: Arc<dyn RegistryStore>,
    search: Arc<dyn ToolSearch>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) observer: Arc<dyn Observer>,
    /// Orders "store, then snapshot" of concurrent writers. Never taken by calls.
    pub(super) turns: Turns,
    /// What people have taken out of use, and whom to tell of it.
    pub(super) quarantined: ArcSwap<QuarantinedTools>,
    pub(super) availability: ToolAvailability,
    pub(super) warnings: MatchWarnings,
}

impl Registry {
    /// Loads everything that was ever published.
    pub async fn open(
        store: Arc<dyn RegistryStore>,
        search: Arc<dyn ToolSearch>,
        clock: Arc<dyn Clock>,
        observer: Arc<dyn Observer>,
    ) -> Result<Self, StoreError> {
        let loaded = store.load().await?;
        let snapshot = loaded
            .into_iter()
            .fold(RegistrySnapshot::default(), |snapshot, stored| snapshot.with(Arc::new(ToolVersion::new(stored))));
        observer.registry_swapped(snapshot.tool_count(), snapshot.version_count());
        let quarantined = Arc::new(quarantine::by_tool(store.quarantines().await?));
        let availability = ToolAvailability::default();
        availability.set_quarantined(&quarantined);
        Ok(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            store,
            search,
            clock,
            observer,
            turns: Turns::default(),
            quarantined: ArcSwap::new(quarantined),
            availability,
            warnings: MatchWarnings::default(),
        })
    }

    /// The registry at this moment. Cheap; hold it for the length of one call.
    pub fn snapshot(&self) -> arc_swap::Guard<Arc<RegistrySnapshot>> {
        self.snapshot.load()
    }

    /// What is published but cannot be called at the moment.
    pub fn availability(&self) -> &ToolAvailability {
        &self.availability
    }

    /// Is the store there?
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.store.ping().await
    }

    // ------------------------------------------------------------------------------------------------- publishing

    /// The publication of just this content by this tenant, if there was one and the version was not removed since. No rule is
    /// asked: what is published may be older than the rules.
    pub fn known(&self, tenant: &TenantId, manifest: &Manifest) -> Option<RegistrationOutcome> {
        let snapshot = self.snapshot();
        let tool = snapshot.tool(tenant, &manifest.id().ok()?).filter(|tool| tool.tenant == *tenant)?;
        let known = tool.version(&manifest.version)?;
        let stands = known.lifecycle.state(self.clock.now()) != LifecycleState::Removed;
        (stands && known.digest == manifest.digest())
            .then(|| RegistrationOutcome { version: Arc::clone(known), created: false })
    }

    /// Has this tenant published a version of this number, whatever its content?
    pub(crate) fn is_taken(&self, tenant: &TenantId, manifest: &Manifest) -> bool {
        let snapshot = self.snapshot();
        let tool = manifest.id().ok().and_then(|id| snapshot.tool(tenant, &id));
        tool.is_some_and(|tool| tool.tenant == *tenant && tool.version(&manifest.version).is_some())
    }

    /// Publishes a version as a tool of this tenant (REG-001…003, REG-016…017).
    pub async fn register(
        &self,
        tenant: &TenantId,
        manifest: Manifest,
        by: &Subject,
    ) -> Result<RegistrationOutcome, Refusal> {
        let id = manifest.id().map_err(|e| Refusal::new(ErrorCode::E3105, e.to_string()))?;
        let digest = manifest.digest();
        // An alias must not be given away twice, so a publication that brings some waits for all others.
        let _turn =
            if manifest.aliases.is_empty() { self.turns.of(&id).await } else { self.turns.of_everything().await };
        let now = self.clock.now();

        let snapshot = self.snapshot().clone();
        let there = snapshot.tool(tenant, &id);
        // A tenant that had the id first goes on with its own; one that comes later finds it taken.
        if there.is_some_and(|tool| tool.tenant != *tenant) {
            return Err(taken(&id));
        }
        // A former name of a tool is a name that this tool has: whoever calls it by that name must go on reaching it.
        if there.is_none() && snapshot.alias(tenant, id.as_str()).is_some() {
            return Err(match snapshot.find(tenant, id.as_str()).filter(|tool| tool.tenant == *tenant) {
                Some(owner) => former_name(&id, &owner.id),
                None => taken(&id),
            });
        }
        // Asked of the snapshot before the rules, so that repeating a publication is harmless for ever.
        if let Some(known) = there.and_then(|tool| tool.version(&manifest.version)) {
            if known.lifecycle.state(now) == LifecycleState::Removed {
                return Err(gone(&id, &manifest.version));
            }
            if known.digest == digest {
                return Ok(RegistrationOutcome { version: Arc::clone(known), created: false });
            }
            if !self.store.holds_drafts() {
                return Err(conflict(&id, &manifest.version));
            }
        }
        let (manifest, findings) = ruled(&id, manifest, &snapshot, tenant, now).await?;
        if !findings.is_empty() {
            return Err(not_admitted(&ManifestError::new(findings)));
        }

        let lifecycle = Lifecycle::declared(&manifest, now).unwrap_or_default();
        let new = StoredVersion {
            tenant: tenant.clone(),
            tool: id.clone(),
            version: manifest.version.clone(),
            manifest,
            digest,
            lifecycle,
            published_at: now,
            published_by: by.clone(),
        };
        let published = self.store.publish(new.clone()).await.map_err(|e| e.refusal())?;
        let created = match published {
            PublishOutcome::New => true,
            PublishOutcome::Same => false,
            PublishOutcome::Different { .. } => return Err(conflict(&id, &new.version)),
        };
        Ok(RegistrationOutcome { version: self.swap(ToolVersion::new(new)), created })
    }

    // -------------------------------------------------------------------------------------------------- lifecycle

    /// Changes the state of one version of the tenant's own tool, or of every version for which the action makes sense.
    /// Answers the versions that have changed or already were as wanted.
    pub async fn change_lifecycle(
        &self,
        tenant: &TenantId,
        name: &str,
        version: Option<&Version>,
        action: &LifecycleAction,
        may_know: impl Fn(&RegisteredTool) -> bool,
    ) -> Result<Vec<Arc<ToolVersion>>, Refusal> {
        let id = {
            let snapshot = self.snapshot();
            let found = snapshot.find(tenant, name).filter(|tool| may_know(tool));
            let tool = found.ok_or_else(|| snapshot.not_found(tenant, name, &may_know))?;
            if tool.tenant != *tenant {
                return Err(shared(&tool.id));
            }
            tool.id.clone()
        };
        let _turn = self.turns.of(&id).await;
        let snapshot = self.snapshot().clone();
        let tool = snapshot.tool(tenant, &id).ok_or_else(|| snapshot.not_found(tenant, name, &may_know))?;
        let now = self.clock.now();
        let chosen: Vec<&Arc<ToolVersion>> = match version {
            Some(version) => vec![tool.version(version).ok_or_else(|| unknown_version(tool, version))?],
            None => tool.versions().iter().collect(),
        };

        let mut changed = Vec::new();
        let mut refused = None;
        for current in chosen {
            match current.lifecycle.apply(action, now) {
                Ok(next) => changed.push(self.store_lifecycle(current, next).await?),
                Err(error) => {
                    refused = Some(
                        Refusal::new(ErrorCode::E3408, format!("`{}` {}: {error}", tool.id, current.version))
                            .hint("a version goes active → deprecated → sunset → removed; only what is not removed can be restored"),
                    );
                }
            }
        }
        // With a whole tool, versions the action does not fit are passed over; that none fits is worth an error.
        match refused {
            Some(refusal) if changed.is_empty() => Err(refusal),
            _ => Ok(changed),
        }
    }

    /// Records of every version whose date of removal has passed that it is removed (REG-013). Answers those for which this
    /// instance did it; each is answered once, whatever others do meanwhile.
    pub(crate) async fn record_removals(&self) -> Vec<Arc<ToolVersion>> {
        let now = self.clock.now();
        let snapshot = self.snapshot().clone();
        let due = snapshot.tools().flat_map(|tool| tool.versions()).filter(|version| {
            version.lifecycle.recorded != LifecycleState::Removed
                && version.lifecycle.state(now) == LifecycleState::Removed
        });
        let mut removed = Vec::new();
        for version in due {
            let _turn = self.turns.of(&version.id).await;
            let Ok(next) = version.lifecycle.apply(&LifecycleAction::Remove, now) else { continue };
            // One that somebody else has just changed is looked at again next time.
            if let Ok(version) = self.store_lifecycle(version, next).await {
                removed.push(version);
            }
        }
        removed
    }

    async fn store_lifecycle(&self, current: &Arc<ToolVersion>, next: Lifecycle) -> Result<Arc<ToolVersion>, Refusal> {
        if next == current.lifecycle {
            return Ok(Arc::clone(current));
        }
        let change = self
            .store
            .change_lifecycle(&current.tenant, &current.id, &current.version, &current.lifecycle, &next)
            .await
            .map_err(|e| e.refusal())?;
        match change {
            LifecycleChange::Done => Ok(self.swap(current.with_lifecycle(next))),
            LifecycleChange::Stale(_) => Err(Refusal::new(
                ErrorCode::E3103,
                format!("`{}` {} was changed by somebody else meanwhile", current.id, current.version),
            )
            .hint("look at it again, then decide anew")),
            LifecycleChange::Unknown => {
                Err(Refusal::new(ErrorCode::E3102, format!("`{}` {} is not in the store", current.id, current.version)))
            }
        }
    }

    /// Puts a version into the snapshot. Writers of other tools may do the same at this moment.
    fn swap(&self, version: ToolVersion) -> Arc<ToolVersion> {
        let version = Arc::new(version);
        self.snapshot.rcu(|snapshot| snapshot.with(Arc::clone(&version)));
        let snapshot = self.snapshot();
        self.observer.registry_swapped(snapshot.tool_count(), snapshot.version_count());
        version
    }

    // ---------------------------------------------------------------------------------------------------- reading

    /// One page of what the tenant sees and `may_know` lets through, ordered by id.
    pub fn list(&self, tenant: &TenantId, filter: &ListFilter, may_know: impl Fn(&RegisteredTool) -> bool) -> ToolPage {
        let now = self.clock.now();
        let snapshot = self.snapshot();
        let page_size = filter.page_size.clamp(1, PAGE_SIZE_MAX);
        let skip = filter.page.saturating_sub(1).saturating_mul(page_size);
        let wanted = filter.prepared();
        let mut total_count = 0;
        let mut tools = Vec::new();
        for tool in snapshot.tools_of(tenant).filter(|tool| may_know(tool)) {
            let Some(current) = tool.current(now).filter(|current| wanted.matches(current, now)) else { continue };
            if total_count >= skip && tools.len() < page_size {
                tools.push(ListingEntry { tool: Arc::clone(tool), current: Arc::clone(current), score: None });
            }
            total_count += 1;
        }
        ToolPage { tools, total_count }
    }

    /// The best hits that the tenant sees and `may_know` lets through.
    pub async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        limit: usize,
        may_know: impl Fn(&RegisteredTool) -> bool,
    ) -> Result<Vec<ListingEntry>, Refusal> {
        let limit = limit.clamp(1, SEARCH_LIMIT_MAX);
        let asked = limit.saturating_mul(SEARCH_OVERFETCH);
        let hits = self.search.search(tenant, query, asked).await.map_err(|e| e.refusal())?;
        let now = self.clock.now();
        let snapshot = self.snapshot();
        let visible = hits.into_iter().filter_map(|hit| {
            let tool = snapshot.tool(tenant, &hit.tool).filter(|tool| may_know(tool))?;
            let current = tool.current(now)?;
            let searchable =
                matches!(current.lifecycle.state(now), LifecycleState::Active | LifecycleState::Deprecated);
            searchable.then(|| ListingEntry {
                tool: Arc::clone(tool),
                current: Arc::clone(current),
                score: Some(hit.score),
            })
        });
        Ok(visible.take(limit).collect())
    }
}

// ------------------------------------------------------------------------------------------------------- ListFilter

/// A filter whose texts have been folded once rather than once per tool.
struct PreparedFilter<'a> {
    category: Option<&'a str>,
    tags: BTreeSet<&'a str>,
    text: Option<String>,
    lifecycle: Option<LifecycleState>,
}

impl ListFilter {
    fn prepared(&self) -> PreparedFilter<'_> {
        PreparedFilter {
            category: self.category.as_deref(),
            tags: self.tags.iter().map(String::as_str).collect(),
            text: self.text.as_deref().map(str::to_lowercase),
            lifecycle: self.lifecycle,
        }
    }
}

impl PreparedFilter<'_> {
    fn matches(&self, version: &ToolVersion, now: UnixMillis) -> bool {
        let manifest = &version.manifest;
        let state = version.lifecycle.state(now);
        // Without a wish, what can no longer be found is not listed either.
        let state_fits = match self.lifecycle {
            Some(wanted) => state == wanted,
            None => matches!(state, LifecycleState::Active | LifecycleState::Deprecated),
        };
        state_fits
            && self.category.is_none_or(|wanted| manifest.categories.iter().any(|c| c == wanted))
            && self.tags.iter().all(|wanted| manifest.tags.iter().any(|tag| tag == wanted))
            && self.text.as_ref().is_none_or(|text| {
                [version.id.as_str(), &manifest.name, &manifest.description]
                    .into_iter()
                    .any(|field| field.to_lowercase().contains(text.as_str()))
            })
    }
}

// --------------------------------------------------------------------------------------------------------- refusals

/// E3105 with every reason (MAN-002).
pub fn not_admitted(error: &ManifestError) -> Refusal {
    Refusal::new(ErrorCode::E3105, error.to_string())
        .hint("mend every reason in `details.reasons`; the manifest's schema is at /schemas/tool-manifest.schema.json")
        .details(json!({ "reasons": error.findings() }))
}

fn conflict(id: &ToolId, version: &Version) -> Refusal {
    Refusal::new(ErrorCode::E3103, format!("`{id}` {version} is already published with other content"))
        .hint("published versions never change: raise the version number")
}

/// The manifest, and why it does not fit what is registered already. Comparing it with the version before takes up to two
/// seconds: not where everybody is answered.
async fn ruled(
    id: &ToolId,
    manifest: Manifest,
    snapshot: &Arc<RegistrySnapshot>,
    tenant: &TenantId,
    now: UnixMillis,
) -> Result<(Manifest, Vec<AdmissionFinding>), Refusal> {
    let (id, snapshot, tenant) = (id.clone(), Arc::clone(snapshot), tenant.clone());
    let asking = move || {
        let findings = rules::findings(&id, &manifest, Seen { snapshot: &snapshot, tenant: &tenant }, now);
        (manifest, findings)
    };
    let asked = tokio::task::spawn_blocking(asking).await;
    asked.map_err(|error| {
        Refusal::new(ErrorCode::E3000, "the manifest could not be compared with the version before it").caused_by(error)
    })
}

fn taken(id: &ToolId) -> Refusal {
    Refusal::new(ErrorCode::E3103, format!("the shared catalogue has a tool `{id}`"))
        .hint("choose another id: put the tool into a namespace of your own")
}

fn former_name(id: &ToolId, owner: &ToolId) -> Refusal {
    Refusal::new(ErrorCode::E3103, format!("`{id}` is an alias of `{owner}`"))
        .hint("choose another id: an alias leads to its tool for as long as that is there")
}

pub(super) fn shared(id: &ToolId) -> Refusal {
    Refusal::new(ErrorCode::E3206, format!("`{id}` belongs to the shared catalogue"))
        .hint("ask whoever keeps the shared catalogue; a tenant changes its own tools only")
}

fn gone(id: &ToolId, version: &Version) -> Refusal {
    Refusal::new(ErrorCode::E3103, format!("`{id}` {version} was published and has been removed"))
        .hint("a number is never used twice: raise the version number")
}

fn unknown_version(tool: &RegisteredTool, version: &Version) -> Refusal {
    let known: Vec<String> = tool.versions().iter().rev().take(20).map(|v| v.version.to_string()).collect();
    Refusal::new(ErrorCode::E3102, format!("tool `{}` has no version `{version}`", tool.id))
        .hint(format!("registered versions: {}", known.join(", ")))
}
