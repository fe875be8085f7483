"""Bombs, floods and things that will not end. None of them is run outside a sandbox, except the daemon.

Every bomb has a size at which it stops and says that it got away with it, so that a sandbox that fails does not take the
machine with it. The sizes are far above what the runner allows (64 processes, 192 MiB, 16 MiB of scratch).
"""

import ctypes
import mmap
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time

from hostile import blocked, escaped, judged, libc, main, probe, says

PROCESSES_MAX = 1_000
THREADS_MAX = 2_000
MEMORY_BYTES_MAX = 1 << 30
DISK_BYTES_MAX = 256 << 20
DESCRIPTORS_MAX = 20_000
FILES_MAX = 200_000
FLOOD_BYTES = 1 << 30
LIFE_SECONDS_MAX = 60
MIB = 1 << 20


def linger():
    """Lives on, but not for ever: what a broken sandbox leaves behind ends by itself."""
    time.sleep(LIFE_SECONDS_MAX)
    os._exit(0)


# --------------------------------------------------------------------------------------------------------- processes


@probe
def fork_bomb(parameters):
    for count in range(PROCESSES_MAX):
        try:
            if os.fork() == 0:
                linger()
        except OSError as error:
            return blocked(f"fork answered {says(error.errno)}", count)
    return escaped("there was no end to processes", PROCESSES_MAX)


@probe
def fork_tree(parameters):
    """Every process makes two, ten levels deep, and nobody waits for anybody."""
    for _ in range(10):
        try:
            os.fork()
        except OSError:
            linger()
    linger()


@probe
def fork_storm(parameters):
    """Children that end at once, as fast as they can be made."""
    until = time.monotonic() + LIFE_SECONDS_MAX
    while time.monotonic() < until:
        try:
            child = os.fork()
        except OSError:
            continue
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
    return escaped("nobody ended it")


@probe
def zombie_farm(parameters):
    for count in range(PROCESSES_MAX):
        try:
            if os.fork() == 0:
                os._exit(0)
        except OSError as error:
            return blocked(f"fork answered {says(error.errno)}", count)
    return escaped("there was no end to zombies", PROCESSES_MAX)


@probe
def thread_bomb(parameters):
    threading.stack_size(64 << 10)
    for count in range(THREADS_MAX):
        try:
            threading.Thread(target=linger, daemon=True).start()
        except RuntimeError:
            return blocked("a thread was refused", count)
    return escaped("there was no end to threads", THREADS_MAX)


@probe
def daemon_outlives_the_call(parameters):
    """Two forks and a session of its own: the classic way out of a process group."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for fd in range(3):
                os.close(fd)
            linger()
        os._exit(0)
    os.wait()
    return blocked("a daemon was left behind")


@probe
def daemon_keeps_the_streams(parameters):
    """The same with stdout and stderr kept open: the call must not wait for it."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            linger()
        os._exit(0)
    os.wait()
    return blocked("a daemon that holds the streams was left behind")


# -------------------------------------------------------------------------------------------------------------- time


@probe
def endless_loop(parameters):
    until = time.monotonic() + LIFE_SECONDS_MAX
    while time.monotonic() < until:
        pass
    return escaped("nobody ended it")


@probe
def endless_sleep(parameters):
    linger()


@probe
def signals_ignored(parameters):
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            continue
    if os.fork() == 0:
        os.setsid()
    linger()


@probe
def stopped_itself(parameters):
    os.kill(os.getpid(), signal.SIGSTOP)
    return blocked("somebody woke it")


@probe
def loop_in_every_thread(parameters):
    def burn():
        endless_loop(parameters)
    for _ in range(8):
        threading.Thread(target=burn, daemon=True).start()
    burn()


# ------------------------------------------------------------------------------------------------------------ memory


@probe
def memory_at_once(parameters):
    memory = mmap.mmap(-1, MEMORY_BYTES_MAX)
    for offset in range(0, MEMORY_BYTES_MAX, mmap.PAGESIZE):
        memory[offset] = 1
    return escaped("there was no end to memory", MEMORY_BYTES_MAX)


@probe
def memory_bit_by_bit(parameters):
    kept = []
    for _ in range(MEMORY_BYTES_MAX // MIB):
        kept.append(b"x" * MIB)
        time.sleep(0.001)
    return escaped("there was no end to memory", len(kept))


@probe
def memory_in_children(parameters):
    """Each takes a little; together they take it all."""
    for _ in range(16):
        try:
            if os.fork() == 0:
                kept = b"x" * (MEMORY_BYTES_MAX // 16)
                linger()
                return escaped("never", len(kept))
        except OSError:
            break
    time.sleep(LIFE_SECONDS_MAX)
    return escaped("there was no end to memory")


@probe
def memory_in_a_file_of_none(parameters):
    """A file that is in memory only, which no disk quota sees."""
    fd = os.memfd_create("bomb")
    chunk = b"x" * MIB
    try:
        for _ in range(MEMORY_BYTES_MAX // MIB):
            os.write(fd, chunk)
    except OSError as error:
        return blocked(f"writing answered {says(error.errno)}")
    return escaped("there was no end to memory")


@probe
def memory_in_socket_buffers(parameters):
    """Bytes that wait in sockets belong to nobody's heap."""
    pairs, chunk, held = [], b"x" * (64 << 10), 0
    while held < MEMORY_BYTES_MAX:
        try:
            pair = socket.socketpair()
        except OSError as error:
            return blocked(f"socketpair answered {says(error.errno)}", held)
        pairs.append(pair)
        pair[0].setblocking(False)
        try:
            while True:
                held += pair[0].send(chunk)
        except BlockingIOError:
            continue
        except OSError as error:
            return blocked(f"send answered {says(error.errno)}", held)
    return escaped("there was no end to buffers", held)


@probe
def memory_locked(parameters):
    size = 64 * MIB
    memory = mmap.mmap(-1, size)
    ctypes.set_errno(0)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    result = libc.mlock(ctypes.c_void_p(address), ctypes.c_size_t(size))
    return judged(result == 0, f"mlock answered {says(ctypes.get_errno())}")


@probe
def stack_without_end(parameters):
    """Through a function of C in every step, so that it is the machine's stack that fills."""
    sys.setrecursionlimit(1 << 30)

    @ctypes.CFUNCTYPE(ctypes.c_int)
    def deeper():
        return deeper() + 1
    return escaped("there was no end to the stack", deeper())


# -------------------------------------------------------------------------------------------------------------- disk


def fills(place):
    """Fills a place of this machine until it is refused; never more than the size above."""
    chunk = b"x" * MIB
    try:
        with tempfile.TemporaryFile(dir=place) as file:
            for count in range(DISK_BYTES_MAX // MIB):
                try:
                    os.write(file.fileno(), chunk)
                except OSError as error:
                    return blocked(f"writing answered {says(error.errno)}", f"{count} MiB")
    except OSError as error:
        return blocked(f"creating answered {says(error.errno)}")
    return escaped("there was no end to disk")


@probe
def fill_tmp(parameters):
    return fills("/tmp")


@probe
def fill_dev_shm(parameters):
    return fills("/dev/shm")


@probe
def fill_own_folder(parameters):
    return fills(".")


@probe
def fill_everything_writable(parameters):
    for place, folders, _ in os.walk("/", topdown=True):
        # What the system directories allow is asked elsewhere, and walking them takes long.
        if place in ("/proc", "/sys", "/usr", "/bin", "/sbin", "/lib", "/lib64"):
            folders.clear()
            continue
        if os.access(place, os.W_OK) and (answer := fills(place))["escaped"]:
            return answer
    return blocked("no place took more than it should")


@probe
def files_without_end(parameters):
    home = tempfile.mkdtemp()
    for count in range(FILES_MAX):
        try:
            os.close(os.open(f"{home}/{count}", os.O_CREAT | os.O_WRONLY))
        except OSError as error:
            return blocked(f"creating answered {says(error.errno)}", count)
    shutil.rmtree(home)
    return escaped("there was no end to files", FILES_MAX)


@probe
def descriptors_without_end(parameters):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    for count in range(DESCRIPTORS_MAX):
        try:
            os.open("/dev/null", os.O_RDONLY)
        except OSError as error:
            return blocked(f"open answered {says(error.errno)}", count)
    return escaped("there was no end to descriptors", DESCRIPTORS_MAX)


# ------------------------------------------------------------------------------------------------------------ floods


def floods(fd):
    chunk = b"flood " * 10_000 + b"\n"
    sent = 0
    while sent < FLOOD_BYTES:
        sent += os.write(fd, chunk)


@probe
def flood_stdout(parameters):
    floods(sys.stdout.fileno())


@probe
def flood_stderr(parameters):
    floods(sys.stderr.fileno())
    return blocked("all of it was read, none of it kept")


@probe
def flood_stderr_without_lines(parameters):
    chunk = b"x" * MIB
    for _ in range(256):
        os.write(sys.stderr.fileno(), chunk)
    return blocked("all of it was read, none of it kept")


@probe
def answer_then_flood(parameters):
    sys.stdout.write('{"escaped": false, "how": "answered first"}')
    sys.stdout.flush()
    floods(sys.stdout.fileno())


if __name__ == "__main__":
    main()
