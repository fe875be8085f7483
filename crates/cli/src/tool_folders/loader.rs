//! From tool folders to published tools.
//!
//! Published versions never change, so an edited manifest needs a new version number; until it has one, the version does not
//! run and a warning says so. A broken manifest never stops the others.
//!
//! Invariants
//! - LOAD-1: a version has one folder. Where two claim it neither is taken, because nothing says which is meant: the order of
//!   their names does not, nor which was seen first, which the next start would not know.
//! - LOAD-2: what was said about a folder is said once, until the folder changes.
//! - LOAD-3: a process that was started from a folder before it changed serves no call after that was noticed.
//! - LOAD-4: a folder runs only what its own manifest says. Where its version was published with another one, by whoever may
//!   publish for the tenant, the folder is not taken.
//! - LOAD-6: of the folders that the server keeps itself none runs that holds something else than was put there (`kept_copy`): that is
//!   looked at when it is first seen, and whenever it looks different.
//! - LOAD-5: what is published stays so: a manifest that the rules of a later release would refuse is taken if just that content
//!   was published before.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::ids::{TenantId, ToolId};
use contract::manifest::Manifest;
use contract::version::Version;
use executors::{ProcessExecutor, ToolDirectories, WasmExecutor};
use kernel::Kernel;
use policy::BearerSecret;
use ports::actor::Actor;
use ports::entropy::new_trace_id;
use ports::tool_folders::{FolderProblem, FolderReport, LoadedFolder};

use super::kept_copy::{self, CopyState};
use super::{FoundFolders, ToolFolder, find};
use crate::failure::CommandFailure;
use crate::manifest_file::ManifestFileError;
use crate::package_cache::tool_packages;

/// Publishes what is found in some directories.
pub(crate) struct FolderLoader {
    pub(crate) kernel: Arc<Kernel>,
    /// Where the executors look for a version's folder.
    pub(crate) tool_homes: ToolDirectories,
    /// Compiles components before they are called; not there on a machine that has no room for it.
    pub(crate) wasm: Option<Arc<WasmExecutor>>,
    /// Keeps processes of versions that may change under it.
    pub(crate) processes: Option<Arc<ProcessExecutor>>,
    /// Publishing is an administrative act like any other, and recorded like any other.
    pub(crate) admin_token: String,
    pub(crate) dirs: Vec<PathBuf>,
    /// Whose tools they are.
    pub(crate) tenant: TenantId,
    /// Which folder each version lives in.
    pub(crate) homes: HashMap<(ToolId, String), PathBuf>,
    /// How each folder looked when its version was settled in it last.
    pub(crate) stamps: HashMap<PathBuf, FolderStamp>,
    /// Where the server keeps folders itself, if this looks there.
    pub(crate) kept: Option<PathBuf>,
    /// How each of them looked when it was found to hold what was put there.
    pub(crate) intact: HashMap<PathBuf, FolderStamp>,
    /// What was said about each folder last.
    pub(crate) said: HashMap<PathBuf, String>,
}

/// How a folder looks from outside: how many entries, and a number over the name, size and times of each.
pub(crate) type FolderStamp = (usize, u64);

/// Entries that are looked at for a [`FolderStamp`]. A change beyond them is noticed with the next version.
const STAMPED_ENTRIES_MAX: usize = 1_000;

/// What came of one round.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct LoadReport {
    /// Versions that are new.
    pub(crate) published: Vec<String>,
    /// What somebody should look at, each said for the first time.
    pub(crate) warnings: Vec<String>,
}

impl FolderLoader {
    /// Looks at all directories and publishes what is new. Answers also which directories to watch.
    pub(crate) async fn load(&mut self) -> (LoadReport, Vec<PathBuf>) {
        let dirs = self.dirs.clone();
        // Reading files may take a while on a slow disk; calls must not wait for it.
        let found = tokio::task::spawn_blocking(move || find(&dirs)).await.unwrap_or_default();
        let mut round = LoadReport::default();
        let FoundFolders { tools, watched, troubles } = found;
        self.forget_missing(&tools);
        for trouble in troubles {
            self.say(PathBuf::from(&trouble), trouble, &mut round);
        }
        let mut waiting = Vec::new();
        for ToolFolder { folder, manifest } in self.without_altered(tools, &mut round).await {
            match manifest {
                Ok(manifest) => waiting.push((folder, manifest)),
                // LOAD-4.
                Err(ManifestFileError::Refused { written: Some(written), .. }) if self.is_published(&written) => {
                    waiting.push((folder, *written));
                }
                Err(error) => {
                    let reasons = error.reasons();
                    let text = if reasons.is_empty() {
                        error.to_string()
                    } else {
                        format!("`{}` is not admitted: {}", folder.display(), reasons.join("; "))
                    };
                    self.say(folder, text, &mut round);
                }
            }
        }
        let waiting = self.without_duplicates(waiting, &mut round);
        self.publish_all(waiting, &mut round).await;
        (round, watched)
    }

    /// Leaves out every folder that the server keeps and that is not as it was put there (LOAD-6), and says so.
    async fn without_altered(&mut self, tools: Vec<ToolFolder>, round: &mut LoadReport) -> Vec<ToolFolder> {
        let mut intact = Vec::with_capacity(tools.len());
        for tool in tools {
            if !self.is_kept(&tool.folder) || self.is_intact(&tool.folder).await {
                intact.push(tool);
                continue;
            }
            let ran: Vec<_> = self
                .homes
                .iter()
                .filter(|(_, home)| **home == tool.folder)
                .map(|(version, _)| version.clone())
                .collect();
            for version in ran {
                self.homes.remove(&version);
                self.no_longer_runs(&version);
            }
            let text = format!(
                "`{}` is not taken: its files are not those that were added; `gantry tool add DIR` with the folder it came from \
                 puts them back, and other files need another `version`",
                tool.folder.display(),
            );
            self.say(tool.folder, text, round);
        }
        intact
    }

    fn is_kept(&self, folder: &Path) -> bool {
        let kept = self.kept.as_ref().and_then(|kept| kept.canonicalize().ok());
        kept.is_some_and(|kept| folder.parent() == Some(&*kept))
    }

    async fn is_intact(&mut self, folder: &Path) -> bool {
        let now = stamp(folder);
        if self.intact.get(folder) == Some(&now) {
            return true;
        }
        let place = folder.to_owned();
        let looked = tokio::task::spawn_blocking(move || match kept_copy::content(&place) {
            CopyState::Unrecorded => kept_copy::record(&place).map(|()| CopyState::AsAdded),
            content => Ok(content),
        });
        let is_intact = match looked.await {
            Ok(Ok(content)) => content == CopyState::AsAdded,
            Ok(Err(failure)) => {
                tracing::warn!(message = failure.message, "what a kept folder holds cannot be recorded");
                true
            }
            // Nobody has looked.
            Err(_) => false,
        };
        if is_intact {
            self.intact.insert(folder.to_owned(), now);
        } else {
            self.intact.remove(folder);
        }
        is_intact
    }

    /// Leaves out every folder whose version another folder claims too (LOAD-1), and says so about each. A version that ran from
    /// one of them runs no more.
    fn without_duplicates(
        &mut self,
        mut waiting: Vec<(PathBuf, Manifest)>,
        round: &mut LoadReport,
    ) -> Vec<(PathBuf, Manifest)> {
        // The same folder, found by way of two directories, is one folder.
        let mut seen = HashSet::new();
        waiting.retain(|(folder, _)| seen.insert(folder.canonicalize().unwrap_or_else(|_| folder.clone())));
        let mut claims: HashMap<(ToolId, String), Vec<PathBuf>> = HashMap::new();
        for (folder, manifest) in &waiting {
            if let Some(version) = version_of(manifest) {
                claims.entry(version).or_default().push(folder.clone());
            }
        }
        claims.retain(|_, folders| folders.len() > 1);
        for (version, folders) in &claims {
            if self.homes.remove(version).is_some() {
                self.no_longer_runs(version);
            }
            for folder in folders {
                let others: Vec<String> = folders
                    .iter()
                    .filter(|other| *other != folder)
                    .map(|other| format!("`{}`", other.display()))
                    .collect();
                let text = format!(
                    "`{}` is left out: `{}` {} is also in {}; neither is taken until one has another version or is gone",
                    folder.display(),
                    version.0,
                    version.1,
                    others.join(", "),
                );
                self.say(folder.clone(), text, round);
            }
        }
        waiting.retain(|(_, manifest)| version_of(manifest).is_none_or(|version| !claims.contains_key(&version)));
        waiting
    }

    /// Is just this published already?
    fn is_published(&self, manifest: &Manifest) -> bool {
        self.kernel.registry().known(&self.tenant, manifest).is_some()
    }

    fn no_longer_runs(&self, (id, version): &(ToolId, String)) {
        let Ok(version) = Version::parse(version) else { return };
        self.tool_homes.forget(id, &version);
        if let Some(processes) = &self.processes {
            processes.warm().forget(id, &version);
        }
    }

    /// A tool may need another one of the same directories to be there first (its compensation), so those that were not
    /// admitted are tried again for as long as others were.
    async fn publish_all(&mut self, mut waiting: Vec<(PathBuf, Manifest)>, round: &mut LoadReport) {
        waiting.sort_by(|(_, a), (_, b)| {
            (&a.namespace, &a.tool_id, &a.version).cmp(&(&b.namespace, &b.tool_id, &b.version))
        });
        loop {
            let before = waiting.len();
            let mut refused = Vec::new();
            for (folder, manifest) in waiting {
                if let Err(refusal) = self.publish(&folder, &manifest, round).await {
                    refused.push((folder, manifest, refusal));
                }
            }
            if refused.len() == before {
                for (folder, _, refusal) in refused {
                    let text = format!("`{}` is not registered: {}", folder.display(), in_full(refusal));
                    self.say(folder, text, round);
                }
                return;
            }
            waiting = refused.into_iter().map(|(folder, manifest, _)| (folder, manifest)).collect();
        }
    }

    async fn publish(&mut self, folder: &PathBuf, manifest: &Manifest, round: &mut LoadReport) -> Result<(), Refusal> {
        let id = manifest.id().map_err(|error| Refusal::new(ErrorCode::E3105, error.to_string()))?;
        // Before it is published: whoever sees the version can call it at once.
        let claimed = self.claim(folder, &id, manifest);
        let actor = Actor {
            credential: Some(BearerSecret(&self.admin_token)),
            source: None,
            trace_id: new_trace_id(self.kernel.entropy()),
        };
        let document = serde_json::to_value(manifest).unwrap_or_default();
        match self.kernel.publish_for(actor, Some(&self.tenant), document).await {
            Ok(registration) => {
                self.said.remove(folder);
                if registration.created {
                    round.published.push(format!("{id} {}", manifest.version));
                }
                self.settle(folder, &id, manifest, claimed);
                // What the server keeps is not built where it is: it was said when it was added.
                if claimed && !self.is_kept(folder) {
                    round.warnings.extend(tool_packages::unbuilt_warning(folder));
                }
                Ok(())
            }
            // LOAD-4.
            Err(refusal) if refusal.code == ErrorCode::E3103 => {
                let version = (id, manifest.version.to_string());
                if self.homes.remove(&version).is_some() {
                    self.no_longer_runs(&version);
                }
                let text = format!(
                    "`{}` is not taken: {}; nothing of it runs until the version in its manifest is raised, or the manifest is \
                     what was published",
                    folder.display(),
                    refusal.message,
                );
                self.say(folder.clone(), text, round);
                Ok(())
            }
            Err(refusal) => {
                if claimed {
                    self.homes.remove(&(id.clone(), manifest.version.to_string()));
                    self.tool_homes.forget(&id, &manifest.version);
                }
                Err(refusal)
            }
        }
    }

    /// Says where the version lives, unless that is known already. Answers whether it was new.
    fn claim(&mut self, folder: &Path, id: &ToolId, manifest: &Manifest) -> bool {
        let version = &manifest.version;
        let Entry::Vacant(home) = self.homes.entry((id.clone(), version.to_string())) else { return false };
        home.insert(folder.to_owned());
        self.tool_homes.set(id, version, manifest.digest(), folder.to_owned());
        true
    }

    /// Looks after a published version in its folder.
    fn settle(&mut self, folder: &Path, id: &ToolId, manifest: &Manifest, is_new: bool) {
        let version = &manifest.version;
        // Where versions are drafts, another manifest may have taken the place of the former (HOMES-3).
        if self.tool_homes.digest(id, &version.to_string()) != Some(manifest.digest()) {
            self.tool_homes.set(id, version, manifest.digest(), folder.to_owned());
        }
        let now = stamp(folder);
        if self.stamps.insert(folder.to_owned(), now).is_some_and(|before| before != now)
            && let Some(processes) = &self.processes
        {
            processes.warm().forget(id, version);
        }
        // Once: a component that changes later is compiled when it is called.
        if let (true, Some(wasm), Some(binding)) = (is_new, &self.wasm, &manifest.execution) {
            wasm.prepare(folder, binding);
        }
    }

    /// A folder that has gone, or now holds another version, no longer runs its old one.
    fn forget_missing(&mut self, tools: &[ToolFolder]) {
        let (tool_homes, processes) = (&self.tool_homes, self.processes.as_ref());
        self.homes.retain(|(id, version), folder| {
            let here = tools.iter().find(|tool| tool.folder == *folder);
            // A manifest that is broken at the moment may be in the middle of being saved: keep what runs.
            let stays = here.is_some_and(|tool| {
                tool.manifest.as_ref().map_or(true, |m| m.id().is_ok_and(|now| now == *id) && m.version.to_string() == *version)
            });
            if !stays && let Ok(version) = Version::parse(version) {
                tool_homes.forget(id, &version);
                if let Some(processes) = processes {
                    processes.warm().forget(id, &version);
                }
                tracing::info!(tool = %id, %version, "this version is no longer in its folder: it can be found but not run");
            }
            stays
        });
        self.said.retain(|folder, _| tools.iter().any(|tool| tool.folder == *folder));
        self.stamps.retain(|folder, _| tools.iter().any(|tool| tool.folder == *folder));
    }

    /// What runs from which folder, and what stands in the way of others, each by its own name: the way to it is nobody's
    /// business at a door.
    pub(crate) fn report(&self) -> FolderReport {
        let name_of = |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut loaded: Vec<LoadedFolder> = self
            .homes
            .iter()
            .filter_map(|((tool, version), folder)| {
                let digest = self.tool_homes.digest(tool, version)?;
                Some(LoadedFolder { tool: tool.clone(), version: version.clone(), digest, folder: name_of(folder) })
            })
            .collect();
        loaded.sort_by(|a, b| (&a.tool, &a.version).cmp(&(&b.tool, &b.version)));
        let ways: Vec<String> =
            self.dirs.iter().filter_map(|dir| Some(dir.canonicalize().ok()?.display().to_string())).collect();
        let without_ways =
            |text: &str| ways.iter().fold(text.to_owned(), |text, way| text.replace(&format!("{way}/"), ""));
        let mut problems: Vec<FolderProblem> = self
            .said
            .iter()
            .map(|(folder, text)| FolderProblem { folder: name_of(folder), message: without_ways(text) })
            .collect();
        problems.sort_by(|a, b| a.folder.cmp(&b.folder));
        FolderReport { published: Vec::new(), loaded, problems }
    }

    fn say(&mut self, folder: PathBuf, text: String, round: &mut LoadReport) {
        if self.said.get(&folder) != Some(&text) {
            round.warnings.push(text.clone());
            self.said.insert(folder, text);
        }
    }
}

/// The version that a manifest claims.
fn version_of(manifest: &Manifest) -> Option<(ToolId, String)> {
    Some((manifest.id().ok()?, manifest.version.to_string()))
}

/// Only what stands directly in the folder: a watcher sees no further either.
fn stamp(folder: &Path) -> FolderStamp {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(STAMPED_ENTRIES_MAX);
    entries.fold((0, 0), |(count, all), entry| {
        let mut one = DefaultHasher::new();
        entry.file_name().hash(&mut one);
        if let Ok(found) = entry.metadata() {
            // The time of the last change of any kind cannot be set, so a file that was put back in time is seen too.
            (found.ino(), found.len(), found.mtime(), found.mtime_nsec(), found.ctime(), found.ctime_nsec())
                .hash(&mut one);
        }
        // Folders are read in any order.
        (count + 1, all ^ one.finish())
    })
}

fn in_full(refusal: Refusal) -> String {
    let failure = CommandFailure::from(refusal);
    if failure.reasons.is_empty() { failure.message } else { failure.reasons.join("; ") }
}

#[cfg(test)]
mod tests;
