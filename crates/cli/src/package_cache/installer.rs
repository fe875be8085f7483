//! Running the machine's own package tools, bounded (INSTALLED-3), with what they say in the end.
//!
//! They run as whoever gives the command, with that person's environment and configuration: registries, proxies and logins are
//! what they are for every other package.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;

use super::tree::{self, TreeSize};
use crate::failure::CommandFailure;

/// An installation that takes longer hangs.
const INSTALL_TIME_MAX: Duration = Duration::from_secs(900);
/// What one package may hold with everything it needs.
const PACKAGE_BYTES_MAX: u64 = 4 << 30;
const PACKAGE_ENTRIES_MAX: u64 = 500_000;
/// How often that is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Of what an installer says, so much is kept: its end.
const SAID_BYTES_MAX: usize = 64 << 10;

/// Lines of it that are shown.
const SAID_LINES_MAX: usize = 4;

/// Who hears how far an installation has come.
pub(crate) trait InstallProgress: Sync {
    /// So many bytes are there, after so many seconds.
    fn at(&self, bytes: u64, seconds: u64);
}

/// One run of an installer.
pub(super) struct Step<'a> {
    pub(super) program: &'static str,
    pub(super) args: Vec<OsString>,
    /// Where it runs.
    pub(super) cwd: &'a Path,
    /// What grows.
    pub(super) watched: &'a Path,
    pub(super) input: String,
    /// What to do if the program is not there.
    pub(super) remedy: &'a str,
}

/// What to do if an installer is missing for a server's package. Without the runner that comes with it, the server could not fetch
/// its package itself either.
pub(super) fn remedy_for_server(install: &str, runner: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if has_program(&path, runner) {
        format!("{install}, or add the server with --no-package")
    } else {
        install.to_owned()
    }
}

fn has_program(path: &OsStr, name: &str) -> bool {
    std::env::split_paths(path).any(|folder| folder.join(name).is_file())
}

/// Runs it to its end. Answers whether it was content, and the end of what it said.
pub(super) async fn run(step: Step<'_>, progress: &dyn InstallProgress) -> Result<(bool, String), CommandFailure> {
    let Step { program, args, cwd, watched, input, remedy } = step;
    let mut command = Command::new(program);
    command.args(args).current_dir(cwd).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            CommandFailure::new(format!("`{program}` is not installed on this machine")).hint(remedy)
        }
        _ => CommandFailure::new(format!("`{program}` cannot be started: {error}")),
    })?;
    let (mut stdin, stderr) = (child.stdin.take(), child.stderr.take());
    let said = async {
        if let Some(stdin) = &mut stdin {
            // Whoever does not want to hear it says why by its exit code.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        drop(stdin.take());
        match stderr {
            Some(stderr) => last_words(stderr).await,
            None => String::new(),
        }
    };
    let work = async {
        let (said, status) = tokio::join!(said, child.wait());
        status.map(|status| (status.success(), said))
    };
    let too_large = async {
        let mut seconds = 0;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            seconds += LOOK_EVERY.as_secs();
            // What cannot be measured in this moment is measured in the next.
            let found = tree::size(watched).unwrap_or_default();
            progress.at(found.bytes, seconds);
            if !fits(found) {
                return;
            }
        }
    };
    let done = tokio::select! {
        done = tokio::time::timeout(INSTALL_TIME_MAX, work) => done,
        () = too_large => return Err(oversized()),
    };
    let done = done.map_err(|_| {
        CommandFailure::new(format!("`{program}` was not done after {} minutes", INSTALL_TIME_MAX.as_secs() / 60))
            .hint("try it again when the registry is quicker; what was fetched is kept by the tool itself")
    })?;
    let done = done.map_err(|error| CommandFailure::new(format!("`{program}` cannot be waited for: {error}")))?;
    match tree::size(watched) {
        Ok(found) if !fits(found) => Err(oversized()),
        _ => Ok(done),
    }
}

fn fits(found: TreeSize) -> bool {
    found.bytes <= PACKAGE_BYTES_MAX && found.entries <= PACKAGE_ENTRIES_MAX
}

fn oversized() -> CommandFailure {
    CommandFailure::new(format!(
        "the package has more than {} GiB or {PACKAGE_ENTRIES_MAX} files with everything it needs",
        PACKAGE_BYTES_MAX >> 30
    ))
    .hint("install it yourself and add its program by its path")
}

async fn last_words(mut stream: impl AsyncRead + Unpin) -> String {
    let (mut kept, mut part) = (Vec::new(), vec![0; 8 << 10]);
    while let Ok(read) = stream.read(&mut part).await {
        if read == 0 {
            break;
        }
        kept.extend_from_slice(part.get(..read).unwrap_or_default());
        if kept.len() > 2 * SAID_BYTES_MAX {
            kept.drain(..kept.len() - SAID_BYTES_MAX);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// What an installer said first, for somebody whose files name many packages.
pub(super) fn first_lines(said: &str) -> Vec<String> {
    said.lines().map(str::trim).filter(|line| !line.is_empty()).take(SAID_LINES_MAX).map(str::to_owned).collect()
}

/// The registry is away, as far as this text goes: what to say.
pub(super) fn away(registry: &str, said: &str) -> Option<CommandFailure> {
    let failure = |what: &str| CommandFailure::new(format!("the {registry} registry {what}"));
    let has = |words: &[&str]| words.iter().any(|word| said.contains(word));
    if has(&[
        "UNABLE_TO_GET_ISSUER_CERT",
        "SELF_SIGNED_CERT",
        "CERT_HAS_EXPIRED",
        "invalid peer certificate",
        "UnknownIssuer",
    ]) {
        return Some(
            failure("shows a certificate that this machine's package tool does not trust").hint(
                "your network may have an authority of its own: NODE_EXTRA_CA_CERTS=FILE for npm; for uv SSL_CERT_FILE=FILE, or \
                 UV_SYSTEM_CERTS=1 if the system trusts it",
            ),
        );
    }
    if has(&["code E401", "code E403", "code ENEEDAUTH", "401 Unauthorized", "403 Forbidden"]) {
        return Some(failure("wants a login").hint("log in with the package tool itself, then do this again"));
    }
    if has(&["code ENOSPC", "No space left on device"]) {
        return Some(
            CommandFailure::new("there is no room left for the package")
                .hint("`gantry server packages --prune` takes away what no server uses"),
        );
    }
    let network = [
        "code ECONNREFUSED",
        "code ECONNRESET",
        "code ENOTFOUND",
        "code EAI_AGAIN",
        "code ETIMEDOUT",
        "code ENOTCACHED",
        "code EHOSTUNREACH",
        "code ENETUNREACH",
        "ERR_SOCKET_TIMEOUT",
        "error sending request",
        "Failed to fetch",
        "dns error",
        "network was disabled",
    ];
    has(&network).then(|| {
        failure("cannot be reached")
            .hint("check the network, and the proxy and registry of the package tool; then do this again")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_is_proposed_only_where_there_is_one() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!has_program(dir.path().as_os_str(), "uvx"));
        std::fs::write(dir.path().join("uvx"), "").unwrap();
        assert!(has_program(dir.path().as_os_str(), "uvx"));
    }
}
