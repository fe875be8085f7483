//! Compiled components on disk, so that a start does not compile what an earlier one has compiled.
//!
//! A file's name is the digest of the component and a hash of everything the compiler depends on (version, settings,
//! processor), so another engine never finds it. Beside it lies its [seal](seal), which names both again, so a file that was
//! cut off, damaged or renamed is noticed, thrown away and made anew. The code itself is mapped and not read: what of it a
//! call does not use never leaves the disk.
//!
//! Compiled code is trusted: it runs as part of the server. So the seal is against accidents only; what keeps strangers
//! out is CACHE-1.
//!
//! Invariants
//! - CACHE-1: the directory and the files belong to this user and nobody else may write to them. Otherwise nothing is read.
//! - CACHE-2: a file appears under its name complete, or not at all; and its seal after it.
//! - CACHE-3: at most `files_max` pairs; the one written longest ago goes first.
//! - CACHE-4: a file with a name is never written to again, only replaced or removed: somebody may have mapped it.
//!
//! Not here: who compiles when (`library`).

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use contract::canonical::Digest;
use rustix::fs::OFlags;
use wasmtime::Engine;
use wasmtime::component::Component;

use self::seal::{Origin, SEAL_BYTES, Seal};

mod seal;

/// Largest file that is read; what is longer is cut off and so noticed.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// How the names of code end, and those of seals.
const CODE_SUFFIX: &str = "compiled";
const SEAL_SUFFIX: &str = "seal";

/// The directory of compiled components.
#[derive(Debug)]
pub(super) struct CompiledCache {
    dir: PathBuf,
    files_max: usize,
    /// Of everything compiled code depends on beside its source.
    engine_hash: u64,
    /// Makes names of half-written files unlike each other.
    written: AtomicU64,
}

/// Why there is no cache.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The directory cannot be made or looked at.
    #[error("the cache directory for compiled components cannot be used")]
    Io(#[from] io::Error),
    /// CACHE-1.
    #[error("the cache directory for compiled components could be written to by others")]
    NotOurs,
}

impl CompiledCache {
    /// Makes the directory if need be.
    pub(super) fn open(dir: &Path, files_max: usize, engine: &Engine) -> Result<Self, CacheError> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let meta = fs::symlink_metadata(dir)?;
        if !meta.is_dir() || !is_ours(&meta) {
            return Err(CacheError::NotOurs);
        }
        let mut hasher = DefaultHasher::new();
        engine.precompile_compatibility_hash().hash(&mut hasher);
        Ok(Self { dir: dir.to_owned(), files_max, engine_hash: hasher.finish(), written: AtomicU64::new(0) })
    }

    /// The compiled form of a component, if there is a sound one.
    pub(super) fn load(&self, engine: &Engine, source: &Digest) -> Option<Component> {
        let code = match self.sound(source) {
            Ok(code) => code?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(%error, "a compiled component could not be read and is made anew");
                return None;
            }
        };
        // The very file that was looked at, whatever has the name by now.
        let opened = format!("/proc/self/fd/{}", code.as_raw_fd());
        #[expect(unsafe_code, reason = "machine code of an earlier run has no other way back in")]
        // JUSTIFICATION: compiling a component takes seconds, loading it milliseconds.
        // SAFETY: `deserialize_file` asks for a file that `precompile_component` of a compatible engine has made and that
        // does not change while it is mapped. `store` is the only writer of such files, and never writes to one that has its
        // name (CACHE-4); the directory and the file belong to us and nobody else may write there (CACHE-1, checked in
        // `open` and `open_ours`); the seal says that source and engine are these and that the file is as it was written.
        let component = unsafe { Component::deserialize_file(engine, opened) };
        component.inspect_err(|error| tracing::warn!(%error, "a compiled component is not loaded and made anew")).ok()
    }

    /// The file with the code; `None` if it is not what its name says.
    fn sound(&self, source: &Digest) -> io::Result<Option<File>> {
        let origin = self.origin(source);
        let Some(seal) = open_ours(&self.path(source, SEAL_SUFFIX))? else { return Ok(None) };
        let seal = Seal::read(&all_of(&seal, SEAL_BYTES as u64 + 1)?, origin);
        let Some(code) = open_ours(&self.path(source, CODE_SUFFIX))? else { return Ok(None) };
        let meta = code.metadata()?;
        let Some(seal) = seal else {
            tracing::warn!("a compiled component is of another engine and is made anew");
            return Ok(None);
        };
        if seal.is_intact_on(&meta) {
            return Ok(Some(code));
        }
        // Restored from a backup, or damaged.
        let bytes = all_of(&code, FILE_BYTES_MAX)?;
        if !seal.covers(&bytes) {
            tracing::warn!("a compiled component is damaged and is made anew");
            return Ok(None);
        }
        // Without it the next start looks as closely as this one.
        let _ = self.write(&Seal::new(&Digest::of_bytes(&bytes), &meta).written(origin), source, SEAL_SUFFIX);
        Ok(Some(code))
    }

    /// Keeps a compiled component. A full disk costs the next start its head start and nothing else.
    pub(super) fn store(&self, source: &Digest, code: &[u8]) {
        if let Err(error) = self.try_store(source, code) {
            tracing::warn!(%error, "a compiled component could not be kept");
        }
    }

    fn try_store(&self, source: &Digest, code: &[u8]) -> io::Result<()> {
        self.make_room()?;
        // CACHE-2: a seal of what is replaced now must not outlive it.
        remove_if_there(&self.path(source, SEAL_SUFFIX))?;
        let file = self.write(code, source, CODE_SUFFIX)?;
        let seal = Seal::new(&Digest::of_bytes(code), &file.metadata()?);
        self.write(&seal.written(self.origin(source)), source, SEAL_SUFFIX).map(drop)
    }

    /// Writes a file that then gets its name.
    fn write(&self, bytes: &[u8], source: &Digest, suffix: &str) -> io::Result<File> {
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let half = self.dir.join(format!(".{}.{number}", std::process::id()));
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half)?;
            file.write_all(bytes)?;
            // Without it a crash of the machine could leave the name with half of the content, against CACHE-2.
            file.sync_all()?;
            fs::rename(&half, self.path(source, suffix))?;
            Ok(file)
        };
        write().inspect_err(|_| {
            // What stays has no name that anybody reads, and is the first to go when room is made.
            let _ = fs::remove_file(&half);
        })
    }

    /// CACHE-3. Half-written files of processes that are gone count as well and are the first to go.
    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            if entry.path().extension().is_none_or(|suffix| suffix != SEAL_SUFFIX) {
                files.push((entry.metadata()?.modified()?, entry.path()));
            }
        }
        files.sort();
        let surplus = (files.len() + 1).saturating_sub(self.files_max);
        for (_, path) in files.into_iter().take(surplus) {
            remove_if_there(&path.with_extension(SEAL_SUFFIX))?;
            remove_if_there(&path)?;
        }
        Ok(())
    }

    fn origin<'d>(&self, source: &'d Digest) -> Origin<'d> {
        Origin { source, engine_hash: self.engine_hash }
    }

    fn path(&self, source: &Digest, suffix: &str) -> PathBuf {
        let written = source.to_string();
        let digits = written.rsplit(':').next().unwrap_or_default();
        self.dir.join(format!("{digits}-{:016x}.{suffix}", self.engine_hash))
    }
}

/// Opens a file of the cache; `None` if it is not ours alone (CACHE-1).
fn open_ours(path: &Path) -> io::Result<Option<File>> {
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() || !is_ours(&meta) {
        tracing::warn!("a file among the compiled components is not ours and is not used");
        return Ok(None);
    }
    Ok(Some(file))
}

/// Another process may have been faster.
fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn all_of(file: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Belongs to this user, and nobody else may write.
fn is_ours(meta: &fs::Metadata) -> bool {
    meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o022 == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    const SMALLEST: &[u8] = b"\0asm\x0d\0\x01\0";

    fn cache(dir: &Path) -> (Engine, CompiledCache) {
        let engine = Engine::default();
        let cache = CompiledCache::open(&dir.join("cache"), 3, &engine).unwrap();
        (engine, cache)
    }

    fn files(cache: &CompiledCache) -> Vec<PathBuf> {
        fs::read_dir(&cache.dir).unwrap().map(|entry| entry.unwrap().path()).collect()
    }

    #[test]
    fn what_is_stored_is_loaded_and_only_we_can_read_it() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(dir.path());
        let source = Digest::of_bytes(SMALLEST);
        assert!(cache.load(&engine, &source).is_none());
        cache.store(&source, &engine.precompile_component(SMALLEST).unwrap());
        assert!(cache.load(&engine, &source).is_some());
        assert!(cache.load(&engine, &Digest::of_bytes(b"other")).is_none());
        let files = files(&cache);
        assert_eq!(files.len(), 2, "{files:?}");
        assert!(files.iter().all(|file| file.metadata().unwrap().mode() & 0o777 == 0o600));
        assert_eq!(cache.dir.metadata().unwrap().mode() & 0o777, 0o700);
    }

    /// Writes until the file system's clock has moved on, so that the write can be seen.
    fn rewrite(path: &Path, bytes: &[u8]) {
        let before = path.metadata().unwrap();
        let when = |meta: &fs::Metadata| (meta.ctime(), meta.ctime_nsec());
        while when(&path.metadata().unwrap()) == when(&before) {
            fs::write(path, bytes).unwrap();
        }
    }

    #[test]
    fn every_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(dir.path());
        let source = Digest::of_bytes(SMALLEST);
        cache.store(&source, &engine.precompile_component(SMALLEST).unwrap());
        for suffix in [CODE_SUFFIX, SEAL_SUFFIX] {
            let path = cache.path(&source, suffix);
            let good = fs::read(&path).unwrap();
            let with = |at: usize| {
                let mut bytes = good.clone();
                bytes[at] ^= 1;
                bytes
            };
            for (what, bytes) in [
                ("empty", Vec::new()),
                ("half", good[..good.len() / 2].to_vec()),
                ("cut off", good[..good.len() - 1].to_vec()),
                ("too long", [good.clone(), vec![0]].concat()),
                ("first byte", with(0)),
                ("source, in a seal", with(8)),
                ("engine, in a seal", with(40)),
            ] {
                rewrite(&path, &bytes);
                assert!(cache.load(&engine, &source).is_none(), "{suffix}: {what}");
            }
            if suffix == CODE_SUFFIX {
                rewrite(&path, &with(good.len() - 1));
                assert!(cache.load(&engine, &source).is_none(), "last byte of the code");
            }
            rewrite(&path, &good);
            assert!(cache.load(&engine, &source).is_some(), "{suffix} is as it was");
        }
    }

    #[test]
    fn code_that_was_restored_is_looked_at_closely_once() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(dir.path());
        let source = Digest::of_bytes(SMALLEST);
        cache.store(&source, &engine.precompile_component(SMALLEST).unwrap());
        let (code, seal) = (cache.path(&source, CODE_SUFFIX), cache.path(&source, SEAL_SUFFIX));
        let first = fs::read(&seal).unwrap();
        rewrite(&code, &fs::read(&code).unwrap());
        assert!(cache.load(&engine, &source).is_some());
        let second = fs::read(&seal).unwrap();
        assert_ne!(first, second, "sealed again");
        assert!(cache.load(&engine, &source).is_some());
        assert_eq!(second, fs::read(&seal).unwrap(), "and not a third time");
        fs::remove_file(&seal).unwrap();
        assert!(cache.load(&engine, &source).is_none(), "without a seal");
    }

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(dir.path());
        let source = Digest::of_bytes(SMALLEST);
        cache.store(&source, &engine.precompile_component(SMALLEST).unwrap());
        for path in [cache.path(&source, CODE_SUFFIX), cache.path(&source, SEAL_SUFFIX)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
            assert!(cache.load(&engine, &source).is_none(), "writable by the group");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            assert!(cache.load(&engine, &source).is_some());
            let elsewhere = dir.path().join("elsewhere");
            fs::rename(&path, &elsewhere).unwrap();
            std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
            assert!(cache.load(&engine, &source).is_none(), "a link");
            fs::rename(&elsewhere, &path).unwrap();
        }
        fs::set_permissions(&cache.dir, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(matches!(CompiledCache::open(&cache.dir, 3, &engine), Err(CacheError::NotOurs)));
    }

    #[test]
    fn the_cache_stays_within_its_bound() {
        let dir = tempfile::tempdir().unwrap();
        let (_, cache) = cache(dir.path());
        for number in 0..10_u8 {
            cache.store(&Digest::of_bytes(&[number]), b"code");
        }
        assert_eq!(files(&cache).len(), 6, "code and seals");
        assert!(cache.path(&Digest::of_bytes(&[9]), CODE_SUFFIX).is_file(), "the newest stays");
    }

    #[test]
    fn another_engine_does_not_find_it() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(dir.path());
        let mut config = wasmtime::Config::new();
        config.epoch_interruption(true);
        let other = Engine::new(&config).unwrap();
        let theirs = CompiledCache::open(&cache.dir, 3, &other).unwrap();
        let source = Digest::of_bytes(SMALLEST);
        cache.store(&source, &engine.precompile_component(SMALLEST).unwrap());
        assert!(theirs.load(&other, &source).is_none());
    }
}
