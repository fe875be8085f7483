//! The few system calls that no safe wrapper offers. All `unsafe` of the crate is here.
//!
//! JUSTIFICATION: making a process with `clone3`, replacing it with `execve`, and setting the attributes of mounts have
//! no safe equivalent in the libraries this crate uses. Everything else goes through `rustix`.

#![expect(unsafe_code, reason = "see above: system calls without a safe wrapper")]

use std::ffi::{CStr, CString};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

use base::SaturatingFrom as _;

/// Which side of a clone one is on.
#[derive(Debug)]
pub(crate) enum CloneSide {
    Parent { pid: i32, pidfd: OwnedFd },
    Child,
}

/// Makes a child of this process with `flags`, in the control group behind `group` if there is one.
///
/// Must be called from a process with one thread only: the child is a copy with that thread, and locks that another
/// thread held would stay held for ever. The launcher is such a process; nothing else calls this.
pub(crate) fn clone(flags: u64, group: Option<BorrowedFd<'_>>) -> io::Result<CloneSide> {
    let mut pidfd: RawFd = -1;
    let flags = flags | if group.is_some() { CLONE_INTO_CGROUP } else { 0 };
    let arguments = libc::clone_args {
        flags: flags | libc::CLONE_PIDFD as u64,
        pidfd: std::ptr::from_mut(&mut pidfd) as u64,
        child_tid: 0,
        parent_tid: 0,
        exit_signal: libc::SIGCHLD as u64,
        stack: 0,
        stack_size: 0,
        tls: 0,
        set_tid: 0,
        set_tid_size: 0,
        cgroup: group.map_or(0, |fd| u64::from(fd.as_raw_fd().cast_unsigned())),
    };
    // SAFETY: the arguments live through the call and have the size that is passed. No stack is given and no memory is
    // shared, so the child goes on here on a copy, as after `fork`; the one-thread rule above makes its heap usable.
    let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of::<libc::clone_args>()) };
    match pid {
        0 => Ok(CloneSide::Child),
        pid if pid > 0 => {
            // SAFETY: the kernel has just put a new descriptor there, which nobody else owns.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(CloneSide::Parent { pid: i32::try_from(pid).map_err(io::Error::other)?, pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// Closes every descriptor from `first` on.
pub(crate) fn close_from(first: u32) -> io::Result<()> {
    // SAFETY: closing descriptors touches no memory. Callers own nothing above `first` that they still use.
    let result = unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives every mount below `tree` (a descriptor of a tree) the attributes. What is mounted later in one place never shows
/// in another through it.
pub(crate) fn set_mount_attributes(tree: impl AsFd, attributes: u64, recursive: bool) -> io::Result<()> {
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: libc::MS_PRIVATE, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a C string, the structure lives through the call and its size is passed.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const change,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Becomes another program. Returns only if that failed.
pub(crate) fn execute(program: &CStr, arguments: &[CString], environment: &[CString]) -> io::Error {
    let pointers = |strings: &[CString]| -> Vec<*const libc::c_char> {
        strings.iter().map(|string| string.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments, environment) = (pointers(arguments), pointers(environment));
    // SAFETY: both arrays end with a null pointer, and all they point to lives until the call returns, if it does.
    unsafe { libc::execve(program.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
    io::Error::last_os_error()
}

/// A process that ended, and what it and its waited-for children used.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReapedProcess {
    pub(crate) pid: i32,
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) cpu_micros: u64,
    pub(crate) memory_peak_bytes: u64,
}

/// Waits for any child. `None`: there is none (that has ended yet, if `block` is false).
pub(crate) fn reap(block: bool) -> io::Result<Option<ReapedProcess>> {
    let mut status = 0;
    // SAFETY: an all-zero `rusage` is a valid one.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let options = libc::__WALL | if block { 0 } else { libc::WNOHANG };
    // SAFETY: both pointers are to live values of the right types.
    let pid = unsafe { libc::wait4(-1, &raw mut status, options, &raw mut usage) };
    match pid {
        0 => Ok(None),
        pid if pid > 0 => Ok(Some(ReapedProcess {
            pid,
            code: libc::WIFEXITED(status).then(|| libc::WEXITSTATUS(status)),
            signal: libc::WIFSIGNALED(status).then(|| libc::WTERMSIG(status)),
            cpu_micros: micros(usage.ru_utime).saturating_add(micros(usage.ru_stime)),
            memory_peak_bytes: u64::saturating_from(usage.ru_maxrss).saturating_mul(1024),
        })),
        _ => match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error => Err(error),
        },
    }
}

/// Is there any child, ended or not?
pub(crate) fn has_children() -> bool {
    // SAFETY: all-zero is a valid value of this structure of numbers.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: the pointer is to a live value of the right type.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, options) };
    // Any other answer than that there is none counts as one.
    result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::ECHILD)
}

fn micros(time: libc::timeval) -> u64 {
    let seconds = u64::saturating_from(time.tv_sec);
    seconds.saturating_mul(1_000_000).saturating_add(u64::saturating_from(time.tv_usec))
}

/// Ends this process without running anything more of it.
pub(crate) fn leave(code: i32) -> ! {
    // SAFETY: `_exit` does not return and touches nothing of ours.
    unsafe { libc::_exit(code) }
}

/// A descriptor that becomes readable when a child ends; blocks the signal's ordinary delivery.
pub(crate) fn child_signals() -> io::Result<OwnedFd> {
    // SAFETY: an all-zero set is overwritten by `sigemptyset` before it is read; all pointers are to this live value;
    // the descriptor that comes back is new and nobody else's.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGCHLD);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// Gives every signal its default meaning again and blocks none, as a new program expects.
pub(crate) fn forget_signals() {
    // SAFETY: setting a disposition to default and clearing the mask has no precondition.
    unsafe {
        // Handlers are forgotten by `execve`; what is ignored is not, and the runtime ignores this one.
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// `IFF_UP | IFF_RUNNING`, in the width of the request.
const UP_AND_RUNNING: libc::c_short = 0x41;

/// Brings the loopback interface of this network namespace up.
pub(crate) fn loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    // SAFETY: an all-zero request is valid; the name fits with its end; the kernel reads the flags we set.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (slot, byte) in request.ifr_name.iter_mut().zip(*b"lo") {
            *slot = byte.cast_signed();
        }
        request.ifr_ifru.ifru_flags = UP_AND_RUNNING;
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The family of IPv4 addresses, as it stands in one.
const FAMILY_INTERNET: libc::sa_family_t = 2;

/// Gives this network namespace's loopback one more address, under a label with this number.
pub(crate) fn loopback_address(number: usize, address: Ipv4Addr) -> io::Result<()> {
    let socket = rustix::net::socket_with(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    let label = format!("lo:{number}");
    // SAFETY: an all-zero request is valid; the label is shorter than the name's room, so its end stays; an IPv4 socket address
    // is as large as any that this union holds, and the kernel reads it as one by its family.
    let result = unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        let room = request.ifr_name.len() - 1;
        for (slot, byte) in request.ifr_name.iter_mut().take(room).zip(label.bytes()) {
            *slot = byte.cast_signed();
        }
        let internet = libc::sockaddr_in {
            sin_family: FAMILY_INTERNET,
            sin_port: 0,
            sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.octets()) },
            sin_zero: [0; 8],
        };
        request.ifr_ifru.ifru_addr = std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(internet);
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFADDR, &raw const request)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Leaves the namespaces of the parent behind.
pub(crate) fn unshare(flags: rustix::thread::UnshareFlags) -> io::Result<()> {
    debug_assert!(!flags.contains(rustix::thread::UnshareFlags::FILES));
    // SAFETY: the caution is about descriptor tables that threads share; callers have one thread and never ask for that.
    Ok(unsafe { rustix::thread::unshare_unsafe(flags) }?)
}

/// Closes a descriptor by its number.
pub(crate) fn close(fd: RawFd) {
    // SAFETY: callers name the standard streams or the control socket of a process that is theirs alone and that does
    // not use them afterwards.
    unsafe { libc::close(fd) };
}

/// Moves a descriptor to a number, closing what was there.
pub(crate) fn move_to(fd: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: `dup3` touches no memory; whatever had the number is given up by the caller. The result is a new
    // descriptor that only the returned value owns.
    unsafe {
        if libc::dup3(fd.as_raw_fd(), number, libc::O_CLOEXEC) < 0 {
            return Err(io::Error::last_os_error());
        }
        drop(fd);
        Ok(OwnedFd::from_raw_fd(number))
    }
}

/// Forgets a descriptor that [`close_from`] has closed, so that its number is not closed again.
pub(crate) fn already_closed(fd: OwnedFd) {
    use std::os::fd::IntoRawFd as _;
    // To take the number out is to give up the ownership of it, which is all that is wanted.
    let _ = fd.into_raw_fd();
}

/// Makes a socket of ours wait in the runtime.
pub(crate) fn watched(socket: OwnedFd) -> io::Result<tokio::io::unix::AsyncFd<OwnedFd>> {
    rustix::io::ioctl_fionbio(&socket, true)?;
    // SAFETY: an `OwnedFd` is the same open descriptor for as long as it lives, and the wrapper owns it.
    Ok(unsafe { tokio::io::unix::AsyncFd::register(socket) }?)
}

/// Applies a system call filter to this process and all it becomes.
pub(crate) fn apply_filter(program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the structure and the instructions it points to live through the call, the length is theirs, and the
    // kernel only reads them.
    let result = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const program) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Bytes of a page of memory.
pub(crate) fn page_bytes() -> u64 {
    // SAFETY: `sysconf` reads a number and touches no memory of ours.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Units of CPU time in `/proc` per second.
pub(crate) fn ticks_per_second() -> u64 {
    // SAFETY: as above.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).unwrap_or(100).max(1)
}

/// Processors of the machine.
pub(crate) fn processors() -> u64 {
    // SAFETY: as above.
    u64::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).unwrap_or(1).max(1)
}
