//! How Gantry, its launcher and the first process of a sandbox talk: one message per packet, descriptors beside it.
//!
//! Sequenced-packet sockets keep message boundaries, so there is no framing to get wrong, and the kernel hands over
//! descriptors. A message is JSON because it is small, rare beside the cost of a process, and readable in a trace.
//!
//! Invariants
//! - WIRE-1: a message is at most [`MESSAGE_BYTES_MAX`]; a longer one is refused by the sender.
//! - WIRE-2: descriptors arrive close-on-exec, so none leaks into a program by being forgotten.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::StepFailure;
use crate::spec::SandboxSpec;

/// Longest message. Below the smallest default socket buffer, so that a packet always fits.
pub(crate) const MESSAGE_BYTES_MAX: usize = 128 << 10;
/// Control socket, stdin, stdout, stderr.
pub(crate) const STREAMS: usize = 4;
/// Most trees of files that travel with an order.
pub(crate) const TREES_MAX: usize = 64;
/// Most descriptors in one message.
const DESCRIPTORS_MAX: usize = STREAMS + TREES_MAX;

/// Gantry → launcher. With it: control socket, stdin, stdout, stderr. And on to a first process, with the declared trees
/// behind them if that has left the machine's root already.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct LaunchOrder {
    pub(crate) spec: SandboxSpec,
}

/// Launcher or first process → Gantry, on the child's control socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LauncherMessage {
    /// The program runs. With it: a pidfd of the first process, and the sockets of its network if one was asked for.
    Started,
    /// The program never ran.
    Failed(StepFailure),
    /// No process of the sandbox is left. How its program ended is absent if the first process could not tell.
    Gone { usage: GroupUsage, end: Option<EndOfProgram> },
    /// The answer to a question for usage.
    Usage(GroupUsage),
    /// The answer to freezing and thawing.
    Stillness(FreezeState),
}

/// Gantry → launcher, on the child's control socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LauncherRequest {
    /// How much has been used, and start counting the peak anew.
    UsageSoFar,
    /// Let everything inside stand still. Asked again, it says how far that is.
    Freeze,
    /// Let it run on.
    Thaw,
}

/// Whether what is inside runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FreezeState {
    Running,
    /// Some of it still is in the kernel.
    Stopping,
    Frozen,
}

/// How the program ended, as its parent saw it. The last word of a first process to the launcher, with its mount
/// namespace, so that taking that apart is not what everybody waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndOfProgram {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    /// CPU time of the program and what it waited for.
    pub(crate) cpu_micros: u64,
    pub(crate) memory_peak_bytes: u64,
    /// No room was left in its scratch space.
    pub(crate) scratch_full: bool,
    /// Nothing it has started is left; the first process is the last one inside.
    pub(crate) alone: bool,
}

/// What the control group counted; absent where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct GroupUsage {
    pub(crate) cpu_micros: Option<u64>,
    pub(crate) memory_peak_bytes: Option<u64>,
    pub(crate) oom_kills: u64,
    /// Times that it was ended because it could not be held to its share of the processor.
    pub(crate) cpu_overruns: u64,
    pub(crate) pids_refused: u64,
}

/// Two connected ends.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

/// Sends one message. Would-block is an error like any other here.
pub(crate) fn send<M: Serialize>(socket: BorrowedFd<'_>, message: &M, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    if bytes.len() > MESSAGE_BYTES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    send_bytes(socket, &bytes, fds)
}

/// Sends a message that is bytes already.
pub(crate) fn send_bytes(socket: BorrowedFd<'_>, bytes: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one message into `buffer`, which should have [`MESSAGE_BYTES_MAX`]. `None`: the other end is closed.
pub(crate) fn receive<M: DeserializeOwned>(
    socket: impl AsFd,
    buffer: &mut [u8],
) -> io::Result<Option<(M, Vec<OwnedFd>)>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received =
        rustix::net::recvmsg(socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let mut fds = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(arrived) = message {
            fds.extend(arrived);
        }
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    if received.flags.contains(ReturnFlags::TRUNC) || received.flags.contains(ReturnFlags::CTRUNC) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let bytes = buffer.get(..received.bytes).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Some((serde_json::from_slice(bytes)?, fds)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_arrives_with_its_descriptors_and_nothing_inherits_them() {
        let (here, there) = pair().unwrap();
        let (reader, writer) = rustix::pipe::pipe().unwrap();
        send(here.as_fd(), &LauncherMessage::Started, &[writer.as_fd()]).unwrap();
        let mut buffer = vec![0; MESSAGE_BYTES_MAX];
        let (word, fds) = receive::<LauncherMessage>(&there, &mut buffer).unwrap().unwrap();
        assert_eq!(word, LauncherMessage::Started);
        let [fd] = fds.try_into().unwrap();
        assert!(rustix::io::fcntl_getfd(&fd).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        rustix::io::write(&fd, b"x").unwrap();
        let mut byte = [0; 1];
        rustix::io::read(&reader, &mut byte).unwrap();
        assert_eq!(&byte, b"x");
    }

    #[test]
    fn a_closed_end_is_told_from_a_message_and_long_messages_are_refused() {
        let (here, there) = pair().unwrap();
        let spec = SandboxSpec::new(["x".repeat(MESSAGE_BYTES_MAX)]);
        assert_eq!(send(here.as_fd(), &LaunchOrder { spec }, &[]).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        drop(here);
        assert!(receive::<LauncherMessage>(&there, &mut [0; 64]).unwrap().is_none());
    }
}
