//! Reference servers to compare with: the one of the official Go SDK, built by Go's own tool from its module, and
//! servers that somebody has started.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::services::peers;

/// The module, its version, and the program in it.
const MODULE: &str = "github.com/modelcontextprotocol/go-sdk";
const VERSION: &str = "v1.8.0";
const PROGRAM: &str = "conformance/everything-server";
/// A start that takes longer has failed.
const START_TIME_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A server, and how it comes to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reference {
    /// It runs already.
    At { name: String, url: String },
    /// Started for this.
    Started { name: String, program: PathBuf, arguments: Vec<&'static str> },
}

/// A server that runs; one that was started ends with this.
pub(super) struct Running {
    pub(super) name: String,
    pub(super) url: String,
    child: Option<Child>,
}

impl Reference {
    /// `NAME=URL`.
    pub(super) fn read(text: &str) -> Result<Self> {
        let (name, url) = text.split_once('=').context("--reference wants NAME=URL")?;
        ensure!(url.starts_with("http://"), "--reference wants an address on this machine, `http://…`");
        Ok(Self::At { name: name.to_owned(), url: url.to_owned() })
    }

    /// The one of the Go SDK in both its ways, built if it is not there.
    pub(super) fn of_the_go_sdk() -> Result<Vec<Self>> {
        let folder = peers::folder()?.join(format!("go-sdk-{VERSION}"));
        let program = folder.join("everything-server");
        if !program.is_file() {
            println!("building {PROGRAM} of {MODULE} {VERSION} into {}", folder.display());
            let status = Command::new("go")
                .args(["install", &format!("{MODULE}/{PROGRAM}@{VERSION}")])
                .env("GOBIN", &folder)
                .env("GOFLAGS", "")
                .status()
                .context("cannot run `go`: the comparison needs Go, or a server named by --reference NAME=URL")?;
            ensure!(status.success() && program.is_file(), "{PROGRAM} of the Go SDK could not be built");
        }
        let started = |way: &str, arguments| Self::Started {
            name: format!("Go SDK {VERSION}, {way}"),
            program: program.clone(),
            arguments,
        };
        Ok(vec![started("with sessions", vec!["-stateless=false"]), started("without", vec![])])
    }

    pub(super) async fn start(&self) -> Result<Running> {
        match self {
            Self::At { name, url } => Ok(Running { name: name.clone(), url: url.clone(), child: None }),
            Self::Started { name, program, arguments } => {
                let port = free_port()?;
                let child = Command::new(program)
                    .args(["-http", &format!("127.0.0.1:{port}")])
                    .args(arguments)
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .spawn()
                    .with_context(|| format!("cannot start {name}"))?;
                let url = format!("http://localhost:{port}/mcp");
                let running = Running { name: name.clone(), url, child: Some(child) };
                let start = Instant::now();
                while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
                    ensure!(start.elapsed() < START_TIME_MAX, "{name} does not listen");
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                Ok(running)
            }
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // It may have ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A port that is free now; the server that gets it does not say which it took.
fn free_port() -> Result<u16> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").context("cannot listen on loopback")?;
    Ok(listener.local_addr()?.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_a_name_and_an_address() {
        let read = Reference::read("suite=http://localhost:1/mcp").unwrap();
        assert_eq!(read, Reference::At { name: "suite".into(), url: "http://localhost:1/mcp".into() });
        for wrong in ["suite", "suite=localhost:1", "suite=https://example.com"] {
            assert!(Reference::read(wrong).is_err(), "{wrong}");
        }
    }
}
