//! The file of Claude Code, which has servers of every project, and everything that was ever asked.

use serde_json::json;

use super::*;

#[test]
fn what_is_relative_in_a_block_of_one_project_begins_at_that_project() {
    let import = read(
        r#"{ "mcpServers": {}, "projects": { "/people/me": { "mcpServers": {
            "script": { "command": "python3", "args": ["./loose.py"] },
            "folder": { "command": "/bin/true", "args": ["${workspaceFolder}/notes"] }
        } }, "elsewhere": { "mcpServers": { "unknown": { "command": "/bin/true", "args": ["./server.py"] } } } } }"#,
        &Desk,
    );
    assert_eq!(import.problems, []);
    let args = |name: &str| match &server(&import, name).spec.reach {
        ServerReach::Stdio { args, .. } => args.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(args("script"), ["/people/me/loose.py"]);
    assert_eq!(args("folder"), ["/people/me/notes"]);
    // A project without a path is none.
    assert_eq!(args("unknown"), ["/people/me/work/server.py"]);
}

#[test]
fn a_file_with_years_of_somebodys_questions_in_it_is_read() {
    let history: Vec<Value> =
        (0..60_000).map(|number| json!({ "display": format!("question {number}"), "pasted": {} })).collect();
    let file =
        json!({ "mcpServers": { "a": { "command": "/bin/true" } }, "projects": { "/p": { "history": history } } });
    let text = file.to_string();
    assert!(text.len() > 2 << 20);
    let import = read(&text, &Desk);
    assert_eq!((import.problems.len(), import.servers.len()), (0, 1), "{:?}", import.problems);
    let endless = format!("{{\"mcpServers\": {{}}, \"x\": \"{}\"}}", "x".repeat(FILE_BYTES_MAX));
    assert!(read(&endless, &Desk).problems.first().unwrap().message.contains("bytes"));
}
