//! A server that ends while tools run: nothing of theirs outlives it, whether it ends by order or by `kill -9`.

use super::traces::{groups, launcher, marker, until_there, wait_until_gone};
use super::*;
use crate::support::wait_for;

const DAEMON: &str = "
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(600)
    os._exit(0)
time.sleep(600)
";

/// A server with a tool and its daemon in the middle of a call.
async fn busy(workshop: &Workshop, word: &str) -> (Gantry, u32, tokio::task::JoinHandle<()>) {
    let gantry = workshop.open().await;
    let http = crate::support::client();
    let request = http.post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(&gantry.token);
    let body = json!({ "tool_id": "t.stays", "parameters": {} }).to_string();
    let request = request.header("content-type", "application/json").body(body);
    let calling = tokio::spawn(async move { drop(request.send().await) });
    until_there(word, 2).await;
    let launcher = launcher(&gantry);
    assert!(!groups(launcher).is_empty() || !has_groups(), "a running tool has its control groups");
    (gantry, launcher, calling)
}

/// May this user make control groups at all? Where not, there are none to be left.
fn has_groups() -> bool {
    std::fs::read_to_string("/proc/self/status").unwrap().lines().any(|line| line.starts_with("Uid:\t0"))
}

#[tokio::test]
async fn nothing_of_a_tool_survives_a_server_that_is_killed() {
    let word = marker();
    let workshop = Workshop::with([Tool::python("stays", DAEMON).marked(&word)]);
    let (gantry, launcher, calling) = busy(&workshop, &word).await;
    gantry.kill();
    wait_until_gone(&word);
    wait_for("the launcher's end", || (!Path::new(&format!("/proc/{launcher}")).exists()).then_some(()));
    assert!(groups(launcher).is_empty(), "{:?}", groups(launcher));
    calling.await.unwrap();
}

#[tokio::test]
async fn what_a_killed_server_and_its_killed_launcher_leave_is_swept_by_the_next() {
    let word = marker();
    let workshop = Workshop::with([Tool::python("stays", DAEMON).marked(&word), Tool::python("fine", "result = 1")]);
    let (gantry, launcher, calling) = busy(&workshop, &word).await;
    let kill = ["-9".to_owned(), gantry.pid().to_string(), launcher.to_string()];
    assert!(std::process::Command::new("kill").args(kill).status().unwrap().success());
    wait_until_gone(&word);
    calling.await.unwrap();
    drop(gantry);
    let next = workshop.open().await;
    assert_eq!(result(&next, "fine", json!({})).await, 1);
    wait_for("the removal of the old control groups", || groups(launcher).is_empty().then_some(()));
}

#[tokio::test]
async fn nothing_of_a_tool_survives_a_server_that_is_told_to_end() {
    let word = marker();
    let workshop =
        Workshop::with([Tool::python("stays", DAEMON).marked(&word).with("timeout_class", json!("standard"))]);
    let (gantry, launcher, calling) = busy(&workshop, &word).await;
    assert!(gantry.stop().success());
    wait_until_gone(&word);
    wait_for("the launcher's end", || (!Path::new(&format!("/proc/{launcher}")).exists()).then_some(()));
    assert!(groups(launcher).is_empty(), "{:?}", groups(launcher));
    calling.await.unwrap();
}
