//! Which system calls exist for the program: those on the list, with the arguments on the list. All others fail.
//!
//! A refused call fails with `EPERM`, as it would for want of a right, so that programs take their ordinary way round it;
//! `clone3` and newer calls that libraries probe for fail with `ENOSYS`, which makes them fall back to calls whose
//! arguments a filter can read.
//!
//! Refused, by family: mounting (mount, umount2, pivot_root, chroot, fsopen, open_tree …), tracing (ptrace, process_vm_*,
//! kcmp, pidfd_getfd), namespaces (unshare, setns, clone with CLONE_NEW*), bpf, the key rings (add_key, keyctl,
//! request_key), perf_event_open, io_uring, userfaultfd, kernel modules, kexec, reboot, swap, quota, accounting, clocks
//! (settimeofday, clock_settime, adjtimex), syslog, port i/o (iopl, ioperm), handles (open_by_handle_at), fanotify,
//! raw, packet, netlink, vsock and kernel-crypto sockets, device nodes (mknod of anything but files and pipes), pushing
//! input into terminals (TIOCSTI, TIOCLINUX), other personalities, and every call of the 32-bit and x32 tables.
//!
//! The list is data here; `filter` turns it into a program for the kernel.

use std::collections::BTreeMap;

use self::filter::{Condition, Verdict};
use crate::error::StepFailure;

mod filter;

pub(crate) use self::filter::FilterProgram;

/// All bits of `clone` that ask for a namespace.
pub(crate) const CLONE_NEW: u32 = 0x7e02_0080;

/// What one may not ask of a terminal: typing on it for its user, or taking it over.
pub(crate) const TERMINAL_INPUT: [u64; 4] = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD, libc::TIOCCONS];

/// A system call by the name of its constant and by its number. Container runtimes take the same list as names.
pub(crate) type SystemCall = (&'static str, i64);

macro_rules! calls {
    ($($name:ident),* $(,)?) => { &[$((stringify!($name), libc::$name)),*] };
}

/// The filter, ready to be applied. Compiled once, when the launcher starts.
pub(crate) fn compile(counted: CountedMemory) -> Result<FilterProgram, StepFailure> {
    let mut rules = rules();
    if counted == CountedMemory::OfProcesses {
        for (_, call) in OWNERLESS_MEMORY {
            let _ = u32::try_from(*call).map(|call| rules.remove(&call));
        }
        rules.extend(unenlarged());
    }
    FilterProgram::compile(&rules)
}

/// Whose memory somebody counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CountedMemory {
    /// Everything of a control group.
    OfGroup,
    /// What is mapped by processes, and scratch: calls that make memory beside them are refused.
    OfProcesses,
}

/// Calls that make memory which no process needs to have mapped.
pub(crate) const OWNERLESS_MEMORY: &[SystemCall] =
    calls![SYS_memfd_create, SYS_shmget, SYS_msgget, SYS_semget, SYS_vmsplice];
/// Calls that can make a socket or a pipe hold more than it did, by options and commands among others.
pub(crate) const ENLARGING: &[SystemCall] = calls![SYS_setsockopt, SYS_fcntl];
/// The options of a socket that do so for what it sends. What arrives by network is counted as it is.
pub(crate) const LARGER_SOCKET: [i32; 2] = [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE];
/// The command that does so for a pipe.
pub(crate) const LARGER_PIPE: [i32; 1] = [libc::F_SETPIPE_SZ];

/// Those calls, without what makes anything larger: what can be held is counted by what is usual.
fn unenlarged() -> BTreeMap<u32, Verdict> {
    let none_of = |argument, excluded: &[i32]| -> Vec<Condition> {
        excluded.iter().map(|number| Condition::other(argument, number.cast_unsigned())).collect()
    };
    let options = vec![vec![Condition::other(1, libc::SOL_SOCKET.cast_unsigned())], none_of(2, &LARGER_SOCKET)];
    let rules = [(libc::SYS_setsockopt, options), (libc::SYS_fcntl, vec![none_of(1, &LARGER_PIPE)])];
    let numbered = rules.into_iter().filter_map(|(call, rule)| Some((u32::try_from(call).ok()?, rule)));
    numbered.map(|(call, rule)| (call, Verdict::AllowIf(rule))).collect()
}

/// What becomes of each call that is not simply refused.
fn rules() -> BTreeMap<u32, Verdict> {
    let plain = |calls: &'static [SystemCall]| calls.iter().filter_map(|(_, call)| u32::try_from(*call).ok());
    let mut rules: BTreeMap<u32, Verdict> = plain(PLAIN).map(|call| (call, Verdict::Allow)).collect();
    #[cfg(target_arch = "x86_64")]
    rules.extend(plain(PLAIN_X86_64).map(|call| (call, Verdict::Allow)));
    rules.extend(plain(UNKNOWN).map(|call| (call, Verdict::Unknown)));
    let mut only_if = |call: i64, alternatives: Vec<Vec<Condition>>| {
        if let Ok(call) = u32::try_from(call) {
            rules.insert(call, Verdict::AllowIf(alternatives));
        }
    };

    // Threads and processes, but no namespaces. The flags are the first argument on all architectures we build for.
    only_if(libc::SYS_clone, vec![vec![Condition::masked(0, CLONE_NEW, 0)]]);
    // Local and internet sockets, streams and datagrams, of no protocol but the type's own: ICMP sockets are datagrams too.
    let mut sockets = Vec::new();
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        for (kind, protocol) in
            [(libc::SOCK_STREAM, libc::IPPROTO_TCP), (libc::SOCK_DGRAM, libc::IPPROTO_UDP), (libc::SOCK_SEQPACKET, 0)]
        {
            for protocol in [0, protocol] {
                sockets.push(vec![
                    Condition::equal(0, family.cast_unsigned()),
                    Condition::masked(1, 0xf, kind.cast_unsigned()),
                    Condition::equal(2, protocol.cast_unsigned()),
                ]);
            }
        }
    }
    only_if(libc::SYS_socket, sockets);
    only_if(libc::SYS_socketpair, vec![vec![Condition::equal(0, libc::AF_UNIX.cast_unsigned())]]);
    // Everything a program does with its own descriptors, but no typing on terminals.
    let terminals = TERMINAL_INPUT.iter().filter_map(|request| u32::try_from(*request).ok());
    only_if(libc::SYS_ioctl, vec![terminals.map(|request| Condition::other(1, request)).collect()]);
    // Asking which one it is, and the ordinary one.
    only_if(libc::SYS_personality, vec![vec![Condition::equal(0, 0)], vec![Condition::equal(0, u32::MAX)]]);
    // Pipes and plain files.
    let node = |argument| -> Vec<Vec<Condition>> {
        [libc::S_IFIFO, libc::S_IFREG, 0].map(|kind| vec![Condition::masked(argument, libc::S_IFMT, kind)]).into()
    };
    only_if(libc::SYS_mknodat, node(2));
    #[cfg(target_arch = "x86_64")]
    only_if(libc::SYS_mknod, node(1));
    rules
}

/// Calls that libraries try first and do without.
pub(crate) const UNKNOWN: &[SystemCall] = calls![
    SYS_clone3,
    SYS_io_uring_setup,
    SYS_io_uring_enter,
    SYS_io_uring_register,
    SYS_memfd_secret,
    SYS_userfaultfd,
];

#[rustfmt::skip]
pub(crate) const PLAIN: &[SystemCall] = calls![
    // Files.
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64,
    SYS_preadv, SYS_pwritev, SYS_preadv2, SYS_pwritev2, SYS_openat, SYS_openat2,
    SYS_close, SYS_close_range, SYS_lseek, SYS_fstat, SYS_newfstatat, SYS_statx,
    SYS_statfs, SYS_fstatfs, SYS_faccessat, SYS_faccessat2, SYS_getdents64,
    SYS_getcwd, SYS_chdir, SYS_fchdir, SYS_mkdirat, SYS_unlinkat, SYS_renameat,
    SYS_renameat2, SYS_linkat, SYS_symlinkat, SYS_readlinkat, SYS_fchmod,
    SYS_fchmodat, SYS_fchmodat2, SYS_fchown, SYS_fchownat, SYS_utimensat, SYS_truncate,
    SYS_ftruncate, SYS_fallocate, SYS_fsync, SYS_fdatasync, SYS_sync_file_range,
    SYS_syncfs, SYS_sync, SYS_umask, SYS_fcntl, SYS_flock, SYS_dup, SYS_dup3, SYS_pipe2,
    SYS_sendfile, SYS_splice, SYS_tee, SYS_vmsplice, SYS_copy_file_range, SYS_fadvise64,
    SYS_readahead, SYS_memfd_create, SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
    SYS_getxattr, SYS_lgetxattr, SYS_fgetxattr, SYS_listxattr, SYS_llistxattr,
    SYS_flistxattr, SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr,
    // Waiting.
    SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
    SYS_epoll_pwait2, SYS_eventfd2, SYS_signalfd4, SYS_timerfd_create, SYS_timerfd_settime,
    SYS_timerfd_gettime, SYS_nanosleep, SYS_clock_nanosleep, SYS_futex, SYS_futex_waitv,
    SYS_restart_syscall,
    // Memory.
    SYS_mmap, SYS_mprotect, SYS_munmap, SYS_mremap, SYS_madvise, SYS_msync, SYS_brk,
    SYS_mincore, SYS_mlock, SYS_mlock2, SYS_munlock, SYS_mlockall, SYS_munlockall,
    SYS_membarrier, SYS_pkey_alloc, SYS_pkey_free, SYS_pkey_mprotect, SYS_get_mempolicy,
    // Processes of its own, and signals among them.
    SYS_execve, SYS_execveat, SYS_exit, SYS_exit_group, SYS_wait4, SYS_waitid,
    SYS_kill, SYS_tkill, SYS_tgkill, SYS_pidfd_open, SYS_pidfd_send_signal,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_rt_sigpending,
    SYS_rt_sigtimedwait, SYS_rt_sigsuspend, SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo,
    SYS_sigaltstack, SYS_set_tid_address, SYS_set_robust_list, SYS_get_robust_list, SYS_rseq,
    SYS_getpid, SYS_getppid, SYS_gettid, SYS_getpgid, SYS_setpgid, SYS_getsid,
    SYS_setsid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_getresuid,
    SYS_getresgid, SYS_getgroups, SYS_setuid, SYS_setgid, SYS_setreuid, SYS_setregid,
    SYS_setresuid, SYS_setresgid, SYS_setfsuid, SYS_setfsgid, SYS_capget, SYS_capset,
    SYS_prctl, SYS_seccomp, SYS_getrlimit, SYS_setrlimit, SYS_prlimit64, SYS_getrusage,
    SYS_times, SYS_getpriority, SYS_setpriority, SYS_sched_yield, SYS_sched_getaffinity,
    SYS_sched_setaffinity, SYS_sched_getparam, SYS_sched_setparam, SYS_sched_getscheduler,
    SYS_sched_setscheduler, SYS_sched_getattr, SYS_sched_setattr, SYS_sched_get_priority_max, SYS_sched_get_priority_min,
    SYS_sched_rr_get_interval, SYS_getcpu, SYS_ioprio_get, SYS_ioprio_set,
    SYS_landlock_create_ruleset, SYS_landlock_add_rule, SYS_landlock_restrict_self,
    // Sockets, once made.
    SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect, SYS_getsockname,
    SYS_getpeername, SYS_getsockopt, SYS_setsockopt, SYS_shutdown, SYS_sendto, SYS_recvfrom,
    SYS_sendmsg, SYS_recvmsg, SYS_sendmmsg, SYS_recvmmsg,
    // Time, and what the system is.
    SYS_clock_gettime, SYS_clock_getres, SYS_gettimeofday, SYS_timer_create, SYS_timer_settime,
    SYS_timer_gettime, SYS_timer_getoverrun, SYS_timer_delete, SYS_getitimer, SYS_setitimer,
    SYS_uname, SYS_sysinfo, SYS_getrandom,
    // Communication inside its own namespace.
    SYS_shmget, SYS_shmat, SYS_shmdt, SYS_shmctl, SYS_semget, SYS_semop, SYS_semctl,
    SYS_semtimedop, SYS_msgget, SYS_msgsnd, SYS_msgrcv, SYS_msgctl, SYS_mq_open,
    SYS_mq_unlink, SYS_mq_timedsend, SYS_mq_timedreceive, SYS_mq_notify, SYS_mq_getsetattr,
];

/// The older spellings that only this architecture has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
pub(crate) const PLAIN_X86_64: &[SystemCall] = calls![
    SYS_open, SYS_creat, SYS_stat, SYS_lstat, SYS_access, SYS_getdents, SYS_mkdir,
    SYS_rmdir, SYS_unlink, SYS_rename, SYS_link, SYS_symlink, SYS_readlink,
    SYS_chmod, SYS_chown, SYS_lchown, SYS_utime, SYS_utimes, SYS_futimesat, SYS_dup2, SYS_pipe,
    SYS_poll, SYS_select, SYS_epoll_create, SYS_epoll_wait, SYS_eventfd, SYS_signalfd,
    SYS_inotify_init, SYS_fork, SYS_vfork, SYS_getpgrp, SYS_pause, SYS_alarm, SYS_time,
    SYS_arch_prctl,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_call_of_a_refused_family_is_on_the_list() {
        let rules = rules();
        for refused in [
            libc::SYS_mount,
            libc::SYS_umount2,
            libc::SYS_pivot_root,
            libc::SYS_chroot,
            libc::SYS_fsopen,
            libc::SYS_open_tree,
            libc::SYS_move_mount,
            libc::SYS_mount_setattr,
            libc::SYS_ptrace,
            libc::SYS_process_vm_readv,
            libc::SYS_process_vm_writev,
            libc::SYS_kcmp,
            libc::SYS_pidfd_getfd,
            libc::SYS_unshare,
            libc::SYS_setns,
            libc::SYS_clone3,
            libc::SYS_bpf,
            libc::SYS_add_key,
            libc::SYS_keyctl,
            libc::SYS_request_key,
            libc::SYS_perf_event_open,
            libc::SYS_io_uring_setup,
            libc::SYS_userfaultfd,
            libc::SYS_init_module,
            libc::SYS_finit_module,
            libc::SYS_delete_module,
            libc::SYS_kexec_load,
            libc::SYS_reboot,
            libc::SYS_swapon,
            libc::SYS_swapoff,
            libc::SYS_quotactl,
            libc::SYS_acct,
            libc::SYS_settimeofday,
            libc::SYS_clock_settime,
            libc::SYS_adjtimex,
            libc::SYS_clock_adjtime,
            libc::SYS_syslog,
            libc::SYS_open_by_handle_at,
            libc::SYS_name_to_handle_at,
            libc::SYS_fanotify_init,
            libc::SYS_sethostname,
            libc::SYS_setdomainname,
            libc::SYS_setgroups,
            libc::SYS_vhangup,
        ] {
            let verdict = rules.get(&u32::try_from(refused).unwrap());
            assert!(matches!(verdict, None | Some(Verdict::Unknown)), "system call {refused}");
        }
    }
}
