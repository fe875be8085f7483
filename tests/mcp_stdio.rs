//! `gantry mcp` as clients start it, and what connects them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::support::{Gantry, gantry, run, wait_for};

/// A client that has started `gantry mcp`.
struct Talk {
    child: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

impl Talk {
    fn begin(data: &Path) -> Self {
        let mut command = gantry(data);
        Self::over(command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()))
    }

    fn over(command: &mut std::process::Command) -> Self {
        let mut child = command.spawn().unwrap();
        let (asks, answers) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let mut talk = Self { child, asks, answers };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } });
        let begun = talk.ask(1, "initialize", &hello);
        assert_eq!(begun["result"]["serverInfo"]["name"], "gantry", "{begun}");
        talk.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        talk
    }

    fn send(&mut self, message: &Value) {
        writeln!(self.asks.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.ask_text(id, &json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string())
    }

    /// The same with a line as it is.
    fn ask_text(&mut self, id: u64, line: &str) -> Value {
        writeln!(self.asks.as_mut().unwrap(), "{line}").unwrap();
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "it has gone");
            let message: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("not the protocol: {line}"));
            if message["id"] == id {
                return message;
            }
        }
    }

    fn calculates(&mut self, id: u64) {
        let params = json!({ "name": "calculator", "arguments": { "expression": "6*7" } });
        let called = self.ask(id, "tools/call", &params);
        assert_eq!(called["result"]["structuredContent"]["result"], 42, "{called}");
    }

    fn end(mut self) {
        drop(self.asks.take());
        let status = wait_for("its end", || self.child.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
}

#[tokio::test]
async fn it_serves_alone_and_a_second_client_is_led_to_the_first() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let mut first = Talk::begin(&data);
    let list = first.ask(2, "tools/list", &json!({}));
    assert!(list["result"]["tools"].as_array().unwrap().iter().any(|tool| tool["name"] == "calculator"), "{list}");
    first.calculates(3);
    let mut second = Talk::begin(&data);
    second.calculates(4);
    second.end();
    first.calculates(5);
    first.end();
    assert!(!data.join("server.json").exists(), "the note is taken back");
}

#[tokio::test]
async fn it_carries_the_conversation_to_a_running_server() {
    let server = Gantry::start().await;
    let mut talk = Talk::begin(&server.data);
    talk.calculates(2);
    let unknown = talk.ask(3, "tools/call", &json!({ "name": "calculater" }));
    assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
    talk.end();
}

#[tokio::test]
async fn a_key_that_stands_twice_is_refused_by_both_kinds_of_lines_and_the_conversation_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let server = Gantry::start().await;
    // One that serves by itself, and one that carries the lines to a server.
    for data in [home.path().join("data"), server.data.clone()] {
        let mut talk = Talk::begin(&data);
        let params = r#"{"name":"calculator","arguments":{"expression":"1+1","expression":"6*7"}}"#;
        let refused =
            talk.ask_text(7, &format!(r#"{{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{params}}}"#));
        assert_eq!(refused["error"]["code"], -32700, "{refused}");
        assert_eq!(refused["error"]["data"]["error"]["code"], "E3004", "{refused}");
        talk.calculates(8);
        talk.end();
    }
}

#[tokio::test]
async fn clients_are_told_how_to_connect() {
    let server = Gantry::start().await;
    let printed = server.cli(&["mcp", "install", "--client", "claude", "--json"]).ok().json();
    let entry = &printed["config"]["mcpServers"]["gantry"];
    let arguments: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    assert_eq!(arguments, ["mcp", "--data-dir", server.data.to_str().unwrap(), "--as", "mcp-claude", "--no-config"]);
    let file = server.data.join("client.json");
    std::fs::write(&file, r#"{ "servers": { "other": {} } }"#).unwrap();
    let path = file.to_str().unwrap();
    let written = server
        .cli(&["mcp", "install", "--client", "vscode", "--http", "--write", "--path", path, "--json"])
        .ok()
        .json();
    let now: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(now["servers"]["other"], json!({}));
    let entry = &now["servers"]["gantry"];
    assert_eq!(entry["url"], format!("{}/mcp", server.url));
    let former = std::fs::read_to_string(written["backup"].as_str().unwrap()).unwrap();
    assert_eq!(former, r#"{ "servers": { "other": {} } }"#);
    let token = entry["headers"]["Authorization"].as_str().unwrap().strip_prefix("Bearer ").unwrap().to_owned();
    let me = server.request(reqwest::Method::GET, "/v1/tools", Some(&token), None).await;
    assert_eq!(me.status, 200);
    let not_admin = server.request(reqwest::Method::GET, "/v1/tenants", Some(&token), None).await;
    assert_eq!(not_admin.status, 403, "{}", not_admin.text);
    std::fs::write(&file, "{ broken").unwrap();
    let refused = server.cli(&["mcp", "install", "--client", "vscode", "--write", "--path", path]);
    assert_eq!((refused.code(), std::fs::read_to_string(&file).unwrap().as_str()), (1, "{ broken"));
    assert_eq!(run(gantry(&server.data).args(["mcp", "install", "--client", "nobody"])).code(), 2);
}

/// The answer of an installed command to a call of the calculator, started as a client would: elsewhere, and without our
/// environment.
fn called_as_installed(entry: &Value, folder: &Path) -> Value {
    let mut command = std::process::Command::new(entry["command"].as_str().unwrap());
    command.args(entry["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()));
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").current_dir(folder);
    for (name, value) in entry["env"].as_object().into_iter().flatten() {
        command.env(name, value.as_str().unwrap());
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut talk = Talk::over(&mut command);
    let answer = talk.ask(9, "tools/call", &json!({ "name": "calculator", "arguments": { "expression": "6*7" } }));
    talk.end();
    answer
}

#[tokio::test]
async fn an_installed_command_is_as_strict_as_what_it_was_installed_with() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let data = home.path().join("data");
    let install = |settings: &[(&str, &str)], arguments: &[&str]| {
        let mut command = gantry(&data);
        command.envs(settings.iter().copied()).args(["mcp", "install", "--client", "claude", "--json"]).args(arguments);
        run(&mut command)
    };
    let entry = |printed: crate::support::Ran| printed.ok().json()["config"]["mcpServers"]["gantry"].clone();
    // What stands where the client starts it does not count.
    std::fs::write(elsewhere.path().join("gantry.toml"), "[mcp]\nmode = \"discovery\"\n").unwrap();
    let plain = entry(install(&[], &[]));
    assert_eq!(called_as_installed(&plain, elsewhere.path())["result"]["structuredContent"]["result"], 42);
    std::fs::remove_file(elsewhere.path().join("gantry.toml")).unwrap();

    // By the file of this folder, by one that is named, and by the environment.
    let by_environment = entry(install(&[("GANTRY_MCP__MODE", "discovery")], &[]));
    std::fs::write(home.path().join("gantry.toml"), "[mcp]\nmode = \"discovery\"\n").unwrap();
    let by_folder = entry(install(&[], &[]));
    let by_name = entry(install(&[], &["--config", "./gantry.toml"]));
    for entry in [by_environment, by_folder, by_name] {
        let answer = called_as_installed(&entry, elsewhere.path());
        assert!(answer["error"]["code"].is_i64() && answer.get("result").is_none(), "{entry}: {answer}");
    }
    // A secret of the environment is not written into a client's file, whichever setting it is part of.
    for (name, value) in [
        ("GANTRY_STORE__URL", "postgres://me:hunter2@127.0.0.1:1/db"),
        ("GANTRY_SHARED_STATE__URL", "redis://me:hunter2@127.0.0.1:1/1"),
        ("GANTRY_AUDIT__WITNESS_URL", "https://log.example/x?token=hunter2"),
        ("GANTRY_TRACES__ENDPOINT", "http://me:hunter2@127.0.0.1:1"),
        ("GANTRY_IDENTITY__JWKS_URL", "https://me:hunter2@keys.example/jwks.json"),
    ] {
        let secret = install(&[(name, value)], &[]);
        assert!(secret.code() == 1 && secret.err().contains(name), "{name}: {}", secret.err());
        assert!(!secret.err().contains("hunter2") && !secret.out().contains("hunter2"), "{name}");
    }
    // Nor is a configuration that cannot be used left for the client to find out about.
    std::fs::write(home.path().join("gantry.toml"), "[mcp]\nmode = \"discovry\"\n").unwrap();
    assert_eq!(install(&[], &[]).code(), 1);
}

#[test]
fn an_install_loses_no_former_file_and_follows_links() {
    let home = tempfile::tempdir().unwrap();
    let (data, file) = (home.path().join("data"), home.path().join("mcp.json"));
    let install = |path: &Path| {
        let path = path.to_str().unwrap();
        run(gantry(&data).args(["mcp", "install", "--client", "cursor", "--write", "--path", path])).ok();
    };
    let mine = r#"{"mcpServers":{"mine":{"command":"y"}}}"#;
    std::fs::write(&file, mine).unwrap();
    // Some of them in one second.
    for _ in 0..4 {
        install(&file);
    }
    let entries = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path());
    let kept: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "bak")).collect();
    assert_eq!(kept.len(), 4, "{kept:?}");
    assert_eq!(kept.iter().filter(|path| std::fs::read_to_string(path).unwrap() == mine).count(), 1);

    let (link, target) = (home.path().join("link.json"), home.path().join("dotfiles.json"));
    std::fs::write(&target, "{}").unwrap();
    std::os::unix::fs::symlink("dotfiles.json", &link).unwrap();
    install(&link);
    assert_eq!(std::fs::read_link(&link).unwrap(), Path::new("dotfiles.json"));
    assert!(std::fs::read_to_string(&target).unwrap().contains("gantry"));
}

#[tokio::test]
async fn an_installed_command_takes_nothing_from_the_folder_it_is_started_in() {
    let (home, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for (folder, policy) in [
        (
            home.path(),
            "permit (principal, action, resource);\nforbid (principal, action == Action::\"invoke\", resource);",
        ),
        (elsewhere.path(), "permit (principal, action, resource);"),
    ] {
        std::fs::create_dir_all(folder.join("etc/policies")).unwrap();
        std::fs::create_dir_all(folder.join("policies")).unwrap();
        for place in ["etc/policies", "policies"] {
            std::fs::write(folder.join(place).join("all.cedar"), policy).unwrap();
        }
    }
    std::fs::write(home.path().join("etc/gantry.toml"), "[policy]\nfile = \"policies\"\n").unwrap();
    let install = |data: &str, settings: &[(&str, &str)], arguments: &[&str]| {
        let mut command = gantry(&home.path().join(data));
        command.envs(settings.iter().copied()).args(["mcp", "install", "--client", "claude", "--json"]).args(arguments);
        run(&mut command).ok().json()["config"]["mcpServers"]["gantry"].clone()
    };
    let by_file = install("one", &[], &["--config", "etc/gantry.toml"]);
    let by_variable = install("two", &[("GANTRY_POLICY__FILE", "policies")], &[]);
    for entry in [&by_file, &by_variable] {
        let answer = called_as_installed(entry, elsewhere.path());
        assert!(
            answer.to_string().contains("policy denies this call"),
            "a stranger's policies are in force: {entry}: {answer}"
        );
    }
    // Each path of a list, and what a client needs to recognise a server.
    let settings = [("GANTRY_TOOLS__DIRS", "a,/b"), ("GANTRY_TOOLS__TENANTS", "acme=c"), ("GANTRY_CA", "ca.pem")];
    let entry = install("three", &settings, &["--client-cert", "me.pem", "--client-key", "/keys/me.key"]);
    let here = home.path().canonicalize().unwrap();
    let at = |name: &str| here.join(name).display().to_string();
    assert_eq!(entry["env"]["GANTRY_TOOLS__DIRS"], format!("{},/b", at("a")));
    assert_eq!(entry["env"]["GANTRY_TOOLS__TENANTS"], format!("acme={}", at("c")));
    let arguments: Vec<&str> = entry["args"].as_array().unwrap().iter().map(|one| one.as_str().unwrap()).collect();
    for pair in [["--ca", &at("ca.pem")], ["--client-cert", &at("me.pem")], ["--client-key", "/keys/me.key"]] {
        assert!(arguments.windows(2).any(|two| two == pair), "{pair:?}: {arguments:?}");
    }
}
