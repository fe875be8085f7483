//! How tools look on the wire: one line of a listing, one hit of a search, one tool with all its versions.
//!
//! The kernel's own types are not promises to the outside; these are. Who published a version is not shown: it is in the
//! audit log, for those who may read that.

use std::sync::Arc;

use contract::canonical::Digest;
use contract::envelope::DeprecationNotice;
use contract::ids::ToolId;
use contract::manifest::{LifecycleState, Manifest, Protocol, SideEffectPolicy, TimeoutClass};
use contract::schema::UncheckedPart;
use contract::version::Version;
use kernel::WhyUnavailable;
use kernel::registry::{ListingEntry, RegisteredTool};
use ports::clock::UnixMillis;
use ports::lifecycle::LifecycleNotice;
use ports::tool_version::ToolVersion;
use schemars::JsonSchema;
use serde::Serialize;

/// `GET /v1/tools`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToolList {
    pub tools: Vec<ToolLine>,
    pub pagination: Pagination,
}

/// Where in the listing this page is.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Pagination {
    /// All tools that match, on all pages.
    pub total_count: usize,
    /// From 1.
    pub page: usize,
    pub page_size: usize,
}

/// One tool of a listing (API-006). What is said about it is said by its newest version in use.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToolLine {
    pub tool_id: ToolId,
    /// The same as `name`.
    pub tool_name: String,
    pub name: String,
    pub description: String,
    /// The first of `categories`.
    pub category: Option<String>,
    pub categories: Vec<String>,
    /// Ascending, without removed ones.
    pub versions: Vec<Version>,
    pub latest_version: Version,
    pub tags: Vec<String>,
    pub requires_approval: bool,
    pub side_effect_policy: SideEffectPolicy,
    pub timeout_class: TimeoutClass,
    pub lifecycle_state: LifecycleState,
    pub provider: String,
    pub protocol: Protocol,
}

/// `GET /v1/tools/search`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchAnswer {
    pub query: String,
    /// Best first.
    pub results: Vec<SearchResult>,
    /// How was searched: `lexical` is by words alone.
    pub mode: &'static str,
}

/// One hit of a search (REG-014).
#[derive(Debug, Serialize, JsonSchema)]
pub struct SearchResult {
    pub tool_id: ToolId,
    pub name: String,
    pub description: String,
    pub current_version: Version,
    pub provider: String,
    pub protocol: Protocol,
    pub lifecycle_state: LifecycleState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub migration_guide_url: Option<String>,
    /// Greater is better; comparable only within one answer.
    pub score: f64,
    /// Cosine similarity of meanings; null in mode `lexical`, which knows words only.
    pub similarity: Option<f64>,
}

/// `GET /v1/tools/{id}`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ToolDetail<'a> {
    pub tool_id: ToolId,
    pub current_version: Version,
    pub lifecycle_state: LifecycleState,
    /// Why nobody can call it at the moment, whatever its versions say; left out if it can be called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why_unavailable: Option<WhyUnavailable>,
    /// The manifest of the current version.
    pub manifest: &'a Manifest,
    /// Parts of its schemas that are kept and not checked, and why; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<UncheckedPart>,
    /// Ascending, removed ones included.
    pub versions: Vec<VersionLine>,
}

/// One version in the history of a tool.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VersionLine {
    pub version: Version,
    pub digest: Digest,
    pub lifecycle_state: LifecycleState,
    /// RFC 3339, UTC.
    pub published_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<DeprecationNotice>,
}

/// `GET /v1/tools/{id}/versions/{v}`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct VersionDetail<'a> {
    pub tool_id: ToolId,
    #[serde(flatten)]
    pub line: VersionLine,
    pub manifest: &'a Manifest,
    /// Parts of its schemas that are kept and not checked, and why; left out if there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unchecked: Vec<UncheckedPart>,
}

impl ToolLine {
    /// One line of a listing.
    pub fn of(listed: &ListingEntry, now: UnixMillis) -> Self {
        let (current, manifest) = (&listed.current, &listed.current.manifest);
        let in_use = |v: &&Arc<ToolVersion>| v.lifecycle.state(now) != LifecycleState::Removed;
        Self {
            tool_id: current.id.clone(),
            tool_name: manifest.name.clone(),
            name: manifest.name.clone(),
            description: manifest.description.clone(),
            category: manifest.categories.first().cloned(),
            categories: manifest.categories.clone(),
            versions: listed.tool.versions().iter().filter(in_use).map(|v| v.version.clone()).collect(),
            latest_version: current.version.clone(),
            tags: manifest.tags.clone(),
            requires_approval: manifest.needs_approval(),
            side_effect_policy: manifest.side_effect_policy,
            timeout_class: manifest.timeout_class,
            lifecycle_state: current.lifecycle.state(now),
            provider: manifest.provider.clone(),
            protocol: manifest.protocol,
        }
    }
}

impl SearchResult {
    /// One hit.
    pub fn of(listed: &ListingEntry, now: UnixMillis) -> Self {
        let (current, manifest) = (&listed.current, &listed.current.manifest);
        Self {
            tool_id: current.id.clone(),
            name: manifest.name.clone(),
            description: manifest.description.clone(),
            current_version: current.version.clone(),
            provider: manifest.provider.clone(),
            protocol: manifest.protocol,
            lifecycle_state: current.lifecycle.state(now),
            migration_guide_url: current.lifecycle.notice.as_ref().and_then(|notice| notice.migration_guide.clone()),
            score: listed.score.unwrap_or_default(),
            similarity: None,
        }
    }
}

impl<'a> ToolDetail<'a> {
    /// A tool by the version that stands for it.
    pub fn of(
        tool: &RegisteredTool,
        current: &'a ToolVersion,
        why_unavailable: Option<WhyUnavailable>,
        now: UnixMillis,
    ) -> Self {
        Self {
            tool_id: tool.id.clone(),
            current_version: current.version.clone(),
            lifecycle_state: current.lifecycle.state(now),
            why_unavailable,
            manifest: &current.manifest,
            unchecked: current.unchecked(),
            versions: tool.versions().iter().map(|version| VersionLine::of(version, now)).collect(),
        }
    }
}

impl VersionLine {
    /// One version.
    pub fn of(version: &ToolVersion, now: UnixMillis) -> Self {
        Self {
            version: version.version.clone(),
            digest: version.digest,
            lifecycle_state: version.lifecycle.state(now),
            published_at: version.published_at.to_string(),
            deprecation: version.lifecycle.notice.as_ref().map(LifecycleNotice::on_the_wire),
        }
    }
}

impl<'a> VersionDetail<'a> {
    /// One version with its manifest.
    pub fn of(version: &'a ToolVersion, now: UnixMillis) -> Self {
        Self {
            tool_id: version.id.clone(),
            line: VersionLine::of(version, now),
            manifest: &version.manifest,
            unchecked: version.unchecked(),
        }
    }
}
