//! What the kernel holds for a tree in sockets and pipes. It is mapped by nobody, so it is in no process's account, and without
//! a control group in nobody's at all.
//!
//! | of | counted |
//! |---|---|
//! | TCP, UDP | what is in their queues, as the kernel tells it |
//! | local sockets | what each can hold, because the kernel does not tell what it does hold |
//! | pipes | the same, whoever of the tree has them open |
//!
//! Sockets are counted over the whole network namespace, which the tree has to itself: those whose descriptor is under way in a
//! message, and connections that nobody has accepted, are among them. Nothing can hold more than it is counted with, because
//! the filter lets nobody enlarge a local socket or a pipe (`inside::seccomp`).
//!
//! Not counted are pipes whose last descriptor is under way in a message; there are no more of them than a process may have
//! files open.

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use base::SaturatingFrom as _;
use rustix::fs::{AtFlags, CWD, FileType, StatxFlags};

/// What sockets and pipes may hold that are not charged: those of ordinary programs.
const FREE_BYTES: u64 = 8 << 20;
/// What a pipe holds that nobody has enlarged.
const PIPE_BYTES: u64 = 64 << 10;
/// Descriptors that are not worth a look: as pipes they would not reach [`FREE_BYTES`].
const FREE_DESCRIPTORS: usize = 64;
/// Messages that wait at a datagram socket which strangers may send to: the ten that a new network namespace allows, the one
/// that is let in then, and its own.
const STRANGERS_MESSAGES: u64 = 12;
/// A packet is accounted with what it occupies, and queues with what they carry; the rest is what lies between.
const OCCUPIED_PER_CARRIED: u64 = 2;
/// Taken if the system does not tell.
const SEND_BUFFER_BYTES: u64 = 212_992;

/// What a local socket may have sent that nobody has received, before the last message it may begin.
static SEND_BUFFER: LazyLock<u64> = LazyLock::new(|| {
    let told = fs::read_to_string("/proc/sys/net/core/wmem_default").ok();
    told.and_then(|text| text.trim().parse().ok()).unwrap_or(SEND_BUFFER_BYTES)
});

/// What these processes, the first of them the tree's own first, hold in sockets and pipes beyond what is free.
pub(super) fn held_bytes(first: i32, members: &[i32]) -> u64 {
    let sockets = (members.iter().chain([&first])).find_map(|pid| own_network(*pid)).map_or((0, 0), sockets_of);
    let (carried, capacity) = sockets;
    let capacity = capacity.saturating_add(pipes_of(members).saturating_mul(PIPE_BYTES));
    carried.saturating_add(capacity.saturating_sub(FREE_BYTES))
}

/// The process, if it lives in another network than this one: what is in this one is not its doing.
fn own_network(pid: i32) -> Option<i32> {
    let table = |whose: &str| rustix::fs::stat(format!("/proc/{whose}/net/unix")).ok().map(|stat| stat.st_ino);
    (table(&pid.to_string())? != table("self")?).then_some(pid)
}

/// What the sockets of a process's network carry, and what those can hold that do not tell.
fn sockets_of(pid: i32) -> (u64, u64) {
    let table = |name: &str| {
        let bytes = fs::read(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let carried = ["tcp", "tcp6", "udp", "udp6"].iter().map(|name| queued_bytes(&table(name)));
    let carried = carried.fold(0, u64::saturating_add).saturating_mul(OCCUPIED_PER_CARRIED);
    (carried, local_capacity(&table("unix"), *SEND_BUFFER))
}

/// `sl local remote st tx:rx …`, in hexadecimal.
fn queued_bytes(table: &str) -> u64 {
    let queues = |line: &str| {
        let (sent, received) = line.split_whitespace().nth(4)?.split_once(':')?;
        Some(u64::from_str_radix(sent, 16).ok()?.saturating_add(u64::from_str_radix(received, 16).ok()?))
    };
    table.lines().skip(1).filter_map(queues).fold(0, u64::saturating_add)
}

/// `Num RefCount Protocol Flags Type St Inode [Path]`. A name may contain a line break: then it counts as more, never as less.
fn local_capacity(table: &str, send_buffer: u64) -> u64 {
    let capacity = |line: &str| {
        let mut fields = line.split_whitespace().skip(4);
        let (is_datagram, is_named) = (fields.next() == Some("0002"), fields.nth(2).is_some());
        // The last message may be as large as the buffer, and is let in when there is any room.
        let messages = if is_datagram && is_named { STRANGERS_MESSAGES } else { 2 };
        send_buffer.saturating_mul(messages)
    };
    table.lines().skip(1).map(capacity).fold(0, u64::saturating_add)
}

/// How many pipes they have open, named or not.
fn pipes_of(members: &[i32]) -> u64 {
    let descriptors: Vec<_> = (members.iter())
        .flat_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten())
        .map(|entry| entry.path())
        .collect();
    if descriptors.len() <= FREE_DESCRIPTORS {
        return 0;
    }
    let pipe = |path: &std::path::PathBuf| {
        // Nobody is to be waited for: the file may be on another machine.
        let seen = rustix::fs::statx(CWD, path, AtFlags::STATX_DONT_SYNC, StatxFlags::TYPE | StatxFlags::INO).ok()?;
        let is_pipe = FileType::from_raw_mode(seen.stx_mode.into()) == FileType::Fifo;
        is_pipe.then_some((seen.stx_dev_major, seen.stx_dev_minor, seen.stx_ino))
    };
    let distinct: BTreeSet<_> = descriptors.iter().filter_map(pipe).collect();
    u64::saturating_from(distinct.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_read_from_their_column() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr\n\
                     0: 0100007F:1F90 00000000:0000 01 00000010:00000100 00:00000000\n\
                     1: cut\n";
        assert_eq!(queued_bytes(table), 0x110);
    }

    #[test]
    fn a_local_socket_counts_with_what_it_can_hold_and_more_if_strangers_may_send_to_it() {
        let table = "Num       RefCount Protocol Flags    Type St Inode Path\n\
                     0000000000000000: 00000003 00000000 00000000 0001 03 16407\n\
                     0000000000000000: 00000003 00000000 00000000 0002 01 16408\n\
                     0000000000000000: 00000003 00000000 00000000 0002 01 16409 @name\n";
        assert_eq!(local_capacity(table, 100), 200 + 200 + 1200);
    }

    #[test]
    fn sockets_of_the_network_one_lives_in_oneself_are_nobody_s() {
        let own = i32::try_from(std::process::id()).unwrap();
        assert_eq!(own_network(own), None);
    }

    #[test]
    fn pipes_are_counted_once_however_often_they_are_open() {
        let own = i32::try_from(std::process::id()).unwrap();
        let before = pipes_of(&[own]);
        let pipes: Vec<_> = (0..100).map(|_| std::io::pipe().unwrap()).collect();
        let counted = pipes_of(&[own]);
        assert!(counted >= 100 && counted <= before + 100 + 64, "{counted} after {before}");
        drop(pipes);
    }
}
