//! The door itself: the kernel behind it, its limits, and what it knows about its own state.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use affordances::TokenCounters;
use contract::error::{ErrorCode, Refusal};
use contract::json::JsonLimits;
use fair_places::{FairPermit, FairPlaces, PlaceBounds, PlaceUsage};
use http::HeaderMap;
use http::request::Parts;
use insights::InsightQueries;
use jobs::Jobs;
use jobs::inbound_jobs::InboundJobs;
use jobs::membership::Membership;
use jobs::webhooks::Webhooks;
use kernel::Kernel;
use policy::Caller;
use ports::server_administration::ServerAdministration;
use ports::shared_state::SharedState;
use ports::tool_folders::ToolFolders;
use telemetry::LogControl;
use tokio::sync::Semaphore;

use crate::config::{SPARE_MIN, ServerConfig};
use crate::connections::ConnectionLimits;
use crate::incoming_request::CallerCredential;
use crate::mcp::config::McpConfig;
use crate::mcp::{McpDoor, McpState, SessionKey};
use crate::origin::{self, HostNames};
use crate::orphaned_work::{OrphanedWork, UninterruptedFuture};
use crate::problem::{RefusalResponse, wrong_way};
use crate::requests::RequestPlaces;
use crate::routes::health::HealthProbe;

/// Streams of events, and clients that wait for tasks, that may be open at once; three quarters of them one tenant's.
const WATCHERS_MAX: usize = 512;
/// How long a caller should wait when too many calls run.
const BUSY_RETRY_AFTER_MS: u64 = 1000;

/// Makes the text of `/metrics`.
#[derive(Clone)]
pub struct MetricsText(Arc<dyn Fn() -> String + Send + Sync>);

impl MetricsText {
    /// From whatever renders them.
    pub fn new(render: impl Fn() -> String + Send + Sync + 'static) -> Self {
        Self(Arc::new(render))
    }

    pub(crate) fn render(&self) -> String {
        (self.0)()
    }
}

impl fmt::Debug for MetricsText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MetricsText(…)")
    }
}

/// Says how many bytes are left where the data is, and how many there should be.
#[derive(Clone)]
pub struct FreeSpace {
    left: Arc<dyn Fn() -> Option<u64> + Send + Sync>,
    bytes_min: u64,
}

impl FreeSpace {
    /// From whatever looks; `None` from it means that it cannot be seen.
    pub fn new(bytes_min: u64, left: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self { left: Arc::new(left), bytes_min }
    }

    pub(crate) fn is_enough(&self) -> bool {
        (self.left)().is_some_and(|left| left >= self.bytes_min)
    }
}

impl fmt::Debug for FreeSpace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FreeSpace").field("bytes_min", &self.bytes_min).finish_non_exhaustive()
    }
}

/// What a door is made of. Each member that may be missing says what is absent then.
#[derive(Debug)]
pub struct DoorParts {
    /// Who is asked. Its bounds are those of `config`.
    pub kernel: Arc<Kernel>,
    /// Renders the metrics of the process.
    pub metrics: MetricsText,
    /// Limits of this door, validated.
    pub config: ServerConfig,
    /// The MCP door beside it, validated.
    pub mcp: McpConfig,
    /// What seals ids of MCP sessions of older clients, which then go on at any instance that has it. Without it each is served
    /// where it began.
    pub session_key: Option<SessionKey>,
    /// What was learned from calls. Without it nobody keeps account of use and health.
    pub insights: Option<Arc<InsightQueries>>,
    /// MCP servers behind Gantry. Without it there are none.
    pub servers: Option<Arc<dyn ServerAdministration>>,
    /// Tells of ends. Without it there are no webhooks.
    pub webhooks: Option<Arc<Webhooks>>,
    /// Takes signed jobs of other queues. Without it that door is closed.
    pub inbound_jobs: Option<Arc<InboundJobs>>,
    /// Keeps calls that outlive their request. Without it every call is waited for.
    pub jobs: Option<Arc<Jobs>>,
    /// Space on the disk. Without it nobody looks.
    pub free_space: Option<FreeSpace>,
    /// What replicas share. Without it nobody asks how it is.
    pub shared_state: Option<Arc<dyn SharedState>>,
    /// Which instances there are. Without it nobody knows.
    pub membership: Option<Arc<Membership>>,
    /// Changes the level of the log. Without it nobody can.
    pub log: Option<LogControl>,
    /// Looks at tool folders. Without it nobody does.
    pub tool_folders: Option<Arc<dyn ToolFolders>>,
}

impl DoorParts {
    /// A door to `kernel` as it is without configuration, with nothing beside it.
    pub fn of_kernel(kernel: Arc<Kernel>, metrics: MetricsText) -> Self {
        Self {
            kernel,
            metrics,
            config: ServerConfig::default(),
            mcp: McpConfig::default(),
            session_key: None,
            insights: None,
            servers: None,
            webhooks: None,
            inbound_jobs: None,
            jobs: None,
            free_space: None,
            shared_state: None,
            membership: None,
            log: None,
            tool_folders: None,
        }
    }
}

/// The state that all requests share.
#[derive(Debug)]
pub struct Door {
    kernel: Arc<Kernel>,
    config: ServerConfig,
    metrics: MetricsText,
    /// Room for calls that came through this door, whatever they wait for, shared by tenants and agents. The kernel bounds those
    /// that run and those that wait to; before that a call may wait for a policy engine outside.
    calls: Arc<FairPlaces>,
    /// Room for everything else that is carried to its end.
    other_work: Arc<Semaphore>,
    connections: Arc<ConnectionLimits>,
    orphans: Arc<OrphanedWork>,
    counters: Arc<TokenCounters>,
    probe: HealthProbe,
    insights: Option<Arc<InsightQueries>>,
    servers: Option<Arc<dyn ServerAdministration>>,
    webhooks: Option<Arc<Webhooks>>,
    inbound_jobs: Option<Arc<InboundJobs>>,
    jobs: Option<Arc<Jobs>>,
    free_space: Option<FreeSpace>,
    shared_state: Option<Arc<dyn SharedState>>,
    membership: Option<Arc<Membership>>,
    log: Option<LogControl>,
    tool_folders: Option<Arc<dyn ToolFolders>>,
    /// Room for those who watch jobs, shared by tenants and agents.
    watchers: Arc<FairPlaces>,
    /// Room for requests that are no calls, shared likewise.
    requests: RequestPlaces,
    mcp: McpDoor,
    draining: AtomicBool,
    on_loopback: AtomicBool,
}

impl Door {
    /// From its parts, whole: nothing is added to it afterwards.
    pub fn new(parts: DoorParts) -> Arc<Self> {
        let DoorParts { kernel, metrics, config, mcp, session_key, .. } = parts;
        // Who runs and who waits is the kernel's to decide, once it knows whose call it is; here is a bound for all of it.
        let all = config.calls_let_in();
        let mcp = McpDoor::new(mcp, session_key.as_ref(), &kernel);
        Arc::new(Self {
            calls: FairPlaces::new(PlaceBounds { capacity: all, per_flow: all, waiting: 0 }),
            other_work: Arc::new(Semaphore::new(other_work_max(&config))),
            connections: ConnectionLimits::new(config.connections_max),
            requests: RequestPlaces::new(&config),
            mcp,
            kernel,
            config,
            metrics,
            orphans: Arc::default(),
            counters: Arc::default(),
            probe: HealthProbe::default(),
            insights: parts.insights,
            servers: parts.servers,
            webhooks: parts.webhooks,
            inbound_jobs: parts.inbound_jobs,
            jobs: parts.jobs,
            free_space: parts.free_space,
            shared_state: parts.shared_state,
            membership: parts.membership,
            log: parts.log,
            tool_folders: parts.tool_folders,
            watchers: FairPlaces::new(PlaceBounds { capacity: WATCHERS_MAX, per_flow: WATCHERS_MAX, waiting: 0 }),
            draining: AtomicBool::new(false),
            on_loopback: AtomicBool::new(false),
        })
    }

    /// What was learned from calls, or the refusal of a server where nobody learns.
    pub(crate) fn insights(&self) -> Result<&InsightQueries, Refusal> {
        self.insights.as_deref().ok_or_else(|| {
            Refusal::new(ErrorCode::E3010, "this server keeps no account of use and health")
                .hint("ask one that `gantry serve` has started")
        })
    }

    pub(crate) fn servers(&self) -> Option<Arc<dyn ServerAdministration>> {
        self.servers.clone()
    }

    pub(crate) fn webhooks(&self) -> Option<Arc<Webhooks>> {
        self.webhooks.clone()
    }

    pub(crate) fn inbound_jobs(&self) -> Option<Arc<InboundJobs>> {
        self.inbound_jobs.clone()
    }

    pub(crate) fn jobs(&self) -> Option<&Arc<Jobs>> {
        self.jobs.as_ref()
    }

    pub(crate) fn free_space(&self) -> Option<&FreeSpace> {
        self.free_space.as_ref()
    }

    pub(crate) fn shared_state(&self) -> Option<&Arc<dyn SharedState>> {
        self.shared_state.as_ref()
    }

    pub(crate) fn membership(&self) -> Option<&Arc<Membership>> {
        self.membership.as_ref()
    }

    pub(crate) fn log(&self) -> Option<&LogControl> {
        self.log.as_ref()
    }

    pub(crate) fn tool_folders(&self) -> Option<Arc<dyn ToolFolders>> {
        self.tool_folders.clone()
    }

    /// Room for one more who watches a job, if its caller may have it.
    pub(crate) fn watcher(&self, caller: &Caller) -> Option<FairPermit> {
        self.watchers.take(caller.tenant(), caller.root_subject().as_str())
    }

    /// How much is used of what this door itself shares out.
    pub(crate) fn places(&self) -> [(&'static str, PlaceUsage); 3] {
        let (watchers, requests) = (self.watchers.usage(), self.requests.usage());
        [("event_streams", watchers), ("requests", requests), ("accepted_calls", self.calls.usage())]
    }

    /// A place for a request that is no call, now or in its turn.
    pub(crate) async fn request_place(&self, caller: &Caller) -> Result<FairPermit, Refusal> {
        self.requests.take(caller, self.kernel.clock()).await
    }

    /// The same credential with a place for a request that is no call.
    pub(crate) async fn placed(&self, who: &CallerCredential) -> Result<CallerCredential, Refusal> {
        let caller = self.kernel.recognise(who.actor()).await?;
        Ok(who.holding(self.request_place(&caller).await?))
    }

    pub(crate) fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// The kernel, for work that outlives its handler.
    pub(crate) fn shared_kernel(&self) -> Arc<Kernel> {
        Arc::clone(&self.kernel)
    }

    pub(crate) fn mcp(&self) -> &McpDoor {
        &self.mcp
    }

    /// How much the MCP door holds at the moment.
    pub async fn mcp_state(&self) -> McpState {
        self.mcp.state().await
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.config
    }

    pub(crate) fn metrics(&self) -> &MetricsText {
        &self.metrics
    }

    pub(crate) fn probe(&self) -> &HealthProbe {
        &self.probe
    }

    pub(crate) fn connections(&self) -> &Arc<ConnectionLimits> {
        &self.connections
    }

    pub(crate) fn orphans(&self) -> &OrphanedWork {
        &self.orphans
    }

    /// Whoever packs for a model counts with these; they share tables and memory.
    pub(crate) fn counters(&self) -> Arc<TokenCounters> {
        Arc::clone(&self.counters)
    }

    /// Limits for JSON in bodies: the body limit decides about size.
    pub(crate) fn json_limits(&self) -> JsonLimits {
        let bytes_max = self.config.body_bytes_max;
        JsonLimits { bytes_max, string_bytes_max: bytes_max, ..JsonLimits::default() }
    }

    /// May metrics be read without a token? Unless the operator says so, only by whoever is on this machine and calls it by a
    /// name of its own: under another name a proxy hands on what comes from elsewhere.
    pub(crate) fn metrics_are_public(&self, headers: &HeaderMap) -> bool {
        let from_here = || self.is_on_loopback() && origin::names_loopback(headers);
        self.config.metrics_public.unwrap_or_else(from_here)
    }

    pub(crate) fn is_on_loopback(&self) -> bool {
        self.on_loopback.load(Ordering::Relaxed)
    }

    /// Refuses a request that calls this server by a name that is not its own (DNS rebinding). One rule for every door.
    pub(crate) fn called_by_name(&self, request: &Parts, is_mcp: bool) -> Result<(), RefusalResponse> {
        let (rest, mcp) = (&self.config.allowed_hosts, &self.mcp.config.allowed_hosts);
        let on_loopback = self.is_on_loopback();
        let named_only = on_loopback || !rest.is_empty() || (is_mcp && !mcp.is_empty());
        let headers = &request.headers;
        if origin::is_one_host(&request.uri, headers)
            && origin::host_is_fine(headers, HostNames { allowed: [rest, mcp], named_only, on_loopback })
        {
            return Ok(());
        }
        Err(wrong_way("host", if is_mcp { "mcp.allowed_hosts" } else { "server.allowed_hosts" }))
    }

    pub(crate) fn listens_on_loopback(&self, yes: bool) {
        self.on_loopback.store(yes, Ordering::Relaxed);
    }

    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Nothing new is accepted any more: streams that only listen end, calls go on.
    pub(crate) fn stop_listening(&self) {
        self.mcp.end();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Relaxed)
    }

    /// How many calls, and how much else that is carried to its end, are under way at the moment.
    pub(crate) fn calls_running(&self) -> usize {
        let other_work = other_work_max(&self.config).saturating_sub(self.other_work.available_permits());
        self.calls.usage().held.saturating_add(other_work)
    }

    /// Carries `work` that is no call to its end, if there is room for one more. Whoever asks for it has a place among the
    /// requests, which tenants share.
    pub(crate) async fn carry_to_end<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, RefusalResponse>> + Send + 'static,
    ) -> Result<T, RefusalResponse> {
        let permit = Arc::clone(&self.other_work).try_acquire_owned().map_err(|_| busy())?;
        self.carry_holding(permit, work).await
    }

    /// Carries a call to its end, if there is room for one more of this caller.
    pub(crate) async fn carry_call_to_end<T: Send + 'static>(
        &self,
        caller: &Caller,
        work: impl Future<Output = Result<T, RefusalResponse>> + Send + 'static,
    ) -> Result<T, RefusalResponse> {
        let place = self.call_place(caller)?;
        self.carry_holding(place, work).await
    }

    async fn carry_holding<T: Send + 'static>(
        &self,
        held: impl Send + 'static,
        work: impl Future<Output = Result<T, RefusalResponse>> + Send + 'static,
    ) -> Result<T, RefusalResponse> {
        let work = async move {
            let outcome = work.await;
            drop(held);
            outcome
        };
        UninterruptedFuture::new(work, Arc::clone(&self.orphans)).await
    }

    /// Carries a call to its end in a task of its own, if there is room for one more of this caller.
    pub(crate) fn carry_call(
        &self,
        caller: &Caller,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> Result<(), Refusal> {
        let place = self.call_place(caller)?;
        self.orphans.take(async move {
            work.await;
            drop(place);
        });
        Ok(())
    }

    fn call_place(&self, caller: &Caller) -> Result<FairPermit, Refusal> {
        self.calls.take(caller.tenant(), caller.root_subject().as_str()).ok_or_else(busy)
    }
}

/// Requests that are no calls, and what comes signed and not by a token.
fn other_work_max(config: &ServerConfig) -> usize {
    config.requests_max.saturating_add(SPARE_MIN).min(Semaphore::MAX_PERMITS)
}

fn busy() -> Refusal {
    let refusal = Refusal::new(ErrorCode::E3001, "too many calls run at the moment")
        .hint("nothing was run; try again in a second");
    Refusal { retry_after_ms: Some(BUSY_RETRY_AFTER_MS), ..refusal }
}
