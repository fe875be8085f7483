//! The server that is measured with and without a record: the product's kernel, door and built-in tools over the in-memory
//! store, with ports for what is recorded that are real or do nothing.
//!
//! The call that is measured touches no store, so that one is left out. Everything else is put together as `gantry serve` does
//! it. It runs in a process of its own and ends when its standard input does.

use std::borrow::Cow;
use std::io::Read as _;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use async_trait::async_trait;
use base::SaturatingFrom as _;
use contract::ids::TraceId;
use contract::schema::{PartMarks, Sensitivity};
use executors::BuiltinExecutor;
use kernel::registry::Registry;
use kernel::{
    AccessControl, AccessParts, AccessSettings, Identity, IdentitySettings, IsolationPolicy, Kernel, KernelOptions,
    KernelParts, LedgerService, Recorder, ResourceEnvelope, TokenIssuer,
};
use policy::{BearerSecret, MintRequest, Role, SigningKey, TokenMinter, ToolGrant};
use ports::actor::Actor;
use ports::audit_sink::{AuditError, AuditRecord, AuditSink};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::key_vault::{KeyVault, KeyVaultError};
use ports::observer::{NoObserver, Observer};
use ports::offerings::NothingOffered;
use ports::redactor::{RedactError, Redactor};
use redaction::{RedactionAdditions, RedactionEngine, ValueDescription, ValuePart};
use serde_json::Value;
use server::{Door, DoorParts, MetricsText, serve};
use shared_state::MemoryBus;
use store::memory::MemoryStore;
use telemetry::{Metrics, SampleRatio, TraceConfig, TraceRedaction};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// The command that starts it.
pub(crate) const NAME: &str = "bench-harness";
/// Who publishes the tools.
const ADMIN: &str = "bench-admin";
/// Everything is called by one agent, more often at once than an agent may out of the box.
const CALLS_AT_ONCE_MAX: u32 = 256;
/// Records that wait in the queue of a log that nobody waits for, and how many of them it writes at once.
const QUEUED_RECORDS_MAX: usize = 65_536;
const GROUP_RECORDS_MAX: usize = 512;
/// How long the agent's token is good.
const TOKEN_SECONDS: u64 = 7_200;

/// What the third argument says if answers are not to wait for their records.
pub(super) const QUEUED: &str = "queued";

/// `gantry-bench bench-harness [FOLDER COLLECTOR [queued]]`: prints its address, then serves until standard input ends. With a folder and
/// the address of a collector everything is on record, without them nothing. With `queued` the log is as it must not be: it says
/// that a record is written as soon as it has it.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (gone, owner_is_gone) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        // Whatever the outcome: without a writer there is nobody left to serve.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        let _ = gone.send(());
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().context("no runtime")?;
    runtime.block_on(async {
        let recording = match arguments {
            [] => Recording::none(),
            [folder, collector] => Recording::of_everything(Path::new(folder), collector)?,
            [folder, collector, queued] if queued == QUEUED => {
                Recording::of_everything(Path::new(folder), collector)?.unwaited()
            }
            _ => {
                bail!("bench-harness wants a folder and the address of a collector, and perhaps `{QUEUED}`, or nothing")
            }
        };
        let kernel = Arc::new(built(&recording).await?);
        let listener = TcpListener::bind("127.0.0.1:0").await.context("cannot listen on loopback")?;
        println!("{}", listener.local_addr()?);
        let metrics = Arc::clone(&recording.metrics);
        let door = Door::new(DoorParts::of_kernel(kernel, MetricsText::new(move || metrics.render())));
        serve(listener, door, async {
            let _ = owner_is_gone.await;
        })
        .await;
        Ok(())
    })
}

/// A token for the agent that calls. The key is the same in every process.
pub(super) fn token() -> Result<String> {
    let wish = MintRequest {
        sub: "bench-agent".parse()?,
        tenant: "local".parse()?,
        roles: vec![Role::Agent],
        tools: vec![ToolGrant { tool_id: "*".parse()?, version_range: None }],
        scopes: vec!["tool:*".parse()?],
        user_did: None,
        session_id: None,
        ttl_seconds: TOKEN_SECONDS,
        limits: Vec::new(),
        budget: None,
        act: None,
    };
    let (token, _) = policy::mint(&wish, &signing_key(), "bench-token".into(), Machine::start().now().0)?;
    Ok(token)
}

fn signing_key() -> SigningKey {
    SigningKey::from_seed(&[7; 32])
}

// ---------------------------------------------------------------------------------------------------------- Recording

/// What hears of calls.
struct Recording {
    clock: Arc<dyn Clock>,
    entropy: Arc<dyn Entropy>,
    sink: Arc<dyn AuditSink>,
    observer: Arc<dyn Observer>,
    redactor: Arc<dyn Redactor>,
    /// Told nothing where nothing is on record.
    metrics: Arc<Metrics>,
}

impl Recording {
    fn none() -> Self {
        Self {
            clock: Arc::new(Machine::start()),
            entropy: Arc::new(Mixed::default()),
            sink: Arc::new(Nobody),
            observer: Arc::new(NoObserver),
            redactor: Arc::new(Unredacted),
            metrics: Arc::new(Metrics::new()),
        }
    }

    /// A log on disk that is signed, metrics, and every trace sent.
    fn of_everything(folder: &Path, collector: &str) -> Result<Self> {
        let Self { clock, entropy, .. } = Self::none();
        let options = ::audit::LogOptions::new(folder.join("audit.key"), Arc::clone(&clock), Arc::clone(&entropy));
        let log = Arc::new(::audit::FileLog::open(&folder.join("audit"), &options)?);
        let signed = Arc::clone(&log);
        tokio::spawn(async move { signed.keep_signing().await });
        let engine = RedactionEngine::new(&RedactionAdditions::default())?;
        let traces = TraceConfig {
            endpoint: collector.to_owned(),
            ratio: SampleRatio::ALL,
            authorization: None,
            service: "gantry".to_owned(),
        };
        let of_traces = engine.clone();
        // The sending goes on until the process ends, with or without its handle.
        let redaction = TraceRedaction::new(move |text| of_traces.text(text));
        let (metrics, _) = Metrics::with_traces(&traces, redaction, Arc::clone(&clock))?;
        let metrics = Arc::new(metrics);
        let observer = Arc::clone(&metrics) as Arc<dyn Observer>;
        Ok(Self { clock, entropy, sink: log, observer, redactor: Arc::new(Redacting(engine)), metrics })
    }

    /// The same with answers that do not wait for their records.
    fn unwaited(self) -> Self {
        let (records, mut queue) = mpsc::channel::<AuditRecord>(QUEUED_RECORDS_MAX);
        let log = Arc::clone(&self.sink);
        tokio::spawn(async move {
            let mut group = Vec::new();
            while queue.recv_many(&mut group, GROUP_RECORDS_MAX).await > 0 {
                // Nobody waits for it, and nobody is told: the measurement would have failed long before.
                let _ = log.write(std::mem::take(&mut group).into()).await;
            }
        });
        Self { sink: Arc::new(QueuedLog(records)), ..self }
    }
}

async fn built(recording: &Recording) -> Result<Kernel> {
    let Recording { clock, entropy, sink, observer, redactor, .. } = recording;
    let store = Arc::new(MemoryStore::new());
    let registry =
        Registry::open(Arc::clone(&store) as _, Arc::clone(&store) as _, Arc::clone(clock), Arc::clone(observer))
            .await?;
    let books = LedgerService::new(Arc::clone(&store) as _, Arc::clone(clock), &**entropy, Arc::clone(observer));
    let access = AccessControl::open(AccessParts {
        store,
        bus: Arc::new(MemoryBus::default()),
        engine: None,
        did_resolver: None,
        clock: Arc::clone(clock),
        observer: Arc::clone(observer),
        settings: AccessSettings::default(),
    })
    .await?;
    let key = signing_key();
    let identity = Identity::new(
        ADMIN,
        vec![key.verifying_key()],
        IdentitySettings::local(Arc::clone(clock)),
        Arc::clone(observer),
    )?;
    // The writer goes on until the process ends, with or without its handle.
    let (recorder, _) = Recorder::start(Arc::clone(sink), Arc::clone(clock), Arc::clone(observer));
    let parts = KernelParts {
        registry,
        identity,
        access,
        mint: TokenIssuer::new(key, TokenMinter::default(), Arc::new(Nobody)),
        recorder,
        books,
        executors: vec![Arc::new(BuiltinExecutor::new(Arc::clone(clock), None))],
        isolation: IsolationPolicy::default(),
        envelope: ResourceEnvelope { concurrent_calls_per_agent: CALLS_AT_ONCE_MAX, ..ResourceEnvelope::default() },
        offerings: Arc::new(NothingOffered),
        clock: Arc::clone(clock),
        entropy: Arc::clone(entropy),
        observer: Arc::clone(observer),
        redactor: Arc::clone(redactor),
    };
    let kernel = Kernel::new(parts, KernelOptions::default());
    let admin = Actor { credential: Some(BearerSecret(ADMIN)), source: None, trace_id: TraceId::from_bytes([1; 16]) };
    for manifest in executors::builtin::manifests()? {
        let published = kernel.publish(admin, serde_json::to_value(manifest)?).await;
        published.map_err(|refusal| anyhow!("{}: {}", refusal.code, refusal.message))?;
    }
    Ok(kernel)
}

// --------------------------------------------------------------------------------------------------------- the ports

/// The machine's clocks.
#[derive(Debug)]
struct Machine(Instant);

impl Machine {
    fn start() -> Self {
        Self(Instant::now())
    }
}

impl Clock for Machine {
    fn now(&self) -> UnixMillis {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        UnixMillis(i64::saturating_from(since.as_millis()))
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// Numbers that look like chance (SplitMix64) and are none: ids of calls that nobody keeps.
#[derive(Debug, Default)]
struct Mixed(AtomicU64);

impl Entropy for Mixed {
    fn fill(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let mut word = self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^= word >> 31;
            part.iter_mut().zip(word.to_le_bytes()).for_each(|(byte, new)| *byte = new);
        }
    }
}

/// The engine behind the kernel's port, as in the product.
#[derive(Debug)]
struct Redacting(RedactionEngine);

/// The marks of a schema, as the engine asks for them.
struct Described<'m>(PartMarks<'m>);

impl ValueDescription for Described<'_> {
    fn is_sensitive(&self) -> Option<bool> {
        match self.0.says() {
            Sensitivity::Unsaid => None,
            Sensitivity::Open => Some(false),
            Sensitivity::Sensitive => Some(true),
        }
    }

    fn part(&self, part: ValuePart<'_>) -> Option<Box<dyn ValueDescription + '_>> {
        let part = match part {
            ValuePart::Member(name) => self.0.member(name),
            ValuePart::Item(index) => self.0.item(index),
            ValuePart::Content => self.0.content(),
            ValuePart::Names => self.0.names(),
        };
        (!part.is_silent()).then(|| Box::new(Self(part)) as _)
    }
}

impl Redactor for Redacting {
    fn value(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        let described = marks.cloned().map(Described);
        self.0.value(value, described.as_ref().map(|it| it as _)).map_err(|error| RedactError(Box::new(error)))
    }
    fn fields(&self, value: &Value, marks: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        let described = marks.cloned().map(Described);
        self.0.fields(value, described.as_ref().map(|it| it as _)).map_err(|error| RedactError(Box::new(error)))
    }
    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.0.text(text)
    }
    fn members(&self, value: &mut Value, names: &[Box<str>]) {
        self.0.members(value, names);
    }
}

/// Hears everything and keeps nothing.
#[derive(Debug)]
struct Nobody;

#[async_trait]
impl AuditSink for Nobody {
    async fn write(&self, _: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        Ok(())
    }
}

/// A log that takes records and writes them later.
#[derive(Debug)]
struct QueuedLog(mpsc::Sender<AuditRecord>);

#[async_trait]
impl AuditSink for QueuedLog {
    async fn write(&self, records: Arc<[AuditRecord]>) -> Result<(), AuditError> {
        for record in records.iter() {
            self.0.send(record.clone()).await.map_err(|error| AuditError(error.into()))?;
        }
        Ok(())
    }

    fn write_now(&self, records: &[AuditRecord]) -> Option<Result<(), AuditError>> {
        let room = self.0.try_reserve_many(records.len()).ok()?;
        room.zip(records).for_each(|(place, record)| place.send(record.clone()));
        Some(Ok(()))
    }
}

/// Hides nothing, so that nothing is done for what was hidden.
#[derive(Debug)]
struct Unredacted;

impl Redactor for Unredacted {
    fn value(&self, value: &Value, _: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        Ok(value.clone())
    }

    fn fields(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        Ok(None)
    }

    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        text.into()
    }

    fn finds(&self, _: &str) -> bool {
        false
    }

    fn members(&self, _: &mut Value, _: &[Box<str>]) {}
}

#[async_trait]
impl KeyVault for Nobody {
    async fn replace(&self, _: &SigningKey) -> Result<(), KeyVaultError> {
        Ok(())
    }
}
