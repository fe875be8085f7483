//! What servers behind Gantry offer besides tools, through the door.

use gantry_server::{McpConfig, McpMode, ToolExposure};
use ports::offerings::OfferingChange;
use serde_json::{Value, json};

use crate::client::Reply;
use crate::stage::{ADMIN, Stage, manifest};

const OLD: &str = "2025-11-25";

/// A request of the present revision by the one who may read.
async fn ask(stage: &Stage, method: &str, params: Value) -> Value {
    stage.ask().token(&stage.reader).new_style(1, method, params, &json!({})).message().await
}

fn all<'a>(list: &'a Value, kind: &str, member: &str) -> Vec<&'a str> {
    let items = list["result"][kind].as_array().unwrap_or_else(|| panic!("{list}"));
    items.iter().map(|item| item[member].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_servers_offer_is_listed_under_names_of_ours_for_those_who_may_have_it() {
    let stage = Stage::new().await;
    let resources = ask(&stage, "resources/list", json!({})).await;
    let uris = all(&resources, "resources", "uri");
    assert_eq!(
        uris[3..],
        [
            "test://static",
            "gantry://servers/notes/note:%2F%2F0",
            "gantry://servers/notes/note:%2F%2F1",
            "gantry://servers/notes/note:%2F%2F2",
            "gantry://servers/notes/note:%2F%2F3",
            "gantry://servers/notes/note:%2F%2F4",
        ]
    );
    assert_eq!(resources["result"]["cacheScope"], "private");
    let templates = ask(&stage, "resources/templates/list", json!({})).await;
    let templates = all(&templates, "resourceTemplates", "uriTemplate");
    assert!(templates.contains(&"gantry://servers/notes/~/note://{id}/page"), "{templates:?}");
    let prompts = ask(&stage, "prompts/list", json!({})).await;
    let names = all(&prompts, "prompts", "name");
    assert_eq!((names[0], names[1], names[2]), ("plain", "notes__curious", "notes__greet"));
    assert!(names[3].starts_with("notes__two_words-"), "{names:?}");
    // Another token names none of this.
    let none = stage.new_style("resources/list", json!({})).await;
    assert_eq!(all(&none, "resources", "uri").len(), 3);
    assert_eq!(all(&stage.new_style("prompts/list", json!({})).await, "prompts", "name"), [""; 0]);
    for (method, params) in [
        ("resources/read", json!({ "uri": "gantry://servers/notes/note:%2F%2F0" })),
        ("resources/read", json!({ "uri": "test://static" })),
        ("prompts/get", json!({ "name": "notes__greet" })),
        ("prompts/get", json!({ "name": "plain" })),
    ] {
        let refused = stage.new_style(method, params.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{method} {params}: {refused}");
    }
}

#[tokio::test]
async fn pages_of_these_lists_are_stable_too() {
    let stage = Stage::with(McpConfig { exposure: ToolExposure::All, page_size: 2, ..McpConfig::default() }).await;
    let mut seen = Vec::new();
    let mut params = json!({});
    loop {
        let page = ask(&stage, "resources/list", params).await;
        let uris = all(&page, "resources", "uri");
        assert!(uris.len() <= 2);
        seen.extend(uris.into_iter().map(str::to_owned));
        match page["result"]["nextCursor"].as_str() {
            Some(cursor) => params = json!({ "cursor": cursor }),
            None => break,
        }
    }
    assert_eq!(seen.len(), 9, "{seen:?}");
    let distinct: std::collections::BTreeSet<&String> = seen.iter().collect();
    assert_eq!(distinct.len(), 9);
    for method in ["resources/list", "resources/templates/list", "prompts/list"] {
        let wrong = ask(&stage, method, json!({ "cursor": "nonsense" })).await;
        assert_eq!(wrong["error"]["code"], -32602, "{method}: {wrong}");
    }
}

#[tokio::test]
async fn resources_prompts_and_completions_come_from_their_server() {
    let stage = Stage::new().await;
    for (uri, text) in [
        ("gantry://servers/notes/note:%2F%2F0", "note://0 of notes"),
        ("gantry://servers/notes/note%3A%2F%2F0", "note://0 of notes"),
        ("gantry://servers/notes/~/note://a%20b/page", "note://a%20b/page of notes"),
        ("test://static", "test://static of bare"),
        ("test://not/listed", "test://not/listed of bare"),
    ] {
        let read = ask(&stage, "resources/read", json!({ "uri": uri })).await;
        let contents = &read["result"]["contents"];
        assert!(contents[0]["text"].as_str().unwrap_or_else(|| panic!("{read}")).starts_with(text), "{read}");
        assert_eq!(contents[0]["uri"], uri, "the address that was asked for");
        let beside = if uri.starts_with("test") { "note://beside" } else { "gantry://servers/notes/note:%2F%2Fbeside" };
        assert_eq!((&contents[1]["uri"], &contents[1]["blob"]), (&json!(beside), &json!("AA==")));
        assert_eq!(read["result"]["cacheScope"], "private");
    }
    for uri in ["gantry://servers/notes/missing", "gantry://servers/nobody/note:%2F%2F0", "gantry://servers/notes/%zz"]
    {
        let nothing = ask(&stage, "resources/read", json!({ "uri": uri })).await;
        assert_eq!(
            (&nothing["error"]["code"], &nothing["error"]["data"]["uri"]),
            (&json!(-32602), &json!(uri)),
            "{nothing}"
        );
    }
    let session = stage.session(&stage.reader, OLD, &json!({})).await;
    let missing = json!({ "uri": "gantry://servers/notes/missing" });
    let old = stage.in_session(&stage.reader, &session, OLD).old(2, "resources/read", &missing).message().await;
    assert_eq!(old["error"]["code"], -32002, "as older revisions have it: {old}");

    let prompts = ask(&stage, "prompts/list", json!({})).await;
    let cut = all(&prompts, "prompts", "name")[3].to_owned();
    for (name, own) in [("notes__greet", "greet"), (&*cut, "two words"), ("plain", "plain")] {
        let got = ask(&stage, "prompts/get", json!({ "name": name, "arguments": { "to": "Ada" } })).await;
        let messages = &got["result"]["messages"];
        assert_eq!(got["result"]["description"], own, "{got}");
        assert!(messages[0]["content"]["text"].as_str().unwrap().contains(r#""arguments":{"to":"Ada"}"#), "{got}");
        let link = if name == "plain" { "note://1" } else { "gantry://servers/notes/note:%2F%2F1" };
        assert_eq!((&messages[1]["role"], &messages[1]["content"]["uri"]), (&json!("assistant"), &json!(link)));
    }
    for name in ["notes__missing", "notes__greet-0123456789ab"] {
        let nothing = ask(&stage, "prompts/get", json!({ "name": name })).await;
        assert!(nothing["error"]["code"] == -32602 || nothing["error"]["code"] == -32002, "{name}: {nothing}");
    }

    let argument = json!({ "name": "city", "value": "par" });
    for (reference, own) in [
        (json!({ "type": "ref/prompt", "name": "notes__greet" }), json!({ "type": "ref/prompt", "name": "greet" })),
        (
            json!({ "type": "ref/resource", "uri": "gantry://servers/notes/~/note://{id}/page" }),
            json!({ "type": "ref/resource", "uri": "note://{id}/page" }),
        ),
    ] {
        let done = ask(&stage, "completion/complete", json!({ "ref": reference, "argument": argument })).await;
        let given: Value = serde_json::from_str(done["result"]["completion"]["values"][0].as_str().unwrap()).unwrap();
        assert_eq!(given, own, "{done}");
    }
}

#[tokio::test]
async fn a_prompt_and_a_resource_may_ask_as_tools_do() {
    let stage = Stage::new().await;
    let can = json!({ "elicitation": { "form": {} } });
    for (method, mut params, place) in [
        ("prompts/get", json!({ "name": "notes__curious" }), "/result/messages/0/content/text"),
        ("resources/read", json!({ "uri": "gantry://servers/notes/curious" }), "/result/contents/0/text"),
    ] {
        let asking =
            |params: &Value| stage.ask().token(&stage.reader).new_style(1, method, params.clone(), &can).message();
        let asked = asking(&params).await;
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        params["requestState"] = asked["result"]["requestState"].clone();
        params["inputResponses"] = json!({ "colour": { "action": "accept", "content": { "colour": "blue" } } });
        // The state of one is no state of another.
        let mut other = params.clone();
        let (member, value) = if method == "prompts/get" { ("name", "plain") } else { ("uri", "test://curious") };
        other[member] = json!(value);
        assert_eq!(asking(&other).await["error"]["code"], -32602);
        let done = asking(&params).await;
        assert!(done.pointer(place).and_then(Value::as_str).unwrap_or_default().contains("blue"), "{done}");
        let mute = stage.ask().token(&stage.reader);
        let mut first = params.clone();
        first.as_object_mut().unwrap().retain(|name, _| name == "name" || name == "uri");
        let refused = mute.new_style(1, method, first, &json!({})).message().await;
        assert_eq!(refused["error"]["data"]["error"]["code"], "E3010", "{refused}");
    }
    let session = stage.session(&stage.reader, OLD, &json!({ "elicitation": {} })).await;
    let old = || stage.in_session(&stage.reader, &session, OLD);
    let mut reply: Reply = old().old(5, "prompts/get", &json!({ "name": "notes__curious" })).send().await;
    let question = reply.event().await.unwrap();
    assert_eq!(question["method"], "elicitation/create", "{question}");
    let result = json!({ "action": "accept", "content": { "colour": "red" } });
    let answer = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
    assert_eq!(old().body(&answer.to_string()).send().await.status, 202);
    let done = reply.event().await.unwrap();
    assert!(done["result"]["messages"][0]["content"]["text"].as_str().unwrap().contains("red"), "{done}");
}

#[tokio::test]
async fn older_clients_watch_resources_by_their_session() {
    let stage = Stage::new().await;
    let session = stage.session(&stage.reader, OLD, &json!({})).await;
    let old = || stage.in_session(&stage.reader, &session, OLD);
    let mut stream = old().method("GET").header("accept", "text/event-stream").send().await;
    assert_eq!(stream.status, 200);
    let uri = "gantry://servers/notes/note:%2F%2F1";
    for uri in [uri, "test://static", "gantry://tools/agent/agent-3/enabled"] {
        let done = old().old(2, "resources/subscribe", &json!({ "uri": uri })).message().await;
        assert_eq!(done["result"], json!({}), "{uri}: {done}");
    }
    assert_eq!(stage.shelf.watched(), 2);
    for uri in ["gantry://servers/notes/missing", "gantry://servers/nobody/x", "gantry://results/x"] {
        let refused = old().old(3, "resources/subscribe", &json!({ "uri": uri })).message().await;
        assert_eq!(refused["error"]["code"], -32002, "{uri}: {refused}");
    }
    // Not its own, not watched, of another tenant, of nobody.
    stage.shelf.tell(None, "notes", OfferingChange::Resource("note://2".into()));
    stage.shelf.tell(Some("acme"), "notes", OfferingChange::Resource("note://1".into()));
    stage.shelf.tell(None, "nobody", OfferingChange::Resources);
    stage.shelf.tell(Some("local"), "notes", OfferingChange::Resource("note://1".into()));
    let told = stream.event().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["uri"]), (&json!("notifications/resources/updated"), &json!(uri)));
    stage.shelf.tell(None, "notes", OfferingChange::Prompts);
    assert_eq!(stream.event().await.unwrap()["method"], "notifications/prompts/list_changed");
    stage.publish(manifest("echo", &json!({ "tool_id": "fresh" }))).await;
    let mut told: Vec<String> = Vec::new();
    for _ in 0..2 {
        told.push(stream.event().await.unwrap()["method"].as_str().unwrap().to_owned());
    }
    told.sort();
    assert_eq!(told, ["notifications/resources/updated", "notifications/tools/list_changed"], "who has which tools");
    let done = old().old(4, "resources/unsubscribe", &json!({ "uri": uri })).message().await;
    assert_eq!(done["result"], json!({}), "{done}");
    assert_eq!(stage.shelf.watched(), 1);
    old().method("DELETE").send().await;
    stage.until("nothing is watched for a session that is gone", || stage.shelf.watched() == 0).await;
}

#[tokio::test]
async fn newer_clients_watch_what_they_name_when_they_begin_to_listen() {
    let stage = Stage::new().await;
    let uri = "gantry://servers/notes/note:%2F%2F1";
    let filter = json!({ "notifications": {
        "promptsListChanged": true, "resourceSubscriptions": [uri, "gantry://servers/nobody/x"] } });
    let listen = |token: &str, filter: &Value| {
        stage.ask().token(token).new_style(7, "subscriptions/listen", filter.clone(), &json!({})).send()
    };
    let mut stream = listen(&stage.reader, &filter).await;
    let accepted = stream.event().await.unwrap();
    assert_eq!(accepted["params"]["notifications"]["resourceSubscriptions"], json!([uri]), "{accepted}");
    stage.until("it is watched", || stage.shelf.watched() == 1).await;
    stage.shelf.tell(None, "notes", OfferingChange::Resources);
    stage.shelf.tell(None, "notes", OfferingChange::Resource("note://1".into()));
    let told = stream.event().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["uri"]), (&json!("notifications/resources/updated"), &json!(uri)));
    stage.shelf.tell(None, "notes", OfferingChange::Prompts);
    assert_eq!(stream.event().await.unwrap()["method"], "notifications/prompts/list_changed");
    drop(stream);
    stage.until("nobody watches any more", || stage.shelf.watched() == 0).await;
    // To whoever may not have it, it cannot be watched.
    let mut stranger = listen(&stage.agent, &filter).await;
    let accepted = stranger.event().await.unwrap();
    assert!(accepted["params"]["notifications"].get("resourceSubscriptions").is_none(), "{accepted}");
    // What is accepted and turns out not to be there ends the stream with the reason.
    let missing = json!({ "notifications": { "resourceSubscriptions": ["gantry://servers/notes/missing"] } });
    let mut stream = listen(&stage.reader, &missing).await;
    assert_eq!(stream.last().await["error"]["code"], -32602);
}

#[tokio::test]
async fn a_toolset_shows_what_it_names_and_discovery_nothing() {
    let toolsets = [("notes".to_owned(), vec!["notes.prompts".parse().unwrap()])];
    let config = McpConfig { exposure: ToolExposure::All, toolsets: toolsets.into(), ..McpConfig::default() };
    let stage = Stage::with(config).await;
    let list = |method: &str| {
        stage.at("/mcp/notes").token(&stage.reader).new_style(1, method, json!({}), &json!({})).message()
    };
    assert_eq!(all(&list("prompts/list").await, "prompts", "name").len(), 3);
    assert_eq!(all(&list("resources/list").await, "resources", "uri").len(), 3, "Gantry's own");
    let discovery =
        Stage::with(McpConfig { mode: McpMode::Discovery, exposure: ToolExposure::All, ..McpConfig::default() }).await;
    assert_eq!(all(&ask(&discovery, "prompts/list", json!({})).await, "prompts", "name"), [""; 0]);
    let read = ask(&discovery, "resources/read", json!({ "uri": "test://static" })).await;
    assert_eq!(read["error"]["code"], -32602, "{read}");
}

#[tokio::test]
async fn links_in_what_a_servers_tool_gives_lead_to_what_the_caller_can_read() {
    let stage = Stage::new().await;
    for (namespace, server) in [("notes", "notes"), ("elsewhere", "closed")] {
        let shape = json!({ "type": "object", "required": ["content"],
            "properties": { "content": { "type": "array" }, "structuredContent": {} } });
        let change = json!({ "namespace": namespace, "protocol": "mcp", "result_schema": shape,
            "execution": { "type": "mcp", "server": server, "tool": "linking" } });
        stage.take_in(manifest("linking", &change)).await;
    }
    let call = |token: &str, name: &str, can: Value| {
        let params = json!({ "name": name, "arguments": { "text": "x" } });
        stage.ask().token(token).new_style(1, "tools/call", params, &can).message()
    };
    let called = call(&stage.reader, "notes__linking_tool", json!({})).await;
    let content = &called["result"]["content"];
    assert_eq!(content[0]["uri"], "gantry://servers/notes/note:%2F%2F1", "{called}");
    assert_eq!(content[1]["resource"]["uri"], "gantry://servers/notes/note:%2F%2F2", "{called}");
    assert_eq!(content[2]["text"], "note://3", "text is text");
    let read = ask(&stage, "resources/read", json!({ "uri": content[0]["uri"] })).await;
    assert!(read["result"]["contents"][0]["text"].as_str().unwrap().starts_with("note://1 of notes"), "{read}");
    // Nothing of this server can be read, so its links stay what they were.
    let called = call(ADMIN, "elsewhere__linking_tool", json!({})).await;
    assert_eq!(called["result"]["content"][0]["uri"], "note://1", "{called}");
}

#[tokio::test]
async fn a_tool_that_needs_what_the_client_lacks_says_so_in_the_words_of_the_protocol() {
    let stage = Stage::new().await;
    let call = json!({ "name": "demo__needy_tool", "arguments": { "text": "x" } });
    stage.publish(manifest("needy", &json!({}))).await;
    let ask = stage.ask().token(&stage.agent);
    let mut reply = ask.new_style(1, "tools/call", call.clone(), &json!({})).send().await;
    let refused = reply.last().await;
    assert_eq!((reply.status, refused["error"]["code"].as_i64()), (400, Some(-32021)), "{refused}");
    assert_eq!(refused["error"]["data"]["requiredCapabilities"], json!({ "sampling": {} }));
    let able = stage.ask().token(&stage.agent);
    let done = able.new_style(1, "tools/call", call.clone(), &json!({ "sampling": {} })).message().await;
    assert_eq!(done["result"]["structuredContent"]["text"], "x", "{done}");
    // Older clients have no such error.
    let session = stage.session(&stage.agent, OLD, &json!({})).await;
    let old = stage.in_session(&stage.agent, &session, OLD).old(2, "tools/call", &call).message().await;
    assert_eq!(old["result"]["isError"], true, "{old}");
}
