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
    /// The one of the Go SDK, with sessions or without, started for this.
    GoSdk { sessions: bool },
}

/// A server that runs; one that was started ends with this.
pub(super) struct Running {
    pub(super) name: String,
    pub(super) url: String,
    child: Option<Child>,
}

impl Reference {
    /// The Go SDK's, both ways.
    pub(super) const GO_SDK: [Self; 2] = [Self::GoSdk { sessions: true }, Self::GoSdk { sessions: false }];

    /// `go-sdk`, or `NAME=URL`.
    pub(super) fn read(text: &str) -> Result<Vec<Self>> {
        if text == "go-sdk" {
            return Ok(Self::GO_SDK.into());
        }
        let (name, url) = text.split_once('=').context("--reference wants `go-sdk` or NAME=URL")?;
        ensure!(url.starts_with("http://"), "--reference wants an address on this machine, `http://…`");
        Ok(vec![Self::At { name: name.to_owned(), url: url.to_owned() }])
    }

    pub(super) async fn start(&self) -> Result<Running> {
        match self {
            Self::At { name, url } => Ok(Running { name: name.clone(), url: url.clone(), child: None }),
            Self::GoSdk { sessions } => go_sdk(*sessions).await,
        }
    }
}

async fn go_sdk(sessions: bool) -> Result<Running> {
    let port = free_port()?;
    let child = Command::new(go_program()?)
        .args(["-http", &format!("127.0.0.1:{port}"), &format!("-stateless={}", !sessions)])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start the server of the Go SDK")?;
    let way = if sessions { "with sessions" } else { "without" };
    let (name, url) = (format!("Go SDK {VERSION}, {way}"), format!("http://localhost:{port}/mcp"));
    let running = Running { name, url, child: Some(child) };
    let start = Instant::now();
    while tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_err() {
        ensure!(start.elapsed() < START_TIME_MAX, "the server of the Go SDK does not listen");
        tokio::time::sleep(LOOK_EVERY).await;
    }
    Ok(running)
}

/// The program, built if it is not there.
fn go_program() -> Result<PathBuf> {
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
    Ok(program)
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
        assert_eq!(read, [Reference::At { name: "suite".into(), url: "http://localhost:1/mcp".into() }]);
        assert_eq!(Reference::read("go-sdk").unwrap(), Reference::GO_SDK);
        for wrong in ["suite", "suite=localhost:1", "suite=https://example.com"] {
            assert!(Reference::read(wrong).is_err(), "{wrong}");
        }
    }
}
