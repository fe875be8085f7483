//! A process tool that runs: its sandbox, its way to the network, and what it has used so far.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ports::executor::{ExecutorError, ResourceUsage, ToolCall};
use sandbox::egress::{EgressGate, EgressProxy, ProxyHandle};
use sandbox::{SandboxChild, SandboxEnd};

use super::ended;
use super::log_end::LogEnd;
use super::prepared::PreparedSandbox;
use super::scrub::SecretScrubber;
use super::session::ProcessSession;
use super::streams::ProcessStreams;
use crate::sandbox_provider::SandboxProvider;

/// One process with everything that belongs to it. Dropping it ends all of it.
#[derive(Debug)]
pub struct ProcessRun {
    /// There between the first call and the last, if it speaks in sessions.
    pub(super) session: Option<ProcessSession>,
    pub(super) child: SandboxChild,
    /// The end of what it writes to stderr in the call it serves.
    log: LogEnd,
    gate: Option<Arc<EgressGate>>,
    proxy: Option<ProxyHandle>,
    /// What earlier calls used: a warm process is asked for the difference.
    counted: Counted,
}

/// What was counted before the call began, and is not its doing.
#[derive(Debug, Clone, Copy, Default)]
struct Counted {
    cpu: Duration,
    sent: u64,
    received: u64,
    oom_kills: u64,
    pids_refused: u64,
}

impl ProcessRun {
    /// Starts the program, or says in terms of the error table why it does not run.
    pub(super) async fn start(
        walls: &SandboxProvider,
        call: &ToolCall,
        prepared: &PreparedSandbox,
    ) -> Result<Self, ExecutorError> {
        let released = || call.dispatch.release();
        let spawned = walls.spawn(prepared.spec.clone(), prepared.container.as_ref(), released).await;
        let mut child = spawned.map_err(|error| ended::not_started(call, &error))?;
        let proxy = prepared
            .gate
            .as_ref()
            .zip(child.sockets.take())
            .map(|(gate, sockets)| EgressProxy::serve(sockets, Arc::clone(gate)));
        let (gate, log) = (prepared.gate.clone(), LogEnd::default());
        Ok(Self { session: None, child, log, gate, proxy, counted: Counted::default() })
    }

    /// The streams, once.
    pub(super) fn streams(&mut self) -> io::Result<ProcessStreams> {
        let streams = self.child.stdin.take().zip(self.child.stdout.take()).zip(self.child.stderr.take());
        let ((stdin, stdout), stderr) = streams.ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(ProcessStreams { log: self.log.clone(), ..ProcessStreams::new(stdin, stdout, stderr) })
    }

    /// Lets the log of this call be read when it is over, without the secrets that the tool was given.
    pub(super) fn leave_log(&self, call: &ToolCall, secrets: &Arc<SecretScrubber>) {
        // What a warm process wrote in its last call is not this one's, also if it is not asked any more.
        self.log.clear();
        let (log, secrets) = (self.log.clone(), Arc::clone(secrets));
        call.program_log.leave(move || secrets.text(&log.text()).into_owned());
    }

    /// Ends it and waits until nothing is left.
    pub(super) async fn end(&mut self) -> SandboxEnd {
        self.child.kill();
        self.child.wait().await
    }

    /// Ends it, and says what the call that is broken off with it has used.
    pub(super) async fn end_and_count(&mut self) -> ResourceUsage {
        let end = self.end().await;
        let mut usage = ended::usage(self.of_this_call(end.usage));
        if let Some(gate) = self.closed_gate().await {
            let traffic = gate.meter().snapshot();
            (usage.network_bytes_sent, usage.network_bytes_received) = (traffic.bytes_sent, traffic.bytes_received);
        }
        self.bytes_of_this_call(&mut usage);
        usage
    }

    /// The gate after its last byte.
    pub(super) async fn closed_gate(&mut self) -> Option<&EgressGate> {
        if let Some(proxy) = self.proxy.take() {
            proxy.stop().await;
        }
        self.gate.as_deref()
    }

    /// Lets it stand still with everything it has started, so that nothing it left behind runs between two calls. False:
    /// that cannot be had, so it must not be kept.
    pub(super) async fn rest(&mut self) -> io::Result<bool> {
        self.child.freeze().await
    }

    /// Lets it run again. False: it is not fit for another call. Asked while it still stands, so that what an earlier
    /// call has left behind is not taken for the doing of this one.
    pub(super) async fn wake(&mut self) -> bool {
        let quiet = match self.session.as_mut() {
            Some(session) => session.is_quiet().await,
            None => false,
        };
        quiet && self.is_innocent() && self.child.thaw().await.is_ok()
    }

    /// Has it never tried to connect to where it may not?
    pub(super) fn is_innocent(&self) -> bool {
        self.gate.as_deref().is_none_or(|gate| gate.meter().snapshot().violations == 0)
    }

    /// What the call that has just ended used, of a process that lives on.
    pub(super) async fn used_by_this_call(&mut self) -> io::Result<ResourceUsage> {
        let so_far = self.child.usage_so_far().await?;
        let mut usage = ended::usage(self.of_this_call(so_far));
        let Counted { cpu, oom_kills, pids_refused, .. } = &mut self.counted;
        (*cpu, *oom_kills, *pids_refused) = (so_far.cpu, so_far.oom_kills, so_far.pids_refused);
        if let Some(gate) = &self.gate {
            let traffic = gate.meter().snapshot();
            (usage.network_bytes_sent, usage.network_bytes_received) = (traffic.bytes_sent, traffic.bytes_received);
            self.bytes_of_this_call(&mut usage);
            (self.counted.sent, self.counted.received) = (traffic.bytes_sent, traffic.bytes_received);
        }
        Ok(usage)
    }

    /// The part of what was counted since the start that was counted since the call began.
    pub(super) fn of_this_call(&self, so_far: sandbox::ProgramUsage) -> sandbox::ProgramUsage {
        sandbox::ProgramUsage {
            cpu: so_far.cpu.saturating_sub(self.counted.cpu),
            oom_kills: so_far.oom_kills.saturating_sub(self.counted.oom_kills),
            pids_refused: so_far.pids_refused.saturating_sub(self.counted.pids_refused),
            ..so_far
        }
    }

    /// The same for what went through the gate.
    pub(super) fn bytes_of_this_call(&self, usage: &mut ResourceUsage) {
        usage.network_bytes_sent = usage.network_bytes_sent.saturating_sub(self.counted.sent);
        usage.network_bytes_received = usage.network_bytes_received.saturating_sub(self.counted.received);
    }
}
