//! Calls with effects and jobs of several instances on one database, and words that are hard to keep.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::ids::{InvocationId, TenantId};
use gantry_store::conformance::{StoreAdapter as _, sample_intent, sample_job};
use gantry_store::postgres::PostgresStore;
use gantry_store::sqlite::{self, SqliteStore};
use ports::clock::Clock;
use ports::job_store::{
    AttemptEnd, EnqueueOutcome, JobKey, JobPriority, JobState, JobStore, NewJob, QueueBounds, TakeRules, WriteOutcome,
};
use ports::ledger::{BeginOutcome, EntryState, FencingToken, Intent, Ledger, OwnerId, SettleOutcome, Settlement};
use ports::workflow_runs::{self, NewRun, WorkflowRuns as _};
use serde_json::json;
use uuid::Uuid;

use super::{SERVER, database, open, options, two};

const LEASE: Duration = Duration::from_secs(30);
/// Longer than anything here takes on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(60);

// ---------------------------------------------------------------------------------------------------------- samples

fn id(number: u128) -> InvocationId {
    InvocationId(Uuid::from_u128(number))
}

fn owner(number: u128) -> OwnerId {
    OwnerId(Uuid::from_u128(number))
}

fn intent(number: u128, key: &str, by: OwnerId) -> Intent {
    sample_intent(number, Some(key), by)
}

// ------------------------------------------------------------------------------------------------- several instances

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_hundred_duplicates_through_two_instances_are_one_claim() {
    let stores = two().await;
    for (number, store) in (1..).zip(&stores) {
        Ledger::renew(&**store, owner(number), LEASE).await.unwrap();
    }
    for round in 0..10_u128 {
        let key = format!("k{round}");
        let asking = (0..100_u128).map(|number| {
            let turn = usize::try_from(number % 2).unwrap();
            let intent = intent(round * 1_000 + number + 1, &key, owner(number % 2 + 1));
            let store = Arc::clone(stores.get(turn).unwrap());
            tokio::spawn(async move { store.begin(intent).await.unwrap() })
        });
        let (mut fresh, mut held) = (0, BTreeSet::new());
        for asked in asking.collect::<Vec<_>>() {
            match asked.await.unwrap() {
                BeginOutcome::Fresh(_) => fresh += 1,
                BeginOutcome::Held(entry) => {
                    held.insert(entry.intent.invocation);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((fresh, held.len()), (1, 1), "round {round}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_becomes_free_is_taken_by_one_of_many() {
    let stores = two().await;
    let [store, _] = &stores;
    Ledger::renew(&**store, owner(1), LEASE).await.unwrap();
    for round in 0..10_u128 {
        let (key, base) = (format!("k{round}"), round * 1_000);
        let BeginOutcome::Fresh(fence) = store.begin(intent(base + 1, &key, owner(1))).await.unwrap() else { panic!() };
        let clean = Settlement { state: EntryState::FailedClean, outcome: json!({}) };
        Ledger::settle(&**store, id(base + 1), fence, clean).await.unwrap();
        // The first asks again under its own id, the others under new ones.
        let asking = (1..=20_u128).map(|number| {
            let store = Arc::clone(stores.get(usize::try_from(number % 2).unwrap()).unwrap());
            let intent = intent(base + number, &key, owner(1));
            tokio::spawn(async move { store.begin(intent).await.unwrap() })
        });
        let mut fresh = 0;
        for asked in asking.collect::<Vec<_>>() {
            match asked.await.unwrap() {
                BeginOutcome::Fresh(_) => fresh += 1,
                BeginOutcome::Held(entry) => assert_eq!(entry.state, EntryState::InFlight),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(fresh, 1, "round {round}");
    }
}

/// How many transactions wrote the lines there are.
fn writers(url: &str) -> usize {
    SERVER.sql(database(url), "SELECT count(DISTINCT xmin::text) FROM ledger").unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn calls_that_come_at_once_share_transactions_and_keep_their_tenants_apart() {
    let adapter = open().await;
    let ledger = adapter.ledger();
    ledger.renew(owner(1), LEASE).await.unwrap();
    // Every key once in each tenant, and an id of the first that the second wants too.
    let of = |tenant: &str, number: u128, key: u128| Intent {
        tenant: tenant.parse().unwrap(),
        ..intent(number, &format!("k{key}"), owner(1))
    };
    let mut asking = Vec::new();
    for key in 1..=100 {
        for (tenant, base) in [("acme", 0), ("it's", 1_000), ("third", 2_000)] {
            let (ledger, intent) = (Arc::clone(&ledger), of(tenant, base + key, key));
            asking.push(tokio::spawn(async move {
                let BeginOutcome::Fresh(fence) = ledger.begin(intent.clone()).await.unwrap() else {
                    panic!("{intent:?}")
                };
                (intent, fence)
            }));
        }
    }
    let mut begun = Vec::new();
    for asked in asking {
        begun.push(asked.await.unwrap());
    }
    let transactions = writers(&adapter.url);
    assert!(transactions < 150, "{transactions} for 300 claims");
    assert_eq!(ledger.begin(of("third", 5, 101)).await.unwrap(), BeginOutcome::IdTaken);
    let settling = begun.into_iter().map(|(intent, fence)| {
        let ledger = Arc::clone(&ledger);
        let done = Settlement { state: EntryState::Done, outcome: json!(intent.invocation.to_string()) };
        tokio::spawn(async move {
            assert_eq!(ledger.settle(intent.invocation, fence, done.clone()).await.unwrap(), SettleOutcome::Kept);
            // Said again, it is known; said otherwise, or under another fence, it changes nothing.
            assert_eq!(ledger.settle(intent.invocation, fence, done.clone()).await.unwrap(), SettleOutcome::Kept);
            let other = Settlement { outcome: json!("other"), ..done.clone() };
            assert_eq!(ledger.settle(intent.invocation, fence, other).await.unwrap(), SettleOutcome::Fenced);
            let entry = ledger.find(&intent.tenant, intent.invocation).await.unwrap().unwrap();
            assert_eq!((entry.state, entry.outcome), (EntryState::Done, Some(done.outcome)));
        })
    });
    for settled in settling.collect::<Vec<_>>() {
        settled.await.unwrap();
    }
    let transactions = writers(&adapter.url);
    assert!(transactions < 150, "{transactions} for 300 settlements");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_row_that_the_database_refuses_harms_nobody_else() {
    let adapter = open().await;
    let ledger = adapter.ledger();
    ledger.renew(owner(1), LEASE).await.unwrap();
    let rules = "ALTER TABLE ledger ADD CHECK (subject <> 'spoilt'), ADD CHECK (outcome <> '\"spoilt\"')";
    SERVER.sql(database(&adapter.url), rules).unwrap();
    let asking = (1..=60_u128).map(|number| {
        let ledger = Arc::clone(&ledger);
        let subject = if number % 20 == 0 { "spoilt" } else { "did:key:z6Mk" };
        let intent = Intent { caller: subject.parse().unwrap(), ..intent(number, &format!("k{number}"), owner(1)) };
        tokio::spawn(async move {
            let begun = ledger.begin(intent).await;
            let Ok(BeginOutcome::Fresh(fence)) = begun else { return (number, false, false) };
            let outcome = if number % 15 == 0 { "spoilt" } else { "fine" };
            let done = Settlement { state: EntryState::Done, outcome: json!(outcome) };
            (number, true, ledger.settle(id(number), fence, done).await.is_ok())
        })
    });
    for asked in asking.collect::<Vec<_>>() {
        let (number, begun, settled) = asked.await.unwrap();
        assert_eq!((begun, settled), (number % 20 != 0, number % 20 != 0 && number % 15 != 0), "{number}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_claim_whose_caller_went_away_frees_its_key() {
    let adapter = open().await;
    let ledger = adapter.ledger();
    ledger.renew(owner(1), LEASE).await.unwrap();
    let (other, connection) = tokio_postgres::connect(&adapter.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    other.batch_execute("BEGIN; LOCK TABLE ledger IN EXCLUSIVE MODE").await.unwrap();
    let going = {
        let ledger = Arc::clone(&ledger);
        tokio::spawn(async move { ledger.begin(intent(1, "k", owner(1))).await })
    };
    let waits = "SELECT count(*) FROM pg_locks WHERE relation = 'ledger'::regclass AND NOT granted";
    let start = Instant::now();
    while SERVER.sql(database(&adapter.url), waits).unwrap() == "0" {
        assert!(start.elapsed() < PATIENCE, "the claim never came to the database");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    going.abort();
    assert!(going.await.is_err());
    other.batch_execute("COMMIT").await.unwrap();
    // It is withdrawn with the lease after it was written.
    loop {
        ledger.renew(owner(1), LEASE).await.unwrap();
        if let BeginOutcome::Fresh(_) = ledger.begin(intent(2, "k", owner(1))).await.unwrap() {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "the key is held by a call that nobody makes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_instances_take_every_job_once_and_no_more_than_a_tenants_share() {
    let stores = two().await;
    for (number, store) in (1..).zip(&stores) {
        store.enlist(owner(number), LEASE, false).await.unwrap();
    }
    let [first, _] = &stores;
    for number in 0..60 {
        let of = ["a", "b", "c"].into_iter().cycle().nth(number).unwrap();
        assert_eq!(
            first.enqueue(sample_job(of, u128::try_from(number).unwrap() + 1)).await.unwrap(),
            EnqueueOutcome::New
        );
    }
    let rules = TakeRules { most: 2, running_per_tenant: 4, running_per_flow: 1_000 };
    let mut seen = BTreeSet::new();
    for round in 0.. {
        let taking = (0..8_u128).map(|number| {
            let store = Arc::clone(stores.get(usize::try_from(number % 2).unwrap()).unwrap());
            tokio::spawn(async move { store.take(owner(number % 2 + 1), rules).await.unwrap().jobs })
        });
        let mut taken = Vec::new();
        for jobs in taking.collect::<Vec<_>>() {
            taken.extend(jobs.await.unwrap());
        }
        let mut running = BTreeMap::new();
        for job in &taken {
            assert!(seen.insert(job.record.key.clone()), "{:?} was taken twice", job.record.key);
            *running.entry(job.record.key.tenant.to_string()).or_insert(0) += 1;
        }
        assert!(running.values().all(|running| *running <= 4), "round {round}: {running:?}");
        if taken.is_empty() {
            break;
        }
        for job in taken {
            let done = first.finish(&job.record.key, job.fence, AttemptEnd::Done(json!(1))).await.unwrap();
            assert_eq!(done, WriteOutcome::Kept(JobState::Done));
        }
    }
    assert_eq!(seen.len(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_tenants_bound_holds_however_many_enqueue_at_once() {
    check_bound_of_ten(QueueBounds { per_flow: 1_000, per_tenant: 10, total: 1_000 }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_flows_bound_holds_however_many_enqueue_at_once() {
    check_bound_of_ten(QueueBounds { per_flow: 10, per_tenant: 1_000, total: 1_000 }).await;
}

async fn check_bound_of_ten(bounds: QueueBounds) {
    let stores = two().await;
    let [first, _] = &stores;
    // Tenant and flow are known, so their counters can be locked.
    first.enqueue(NewJob { bounds, ..sample_job("local", 1) }).await.unwrap();
    let entering = (2..=60_u128).map(|number| {
        let store = Arc::clone(stores.get(usize::try_from(number % 2).unwrap()).unwrap());
        tokio::spawn(async move { store.enqueue(NewJob { bounds, ..sample_job("local", number) }).await.unwrap() })
    });
    let mut new = 1;
    for entered in entering.collect::<Vec<_>>() {
        new += u64::from(entered.await.unwrap() == EnqueueOutcome::New);
    }
    assert_eq!((new, first.counts().await.unwrap().waiting), (10, 10));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_of_a_lapsed_instance_are_taken_over_by_one_of_many() {
    let first = open().await;
    let second = Arc::new(PostgresStore::open(&first.url, &options(&first.clock)).await.unwrap());
    let stores = [Arc::clone(&first.store), second];
    first.store.enlist(owner(9), LEASE, false).await.unwrap();
    for number in 1..=30 {
        first.store.enqueue(sample_job("local", number)).await.unwrap();
    }
    let rules = TakeRules { most: 100, running_per_tenant: 100, running_per_flow: 1_000 };
    let before = first.store.take(owner(9), rules).await.unwrap().jobs;
    assert_eq!(before.len(), 30);
    first.clock.step(LEASE);
    for number in [1, 2] {
        first.store.enlist(owner(number), LEASE, false).await.unwrap();
    }
    let taking = (0..10_u128).map(|number| {
        let store = Arc::clone(stores.get(usize::try_from(number % 2).unwrap()).unwrap());
        tokio::spawn(async move { store.take_over(owner(number % 2 + 1), 10).await.unwrap() })
    });
    let mut over = Vec::new();
    for taken in taking.collect::<Vec<_>>() {
        over.extend(taken.await.unwrap());
    }
    // Whoever wanted what another one was quicker to take looks again.
    over.extend(first.store.take_over(owner(1), 100).await.unwrap());
    let keys: BTreeSet<JobKey> = over.iter().map(|job| job.record.key.clone()).collect();
    assert_eq!((over.len(), keys.len()), (30, 30));
    for job in before {
        let late = first.store.finish(&job.record.key, job.fence, AttemptEnd::Done(json!("late"))).await.unwrap();
        assert_eq!(late, WriteOutcome::Fenced);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_begin_one_run() {
    let stores = two().await;
    let beginning = (1..=40_u128).map(|number| {
        let store = Arc::clone(stores.get(usize::try_from(number % 2).unwrap()).unwrap());
        let run = NewRun {
            tenant: "local".parse().unwrap(),
            id: id(number),
            workflow: "ship\u{0}it".into(),
            idempotency_key: "k".repeat(5_000),
            input: json!({}),
        };
        tokio::spawn(async move { store.begin_run(&run).await.unwrap() })
    });
    let mut new = 0;
    for begun in beginning.collect::<Vec<_>>() {
        new += usize::from(begun.await.unwrap() == workflow_runs::RunBeginOutcome::New);
    }
    assert_eq!(new, 1);
}

/// Taking many at once must choose what taking one by one does, as the embedded store does.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_jobs_at_once_are_the_ones_that_turns_would_choose() {
    let adapter = open().await;
    let directory = tempfile::tempdir().unwrap();
    let mut embedded = sqlite::SqliteOptions::default();
    embedded.clock = Some(Arc::clone(&adapter.clock) as Arc<dyn Clock>);
    let embedded = SqliteStore::open(&directory.path().join("gantry.db"), &embedded).unwrap();
    let stores: [Arc<dyn JobStore>; 2] = [adapter.jobs(), Arc::new(embedded)];
    for store in &stores {
        store.enlist(owner(1), LEASE, false).await.unwrap();
    }
    // Any sequence will do that is the same each time.
    let mut state = 7_u64;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut running: Vec<(JobKey, FencingToken)> = Vec::new();
    for step in 0..60_u128 {
        for number in 0..u128::from(next(6)) {
            let of = format!("tenant-{}", next(5));
            let priority = JobPriority::near(u8::try_from(next(10)).unwrap() + 1);
            let flow = format!("agent-{}", next(3));
            for store in &stores {
                let new = NewJob { priority, flow: flow.clone(), ..sample_job(&of, step * 100 + number) };
                store.enqueue(new).await.unwrap();
            }
        }
        let rules = TakeRules { most: usize::try_from(next(6)).unwrap(), running_per_tenant: 3, running_per_flow: 2 };
        let mut taken = Vec::new();
        for store in &stores {
            let jobs = store.take(owner(1), rules).await.unwrap().jobs;
            taken.push(jobs.into_iter().map(|job| (job.record.key, job.fence)).collect::<Vec<_>>());
        }
        let [at_once, by_one] = taken.try_into().unwrap();
        assert_eq!(at_once, by_one, "step {step}");
        running.extend(at_once);
        for _ in 0..next(5) {
            if running.is_empty() {
                break;
            }
            let at = usize::try_from(next(u64::try_from(running.len()).unwrap())).unwrap();
            let (key, fence) = running.swap_remove(at);
            let end = if next(4) == 0 { AttemptEnd::HandBack } else { AttemptEnd::Done(json!(1)) };
            for store in &stores {
                store.finish(&key, fence, end.clone()).await.unwrap();
            }
        }
        assert_eq!(stores[0].counts().await.unwrap(), stores[1].counts().await.unwrap());
    }
}

// ------------------------------------------------------------------------------------------------------- hostile words

#[tokio::test(flavor = "multi_thread")]
async fn words_that_no_text_column_can_hold_are_kept() {
    let adapter = open().await;
    let jobs = adapter.jobs();
    jobs.enlist(owner(1), LEASE, false).await.unwrap();
    jobs.enqueue(sample_job("local", 1)).await.unwrap();
    let rules = TakeRules { most: 1, running_per_tenant: 1, running_per_flow: 1_000 };
    let taken = jobs.take(owner(1), rules).await.unwrap().jobs.pop().unwrap();
    let (key, word) = (taken.record.key, "a\u{0}b\"'\\\u{202e}");
    for percent in [None, Some(f64::NAN), Some(f64::INFINITY), Some(40.5)] {
        let kept = jobs.report(&key, taken.fence, percent, Some(word.into())).await.unwrap();
        assert_eq!(kept, WriteOutcome::Kept(JobState::Running));
    }
    jobs.ask_cancel(&key, word, json!({ "why": word })).await.unwrap();
    let record = jobs.find(&key).await.unwrap().unwrap().record;
    assert_eq!((record.phase.as_deref(), record.progress_percent), (Some(word), Some(40.5)));
    assert_eq!(record.cancel_asked.as_deref(), Some(word));
    let events = jobs.events(&key, 0, 100).await.unwrap();
    let newest = events.iter().rfind(|event| event.kind == "progress").unwrap();
    assert_eq!(newest.data, json!({ "progress_percent": 40.5, "current_phase": word }));
    jobs.finish(&key, taken.fence, AttemptEnd::Done(json!({ "said": word }))).await.unwrap();
    assert_eq!(jobs.find(&key).await.unwrap().unwrap().result, Some(json!({ "said": word })));
}

// ------------------------------------------------------------------------------------------------- row level security

#[tokio::test(flavor = "multi_thread")]
async fn a_transaction_of_another_tenant_neither_sees_nor_writes_a_row() {
    let adapter = open().await;
    let (ledger, jobs, runs) = (adapter.ledger(), adapter.jobs(), adapter.runs());
    ledger.renew(owner(1), LEASE).await.unwrap();
    ledger.begin(intent(1, "k", owner(1))).await.unwrap();
    jobs.enqueue(sample_job("acme", 1)).await.unwrap();
    let tenant: TenantId = "acme".parse().unwrap();
    let run = NewRun { tenant, id: id(1), workflow: "w".into(), idempotency_key: "k".into(), input: json!({}) };
    runs.begin_run(&run).await.unwrap();
    let database = adapter.url.rsplit('/').next().unwrap();
    let within = |tenant: &str, statement: &str| {
        let all = format!("SET ROLE gantry; BEGIN; SET LOCAL gantry.tenant = '{tenant}'; {statement}; COMMIT");
        SERVER.sql(database, &all)
    };
    for table in ["ledger", "jobs", "job_bodies", "job_events", "workflow_runs"] {
        let count = format!("SELECT count(*) FROM {table}");
        for (tenant, rows) in [("acme", "1"), ("*", "1"), ("other", "0"), ("", "0")] {
            assert_eq!(within(tenant, &count).unwrap(), rows, "{table} for `{tenant}`");
        }
        let steal = format!("WITH gone AS (DELETE FROM {table} RETURNING 1) SELECT count(*) FROM gone");
        assert_eq!(within("other", &steal).unwrap(), "0", "{table}");
    }
    let add_up = "WITH changed AS (UPDATE job_tenants SET waiting = 0 RETURNING 1)
                  SELECT (SELECT count(*) FROM changed), (SELECT sum(waiting) FROM job_tenants)";
    assert_eq!(within("other", add_up).unwrap(), "0|1", "counters can be added up, but not changed");
    let forged = "INSERT INTO job_bodies (seq, tenant_id, payload) VALUES (99, 'acme', '1')";
    let refused = within("other", forged).unwrap_err().to_string();
    assert!(refused.contains("row-level security"), "{refused}");
}
