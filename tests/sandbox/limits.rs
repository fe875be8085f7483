//! Limits nest: the tool's within the request's within the server's (BC-1), and each is kept.

use super::loopback::Loopback;
use super::*;

/// Touches as many megabytes as it is told to.
const HOLDS: &str = "import mmap
held = mmap.mmap(-1, parameters['mb'] << 20)
for at in range(0, len(held), 4096): held[at] = 1
result = len(held) >> 20";

#[tokio::test]
async fn a_limit_is_the_least_that_anybody_says_and_asking_above_the_server_is_refused() {
    let generous = json!({ "cpu": "1", "memory": "300Mi", "ephemeral_storage": "8Mi" });
    let greedy = json!({ "cpu": "1", "memory": "9Gi", "ephemeral_storage": "8Mi" });
    let workshop = Workshop::with([
        Tool::python("holds", HOLDS).with("resource_limits", generous),
        Tool::python("greedy", HOLDS).with("resource_limits", greedy),
    ]);
    let gantry = workshop.open().await;
    for (id, mb, limits, expected) in [
        ("holds", 100, json!({}), Ok(100)),
        ("holds", 100, json!({ "memory_mb_limit": 64 }), Err("E3403")),
        ("holds", 30, json!({ "memory_mb_limit": 64 }), Ok(30)),
        // A request above the manifest changes nothing.
        ("holds", 400, json!({ "memory_mb_limit": 4096 }), Err("E3403")),
        ("holds", 1, json!({ "memory_mb_limit": 1_000_000 }), Err("E3407")),
        ("holds", 1, json!({ "cpu_millicore_limit": 1_000_000 }), Err("E3407")),
        ("holds", 1, json!({ "network_bandwidth_mbps": 1_000_000 }), Err("E3407")),
        ("greedy", 1, json!({}), Err("E3407")),
    ] {
        let answer = bounded(&gantry, id, json!({ "mb": mb }), limits.clone()).await;
        match expected {
            Ok(held) => assert_eq!(answer.body["result"], held, "{limits}: {}", answer.text),
            Err(code) => assert_eq!(answer.refusal().1, code, "{id}, {mb}, {limits}: {}", answer.text),
        }
    }
}

#[tokio::test]
async fn the_cpu_of_a_call_is_bounded_by_what_was_asked() {
    let burns = "
start, used = time.monotonic(), time.process_time()
while time.process_time() - used < 0.3: pass
result = time.monotonic() - start
";
    let workshop = Workshop::with([Tool::python("burns", burns)]);
    let gantry = workshop.open().await;
    let answer = bounded(&gantry, "burns", json!({}), json!({ "cpu_millicore_limit": 200 })).await;
    // A fifth of a core takes five times as long; a little less, because the period in which it began was not full.
    assert!(answer.body["result"].as_f64().unwrap() > 1.0, "{}", answer.text);
}

#[tokio::test]
async fn the_bandwidth_of_a_call_is_bounded_by_what_was_asked() {
    let fetches = "
import urllib.request
start = time.monotonic()
assert len(urllib.request.urlopen(parameters['url'], timeout=10).read()) == 1_000_000
result = time.monotonic() - start
";
    let server = Loopback::start().await;
    let workshop = Workshop::with([Tool::python("fetches", fetches).may(&[server.permission()])]);
    let gantry = workshop.open().await;
    let parameters = json!({ "url": server.url(1_000_000) });
    let answer = bounded(&gantry, "fetches", parameters, json!({ "network_bandwidth_mbps": 4 })).await;
    // Half a megabyte a second: two seconds, less what may come at once.
    assert!(answer.body["result"].as_f64().unwrap() > 1.0, "{}", answer.text);
}

#[tokio::test]
async fn a_limit_that_nothing_can_start_with_is_told_as_what_it_is() {
    let workshop = Workshop::with([Tool::shell("tiny", "echo 1")]);
    let gantry = workshop.open().await;
    for member in ["memory_mb_limit", "cpu_millicore_limit"] {
        let answer = bounded(&gantry, "tiny", json!({}), json!({ member: 0 })).await;
        assert_eq!(answer.code(), "E3004", "{}", answer.text);
    }
    let answer = bounded(&gantry, "tiny", json!({}), json!({ "memory_mb_limit": 1 })).await;
    assert!(["", "E3403"].contains(&answer.code()), "{}", answer.text);
    assert_eq!(call(&gantry, "tiny", json!({})).await.code(), "");
}
