//! What happens between the birth of a sandbox's first process and the first instruction of the program.
//!
//! ```text
//! launcher ── clone ──▶ first process                                        (process 1 of its namespace)
//!                        │ joins its control group, leads a session
//!                        │ builds what is the same for all: system directories, devices, /proc
//!                        │ waits for its order                                (a few wait ahead of time)
//!                        │ loopback and the proxy's listener, if asked for
//!                        │ adds what is declared, and enters its root
//!                        │ root → nobody, then into a user namespace          (an ordinary user was mapped at birth)
//!                        │ drops every capability
//!                        ├── clone ──▶ the program: Landlock, system call filter, execve
//!                        │ tells that it runs, closes its streams, closes itself to the program
//!                        └ waits, tells the end, leaves: and everything inside ends with it
//! ```
//!
//! If Gantry is root, all namespaces but the user namespace are made by root and belong to the machine's: even a program
//! that got capabilities inside would have none over them. An ordinary user has to make the user namespace first, and
//! owns the others through it. Either way the program has no capability at all.
//!
//! This code runs in a copy of the launcher, which has one thread; so it may allocate. It never returns.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Resource, Rlimit, Signal};
use rustix::thread::UnshareFlags;

use self::bundle::Bundle;
use self::seccomp::Program as Filter;
use crate::cgroup::Membership;
use crate::error::{Step, StepFailure};
use crate::spec::{Confinement, Network, PROXY_PORT, Spec};
use crate::system::{self, Side};
use crate::wire::{self, MESSAGE_BYTES_MAX, Order, Word};

mod bundle;
pub(crate) mod identity;
pub(crate) mod landlock;
mod reaper;
mod root;
pub(crate) mod seccomp;

/// Everything a first process needs before it has an order.
pub(crate) struct Birth<'l> {
    pub(crate) kind: &'l BirthKind,
    pub(crate) filter: &'l Filter,
    pub(crate) membership: &'l Membership,
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
pub(crate) fn live(birth: Birth<'_>) -> ! {
    // First, because the lists of members are among what is closed next.
    let joined = birth.membership.join();
    let Some(orders) = alone_with(birth.orders) else { system::leave(1) };
    let ready = joined.and_then(|()| before_the_order(birth.kind, birth.user));
    let Some((spec, descriptors)) = order(&orders) else { system::leave(0) };
    drop(orders);
    let Some(control) = take_descriptors(descriptors) else { system::leave(1) };
    let prepared = ready.and_then(|proc| prepare(&spec, proc, birth.limits_by_process, birth.user.is_none()));
    let started = prepared.and_then(|(listener, bundle)| {
        let main = start(&spec, bundle.as_ref(), birth.filter)?;
        let ended = bundle.as_ref().map_or(Ok(None), |bundle| bundle.started(main))?;
        Ok((main, listener, bundle, ended))
    });
    match started {
        Ok((main, listener, bundle, ended)) => {
            let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
            let _ = identity::close_to_others();
            for stream in 0..3 {
                // The program has its own; what is held here would keep the pipes open.
                system::close(stream);
            }
            let fds: Vec<BorrowedFd<'_>> = listener.iter().map(|fd| fd.as_fd()).collect();
            if wire::send(control.as_fd(), &Word::Started, &fds).is_err() {
                system::leave(1);
            }
            drop(listener);
            match ended {
                Some(ended) => reaper::tell_and_leave(control.as_fd(), &ended, bundle.as_ref()),
                None => reaper::wait_and_leave(control.as_fd(), main, bundle.as_ref()),
            }
        }
        Err(failure) => {
            let _ = wire::send(control.as_fd(), &Word::Failed(failure), &[]);
            system::leave(1)
        }
    }
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

/// Waits for the order. `None`: there will be none.
fn order(orders: &OwnedFd) -> Option<(Spec, [OwnedFd; 4])> {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        return match wire::receive::<Order>(orders, &mut buffer) {
            Ok(Some((order, fds))) => Some((order.spec, fds.try_into().ok()?)),
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
            Ok(None) | Err(_) => None,
        };
    }
}

fn take_descriptors([control, stdin, stdout, stderr]: [OwnedFd; 4]) -> Option<OwnedFd> {
    rustix::stdio::dup2_stdin(&stdin).ok()?;
    rustix::stdio::dup2_stdout(&stdout).ok()?;
    rustix::stdio::dup2_stderr(&stderr).ok()?;
    Some(control)
}

/// All that does not depend on the order. Gives the machine's `/proc`, which is needed once more.
fn before_the_order(kind: &BirthKind, user: Option<(u32, u32)>) -> Result<OwnedFd, StepFailure> {
    let namespace = |error: rustix::io::Errno| StepFailure::new(Step::Namespaces, error, "in the first process");
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(namespace)?;
    rustix::process::setsid().map_err(namespace)?;
    let proc = identity::machine_proc()?;
    if let Some((uid, gid)) = user {
        // A runtime insists on being root, if only of a namespace in which there is nobody else.
        identity::map(proc.as_fd(), if kind.runtime { 0 } else { identity::NOBODY }, uid, gid)?;
    }
    // After joining, so that the group itself is the root that the program sees.
    system::unshare(UnshareFlags::NEWCGROUP)
        .map_err(|error| StepFailure::new(Step::Namespaces, error, "making a control group namespace"))?;
    rustix::system::sethostname(b"sandbox").map_err(namespace)?;
    if kind.runtime {
        root::private_mounts()?;
        root::proc_for_runtime()?;
    } else {
        root::build(&kind.system)?;
    }
    Ok(proc)
}

/// The proxy's listener, if one was asked for, and the bundle, if a runtime is to run it.
type Prepared = (Option<OwnedFd>, Option<Bundle>);

/// Everything up to an identity without rights; or up to a runtime, which has to get there itself.
fn prepare(spec: &Spec, proc: OwnedFd, limits_by_process: bool, privileged: bool) -> Result<Prepared, StepFailure> {
    let listener = match spec.network {
        Network::None => None,
        Network::Proxied => Some(proxy_listener()?),
    };
    resource_limits(spec, limits_by_process)?;
    let bundle = match &spec.confinement {
        Confinement::Full => {
            root::enter(spec)?;
            if privileged {
                identity::become_nobody(proc.as_fd())?;
            }
            drop(proc);
            identity::drop_privileges()?;
            None
        }
        Confinement::Runtime(container) => {
            drop(proc);
            Some(bundle::build(spec, container, !privileged, limits_by_process)?)
        }
    };
    // Changing who one is forgets this.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| StepFailure::new(Step::Namespaces, error, "in the first process"))?;
    // The directory of a container's program is the runtime's to enter.
    let cwd = if bundle.is_some() { Path::new("/") } else { &spec.cwd };
    rustix::process::chdir(cwd)
        .map_err(|error| StepFailure::new(Step::WorkingDirectory, error, spec.cwd.display().to_string()))?;
    Ok((listener, bundle))
}

/// A listener on the sandbox's own loopback, for whoever holds it.
fn proxy_listener() -> Result<OwnedFd, StepFailure> {
    let failed = |error: std::io::Error| StepFailure::new(Step::Network, error, "the proxy's listener");
    system::loopback_up().map_err(failed)?;
    let listener = std::net::TcpListener::bind(("127.0.0.1", PROXY_PORT)).map_err(failed)?;
    Ok(listener.into())
}

/// Descriptors of a runtime itself: it holds some for the program's. The program's own limit is in its configuration.
const RUNTIME_OPEN_FILES: u64 = 4096;

fn resource_limits(spec: &Spec, by_process: bool) -> Result<(), StepFailure> {
    let limits = crate::oci::group_limits(spec);
    let open_files = match spec.confinement {
        Confinement::Full => u64::from(limits.open_files),
        Confinement::Runtime(_) => u64::from(limits.open_files).saturating_add(RUNTIME_OPEN_FILES),
    };
    let set = |resource, value: u64| {
        rustix::process::setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) })
            .map_err(|error| StepFailure::new(Step::ResourceLimits, error, format!("{resource:?}")))
    };
    set(Resource::Core, 0)?;
    set(Resource::Nofile, open_files)?;
    set(Resource::Memlock, 64 << 10)?;
    set(Resource::Msgqueue, 64 << 10)?;
    set(Resource::Nice, 0)?;
    set(Resource::Rtprio, 0)?;
    if by_process {
        // Of each process, because nothing else can be had; what they may be together is bounded by their number.
        set(Resource::Data, limits.memory_bytes)?;
        set(Resource::Nproc, u64::from(limits.pids))?;
    }
    Ok(())
}

// ------------------------------------------------------------------------------------------------------ the program

/// Starts the program and waits until it is one. Gives its process number.
fn start(spec: &Spec, bundle: Option<&Bundle>, filter: &Filter) -> Result<i32, StepFailure> {
    let program = |error: rustix::io::Errno| StepFailure::new(Step::Program, error, "");
    let (told, tells) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(program)?;
    match system::clone(0, None).map_err(|error| StepFailure::new(Step::Program, error, "making a process"))? {
        Side::Child => {
            drop(told);
            let failure = become_program(spec, bundle, filter);
            let text = serde_json::to_vec(&failure).unwrap_or_default();
            let _ = rustix::io::write(&tells, &text);
            system::leave(127)
        }
        Side::Parent { pid, pidfd } => {
            drop((tells, pidfd));
            let mut text = vec![0; 4096];
            // Closed without a word by `execve`.
            let count = rustix::io::retry_on_intr(|| rustix::io::read(&told, &mut *text)).map_err(program)?;
            match text.get(..count) {
                None | Some([]) => Ok(pid),
                Some(text) => Err(serde_json::from_slice(text)
                    .unwrap_or_else(|_| StepFailure::refused(Step::Program, "the program's process died"))),
            }
        }
    }
}

/// Never comes back, unless something failed.
fn become_program(spec: &Spec, bundle: Option<&Bundle>, filter: &Filter) -> StepFailure {
    let ready = match bundle {
        None => ready_program(&spec.command, &spec.env)
            .and_then(|program| landlock::apply(spec).map(|_| program))
            .and_then(|program| filter.apply().map(|()| program)),
        Some(bundle) => ready_program(&bundle.command, &bundle.env),
    };
    let step = if bundle.is_some() { Step::Runtime } else { Step::Program };
    match ready {
        Err(failure) => failure,
        Ok((candidates, arguments, environment)) => {
            let mut error = std::io::Error::from_raw_os_error(libc::ENOENT);
            for program in candidates {
                match system::execute(&program, &arguments, &environment) {
                    missing if missing.raw_os_error() == Some(libc::ENOENT) => {}
                    other => error = other,
                }
            }
            let command = bundle.map_or(&spec.command, |bundle| &bundle.command);
            StepFailure::new(step, error, command.first().cloned().unwrap_or_default())
        }
    }
}

type Execution = (Vec<CString>, Vec<CString>, Vec<CString>);

fn ready_program(command: &[String], env: &BTreeMap<String, String>) -> Result<Execution, StepFailure> {
    let text = |text: String| CString::new(text).map_err(|_| StepFailure::refused(Step::Program, "a zero byte"));
    let name = command.first().ok_or_else(|| StepFailure::refused(Step::Program, "no program is named"))?;
    let candidates = if name.contains('/') {
        vec![PathBuf::from(name)]
    } else {
        let path = env.get("PATH").map_or(crate::spec::PATH, String::as_str);
        path.split(':').map(|dir| Path::new(dir).join(name)).collect()
    };
    let candidates = candidates.into_iter().map(|path| text(path.display().to_string())).collect::<Result<_, _>>()?;
    let arguments = command.iter().map(|argument| text(argument.clone())).collect::<Result<_, _>>()?;
    let environment = env.iter().map(|(name, value)| text(format!("{name}={value}"))).collect::<Result<_, _>>()?;
    system::forget_signals();
    Ok((candidates, arguments, environment))
}
