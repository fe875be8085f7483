//! Sandboxes for real: programs that look around, misbehave and are ended. Needs what `cargo xtask test` installs.

use std::time::Duration;

use gantry_sandbox::{Access, Child, Ended, Exit, Launch, Limits, Sandbox, Spec, SpawnError, Step};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

fn sandbox() -> Sandbox {
    let launch = Launch { program: env!("CARGO_BIN_EXE_gantry-test-launcher").into(), arguments: Vec::new() };
    Sandbox::new(launch, 64)
}

/// Runs to the end; what it wrote, and how it ended.
async fn outcome(mut child: Child) -> (String, String, Ended) {
    drop(child.stdin.take());
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let (a, b) = tokio::join!(stdout.read_to_end(&mut out), stderr.read_to_end(&mut err));
    (a.unwrap(), b.unwrap());
    let ended = child.wait().await;
    (String::from_utf8_lossy(&out).into_owned(), String::from_utf8_lossy(&err).into_owned(), ended)
}

async fn shell(script: &str) -> (String, String, Ended) {
    outcome(sandbox().spawn(Spec::new(["/bin/sh", "-c", script])).await.unwrap()).await
}

#[tokio::test]
async fn a_program_is_nobody_in_a_world_of_its_own() {
    let (out, err, ended) =
        shell("id -u; id -g; hostname; echo $$; ls /; ls /proc | grep -E '^[0-9]+$' | wc -l; cat /proc/self/status | grep -E 'Cap|NoNewPrivs|Seccomp:'; ls /sys 2>&1; cat /proc/1/environ 2>&1; env").await;
    assert_eq!(ended.exit, Exit::Code(0), "{out}\n{err}");
    panic!("{out}\n{err}\n{ended:?}");
}
