"""What all hostile tools of this suite share: raw system calls, and one way of saying what came of them.

A probe is a function marked with `@probe`; its name is its id in `probes.toml`. It gets the parameters that the runner
read from the canary, and returns `escaped(...)` or `blocked(...)`. An exception is neither: it ends the program with a
failure, which the runner counts against the probe and not for the sandbox.

Rules for every probe that is run bare, as root, on somebody's machine:
- It touches the canary, itself, and files of its own making. It never looks into another process of the machine.
- What it changes it changes to the value it had, or takes back at once, in a child that ends if need be.
- It reports *that* it could read something, never *what* it read.
- It sends no packet off the machine.
"""

import ctypes
import errno
import json
import os
import platform
import sys

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

# The ways of saying no. Everything else means that somebody listened.
REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS}

# Numbers of x86_64, by name; only what the probes use.
NUMBERS = {
    "ioctl": 16, "shmget": 29, "shmat": 30, "clone": 56, "msgget": 68, "ptrace": 101, "syslog": 103, "capget": 125,
    "capset": 126, "personality": 135, "pivot_root": 155, "acct": 163, "settimeofday": 164, "mount": 165,
    "umount2": 166, "swapon": 167, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
    "init_module": 175, "delete_module": 176, "quotactl": 179, "kexec_load": 246, "add_key": 248, "request_key": 249,
    "keyctl": 250, "unshare": 272, "perf_event_open": 298, "fanotify_init": 300, "prlimit64": 302,
    "name_to_handle_at": 303, "open_by_handle_at": 304, "setns": 308, "process_vm_readv": 310,
    "process_vm_writev": 311, "finit_module": 313, "bpf": 321, "userfaultfd": 323, "io_uring_setup": 425,
    "open_tree": 428, "fsopen": 430, "pidfd_open": 434, "clone3": 435, "pidfd_getfd": 438,
}

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWNET, CLONE_NEWPID = 0x00020000, 0x10000000, 0x40000000, 0x20000000

PROBES = {}


def probe(function):
    """Marks a function as a probe."""
    PROBES[function.__name__] = function
    return function


def escaped(how, detail=""):
    return {"escaped": True, "how": how, "detail": str(detail)[:200]}


def blocked(how, detail=""):
    return {"escaped": False, "how": how, "detail": str(detail)[:200]}


def judged(got_it, how, detail=""):
    return escaped(how, detail) if got_it else blocked(how, detail)


# ------------------------------------------------------------------------------------------------------ system calls


def syscall(name, *arguments):
    """Result and error number of a system call by name or number."""
    number = NUMBERS[name] if isinstance(name, str) else name
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(number), *wide)
    return result, (ctypes.get_errno() if result == -1 else 0)


def says(error):
    return errno.errorcode.get(error, str(error)) if error else "success"


def succeeds(name, *arguments):
    """Escaped if the call does what it was asked to."""
    result, error = syscall(name, *arguments)
    if result >= 0 and name in ("bpf", "perf_event_open", "io_uring_setup", "userfaultfd", "fsopen", "open_tree",
                                "fanotify_init"):
        os.close(result)
    return judged(result >= 0, f"{name} answered {says(error)}")


def is_heard(name, *arguments):
    """For calls that are only ever made with senseless arguments: escaped if they are refused for being senseless
    instead of for coming from here."""
    _, error = syscall(name, *arguments)
    return judged(error not in REFUSED, f"{name} answered {says(error)}")


def opens(path, flags=os.O_RDONLY):
    """Escaped if the file can be opened; nothing is read and nothing written."""
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY))
    except OSError as error:
        return blocked(f"open answered {says(error.errno)}", path)
    return escaped("it can be opened", path)


def any_of(attempts):
    """Escaped if one of them is; a generator, so that the first success ends it."""
    last = blocked("there was nothing to try")
    for attempt in attempts:
        if attempt["escaped"]:
            return attempt
        last = attempt
    return last


def reads_marker(path, parameters):
    """Escaped if the file can be read and holds the canary's marker."""
    try:
        with open(path, "rb") as file:
            content = file.read(1 << 20)
    except OSError as error:
        return blocked(f"open answered {says(error.errno)}", path)
    return judged(parameters["marker"].encode() in content, "the file was read", path)


def in_child(work):
    """Runs `work` in a child, for what cannot be taken back in oneself; a child that dies of it got nothing."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            answer = work()
        except BaseException as error:
            answer = {"broken": f"{type(error).__name__}: {error}"}
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        said = pipe.read(4096)
    _, status = os.waitpid(child, 0)
    if not said:
        return blocked(f"the child was ended by signal {os.WTERMSIG(status)}")
    answer = json.loads(said)
    if "broken" in answer:
        raise RuntimeError(answer["broken"])
    return answer


# ------------------------------------------------------------------------------------------------------- other lives


def others(parameters):
    """Processes to look into. Bare there is one: the canary. Inside, everything that can be seen but oneself."""
    if parameters["mode"] == "bare":
        return [parameters["pid"]]
    seen = [int(name) for name in os.listdir("/proc") if name.isdigit()] if os.path.isdir("/proc") else []
    return [pid for pid in dict.fromkeys([parameters["pid"], os.getppid(), *seen]) if pid not in (0, os.getpid())]


def main():
    """`main.py ID TAG`: the tag is in the command line and in the process's name, so that what is left can be found."""
    if platform.machine() != "x86_64":
        raise SystemExit("these probes know the system calls of x86_64 only")
    name, tag = sys.argv[1], sys.argv[2]
    libc.prctl(15, ctypes.c_char_p(tag.encode()), 0, 0, 0)
    parameters = json.load(sys.stdin)
    answer = PROBES[name](parameters)
    if answer is not None:
        json.dump(answer, sys.stdout)
        sys.stdout.flush()
    # Probes leave threads, children and locks behind on purpose; a tidy end could wait for them.
    os._exit(0)
