//! Limits over all processes of a call together, also for a server that has no control groups: an ordinary user's.

use serde_json::json;

use super::traces::{carriers, marker};
use super::{Tool, Workshop};
use crate::support::{Start, wait_for};

/// A server with control groups, if this machine has some for root, and one without.
fn both() -> [Start; 2] {
    [Start::new(), Start::new().running_as_ordinary_user()]
}

/// Forks ten children that hold fifty megabytes each, and fails when one of them is taken away: where the kernel ends single
/// processes, the first one is not among them.
const CROWD: &str = "
for _ in range(10):
    if os.fork() == 0:
        held = b'x' * (50 << 20)
        while True: time.sleep(60)
os.wait()
os._exit(1)
";

/// Two children that each use half a second of CPU; the result is how long that took.
const BUSY: &str = "
start = time.monotonic()
for _ in range(2):
    if os.fork() == 0:
        while time.process_time() < 0.5: pass
        os._exit(0)
for _ in range(2): os.wait()
result = time.monotonic() - start
";

/// Three children one after the other that each use half a second of CPU, and whom the kernel forgets as they end, because
/// their parent ignores that; the result is how long all took.
const FORGOTTEN: &str = "
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
start = time.monotonic()
for _ in range(3):
    if os.fork() == 0:
        while time.process_time() < 0.5: pass
        os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
result = time.monotonic() - start
";

/// The same second of CPU by children that live five milliseconds each: shorter than the time between two looks.
const STORM: &str = "
import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
start = time.monotonic()
for _ in range(200):
    if os.fork() == 0:
        while time.process_time() < 0.005: pass
        os._exit(0)
    try: os.wait()
    except ChildProcessError: pass
result = time.monotonic() - start
";

/// Forks children that share what their parent holds.
const SHARED: &str = "
held = b'x' * (60 << 20)
readers = []
for _ in range(5):
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.write(writer, b'%d' % (held[0] + held[-1]))
        os.read(0, 1)
        time.sleep(1)
        os._exit(0)
    readers.append(reader)
result = sum(int(os.read(reader, 9)) for reader in readers)
for _ in range(5): os.wait()
";

/// Fills local sockets that nobody reads, up to 256 megabytes, and waits to be found out.
const SOCKETS: &str = "
import socket
held, kept = 0, []
while held < (256 << 20) and len(kept) < 110:
    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.setblocking(False)
    kept.append((one, other))
    try: one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
    except OSError: pass
    try:
        while held < (256 << 20): held += one.send(b'x' * 100000)
    except OSError: pass
time.sleep(60)
";

/// Connections that nobody accepts, of clients that are gone: one descriptor for all of them.
const UNACCEPTED: &str = "
import socket
door = socket.socket(socket.AF_UNIX)
door.bind('/tmp/door')
door.listen(4096)
for _ in range(1000):
    one = socket.socket(socket.AF_UNIX)
    one.setblocking(False)
    one.connect('/tmp/door')
    try:
        while True: one.send(b'x' * 50000)
    except OSError: pass
    one.close()
time.sleep(60)
";

/// What ordinary programs have of them.
const FEW: &str = "
import socket
kept = [socket.socketpair() for _ in range(8)] + [os.pipe() for _ in range(30)]
for one, _ in kept[:8]: one.send(b'x' * 1000)
result = len(kept)
";

#[tokio::test]
async fn what_sockets_hold_is_memory_of_the_call() {
    for (program, code) in [(SOCKETS, "E3403"), (UNACCEPTED, "E3403"), (FEW, "")] {
        let mut tool = Tool::python("sockets", program);
        tool.manifest["resource_limits"] = json!({ "cpu": "1", "memory": "64Mi", "ephemeral_storage": "8Mi" });
        let workshop = Workshop::with([tool]);
        let gantry = workshop.open_with(Start::new().running_as_ordinary_user()).await;
        let answer = gantry.invoke_to_the_end("t.sockets", json!({})).await;
        assert_eq!(if answer.status == 200 { "" } else { answer.code() }, code, "{}", answer.text);
        assert!(code.is_empty() || answer.text.contains("64 MB of memory"), "{}", answer.text);
    }
}

#[tokio::test]
async fn tools_go_before_the_server_where_the_machine_has_no_memory_left() {
    for start in both() {
        let workshop = Workshop::with([Tool::python("score", "result = int(open('/proc/self/oom_score_adj').read())")]);
        let gantry = workshop.open_with(start).await;
        let answer = gantry.invoke_to_the_end("t.score", json!({})).await;
        assert_eq!((answer.status, &answer.body["result"]), (200, &json!(1000)), "{}", answer.text);
    }
}

#[tokio::test]
async fn ten_children_together_have_the_memory_of_one_call() {
    for start in both() {
        let mut tool = Tool::python("crowd", CROWD);
        tool.manifest["resource_limits"] = json!({ "cpu": "1", "memory": "100Mi", "ephemeral_storage": "8Mi" });
        let workshop = Workshop::with([tool]);
        let gantry = workshop.open_with(start).await;
        let answer = gantry.invoke_to_the_end("t.crowd", json!({})).await;
        assert_eq!(answer.code(), "E3403", "{}", answer.text);
        assert!(answer.text.contains("100 MB of memory"), "{}", answer.text);
    }
}

#[tokio::test]
async fn memory_that_children_share_is_counted_once() {
    let mut tool = Tool::python("family", SHARED);
    tool.manifest["resource_limits"] = json!({ "cpu": "1", "memory": "160Mi", "ephemeral_storage": "8Mi" });
    let workshop = Workshop::with([tool]);
    let gantry = workshop.open_with(Start::new().running_as_ordinary_user()).await;
    let answer = gantry.invoke_to_the_end("t.family", json!({})).await;
    assert_eq!((answer.status, &answer.body["result"]), (200, &json!(5 * 240)), "{}", answer.text);
}

#[tokio::test]
async fn a_busy_tree_gets_its_share_of_the_processor_and_no_more() {
    let mut tool = Tool::python("busy", BUSY);
    tool.manifest["resource_limits"] = json!({ "cpu": "200m", "memory": "256Mi", "ephemeral_storage": "8Mi" });
    let workshop = Workshop::with([tool]);
    let gantry = workshop.open_with(Start::new().running_as_ordinary_user()).await;
    let answer = gantry.invoke_to_the_end("t.busy", json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // A second of CPU by a fifth of a core takes five; a core for itself would take one.
    let seconds = answer.body["result"].as_f64().unwrap();
    assert!(seconds > 3.0, "{seconds} seconds");
}

#[tokio::test]
async fn children_whom_nobody_waits_for_are_counted_one_after_the_other() {
    let mut tool = Tool::python("forgotten", FORGOTTEN);
    tool.manifest["resource_limits"] = json!({ "cpu": "200m", "memory": "256Mi", "ephemeral_storage": "8Mi" });
    let workshop = Workshop::with([tool]);
    let gantry = workshop.open_with(Start::new().running_as_ordinary_user()).await;
    let answer = gantry.invoke_to_the_end("t.forgotten", json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // A second and a half of CPU by a fifth of a core takes seven and a half; if only the first child counted, three and a half.
    let seconds = answer.body["result"].as_f64().unwrap();
    assert!(seconds > 5.0, "{seconds} seconds");
}

#[tokio::test]
async fn a_storm_of_children_shorter_than_a_look_is_held_back_too() {
    let mut tool = Tool::python("storm", STORM);
    tool.manifest["resource_limits"] = json!({ "cpu": "200m", "memory": "256Mi", "ephemeral_storage": "8Mi" });
    let workshop = Workshop::with([tool]);
    let gantry = workshop.open_with(Start::new().running_as_ordinary_user()).await;
    let answer = gantry.invoke_to_the_end("t.storm", json!({})).await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    // A sample, so the bound is wide: free, it would take little more than one.
    let seconds = answer.body["result"].as_f64().unwrap();
    assert!(seconds > 2.0, "{seconds} seconds");
}

/// Is a process with this marker in one of these states?
fn is_in(marker: &str, states: &[&str]) -> bool {
    let state = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().next().map(str::to_owned)
    };
    carriers(marker).into_iter().filter_map(state).any(|state| states.contains(&state.as_str()))
}

#[tokio::test]
async fn a_tree_over_its_share_is_stopped_and_goes_on_when_the_share_has_caught_up() {
    let marker = marker();
    let mut tool = Tool::shell("loops", "while :; do :; done").marked(&marker);
    tool.manifest["resource_limits"] = json!({ "cpu": "20m", "memory": "64Mi", "ephemeral_storage": "8Mi" });
    let workshop = Workshop::with([tool]);
    let gantry = workshop.open_with(Start::new().running_as_ordinary_user()).await;
    let (url, token) = (gantry.url.clone(), gantry.token.clone());
    let call = tokio::spawn(async move {
        let body = json!({ "tool_id": "t.loops", "parameters": {} }).to_string();
        let asked = crate::support::client().post(format!("{url}/v1/tools/invoke")).bearer_auth(token);
        asked.header("content-type", "application/json").body(body).send().await
    });
    let watched = tokio::task::spawn_blocking(move || {
        wait_for("the tool to be stopped", || is_in(&marker, &["T"]).then_some(()));
        wait_for("the tool to go on", || is_in(&marker, &["R", "S"]).then_some(()));
    });
    watched.await.unwrap();
    call.abort();
}

#[tokio::test]
async fn a_server_without_control_groups_says_so() {
    let workshop = Workshop::new();
    let gantry = workshop.open_with(Start::new().running_as_ordinary_user()).await;
    assert!(gantry.log().contains("control groups: "), "{}", gantry.log());
}
