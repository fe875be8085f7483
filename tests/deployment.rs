//! The files in `deploy/`: what can be known of them without a cluster or a builder of images.
//!
//! Each is read by the linter of its kind, which `cargo xtask test` installs: the schemas of Kubernetes, the schema of
//! compose files, hadolint, and promtool.

use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::Method;

use crate::support::Start;

fn linters() -> PathBuf {
    test_servers::kit("linters").unwrap()
}

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

/// Runs a linter that is written in Python.
fn passes(program: &str, arguments: &[&str], file: &Path) {
    let mut command = Command::new("/usr/bin/python3");
    command.env("PYTHONPATH", linters()).arg(linters().join("bin").join(program)).args(arguments).arg(file);
    let output = command.output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {said}", file.display());
}

#[test]
fn every_manifest_is_what_kubernetes_expects() {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(deploy("kubernetes")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() > 5, "{files:?}");
    for file in files {
        passes("kubernetes-validate", &["--strict", "--quiet"], &file);
    }
}

#[test]
fn the_compose_file_is_what_compose_expects() {
    passes("check-jsonschema", &["--builtin-schema", "vendor.compose-spec"], &deploy("compose/compose.yml"));
}

#[test]
fn the_image_is_described_without_a_fault() {
    let output = Command::new(linters().join("bin/hadolint")).arg(deploy("container/Dockerfile")).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
}

#[tokio::test]
async fn what_prometheus_is_told_to_ask_with_opens_the_page_that_is_closed_to_everybody_else() {
    // Annotations name no token, and without one every scrape is 401.
    let pods = std::fs::read_to_string(deploy("kubernetes/stateful-set.yaml")).unwrap();
    assert!(!pods.contains("prometheus.io/"), "a scrape by annotations cannot work");
    let mut promtool = Command::new("promtool");
    let checked = promtool.args(["check", "config", "--syntax-only"]).arg(deploy("prometheus/scrape.yml")).output();
    let checked = checked.unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    let job = std::fs::read_to_string(deploy("prometheus/scrape.yml")).unwrap();
    assert!(job.contains("credentials_file:"), "{job}");
    // The command that its first lines name.
    let command = job.lines().find_map(|line| line.strip_prefix("#   gantry ")).unwrap();
    let words: Vec<&str> = command.split(' ').collect();
    let gantry = Start::new().env("GANTRY_SERVER__METRICS_PUBLIC", "false").run().await;
    let token = gantry.cli(&words).ok().out();
    assert_eq!(gantry.request(Method::GET, "/metrics", None, None).await.status, 401);
    let scraped = gantry.request(Method::GET, "/metrics", Some(token.trim()), None).await;
    assert_eq!(scraped.status, 200, "{}", scraped.text);
}

#[test]
fn a_linter_finds_what_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let wrong = folder.path().join("wrong.yaml");
    std::fs::write(&wrong, "apiVersion: v1\nkind: Service\nmetadata: { name: x }\nspec: { prots: [] }\n").unwrap();
    let mut command = Command::new("/usr/bin/python3");
    command.env("PYTHONPATH", linters()).arg(linters().join("bin/kubernetes-validate")).arg("--strict").arg(&wrong);
    assert!(!command.output().unwrap().status.success());
}
