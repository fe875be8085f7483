//! Components ready to run: found in their folder, compiled once, kept while they are used.
//!
//! Invariants
//! - LIB-1: a component is read from inside its tool's folder only; the kernel refuses `..`, absolute names and links that
//!   lead out, so there is no moment between looking and opening.
//! - LIB-2: one file is compiled by one task, however many calls wait for it, and the work goes on when they give up.
//! - LIB-3: a changed file is another component: what identifies a file includes its size and times.
//!
//! Not here: what a component may do (`grants`), how it is called (`guest`).

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use base::MutexExt as _;
use contract::canonical::Digest;
use contract::error::{ErrorCode, Refusal};
use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};
use tokio::sync::watch;
use wasmtime::Engine;
use wasmtime::component::{Component, Linker};

use super::compiled_cache::CompiledCache;
use super::loaded::LoadedComponent;
use super::state::State;

/// Why a component cannot be run. Cloned to everybody who waited for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum LoadError {
    #[error("the component `{0}` is not in the tool's folder")]
    Missing(Arc<str>),
    #[error("the component `{0}` is not a file inside the tool's folder")]
    NotInside(Arc<str>),
    #[error("the component is larger than {limit} bytes")]
    TooLarge { limit: u64 },
    #[error("the file is a core module of WASM and not a component")]
    CoreModule,
    /// Not valid, or valid and made of more parts than the pool has places for.
    #[error("the file is not a WASM component that can run here")]
    NotAComponent,
    #[error("the component imports `{0}`, which Gantry does not give to tools")]
    UnknownImport(Arc<str>),
    #[error("the component exports neither `invoke` nor `wasi:cli/run`")]
    NoEntry,
    #[error("the component needs more than this server gives, or imports an interface in another form")]
    Unfit,
    #[error("the component could not be read")]
    Io,
    #[error("the component could not be loaded")]
    Stopped,
}

impl LoadError {
    /// As the caller sees it.
    pub(super) fn refusal(&self) -> Refusal {
        let refusal = |code, hint: &str| Refusal::new(code, self.to_string()).hint(hint).retryable(false);
        match self {
            Self::Missing(_) | Self::NotInside(_) => refusal(
                ErrorCode::E3108,
                "put the component into the tool's folder and name it by its path from there in `execution.component`",
            ),
            Self::TooLarge { .. } => {
                refusal(ErrorCode::E3108, "build the component smaller, for example without debug information")
            }
            Self::CoreModule => refusal(
                ErrorCode::E3108,
                "turn it into a component, for example with `jco new tool.wasm --wasi-command -o tool.component.wasm`",
            ),
            Self::NotAComponent => refusal(
                ErrorCode::E3108,
                "build the file again, as a component of WASI 0.2; the server's log says what is wrong with it",
            ),
            Self::UnknownImport(_) => refusal(
                ErrorCode::E3108,
                "build the component for WASI 0.2 and the world `gantry:tool/tool`, without other imports",
            ),
            Self::NoEntry => refusal(ErrorCode::E3108, "implement the world `gantry:tool/tool` or `wasi:cli/command`"),
            Self::Unfit => {
                refusal(ErrorCode::E3108, "build the component for WASI 0.2 and the world `gantry:tool/tool` 1.0.0")
            }
            Self::Io | Self::Stopped => {
                Refusal::new(ErrorCode::E3405, self.to_string()).hint("look at the server's log")
            }
        }
    }

    /// Whether the next call should look again although the file has not changed.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Io | Self::Stopped)
    }
}

type Loading = watch::Receiver<Option<Result<Arc<LoadedComponent>, LoadError>>>;

/// All components of a server.
pub(super) struct Library {
    engine: Engine,
    linker: Arc<Linker<State>>,
    cache: Option<Arc<CompiledCache>>,
    component_bytes_max: u64,
    loaded_max: usize,
    shelves: Mutex<Shelves>,
    /// One compilation at a time: it uses all cores by itself.
    compiling: Arc<Mutex<()>>,
}

#[derive(Default)]
struct Shelves {
    by_file: HashMap<FileId, (u64, Loading)>,
    /// Counts requests, to tell what was used last.
    now: u64,
}

impl Shelves {
    /// What was used longest ago; what is still being compiled goes last, because somebody would start it again.
    fn least_wanted(&self) -> Option<FileId> {
        let wanted = |(used, loading): &(u64, Loading)| (loading.borrow().is_none(), *used);
        self.by_file.iter().min_by_key(|(_, shelf)| wanted(shelf)).map(|(id, _)| *id)
    }
}

/// One state of one file (LIB-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct FileId {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Library {
    pub(super) fn new(
        engine: Engine,
        linker: Linker<State>,
        cache: Option<CompiledCache>,
        component_bytes_max: u64,
        loaded_max: usize,
    ) -> Self {
        Self {
            engine,
            linker: Arc::new(linker),
            cache: cache.map(Arc::new),
            component_bytes_max,
            loaded_max,
            shelves: Mutex::default(),
            compiling: Arc::default(),
        }
    }

    /// The component ready to run, waiting for its compilation if need be.
    pub(super) async fn get(
        &self,
        threads: &tokio::runtime::Handle,
        folder: &Path,
        component: &str,
    ) -> Result<Arc<LoadedComponent>, LoadError> {
        let mut loading = self.ask(threads, folder, component)?;
        let settled = loading.wait_for(Option::is_some).await.map_err(|_| LoadError::Stopped)?;
        settled.clone().unwrap_or(Err(LoadError::Stopped))
    }

    /// Starts what must be done for a component and does not wait for it.
    pub(super) fn ask(
        &self,
        threads: &tokio::runtime::Handle,
        folder: &Path,
        component: &str,
    ) -> Result<Loading, LoadError> {
        let (file, id) = open(folder, component)?;
        if id.bytes > self.component_bytes_max {
            return Err(LoadError::TooLarge { limit: self.component_bytes_max });
        }
        let mut shelves = self.shelves.lock_unpoisoned();
        shelves.now += 1;
        let now = shelves.now;
        if let Some((used, loading)) = shelves.by_file.get_mut(&id)
            && !passed(loading)
        {
            *used = now;
            return Ok(loading.clone());
        }
        let (settle, loading) = watch::channel(None);
        if shelves.by_file.len() >= self.loaded_max
            && let Some(oldest) = shelves.least_wanted()
        {
            shelves.by_file.remove(&oldest);
        }
        shelves.by_file.insert(id, (now, loading.clone()));
        drop(shelves);
        let work = Work {
            engine: self.engine.clone(),
            linker: Arc::clone(&self.linker),
            cache: self.cache.clone(),
            compiling: Arc::clone(&self.compiling),
            bytes_max: self.component_bytes_max,
        };
        // LIB-2: a task of its own, which nobody's deadline ends.
        threads.spawn_blocking(move || settle.send_replace(Some(work.load(file))));
        Ok(loading)
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let loaded = self.shelves.lock_unpoisoned().by_file.len();
        f.debug_struct("Library").field("loaded", &loaded).field("cache", &self.cache).finish_non_exhaustive()
    }
}

fn passed(loading: &Loading) -> bool {
    match loading.borrow().as_ref() {
        Some(Err(error)) => error.is_passing(),
        Some(Ok(_)) => false,
        // The task that would have settled it is gone.
        None => loading.has_changed().is_err(),
    }
}

/// LIB-1. The folder itself is the operator's and may be a link; nothing below it may lead out.
fn open(folder: &Path, component: &str) -> Result<(File, FileId), LoadError> {
    let failed = |error: rustix::io::Errno| match error {
        rustix::io::Errno::NOENT => LoadError::Missing(component.into()),
        rustix::io::Errno::XDEV | rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR | rustix::io::Errno::NXIO => {
            LoadError::NotInside(component.into())
        }
        other => {
            tracing::warn!(error = %other, "a component could not be opened");
            LoadError::Io
        }
    };
    let dir = openat(CWD, folder, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty()).map_err(failed)?;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    // Not blocking, so that a named pipe does not hold the thread.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let file = File::from(openat2(&dir, component, flags, Mode::empty(), inside).map_err(failed)?);
    let meta = file.metadata().map_err(|_| LoadError::Io)?;
    if !meta.is_file() {
        return Err(LoadError::NotInside(component.into()));
    }
    let id = FileId {
        device: meta.dev(),
        inode: meta.ino(),
        bytes: meta.size(),
        modified: (meta.mtime(), meta.mtime_nsec()),
        changed: (meta.ctime(), meta.ctime_nsec()),
    };
    Ok((file, id))
}

/// What turns a file into something that runs.
struct Work {
    engine: Engine,
    linker: Arc<Linker<State>>,
    cache: Option<Arc<CompiledCache>>,
    compiling: Arc<Mutex<()>>,
    bytes_max: u64,
}

impl Work {
    fn load(&self, file: File) -> Result<Arc<LoadedComponent>, LoadError> {
        let bytes = self.read(file).map_err(|error| {
            tracing::warn!(%error, "a component could not be read");
            LoadError::Io
        })?;
        if bytes.len() as u64 > self.bytes_max {
            return Err(LoadError::TooLarge { limit: self.bytes_max });
        }
        match bytes.get(..8) {
            Some(b"\0asm\x0d\0\x01\0") => {}
            Some(b"\0asm\x01\0\0\0") => return Err(LoadError::CoreModule),
            _ => return Err(LoadError::NotAComponent),
        }
        let component = self.component(&bytes)?;
        LoadedComponent::new(&self.engine, &self.linker, &component).map(Arc::new)
    }

    fn read(&self, file: File) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        file.take(self.bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn component(&self, bytes: &[u8]) -> Result<Component, LoadError> {
        let source = Digest::of_bytes(bytes);
        let kept = || self.cache.as_ref().and_then(|cache| cache.load(&self.engine, &source));
        if let Some(component) = kept() {
            return Ok(component);
        }
        let _turn = self.compiling.lock_unpoisoned();
        // Somebody with the same content in another folder may have been first.
        if let Some(component) = kept() {
            return Ok(component);
        }
        let invalid = |error: wasmtime::Error| {
            tracing::warn!(error = %format!("{error:#}"), "a component could not be compiled");
            LoadError::NotAComponent
        };
        let Some(cache) = &self.cache else { return Component::from_binary(&self.engine, bytes).map_err(invalid) };
        let code = self.engine.precompile_component(bytes).map_err(invalid)?;
        cache.store(&source, &code);
        // Through the cache, so that what runs now is what runs after the next start; without it if the disk is full.
        kept().map_or_else(|| Component::from_binary(&self.engine, bytes).map_err(invalid), Ok)
    }
}
