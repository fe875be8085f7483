//! What every test here needs: servers that can be kept, calls of their tools, and waits that end.

use std::borrow::Cow;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use contract::canonical::Digest;
use contract::error::Refusal;
use contract::ids::TenantId;
use contract::manifest::{Isolation, Manifest};
use contract::schema::PartMarks;
use executors::{OperatorReach, RuntimePrograms, SandboxProvider, ToolConfinement};
use gantry_upstreams::admission::{ServerAdmission, TenantLists};
use gantry_upstreams::spec::{EraChoice, LifeBounds, RelayedQuestions, ServerReach, ServerSetting, ServerSpec, SetBy};
use gantry_upstreams::{
    ServerDefinition, ServerState, UpstreamBounds, UpstreamEvent, UpstreamExecutor, UpstreamObserver, UpstreamParts,
    UpstreamServers, UpstreamWatcher,
};
use ports::clock::{Clock, UnixMillis};
use ports::entropy::Entropy;
use ports::executor::{CallTrace, Executor as _, ToolCall};
use ports::lifecycle::Lifecycle;
use ports::redactor::{RedactError, Redactor};
use ports::registry_store::StoredVersion;
use ports::resolved_limits::ResolvedLimits;
use ports::secret_source::{SecretError, SecretSource, SecretValue};
use ports::tool_companion::{
    CallerAnswer, LogLevel, QuestionKind, SilentCompanion, ToolCompanion, ToolProgress, ToolQuestion, nobody_to_ask,
};
use ports::tool_version::ToolVersion;
use sandbox::egress::{EgressBounds, HostResolver, SystemResolver};
use sandbox::{LauncherCommand, Sandbox};
use serde_json::{Value, json};

/// Longest wait for anything.
const DEADLINE: Duration = Duration::from_secs(30);

/// Goes as the machine's clock does.
#[derive(Debug)]
pub(crate) struct RunningClock(tokio::time::Instant);

impl Clock for RunningClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_772_368_245_678).plus(self.0.elapsed())
    }
    fn monotonic(&self) -> Duration {
        self.0.elapsed()
    }
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(tokio::time::sleep(span))
    }
}

/// Counts instead of throwing dice.
#[derive(Debug, Default)]
struct Counted(AtomicU32);

impl Entropy for Counted {
    fn fill(&self, bytes: &mut [u8]) {
        let n = self.0.fetch_add(0x1357_9bdf, Ordering::Relaxed).to_ne_bytes();
        bytes.iter_mut().zip(n.iter().cycle()).for_each(|(byte, n)| *byte = *n);
    }
}

/// Has `key` for everybody, with the tenant's name in it.
#[derive(Debug)]
struct Keys;

#[async_trait]
impl SecretSource for Keys {
    async fn secret(&self, tenant: &TenantId, name: &str) -> Result<SecretValue, SecretError> {
        match name {
            "key" => Ok(SecretValue::new(format!("secret-of-{tenant}\n")).unwrap()),
            _ => Err(SecretError::Missing),
        }
    }
}

/// Hides nothing.
#[derive(Debug)]
struct AsItIs;

impl Redactor for AsItIs {
    fn value(&self, value: &Value, _: Option<&PartMarks<'_>>) -> Result<Value, RedactError> {
        Ok(value.clone())
    }
    fn fields(&self, _: &Value, _: Option<&PartMarks<'_>>) -> Result<Option<Value>, RedactError> {
        Ok(None)
    }
    fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        text.into()
    }
    fn members(&self, _: &mut Value, _: &[Box<str>]) {}
}

/// Keeps what a tool said, and answers what it asks by what it was given.
#[derive(Debug, Default)]
pub(crate) struct Listener {
    pub(crate) heard: Mutex<Vec<String>>,
    pub(crate) answer: Option<Value>,
}

#[async_trait]
impl ToolCompanion for Listener {
    fn progress(&self, progress: ToolProgress) {
        let percent = progress.percent.unwrap_or(-1.0);
        self.heard.lock().unwrap().push(format!("progress {percent} {}", progress.message.unwrap_or_default()));
    }
    fn log(&self, level: LogLevel, message: &str) {
        self.heard.lock().unwrap().push(format!("{} {message}", level.as_str()));
    }
    async fn checkpoint(&self, _: ports::tool_companion::ToolSnapshot) -> Result<String, Refusal> {
        Err(ports::tool_companion::no_checkpoints())
    }
    async fn document(&self, _: &str) -> Result<Value, Refusal> {
        Err(ports::tool_companion::no_documents())
    }
    fn can_be_asked(&self) -> Vec<(QuestionKind, Value)> {
        let kinds = [QuestionKind::Elicitation, QuestionKind::Sampling, QuestionKind::Roots];
        kinds.into_iter().filter(|_| self.answer.is_some()).map(|kind| (kind, serde_json::json!({}))).collect()
    }
    async fn ask(&self, questions: Vec<ToolQuestion>) -> Result<Vec<CallerAnswer>, Refusal> {
        let value = self.answer.clone().ok_or_else(nobody_to_ask)?;
        self.heard.lock().unwrap().extend(questions.iter().map(|one| format!("asked {}", one.kind.method())));
        Ok(questions.into_iter().map(|one| CallerAnswer { key: one.key, value: value.clone() }).collect())
    }
}

/// Keeps what is told of servers.
#[derive(Debug, Default)]
pub(crate) struct Watching {
    pub(crate) changed: AtomicU32,
    pub(crate) availability: Mutex<Vec<bool>>,
}

impl UpstreamWatcher for Watching {
    fn tools_changed(&self, _: &TenantId, _: &str) {
        self.changed.fetch_add(1, Ordering::SeqCst);
    }
    fn availability(&self, _: &TenantId, _: &str, available: bool) {
        self.availability.lock().unwrap().push(available);
    }
}

/// Servers, and a folder for what they leave behind.
pub(crate) struct Rig {
    pub(crate) upstreams: Arc<UpstreamServers>,
    pub(crate) executor: UpstreamExecutor,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) watching: Arc<Watching>,
    pub(crate) counted: Arc<EventLog>,
}

/// Keeps what was to be counted.
#[derive(Debug, Default)]
pub(crate) struct EventLog(Mutex<Vec<(Option<String>, UpstreamEvent)>>);

impl UpstreamObserver for EventLog {
    fn happened(&self, server: Option<&str>, event: UpstreamEvent) {
        self.0.lock().unwrap().push((server.map(str::to_owned), event));
    }
}

impl EventLog {
    /// How often something happened.
    pub(crate) fn times(&self, is_it: impl Fn(&UpstreamEvent) -> bool) -> usize {
        self.0.lock().unwrap().iter().filter(|(_, event)| is_it(event)).count()
    }

    /// Servers in a state, as somebody sees it who only adds up what was told.
    pub(crate) fn standing(&self, state: ServerState) -> usize {
        let told = self.0.lock().unwrap();
        let moves = told.iter().filter_map(|(_, event)| match event {
            UpstreamEvent::Moved { from, to } => Some((*from, *to)),
            _ => None,
        });
        moves.fold(0, |count, (from, to)| count + usize::from(to == Some(state)) - usize::from(from == Some(state)))
    }

    /// The names that were told.
    pub(crate) fn names(&self) -> std::collections::BTreeSet<Option<String>> {
        self.0.lock().unwrap().iter().map(|(name, _)| name.clone()).collect()
    }
}

pub(crate) fn home() -> TenantId {
    TenantId::home()
}

/// Short spans, so that a test sees many of them.
pub(crate) fn bounds() -> UpstreamBounds {
    UpstreamBounds {
        pause_first: Duration::from_millis(20),
        pause_max: Duration::from_millis(100),
        probe_every: Duration::from_millis(300),
        heartbeat_patience: Duration::from_millis(500),
        drain_max: Duration::from_secs(10),
        stop_patience: Duration::from_millis(500),
        terminate_patience: Duration::from_millis(500),
        ..UpstreamBounds::default()
    }
}

/// Resolves every name to this machine, so many times, and then as it was told.
#[derive(Debug)]
pub(crate) struct FailingResolver {
    pub(crate) asked: AtomicU32,
    pub(crate) good: u32,
    pub(crate) then: ThenResolved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ThenResolved {
    Never,
    /// To an address where nobody listens.
    Elsewhere,
}

#[async_trait]
impl HostResolver for FailingResolver {
    async fn resolve(&self, _: &str) -> std::io::Result<Vec<std::net::IpAddr>> {
        let good = self.asked.fetch_add(1, Ordering::SeqCst) < self.good;
        match self.then {
            _ if good => Ok(vec![std::net::Ipv4Addr::LOCALHOST.into()]),
            ThenResolved::Elsewhere => Ok(vec![std::net::Ipv4Addr::new(127, 0, 0, 77).into()]),
            ThenResolved::Never => std::future::pending().await,
        }
    }
}

impl Rig {
    pub(crate) fn new() -> Self {
        Self::with(bounds())
    }

    pub(crate) fn with(bounds: UpstreamBounds) -> Self {
        Self::resolving(bounds, &(Arc::new(SystemResolver) as Arc<dyn HostResolver>))
    }

    /// One whose names are resolved so.
    pub(crate) fn resolving(bounds: UpstreamBounds, resolver: &Arc<dyn HostResolver>) -> Self {
        let launch = LauncherCommand {
            program: env!("CARGO_BIN_EXE_gantry-upstreams-test-launcher").into(),
            arguments: Vec::new(),
        };
        let walls = SandboxProvider::new(Sandbox::new(launch, 64), RuntimePrograms::default());
        let secrets: Arc<dyn SecretSource> = Arc::new(Keys);
        let confinement =
            ToolConfinement::new(OperatorReach::default(), Arc::clone(&secrets), Arc::new(SystemResolver));
        let folder = tempfile::tempdir().unwrap();
        // Sandboxes run as nobody.
        let marks = folder.path().join("marks");
        std::fs::create_dir(&marks).unwrap();
        let open: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        std::fs::set_permissions(&marks, open).unwrap();
        let passable: std::fs::Permissions = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), passable).unwrap();
        let counted = Arc::new(EventLog::default());
        let admission = ServerAdmission::new(&EgressBounds::default(), &[], TenantLists::default(), resolver);
        let parts = UpstreamParts {
            admission: Arc::new(admission),
            walls,
            confinement,
            secrets,
            redactor: Arc::new(AsItIs),
            clock: Arc::new(RunningClock(tokio::time::Instant::now())),
            entropy: Arc::new(Counted::default()),
            log_dir: folder.path().join("logs"),
            packages: folder.path().join("packages"),
            limits: ResolvedLimits::default(),
            bounds,
            observer: Arc::clone(&counted) as _,
        };
        let upstreams = UpstreamServers::new(parts);
        let watching = Arc::new(Watching::default());
        upstreams.watch(Arc::clone(&watching) as _);
        let executor = UpstreamExecutor::new(Arc::clone(&upstreams));
        Self { upstreams, executor, folder, watching, counted }
    }

    /// With one server, the misbehaving one with these switches.
    pub(crate) fn misbehaving(switches: &[&str]) -> Self {
        let rig = Self::new();
        rig.apply(rig.spec(switches));
        rig
    }

    /// Everything its log holds, whether or not the server is still known.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("logs/misbehaving.log")).unwrap_or_default()
    }

    /// Processes of this machine that were started for this rig.
    pub(crate) fn processes(&self) -> Vec<String> {
        let own = self.marks().to_str().unwrap().to_owned();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let lines = all.filter_map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).ok());
        lines.filter(|line| line.contains(&own)).collect()
    }

    /// The misbehaving server with these switches; it may leave files in `marks`.
    pub(crate) fn spec(&self, switches: &[&str]) -> ServerSpec {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/servers/misbehaving.py");
        let marks = self.marks();
        let mut args: Vec<String> =
            vec![script.to_str().unwrap().into(), "--marks".into(), marks.to_str().unwrap().into()];
        args.extend(switches.iter().map(|one| (*one).to_owned()));
        let permissions = vec![
            format!("filesystem:read:{}", script.parent().unwrap().to_str().unwrap()),
            format!("filesystem:write:{}", marks.to_str().unwrap()),
        ];
        let env = [("KEY".to_owned(), ServerSetting::Secret { secret: "key".into() })].into();
        spec(ServerReach::Stdio {
            command: "/usr/bin/python3".into(),
            args,
            cwd: None,
            env,
            permissions,
            package: None,
        })
    }

    /// One server with the name `misbehaving`.
    pub(crate) fn apply(&self, spec: ServerSpec) {
        self.upstreams.apply(vec![ServerDefinition { tenant: home(), name: "misbehaving".into(), spec }]);
    }

    fn marks(&self) -> PathBuf {
        self.folder.path().join("marks")
    }

    /// How many files of a name the server has left.
    pub(crate) fn marked(&self, name: &str) -> usize {
        let entries = std::fs::read_dir(self.marks()).unwrap();
        let named = |entry: &std::fs::DirEntry| entry.file_name().to_str().unwrap().starts_with(&format!("{name}-"));
        entries.map(Result::unwrap).filter(named).count()
    }

    pub(crate) async fn call(&self, tool: &str, parameters: Value) -> Result<Value, Refusal> {
        self.run(call(tool, "pure", parameters)).await
    }

    /// Of a tool nobody has classified.
    pub(crate) async fn call_unclassified(&self, tool: &str, parameters: Value) -> Result<Value, Refusal> {
        self.run(call(tool, "unclassified", parameters)).await
    }

    pub(crate) async fn run(&self, call: ToolCall) -> Result<Value, Refusal> {
        match tokio::time::timeout(DEADLINE, self.executor.execute(call)).await {
            Ok(outcome) => outcome.map(|output| output.value).map_err(|error| error.refusal),
            Err(_) => panic!("a call hangs: {:?}", self.upstreams.status()),
        }
    }

    pub(crate) fn state(&self) -> ServerState {
        self.upstreams.status()[0].state
    }

    /// Waits until something is so.
    pub(crate) async fn until(&self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let waiting = async {
            while !holds(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(DEADLINE, waiting).await.is_err() {
            panic!("waited in vain until {what}: {:?}", self.upstreams.status());
        }
    }
}

pub(crate) fn spec(reach: ServerReach) -> ServerSpec {
    let upkeep = LifeBounds { min_uptime_seconds: 1, start_timeout_seconds: 20, ..LifeBounds::default() };
    ServerSpec {
        reach,
        fallbacks: Vec::new(),
        namespace: None,
        disabled: false,
        shareable: false,
        era: EraChoice::Auto,
        relay: RelayedQuestions::careful(),
        resources: false,
        prompts: false,
        upkeep,
        set_by: SetBy::Operator,
    }
}

/// A call of one tool of the server `misbehaving`.
pub(crate) fn call(tool: &str, policy: &str, parameters: Value) -> ToolCall {
    let manifest = json!({
        "tool_id": tool, "namespace": "misbehaving", "version": "1.0.0", "name": tool, "provider": "Test",
        "description": "A tool of a server behind Gantry.", "protocol": "mcp", "side_effect_policy": policy,
        "timeout_class": "standard", "parameters": { "type": "object" }, "result_schema": { "type": "object" },
        "execution": { "type": "mcp", "server": "misbehaving", "tool": tool },
    });
    let manifest = Manifest::from_value(manifest).unwrap();
    let tool = Arc::new(ToolVersion::new(StoredVersion {
        tenant: home(),
        tool: manifest.id().unwrap(),
        version: manifest.version.clone(),
        manifest,
        digest: Digest::of_bytes(b"test"),
        lifecycle: Lifecycle::default(),
        published_at: UnixMillis(0),
        published_by: "admin".parse().unwrap(),
    }));
    ToolCall {
        endpoint: 0,
        invocation_id: "00000000-0000-7000-8000-000000000001".parse().unwrap(),
        trace_id: contract::ids::TraceId::from_bytes([1; 16]),
        trace: CallTrace::unrecorded(contract::ids::TraceId::from_bytes([1; 16])),
        tool,
        parameters: Arc::new(parameters),
        tenant: home(),
        subject: "admin".parse().unwrap(),
        user: None,
        agent: "admin".parse().unwrap(),
        time_left: Duration::from_secs(20),
        deadline: None,
        limits: ResolvedLimits::default(),
        isolation: Isolation::Builtin,
        companion: SilentCompanion::new(),
        resume: None,
        dispatch: Arc::default(),
        usage_at_end: Arc::default(),
        program_log: Arc::default(),
        idempotency_key: "key-of-the-act".into(),
    }
}

/// The text of the first block of a result.
pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}
