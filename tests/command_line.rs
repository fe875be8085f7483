//! The command line as people and scripts use it.

use serde_json::json;

use crate::support::{Gantry, Start, gantry, manifest, run};

#[tokio::test]
async fn tools_are_added_listed_shown_searched_compared_and_retired() {
    let gantry = Gantry::start().await;
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tool.json");
    std::fs::write(&file, manifest(json!({})).to_string()).unwrap();
    let file = file.to_str().unwrap();
    gantry.cli(&["tool", "add", file]).ok();
    gantry.cli(&["tool", "add", file]).ok();
    assert!(gantry.cli(&["tool", "list"]).ok().out().contains("demo.echo_sum"));
    let list = gantry.cli(&["tool", "list", "--json"]).ok().json();
    assert!(list["tools"].as_array().unwrap().iter().any(|t| t["tool_id"] == "demo.echo_sum"), "{list}");
    assert!(gantry.cli(&["tool", "show", "demo.echo_sum"]).ok().out().contains("1.0.0"));
    assert!(gantry.cli(&["tool", "search", "arithmetic"]).ok().out().contains("demo.echo_sum"));
    gantry.cli(&["tool", "deprecate", "demo.echo_sum@1.0.0", "--successor", "calculator"]).ok();
    assert!(gantry.cli(&["tool", "show", "demo.echo_sum"]).ok().out().contains("deprecated"));
    gantry.cli(&["tool", "remove", "demo.echo_sum", "--yes"]).ok();
    assert!(!gantry.cli(&["tool", "list"]).ok().out().contains("demo.echo_sum"));
}

#[tokio::test]
async fn wrong_names_get_the_nearest_and_exit_codes_tell_usage_from_failure() {
    let gantry = Gantry::start().await;
    let ran = gantry.cli(&["call", "calculater", "expression=1"]);
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("E3101") && ran.err().contains("did you mean `calculator`"), "{}", ran.err());
    let ran = gantry.cli(&["call", "calculator", "expresion=1"]);
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("expression"), "{}", ran.err());
    assert_eq!(gantry.cli(&["serv"]).code(), 2);
    assert_eq!(gantry.cli(&["tool", "show"]).code(), 2);
    let ran = gantry.cli(&["call", "calculator", "expression=1/0", "--json"]);
    assert_eq!(ran.code(), 1);
    assert_eq!(ran.json()["error"]["code"], "E3301");
}

#[tokio::test]
async fn options_that_would_do_nothing_are_refused_with_what_to_do() {
    let gantry = Gantry::start().await;
    for (line, says) in [
        (
            &["--server", "http://127.0.0.1:1", "audit", "verify"][..],
            "`--server` does nothing for `gantry audit verify`",
        ),
        (&["audit", "tail", "--token", "zz"], "`--token` does nothing for `gantry audit tail`"),
        (&["serve", "--ca", "ca.pem"], "`--ca` does nothing for `gantry serve`"),
        (&["call", "calculator", "expression=1", "--async", "--wait"], "cannot be used with"),
        (&["server", "add", "a1", "--sse", "--no-try", "--", "/bin/true"], "cannot be used with"),
        (&["server", "add", "a2", "--url", "http://127.0.0.1:9", "--no-inference", "--no-try"], "cannot be used with"),
        (
            &["server", "add", "a2", "--url", "http://127.0.0.1:9", "--no-package", "--no-try"],
            "`--no-package` does nothing",
        ),
        (
            &["server", "add", "a3", "--relay", "roots", "--no-relay", "roots", "--no-try", "--", "/bin/true"],
            "`roots` is named by",
        ),
    ] {
        let ran = gantry.cli(line);
        assert_eq!(ran.code(), 2, "{line:?}: {}", ran.err());
        assert!(ran.err().contains(says), "{line:?}: {}", ran.err());
    }
    // What stands in the environment is for the commands that need it.
    assert_eq!(gantry.cli(&["audit", "verify"]).code(), 0);
    let ran = gantry.cli(&["breakers", "open", "zork"]);
    assert_eq!(ran.code(), 1, "{}", ran.out());
    assert!(ran.err().contains("there is no breaker `zork`"), "{}", ran.err());
}

#[tokio::test]
async fn a_bad_manifest_is_refused_before_it_is_sent_with_every_reason() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("tool.json");
    std::fs::write(&file, manifest(json!({ "version": "one", "name": "x" })).to_string()).unwrap();
    let ran = run(gantry(&home.path().join("data")).args(["tool", "add"]).arg(&file));
    assert_eq!(ran.code(), 1);
    for part in ["/version", "/name"] {
        assert!(ran.err().contains(part), "{part}: {}", ran.err());
    }
}

#[tokio::test]
async fn read_only_commands_work_from_the_data_directory_alone() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    let started = Start::new().data(&data).run().await;
    started.register(manifest(json!({}))).await;
    assert!(started.stop().success());
    let ran = run(gantry(&data).args(["tool", "list", "--json"])).ok();
    assert!(ran.out().contains("demo.echo_sum"), "{}", ran.out());
    assert!(run(gantry(&data).args(["tool", "show", "demo.echo_sum"])).ok().out().contains("1.0.0"));
    assert!(run(gantry(&data).args(["tool", "search", "arithmetic"])).ok().out().contains("demo.echo_sum"));
}

#[tokio::test]
async fn a_minted_token_can_be_inspected_and_used() {
    let gantry = Gantry::start().await;
    let minted = gantry
        .cli(&["token", "mint", "--sub", "did:example:cli", "--tool", "calculator", "--ttl", "1h", "--json"])
        .ok()
        .json();
    let token = minted["token"].as_str().unwrap();
    let shown = gantry.cli(&["token", "inspect", token]).ok().out();
    assert!(shown.contains("did:example:cli") && shown.contains("calculator"), "{shown}");
    let ran = gantry.cli(&["call", "calculator", "expression=6*7", "--token", token]).ok();
    assert!(ran.out().contains("42"), "{}", ran.out());
    let ran = gantry.cli(&["call", "datetime", "operation=now", "--token", token]);
    assert_eq!(ran.code(), 1);
    assert!(ran.err().contains("E3204"), "{}", ran.err());
    // An unset variable in a script must not turn into the administrator.
    assert_eq!(gantry.cli(&["call", "calculator", "expression=1", "--token", ""]).code(), 2);
}

#[tokio::test]
async fn diff_tells_the_verdict_and_why() {
    let home = tempfile::tempdir().unwrap();
    let write = |name: &str, change: serde_json::Value| {
        let path = home.path().join(name);
        std::fs::write(&path, manifest(change).to_string()).unwrap();
        path
    };
    let old = write("old.json", json!({}));
    let new = write("new.json", json!({ "version": "2.0.0", "parameters": { "type": "object", "properties": {} } }));
    let ran = run(gantry(&home.path().join("data")).args(["tool", "diff"]).arg(&old).arg(&new)).ok();
    assert!(ran.out().contains("major") && ran.out().contains("expression"), "{}", ran.out());
}

#[tokio::test]
async fn doctor_reports_and_hides_secrets() {
    let started = Start::new().run().await;
    let ran = run(gantry(&started.data)
        .args(["doctor", "--settings"])
        .env("GANTRY_MODEL__API_KEY", "sk-very-secret")
        .env("GANTRY_MODEL__BASE_URL", "http://127.0.0.1:1"));
    assert!(!ran.out().contains("sk-very-secret") && !ran.err().contains("sk-very-secret"));
    assert!(ran.out().contains("GANTRY_MODEL__BASE_URL") || ran.out().contains("model"), "{}", ran.out());
    let json = started.cli(&["doctor", "--json"]);
    assert!(json.json().is_object());
}

#[tokio::test]
async fn doctor_says_first_how_things_are_and_what_to_do_about_each_that_is_not_well() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let plain = run(gantry(&data).args(["doctor"]));
    assert!(plain.out().contains("fix: chmod 700") && !plain.out().contains("SETTING"), "{}", plain.out());
    let with_settings = run(gantry(&data).args(["doctor", "--settings"]));
    let place =
        |word: &str| with_settings.out().find(word).unwrap_or_else(|| panic!("no `{word}`: {}", with_settings.out()));
    assert!(place("data directory") < place("SETTING"), "{}", with_settings.out());
    let report = run(gantry(&data).args(["doctor", "--json"])).json();
    for check in report["checks"].as_array().unwrap() {
        let troubled = ["warning", "failed"].contains(&check["status"].as_str().unwrap());
        assert_eq!(check["fix"].is_string(), troubled, "{check}");
    }
}

#[test]
fn help_and_completions_exist_for_every_command() {
    let home = tempfile::tempdir().unwrap();
    let data = home.path().join("data");
    for args in [
        vec!["--help"],
        vec!["serve", "--help"],
        vec!["call", "--help"],
        vec!["tool", "--help"],
        vec!["token", "mint", "--help"],
        vec!["completions", "bash"],
        vec!["completions", "zsh"],
        vec!["completions", "fish"],
        vec!["--version"],
    ] {
        assert!(!run(gantry(&data).args(&args)).ok().out().is_empty(), "{args:?}");
    }
}

/// A public key for notes: the one of the format's own documentation.
const KEY: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";

#[test]
fn a_pipe_or_device_in_place_of_a_file_is_refused_and_not_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let (data, pipe) = (home.path().join("data"), home.path().join("pipe.toml"));
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let pipe = pipe.to_str().unwrap();
    for (arguments, word) in [
        (&["doctor", "--config", pipe][..], "a pipe"),
        (&["serve", "--config", pipe], "a pipe"),
        (&["doctor", "--config", "/dev/zero"], "a device"),
        (&["import", "mcp", pipe, "--dry-run"], "a pipe"),
        (&["import", "mcp", "/dev/zero", "--dry-run"], "a device"),
        (&["tool", "add", pipe], "a pipe"),
        (&["token", "mint", "--sub", "x", "--token-file", pipe], "a pipe"),
        (&["restore", pipe], "a pipe"),
        (&["audit", "verify", "--checkpoint", pipe], "a pipe"),
        (&["audit", "verify", "--export", pipe], "a pipe"),
        (&["audit", "verify", "--export", pipe, "--against", pipe], "a pipe"),
        (&["audit", "verify", "--proof", pipe, "--key", KEY], "a pipe"),
        (&["call", "calculator", "--params", &format!("@{pipe}")], "a pipe"),
        (&["call", "calculator", "--params", "@/dev/zero"], "a device"),
        (&["mcp", "install", "--client", "claude", "--write", "--path", pipe], "a pipe"),
    ] {
        let said = home.path().join("said");
        let out = std::fs::File::create(&said).unwrap();
        let mut command = gantry(&data);
        command.args(arguments).stdout(out.try_clone().unwrap()).stderr(out);
        let mut child = Waiting(command.spawn().unwrap());
        let status = crate::support::wait_for("its end", || child.0.try_wait().unwrap());
        let said = std::fs::read_to_string(&said).unwrap();
        assert!(status.code() == Some(1) && said.contains(word), "{arguments:?}: {status} {said}");
    }
}

/// A command that is ended with its test.
struct Waiting(std::process::Child);

impl Drop for Waiting {
    fn drop(&mut self) {
        // Already gone is what is hoped for.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn parameters_are_still_read_from_standard_input() {
    let server = crate::support::Gantry::start().await;
    let mut command = gantry(&server.data);
    command.args(["call", "calculator", "--params", "-"]).stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), br#"{ "expression": "6*7" }"#).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("42"), "{output:?}");
}
