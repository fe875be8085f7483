//! The orderly end: what runs is finished, what is idle is closed, what hangs is counted (OPS-011).

use gantry_server::{DrainOutcome, ServerConfig};

use crate::client::{Client, request};
use crate::stage::Stage;

#[tokio::test]
async fn calls_in_flight_are_finished_and_idle_connections_closed() {
    let mut stage = Stage::new().await;
    let mut busy = stage.start_gated().await;
    let mut idle = Client::connect(stage.address).await;
    idle.send(request("GET", "/health/ready", None, None).as_bytes()).await;
    assert_eq!(idle.reply().await.status, 200);
    stage.stop();
    idle.closed().await;
    stage.tools.gate.add_permits(1);
    assert_eq!(busy.reply().await.status, 200);
    assert_eq!(stage.drained().await, DrainOutcome { in_flight: 1, finished: 1, aborted: 0 });
}

#[tokio::test]
async fn calls_that_hang_are_counted_and_ended_with_an_answer() {
    let mut stage = Stage::with(ServerConfig { drain_timeout_ms: 50, ..ServerConfig::default() }).await;
    let mut hanging = stage.start_gated().await;
    stage.stop();
    assert_eq!(stage.drained().await, DrainOutcome { in_flight: 1, finished: 0, aborted: 1 });
    let reply = hanging.reply().await;
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (409, Some("E3703")));
}

#[tokio::test]
async fn readiness_ends_before_accepting_does() {
    let mut stage = Stage::with(ServerConfig { lame_duck_ms: 600_000, ..ServerConfig::default() }).await;
    assert_eq!(stage.ask("GET", "/health/ready", None, None).await.status, 200);
    stage.stop();
    // The server notices the signal in its own time; every answer until then is 200.
    let reply = loop {
        let reply = stage.ask("GET", "/health/ready", None, None).await;
        if reply.status != 200 {
            break reply;
        }
    };
    assert_eq!((reply.status, reply.json()["status"].as_str()), (503, Some("draining")));
    assert_eq!(stage.ask("GET", "/health/live", None, None).await.status, 200);
    assert_eq!(stage.admin("GET", "/health", None).await.json()["checks"]["door"]["healthy"], false);
}

#[tokio::test]
async fn a_server_without_calls_ends_at_once() {
    let mut stage = Stage::new().await;
    stage.stop();
    assert_eq!(stage.drained().await, DrainOutcome { in_flight: 0, finished: 0, aborted: 0 });
}
