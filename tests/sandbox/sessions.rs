//! Tools that hold a conversation: what they say on the way, how they are told to stop, and who shares a process.

use super::traces::{carriers, marker, wait_until_gone};
use super::*;
use crate::support::wait_for;

/// A session tool whose answers carry a number that each process has for itself. Process ids would not do: inside, they
/// are the same every time.
const SESSION: &str = r#"
import json, os, queue, subprocess, sys, threading, time
PROTOCOL, sys.stdout = sys.stdout, sys.stderr
SELF = os.urandom(8).hex()

def send(**message):
    PROTOCOL.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    PROTOCOL.flush()

def haunt(old):
    """Answers whatever may be asked next."""
    for guess in range(100000):
        for id in (old, guess, str(guess)):
            send(id=id, result="ghost")
        time.sleep(0.002)

def work(calls, cancelled):
    served = 0
    while (call := calls.get()) is not None:
        served += 1
        wish = call["params"]["parameters"].get("do")
        send(method="progress", params={"percent": 50, "phase": "half"})
        send(method="log", params={"level": "info", "message": "a word on the way"})
        if wish == "crash":
            os._exit(7)
        if wish == "fail":
            send(id=call["id"], error={"code": 1, "message": "as asked"})
            continue
        if wish == "leave":
            subprocess.Popen(["sh", "-c", "while :; do echo x >> $0; done", call["params"]["parameters"]["path"]])
            while not os.path.exists(call["params"]["parameters"]["path"]): time.sleep(0.001)
        if wish == "burn":
            start = time.process_time()
            while time.process_time() - start < 0.5: pass
        if wish == "wait":
            cancelled.wait()
            with open(call["params"]["parameters"]["path"], "w") as file:
                file.write("told to stop")
            continue
        send(id=call["id"], result={"process": SELF, "served": served})
        if wish == "haunt":
            threading.Thread(target=haunt, args=(call["id"],), daemon=True).start()

calls, cancelled = queue.Queue(), threading.Event()
threading.Thread(target=work, args=(calls, cancelled), daemon=True).start()
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "invoke":
        calls.put(message)
    elif message.get("method") == "cancel":
        cancelled.set()
"#;

fn session(id: &str) -> Tool {
    Tool::new(id, &["python3", "main.py"]).file("main.py", SESSION).run("protocol", json!("gantry/1"))
}

fn warm(id: &str) -> Tool {
    session(id).run("warm", json!(true))
}

#[tokio::test]
async fn a_session_speaks_on_the_way_and_fails_in_its_own_words() {
    let word = marker();
    let workshop = Workshop::with([session("talks").marked(&word)]);
    let gantry = workshop.open_with(Start::new().env("GANTRY_LOG__LEVEL", "debug")).await;
    let (first, second) = (result(&gantry, "talks", json!({})).await, result(&gantry, "talks", json!({})).await);
    assert_ne!(first["process"], second["process"], "nothing is kept unless it is declared");
    assert_eq!((&first["served"], &second["served"]), (&json!(1), &json!(1)));
    wait_until_gone(&word);
    for said in ["a word on the way", "the tool reports progress"] {
        wait_for(said, || gantry.log().contains(said).then_some(()));
    }
    let failed = call(&gantry, "talks", json!({ "do": "fail" })).await;
    assert_eq!(failed.refusal().1, "E3401", "{}", failed.text);
    assert!(failed.text.contains("as asked"), "{}", failed.text);
    let crashed = call(&gantry, "talks", json!({ "do": "crash" })).await;
    assert_eq!(crashed.refusal().1, "E3401", "{}", crashed.text);
    assert!(crashed.text.contains("exit code 7"), "{}", crashed.text);
}

#[tokio::test]
async fn a_session_is_told_of_its_deadline_before_it_is_ended() {
    let (workshop, word) = (Workshop::new(), marker());
    let place = workshop.place("open", &[]);
    // The tool is nobody, and nobody may write where everybody may.
    std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    workshop.add(&session("waits").marked(&word).may(&[format!("filesystem:write:{}", place.display())]));
    let gantry = workshop.open().await;
    let path = place.join("file");
    let parameters = json!({ "do": "wait", "path": path.to_str().unwrap() });
    // It has a moment to put its things in order, and on a busy machine a moment can pass it by.
    for _ in 0..5 {
        let answer = bounded(&gantry, "waits", parameters.clone(), json!({ "timeout_seconds": 3 })).await;
        assert_eq!(answer.refusal(), (504, "E3402"), "{}", answer.text);
        wait_until_gone(&word);
        if path.exists() {
            break;
        }
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "told to stop");
}

#[tokio::test]
async fn a_warm_process_serves_one_call_after_another() {
    let word = marker();
    let workshop = Workshop::with([warm("stays").marked(&word)]);
    let gantry = workshop.open().await;
    let first = result(&gantry, "stays", json!({})).await;
    for served in 2..=4 {
        let next = result(&gantry, "stays", json!({})).await;
        assert_eq!(next, json!({ "process": first["process"], "served": served }));
    }
    assert!(!carriers(&word).is_empty(), "it waits for the next call");
    // A failure is an answer: the process is in order.
    assert_eq!(call(&gantry, "stays", json!({ "do": "fail" })).await.code(), "E3401");
    assert_eq!(result(&gantry, "stays", json!({})).await["served"], 6);
    // Another limit is another confinement, and another confinement another process.
    let narrow = bounded(&gantry, "stays", json!({}), json!({ "memory_mb_limit": 200 })).await;
    assert_ne!(narrow.body["result"]["process"], first["process"], "{}", narrow.text);
    gantry.kill();
    wait_until_gone(&word);
}

#[tokio::test]
async fn each_call_of_a_warm_process_is_charged_with_what_it_used_itself() {
    let workshop = Workshop::with([warm("stays")]);
    let gantry = workshop.open().await;
    let cpu = async |parameters: Value| {
        let answer = call(&gantry, "stays", parameters).await;
        answer.body["execution_metadata"]["cpu_used_millicore_seconds"].as_u64().unwrap()
    };
    cpu(json!({})).await;
    let burnt = cpu(json!({ "do": "burn" })).await;
    let idle = cpu(json!({})).await;
    assert!((450..=600).contains(&burnt), "{burnt}");
    assert!(idle < 100, "{idle}");
}

#[tokio::test]
async fn a_warm_process_that_crashes_is_replaced() {
    let word = marker();
    let workshop = Workshop::with([warm("stays").marked(&word)]);
    let gantry = workshop.open().await;
    let first = result(&gantry, "stays", json!({})).await;
    assert_eq!(call(&gantry, "stays", json!({ "do": "crash" })).await.code(), "E3401");
    let second = result(&gantry, "stays", json!({})).await;
    assert_ne!(first["process"], second["process"]);
    // Also if it dies between two calls, when nobody listens.
    for pid in carriers(&word) {
        let _ = std::process::Command::new("kill").args(["-9", &pid.to_string()]).status().unwrap();
    }
    // It stands still, and on some machines what stands still does not die before it is asked the next time.
    let third = call(&gantry, "stays", json!({})).await;
    assert!(third.status == 200 || third.code() == "E3404", "{}", third.text);
    let fourth = result(&gantry, "stays", json!({})).await;
    assert_ne!(fourth["process"], second["process"]);
}

#[tokio::test]
async fn a_program_that_is_edited_ends_the_processes_that_run_it() {
    let workshop = Workshop::with([warm("edited")]);
    let gantry = workshop.open().await;
    let first = result(&gantry, "edited", json!({})).await;
    assert_eq!(result(&gantry, "edited", json!({})).await["process"], first["process"]);
    let program = PathBuf::from(workshop.path("tools/edited/main.py"));
    write(&program, SESSION.replace("SELF = os.urandom(8).hex()", "SELF = 'edited'").as_bytes(), 0o644);
    let start = std::time::Instant::now();
    while result(&gantry, "edited", json!({})).await["process"] != "edited" {
        assert!(start.elapsed() < crate::support::PATIENCE, "the edit was not noticed");
    }
}

#[tokio::test]
async fn nothing_that_a_warm_tool_leaves_behind_runs_between_two_calls() {
    let (workshop, word) = (Workshop::new(), marker());
    let place = workshop.place("open", &[]);
    std::fs::set_permissions(&place, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    workshop.add(&warm("leaves").marked(&word).may(&[format!("filesystem:write:{}", place.display())]));
    workshop.add(&Tool::shell("other", "echo 1"));
    let gantry = workshop.open().await;
    let path = place.join("trace");
    let traces = || std::fs::metadata(&path).unwrap().len();
    let first = result(&gantry, "leaves", json!({ "do": "leave", "path": path.to_str().unwrap() })).await;
    let before = traces();
    for _ in 0..5 {
        result(&gantry, "other", json!({})).await;
    }
    assert_eq!(traces(), before, "time has passed, but not for what was left");
    // It goes on with the next call, in the same process.
    let next = result(&gantry, "leaves", json!({ "do": "burn" })).await;
    assert_eq!((&next["process"], &next["served"]), (&first["process"], &json!(2)));
    assert!(traces() > before);
    drop(gantry);
    wait_until_gone(&word);
}

#[tokio::test]
async fn what_an_earlier_call_left_behind_cannot_answer_a_later_one() {
    let workshop = Workshop::with([warm("haunted")]);
    let gantry = workshop.open().await;
    for _ in 0..5 {
        assert!(result(&gantry, "haunted", json!({ "do": "haunt" })).await.is_object());
        assert!(result(&gantry, "haunted", json!({})).await.is_object());
    }
}

#[tokio::test]
async fn no_process_ever_serves_two_tenants() {
    let workshop = Workshop::with([warm("stays")]);
    let gantry = workshop.open().await;
    let mut seen: Vec<(&str, Value)> = Vec::new();
    let tokens = [
        ("acme", gantry.mint(json!({ "sub": "did:example:ann", "tenant": "acme" })).await),
        ("globex", gantry.mint(json!({ "sub": "did:example:eve", "tenant": "globex" })).await),
        ("acme", gantry.mint(json!({ "sub": "did:example:bob", "tenant": "acme" })).await),
    ];
    for _ in 0..2 {
        for (tenant, token) in &tokens {
            let body = json!({ "tool_id": "t.stays", "parameters": {} });
            let answer = gantry.request(reqwest::Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await;
            assert_eq!(answer.status, 200, "{}", answer.text);
            seen.push((tenant, answer.body["result"]["process"].clone()));
        }
    }
    let of =
        |tenant: &str| seen.iter().filter(|(own, _)| *own == tenant).map(|(_, process)| process).collect::<Vec<_>>();
    let (acme, globex) = (of("acme"), of("globex"));
    assert!(acme.iter().all(|process| *process == acme[0]), "one tenant shares: {seen:?}");
    assert!(globex.iter().all(|process| *process == globex[0]), "{seen:?}");
    assert_ne!(acme[0], globex[0]);
}
