//! Two registries on one store: what one publishes, the other knows as soon as it is told (DESIGN §3).

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test crate, which waits by the machine's clock")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use contract::ids::{TenantId, ToolId};
use contract::manifest::Manifest;
use gantry_kernel::registry::Registry;
use ports::change_bus::{BusChange, ChangeBus as _};
use ports::clock::{Clock, UnixMillis};
use ports::lifecycle::LifecycleAction;
use ports::observer::NoObserver;
use serde_json::json;
use shared_state::MemoryBus;
use store::memory::MemoryStore;

const PATIENCE: Duration = Duration::from_secs(30);

/// Time for pauses, none for the refresh by time: only words are to help here.
#[derive(Debug)]
struct Wordy;

impl Clock for Wordy {
    fn now(&self) -> UnixMillis {
        UnixMillis(1_800_000_000_000)
    }
    fn monotonic(&self) -> Duration {
        Duration::ZERO
    }
    fn sleep(&self, span: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + 'static>> {
        if span < Duration::from_secs(1) {
            Box::pin(tokio::time::sleep(span))
        } else {
            Box::pin(std::future::pending())
        }
    }
}

async fn open(store: &Arc<MemoryStore>) -> Arc<Registry> {
    let registry =
        Registry::open(Arc::clone(store) as _, Arc::clone(store) as _, Arc::new(Wordy), Arc::new(NoObserver)).await;
    Arc::new(registry.unwrap())
}

fn manifest(version: &str) -> Manifest {
    let manifest = json!({
        "tool_id": "demo", "version": version, "name": "Demo", "description": "A tool that is published elsewhere.",
        "provider": "Tests", "protocol": "native", "side_effect_policy": "pure", "timeout_class": "standard",
        "parameters": { "type": "object", "properties": {} }, "result_schema": { "type": "object" },
    });
    serde_json::from_value(manifest).unwrap()
}

async fn until(registry: &Registry, what: &str, holds: impl Fn(&Registry) -> bool) {
    let start = Instant::now();
    while !holds(registry) {
        assert!(start.elapsed() < PATIENCE, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn a_registry_that_follows_knows_what_another_has_published_and_changed() {
    let store = Arc::new(MemoryStore::new());
    let (here, there) = (open(&store).await, open(&store).await);
    let bus = Arc::new(MemoryBus::default());
    let (following, words) = (Arc::clone(&there), Arc::clone(&bus));
    let follower = tokio::spawn(async move { following.follow(&*words).await });
    let (home, demo): (TenantId, ToolId) = (TenantId::home(), "demo".parse().unwrap());
    let by = "tests".parse().unwrap();
    // Told again and again, because nobody knows when the follower begins to listen.
    let told = |registry: Arc<Registry>, what: &'static str, holds: fn(&Registry) -> bool| {
        let bus = Arc::clone(&bus);
        async move {
            let talk = async {
                loop {
                    bus.publish(BusChange::Registry { generation: 1 }).await;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            };
            tokio::select! {
                () = talk => {}
                () = until(&registry, what, holds) => {}
            }
        }
    };
    here.register(&home, manifest("1.0.0"), &by).await.unwrap();
    assert_eq!(there.snapshot().tool_count(), 0, "nobody has told it");
    told(Arc::clone(&there), "the tool", |registry| registry.snapshot().tool_count() == 1).await;
    let first = Arc::clone(there.snapshot().tool(&home, &demo).unwrap().version(&"1.0.0".parse().unwrap()).unwrap());
    here.register(&home, manifest("1.1.0"), &by).await.unwrap();
    told(Arc::clone(&there), "the version", |registry| registry.snapshot().version_count() == 2).await;
    let kept = Arc::clone(there.snapshot().tool(&home, &demo).unwrap().version(&"1.0.0".parse().unwrap()).unwrap());
    assert!(Arc::ptr_eq(&first, &kept), "what was compiled for a version is kept");
    here.change_lifecycle(&home, "demo", None, &LifecycleAction::Remove, |_| true).await.unwrap();
    told(Arc::clone(&there), "the removal", |registry| {
        let (home, demo): (TenantId, ToolId) = (TenantId::home(), "demo".parse().unwrap());
        let snapshot = registry.snapshot();
        let removed = |version: &str| {
            let version = snapshot.tool(&home, &demo).unwrap().version(&version.parse().unwrap()).unwrap().clone();
            version.lifecycle.recorded == contract::manifest::LifecycleState::Removed
        };
        removed("1.0.0") && removed("1.1.0")
    })
    .await;
    follower.abort();
}
