//! What a tool or a person said of a call is hidden from everybody who must not see it, at every door: results that a person gives,
//! readers who may not call the tool, sentences beside masked details, and what a job keeps of its end.

use std::path::Path;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, Start, open_to_all, wait_for};

const HIDDEN: &str = "[REDACTED]";
/// What must not be seen: under a name that says so, under a mark, and under a name that a policy hides.
const NAMED: &str = "Zebra-42-qux";
const MARKED: &str = "Mango-77-val";
const MAIL: &str = "Otter-13-box";

/// Fails with everything it was told, answers with it, or dies.
const PROGRAM: &str = r#"
import json, os, sys

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

call = json.loads(sys.stdin.readline())
wish = call["params"]["parameters"]
said = {name: wish.get(name, "") for name in ("password", "mark", "email")}
if wish["mode"] == "die":
    os.kill(os.getpid(), 9)
words = " / ".join(said.values())
if wish["mode"] == "answer":
    send(id=call["id"], result=said)
    sys.exit()
step = "asks with " + said["password"] + " / " + said["mark"]
send(method="progress", params={"percent": 10, "phase": step})
send(id="c", method="checkpoint", params={"name": step, "state": 1})
sys.stdin.readline()
if wish["mode"] == "json":
    send(id=call["id"], error={"code": 7, "message": json.dumps(said)})
elif wish["mode"] == "sentence":
    send(id=call["id"], error={"code": 7, "message": "no login with " + words})
else:
    send(id=call["id"], error={"code": 7, "message": "no login with " + words, "data": {**said, "note": "it was " + words}})
"#;

/// Tools that may have effects, one for each profile.
async fn vault(home: &Path, start: Start) -> Gantry {
    let text = json!({ "type": "string" });
    let marked = json!({ "type": "string", "x-sensitivity": "secret" });
    let wish =
        json!({ "type": "object", "properties": { "mode": text, "email": text, "password": text, "mark": marked } });
    let result =
        json!({ "type": "object", "properties": { "mark": marked, "password": text, "email": text, "note": text } });
    for (name, profile) in [("standard", "standard"), ("strict", "strict"), ("undo", "standard")] {
        let folder = home.join("tools").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let mut manifest = json!({
            "tool_id": name, "namespace": "vault", "version": "1.0.0", "name": name,
            "description": "Says what it was told.", "provider": "Test", "protocol": "native",
            "side_effect_policy": "idempotent", "timeout_class": "standard", "idempotency": {},
            "side_effects": [{ "resource": "vault", "op": "CREATE", "scope": "tenant" }],
            "parameters": wish, "result_schema": result, "output_policy": profile,
            "checkpoint_config": { "enabled": true },
            "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "gantry/1", "isolation": "process" },
        });
        if name != "undo" {
            manifest["side_effect_policy"] = json!("compensatable");
            manifest["compensation_tool_id"] = json!("vault.undo");
        }
        std::fs::write(folder.join("tool.json"), manifest.to_string()).unwrap();
        std::fs::write(folder.join("main.py"), PROGRAM).unwrap();
    }
    open_to_all(home);
    let tools = home.join("tools");
    start.data(&home.join("data")).arg("--tools").arg(tools.to_str().unwrap()).run().await
}

fn secrets() -> Value {
    json!({ "password": NAMED, "mark": MARKED, "email": MAIL })
}

/// Calls a tool of the vault with all its secrets. In the background with `async_mode`.
async fn call(server: &Gantry, token: &str, tool: &str, mode: &str, options: Value) -> Answer {
    let mut wish = secrets();
    wish["mode"] = json!(mode);
    let body = json!({ "tool_id": format!("vault.{tool}"), "parameters": wish, "execution_options": options });
    server.request(Method::POST, "/v1/tools/invoke", Some(token), Some(body)).await
}

fn id_of(answer: &Answer) -> String {
    let id = answer.body["invocation_id"].as_str().or_else(|| answer.body["error"]["invocation_id"].as_str());
    id.unwrap_or_else(|| panic!("{}", answer.text)).to_owned()
}

/// The status of a call, once it has ended.
async fn ended(server: &Gantry, token: &str, id: &str) -> Answer {
    let path = format!("/v1/invocations/{id}");
    let began = std::time::Instant::now();
    loop {
        let status = server.request(Method::GET, &path, Some(token), None).await;
        if !["pending", "running"].contains(&status.body["status"].as_str().unwrap_or_default()) {
            return status;
        }
        assert!(began.elapsed() < crate::support::PATIENCE, "it does not end: {}", status.text);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Everything that the doors tell of a call.
async fn told(server: &Gantry, token: &str, id: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for path in
        [format!("/v1/invocations/{id}"), "/v1/invocations".to_owned(), format!("/v1/invocations/{id}/checkpoints")]
    {
        all.push((path.clone(), server.request(Method::GET, &path, Some(token), None).await.text));
    }
    let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.status", "params": { "invocation_id": id } });
    all.push(("tool.status".to_owned(), server.request(Method::POST, "/rpc", Some(token), Some(asked)).await.text));
    all
}

/// The same with the events of a job.
async fn told_of_job(server: &Gantry, token: &str, id: &str) -> Vec<(String, String)> {
    let mut all = told(server, token, id).await;
    let path = format!("/v1/invocations/{id}/events");
    all.push((path.clone(), server.request(Method::GET, &path, Some(token), None).await.text));
    all
}

/// Does the word stand in the store?
fn is_kept(home: &Path, word: &str) -> bool {
    ["gantry.db", "gantry.db-wal"].iter().any(|file| {
        let bytes = std::fs::read(home.join("data").join(file)).unwrap_or_default();
        bytes.windows(word.len()).any(|window| window == word.as_bytes())
    })
}

async fn put(server: &Gantry, path: &str, body: Value) {
    let put = server.request(Method::PUT, path, Some(&server.token), Some(body)).await;
    assert_eq!(put.status, 200, "{}", put.text);
}

async fn activate(server: &Gantry, agent: &str, enabled: bool) {
    let activation =
        json!({ "agent_id": agent, "tool_id": "*", "enabled": enabled, "policy_overrides": { "redact": ["email"] } });
    put(server, "/v1/activations", json!({ "activations": [activation] })).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_gives_as_result_is_masked_like_the_tools_own() {
    let home = tempfile::tempdir().unwrap();
    let receiver = crate::webhooks::Receiver::open();
    let start = Start::new().env("GANTRY_WEBHOOKS__ALLOW", format!("http://{}", receiver.address));
    let server = vault(home.path(), start).await;
    let hook = format!("http://{}/hook", receiver.address);
    server.cli(&["webhook", "add", &hook, "--event", "invocation.completed"]).ok();
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    activate(&server, "ann", true).await;
    for profile in ["standard", "strict"] {
        for background in [false, true] {
            let options = json!({ "idempotency_key": format!("{profile}-{background}"), "async_mode": background });
            let id = id_of(&call(&server, &agent, profile, "die", options.clone()).await);
            let lost = ended(&server, &agent, &id).await;
            assert_eq!(lost.body["status"], "indeterminate", "{}", lost.text);
            let mut found = secrets();
            found["note"] = json!(format!("{MARKED} came from ada@example.com"));
            let found = json!({ "outcome": "happened", "result": found });
            let resolved = server.post(&format!("/v1/invocations/{id}/resolve"), found).await;
            assert_eq!(resolved.status, 200, "{}", resolved.text);

            let status = ended(&server, &agent, &id).await;
            let note = if profile == "strict" { "[EMAIL_REDACTED]" } else { "ada@example.com" };
            let shown = json!({ "password": HIDDEN, "mark": HIDDEN, "email": HIDDEN, "note": format!("{HIDDEN} came from {note}") });
            assert_eq!((&status.body["status"], &status.body["result"]), (&json!("success"), &shown), "{profile}");
            let again =
                call(&server, &agent, profile, "die", json!({ "idempotency_key": options["idempotency_key"] })).await;
            assert_eq!(again.body["result"], shown, "{}", again.text);
            for reader in [&agent, &server.token] {
                for (door, text) in told(&server, reader, &id).await {
                    assert!(!text.contains(NAMED) && !text.contains(MARKED), "{profile}, {door}: {text}");
                }
            }
            let listed = server.cli(&["jobs", "show", &id]).ok().out();
            assert!(!listed.contains(NAMED) && !listed.contains(MARKED), "{listed}");
        }
    }
    wait_for("both ends of jobs to be told", || {
        (receiver.all().iter().filter(|told| told.contains("\"success\"")).count() == 2).then_some(())
    });
    let told = receiver.all().join("\n");
    assert!(!told.contains(NAMED) && !told.contains(MARKED) && !told.contains(MAIL), "{told}");
    server.stop();
    assert!(!is_kept(home.path(), NAMED) && !is_kept(home.path(), MARKED), "it is in the store");
}

#[tokio::test]
async fn whoever_is_denied_a_tool_sees_nothing_of_what_it_said() {
    let home = tempfile::tempdir().unwrap();
    let server = vault(home.path(), Start::new()).await;
    let owner = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let operator = server.mint(json!({ "sub": "opal", "tenant": "local", "roles": ["operator"] })).await;
    let job = async |mode: &str| {
        let options = json!({ "idempotency_key": mode, "async_mode": true });
        let id = id_of(&call(&server, &owner, "standard", mode, options).await);
        ended(&server, &owner, &id).await;
        id
    };
    let (done, failed) = (job("answer").await, job("fail").await);
    let waited_for = call(&server, &owner, "standard", "answer", json!({ "idempotency_key": "w" })).await;
    let waited_for = id_of(&waited_for);
    let all_say = async |reader: &str, word: &str| {
        let mut says = Vec::new();
        for id in [&done, &failed] {
            says.extend(told_of_job(&server, reader, id).await);
        }
        says.extend(told(&server, reader, &waited_for).await);
        says.into_iter().filter(|(_, text)| text.contains(word)).map(|(door, _)| door).collect::<Vec<_>>()
    };
    let permit = "permit (principal, action, resource);";
    let masked = r#"@id("m") @obligations("redact=email") permit (principal, action, resource);"#;
    let forbid = |who: &str| format!(r#"@id("f") forbid (principal == Agent::"{who}", action, resource);"#);
    for (name, reader) in [("ann", &owner), ("opal", &operator)] {
        put(&server, "/v1/policies", json!({ "policies": permit })).await;
        assert!(!all_say(reader, MAIL).await.is_empty(), "nobody hides it yet");
        put(&server, "/v1/policies", json!({ "policies": masked })).await;
        assert_eq!(all_say(reader, MAIL).await, Vec::<String>::new(), "{name} is allowed");
        assert!(!all_say(reader, "no login with").await.is_empty(), "{name} is allowed");
        put(&server, "/v1/policies", json!({ "policies": format!("{masked}{}", forbid(name)) })).await;
        for word in [MAIL, "no login with", "it was", "asks with"] {
            assert_eq!(all_say(reader, word).await, Vec::<String>::new(), "{name} is forbidden");
        }
        // Where the calls stand is still told.
        let status = ended(&server, reader, &failed).await;
        assert_eq!(
            (&status.body["status"], &status.body["error"]["code"]),
            (&json!("error"), &json!("E3401")),
            "{}",
            status.text
        );
        let status = ended(&server, reader, &done).await;
        assert_eq!(
            (&status.body["status"], &status.body["result"]),
            (&json!("success"), &json!(HIDDEN)),
            "{}",
            status.text
        );

        put(&server, "/v1/policies", json!({ "policies": permit })).await;
        activate(&server, name, true).await;
        assert_eq!(all_say(reader, MAIL).await, Vec::<String>::new(), "{name} has it switched on");
        activate(&server, name, false).await;
        for word in [MAIL, "no login with"] {
            assert_eq!(all_say(reader, word).await, Vec::<String>::new(), "{name} has it switched off");
        }
        let allowed = json!({ "agent_id": name, "tool_id": "*", "enabled": true });
        put(&server, "/v1/activations", json!({ "activations": [allowed] })).await;
        assert!(!all_say(reader, MAIL).await.is_empty(), "it is given back, and was not taken out of the store");
    }
    // A layer without a policy denies everything.
    put(&server, "/v1/policies", json!({ "policies": "" })).await;
    assert_eq!(all_say(&owner, MAIL).await, Vec::<String>::new());
}

#[tokio::test]
async fn an_owner_who_is_allowed_by_arguments_reads_its_jobs_when_these_are_gone() {
    let home = tempfile::tempdir().unwrap();
    let server = vault(home.path(), Start::new()).await;
    let owner = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let other = server.mint(json!({ "sub": "opal", "tenant": "local", "roles": ["operator"] })).await;
    let by_arguments = r#"@id("a") @obligations("redact=mark") permit (principal, action, resource)
        when { context.arguments.text.hasTag("mode") && context.arguments.text.getTag("mode") == "answer" };
        @id("b") @obligations("redact=email") permit (principal == Agent::"nobody", action, resource);"#;
    put(&server, "/v1/policies", json!({ "policies": by_arguments })).await;
    let options = json!({ "idempotency_key": "k", "async_mode": true });
    let id = id_of(&call(&server, &owner, "standard", "answer", options).await);
    let status = ended(&server, &owner, &id).await;
    let shown = json!({ "password": HIDDEN, "mark": HIDDEN, "email": HIDDEN });
    assert_eq!(
        (&status.body["status"], &status.body["result"]),
        (&json!("success"), &shown),
        "what any permit hides is hidden"
    );
    assert_eq!(ended(&server, &other, &id).await.body["result"], HIDDEN, "nobody can say whether it would be allowed");
    let forbid = format!(r#"{by_arguments} @id("f") forbid (principal == Agent::"ann", action, resource);"#);
    put(&server, "/v1/policies", json!({ "policies": forbid })).await;
    assert_eq!(ended(&server, &owner, &id).await.body["result"], HIDDEN);
}

#[tokio::test]
async fn what_is_hidden_in_the_data_of_a_failure_is_hidden_in_its_sentence() {
    let home = tempfile::tempdir().unwrap();
    let server = vault(home.path(), Start::new()).await;
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    activate(&server, "ann", true).await;
    for profile in ["standard", "strict"] {
        for mode in ["fail", "json"] {
            let key = json!({ "idempotency_key": format!("{profile}-{mode}") });
            let failed = call(&server, &agent, profile, mode, key).await;
            assert_eq!(failed.code(), "E3401", "{}", failed.text);
            for word in [NAMED, MARKED, MAIL] {
                assert!(!failed.text.contains(word), "{profile}, {mode}, {word}: {}", failed.text);
            }
        }
        let key = json!({ "idempotency_key": format!("{profile}-fail") });
        let said = call(&server, &agent, profile, "fail", key).await.body["error"]["message"].clone();
        assert!(said.as_str().unwrap().contains("no login with"), "the rest is told: {said}");
        let asked = json!({ "jsonrpc": "2.0", "id": 1, "method": "tool.invoke", "params": {
            "tool_id": format!("vault.{profile}"), "parameters": { "mode": "fail", "email": MAIL, "password": NAMED, "mark": MARKED },
            "execution_options": { "idempotency_key": format!("{profile}-rpc") } } });
        let failed = server.request(Method::POST, "/rpc", Some(&agent), Some(asked)).await;
        assert!(failed.text.contains("no login with"), "{}", failed.text);
        for word in [NAMED, MARKED, MAIL] {
            assert!(!failed.text.contains(word), "{profile}, {word}: {}", failed.text);
        }
    }
}

#[tokio::test]
async fn a_failed_job_keeps_none_of_the_secrets_it_was_told() {
    let home = tempfile::tempdir().unwrap();
    let server = vault(home.path(), Start::new()).await;
    let agent = server.mint(json!({ "sub": "ann", "tenant": "local" })).await;
    let options = json!({ "idempotency_key": "k", "async_mode": true });
    let id = id_of(&call(&server, &agent, "standard", "sentence", options).await);
    let status = ended(&server, &agent, &id).await;
    let said = status.body["error"]["message"].as_str().unwrap();
    assert!(said.ends_with(&format!("no login with {HIDDEN} / {HIDDEN} / {MAIL}")), "{}", status.text);
    assert_eq!(status.body["current_phase"], format!("asks with {HIDDEN} / {HIDDEN}"), "{}", status.text);
    let saved = server.request(Method::GET, &format!("/v1/invocations/{id}/checkpoints"), Some(&agent), None).await;
    assert_eq!(saved.body["checkpoints"][0]["label"], format!("asks with {HIDDEN} / {HIDDEN}"), "{}", saved.text);
    for (door, text) in told_of_job(&server, &agent, &id).await {
        assert!(!text.contains(NAMED) && !text.contains(MARKED), "{door}: {text}");
    }
    server.stop();
    assert!(is_kept(home.path(), "no login with"), "the failure is kept");
    assert!(!is_kept(home.path(), NAMED) && !is_kept(home.path(), MARKED), "so are its secrets");
}
