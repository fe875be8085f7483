"""The canary: a process outside that has everything a hostile tool would like to get at, and says where it is.

The runner starts it with the marker in its environment. It makes files, sockets, queues and memory that hold the marker,
writes one line of JSON that says where they are, and then answers each line on stdin with how things stand. When stdin
closes it takes everything away again and ends. It listens on loopback only.

Two oracles come from it, both independent of what a probe says: is everything still as it was, and has anybody called?
"""

import ctypes
import json
import os
import shutil
import socket
import sys
import tempfile
import threading

MARKER = os.environ["ESCAPE_MARKER"].encode()
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p

IPC_CREAT, IPC_EXCL, IPC_RMID = 0o1000, 0o2000, 0
AT_FDCWD = -100
HANDLE_BYTES_MAX = 128

# Every network namespace is born with these, so seeing them proves nothing.
INBORN = {"lo", "tunl0", "sit0", "ip6tnl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "ip6gre0"}

visitors = 0


def write(path, mode):
    with open(path, "wb") as file:
        file.write(MARKER)
    os.chmod(path, mode)
    return path


def serve(listener):
    """Gives the marker to whoever connects, and counts them."""
    global visitors
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        visitors += 1
        with connection:
            connection.sendall(MARKER)


def serve_datagrams(listener):
    global visitors
    while True:
        _, sender = listener.recvfrom(64)
        visitors += 1
        listener.sendto(MARKER, sender)


def listening(family, address):
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.bind(address)
    listener.listen(16)
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    return listener


def datagrams():
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("127.0.0.1", 0))
    threading.Thread(target=serve_datagrams, args=(listener,), daemon=True).start()
    return listener


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * HANDLE_BYTES_MAX)]


def handle_of(path):
    handle, mount = Handle(HANDLE_BYTES_MAX, 0), ctypes.c_int()
    if libc.name_to_handle_at(AT_FDCWD, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0) != 0:
        return "", 0
    return bytes(handle.handle[:handle.bytes]).hex(), handle.type


def main():
    name = sys.argv[1]
    home = tempfile.mkdtemp(prefix=name + "-", dir="/tmp")
    os.chmod(home, 0o755)
    os.chdir(home)
    open_dir = os.path.join(home, "open")
    os.mkdir(open_dir)
    os.chmod(open_dir, 0o1777)
    file = write(os.path.join(home, "canary.txt"), 0o644)
    private = write(os.path.join(home, "private.txt"), 0o600)
    beside = [write(os.path.join(place, name), 0o644) for place in ("/dev/shm", "/var/tmp") if os.path.isdir(place)]
    held = open(file, "rb")

    stream = listening(socket.AF_INET, ("127.0.0.1", 0))
    datagram = datagrams()
    path = os.path.join(home, "socket")
    listening(socket.AF_UNIX, path)
    os.chmod(path, 0o777)
    listening(socket.AF_UNIX, "\0" + name)

    key = int.from_bytes(os.urandom(3), "big") | 0x47000000
    segment = libc.shmget(key, 4096, IPC_CREAT | IPC_EXCL | 0o666)
    ctypes.memmove(libc.shmat(segment, None, 0), MARKER, len(MARKER))
    queue = libc.msgget(key, IPC_CREAT | IPC_EXCL | 0o666)
    mailbox = libc.mq_open(b"/" + name.encode(), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o666, None)
    memory = ctypes.create_string_buffer(MARKER)
    handle, handle_type = handle_of(file)

    def intact():
        try:
            contents = [open(path, "rb").read() for path in (file, private, *beside)]
        except OSError:
            return False
        return all(content == MARKER for content in contents) and os.listdir(open_dir) == [] and memory.value == MARKER

    try:
        print(json.dumps({
            "name": name, "marker": MARKER.decode(), "pid": os.getpid(), "file": file, "private_file": private,
            "open_dir": open_dir, "port": stream.getsockname()[1], "udp_port": datagram.getsockname()[1],
            "socket": path, "abstract": name, "ipc_key": key, "mailbox": "/" + name, "memory": ctypes.addressof(memory),
            "descriptor": held.fileno(), "handle": handle, "handle_type": handle_type, "hostname": socket.gethostname(),
            "interfaces": sorted({interface for _, interface in socket.if_nameindex()} - INBORN),
        }), flush=True)
        for _ in sys.stdin:
            print(json.dumps({"intact": intact(), "visitors": visitors}), flush=True)
    finally:
        libc.shmctl(segment, IPC_RMID, None)
        libc.msgctl(queue, IPC_RMID, None)
        if mailbox >= 0:
            libc.mq_unlink(b"/" + name.encode())
        for path in beside:
            os.unlink(path)
        shutil.rmtree(home, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
