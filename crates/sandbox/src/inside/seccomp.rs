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

pub(crate) use self::filter::Program;

/// All bits of `clone` that ask for a namespace.
const CLONE_NEW: u32 = 0x7e02_0080;

/// The filter, ready to be applied. Compiled once, when the launcher starts.
pub(crate) fn compile() -> Result<Program, StepFailure> {
    Program::compile(&rules())
}

/// What becomes of each call that is not simply refused.
fn rules() -> BTreeMap<u32, Verdict> {
    let plain = |calls: &'static [i64]| calls.iter().filter_map(|call| u32::try_from(*call).ok());
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
    let terminals = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD, libc::TIOCCONS];
    let terminals = terminals.iter().filter_map(|request| u32::try_from(*request).ok());
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
const UNKNOWN: &[i64] = &[
    libc::SYS_clone3,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_memfd_secret,
    libc::SYS_userfaultfd,
];

#[rustfmt::skip]
const PLAIN: &[i64] = &[
    // Files.
    libc::SYS_read, libc::SYS_write, libc::SYS_readv, libc::SYS_writev, libc::SYS_pread64, libc::SYS_pwrite64,
    libc::SYS_preadv, libc::SYS_pwritev, libc::SYS_preadv2, libc::SYS_pwritev2, libc::SYS_openat, libc::SYS_openat2,
    libc::SYS_close, libc::SYS_close_range, libc::SYS_lseek, libc::SYS_fstat, libc::SYS_newfstatat, libc::SYS_statx,
    libc::SYS_statfs, libc::SYS_fstatfs, libc::SYS_faccessat, libc::SYS_faccessat2, libc::SYS_getdents64,
    libc::SYS_getcwd, libc::SYS_chdir, libc::SYS_fchdir, libc::SYS_mkdirat, libc::SYS_unlinkat, libc::SYS_renameat,
    libc::SYS_renameat2, libc::SYS_linkat, libc::SYS_symlinkat, libc::SYS_readlinkat, libc::SYS_fchmod,
    libc::SYS_fchmodat, libc::SYS_fchmodat2, libc::SYS_fchown, libc::SYS_fchownat, libc::SYS_utimensat, libc::SYS_truncate,
    libc::SYS_ftruncate, libc::SYS_fallocate, libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_sync_file_range,
    libc::SYS_syncfs, libc::SYS_sync, libc::SYS_umask, libc::SYS_fcntl, libc::SYS_flock, libc::SYS_dup, libc::SYS_dup3, libc::SYS_pipe2,
    libc::SYS_sendfile, libc::SYS_splice, libc::SYS_tee, libc::SYS_vmsplice, libc::SYS_copy_file_range, libc::SYS_fadvise64,
    libc::SYS_readahead, libc::SYS_memfd_create, libc::SYS_inotify_init1, libc::SYS_inotify_add_watch, libc::SYS_inotify_rm_watch,
    libc::SYS_getxattr, libc::SYS_lgetxattr, libc::SYS_fgetxattr, libc::SYS_listxattr, libc::SYS_llistxattr,
    libc::SYS_flistxattr, libc::SYS_setxattr, libc::SYS_lsetxattr, libc::SYS_fsetxattr, libc::SYS_removexattr, libc::SYS_lremovexattr, libc::SYS_fremovexattr,
    // Waiting.
    libc::SYS_ppoll, libc::SYS_pselect6, libc::SYS_epoll_create1, libc::SYS_epoll_ctl, libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2, libc::SYS_eventfd2, libc::SYS_signalfd4, libc::SYS_timerfd_create, libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime, libc::SYS_nanosleep, libc::SYS_clock_nanosleep, libc::SYS_futex, libc::SYS_futex_waitv,
    libc::SYS_restart_syscall,
    // Memory.
    libc::SYS_mmap, libc::SYS_mprotect, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_msync, libc::SYS_brk,
    libc::SYS_mincore, libc::SYS_mlock, libc::SYS_mlock2, libc::SYS_munlock, libc::SYS_mlockall, libc::SYS_munlockall,
    libc::SYS_membarrier, libc::SYS_pkey_alloc, libc::SYS_pkey_free, libc::SYS_pkey_mprotect, libc::SYS_get_mempolicy,
    // Processes of its own, and signals among them.
    libc::SYS_execve, libc::SYS_execveat, libc::SYS_exit, libc::SYS_exit_group, libc::SYS_wait4, libc::SYS_waitid,
    libc::SYS_kill, libc::SYS_tkill, libc::SYS_tgkill, libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal,
    libc::SYS_rt_sigaction, libc::SYS_rt_sigprocmask, libc::SYS_rt_sigreturn, libc::SYS_rt_sigpending,
    libc::SYS_rt_sigtimedwait, libc::SYS_rt_sigsuspend, libc::SYS_rt_sigqueueinfo, libc::SYS_rt_tgsigqueueinfo,
    libc::SYS_sigaltstack, libc::SYS_set_tid_address, libc::SYS_set_robust_list, libc::SYS_get_robust_list, libc::SYS_rseq,
    libc::SYS_getpid, libc::SYS_getppid, libc::SYS_gettid, libc::SYS_getpgid, libc::SYS_setpgid, libc::SYS_getsid,
    libc::SYS_setsid, libc::SYS_getuid, libc::SYS_geteuid, libc::SYS_getgid, libc::SYS_getegid, libc::SYS_getresuid,
    libc::SYS_getresgid, libc::SYS_getgroups, libc::SYS_setuid, libc::SYS_setgid, libc::SYS_setreuid, libc::SYS_setregid,
    libc::SYS_setresuid, libc::SYS_setresgid, libc::SYS_setfsuid, libc::SYS_setfsgid, libc::SYS_capget, libc::SYS_capset,
    libc::SYS_prctl, libc::SYS_seccomp, libc::SYS_getrlimit, libc::SYS_setrlimit, libc::SYS_prlimit64, libc::SYS_getrusage,
    libc::SYS_times, libc::SYS_getpriority, libc::SYS_setpriority, libc::SYS_sched_yield, libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity, libc::SYS_sched_getparam, libc::SYS_sched_setparam, libc::SYS_sched_getscheduler,
    libc::SYS_sched_setscheduler, libc::SYS_sched_getattr, libc::SYS_sched_setattr, libc::SYS_sched_get_priority_max, libc::SYS_sched_get_priority_min,
    libc::SYS_sched_rr_get_interval, libc::SYS_getcpu, libc::SYS_ioprio_get, libc::SYS_ioprio_set,
    libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self,
    // Sockets, once made.
    libc::SYS_bind, libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4, libc::SYS_connect, libc::SYS_getsockname,
    libc::SYS_getpeername, libc::SYS_getsockopt, libc::SYS_setsockopt, libc::SYS_shutdown, libc::SYS_sendto, libc::SYS_recvfrom,
    libc::SYS_sendmsg, libc::SYS_recvmsg, libc::SYS_sendmmsg, libc::SYS_recvmmsg,
    // Time, and what the system is.
    libc::SYS_clock_gettime, libc::SYS_clock_getres, libc::SYS_gettimeofday, libc::SYS_timer_create, libc::SYS_timer_settime,
    libc::SYS_timer_gettime, libc::SYS_timer_getoverrun, libc::SYS_timer_delete, libc::SYS_getitimer, libc::SYS_setitimer,
    libc::SYS_uname, libc::SYS_sysinfo, libc::SYS_getrandom,
    // Communication inside its own namespace.
    libc::SYS_shmget, libc::SYS_shmat, libc::SYS_shmdt, libc::SYS_shmctl, libc::SYS_semget, libc::SYS_semop, libc::SYS_semctl,
    libc::SYS_semtimedop, libc::SYS_msgget, libc::SYS_msgsnd, libc::SYS_msgrcv, libc::SYS_msgctl, libc::SYS_mq_open,
    libc::SYS_mq_unlink, libc::SYS_mq_timedsend, libc::SYS_mq_timedreceive, libc::SYS_mq_notify, libc::SYS_mq_getsetattr,
];

/// The older spellings that only this architecture has.
#[cfg(target_arch = "x86_64")]
#[rustfmt::skip]
const PLAIN_X86_64: &[i64] = &[
    libc::SYS_open, libc::SYS_creat, libc::SYS_stat, libc::SYS_lstat, libc::SYS_access, libc::SYS_getdents, libc::SYS_mkdir,
    libc::SYS_rmdir, libc::SYS_unlink, libc::SYS_rename, libc::SYS_link, libc::SYS_symlink, libc::SYS_readlink,
    libc::SYS_chmod, libc::SYS_chown, libc::SYS_lchown, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat, libc::SYS_dup2, libc::SYS_pipe,
    libc::SYS_poll, libc::SYS_select, libc::SYS_epoll_create, libc::SYS_epoll_wait, libc::SYS_eventfd, libc::SYS_signalfd,
    libc::SYS_inotify_init, libc::SYS_fork, libc::SYS_vfork, libc::SYS_getpgrp, libc::SYS_pause, libc::SYS_alarm, libc::SYS_time,
    libc::SYS_arch_prctl,
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
