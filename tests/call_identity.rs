//! One id is one call and one key is one act, whoever brings them: an invocation id that is taken is refused in the same words
//! whoever has it, and a key that is repeated, promoted or begun again leads to one call. (decisions 0079, 0081)

use std::path::PathBuf;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, Answer, Gantry, PATIENCE, Start, client, open_to_all, wait_for};

/// Notes each run, waits until its gate is open if it has one, and fails while the place is closed. It runs without walls.
const PROGRAM: &str = r#"
import json, os, sys, time
wish = json.load(sys.stdin)
with open(wish["note"], "a") as file:
    file.write("run\n")
while wish.get("gate") and not os.path.exists(wish["gate"]):
    time.sleep(0.01)
if wish.get("closed") and os.path.exists(wish["closed"]):
    sys.stderr.write("closed today\n")
    sys.exit(3)
json.dump({"word": wish["word"], "run": os.urandom(8).hex()}, sys.stdout)
"#;

struct Shop {
    home: TempDir,
}

impl Shop {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        open_to_all(home.path());
        for (id, effects) in [("look", "pure"), ("undo", "idempotent"), ("pay", "compensatable")] {
            let folder = home.path().join("tools").join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("main.py"), PROGRAM).unwrap();
            let text = |about: &str| json!({ "type": "string", "description": about });
            let mut manifest = json!({
                "tool_id": id, "namespace": "demo", "version": "1.0.0", "name": id, "provider": "Demo",
                "description": "Notes that it ran, and says a word once it may.", "protocol": "native",
                "side_effect_policy": effects, "timeout_class": "long_running", "timeout_default": 120,
                "parameters": { "type": "object", "required": ["word", "note"], "properties": {
                    "word": text("what is said"), "note": text("where runs are noted"),
                    "gate": text("what is waited for"), "closed": text("what makes it fail"),
                    "times": { "type": "integer", "default": 1, "description": "how often" } } },
                "result_schema": { "type": "object" },
                "execution": { "type": "process", "command": ["python3", "main.py"] },
            });
            if effects != "pure" {
                manifest["side_effects"] = json!([{ "resource": "money", "op": "CREATE", "scope": "account" }]);
                manifest["idempotency"] = json!({});
            }
            if effects == "compensatable" {
                manifest["compensation_tool_id"] = json!("demo.undo");
            }
            std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
        }
        Self { home }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn start(&self) -> Start {
        let tools = self.path("tools");
        let start = Start::new().data(&self.path("data")).arg("--tools").arg(tools.to_str().unwrap());
        start.arg("--unsandboxed-processes")
    }

    fn say(&self, name: &str) {
        std::fs::write(self.path(name), "").unwrap();
    }

    /// The parameters of a call that notes its runs under its word.
    fn wish(&self, word: &str) -> Value {
        json!({ "word": word, "note": self.path(&format!("note-{word}")) })
    }

    /// The same for one that waits for the gate `open`.
    fn waiting(&self, word: &str) -> Value {
        let mut wish = self.wish(word);
        wish["gate"] = json!(self.path("open"));
        wish
    }

    fn runs(&self, word: &str) -> usize {
        std::fs::read_to_string(self.path(&format!("note-{word}"))).unwrap_or_default().lines().count()
    }
}

async fn agent(gantry: &Gantry, name: &str) -> String {
    gantry.mint(json!({ "tenant": "local", "sub": name })).await
}

fn call(tool: &str, parameters: Value, mut more: Value) -> Value {
    more["tool_id"] = json!(tool);
    more["parameters"] = parameters;
    more
}

async fn invoke(gantry: &Gantry, token: &str, body: &Value) -> Answer {
    gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body.clone())).await
}

/// Sends a call whose caller waits no longer than this many seconds before it goes on in the background.
async fn invoke_for(gantry: &Gantry, token: &str, seconds: u32, body: &Value) -> Answer {
    let request = client().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(token);
    let request = request.header("content-type", "application/json").header("prefer", format!("wait={seconds}"));
    Answer::of(request.body(body.to_string()).send().await.unwrap()).await
}

async fn until(gantry: &Gantry, token: &str, id: &Value, wanted: &str) -> Answer {
    let began = Instant::now();
    let path = format!("/v1/invocations/{}", id.as_str().unwrap());
    loop {
        let seen = gantry.request(Method::GET, &path, Some(token), None).await;
        if seen.body["status"] == wanted {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "not {wanted}: {}", seen.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a refused caller reads, without the ids of its own call.
fn words(answer: &Answer) -> Value {
    assert_eq!(answer.refusal(), (409, "E3410"), "{}", answer.text);
    let mut error = answer.body["error"].clone();
    error.as_object_mut().unwrap().retain(|name, _| !["trace_id", "invocation_id"].contains(&name.as_str()));
    error
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_id_that_a_call_has_is_refused_in_the_same_words_whoever_has_it_and_however_it_stands() {
    let shop = Shop::new();
    let gantry = shop.start().run().await;
    let (alice, mallory) = (agent(&gantry, "alice").await, agent(&gantry, "mallory").await);
    let id = |number: u32| format!("019b0000-0000-7000-8000-{number:012}");
    let keyed = |key: &str, number: u32| json!({ "invocation_id": id(number), "execution_options": { "idempotency_key": key } });
    let background = |number: u32| json!({ "invocation_id": id(number), "execution_options": { "async_mode": true, "idempotency_key": "b" } });

    // One with effects that is done, one that runs, one without effects that runs, a job.
    let done = invoke(&gantry, &alice, &call("demo.pay", shop.wish("done"), keyed("one", 1))).await;
    assert_eq!((done.status, &done.body["invocation_id"]), (200, &json!(id(1))), "{}", done.text);
    let mut running = Vec::new();
    for (tool, number) in [("demo.pay", 2), ("demo.look", 3)] {
        let word = format!("runs-{number}");
        let body = call(tool, shop.waiting(&word), keyed(&word, number));
        let (url, token) = (format!("{}/v1/tools/invoke", gantry.url), alice.clone());
        running.push(tokio::spawn(async move {
            let request = client().post(url).bearer_auth(token).header("content-type", "application/json");
            Answer::of(request.header("prefer", "wait=600").body(body.to_string()).send().await.unwrap()).await
        }));
        wait_for("the run", || (shop.runs(&word) == 1).then_some(()));
    }
    let job = call("demo.look", shop.wish("job"), background(4));
    let accepted = invoke(&gantry, &alice, &job).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    until(&gantry, &alice, &json!(id(4)), "success").await;

    let mut heard: Option<Value> = None;
    for number in 1..=4 {
        for token in [&alice, &mallory] {
            for body in [
                call("demo.pay", shop.wish("other"), keyed("another", number)),
                call("demo.pay", shop.wish("other"), background(number)),
                call("demo.look", shop.wish("other"), background(number)),
            ] {
                let refused = invoke(&gantry, token, &body).await;
                let words = words(&refused);
                assert_eq!(*heard.get_or_insert_with(|| words.clone()), words, "{number}: {body}");
            }
            let body = call("demo.pay", shop.wish("other"), keyed("another", number));
            let batch = json!({ "calls": [body] });
            let batch = gantry.request(Method::POST, "/v1/tools/invoke/batch", Some(token), Some(batch)).await;
            assert_eq!(batch.body["results"][0]["error"]["code"], "E3410", "{}", batch.text);
            let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.invoke", "params": body });
            let rpc = gantry.request(Method::POST, "/rpc", Some(token), Some(rpc)).await;
            assert!(rpc.text.contains("E3410") && rpc.text.contains("is taken"), "{}", rpc.text);
        }
        if [2, 3].contains(&number) {
            // Also by one of which nothing would be kept.
            for token in [&alice, &mallory] {
                let more = json!({ "invocation_id": id(number) });
                let refused = invoke(&gantry, token, &call("demo.look", shop.wish("other"), more)).await;
                assert_eq!(heard.as_ref(), Some(&words(&refused)), "{}", refused.text);
            }
        }
    }
    assert_eq!(shop.runs("other"), 0, "nothing was run");

    // What stands under the ids is what stood there before, for those who manage and for its owner.
    for token in [&gantry.token, &alice] {
        let seen = until(&gantry, token, &json!(id(1)), "success").await;
        assert_eq!((&seen.body["label"], &seen.body["result"]["word"]), (&json!("demo.pay"), &json!("done")));
    }
    // The same call again is answered with what came of it.
    let again = invoke(&gantry, &alice, &call("demo.pay", shop.wish("done"), keyed("one", 1))).await;
    assert_eq!((&again.body["cached"], &again.body["result"]), (&json!(true), &done.body["result"]), "{}", again.text);
    let again = invoke(&gantry, &alice, &job).await;
    assert_eq!((again.status, &again.body["invocation_id"]), (202, &json!(id(4))), "{}", again.text);
    let (url, token) = (format!("{}/v1/tools/invoke", gantry.url), alice.clone());
    let body = call("demo.pay", shop.waiting("runs-2"), keyed("runs-2", 2));
    let repeated = tokio::spawn(async move {
        let request = client().post(url).bearer_auth(token).header("content-type", "application/json");
        Answer::of(request.header("prefer", "wait=600").body(body.to_string()).send().await.unwrap()).await
    });
    shop.say("open");
    let repeated = repeated.await.unwrap();
    for (number, first) in (2..).zip(running) {
        let first = first.await.unwrap();
        assert_eq!((first.status, &first.body["invocation_id"]), (200, &json!(id(number))), "{}", first.text);
        if number == 2 {
            assert_eq!(repeated.body["result"], first.body["result"], "{}", repeated.text);
        }
    }
    assert_eq!((shop.runs("runs-2"), shop.runs("done"), shop.runs("job")), (1, 1, 1));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_goes_on_in_the_background_and_one_that_is_submitted_with_its_key_are_one() {
    let shop = Shop::new();
    let gantry = shop.start().run().await;
    for tool in ["demo.pay", "demo.look"] {
        let word = tool.replace('.', "-");
        let keyed = json!({ "execution_options": { "idempotency_key": "one" } });
        let promoted = invoke_for(&gantry, &gantry.token, 1, &call(tool, shop.waiting(&word), keyed)).await;
        assert_eq!((promoted.status, &promoted.body["status"]), (202, &json!("running")), "{}", promoted.text);
        let id = &promoted.body["invocation_id"];
        let background = json!({ "execution_options": { "idempotency_key": "one", "async_mode": true } });
        let submitted = invoke(&gantry, &gantry.token, &call(tool, shop.waiting(&word), background.clone())).await;
        assert_eq!((submitted.status, &submitted.body["invocation_id"]), (202, id), "{}", submitted.text);
        let mut other = shop.waiting(&word);
        other["times"] = json!(2);
        assert_eq!(invoke(&gantry, &gantry.token, &call(tool, other, background)).await.refusal(), (409, "E3410"));
        shop.say("open");
        until(&gantry, &gantry.token, id, "success").await;
        assert_eq!(shop.runs(&word), 1);
        std::fs::remove_file(shop.path("open")).unwrap();
    }
}

/// One worker, which is held up, so that what is submitted waits.
async fn held_up(shop: &Shop) -> Gantry {
    let gantry = shop.start().env("GANTRY_JOBS__CONCURRENCY", "1").run().await;
    let busy = call("demo.look", shop.waiting("busy"), json!({ "execution_options": { "async_mode": true } }));
    assert_eq!(invoke(&gantry, &gantry.token, &busy).await.status, 202);
    wait_for("the worker to be busy", || (shop.runs("busy") == 1).then_some(()));
    gantry
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_waits_has_its_key_against_a_call_that_does_not() {
    let shop = Shop::new();
    let gantry = held_up(&shop).await;
    let options = |more: Value| {
        let mut options = json!({ "idempotency_key": "rent" });
        options.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "execution_options": options })
    };
    let submitted = call("demo.pay", shop.wish("rent"), options(json!({ "async_mode": true })));
    let submitted = invoke(&gantry, &gantry.token, &submitted).await;
    let id = submitted.body["invocation_id"].clone();
    assert_eq!(submitted.status, 202, "{}", submitted.text);
    // Something else under its key is refused at once, and nothing runs.
    let mut other = shop.wish("rent");
    other["times"] = json!(2);
    let refused = invoke(&gantry, &gantry.token, &call("demo.pay", other, options(json!({})))).await;
    assert_eq!(refused.refusal(), (409, "E3410"), "{}", refused.text);
    assert_eq!(refused.body["error"]["details"]["invocation_id"], id, "{}", refused.text);
    // The same is the same act: it is told of that, or waits for it.
    let unwaited = options(json!({ "wait_for_duplicate": false }));
    let unwaited = invoke(&gantry, &gantry.token, &call("demo.pay", shop.wish("rent"), unwaited)).await;
    assert_eq!(unwaited.refusal(), (409, "E3409"), "{}", unwaited.text);
    assert_eq!(unwaited.body["error"]["details"]["invocation_id"], id, "{}", unwaited.text);
    let mut short = call("demo.pay", shop.wish("rent"), options(json!({})));
    short["resource_limits"] = json!({ "timeout_seconds": 1 });
    let late = invoke(&gantry, &gantry.token, &short).await;
    assert_eq!(late.refusal(), (409, "E3409"), "{}", late.text);
    assert_eq!(late.body["error"]["details"]["invocation_id"], id, "{}", late.text);
    assert_eq!(shop.runs("rent"), 0);
    shop.say("open");
    let same = invoke(&gantry, &gantry.token, &call("demo.pay", shop.wish("rent"), options(json!({})))).await;
    assert_eq!((same.status, &same.body["cached"]), (200, &json!(true)), "{}", same.text);
    let job = until(&gantry, &gantry.token, &id, "success").await;
    assert_eq!(job.body["result"], same.body["result"]);
    assert_eq!((&same.body["invocation_id"], shop.runs("rent")), (&id, 1), "{}", same.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_is_waited_for_and_one_that_is_submitted_with_its_key_have_one_id() {
    let shop = Shop::new();
    let gantry = shop.start().run().await;
    let plain = json!({ "execution_options": { "idempotency_key": "rent" } });
    let background = json!({ "execution_options": { "idempotency_key": "rent", "async_mode": true } });
    let body = call("demo.pay", shop.waiting("rent"), plain.clone());
    let calling = invoke_for(&gantry, &gantry.token, 600, &body);
    let submitting = async {
        let began = Instant::now();
        while shop.runs("rent") == 0 {
            assert!(began.elapsed() < PATIENCE, "the call has not begun");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let mut other = shop.waiting("rent");
        other["times"] = json!(2);
        let refused = invoke(&gantry, &gantry.token, &call("demo.pay", other, background.clone())).await;
        assert_eq!(refused.refusal(), (409, "E3410"), "{}", refused.text);
        let submit = call("demo.pay", shop.waiting("rent"), background.clone());
        let submitted = invoke(&gantry, &gantry.token, &submit).await;
        assert_eq!(submitted.status, 202, "{}", submitted.text);
        shop.say("open");
        submitted
    };
    let (called, submitted) = tokio::join!(calling, submitting);
    assert_eq!(called.status, 200, "{}", called.text);
    let id = &called.body["invocation_id"];
    assert_eq!(submitted.body["invocation_id"], *id, "one act, one id");
    let job = until(&gantry, &gantry.token, id, "success").await;
    assert_eq!(job.body["result"], called.body["result"], "{}", job.text);
    let again = invoke(&gantry, &gantry.token, &call("demo.pay", shop.waiting("rent"), background)).await;
    assert_eq!((&again.body["invocation_id"], &again.body["status"]), (id, &json!("success")), "{}", again.text);
    assert_eq!(shop.runs("rent"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_in_a_backup_is_not_begun_again_where_it_is_restored_unless_that_is_asked_for() {
    let shop = Shop::new();
    let gantry = held_up(&shop).await;
    let options = json!({ "execution_options": { "idempotency_key": "rent", "async_mode": true } });
    let submitted = invoke(&gantry, &gantry.token, &call("demo.pay", shop.wish("rent"), options)).await;
    assert_eq!(submitted.status, 202, "{}", submitted.text);
    let id = submitted.body["invocation_id"].clone();
    let backup = shop.path("backup.tar.gz");
    gantry.cli(&["backup", "--to", backup.to_str().unwrap(), "--with-keys"]).ok();
    shop.say("open");
    until(&gantry, &gantry.token, &id, "success").await;
    assert!(gantry.stop().success());
    assert_eq!(shop.runs("rent"), 1);
    let restore = |name: &str, more: &[&str]| {
        let mut command = support::gantry(&shop.path(name));
        command.args(["--json", "restore", backup.to_str().unwrap()]).args(more);
        support::run(&mut command).ok()
    };
    let restored = restore("held", &[]);
    assert_eq!(restored.json()["jobs_held"], 1, "{}", restored.err());
    assert!(restored.err().contains("jobs resolve") && restored.err().contains("--run-jobs"), "{}", restored.err());
    let server = shop.start().data(&shop.path("held")).run().await;
    let seen = until(&server, &server.token, &id, "indeterminate").await;
    let error = &seen.body["error"];
    assert_eq!((&error["code"], &error["details"]["cause"]), (&json!("E3413"), &json!("restored")), "{}", seen.text);
    assert_eq!(error["invocation_id"], id, "{}", seen.text);
    let listed = server.cli(&["--json", "jobs", "unknown"]).ok().json();
    assert_eq!(listed["calls"][0]["invocation_id"], id, "{listed}");
    // Its key is its own: nobody runs the act a second time with it, whichever way it is asked for.
    let waited = json!({ "execution_options": { "idempotency_key": "rent" } });
    let refused = invoke(&server, &server.token, &call("demo.pay", shop.wish("rent"), waited.clone())).await;
    assert_eq!(refused.refusal().1, "E3413", "{}", refused.text);
    assert_eq!(refused.body["error"]["details"]["cause"], "restored", "{}", refused.text);
    assert_eq!(refused.body["error"]["details"]["invocation_id"], id, "{}", refused.text);
    assert_eq!(shop.runs("rent"), 1);
    // What is safe to repeat goes on, and what is not waits for a person.
    let id = id.as_str().unwrap();
    assert_eq!(server.cli(&["jobs", "retry", id]).code(), 1);
    server.cli(&["jobs", "resolve", id, "--did-not-happen"]).ok();
    assert_eq!(shop.runs("rent"), 1, "nobody has begun it");
    let again = server.cli(&["--json", "jobs", "retry", id]).ok().json();
    until(&server, &server.token, &again["invocation_id"], "success").await;
    assert_eq!(shop.runs("rent"), 2);
    assert!(server.stop().success());

    // Nor once a person has found out that it was done.
    assert_eq!(restore("done", &[]).json()["jobs_held"], 1);
    let server = shop.start().data(&shop.path("done")).run().await;
    until(&server, &server.token, &json!(id), "indeterminate").await;
    server.cli(&["jobs", "resolve", id, "--happened", "--result", r#"{"paid": true}"#]).ok();
    until(&server, &server.token, &json!(id), "success").await;
    let refused = invoke(&server, &server.token, &call("demo.pay", shop.wish("rent"), waited)).await;
    assert_eq!(refused.refusal().1, "E3413", "{}", refused.text);
    assert!(server.stop().success());
    assert_eq!(shop.runs("rent"), 2);

    assert_eq!(restore("run", &["--run-jobs"]).json()["jobs_held"], 0);
    let server = shop.start().data(&shop.path("run")).run().await;
    until(&server, &server.token, &json!(id), "success").await;
    assert_eq!(shop.runs("rent"), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_is_one_act_in_the_queue_as_well() {
    let shop = Shop::new();
    let gantry = held_up(&shop).await;
    let turn = json!({ "execution_options": { "turn_group_id": "turn-1", "async_mode": true } });
    let body = call("demo.pay", shop.wish("rent"), turn);
    let first = invoke(&gantry, &gantry.token, &body).await;
    let again = invoke(&gantry, &gantry.token, &body).await;
    assert_eq!((first.status, again.status), (202, 202), "{} {}", first.text, again.text);
    assert_eq!(first.body["invocation_id"], again.body["invocation_id"]);
    shop.say("open");
    until(&gantry, &gantry.token, &first.body["invocation_id"], "success").await;
    assert_eq!(shop.runs("rent"), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_without_effects_takes_nobody_s_id() {
    let shop = Shop::new();
    let gantry = shop.start().run().await;
    let (alice, mallory) = (agent(&gantry, "alice").await, agent(&gantry, "mallory").await);
    let keyed = json!({ "execution_options": { "idempotency_key": "rent" } });
    let paid = invoke(&gantry, &alice, &call("demo.pay", shop.wish("rent"), keyed)).await;
    let background = json!({ "execution_options": { "async_mode": true } });
    let job = invoke(&gantry, &alice, &call("demo.look", shop.wish("job"), background)).await;
    assert_eq!((paid.status, job.status), (200, 202), "{} {}", paid.text, job.text);
    until(&gantry, &alice, &job.body["invocation_id"], "success").await;
    for (token, taken) in [(&alice, &paid), (&mallory, &paid), (&mallory, &job)] {
        let named = json!({ "invocation_id": taken.body["invocation_id"] });
        let refused = invoke(&gantry, token, &call("demo.look", shop.wish("look"), named)).await;
        assert!(words(&refused)["message"].as_str().unwrap().contains("taken"), "{}", refused.text);
    }
    assert_eq!(shop.runs("look"), 0);
    let own = json!({ "invocation_id": "019a0000-0000-7000-8000-00000000000a" });
    let free = invoke(&gantry, &alice, &call("demo.look", shop.wish("look"), own.clone())).await;
    assert_eq!((free.status, &free.body["invocation_id"]), (200, &own["invocation_id"]), "{}", free.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_failed_is_tried_anew_when_it_is_begun_again_and_its_key_stands_for_that() {
    let shop = Shop::new();
    let gantry = shop.start().run().await;
    let alice = agent(&gantry, "alice").await;
    shop.say("closed");
    let mut wish = shop.wish("rent");
    wish["closed"] = json!(shop.path("closed"));
    let options = json!({ "execution_options": { "idempotency_key": "rent", "async_mode": true } });
    let submit = call("demo.pay", wish.clone(), options);
    let accepted = invoke(&gantry, &alice, &submit).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    let first = &accepted.body["invocation_id"];
    assert_eq!(until(&gantry, &alice, first, "error").await.body["error"]["code"], "E3401");
    let retry = async || {
        let path = format!("/v1/invocations/{}/retry", first.as_str().unwrap());
        gantry.request(Method::POST, &path, Some(&alice), Some(json!({}))).await
    };
    // As long as it is closed the same comes of it; but it was tried.
    let again = retry().await;
    assert_eq!(again.status, 202, "{}", again.text);
    until(&gantry, &alice, &again.body["invocation_id"], "error").await;
    assert_eq!(shop.runs("rent"), 2, "it was tried and not only told again");
    // It was begun again before: that one is to be begun again.
    assert_eq!(retry().await.refusal(), (412, "E3408"));

    std::fs::remove_file(shop.path("closed")).unwrap();
    let path = format!("/v1/invocations/{}/retry", again.body["invocation_id"].as_str().unwrap());
    let third = gantry.request(Method::POST, &path, Some(&alice), Some(json!({}))).await;
    assert_eq!(third.status, 202, "{}", third.text);
    let paid = until(&gantry, &alice, &third.body["invocation_id"], "success").await;
    assert_eq!(shop.runs("rent"), 3);
    // Whoever asks with the key now hears of that one, and nothing is done once more.
    let asked = call("demo.pay", wish, json!({ "execution_options": { "idempotency_key": "rent" } }));
    let asked = invoke(&gantry, &alice, &asked).await;
    assert_eq!((&asked.body["cached"], &asked.body["result"]), (&json!(true), &paid.body["result"]), "{}", asked.text);
    let submitted = invoke(&gantry, &alice, &submit).await;
    assert_eq!(submitted.body["invocation_id"], third.body["invocation_id"], "{}", submitted.text);
    assert_eq!(retry().await.body["invocation_id"], third.body["invocation_id"], "it was made anew before");
    assert_eq!(shop.runs("rent"), 3, "nothing is done twice");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_a_shutdown_ends_was_interrupted_and_not_cancelled() {
    let shop = Shop::new();
    let gantry = shop.start().env("GANTRY_JOBS__DRAIN_SECONDS", "0").run().await;
    let options = json!({ "execution_options": { "idempotency_key": "one", "async_mode": true } });
    let accepted = invoke(&gantry, &gantry.token, &call("demo.pay", shop.waiting("late"), options)).await;
    assert_eq!(accepted.status, 202, "{}", accepted.text);
    wait_for("the run", || (shop.runs("late") == 1).then_some(()));
    assert!(gantry.stop().success());
    let gantry = shop.start().run().await;
    let seen = until(&gantry, &gantry.token, &accepted.body["invocation_id"], "indeterminate").await;
    let error = &seen.body["error"];
    assert_eq!((&error["code"], &error["details"]["cause"]), (&json!("E3413"), &json!("interrupted")), "{}", seen.text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_of_which_nobody_knows_says_so_with_one_code_and_one_cause_wherever_it_is_told() {
    let shop = Shop::new();
    let gantry = shop.start().run().await;
    let more =
        json!({ "execution_options": { "idempotency_key": "one" }, "resource_limits": { "timeout_seconds": 1 } });
    let body = call("demo.pay", shop.waiting("late"), more);
    let first = invoke_for(&gantry, &gantry.token, 600, &body).await;
    let again = invoke_for(&gantry, &gantry.token, 600, &body).await;
    let path = format!("/v1/invocations/{}", first.body["invocation_id"].as_str().unwrap());
    let status = gantry.get(&path).await;
    assert_eq!((status.status, &status.body["status"]), (200, &json!("indeterminate")), "{}", status.text);
    for told in [&first, &again, &status] {
        let error = &told.body["error"];
        let seen = (&error["code"], &error["details"]["code"], &error["details"]["cause"]);
        assert_eq!(seen, (&json!("E3413"), &json!("E3402"), &json!("timed_out")), "{}", told.text);
    }
    assert_eq!(again.body["error"]["details"]["invocation_id"], first.body["invocation_id"]);
}

#[tokio::test]
async fn members_that_would_do_nothing_are_refused_with_the_reason() {
    let gantry = Gantry::start().await;
    let sum = json!({ "expression": "1 + 1" });
    for (more, word) in [
        (json!({ "execution_mode": "sync", "execution_options": { "async_mode": true } }), "async_mode"),
        (json!({ "execution_mode": "sync", "execution_options": { "callback": { "webhook_id": "x" } } }), "callback"),
        (json!({ "execution_options": { "turn_group_id": "turn-1" } }), "turn_group_id"),
        (json!({ "execution_options": { "wait_for_duplicate": false } }), "wait_for_duplicate"),
    ] {
        let body = call("calculator", sum.clone(), more);
        for path in ["/v1/tools/invoke", "/v1/tools/explain"] {
            let answer = gantry.post(path, body.clone()).await;
            assert!(answer.text.contains("E3004") && answer.text.contains(word), "{path}: {}", answer.text);
        }
        let rpc = json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.invoke", "params": body });
        let rpc = gantry.post("/rpc", rpc).await;
        assert!(rpc.text.contains("E3004") && rpc.text.contains(word), "{}", rpc.text);
    }
    let interval = json!({ "checkpoint_config": { "checkpoint_interval_seconds": 5 } });
    let answer = gantry.post("/v1/tools/invoke", call("calculator", sum.clone(), interval)).await;
    assert_eq!(answer.refusal(), (501, "E3010"), "{}", answer.text);
    // A preference gives way to what the request says.
    let request = client().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(&gantry.token);
    let request = request.header("content-type", "application/json").header("prefer", "respond-async");
    let body = call("calculator", sum, json!({ "execution_mode": "sync" })).to_string();
    let answer = Answer::of(request.body(body).send().await.unwrap()).await;
    assert_eq!((answer.status, &answer.body["result"]["result"]), (200, &json!(2)), "{}", answer.text);
}
