//! The launcher: a small process with one thread that does nothing but make sandboxes and clean up after them.
//!
//! A server with many threads must not copy itself and go on running its own code in the copy; and copying a large
//! process is slow. So the server starts this once, from its own executable, and asks it over a socket. It has three
//! more uses: it outlives a server that is killed, long enough to end every sandbox and remove its control group; its
//! own death ends every sandbox, by the kernel; and its copy is so small that a start is cheap.
//!
//! Invariants
//! - LAUNCH-1: when the server's end of the socket closes, every sandbox is ended, waited for and cleaned up.
//! - LAUNCH-2: the last word about a sandbox is sent when no process of its program is left and what it used has been
//!   counted: by its first process if that is the last one inside, else by the launcher, when the kernel has ended the
//!   rest. The first process, which is ours, the empty control group and the mount namespace go after that, when nobody
//!   waits.
//! - LAUNCH-3: one thread, always: [`system::clone`] relies on it.
//! - LAUNCH-4: it waits for nobody's disk while it serves: what could take long is done in the first process.
//! - LAUNCH-5: where there are no control groups, it looks at every sandbox now and then and keeps its limits itself
//!   ([`oversight`]).

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::Signal;

use crate::cgroup::{self, CgroupMembership, CgroupSupport, SandboxCgroup};
use crate::error::{BuildStep, StepFailure};
use crate::inside::{self, BirthKind, ProcessSetup, identity, root, seccomp};
use crate::spec::{SandboxLimits, WallBuilder};
use crate::system::{self, CloneSide};
use crate::wire::{
    self, FreezeState, LaunchOrder, LauncherMessage, LauncherRequest, MESSAGE_BYTES_MAX, STREAMS, TREES_MAX,
};

use self::live_sandbox::{Sandbox, Spare};
use self::sweeper::Sweeper;

mod live_sandbox;
mod oversight;
mod sweeper;

/// First processes that wait for an order, so that it need not wait for them. They hold nothing of anybody.
const SPARES: usize = 3;
/// How long nothing must happen before more of them are made: making one takes the processor from programs that start.
const REFILL_AFTER_NANOS: i64 = 2_000_000;
/// How often a control group is tried again that the kernel was not done with.
const REMOVAL_RETRY_NANOS: i64 = 5_000_000;
/// Empty groups that wait to be used again, or removed when nothing else is to be done; with more that is not put off.
const EMPTIES_MAX: usize = 16;
/// How long a launcher whose server is gone waits for the last sandbox.
const FAREWELL_ROUNDS_MAX: u32 = 2000;

/// Serves sandboxes on the socket that is its standard input, until the other end closes.
///
/// A program that embeds this crate calls this first thing in `main`, before any thread, when it was started with the
/// arguments it gave to [`Launch`](crate::LauncherCommand).
pub fn serve_launcher() -> ExitCode {
    // A name is for people who look at processes, and nothing depends on it.
    let _ = rustix::thread::set_name(c"gantry-launcher");
    // Not the server's process group: a signal to that group must not take the cleaner with it. Refused only to who leads one
    // already, which is as good.
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
    filter: Result<seccomp::FilterProgram, StepFailure>,
    groups: CgroupSupport,
    /// When it began: times of looks are told since then.
    started: Instant,
    /// Who we are, if not root.
    user: Option<(u32, u32)>,
    sandboxes: HashMap<i32, Sandbox>,
    /// The one that has waited longest first: it is ready.
    spares: VecDeque<Spare>,
    /// What the last order was like: the next one is expected to be the same.
    usual: Option<(BirthKind, SandboxLimits)>,
    sweeper: Sweeper,
    /// Groups that are empty, for the next sandbox.
    empties: Vec<SandboxCgroup>,
    /// Groups that are to be removed.
    remains: Vec<SandboxCgroup>,
    made: u64,
    buffer: Vec<u8>,
}

impl Launcher {
    fn new() -> io::Result<Self> {
        let orders = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
        let user = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let groups = CgroupSupport::prepare(&cgroup::stem());
        Ok(Self {
            orders,
            signals: system::child_signals()?,
            filter: seccomp::compile(groups.counted_memory()),
            groups,
            started: started(),
            user: (!identity::is_root()).then_some(user),
            sandboxes: HashMap::new(),
            spares: VecDeque::new(),
            usual: None,
            sweeper: Sweeper::start(),
            empties: Vec::new(),
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
            let patience = match (wants_spares, self.remains.is_empty() && self.empties.is_empty()) {
                (true, _) if self.spares.is_empty() => Some(Timespec { tv_sec: 0, tv_nsec: 0 }),
                (true, _) => Some(Timespec { tv_sec: 0, tv_nsec: REFILL_AFTER_NANOS }),
                (false, false) => Some(Timespec { tv_sec: 0, tv_nsec: REMOVAL_RETRY_NANOS }),
                (false, true) => None,
            };
            let patience = self.until_next_look(patience);
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
            self.oversee();
            // Only when nobody waits for anything else.
            if idle && wants_spares {
                self.refill();
            } else if idle || self.empties.len() >= EMPTIES_MAX {
                self.remains.append(&mut self.empties);
                self.remove_remains();
            }
        }
    }

    fn remove_remains(&mut self) {
        self.remains = std::mem::take(&mut self.remains).into_iter().filter_map(SandboxCgroup::remove).collect();
    }

    fn refill(&mut self) {
        let Some((kind, limits)) = self.usual.clone() else { return };
        match self.bear(&kind, &limits) {
            Ok(spare) => self.spares.push_back(spare),
            // The next order finds out why, and tells it.
            Err(_) => self.usual = None,
        }
    }

    /// Makes one sandbox. False: there will be no more orders.
    fn order(&mut self) -> bool {
        let (order, fds) = match wire::receive::<LaunchOrder>(&self.orders, &mut self.buffer) {
            Ok(Some(order)) => order,
            Ok(None) => return false,
            Err(error) => {
                return error.kind() == io::ErrorKind::InvalidData || error.kind() == io::ErrorKind::Interrupted;
            }
        };
        // Anything but the four descriptors is a mistake of ours; dropping them tells the other end.
        let Ok(descriptors) = <[OwnedFd; STREAMS]>::try_from(fds) else { return true };
        let [control, ..] = &descriptors;
        let Ok(control) = control.try_clone() else { return true };
        if let Err(failure) = self.make(&order, &descriptors, control) {
            let [control, ..] = &descriptors;
            // Who has let go meanwhile does not want to know.
            let _ = wire::send(control.as_fd(), &LauncherMessage::Failed(failure), &[]);
        }
        true
    }

    fn make(
        &mut self,
        order: &LaunchOrder,
        descriptors: &[OwnedFd; STREAMS],
        control: OwnedFd,
    ) -> Result<(), StepFailure> {
        let trees = self.trees(order)?;
        let kind = match order.spec.confinement {
            WallBuilder::Full => {
                BirthKind { runtime: false, leaves_early: trees.is_some(), system: order.spec.system.clone() }
            }
            WallBuilder::Runtime(_) => BirthKind { runtime: true, leaves_early: false, system: Vec::new() },
        };
        // What root cannot do early is an exception, and no reason to expect more of it.
        let is_usual = !kind.runtime && (kind.leaves_early || self.user.is_some());
        if is_usual {
            if self.usual.as_ref().is_some_and(|(usual, _)| *usual != kind) {
                self.let_spares_go();
            }
            self.usual = Some((kind.clone(), order.spec.limits));
        }
        let trees = trees.unwrap_or_default();
        let fds: Vec<_> = descriptors.iter().chain(trees.iter().map(|tree| &tree.fd)).map(|fd| fd.as_fd()).collect();
        loop {
            let waiting = if is_usual { self.spares.pop_front() } else { None };
            let (mut spare, waited) = match waiting {
                Some(spare) => (spare, true),
                None => (self.bear(&kind, &order.spec.limits)?, false),
            };
            if waited {
                spare.cpu_micros = spare.group.cpu_micros().unwrap_or(0);
                spare.group.forget_peak();
            }
            if order.spec.freezable {
                self.groups.make_freezable(&mut spare.group, spare.pid);
            }
            let given = spare.group.limit(&order.spec).and_then(|()| {
                wire::send(spare.orders.as_fd(), order, &fds)
                    .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "telling the first process"))
            });
            match given {
                Ok(()) => {
                    let limits = crate::oci::group_limits(&order.spec);
                    let overseen = self.groups.are_absent().then(|| (limits, self.started.elapsed()));
                    self.sandboxes.insert(spare.pid, Sandbox::new(Some(control), spare, overseen));
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

    /// Opens what is declared, so that the first process need not see the machine any more. `None`: it has to do that
    /// itself, because only root can do it from here, and not if it took long (LAUNCH-4).
    fn trees(&self, order: &LaunchOrder) -> Result<Option<Vec<root::MountTree>>, StepFailure> {
        let is_ours = order.spec.confinement == WallBuilder::Full && self.user.is_none();
        if !is_ours || order.spec.mounts.len() > TREES_MAX {
            return Ok(None);
        }
        root::declared_trees_at_once(&order.spec.mounts)
    }

    /// A first process, in a group of its own.
    fn bear(&mut self, kind: &BirthKind, limits: &SandboxLimits) -> Result<Spare, StepFailure> {
        let (mut group, membership) = self.group(kind.runtime)?;
        group.foresee(limits);
        let cpu_micros = group.cpu_micros().unwrap_or(0);
        let filter = match &self.filter {
            Ok(filter) => filter,
            Err(failure) => {
                self.remains.push(group);
                return Err(failure.clone());
            }
        };
        let pair = wire::pair().map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "a socket"));
        let flags = inside::namespaces(self.user.is_none());
        let cloned = pair.and_then(|(ours, theirs)| match system::clone(flags, membership.birthplace()) {
            Ok(CloneSide::Child) => inside::live(ProcessSetup {
                kind,
                scratch_bytes: limits.scratch_bytes,
                filter,
                group: &group,
                membership: &membership,
                limits_by_process: self.groups.are_absent(),
                orders: theirs,
                user: self.user,
            }),
            Ok(CloneSide::Parent { pid, pidfd }) => rustix::io::ioctl_fionbio(&ours, true)
                .map(|()| (ours, pid, pidfd))
                .map_err(|error| StepFailure::new(BuildStep::Namespaces, error, "a socket")),
            Err(error) => Err(StepFailure::new(BuildStep::Namespaces, error, "making the first process")),
        });
        match cloned {
            Ok((orders, pid, process)) => Ok(Spare { orders, pid, process, group, cpu_micros }),
            Err(failure) => {
                self.remains.push(group);
                Err(failure)
            }
        }
    }

    /// A group that nobody is in: one that was used before, if it is as good as new.
    fn group(&mut self, runtime: bool) -> Result<(SandboxCgroup, CgroupMembership), StepFailure> {
        while !runtime && let Some(mut group) = self.empties.pop() {
            if let Some(membership) = group.renewed() {
                return Ok((group, membership));
            }
            self.remains.push(group);
        }
        self.made += 1;
        self.groups.make(&self.made.to_string(), runtime)
    }

    /// Ends one that has no order; what is left of it is buried like the others.
    fn let_go(&mut self, spare: Spare) {
        // The one failure is that it is gone already.
        let _ = rustix::process::pidfd_send_signal(&spare.process, Signal::KILL);
        self.sandboxes.insert(spare.pid, Sandbox::new(None, spare, None));
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
        // Answers that cannot be sent are for somebody who has gone, and the next look at the line says so.
        match wire::receive::<LauncherRequest>(control, &mut buffer) {
            Ok(Some((LauncherRequest::UsageSoFar, _))) => {
                let _ = wire::send(control.as_fd(), &LauncherMessage::Usage(sandbox.usage()), &[]);
                sandbox.forget_peak();
            }
            Ok(Some((LauncherRequest::Freeze, _))) => {
                let _ = wire::send(control.as_fd(), &LauncherMessage::Stillness(sandbox.group.freeze()), &[]);
            }
            Ok(Some((LauncherRequest::Thaw, _))) => {
                sandbox.group.thaw();
                let _ = wire::send(control.as_fd(), &LauncherMessage::Stillness(FreezeState::Running), &[]);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(None) | Err(_) => {
                // The one failure is that it is gone already.
                let _ = rustix::process::pidfd_send_signal(&sandbox.process, Signal::KILL);
                // After the signal: what is inside wakes up to its end.
                sandbox.group.thaw();
                sandbox.control = None;
            }
        }
    }

    /// How long to wait at most: until a sandbox without a group should be looked at.
    fn until_next_look(&self, patience: Option<Timespec>) -> Option<Timespec> {
        let due = self.sandboxes.values().filter_map(Sandbox::due).min();
        let Some(due) = due else { return patience };
        let wait = Timespec::try_from(due.saturating_sub(self.started.elapsed())).ok()?;
        Some(patience.map_or(wait, |patience| patience.min(wait)))
    }

    /// LAUNCH-5.
    fn oversee(&mut self) {
        if !self.groups.are_absent() {
            return;
        }
        let now = self.started.elapsed();
        for sandbox in self.sandboxes.values_mut().filter(|sandbox| sandbox.due().is_some_and(|due| due <= now)) {
            sandbox.look(now);
        }
    }

    /// Takes leave of sandboxes whose first process has ended: with it, by then, everything in them.
    fn bury(&mut self) {
        let mut drained = [0_u8; 128];
        while rustix::io::read(&self.signals, &mut drained).is_ok_and(|count| count > 0) {}
        while let Ok(Some(reaped)) = system::reap(false) {
            if let Some(dead) = self.spares.iter().position(|spare| spare.pid == reaped.pid) {
                self.remains.extend(self.spares.remove(dead).map(|spare| spare.group));
                // Nothing kills a spare but want of memory: not another one before it is needed.
                self.usual = None;
            }
            let Some(sandbox) = self.sandboxes.remove(&reaped.pid) else { continue };
            let (end, mounts) = sandbox.last_word();
            // LAUNCH-2, unless the first process has told it.
            if let Some(control) = &sandbox.control
                && !end.is_some_and(|end| end.alone)
            {
                // Who has let go meanwhile does not want to know.
                let usage = sandbox.usage_at_end(end.as_ref());
                let _ = wire::send(control.as_fd(), &LauncherMessage::Gone { usage, end }, &[]);
            }
            mounts.into_iter().for_each(|namespace| self.sweeper.let_go(namespace));
            self.empties.push(sandbox.group);
        }
    }

    /// LAUNCH-1.
    fn farewell(&mut self) {
        self.let_spares_go();
        for sandbox in self.sandboxes.values() {
            // The one failure is that it is gone already.
            let _ = rustix::process::pidfd_send_signal(&sandbox.process, Signal::KILL);
            sandbox.group.thaw();
        }
        for _ in 0..FAREWELL_ROUNDS_MAX {
            self.bury();
            self.remains.append(&mut self.empties);
            self.remove_remains();
            if self.sandboxes.is_empty() && self.remains.is_empty() {
                break;
            }
            let patience = Timespec { tv_sec: 0, tv_nsec: REMOVAL_RETRY_NANOS };
            // Nothing but a wait: whatever ends it, the next round looks for itself.
            let _ = rustix::event::poll(&mut [PollFd::new(&self.signals, PollFlags::IN)], Some(&patience));
        }
        self.groups.leave();
    }
}

/// Now, for spans of this process alone.
#[expect(clippy::disallowed_methods, reason = "the launcher measures spans of its own; nothing of it is recorded")]
fn started() -> Instant {
    Instant::now()
}
