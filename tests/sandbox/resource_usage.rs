//! What a call is charged with is what it used, within a tenth: shown with tools that use a known amount.
//!
//! An interpreter uses CPU and memory before it comes to the tool's own work, so the same tool is also run with nothing to
//! do and that is taken off.

use super::loopback::Loopback;
use super::*;

/// Milliseconds of CPU that a tool burns by its own count.
const CPU_MILLIS: u64 = 1000;
/// MiB that a tool fills.
const MEMORY_MB: u64 = 100;

/// One entry of the metadata of a call.
async fn used(gantry: &Gantry, id: &str, parameters: Value, member: &str) -> u64 {
    let answer = call(gantry, id, parameters).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.body["execution_metadata"][member].as_u64().unwrap()
}

/// The middle of three, because one run may be disturbed.
async fn usually(gantry: &Gantry, id: &str, parameters: Value, member: &str) -> u64 {
    let mut seen = Vec::new();
    for _ in 0..3 {
        seen.push(used(gantry, id, parameters.clone(), member).await);
    }
    seen.sort_unstable();
    seen[1]
}

fn within_a_tenth(charged: u64, known: u64, what: &str) {
    assert!(charged.abs_diff(known) * 10 <= known, "{what}: charged {charged}, used {known}");
}

#[tokio::test]
async fn cpu_time_is_charged_within_a_tenth() {
    // The work is done by a child as well, and by one that is not waited for: it counts all the same.
    let burns = "
def burn(millis):
    start = time.process_time()
    while (time.process_time() - start) * 1000 < millis: pass
half = parameters['millis'] / 2
if os.fork() == 0:
    burn(half)
    os.close(1)
    os._exit(0)
burn(half)
os.wait()
result = 1
";
    let workshop = Workshop::with([Tool::python("burns", burns)]);
    let gantry = workshop.open().await;
    let member = "cpu_used_millicore_seconds";
    let idle = usually(&gantry, "burns", json!({ "millis": 0 }), member).await;
    let busy = usually(&gantry, "burns", json!({ "millis": CPU_MILLIS }), member).await;
    within_a_tenth(busy - idle, CPU_MILLIS, "milliseconds of CPU");
}

#[tokio::test]
async fn the_peak_of_memory_is_charged_within_a_tenth() {
    // A mapping is what it says it is; a growing array would be copied on its way.
    let maps = "import mmap
if parameters['mb']:
    held = mmap.mmap(-1, parameters['mb'] << 20)
    for at in range(0, len(held), 4096): held[at] = 1
result = 1
";
    let workshop = Workshop::with([Tool::python("holds", maps)]);
    let gantry = workshop.open().await;
    let idle = usually(&gantry, "holds", json!({ "mb": 0 }), "memory_peak_mb").await;
    let full = usually(&gantry, "holds", json!({ "mb": MEMORY_MB }), "memory_peak_mb").await;
    within_a_tenth(full - idle, MEMORY_MB, "MiB of memory");
}

#[tokio::test]
async fn bytes_through_the_proxy_are_charged_within_a_tenth() {
    let server = Loopback::start().await;
    let sends = "
import urllib.request
request = urllib.request.Request(parameters['url'], data=b'x' * parameters['send'], headers={'content-type': 'text/plain'})
result = len(urllib.request.urlopen(request, timeout=20).read())
";
    let workshop = Workshop::with([Tool::python("sends", sends).may(&[server.permission()])]);
    let gantry = workshop.open().await;
    let (sent, received): (u64, usize) = (700_000, 2_500_000);
    let answer = call(&gantry, "sends", json!({ "url": server.url(received), "send": sent })).await;
    assert_eq!(answer.body["result"], received, "{}", answer.text);
    let charged = &answer.body["execution_metadata"];
    within_a_tenth(charged["network_bytes_sent"].as_u64().unwrap(), sent, "bytes sent");
    within_a_tenth(charged["network_bytes_received"].as_u64().unwrap(), received as u64, "bytes received");
    // The other end has counted too, and to the byte.
    assert_eq!(charged["network_bytes_sent"], server.received());
    assert_eq!(charged["network_bytes_received"], server.sent());
}
