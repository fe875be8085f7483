//! Servers whose packages are installed once, when they are added, and that start from there: `npx` with the machine's own npm,
//! `uvx` with its uv. The packages of these tests are files of the tests, so no registry is asked; the address of one leads
//! nowhere, so that whatever would ask it fails.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::peers::{PYTHON, kit};
use super::*;
use crate::support::{Ran, gantry, run};

/// What a package of npm consists of.
const PACKAGED: &str = include_str!("servers/packaged.js");
/// Nobody listens there.
const NOWHERE: &str = "http://127.0.0.1:9/";

/// A folder that npm takes for a package.
fn npm_package(harness: &McpHarness, folder: &str, package: &Value) -> String {
    let place = harness.file(folder);
    std::fs::create_dir_all(&place).unwrap();
    std::fs::write(place.join("server.js"), PACKAGED).unwrap();
    std::fs::write(place.join("package.json"), package.to_string()).unwrap();
    harness.path(folder)
}

/// A wheel, which is an archive with a list of what is in it.
fn wheel(harness: &McpHarness, version: &str) -> String {
    const MAKE: &str = "import sys, zipfile\n\
version, path, server = sys.argv[1:]\n\
about = f'packaged_python-{version}.dist-info'\n\
files = {'packaged_python.py': 'def main():\\n    import runpy, os\\n    runpy.run_path(os.path.join(os.path.dirname(__file__), \"packaged_server.py\"), run_name=\"__main__\")\\n',\n\
  'packaged_server.py': open(server).read(),\n\
  f'{about}/METADATA': f'Metadata-Version: 2.1\\nName: packaged-python\\nVersion: {version}\\n',\n\
  f'{about}/WHEEL': 'Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n',\n\
  f'{about}/entry_points.txt': '[console_scripts]\\npackaged-python = packaged_python:main\\nother = packaged_python:main\\n'}\n\
record = ''.join(f'{name},,\\n' for name in files) + f'{about}/RECORD,,\\n'\n\
archive = zipfile.ZipFile(path, 'w')\n\
[archive.writestr(name, text) for name, text in [*files.items(), (f'{about}/RECORD', record)]]\n\
archive.close()\n";
    std::fs::create_dir_all(harness.file("wheels")).unwrap();
    let path = harness.path(&format!("wheels/packaged_python-{version}-py3-none-any.whl"));
    run(Command::new(PYTHON).args(["-c", MAKE, version, &path, &harness.path("servers/plain.py")])).ok();
    path
}

/// A command with a home and tools of its own, and registries that are not there.
fn cli(harness: &McpHarness, args: &[&str]) -> Ran {
    let mut command = gantry(&harness.file("data"));
    let uv = kit("uv/bin");
    command.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", uv.display()));
    command.env("HOME", harness.file("home")).env("npm_config_registry", NOWHERE).env("npm_config_fetch_retries", "0");
    command.env("UV_DEFAULT_INDEX", NOWHERE).env("UV_HTTP_RETRIES", "0").env("UV_PYTHON_DOWNLOADS", "never");
    run(command.args(args))
}

async fn where_it_is(harness: &McpHarness, tool: &str) -> Value {
    let answer = harness.invoke(tool, json!({})).await;
    assert_eq!(answer.status, 200, "{}\n{}", answer.text, harness.gantry.log());
    let text = answer.body["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{}", answer.text));
    serde_json::from_str(text).unwrap()
}

fn plain_package(version: &str) -> Value {
    json!({ "name": "@tests/packaged", "version": version, "bin": "server.js" })
}

/// Whatever is left of installations that are not done.
fn unfinished(harness: &McpHarness) -> usize {
    let Ok(entries) = std::fs::read_dir(harness.file("data/packages")) else { return 0 };
    entries.filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with(".filling")).count()
}

#[tokio::test]
async fn a_package_of_npm_is_installed_once_and_started_from_there_without_a_registry() {
    let harness = McpHarness::open().await;
    let package = npm_package(&harness, "source", &plain_package("1.2.3"));
    let file = harness.file("mcp.json");
    let block = json!({ "mcpServers": { "kept": { "command": "npx", "args": ["-y", package, "--flag", "a b"], "env": { "REGION": "eu" } } } });
    std::fs::write(&file, block.to_string()).unwrap();

    let shown = cli(&harness, &["import", "mcp", file.to_str().unwrap(), "--dry-run", "--json"]).ok().json();
    assert_eq!(shown["servers"][0]["package"]["registry"], "npm", "{shown}");
    assert!(!harness.file("data/packages").try_exists().unwrap(), "a dry run installs nothing");

    let ran = cli(&harness, &["import", "mcp", file.to_str().unwrap(), "--yes", "--json"]);
    assert_eq!(ran.code(), 0, "{}{}\n{}", ran.out(), ran.err(), harness.gantry.log());
    let server = &ran.json()["servers"][0];
    let reach = &server["spec"]["reach"];
    assert_eq!(reach["package"]["version"], "1.2.3", "{server}");
    assert_eq!(reach["package"]["written"], json!(["npx", "-y", package]), "{server}");
    assert_eq!(reach["args"], json!(["--flag", "a b"]), "{server}");
    assert!(!server.to_string().contains("registry.npmjs.org"), "nothing is fetched when it starts: {server}");
    let seen = where_it_is(&harness, "kept.where").await;
    let expected = json!({ "version": "1.2.3", "args": ["--flag", "a b"], "folder": "/tool/node_modules/@tests/packaged",
        "written": "no", "region": "eu" });
    assert_eq!(seen, expected);
    assert_eq!(unfinished(&harness), 0);

    // What it was made from is of no use to it any more.
    std::fs::remove_dir_all(harness.file("source")).unwrap();
    harness.gantry.cli(&["server", "restart", "kept"]).ok();
    assert_eq!(where_it_is(&harness, "kept.where").await, expected);
    // Stopped because nobody used it, and wanted again.
    harness.gantry.cli(&["server", "edit", "kept", "--idle-stop", "1"]).ok();
    until("the server is stopped", async || {
        let listed = harness.gantry.get("/v1/servers").await;
        (listed.body["servers"][0]["status"]["state"] == "stopped").then_some(())
    })
    .await;
    assert_eq!(where_it_is(&harness, "kept.where").await, expected);
    let shown = harness.gantry.cli(&["server", "show", "kept"]).ok().out();
    assert!(shown.contains("@tests/packaged 1.2.3 (pinned, sha256:"), "{shown}");
    assert!(harness.gantry.cli(&["server", "list"]).ok().out().contains("npx @tests/packaged 1.2.3"));
}

#[tokio::test]
async fn a_package_of_pypi_is_installed_once_and_started_from_there_without_a_registry() {
    let harness = McpHarness::open().await;
    let first = wheel(&harness, "1.0");
    let ran = cli(&harness, &["server", "add", "kept", "--json", "--", "uvx", &first]);
    assert_eq!(ran.code(), 0, "{}{}\n{}", ran.out(), ran.err(), harness.gantry.log());
    let server = &ran.json()["servers"][0];
    assert_eq!(server["spec"]["reach"]["package"]["name"], "packaged-python", "{server}");
    assert_eq!(server["spec"]["reach"]["args"], json!(["/tool/bin/packaged-python"]), "{server}");
    std::fs::remove_dir_all(harness.file("wheels")).unwrap();
    harness.gantry.cli(&["server", "restart", "kept"]).ok();
    let answer = harness.invoke("kept.echo", json!({ "text": "hello" })).await;
    assert!(answer.status == 200 && answer.text.contains("hello"), "{}", answer.text);
    // Compiled when it was installed: what starts cannot write beside it.
    let compiled =
        run(Command::new("find").arg(harness.file("data/packages/pypi")).args(["-name", "packaged_server.*.pyc"]));
    assert_eq!(compiled.ok().out().lines().count(), 1);
    let other = wheel(&harness, "2.0");
    let named = cli(&harness, &["server", "add", "named", "--json", "--", "uvx", "--from", &other, "other"]);
    assert_eq!(named.code(), 0, "{}{}", named.out(), named.err());
    let wrong = cli(&harness, &["server", "add", "wrong", "--", "uvx", "--from", &other, "nothing"]);
    assert!(wrong.err().contains("has no command `nothing`") && wrong.err().contains("other"), "{}", wrong.err());
}

#[tokio::test]
async fn what_cannot_be_installed_is_said_and_leaves_nothing() {
    let harness = McpHarness::open().await;
    let library = npm_package(&harness, "library", &json!({ "name": "library", "version": "1.0.0" }));
    let many = npm_package(
        &harness,
        "many",
        &json!({ "name": "many", "version": "1.0.0", "bin": { "x": "server.js", "y": "other.js" } }),
    );
    std::fs::write(harness.file("many/other.js"), "").unwrap();
    for (command, words) in [
        (vec!["npx", "-y", "some-package"], "the npm registry cannot be reached"),
        (vec!["uvx", "some-package"], "the PyPI registry cannot be reached"),
        (vec!["npx", &library], "has no command: it is a library"),
        (vec!["npx", &many], "several commands, and none with its own name"),
        (vec!["npx", "-p", &many, "z"], "has no command `z`"),
    ] {
        let mut args = vec!["server", "add", "lost", "--"];
        args.extend(&command);
        let ran = cli(&harness, &args);
        assert_eq!(ran.code(), 1, "{command:?}: {}{}", ran.out(), ran.err());
        assert!(ran.err().contains(words), "{command:?}: {}{}", ran.out(), ran.err());
        assert_eq!(unfinished(&harness), 0, "{command:?}");
    }
    let named = cli(&harness, &["server", "add", "named", "--", "npx", "-p", &many, "x"]);
    assert_eq!(named.code(), 0, "{}{}", named.out(), named.err());
    let servers = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
    assert_eq!(servers["servers"].as_array().unwrap().len(), 1, "{servers}");
    let packages = cli(&harness, &["server", "packages", "--json"]).ok().json();
    assert_eq!(packages["packages"].as_array().unwrap().len(), 1, "{packages}");
    // Without npm there is nobody to install it, and without npx nobody to fetch it at each start either.
    let mut bare = gantry(&harness.file("data"));
    let ran = run(bare.env("PATH", harness.file("servers")).args(["server", "add", "lost", "--", "npx", "-y", "x"]));
    assert!(ran.err().contains("`npm` is not installed") && !ran.err().contains("--no-package"), "{}", ran.err());
}

#[tokio::test]
async fn install_scripts_run_only_if_that_is_said() {
    let harness = McpHarness::open().await;
    let mark = harness.path("state/mark");
    let mut package = plain_package("1.0.0");
    package["scripts"] = json!({ "install": format!("touch {mark}") });
    let package = npm_package(&harness, "source", &package);
    let ran = cli(&harness, &["server", "add", "kept", "--", "npx", &package]);
    assert_eq!(ran.code(), 0, "{}{}", ran.out(), ran.err());
    assert!(ran.err().contains("install scripts, which were not run"), "{}", ran.err());
    assert!(!Path::new(&mark).try_exists().unwrap());
    let ran = cli(&harness, &["server", "add", "kept", "--replace", "--allow-install-scripts", "--", "npx", &package]);
    assert_eq!(ran.code(), 0, "{}{}", ran.out(), ran.err());
    assert!(Path::new(&mark).try_exists().unwrap(), "{}", ran.err());
    let packages = cli(&harness, &["server", "packages", "--json"]).ok().json();
    let scripts = packages["packages"].as_array().unwrap().iter().map(|one| one["install_scripts"].clone());
    assert_eq!(scripts.collect::<Vec<_>>().len(), 2, "with scripts it is another one: {packages}");
}

#[tokio::test]
async fn an_update_is_pinned_anew_and_what_nobody_uses_is_taken_away() {
    let harness = McpHarness::open().await;
    let package = npm_package(&harness, "source", &plain_package("1.0.0"));
    let ran = cli(&harness, &["server", "add", "kept", "--env", "REGION=eu", "--", "npx", "-y", &package, "own"]);
    assert_eq!(ran.code(), 0, "{}{}", ran.out(), ran.err());
    npm_package(&harness, "source", &plain_package("2.0.0"));
    let ran = cli(&harness, &["server", "update", "kept", "--json"]);
    assert_eq!(ran.code(), 0, "{}{}", ran.out(), ran.err());
    let seen = where_it_is(&harness, "kept.where").await;
    assert_eq!((&seen["version"], &seen["args"], &seen["region"]), (&json!("2.0.0"), &json!(["own"]), &json!("eu")));
    // Its definition says another version now, so it waits for a person.
    let listed = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
    assert_eq!(listed["servers"][0]["tools"]["quarantined"], 1, "{listed}");
    assert_ne!(harness.invoke("kept.echo", json!({ "text": "x" })).await.status, 200);
    harness.gantry.cli(&["server", "accept", "kept", "echo"]).ok();
    assert_eq!(harness.invoke("kept.echo", json!({ "text": "x" })).await.status, 200);

    let before = cli(&harness, &["server", "packages", "--json"]).ok().json();
    assert_eq!(before["packages"].as_array().unwrap().len(), 2, "{before}");
    let pruned = cli(&harness, &["server", "packages", "--prune", "--json"]).ok().json();
    assert_eq!(
        (&pruned["removed"][0]["version"], &pruned["packages"][0]["servers"]),
        (&json!("1.0.0"), &json!(["kept"]))
    );
    harness.gantry.cli(&["server", "restart", "kept"]).ok();
    assert_eq!(where_it_is(&harness, "kept.where").await["version"], "2.0.0");
    assert_eq!(unfinished(&harness), 0);
    // A package that is gone is said to be, with what helps.
    std::fs::remove_dir_all(harness.file("data/packages/npm")).unwrap();
    harness.gantry.cli(&["server", "restart", "kept"]);
    let listed = harness.gantry.cli(&["server", "list", "--json"]).ok().json();
    assert!(listed.to_string().contains("@tests/packaged 2.0.0 is not installed here"), "{listed}");
}

#[tokio::test]
async fn two_who_add_the_same_package_at_once_get_the_same_one() {
    let harness = McpHarness::open().await;
    let package = npm_package(&harness, "source", &plain_package("1.0.0"));
    let servers: serde_json::Map<String, Value> =
        (0..4).map(|n| (format!("s{n}"), json!({ "command": "npx", "args": ["-y", package] }))).collect();
    let file = harness.file("mcp.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).unwrap();
    let ran = cli(&harness, &["import", "mcp", file.to_str().unwrap(), "--yes", "--json"]);
    assert_eq!(ran.code(), 0, "{}{}", ran.out(), ran.err());
    let packages = cli(&harness, &["server", "packages", "--json"]).ok().json();
    assert_eq!(packages["packages"].as_array().unwrap().len(), 1, "{packages}");
    assert_eq!(packages["packages"][0]["servers"].as_array().unwrap().len(), 4, "{packages}");
    assert_eq!(unfinished(&harness), 0);
}

#[tokio::test]
async fn what_requirements_of_a_tool_name_is_installed_into_its_folder_for_the_python_of_the_sandbox() {
    let harness = McpHarness::open().await;
    let wheel = wheel(&harness, "1.0");
    let folder = harness.file("made/from_wheel");
    let (made, path) = (harness.path("made"), harness.path("made/from_wheel"));
    cli(&harness, &["tool", "new", "demo.from_wheel", "--dir", &made]).ok();
    let program =
        "import json, sys\nimport packaged_python\nprint(json.dumps({'greeting': packaged_python.__file__}))\n";
    std::fs::write(folder.join("main.py"), program).unwrap();
    std::fs::write(folder.join("requirements.txt"), format!("packaged-python @ file://{wheel}\n")).unwrap();
    let built = cli(&harness, &["tool", "build", &path, "--json"]);
    assert_eq!(built.code(), 0, "{}{}", built.out(), built.err());
    assert!(built.json()["digest"].as_str().unwrap().starts_with("sha256:"), "{}", built.out());
    let lock = std::fs::read_to_string(folder.join("gantry-packages/requirements.lock")).unwrap();
    assert!(lock.contains("--hash=sha256:"), "{lock}");
    std::fs::remove_dir_all(harness.file("wheels")).unwrap();
    let added = cli(&harness, &["tool", "add", &path]).ok();
    assert!(!added.err().contains("tool build"), "{}", added.err());
    let answer = harness.invoke("demo.from_wheel", json!({ "name": "x" })).await;
    let file = "/tool/gantry-packages/python/packaged_python.py";
    assert_eq!(answer.body["result"]["greeting"], file, "{}", answer.text);
    // What is not there is named, and nothing counts as built any more.
    std::fs::write(folder.join("requirements.txt"), "no-such-package==1\n").unwrap();
    let failed = cli(&harness, &["tool", "build", &path]);
    assert!(failed.code() == 1 && failed.err().contains("PyPI"), "{}", failed.err());
    assert!(!folder.join("gantry-packages/gantry-packages.json").try_exists().unwrap());
}
