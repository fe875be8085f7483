//! What every change bus must do, as tests, for whatever carries it: memory, Redis, a database.
//!
//! An adapter's test crate says how replicas come to one bus and names the suite; the list of cases lives here:
//!
//! ```text
//! mod bus { gantry_shared_state::bus_suite!(super::open); }
//! ```
//!
//! `open` is an `async fn() -> impl BusUnderTest` that gives a bus nobody else uses. The test crate needs `tokio` with macros.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ports::change_bus::{BusChange, ChangeBus};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;
use tokio::time::timeout;

/// How long a change may take on a machine that has much else to do.
const PATIENCE: Duration = Duration::from_secs(30);
/// More changes than any bus keeps for a listener that does not come to hear them.
const FLOOD: u64 = 3_000;

/// A bus to which replicas come.
#[async_trait]
pub trait BusUnderTest: Send {
    /// One more replica, once it is connected.
    async fn join(&self) -> Arc<dyn ChangeBus>;
}

/// The cases, each a test of its own.
#[macro_export]
macro_rules! bus_suite {
    ($open:path) => {
        $crate::bus_suite!(@cases $open,
            every_listener_hears_of_changes_published_after_it_came,
            another_replica_hears_every_kind_of_change_as_it_was_said,
            changes_of_one_replica_arrive_in_their_order,
            what_two_replicas_say_at_once_is_heard_by_a_third,
            a_listener_that_is_too_slow_is_told_and_hears_the_newest,
            publishing_waits_for_nobody,
        );
    };
    (@cases $open:path, $($case:ident),* $(,)?) => {
        $(#[tokio::test]
        async fn $case() {
            let hall = $open().await;
            $crate::bus_suite::$case(&hall).await;
        })*
    };
}

pub async fn every_listener_hears_of_changes_published_after_it_came(hall: &impl BusUnderTest) {
    let bus = hall.join().await;
    bus.publish(BusChange::Access { epoch: 1 }).await;
    let (mut first, mut second) = (bus.subscribe(), bus.subscribe());
    bus.publish(BusChange::Access { epoch: 2 }).await;
    for listener in [&mut first, &mut second] {
        let heard = until(listener, &BusChange::Access { epoch: 2 }).await;
        assert!(!heard.contains(&BusChange::Access { epoch: 1 }), "what was said before is not repeated: {heard:?}");
    }
}

pub async fn another_replica_hears_every_kind_of_change_as_it_was_said(hall: &impl BusUnderTest) {
    let (one, other) = (hall.join().await, hall.join().await);
    let mut listener = other.subscribe();
    let changes = [
        BusChange::Access { epoch: 1 },
        BusChange::Access { epoch: u64::MAX },
        BusChange::Registry { generation: 7 },
        BusChange::Servers,
        BusChange::Decisions,
        BusChange::Lost,
    ];
    for change in changes {
        one.publish(change.clone()).await;
        until(&mut listener, &change).await;
    }
}

pub async fn changes_of_one_replica_arrive_in_their_order(hall: &impl BusUnderTest) {
    let (one, other) = (hall.join().await, hall.join().await);
    let mut listener = other.subscribe();
    for epoch in 1..=100 {
        one.publish(BusChange::Access { epoch }).await;
    }
    let heard = epochs(&until(&mut listener, &BusChange::Access { epoch: 100 }).await);
    assert!(heard.is_sorted_by(|one, other| one < other), "{heard:?}");
}

pub async fn what_two_replicas_say_at_once_is_heard_by_a_third(hall: &impl BusUnderTest) {
    let (one, two, three) = (hall.join().await, hall.join().await, hall.join().await);
    let mut listener = three.subscribe();
    let say = |bus: Arc<dyn ChangeBus>, from: u64| async move {
        for epoch in from..from + 50 {
            bus.publish(BusChange::Access { epoch }).await;
        }
    };
    tokio::join!(say(one, 1_000), say(two, 2_000));
    // Each is heard, unless the listener was told that some were lost.
    let (mut missing, mut lost) = ((1_000..1_050).chain(2_000..2_050).collect::<Vec<u64>>(), false);
    while !missing.is_empty() && !lost {
        match hear(&mut listener).await {
            Ok(BusChange::Access { epoch }) => missing.retain(|other| *other != epoch),
            Ok(BusChange::Lost) | Err(_) => lost = true,
            Ok(
                BusChange::Registry { .. } | BusChange::Servers | BusChange::Decisions | BusChange::DecisionsOf { .. },
            ) => {}
        }
    }
}

pub async fn a_listener_that_is_too_slow_is_told_and_hears_the_newest(hall: &impl BusUnderTest) {
    let (one, other) = (hall.join().await, hall.join().await);
    let mut listener = other.subscribe();
    for epoch in 1..=FLOOD {
        one.publish(BusChange::Access { epoch }).await;
    }
    let mut told = false;
    loop {
        match hear(&mut listener).await {
            Err(RecvError::Lagged(_)) | Ok(BusChange::Lost) => told = true,
            // The newest is heard, or is among what was told to be lost.
            Ok(BusChange::Access { epoch }) if epoch == FLOOD => break,
            Ok(_) => {}
            Err(RecvError::Closed) => unreachable_bus(),
        }
        if told && listener.is_empty() {
            break;
        }
    }
    assert!(told, "a listener was not told that it has missed something");
}

pub async fn publishing_waits_for_nobody(hall: &impl BusUnderTest) {
    let bus = hall.join().await;
    let _never_read = bus.subscribe();
    let published = timeout(PATIENCE, async {
        for epoch in 1..=FLOOD {
            bus.publish(BusChange::Access { epoch }).await;
        }
    });
    assert!(published.await.is_ok(), "publishing waited for a listener");
}

/// Hears until this change came; answers what came, itself included.
pub async fn until(listener: &mut Receiver<BusChange>, wanted: &BusChange) -> Vec<BusChange> {
    let mut all = Vec::new();
    while all.last() != Some(wanted) {
        if let Ok(change) = hear(listener).await {
            all.push(change);
        }
    }
    all
}

async fn hear(listener: &mut Receiver<BusChange>) -> Result<BusChange, RecvError> {
    let heard = timeout(PATIENCE, listener.recv()).await;
    assert!(heard.is_ok(), "nothing was heard for {PATIENCE:?}");
    heard.unwrap_or(Err(RecvError::Closed))
}

fn epochs(changes: &[BusChange]) -> Vec<u64> {
    let epoch = |change: &BusChange| match change {
        BusChange::Access { epoch } => Some(*epoch),
        BusChange::Registry { .. }
        | BusChange::Servers
        | BusChange::Decisions
        | BusChange::DecisionsOf { .. }
        | BusChange::Lost => None,
    };
    changes.iter().filter_map(epoch).collect()
}

/// A bus ends with its last owner, and the tests own it.
#[expect(clippy::panic, reason = "a test fails this way")]
fn unreachable_bus() -> ! {
    panic!("the bus has ended")
}
