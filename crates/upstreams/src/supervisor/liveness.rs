//! What goes on beside a server that is there: it is asked now and then whether it still is (MCP-013), its changes are followed,
//! and they are told on, bounded.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::AbortOnDropHandle;

use super::ServerUnit;
use super::live::LiveConnection;
use crate::spec::ServerSpec;

/// Heartbeats that may fail in a row while calls run: a server that works on one may not have the time to answer.
const MISSES_MAX_BUSY: u32 = 3;
/// Changes of a server's tools are told no more often than this.
const CHANGES_EVERY: Duration = Duration::from_secs(1);

/// Begins all of it. Ends with the returned value.
pub(super) fn of(unit: &Arc<ServerUnit>, live: &Arc<LiveConnection>, spec: &ServerSpec) -> [AbortOnDropHandle<()>; 4] {
    let every = Duration::from_secs(spec.upkeep.health_check_seconds);
    let following = {
        let live = Arc::clone(live);
        async move { live.connection.follow_changes().await }
    };
    [
        AbortOnDropHandle::new(tokio::spawn(beat(Arc::clone(unit), Arc::clone(live), every))),
        AbortOnDropHandle::new(tokio::spawn(following)),
        AbortOnDropHandle::new(tokio::spawn(tell_changes(Arc::clone(unit)))),
        AbortOnDropHandle::new(tokio::spawn(crate::watched::tell_offerings(Arc::clone(unit)))),
    ]
}

async fn beat(unit: Arc<ServerUnit>, live: Arc<LiveConnection>, every: Duration) {
    if every.is_zero() {
        return;
    }
    let context = &unit.context;
    let mut misses = 0;
    loop {
        context.clock.sleep(every).await;
        match live.connection.heartbeat(context.bounds.heartbeat_patience).await {
            Ok(()) => misses = 0,
            Err(fault) => {
                misses += 1;
                tracing::warn!(server = %unit.name, %fault, misses, "a server does not answer");
                if misses >= MISSES_MAX_BUSY || live.running() == 0 {
                    return live.connection.give_up("the server does not answer any more");
                }
            }
        }
    }
}

async fn tell_changes(unit: Arc<ServerUnit>) {
    loop {
        unit.tools_changed.notified().await;
        unit.context.watchers.tools_changed(&unit);
        unit.context.clock.sleep(CHANGES_EVERY).await;
    }
}
