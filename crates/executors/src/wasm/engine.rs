//! The one engine of a server: how guests are compiled, where their memory comes from, which threads they run on, and
//! what interrupts them.
//!
//! Guests run on threads of their own, which have nobody's rights over files ([`nobody`](super::nobody)). They are interrupted every tick and then give the thread away, so a guest that
//! never ends takes its share of these threads and nothing from those that serve requests; and a guest whose future is
//! dropped has run for the last time when the next tick comes.
//!
//! Invariants
//! - ENGINE-1: every instance, memory, table and stack comes from a pool of fixed size, for at most `calls_max` calls at
//!   once. A slot is wiped before it is used again, whoever used it before (EXEC-021).
//! - ENGINE-2: the clock ticks whenever a guest may run, and not when none does.
//!
//! Not here: what a single call may use (`limits`), what it may reach (`grants`).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use wasmtime::{Config, Engine, EngineWeak, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::config::WasmConfig;
use super::nobody::Nobody;

/// Core modules one component may consist of: itself, its adapters and the glue between them.
const MODULES_PER_COMPONENT: u32 = 16;
/// Linear memories one component may have: a JavaScript engine and its adapters need three.
const MEMORIES_PER_COMPONENT: u32 = 4;
/// Tables one component may have.
const TABLES_PER_COMPONENT: u32 = 8;
/// Bytes of stack for the guest's own calls; deeper recursion is a trap.
const GUEST_STACK_BYTES: usize = 1 << 20;
/// Bytes of the whole stack of a call: the guest's, and that of the host functions it calls.
const CALL_STACK_BYTES: usize = 2 << 20;
/// Threads for blocking work of guests (files), beside the guest threads.
const BLOCKING_THREADS_MAX: usize = 32;
/// Threads that read and compile components.
const COMPILING_THREADS_MAX: usize = 8;
/// Bytes of a freed memory or table that are cleared by writing and not given back to the kernel; a page fault costs
/// more than clearing a few pages.
const RESIDENT_BYTES: usize = 64 << 10;

/// Engine, threads and clock.
#[derive(Debug)]
pub(super) struct GuestEngine {
    engine: Engine,
    /// `None` only while being dropped.
    runtimes: Option<Runtimes>,
    nobody: Nobody,
    ticker: Arc<Ticker>,
}

/// Two, because what reads tools' folders and writes the cache has the server's rights, and guests must not.
#[derive(Debug)]
struct Runtimes {
    guests: Runtime,
    compiling: Runtime,
}

/// Why there is no engine.
#[derive(Debug, thiserror::Error)]
pub enum WasmEngineError {
    /// Usually: not enough address space for the pool.
    #[error("the WASM engine could not be made")]
    Engine(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Threads could not be started.
    #[error("the threads for WASM guests could not be started")]
    Threads(#[source] std::io::Error),
}

impl GuestEngine {
    /// Reserves the pool and starts the threads.
    pub(super) fn start(settings: &WasmConfig) -> Result<Self, WasmEngineError> {
        let engine = Engine::new(&config(settings)).map_err(|error| WasmEngineError::Engine(error.into()))?;
        let threads = settings.threads.unwrap_or_else(|| thread::available_parallelism().map_or(1, Into::into));
        let nobody = Nobody::default();
        let becoming = nobody.clone();
        let guests = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("gantry-wasm")
            .on_thread_start(move || becoming.become_it())
            .enable_all()
            .build()
            .map_err(WasmEngineError::Threads)?;
        let compiling = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .max_blocking_threads(COMPILING_THREADS_MAX)
            .thread_name("gantry-wasm-compiler")
            .build()
            .map_err(WasmEngineError::Threads)?;
        let ticker = Ticker::start(engine.weak(), settings.tick).map_err(WasmEngineError::Threads)?;
        Ok(Self { engine, runtimes: Some(Runtimes { guests, compiling }), nobody, ticker })
    }

    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where guests are spawned. `None` only while the engine is being dropped.
    pub(super) fn guest_threads(&self) -> Option<&Handle> {
        self.runtimes.as_ref().map(|runtimes| runtimes.guests.handle())
    }

    /// Where components are read and compiled. `None` only while the engine is being dropped.
    pub(super) fn compiling_threads(&self) -> Option<&Handle> {
        self.runtimes.as_ref().map(|runtimes| runtimes.compiling.handle())
    }

    /// Whether guests have nobody's rights over files.
    pub(super) fn nobody(&self) -> &Nobody {
        &self.nobody
    }

    /// Keeps the clock ticking for as long as the answer lives (ENGINE-2).
    pub(super) fn ticking(&self) -> Ticking {
        self.ticker.running.fetch_add(1, Ordering::AcqRel);
        self.ticker.thread.unpark();
        Ticking { ticker: Arc::clone(&self.ticker) }
    }
}

impl Drop for GuestEngine {
    fn drop(&mut self) {
        // A runtime dropped inside another one would have to block, which is a panic there. Guests end at their next
        // tick; nobody waits for them.
        if let Some(Runtimes { guests, compiling }) = self.runtimes.take() {
            guests.shutdown_background();
            compiling.shutdown_background();
        }
        self.ticker.ended.store(1, Ordering::Release);
        self.ticker.thread.unpark();
    }
}

fn config(settings: &WasmConfig) -> Config {
    let calls = settings.calls_max;
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(calls)
        .max_core_instances_per_component(MODULES_PER_COMPONENT)
        .total_core_instances(calls.saturating_mul(MODULES_PER_COMPONENT))
        .max_memories_per_component(MEMORIES_PER_COMPONENT)
        .total_memories(calls.saturating_mul(MEMORIES_PER_COMPONENT))
        .max_tables_per_component(TABLES_PER_COMPONENT)
        .max_tables_per_module(TABLES_PER_COMPONENT)
        .total_tables(calls.saturating_mul(TABLES_PER_COMPONENT))
        .table_elements(settings.table_elements_max)
        .total_stacks(calls)
        .total_gc_heaps(calls)
        .max_unused_warm_slots(calls)
        .linear_memory_keep_resident(RESIDENT_BYTES)
        .table_keep_resident(RESIDENT_BYTES);
    let mut config = Config::new();
    config
        .allocation_strategy(InstanceAllocationStrategy::Pooling(pool))
        .epoch_interruption(true)
        .max_wasm_stack(GUEST_STACK_BYTES)
        .async_stack_size(CALL_STACK_BYTES)
        // Less language is less to go wrong: tools are built for what every toolchain of WASI 0.2 makes.
        .wasm_gc(false)
        .wasm_memory64(false)
        .relaxed_simd_deterministic(true);
    config
}

// ----------------------------------------------------------------------------------------------------------- Ticker

/// The thread that advances the engine's epoch.
#[derive(Debug)]
struct Ticker {
    thread: thread::Thread,
    /// Guests that may run now.
    running: Arc<AtomicUsize>,
    /// Not zero once the engine is gone.
    ended: Arc<AtomicUsize>,
}

impl Ticker {
    fn start(engine: EngineWeak, tick: Duration) -> std::io::Result<Arc<Self>> {
        let (running, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (guests, end) = (Arc::clone(&running), Arc::clone(&ended));
        let handle = thread::Builder::new().name("gantry-wasm-tick".into()).spawn(move || {
            while end.load(Ordering::Acquire) == 0 {
                if guests.load(Ordering::Acquire) == 0 {
                    // Parking may end by itself, or before it began: both only look again.
                    thread::park();
                    continue;
                }
                thread::sleep(tick);
                let Some(engine) = engine.upgrade() else { return };
                engine.increment_epoch();
            }
        })?;
        Ok(Arc::new(Self { thread: handle.thread().clone(), running, ended }))
    }
}

/// A guest that may run.
#[derive(Debug)]
pub(super) struct Ticking {
    ticker: Arc<Ticker>,
}

impl Drop for Ticking {
    fn drop(&mut self) {
        self.ticker.running.fetch_sub(1, Ordering::AcqRel);
    }
}
