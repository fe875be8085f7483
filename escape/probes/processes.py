"""Other processes: seeing, stopping, tracing, reading and slowing them; memory and queues shared with them."""

import ctypes
import fcntl
import os
import resource
import signal
import subprocess

from hostile import (any_of, blocked, escaped, in_child, judged, libc, main, opens, others, probe, says,
                     syscall)

PTRACE_SEIZE = 0x4206
TIOCSTI = 0x5412


@probe
def see_outside_processes(parameters):
    def attempts():
        for pid in others(parameters):
            try:
                with open(f"/proc/{pid}/cmdline", "rb") as file:
                    yield judged(parameters["name"].encode() in file.read(), "command lines were read")
            except OSError as error:
                yield blocked(f"open answered {says(error.errno)}")
    return any_of(attempts())


@probe
def signal_outside_process(parameters):
    """Signal 0 asks whether a real one would arrive."""
    try:
        os.kill(parameters["pid"], 0)
    except OSError as error:
        return blocked(f"kill answered {says(error.errno)}")
    return escaped("the canary can be signalled")


@probe
def signal_outside_group(parameters):
    try:
        os.killpg(os.getpgid(parameters["pid"]), 0)
    except OSError as error:
        return blocked(f"killpg answered {says(error.errno)}")
    return escaped("the canary's group can be signalled")


@probe
def signal_by_descriptor(parameters):
    fd, error = syscall("pidfd_open", parameters["pid"], 0)
    if fd < 0:
        return blocked(f"pidfd_open answered {says(error)}")
    try:
        signal.pidfd_send_signal(fd, 0)
    except OSError as error:
        return blocked(f"pidfd_send_signal answered {says(error.errno)}")
    return escaped("the canary can be signalled by descriptor")


@probe
def kill_everybody(parameters):
    """Kills all it may. It does so only after seeing that it is in a world of its own: the canary is out of sight and
    its own number is a small one. The runner then looks whether canary and server live."""
    if not signal_outside_process(parameters)["escaped"] and os.getpid() < 100 and os.getuid() != 0:
        try:
            os.kill(-1, signal.SIGKILL)
        except OSError as error:
            return blocked(f"kill answered {says(error.errno)}")
        return blocked("all that can be reached was killed")
    return escaped("processes of the machine are within reach")


@probe
def trace_outside_process(parameters):
    result, error = syscall("ptrace", PTRACE_SEIZE, parameters["pid"], 0, 0)
    return judged(result == 0, f"ptrace answered {says(error)}")


@probe
def trace_parent(parameters):
    result, error = syscall("ptrace", PTRACE_SEIZE, os.getppid(), 0, 0)
    return judged(result == 0, f"ptrace answered {says(error)}")


@probe
def trace_own_child(parameters):
    """A tool has no use for tracing; what it cannot call it cannot misuse."""
    child = os.fork()
    if child == 0:
        signal.pause()
    result, error = syscall("ptrace", PTRACE_SEIZE, child, 0, 0)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return judged(result == 0, f"ptrace answered {says(error)}")


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


@probe
def read_memory_of_outside_process(parameters):
    wanted = parameters["marker"].encode()
    buffer = ctypes.create_string_buffer(len(wanted))
    here = Vector(ctypes.addressof(buffer), len(wanted))
    there = Vector(parameters["memory"], len(wanted))
    _, error = syscall("process_vm_readv", parameters["pid"], ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return judged(buffer.raw == wanted, f"process_vm_readv answered {says(error)}")


@probe
def write_memory_of_outside_process(parameters):
    wanted = parameters["marker"].encode()
    buffer = ctypes.create_string_buffer(wanted)
    here = Vector(ctypes.addressof(buffer), len(wanted))
    there = Vector(parameters["memory"], len(wanted))
    result, error = syscall("process_vm_writev", parameters["pid"], ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
    return judged(result == len(wanted), f"process_vm_writev answered {says(error)}")


@probe
def take_descriptor_of_outside_process(parameters):
    process, error = syscall("pidfd_open", parameters["pid"], 0)
    if process < 0:
        return blocked(f"pidfd_open answered {says(error)}")
    taken, error = syscall("pidfd_getfd", process, parameters["descriptor"], 0)
    if taken < 0:
        return blocked(f"pidfd_getfd answered {says(error)}")
    return judged(os.pread(taken, 256, 0) == parameters["marker"].encode(), "a descriptor was taken")


@probe
def limits_of_outside_process(parameters):
    try:
        resource.prlimit(parameters["pid"], resource.RLIMIT_CORE)
    except OSError as error:
        return blocked(f"prlimit answered {says(error.errno)}")
    return escaped("the canary's limits were read")


@probe
def move_outside_process(parameters):
    try:
        os.sched_setaffinity(parameters["pid"], os.sched_getaffinity(parameters["pid"]))
    except OSError as error:
        return blocked(f"sched_setaffinity answered {says(error.errno)}")
    return escaped("the canary's cores were set")


# ------------------------------------------------------------------------------------------------------------- rank


@probe
def raise_priority(parameters):
    def work():
        try:
            os.setpriority(os.PRIO_PROCESS, 0, -20)
        except OSError as error:
            return blocked(f"setpriority answered {says(error.errno)}")
        return escaped("the priority was raised")
    return in_child(work)


@probe
def realtime_class(parameters):
    def work():
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
        except OSError as error:
            return blocked(f"sched_setscheduler answered {says(error.errno)}")
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
        return escaped("the real-time class was had")
    return in_child(work)


@probe
def raise_limits(parameters):
    def work():
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_MEMLOCK, resource.RLIMIT_CORE):
            _, hard = resource.getrlimit(limit)
            if hard == resource.RLIM_INFINITY:
                continue
            try:
                resource.setrlimit(limit, (hard + 1, hard + 1))
                return escaped("a hard limit was raised", limit)
            except (OSError, ValueError):
                continue
        return blocked("no hard limit could be raised")
    return in_child(work)


@probe
def immune_to_memory_killer(parameters):
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("-1000")
    except OSError as error:
        return blocked(f"writing answered {says(error.errno)}")
    return escaped("it will not be killed for memory")


# --------------------------------------------------------------------------------------------------------- terminals


def pushes_input(request):
    """On a terminal pair of one's own, and on whatever the standard streams are."""
    try:
        _, terminal = os.openpty()
    except OSError as error:
        terminal = None
        said = blocked(f"openpty answered {says(error.errno)}")
    letter = ctypes.create_string_buffer(b"x")
    for fd in (0, 1, 2, terminal):
        if fd is None:
            continue
        result, error = syscall("ioctl", fd, request, ctypes.byref(letter))
        if result == 0:
            return escaped("input was pushed into a terminal")
        said = blocked(f"ioctl answered {says(error)}")
    return said


@probe
def push_terminal_input(parameters):
    return pushes_input(TIOCSTI)


@probe
def push_terminal_input_high_bits(parameters):
    """The kernel looks at the lower half of the request; a filter that compares all of it sees another number."""
    return pushes_input(TIOCSTI | 1 << 32)


@probe
def controlling_terminal(parameters):
    return opens("/dev/tty", os.O_RDWR)


# ----------------------------------------------------------------------------------------------------- shared memory


@probe
def shared_memory_segment(parameters):
    segment, error = syscall("shmget", parameters["ipc_key"], 0, 0)
    if segment < 0:
        return blocked(f"shmget answered {says(error)}")
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(segment, None, 0o10000)
    if address in (None, ctypes.c_void_p(-1).value):
        return blocked("shmat refused")
    wanted = parameters["marker"].encode()
    return judged(ctypes.string_at(address, len(wanted)) == wanted, "the canary's segment was read")


@probe
def message_queue(parameters):
    queue, error = syscall("msgget", parameters["ipc_key"], 0)
    return judged(queue >= 0, f"msgget answered {says(error)}")


@probe
def posix_mailbox(parameters):
    ctypes.set_errno(0)
    box = libc.mq_open(parameters["mailbox"].encode(), os.O_RDONLY)
    return judged(box >= 0, f"mq_open answered {says(ctypes.get_errno())}")


@probe
def file_lock_of_the_host(parameters):
    try:
        with open(parameters["file"], "rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return blocked(f"locking answered {says(error.errno)}")
    return escaped("a lock on a file of the machine was had")


# --------------------------------------------------------------------------------------------------------- hearsay


@probe
def environment_of_the_server(parameters):
    leaked = [name for name, value in os.environ.items()
              if parameters["marker"] in value or name.startswith(("GANTRY_", "CARGO", "SSH_"))]
    return judged(leaked, "the own environment was searched", leaked)


@probe
def name_of_the_host(parameters):
    return judged(os.uname().nodename == parameters["hostname"], "the host's name was compared")


@probe
def environment_by_shell(parameters):
    """The same through a shell, which reads the environment on its own."""
    ran = subprocess.run(["/bin/sh", "-c", "set; cat /proc/$PPID/environ; cat /proc/self/environ"], capture_output=True,
                         check=False)
    return judged(parameters["marker"].encode() in ran.stdout, "a shell was asked for all it knows")


if __name__ == "__main__":
    main()
