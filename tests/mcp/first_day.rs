//! The first day: six popular servers of npm and PyPI in the ways people start them, imported from one file and called; and the folder
//! that somebody starts Gantry in, given to one of them. `cargo xtask acceptance first-day` does it with many more.

use serde_json::json;

use super::peers::{PYTHON, kit, server};
use super::*;

fn file(house: &House) -> Value {
    std::fs::create_dir(house.file("state/my notes")).unwrap();
    std::fs::write(house.file("state/my notes/todo.md"), "buy milk").unwrap();
    let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(house.file("state/my notes"), everybody).unwrap();
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
    let house = House::open().await;
    std::fs::write(house.file("mcp.json"), file(&house).to_string()).unwrap();
    let mut import = crate::support::gantry(&house.file("data"));
    import.env("STATE", house.file("state")).args(["import", "mcp", "mcp.json", "--yes", "--json"]);
    let ran = crate::support::run(&mut import);
    assert_eq!(ran.code(), 0, "{}{}\n{}", ran.out(), ran.err(), house.gantry.log());
    let notes = house.path("state/my notes");
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
        let answer = house.invoke(tool, parameters).await;
        assert!(answer.status == 200 && answer.text.contains(says), "{tool}: {}", answer.text);
    }
}

#[tokio::test]
async fn the_folder_with_the_data_directory_in_it_is_given_and_the_data_is_covered() {
    let house = House::open().await;
    let folder = house.path("");
    let folder = folder.trim_end_matches('/');
    std::fs::write(house.file("state/note.txt"), "a note").unwrap();
    let block = json!({ "mcpServers": { "files": { "command": "node", "args": [server("filesystem"), folder] } } });
    std::fs::write(house.file("mcp.json"), block.to_string()).unwrap();
    let import = || house.gantry.cli(&["import", "mcp", &house.path("mcp.json"), "--yes", "--json"]);
    // Who may write there could write the configuration of the next start.
    let refused = import();
    assert_eq!(refused.code(), 1, "{}", refused.out());
    assert!(refused.out().contains("configuration file at its next start"), "{}", refused.out());
    std::fs::write(house.file("gantry.toml"), "").unwrap();
    let ran = import();
    assert_eq!(ran.code(), 0, "{}{}\n{}", ran.out(), ran.err(), house.gantry.log());
    let read = async |name: &str| {
        let answer = house.invoke("files.read_text_file", json!({ "path": house.path(name) })).await;
        (answer.status, answer.text)
    };
    let (status, text) = read("state/note.txt").await;
    assert!(status == 200 && text.contains("a note"), "{text}");
    let token = std::fs::read_to_string(house.file("data/admin.token")).unwrap();
    let (status, text) = read("data/admin.token").await;
    assert!(status != 200 && !text.contains(token.trim()), "{text}");
    let listed = house.invoke("files.list_directory", json!({ "path": house.path("data") })).await;
    assert!(!listed.text.contains("admin.token"), "{}", listed.text);
    for (tool, parameters) in [
        ("files.write_file", json!({ "path": house.path("gantry.toml"), "content": "[server]" })),
        ("files.write_file", json!({ "path": house.path("data/x"), "content": "x" })),
        ("files.move_file", json!({ "source": house.path("data"), "destination": house.path("state/data") })),
        (
            "files.move_file",
            json!({ "source": house.path("gantry.toml"), "destination": house.path("state/gantry.toml") }),
        ),
    ] {
        let answer = house.invoke(tool, parameters.clone()).await;
        assert_ne!(answer.status, 200, "{tool} {parameters}: {}", answer.text);
    }
    assert_eq!(std::fs::read_to_string(house.file("gantry.toml")).unwrap(), "");
    assert!(house.file("data/admin.token").is_file() && !house.file("data/x").exists());
}
