//! Compiled components on disk, so that a start does not compile what an earlier one has compiled.
//!
//! A file's name is the digest of the component and a hash of everything the compiler depends on (version, settings,
//! processor), so another engine never finds it. A header names both again and the digest of what follows, so a file
//! that was cut off, damaged or renamed is noticed, thrown away and made anew.
//!
//! Compiled code is trusted: it runs as part of the server. So the digest is against accidents only; what keeps strangers
//! out is CACHE-1.
//!
//! Invariants
//! - CACHE-1: the directory and the file belong to this user and nobody else may write to them. Otherwise nothing is read.
//! - CACHE-2: a file appears under its name complete, or not at all.
//! - CACHE-3: at most `files_max` files; the one written longest ago goes first.
//!
//! Not here: who compiles when (`library`).

use std::fs::{self, DirBuilder, OpenOptions};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use contract::canonical::Digest;
use rustix::fs::OFlags;
use wasmtime::Engine;
use wasmtime::component::Component;

/// What a file starts with; the number changes with the layout.
const MAGIC: &[u8; 8] = b"GNTWASM1";
/// Magic, digest of the component, hash of the engine, digest of the code.
const HEADER_BYTES: usize = 8 + 32 + 8 + 32;
/// Largest file that is read; what is longer is cut off and so noticed.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// How the names end.
const SUFFIX: &str = ".compiled";

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
        let path = self.path(source);
        let code = match self.read(&path, source) {
            Ok(code) => code?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(%error, "a compiled component could not be read and is made anew");
                return None;
            }
        };
        #[expect(unsafe_code, reason = "machine code of an earlier run has no other way back in")]
        // JUSTIFICATION: compiling a component takes seconds, loading it milliseconds.
        // SAFETY: `deserialize` asks for bytes that `precompile_component` of a compatible engine has made. `store` is the
        // only writer of such files; the directory and the file belong to us and nobody else may write there (CACHE-1,
        // checked in `open` and `read`); the header says that source and engine are these and that every byte of the code
        // is as it was written. The bytes checked are the bytes used: they are read once, into memory.
        let component = unsafe { Component::deserialize(engine, &code) };
        component.inspect_err(|error| tracing::warn!(%error, "a compiled component is not loaded and made anew")).ok()
    }

    /// The code in a file; `None` if the file is not what its name says.
    fn read(&self, path: &Path, source: &Digest) -> io::Result<Option<Vec<u8>>> {
        let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or(0);
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() || !is_ours(&meta) {
            tracing::warn!("a file among the compiled components is not ours and is not used");
            return Ok(None);
        }
        let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
        file.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
        let Some((header, code)) = bytes.split_at_checked(HEADER_BYTES) else { return Ok(None) };
        if header != self.header(source, code) {
            tracing::warn!("a compiled component is damaged or of another engine and is made anew");
            return Ok(None);
        }
        bytes.drain(..HEADER_BYTES);
        Ok(Some(bytes))
    }

    /// Keeps a compiled component. A full disk costs the next start its head start and nothing else.
    pub(super) fn store(&self, source: &Digest, code: &[u8]) {
        if let Err(error) = self.try_store(source, code) {
            tracing::warn!(%error, "a compiled component could not be kept");
        }
    }

    fn try_store(&self, source: &Digest, code: &[u8]) -> io::Result<()> {
        self.make_room()?;
        let number = self.written.fetch_add(1, Ordering::Relaxed);
        let half = self.dir.join(format!(".{}.{number}", std::process::id()));
        let written = self.write(&half, source, code).and_then(|()| fs::rename(&half, self.path(source)));
        if written.is_err() {
            let _ = fs::remove_file(&half);
        }
        written
    }

    fn write(&self, path: &Path, source: &Digest, code: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(&self.header(source, code))?;
        file.write_all(code)?;
        // Without it a crash of the machine could leave the name with half of the content, against CACHE-2.
        file.sync_all()
    }

    /// CACHE-3. Half-written files of processes that are gone count as well and are the first to go.
    fn make_room(&self) -> io::Result<()> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.dir)? {
            let entry = entry?;
            files.push((entry.metadata()?.modified()?, entry.path()));
        }
        files.sort();
        let surplus = (files.len() + 1).saturating_sub(self.files_max);
        for (_, path) in files.into_iter().take(surplus) {
            fs::remove_file(path)?;
        }
        Ok(())
    }

    fn header(&self, source: &Digest, code: &[u8]) -> Vec<u8> {
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(source.as_bytes());
        header.extend(self.engine_hash.to_be_bytes());
        header.extend(Digest::of_bytes(code).as_bytes());
        header
    }

    fn path(&self, source: &Digest) -> PathBuf {
        let written = source.to_string();
        let digits = written.rsplit(':').next().unwrap_or_default();
        self.dir.join(format!("{digits}-{:016x}{SUFFIX}", self.engine_hash))
    }
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
        assert_eq!(files.len(), 1, "{files:?}");
        assert_eq!(files[0].metadata().unwrap().mode() & 0o777, 0o600);
        assert_eq!(cache.dir.metadata().unwrap().mode() & 0o777, 0o700);
    }

    #[test]
    fn every_damage_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(dir.path());
        let source = Digest::of_bytes(SMALLEST);
        let code = engine.precompile_component(SMALLEST).unwrap();
        cache.store(&source, &code);
        let path = cache.path(&source);
        let good = fs::read(&path).unwrap();
        let with = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        };
        for (what, bytes) in [
            ("empty", Vec::new()),
            ("half a header", good[..HEADER_BYTES / 2].to_vec()),
            ("header only", good[..HEADER_BYTES].to_vec()),
            ("cut off", good[..good.len() - 1].to_vec()),
            ("too long", [good.clone(), vec![0]].concat()),
            ("magic", with(0)),
            ("source", with(8)),
            ("engine", with(40)),
            ("digest", with(48)),
            ("first byte of the code", with(HEADER_BYTES)),
            ("last byte of the code", with(good.len() - 1)),
            ("bare code without a header", code),
        ] {
            fs::write(&path, bytes).unwrap();
            assert!(cache.load(&engine, &source).is_none(), "{what}");
        }
        fs::write(&path, &good).unwrap();
        assert!(cache.load(&engine, &source).is_some());
    }

    #[test]
    fn what_others_could_have_written_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        let (engine, cache) = cache(dir.path());
        let source = Digest::of_bytes(SMALLEST);
        cache.store(&source, &engine.precompile_component(SMALLEST).unwrap());
        let path = cache.path(&source);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(cache.load(&engine, &source).is_none(), "writable by the group");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(cache.load(&engine, &source).is_some());
        let elsewhere = dir.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        assert!(cache.load(&engine, &source).is_none(), "a link");
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
        assert_eq!(files(&cache).len(), 3);
        assert!(cache.path(&Digest::of_bytes(&[9])).is_file(), "the newest stays");
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
