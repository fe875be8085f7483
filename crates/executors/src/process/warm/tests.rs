//! The warm pool against a clock that is stepped by hand, and against random use.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use ports::clock::UnixMillis;
use proptest::prelude::*;

use super::*;

/// Stands until it is stepped.
#[derive(Debug, Default)]
struct StepClock(AtomicU64);

impl StepClock {
    fn step(&self, seconds: u64) {
        self.0.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for StepClock {
    fn now(&self) -> UnixMillis {
        UnixMillis(0)
    }

    fn monotonic(&self) -> Duration {
        Duration::from_secs(self.0.load(Ordering::Relaxed))
    }

    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        self.step(span.as_secs());
        Box::pin(tokio::task::yield_now())
    }
}

const BOUNDS: WarmBounds = WarmBounds {
    idle_max: 4,
    idle_per_key_max: 2,
    idle_for_max: Duration::from_secs(10),
    calls_max: 3,
    age_max: Duration::from_secs(30),
};

fn pool(bounds: WarmBounds) -> (WarmPool<u32>, Arc<StepClock>) {
    let clock = Arc::new(StepClock::default());
    (WarmPool::new(Arc::clone(&clock) as Arc<dyn Clock>, bounds), clock)
}

fn key(tool: &str, tenant: &str) -> WarmKey {
    WarmKey::new(tool.parse().unwrap(), &Version::new(1, 0, 0), tenant.parse().unwrap(), Digest::of_bytes(b"limits"))
}

/// Starts a process and lets it serve one call.
fn served(pool: &WarmPool<u32>, key: &WarmKey, process: u32) {
    pool.give_back(pool.started(key.clone(), process));
}

fn taken(pool: &WarmPool<u32>, key: &WarmKey) -> Option<u32> {
    pool.take(key).map(|warm| warm.process)
}

#[test]
fn only_an_equal_key_gets_the_process() {
    let (pool, _) = pool(BOUNDS);
    let ours = key("demo.tool", "acme");
    served(&pool, &ours, 1);
    let version = WarmKey { version: "1.0.0+build".to_owned(), ..ours.clone() };
    let confinement = WarmKey { confinement: Digest::of_bytes(b"other"), ..ours.clone() };
    for other in [key("demo.tool", "rival"), key("demo.other", "acme"), version, confinement] {
        assert_eq!(taken(&pool, &other), None, "{other:?}");
    }
    assert_eq!(taken(&pool, &ours), Some(1));
    assert_eq!(taken(&pool, &ours), None);
    assert_eq!(pool.counts(), WarmCounts { hits: 1, misses: 5, ..WarmCounts::default() });
}

#[test]
fn the_last_used_is_given_first_and_the_longest_idle_gives_way() {
    let (pool, _) = pool(BOUNDS);
    let (a, b, c) = (key("demo.aaa", "t"), key("demo.bbb", "t"), key("demo.ccc", "t"));
    for process in 1..=3 {
        served(&pool, &a, process);
    }
    assert_eq!((pool.counts().idle, pool.counts().crowded_out), (2, 1), "two of one key");
    served(&pool, &b, 4);
    served(&pool, &b, 5);
    served(&pool, &c, 6);
    assert_eq!((pool.counts().idle, pool.counts().crowded_out), (4, 2), "four in all");
    assert_eq!((taken(&pool, &a), taken(&pool, &a)), (Some(3), None));
    assert_eq!((taken(&pool, &b), taken(&pool, &b)), (Some(5), Some(4)));
}

#[test]
fn bounds_of_zero_keep_nothing() {
    for bounds in [WarmBounds { idle_max: 0, ..BOUNDS }, WarmBounds { idle_per_key_max: 0, ..BOUNDS }] {
        let (pool, _) = pool(bounds);
        served(&pool, &key("demo.tool", "t"), 1);
        let counts = pool.counts();
        assert_eq!((counts.idle, counts.expired + counts.worn_out + counts.crowded_out + counts.forgotten), (0, 1));
    }
}

#[test]
fn rest_age_and_calls_are_bounded() {
    let (pool, clock) = pool(BOUNDS);
    let key = key("demo.tool", "t");
    served(&pool, &key, 1);
    assert_eq!(pool.expire(), Some(Duration::from_secs(10)));
    clock.step(9);
    assert_eq!(pool.expire(), Some(Duration::from_secs(1)));
    clock.step(1);
    assert_eq!((pool.expire(), pool.counts().expired), (None, 1), "idle too long");

    served(&pool, &key, 2);
    for calls in 1..3 {
        let warm = pool.take(&key).unwrap();
        assert_eq!(warm.calls(), calls);
        pool.give_back(warm);
    }
    assert_eq!((taken(&pool, &key), pool.counts().worn_out), (None, 1), "three calls");

    let warm = pool.started(key.clone(), 3);
    clock.step(29);
    pool.give_back(warm);
    assert_eq!(pool.expire(), Some(Duration::from_secs(1)), "its age is nearer than its rest");
    clock.step(1);
    assert_eq!((taken(&pool, &key), pool.counts().expired), (None, 2), "too old");
    let warm = pool.started(key, 4);
    clock.step(30);
    pool.give_back(warm);
    assert_eq!((pool.counts().idle, pool.counts().expired), (0, 3), "too old when it comes back");
}

#[test]
fn a_forgotten_version_leaves_the_pool_also_by_way_of_a_call() {
    let (pool, _) = pool(BOUNDS);
    let (gone, stays) = (key("demo.gone", "t"), key("demo.stays", "t"));
    served(&pool, &gone, 1);
    served(&pool, &stays, 2);
    let out = pool.started(gone.clone(), 3);
    pool.forget(&gone.tool, &Version::new(1, 0, 0));
    assert_eq!(taken(&pool, &gone), None);
    pool.give_back(out);
    assert_eq!((taken(&pool, &gone), pool.counts().forgotten), (None, 2));
    let kept = pool.take(&stays).unwrap();
    pool.give_back(kept);
    assert_eq!(taken(&pool, &stays), Some(2), "other versions stay, and come back again");
    pool.forget(&stays.tool, &Version::new(2, 0, 0));
    served(&pool, &gone, 4);
    assert_eq!(taken(&pool, &gone), Some(4), "loaded anew, it is warm anew");
    pool.clear();
    assert_eq!(pool.counts().idle, 0);
}

#[tokio::test]
async fn the_keeper_lets_go_of_what_nobody_asks_for() {
    let (pool, _) = pool(BOUNDS);
    served(&pool, &key("demo.tool", "t"), 1);
    let kept = async {
        while pool.counts().idle > 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = pool.keep_in_order() => panic!("never ends by itself"),
        () = kept => {}
    }
    assert_eq!(pool.counts().expired, 1);
}

#[test]
fn processes_are_dropped_outside_the_lock() {
    /// Asks the pool while it is dropped, which would hang if the lock were held.
    struct Asks(std::sync::Weak<WarmPool<Self>>, Arc<AtomicU64>);
    impl Drop for Asks {
        fn drop(&mut self) {
            let idle = self.0.upgrade().map_or(0, |pool| pool.counts().idle);
            self.1.fetch_add(1 + idle as u64, Ordering::Relaxed);
        }
    }
    let clock = Arc::new(StepClock::default());
    let pool = Arc::new(WarmPool::new(Arc::clone(&clock) as Arc<dyn Clock>, BOUNDS));
    let dropped = Arc::new(AtomicU64::new(0));
    let key = key("demo.tool", "t");
    let start = || pool.started(key.clone(), Asks(Arc::downgrade(&pool), Arc::clone(&dropped)));
    for warm in [start(), start(), start()] {
        pool.give_back(warm);
    }
    assert_eq!(dropped.load(Ordering::Relaxed), 3, "one gave way, two were there");
    clock.step(100);
    assert!(pool.take(&key).is_none());
    pool.give_back(start());
    pool.forget(&key.tool, &Version::new(1, 0, 0));
    assert_eq!(dropped.load(Ordering::Relaxed), 6);
}

/// One thing somebody does with the pool.
#[derive(Debug, Clone)]
enum Act {
    Start(usize),
    Take(usize),
    GiveBack(usize),
    End(usize),
    Step(u64),
    Forget(usize),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => (0_usize..6).prop_map(Act::Start),
        4 => (0_usize..6).prop_map(Act::Take),
        5 => any::<prop::sample::Index>().prop_map(|at| Act::GiveBack(at.index(64))),
        1 => any::<prop::sample::Index>().prop_map(|at| Act::End(at.index(64))),
        2 => (0_u64..12).prop_map(Act::Step),
        1 => (0_usize..2).prop_map(Act::Forget),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn whatever_happens_nobody_gets_a_process_of_another_key(acts in prop::collection::vec(act(), 1..80)) {
        let keys: Vec<WarmKey> = ["acme", "rival", "third"].iter()
            .flat_map(|tenant| [key("demo.one", tenant), key("demo.two", tenant)]).collect();
        let clock = Arc::new(StepClock::default());
        // What is kept remembers for whom, when, and in which loading of the version it was started.
        let pool: WarmPool<(usize, Duration, u64)> = WarmPool::new(Arc::clone(&clock) as Arc<dyn Clock>, BOUNDS);
        let mut out = Vec::new();
        let mut loaded = [0_u64; 2];
        for act in acts {
            match act {
                Act::Start(at) => out.push(pool.started(keys[at].clone(), (at, clock.monotonic(), loaded[at % 2]))),
                Act::Take(at) => if let Some(warm) = pool.take(&keys[at]) {
                    let (owner, started, loading) = warm.process;
                    prop_assert_eq!(owner, at);
                    prop_assert_eq!(loading, loaded[at % 2]);
                    prop_assert!(clock.monotonic() - started < BOUNDS.age_max);
                    prop_assert!(warm.calls() < BOUNDS.calls_max);
                    out.push(warm);
                },
                Act::GiveBack(at) => if !out.is_empty() {
                    let at = at % out.len();
                    pool.give_back(out.swap_remove(at));
                },
                Act::End(at) => if !out.is_empty() {
                    let at = at % out.len();
                    drop(out.swap_remove(at));
                },
                Act::Step(seconds) => clock.step(seconds),
                Act::Forget(tool) => {
                    loaded[tool] += 1;
                    pool.forget(&keys[tool].tool, &Version::new(1, 0, 0));
                }
            }
            prop_assert!(pool.counts().idle <= BOUNDS.idle_max);
            for key in &keys {
                let room = pool.room();
                prop_assert!(room.idle.iter().filter(|idle| idle.warm.key == *key).count() <= BOUNDS.idle_per_key_max);
            }
        }
    }
}
