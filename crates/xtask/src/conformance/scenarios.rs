//! The suites' own programs: which scenarios there are, and what the checks of one say.
//!
//! A scenario that exists in the time of sessions and in the newest revision is run in both. What the suite found is read
//! from the files it writes, not from what it prints.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use tokio::process::Command;

use super::Side;
use super::gateway::{ADMIN_VARIABLE, AGENT_VARIABLE, GatewayServer, URL_VARIABLE};
use crate::services::peers;

/// The newest revision with sessions, and the newest of all; older ones are part of the former.
const REVISIONS: [&str; 2] = ["2025-11-25", "2026-07-28"];
/// A scenario that takes longer hangs; the suites give up after half of it.
const SCENARIO_TIME_MAX: Duration = Duration::from_secs(90);
/// The same for all scenarios of a version.
const SUITE_TIME_MAX: Duration = Duration::from_secs(600);
const SUITE_TIMEOUT_MS: &str = "40000";

/// One scenario at one revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Scenario {
    pub(super) name: String,
    pub(super) side: Side,
    /// Of the suite.
    pub(super) version: &'static str,
    /// Of the protocol; `extension` and `draft` are words of the suite.
    pub(super) revision: String,
    /// In the suite's own list.
    #[serde(skip)]
    pub(super) place: usize,
}

/// What the suite says about one thing.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct Check {
    pub(super) id: String,
    pub(super) status: Status,
    #[serde(default, rename = "errorMessage")]
    pub(super) error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Status {
    Success,
    Failure,
    Warning,
    Skipped,
    Info,
}

impl Scenario {
    /// Side, version and revision first, then as the suite lists them.
    pub(super) fn order(&self) -> (bool, &'static str, String, usize) {
        (self.side == Side::Client, self.version, self.revision.clone(), self.place)
    }
}

/// Every scenario of a version, at every revision it is run at.
pub(super) fn list(version: &'static str) -> Result<Vec<Scenario>> {
    let output = std::process::Command::new(peers::node()?)
        .arg(peers::suite(version)?)
        .arg("list")
        .output()
        .context("cannot start the suite")?;
    ensure!(output.status.success(), "the suite {version} cannot list its scenarios");
    let found = parsed(&String::from_utf8_lossy(&output.stdout), version);
    ensure!(!found.is_empty(), "the suite {version} lists no scenario that can be understood");
    Ok(found)
}

/// Lines such as `  - ping [2025-06-18,2025-11-25]` under headings such as `Server scenarios (…):`.
fn parsed(text: &str, version: &'static str) -> Vec<Scenario> {
    let (mut found, mut side) = (Vec::new(), None);
    for line in text.lines() {
        if line.contains("scenarios (") {
            side = [("Server", Side::Server), ("Client", Side::Client)]
                .into_iter()
                .find_map(|(word, side)| line.starts_with(word).then_some(side));
        }
        let listed = line.trim().strip_prefix("- ").and_then(|rest| rest.strip_suffix(']')?.split_once(" ["));
        if let (Some(side), Some((name, revisions))) = (side, listed) {
            let known: Vec<&str> =
                REVISIONS.into_iter().filter(|known| revisions.split(',').any(|it| it == *known)).collect();
            let at = if known.is_empty() { revisions.split(',').next_back().into_iter().collect() } else { known };
            for revision in at {
                let place = found.len();
                found.push(Scenario { name: name.to_owned(), side, version, revision: revision.to_owned(), place });
            }
        }
    }
    found
}

/// The suite as client of the gateway: scenarios of one version and revision in one run, because starting Node costs more
/// than most scenarios.
pub(super) async fn run_servers(group: &[Scenario], url: &str, output: &Path) -> Result<Vec<Vec<Check>>> {
    let Some(first) = group.first() else { return Ok(Vec::new()) };
    let output = output.join(format!("server-{}-{}", first.version, first.revision));
    let mut command = suite(first, &output)?;
    command.args(["--url", url]);
    match group {
        [single] => command.args(["--scenario", &single.name]),
        _ => command.args(["--suite", "all"]),
    };
    let said = ran(command, SUITE_TIME_MAX).await?;
    group.iter().map(|scenario| checks(&output, &format!("server-{}", scenario.name), &said)).collect()
}

/// The suite as server, with the driver as its client.
pub(super) async fn run_client(scenario: &Scenario, gateway: &GatewayServer, output: &Path) -> Result<Vec<Check>> {
    let program = std::env::current_exe().context("this program does not know where it is")?;
    let output = output.join(format!("client-{}-{}", scenario.version, scenario.revision));
    let mut command = suite(scenario, &output)?;
    command.args(["--scenario", &scenario.name, "--timeout", SUITE_TIMEOUT_MS, "--command"]);
    command.arg(format!("{} conformance-client", program.display()));
    command.env(URL_VARIABLE, &gateway.rest.url).env(ADMIN_VARIABLE, &gateway.rest.admin);
    command.env(AGENT_VARIABLE, &gateway.agent);
    let said = ran(command, SCENARIO_TIME_MAX).await?;
    checks(&output, &scenario.name, &said)
}

fn suite(scenario: &Scenario, output: &Path) -> Result<Command> {
    let mut command = Command::new(peers::node()?);
    command.arg(peers::suite(scenario.version)?);
    command.arg(match scenario.side {
        Side::Server => "server",
        Side::Client => "client",
    });
    command.arg("--output-dir").arg(output);
    // Only the later suite acts by the revision it is told, and only by one on the calendar.
    if scenario.version != super::VERSIONS[0] && scenario.revision.starts_with("20") {
        command.args(["--spec-version", &scenario.revision]);
    }
    Ok(command)
}

/// Runs the suite and returns what it said.
async fn ran(mut command: Command, time_max: Duration) -> Result<String> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn();
    let ran = child.context("cannot start the suite")?.wait_with_output();
    Ok(match tokio::time::timeout(time_max, ran).await {
        Ok(ran) => {
            let ran = ran.context("cannot wait for the suite")?;
            format!("{}{}", String::from_utf8_lossy(&ran.stderr), String::from_utf8_lossy(&ran.stdout))
        }
        Err(_) => format!("not done after {} s", time_max.as_secs()),
    })
}

/// What was written for a scenario: into a folder with its name and the time.
fn checks(output: &Path, name: &str, said: &str) -> Result<Vec<Check>> {
    let place = output.join(format!("{name}-20"));
    let (parent, beginning) = (place.parent().unwrap_or(output), place.file_name().unwrap_or_default());
    let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
    let mut written: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&*beginning.to_string_lossy()))
        .map(|entry| entry.path().join("checks.json"))
        .filter(|file| file.is_file())
        .collect();
    written.sort();
    let Some(file) = written.first() else {
        let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("nothing").to_owned();
        let error = Some(format!("no result was written; the suite said: {last}"));
        return Ok(vec![Check { id: "result".into(), status: Status::Failure, error }]);
    };
    let text = std::fs::read(file).context("cannot read the suite's result")?;
    serde_json::from_slice(&text).context("the suite's result cannot be understood")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenarios_are_read_with_their_side_and_run_at_every_era_they_have() {
        let text = "Server scenarios (test against a server):\n  - ping [2025-06-18,2025-11-25]\n\
            - tools-list [2025-06-18,2025-11-25,2026-07-28]\n  - tasks-lifecycle [extension]\n\n\
            Client scenarios (test against a client):\n  - auth/basic-cimd [2025-03-26]\n\n\
            Authorization server scenarios (test against an authorization server):\n  - grant [2025-11-25]\n";
        let found: Vec<String> =
            parsed(text, "1").iter().map(|it| format!("{:?} {} {}", it.side, it.name, it.revision)).collect();
        assert_eq!(
            found,
            [
                "Server ping 2025-11-25",
                "Server tools-list 2025-11-25",
                "Server tools-list 2026-07-28",
                "Server tasks-lifecycle extension",
                "Client auth/basic-cimd 2025-03-26",
            ]
        );
    }

    #[test]
    fn checks_are_read_as_the_suites_write_them() {
        let text = r#"[{"id":"a","name":"A","status":"SUCCESS","timestamp":"x"},{"id":"b","status":"FAILURE","errorMessage":"no"},
            {"id":"c","status":"WARNING"},{"id":"d","status":"SKIPPED"},{"id":"e","status":"INFO","details":{}}]"#;
        let checks: Vec<Check> = serde_json::from_str(text).unwrap();
        assert_eq!(checks.len(), 5);
        assert_eq!(checks[1], Check { id: "b".into(), status: Status::Failure, error: Some("no".into()) });
    }

    #[test]
    fn results_are_found_by_the_name_of_the_scenario() {
        let output = tempfile::tempdir().unwrap();
        for (folder, id) in [
            ("server-ping-2026-01-01", "ping"),
            ("server-ping-more-2026-01-01", "more"),
            ("auth/basic-2026-01-01", "basic"),
        ] {
            std::fs::create_dir_all(output.path().join(folder)).unwrap();
            let text = format!(r#"[{{"id":"{id}","status":"SUCCESS"}}]"#);
            std::fs::write(output.path().join(folder).join("checks.json"), text).unwrap();
        }
        for (name, id) in
            [("server-ping", "ping"), ("server-ping-more", "more"), ("auth/basic", "basic"), ("none", "result")]
        {
            assert_eq!(checks(output.path(), name, "").unwrap()[0].id, id, "{name}");
        }
    }
}
