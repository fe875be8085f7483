//! Arguments that stand in headers (`x-mcp-header`, 2026-07-28): tools that mark them wrongly are left out, and a client on
//! standard streams, which knows no headers, calls the others all the same.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use super::*;
use crate::support::gantry;

const MARKED: &str = include_str!("servers/marked.py");

async fn with_marks() -> McpHarness {
    let harness = McpHarness::open().await;
    std::fs::write(harness.file("servers/marked.py"), MARKED).unwrap();
    let permissions = [format!("filesystem:read:{}", harness.path("servers"))];
    let reach = json!({ "type": "stdio", "command": "python3", "args": [harness.path("servers/marked.py")], "permissions": permissions });
    let token = Some(harness.gantry.token.as_str());
    let answer =
        harness.gantry.request(Method::PUT, "/v1/servers/marked", token, Some(json!({ "reach": reach }))).await;
    assert_eq!(answer.status, 200, "{}\n{}", answer.text, harness.gantry.log());
    harness
}

/// Asks each of these through `gantry mcp`, all before the first answer is read, and closes the input after the last.
fn through_stdio(harness: &McpHarness, asked: &[Value]) -> Vec<Value> {
    let mut command = gantry(&harness.gantry.data);
    let mut child =
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut input = child.stdin.take().unwrap();
    asked.iter().for_each(|message| writeln!(input, "{message}").unwrap());
    drop(input);
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let answers = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!(child.wait().unwrap().success());
    answers
}

fn modern(id: u64, method: &str, mut params: Value) -> Value {
    let client = json!({ "name": "t", "version": "1" });
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": client,
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

#[tokio::test]
async fn tools_with_unfit_marks_are_left_out_and_the_reason_is_shown() {
    let harness = with_marks().await;
    let servers = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
    let listed = &servers["servers"][0];
    assert_eq!(listed["tools"]["available"], 1, "{listed}");
    let problems = listed["problems"].as_array().unwrap();
    for (tool, word) in [("spaced", "no name that a header can have"), ("twice", "twice")] {
        let problem =
            problems.iter().find(|problem| problem["tool"] == tool).unwrap_or_else(|| panic!("{tool}: {listed}"));
        assert!(problem["message"].as_str().unwrap().contains(word), "{problem}");
    }
    assert!(names(&harness.new_client()).await.iter().all(|name| !name.contains("spaced") && !name.contains("twice")));
}

#[tokio::test]
async fn a_client_on_standard_streams_calls_a_tool_whose_arguments_stand_in_headers() {
    let harness = with_marks().await;
    let arguments = json!({ "region": "Zürich", "deep": { "n": 7 } });
    let call = |id| modern(id, "tools/call", json!({ "name": "marked__where", "arguments": arguments }));
    // Without having seen a list, and after having seen one.
    for asked in [vec![call(1)], vec![modern(1, "tools/list", json!({})), call(2)]] {
        let answers = through_stdio(&harness, &asked);
        assert_eq!(answers.len(), asked.len(), "{answers:?}");
        let called = answers.iter().find(|answer| answer["id"] == asked.last().unwrap()["id"]).unwrap();
        let text = called["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{called}"));
        assert_eq!(serde_json::from_str::<Value>(text).unwrap(), arguments);
    }
    // A name that is no header is said in one, too, and the refusal is the server's own.
    let answers = through_stdio(&harness, &[modern(1, "tools/call", json!({ "name": "größe", "arguments": {} }))]);
    assert_eq!(answers[0]["id"], 1, "{answers:?}");
    assert!(answers[0]["error"]["message"].as_str().is_some_and(|text| !text.contains("not known")), "{answers:?}");
}

#[tokio::test]
async fn what_servers_do_is_on_the_page_of_metrics() {
    let harness = with_marks().await;
    assert_eq!(harness.invoke("marked.where", json!({ "region": "x" })).await.status, 200);
    let page = harness.gantry.request(Method::GET, "/metrics", Some(&harness.gantry.token), None).await.text;
    for line in [
        r#"gantry_upstream_servers{state="ready"} 1"#,
        r#"gantry_upstream_starts_total{server="marked",outcome="done"} 1"#,
        r#"gantry_upstream_calls_in_flight{server="marked"} 0"#,
    ] {
        assert!(page.contains(line), "{line}: {page}");
    }
}
