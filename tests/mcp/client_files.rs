//! The configurations of seven clients as these clients and their users leave them: where they lie, with comments, trailing commas,
//! members that are the client's own business, and faults.

use serde_json::json;

use super::peers::PYTHON;
use super::*;
use crate::support::{Ran, gantry, run};

/// Where each lies under somebody's home, the name of its server, and what is in it. `PYTHON` and `HOME` are put in.
const FILES: [(&str, &str, &str); 7] = [
    (
        ".config/Claude/claude_desktop_config.json",
        "desktop",
        r#"{ "globalShortcut": "", "mcpServers": { "desktop": { "command": "PYTHON", "args": ["HOME/my servers/plain.py"] } },
            "preferences": { "menuBarEnabled": false } }"#,
    ),
    (
        ".claude.json",
        "code",
        r#"{ "numStartups": 7, "mcpServers": {}, "projects": {
            "HOME/other": { "allowedTools": [], "history": [{ "display": "why?", "pastedContents": {} }], "mcpServers": {} },
            "HOME/my servers": { "mcpServers": { "code": { "type": "stdio", "command": "PYTHON", "args": ["./plain.py"], "env": {} } } }
        } }"#,
    ),
    (
        "my servers/.cursor/mcp.json",
        "cursor",
        r#"{ "mcpServers": { "cursor": { "command": "PYTHON", "args": ["${workspaceFolder}/plain.py"],
            "env": { "REGION": "${env:NOWHERE_AT_ALL:-eu}" }, "envFile": "${workspaceFolder}/.env" } } }"#,
    ),
    (
        "my servers/.vscode/mcp.json",
        "code-of-visual-studio",
        r#"{
            // What is asked for when it starts.
            "inputs": [{ "type": "promptString", "id": "key", "description": "Key", "password": true }],
            "servers": {
                "code-of-visual-studio": {
                    "type": "stdio", "command": "PYTHON", "args": ["plain.py",], /* beside it */
                    "cwd": "${workspaceFolder}", "dev": { "watch": "*.py" }, "gallery": true,
                },
            },
        }"#,
    ),
    (
        ".codeium/windsurf/mcp_config.json",
        "windsurf",
        r#"{ "mcpServers": { "windsurf": { "command": "PYTHON", "args": ["~/my servers/plain.py"], "disabled": false, "disabledTools": ["count"] } } }"#,
    ),
    (
        ".config/zed/settings.json",
        "zed",
        r#"// Zed settings
        { "ui_font_size": 16.0, "theme": { "mode": "system" },
          "context_servers": {
            "zed": { "source": "custom", "enabled": true, "command": { "path": "PYTHON", "args": ["HOME/my servers/plain.py"], "env": null }, "settings": {} },
          },
        }"#,
    ),
    (
        ".config/Code/User/globalStorage/saoudrizwan.claude-dev/settings/cline_mcp_settings.json",
        "cline",
        r#"{ "mcpServers": { "cline": { "autoApprove": ["echo"], "disabled": false, "timeout": 60, "type": "stdio",
            "command": "PYTHON", "args": ["HOME/my servers/plain.py"], "env": { "COLUMNS": 80, "DEBUG": true } } } }"#,
    ),
];

/// A home with the server in a folder that has a blank in its name.
fn home(harness: &McpHarness) -> PathBuf {
    let home = harness.file("home");
    std::fs::create_dir_all(home.join("my servers")).unwrap();
    std::fs::write(home.join("my servers/plain.py"), PLAIN).unwrap();
    std::fs::write(home.join("my servers/.env"), "# mine\nexport COLOUR='red'\n").unwrap();
    home
}

fn written(harness: &McpHarness, path: &str, text: &str) -> String {
    let (home, file) = (harness.file("home"), harness.file("home").join(path));
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    let text = text.replace("PYTHON", PYTHON).replace("HOME", home.to_str().unwrap());
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn import(harness: &McpHarness, file: &str, more: &[&str]) -> Ran {
    let mut command = gantry(&harness.file("data"));
    run(command.env("HOME", harness.file("home")).args(["import", "mcp", file, "--yes"]).args(more))
}

#[tokio::test]
async fn the_files_of_seven_clients_are_imported_as_they_lie_and_their_servers_answer() {
    let harness = McpHarness::open().await;
    home(&harness);
    for (path, name, text) in FILES {
        let ran = import(&harness, &written(&harness, path, text), &["--json"]);
        let document = ran.json();
        assert_eq!(ran.code(), 0, "{path}: {document}{}\n{}", ran.err(), harness.gantry.log());
        assert_eq!(document["servers"][0]["trial"]["result"], "works", "{path}: {document}");
        // A client that leaves tools out does so for itself alone, and nobody shall believe otherwise.
        let told = [("windsurf", "`disabledTools` binds that client alone"), ("cline", "`timeout` is not used")];
        for (whose, words) in told {
            assert_eq!(document.to_string().contains(words), whose == name, "{path}: {document}");
        }
        let tool = format!("{}.echo", name.replace('-', "_"));
        let answer = harness.invoke(&tool, json!({ "text": "hello" })).await;
        assert!(answer.status == 200 && answer.text.contains("hello"), "{tool}: {}", answer.text);
    }
}

#[tokio::test]
async fn what_is_wrong_in_a_file_is_said_with_its_place_and_nothing_is_imported() {
    let harness = McpHarness::open().await;
    home(&harness);
    for (path, right, wrong, words) in [
        (
            0,
            r#"["HOME/my servers/plain.py"]"#,
            r#""HOME/my servers/plain.py""#,
            "/mcpServers/desktop/args: must be an array of texts",
        ),
        (1, r#""env": {}"#, r#""env": ["A=1"]"#, "/mcpServers/code/env: must be an object of texts"),
        (1, r#"{ "code": {"#, r#"{ "code": {}, "code": {"#, "`code` stands there twice"),
        (2, "${workspaceFolder}/.env", "absent.env", "/mcpServers/cursor/envFile: is a file that is not there"),
        (3, r#""cwd": "${workspaceFolder}""#, r#""cwd": 5"#, "/servers/code-of-visual-studio/cwd: must be text"),
        (3, r#""type": "stdio", "command": "PYTHON","#, r#""type": "stdio","#, "has neither a `command` nor a `url`"),
        (4, r#""disabled": false"#, r#""disabled": "no""#, "/mcpServers/windsurf/disabled: must be true or false"),
        (5, r#""path": "PYTHON","#, "", "/context_servers/zed/command: must be text that names a program"),
        (6, r#""autoApprove": ["echo"],"#, r#""autoApprove": ["echo"]"#, "line 1"),
    ] {
        let (path, name, text) = FILES[path];
        assert!(text.contains(right), "{path}: {right}");
        let ran = import(&harness, &written(&harness, path, &text.replace(right, wrong)), &[]);
        assert!(ran.code() != 0 && ran.err().contains(words), "{name}: {words}\n{}", ran.err());
        assert!(ran.err().contains("nothing was imported"), "{name}: {}", ran.err());
    }
    let servers = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
    assert_eq!(servers["servers"], json!([]), "{servers}");
}
