//! What a tool has saved belongs to the attempt that has the call: one that lost it saves nothing any more, and nobody goes on
//! from a state whose call still runs, on whichever replica.

use std::time::Duration;

use serde_json::{Value, json};

use super::site::{Caller, NAMES, Sent, Site, ended, submit, until};
use crate::support::Gantry;

/// From the beginning: saves, waits for the gate, and saves again. From a state: saves, and waits for the end.
const CLIMB: &str = r#"
import json, os, sys, time

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def save(steps):
    send(id="c", method="checkpoint", params={"name": "step", "state": {"steps": steps}})
    return json.loads(sys.stdin.readline())

def wait(word):
    while not os.path.exists("PLACE/" + word):
        time.sleep(0.02)

call = json.loads(sys.stdin.readline())
resume = call["params"].get("resume")
steps = resume["state"]["steps"] if resume else []
steps.append("second" if resume else "first")
save(steps)
wait("end" if resume else "gate")
if not resume:
    steps.append("late")
    save(steps)
send(id=call["id"], result={"steps": steps})
"#;

fn site() -> Site {
    let site = Site::new().set("JOBS__LEASE_SECONDS", "5");
    let manifest = json!({
        "tool_id": "climb", "namespace": "demo", "version": "1.0.0", "name": "Climb",
        "description": "Climbs step by step, and saves after each.", "provider": "Test", "protocol": "native",
        "side_effect_policy": "pure", "timeout_class": "long_running", "timeout_default": 300,
        "required_permissions": ["filesystem:read:PLACE"], "parameters": { "type": "object" },
        "result_schema": { "type": "object" }, "checkpoint_config": { "enabled": true, "macro_events": ["step"] },
        "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "gantry/1" },
    });
    site.add_tool(&manifest, CLIMB);
    site
}

fn climb() -> Value {
    json!({ "tool_id": "demo.climb", "parameters": {}, "execution_options": {} })
}

/// The checkpoints of a call, the newest first.
async fn saved(gantry: &Gantry, invocation: &str) -> Vec<String> {
    let listed = gantry.get(&format!("/v1/invocations/{invocation}/checkpoints")).await;
    let listed = listed.body["checkpoints"].as_array().cloned().unwrap_or_default();
    listed.iter().map(|one| one["checkpoint_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_attempt_that_lost_its_lease_saves_nothing_over_what_its_successor_saved() {
    let site = site();
    // Alone, so that the job is its.
    let sleeper = site.replica(NAMES[0]).await;
    let promised = submit(&sleeper, climb()).await;
    until("the first step", async || saved(&sleeper, &promised).await.len() == 1).await;
    let successor = site.replica(NAMES[1]).await;
    sleeper.signal("STOP");
    until("the second step", async || saved(&successor, &promised).await.len() == 2).await;
    let kept = saved(&successor, &promised).await;

    // The tool of the sleeper goes on all the time, and wants to save. The sleeper hears it when it wakes.
    site.say("gate");
    tokio::time::sleep(Duration::from_secs(1)).await;
    sleeper.signal("CONT");
    until("the sleeper is awake", async || sleeper.log().contains("silent for longer than its lease")).await;
    site.say("end");
    let end = ended(&successor, &promised).await;
    assert_eq!((&end["status"], &end["result"]["steps"]), (&json!("success"), &json!(["first", "second"])), "{end}");
    for gantry in [&sleeper, &successor] {
        assert_eq!(saved(gantry, &promised).await, kept, "what came late is not kept");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_runs_on_one_replica_is_neither_resumed_nor_rolled_back_on_another() {
    const CALL: &str = "019b0000-0000-7000-8000-0000000000c1";
    let site = site();
    let one = site.replica(NAMES[0]).await;
    let two = site.replica(NAMES[1]).await;
    let (http, url) = (Caller::new(&one.token), one.url.clone());
    let mut call = climb();
    call["invocation_id"] = json!(CALL);
    let running = tokio::spawn(async move { http.call(&url, &call).await });
    until("the first step", async || saved(&two, CALL).await.len() == 1).await;
    let first = saved(&two, CALL).await.remove(0);
    for gantry in [&one, &two] {
        let resumed = gantry.post(&format!("/v1/tools/resume/{CALL}"), json!({ "parameters": {} })).await;
        assert_eq!(resumed.refusal().1, "E3908", "{}", resumed.text);
        let back = gantry.post(&format!("/v1/invocations/{CALL}/rollback"), json!({ "checkpoint_id": first })).await;
        assert_eq!(back.refusal().1, "E3908", "{}", back.text);
    }
    site.say("gate");
    let Sent::Answered(answer) = running.await.unwrap() else { panic!("no answer") };
    assert_eq!(answer.body["result"]["steps"], json!(["first", "late"]), "{}", answer.text);
    // Once it has ended, anybody may.
    site.say("end");
    let resumed = two.post(&format!("/v1/tools/resume/{CALL}"), json!({ "parameters": {} })).await;
    assert_eq!(resumed.body["result"]["steps"], json!(["first", "late", "second"]), "{}", resumed.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_call_that_is_no_job_and_slept_for_too_long_saves_nothing_over_the_one_that_took_its_place() {
    const CALL: &str = "019b0000-0000-7000-8000-0000000000c2";
    let site = site();
    let sleeper = site.replica(NAMES[0]).await;
    let successor = site.replica(NAMES[1]).await;
    let mut call = climb();
    call["invocation_id"] = json!(CALL);
    let (http, url, slept) = (Caller::new(&sleeper.token), sleeper.url.clone(), call.clone());
    let sleeping = tokio::spawn(async move { http.call(&url, &slept).await });
    until("the first step", async || saved(&successor, CALL).await.len() == 1).await;
    sleeper.signal("STOP");

    // Whoever made the call makes it again elsewhere, until it is taken.
    let (http, url) = (Caller::new(&successor.token), successor.url.clone());
    let again = tokio::spawn(async move {
        loop {
            match http.call(&url, &call).await {
                Sent::Answered(answer) if answer.code() == "E3410" => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                other => return other,
            }
        }
    });
    until("the first step of the other", async || saved(&successor, CALL).await.len() == 2).await;
    // Both tools go on. The sleeper hears what its own wants to save when it wakes.
    site.say("gate");
    let Sent::Answered(answer) = again.await.unwrap() else { panic!("no answer") };
    assert_eq!(answer.body["result"]["steps"], json!(["first", "late"]), "{}", answer.text);
    let kept = saved(&successor, CALL).await;
    assert_eq!(kept.len(), 3);
    sleeper.signal("CONT");
    sleeping.await.unwrap();
    for gantry in [&sleeper, &successor] {
        assert_eq!(saved(gantry, CALL).await, kept, "what came late is not kept");
    }
}
