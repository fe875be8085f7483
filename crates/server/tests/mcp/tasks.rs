//! Calls that go on as tasks: when they do, how they are asked for, answered, cancelled and fetched, and who sees them. In
//! the present revision and in the one before.

use std::sync::Arc;
use std::time::Duration;

use gantry_server::{McpConfig, ToolExposure};
use jobs::JobsSettings;
use ports::job_store::{JobFilter, JobStore as _};
use serde_json::{Value, json};
use store::memory::MemoryStore;

use crate::calls::payments;
use crate::client::PATIENCE;
use crate::stage::{ADMIN, Stage, manifest};

const OLD: &str = "2025-11-25";
const NEVER: &str = "019a0000-0000-7000-8000-000000000001";

/// A stage whose calls become tasks after a moment, with tools that may last.
async fn stage() -> (Stage, Arc<MemoryStore>) {
    let pattern = |text: &str| text.parse().unwrap();
    let mcp = McpConfig {
        exposure: ToolExposure::All,
        tasks_at_once: vec![pattern("demo.asking_tool"), pattern("demo.failing_tool"), pattern("demo.needy_tool")],
        tasks_required: vec![pattern("demo.required_tool")],
        ..McpConfig::default()
    };
    let settings = JobsSettings { promote_after: Duration::from_millis(50), ..JobsSettings::default() };
    let (stage, store) = Stage::with_jobs(mcp, settings).await;
    for (handler, name) in [
        ("gate", "slow_tool"),
        ("curious", "asking_tool"),
        ("curious", "wondering_tool"),
        ("fail", "failing_tool"),
        ("needy", "needy_tool"),
        ("echo", "required_tool"),
        ("paced", "paced_tool"),
    ] {
        // One attempt: there are no workers here who would make the next.
        let change = json!({ "tool_id": name, "timeout_class": "long_running", "retry_policy": { "max_attempts": 1 } });
        stage.publish(manifest(handler, &change)).await;
    }
    (stage, store)
}

fn capable() -> Value {
    json!({ "elicitation": { "form": {} }, "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

async fn ask_as(stage: &Stage, token: &str, method: &str, params: Value) -> Value {
    stage.ask().token(token).new_style(1, method, params, &capable()).message().await
}

async fn ask(stage: &Stage, method: &str, params: Value) -> Value {
    ask_as(stage, &stage.agent, method, params).await
}

fn call(tool: &str) -> Value {
    json!({ "name": format!("demo__{tool}"), "arguments": { "text": "x" } })
}

/// Makes a call that becomes a task, and gives its id.
async fn begin(stage: &Stage, tool: &str) -> String {
    let created = ask(stage, "tools/call", call(tool)).await;
    assert_eq!(created["result"]["resultType"], "task", "{created}");
    created["result"]["taskId"].as_str().unwrap().to_owned()
}

async fn get(stage: &Stage, id: &str) -> Value {
    ask(stage, "tasks/get", json!({ "taskId": id })).await["result"].take()
}

/// Asks until the task stands as it should.
async fn until(stage: &Stage, id: &str, status: &str) -> Value {
    let looking = async {
        loop {
            let task = get(stage, id).await;
            if task["status"] == status {
                return task;
            }
            assert!(matches!(task["status"].as_str(), Some("working" | "input_required")), "{task}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap()
}

#[tokio::test]
async fn a_call_with_effects_and_a_key_goes_on_without_a_client_that_could_have_taken_a_task() {
    let mcp = McpConfig { exposure: ToolExposure::All, ..McpConfig::default() };
    let settings = JobsSettings { promote_after: Duration::from_secs(3_600), ..JobsSettings::default() };
    let (stage, _) = Stage::with_jobs(mcp, settings).await;
    let call = payments(&stage).await;
    let ask = || stage.ask().token(&stage.agent).new_style(1, "tools/call", call.clone(), &capable());
    let calling = tokio::spawn(ask().send());
    stage.gated(1).await;
    calling.abort();
    assert!(calling.await.is_err(), "the line is broken");
    // Another round, so that the server has seen the end of the line.
    stage.new_style("tools/list", json!({})).await;
    let again = tokio::spawn(ask().message());
    stage.tools.gate.add_permits(1);
    let answer = again.await.unwrap();
    assert_eq!(answer["result"]["structuredContent"]["text"], "x", "{answer}");
    stage.until("both are recorded", || stage.paper.ends() == [None, None]).await;
    assert_eq!(*stage.tools.running.borrow(), 1, "it ran once");
}

#[tokio::test]
async fn a_call_that_lasts_becomes_a_task_and_its_end_is_fetched_later() {
    let (stage, _) = stage().await;
    let discovered = ask(&stage, "server/discover", json!({})).await;
    let capabilities = &discovered["result"]["capabilities"];
    assert_eq!(capabilities["extensions"]["io.modelcontextprotocol/tasks"], json!({}), "{discovered}");
    assert!(capabilities.get("tasks").is_none());
    let created = ask(&stage, "tools/call", call("slow_tool")).await["result"].take();
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")), "{created}");
    assert_eq!((&created["ttlMs"], &created["pollIntervalMs"]), (&json!(604_800_000), &json!(1_000)));
    for absent in ["task", "result", "error", "requestState", "inputRequests", "ttl", "pollInterval"] {
        assert!(created.get(absent).is_none(), "{absent}: {created}");
    }
    let id = created["taskId"].as_str().unwrap();
    let working = get(&stage, id).await;
    assert_eq!((&working["status"], &working["resultType"]), (&json!("working"), &json!("complete")), "{working}");
    assert_eq!(working["createdAt"], created["createdAt"]);
    stage.tools.gate.add_permits(1);
    let done = until(&stage, id, "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!({ "text": "x" }), "{done}");
    assert_eq!(done["result"]["_meta"]["dev.gantry/invocation_id"], id, "one id for both doors");
    stage.until("it was one call", || stage.paper.ends() == [None]).await;
    // What ends in time is answered as ever.
    let quick = ask(&stage, "tools/call", call("echo_tool")).await;
    assert_eq!(quick["result"]["resultType"], "complete", "{quick}");
    for method in ["tasks/result", "tasks/list"] {
        let gone = ask(&stage, method, json!({ "taskId": id })).await;
        assert_eq!(gone["error"]["code"], -32601, "{method}: {gone}");
    }
}

#[tokio::test]
async fn one_key_is_one_task_however_often_it_is_asked_for() {
    let (stage, store) = stage().await;
    let keyed = |text: &str| {
        let mut call = call("required_tool");
        call["arguments"]["text"] = json!(text);
        call["_meta"] = json!({ "dev.gantry/idempotency_key": "order-7" });
        call
    };
    let first = ask(&stage, "tools/call", keyed("x")).await;
    let id = first["result"]["taskId"].as_str().unwrap_or_else(|| panic!("{first}")).to_owned();
    for _ in 0..2 {
        let again = ask(&stage, "tools/call", keyed("x")).await;
        assert_eq!(again["result"]["taskId"], id.as_str(), "{again}");
        until(&stage, &id, "completed").await;
    }
    let other = ask(&stage, "tools/call", keyed("y")).await;
    assert!(other.to_string().contains("E3410"), "{other}");
    assert_eq!(store.list(&JobFilter::default(), None, 10).await.unwrap().jobs.len(), 1);
}

#[tokio::test]
async fn to_a_client_that_cannot_take_a_task_nothing_changes() {
    let (stage, _) = stage().await;
    let waits = stage.ask().token(&stage.agent).new_style(1, "tools/call", call("slow_tool"), &json!({})).message();
    let waiting = tokio::spawn(waits);
    stage.gated(1).await;
    // The other is a task by now, so the time is over for both.
    let task = begin(&stage, "slow_tool").await;
    stage.tools.gate.add_permits(2);
    let plain = waiting.await.unwrap();
    assert_eq!(plain["result"]["structuredContent"], json!({ "text": "x" }), "{plain}");
    assert_eq!(plain["result"]["resultType"], "complete");
    until(&stage, &task, "completed").await;
    for method in ["tasks/get", "tasks/cancel"] {
        let refused = stage.new_style(method, json!({ "taskId": task })).await;
        assert_eq!(refused["error"]["code"], -32021, "{refused}");
    }
    // A tool that is nothing but a task says what it needs.
    let refused = stage.new_style("tools/call", call("required_tool")).await;
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    let required = &refused["error"]["data"]["requiredCapabilities"]["extensions"];
    assert_eq!(required["io.modelcontextprotocol/tasks"], json!({}));
    let task = begin(&stage, "required_tool").await;
    until(&stage, &task, "completed").await;
}

#[tokio::test]
async fn a_task_of_somebody_else_and_one_that_never_was_are_answered_alike() {
    let (stage, _) = stage().await;
    let task = begin(&stage, "slow_tool").await;
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let mut answers = Vec::new();
        for (token, id) in
            [(&stage.reader, task.as_str()), (&stage.narrow, &task), (&stage.agent, NEVER), (&stage.agent, "no-id")]
        {
            let answer = ask_as(&stage, token, method, json!({ "taskId": id, "inputResponses": {} })).await;
            assert_eq!(answer["error"]["code"], -32602, "{answer}");
            answers.push(answer["error"].clone());
        }
        answers.dedup();
        assert_eq!(answers.len(), 1, "{method}: {answers:?}");
    }
    // Who may look at the jobs of all, may here too.
    let seen = ask_as(&stage, ADMIN, "tasks/get", json!({ "taskId": task })).await;
    assert_eq!(seen["result"]["status"], "working", "{seen}");
    let expired = stage.ask().token(&stage.expired).new_style(1, "tasks/get", json!({ "taskId": task }), &capable());
    assert_eq!(expired.send().await.status, 401);
}

#[tokio::test]
async fn a_task_asks_its_own_caller_and_goes_on_with_the_answer() {
    let (stage, _) = stage().await;
    let task = begin(&stage, "asking_tool").await;
    let asks = until(&stage, &task, "input_required").await;
    let (name, request) = asks["inputRequests"].as_object().unwrap().iter().next().unwrap();
    assert_eq!(
        (&request["method"], &request["params"]["message"]),
        (&json!("elicitation/create"), &json!("Which colour?"))
    );
    let seen = ask_as(&stage, ADMIN, "tasks/get", json!({ "taskId": task })).await;
    assert_eq!(seen["result"]["status"], "working", "questions are for the caller alone: {seen}");
    let answer = |name: &str, colour: &str| {
        let given = json!({ name: { "action": "accept", "content": { "colour": colour } } });
        json!({ "taskId": task, "inputResponses": given })
    };
    for (token, params) in [(ADMIN, answer(name, "red")), (stage.agent.as_str(), answer("other", "red"))] {
        let acknowledged = ask_as(&stage, token, "tasks/update", params).await;
        assert_eq!(acknowledged["result"], json!({ "resultType": "complete" }), "{acknowledged}");
    }
    assert_eq!(get(&stage, &task).await["status"], "input_required");
    ask(&stage, "tasks/update", answer(name, "blue")).await;
    let done = until(&stage, &task, "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!({ "text": "blue" }), "{done}");
}

#[tokio::test]
async fn a_call_may_ask_first_and_become_a_task_while_it_waits_for_the_answer() {
    let (stage, store) = stage().await;
    let asked = ask(&stage, "tools/call", call("wondering_tool")).await["result"].take();
    assert_eq!(asked["resultType"], "input_required", "{asked}");
    assert!(asked.get("taskId").is_none());
    let looking = async {
        while store.counts().await.unwrap().running == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looking).await.unwrap();
    let mut params = call("wondering_tool");
    params["requestState"] = asked["requestState"].clone();
    params["inputResponses"] = json!({ "colour": { "action": "accept", "content": { "colour": "green" } } });
    let created = ask(&stage, "tools/call", params).await["result"].take();
    assert_eq!(created["resultType"], "task", "{created}");
    let done = until(&stage, created["taskId"].as_str().unwrap(), "completed").await;
    assert_eq!(done["result"]["structuredContent"], json!({ "text": "green" }), "{done}");
}

#[tokio::test]
async fn a_cancelled_task_ends_and_asking_again_is_fine() {
    let (stage, _) = stage().await;
    let task = begin(&stage, "slow_tool").await;
    let cancel = async || ask(&stage, "tasks/cancel", json!({ "taskId": task })).await;
    assert_eq!(cancel().await["result"], json!({ "resultType": "complete" }));
    let ended = until(&stage, &task, "cancelled").await;
    assert!(ended["statusMessage"].as_str().unwrap().starts_with("E3703"), "{ended}");
    assert!(ended.get("result").is_none());
    assert_eq!(cancel().await["result"], json!({ "resultType": "complete" }));
    assert_eq!(get(&stage, &task).await["status"], "cancelled");
}

#[tokio::test]
async fn a_tool_that_could_not_has_completed_and_a_server_that_broke_has_failed() {
    let (stage, _) = stage().await;
    let task = begin(&stage, "failing_tool").await;
    let done = until(&stage, &task, "completed").await;
    assert_eq!(done["result"]["isError"], true, "{done}");
    assert_eq!(done["result"]["_meta"]["dev.gantry/error"]["code"], "E3401");
    let task = begin(&stage, "needy_tool").await;
    let failed = until(&stage, &task, "failed").await;
    assert!(failed["error"]["code"].is_i64() && failed["error"]["message"].is_string(), "{failed}");
    assert!(failed.get("result").is_none());
    // What is refused before it begins is no task.
    let params = json!({ "name": "demo__asking_tool", "arguments": { "txt": 1 } });
    let refused = ask(&stage, "tools/call", params).await;
    assert_eq!(refused["result"]["_meta"]["dev.gantry/error"]["code"], "E3301", "{refused}");
}

// ------------------------------------------------------------------------------------------------------- the one before

struct Older<'a> {
    stage: &'a Stage,
    token: &'a str,
    session: String,
}

impl<'a> Older<'a> {
    async fn new(stage: &'a Stage, token: &'a str) -> Self {
        Self { stage, token, session: stage.session(token, OLD, &json!({})).await }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        self.stage.in_session(self.token, &self.session, OLD).old(7, method, &params).message().await
    }

    async fn begin(&self, tool: &str) -> String {
        self.begin_with(tool, json!({})).await
    }

    async fn begin_with(&self, tool: &str, meta: Value) -> String {
        let mut params = call(tool);
        params["task"] = json!({ "ttl": 60_000 });
        params["_meta"] = meta;
        let created = self.ask("tools/call", params).await;
        let task = &created["result"]["task"];
        assert_eq!((&task["status"], &task["ttl"]), (&json!("working"), &json!(604_800_000)), "{created}");
        task["taskId"].as_str().unwrap().to_owned()
    }
}

#[tokio::test]
async fn an_older_client_asks_for_a_task_and_waits_for_its_result() {
    let (stage, _) = stage().await;
    let started = stage.initialize(&stage.agent, OLD, &json!({})).await.last().await;
    let capabilities = &started["result"]["capabilities"];
    assert_eq!(
        capabilities["tasks"],
        json!({ "list": {}, "cancel": {}, "requests": { "tools": { "call": {} } } }),
        "{started}"
    );
    assert!(capabilities.get("extensions").is_none());
    let older = Older::new(&stage, &stage.agent).await;
    let listed = older.ask("tools/list", json!({})).await;
    for tool in listed["result"]["tools"].as_array().unwrap() {
        let wanted = if tool["name"] == "demo__required_tool" { "required" } else { "optional" };
        assert_eq!(tool["execution"]["taskSupport"], wanted, "{tool}");
        assert!(tool.get("_meta").is_none());
    }
    let task = older.begin("slow_tool").await;
    let waiting =
        stage.in_session(&stage.agent, &older.session, OLD).old(8, "tasks/result", &json!({ "taskId": task }));
    let waiting = tokio::spawn(waiting.message());
    let shown = older.ask("tasks/get", json!({ "taskId": task })).await;
    assert_eq!((&shown["result"]["taskId"], &shown["result"]["status"]), (&json!(task), &json!("working")), "{shown}");
    stage.gated(1).await;
    stage.tools.gate.add_permits(1);
    let result = waiting.await.unwrap();
    assert_eq!(result["result"]["structuredContent"], json!({ "text": "x" }), "{result}");
    assert_eq!(result["result"]["_meta"]["io.modelcontextprotocol/related-task"]["taskId"], json!(task));
    assert!(result["result"].get("resultType").is_none());
    let late = older.ask("tasks/cancel", json!({ "taskId": task })).await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
    // A tool that could not has failed, as this revision has it, and its result says why.
    let failing = older.begin("fail_tool").await;
    let result = older.ask("tasks/result", json!({ "taskId": failing })).await;
    assert_eq!(result["result"]["isError"], true, "{result}");
    assert_eq!(older.ask("tasks/get", json!({ "taskId": failing })).await["result"]["status"], "failed");
    // Without `task` it is a call like any other, unless the tool is nothing but a task.
    assert_eq!(older.ask("tools/call", call("echo_tool")).await["result"]["isError"], false);
    assert_eq!(older.ask("tools/call", call("required_tool")).await["error"]["code"], -32601);
}

#[tokio::test]
async fn an_older_client_sees_its_own_tasks_and_cancels_them() {
    let (stage, _) = stage().await;
    let older = Older::new(&stage, &stage.agent).await;
    let first = older.begin("slow_tool").await;
    let second = older.begin("slow_tool").await;
    let ids = |listed: &Value| {
        let tasks = listed["result"]["tasks"].as_array().unwrap_or_else(|| panic!("{listed}"));
        tasks.iter().map(|task| task["taskId"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&older.ask("tasks/list", json!({})).await), [second.clone(), first.clone()]);
    let stranger = Older::new(&stage, &stage.reader).await;
    assert!(ids(&stranger.ask("tasks/list", json!({})).await).is_empty());
    let admin = Older::new(&stage, ADMIN).await;
    assert!(ids(&admin.ask("tasks/list", json!({})).await).is_empty(), "one's own, also for those who may see more");
    for method in ["tasks/get", "tasks/cancel", "tasks/result"] {
        let foreign = stranger.ask(method, json!({ "taskId": first })).await;
        assert_eq!(foreign["error"], older.ask(method, json!({ "taskId": NEVER })).await["error"], "{method}");
        assert_eq!(foreign["error"]["code"], -32602);
    }
    assert_eq!(older.ask("tasks/list", json!({ "cursor": "zz" })).await["error"]["code"], -32602);
    let cancelled = older.ask("tasks/cancel", json!({ "taskId": first })).await;
    assert_eq!(cancelled["result"]["taskId"], json!(first), "{cancelled}");
    let result = older.ask("tasks/result", json!({ "taskId": first })).await;
    assert!(result["error"]["message"].as_str().unwrap().starts_with("E3703"), "{result}");
    assert_eq!(older.ask("tasks/get", json!({ "taskId": first })).await["result"]["status"], "cancelled");
}

#[tokio::test]
async fn a_session_is_told_when_its_tasks_change() {
    let (stage, _) = stage().await;
    let older = Older::new(&stage, &stage.agent).await;
    let listening = stage.in_session(&stage.agent, &older.session, OLD).method("GET");
    let mut stream = listening.header("accept", "text/event-stream").send().await;
    let task = older.begin("slow_tool").await;
    stage.gated(1).await;
    stage.tools.gate.add_permits(1);
    let mut told = Vec::new();
    while told.last() != Some(&json!("completed")) {
        let event = stream.event().await.unwrap();
        if event["method"] == "notifications/tasks/status" {
            assert_eq!(event["params"]["taskId"], json!(task), "{event}");
            told.push(event["params"]["status"].clone());
        }
    }
    assert_eq!(told.first(), Some(&json!("working")));
}

#[tokio::test]
async fn a_session_hears_of_the_progress_of_its_task_under_the_token_of_the_call() {
    let (stage, _) = stage().await;
    let older = Older::new(&stage, &stage.agent).await;
    let listening = stage.in_session(&stage.agent, &older.session, OLD).method("GET");
    let mut stream = listening.header("accept", "text/event-stream").send().await;
    let task = older.begin_with("paced_tool", json!({ "progressToken": "p1" })).await;
    // Without a token nobody wants to hear.
    older.begin("paced_tool").await;
    stage.gated(2).await;
    let mut told = Vec::new();
    let mut is_open = false;
    loop {
        let event = stream.event().await.unwrap();
        if event["method"] == "notifications/progress" {
            let params = &event["params"];
            assert_eq!((&params["progressToken"], &params["total"]), (&json!("p1"), &json!(100.0)), "{event}");
            assert_eq!(params["message"], "work", "{event}");
            told.push(params["progress"].as_f64().unwrap());
        }
        if told == [40.0] && !is_open {
            is_open = true;
            stage.tools.gate.add_permits(2);
        }
        if event["params"]["taskId"] == json!(task) && event["params"]["status"] == "completed" {
            break;
        }
    }
    assert!(told.windows(2).all(|pair| pair[0] < pair[1]), "{told:?}");
}

#[tokio::test]
async fn revisions_without_tasks_have_none_and_ignore_what_asks_for_one() {
    let (stage, _) = stage().await;
    for version in ["2024-11-05", "2025-03-26", "2025-06-18"] {
        let started = stage.initialize(&stage.agent, version, &json!({})).await.last().await;
        let capabilities = &started["result"]["capabilities"];
        assert!(capabilities.get("tasks").is_none() && capabilities.get("extensions").is_none(), "{started}");
        let session = stage.session(&stage.agent, version, &json!({})).await;
        let mut params = call("echo_tool");
        params["task"] = json!({});
        let plain = stage.in_session(&stage.agent, &session, version).old(2, "tools/call", &params).message().await;
        assert_eq!(plain["result"]["structuredContent"], json!({ "text": "x" }), "{version}: {plain}");
        let none = stage.in_session(&stage.agent, &session, version).old(3, "tasks/list", &json!({})).message().await;
        assert_eq!(none["error"]["code"], -32601, "{version}: {none}");
    }
    // The same where nobody keeps jobs.
    let bare = Stage::new().await;
    let discovered = bare.new_style("server/discover", json!({})).await;
    assert!(discovered["result"]["capabilities"].get("extensions").is_none(), "{discovered}");
    let none = ask(&bare, "tasks/get", json!({ "taskId": NEVER })).await;
    assert_eq!(none["error"]["code"], -32601, "{none}");
}
