//! Containers for real, under gVisor and under runc. Needs what `cargo xtask test` installs; a runtime that is missing
//! fails the test.

#![expect(clippy::unwrap_used, clippy::panic, reason = "test crate")]
#![expect(clippy::disallowed_methods, reason = "deadlines of waits are real time")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use gantry_sandbox::oci::{ContainerError, ContainerRoot, OciRuntime, RuntimeKind};
use gantry_sandbox::{
    BuildStep, LauncherCommand, MountAccess, OwnFile, PROXY_PORT, ProgramExit, Sandbox, SandboxChild, SandboxEnd,
    SandboxLimits, SandboxNetwork, SandboxSpec, SpawnError,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

#[path = "world/around.rs"]
mod around;

use around::{
    LAUNCHER, PATIENCE, alive, freeze, open_dir, outcome, sandbox, sandbox_of_an_ordinary_user, stands_still, until,
};

const KINDS: [RuntimeKind; 2] = [RuntimeKind::Runsc, RuntimeKind::Runc];

/// As root on a machine that has no group for memory, and so keeps no limit by groups.
fn sandbox_without_groups() -> Sandbox {
    let script = "umount /sys/fs/cgroup/memory && exec \"$0\"";
    let arguments = ["--mount", "--", "/bin/sh", "-c", script, LAUNCHER];
    Sandbox::new(
        LauncherCommand { program: "/usr/bin/unshare".into(), arguments: arguments.map(Into::into).into() },
        64,
    )
}

fn runtime(kind: RuntimeKind) -> OciRuntime {
    OciRuntime::find(kind).unwrap_or_else(|| panic!("{} is not installed", kind.name()))
}

fn script(text: &str) -> SandboxSpec {
    quick(SandboxSpec::new(["/bin/sh", "-c", text]))
}

fn python(text: &str) -> SandboxSpec {
    quick(SandboxSpec::new(["python3", "-c", text]))
}

/// Tests need not wait for a throttled start.
fn quick(mut spec: SandboxSpec) -> SandboxSpec {
    spec.limits.cpu_millicores = 2000;
    spec
}

async fn spawn(kind: RuntimeKind, spec: SandboxSpec) -> Result<SandboxChild, ContainerError> {
    runtime(kind).spawn(&sandbox(), spec, ContainerRoot::HostSystem).await
}

async fn run(kind: RuntimeKind, spec: SandboxSpec) -> (String, String, SandboxEnd) {
    outcome(spawn(kind, spec).await.unwrap()).await
}

#[tokio::test]
async fn a_program_is_nobody_in_a_container_of_its_own() {
    for kind in KINDS {
        let text = "id -u; id -g; id -G; hostname; grep -E 'CapPrm|CapEff|CapBnd' /proc/self/status | tr '\\t' ' '; \
            env | grep -v ^_= | sort; for f in /sys/* /root /home /proc/sys/kernel/core_pattern; do test -e $f && echo $f; done; echo end; exit 7";
        let (out, err, ended) = run(kind, script(text)).await;
        let expected = "65534\n65534\n65534\nsandbox\nCapPrm: 0000000000000000\nCapEff: 0000000000000000\n\
            CapBnd: 0000000000000000\nHOME=/tmp\nLANG=C.UTF-8\nPATH=/usr/local/bin:/usr/bin:/bin\nPWD=/\nTMPDIR=/tmp\nend\n";
        assert_eq!((out.as_str(), ended.exit), (expected, ProgramExit::Code(7)), "{kind:?} {err}");
    }
}

/// Processes in the control groups of a launcher, and the groups themselves.
fn groups_of(launcher: u32) -> Vec<String> {
    let mine = |path: &std::path::Path| path.to_string_lossy().contains(&format!("gantry-{launcher}-"));
    let mut found = Vec::new();
    let mut open = vec![std::path::PathBuf::from("/sys/fs/cgroup")];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                let path = entry.path();
                // The launcher's own directory stays as long as it does.
                if mine(&path) && path.parent().is_some_and(mine) {
                    found.push(path.display().to_string());
                }
                open.push(path);
            }
        }
    }
    found
}

#[tokio::test]
async fn only_what_is_declared_is_there_and_only_as_declared() {
    for kind in KINDS {
        let (read, write, hidden) = (open_dir(), open_dir(), open_dir());
        fs::write(read.path().join("file"), "readable").unwrap();
        fs::write(hidden.path().join("file"), "hidden").unwrap();
        let at = |dir: &tempfile::TempDir| dir.path().display().to_string();
        let text = format!(
            "cat {read}/file; echo; touch {read}/new 2>/dev/null || echo ro; echo made > {write}/new; cat {hidden}/file 2>/dev/null || echo absent; \
             touch /usr/x /etc/x /x /dev/x 2>/dev/null || echo root ro; ln -s {hidden}/file {write}/link; cat {write}/link 2>/dev/null || echo dangling; \
             cat /run/secrets/key; echo x 2>/dev/null > /run/secrets/key || echo kept; cat /etc/hosts | head -1; id -un",
            read = at(&read),
            write = at(&write),
            hidden = at(&hidden),
        );
        let mut spec = script(&text).mount(read.path(), read.path(), MountAccess::Read).mount(
            write.path(),
            write.path(),
            MountAccess::Write,
        );
        spec.files.push(OwnFile { path: "/run/secrets/key".into(), contents: b"s3cret\n".to_vec() });
        let (out, err, _) = run(kind, spec).await;
        let expected = "readable\nro\nabsent\nroot ro\ndangling\ns3cret\nkept\n127.0.0.1 localhost\nnobody\n";
        assert_eq!(out, expected, "{kind:?} {err}");
        assert_eq!(fs::read_to_string(write.path().join("new")).unwrap(), "made\n");
        assert!(!read.path().join("new").try_exists().unwrap());
    }
}

#[tokio::test]
async fn what_lies_behind_a_symbolic_link_is_not_mounted() {
    let (shared, hidden) = (open_dir(), open_dir());
    std::os::unix::fs::symlink(hidden.path(), shared.path().join("data")).unwrap();
    let spec = script("true").mount(shared.path().join("data"), "/data", MountAccess::Read);
    let failure = refused(spawn(RuntimeKind::Runsc, spec).await);
    assert_eq!((failure.step, failure.errno), (BuildStep::Mount, 40), "{failure:?}");
}

fn refused(result: Result<SandboxChild, ContainerError>) -> gantry_sandbox::StepFailure {
    match result {
        Err(ContainerError::Spawn(SpawnError::Step(failure))) => failure,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn streams_exits_and_signals_are_told_as_they_are_without_a_container() {
    for kind in KINDS {
        let mut child = spawn(kind, script("read line; echo out $line; echo err >&2; exit 3")).await.unwrap();
        child.stdin.as_mut().unwrap().write_all(b"hello\n").await.unwrap();
        let (out, err, ended) = outcome(child).await;
        assert_eq!(
            (out.as_str(), err.as_str(), ended.exit),
            ("out hello\n", "err\n", ProgramExit::Code(3)),
            "{kind:?}"
        );
        let (_, _, ended) = run(kind, python("import ctypes; ctypes.string_at(0)")).await;
        assert_eq!(ended.exit, ProgramExit::Signal(11), "{kind:?}");
        assert!(ended.usage.cpu > Duration::ZERO && ended.usage.memory_peak_bytes > 0, "{ended:?}");
    }
}

#[tokio::test]
async fn a_program_that_is_missing_or_cannot_run_is_told_from_a_runtime_that_fails() {
    for kind in KINDS {
        let dir = open_dir();
        fs::write(dir.path().join("plain"), "not a program").unwrap();
        let plain = dir.path().join("plain").display().to_string();
        for (command, errno) in [("no-such-program", 2), ("/no/such/program", 2), (plain.as_str(), 13)] {
            let spec = quick(SandboxSpec::new([command]).mount(dir.path(), dir.path(), MountAccess::Read));
            let failure = refused(spawn(kind, spec).await);
            assert_eq!((failure.step, failure.errno), (BuildStep::Program, errno), "{kind:?} {command} {failure:?}");
        }
    }
    let nothing = OciRuntime::at(RuntimeKind::Runc, "/bin/false")
        .spawn(&sandbox(), script("true"), ContainerRoot::HostSystem)
        .await;
    assert!(matches!(nothing, Err(ContainerError::Unusable(_))), "{nothing:?}");
}

#[tokio::test]
async fn everything_ends_with_the_child_and_nothing_is_left() {
    for kind in KINDS {
        let marker = format!("contained-{}-{kind:?}", std::process::id());
        let text = format!(
            "trap '' TERM INT HUP; (setsid sh -c 'trap \"\" TERM; sleep 1000 # {marker}' &) ; echo ready; sleep 1000"
        );
        let sandbox = sandbox();
        let mut child = runtime(kind).spawn(&sandbox, script(&text), ContainerRoot::HostSystem).await.unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
        let launcher = sandbox.launcher().unwrap();
        assert!(!groups_of(launcher).is_empty());
        let begun = Instant::now();
        child.kill();
        assert_eq!(child.wait().await.exit, ProgramExit::Ended);
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert_eq!(alive(&marker), 0, "the end was told before it was true");
        until("the end of its groups", || groups_of(launcher).is_empty()).await;
        // Of the mounts and files of the bundle nothing was ever visible outside.
        for anchor in ["/mnt", "/media", "/srv"] {
            assert!(!std::path::Path::new(anchor).join("config.json").try_exists().unwrap(), "{anchor}");
        }
    }
}

#[tokio::test]
async fn containers_leave_the_processes_alone_that_wait_for_programs() {
    let sandbox = sandbox();
    let plain = |text: &str| sandbox.spawn(script(text));
    assert_eq!(outcome(plain("exit 3").await.unwrap()).await.2.exit, ProgramExit::Code(3));
    let launcher = sandbox.launcher().unwrap();
    // The one that ran is gone, and three wait: in each group a first process and the one that will be the program.
    let all_wait = || {
        let groups = groups_of(launcher);
        let names: std::collections::BTreeSet<_> = groups.iter().filter_map(|dir| dir.rsplit('/').next()).collect();
        names.len() == 3 && members(launcher) == groups.len() * 2
    };
    until("processes that wait", all_wait).await;
    let before = groups_of(launcher);
    for _ in 0..3 {
        let child =
            runtime(RuntimeKind::Runc).spawn(&sandbox, script("exit 4"), ContainerRoot::HostSystem).await.unwrap();
        assert_eq!(outcome(child).await.2.exit, ProgramExit::Code(4));
    }
    until("the groups from before", || groups_of(launcher) == before).await;
}

/// Processes in the groups of a launcher.
fn members(launcher: u32) -> usize {
    let lists = groups_of(launcher).into_iter().map(|dir| fs::read_to_string(format!("{dir}/cgroup.procs")));
    lists.map(|list| list.unwrap_or_default().lines().count()).sum()
}

#[tokio::test]
async fn a_launcher_that_is_killed_takes_its_containers_along_and_the_next_one_sweeps_up() {
    for kind in KINDS {
        let sandbox = sandbox();
        let mut child =
            runtime(kind).spawn(&sandbox, script("echo ready; sleep 1000"), ContainerRoot::HostSystem).await.unwrap();
        let mut ready = [0; 6];
        child.stdout.as_mut().unwrap().read_exact(&mut ready).await.unwrap();
        let first = sandbox.launcher().unwrap();
        assert!(members(first) > 1, "runtime and program are in the group");
        let killed = std::process::Command::new("kill").args(["-9", &first.to_string()]).status().unwrap();
        assert!(killed.success());
        assert_eq!(child.wait().await.exit, ProgramExit::Ended);
        until("the end of the container", || members(first) == 0).await;
        outcome(runtime(kind).spawn(&sandbox, script("true"), ContainerRoot::HostSystem).await.unwrap()).await;
        assert_eq!(groups_of(first), Vec::<String>::new(), "{kind:?}");
    }
}

#[tokio::test]
async fn too_much_memory_is_told_from_a_crash() {
    for kind in KINDS {
        let limits = SandboxLimits { memory_bytes: 64 << 20, cpu_millicores: 2000, ..SandboxLimits::default() };
        let (_, err, ended) = run(kind, SandboxSpec { limits, ..python("x = b'x' * (400 << 20)") }).await;
        assert_ne!(ended.exit, ProgramExit::Code(0), "{kind:?} {err}");
        assert!(ended.usage.oom_kills > 0, "{kind:?} {ended:?} {err}");
        // By a child, because the first process of a process namespace does not get signals of its own.
        let (_, _, ended) = run(kind, script("sh -c 'kill -9 $$'; exit $?")).await;
        assert_eq!((ended.exit, ended.usage.oom_kills), (ProgramExit::Signal(9), 0), "{kind:?}");
    }
}

#[tokio::test]
async fn scratch_is_bounded_and_the_bound_is_told() {
    for kind in KINDS {
        let limits = SandboxLimits { scratch_bytes: 1 << 20, cpu_millicores: 2000, ..SandboxLimits::default() };
        let fill = "echo x > /tmp/x && cat /tmp/x; dd if=/dev/zero of=/tmp/a bs=64k count=100 2>/dev/null || echo full; dd if=/dev/zero of=/dev/shm/b bs=64k count=1 2>/dev/null || echo full";
        let (out, err, ended) = run(kind, SandboxSpec { limits, ..script(fill) }).await;
        assert_eq!((out.as_str(), ended.scratch_full), ("x\nfull\nfull\n", true), "{kind:?} {err}");
    }
}

#[tokio::test]
async fn a_fork_bomb_stays_inside_its_bound() {
    let fork = "import os\nn = 0\ntry:\n  while n < 2000:\n    if os.fork() == 0: os.execv('/bin/sleep', ['sleep', '100'])\n    n += 1\nexcept OSError: pass\nprint(n)";
    for kind in KINDS {
        let limits = SandboxLimits { pids: 10, cpu_millicores: 2000, ..SandboxLimits::default() };
        let (out, err, ended) = run(kind, SandboxSpec { limits, ..python(fork) }).await;
        // gVisor itself does not survive being refused a process; then there is no answer at all.
        let made = out.trim().parse::<u32>().unwrap_or(0);
        assert!(made < 10 + kind.pids_allowance() && ended.usage.pids_refused > 0, "{kind:?} {out} {err} {ended:?}");
    }
}

#[tokio::test]
async fn without_a_network_nothing_can_be_reached_and_with_one_only_the_proxy() {
    let connect = |port: u16| {
        format!(
            "import socket\ntry:\n  s = socket.create_connection(('127.0.0.1', {port}), 5); s.sendall(b'hi'); print('connected')\nexcept OSError as e: print('no')"
        )
    };
    let outside = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = outside.local_addr().unwrap().port();
    for kind in KINDS {
        let (out, _, _) = run(kind, python(&connect(port))).await;
        assert_eq!(out, "no\n", "{kind:?}");
        let proxied = |port| SandboxSpec { network: SandboxNetwork::Proxied, ..python(&connect(port)) };
        let mut child = spawn(kind, proxied(PROXY_PORT)).await.unwrap();
        let (mut stream, _) = child.sockets.take().unwrap().proxy.accept().await.unwrap();
        let mut said = [0; 2];
        stream.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"hi");
        assert_eq!(outcome(child).await.0, "connected\n", "{kind:?}");
        assert_eq!(run(kind, proxied(port)).await.0, "no\n", "{kind:?}");
    }
}

#[tokio::test]
async fn system_calls_of_refused_families_fail_under_runc_as_in_a_process_sandbox() {
    // unshare, mount, ptrace, keyctl, bpf, a raw socket, typing on a terminal.
    let text = "import ctypes, fcntl, os, socket\nl = ctypes.CDLL(None, use_errno=True)\n\
        for n, a in ((272, 0x10000000), (165, 0), (101, 0), (250, 0), (321, 0)): print(l.syscall(n, a, 0, 0, 0, 0), ctypes.get_errno())\n\
        try: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)\nexcept OSError as e: print(e.errno)\n\
        try: fcntl.ioctl(0, 0x5412, b'x')\nexcept OSError as e: print(e.errno)\n\
        try: fcntl.ioctl(0, 0x5401, b'x' * 60)\nexcept OSError as e: print(e.errno)";
    let (out, err, _) = run(RuntimeKind::Runc, python(text)).await;
    assert_eq!(out, "-1 1\n-1 1\n-1 1\n-1 1\n-1 1\n1\n1\n25\n", "{err}");
}

#[tokio::test]
async fn a_directory_can_be_the_root_and_is_never_written_to() {
    for kind in KINDS {
        let image = tempfile::tempdir().unwrap();
        fs::set_permissions(image.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(image.path().join("bin")).unwrap();
        fs::copy("/bin/busybox", image.path().join("bin/busybox")).unwrap();
        std::os::unix::fs::symlink("busybox", image.path().join("bin/sh")).unwrap();
        // A link that leads out of the image must lead nowhere, or to the image.
        std::os::unix::fs::symlink("/etc", image.path().join("leads-out")).unwrap();
        let before = tree(image.path());
        let spec = script(
            "/bin/busybox ls / | /bin/busybox tr '\\n' ' '; /bin/busybox cat /tool/main; /bin/busybox touch /bin/x || echo ro; /bin/busybox cat /leads-out/shadow 2>/dev/null || echo nowhere",
        );
        let folder = open_dir();
        fs::write(folder.path().join("main"), "main\n").unwrap();
        let spec = spec.mount(folder.path(), "/tool", MountAccess::Read);
        let child =
            runtime(kind).spawn(&sandbox(), spec, ContainerRoot::Directory(image.path().to_owned())).await.unwrap();
        let (out, err, _) = outcome(child).await;
        assert_eq!(out, "bin dev etc leads-out proc run sys tmp tool main\nro\nnowhere\n", "{kind:?} {err}");
        assert_eq!(tree(image.path()), before);
        // Below the link there is no place for a mount; above all, none is made where it leads to on the machine.
        let spec = script("true").mount(folder.path(), "/leads-out/gantry-test", MountAccess::Read);
        let result = runtime(kind).spawn(&sandbox(), spec, ContainerRoot::Directory(image.path().to_owned())).await;
        refused(result);
        assert!(!std::path::Path::new("/etc/gantry-test").try_exists().unwrap());
    }
}

fn tree(dir: &std::path::Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).unwrap().flatten() {
            found.push(entry.path());
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn an_ordinary_user_has_gvisor_without_writable_paths_and_is_told_what_is_missing() {
    let sandbox = sandbox_of_an_ordinary_user();
    let gvisor = runtime(RuntimeKind::Runsc);
    let mut spec = script("id -u; cat /run/secrets/key; echo x > /tmp/x && cat /tmp/x");
    spec.files.push(OwnFile { path: "/run/secrets/key".into(), contents: b"s3cret\n".to_vec() });
    let (out, err, ended) = outcome(gvisor.spawn(&sandbox, spec, ContainerRoot::HostSystem).await.unwrap()).await;
    assert_eq!((out.as_str(), ended.exit), ("65534\ns3cret\nx\n", ProgramExit::Code(0)), "{err}");
    let limits = SandboxLimits { scratch_bytes: 2 << 20, cpu_millicores: 2000, ..SandboxLimits::default() };
    let fill = "dd if=/dev/zero of=/tmp/a bs=64k count=100 2>/dev/null || echo full; dd if=/dev/zero of=/dev/shm/a bs=64k count=100 2>/dev/null || echo full";
    let spec = SandboxSpec { limits, ..script(fill) };
    let (out, err, _) = outcome(gvisor.spawn(&sandbox, spec, ContainerRoot::HostSystem).await.unwrap()).await;
    assert_eq!(out, "full\nfull\n", "{err}");
    // Without a control group memory is bounded for each process.
    let limits = SandboxLimits { memory_bytes: 64 << 20, ..SandboxLimits::default() };
    let spec = SandboxSpec { limits, ..python("x = b'x' * (200 << 20)") };
    let (_, err, ended) = outcome(gvisor.spawn(&sandbox, spec, ContainerRoot::HostSystem).await.unwrap()).await;
    assert!(err.contains("MemoryError") && ended.exit == ProgramExit::Code(1), "{err} {ended:?}");
    let dir = open_dir();
    let spec = script("true").mount(dir.path(), "/data", MountAccess::Write);
    let failure = refused(gvisor.spawn(&sandbox, spec, ContainerRoot::HostSystem).await);
    assert!(failure.step == BuildStep::Runtime && failure.detail.contains("ordinary user"), "{failure:?}");
    let ContainerError::Unusable(unusable) =
        runtime(RuntimeKind::Runc).spawn(&sandbox, script("true"), ContainerRoot::HostSystem).await.unwrap_err()
    else {
        panic!("runc as an ordinary user")
    };
    assert!(unusable.reason.contains("needs root"), "{unusable:?}");
}

#[tokio::test]
async fn what_is_frozen_in_a_container_does_nothing_until_it_is_thawed() {
    for kind in KINDS {
        let sandbox = sandbox();
        let spec =
            python("import sys\nfor line in sys.stdin:\n print(line, end='', flush=True); sum(range(100000000))");
        let spec = SandboxSpec { freezable: true, ..spec };
        let mut child = runtime(kind).spawn(&sandbox, spec, ContainerRoot::HostSystem).await.unwrap();
        let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        stdin.write_all(b"1\n").await.unwrap();
        stdout.read_exact(&mut [0; 2]).await.unwrap();
        freeze(&mut child).await;
        stands_still(&sandbox, &mut child, &python("sum(range(1000000))")).await;
        child.thaw().await.unwrap();
        stdin.write_all(b"2\n").await.unwrap();
        let mut answer = [0; 2];
        let heard = tokio::time::timeout(PATIENCE, stdout.read_exact(&mut answer)).await;
        heard.expect("it goes on").unwrap();
        assert_eq!(&answer, b"2\n", "{kind:?}");
        // And once more, because it is frozen between any two calls, and ended so.
        freeze(&mut child).await;
        child.kill();
        tokio::time::timeout(PATIENCE, child.wait()).await.expect("it ends");
        let launcher = sandbox.launcher().unwrap();
        drop((child, sandbox));
        let start = Instant::now();
        while !groups_of(launcher).is_empty() {
            assert!(start.elapsed() < PATIENCE, "{:?}", groups_of(launcher));
        }
    }
}

/// Says which of the calls that make memory of no process fail.
const OWNERLESS: &str = "
import ctypes, os
try: os.memfd_create('x'); print('memfd')
except OSError as e: print(e.errno)
libc = ctypes.CDLL(None, use_errno=True)
print('shm' if libc.shmget(0, 4096, 0o1600) >= 0 else ctypes.get_errno())
";

#[tokio::test]
async fn where_no_group_counts_a_container_has_no_memory_beside_its_processes() {
    let runc = runtime(RuntimeKind::Runc);
    let (out, err, _) =
        outcome(runc.spawn(&sandbox(), python(OWNERLESS), ContainerRoot::HostSystem).await.unwrap()).await;
    assert_eq!(out, "memfd\nshm\n", "{err}");
    let alone = sandbox_without_groups();
    let (out, err, _) = outcome(runc.spawn(&alone, python(OWNERLESS), ContainerRoot::HostSystem).await.unwrap()).await;
    assert_eq!(out, "1\n1\n", "{err}");
}

#[tokio::test]
async fn where_no_group_counts_the_scratch_of_a_container_is_memory_of_its_call() {
    let limits = SandboxLimits {
        memory_bytes: 256 << 20,
        scratch_bytes: 1 << 30,
        cpu_millicores: 2000,
        ..SandboxLimits::default()
    };
    // Files in memory, more than the call may have, and then nothing until it is ended.
    let fill = "head -c 700000000 /dev/zero > /tmp/a; echo filled; exec sleep 1000";
    let spec = SandboxSpec { limits, ..script(fill) };
    let child =
        runtime(RuntimeKind::Runc).spawn(&sandbox_without_groups(), spec, ContainerRoot::HostSystem).await.unwrap();
    let (out, err, ended) = outcome(child).await;
    assert!(ended.usage.oom_kills > 0, "{out} {err} {ended:?}");
}
