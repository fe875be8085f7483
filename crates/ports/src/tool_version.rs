//! One published version, ready for calls: manifest plus schemas, input guards and permissions that are compiled once, on
//! first use.
//!
//! Compilation is lazy because a start with ten thousand tools must not wait for schemas nobody calls. Registration has
//! compiled them once already to check them, so a failure here means the store was changed behind our back.

use std::sync::{Arc, OnceLock};

use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::guard::InputGuards;
use contract::ids::{Subject, TenantId, ToolId};
use contract::manifest::Manifest;
use contract::schema::{CompiledSchema, PartMarks, SchemaMarks, UncheckedPart};
use contract::version::Version;

use crate::clock::UnixMillis;
use crate::lifecycle::Lifecycle;
use crate::permissions::DeclaredPermissions;
use crate::registry_store::StoredVersion;
use crate::resilience::guard::ResilienceGuard;

/// One version of a tool, by whose it is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionKey {
    pub tenant: TenantId,
    pub tool: ToolId,
    pub version: Version,
}

impl VersionKey {
    /// The key of a version.
    pub fn of(tool: &ToolVersion) -> Self {
        Self { tenant: tool.tenant.clone(), tool: tool.id.clone(), version: tool.version.clone() }
    }
}

/// A published version.
#[derive(Debug, Clone)]
pub struct ToolVersion {
    /// Whose tool it is.
    pub tenant: TenantId,
    pub id: ToolId,
    pub version: Version,
    pub manifest: Arc<Manifest>,
    /// The other names of its tool, whichever version brought them, read once: every call asks for what was said under them.
    pub aliases: Arc<[ToolId]>,
    pub digest: Digest,
    pub lifecycle: Lifecycle,
    pub published_at: UnixMillis,
    pub published_by: Subject,
    schemas: Arc<Schemas>,
}

#[derive(Debug, Default)]
struct Schemas {
    parameters: OnceLock<Option<CompiledSchema>>,
    result: OnceLock<Option<CompiledSchema>>,
    /// What the schemas mark as sensitive, or as not.
    parameter_marks: OnceLock<Option<SchemaMarks>>,
    result_marks: OnceLock<Option<SchemaMarks>>,
    guards: OnceLock<InputGuards>,
    permissions: OnceLock<Option<DeclaredPermissions>>,
    guard: OnceLock<Option<ResilienceGuard>>,
}

impl ToolVersion {
    /// From what the store has.
    pub fn new(stored: StoredVersion) -> Self {
        Self {
            tenant: stored.tenant,
            id: stored.tool,
            version: stored.version,
            aliases: stored.manifest.aliases.iter().filter_map(|alias| alias.parse().ok()).collect(),
            manifest: Arc::new(stored.manifest),
            digest: stored.digest,
            lifecycle: stored.lifecycle,
            published_at: stored.published_at,
            published_by: stored.published_by,
            schemas: Arc::default(),
        }
    }

    /// The same version in another state; compiled schemas are shared.
    #[must_use]
    pub fn with_lifecycle(&self, lifecycle: Lifecycle) -> Self {
        Self {
            tenant: self.tenant.clone(),
            id: self.id.clone(),
            version: self.version.clone(),
            manifest: Arc::clone(&self.manifest),
            aliases: Arc::clone(&self.aliases),
            digest: self.digest,
            lifecycle,
            published_at: self.published_at,
            published_by: self.published_by.clone(),
            schemas: Arc::clone(&self.schemas),
        }
    }

    /// The same version of a tool with these other names.
    #[must_use]
    pub fn with_aliases(&self, aliases: Arc<[ToolId]>) -> Self {
        Self { aliases, ..self.with_lifecycle(self.lifecycle.clone()) }
    }

    /// Its id, and then its other names. What is said against any of them is said against the tool.
    pub fn names(&self) -> impl Iterator<Item = &ToolId> {
        std::iter::once(&self.id).chain(self.aliases.iter())
    }

    /// The compiled parameter schema.
    pub fn parameters_schema(&self) -> Result<&CompiledSchema, Refusal> {
        let compiled = self.schemas.parameters.get_or_init(|| self.manifest.compile_parameters().ok());
        compiled.as_ref().ok_or_else(|| self.broken("parameter"))
    }

    /// What the parameter schema says to be sensitive; `None` if it says nothing, as most do, so that nobody looks for it in every
    /// call.
    pub fn parameter_marks(&self) -> Option<PartMarks<'_>> {
        let marks = self.schemas.parameter_marks.get_or_init(|| SchemaMarks::of(&self.manifest.parameters));
        marks.as_ref().map(SchemaMarks::whole)
    }

    /// The same for the result.
    pub fn result_marks(&self) -> Option<PartMarks<'_>> {
        let marks = self.schemas.result_marks.get_or_init(|| SchemaMarks::of(&self.manifest.result_schema));
        marks.as_ref().map(SchemaMarks::whole)
    }

    /// The compiled result schema.
    pub fn result_schema(&self) -> Result<&CompiledSchema, Refusal> {
        let compiled = self.schemas.result.get_or_init(|| self.manifest.compile_result().ok());
        compiled.as_ref().ok_or_else(|| self.broken("result"))
    }

    /// What of the two schemas is kept and not checked, with JSON pointers into the manifest; empty for most tools.
    pub fn unchecked(&self) -> Vec<UncheckedPart> {
        let sides = [("/parameters", self.parameters_schema()), ("/result_schema", self.result_schema())];
        let named = |(member, schema): (&str, Result<&CompiledSchema, Refusal>)| {
            let parts = schema.map(CompiledSchema::unchecked).unwrap_or_default();
            let within =
                |part: &UncheckedPart| UncheckedPart { path: format!("{member}{}", part.path), ..part.clone() };
            parts.iter().map(within).collect::<Vec<_>>()
        };
        sides.into_iter().flat_map(named).collect()
    }

    /// The annotated places of the parameters; empty for most tools.
    pub fn guards(&self) -> &InputGuards {
        self.schemas.guards.get_or_init(|| InputGuards::compile(&self.manifest.parameters))
    }

    /// What the tool may touch.
    pub fn permissions(&self) -> Result<&DeclaredPermissions, Refusal> {
        let compiled = self.schemas.permissions.get_or_init(|| DeclaredPermissions::of(&self.manifest).ok());
        // Met by versions that were published before every word was checked.
        compiled.as_ref().ok_or_else(|| {
            Refusal::new(
                ErrorCode::E3108,
                format!("`{}` {} declares permissions that cannot be granted", self.id, self.version),
            )
            .hint("publish a new version with permissions that pass `gantry tool add`")
            .retryable(false)
        })
    }

    /// What stands between the tool and the service behind it; `None`: nothing. Worked out by `make` when somebody asks first; the
    /// operator's settings are the same as long as the process lives.
    pub fn guard(&self, make: impl FnOnce() -> Option<ResilienceGuard>) -> Option<&ResilienceGuard> {
        self.schemas.guard.get_or_init(make).as_ref()
    }

    fn broken(&self, which: &str) -> Refusal {
        Refusal::new(ErrorCode::E3000, format!("the {which} schema of `{}` {} cannot be used", self.id, self.version))
            .hint("publish a new version with a schema that passes `gantry tool add`")
            .retryable(false)
    }
}
