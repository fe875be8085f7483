//! Sandboxes for real: programs that look around, misbehave and are ended. Needs what `cargo xtask test` installs.

#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "test crate")]

use std::fs;
use std::time::{Duration, Instant};

use gantry_sandbox::{
    BuildStep, LauncherCommand, MountAccess, OwnFile, PROXY_PORT, ProgramExit, Sandbox, SandboxEnd, SandboxLimits,
    SandboxNetwork, SandboxSpec, SpawnError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[path = "world/around.rs"]
mod around;

use around::{PATIENCE, alive, freeze, open_dir, outcome, sandbox, sandbox_of_an_ordinary_user, stands_still, until};

fn script(text: &str) -> SandboxSpec {
    SandboxSpec::new(["/bin/sh", "-c", text])
}

fn python(text: &str) -> SandboxSpec {
    SandboxSpec::new(["python3", "-c", text])
}

async fn run(spec: SandboxSpec) -> (String, String, SandboxEnd) {
    outcome(sandbox().spawn(spec).await.unwrap()).await
}

const LOOK_AROUND: &str = "id -u; id -g; id -G; hostname; echo $$; \
    grep -E 'CapPrm|CapEff|CapBnd|NoNewPrivs|Seccomp:' /proc/self/status | tr '\\t' ' '; \
    cat /proc/self/cgroup | sed 's/.*://' | sort -u; env | grep -v ^_= | sort; ls /proc/sys /sys /root /home /run 2>/dev/null; echo end";

fn a_world_of_its_own(out: &str) {
    let expected = "65534\n65534\n65534\nsandbox\n2\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n\
        CapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n/\nHOME=/tmp\nLANG=C.UTF-8\n\
        PATH=/usr/local/bin:/usr/bin:/bin\nPWD=/\nTMPDIR=/tmp\nend\n";
    assert_eq!(out, expected);
}

#[tokio::test]
async fn a_program_is_nobody_in_a_world_of_its_own() {
    let (out, err, ended) = run(script(LOOK_AROUND)).await;
    assert_eq!((ended.exit, err.as_str()), (ProgramExit::Code(0), ""));
    a_world_of_its_own(&out);
}

#[tokio::test]
async fn whether_sandboxes_can_be_started_is_known_from_the_last_that_was_wanted() {
    let able = sandbox();
    assert!(able.is_able(), "nobody has wanted one yet");
    // It is the program that cannot be started, and no other.
    assert!(able.spawn(SandboxSpec::new(["no-such-program"])).await.is_err());
    assert!(able.is_able());
    let launch = LauncherCommand { program: "/no/such/launcher".into(), arguments: Vec::new() };
    let unable = Sandbox::new(launch, 1);
    assert!(matches!(unable.spawn(script("true")).await, Err(SpawnError::NoLauncher(_))));
    assert!(!unable.is_able());
}

#[tokio::test]
async fn it_is_the_same_for_an_ordinary_user() {
    let child = sandbox_of_an_ordinary_user().spawn(script(LOOK_AROUND)).await.unwrap();
    let (out, err, ended) = outcome(child).await;
    assert_eq!((ended.exit, err.as_str()), (ProgramExit::Code(0), ""));
    // An ordinary user has no right over version 1 groups, so the machine's own ones are seen, without a way to them.
    let facts = |text: &str| text.lines().filter(|line| !line.starts_with('/')).collect::<Vec<_>>().join("\n");
    a_world_of_its_own(&format!("{}\n", facts(&out)).replace("Seccomp: 2\n", "Seccomp: 2\n/\n"));
}

#[tokio::test]
async fn streams_are_separate_and_the_exit_is_told() {
    let mut child = sandbox().spawn(script("read line; echo out $line; echo err >&2; exit 7")).await.unwrap();
    child.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
    let (out, err, ended) = outcome(child).await;
    assert_eq!((out.as_str(), err.as_str(), ended.exit), ("out hello\n", "err\n", ProgramExit::Code(7)));
    let (_, _, ended) = run(script("kill -SEGV $$")).await;
    assert_eq!(ended.exit, ProgramExit::Signal(11));
}

#[tokio::test]
async fn only_what_is_declared_is_there_and_only_as_declared() {
    let (read, write, hidden) = (open_dir(), open_dir(), open_dir());
    fs::write(read.path().join("file"), "readable").unwrap();
    fs::write(hidden.path().join("file"), "hidden").unwrap();
    let at = |dir: &tempfile::TempDir| dir.path().display().to_string();
    let text = format!(
        "cat {read}/file; echo; touch {read}/new 2>/dev/null || echo ro; echo made > {write}/new; cat {hidden}/file 2>/dev/null || echo absent; \
         touch /usr/x /etc/x /x 2>/dev/null || echo root ro; ln -s {hidden}/file {write}/link; cat {write}/link 2>/dev/null || echo dangling; \
         cat {write}/../../../../../../{hidden}/file 2>/dev/null || echo no way up",
        read = at(&read),
        write = at(&write),
        hidden = at(&hidden),
    );
    let spec = script(&text).mount(read.path(), read.path(), MountAccess::Read).mount(
        write.path(),
        write.path(),
        MountAccess::Write,
    );
    let (out, err, _) = run(spec).await;
    assert_eq!(out, "readable\nro\nabsent\nroot ro\ndangling\nno way up\n", "{err}");
    assert_eq!(fs::read_to_string(write.path().join("new")).unwrap(), "made\n");
    assert!(!read.path().join("new").is_file());
}

#[tokio::test]
async fn what_lies_behind_a_symbolic_link_is_not_mounted() {
    let (shared, hidden) = (open_dir(), open_dir());
    std::os::unix::fs::symlink(hidden.path(), shared.path().join("data")).unwrap();
    let spec = script("true").mount(shared.path().join("data"), "/data", MountAccess::Read);
    let error = sandbox().spawn(spec).await.unwrap_err();
    let SpawnError::Step(failure) = error else { panic!("{error}") };
    assert_eq!((failure.step, failure.errno), (BuildStep::Mount, 40), "{failure:?}");
}

#[tokio::test]
async fn files_of_its_own_are_readable_by_it_alone_and_nowhere_else() {
    let file = OwnFile { path: "/run/secrets/key".into(), contents: b"s3cret".to_vec() };
    let mut spec = script("cat /run/secrets/key; stat -c %a:%u /run/secrets/key; echo x > /run/secrets/key || echo ro");
    spec.files.push(file);
    let (out, _, _) = run(spec.clone()).await;
    assert_eq!(out, "s3cret400:65534\nro\n");
    let (out, _, _) = outcome(sandbox_of_an_ordinary_user().spawn(spec).await.unwrap()).await;
    assert_eq!(out, "s3cret400:65534\nro\n");
}

#[tokio::test]
async fn everything_inside_ends_with_the_child_however_it_hides() {
    let marker = format!("hiding-{}", std::process::id());
    // Ignores every signal it can, forks twice, and leads a session of its own.
    let text = format!(
        "import os, signal, sys, time\nfor s in range(1, 65):\n  try: signal.signal(s, signal.SIG_IGN)\n  except Exception: pass\n\
         if os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0:\n    os.execv('/bin/sleep', ['{marker}', '1000'])\n  os._exit(0)\n\
         print('ready', flush=True)\ntime.sleep(1000)"
    );
    let mut child = sandbox().spawn(python(&text)).await.unwrap();
    let mut ready = [0; 6];
    child.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
    until("the grandchild", || alive(&marker) >= 1).await;
    child.kill();
    let ended = child.wait().await;
    assert_eq!(ended.exit, ProgramExit::Ended);
    assert_eq!(alive(&marker), 0, "the end was told before it was true");
}

#[tokio::test]
async fn what_a_program_leaves_running_ends_with_it() {
    let marker = format!("leftover-{}", std::process::id());
    let text = format!(
        "(exec -a {marker} sleep 1000 >/dev/null 2>&1 </dev/null &) ; (setsid -f bash -c 'exec -a {marker} sleep 1000' >/dev/null 2>&1 &); echo done"
    );
    let (out, err, ended) = run(SandboxSpec::new(["/bin/bash", "-c", &text])).await;
    assert_eq!((out.as_str(), ended.exit), ("done\n", ProgramExit::Code(0)), "{err}");
    assert_eq!(alive(&marker), 0);
}

#[tokio::test]
async fn dropping_the_child_ends_the_sandbox() {
    let marker = format!("dropped-{}", std::process::id());
    let child =
        sandbox().spawn(SandboxSpec::new(["/bin/bash", "-c", &format!("exec -a {marker} sleep 1000")])).await.unwrap();
    until("the program", || alive(&marker) == 1).await;
    drop(child);
    until("its end", || alive(&marker) == 0).await;
}

#[tokio::test]
async fn a_launcher_that_is_killed_takes_its_sandboxes_along_and_another_takes_over() {
    let marker = format!("orphan-{}", std::process::id());
    let sandbox = sandbox();
    let mut child =
        sandbox.spawn(SandboxSpec::new(["/bin/bash", "-c", &format!("exec -a {marker} sleep 1000")])).await.unwrap();
    until("the program", || alive(&marker) == 1).await;
    let first = sandbox.launcher().unwrap();
    let killed = std::process::Command::new("kill").args(["-9", &first.to_string()]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().await.exit, ProgramExit::Ended);
    until("its end", || alive(&marker) == 0).await;
    // The first order after it may find the socket closed, or die with it; then there is a new one.
    let (out, _, _) = outcome(sandbox.spawn(script("echo again")).await.unwrap()).await;
    assert_eq!(out, "again\n");
    assert_ne!(sandbox.launcher(), Some(first));
}

#[tokio::test]
async fn a_program_that_is_missing_or_cannot_run_is_told_apart() {
    let dir = open_dir();
    fs::write(dir.path().join("plain"), "not a program").unwrap();
    let plain = dir.path().join("plain").display().to_string();
    for (command, errno) in [("no-such-program", 2), ("/no/such/program", 2), (plain.as_str(), 13), ("/usr", 13)] {
        let spec = SandboxSpec::new([command]).mount(dir.path(), dir.path(), MountAccess::Read);
        let SpawnError::Step(failure) = sandbox().spawn(spec).await.unwrap_err() else { panic!("{command}") };
        assert_eq!((failure.step, failure.errno), (BuildStep::Program, errno), "{command}");
    }
    let mut spec = script("true");
    spec.cwd = "/nowhere".into();
    let SpawnError::Step(failure) = sandbox().spawn(spec).await.unwrap_err() else { panic!() };
    assert_eq!(failure.step, BuildStep::WorkingDirectory);
}

#[tokio::test]
async fn too_much_memory_is_told_from_a_crash() {
    let limits = SandboxLimits { memory_bytes: 64 << 20, ..SandboxLimits::default() };
    let (_, err, ended) = run(SandboxSpec { limits, ..python("x = b'x' * (200 << 20)") }).await;
    assert_eq!(ended.exit, ProgramExit::Signal(9), "{err}");
    assert!(ended.usage.oom_kills > 0, "{ended:?}");
    let (_, _, ended) = run(python("import os; os.kill(os.getpid(), 9)")).await;
    assert_eq!((ended.exit, ended.usage.oom_kills), (ProgramExit::Signal(9), 0));
}

#[tokio::test]
async fn an_ordinary_user_without_groups_is_still_held_to_memory_and_processes() {
    let limits = SandboxLimits { memory_bytes: 64 << 20, pids: 8, ..SandboxLimits::default() };
    let spec = SandboxSpec { limits, ..python("x = b'x' * (200 << 20)") };
    let (_, err, ended) = outcome(sandbox_of_an_ordinary_user().spawn(spec).await.unwrap()).await;
    assert!(err.contains("MemoryError"), "{err} {ended:?}");
    let fork = "import os\nn = 0\ntry:\n  while n < 100:\n    if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '100'])\n    n += 1\nexcept OSError: pass\nprint(n)";
    let (out, err, _) =
        outcome(sandbox_of_an_ordinary_user().spawn(SandboxSpec { limits, ..python(fork) }).await.unwrap()).await;
    assert!(out.trim().parse::<u32>().unwrap() < 8, "{out} {err}");
}

#[tokio::test]
async fn processes_and_scratch_are_bounded_and_the_bound_is_told() {
    let fork = "import os\nn = 0\ntry:\n  while n < 1000:\n    if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '100'])\n    n += 1\nexcept OSError: pass\nprint(n)";
    let limits = SandboxLimits { pids: 10, ..SandboxLimits::default() };
    let (out, _, ended) = run(SandboxSpec { limits, ..python(fork) }).await;
    assert_eq!((out.as_str(), ended.usage.pids_refused > 0), ("9\n", true), "{ended:?}");
    let limits = SandboxLimits { scratch_bytes: 1 << 20, ..SandboxLimits::default() };
    let fill = "dd if=/dev/zero of=/tmp/a bs=64k count=100 2>/dev/null || echo full; dd if=/dev/zero of=/dev/shm/b bs=64k count=1 2>/dev/null || echo full";
    let (out, _, ended) = run(SandboxSpec { limits, ..script(fill) }).await;
    assert_eq!((out.as_str(), ended.scratch_full), ("full\nfull\n", true));
}

#[tokio::test]
async fn without_a_network_nothing_can_be_reached_and_with_one_only_the_proxy() {
    let connect = |port: u16| {
        format!(
            "import socket\ntry:\n  s = socket.create_connection(('127.0.0.1', {port}), 5); s.sendall(b'hi'); print('connected')\nexcept OSError as e: print(e.errno)"
        )
    };
    // A listener of the machine: not the same loopback.
    let outside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (out, _, _) = run(python(&connect(outside.local_addr().unwrap().port()))).await;
    assert_eq!(out, "101\n");
    let spec = SandboxSpec { network: SandboxNetwork::Proxied, ..python(&connect(PROXY_PORT)) };
    let mut child = sandbox().spawn(spec).await.unwrap();
    let listener = child.sockets.take().unwrap().proxy;
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut said = [0; 2];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"hi");
    assert_eq!(outcome(child).await.0, "connected\n");
    let spec =
        SandboxSpec { network: SandboxNetwork::Proxied, ..python(&connect(outside.local_addr().unwrap().port())) };
    let child = sandbox().spawn(spec).await.unwrap();
    assert_eq!(outcome(child).await.0, "111\n");
}

#[tokio::test]
async fn usage_of_a_long_lived_program_can_be_asked_for() {
    let burn = "import sys, time\nfor line in sys.stdin:\n  end = time.process_time() + 0.2\n  while time.process_time() < end: pass\n  print('done', flush=True)";
    let limits = SandboxLimits { cpu_millicores: 2000, ..SandboxLimits::default() };
    let mut child = sandbox().spawn(SandboxSpec { limits, ..python(burn) }).await.unwrap();
    let mut last = Duration::ZERO;
    for _ in 0..2 {
        child.stdin.as_mut().unwrap().write_all(b"go\n").await.unwrap();
        let mut done = [0; 5];
        child.stdout.as_mut().unwrap().read_exact(&mut done).await.unwrap();
        let used = child.usage_so_far().await.unwrap().cpu;
        assert!(used >= last + Duration::from_millis(200), "{used:?} after {last:?}");
        last = used;
    }
}

#[tokio::test]
async fn whoever_comes_next_is_not_charged_for_the_last() {
    let sandbox = sandbox();
    let greedy = "import os\ntry:\n  while True:\n    if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '100'])\nexcept OSError: pass\nx = b'x' * (200 << 20)";
    let limits = SandboxLimits { pids: 6, memory_bytes: 64 << 20, ..SandboxLimits::default() };
    // Often enough that one gets what another has left.
    for _ in 0..6 {
        let (_, err, ended) = outcome(sandbox.spawn(SandboxSpec { limits, ..python(greedy) }).await.unwrap()).await;
        assert!(ended.usage.pids_refused > 0 && ended.usage.oom_kills > 0, "{ended:?} {err}");
        let (_, err, ended) = outcome(sandbox.spawn(SandboxSpec { limits, ..script("true") }).await.unwrap()).await;
        assert_eq!(
            (ended.exit, ended.usage.pids_refused, ended.usage.oom_kills),
            (ProgramExit::Code(0), 0, 0),
            "{err}"
        );
        assert!(ended.usage.cpu < Duration::from_millis(100), "{ended:?}");
        assert!(ended.usage.memory_peak_bytes < 16 << 20, "{ended:?}");
    }
}

#[tokio::test]
async fn what_waited_for_another_order_does_as_this_one_says() {
    let dir = open_dir();
    fs::write(dir.path().join("file"), "declared").unwrap();
    for sandbox in [sandbox(), sandbox_of_an_ordinary_user()] {
        for _ in 0..3 {
            let (out, err, _) =
                outcome(sandbox.spawn(script("ls /data /run 2>/dev/null; echo plain")).await.unwrap()).await;
            assert_eq!(out, "plain\n", "{err}");
            let fill = "cat /data/file; dd if=/dev/zero of=/tmp/a bs=64k count=100 2>/dev/null || echo ' full'; ulimit -n; pwd";
            let limits = SandboxLimits { scratch_bytes: 1 << 20, open_files: 33, ..SandboxLimits::default() };
            let mut spec = SandboxSpec { limits, ..script(fill) }.mount(dir.path(), "/data", MountAccess::Read);
            spec.cwd = "/data".into();
            let (out, err, ended) = outcome(sandbox.spawn(spec).await.unwrap()).await;
            assert_eq!((out.as_str(), ended.scratch_full), ("declared full\n33\n/data\n", true), "{err}");
        }
    }
}

#[tokio::test]
async fn two_hundred_at_once_all_run() {
    let sandbox = sandbox();
    let mut running = tokio::task::JoinSet::new();
    for number in 0..200 {
        let sandbox = sandbox.clone();
        running.spawn(async move {
            let (out, err, ended) = outcome(sandbox.spawn(script(&format!("echo {number}"))).await.unwrap()).await;
            assert_eq!((out, ended.exit), (format!("{number}\n"), ProgramExit::Code(0)), "{err}");
        });
    }
    while let Some(done) = running.join_next().await {
        done.unwrap();
    }
    assert_eq!(sandbox.room(), 64);
}

/// Works without a pause, and tells so.
const BUSY: &str = "import sys\nwhile True:\n sum(range(100000)); print('x', flush=True)";

#[tokio::test]
async fn what_is_frozen_does_nothing_until_it_is_thawed() {
    let sandbox = sandbox();
    let mut child = sandbox.spawn(SandboxSpec { freezable: true, ..python(BUSY) }).await.unwrap();
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0; 2]).await.unwrap();
    freeze(&mut child).await;
    let before = stands_still(&sandbox, &mut child, &python("sum(range(1000000))")).await;
    child.thaw().await.unwrap();
    let start = Instant::now();
    while child.usage_so_far().await.unwrap().cpu == before {
        assert!(start.elapsed() < PATIENCE, "it goes on");
    }
}

#[tokio::test]
async fn what_is_frozen_can_be_ended_and_so_can_its_launcher() {
    let sandbox = sandbox();
    for round in 0..3 {
        let marker = format!("frozen-{}-{round}", std::process::id());
        let mut spec = python(BUSY);
        spec.command.push(marker.clone());
        let mut child = sandbox.spawn(SandboxSpec { freezable: true, ..spec }).await.unwrap();
        freeze(&mut child).await;
        match round {
            0 => {
                child.kill();
                let ended = tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends");
                assert_eq!(ended.exit, ProgramExit::Ended);
            }
            1 => drop(child),
            _ => {
                // Nobody is left who could thaw it but the next launcher.
                let launcher = rustix::process::Pid::from_raw(sandbox.launcher().unwrap().cast_signed()).unwrap();
                rustix::process::kill_process(launcher, rustix::process::Signal::KILL).unwrap();
                child.wait().await;
                drop(child);
                let _ = sandbox.spawn(script("true")).await;
                outcome(sandbox.spawn(script("true")).await.unwrap()).await;
            }
        }
        until("the end", || alive(&marker) == 0).await;
    }
}

#[tokio::test]
async fn without_a_control_group_nothing_is_frozen_and_it_says_so() {
    for (sandbox, freezable) in [(sandbox_of_an_ordinary_user(), true), (sandbox(), false)] {
        let spec = SandboxSpec { freezable, ..script("read line; echo $line") };
        let mut child = sandbox.spawn(spec).await.unwrap();
        // Version 2 needs no preparation, so there it may be frozen all the same.
        if child.freeze().await.unwrap() {
            child.thaw().await.unwrap();
        }
        child.stdin.as_mut().unwrap().write_all(b"on\n").await.unwrap();
        let (out, _, ended) = outcome(child).await;
        assert_eq!((out.as_str(), ended.exit), ("on\n", ProgramExit::Code(0)));
    }
}
