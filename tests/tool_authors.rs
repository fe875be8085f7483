//! What the author of a tool has: the logs of its calls, a server for the time of writing, packages, templates.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Drain, Gantry, Start, gantry, manifest, open_to_all, run, wait_for};

/// A folder with a program in Python.
#[expect(clippy::needless_pass_by_value, reason = "reads better at its many callers")]
fn tool(home: &Path, id: &str, change: Value, program: &str) -> PathBuf {
    let folder = home.join("tools").join(id);
    std::fs::create_dir_all(&folder).unwrap();
    let mut written = manifest(json!({ "tool_id": id, "parameters": { "type": "object" },
        "result_schema": { "type": "object" }, "execution": { "type": "process", "command": ["python3", "main.py"] } }));
    written.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
    std::fs::write(folder.join("tool.json"), written.to_string()).unwrap();
    std::fs::write(folder.join("main.py"), program).unwrap();
    open_to_all(home);
    folder
}

async fn serve(home: &Path) -> Gantry {
    Start::new().arg("--tools").arg(home.join("tools").to_str().unwrap()).run().await
}

#[tokio::test]
async fn what_a_tool_wrote_is_read_by_its_administrators_without_its_secrets() {
    let home = tempfile::tempdir().unwrap();
    tool(
        home.path(),
        "talker",
        json!({}),
        "import json, sys\n\
         given = json.load(sys.stdin)\n\
         print('looking at', given.get('what'), file=sys.stderr)\n\
         print('password=Zq81-kd93-hunter', file=sys.stderr)\n\
         sys.exit(3) if given.get('fail') else print('{}')\n",
    );
    let started = serve(home.path()).await;
    assert_eq!(started.invoke("demo.talker", json!({ "what": "first" })).await.status, 200);
    let failed = started.invoke("demo.talker", json!({ "what": "second", "fail": true })).await;
    assert_eq!(failed.refusal().1, "E3401", "{}", failed.text);
    assert!(failed.text.contains("gantry tool logs"), "{}", failed.text);

    let answer = started.get("/v1/tools/demo.talker/logs").await;
    assert_eq!(answer.status, 200, "{}", answer.text);
    let calls = answer.body["calls"].as_array().unwrap();
    assert_eq!(calls.len(), 2, "{}", answer.text);
    assert_eq!((&calls[0]["exit_code"], &calls[0]["code"]), (&json!(0), &Value::Null));
    assert_eq!((&calls[1]["exit_code"], &calls[1]["code"]), (&json!(3), &json!("E3401")));
    assert!(calls[0]["stderr"].as_str().unwrap().starts_with("looking at first\n"), "{}", answer.text);
    assert!(!answer.text.contains("Zq81-kd93"), "{}", answer.text);
    let last = started.get("/v1/tools/demo.talker/logs?limit=1").await;
    assert!(last.body["calls"].as_array().unwrap().len() == 1 && last.text.contains("second"), "{}", last.text);
    assert_eq!(started.get("/v1/tools/demo.talker/logs?limit=51").await.refusal(), (400, "E3004"));
    assert_eq!(started.get("/v1/tools/demo.nothing/logs").await.refusal(), (404, "E3101"));

    let shown = started.cli(&["tool", "logs", "demo.talker"]).ok().out();
    assert!(shown.contains("│ looking at first") && shown.contains("E3401  exit code 3"), "{shown}");
    let document = started.cli(&["tool", "logs", "demo.talker", "--limit", "1", "--json"]).ok().json();
    assert_eq!(document["calls"][0]["stderr"], calls[1]["stderr"]);
}

#[tokio::test]
async fn no_other_tenant_reads_what_a_call_wrote_and_no_agent_does() {
    let home = tempfile::tempdir().unwrap();
    let program = "import json, sys\nprint('of', json.load(sys.stdin).get('who'), file=sys.stderr)\nprint('{}')\n";
    tool(home.path(), "shared", json!({}), program);
    let started = serve(home.path()).await;
    let agent = started.mint(json!({})).await;
    let call = json!({ "tool_id": "demo.shared", "parameters": { "who": "acme" } });
    let called = started.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(call)).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert_eq!(started.invoke("demo.shared", json!({ "who": "home" })).await.status, 200);

    let path = "/v1/tools/demo.shared/logs";
    let own = started.get(path).await;
    assert!(own.text.contains("of home") && !own.text.contains("of acme"), "{}", own.text);
    let foreign = started.mint(json!({ "roles": ["admin"] })).await;
    let foreign = started.request(Method::GET, path, Some(&foreign), None).await;
    // Not an empty list, which would say that nobody called.
    assert_eq!(foreign.refusal(), (403, "E3206"), "{}", foreign.text);
    for role in ["agent", "tool_author", "auditor"] {
        let token = started.mint(json!({ "roles": [role], "tenant": "local" })).await;
        let answer = started.request(Method::GET, path, Some(&token), None).await;
        assert_eq!(answer.refusal(), (403, "E3206"), "{role}");
    }
}

#[tokio::test]
async fn where_a_policy_masks_what_a_tool_says_nothing_of_its_log_is_kept_or_shown() {
    let home = tempfile::tempdir().unwrap();
    let program = "import sys\nprint('mail of ada', file=sys.stderr)\nprint('{}')\n";
    tool(home.path(), "masked", json!({}), program);
    let started = serve(home.path()).await;
    let path = "/v1/tools/demo.masked/logs";
    let masked = |agent: &str| {
        json!({ "activations": [{ "tenant": "local", "agent_id": agent, "tool_id": "demo.masked",
            "policy_overrides": { "redact": ["mail"] } }] })
    };
    let put = async |body: Value| {
        let answer = started.request(Method::PUT, "/v1/activations", Some(&started.token), Some(body)).await;
        assert_eq!(answer.status, 200, "{}", answer.text);
    };
    // Of a call under a mask.
    put(masked("bob")).await;
    let bob = started.mint(json!({ "sub": "bob", "tenant": "local" })).await;
    let call = json!({ "tool_id": "demo.masked", "parameters": {} });
    let called = started.request(Method::POST, "/v1/tools/invoke", Some(&bob), Some(call)).await;
    assert_eq!(called.status, 200, "{}", called.text);
    assert_eq!(started.invoke("demo.masked", json!({})).await.status, 200);
    let seen = started.get(path).await;
    let stderr: Vec<&Value> = seen.body["calls"].as_array().unwrap().iter().map(|call| &call["stderr"]).collect();
    assert_eq!(stderr, [&Value::Null, &json!("mail of ada\n")], "{}", seen.text);
    // For a reader under a mask.
    let operator = started.mint(json!({ "sub": "olga", "roles": ["operator"], "tenant": "local" })).await;
    let open = started.request(Method::GET, path, Some(&operator), None).await;
    assert!(open.text.contains("mail of ada"), "{}", open.text);
    put(masked("olga")).await;
    let hidden = started.request(Method::GET, path, Some(&operator), None).await;
    assert!(hidden.status == 200 && !hidden.text.contains("mail of ada"), "{}", hidden.text);
}

#[tokio::test]
async fn a_tool_that_runs_out_of_time_leaves_its_last_words() {
    let home = tempfile::tempdir().unwrap();
    let program = "import sys, time\nprint('waiting for ever', file=sys.stderr, flush=True)\ntime.sleep(600)\n";
    tool(home.path(), "slow", json!({}), program);
    let started = serve(home.path()).await;
    let call = json!({ "tool_id": "demo.slow", "parameters": {}, "resource_limits": { "timeout_seconds": 2 } });
    assert_eq!(started.post("/v1/tools/invoke", call).await.refusal(), (504, "E3402"));
    let answer = started.get("/v1/tools/demo.slow/logs").await;
    assert_eq!(answer.body["calls"][0]["code"], "E3402", "{}", answer.text);
    assert_eq!(answer.body["calls"][0]["stderr"], "waiting for ever\n", "{}", answer.text);
}

#[tokio::test]
async fn a_stray_print_is_told_by_its_line_to_everybody_and_shown_to_those_who_may_see_it() {
    let home = tempfile::tempdir().unwrap();
    tool(home.path(), "chatty", json!({}), "print('loading the private model')\nprint('{}')\n");
    let session =
        json!({ "execution": { "type": "process", "command": ["python3", "main.py"], "protocol": "gantry/1" } });
    tool(home.path(), "session", session, "print('hello from a session', flush=True)\nimport sys\nsys.stdin.read()\n");
    let started = serve(home.path()).await;
    let failed = started.invoke("demo.chatty", json!({})).await;
    assert_eq!(failed.refusal().1, "E3401");
    assert!(failed.body["error"]["resolution"].as_str().unwrap().contains("line 1 of stdout"), "{}", failed.text);
    assert!(
        failed.body["output"].as_str().unwrap().contains("line 1, not part of the result] loading the private"),
        "{}",
        failed.text
    );
    let agent = started.mint(json!({ "tenant": "local" })).await;
    let call = json!({ "tool_id": "demo.chatty", "parameters": {} });
    let told = started.request(Method::POST, "/v1/tools/invoke", Some(&agent), Some(call)).await;
    assert!(told.text.contains("line 1 of stdout") && !told.text.contains("private model"), "{}", told.text);
    let logs = started.get("/v1/tools/demo.chatty/logs").await;
    assert!(logs.text.contains("loading the private model"), "{}", logs.text);
    assert_eq!(started.invoke("demo.session", json!({})).await.refusal().1, "E3401");
    let logs = started.get("/v1/tools/demo.session/logs").await;
    assert!(logs.text.contains("not part of the result] hello from a session"), "{}", logs.text);
}

// -------------------------------------------------------------------------------------------------------------- dev

/// `gantry tool dev` on a folder. Ended when dropped.
struct Development {
    child: Child,
    out: Drain,
    err: Drain,
    data: PathBuf,
    url: String,
}

impl Development {
    fn start(home: &Path, folder: &Path) -> Self {
        let mut command = gantry(&home.join("data"));
        command.args(["tool", "dev", "--json"]).arg(folder);
        // What is set for other servers is not for this one.
        command.env("GANTRY_STORE__URL", "postgres://nobody@127.0.0.1:1/none").env("TMPDIR", home);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (out, err) = (Drain::of(child.stdout.take().unwrap()), Drain::of(child.stderr.take().unwrap()));
        let greeting = wait_for("the development server", || {
            if let Some(status) = child.try_wait().unwrap() {
                panic!("it ended with {status}: {}", err.text());
            }
            serde_json::from_str::<Value>(out.text().lines().next()?).ok()
        });
        let text = |name: &str| greeting[name].as_str().unwrap().to_owned();
        Self { data: text("data_dir").into(), url: text("url"), child, out, err }
    }

    fn call(&self, tool: &str) -> crate::support::Ran {
        run(gantry(&self.data).args(["call", "--json", tool, "--params", "{}"]))
    }

    /// The calls that were shown.
    fn shown(&self) -> Vec<Value> {
        self.out.text().lines().skip(1).filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

impl Drop for Development {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[tokio::test]
async fn what_an_author_saves_is_used_by_the_next_call_without_a_new_version() {
    let home = tempfile::tempdir().unwrap();
    let program =
        |word: &str| format!("import sys\nprint('{word} ran', file=sys.stderr)\nprint('{{\"said\": \"{word}\"}}')\n");
    let folder = tool(home.path(), "greeter", json!({}), &program("one"));
    let mut dev = Development::start(home.path(), &folder);
    assert!(dev.url.starts_with("http://127.0.0.1:"), "{}", dev.url);
    assert_eq!(dev.call("demo.greeter").ok().json()["result"]["said"], "one");
    std::fs::write(folder.join("main.py"), program("two")).unwrap();
    assert_eq!(dev.call("demo.greeter").ok().json()["result"]["said"], "two");
    // Another manifest under the same version takes the place of the former.
    let text = std::fs::read_to_string(folder.join("tool.json")).unwrap();
    std::fs::write(folder.join("tool.json"), text.replace("main.py", "other.py").replace("Echo sum", "Renamed"))
        .unwrap();
    std::fs::write(folder.join("other.py"), program("three")).unwrap();
    let third = wait_for("the changed manifest", || {
        let ran = dev.call("demo.greeter");
        (ran.code() == 0).then(|| ran.json()).filter(|answer| answer["result"]["said"] == "three")
    });
    assert_eq!(third["tool_version"], "1.0.0");
    let told = run(gantry(&dev.data).args(["tool", "show", "demo.greeter", "--json"])).ok().json();
    assert_eq!(told["manifest"]["name"], "Renamed");
    // Each call was shown with what it wrote.
    let lines = wait_for("the calls on stdout", || {
        let lines = dev.shown();
        lines.iter().any(|line| line["stderr"] == "three ran\n").then_some(lines)
    });
    assert_eq!(lines[0]["stderr"], "one ran\n", "{lines:?}");
    assert_eq!((&lines[1]["stderr"], &lines[1]["tool_id"]), (&json!("two ran\n"), &json!("demo.greeter")));
    // A broken manifest is told, and mending it goes on.
    std::fs::write(folder.join("tool.json"), "{").unwrap();
    wait_for("the word about the broken manifest", || dev.err.text().contains("is not admitted").then_some(()));
    // It ends in order and leaves nothing.
    let ended = Command::new("kill").args(["-TERM", &dev.child.id().to_string()]).status().unwrap();
    assert!(ended.success());
    let status = wait_for("its end", || dev.child.try_wait().unwrap());
    assert!(status.success(), "{}", dev.err.text());
    assert!(!dev.data.try_exists().unwrap());
}

#[tokio::test]
async fn on_an_ordinary_server_other_content_of_a_version_stays_refused() {
    let home = tempfile::tempdir().unwrap();
    let folder = tool(home.path(), "fixed", json!({}), "print('{}')\n");
    let started = serve(home.path()).await;
    let mut other: Value = serde_json::from_str(&std::fs::read_to_string(folder.join("tool.json")).unwrap()).unwrap();
    other["name"] = json!("Another name");
    assert_eq!(started.register(other.clone()).await.refusal(), (409, "E3103"));
    std::fs::write(folder.join("tool.json"), other.to_string()).unwrap();
    wait_for("the warning", || started.log().contains("is raised").then_some(()));
    assert_eq!(started.invoke("demo.fixed", json!({})).await.refusal().1, "E3108");
    assert_eq!(started.get("/v1/tools/demo.fixed").await.body["manifest"]["name"], "Echo sum");
}

#[test]
fn a_development_server_is_for_this_machine_and_for_a_folder_with_a_program() {
    let home = tempfile::tempdir().unwrap();
    let folder = tool(home.path(), "x", json!({}), "print('{}')\n");
    let dev = |arguments: &[&str]| run(gantry(&home.path().join("data")).args(["tool", "dev"]).args(arguments));
    let refused = dev(&[folder.to_str().unwrap(), "--listen", "0.0.0.0:0"]);
    assert!(refused.code() == 2 && refused.err().contains("127.0.0.1"), "{}", refused.err());
    assert_eq!(dev(&[home.path().join("nothing").to_str().unwrap()]).code(), 1);
    let nothing_runs = manifest(json!({})).to_string();
    std::fs::write(folder.join("tool.json"), nothing_runs).unwrap();
    let refused = dev(&[folder.to_str().unwrap()]);
    assert!(refused.code() == 2 && refused.err().contains("tool new"), "{}", refused.err());
}

// ----------------------------------------------------------------------------------------------------------- packages

/// A package of npm that stands on this machine, so that no registry is asked.
fn local_package(home: &Path, name: &str, script: Option<&str>) -> PathBuf {
    let folder = home.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let mut about = json!({ "name": name, "version": "1.0.0", "main": "index.js" });
    if let Some(script) = script {
        about["scripts"] = json!({ "postinstall": script });
    }
    std::fs::write(folder.join("package.json"), about.to_string()).unwrap();
    std::fs::write(folder.join("index.js"), "module.exports = () => 'from the package';\n").unwrap();
    folder
}

/// `gantry` with npm and a home of its own, and a registry that is not there.
fn author(home: &Path, arguments: &[&str]) -> crate::support::Ran {
    let mut command = gantry(&home.join("data"));
    command.env("HOME", home).env("npm_config_registry", "http://127.0.0.1:9/").env("npm_config_fetch_retries", "0");
    run(command.args(arguments))
}

fn node_tool(home: &Path, dependencies: &Value) -> PathBuf {
    let execution = json!({ "execution": { "type": "process", "command": ["node", "main.js"] } });
    let folder = tool(home, "packaged", execution, "");
    std::fs::write(folder.join("main.js"), "process.stdout.write(JSON.stringify({ said: require('left')() }));\n")
        .unwrap();
    let about = json!({ "private": true, "dependencies": dependencies });
    std::fs::write(folder.join("package.json"), about.to_string()).unwrap();
    folder
}

#[tokio::test]
async fn packages_of_a_folder_are_installed_once_into_it_and_come_with_it() {
    let home = tempfile::tempdir().unwrap();
    let marker = home.path().join("ran");
    let left = local_package(home.path(), "left", Some(&format!("touch {}", marker.display())));
    let folder = node_tool(home.path(), &json!({ "left": format!("file:{}", left.display()) }));
    let path = folder.to_str().unwrap();
    let started = Start::new().data(&home.path().join("data")).run().await;

    // What is not built says so, with the command.
    let added = author(home.path(), &["tool", "add", path]).ok();
    assert!(added.err().contains(&format!("`gantry tool build {path}`")), "{}", added.err());
    assert_eq!(started.invoke("demo.packaged", json!({})).await.refusal().1, "E3401");

    let built = author(home.path(), &["tool", "build", path, "--json"]);
    assert_eq!(built.code(), 0, "{}{}", built.out(), built.err());
    assert!(built.json()["digest"].as_str().unwrap().starts_with("sha256:"), "{}", built.out());
    assert!(built.err().contains("`left` has install scripts, which were not run"), "{}", built.err());
    assert!(!marker.try_exists().unwrap(), "a stranger's script ran outside of every sandbox");
    assert!(folder.join("package-lock.json").try_exists().unwrap());
    std::fs::remove_dir_all(&left).unwrap();

    // Another version with the same files, and the packages with them.
    let text = std::fs::read_to_string(folder.join("tool.json")).unwrap();
    std::fs::write(folder.join("tool.json"), text.replace("1.0.0", "1.0.1")).unwrap();
    let added = author(home.path(), &["tool", "add", path]).ok();
    assert!(!added.err().contains("tool build"), "{}", added.err());
    let answer = started.invoke("demo.packaged", json!({})).await;
    assert_eq!(answer.body["result"]["said"], "from the package", "{}", answer.text);

    // The same again is the same; other names want another build.
    let changed = json!({ "private": true, "dependencies": { "left": "1.0.0", "right": "1.0.0" } });
    std::fs::write(folder.join("package.json"), changed.to_string()).unwrap();
    let failed = author(home.path(), &["tool", "build", path]);
    assert!(failed.code() == 1 && failed.err().contains("npm registry"), "{}", failed.err());
    std::fs::write(folder.join("tool.json"), text.replace("1.0.0", "1.0.2")).unwrap();
    assert!(author(home.path(), &["tool", "add", path]).ok().err().contains("tool build"));
}

#[test]
fn install_scripts_run_only_where_the_author_allows_them_and_a_folder_without_packages_needs_no_build() {
    let home = tempfile::tempdir().unwrap();
    let marker = home.path().join("ran");
    let left = local_package(home.path(), "left", Some(&format!("touch {}", marker.display())));
    let folder = node_tool(home.path(), &json!({ "left": format!("file:{}", left.display()) }));
    let path = folder.to_str().unwrap();
    let first = author(home.path(), &["tool", "build", path, "--json"]).ok().json();
    let second = author(home.path(), &["tool", "build", path, "--json"]).ok().json();
    assert_eq!(first["digest"], second["digest"]);
    let allowed = author(home.path(), &["tool", "build", path, "--allow-install-scripts", "--json"]).ok().json();
    assert!(marker.try_exists().unwrap() && allowed["digest"] != first["digest"], "{allowed}");
    let plain = tool(home.path(), "plain", json!({}), "print('{}')\n");
    let nothing = author(home.path(), &["tool", "build", plain.to_str().unwrap(), "--json"]).ok().json();
    assert_eq!(nothing["built"], false);
}

// ---------------------------------------------------------------------------------------------------------- templates

#[tokio::test]
async fn every_template_runs_as_it_is_made_or_says_what_is_missing() {
    let home = tempfile::tempdir().unwrap();
    let started = Start::new().data(&home.path().join("data")).run().await;
    let made = home.path().join("made");
    for template in ["python", "node", "typescript", "bash", "session", "rust", "http"] {
        let id = format!("demo.from_{template}");
        let folder = made.join(format!("from_{template}"));
        let new = author(home.path(), &["tool", "new", &id, "--template", template, "--dir", made.to_str().unwrap()]);
        let path = folder.to_str().unwrap();
        match template {
            "http" => {
                assert!(new.code() == 2 && new.err().contains("--template python"), "{}", new.err());
                assert!(!folder.try_exists().unwrap());
                continue;
            }
            "typescript" if new.code() != 0 => {
                // This machine's Node.js is too old, which is the only reason there may be.
                let version = run(Command::new("/usr/bin/env").args(["node", "--version"])).ok().out();
                assert!(new.err().contains(version.trim()) && new.err().contains("22.18"), "{}", new.err());
                continue;
            }
            _ => assert_eq!(new.code(), 0, "{}", new.err()),
        }
        if template == "rust" {
            let unbuilt = author(home.path(), &["tool", "add", path]);
            assert!(unbuilt.code() == 1 && unbuilt.err().contains("build.sh"), "{}", unbuilt.err());
            let built =
                run(Command::new(folder.join("build.sh")).env("HOME", std::env::var("HOME").unwrap_or_default()));
            if built.code() != 0 {
                assert!(built.err().contains("rustup target add wasm32-wasip2"), "{}", built.err());
                continue;
            }
        }
        author(home.path(), &["tool", "add", path]).ok();
        let answer = started.invoke_to_the_end(&id, json!({ "name": "Ada" })).await;
        assert_eq!(answer.body["result"]["greeting"], "Hello, Ada!", "{template}: {}", answer.text);
    }
}
