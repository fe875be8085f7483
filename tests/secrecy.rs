//! Secrets and personal data go through a server in a thousand calls and are seen nowhere afterwards: not in its database,
//! its audit log, its log, its metrics, the logs of servers behind it, what its sinks were sent, nor what its collector was.
//!
//! Values are planted in parameters, names, headers, keys, errors, logs and results ([`planted`]), and looked for raw and in
//! the forms programs write them in ([`places`]). All files of the data directory are searched; left out are only the
//! provisioned secrets themselves. Calls with keys that keep results have the strict output policy: the ledger keeps what it
//! answers with, and that is what may be seen.
//!
//! Not here: parameters of jobs, which are kept as they are until the job is done (docs/redaction.md).

use std::path::Path;
use std::sync::Arc;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Answer, Gantry, Start, client, manifest, open_to_all, wait_for};

mod places;
mod planted;

use places::{Receiver, Search};
use planted::{Dice, Planted};

const CALLS: usize = 1_000;
/// Calls that are under way at once.
const ABREAST: usize = 8;
const SEED: u64 = 0x5eed_0000_0007;

/// Says its parameters everywhere a tool can, and fails if it is told to.
const SPEAKER: &str = r#"
import json, sys
def send(**message):
    print(json.dumps(dict(jsonrpc="2.0", **message)), flush=True)
for line in sys.stdin:
    call = json.loads(line)
    if call.get("method") != "invoke":
        continue
    given = call["params"]["parameters"]
    text = json.dumps(given)
    print("speaking of", text, file=sys.stderr, flush=True)
    for level in ["debug", "info", "warn", "error"]:
        send(method="log", params={"level": level, "message": "I was told " + str(given.get("note")) + text})
    send(method="progress", params={"percent": 50, "phase": "half", "message": str(given)})
    if given.get("fail"):
        send(id=call["id"], error={"code": 7, "message": "cannot do " + str(given), "data": given})
    else:
        send(id=call["id"], result=given)
"#;

/// Knows a secret and says it in every way; asks an HTTP server, which says it again.
const KNOWER: &str = r#"
import base64, json, sys, urllib.parse, urllib.request
given = json.load(sys.stdin)
word = open("/run/secrets/word").read().strip()
ways = [word, base64.b64encode(word.encode()).decode(), word.encode().hex(), urllib.parse.quote(word), repr(given)]
print("\n".join(ways), file=sys.stderr)
request = urllib.request.Request(given["url"], json.dumps(dict(given, word=word)).encode(), {"authorization": "Bearer " + word})
answer = urllib.request.urlopen(request).read().decode()
print(answer, file=sys.stderr)
if given.get("fail"):
    print(answer)
    sys.exit(3)
json.dump({"ways": ways, "answer": answer}, sys.stdout)
"#;

/// An MCP server with a secret of its own, which echoes.
const SERVER: &str = r#"
import json, os, sys
for line in sys.stdin:
    call = json.loads(line)
    given = call.get("params", {}).get("arguments", {})
    if call.get("method") == "initialize":
        answer = {"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
                             "serverInfo": {"name": "echo", "version": "1"}}}
    elif call.get("method") == "tools/list":
        answer = {"result": {"tools": [{"name": "echo", "description": "Says what it is told.",
                                        "inputSchema": {"type": "object"}}]}}
    elif call.get("method") == "tools/call":
        text = json.dumps({"text": given.get("text"), "word": os.environ["WORD"]})
        print("called with", text, file=sys.stderr, flush=True)
        if given.get("fail") == 2:
            answer = {"error": {"code": -32603, "message": "broken by " + text, "data": given}}
        else:
            answer = {"result": {"isError": bool(given.get("fail")), "content": [{"type": "text", "text": text}]}}
    else:
        answer = {"result": {}}
    if "id" in call:
        print(json.dumps(dict(jsonrpc="2.0", id=call["id"], **answer)), flush=True)
"#;

/// What tools take: a member that is secret by its name, one by its mark, and whatever else.
fn parameters() -> Value {
    json!({ "type": "object", "additionalProperties": true, "properties": {
        "note": { "type": "string", "x-sensitivity": "high" },
        "contact": { "type": "object", "properties": { "line": { "type": "string", "x-sensitivity": true } } } } })
}

#[expect(clippy::needless_pass_by_value, reason = "reads better at its callers")]
fn tool(id: &str, change: Value) -> Value {
    let mut made = manifest(json!({ "tool_id": id, "namespace": "t", "timeout_class": "long_running",
        "parameters": parameters(), "result_schema": {} }));
    made.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    made
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// The tools, each in a folder.
fn lay_out(tools: &Path, echo: &Receiver) {
    let strict = json!({ "output_policy": "strict", "side_effect_policy": "idempotent", "idempotency": {},
        "side_effects": [{ "resource": "record", "op": "UPDATE", "scope": "one" }] });
    let shell = |script: &str| json!({ "type": "process", "command": ["sh", "-c", script] });
    let mut all = vec![
        tool("echo", json!({ "execution": shell("p=$(cat); echo \"told $p\" >&2; printf %s \"$p\"") })),
        tool("fails", json!({ "execution": shell("p=$(cat); echo \"cannot do $p\" >&2; printf %s \"$p\"; exit 3") })),
        tool("writes", json!({ "execution": shell("p=$(cat); echo \"wrote $p\" >&2; printf %s \"$p\"") })),
        tool(
            "breaks",
            json!({
            "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "gantry/1" } }),
        ),
        tool(
            "speaks",
            json!({
            "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "gantry/1", "warm": true } }),
        ),
        tool(
            "knows",
            json!({ "execution": { "type": "process", "command": ["python3", "main.py"] },
            "required_permissions": ["credentials:word", format!("network:http://{}", echo.address)] }),
        ),
    ];
    for made in all.iter_mut().filter(|made| made["tool_id"] == "writes" || made["tool_id"] == "breaks") {
        made.as_object_mut().unwrap().extend(strict.as_object().unwrap().clone());
    }
    for made in &all {
        let folder = tools.join(made["tool_id"].as_str().unwrap());
        write(&folder.join("tool.json"), &made.to_string());
    }
    write(&tools.join("speaks/main.py"), SPEAKER);
    write(&tools.join("breaks/main.py"), SPEAKER);
    write(&tools.join("knows/main.py"), KNOWER);
}

fn provision(data: &Path, name: &str, text: &str) {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = data.join("secrets").join("local");
    std::fs::create_dir_all(&dir).unwrap();
    for open in [data.to_owned(), data.join("secrets"), dir.clone()] {
        std::fs::set_permissions(open, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    std::fs::write(dir.join(name), format!("{text}\n")).unwrap();
    std::fs::set_permissions(dir.join(name), std::fs::Permissions::from_mode(0o600)).unwrap();
}

/// One call, as it is sent.
struct Call {
    body: Value,
    header: Option<String>,
}

/// A call with planted values; these are told to `wanted`.
fn call(dice: &mut Dice, number: usize, echo: &str, words: &[String; 2], wanted: &mut Vec<String>) -> Call {
    let mut plant = |planted: Planted| {
        wanted.push(planted.wanted);
        planted.text
    };
    let looks = plant(planted::by_looks(dice));
    let text = planted::sentence(dice, &looks);
    let (password, note, line) =
        (plant(planted::words(dice)), plant(planted::words(dice)), plant(planted::words(dice)));
    let fail = dice.roll(3);
    let given = json!({ "text": text, "password": password, "note": note, "contact": { "line": line }, "fail": fail,
        "items": [{ "apiKey": plant(planted::words(dice)) }, [plant(planted::by_looks(dice))]],
        "staff": format!("for {}", plant(planted::by_rule(dice))), "badge_no": plant(planted::words(dice)) });
    let key = plant(planted::by_looks(dice)).replace('\n', " ");
    let keyed = json!({ "idempotency_key": format!("order {number} of {key}") });
    let (tool, parameters, options) = match number % 20 {
        0 => ("t.echo", given, json!({})),
        1 => ("t.fails", given, json!({})),
        2 => ("t.writes", given, keyed),
        3 => ("t.breaks", given, keyed),
        4 | 5 => ("t.speaks", given, json!({})),
        6 => {
            let mut given = given;
            given["url"] = format!("http://{echo}/{number}").into();
            // Somebody has got hold of the secret, and sends it.
            given["text"] = format!("{text} with {}", words[0]).into();
            ("t.knows", given, json!({}))
        }
        7 | 8 => {
            let text = format!("{text} with {}", words[1]);
            ("echo.echo", json!({ "text": text, "password": password, "fail": fail }), json!({}))
        }
        // Neither is an expression, and the second not even an object of the schema.
        9 => ("calculator", json!({ "expression": text }), json!({})),
        10 => ("calculator", json!({ "expression": 1, text: looks }), json!({})),
        11 => ("json_parser", json!({ "json": text, "operation": "parse" }), json!({})),
        12 => ("no.such.tool", given, json!({})),
        13 => ("t.sum", json!({ "expression": "1 + 1", "text": text, "password": password, looks: 1 }), keyed),
        14 => ("t.sum", json!({ "expression": text, "note": note, "contact": { "line": line } }), json!({})),
        _ => {
            let operation = ["word_count", "keywords", "extract_entities", "summarize"][number % 4];
            ("text_transform", json!({ "text": text, "operation": operation }), json!({}))
        }
    };
    let header = number
        .is_multiple_of(3)
        .then(|| plant(planted::by_looks(dice)))
        .filter(|text| text.chars().all(|c| c.is_ascii_graphic() || c == ' ') && !text.contains(['=', ',']));
    Call { body: json!({ "tool_id": tool, "parameters": parameters, "execution_options": options }), header }
}

async fn send(gantry: &Gantry, call: Call, number: usize) -> Answer {
    let mut request = client().post(format!("{}/v1/tools/invoke", gantry.url)).bearer_auth(&gantry.token);
    if let Some(text) = call.header {
        request = request
            .header("traceparent", format!("00-{:032x}-00f067aa0ba902b7-01", number + 1))
            .header("tracestate", format!("vendor={text}"))
            .header("user-agent", &text)
            .header("x-request-id", &text);
    }
    Answer::of(request.header("content-type", "application/json").body(call.body.to_string()).send().await.unwrap())
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_calls_nothing_that_must_not_be_seen_is_seen_anywhere() {
    let home = tempfile::tempdir().unwrap();
    open_to_all(home.path());
    let (data, tools) = (home.path().join("data"), home.path().join("tools"));
    let (collector, siem, echo) = (Receiver::open(false), Receiver::open(false), Receiver::open(true));
    std::fs::create_dir(&data).unwrap();
    lay_out(&tools, &echo);
    write(&home.path().join("servers/echo.py"), SERVER);
    let mut dice = Dice::new(SEED);
    let words = [planted::words(&mut dice).text, planted::words(&mut dice).text];
    provision(&data, "word", &words[0]);
    provision(&data, "server_word", &words[1]);
    let archive = data.join("archive");
    let sinks = json!([
        { "name": "archive", "kind": "file", "dir": archive, "compress": false },
        { "name": "siem", "kind": "http", "url": format!("http://{}/", siem.address),
          "allow": [format!("http://{}", siem.address)] },
    ]);
    let rules = json!([{ "patterns": ["EMP-[0-9]{9}"] }, { "tenant": "local", "names": ["badge*"] }]);
    let gantry = Start::new()
        .data(&data)
        .arg("--tools")
        .arg(tools.to_str().unwrap())
        .env("GANTRY_LOG__LEVEL", "debug")
        .env("GANTRY_LOG__FORMAT", "json")
        .env("GANTRY_AUDIT__SINKS", sinks.to_string())
        .env("GANTRY_REDACTION__RULES", rules.to_string())
        .env("GANTRY_TRACES__ENDPOINT", format!("http://{}", collector.address))
        .run()
        .await;
    let sum =
        tool("sum", json!({ "execution": { "type": "builtin", "handler": "calculator" }, "output_policy": "strict" }));
    let answer = gantry.register(sum).await;
    assert_eq!(answer.status, 201, "{}", answer.text);
    let program = home.path().join("servers/echo.py");
    let reach = json!({ "type": "stdio", "command": "python3", "args": [program],
        "permissions": [format!("filesystem:read:{}", program.parent().unwrap().display())],
        "env": { "WORD": { "secret": "server_word" } } });
    let answer = gantry.request(Method::PUT, "/v1/servers/echo", Some(&gantry.token), Some(json!({ "reach": reach })));
    let answer = answer.await;
    assert_eq!(answer.status, 200, "{}\n{}", answer.text, gantry.log());

    // Of tools that may have effects results are kept, as of calls with keys; this one has none.
    gantry.cli(&["tool", "classify", "echo.echo", "pure"]).ok();

    let mut wanted = words.to_vec();
    let mut calls: Vec<(usize, Call)> =
        (0..CALLS).map(|number| (number, call(&mut dice, number, &echo.address, &words, &mut wanted))).collect();
    let gantry = Arc::new(gantry);
    let mut ends = std::collections::BTreeMap::<String, usize>::new();
    while !calls.is_empty() {
        let some = calls.split_off(calls.len().saturating_sub(ABREAST));
        let under_way = some.into_iter().map(|(number, call)| {
            let gantry = Arc::clone(&gantry);
            let tool = call.body["tool_id"].to_string();
            tokio::spawn(async move { (tool, send(&gantry, call, number).await) })
        });
        for end in under_way.collect::<Vec<_>>() {
            let (tool, answer) = end.await.unwrap();
            *ends.entry(format!("{tool} {} {}", answer.status, answer.code())).or_default() += 1;
        }
    }
    // A query is kept no more than parameters are.
    let searched = planted::by_looks(&mut dice);
    gantry.request(Method::GET, "/v1/tools?q=jane.roe%40mail.example.com", Some(&gantry.token), None).await;
    wanted.extend(["jane.roe@mail.example.com".to_owned(), searched.wanted]);
    // Each tool has done both, so that both were written.
    for end in [
        "\"t.echo\" 200 ",
        "\"t.fails\" 500 E3401",
        "\"t.writes\" 200 ",
        "\"t.breaks\" 500 E3401",
        "\"t.speaks\" 200 ",
        "\"t.speaks\" 500 E3401",
        "\"t.knows\" 200 ",
        "\"t.knows\" 500 E3401",
        "\"echo.echo\" 200 ",
        "\"t.sum\" 200 ",
    ] {
        assert!(ends.contains_key(end), "{end}: {ends:#?}");
    }

    let metrics = gantry.get("/metrics").await.text;
    let audit = wait_for("everything is carried", || {
        let state = gantry.cli(&["audit", "tail", "-n", "1"]);
        (state.code() == 0 && siem.kept().len() > 100_000).then(|| state.out())
    });
    let gantry = Arc::into_inner(gantry).expect("all calls have ended");
    let before_the_end = places::files(&data, &["secrets"]);
    let log = gantry.shut_down();
    let search = Search::new(wanted);
    let mut seen: Vec<String> = Vec::new();
    let after = places::files(&data, &["secrets"]);
    let files = before_the_end.into_iter().chain(after);
    let written = [
        ("log".to_owned(), log.into_bytes()),
        ("metrics".to_owned(), metrics.into_bytes()),
        ("audit tail".to_owned(), audit.into_bytes()),
        ("collector".to_owned(), collector.kept()),
        ("siem".to_owned(), siem.kept()),
    ];
    let mut sizes = Vec::new();
    for (place, bytes) in files.chain(written) {
        seen.extend(search.within(&bytes).into_iter().map(|found| format!("{place}: {found}")));
        sizes.push((place, bytes.len()));
    }
    let size_of =
        |start: &str| sizes.iter().filter(|(place, _)| place.starts_with(start)).map(|(_, size)| size).sum::<usize>();
    for (place, least) in [
        ("log", 100_000),
        ("audit/", 500_000),
        ("archive/", 500_000),
        ("siem", 500_000),
        ("collector", 100_000),
        ("gantry.db", 50_000),
        ("metrics", 1_000),
        ("logs/servers", 1_000),
    ] {
        assert!(size_of(place) >= least, "{place} has something in it: {sizes:?}");
    }
    // The tools did hear them, and something stands in their places.
    let heard = echo.kept();
    assert!(!search.within(&heard).is_empty(), "the search finds what is there");
    assert!(
        seen.is_empty(),
        "{} places, for example:\n{}",
        seen.len(),
        seen.iter().take(12).cloned().collect::<Vec<_>>().join("\n\n")
    );
}
