//! A server that is a program of ours: messages are lines on its standard streams, the program is in a sandbox.
//!
//! Three tasks belong to a channel: one writes, one reads, one watches over the process. A writer of its own, because a
//! request that is dropped half way must not leave half a line behind.
//!
//! Invariants
//! - STDIO-1: of a line of a server [`MESSAGE_BYTES_MAX`] are kept and no more (`long_line`). A longer one is told to the call whose
//!   answer it is; one that nobody can place, or that does not end, ends the connection.
//! - STDIO-2: standard error is always read, so that a server that writes much there does not stand still, and goes to its
//!   log with a bound of its own.
//! - STDIO-3: whatever ends the channel ends the whole process tree; dropping it does so at once.
//! - STDIO-4: closing it goes by steps, each with a time of its own: the end of its input, SIGTERM, and the end of the sandbox
//!   with everything in it, which nobody can ignore.
//! - STDIO-5: a line of which not a single byte could be written was not sent.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use base::MutexExt as _;
use bytes::{Buf as _, BytesMut};
use fair_places::FairPermit;
use ports::clock::Clock;
use sandbox::egress::{EgressGate, EgressProxy};
use sandbox::{ProgramExit, SandboxChild};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::departure::RequestDeparture;
use super::long_line::LongLine;
use super::router::MessageRouter;
use super::server_usage::{ServerMeter, UsageMoment, UsageShares};
use super::{MESSAGE_BYTES_MAX, OutgoingRequest, ServerChannel, StopGrace, process_tree, within};
use crate::fault::UpstreamFault;
use crate::server_log::ServerLog;
use crate::wire::CallId;

/// Messages that wait to be written. Who comes later waits.
const WAITING_MAX: usize = 64;
/// How long what a program has said before its end is still read.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long a killed process tree may take to be gone before nobody waits for it any more.
const GONE_PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of a line of standard error that are kept.
const LOG_LINE_BYTES_MAX: usize = 8 << 10;
/// Begins a line of the log about a connection that was refused; the host and the port follow.
pub(crate) const NOT_LET_THROUGH: &str = "[gantry] it may not connect to ";
/// Bytes that are asked for at once.
const READ_BYTES: usize = 16 << 10;
/// Bytes of a line that is too long that are passed over until its end is given up.
const LINE_PASSED_MAX: u64 = 1 << 30;

/// A line on its way out, and the request that leaves with it, if one does.
struct Line {
    bytes: Vec<u8>,
    request: Option<(CallId, Arc<RequestDeparture>)>,
}

/// The channel.
#[derive(Debug)]
pub(crate) struct StdioChannel {
    /// Gone when the program's input is to be closed.
    writer: Mutex<Option<mpsc::Sender<Line>>>,
    /// Cancelled when it is to be told to end, and when it is to be ended.
    terminate: CancellationToken,
    kill: CancellationToken,
    /// STDIO-3.
    _killed_on_drop: DropGuard,
    gone: watch::Receiver<bool>,
    clock: Arc<dyn Clock>,
    process: Option<u32>,
    meter: ServerMeter,
}

impl StdioChannel {
    /// Talks to a program that has just been started.
    pub(crate) fn with(
        mut child: SandboxChild,
        gate: Option<Arc<EgressGate>>,
        place: FairPermit,
        router: &Arc<MessageRouter>,
        log: Arc<ServerLog>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, UpstreamFault> {
        let streams = child.stdin.take().zip(child.stdout.take()).zip(child.stderr.take());
        let ((stdin, stdout), stderr) = streams.ok_or(UpstreamFault::NotSent("its streams cannot be had"))?;
        let process = child.pid();
        let (writer, lines) = mpsc::channel(WAITING_MAX);
        let (terminate, kill) = (CancellationToken::new(), CancellationToken::new());
        let (alive, gone) = watch::channel(false);
        tokio::spawn(write(stdin, lines, Arc::clone(router)));
        let reading = tokio::spawn(read(stdout, Arc::clone(router)));
        tokio::spawn(keep_log(stderr, Arc::clone(&log)));
        let (meter, moments) = ServerMeter::new(Arc::clone(&clock));
        let watching = Watching {
            child,
            gate,
            router: Arc::clone(router),
            log,
            clock: Arc::clone(&clock),
            moments,
            _place: place,
        };
        tokio::spawn(watching.until_gone(terminate.clone(), kill.clone(), reading, alive));
        let killed_on_drop = kill.clone().drop_guard();
        let writer = Mutex::new(Some(writer));
        Ok(Self { writer, terminate, kill, _killed_on_drop: killed_on_drop, gone, clock, process, meter })
    }

    fn writer(&self) -> Result<mpsc::Sender<Line>, UpstreamFault> {
        let writer = self.writer.lock_unpoisoned();
        writer.clone().ok_or(UpstreamFault::NotSent("the connection is being closed"))
    }

    async fn gone_within(&self, patience: Duration) -> bool {
        let mut gone = self.gone.clone();
        // An error is the end of the watcher, and with it of everything it held.
        within(&*self.clock, patience, gone.wait_for(|gone| *gone)).await.is_some()
    }
}

#[async_trait]
impl ServerChannel for StdioChannel {
    async fn exchange(&self, router: &MessageRouter, request: OutgoingRequest<'_>) -> Result<Value, UpstreamFault> {
        let (answer, departure) = router.wait_for(request.id)?;
        let line = Line { bytes: request.bytes(), request: Some((request.id, departure)) };
        self.writer()?.send(line).await.map_err(|_| UpstreamFault::NotSent("the program does not listen any more"))?;
        answer.await.unwrap_or(Err(UpstreamFault::Lost("the connection was closed")))
    }

    async fn tell(&self, bytes: Vec<u8>) -> Result<(), UpstreamFault> {
        let line = Line { bytes, request: None };
        self.writer()?.send(line).await.map_err(|_| UpstreamFault::NotSent("the program does not listen any more"))
    }

    fn cancelled(&self, bytes: Vec<u8>) {
        if let Ok(writer) = self.writer() {
            // A server that reads so slowly that the queue is full does not care.
            let _ = writer.try_send(Line { bytes, request: None });
        }
    }

    /// STDIO-4.
    async fn close(&self, ending: StopGrace) {
        // The end of its input is how a server is asked to go.
        drop(self.writer.lock_unpoisoned().take());
        if self.gone_within(ending.asked).await {
            return;
        }
        if !ending.told.is_zero() {
            self.terminate.cancel();
            if self.gone_within(ending.told).await {
                return;
            }
        }
        self.kill.cancel();
        if !self.gone_within(GONE_PATIENCE).await {
            tracing::error!(process = ?self.process, "a server was ended and is not gone");
        }
    }

    fn process(&self) -> Option<u32> {
        self.process
    }

    fn meter(&self) -> Option<&ServerMeter> {
        Some(&self.meter)
    }
}

async fn write(mut stdin: impl AsyncWrite + Unpin, mut lines: mpsc::Receiver<Line>, router: Arc<MessageRouter>) {
    while let Some(Line { mut bytes, request }) = lines.recv().await {
        // Before the first byte leaves: a program that reads, acts and dies must never be taken for one that was not asked.
        if let Some((id, departure)) = &request {
            if !departure.leaves() {
                continue;
            }
            router.count_sent(*id, bytes.len());
        }
        bytes.push(b'\n');
        let first = stdin.write(&bytes).await;
        let whole = match first {
            Ok(count @ 1..) => stdin.write_all(bytes.get(count..).unwrap_or_default()).await.is_ok(),
            Ok(0) | Err(_) => {
                // STDIO-5.
                if let Some((_, departure)) = &request {
                    departure.stayed();
                }
                false
            }
        };
        if !whole {
            // Whoever comes now was not sent.
            lines.close();
            return router.end("the program does not listen any more");
        }
    }
}

async fn read(stdout: impl AsyncRead + Unpin, router: Arc<MessageRouter>) {
    let taken = |line: ReadLine<'_>| match line {
        ReadLine::Whole(line) => {
            router.received(line, None);
            Ok(())
        }
        ReadLine::Long(ends) => {
            let id = ends.answered().ok_or(LineTooLong)?;
            tracing::warn!(bytes_max = MESSAGE_BYTES_MAX, "an answer of a server was too large and was not kept");
            router.answered_too_large(id);
            Ok(())
        }
    };
    match each_line(stdout, MESSAGE_BYTES_MAX, taken).await {
        Ok(()) => router.end("the program ended, or closed its output"),
        Err(LineTooLong) => router.end("a message of the server was too long"),
    }
}

/// A line that has no end in sight, or of which nobody knows what it was.
struct LineTooLong;

/// One line of a program.
enum ReadLine<'a> {
    Whole(&'a [u8]),
    Long(LongLine),
}

/// Hands over each line that is not empty, without its end. A last line without an end is handed over, too.
async fn each_line(
    mut stream: impl AsyncRead + Unpin,
    most: usize,
    mut take: impl FnMut(ReadLine<'_>) -> Result<(), LineTooLong>,
) -> Result<(), LineTooLong> {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    // Bytes that are known to hold no line end.
    let mut searched = 0;
    // The line that is being passed over.
    let mut long: Option<LongLine> = None;
    loop {
        while let Some(at) = buffer.get(searched..).and_then(|rest| rest.iter().position(|byte| *byte == b'\n')) {
            let whole = buffer.split_to(searched + at);
            buffer.advance(1);
            searched = 0;
            let whole = whole.trim_ascii();
            if let Some(mut ends) = long.take() {
                ends.pass(whole);
                take(ReadLine::Long(ends))?;
            } else if !whole.is_empty() {
                take(ReadLine::Whole(whole))?;
            }
        }
        searched = buffer.len();
        if searched > most || long.is_some() {
            let ends = long.get_or_insert_default();
            ends.pass(&buffer);
            // Its memory goes, too.
            buffer = BytesMut::with_capacity(READ_BYTES);
            searched = 0;
            if ends.passed() > LINE_PASSED_MAX {
                return Err(LineTooLong);
            }
        }
        buffer.reserve(READ_BYTES);
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => {
                let rest = buffer.trim_ascii();
                if !rest.is_empty() && long.is_none() {
                    take(ReadLine::Whole(rest))?;
                }
                return Ok(());
            }
            Ok(_) => {}
        }
    }
}

/// STDIO-2: lines that are too long are cut, not refused. Only their beginning is kept: what is in the middle of a line may be
/// the rest of a secret, which nobody would recognise as one.
async fn keep_log(mut stderr: impl AsyncRead + Unpin, log: Arc<ServerLog>) {
    let mut buffer = BytesMut::with_capacity(LOG_LINE_BYTES_MAX);
    let mut inside_long_line = false;
    loop {
        buffer.reserve(LOG_LINE_BYTES_MAX);
        let ended = !matches!(stderr.read_buf(&mut buffer).await, Ok(1..));
        while let Some(at) = buffer.iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(at);
            buffer.advance(1);
            if std::mem::take(&mut inside_long_line) {
                log.missing(line.len());
            } else {
                log.written(&String::from_utf8_lossy(&line));
            }
        }
        if !buffer.is_empty() && (ended || inside_long_line || buffer.len() >= LOG_LINE_BYTES_MAX) {
            if std::mem::replace(&mut inside_long_line, true) {
                log.missing(buffer.len());
            } else {
                log.written(&String::from_utf8_lossy(&buffer));
            }
            buffer.clear();
        }
        if ended {
            return;
        }
    }
}

/// What the watcher holds: the process, its way to the network, and who wants to know what it used.
struct Watching {
    child: SandboxChild,
    gate: Option<Arc<EgressGate>>,
    router: Arc<MessageRouter>,
    log: Arc<ServerLog>,
    clock: Arc<dyn Clock>,
    moments: mpsc::UnboundedReceiver<UsageMoment>,
    _place: FairPermit,
}

impl Watching {
    async fn until_gone(
        mut self,
        terminate: CancellationToken,
        kill: CancellationToken,
        reading: tokio::task::JoinHandle<()>,
        alive: watch::Sender<bool>,
    ) {
        let gate = self.gate.clone();
        let mut refused = 0;
        let proxy =
            self.gate.take().zip(self.child.sockets.take()).map(|(gate, sockets)| EgressProxy::serve(sockets, gate));
        let mut told = false;
        let (mut shares, mut oom_kills) = (UsageShares::default(), 0);
        let ended = loop {
            tokio::select! {
                () = next_violation(gate.as_deref()) => refused = self.tell_violations(gate.as_deref(), refused),
                ended = self.child.wait() => break ended,
                () = kill.cancelled() => {
                    self.child.kill();
                    break self.child.wait().await;
                }
                () = terminate.cancelled(), if !told => {
                    told = true;
                    let count = process_tree::terminate(|| self.child.pid());
                    self.log.line(&format!("[gantry] it was told to end ({count} processes)"));
                }
                Some(moment) = self.moments.recv() => {
                    if !shares.concerns(&moment) {
                        continue;
                    }
                    let read = tokio::select! {
                        read = self.child.usage_so_far() => read.unwrap_or_default(),
                        // It is ended in the next round.
                        () = kill.cancelled() => continue,
                    };
                    oom_kills = read.oom_kills;
                    shares.note(moment, read.cpu, read.memory_peak_bytes);
                }
            }
        };
        // An answer may still lie in the pipe.
        let abort = reading.abort_handle();
        if within(&*self.clock, LAST_WORDS, reading).await.is_none() {
            abort.abort();
        }
        if let Some(proxy) = proxy {
            proxy.stop().await;
        }
        self.tell_violations(gate.as_deref(), refused);
        let how = match ended.exit {
            ProgramExit::Code(0) => "it ended".to_owned(),
            ProgramExit::Code(code) => format!("it ended with code {code}"),
            ProgramExit::Signal(signal) => format!("it was ended by signal {signal}"),
            ProgramExit::Ended => "it was ended".to_owned(),
        };
        // Its end may have been heard when it was read last.
        let wanted_memory = ended.usage.oom_kills.max(oom_kills) > 0;
        let memory = if wanted_memory { " for want of memory" } else { "" };
        self.log.line(&format!("[gantry] {how}{memory}"));
        self.router.end(if wanted_memory { "the program used more memory than it may" } else { "the program ended" });
        alive.send_replace(true);
    }

    /// Where it tried to connect to and may not, each place once. Answers how many were told so far.
    fn tell_violations(&self, gate: Option<&EgressGate>, told: usize) -> usize {
        let Some(gate) = gate else { return told };
        let kept = gate.meter().snapshot().kept;
        for place in kept.iter().skip(told) {
            self.log.place(NOT_LET_THROUGH, &place.to_string());
        }
        kept.len()
    }
}

/// Comes when the program tried to connect to where it may not; never, if it has no way out at all.
async fn next_violation(gate: Option<&EgressGate>) {
    match gate {
        Some(gate) => gate.meter().next_violation().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(bytes: &'static [u8], most: usize) -> (Vec<String>, bool) {
        let mut found = Vec::new();
        // Pieces of three bytes, so that every line is cut somewhere.
        let (mut writer, reader) = tokio::io::duplex(3);
        let writing = tokio::spawn(async move {
            // Whoever has read enough does not listen any more.
            let _ = writer.write_all(bytes).await;
        });
        let take = |line: ReadLine<'_>| match line {
            ReadLine::Whole(line) => {
                found.push(String::from_utf8_lossy(line).into_owned());
                Ok(())
            }
            ReadLine::Long(_) => Err(LineTooLong),
        };
        let good = each_line(reader, most, take).await.is_ok();
        writing.await.unwrap();
        (found, good)
    }

    #[tokio::test]
    async fn lines_are_found_however_they_are_cut() {
        for (bytes, expected) in [
            (&b"{\"a\":1}\n{\"b\":2}\r\n\n  \nlast"[..], vec!["{\"a\":1}", "{\"b\":2}", "last"]),
            (b"", vec![]),
            (b"\n\n", vec![]),
        ] {
            let (found, good) = lines(bytes, 100).await;
            assert_eq!(found, expected);
            assert!(good);
        }
    }

    #[derive(Debug)]
    struct Deaf;
    impl crate::connection::router::ServerListener for Deaf {
        fn offering_changed(&self, _: ports::offerings::OfferingChange) {}
        fn tools_changed(&self) {}
        fn line(&self, _: &str) {}
        fn happened(&self, _: crate::observer::UpstreamEvent) {}
    }

    /// Takes so many bytes and no more.
    struct Narrow(usize);
    impl AsyncWrite for Narrow {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
            bytes: &[u8],
        ) -> std::task::Poll<std::io::Result<usize>> {
            let taken = bytes.len().min(self.0);
            self.0 -= taken;
            let broken = || Err(std::io::ErrorKind::BrokenPipe.into());
            std::task::Poll::Ready(if taken == 0 { broken() } else { Ok(taken) })
        }
        fn poll_flush(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
        fn poll_shutdown(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<std::io::Result<()>> {
            std::task::Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_line_of_which_nothing_left_was_not_sent_and_half_a_line_may_have_been_heard() {
        for (room, expected) in [
            (0, UpstreamFault::NotSent("the program does not listen any more")),
            (3, UpstreamFault::Lost("the program does not listen any more")),
        ] {
            let (router, _) = MessageRouter::new(Arc::new(Deaf), crate::spec::RelayedQuestions::careful());
            let id = router.begin(crate::connection::RequestAsker::default()).unwrap();
            let (answer, departure) = router.wait_for(id).unwrap();
            let (sender, lines) = mpsc::channel(1);
            sender.try_send(Line { bytes: b"a request".to_vec(), request: Some((id, departure)) }).unwrap();
            write(Narrow(room), lines, Arc::clone(&router)).await;
            assert_eq!(answer.await.unwrap(), Err(expected));
        }
    }

    #[tokio::test]
    async fn a_line_that_is_too_long_is_not_taken_for_one_also_if_it_never_ends() {
        let (found, good) = lines(b"short\nlooooooooooooooooooooooooooong", 10).await;
        assert_eq!((found, good), (vec!["short".to_owned()], true));
        let (found, good) = lines(b"short\nlooooooooooooooooooooooooooong\nmore\n", 10).await;
        assert_eq!((found, good), (vec!["short".to_owned()], false), "whoever takes lines is told of it");
    }
}
