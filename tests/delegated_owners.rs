//! Whoever takes another agent's name in a token exchange has nothing of what is kept for that agent: no jobs, results, events,
//! checkpoints or use, and no keys. An agent that was handed a token has what it did with it, and nobody else's.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::delegated_rights::renamed;
use crate::support::{Answer, Gantry, PATIENCE, Start, manifest, open_to_all};

/// Saves a state, stands still if it is told to, and says which run of it this is.
const PROGRAM: &str = r#"
import json, os, sys, time

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

call = json.loads(sys.stdin.readline())
wish = call["params"]["parameters"]
send(id="c", method="checkpoint", params={"name": "step", "state": {"word": wish["word"]}})
sys.stdin.readline()
if wish["waits"]:
    time.sleep(600)
send(id=call["id"], result={"word": wish["word"], "run": os.urandom(8).hex()})
"#;

/// What a tool is told: its word, and whether it stands still.
fn wish(word: &str, waits: bool) -> Value {
    json!({ "word": word, "waits": waits })
}

struct Office {
    /// Held, because the server lives in it.
    _home: TempDir,
    gantry: Gantry,
}

impl Office {
    async fn open() -> Self {
        let home = tempfile::tempdir().unwrap();
        for (id, effects, protocol) in [("errand", "pure", "native"), ("payment", "unclassified", "custom")] {
            let folder = home.path().join("tools").join(id);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("main.py"), PROGRAM).unwrap();
            let manifest = json!({
                "tool_id": id, "namespace": "demo", "version": "1.0.0", "name": id, "provider": "Demo",
                "description": "Saves a state, says a word and which run of it this is.", "protocol": protocol,
                "side_effect_policy": effects, "timeout_class": "long_running", "timeout_default": 120,
                "parameters": { "type": "object", "required": ["word", "waits"], "properties": {
                    "word": { "type": "string", "description": "what is said" },
                    "waits": { "type": "boolean", "description": "whether it stands still" } } },
                "result_schema": { "type": "object" },
                "checkpoint_config": { "enabled": true, "macro_events": ["step"] },
                "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "gantry/1",
                    "isolation": "process" },
            });
            std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
        }
        open_to_all(home.path());
        let (data, tools) = (home.path().join("data"), home.path().join("tools"));
        let gantry = Start::new().data(&data).arg("--tools").arg(tools.to_str().unwrap()).run().await;
        Self { _home: home, gantry }
    }

    async fn agent(&self, name: &str) -> String {
        self.gantry.mint(json!({ "tenant": "local", "sub": name })).await
    }

    async fn call(&self, token: &str, tool: &str, parameters: Value, options: Value) -> Answer {
        let body = json!({ "tool_id": tool, "parameters": parameters, "execution_options": options });
        self.gantry.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
    }

    async fn submit(&self, token: &str, parameters: Value) -> String {
        let accepted = self.call(token, "demo.errand", parameters, json!({ "async_mode": true })).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        accepted.body["invocation_id"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, token: &str, verb: Method, path: &str) -> Answer {
        let body = (verb == Method::POST).then(|| json!({}));
        self.gantry.request(verb, path, Some(token), body).await
    }

    /// Waits until a job stands there, as its owner sees it.
    async fn until(&self, token: &str, id: &str, wanted: &str) -> Answer {
        let began = std::time::Instant::now();
        loop {
            let seen = self.ask(token, Method::GET, &format!("/v1/invocations/{id}")).await;
            assert_eq!(seen.status, 200, "{}", seen.text);
            if seen.body["status"] == wanted {
                return seen;
            }
            assert!(began.elapsed() < PATIENCE, "{id} is not {wanted}: {}", seen.text);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn checkpoints(&self, token: &str, id: &str) -> Vec<Value> {
        let listed = self.ask(token, Method::GET, &format!("/v1/invocations/{id}/checkpoints")).await;
        assert_eq!(listed.status, 200, "{}", listed.text);
        listed.body["checkpoints"].as_array().unwrap().clone()
    }

    async fn listed(&self, token: &str) -> Vec<Value> {
        let listed = self.ask(token, Method::GET, "/v1/invocations").await;
        assert_eq!(listed.status, 200, "{}", listed.text);
        let ids = listed.body["invocations"].as_array().unwrap().iter();
        ids.map(|line| line["invocation_id"].clone()).collect()
    }

    /// Nothing of the job is there for this token, whatever it is asked for.
    async fn sees_nothing(&self, token: &str, id: &str) {
        for (verb, end) in
            [(Method::GET, ""), (Method::GET, "/events"), (Method::POST, "/cancel"), (Method::POST, "/retry")]
        {
            let told = self.ask(token, verb, &format!("/v1/invocations/{id}{end}")).await;
            assert_eq!(told.refusal(), (404, "E3702"), "{end}: {}", told.text);
        }
        assert!(!self.listed(token).await.contains(&json!(id)));
        assert_eq!(self.checkpoints(token, id).await, Vec::<Value>::new());
        let (path, body) = (format!("/v1/tools/resume/{id}"), json!({ "parameters": wish("stolen", false) }));
        let resumed = self.gantry.request(Method::POST, &path, Some(token), Some(body)).await;
        assert_eq!(resumed.refusal(), (404, "E3903"), "{}", resumed.text);
    }
}

#[tokio::test]
async fn what_is_kept_for_an_agent_is_not_there_for_whoever_takes_its_name() {
    let office = Office::open().await;
    let (alice, mallory) = (office.agent("alice").await, office.agent("mallory").await);
    let taken = renamed(&office.gantry, &mallory, "alice").await;
    let id = office.submit(&alice, wish("hers", true)).await;
    office.until(&alice, &id, "running").await;
    let began = std::time::Instant::now();
    while office.checkpoints(&alice, &id).await.is_empty() {
        assert!(began.elapsed() < PATIENCE, "it has saved nothing");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    office.sees_nothing(&taken, &id).await;
    let cancelled = office.ask(&alice, Method::POST, &format!("/v1/invocations/{id}/cancel")).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    office.until(&alice, &id, "cancelled").await;
    assert_eq!(office.checkpoints(&alice, &id).await.len(), 1, "there is something to be taken");
    office.sees_nothing(&taken, &id).await;
    // She decides about it herself, also with a token that she has narrowed for herself.
    let narrowed = renamed(&office.gantry, &alice, "alice").await;
    let again = office.ask(&narrowed, Method::POST, &format!("/v1/invocations/{id}/retry")).await;
    assert_eq!(again.status, 202, "{}", again.text);
    let again = again.body["invocation_id"].as_str().unwrap().to_owned();
    office.until(&alice, &again, "running").await;
    office.sees_nothing(&taken, &again).await;
    let cancelled = office.ask(&narrowed, Method::POST, &format!("/v1/invocations/{again}/cancel")).await;
    assert_eq!(cancelled.status, 200, "{}", cancelled.text);
    // What the name came to is no more the thief's than the jobs.
    let used = office.ask(&taken, Method::GET, "/v1/usage").await;
    assert_eq!(used.refusal(), (403, "E3206"), "{}", used.text);
    assert_eq!(office.ask(&alice, Method::GET, "/v1/usage").await.status, 200);
}

#[tokio::test]
async fn an_agent_has_the_jobs_of_its_own_token_and_not_those_of_a_sibling() {
    let office = Office::open().await;
    let boss = office.agent("boss").await;
    let (one, two) = (renamed(&office.gantry, &boss, "one").await, renamed(&office.gantry, &boss, "two").await);
    let id = office.submit(&two, wish("twos", false)).await;
    let done = office.until(&two, &id, "success").await;
    assert_eq!(done.body["result"]["word"], "twos", "{}", done.text);
    // The same agent, with the next token from the same hand.
    let renewed = renamed(&office.gantry, &boss, "two").await;
    assert_eq!(office.listed(&renewed).await, [json!(id)]);
    let events = office.ask(&renewed, Method::GET, &format!("/v1/invocations/{id}/events")).await;
    assert_eq!(events.status, 200, "{}", events.text);
    // One of the same root that calls itself by the other's name, and the other way round.
    let posing = renamed(&office.gantry, &one, "two").await;
    office.sees_nothing(&posing, &id).await;
    office.sees_nothing(&one, &id).await;
    office.sees_nothing(&office.agent("two").await, &id).await;
}

#[tokio::test]
async fn the_keys_of_an_agent_do_not_meet_those_of_whoever_takes_its_name() {
    let office = Office::open().await;
    let (alice, mallory) = (office.agent("alice").await, office.agent("mallory").await);
    let taken = renamed(&office.gantry, &mallory, "alice").await;
    // A call with effects that is waited for: somebody was there first with her name and her key.
    let pay = async |token: &str, word: &str| {
        office.call(token, "demo.payment", wish(word, false), json!({ "idempotency_key": "order-7" })).await
    };
    let squatted = pay(&taken, "squatted").await;
    assert_eq!(squatted.status, 200, "{}", squatted.text);
    let hers = pay(&alice, "hers").await;
    assert_eq!((hers.status, &hers.body["result"]["word"]), (200, &json!("hers")), "{}", hers.text);
    for (token, word, first) in [(&alice, "hers", &hers), (&taken, "squatted", &squatted)] {
        let repeated = pay(token, word).await;
        assert_eq!(repeated.body["result"], first.body["result"], "each key still stands for its own call");
    }
    let id = hers.body["invocation_id"].as_str().unwrap().to_owned();
    // Without a key, under the id of her call.
    let body = json!({ "tool_id": "demo.payment", "parameters": wish("hers", false), "invocation_id": id });
    let copied = office.gantry.request(Method::POST, "/v1/tools/invoke", Some(&taken), Some(body)).await;
    assert_ne!(
        copied.body["result"]["run"], hers.body["result"]["run"],
        "her outcome is not answered: {}",
        copied.text
    );
    // The same in the background.
    let submit = async |token: &str, word: &str| {
        let options = json!({ "async_mode": true, "idempotency_key": "morning" });
        let accepted = office.call(token, "demo.errand", wish(word, false), options).await;
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        accepted.body["invocation_id"].as_str().unwrap().to_owned()
    };
    let (first, second) = (submit(&taken, "one").await, submit(&alice, "two").await);
    assert_ne!(first, second);
    assert_eq!(office.until(&alice, &second, "success").await.body["result"]["word"], "two");
    assert_eq!(office.until(&taken, &first, "success").await.body["result"]["word"], "one");
    assert_eq!(submit(&alice, "two").await, second);
    assert_eq!(submit(&taken, "one").await, first);
}

#[tokio::test]
async fn a_job_that_is_begun_again_counts_against_the_limits_of_its_call() {
    let gantry = Gantry::start().await;
    // The calculator under another name, given what it cannot do.
    let limited = manifest(json!({ "tool_id": "limited_sum", "rate_limit": { "max_per_day": 2 } }));
    let registered = gantry.register(limited).await;
    assert_eq!(registered.status, 201, "{}", registered.text);
    let agent = gantry.mint(json!({ "tenant": "local", "sub": "alice" })).await;
    let ask = async |path: String, body: Value| gantry.request(Method::POST, &path, Some(&agent), Some(body)).await;
    let call = json!({ "tool_id": "demo.limited_sum", "parameters": { "expression": "1 / 0" },
        "execution_options": { "async_mode": true } });
    let ended = async |accepted: &Answer| {
        assert_eq!(accepted.status, 202, "{}", accepted.text);
        let path = format!("/v1/invocations/{}", accepted.body["invocation_id"].as_str().unwrap());
        let began = std::time::Instant::now();
        loop {
            let seen = gantry.request(Method::GET, &path, Some(&agent), None).await;
            if seen.body["status"] == "error" {
                return path;
            }
            assert!(began.elapsed() < PATIENCE, "{}", seen.text);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let first = ended(&ask("/v1/tools/invoke".to_owned(), call.clone()).await).await;
    let second = ended(&ask(format!("{first}/retry"), json!({})).await).await;
    for path in [&first, &second] {
        let refused = ask(format!("{path}/retry"), json!({})).await;
        assert_eq!(refused.refusal(), (429, "E3003"), "{}", refused.text);
    }
    assert_eq!(ask("/v1/tools/invoke".to_owned(), call).await.refusal(), (429, "E3003"));
}

#[tokio::test]
async fn a_stream_of_events_ends_with_the_token_that_opened_it() {
    let office = Office::open().await;
    let alice = office.agent("alice").await;
    let id = office.submit(&alice, wish("hers", true)).await;
    office.until(&alice, &id, "running").await;
    let request = crate::support::client().get(format!("{}/v1/invocations/{id}/events", office.gantry.url));
    let mut stream = request.bearer_auth(&alice).send().await.unwrap();
    assert!(stream.chunk().await.unwrap().is_some(), "it tells what has happened");
    let revoked = office.gantry.post("/v1/tokens/revoke", json!({ "sub": "alice" })).await;
    assert_eq!((revoked.status, &revoked.body["revoked"]), (200, &json!(true)), "{}", revoked.text);
    // The job goes on, and nothing of it is told any more.
    let end = async { while stream.chunk().await.unwrap().is_some() {} };
    tokio::time::timeout(PATIENCE, end).await.expect("the stream goes on");
}
