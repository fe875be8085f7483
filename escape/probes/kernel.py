"""The kernel's dangerous doors: mounts, devices, /proc/sys, /sys, control groups, and system calls no tool needs.

Where a call would do harm if it were heard, its arguments make no sense, and what counts is whether it is refused for
that or for coming from here.
"""

import ctypes
import glob
import mmap
import os
import tempfile

from hostile import (CLONE_NEWNS, CLONE_NEWUSER, any_of, blocked, escaped, in_child, is_heard, judged, main, opens,
                     probe, says, succeeds, syscall)

MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 32, 4096, 16384, 1 << 18, 2
X32_BIT = 0x40000000


def text(value):
    return ctypes.c_char_p(value.encode() if isinstance(value, str) else value)


# ------------------------------------------------------------------------------------------------------------ mounts


def mounts(source, kind, flags=0, look=None):
    """Mounts on a directory of one's own and takes it away again."""
    home = tempfile.mkdtemp()
    try:
        result, error = syscall("mount", text(source), text(home), text(kind), flags, 0)
        if result != 0:
            return blocked(f"mount answered {says(error)}", kind)
        seen = escaped("it was mounted", kind) if look is None else look(home)
        syscall("umount2", text(home), MNT_DETACH)
        return seen
    finally:
        os.rmdir(home)


@probe
def mount_tmpfs(parameters):
    return mounts("none", "tmpfs")


@probe
def mount_proc(parameters):
    return mounts("proc", "proc")


@probe
def mount_control_groups(parameters):
    return any_of(mounts("none", kind) for kind in ("cgroup2", "cgroup"))


@probe
def mount_bind(parameters):
    return mounts("/usr", "none", MS_BIND)


@probe
def mount_block_device(parameters):
    """A device that exists on the machine, with a file system it does not hold: the question is who says no."""
    def attempts():
        for device in ("/dev/vda", "/dev/sda", "/dev/loop0", "/dev/nvme0n1"):
            home = tempfile.mkdtemp()
            _, error = syscall("mount", text(device), text(home), text("proc_no_such_fs"), 1, 0)
            os.rmdir(home)
            # ENODEV: the caller was allowed to ask.
            yield judged(error == 19, f"mount answered {says(error)}")
    return any_of(attempts())


def is_outside(parameters):
    """Whether the canary is in sight; then what follows would hit the machine and is not tried."""
    return os.path.exists(parameters["file"])


@probe
def remount_system_writable(parameters):
    if is_outside(parameters):
        return escaped("the machine's own mounts are in reach")
    return any_of(judged(result == 0, f"mount answered {says(error)}", place) for place, (result, error) in
                  ((place, syscall("mount", text("none"), text(place), text("none"), MS_REMOUNT | MS_BIND, 0))
                   for place in ("/usr", "/", "/proc/sys", "/proc", ".")))


@probe
def unmount_the_walls(parameters):
    if is_outside(parameters):
        return escaped("the machine's own mounts are in reach")
    return any_of(judged(result == 0, f"umount2 answered {says(error)}", place) for place, (result, error) in
                  ((place, syscall("umount2", text(place), MNT_DETACH)) for place in
                   ("/proc/sys", "/proc", "/tmp", "/usr", "/dev", "/")))


@probe
def pivot_root(parameters):
    home = tempfile.mkdtemp()

    def work():
        # In a mount namespace of its own if it can have one, which ends with it; refused there, it asks all the same.
        alone, _ = syscall("unshare", CLONE_NEWNS)
        if alone == 0:
            syscall("mount", text("none"), text("/"), text("none"), MS_REC | MS_PRIVATE, 0)
            syscall("mount", text("none"), text(home), text("tmpfs"), 0, 0)
        elif parameters["mode"] == "bare":
            return blocked("no namespace to try it in")
        result, error = syscall("pivot_root", text(home), text(home))
        return judged(result == 0, f"pivot_root answered {says(error)}")

    try:
        return in_child(work)
    finally:
        os.rmdir(home)


@probe
def new_mount_interface(parameters):
    return succeeds("fsopen", text("tmpfs"), 0)


@probe
def clone_mount_tree(parameters):
    return succeeds("open_tree", -100, text("/usr"), 1)


# ----------------------------------------------------------------------------------------------------------- devices


def makes_node(kind, major, minor):
    with tempfile.TemporaryDirectory() as home:
        path = os.path.join(home, "node")
        try:
            os.mknod(path, kind | 0o600, os.makedev(major, minor))
        except OSError as error:
            return blocked(f"mknod answered {says(error.errno)}")
        # A node that leads nowhere is a name; nothing is read.
        return opens(path)


@probe
def make_memory_device(parameters):
    return any_of(makes_node(0o020000, 1, minor) for minor in (1, 11))


@probe
def make_block_device(parameters):
    return makes_node(0o060000, 7, 0)


@probe
def open_block_device(parameters):
    return any_of(opens(path) for path in ("/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/xvda", "/dev/loop0"))


@probe
def open_memory_device(parameters):
    return any_of(opens(path) for path in ("/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore"))


@probe
def open_kernel_log(parameters):
    return any_of(opens(path, flags) for path, flags in
                  (("/dev/kmsg", os.O_WRONLY), ("/dev/kmsg", os.O_RDONLY), ("/proc/kmsg", os.O_RDONLY)))


@probe
def open_special_devices(parameters):
    return any_of(opens(path, os.O_RDWR) for path in
                  ("/dev/kvm", "/dev/fuse", "/dev/loop-control", "/dev/vsock", "/dev/userfaultfd"))


# ---------------------------------------------------------------------------------------------------- /proc and /sys


def rewrites(path):
    """Writes what is there already."""
    try:
        with open(path, "rb") as file:
            value = file.read()
        fd = os.open(path, os.O_WRONLY)
        try:
            os.write(fd, value)
        finally:
            os.close(fd)
    except OSError as error:
        return blocked(f"writing answered {says(error.errno)}", path)
    return escaped("it was written", path)


@probe
def write_core_pattern(parameters):
    return rewrites("/proc/sys/kernel/core_pattern")


@probe
def write_kernel_settings(parameters):
    return any_of(rewrites(path) for path in
                  ("/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/randomize_va_space",
                   "/proc/sys/fs/protected_symlinks", "/proc/sys/net/ipv4/ip_forward"))


@probe
def open_sysrq(parameters):
    return opens("/proc/sysrq-trigger", os.O_WRONLY)


@probe
def kernel_addresses(parameters):
    try:
        with open("/proc/kallsyms", encoding="ascii") as file:
            first = [file.readline() for _ in range(200)]
    except OSError as error:
        return blocked(f"open answered {says(error.errno)}")
    shown = any(int(line.split()[0], 16) for line in first if line)
    return judged(shown, "the kernel's addresses were looked for")


@probe
def sys_visible(parameters):
    try:
        seen = os.listdir("/sys/kernel")
    except OSError as error:
        return blocked(f"listing answered {says(error.errno)}")
    return judged(seen, "the machine's /sys was listed", len(seen))


@probe
def sys_writable(parameters):
    return any_of(opens(path, os.O_WRONLY) for path in
                  ("/sys/kernel/mm/ksm/run", "/sys/kernel/mm/transparent_hugepage/enabled", "/sys/power/state",
                   "/sys/kernel/profiling", "/sys/module/printk/parameters/time", "/sys/block/loop0/uevent"))


@probe
def leave_control_group(parameters):
    def attempts():
        for pattern in ("/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/*/cgroup.procs", "/sys/fs/cgroup/*/tasks"):
            for path in glob.glob(pattern):
                yield opens(path, os.O_WRONLY)
    return any_of(attempts())


@probe
def control_group_release_agent(parameters):
    return any_of(opens(path, os.O_WRONLY) for path in glob.glob("/sys/fs/cgroup/*/release_agent"))


# ------------------------------------------------------------------------------------------------------ system calls


@probe
def load_bpf(parameters):
    # A map of one element: type array, key 4, value 8, entries 1.
    wish = (ctypes.c_uint32 * 18)(2, 4, 8, 1)
    return succeeds("bpf", 0, ctypes.byref(wish), ctypes.sizeof(wish))


@probe
def add_kernel_key(parameters):
    return succeeds("add_key", text("user"), text("gantry-escape"), text("x"), 1, -2)


@probe
def session_keyring(parameters):
    return succeeds("keyctl", 0, -3, 0)


@probe
def request_kernel_key(parameters):
    return is_heard("request_key", text("user"), text("gantry-escape-no-such-key"), 0, 0)


@probe
def performance_events(parameters):
    wish = (ctypes.c_uint32 * 32)()
    wish[0], wish[1] = 1, ctypes.sizeof(wish)
    # Software clock, of oneself, disabled.
    wish[10] = 1
    return succeeds("perf_event_open", ctypes.byref(wish), 0, -1, -1, 0)


@probe
def io_uring(parameters):
    return succeeds("io_uring_setup", 1, ctypes.byref((ctypes.c_uint32 * 30)()))


@probe
def user_fault_handler(parameters):
    return succeeds("userfaultfd", 0)


@probe
def watch_all_files(parameters):
    return succeeds("fanotify_init", 4, 0)


@probe
def load_kernel(parameters):
    return is_heard("kexec_load", 0, 1000, 0, 0)


@probe
def load_module(parameters):
    return is_heard("init_module", 0, 0, text(""))


@probe
def load_module_by_descriptor(parameters):
    return is_heard("finit_module", -1, text(""), 0)


@probe
def unload_module(parameters):
    return is_heard("delete_module", text("gantry_no_such_module"), os.O_NONBLOCK)


@probe
def set_clock(parameters):
    """Sets nothing to nothing; the kernel still asks whether one may."""
    return succeeds("settimeofday", 0, 0)


@probe
def set_host_name(parameters):
    name = os.uname().nodename.encode()
    return succeeds("sethostname", text(name), len(name))


@probe
def reboot_machine(parameters):
    """With magic numbers that are none."""
    return is_heard("reboot", 0, 0, 0, 0)


@probe
def swap_on(parameters):
    return is_heard("swapon", text("/no/such/file"), 0)


@probe
def process_accounting(parameters):
    return is_heard("acct", text("/no/such/directory/file"))


@probe
def disk_quotas(parameters):
    return is_heard("quotactl", 0x800007 << 8, text("/no/such/device"), 0, 0)


@probe
def kernel_log_by_call(parameters):
    return succeeds("syslog", 10, 0, 0)


@probe
def port_privileges(parameters):
    return in_child(lambda: any_of(succeeds(*call) for call in (("iopl", 3), ("ioperm", 0x80, 1, 1))))


@probe
def odd_personality(parameters):
    return in_child(lambda: succeeds("personality", 0x0040000))


# --------------------------------------------------------------------------------------------- calls by another door


@probe
def other_table_x32(parameters):
    """The same calls under the numbers of another table: a filter that forgets it sees an unknown number."""
    def work():
        result, error = syscall(X32_BIT | 272, CLONE_NEWUSER)
        return judged(result == 0, f"unshare by the x32 table answered {says(error)}")
    return in_child(work)


@probe
def other_table_i386(parameters):
    """`int 0x80` from 64-bit code uses the 32-bit table, in which every number means something else."""
    def work():
        # push rbx; mov eax, 310 (unshare); mov ebx, CLONE_NEWNS; int 0x80; pop rbx; ret
        code = b"\x53\xb8\x36\x01\x00\x00\xbb" + CLONE_NEWNS.to_bytes(4, "little") + b"\xcd\x80\x5b\xc3"
        page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
        page.write(code)
        function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(page)))
        result = function()
        return judged(result == 0, f"unshare by the i386 table answered {says(-result)}")
    return in_child(work)


if __name__ == "__main__":
    main()
