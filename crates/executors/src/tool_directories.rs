//! Where tools live on disk: the folder of each loaded version, shared by every executor that runs what is in a folder.
//!
//! Invariants
//! - HOMES-1: a folder belongs to the tenant for which it was loaded. Another tenant's tool of the same name never runs what is
//!   in it.
//! - HOMES-2: a call that has its folder keeps it, whatever is said about the folder later.
//! - HOMES-3: a folder is the home of the version with the manifest that is in it. A version that was published with another
//!   manifest has no folder: whoever may publish under a name decides nothing about what runs in an operator's folder.
//!
//! Not here: which folder wins when two claim a version (the loader in `cli`), and what is inside a folder.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};

use base::RwLockExt as _;
use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, ToolId};
use contract::manifest::{Execution, Manifest, ManifestError};
use contract::version::Version;
use ports::tool_version::ToolVersion;

/// By tenant, id and written version.
type Folders = HashMap<(TenantId, ToolId, String), ToolFolder>;

/// A folder and the digest of the manifest in it.
#[derive(Debug)]
struct ToolFolder {
    path: PathBuf,
    manifest: Digest,
}

/// The folders of all loaded versions. Clones share them.
#[derive(Debug, Clone)]
pub struct ToolDirectories {
    folders: Arc<RwLock<Folders>>,
    /// For whom folders are set and forgotten.
    tenant: TenantId,
}

impl Default for ToolDirectories {
    fn default() -> Self {
        Self { folders: Arc::default(), tenant: TenantId::home() }
    }
}

impl ToolDirectories {
    /// The same folders, to which those of this tenant are added.
    #[must_use]
    pub fn for_tenant(&self, tenant: TenantId) -> Self {
        Self { folders: Arc::clone(&self.folders), tenant }
    }

    /// Says where the folder of a version with this manifest is.
    pub fn set(&self, tool: &ToolId, version: &Version, manifest: Digest, path: PathBuf) {
        let mut folders = self.folders.write_unpoisoned();
        folders.insert((self.tenant.clone(), tool.clone(), version.to_string()), ToolFolder { path, manifest });
    }

    /// Forgets a version's folder; calls that are running keep it.
    pub fn forget(&self, tool: &ToolId, version: &Version) {
        let mut folders = self.folders.write_unpoisoned();
        folders.remove(&(self.tenant.clone(), tool.clone(), version.to_string()));
    }

    /// The digest of the manifest with which a version of this tenant is loaded, if it is.
    pub fn digest(&self, tool: &ToolId, version: &str) -> Option<Digest> {
        let folders = self.folders.read_unpoisoned();
        folders.get(&(self.tenant.clone(), tool.clone(), version.to_owned())).map(|folder| folder.manifest)
    }

    /// Has a version with this manifest, as a tool of this tenant, a folder (HOMES-3)?
    ///
    /// # Errors
    /// What to do, for whoever wants to publish it: without a folder every call of it would fail.
    pub fn admit(&self, tenant: &TenantId, manifest: &Manifest) -> Result<(), ManifestError> {
        let id = manifest.id().map_err(|error| ManifestError::one("/tool_id", error.to_string()))?;
        let folders = self.folders.read_unpoisoned();
        match folders.get(&(tenant.clone(), id.clone(), manifest.version.to_string())) {
            Some(folder) if folder.manifest == manifest.digest() => return Ok(()),
            Some(_) => {
                let said = format!(
                    "the folder of `{id}` {} has another manifest, and runs only what that one says: publish what is in the \
                     folder, or raise the version in both",
                    manifest.version
                );
                return Err(ManifestError::one("/execution", said));
            }
            None => {}
        }
        let kind = manifest.execution.as_ref().map_or("", Execution::kind);
        let place = if tenant.is_home() {
            "add the folder itself (`gantry tool add DIR`), or put it under a directory of `--tools`"
        } else {
            "the operator has to put the folder with this manifest under a directory that `[tools] tenants` names for the \
             tenant, from which it is published"
        };
        let said = format!(
            "a tool of type `{kind}` runs what is in its folder, and there is none for `{id}` {}: {place}",
            manifest.version
        );
        Err(ManifestError::one("/execution", said))
    }

    /// The folder of a version.
    ///
    /// # Errors
    /// E3108 if none is loaded for the tenant whose tool it is (HOMES-1), or one with another manifest (HOMES-3).
    pub fn of(&self, tool: &ToolVersion) -> Result<PathBuf, Refusal> {
        let folders = self.folders.read_unpoisoned();
        match folders.get(&(tool.tenant.clone(), tool.id.clone(), tool.version.to_string())) {
            Some(folder) if folder.manifest == tool.digest => Ok(folder.path.clone()),
            Some(_) => Err(not_loaded(tool, "is loaded with another manifest than the one that was published")
                .hint("raise the version in the manifest of the folder: a published version never changes")),
            None => Err(not_loaded(tool, "is not loaded").hint(if tool.tenant.is_home() {
                "add its folder: `gantry tool add DIR`, or start the server with `--tools DIR`, where DIR contains it"
            } else {
                "the operator has to allow it: `[tools] tenants` names the folders whose tools a tenant may run"
            })),
        }
    }
}

fn not_loaded(tool: &ToolVersion, what: &str) -> Refusal {
    Refusal::new(ErrorCode::E3108, format!("the folder of `{}` {} {what}", tool.id, tool.version)).retryable(false)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn manifest(command: &str) -> Manifest {
        let document: Value = json!({
            "tool_id": "greet", "namespace": "t", "version": "1.0.0", "name": "greet", "description": "Says hello.",
            "provider": "Test", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
            "parameters": { "type": "object" }, "result_schema": {},
            "execution": { "type": "process", "command": [command] },
        });
        Manifest::from_value(document).unwrap()
    }

    #[test]
    fn a_folder_admits_the_manifest_that_is_in_it_and_no_other_of_its_version() {
        let (homes, home) = (ToolDirectories::default(), TenantId::home());
        let (own, other) = (manifest("./own"), manifest("./other"));
        let refused = |manifest: &Manifest| homes.admit(&home, manifest).unwrap_err().to_string();
        assert!(refused(&own).contains("there is none"), "{}", refused(&own));
        homes.set(&own.id().unwrap(), &own.version, own.digest(), PathBuf::from("/tools/greet"));
        homes.admit(&home, &own).unwrap();
        assert!(refused(&other).contains("another manifest"), "{}", refused(&other));
    }
}
