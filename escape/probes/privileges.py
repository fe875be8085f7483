"""Becoming somebody else: users, groups, capabilities, setuid programs, namespaces."""

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile

from hostile import (CLONE_NEWNET, CLONE_NEWNS, CLONE_NEWPID, CLONE_NEWUSER, any_of, blocked, escaped, in_child, judged,
                     libc, main, others, probe, says, syscall)

PR_CAPBSET_DROP, PR_GET_SECUREBITS, PR_SET_SECUREBITS, PR_GET_NO_NEW_PRIVS = 24, 27, 28, 39
CAP_SYS_ADMIN = 21
CAPABILITY_VERSION = 0x20080522


@probe
def become_root(parameters):
    for call in (lambda: os.setresuid(0, 0, 0), lambda: os.setuid(0), lambda: os.setreuid(0, 0)):
        try:
            call()
            break
        except OSError:
            continue
    return judged(0 in os.getresuid(), "the user ids were set", os.getresuid())


@probe
def become_root_group(parameters):
    try:
        os.setresgid(0, 0, 0)
    except OSError:
        pass
    return judged(0 in os.getresgid(), "the group ids were set", os.getresgid())


@probe
def join_groups(parameters):
    try:
        os.setgroups([0])
    except OSError as error:
        return judged(0 in os.getgroups(), f"setgroups answered {says(error.errno)}")
    return escaped("groups were joined")


@probe
def capabilities_left(parameters):
    with open("/proc/self/status", encoding="ascii") as file:
        sets = dict(line.split(":\t") for line in file if line.startswith("Cap"))
    held = [name for name in ("CapEff", "CapPrm", "CapInh", "CapAmb") if int(sets.get(name, "0"), 16)]
    return judged(held, "the capability sets were read", held)


class CapHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class CapSets(ctypes.Structure):
    _fields_ = [("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32)]


@probe
def raise_capabilities(parameters):
    def work():
        header, sets = CapHeader(CAPABILITY_VERSION, 0), (CapSets * 2)()
        bit = 1 << CAP_SYS_ADMIN
        sets[0] = CapSets(bit, bit, 0)
        result, error = syscall("capset", ctypes.byref(header), ctypes.byref(sets))
        return judged(result == 0, f"capset answered {says(error)}")
    return in_child(work)


def prctl(option, value=0):
    ctypes.set_errno(0)
    result = libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)
    return result, ctypes.get_errno()


@probe
def set_securebits(parameters):
    bits, _ = prctl(PR_GET_SECUREBITS)
    result, error = prctl(PR_SET_SECUREBITS, max(bits, 0))
    return judged(result == 0, f"prctl answered {says(error)}")


@probe
def drop_from_bounding_set(parameters):
    def work():
        result, error = prctl(PR_CAPBSET_DROP, CAP_SYS_ADMIN)
        return judged(result == 0, f"prctl answered {says(error)}")
    return in_child(work)


@probe
def new_privileges_possible(parameters):
    result, _ = prctl(PR_GET_NO_NEW_PRIVS)
    return judged(result != 1, "it was asked whether new privileges can be gained")


@probe
def filter_missing(parameters):
    """Without a filter every system call of the kernel is in reach."""
    with open("/proc/self/status", encoding="ascii") as file:
        modes = [line.split()[1] for line in file if line.startswith("Seccomp:")]
    return judged(modes != ["2"], "the mode of the filter was read", modes)


# --------------------------------------------------------------------------------------------------- setuid programs


def user_of(*command):
    try:
        ran = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return blocked(f"running it ended with {type(error).__name__}")
    return judged(ran.stdout.strip() == b"0", "a program with the setuid bit was run", ran.returncode)


@probe
def setuid_su(parameters):
    return user_of("su", "root", "-c", "id -u")


@probe
def setuid_mount(parameters):
    with tempfile.TemporaryDirectory() as home:
        try:
            ran = subprocess.run(["mount", "-t", "tmpfs", "none", home], capture_output=True, check=False)
        except OSError as error:
            return blocked(f"running it answered {says(error.errno)}")
        if ran.returncode == 0:
            libc.umount2(home.encode(), 2)
        return judged(ran.returncode == 0, "mount was run", ran.returncode)


@probe
def setuid_copy(parameters):
    with tempfile.TemporaryDirectory() as home:
        copy = os.path.join(home, "id")
        shutil.copyfile("/usr/bin/id", copy)
        try:
            os.chown(copy, 0, 0)
        except OSError:
            pass
        os.chmod(copy, 0o6755)
        return user_of(copy, "-u")


@probe
def file_capabilities(parameters):
    with tempfile.TemporaryDirectory() as home:
        copy = os.path.join(home, "id")
        shutil.copyfile("/usr/bin/id", copy)
        # Revision 2, effective, CAP_SYS_ADMIN permitted.
        value = (0x02000001).to_bytes(4, "little") + (1 << CAP_SYS_ADMIN).to_bytes(4, "little") + bytes(12)
        try:
            os.setxattr(copy, "security.capability", value)
        except OSError as error:
            return blocked(f"setxattr answered {says(error.errno)}")
        return escaped("a file was given capabilities")


# -------------------------------------------------------------------------------------------------------- namespaces


def unshares(flags):
    def work():
        result, error = syscall("unshare", flags)
        return judged(result == 0, f"unshare answered {says(error)}")
    return in_child(work)


@probe
def unshare_user(parameters):
    return unshares(CLONE_NEWUSER)


@probe
def unshare_mount(parameters):
    return unshares(CLONE_NEWNS)


@probe
def unshare_network(parameters):
    return unshares(CLONE_NEWNET)


@probe
def clone_user_namespace(parameters):
    child, error = syscall("clone", CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
    return judged(child > 0, f"clone answered {says(error)}")


@probe
def clone3_user_namespace(parameters):
    """Its flags are in memory, where a filter cannot look; so it must not exist at all."""
    arguments = (ctypes.c_uint64 * 8)(CLONE_NEWUSER | CLONE_NEWPID, 0, 0, 0, signal.SIGCHLD, 0, 0, 0)
    child, error = syscall("clone3", ctypes.byref(arguments), ctypes.sizeof(arguments))
    if child == 0:
        os._exit(0)
    if child > 0:
        os.waitpid(child, 0)
    return judged(child > 0, f"clone3 answered {says(error)}")


@probe
def join_namespaces_of_others(parameters):
    def attempts():
        for pid in others(parameters):
            for kind in ("net", "mnt", "pid", "ipc", "uts", "user"):
                yield in_child(lambda path=f"/proc/{pid}/ns/{kind}": joins(path))
    return any_of(attempts())


def joins(path):
    try:
        fd = os.open(path, os.O_RDONLY)
    except OSError as error:
        return blocked(f"open answered {says(error.errno)}", path)
    result, error = syscall("setns", fd, 0)
    return judged(result == 0, f"setns answered {says(error)}", path)


@probe
def join_namespaces_by_descriptor(parameters):
    def work():
        process, error = syscall("pidfd_open", parameters["pid"], 0)
        if process < 0:
            return blocked(f"pidfd_open answered {says(error)}")
        result, error = syscall("setns", process, CLONE_NEWNET)
        return judged(result == 0, f"setns answered {says(error)}")
    return in_child(work)


@probe
def change_root(parameters):
    def work():
        try:
            os.chroot("/tmp")
        except OSError as error:
            return blocked(f"chroot answered {says(error.errno)}")
        return escaped("the root was changed")
    return in_child(work)


if __name__ == "__main__":
    main()
