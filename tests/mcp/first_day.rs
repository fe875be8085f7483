//! The first day: six popular servers of npm and PyPI in the ways people start them, imported from one file and called; and the folder
//! that somebody starts Gantry in, given to one of them. `cargo xtask acceptance first-day` does it with many more.

use serde_json::json;

use super::peers::{PYTHON, kit, server};
use super::*;

fn file(harness: &McpHarness) -> Value {
    std::fs::create_dir(harness.file("state/my notes")).unwrap();
    std::fs::write(harness.file("state/my notes/todo.md"), "buy milk").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(harness.file("state/my notes"), everybody).unwrap();
    json!({ "mcpServers": {
        "everything": { "command": kit("servers/node_modules/.bin/mcp-server-everything") },
        "files": { "command": "node", "args": [server("filesystem"), "./state/my notes"] },
        "memory": { "command": "node", "args": [server("memory")], "env": { "MEMORY_FILE_PATH": "${STATE}/memory.jsonl" } },
        "thinking": { "command": kit("server-thinking/node_modules/.bin/mcp-server-sequential-thinking") },
        "world clock": { "command": PYTHON, "args": ["-m", "mcp_server_time"], "env": { "PYTHONPATH": kit("server-time") } },
        "world-clock": { "command": PYTHON, "args": ["-m", "mcp_server_calculator"], "env": { "PYTHONPATH": kit("server-calculator") } },
    } })
}

#[tokio::test]
async fn six_popular_servers_of_one_file_are_imported_and_two_tools_of_each_are_called() {
    let harness = McpHarness::open().await;
    std::fs::write(harness.file("mcp.json"), file(&harness).to_string()).unwrap();
    let mut import = crate::support::gantry(&harness.file("data"));
    import.env("STATE", harness.file("state")).args(["import", "mcp", "mcp.json", "--yes", "--json"]);
    let ran = crate::support::run(&mut import);
    assert_eq!(ran.code(), 0, "{}{}\n{}", ran.out(), ran.err(), harness.gantry.log());
    let notes = harness.path("state/my notes");
    let thought = |number: u32| json!({ "thought": "x", "nextThoughtNeeded": number < 2, "thoughtNumber": number, "totalThoughts": 2 });
    let noon = json!({ "source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo" });
    let ada = json!({ "entities": [{ "name": "Ada", "entityType": "person", "observations": ["writes"] }] });
    for (tool, parameters, says) in [
        ("everything.echo", json!({ "message": "hello" }), "Echo: hello"),
        ("everything.get_sum", json!({ "a": 19, "b": 23 }), "42"),
        ("files.read_text_file", json!({ "path": format!("{notes}/todo.md") }), "buy milk"),
        ("files.write_file", json!({ "path": format!("{notes}/new.md"), "content": "x" }), "wrote"),
        ("memory.create_entities", ada, "Ada"),
        ("memory.read_graph", json!({}), "Ada"),
        ("thinking.sequentialthinking", thought(1), "thoughtHistoryLength"),
        ("thinking.sequentialthinking", thought(2), "thoughtHistoryLength"),
        ("world_clock.get_current_time", json!({ "timezone": "UTC" }), "UTC"),
        ("world_clock.convert_time", noon, "21:00"),
        ("world_clock_2.calculate", json!({ "expression": "6*7" }), "42"),
        ("world_clock_2.calculate", json!({ "expression": "sqrt(16)" }), "4"),
    ] {
        let answer = harness.invoke(tool, parameters).await;
        assert!(answer.status == 200 && answer.text.contains(says), "{tool}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_folder_with_the_data_directory_in_it_is_given_and_the_data_is_covered() {
    let harness = McpHarness::open().await;
    let folder = harness.path("");
    let folder = folder.trim_end_matches('/');
    std::fs::write(harness.file("state/note.txt"), "a note").unwrap();
    let block = json!({ "mcpServers": { "files": { "command": "node", "args": [server("filesystem"), folder] } } });
    std::fs::write(harness.file("mcp.json"), block.to_string()).unwrap();
    let import = || harness.gantry.cli(&["import", "mcp", &harness.path("mcp.json"), "--yes", "--json"]);
    // Who may write there could write the configuration of the next start.
    let refused = import();
    assert_eq!(refused.code(), 1, "{}", refused.out());
    assert!(refused.out().contains("configuration file at its next start"), "{}", refused.out());
    let told = refused.json()["servers"][0]["trial"].clone();
    let touch = format!("touch {folder}/gantry.toml");
    assert_eq!(told["command"], format!("{touch} && gantry server restart files"), "{told}");
    crate::support::run(std::process::Command::new("sh").args(["-c", &touch])).ok();
    let ran = import();
    assert_eq!(ran.code(), 0, "{}{}\n{}", ran.out(), ran.err(), harness.gantry.log());
    let read = async |name: &str| {
        let answer = harness.invoke("files.read_text_file", json!({ "path": harness.path(name) })).await;
        (answer.status, answer.text)
    };
    let (status, text) = read("state/note.txt").await;
    assert!(status == 200 && text.contains("a note"), "{text}");
    let token = std::fs::read_to_string(harness.file("data/admin.token")).unwrap();
    let (status, text) = read("data/admin.token").await;
    assert!(status != 200 && !text.contains(token.trim()), "{text}");
    let listed = harness.invoke("files.list_directory", json!({ "path": harness.path("data") })).await;
    assert!(!listed.text.contains("admin.token"), "{}", listed.text);
    for (tool, parameters) in [
        ("files.write_file", json!({ "path": harness.path("gantry.toml"), "content": "[server]" })),
        ("files.write_file", json!({ "path": harness.path("data/x"), "content": "x" })),
        ("files.move_file", json!({ "source": harness.path("data"), "destination": harness.path("state/data") })),
        (
            "files.move_file",
            json!({ "source": harness.path("gantry.toml"), "destination": harness.path("state/gantry.toml") }),
        ),
    ] {
        let answer = harness.invoke(tool, parameters.clone()).await;
        assert_ne!(answer.status, 200, "{tool} {parameters}: {}", answer.text);
    }
    assert_eq!(std::fs::read_to_string(harness.file("gantry.toml")).unwrap(), "");
    assert!(harness.file("data/admin.token").is_file() && !harness.file("data/x").exists());
}

/// What the command line says of a call that the tool refuses.
fn refused(harness: &McpHarness, path: &str) -> String {
    let ran = harness.gantry.cli(&["call", "files.write_file", &format!("path={path}"), "content=x"]);
    assert_ne!(ran.code(), 0, "{}", ran.out());
    ran.err()
}

#[tokio::test]
async fn who_is_refused_a_path_in_the_middle_of_a_call_reads_the_command_that_opens_it() {
    let harness = McpHarness::open().await;
    let mode = |path: PathBuf, mode: u32| {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    std::fs::create_dir(harness.file("my notes")).unwrap();
    let (notes, note) = (harness.path("my notes"), harness.path("my notes/todo.md"));
    mode(harness.file("my notes"), 0o777);
    let script = server("filesystem");
    let modules = script.split_once("/@modelcontextprotocol").unwrap().0;
    let added = harness.gantry.cli(&[
        "server",
        "add",
        "files",
        "--no-inference",
        "--allow-read",
        modules,
        "--allow-read",
        &notes,
        "--json",
        "--",
        "node",
        &script,
        &notes,
    ]);
    assert_eq!(added.ok().json()["servers"][0]["trial"]["result"], "works");

    let said = refused(&harness, &note);
    let grant = format!("gantry server grant files --allow-write '{notes}'");
    assert!(said.contains("may only read there") && said.contains(&grant), "{said}");
    // An agent is told what the tool said, and no command.
    let answer = harness.invoke("files.write_file", json!({ "path": note, "content": "x" })).await;
    assert!(answer.status != 200 && !answer.text.contains("server grant"), "{}", answer.text);

    let granted = harness.gantry.cli(&["server", "grant", "files", "--allow-write", &notes, "--json"]).ok().json();
    assert_eq!(granted["servers"][0]["trial"]["what"], Value::Null, "{granted}");
    harness.gantry.cli(&["call", "files.write_file", &format!("path={note}"), "content=mine"]).ok();

    // Where Gantry is root, the server is nobody: what others made there for themselves it cannot write.
    if !test_servers::is_root().unwrap() {
        return;
    }
    std::fs::write(harness.file("my notes/list.md"), "milk").unwrap();
    mode(harness.file("my notes/list.md"), 0o644);
    let list = harness.path("my notes/list.md");
    let told = harness.gantry.cli(&[
        "server",
        "grant",
        "files",
        "--permission",
        &format!("filesystem:read:{modules}"),
        "--json",
    ]);
    let trial = told.ok().json()["servers"][0]["trial"].clone();
    assert!(trial["what"].as_str().unwrap().contains(&format!("could not write to `{list}`")), "{trial}");
    let command = trial["command"].as_str().unwrap();
    assert!(command.ends_with(&format!("'{notes}'")), "{trial}");
    crate::support::run(std::process::Command::new("sh").args(["-c", command])).ok();
    let told = harness.gantry.cli(&["server", "grant", "files", "--allow-read", &notes, "--json"]).ok().json();
    assert_eq!(told["servers"][0]["trial"]["what"], Value::Null, "{told}");
}
