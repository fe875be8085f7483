//! What both test programs need around a sandbox: one of either user, the end of a child, and a look at the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use gantry_sandbox::{LauncherCommand, Sandbox, SandboxChild, SandboxEnd, SandboxSpec};
use tokio::io::AsyncReadExt as _;

pub(crate) const LAUNCHER: &str = env!("CARGO_BIN_EXE_gantry-test-launcher");

/// Longest wait for anything; a passing test never waits that long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// As whoever runs the tests.
pub(crate) fn sandbox() -> Sandbox {
    Sandbox::new(LauncherCommand { program: LAUNCHER.into(), arguments: Vec::new() }, 64)
}

/// As an ordinary user, who owns nothing and may do nothing.
pub(crate) fn sandbox_of_an_ordinary_user() -> Sandbox {
    let arguments = ["--reuid=1234", "--regid=1234", "--clear-groups", "--", LAUNCHER];
    Sandbox::new(
        LauncherCommand { program: "/usr/bin/setpriv".into(), arguments: arguments.map(Into::into).into() },
        64,
    )
}

/// Runs to the end; what it wrote, and how it ended.
pub(crate) async fn outcome(mut child: SandboxChild) -> (String, String, SandboxEnd) {
    drop(child.stdin.take());
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (a, b) = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    a.and(b).unwrap();
    let ended = child.wait().await;
    (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned(), ended)
}

/// A directory that nobody may read and write, as a shared one would be.
pub(crate) fn open_dir() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).unwrap();
    dir
}

/// Processes on this machine with `marker` among their arguments.
pub(crate) fn alive(marker: &str) -> usize {
    let carries = |entry: &fs::DirEntry| {
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(marker)
    };
    let own = std::process::id().to_string();
    fs::read_dir("/proc").unwrap().flatten().filter(|entry| entry.file_name() != own.as_str()).filter(carries).count()
}

pub(crate) async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what} did not come to pass");
        tokio::task::yield_now().await;
    }
}

/// Brings a child to a standstill. On a busy machine it is given up at first, as it would be for a call; so it is tried again.
pub(crate) async fn freeze(child: &mut SandboxChild) {
    let start = Instant::now();
    while !child.freeze().await.unwrap() {
        assert!(start.elapsed() < PATIENCE, "this machine has control groups");
    }
}

/// Insists that what was frozen does nothing while others work as `work` says; what it had used by then.
///
/// Up to the last instant may be booked late on a machine that others share, so one difference is no proof that it ran. Who
/// works never shows the same figure before and after.
pub(crate) async fn stands_still(sandbox: &Sandbox, child: &mut SandboxChild, work: &SandboxSpec) -> Duration {
    let start = Instant::now();
    let mut before = child.usage_so_far().await.unwrap().cpu;
    loop {
        for _ in 0..5 {
            outcome(sandbox.spawn(work.clone()).await.unwrap()).await;
        }
        let now = child.usage_so_far().await.unwrap().cpu;
        if now == before {
            return now;
        }
        assert!(start.elapsed() < PATIENCE, "what is frozen goes on working");
        before = now;
    }
}
