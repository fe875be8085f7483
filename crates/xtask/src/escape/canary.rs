//! The canary, from the runner's side: a process outside that has what hostile tools are after (`escape/canary.py`).
//!
//! What it says of itself becomes the parameters of every probe. Asked later, it says whether it is as it was and how
//! many came to its doors, which no probe can lie about.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The variable that carries the marker, in the canary's environment and in the server's.
pub(crate) const MARKER_VARIABLE: &str = "ESCAPE_MARKER";
/// The interpreter of canary and bare probes: the system's, which is also what a sandbox shows.
pub(crate) const PYTHON: &str = "/usr/bin/python3";
/// The environment of everything started here, beside the marker.
pub(crate) const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// A running canary; it cleans up after itself when it is dropped.
pub(crate) struct EscapeCanary {
    child: Child,
    to: Option<ChildStdin>,
    from: BufReader<ChildStdout>,
    parameters: Map<String, Value>,
    marker: String,
}

/// How things stand with it.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct CanaryStatus {
    pub(crate) intact: bool,
    /// Connections and datagrams that reached it.
    pub(crate) visitors: u64,
}

impl EscapeCanary {
    /// Starts it. `name` is part of all its names, so that they are nobody else's.
    pub(crate) fn start(folder: &Path, name: &str) -> Result<Self> {
        let marker = format!("marker-of-{name}");
        let mut child = Command::new(PYTHON)
            .arg(folder.join("canary.py"))
            .arg(name)
            .env_clear()
            .env("PATH", PATH)
            .env(MARKER_VARIABLE, &marker)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the canary: is python3 installed?")?;
        let to = child.stdin.take();
        let from = BufReader::new(child.stdout.take().context("the canary has no stdout")?);
        let mut canary = Self { child, to, from, parameters: Map::new(), marker };
        let said = canary.line()?;
        canary.parameters = serde_json::from_str(&said).context("the canary did not say where it is")?;
        Ok(canary)
    }

    /// What every probe is told.
    pub(crate) fn parameters(&self) -> &Map<String, Value> {
        &self.parameters
    }

    pub(crate) fn marker(&self) -> &str {
        &self.marker
    }

    /// A file that everybody may read.
    pub(crate) fn file(&self) -> &str {
        self.parameters.get("file").and_then(Value::as_str).unwrap_or_default()
    }

    /// Asks it how it is; an error means that it is gone.
    pub(crate) fn status(&mut self) -> Result<CanaryStatus> {
        self.to.as_mut().context("the canary was told to go")?.write_all(b"?\n").context("the canary is gone")?;
        serde_json::from_str(&self.line()?).context("the canary does not make sense")
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.from.read_line(&mut line).context("the canary is gone")?;
        Ok(line)
    }
}

impl Drop for EscapeCanary {
    fn drop(&mut self) {
        // The end of its stdin tells it to clean up; then it ends by itself.
        self.to = None;
        // Nothing depends on how it ended.
        let _ = self.child.wait();
    }
}
