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
use crate::inside::{self, Birth, BirthKind, identity, seccomp};
use crate::spec::Confinement;
use crate::system::{self, Side};
use crate::wire::{self, GroupUsage, MESSAGE_BYTES_MAX, Order, Question, Stillness, Word};

/// First processes that wait for an order, so that it need not wait for them. They hold nothing of anybody.
const SPARES: usize = 3;
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
    filter: Result<seccomp::Program, StepFailure>,
    groups: Groups,
    /// Who we are, if not root.
    user: Option<(u32, u32)>,
    sandboxes: HashMap<i32, Sandbox>,
    spares: Vec<Spare>,
    /// What the last order was like: the next one is expected to be the same.
    usual: Option<BirthKind>,
    /// Groups the kernel was not done with.
    remains: Vec<Group>,
    made: u64,
    buffer: Vec<u8>,
}

/// A first process without an order.
struct Spare {
    orders: OwnedFd,
    pid: i32,
    process: OwnedFd,
    group: Group,
    /// What its own preparations cost, which is not the program's doing.
    cpu_micros: u64,
}

/// One that lives.
struct Sandbox {
    /// Absent once nobody listens any more: it is being ended. Not watched then, or the closed socket would keep us busy.
    control: Option<OwnedFd>,
    process: OwnedFd,
    group: Group,
    cpu_micros: u64,
}

impl Sandbox {
    fn usage(&self) -> GroupUsage {
        let usage = self.group.usage();
        GroupUsage { cpu_micros: usage.cpu_micros.map(|all| all.saturating_sub(self.cpu_micros)), ..usage }
    }
}

impl Launcher {
    fn new() -> io::Result<Self> {
        let orders = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Self {
            orders,
            signals: system::child_signals()?,
            filter: seccomp::compile(),
            groups: Groups::prepare(&cgroup::stem()),
            user: (!identity::is_root()).then_some(user),
            sandboxes: HashMap::new(),
            spares: Vec::new(),
            usual: None,
            remains: Vec::new(),
            made: 0,
            buffer: vec![0; MESSAGE_BYTES_MAX],
        })
    }

    /// Until the server is gone.
    fn serve(&mut self) {
        loop {
            let heard = self.sandboxes.iter().filter(|(_, sandbox)| sandbox.control.is_some());
            let pids: Vec<i32> = heard.map(|(pid, _)| *pid).collect();
            let mut watched = vec![
                PollFd::from_borrowed_fd(self.orders.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            ];
            watched.extend(
                pids.iter()
                    .filter_map(|pid| self.sandboxes.get(pid)?.control.as_ref())
                    .map(|control| PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)),
            );
            let wants_spares = self.usual.is_some() && self.spares.len() < SPARES;
            let patience = match (wants_spares, self.remains.is_empty()) {
                (true, _) => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
                (false, false) => Some(Timespec { tv_sec: 0, tv_nsec: REMOVAL_RETRY_NANOS }),
                (false, true) => None,
            };
            let woken = rustix::event::poll(&mut watched, patience.as_ref());
            if woken.is_err_and(|error| error != rustix::io::Errno::INTR) {
                return;
            }
            let idle = woken == Ok(0);
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
            // Only when nobody waits for anything else.
            if idle && wants_spares {
                self.refill();
            }
            self.remains = std::mem::take(&mut self.remains).into_iter().filter_map(Group::remove).collect();
        }
    }

    fn refill(&mut self) {
        let Some(kind) = self.usual.clone() else { return };
        match self.bear(&kind) {
            Ok(spare) => self.spares.push(spare),
            // The next order finds out why, and tells it.
            Err(_) => self.usual = None,
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
        if let Err(failure) = self.make(&order, &descriptors, control) {
            let [control, ..] = &descriptors;
            let _ = wire::send(control.as_fd(), &Word::Failed(failure), &[]);
        }
        true
    }

    fn make(&mut self, order: &Order, descriptors: &[OwnedFd; 4], control: OwnedFd) -> Result<(), StepFailure> {
        let is_usual = order.spec.confinement == Confinement::Full;
        let system = if is_usual { order.spec.system.clone() } else { Vec::new() };
        let kind = BirthKind { runtime: !is_usual, system };
        if is_usual && self.usual.as_ref() != Some(&kind) {
            self.let_spares_go();
            self.usual = Some(kind.clone());
        }
        let fds = descriptors.each_ref().map(|fd| fd.as_fd());
        loop {
            let waiting = if is_usual { self.spares.pop() } else { None };
            let (mut spare, waited) = match waiting {
                Some(spare) => (spare, true),
                None => (self.bear(&kind)?, false),
            };
            if waited {
                spare.cpu_micros = spare.group.usage().cpu_micros.unwrap_or(0);
                spare.group.forget_peak();
            }
            if order.spec.freezable {
                self.groups.make_freezable(&mut spare.group, spare.pid);
            }
            let given = spare.group.limit(&order.spec).and_then(|()| {
                wire::send(spare.orders.as_fd(), order, &fds)
                    .map_err(|error| StepFailure::new(Step::Namespaces, error, "telling the first process"))
            });
            match given {
                Ok(()) => {
                    self.born(spare, control);
                    return Ok(());
                }
                Err(failure) => {
                    self.let_go(spare);
                    // One that waited may have died meanwhile, which says nothing about the next.
                    if !waited {
                        return Err(failure);
                    }
                }
            }
        }
    }

    /// A first process, in a group of its own.
    fn bear(&mut self, kind: &BirthKind) -> Result<Spare, StepFailure> {
        let filter = self.filter.as_ref().map_err(Clone::clone)?;
        self.made += 1;
        let (group, membership) = self.groups.make(&self.made.to_string(), kind.runtime)?;
        let pair = wire::pair().map_err(|error| StepFailure::new(Step::Namespaces, error, "a socket"));
        let flags = inside::namespaces(self.user.is_none());
        let cloned = pair.and_then(|(ours, theirs)| match system::clone(flags, membership.birthplace()) {
            Ok(Side::Child) => inside::live(Birth {
                kind,
                filter,
                membership: &membership,
                limits_by_process: matches!(self.groups, Groups::Absent(_)),
                orders: theirs,
                user: self.user,
            }),
            Ok(Side::Parent { pid, pidfd }) => Ok((ours, pid, pidfd)),
            Err(error) => Err(StepFailure::new(Step::Namespaces, error, "making the first process")),
        });
        match cloned {
            Ok((orders, pid, process)) => Ok(Spare { orders, pid, process, group, cpu_micros: 0 }),
            Err(failure) => {
                self.remains.extend(group.remove());
                Err(failure)
            }
        }
    }

    /// It has its order, and somebody who waits for it.
    fn born(&mut self, spare: Spare, control: OwnedFd) {
        if wire::send(control.as_fd(), &Word::Born, &[spare.process.as_fd()]).is_err() {
            // Nobody wants it any more.
            return self.let_go(spare);
        }
        let Spare { orders: _, pid, process, group, cpu_micros } = spare;
        self.sandboxes.insert(pid, Sandbox { control: Some(control), process, group, cpu_micros });
    }

    /// Ends one that has no order; what is left of it is buried like the others.
    fn let_go(&mut self, spare: Spare) {
        let _ = rustix::process::pidfd_send_signal(&spare.process, Signal::KILL);
        let Spare { orders: _, pid, process, group, cpu_micros } = spare;
        self.sandboxes.insert(pid, Sandbox { control: None, process, group, cpu_micros });
    }

    fn let_spares_go(&mut self) {
        for spare in std::mem::take(&mut self.spares) {
            self.let_go(spare);
        }
    }

    /// Somebody asks about a sandbox, or has let go of it.
    fn question(&mut self, pid: i32) {
        let Some(sandbox) = self.sandboxes.get_mut(&pid) else { return };
        let mut buffer = [0; 64];
        let Some(control) = &sandbox.control else { return };
        match wire::receive::<Question>(control, &mut buffer) {
            Ok(Some((Question::UsageSoFar, _))) => {
                let _ = wire::send(control.as_fd(), &Word::Usage(sandbox.usage()), &[]);
                sandbox.group.forget_peak();
            }
            Ok(Some((Question::Freeze, _))) => {
                let _ = wire::send(control.as_fd(), &Word::Stillness(sandbox.group.freeze()), &[]);
            }
            Ok(Some((Question::Thaw, _))) => {
                sandbox.group.thaw();
                let _ = wire::send(control.as_fd(), &Word::Stillness(Stillness::Running), &[]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => {
                let _ = rustix::process::pidfd_send_signal(&sandbox.process, Signal::KILL);
                // After the signal: what is inside wakes up to its end.
                sandbox.group.thaw();
                sandbox.control = None;
            }
        }
    }

    /// Takes leave of sandboxes whose first process has ended: with it, by then, everything in them.
    fn bury(&mut self) {
        let mut drained = [0_u8; 128];
        while rustix::io::read(&self.signals, &mut drained).is_ok_and(|count| count > 0) {}
        while let Ok(Some(reaped)) = system::reap(false) {
            if let Some(dead) = self.spares.iter().position(|spare| spare.pid == reaped.pid) {
                self.remains.extend(self.spares.swap_remove(dead).group.remove());
                // Nothing kills a spare but want of memory: not another one before it is needed.
                self.usual = None;
            }
            let Some(sandbox) = self.sandboxes.remove(&reaped.pid) else { continue };
            let usage = sandbox.usage();
            self.remains.extend(sandbox.group.remove());
            // LAUNCH-2.
            if let Some(control) = sandbox.control {
                let _ = wire::send(control.as_fd(), &Word::Gone(usage), &[]);
            }
        }
    }

    /// LAUNCH-1.
    fn farewell(&mut self) {
        self.let_spares_go();
        for sandbox in self.sandboxes.values() {
            let _ = rustix::process::pidfd_send_signal(&sandbox.process, Signal::KILL);
            sandbox.group.thaw();
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
