//! What ledger and queue do when a server goes away, does not answer, or undoes transactions, and what becomes of a process
//! that is paused past its leases.
//!
//! Each test has its own server where it harms it.
#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "test crate; a child speaks by its output")]
#![expect(clippy::disallowed_methods, reason = "tests start processes and wait by the machine's clock")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use contract::ids::{InvocationId, TenantId};
use gantry_store::conformance::{sample_intent, sample_job};
use gantry_store::postgres::{PostgresOptions, PostgresStore};
use ports::job_store::{AttemptEnd, JobStore, NewJob, QueueBounds, TakeRules};
use ports::ledger::{BeginOutcome, EntryState, Intent, Ledger, OwnerId, SettleOutcome, Settlement};
use ports::registry_store::StoreError;
use serde_json::json;
use test_servers::PostgresServer;
use uuid::Uuid;

/// A server that no test harms.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start().unwrap());

/// Longer than anything here takes on the busiest machine.
const LONG: Duration = Duration::from_secs(120);
const LEASE: Duration = Duration::from_secs(3_600);

// ---------------------------------------------------------------------------------------------------------- samples

fn id(number: u128) -> InvocationId {
    InvocationId(Uuid::from_u128(number))
}

fn owner(number: u128) -> OwnerId {
    OwnerId(Uuid::from_u128(number))
}

fn tenant() -> TenantId {
    "acme".parse().unwrap()
}

fn job(number: u128) -> NewJob {
    let bounds = QueueBounds { per_flow: 100_000, per_tenant: 100_000, total: 100_000 };
    NewJob { bounds, ..sample_job("acme", number) }
}

fn intent(number: u128, key: &str, by: OwnerId) -> Intent {
    sample_intent(number, Some(key), by)
}

fn patient() -> PostgresOptions {
    let mut options = PostgresOptions::default();
    options.connections_max = 4;
    options.connection_wait = Duration::from_secs(60);
    options.statement_max = Duration::from_secs(60);
    options
}

fn hasty(connections_max: usize) -> PostgresOptions {
    let mut options = patient();
    options.connections_max = connections_max;
    options.statement_max = Duration::from_millis(500);
    options
}

fn database_of(url: &str) -> &str {
    url.rsplit('/').next().unwrap()
}

/// Waits for something that will come.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(start.elapsed() < LONG, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn signal(name: &str, pid: &str) {
    assert!(Command::new("kill").args(["-s", name, pid]).status().unwrap().success(), "{name} {pid}");
}

/// The server's processes that serve a database.
fn backends(server: &PostgresServer, url: &str) -> Vec<String> {
    let look = format!("SELECT pid FROM pg_stat_activity WHERE datname = '{}'", database_of(url));
    server.sql("postgres", &look).unwrap().lines().map(str::to_owned).collect()
}

// ----------------------------------------------------------------------------------------------------- paused processes

/// The child of the test below: takes a job and a place in the ledger with short leases, and writes its results when told to.
async fn worker(url: &str) {
    let store = PostgresStore::open(url, &patient()).await.unwrap();
    let lease = Duration::from_secs(1);
    let taken = until("a job", async || {
        store.enlist(owner(1), lease, false).await.unwrap();
        let rules = TakeRules { most: 1, running_per_tenant: 10, running_per_flow: 1_000 };
        store.take(owner(1), rules).await.unwrap().jobs.pop()
    })
    .await;
    let fence = until("a place", async || {
        Ledger::renew(&store, owner(1), lease).await.unwrap();
        match store.begin(intent(1, "k", owner(1))).await.unwrap() {
            BeginOutcome::Fresh(fence) => Some(fence),
            _ => None,
        }
    })
    .await;
    println!("\nholding");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    let finished = store.finish(&taken.record.key, taken.fence, AttemptEnd::Done(json!("late"))).await.unwrap();
    let late = Settlement { state: EntryState::Done, outcome: json!("late") };
    let settled = store.settle(id(1), fence, late).await.unwrap();
    println!("\nwrote {finished:?} {settled:?}");
}

/// A child that does not outlive its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_was_paused_past_its_leases_cannot_write_its_results() {
    const URL: &str = "GANTRY_TEST_WORKER_URL";
    if let Ok(url) = std::env::var(URL) {
        return worker(&url).await;
    }
    let url = SERVER.database().unwrap();
    let store = PostgresStore::open(&url, &patient()).await.unwrap();
    store.enqueue(job(1)).await.unwrap();
    let name = "an_instance_that_was_paused_past_its_leases_cannot_write_its_results";
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(URL, &url);
    let mut child = Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    let mut said = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let mut hear = |word: &str| loop {
        let line = said.next().unwrap().unwrap();
        if line.starts_with(word) {
            return line;
        }
    };
    hear("holding");
    let pid = child.0.id().to_string();
    signal("STOP", &pid);
    let over = until("the lease of the job to lapse", async || {
        store.enlist(owner(2), LEASE, false).await.unwrap();
        store.take_over(owner(2), 10).await.unwrap().pop()
    })
    .await;
    let lapsed = until("the lease of the call to lapse", async || store.lapsed(10).await.unwrap().pop()).await;
    let unknown = Settlement { state: EntryState::Unknown, outcome: json!("its process fell silent") };
    assert_eq!(store.settle(lapsed.intent.invocation, lapsed.fence, unknown).await.unwrap(), SettleOutcome::Kept);
    signal("CONT", &pid);
    writeln!(child.0.stdin.as_mut().unwrap(), "go on").unwrap();
    assert_eq!(hear("wrote"), "wrote Fenced Fenced");
    store.finish(&over.record.key, over.fence, AttemptEnd::Done(json!("right"))).await.unwrap();
    let found = JobStore::find(&store, &over.record.key).await.unwrap().unwrap();
    assert_eq!(found.result, Some(json!("right")));
    let entry = Ledger::find(&store, &tenant(), id(1)).await.unwrap().unwrap();
    assert_eq!(entry.state, EntryState::Unknown);
}

// ------------------------------------------------------------------------------------------------- servers that go away

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_was_acknowledged_survives_the_death_of_the_server_and_the_store_recovers_by_itself() {
    let mut server = PostgresServer::start_with(&["synchronous_commit=on"]).unwrap();
    let url = server.database().unwrap();
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
    let mut writers = Vec::new();
    for writer in 0..4_u128 {
        let store = PostgresStore::open(&url, &patient()).await.unwrap();
        Ledger::renew(&store, owner(writer), LEASE).await.unwrap();
        let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
        writers.push(tokio::spawn(async move {
            let (mut begun, mut settled, mut queued) = (Vec::new(), Vec::new(), Vec::new());
            for step in 0.. {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                let number = writer * 1_000_000 + step + 1;
                if let Ok(BeginOutcome::Fresh(fence)) =
                    store.begin(intent(number, &number.to_string(), owner(writer))).await
                {
                    begun.push(number);
                    let done = Settlement { state: EntryState::Done, outcome: json!(1) };
                    if let Ok(SettleOutcome::Kept) = store.settle(id(number), fence, done).await {
                        settled.push(number);
                    }
                }
                if store.enqueue(job(number)).await.is_ok() {
                    queued.push(number);
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                } else {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
            (begun, settled, queued)
        }));
    }
    for kill in [true, false, true] {
        let before = acknowledged.load(Ordering::Relaxed);
        until("writes", async || (acknowledged.load(Ordering::Relaxed) > before + 40).then_some(())).await;
        if kill {
            server.signal("KILL").unwrap();
        }
        server.stop();
        // Those who served the dead one take a moment to notice.
        until("the server's return", async || server.start_again().ok()).await;
    }
    let before = acknowledged.load(Ordering::Relaxed);
    until("writes", async || (acknowledged.load(Ordering::Relaxed) > before + 40).then_some(())).await;
    stop.store(true, Ordering::Relaxed);
    let store = PostgresStore::open(&url, &patient()).await.unwrap();
    for writer in writers {
        let (begun, settled, queued) = writer.await.unwrap();
        for number in begun {
            let entry = Ledger::find(&store, &tenant(), id(number)).await.unwrap();
            let entry = entry.unwrap_or_else(|| panic!("call {number} is lost"));
            assert!(!settled.contains(&number) || entry.state == EntryState::Done, "the end of {number} is lost");
        }
        for number in queued {
            let found = JobStore::find(&store, &job(number).key).await.unwrap();
            assert!(found.is_some(), "job {number} is lost");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stands_still_is_waited_for_a_bounded_time() {
    let server = PostgresServer::start().unwrap();
    let url = server.database().unwrap();
    let mut options = hasty(1);
    options.connection_wait = Duration::from_secs(2);
    let store = until("a store", async || PostgresStore::open(&url, &options).await.ok()).await;
    until("a lease", async || Ledger::renew(&store, owner(1), LEASE).await.ok()).await;
    let stopped = backends(&server, &url);
    server.signal("STOP").unwrap();
    for pid in &stopped {
        signal("STOP", pid);
    }
    // The first on a connection that is there, the second on one that does not come about.
    for number in [1, 2] {
        let start = Instant::now();
        let refused = store.begin(intent(number, "k", owner(1))).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert!(start.elapsed() < LONG, "{:?}", start.elapsed());
    }
    for pid in &stopped {
        signal("CONT", pid);
    }
    server.signal("CONT").unwrap();
    until("the store's return", async || Ledger::renew(&store, owner(1), LEASE).await.ok()).await;
    until("the key", async || match store.begin(intent(3, "k", owner(1))).await {
        Ok(BeginOutcome::Fresh(_)) => Some(()),
        // What was refused may have landed, and is withdrawn with the next lease.
        _ => {
            let _ = Ledger::renew(&store, owner(1), LEASE).await;
            None
        }
    })
    .await;
}

/// The claim waits at a server's process that stands still: the caller is refused, and the claim lands afterwards all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_was_refused_and_lands_all_the_same_frees_its_key() {
    for lands_first in [true, false] {
        let url = SERVER.database().unwrap();
        let watching = PostgresStore::open(&url, &patient()).await.unwrap();
        Ledger::renew(&watching, owner(1), LEASE).await.unwrap();
        watching.close().await;
        let store = until("a store", async || PostgresStore::open(&url, &hasty(1)).await.ok()).await;
        until("a lease", async || Ledger::renew(&store, owner(1), LEASE).await.ok()).await;
        let stopped = until("the one process", async || match &*backends(&SERVER, &url) {
            [one] => Some(one.clone()),
            _ => None,
        })
        .await;
        signal("STOP", &stopped);
        let refused = store.begin(intent(1, "k", owner(1))).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        let go_on = async || {
            signal("CONT", &stopped);
            until("the process to end", async || (!backends(&SERVER, &url).contains(&stopped)).then_some(())).await;
        };
        let watching = PostgresStore::open(&url, &patient()).await.unwrap();
        if lands_first {
            go_on().await;
            let landed = Ledger::find(&watching, &tenant(), id(1)).await.unwrap().unwrap();
            assert_eq!(landed.state, EntryState::InFlight);
        }
        until("the withdrawal", async || {
            let _ = Ledger::renew(&store, owner(1), LEASE).await;
            let entry = Ledger::find(&watching, &tenant(), id(1)).await.unwrap()?;
            (entry.state == EntryState::FailedClean).then_some(())
        })
        .await;
        if !lands_first {
            go_on().await;
            let entry = Ledger::find(&watching, &tenant(), id(1)).await.unwrap().unwrap();
            assert_eq!(entry.state, EntryState::FailedClean, "what comes too late gives way");
        }
        assert!(matches!(watching.begin(intent(2, "k", owner(1))).await.unwrap(), BeginOutcome::Fresh(_)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_too_long_is_given_up() {
    let url = SERVER.database().unwrap();
    let store = until("a store", async || PostgresStore::open(&url, &hasty(2)).await.ok()).await;
    until("a lease", async || Ledger::renew(&store, owner(1), LEASE).await.ok()).await;
    let (other, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    let speaking = tokio::spawn(connection);
    other.batch_execute("BEGIN; LOCK TABLE ledger IN ACCESS EXCLUSIVE MODE").await.unwrap();
    let refused = store.begin(intent(1, "k", owner(1))).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    other.batch_execute("ROLLBACK").await.unwrap();
    until("the store", async || {
        matches!(store.begin(intent(2, "k", owner(1))).await, Ok(BeginOutcome::Fresh(_))).then_some(())
    })
    .await;
    drop(other);
    speaking.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_races_are_tried_again_a_bounded_number_of_times() {
    for code in ["40001", "40P01"] {
        let url = SERVER.database().unwrap();
        let store = PostgresStore::open(&url, &patient()).await.unwrap();
        Ledger::renew(&store, owner(1), LEASE).await.unwrap();
        let database = database_of(&url);
        // A sequence is not undone with the transaction that counted.
        let lose = |races: u32| {
            let statements = format!(
                "CREATE SEQUENCE IF NOT EXISTS races; SELECT setval('races', 1, false); GRANT ALL ON SEQUENCE races TO gantry;
                 CREATE OR REPLACE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS $$
                 BEGIN
                     IF nextval('races') <= {races} THEN RAISE EXCEPTION 'lost' USING ERRCODE = '{code}'; END IF;
                     RETURN NEW;
                 END $$;
                 CREATE OR REPLACE TRIGGER lose BEFORE INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION lose()"
            );
            SERVER.sql(database, &statements).unwrap();
        };
        let tried = || SERVER.sql(database, "SELECT last_value FROM races").unwrap();
        lose(3);
        assert!(matches!(store.begin(intent(1, "k", owner(1))).await, Ok(BeginOutcome::Fresh(_))));
        assert_eq!(tried(), "4");
        lose(1_000);
        let refused = store.begin(intent(2, "l", owner(1))).await;
        assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
        assert_eq!(tried(), "6");
        lose(0);
        assert!(
            matches!(store.begin(intent(2, "l", owner(1))).await, Ok(BeginOutcome::Fresh(_))),
            "nothing was left behind"
        );
    }
}
