//! The launcher: a small process with one thread that does nothing but make sandboxes and clean up after them.
//!
//! A server with many threads must not copy itself and go on running its own code in the copy; and copying a large
//! process is slow. So the server starts this once, from its own executable, and asks it over a socket. It has three
//! more uses: it outlives a server that is killed, long enough to end every sandbox and remove its control group; its
//! own death ends every sandbox, by the kernel; and its copy is so small that a start is cheap.
//!
//! Invariants
//! - LAUNCH-1: when the server's end of the socket closes, every sandbox is ended, waited for and cleaned up.
//! - LAUNCH-2: the last word about a sandbox is sent after nothing of it is left.
//! - LAUNCH-3: one thread, always: [`system::clone`] relies on it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use crate::cgroup::{self, Group, Groups};
use crate::error::{Step, StepFailure};
use crate::inside::{self, Birth, identity, seccomp::Filters};
use crate::system::{self, Side};
use crate::wire::{self, MESSAGE_BYTES_MAX, Order, Question, Word};

/// How often a control group is tried again that the kernel was not done with.
const REMOVAL_RETRY_NANOS: i64 = 5_000_000;
/// How long a launcher whose server is gone waits for the last sandbox.
const FAREWELL_ROUNDS_MAX: u32 = 2000;

/// Serves sandboxes on the socket that is its standard input, until the other end closes.
///
/// A program that embeds this crate calls this first thing in `main`, before any thread, when it was started with the
/// arguments it gave to [`Launch`](crate::Launch).
pub fn serve_launcher() -> ExitCode {
    let _ = rustix::thread::set_name(c"gantry-launcher");
    // Not the server's process group: a signal to that group must not take the cleaner with it.
    let _ = rustix::process::setsid();
    match Launcher::new() {
        Ok(mut launcher) => {
            launcher.serve();
            launcher.farewell();
            ExitCode::SUCCESS
        }
        Err(_) => ExitCode::FAILURE,
    }
}

struct Launcher {
    orders: OwnedFd,
    signals: OwnedFd,
    filters: Result<Filters, StepFailure>,
    groups: Groups,
    /// Who we are, if not root.
    user: Option<(u32, u32)>,
    sandboxes: HashMap<i32, Sandbox>,
    /// Groups the kernel was not done with.
    remains: Vec<Group>,
    made: u64,
    buffer: Vec<u8>,
}

/// One that lives.
struct Sandbox {
    control: OwnedFd,
    process: OwnedFd,
    group: Group,
    /// Nobody listens any more; it is being ended. Not watched, or the closed socket would keep us busy until then.
    forsaken: bool,
}

impl Launcher {
    fn new() -> io::Result<Self> {
        let orders = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Self {
            orders,
            signals: system::child_signals()?,
            filters: Filters::compile(),
            groups: Groups::prepare(&cgroup::stem()),
            user: (!identity::is_root()).then_some(user),
            sandboxes: HashMap::new(),
            remains: Vec::new(),
            made: 0,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        })
    }

    /// Until the server is gone.
    fn serve(&mut self) {
        loop {
            let watched_pids = self.sandboxes.iter().filter(|(_, sandbox)| !sandbox.forsaken).map(|(pid, _)| *pid);
            let pids: Vec<i32> = watched_pids.collect();
            let mut watched = vec![
                PollFd::from_borrowed_fd(self.orders.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            watched.extend(
                pids.iter()
                    .filter_map(|pid| self.sandboxes.get(pid))
                    .map(|sandbox| PollFd::from_borrowed_fd(sandbox.control.as_fd(), PollFlags::IN)),
            );
            let patience = Timespec { tv_sec: 0, tv_nsec: REMOVAL_RETRY_NANOS };
            let woken = rustix::event::poll(&mut watched, (!self.remains.is_empty()).then_some(&patience));
            if woken.is_err_and(|error| error != rustix::io::Errno::INTR) {
                return;
            }
            let stirred: Vec<bool> = watched.iter().map(|fd| !fd.revents().is_empty()).collect();
            drop(watched);
            let mut stirred = stirred.into_iter();
            let (order, signal) = (stirred.next().unwrap_or(false), stirred.next().unwrap_or(false));
            for (pid, _) in pids.iter().zip(stirred).filter(|(_, stirred)| *stirred) {
                self.question(*pid);
            }
            if signal {
                self.bury();
            }
            if order && !self.order() {
                return;
            }
            self.remains = std::mem::take(&mut self.remains).into_iter().filter_map(Group::remove).collect();
        }
    }

    /// Makes one sandbox. False: there will be no more orders.
    fn order(&mut self) -> bool {
        let (order, fds) = match wire::receive::<Order>(&self.orders, &mut self.buffer) {
            Ok(Some(order)) => order,
            Ok(None) => return false,
            Err(error) => {
                return error.kind() == io::ErrorKind::InvalidData || error.kind() == io::ErrorKind::Interrupted;
            }
        };
        // Anything but the four descriptors is a mistake of ours; dropping them tells the other end.
        let Ok(descriptors) = <[OwnedFd; 4]>::try_from(fds) else { return true };
        let [control, ..] = &descriptors;
        let Ok(control) = control.try_clone() else { return true };
        if let Err(failure) = self.make(&order, descriptors, &control) {
            let _ = wire::send(control.as_fd(), &Word::Failed(failure), &[]);
        }
        true
    }

    fn make(&mut self, order: &Order, descriptors: [OwnedFd; 4], control: &OwnedFd) -> Result<(), StepFailure> {
        let filters = self.filters.as_ref().map_err(Clone::clone)?;
        self.made += 1;
        let (group, membership) = self.groups.make(&self.made.to_string(), &order.spec)?;
        let flags = inside::namespaces(self.user.is_none());
        match system::clone(flags, membership.birthplace()) {
            Ok(Side::Child) => inside::live(Birth {
                spec: &order.spec,
                filters,
                membership: &membership,
                limits_by_process: matches!(self.groups, Groups::Absent(_)),
                descriptors,
                user: self.user,
            }),
            Ok(Side::Parent { pid, pidfd }) => {
                let told = control.try_clone().and_then(|control| {
                    wire::send(control.as_fd(), &Word::Born, &[pidfd.as_fd()])?;
                    Ok(control)
                });
                match told {
                    Ok(control) => {
                        self.sandboxes.insert(pid, Sandbox { control, process: pidfd, group, forsaken: false });
                    }
                    Err(_) => {
                        // Nobody wants it any more.
                        let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                        self.remains.extend(group.remove());
                    }
                }
                Ok(())
            }
            Err(error) => {
                self.remains.extend(group.remove());
                Err(StepFailure::new(Step::Namespaces, error, "making the first process"))
            }
        }
    }

    /// Somebody asks about a sandbox, or has let go of it.
    fn question(&mut self, pid: i32) {
        let Some(sandbox) = self.sandboxes.get_mut(&pid) else { return };
        let mut buffer = [0; 64];
        match wire::receive::<Question>(&sandbox.control, &mut buffer) {
            Ok(Some((Question::UsageSoFar, _))) => {
                let _ = wire::send(sandbox.control.as_fd(), &Word::Usage(sandbox.group.usage()), &[]);
                sandbox.group.forget_peak();
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => {
                let _ = rustix::process::pidfd_send_signal(&sandbox.process, Signal::KILL);
                sandbox.forsaken = true;
            }
        }
    }

    /// Takes leave of sandboxes whose first process has ended: with it, by then, everything in them.
    fn bury(&mut self) {
        let mut drained = [0_u8; 128];
        while rustix::io::read(&self.signals, &mut drained).is_ok_and(|count| count > 0) {}
        while let Ok(Some(reaped)) = system::reap(false) {
            let Some(sandbox) = self.sandboxes.remove(&reaped.pid) else { continue };
            let usage = sandbox.group.usage();
            self.remains.extend(sandbox.group.remove());
            // LAUNCH-2.
            let _ = wire::send(sandbox.control.as_fd(), &Word::Gone(usage), &[]);
        }
    }

    /// LAUNCH-1.
    fn farewell(&mut self) {
        for sandbox in self.sandboxes.values() {
            let _ = rustix::process::pidfd_send_signal(&sandbox.process, Signal::KILL);
        }
        for _ in 0..FAREWELL_ROUNDS_MAX {
            self.bury();
            self.remains = std::mem::take(&mut self.remains).into_iter().filter_map(Group::remove).collect();
            if self.sandboxes.is_empty() && self.remains.is_empty() {
                break;
            }
            let patience = Timespec { tv_sec: 0, tv_nsec: REMOVAL_RETRY_NANOS };
            let _ = rustix::event::poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&patience));
        }
        self.groups.leave();
    }
}
