//! Every way in which a confined tool can end badly has its code, and nothing of it is left afterwards.

use std::time::Instant;

use super::traces::{carriers, launcher, marker, until_there, wait_until_gone};
use super::*;

/// How soon a tool that does not want to end is gone after its deadline. The promise is 100 ms; the rest is what a busy
/// machine adds.
const END_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

#[tokio::test]
async fn a_name_without_its_namespace_is_answered_with_the_whole_name() {
    let workshop = Workshop::with([Tool::shell("counts_something", "echo 1")]);
    let gantry = workshop.open().await;
    let answer = gantry.invoke("counts_something", json!({})).await;
    assert_eq!(answer.code(), "E3101", "{}", answer.text);
    assert!(answer.text.contains("did you mean `t.counts_something`?"), "{}", answer.text);
}

#[tokio::test]
async fn each_bad_end_has_its_code_and_the_next_call_works() {
    let small = json!({ "cpu": "1", "memory": "64Mi", "ephemeral_storage": "8Mi" });
    let cases: [(Tool, &str, &str); 18] = [
        (Tool::python("eats_at_once", "x = bytearray(1 << 30)\nresult = 1"), "E3403", "64 MB of memory"),
        (Tool::python("eats_slowly", "x = []\nwhile True: x.append(bytearray(1 << 16))"), "E3403", "64 MB of memory"),
        (Tool::python("exits", "print('a reason', file=sys.stderr)\nsys.exit(3)"), "E3401", "exit code 3"),
        (Tool::python("throws", "raise KeyError('a reason')"), "E3401", "exit code 1"),
        (Tool::python("aborts", "os.abort()"), "E3404", "signal 6"),
        (Tool::python("segfaults", "import ctypes\nctypes.string_at(0)"), "E3404", "signal 11"),
        (Tool::python("kills_itself", "os.kill(os.getpid(), 9)"), "E3404", "signal 9"),
        (Tool::python("forks", "while True: os.fork()"), "E3407", "processes and threads"),
        (
            Tool::python(
                "threads",
                "import threading\nwhile True: threading.Thread(target=time.sleep, args=(60,), daemon=True).start()",
            ),
            "E3407",
            "processes and threads",
        ),
        (Tool::python("says_too_much", "sys.stdout.write('[' + '1,' * 1000000 + '1]')"), "E3414", "1048576 bytes"),
        (Tool::shell("floods_its_result", "exec cat /dev/zero"), "E3414", "1048576 bytes"),
        (Tool::shell("floods_its_log", "exec cat /dev/zero >&2"), "E3407", "log"),
        (
            Tool::python("fills_its_disk", "with open('/tmp/x', 'wb') as f:\n  while True: f.write(bytes(1 << 16))"),
            "E3407",
            "scratch",
        ),
        (Tool::python("says_junk", "print('junk')\nsys.stdout.flush()\nos._exit(0)"), "E3401", "not acceptable JSON"),
        (Tool::python("says_nothing", "os._exit(0)"), "E3401", "no result"),
        (Tool::new("has_no_program", &["no-such-interpreter", "main"]), "E3401", "could not be started"),
        (
            Tool::new("is_not_executable", &["./main"]).file("main", "#!/bin/sh\necho 1\n"),
            "E3401",
            "could not be started",
        ),
        (Tool::new("is_no_program", &["/tool"]), "E3401", "could not be started"),
    ];
    let (word, fine) = (marker(), Tool::python("fine", "result = 1"));
    let expected: Vec<(String, &str, &str)> = cases
        .iter()
        .map(|(tool, code, text)| (tool.manifest["tool_id"].as_str().unwrap().to_owned(), *code, *text))
        .collect();
    let tools = cases.into_iter().map(|(tool, ..)| {
        // A crowd needs memory too: what ends it must be its number.
        let crowd = ["forks", "threads"].iter().any(|id| tool.manifest["tool_id"] == *id);
        if crowd { tool.marked(&word) } else { tool.marked(&word).with("resource_limits", small.clone()) }
    });
    let workshop = Workshop::with(tools.chain([fine]));
    let gantry = workshop.open().await;
    for (id, code, text) in expected {
        let answer = call(&gantry, &id, json!({})).await;
        assert_eq!(answer.refusal().1, code, "{id}: {}\n{}", answer.text, gantry.log());
        assert!(answer.body["error"]["message"].as_str().unwrap().contains(text), "{id}: {}", answer.text);
        let error = answer.body["error"].to_string();
        assert!(!error.contains("a reason"), "what a tool writes to its log is no part of the error: {error}");
        assert_eq!(carriers(&word), Vec::<u32>::new(), "{id} is still there after its answer");
        assert_eq!(result(&gantry, "fine", json!({})).await, 1, "after {id}");
    }
}

#[tokio::test]
async fn a_missing_interpreter_and_a_missing_bit_are_told_apart() {
    let workshop = Workshop::with([
        Tool::new("no_interpreter", &["./main"]).file("main", "#!/no/such/interpreter\n"),
        Tool::new("no_bit", &["./main"]).file("main", "#!/bin/sh\necho 1\n"),
    ]);
    let script = workshop.path("tools/no_interpreter/main");
    write(Path::new(&script), b"#!/no/such/interpreter\n", 0o755);
    let gantry = workshop.open().await;
    for (id, hint) in [("no_interpreter", "interpreter"), ("no_bit", "chmod +x")] {
        let answer = call(&gantry, id, json!({})).await;
        assert_eq!(answer.refusal().1, "E3401", "{id}: {}", answer.text);
        assert!(answer.body["error"]["resolution"].as_str().unwrap().contains(hint), "{id}: {}", answer.text);
    }
}

#[tokio::test]
async fn at_its_deadline_a_tool_is_gone_with_everything_it_started() {
    let daemon = "
import signal
for number in range(1, 32):
    if number not in (9, 19): signal.signal(number, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(1)
        os._exit(0)
while True: time.sleep(1)
";
    let words: Vec<(&str, String)> = ["spins", "ignores", "stays_behind"].map(|id| (id, marker())).into();
    let programs = ["while True: pass", daemon, "if os.fork() == 0:\n  os.setsid()\n  time.sleep(600)\nresult = 1"];
    let tools = words.iter().zip(programs).map(|((id, word), program)| Tool::python(id, program).marked(word));
    let workshop = Workshop::with(tools);
    let gantry = workshop.open().await;
    for (id, word) in &words {
        if *id == "stays_behind" {
            // What a tool leaves behind ends with its call, however well that went.
            assert_eq!(result(&gantry, id, json!({})).await, 1);
        } else {
            let answer = bounded(&gantry, id, json!({}), json!({ "timeout_seconds": 1.5 })).await;
            assert_eq!(answer.refusal(), (504, "E3402"), "{id}: {}", answer.text);
            assert_eq!(answer.body["status"], "timeout");
        }
        let answered = Instant::now();
        wait_until_gone(word);
        assert!(answered.elapsed() < END_WITHIN, "{id}: {:?}", answered.elapsed());
    }
}

#[tokio::test]
async fn a_launcher_that_is_killed_costs_its_calls_and_no_other() {
    let word = marker();
    let workshop = Workshop::with([
        // Two processes once it has read its parameters: then it is known to run.
        Tool::python("waits", "os.fork()\ntime.sleep(600)").marked(&word),
        Tool::python("fine", "result = 1"),
    ]);
    let gantry = workshop.open().await;
    assert_eq!(result(&gantry, "fine", json!({})).await, 1);
    let first = launcher(&gantry);
    let kill = async {
        until_there(&word, 2).await;
        assert!(std::process::Command::new("kill").args(["-9", &first.to_string()]).status().unwrap().success());
    };
    let (answer, ()) = tokio::join!(call(&gantry, "waits", json!({})), kill);
    assert_eq!(answer.refusal().1, "E3404", "{}", answer.text);
    wait_until_gone(&word);
    assert_eq!(result(&gantry, "fine", json!({})).await, 1, "another launcher is started");
    assert_ne!(launcher(&gantry), first);
}
