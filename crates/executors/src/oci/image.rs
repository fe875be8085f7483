//! The image of a tool: found in its folder, checked, and unpacked once.
//!
//! An unpacked image lies in `<cache>/<digest of its manifest>`. It gets there by being renamed when it is complete, so
//! what is there is whole; and it is content by digest, so two tools with the same image share it. It is only ever
//! mounted read-only.
//!
//! Invariants
//! - IMAGE-1: what is named lies in the tool's folder, and is reached without following a symbolic link.
//! - IMAGE-2: an image is unpacked by one at a time; the others wait for that one.
//! - IMAGE-3: at most [`IMAGES_MAX`] are kept. The one that was unpacked first goes first, unless it is in use.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use base::MutexExt as _;
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, ResolveFlags};
use serde::Deserialize;

use super::layer::{self, LayerError};
use super::layout::{self, LayoutError, Manifest};

/// Unpacked images that are kept.
pub const IMAGES_MAX: usize = 64;
/// Longest `config.json` of a bundle.
const BUNDLE_CONFIG_BYTES_MAX: u64 = 1 << 20;

/// What `image` of a manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageReference {
    /// Relative to the tool's folder, and going down only.
    folder: PathBuf,
    /// Which manifest of an image layout.
    digest: Option<String>,
}

/// An image that can be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OciImage {
    /// A directory to be the root of a container.
    pub root: PathBuf,
    /// What it starts by default; may be empty.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    pub cwd: PathBuf,
}

/// Why an image cannot be used. What a stranger may read; details are in the sources.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("this server pulls no images from registries")]
    Registry,
    #[error("`{0}` is no folder of the tool")]
    NoFolder(String),
    #[error("the tool's image is not as it should be: {0}")]
    Layout(#[from] LayoutError),
    #[error("a layer of the tool's image cannot be unpacked: {0}")]
    Layer(#[from] LayerError),
    #[error("the configuration of the tool's bundle cannot be read")]
    Bundle(#[source] serde_json::Error),
    #[error("the tool's image cannot be read or stored")]
    Io(#[from] io::Error),
}

/// The images of a server. IMAGE-2 is kept per digest.
#[derive(Debug)]
pub struct ImageCache {
    cache: PathBuf,
    known: Mutex<HashMap<String, Weak<Slot>>>,
}

#[derive(Debug)]
struct Slot {
    unpacked: tokio::sync::OnceCell<()>,
}

impl ImageReference {
    /// Tells a folder from a name in a registry.
    pub fn parse(text: &str) -> Result<Self, ImageError> {
        let (folder, digest) = match text.split_once("@sha256:") {
            Some((folder, digest)) => (folder, Some(digest)),
            None => (text, None),
        };
        if let Some(digest) = digest
            && !layout::is_digest(digest)
        {
            return Err(ImageError::Layout(LayoutError::NoDigest));
        }
        let first = folder.split('/').next().unwrap_or_default();
        // A host name, a port, a tag: nothing a folder of ours is called.
        if folder.contains(':') || (folder.contains('/') && first.contains('.') && !first.starts_with('.')) {
            return Err(ImageError::Registry);
        }
        let path = Path::new(folder);
        let down = path.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir));
        if folder.is_empty() || !down {
            return Err(ImageError::NoFolder(folder.to_owned()));
        }
        Ok(Self { folder: path.to_owned(), digest: digest.map(str::to_owned) })
    }
}

impl ImageCache {
    /// Makes nothing before the first is wanted.
    pub fn in_dir(cache: PathBuf) -> Self {
        Self { cache, known: Mutex::default() }
    }

    /// The image of a tool, ready to be a root. The returned value keeps it from being put aside.
    pub async fn open(&self, home: &Path, reference: &ImageReference) -> Result<OpenedImage, ImageError> {
        let dir = folder(home, reference)?;
        if dir.join("oci-layout").is_file() {
            return self.of_layout(dir, reference.digest.clone()).await;
        }
        if reference.digest.is_some() {
            return Err(ImageError::Layout(LayoutError::NoLayout));
        }
        if dir.join("config.json").is_file() && dir.join("rootfs").is_dir() {
            return bundle(&dir).map(OpenedImage::in_place);
        }
        Ok(OpenedImage::in_place(OciImage { root: dir, command: Vec::new(), env: BTreeMap::new(), cwd: "/".into() }))
    }

    async fn of_layout(&self, dir: PathBuf, pinned: Option<String>) -> Result<OpenedImage, ImageError> {
        let read = {
            let dir = dir.clone();
            move || layout::read(&dir, pinned.as_deref())
        };
        let manifest = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)??;
        let slot = self.slot(&manifest.digest);
        let root = self.cache.join(&manifest.digest);
        let image = manifest.image(root.clone());
        slot.unpacked
            .get_or_try_init(|| async {
                let (cache, known) = (self.cache.clone(), self.in_use());
                let work = move || unpack(&cache, &dir, &manifest, &root, &known);
                tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
            })
            .await?;
        Ok(OpenedImage { image, _slot: Some(slot) })
    }

    fn slot(&self, digest: &str) -> Arc<Slot> {
        let mut known = self.known.lock_unpoisoned();
        known.retain(|_, slot| slot.strong_count() > 0);
        if let Some(slot) = known.get(digest).and_then(Weak::upgrade) {
            return slot;
        }
        let slot = Arc::new(Slot { unpacked: tokio::sync::OnceCell::new() });
        known.insert(digest.to_owned(), Arc::downgrade(&slot));
        slot
    }

    fn in_use(&self) -> Vec<String> {
        let known = self.known.lock_unpoisoned();
        known.iter().filter(|(_, slot)| slot.strong_count() > 0).map(|(digest, _)| digest.clone()).collect()
    }
}

/// An image for as long as it is used.
#[derive(Debug)]
pub struct OpenedImage {
    image: OciImage,
    _slot: Option<Arc<Slot>>,
}

impl OpenedImage {
    fn in_place(image: OciImage) -> Self {
        Self { image, _slot: None }
    }
}

impl std::ops::Deref for OpenedImage {
    type Target = OciImage;

    fn deref(&self) -> &OciImage {
        &self.image
    }
}

/// IMAGE-1. The path of the tool's folder is the operator's; from there on nothing is followed.
fn folder(home: &Path, reference: &ImageReference) -> Result<PathBuf, ImageError> {
    let missing = |_| ImageError::NoFolder(reference.folder.display().to_string());
    let home = std::fs::canonicalize(home).map_err(missing)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = home.join(&reference.folder).components().collect::<PathBuf>();
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(CWD, &dir, flags, Mode::empty(), resolve).map_err(|error| missing(io::Error::from(error)))?;
    Ok(dir)
}

/// CONT-2: of the configuration of a bundle only what is started.
fn bundle(dir: &Path) -> Result<OciImage, ImageError> {
    #[derive(Deserialize)]
    struct Config {
        process: Option<Process>,
    }
    #[derive(Deserialize)]
    struct Process {
        #[serde(default)]
        args: Vec<String>,
        #[serde(default)]
        env: Vec<String>,
        cwd: Option<PathBuf>,
    }
    let text = layout::bounded_file(&dir.join("config.json"), BUNDLE_CONFIG_BYTES_MAX)?;
    let config: Config = serde_json::from_slice(&text).map_err(ImageError::Bundle)?;
    let process = config.process.unwrap_or(Process { args: Vec::new(), env: Vec::new(), cwd: None });
    Ok(OciImage {
        root: dir.join("rootfs"),
        command: process.args,
        env: layout::environment(&process.env),
        cwd: process.cwd.filter(|cwd| cwd.is_absolute()).unwrap_or_else(|| "/".into()),
    })
}

/// Unpacks beside, and renames when all is there.
fn unpack(cache: &Path, dir: &Path, manifest: &Manifest, root: &Path, used: &[String]) -> Result<(), ImageError> {
    if root.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(cache)?;
    make_room(cache, used)?;
    let (beside, _held) = place_of_its_own(cache, &manifest.digest)?;
    let unpacked = layer::unpack_all(dir, &manifest.layers, &beside).map_err(ImageError::from);
    let placed = unpacked.and_then(|()| match std::fs::rename(&beside, root) {
        // Somebody else was as far; theirs is as good.
        Err(_) if root.is_dir() => Ok(()),
        renamed => Ok(renamed?),
    });
    if beside.is_dir() {
        // What stays has the name of something that is not whole, and goes when room is made.
        let _ = remove(&beside);
    }
    placed
}

/// How the name of an image ends that is not whole yet.
const PART: &str = ".part";
static PARTS: AtomicU64 = AtomicU64::new(0);

/// How often a new place may be cleared away by others before its lock is held.
const CLAIMS_MAX: u32 = 16;

/// An empty directory to unpack in, and its lock. Each call has its own, because one that was given up may still be
/// unpacking the same. A place that somebody took for abandoned, in the moment before it was locked, is made again.
fn place_of_its_own(cache: &Path, digest: &str) -> io::Result<(PathBuf, std::fs::File)> {
    for _ in 0..CLAIMS_MAX {
        let number = PARTS.fetch_add(1, Ordering::Relaxed);
        let place = cache.join(format!("{digest}.{}.{number}{PART}", std::process::id()));
        std::fs::DirBuilder::new().mode(0o755).create(&place)?;
        if let Ok(held) = lock(&place)
            && is_still(&place, &held)
        {
            return Ok((place, held));
        }
    }
    Err(io::Error::other("others cleared away every place to unpack in"))
}

/// Whether the name still belongs to what was opened.
fn is_still(path: &Path, opened: &std::fs::File) -> bool {
    let named = std::fs::symlink_metadata(path).map(|meta| (meta.dev(), meta.ino()));
    let held = opened.metadata().map(|meta| (meta.dev(), meta.ino()));
    matches!((named, held), (Ok(named), Ok(held)) if named == held)
}

/// Held by whoever unpacks there. What nobody holds was left by a server that died.
fn lock(part: &Path) -> io::Result<std::fs::File> {
    let dir = std::fs::File::open(part)?;
    rustix::fs::flock(&dir, FlockOperation::NonBlockingLockExclusive)?;
    Ok(dir)
}

/// IMAGE-3. What was left half done goes as well.
fn make_room(cache: &Path, used: &[String]) -> io::Result<()> {
    let mut images = Vec::new();
    for entry in std::fs::read_dir(cache)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(PART) {
            if let Ok(_abandoned) = lock(&entry.path()) {
                remove(&entry.path())?;
            }
        } else if layout::is_digest(&name) && !used.contains(&name) {
            match entry.metadata().and_then(|meta| meta.modified()) {
                Ok(modified) => images.push((modified, entry.path())),
                Err(error) => gone_is_fine(Err(error))?,
            }
        }
    }
    images.sort();
    let surplus = (images.len() + used.len()).saturating_sub(IMAGES_MAX);
    images.iter().take(surplus).try_for_each(|(_, path)| put_aside(path))
}

/// Out of sight first: an image is whole or not there.
fn put_aside(image: &Path) -> io::Result<()> {
    let mut aside = image.as_os_str().to_owned();
    aside.push(format!(".{}.{}{PART}", std::process::id(), PARTS.fetch_add(1, Ordering::Relaxed)));
    gone_is_fine(std::fs::rename(image, &aside))?;
    remove(Path::new(&aside))
}

fn remove(dir: &Path) -> io::Result<()> {
    gone_is_fine(std::fs::remove_dir_all(dir))
}

/// Others share the cache and clear away as well.
fn gone_is_fine(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_unpack_in_are_had_while_others_clear_away() {
        let cache = tempfile::tempdir().unwrap();
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    for _ in 0..200 {
                        make_room(cache.path(), &[]).unwrap();
                        let (place, held) = place_of_its_own(cache.path(), &"a".repeat(64)).unwrap();
                        std::fs::write(place.join("file"), "whole").unwrap();
                        assert!(is_still(&place, &held), "nobody takes what is held");
                        remove(&place).unwrap();
                    }
                });
            }
        });
    }

    #[test]
    fn a_folder_is_told_from_a_name_in_a_registry() {
        let digest = "a".repeat(64);
        for good in ["image", "./image", "images/stats", &format!("image@sha256:{digest}")] {
            assert!(ImageReference::parse(good).is_ok(), "{good}");
        }
        for registry in
            ["alpine:3.20", "docker.io/library/alpine", "localhost:5000/x", &format!("ghcr.io/a/b@sha256:{digest}")]
        {
            assert!(matches!(ImageReference::parse(registry), Err(ImageError::Registry)), "{registry}");
        }
        for bad in ["", "/etc", "../other", "a/../../b"] {
            assert!(matches!(ImageReference::parse(bad), Err(ImageError::NoFolder(_))), "{bad}");
        }
        assert!(ImageReference::parse("image@sha256:short").is_err());
    }

    #[test]
    fn the_image_that_came_first_goes_first_unless_it_is_in_use() {
        let cache = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..IMAGES_MAX + 2).map(|number| format!("{number:064x}")).collect();
        let old = std::time::UNIX_EPOCH;
        for (age, name) in names.iter().enumerate() {
            let dir = cache.path().join(name);
            std::fs::create_dir(&dir).unwrap();
            let when = old + std::time::Duration::from_secs(1000 + age as u64);
            std::fs::File::open(&dir).unwrap().set_modified(when).unwrap();
        }
        std::fs::create_dir(cache.path().join(format!("{}.1.part", names[0]))).unwrap();
        make_room(cache.path(), &names[..1]).unwrap();
        let left: Vec<bool> = names.iter().take(4).map(|name| cache.path().join(name).is_dir()).collect();
        assert_eq!(left, [true, false, false, true]);
        assert_eq!(std::fs::read_dir(cache.path()).unwrap().count(), IMAGES_MAX);
    }
}
