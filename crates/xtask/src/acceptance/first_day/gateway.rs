//! Gantry as a newcomer has it: a data directory, one server, and the command line.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running server; ended when it is dropped.
pub(super) struct Gateway {
    child: Child,
    pub(super) place: Place,
}

/// Where its data is, and what it is called with.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) binary: PathBuf,
    pub(super) home: PathBuf,
    /// The folder that the file of servers calls `${WORK}`.
    pub(super) work: PathBuf,
    /// The address of a database, which it calls `${DATABASE}`.
    pub(super) database: String,
}

impl Gateway {
    /// Starts it and waits until it answers.
    pub(super) fn start(place: Place) -> Result<Self> {
        let log = place.home.join("gantry.log");
        let sink = File::options().create(true).append(true).open(&log).context("cannot make the log file")?;
        let mut command = place.command();
        command.args(["serve", "--listen", "127.0.0.1:0"]).stdout(sink.try_clone()?).stderr(sink);
        let mut gateway = Self { child: command.spawn().context("cannot start gantry")?, place };
        let start = Instant::now();
        while !gateway.is_up() {
            let ended = gateway.child.try_wait().context("cannot look at gantry")?;
            ensure!(
                ended.is_none() && start.elapsed() < START_TIME_MAX,
                "gantry did not become ready; it said:\n{}",
                std::fs::read_to_string(&log).unwrap_or_default()
            );
            thread::sleep(LOOK_EVERY);
        }
        Ok(gateway)
    }

    fn is_up(&self) -> bool {
        let announced = self.place.announced();
        announced.and_then(|found| found.get("pid")?.as_u64()) == Some(u64::from(self.child.id()))
            && self.place.cli(&["health"]).is_ok_and(|output| output.status.success())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // In good order, so that its servers end with it; it may have ended already.
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        let start = Instant::now();
        while asked.as_ref().is_ok_and(std::process::ExitStatus::success)
            && start.elapsed() < START_TIME_MAX
            && self.child.try_wait().is_ok_and(|ended| ended.is_none())
        {
            thread::sleep(LOOK_EVERY);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Place {
    /// What the running server says of itself.
    pub(super) fn announced(&self) -> Option<Value> {
        serde_json::from_slice(&std::fs::read(self.home.join("data/server.json")).ok()?).ok()
    }

    /// Host and port of the database, as a grant names them.
    pub(super) fn database_host(&self) -> &str {
        let behind_user = self.database.rsplit_once('@').map_or(self.database.as_str(), |(_, rest)| rest);
        behind_user.split('/').next().unwrap_or_default()
    }

    /// The program with the environment of this machine, and uv beside everything else.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.binary);
        command.current_dir(&self.home).env("NO_COLOR", "1").env("GANTRY_DATA_DIR", self.home.join("data"));
        command
            .env("WORK", &self.work)
            .env("DATABASE", &self.database)
            .env("PATH", search_path())
            .env("GANTRY_LOG__LEVEL", "warn");
        command.stdin(Stdio::null());
        command
    }

    pub(super) fn cli(&self, arguments: &[&str]) -> Result<Output> {
        self.command().args(arguments).output().context("cannot run gantry")
    }

    /// What a command answers as JSON, whatever its exit code is.
    pub(super) fn json(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.cli(arguments)?;
        serde_json::from_slice(&output.stdout).with_context(|| {
            format!("`gantry {}` gave no JSON: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr))
        })
    }
}

/// `PATH` with the uv of the tests, unless the machine has its own.
pub(super) fn search_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    let uv = test_servers::kit("uv").map(|kit| kit.join("bin")).unwrap_or_default();
    if std::env::split_paths(&own).any(|folder| is_program(&folder, "uvx")) {
        return own;
    }
    format!("{own}:{}", uv.display())
}

fn is_program(folder: &Path, name: &str) -> bool {
    folder.join(name).is_file()
}
