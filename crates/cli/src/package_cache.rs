//! The package cache: packages of npm and PyPI that servers are started from, each installed once, by the machine's own `npm` and
//! `uv`, in the hands of whoever adds the server. (decision 0090)
//!
//! ```text
//! packages/                                 0755, as everything below: a server may run as nobody
//!   npm/@scope/name/1.2.3-0123456789abcdef/ package-lock.json, node_modules, gantry-package.json
//!   pypi/name/1.2.3-0123456789abcdef/       requirements.lock, pyvenv.cfg, bin, lib, gantry-package.json
//!   .filling-PID-N, .filling-PID-N.lock     being installed, as long as the lock is held
//!   .adding.lock                            held by whoever has installed something that no server names yet
//! ```
//!
//! Invariants
//! - INSTALLED-1: a folder that has the name of a version is whole. It is made under another name and moved there in one step, and
//!   nothing in it is changed afterwards.
//! - INSTALLED-2: install scripts, and the building of packages, are programs of strangers outside of every sandbox. They run only if
//!   the operator has said so.
//! - INSTALLED-3: an installation is bounded in time, bytes and files; what is broken off leaves nothing.
//!
//! Not here: which package a command line names (`upstreams::import::package_request`), mounting it (`upstreams`).

use contract::hex::lower_hex;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use upstreams::import::{InstalledPackage, PackageRequest};
use upstreams::package::{PACKAGE_ROOT, PackagePin, PackageRegistry};

use crate::failure::CommandFailure;

mod installer;
mod npm;
mod pypi;
pub(crate) mod tool_packages;
mod tree;

pub(crate) use installer::InstallProgress;

/// What is said of a package beside it.
const RECORD_FILE: &str = "gantry-package.json";
/// How folders and locks of installations begin that are under way.
const FILLING: &str = ".filling-";
/// Held while installations are begun, and while those that nobody finishes are taken away.
const BEGIN_LOCK: &str = ".begin.lock";
/// Held by whoever has installed something that no server names yet.
const ADDING_LOCK: &str = ".adding.lock";
/// Installations of one process that are under way at once.
const FILLING_MAX: u32 = 64;

/// The folder of packages.
#[derive(Debug)]
pub(crate) struct PackageCache {
    root: PathBuf,
}

/// What is said of a package beside it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct CachedPackage {
    pub(crate) registry: PackageRegistry,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) digest: String,
    pub(crate) bytes: u64,
    /// Install scripts were run.
    #[serde(default)]
    pub(crate) scripts: bool,
    /// Where it is below the folder of packages.
    #[serde(skip)]
    pub(crate) folder: PathBuf,
}

/// What an installer has made.
#[derive(Debug)]
struct Unpacked {
    name: String,
    version: String,
    /// What the digest is taken of: the lock file, and what has no digest in it.
    lock: Vec<u8>,
    /// The program, from the folder of the package on.
    command: PathBuf,
    leading: Vec<PathBuf>,
    /// Packages whose install scripts were not run.
    skipped_scripts: Vec<String>,
}

/// What an installer has made of the files of a tool's folder.
#[derive(Debug)]
struct Installed {
    /// As of [`Unpacked`].
    lock: Vec<u8>,
    skipped_scripts: Vec<String>,
}

/// A package that was installed, or was there.
#[derive(Debug)]
pub(crate) struct FilledPackage {
    pub(crate) installed: InstalledPackage,
    /// What somebody should know.
    pub(crate) warnings: Vec<String>,
}

/// Nobody takes packages away while this is there.
#[derive(Debug)]
pub(crate) struct AddingGuard(#[expect(dead_code, reason = "a lock is held, not read")] File);

impl PackageCache {
    /// In this folder, which is made when something is put there.
    pub(crate) fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Installs a package, if exactly that is not there yet. Whoever drops the future breaks it off.
    pub(crate) async fn fill(
        &self,
        request: &PackageRequest,
        scripts: bool,
        progress: &dyn InstallProgress,
    ) -> Result<FilledPackage, CommandFailure> {
        self.create()?;
        let place = self.begin()?;
        let unpacked = match request.registry {
            PackageRegistry::Npm => npm::install(&place.folder, request, scripts, progress).await?,
            PackageRegistry::Pypi => pypi::install(&place.folder, request, scripts, progress).await?,
        };
        let digest = digest_of(&unpacked.lock, scripts);
        let Unpacked { name, version, .. } = unpacked;
        let pin = PackagePin { registry: request.registry, name, version, digest, written: request.written.clone() };
        let below =
            pin.folder().ok_or_else(|| CommandFailure::new("the package has a name or version that is none"))?;
        let folder = self.keep(&place, &pin, &below, scripts)?;
        let skipped = &unpacked.skipped_scripts;
        let warnings = if skipped.is_empty() { Vec::new() } else { vec![scripts_warning(skipped)] };
        let inside = |path: &Path| Path::new(PACKAGE_ROOT).join(path).display().to_string();
        let command = inside(&unpacked.command);
        let leading = unpacked.leading.iter().map(|path| inside(path)).collect();
        Ok(FilledPackage { installed: InstalledPackage { pin, folder, command, leading }, warnings })
    }

    /// Moves what was installed to where it is found (INSTALLED-1). Answers where that is.
    fn keep(&self, place: &Filling, pin: &PackagePin, below: &Path, scripts: bool) -> Result<PathBuf, CommandFailure> {
        let folder = self.root.join(below);
        let record = CachedPackage {
            registry: pin.registry,
            name: pin.name.clone(),
            version: pin.version.clone(),
            digest: pin.digest.clone(),
            bytes: tree::size(&place.folder).map_err(|error| self.unusable(&error))?.bytes,
            scripts,
            folder: PathBuf::new(),
        };
        let text = serde_json::to_string_pretty(&record).unwrap_or_default();
        let moved = || {
            fs::write(place.folder.join(RECORD_FILE), text)?;
            tree::open_for_reading(&place.folder, self.owner())?;
            let above = folder.parent().unwrap_or(&self.root);
            self.create_folder(above)?;
            match fs::rename(&place.folder, &folder) {
                // Somebody else was faster, with the same.
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty) => {}
                moved => moved?,
            }
            folder.canonicalize()
        };
        moved().map_err(|error| self.unusable(&error))
    }

    /// Everything that is there.
    pub(crate) fn list(&self) -> Result<Vec<CachedPackage>, CommandFailure> {
        let mut found = Vec::new();
        for registry in [PackageRegistry::Npm, PackageRegistry::Pypi] {
            let top = Path::new(registry.as_str());
            for name in self.entries(top)? {
                let is_scope = name.file_name().is_some_and(|name| name.to_string_lossy().starts_with('@'));
                let names = if is_scope { self.entries(&name)? } else { vec![name] };
                for name in names {
                    for folder in self.entries(&name)? {
                        let text = fs::read(self.root.join(&folder).join(RECORD_FILE)).ok();
                        let record = text.and_then(|text| serde_json::from_slice::<CachedPackage>(&text).ok());
                        found.extend(record.map(|record| CachedPackage { folder, ..record }));
                    }
                }
            }
        }
        Ok(found)
    }

    /// Takes a package away: under another name first, so that nobody finds a part of it.
    pub(crate) fn remove(&self, package: &CachedPackage) -> Result<(), CommandFailure> {
        let place = self.begin()?;
        let removed = fs::rename(self.root.join(&package.folder), &place.folder).and_then(|()| {
            // Folders of names that have no version any more; those that have one are not empty.
            for above in package.folder.ancestors().skip(1).take_while(|above| above.components().count() > 1) {
                if fs::remove_dir(self.root.join(above)).is_err() {
                    break;
                }
            }
            fs::remove_dir_all(&place.folder)
        });
        removed.map_err(|error| self.unusable(&error))
    }

    /// From now on nothing is taken away that no server names.
    pub(crate) fn adding(&self) -> Result<AddingGuard, CommandFailure> {
        self.create()?;
        let file = self.lock_file(ADDING_LOCK)?;
        file.lock_shared().map_err(|error| self.unusable(&error))?;
        Ok(AddingGuard(file))
    }

    /// From now on nobody adds anything. `None`: somebody does.
    pub(crate) fn alone(&self) -> Result<Option<AddingGuard>, CommandFailure> {
        self.create()?;
        let file = self.lock_file(ADDING_LOCK)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(AddingGuard(file))),
            Err(fs::TryLockError::WouldBlock) => Ok(None),
            Err(fs::TryLockError::Error(error)) => Err(self.unusable(&error)),
        }
    }

    /// A place to install into, and nothing of installations that were broken off.
    fn begin(&self) -> Result<Filling, CommandFailure> {
        let guard = self.lock_file(BEGIN_LOCK)?;
        guard.lock().map_err(|error| self.unusable(&error))?;
        self.clear_abandoned().map_err(|error| self.unusable(&error))?;
        for number in 0..FILLING_MAX {
            let folder = self.root.join(format!("{FILLING}{}-{number}", std::process::id()));
            let lock = folder.with_extension("lock");
            match File::create_new(&lock) {
                Ok(file) => {
                    file.lock().map_err(|error| self.unusable(&error))?;
                    return Ok(Filling { folder: Self::absolute(&folder), lock, _held: file });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(self.unusable(&error)),
            }
        }
        Err(CommandFailure::new(format!("more than {FILLING_MAX} packages are being installed at once")))
    }

    /// Takes away what processes have left that are no more. An installer whose command was killed goes on for a while, and what it
    /// still writes stays for the next to take away: every installation has a folder of its own, so it is in nobody's way.
    fn clear_abandoned(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if !name.starts_with(FILLING) {
                continue;
            }
            if !name.ends_with(".lock") {
                // A lock is there before its folder and goes after it: what has none was written after both had gone.
                if !path.with_extension("lock").try_exists()? {
                    left_to_others(tree::remove(&path))?;
                }
                continue;
            }
            if File::open(&path).is_ok_and(|file| file.try_lock().is_ok())
                && left_to_others(tree::remove(&path.with_extension("")))?
            {
                fs::remove_file(&path)?;
            }
        }
        Ok(())
    }

    fn create(&self) -> Result<(), CommandFailure> {
        self.create_folder(&self.root).map_err(|error| self.unusable(&error))
    }

    /// Makes a folder and those above it, down from the folder of packages for everybody to read.
    fn create_folder(&self, folder: &Path) -> io::Result<()> {
        if let Some(above) = self.root.parent().filter(|above| !above.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(above)?;
        }
        let parts = folder.strip_prefix(&self.root).unwrap_or_else(|_| Path::new(""));
        let mut made = self.root.clone();
        for part in std::iter::once(Path::new("")).chain(parts.iter().map(Path::new)) {
            made = if part.as_os_str().is_empty() { made } else { made.join(part) };
            match DirBuilder::new().create(&made) {
                Ok(()) => tree::open_one(&made, self.owner())?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn lock_file(&self, name: &str) -> Result<File, CommandFailure> {
        let path = self.root.join(name);
        let opened = File::options().create(true).truncate(false).write(true).open(&path);
        let file = opened.map_err(|error| self.unusable(&error))?;
        tree::open_one(&path, self.owner()).map_err(|error| self.unusable(&error))?;
        Ok(file)
    }

    fn entries(&self, below: &Path) -> Result<Vec<PathBuf>, CommandFailure> {
        let entries = match fs::read_dir(self.root.join(below)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.unusable(&error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| self.unusable(&error))?;
            names.push(below.join(entry.file_name()));
        }
        names.sort();
        Ok(names)
    }

    /// Whose the folder is in which packages are kept. Root hands over what it installs, so that the owner can take it away.
    fn owner(&self) -> Option<(u32, u32)> {
        if !rustix::process::geteuid().is_root() {
            return None;
        }
        let above = self.root.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        let found = fs::metadata(above).ok()?;
        (found.uid() != 0).then(|| (found.uid(), found.gid()))
    }

    fn absolute(path: &Path) -> PathBuf {
        std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
    }

    fn unusable(&self, error: &io::Error) -> CommandFailure {
        let failure =
            CommandFailure::new(format!("the folder of packages `{}` cannot be used: {error}", self.root.display()));
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                failure.hint("`gantry server packages --prune` takes away what no server uses")
            }
            io::ErrorKind::PermissionDenied => failure.hint("run this as the user whom the data directory belongs to"),
            io::ErrorKind::DirectoryNotEmpty => {
                failure.hint("another installation is still at work there: wait for its end, then do this again")
            }
            _ => failure,
        }
    }
}

/// Was it taken away? What somebody still writes into is not, which is no fault.
fn left_to_others(removed: io::Result<()>) -> io::Result<bool> {
    match removed {
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => Ok(false),
        removed => removed.map(|()| true),
    }
}

/// A place in which something is being installed. Taken away with all that is in it.
#[derive(Debug)]
struct Filling {
    folder: PathBuf,
    lock: PathBuf,
    _held: File,
}

impl Drop for Filling {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next installation.
        if tree::remove(&self.folder).is_ok() {
            let _ = fs::remove_file(&self.lock);
        }
    }
}

/// The digest of an installation. With scripts and without them it is not the same.
fn digest_of(lock: &[u8], scripts: bool) -> String {
    let mut hash = Sha256::new();
    hash.update(lock);
    hash.update([u8::from(scripts)]);
    format!("sha256:{}", lower_hex(&hash.finalize()))
}

fn scripts_warning(skipped: &[String]) -> String {
    let names: Vec<String> = skipped.iter().map(|name| format!("`{name}`")).collect();
    let (names, have, word) = match names.as_slice() {
        [one] => (one.clone(), "has", "it"),
        many => (many.join(", "), "have", "them"),
    };
    format!(
        "{names} {have} install scripts, which were not run, because they would run outside of every sandbox; \
         --allow-install-scripts runs {word}"
    )
}

#[cfg(test)]
mod tests;
