//! A server that speaks both protocols is met in the one that its caller speaks, so that everything it can do works end to end;
//! or in the one that its operator has named.

use super::*;

const BOTH: &str = include_str!("servers/both.py");

/// The server, with these arguments and members of its description.
async fn put(harness: &McpHarness, name: &str, arguments: &[&str], more: &Value) {
    std::fs::write(harness.file("servers/both.py"), BOTH).unwrap();
    harness.put(name, &described(harness, arguments, more)).await;
}

fn described(harness: &McpHarness, arguments: &[&str], more: &Value) -> Value {
    let permissions = [format!("filesystem:read:{}", harness.path("servers"))];
    let mut args = vec![harness.path("servers/both.py")];
    args.extend(arguments.iter().map(|argument| (*argument).to_owned()));
    let reach = json!({ "type": "stdio", "command": "python3", "args": args, "permissions": permissions });
    let mut spec = json!({ "reach": reach, "resources": true });
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

/// How a server stands.
async fn shown(harness: &McpHarness, name: &str) -> Value {
    let all = harness.gantry.request(Method::GET, "/v1/servers", Some(&harness.gantry.token), None).await.body;
    let servers = all["servers"].as_array().unwrap_or_else(|| panic!("{all}"));
    let server = servers.iter().find(|server| server["name"] == name).unwrap_or_else(|| panic!("{all}"));
    server["status"].clone()
}

/// Era and process in which a client's call arrives.
async fn place(client: &RawClient, server: &str) -> (String, u64) {
    let reply = client.call(&format!("{server}__where"), &json!({})).await.unwrap().result().unwrap();
    let seen = &reply["structuredContent"];
    (seen["era"].as_str().unwrap_or_else(|| panic!("{reply}")).to_owned(), seen["process"].as_u64().unwrap())
}

#[tokio::test]
async fn a_server_of_both_eras_is_met_in_the_one_its_caller_speaks() {
    let harness = McpHarness::open().await;
    put(&harness, "both", &[], &json!({})).await;
    let (old, new) = (harness.old_client("2025-11-25").await, harness.new_client());
    assert_eq!(place(&new, "both").await.0, "modern");
    assert_eq!(place(&old, "both").await.0, "legacy");
    // Each of them stays where it was.
    assert_eq!(place(&old, "both").await, place(&old, "both").await);
    assert_ne!(place(&new, "both").await.1, place(&old, "both").await.1);
    let by_rest = harness.invoke("both.where", json!({})).await;
    assert_eq!(by_rest.body["result"]["structuredContent"]["era"], "modern", "{}", by_rest.text);

    let asked = old.call("both__ask", &json!({})).await.unwrap();
    assert_eq!(asked.text(), "Hello, some name!", "{}", asked.message);
    let status = shown(&harness, "both").await;
    assert_eq!((&status["era"], &status["also_in_legacy"]["state"]), (&json!("modern"), &json!("ready")), "{status}");
}

#[tokio::test]
async fn a_resource_is_watched_and_a_log_heard_in_the_era_that_has_them() {
    let harness = McpHarness::open().await;
    put(&harness, "both", &[], &json!({})).await;
    let uri = "gantry://servers/both/note:%2F%2Ftoday";
    let client = harness.old_client("2025-11-25").await;
    let read = client.request("resources/read", json!({ "uri": uri })).await.unwrap().result().unwrap();
    assert_eq!(read["contents"][0]["text"], "legacy", "{read}");
    client.request("resources/subscribe", json!({ "uri": uri })).await.unwrap().result().unwrap();
    until("the word about the resource", async || {
        client.call("both__stir", &json!({})).await.unwrap();
        let told = client.told();
        let is_it = |one: &&Value| one["method"] == "notifications/resources/updated" && one["params"]["uri"] == uri;
        told.iter().find(is_it).map(|_| ())
    })
    .await;
    // A newer client asks for the log with its request, and its server hears how much of it.
    let asked =
        json!({ "name": "both__grumble", "arguments": {}, "_meta": { "io.modelcontextprotocol/logLevel": "debug" } });
    let reply = harness.new_client().request("tools/call", asked).await.unwrap();
    let heard: Vec<&Value> = reply.notifications.iter().map(|note| &note["params"]).collect();
    assert_eq!(heard, [&json!({ "level": "warning", "data": { "asked": "debug", "in": "modern" } })]);
}

#[tokio::test]
async fn an_operator_names_the_era_and_everybody_is_served_in_it() {
    let harness = McpHarness::open().await;
    for era in ["legacy", "modern"] {
        put(&harness, era, &[], &json!({ "era": era })).await;
        for client in [harness.old_client("2025-11-25").await, harness.new_client()] {
            assert_eq!(place(&client, era).await.0, era);
        }
        let status = shown(&harness, era).await;
        assert_eq!((&status["era"], &status["also_in_legacy"]), (&json!(era), &Value::Null), "{status}");
    }
    // By the command line, and back.
    for (word, era) in [("modern", "modern"), ("auto", "legacy")] {
        let edited = harness.gantry.cli(&["server", "edit", "legacy", "--era", word]).ok();
        assert!(edited.out().contains("legacy"), "{}", edited.out());
        assert_eq!(place(&harness.old_client("2025-11-25").await, "legacy").await.0, era, "{word}");
    }
}

#[tokio::test]
async fn a_server_of_one_era_serves_callers_of_the_other_and_is_not_met_in_one_it_does_not_speak() {
    let harness = McpHarness::open().await;
    put(&harness, "newer", &["modern"], &json!({})).await;
    let old = harness.old_client("2025-11-25").await;
    let first = place(&old, "newer").await;
    assert_eq!((first.0.as_str(), &first), ("modern", &place(&old, "newer").await));
    let asked = old.call("newer__ask", &json!({})).await.unwrap();
    assert_eq!(asked.text(), "nobody can be asked here", "{}", asked.message);

    let only_old = harness.plain(&["--era", "old"]);
    let mut spec = only_old.clone();
    spec["era"] = json!("modern");
    let answer =
        harness.gantry.request(Method::PUT, "/v1/servers/older", Some(&harness.gantry.token), Some(spec)).await;
    assert!(answer.text.contains("none of the newer kind"), "{}", answer.text);
    let wrong = json!({ "reach": { "type": "sse", "url": "https://example.com/sse" }, "era": "modern" });
    let answer = harness.gantry.request(Method::PUT, "/v1/servers/sse", Some(&harness.gantry.token), Some(wrong)).await;
    assert_eq!(answer.refusal(), (400, "E3004"), "{}", answer.text);
}
