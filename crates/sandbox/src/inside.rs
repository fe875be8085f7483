//! What happens between the birth of a sandbox's first process and the first instruction of the program.
//!
//! ```text
//! launcher ── clone ──▶ first process                                        (process 1 of its namespace)
//!                        │ joins its control group, leads a session
//!                        │ builds what is the same for all: system directories, devices, /proc, scratch
//!                        │ leaves the machine's root                          (root; an ordinary user has to do it later)
//!                        ├── clone ──▶ second process: root → nobody, into a user namespace of its own
//!                        │              │ drops every capability, takes the system call filter on
//!                        │ waits for its order                                (a few wait ahead of time)
//!                        │ loopback and the sockets of the network, if asked for
//!                        │ adds what is declared, and closes the root
//!                        │ root → nobody, into that user namespace, drops every capability
//!                        │              │ streams, working directory, Landlock, execve: the program
//!                        │ tells that it runs, closes itself to the program
//!                        └ waits, tells the end, leaves: and everything inside ends with it
//! ```
//!
//! If Gantry is root, all namespaces but the user namespace are made by root and belong to the machine's: even a program
//! that got capabilities inside would have none over them. An ordinary user has to make the user namespace first, and
//! owns the others through it. Either way the program has no capability at all.
//!
//! This code runs in a copy of the launcher, which has one thread; so it may allocate. It never returns.
//!
//! Not here: the second process ([`program`]), and what becomes of a container ([`container`]).

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};
use rustix::thread::UnshareFlags;

use self::bundle::OciBundle;
use self::program::{Second, Waiting};
use self::seccomp::FilterProgram as Filter;
use crate::cgroup::{CgroupMembership, SandboxCgroup};
use crate::error::{BuildStep, StepFailure};
use crate::spec::{NAMES_PORT, PROXY_PORT, SandboxNetwork, SandboxSpec};
use crate::system::{self, ReapedProcess};
use crate::wire::{self, LaunchOrder, LauncherMessage, MESSAGE_BYTES_MAX};

mod bundle;
mod container;
pub(crate) mod identity;
pub(crate) mod landlock;
mod program;
mod reaper;
pub(crate) mod root;
pub(crate) mod seccomp;

/// Everything a first process needs before it has an order.
pub(crate) struct ProcessSetup<'l> {
    pub(crate) kind: &'l BirthKind,
    /// The size of scratch that is expected; the order may say another.
    pub(crate) scratch_bytes: u64,
    pub(crate) filter: &'l Filter,
    pub(crate) group: &'l SandboxCgroup,
    pub(crate) membership: &'l CgroupMembership,
    /// Bounds that no control group keeps.
    pub(crate) limits_by_process: bool,
    /// Where the order comes from.
    pub(crate) orders: OwnedFd,
    /// Who Gantry is outside, if it is not root.
    pub(crate) user: Option<(u32, u32)>,
}

/// What an order must agree with to be given to a first process that is waiting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BirthKind {
    /// It becomes a container runtime.
    pub(crate) runtime: bool,
    /// It leaves the machine's root before it has an order, and gets declared trees with it.
    pub(crate) leaves_early: bool,
    /// What it sees of the system; nothing that is mounted beforehand, for a runtime.
    pub(crate) system: Vec<PathBuf>,
}

/// The namespaces of a first process, as flags for `clone`.
pub(crate) fn namespaces(privileged: bool) -> u64 {
    let own =
        UnshareFlags::NEWPID | UnshareFlags::NEWNS | UnshareFlags::NEWNET | UnshareFlags::NEWIPC | UnshareFlags::NEWUTS;
    let user = if privileged { UnshareFlags::empty() } else { UnshareFlags::NEWUSER };
    u64::from((own | user).bits())
}

/// The life of a first process.
pub(crate) fn live(birth: ProcessSetup<'_>) -> ! {
    // First, because the lists of members are among what is closed next.
    let joined = birth.membership.join();
    let ProcessSetup { kind, scratch_bytes, filter, limits_by_process, user, .. } = birth;
    let Some(orders) = alone_with(birth.orders) else { system::leave(1) };
    let counters = birth.group.counters();
    let privileged = user.is_none();
    let ready = joined.and_then(|()| common(kind, user)).and_then(|proc| {
        if kind.runtime {
            return container::wait(proc);
        }
        let second = Second { filter, limits_by_process, privileged };
        program_to_be(kind, scratch_bytes, &second, proc)
    });
    let Some(Given { spec, control, streams, trees }) = order(&orders) else { system::leave(0) };
    // What it took to get here is not the program's doing.
    let cpu_micros = counters.cpu_micros().unwrap_or(0);
    let started = ready.and_then(|ready| match ready {
        Ready::Program(ready) => ready.start(spec, &streams, trees),
        Ready::Runtime => container::start(&spec, streams, limits_by_process, privileged),
    });
    let told = started.and_then(|started| {
        let own = rustix::process::pidfd_open(Pid::INIT, PidfdFlags::empty())
            .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "naming the first process"))?;
        // A runtime, which has other children, is not sure of this before.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let _ = identity::close_to_others();
        Ok((started, own))
    });
    match told {
        Ok((Started { main, sockets, bundle, ended, mounts }, own)) => {
            let fds: Vec<BorrowedFd<'_>> = [&own].into_iter().chain(&sockets).map(|fd| fd.as_fd()).collect();
            if wire::send(control.as_fd(), &LauncherMessage::Started, &fds).is_err() {
                system::leave(1);
            }
            drop((own, sockets));
            let end = reaper::Farewell { owner: control, launcher: orders, counters, cpu_micros, mounts, bundle };
            match ended {
                Some(ended) => end.tell_and_leave(&ended),
                None => end.wait_and_leave(main),
            }
        }
        Err(failure) => {
            // An owner that is gone does not want to know; to the launcher the end of this process says enough.
            let _ = wire::send(control.as_fd(), &LauncherMessage::Failed(failure), &[]);
            system::leave(1)
        }
    }
}

/// A first process that has done what it can without an order.
enum Ready {
    Program(ReadyProgram),
    Runtime,
}

/// A program, or a container, that runs.
struct Started {
    main: i32,
    /// Those of the network, if one was asked for: the proxy's, the one for names, the direct ones.
    sockets: Vec<OwnedFd>,
    /// What a runtime runs.
    bundle: Option<OciBundle>,
    /// It was quick.
    ended: Option<ReapedProcess>,
    /// The mount namespace.
    mounts: Option<OwnedFd>,
}

/// Closes everything of the launcher but the socket the order comes from, which becomes descriptor 3. The standard
/// streams must not be free, or the next file that is opened would become one.
fn alone_with(orders: OwnedFd) -> Option<OwnedFd> {
    let nothing = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).ok()?;
    rustix::stdio::dup2_stdin(&nothing).ok()?;
    rustix::stdio::dup2_stdout(&nothing).ok()?;
    rustix::stdio::dup2_stderr(&nothing).ok()?;
    let high = rustix::io::fcntl_dupfd_cloexec(&orders, 64).ok()?;
    drop(orders);
    let orders = system::move_to(high, 3).ok()?;
    system::close_from(4).ok()?;
    system::already_closed(nothing);
    Some(orders)
}

/// An order with what came beside it.
struct Given {
    spec: SandboxSpec,
    control: OwnedFd,
    streams: [OwnedFd; 3],
    /// What is declared, if somebody else has opened it.
    trees: Vec<OwnedFd>,
}

/// Waits for the order. `None`: there will be none.
fn order(orders: &OwnedFd) -> Option<Given> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        return match wire::receive::<LaunchOrder>(orders, &mut buffer) {
            Ok(Some((order, fds))) => {
                let mut fds = fds.into_iter();
                let (control, streams) = (fds.next()?, [fds.next()?, fds.next()?, fds.next()?]);
                Some(Given { spec: order.spec, control, streams, trees: fds.collect() })
            }
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(None) | Err(_) => None,
        };
    }
}

/// What programs and containers have in common. Gives the machine's `/proc`, which is needed once more.
fn common(kind: &BirthKind, user: Option<(u32, u32)>) -> Result<OwnedFd, StepFailure> {
    let namespace = |error: rustix::io::Errno| StepFailure::new(BuildStep::Namespaces, error, "in the first process");
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(namespace)?;
    rustix::process::setsid().map_err(namespace)?;
    let proc = identity::machine_proc()?;
    first_to_go(proc.as_fd());
    if let Some((uid, gid)) = user {
        // A runtime insists on being root, if only of a namespace in which there is nobody else.
        identity::map(proc.as_fd(), if kind.runtime { 0 } else { identity::NOBODY }, uid, gid)?;
    }
    // After joining, so that the group itself is the root that the program sees.
    system::unshare(UnshareFlags::NEWCGROUP)
        .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "making a control group namespace"))?;
    rustix::system::sethostname(b"sandbox").map_err(namespace)?;
    Ok(proc)
}

/// Where the machine has no memory left, the kernel ends this process and what it begets before the server and the launcher:
/// those are what ends calls. Some systems do not let anybody say so, and nothing else depends on it.
fn first_to_go(proc: BorrowedFd<'_>) {
    let score = rustix::fs::openat(proc, c"self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty());
    let _ = score.and_then(|score| rustix::io::write(&score, b"1000"));
}

// ------------------------------------------------------------------------------------------------------- the program

/// A root without what is declared, and a process that will be the program.
struct ReadyProgram {
    waiting: Waiting,
    scratch_bytes: u64,
    /// The machine's root is left already, and declared trees come with the order.
    left: bool,
    mounts: Option<OwnedFd>,
}

fn program_to_be(
    kind: &BirthKind,
    scratch_bytes: u64,
    second: &Second<'_>,
    proc: OwnedFd,
) -> Result<Ready, StepFailure> {
    root::build(&kind.system, scratch_bytes)?;
    if kind.leaves_early {
        root::leave_the_machine()?;
    }
    fixed_limits()?;
    let waiting = second.prepare(proc)?;
    // Not there: it is taken apart when the first process leaves.
    let mounts = rustix::fs::open("proc/self/ns/mnt", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
    Ok(Ready::Program(ReadyProgram { waiting, scratch_bytes, left: kind.leaves_early, mounts }))
}

impl ReadyProgram {
    fn start(self, spec: SandboxSpec, streams: &[OwnedFd; 3], trees: Vec<OwnedFd>) -> Result<Started, StepFailure> {
        let sockets = network_sockets(&spec)?;
        if spec.limits.scratch_bytes != self.scratch_bytes {
            root::resize_scratch(spec.limits.scratch_bytes)?;
        }
        if self.left {
            root::furnish(root::opened_trees(&spec.mounts, trees)?, &spec.files)?;
        } else {
            root::furnish(root::declared_trees(&spec.mounts)?, &spec.files)?;
            root::leave_the_machine()?;
        }
        root::close()?;
        if let Some(namespace) = self.waiting.user_namespace() {
            identity::follow_nobody(namespace)?;
        }
        identity::drop_privileges()?;
        // Changing who one is forgets this.
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
            .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "in the first process"))?;
        let main = self.waiting.start(spec, streams)?;
        Ok(Started { main, sockets, bundle: None, ended: None, mounts: self.mounts })
    }
}

/// Sockets on the sandbox's own loopback, for whoever holds them: the proxy's listener, where names are asked for, and one
/// listener for each direct port.
fn network_sockets(spec: &SandboxSpec) -> Result<Vec<OwnedFd>, StepFailure> {
    if spec.network == SandboxNetwork::None {
        return Ok(Vec::new());
    }
    let failed = |what: &'static str| move |error: std::io::Error| StepFailure::new(BuildStep::Network, error, what);
    system::loopback_up().map_err(failed("loopback"))?;
    for (number, address) in spec.direct.addresses.iter().enumerate() {
        system::loopback_address(number, *address).map_err(failed("an address of loopback"))?;
    }
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, PROXY_PORT)).map_err(failed("the proxy's listener"))?;
    let names = UdpSocket::bind((Ipv4Addr::LOCALHOST, NAMES_PORT)).map_err(failed("the socket for names"))?;
    let mut sockets = vec![proxy.into(), names.into()];
    for port in spec.direct.ports.iter().filter(|port| **port != PROXY_PORT) {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).map_err(failed("a direct listener"))?;
        sockets.push(listener.into());
    }
    Ok(sockets)
}

// ----------------------------------------------------------------------------------------------------------- limits

fn limit(resource: Resource, value: u64) -> Result<(), StepFailure> {
    rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
        .map_err(|error| StepFailure::new(BuildStep::ResourceLimits, error, format!("{resource:?}")))
}

/// What no kernel gives more descriptors than, unless it is told to.
const OPEN_FILES_MAX: u64 = 1 << 20;

/// Those that are the same for all, of this process and all it makes.
fn fixed_limits() -> Result<(), StepFailure> {
    // Whoever may raise it does so now: an order may ask for more than is usual here, and then nobody may any more.
    let _ = limit(Resource::Nofile, OPEN_FILES_MAX);
    limit(Resource::Core, 0)?;
    limit(Resource::Memlock, 64 << 10)?;
    limit(Resource::Msgqueue, 64 << 10)?;
    limit(Resource::Nice, 0)?;
    limit(Resource::Rtprio, 0)
}

/// Those of an order.
fn limits(open_files: u64, spec: &SandboxSpec, by_process: bool) -> Result<(), StepFailure> {
    limit(Resource::Nofile, open_files)?;
    if by_process {
        // Of each process, because nothing else can be had; what they may be together is bounded by their number.
        let limits = crate::oci::group_limits(spec);
        limit(Resource::Data, limits.memory_bytes)?;
        limit(Resource::Nproc, u64::from(limits.pids))?;
    }
    Ok(())
}
