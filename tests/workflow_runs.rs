//! Workflows that other queues ask for, against the real binary: a job says what became of its run and nothing better, a run that
//! may have happened is repeated only for those who gave a key, and a key stands for one run.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use jobs::webhooks::sign;
use ports::clock::UnixMillis;
use ports::secret_source::SecretValue;
use reqwest::Method;
use serde_json::{Value, json};

use crate::sealed_contents::{SECRET, read, send_workflow, with_engine};
use crate::support::{Answer, Gantry, Start, client, wait_for};

/// A workflow engine. A workflow called `answers-N` is answered with that status, one called `holds` for the first time not
/// before it is released, and then, as every time after, with 200.
struct Engine {
    address: String,
    asked: Arc<Mutex<Vec<Value>>>,
    released: Arc<Mutex<bool>>,
}

impl Engine {
    fn open() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (asked, released) = (Arc::<Mutex<Vec<Value>>>::default(), Arc::new(Mutex::new(false)));
        let (kept, is_released) = (Arc::clone(&asked), Arc::clone(&released));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                let (kept, is_released) = (Arc::clone(&kept), Arc::clone(&is_released));
                std::thread::spawn(move || {
                    let request = read(&mut stream);
                    let (head, body) = request.split_once("\r\n\r\n").unwrap();
                    let name = head.split_whitespace().nth(1).unwrap().trim_start_matches("/webhook/").to_owned();
                    let status = name.strip_prefix("answers-").unwrap_or("200").to_owned();
                    let is_first = {
                        let mut kept = kept.lock().unwrap();
                        kept.push(serde_json::from_str(body).unwrap());
                        kept.len() == 1
                    };
                    if name == "holds" && is_first {
                        wait_for("the release of the workflow", || is_released.lock().unwrap().then_some(()));
                    }
                    let head =
                        format!("HTTP/1.1 {status} S\r\ncontent-type: application/json\r\nconnection: close\r\n");
                    let _ = write!(stream, "{head}content-length: 2\r\n\r\n{{}}");
                });
            }
        });
        Self { address, asked, released }
    }

    fn start(&self) -> Start {
        with_engine(&self.address)
    }

    fn count(&self) -> usize {
        self.asked.lock().unwrap().len()
    }

    /// The ids of the runs it was asked for, in order, once there are so many.
    fn requests(&self, count: usize) -> Vec<String> {
        wait_for("the workflow engine to be asked", || (self.count() >= count).then_some(()));
        let id = |body: &Value| body["_metadata"]["requestId"].as_str().unwrap().to_owned();
        self.asked.lock().unwrap().iter().map(id).collect()
    }

    fn release(&self) {
        *self.released.lock().unwrap() = true;
    }
}

/// What a workflow says at its end.
async fn call_back(server: &Gantry, id: &str, status: &str) -> Answer {
    let body = json!({ "invocationId": id, "status": status, "error": "card declined" }).to_string();
    let now = i64::try_from(std::time::UNIX_EPOCH.elapsed().unwrap().as_millis()).unwrap();
    let signature = sign(&[SecretValue::new(SECRET).unwrap()], UnixMillis(now), body.as_bytes());
    let request = client().post(format!("http://{}/v1/workflows/callback", server.address()));
    let request = request.header("gantry-signature", signature).header("content-type", "application/json");
    Answer::of(request.body(body).send().await.unwrap()).await
}

fn shown(server: &Gantry, id: &str) -> Value {
    server.cli(&["jobs", "show", id, "--json"]).ok().json()
}

/// The job of the run, once it has ended.
fn ended(server: &Gantry, id: &str) -> Value {
    wait_for("the end of the job", || {
        let job = shown(server, id);
        (!job["completed_at"].is_null()).then_some(job)
    })
}

fn end_of(job: &Value) -> (&str, &str) {
    (job["status"].as_str().unwrap(), job["error"]["code"].as_str().unwrap_or_default())
}

/// The status of a job that no worker has in its hands any more: it waits for somebody outside, or has ended.
fn first_news(server: &Gantry, id: &str) -> String {
    wait_for("news of the job", || {
        let job = shown(server, id);
        let waits = job["status"] == "running" && job["attempts"] == 0;
        (waits || !job["completed_at"].is_null()).then(|| job["status"].as_str().unwrap().to_owned())
    })
}

fn unknown(server: &Gantry) -> BTreeMap<String, Value> {
    let page = server.cli(&["jobs", "unknown", "--json"]).ok().json();
    let calls = page["calls"].as_array().unwrap();
    calls.iter().map(|call| (call["invocation_id"].as_str().unwrap().to_owned(), call.clone())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_was_refused_is_an_error_and_one_that_may_have_run_is_asked_once_and_unknown() {
    let engine = Engine::open();
    let server = engine.start().run().await;
    let statuses = [404, 400, 500];
    for (count, status) in (1..).zip(statuses) {
        let payload = json!({ "workflowId": format!("answers-{status}"), "input": { "order": status } });
        assert_eq!(send_workflow(&server, &format!("m{status}"), &payload).await.status, 200);
        let id = engine.requests(count).pop().unwrap();
        let job = ended(&server, &id);
        let expected = if status < 500 { ("error", "E3502") } else { ("indeterminate", "E3413") };
        assert_eq!(end_of(&job), expected, "{status}: {job}");
        assert!(job["result"].is_null(), "{job}");
    }
    let ids = engine.requests(statuses.len());
    assert_eq!(ids.len(), statuses.len(), "each was asked for once");
    let open = unknown(&server);
    assert_eq!(open.keys().collect::<Vec<_>>(), [&ids[2]], "{open:?}");
    assert_eq!(open[&ids[2]]["cause"]["cause"], "answer_lost");
    server.cli(&["jobs", "resolve", &ids[2], "--happened", "--result", "{\"paid\": 7}"]).ok();
    let job = shown(&server, &ids[2]);
    assert_eq!((end_of(&job), &job["result"]), (("success", ""), &json!({ "paid": 7 })));
    assert!(unknown(&server).is_empty());
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_goes_on_is_running_until_it_calls_back_and_ends_as_that_says() {
    let engine = Engine::open();
    let server = engine.start().run().await;
    for (count, said, expected) in [(1, "failure", ("error", "E3404")), (2, "success", ("success", ""))] {
        let payload = json!({ "workflowId": "answers-202", "input": { "order": count } });
        assert_eq!(send_workflow(&server, &format!("m{count}"), &payload).await.status, 200);
        let id = engine.requests(count).pop().unwrap();
        assert_eq!(first_news(&server, &id), "running");
        let job = shown(&server, &id);
        assert!(job["error"].is_null() && job["result"].is_null(), "{job}");
        let taken = call_back(&server, &id, said).await;
        assert_eq!((taken.status, &taken.body["duplicate"]), (200, &json!(false)), "{}", taken.text);
        let job = ended(&server, &id);
        assert_eq!(end_of(&job), expected, "{job}");
        assert!(!job.to_string().contains("card declined"), "what the workflow said is told by the webhook: {job}");
    }
    assert_eq!(engine.count(), 2, "nobody asked a second time");
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_callback_says_what_became_of_a_workflow_of_which_nobody_knew() {
    let engine = Engine::open();
    let server = engine.start().run().await;
    let payload = json!({ "workflowId": "answers-500", "input": {} });
    assert_eq!(send_workflow(&server, "m1", &payload).await.status, 200);
    let id = engine.requests(1).pop().unwrap();
    assert_eq!(end_of(&ended(&server, &id)), ("indeterminate", "E3413"));
    assert_eq!(call_back(&server, &id, "success").await.status, 200);
    assert_eq!(end_of(&shown(&server, &id)), ("success", ""));
    assert!(unknown(&server).is_empty());
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_that_ran_when_the_server_died_is_asked_for_again_only_if_it_has_a_key() {
    for (key, count, expected) in [(Value::Null, 1, ("indeterminate", "E3413")), (json!("order-7"), 2, ("success", ""))]
    {
        let engine = Engine::open();
        let data = tempfile::tempdir().unwrap();
        let server = engine.start().data(data.path()).run().await;
        let payload = json!({ "workflowId": "holds", "input": { "order": 7 }, "idempotencyKey": key });
        assert_eq!(send_workflow(&server, "m1", &payload).await.status, 200);
        let id = engine.requests(1).pop().unwrap();
        server.kill();
        let server = engine.start().data(data.path()).run().await;
        let job = ended(&server, &id);
        assert_eq!(end_of(&job), expected, "{job}");
        let requests = engine.requests(count);
        assert!(requests.len() == count && requests.iter().all(|request| *request == id), "{requests:?}");
        engine.release();
        assert!(server.stop().success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_with_a_key_that_failed_is_asked_for_anew_when_its_job_is_begun_again() {
    let engine = Engine::open();
    let server = engine.start().run().await;
    let payload = json!({ "workflowId": "answers-202", "input": { "order": 7 }, "idempotencyKey": "order-7" });
    assert_eq!(send_workflow(&server, "m1", &payload).await.status, 200);
    let first = engine.requests(1).pop().unwrap();
    assert_eq!(call_back(&server, &first, "failure").await.status, 200);
    assert_eq!(end_of(&ended(&server, &first)), ("error", "E3404"));
    let again = server.cli(&["jobs", "retry", &first, "--json"]).ok().json();
    let second = engine.requests(2).pop().unwrap();
    assert_eq!(again["invocation_id"], second.as_str(), "the run is the new job's: {again}");
    assert_ne!(first, second);
    assert_eq!(call_back(&server, &second, "success").await.status, 200);
    assert_eq!(end_of(&ended(&server, &second)), ("success", ""));
    // The key stands for what was done.
    assert_eq!(send_workflow(&server, "m2", &payload).await.body["duplicate"], true);
    assert_eq!(engine.count(), 2);
    assert!(server.stop().success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_stands_for_one_run_also_while_it_runs_and_other_input_is_refused() {
    let engine = Engine::open();
    let server = engine.start().run().await;
    let send = async |message: &str, order: u64| {
        let payload = json!({ "workflowId": "holds", "input": { "order": order }, "idempotencyKey": "order-7" });
        send_workflow(&server, message, &payload).await
    };
    assert_eq!(send("m1", 7).await.body["duplicate"], false);
    let id = engine.requests(1).pop().unwrap();
    for round in ["while it runs", "after its end"] {
        let again = send(&format!("m2 {round}").replace(' ', "-"), 7).await;
        assert_eq!((again.status, &again.body["duplicate"]), (200, &json!(true)), "{round}: {}", again.text);
        let other = send(&format!("m3 {round}").replace(' ', "-"), 8).await;
        assert_eq!(other.refusal(), (409, "E3410"), "{round}: {}", other.text);
        engine.release();
        assert_eq!(end_of(&ended(&server, &id)), ("success", ""));
    }
    let page = server.request(Method::GET, "/v1/invocations?kind=execute_workflow", Some(&server.token), None).await;
    assert_eq!(page.body["invocations"].as_array().unwrap().len(), 1, "{}", page.text);
    assert_eq!(engine.requests(1), [id], "it was asked for once");
    assert!(server.stop().success());
}
