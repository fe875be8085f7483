//! What happens when Redis does not: down at the start, killed, frozen, restarted empty, full, closed to us. (RES-020)

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use contract::envelope::InvocationStatus;
use contract::error::ErrorCode;
use gantry_shared_state::bus_suite::until;
use gantry_shared_state::{FallbackSettings, FallingBack, LinkState, RedisSettings, RedisState, RedisTrouble};
use ports::change_bus::{BusChange, ChangeBus as _};
use ports::clock::{Clock, UnixMillis};
use ports::observer::{FinishedCall, Observer, ToolSpeech};
use ports::resilience::{
    BreakerAdmission, BreakerMode, BreakerSettings, BreakerVerdict, ManualMove, PermittedOutcome, RateQuota,
};
use ports::shared_state::{
    AllTaken, BreakerKey, BreakerQuery, KeyedQuota, RateLimits as _, ReplaceMode, SharedBreakers as _,
    SharedStateError, SharedValues as _,
};

use crate::server::{Server, settings, unique, within};

const LEASE: Duration = Duration::from_secs(60);
const LIFE: Duration = Duration::from_hours(1);
/// A wait that a call can afford, and that a busy machine keeps most of the time.
const IMPATIENCE: Duration = Duration::from_millis(250);

/// Counts what was done by this replica alone.
#[derive(Debug, Default)]
struct Watch {
    breakers: AtomicU64,
    limits: AtomicU64,
}

impl Observer for Watch {
    fn invocation_finished(&self, event: &FinishedCall<'_>) {
        assert_ne!(event.status, InvocationStatus::Success, "nobody calls anything here");
    }
    fn registry_swapped(&self, _: usize, _: usize) {}
    fn audit_queue(&self, _: usize) {}
    fn audit_append_failed(&self) {}
    fn decision(&self, _: bool) {}
    fn authentication_failed(&self, _: ErrorCode) {}
    fn keys_fetched(&self, _: bool) {}
    fn tool_spoke(&self, _: &ToolSpeech<'_>) {}
    fn shared_state_fell_back(&self, what: &'static str) {
        let counter = match what {
            "breaker" => &self.breakers,
            "limit" => &self.limits,
            other => panic!("`{other}` does not fall back"),
        };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

/// Stands still until it is moved.
#[derive(Debug, Default)]
struct StillClock(AtomicU64);

impl StillClock {
    fn pass(&self, span: Duration) {
        self.0.fetch_add(u64::try_from(span.as_millis()).unwrap(), Ordering::SeqCst);
    }
}

impl Clock for StillClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_790_000_000_000).plus(self.monotonic())
    }
    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::SeqCst))
    }
    fn sleep(&self, _: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        Box::pin(std::future::pending())
    }
}

/// A replica as it is wired: Redis in front, its own state behind.
struct Replica {
    redis: Arc<RedisState>,
    state: FallingBack,
    watch: Arc<Watch>,
    clock: Arc<StillClock>,
}

impl Replica {
    fn with(settings: &RedisSettings) -> Self {
        let redis = Arc::new(RedisState::open(settings).unwrap());
        let (watch, clock) = (Arc::new(Watch::default()), Arc::new(StillClock::default()));
        let state = FallingBack::new(
            Arc::clone(&redis) as _,
            FallbackSettings { replicas: 4 },
            Arc::clone(&clock) as _,
            Arc::clone(&watch) as _,
        );
        Self { redis, state, watch, clock }
    }

    /// Patient, so that only a server that is really gone is gone.
    async fn on(server: &Server) -> Self {
        let replica = Self::with(&settings(server, ""));
        within(replica.redis.ready()).await;
        replica
    }

    async fn acquire(&self, service: &str) -> BreakerAdmission {
        within(self.state.acquire(&named(service), &BreakerSettings::default(), LEASE)).await.unwrap()
    }

    async fn fail(&self, service: &str) {
        if let BreakerAdmission::Permitted(permit) = self.acquire(service).await {
            let outcome = PermittedOutcome::of(BreakerVerdict::Failed);
            within(self.state.record(&named(service), &BreakerSettings::default(), permit, outcome)).await.unwrap();
        }
    }

    async fn open(&self, service: &str) {
        for _ in 0..5 {
            self.fail(service).await;
        }
        assert_eq!(self.mode_of(service).await, Some(BreakerMode::Open));
    }

    /// Whether it lets calls through: `None` if so.
    async fn mode_of(&self, service: &str) -> Option<BreakerMode> {
        match self.acquire(service).await {
            BreakerAdmission::Permitted(_) => None,
            BreakerAdmission::Refused { mode, .. } => Some(mode),
        }
    }

    async fn takes(&self, times: usize, per_hour: u32) -> usize {
        let quota = RateQuota::new(per_hour, LIFE).unwrap();
        let mut taken = 0;
        for _ in 0..times {
            let limits = [KeyedQuota { key: "tool_rate:acme:u:t:hour", quota }];
            let answer = within(self.state.take(&limits, 1)).await.unwrap();
            taken += usize::from(matches!(answer, AllTaken::Allowed { .. }));
        }
        taken
    }

    fn alone(&self) -> (u64, u64) {
        (self.watch.breakers.load(Ordering::SeqCst), self.watch.limits.load(Ordering::SeqCst))
    }

    /// What is for all replicas or for none is refused while nobody can be asked.
    async fn refuses_what_cannot_be_done_alone(&self) {
        assert!(self.state.reserve("budget", 1, 100, LIFE).await.is_err());
        assert!(self.state.settle("budget", 1, 0, LIFE).await.is_err());
        assert!(self.state.put("idem", b"x", LIFE, ReplaceMode::Never).await.is_err());
        assert!(self.state.get("idem").await.is_err());
        assert!(self.state.remove("idem").await.is_err());
        assert!(self.state.announce("r-1", "", LIFE).await.is_err());
        assert!(self.state.present().await.is_err());
        assert!(self.state.shift(&named("mail"), &BreakerSettings::default(), ManualMove::ForceOpen).await.is_err());
    }
}

fn named(service: &str) -> BreakerKey {
    BreakerKey::new("acme".parse().unwrap(), service, "").unwrap()
}

#[tokio::test]
async fn a_server_that_is_down_at_the_start_is_used_as_soon_as_it_comes() {
    let mut server = Server::planned(&[]);
    let replica = Replica::with(&settings(&server, ""));
    assert_eq!(replica.mode_of("mail").await, None);
    assert_eq!(replica.takes(20, 20).await, 5, "a quarter of the quota");
    replica.refuses_what_cannot_be_done_alone().await;
    assert_eq!(replica.alone(), (1, 20));
    let health = replica.state.health().await;
    assert_eq!((health.kind, health.shared), ("redis", false));
    assert_eq!(health.trouble.as_deref(), Some("Redis cannot be reached"));

    server.run();
    within(replica.redis.ready()).await;
    assert_eq!(replica.takes(30, 20).await, 20, "the whole quota");
    assert_eq!(replica.alone(), (1, 20), "nothing is done alone any more");
    assert_eq!(replica.state.health().await.trouble, None);
}

#[tokio::test]
async fn a_replica_left_alone_keeps_open_what_was_open_and_learns_by_itself() {
    let mut server = Server::start();
    let replica = Replica::on(&server).await;
    replica.open("mail").await;
    within(replica.state.shift(&named("bank"), &BreakerSettings::default(), ManualMove::ForceOpen))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(replica.mode_of("bank").await, Some(BreakerMode::ForcedOpen));
    let BreakerAdmission::Permitted(before) = replica.acquire("search").await else { panic!() };

    server.kill();
    within(replica.redis.away()).await;
    assert_eq!(replica.mode_of("mail").await, Some(BreakerMode::Open));
    assert_eq!(replica.mode_of("bank").await, Some(BreakerMode::ForcedOpen));
    // A call that began before and ends now is not lost on this replica.
    let outcome = PermittedOutcome::of(BreakerVerdict::Failed);
    replica.state.record(&named("search"), &BreakerSettings::default(), before, outcome).await.unwrap();
    for _ in 0..4 {
        replica.fail("search").await;
    }
    assert_eq!(replica.mode_of("search").await, Some(BreakerMode::Open));
    let listed = replica.state.inspect(&BreakerQuery { limit: 9, ..BreakerQuery::default() }).await.unwrap();
    // What is in force here is listed, also what was only heard of.
    let stands: Vec<_> = listed.iter().map(|report| (report.key.service(), report.snapshot.mode)).collect();
    let forced = BreakerMode::ForcedOpen;
    assert_eq!(stands, [("bank", forced), ("mail", BreakerMode::Open), ("search", BreakerMode::Open)]);
    let bank = &listed[0].snapshot;
    assert_eq!((bank.until_ms, bank.opened_by.map(|why| why.to_string()).as_deref()), (None, Some("by hand")));
    assert!(listed[1].snapshot.until_ms.is_some());
    let after = BreakerQuery { after: Some(named("bank")), limit: 1, ..BreakerQuery::default() };
    let page = replica.state.inspect(&after).await.unwrap();
    assert_eq!(page.iter().map(|report| report.key.service()).collect::<Vec<_>>(), ["mail"]);
    // After the wait of the shared one nobody knows better; what somebody has forced open stays so.
    replica.clock.pass(Duration::from_secs(61));
    assert_eq!(replica.mode_of("mail").await, None);
    assert_eq!(replica.mode_of("bank").await, Some(BreakerMode::ForcedOpen));
    assert!(replica.alone().0 > 5);
}

#[tokio::test]
async fn a_restarted_server_is_empty_and_everything_begins_anew() {
    let mut server = Server::start();
    let replica = Replica::on(&server).await;
    replica.open("mail").await;
    assert_eq!(replica.takes(10, 10).await, 10);
    let BreakerAdmission::Permitted(old) = replica.acquire("search").await else { panic!() };
    server.kill();
    within(replica.redis.away()).await;
    server.run();
    within(replica.redis.ready()).await;
    // The scripts are gone, too, and are told again.
    assert_eq!(replica.mode_of("mail").await, None);
    assert_eq!(replica.takes(11, 10).await, 10);
    // A permit of the former breaker counts for nothing.
    assert_eq!(replica.mode_of("search").await, None);
    let outcome = PermittedOutcome::of(BreakerVerdict::Failed);
    replica.state.record(&named("search"), &BreakerSettings::default(), old, outcome).await.unwrap();
    let query = BreakerQuery { service: Some("search".into()), limit: 1, ..BreakerQuery::default() };
    let report = replica.state.inspect(&query).await.unwrap().remove(0);
    assert_eq!(report.snapshot.totals.calls, 0);
    assert_eq!(replica.alone(), (0, 0));
}

#[tokio::test]
async fn a_frozen_server_costs_one_wait_and_not_one_for_every_call() {
    let server = Server::start();
    let replica = Replica::with(&RedisSettings { operation_timeout: IMPATIENCE, ..settings(&server, "") });
    within(replica.redis.ready()).await;
    replica.open("mail").await;
    server.freeze();
    #[expect(clippy::disallowed_methods, reason = "it is about time that really passes")]
    let began = std::time::Instant::now();
    // A few operations may be under way when the first notices; a wait for each of these would take more than four minutes.
    assert!(replica.takes(1_000, 1_000).await >= 250);
    assert!(began.elapsed() < IMPATIENCE * 500, "{:?}", began.elapsed());
    assert!(matches!(replica.redis.standing(), LinkState::Away { .. }));
    assert_eq!(replica.mode_of("mail").await, Some(BreakerMode::Open));
    replica.refuses_what_cannot_be_done_alone().await;

    server.thaw();
    within(replica.redis.ready()).await;
    // The state is the one from before.
    let query = BreakerQuery { limit: 9, ..BreakerQuery::default() };
    loop {
        within(replica.redis.ready()).await;
        // A busy machine may be too slow once more.
        if let Ok(reports) = replica.redis.inspect(&query).await {
            assert_eq!(reports.first().map(|report| report.snapshot.mode), Some(BreakerMode::Open));
            break;
        }
    }
}

#[tokio::test]
async fn a_full_server_refuses_writes_and_is_used_again_when_there_is_room() {
    let server = Server::start_with(&["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"]);
    let replica = Replica::on(&server).await;
    replica.state.put("idem", b"x", LIFE, ReplaceMode::Never).await.unwrap();
    let junk = "x".repeat(100_000);
    while !server.say(&["APPEND", "junk", &junk]).starts_with("-OOM") {}
    assert!(matches!(replica.state.reserve("budget", 1, 100, LIFE).await, Err(SharedStateError::Full)));
    assert!(matches!(replica.state.put("other", b"x", LIFE, ReplaceMode::Never).await, Err(SharedStateError::Full)));
    assert_eq!(replica.mode_of("mail").await, None);
    assert_eq!(replica.takes(8, 8).await, 2);
    assert_eq!(replica.alone(), (1, 8));
    // It answers and is of no use: that is trouble, and is told as such.
    let health = replica.state.health().await;
    assert_eq!((health.shared, health.trouble.as_deref()), (false, Some("Redis is out of memory")));
    // What is there can be read.
    assert_eq!(replica.state.get("idem").await.unwrap().as_deref(), Some(b"x".as_slice()));

    server.say(&["DEL", "junk"]);
    assert_eq!(replica.takes(9, 8).await, 8);
    assert_eq!(replica.alone(), (1, 8));
    within(async {
        while replica.state.health().await.trouble.is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_server_that_is_full_is_found_out_also_where_nothing_is_written_to_it() {
    let server = Server::start_with(&["--maxmemory", "4mb", "--maxmemory-policy", "noeviction"]);
    let junk = "x".repeat(100_000);
    while !server.say(&["APPEND", "junk", &junk]).starts_with("-OOM") {}
    let replica = Replica::on(&server).await;
    assert_eq!(replica.state.health().await.trouble.as_deref(), Some("Redis is out of memory"));
    server.say(&["DEL", "junk"]);
    within(async {
        while replica.state.health().await.trouble.is_some() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_cluster_is_named_and_not_used() {
    let bus = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let server = Server::start_with(&["--cluster-enabled", "yes", "--cluster-port", &bus]);
    let mut patient = settings(&server, &unique("cluster"));
    patient.connect_timeout = Duration::from_secs(30);
    let redis = RedisState::open(&patient).unwrap();
    assert_eq!(redis.settled().await, LinkState::Away { trouble: RedisTrouble::Cluster });
}

#[tokio::test]
async fn wrong_credentials_are_named_and_never_repeated() {
    let server = Server::start_with(&["--requirepass", "right-horse"]);
    let url = server.url().replace("redis://", "redis://:wrong-horse@");
    let replica = Replica::with(&RedisSettings { url, ..settings(&server, "") });
    let health = within(async {
        loop {
            let health = replica.state.health().await;
            if health.trouble.as_deref() != Some("Redis cannot be reached") {
                return health;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(replica.redis.standing(), LinkState::Away { trouble: RedisTrouble::Denied });
    assert_eq!(health.trouble.as_deref(), Some("Redis does not accept the credentials, or they allow too little"));
    assert!(!format!("{health:?} {:?} {:?}", replica.redis, replica.state).contains("horse"));

    let url = server.url().replace("redis://", "redis://:right-horse@");
    let allowed = Replica::with(&RedisSettings { url, ..settings(&server, "") });
    within(allowed.redis.ready()).await;
    assert_eq!(allowed.mode_of("mail").await, None);
    assert_eq!(allowed.alone(), (0, 0));
}

/// The rights that the documentation asks an operator to give.
#[tokio::test]
async fn a_user_with_the_documented_rights_can_do_everything() {
    let page = include_str!("../../../../docs/shared-state.md");
    let rights: Vec<&str> =
        page.lines().last().unwrap().split('`').filter(|text| text.starts_with(['~', '&', '+'])).collect();
    let words: Vec<&str> = rights.iter().flat_map(|some| some.split(' ')).collect();
    let server = Server::start();
    let user = ["ACL", "SETUSER", "gantry", "reset", "on", ">right-horse"];
    assert_eq!(server.say(&[&user[..], &words].concat()), "+OK", "{words:?}");

    let url = server.url().replace("redis://", "redis://gantry:right-horse@");
    let replica = Replica::with(&RedisSettings { url, ..settings(&server, "") });
    within(replica.redis.ready()).await;
    let mut transitions = replica.state.transitions();
    replica.open("mail").await;
    within(transitions.recv()).await.unwrap();
    assert_eq!(replica.takes(2, 1).await, 1);
    replica.state.reserve("budget", 1, 100, LIFE).await.unwrap();
    assert!(replica.state.put("idem", b"x", LIFE, ReplaceMode::Never).await.unwrap());
    assert!(replica.state.remove("idem").await.unwrap());
    replica.state.announce("r-1", "here", LIFE).await.unwrap();
    assert_eq!(replica.state.present().await.unwrap().len(), 1);
    assert_eq!(replica.state.inspect(&BreakerQuery { limit: 9, ..BreakerQuery::default() }).await.unwrap().len(), 1);
    let mut changes = replica.redis.bus().subscribe();
    replica.redis.bus().publish(BusChange::Access { epoch: 1 }).await;
    within(until(&mut changes, &BusChange::Access { epoch: 1 })).await;
    assert_eq!(replica.alone(), (0, 0));
}
