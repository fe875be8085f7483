//! A realistic `mcpServers` file with five servers is imported, and all of them are called from the Python SDK, from the
//! inspector and by `gantry call`.

use serde_json::json;

use super::peers::{PYTHON, inspector, kit, python_sdk, server};
use super::*;

/// Tool as clients see it, tool as Gantry calls it, arguments, and what the answer contains.
fn calls(harness: &McpHarness) -> [(&'static str, &'static str, Value, &'static str); 5] {
    [
        ("everything__echo", "everything.echo", json!({ "message": "hi there" }), "hi there"),
        ("files__read_text_file", "files.read_text_file", json!({ "path": harness.path("files/note.txt") }), "a note"),
        ("memory__read_graph", "memory.read_graph", json!({}), "entities"),
        ("fast__add", "fast.add", json!({ "a": 20, "b": 22 }), "42"),
        ("plain__echo", "plain.echo", json!({ "text": "hello" }), "hello"),
    ]
}

async fn imported() -> McpHarness {
    let harness = McpHarness::open().await;
    std::fs::create_dir(harness.file("files")).unwrap();
    std::fs::write(harness.file("files/note.txt"), "a note").unwrap();
    let block = json!({ "mcpServers": {
        "everything": { "command": "node", "args": [server("everything")] },
        "files": { "command": "node", "args": [server("filesystem"), harness.path("files")] },
        "memory": { "command": "node", "args": [server("memory")], "env": { "MEMORY_FILE_PATH": harness.path("state/memory.jsonl") } },
        "fast": { "command": PYTHON, "args": [harness.path("servers/fast.py"), kit("python")] },
        "plain": { "command": PYTHON, "args": [harness.path("servers/plain.py")] },
    } });
    let file = harness.file("claude_desktop_config.json");
    std::fs::write(&file, block.to_string()).unwrap();
    let ran = harness.gantry.cli(&["import", "mcp", file.to_str().unwrap(), "--yes", "--json"]);
    assert_eq!(ran.code(), 0, "{}{}\n{}", ran.out(), ran.err(), harness.gantry.log());
    harness
}

#[tokio::test]
async fn five_servers_are_imported_and_called_from_three_foreign_sides() {
    let harness = imported().await;
    let servers = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
    for name in ["everything", "files", "memory", "fast", "plain"] {
        let listed = servers["servers"].as_array().unwrap().iter().find(|server| server["name"] == name);
        let listed = listed.unwrap_or_else(|| panic!("{name}: {servers}"));
        assert_eq!(listed["problems"], json!([]), "{name}: {listed}");
        assert!(listed["tools"]["available"].as_u64().unwrap() > 0, "{name}: {listed}");
    }
    let calls = calls(&harness);

    let plan: Vec<Value> = calls.iter().map(|(exported, _, arguments, _)| json!([exported, arguments])).collect();
    let seen = python_sdk("python", &json!({ "http": harness.door(), "token": harness.agent, "calls": plan }));
    for ((exported, _, _, contains), result) in calls.iter().zip(seen["results"].as_array().unwrap()) {
        assert!(result["text"].as_str().unwrap().contains(contains), "{exported} by the SDK: {result}");
    }

    let headers = [format!("Authorization: Bearer {}", harness.agent)];
    let door = harness.door();
    for (exported, _, arguments, contains) in &calls {
        let mut method = vec!["--method", "tools/call", "--tool-name", exported];
        let given: Vec<String> = arguments.as_object().unwrap().iter().map(|(name, value)| word(name, value)).collect();
        for argument in &given {
            method.extend(["--tool-arg", argument]);
        }
        let shown = inspector(&[&door, "--transport", "http"], &headers, &method).ok().out();
        assert!(shown.contains(contains), "{exported} by the inspector: {shown}");
    }

    for (_, id, arguments, contains) in &calls {
        let given: Vec<String> = arguments.as_object().unwrap().iter().map(|(name, value)| word(name, value)).collect();
        let mut command = vec!["call", id, "--json"];
        command.extend(given.iter().map(String::as_str));
        let shown = harness.gantry.cli(&command).ok().out();
        assert!(shown.contains(contains), "{id} by `gantry call`: {shown}");
    }
}

/// `name=value` as command lines want it.
fn word(name: &str, value: &Value) -> String {
    format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

#[tokio::test]
async fn imported_servers_can_do_no_more_than_their_file_says() {
    let harness = imported().await;
    // The server would refuse this by itself; a folder it was given but that is not in the sandbox it cannot even see.
    let answer = harness.invoke("files.read_text_file", json!({ "path": "/etc/hostname" })).await;
    assert_ne!(answer.status, 200, "{}", answer.text);
    let answer = harness.invoke("everything.get_env", json!({})).await;
    assert!(!answer.text.contains("GANTRY_"), "the server's environment is Gantry's: {}", answer.text);
}

#[tokio::test]
async fn a_file_with_faults_is_refused_with_all_of_them() {
    let harness = McpHarness::open().await;
    let file = harness.file("broken.json");
    let block = json!({ "mcpServers": { "one": { "args": ["x"] }, "two": { "command": 5 }, "three": "node" } });
    std::fs::write(&file, block.to_string()).unwrap();
    let ran = harness.gantry.cli(&["import", "mcp", file.to_str().unwrap(), "--yes"]);
    assert_ne!(ran.code(), 0);
    for name in ["one", "two", "three"] {
        assert!(ran.err().contains(name), "{name}: {}", ran.err());
    }
    let servers = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
    assert_eq!(servers["servers"], json!([]), "{servers}");
}

/// A server that needs something it is not given: a variable, and a file outside of its folder.
const NEEDY: &str = "import os, runpy, sys\n\
if not os.environ.get('WEATHER_REGION'): sys.exit('Error: the WEATHER_REGION environment variable is required')\n\
open(sys.argv[1][5:]).read()\n\
sys.argv = sys.argv[:1]\n\
runpy.run_path(sys.argv[0].replace('needy', 'plain'), run_name='__main__')\n";

/// What came of trying a server, in the document that `--json` prints.
fn trial<'a>(document: &'a Value, name: &str) -> &'a Value {
    let servers = document["servers"].as_array().unwrap();
    &servers.iter().find(|server| server["name"] == name).unwrap_or_else(|| panic!("{name}: {document}"))["trial"]
}

#[tokio::test]
async fn what_a_server_misses_is_shown_with_the_command_that_gives_it() {
    let harness = McpHarness::open().await;
    std::fs::write(harness.file("servers/needy.py"), NEEDY).unwrap();
    std::fs::create_dir(harness.file("elsewhere")).unwrap();
    std::fs::write(harness.file("elsewhere/list.txt"), "x").unwrap();
    let file = harness.file("servers/mcp.json");
    // Named by itself, so that the path is no argument that would be granted.
    let wanted = format!("file:{}", harness.path("elsewhere/list.txt"));
    let block = json!({ "mcpServers": { "needy": { "command": PYTHON, "args": ["needy.py", wanted] } } });
    std::fs::write(&file, block.to_string()).unwrap();

    let ran = harness.gantry.cli(&["import", "mcp", file.to_str().unwrap(), "--yes", "--json"]);
    assert_eq!(ran.code(), 1, "{}{}", ran.out(), ran.err());
    let first = ran.json();
    assert_eq!(trial(&first, "needy")["result"], "fails", "{first}");
    assert_eq!(trial(&first, "needy")["command"], "gantry server edit needy --env WEATHER_REGION=…", "{first}");

    let second = harness.gantry.cli(&["server", "edit", "needy", "--env", "WEATHER_REGION=eu", "--json"]).json();
    let path = harness.path("elsewhere/list.txt");
    let command = format!("gantry server grant needy --allow-read {path}");
    assert_eq!(trial(&second, "needy")["command"], command, "{second}");

    let third = harness.gantry.cli(&["server", "grant", "needy", "--allow-read", &path, "--json"]).ok().json();
    assert_eq!(trial(&third, "needy")["result"], "works", "{third}");

    // What was said about its tools outlives a change that is not about the program.
    harness.gantry.cli(&["tool", "classify", "needy.echo", "pure"]).ok();
    let before = harness.gantry.cli(&["server", "review", "needy", "--all", "--json"]).ok().json();
    let changed = harness
        .gantry
        .cli(&["server", "edit", "needy", "--start-timeout", "45", "--relay", "sampling", "--json"])
        .ok()
        .json();
    assert_eq!(changed["servers"][0]["spec"]["upkeep"]["start_timeout_seconds"], 45, "{changed}");
    assert_eq!(changed["servers"][0]["spec"]["relay"]["sampling"], true, "{changed}");
    assert_eq!(before, harness.gantry.cli(&["server", "review", "needy", "--all", "--json"]).ok().json());
    assert_eq!(harness.invoke("needy.echo", json!({ "text": "hello" })).await.status, 200);

    // How long its calls may take is said of the server, and holds for what was taken in before.
    let shown = || harness.gantry.cli(&["tool", "show", "needy.echo", "--json"]).ok().json();
    assert_eq!(shown()["manifest"]["timeout_default"], 300);
    harness.gantry.cli(&["server", "edit", "needy", "--timeout", "40"]).ok();
    assert_eq!(
        (&shown()["manifest"]["timeout_default"], &shown()["manifest"]["side_effect_policy"]),
        (&json!(40), &json!("pure"))
    );
    let wrong = harness.gantry.cli(&["server", "edit", "needy", "--timeout", "301"]);
    assert_eq!(wrong.code(), 2, "{}", wrong.err());

    // Switched off, nobody can call it; switched on, it is as it was.
    let off = harness.gantry.cli(&["server", "edit", "needy", "--disable", "--json"]).ok().json();
    assert_eq!(off["servers"][0]["status"]["state"], "disabled", "{off}");
    assert_ne!(harness.invoke("needy.echo", json!({ "text": "hello" })).await.status, 200);
    harness.gantry.cli(&["server", "edit", "needy", "--enable"]).ok();
    assert_eq!(harness.invoke("needy.echo", json!({ "text": "hello" })).await.status, 200);
}

#[tokio::test]
async fn what_is_there_already_stays_until_somebody_says_that_it_is_replaced() {
    let harness = McpHarness::open().await;
    let file = harness.file("servers/mcp.json");
    let write = |region: &str| {
        let block = json!({ "mcpServers": { "plain": { "command": PYTHON, "args": ["plain.py"],
            "env": { "REGION": region, "API_TOKEN": "hunter2" } } } });
        std::fs::write(&file, block.to_string()).unwrap();
    };
    let import = |more: &[&str]| {
        let mut line = vec!["import", "mcp", file.to_str().unwrap(), "--yes", "--json"];
        line.extend(more);
        harness.gantry.cli(&line)
    };
    let region = || {
        let servers = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
        servers["servers"][0]["spec"]["reach"]["env"]["REGION"].clone()
    };
    write("eu");
    assert_eq!(trial(&import(&[]).ok().json(), "plain")["unchanged"], false);
    // The same once more, also after it was given something.
    harness.gantry.cli(&["server", "grant", "plain", "--allow-host", "api.example.com"]).ok();
    let again = import(&[]).ok().json();
    assert_eq!(
        (&trial(&again, "plain")["unchanged"], &trial(&again, "plain")["result"]),
        (&json!(true), &json!("works"))
    );
    assert!(again.to_string().contains("network:https://api.example.com"), "{again}");

    write("us");
    let looked = import(&["--dry-run"]).json();
    assert_eq!(looked["servers"][0]["change"], "not_replaced", "{looked}");
    let other = import(&[]);
    assert_eq!((other.code(), region()), (1, json!("eu")), "{}", other.out());
    let told = trial(&other.json(), "plain").clone();
    assert_eq!(told["result"], "not_replaced", "{told}");
    assert!(told["what"].as_str().unwrap().ends_with("differs in the variables"), "{told}");
    let command = format!("gantry import mcp {} --only plain --replace", file.display());
    assert_eq!(told["command"], command, "{told}");
    import(&["--replace"]).ok();
    assert_eq!(region(), "us");

    let add = |more: &[&str]| {
        let mut line = vec!["server", "add", "plain", "--json"];
        line.extend(more);
        let script = harness.path("servers/plain.py");
        line.extend(["--", PYTHON, &script]);
        harness.gantry.cli(&line)
    };
    let refused = add(&[]);
    assert_eq!((refused.code(), region()), (1, json!("us")), "{}", refused.out());
    let said = format!("{}{}", refused.out(), refused.err());
    for words in ["there is a server `plain` already", "plain.py", "`gantry server edit plain`", "--replace"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    add(&["--replace"]).ok();
    assert_eq!(region(), Value::Null);
}

#[tokio::test]
async fn a_password_by_any_name_that_the_door_refuses_in_clear_is_imported_as_a_credential() {
    let harness = McpHarness::open().await;
    let file = harness.file("servers/mcp.json");
    let env = json!({ "DB_PASS": "hunter2", "SMTP_PASSWD": "hunter2", "MYSQL_PWD": "hunter2", "PWD": "notes", "LOGIN": "ada" });
    let block = json!({ "mcpServers": { "plain": { "command": PYTHON, "args": ["plain.py"], "env": env } } });
    std::fs::write(&file, block.to_string()).unwrap();
    let ran = harness.gantry.cli(&["import", "mcp", file.to_str().unwrap(), "--yes", "--json"]).ok();
    let known = ran.json()["servers"][0]["spec"]["reach"]["env"].clone();
    let expected = json!({ "DB_PASS": { "secret": "plain_db_pass" }, "SMTP_PASSWD": { "secret": "plain_smtp_passwd" },
        "MYSQL_PWD": { "secret": "plain_mysql_pwd" }, "PWD": "notes", "LOGIN": "ada" });
    assert_eq!(known, expected);
    assert!(!ran.out().contains("hunter2"));
}

/// A server that tries what its arguments name, and ends of it.
const HASTY: &str = "import resource, socket, sys\n\
if sys.argv[1] == 'files':\n\
\x20   print('limit', resource.getrlimit(resource.RLIMIT_NOFILE)[0], file=sys.stderr)\n\
\x20   kept = [open('/usr/bin/env') for _ in range(2000)]\n\
proxy = socket.create_connection(('127.0.0.1', 3128))\n\
proxy.sendall(b'CONNECT api.example.com:443 HTTP/1.1\\r\\nHost: api.example.com\\r\\n\\r\\n')\n\
sys.exit(proxy.recv(4096).decode())\n";

#[tokio::test]
async fn a_server_that_opens_too_many_files_or_a_closed_host_is_told_with_what_helps() {
    let harness = McpHarness::open().await;
    std::fs::write(harness.file("servers/hasty.py"), HASTY).unwrap();
    let script = harness.path("servers/hasty.py");
    let add = |name: &str| {
        let ran = harness.gantry.cli(&["server", "add", name, "--json", "--", PYTHON, &script, name]);
        let logs = harness.gantry.cli(&["server", "logs", name]).ok().out();
        (trial(&ran.json(), name).clone(), logs)
    };
    let (told, logs) = add("files");
    assert!(told["what"].as_str().unwrap().contains("`[sandbox]`, `open_files`"), "{told} {logs}");
    assert!(told["command"].is_null() && logs.contains("limit 1024"), "{told} {logs}");
    let (told, logs) = add("host");
    assert_eq!(told["command"], "gantry server grant host --allow-host api.example.com:443", "{told}");
    assert!(logs.contains("`gantry server grant host --allow-host api.example.com` lets it"), "{logs}");
    assert!(!logs.contains("required_permissions"), "{logs}");
}

#[tokio::test]
async fn a_script_is_followed_to_its_interpreter_and_what_is_off_stays_off() {
    let harness = McpHarness::open().await;
    let file = harness.file("mcp.json");
    // As an installer leaves it: a script with a first line, a link to it, and an environment.
    std::fs::create_dir_all(harness.file("env/bin")).unwrap();
    std::os::unix::fs::symlink(PYTHON, harness.file("env/bin/python3")).unwrap();
    std::fs::write(harness.file("env/pyvenv.cfg"), "home = /usr/bin\n").unwrap();
    let text = format!("#!{}\n{PLAIN}", harness.path("env/bin/python3"));
    std::fs::write(harness.file("servers/plain-server"), text).unwrap();
    let runnable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(harness.file("servers/plain-server"), runnable).unwrap();
    std::os::unix::fs::symlink("../../servers/plain-server", harness.file("env/bin/linked")).unwrap();
    let package = kit("servers/node_modules/.bin/mcp-server-everything");
    let block = json!({ "mcpServers": {
        "linked": { "command": "./env/bin/linked" },
        "modules": { "command": package },
        "in-folder": { "command": PYTHON, "args": ["plain.py"], "cwd": "servers" },
        "off": { "command": PYTHON, "args": ["servers/plain.py"], "disabled": true },
        "box": { "command": "docker", "args": ["run", "-i", "mcp/time"] },
    } });
    std::fs::write(&file, block.to_string()).unwrap();
    let ran = harness.gantry.cli(&["import", "mcp", file.to_str().unwrap(), "--yes", "--json"]);
    let document = ran.json();
    for name in ["linked", "modules", "in-folder"] {
        assert_eq!(trial(&document, name)["result"], "works", "{document}");
    }
    assert_eq!(trial(&document, "off")["command"], "gantry server edit off --enable", "{document}");
    assert!(trial(&document, "box")["what"].as_str().unwrap().contains("container engine"), "{document}");
    assert_eq!(ran.code(), 0, "{}", ran.err());
    let untried =
        harness.gantry.cli(&["import", "mcp", file.to_str().unwrap(), "--yes", "--only", "off", "--no-try", "--json"]);
    assert_eq!(trial(&untried.ok().json(), "off")["result"], "off");
}
