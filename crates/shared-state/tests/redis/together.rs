//! Several replicas on one Redis at once: totals are exact, and nothing happens twice. (RES-008, W9)

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use gantry_shared_state::RedisState;
use ports::resilience::{
    BreakerAdmission, BreakerMode, BreakerSettings, BreakerVerdict, PermittedOutcome, RateQuota, SettingsDraft,
};
use ports::shared_state::{
    AllTaken, BreakerKey, BreakerQuery, BreakerTransition, KeyedQuota, RateLimits as _, ReplaceMode, ReserveOutcome,
    SharedBreakers as _, SharedValues as _,
};
use tokio::sync::broadcast::Receiver;
use tokio::task::JoinSet;

use crate::server::{replica, shared, unique, within};

const REPLICAS: usize = 4;
const TASKS_EACH: usize = 25;
const LEASE: Duration = Duration::from_secs(60);

async fn replicas() -> Vec<Arc<RedisState>> {
    let namespace = unique("together");
    let mut replicas = Vec::new();
    let start_us = shared().time_us() + 3_600_000_000;
    for _ in 0..REPLICAS {
        let state = replica(shared(), &namespace).await;
        state.hold_clock(start_us);
        replicas.push(Arc::new(state));
    }
    replicas
}

/// Many of the same at once, on every replica.
async fn at_once<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    replicas: &[Arc<RedisState>],
    task: impl Fn(Arc<RedisState>, usize) -> F,
) -> Vec<T> {
    let mut tasks = JoinSet::new();
    for n in 0..REPLICAS * TASKS_EACH {
        tasks.spawn(task(Arc::clone(&replicas[n % REPLICAS]), n));
    }
    within(tasks.join_all()).await
}

fn mail() -> BreakerKey {
    BreakerKey::new("acme".parse().unwrap(), "mail", "smtp.example:25").unwrap()
}

fn opens_at_five() -> BreakerSettings {
    SettingsDraft { open_ms: Some(5_000), half_open_max_calls: Some(10), ..SettingsDraft::default() }.checked().unwrap()
}

/// Asks and records one outcome; answers whether it was permitted.
async fn call(state: &RedisState, settings: &BreakerSettings, verdict: BreakerVerdict) -> bool {
    match state.acquire(&mail(), settings, LEASE).await.unwrap() {
        BreakerAdmission::Permitted(permit) => {
            state.record(&mail(), settings, permit, PermittedOutcome::of(verdict)).await.unwrap();
            true
        }
        BreakerAdmission::Refused { .. } => false,
    }
}

async fn hear(listener: &mut Receiver<BreakerTransition>) -> (BreakerMode, BreakerMode) {
    let heard = within(listener.recv()).await.unwrap();
    assert_eq!(heard.key, mail());
    (heard.change.from, heard.change.to)
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_records_are_all_counted() {
    let replicas = replicas().await;
    let draft = SettingsDraft { failure_threshold: Some(100_000), ..SettingsDraft::default() };
    let settings = draft.checked().unwrap();
    let settings = &settings;
    at_once(&replicas, |state, n| {
        let settings = settings.clone();
        async move {
            call(&state, &settings, if n % 4 == 0 { BreakerVerdict::Failed } else { BreakerVerdict::Succeeded }).await
        }
    })
    .await;
    let reports = replicas[0].inspect(&BreakerQuery { limit: 10, ..BreakerQuery::default() }).await.unwrap();
    let [report] = reports.as_slice() else { panic!("one breaker, not {}", reports.len()) };
    assert_eq!((report.snapshot.totals.calls, report.snapshot.totals.failed), (100, 25));
    assert_eq!(report.key, mail());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_transition_is_made_once_and_heard_once_by_everybody() {
    let replicas = replicas().await;
    let settings = opens_at_five();
    let mut listeners: Vec<_> = replicas.iter().map(|state| state.transitions()).collect();

    let permitted = at_once(&replicas, |state, _| {
        let settings = settings.clone();
        async move { call(&state, &settings, BreakerVerdict::Failed).await }
    })
    .await;
    assert!(permitted.iter().filter(|permitted| **permitted).count() >= 5);

    // The wait is over for all at the same moment, and all of them come at once.
    let later_us = shared().time_us() + 3_610_000_000;
    replicas.iter().for_each(|state| state.hold_clock(later_us));
    let admissions = at_once(&replicas, |state, _| {
        let settings = settings.clone();
        async move { state.acquire(&mail(), &settings, LEASE).await.unwrap() }
    })
    .await;
    let permits: Vec<_> = admissions
        .iter()
        .filter_map(|admission| match admission {
            BreakerAdmission::Permitted(permit) => Some(*permit),
            BreakerAdmission::Refused { .. } => None,
        })
        .collect();
    assert_eq!(permits.len(), 10, "as many probes as there are places");
    let mut slots: Vec<_> = permits.iter().map(|permit| permit.slot).collect();
    slots.sort_unstable();
    slots.dedup();
    assert_eq!(slots.len(), 10, "each place is given once");

    let mut results = JoinSet::new();
    for (n, permit) in permits.into_iter().enumerate() {
        let (state, settings) = (Arc::clone(&replicas[n % REPLICAS]), settings.clone());
        results.spawn(async move {
            state.record(&mail(), &settings, permit, PermittedOutcome::of(BreakerVerdict::Succeeded)).await.unwrap();
        });
    }
    within(results.join_all()).await;

    use BreakerMode::{Closed, HalfOpen, Open};
    for listener in &mut listeners {
        for expected in [(Closed, Open), (Open, HalfOpen), (HalfOpen, Closed)] {
            assert_eq!(hear(listener).await, expected);
        }
        assert!(listener.is_empty(), "nothing is told twice");
    }
    let query = BreakerQuery { limit: 10, ..BreakerQuery::default() };
    let history = replicas[1].inspect(&query).await.unwrap().remove(0).history;
    assert_eq!(
        history.iter().map(|past| (past.from, past.to)).collect::<Vec<_>>(),
        [(HalfOpen, Closed), (Open, HalfOpen), (Closed, Open)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sources_channel_says_each_transition_in_their_words() {
    let namespace = unique("words");
    let state = replica(shared(), &namespace).await;
    let mut channel = shared().listen(&format!("{namespace}:cb:state:changes"));
    for _ in 0..5 {
        call(&state, &opens_at_five(), BreakerVerdict::Failed).await;
    }
    let heard = tokio::task::spawn_blocking(move || channel.next_message()).await.unwrap();
    assert_eq!(heard, "acme/mail@smtp.example:25:closed->open");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_gives_exactly_what_it_has_to_all_replicas_together() {
    let replicas = replicas().await;
    let hour = RateQuota::new(40, Duration::from_hours(1)).unwrap();
    let taken = at_once(&replicas, |state, _| async move {
        let limits = [KeyedQuota { key: "tool_rate:acme:u:t", quota: hour }];
        matches!(state.take(&limits, 1).await.unwrap(), AllTaken::Allowed { .. })
    })
    .await;
    assert_eq!(taken.iter().filter(|allowed| **allowed).count(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_counter_never_passes_its_ceiling_and_a_value_is_put_once() {
    let replicas = replicas().await;
    let life = Duration::from_hours(1);
    let counted =
        at_once(&replicas, |state, _| async move { state.reserve("budget", 3, 100, life).await.unwrap() }).await;
    let within_it = counted.iter().filter(|reserved| matches!(reserved, ReserveOutcome::Within { .. })).count();
    assert_eq!(within_it, 33);
    assert_eq!(replicas[0].settle("budget", 99, 10, life).await.unwrap(), 10);

    let put = at_once(&replicas, |state, n| async move {
        state.put("idem", n.to_string().as_bytes(), life, ReplaceMode::Never).await.unwrap()
    })
    .await;
    assert_eq!(put.iter().filter(|first| **first).count(), 1);
    let winner = put.len();
    let kept: usize = String::from_utf8(replicas[2].get("idem").await.unwrap().unwrap()).unwrap().parse().unwrap();
    assert!(kept < winner);
}

#[tokio::test(flavor = "multi_thread")]
async fn breakers_are_listed_page_by_page_in_the_order_of_their_keys() {
    let replicas = replicas().await;
    let settings = BreakerSettings::default();
    let mut all = BTreeMap::new();
    for (n, (tenant, service)) in
        [("acme", "a"), ("acme", "b}{"), ("local", "a"), ("zeta", "ü/@%"), ("acme", "c d")].into_iter().enumerate()
    {
        let key = BreakerKey::new(tenant.parse().unwrap(), service, if n % 2 == 0 { "" } else { "x:1" }).unwrap();
        replicas[n % REPLICAS].acquire(&key, &settings, LEASE).await.unwrap();
        all.insert(key, ());
    }
    let mut query = BreakerQuery { limit: 2, ..BreakerQuery::default() };
    let mut seen = Vec::new();
    loop {
        let page = replicas[3].inspect(&query).await.unwrap();
        let Some(last) = page.last() else { break };
        query.after = Some(last.key.clone());
        seen.extend(page.into_iter().map(|report| report.key));
    }
    assert_eq!(seen, all.into_keys().collect::<Vec<_>>());
    let of = BreakerQuery { tenant: Some("zeta".parse().unwrap()), limit: 9, ..BreakerQuery::default() };
    assert_eq!(replicas[0].inspect(&of).await.unwrap().len(), 1);
}
