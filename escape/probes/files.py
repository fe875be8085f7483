"""Files of the machine, of the server and of other tools: by name, by link, by handle and through /proc."""

import ctypes
import os
import stat
import tempfile

from hostile import any_of, blocked, escaped, judged, main, opens, others, probe, reads_marker, says, syscall

AT_FDCWD = -100


@probe
def read_shadow(parameters):
    return opens("/etc/shadow")


@probe
def list_root_home(parameters):
    try:
        count = len(os.listdir("/root"))
    except OSError as error:
        return blocked(f"listing answered {says(error.errno)}")
    return judged(count > 0, "the home of root was listed", count)


@probe
def read_host_file(parameters):
    return reads_marker(parameters["file"], parameters)


@probe
def read_private_host_file(parameters):
    return reads_marker(parameters["private_file"], parameters)


@probe
def read_admin_token(parameters):
    return opens(os.path.join(parameters["data_dir"], "admin.token"))


@probe
def list_data_dir(parameters):
    try:
        count = len(os.listdir(parameters["data_dir"]))
    except OSError as error:
        return blocked(f"listing answered {says(error.errno)}")
    return judged(count > 0, "the server's data directory was listed", count)


@probe
def write_data_dir(parameters):
    return makes_file(os.path.join(parameters["data_dir"], "planted"))


@probe
def dotdot_to_host_file(parameters):
    return reads_marker("../" * 40 + parameters["file"].lstrip("/"), parameters)


@probe
def dotdot_to_other_tool(parameters):
    return any_of(reads_marker(path, parameters) for path in
                  ("../bystander/secret.txt", os.path.join(parameters["bystander"], "secret.txt")))


@probe
def symlink_made_here(parameters):
    with tempfile.TemporaryDirectory() as home:
        link = os.path.join(home, "link")
        os.symlink(parameters["file"], link)
        return reads_marker(link, parameters)


@probe
def symlink_shipped_with_the_tool(parameters):
    return reads_marker("shipped_link", parameters)


@probe
def symlinked_directory_shipped(parameters):
    return reads_marker(os.path.join("shipped_dir", os.path.basename(parameters["file"])), parameters)


@probe
def hardlink_to_host_file(parameters):
    with tempfile.TemporaryDirectory(dir=os.path.dirname(parameters["file"]) if parameters["mode"] == "bare" else None) as home:
        link = os.path.join(home, "link")
        try:
            os.link(parameters["file"], link)
        except OSError as error:
            return blocked(f"link answered {says(error.errno)}")
        return reads_marker(link, parameters)


@probe
def shared_tmp(parameters):
    return seen_in("/tmp", parameters)


@probe
def shared_dev_shm(parameters):
    return seen_in("/dev/shm", parameters)


@probe
def shared_var_tmp(parameters):
    return seen_in("/var/tmp", parameters)


def seen_in(place, parameters):
    try:
        names = os.listdir(place)
    except OSError as error:
        return blocked(f"listing answered {says(error.errno)}", place)
    return judged(any(parameters["name"] in name for name in names), "the canary's file was looked for", place)


# ---------------------------------------------------------------------------------------------------------- writing


def makes_file(path):
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except OSError as error:
        return blocked(f"creating answered {says(error.errno)}", path)
    os.unlink(path)
    return escaped("a file was created", path)


@probe
def write_usr(parameters):
    return any_of(makes_file(os.path.join(place, parameters["name"])) for place in ("/usr", "/usr/bin", "/usr/lib"))


@probe
def write_etc(parameters):
    return makes_file(os.path.join("/etc", parameters["name"]))


@probe
def write_root_directory(parameters):
    return makes_file(os.path.join("/", parameters["name"]))


@probe
def write_own_folder(parameters):
    return makes_file(os.path.join(os.path.dirname(os.path.abspath(__file__)), "planted"))


@probe
def overwrite_own_program(parameters):
    return opens(os.path.abspath(__file__), os.O_RDWR)


@probe
def write_world_writable_host_dir(parameters):
    return makes_file(os.path.join(parameters["open_dir"], "planted"))


@probe
def chmod_system_file(parameters):
    mode = stat.S_IMODE(os.stat("/usr/bin/env").st_mode)
    try:
        os.chmod("/usr/bin/env", mode)
    except OSError as error:
        return blocked(f"chmod answered {says(error.errno)}")
    return escaped("the mode of a system file was set")


@probe
def write_library_path(parameters):
    return opens("/etc/ld.so.cache", os.O_WRONLY)


# ----------------------------------------------------------------------------------------------------- through /proc


@probe
def inherited_descriptors(parameters):
    mine = os.open("/proc/self/fd", os.O_RDONLY | os.O_DIRECTORY)
    foreign = [int(name) for name in os.listdir(mine) if int(name) > 2 and int(name) != mine]
    # Listing opens a descriptor of its own for a moment; only those that are still there count.
    foreign = [fd for fd in foreign if is_open(fd)]
    return judged(foreign, "descriptors above the standard three were looked for", foreign)


def is_open(fd):
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


@probe
def descriptor_numbers_tried(parameters):
    return any_of(judged(is_open(fd), "a descriptor was open before anything was opened", fd) for fd in range(3, 1024))


@probe
def descriptors_of_others(parameters):
    def attempts():
        for pid in others(parameters):
            place = f"/proc/{pid}/fd"
            try:
                names = os.listdir(place)
            except OSError as error:
                yield blocked(f"listing answered {says(error.errno)}", place)
                continue
            for name in names:
                if os.path.isfile(os.path.join(place, name)):
                    yield reads_marker(os.path.join(place, name), parameters)
    return any_of(attempts())


@probe
def proc_root_of_others(parameters):
    return any_of(reads_marker(f"/proc/{pid}/root{parameters['file']}", parameters) for pid in others(parameters))


@probe
def proc_cwd_of_others(parameters):
    name = os.path.basename(parameters["file"])
    return any_of(reads_marker(f"/proc/{pid}/cwd/{name}", parameters) for pid in others(parameters))


@probe
def proc_self_root_dotdot(parameters):
    return reads_marker("/proc/self/root/" + "../" * 40 + parameters["file"].lstrip("/"), parameters)


@probe
def proc_environ_of_others(parameters):
    return any_of(reads_marker(f"/proc/{pid}/environ", parameters) for pid in others(parameters))


@probe
def proc_memory_of_others(parameters):
    return any_of(opens(f"/proc/{pid}/mem", os.O_RDWR) for pid in others(parameters))


@probe
def overwrite_program_of_others(parameters):
    def attempts():
        for pid in others(parameters):
            path = f"/proc/{pid}/exe"
            try:
                os.close(os.open(path, os.O_WRONLY))
                yield escaped("the program of another process can be written", path)
            except OSError as error:
                # Busy comes after the question whether it is allowed.
                yield judged(error.errno == 26, f"open answered {says(error.errno)}", path)
    return any_of(attempts())


@probe
def map_files_of_others(parameters):
    def attempts():
        for pid in others(parameters):
            try:
                names = os.listdir(f"/proc/{pid}/map_files")
            except OSError as error:
                yield blocked(f"listing answered {says(error.errno)}")
                continue
            yield judged(names, "the mappings of another process were listed")
    return any_of(attempts())


# ------------------------------------------------------------------------------------------------------- by handle


class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]


@probe
def open_by_handle(parameters):
    handle = Handle(len(parameters["handle"]) // 2, parameters["handle_type"])
    ctypes.memmove(handle.handle, bytes.fromhex(parameters["handle"]), handle.bytes)

    def attempts():
        for mount in (".", "/usr", "/tmp", "/"):
            try:
                fd = os.open(mount, os.O_RDONLY)
            except OSError:
                continue
            result, error = syscall("open_by_handle_at", fd, ctypes.byref(handle), os.O_RDONLY)
            if result >= 0:
                with os.fdopen(result, "rb") as file:
                    yield judged(parameters["marker"].encode() in file.read(4096), "a file was opened by its handle")
            else:
                yield blocked(f"open_by_handle_at answered {says(error)}", mount)
    return any_of(attempts())


@probe
def name_to_handle(parameters):
    handle, mount = Handle(128, 0), ctypes.c_int()
    result, error = syscall("name_to_handle_at", AT_FDCWD, ctypes.c_char_p(b"/usr"), ctypes.byref(handle),
                            ctypes.byref(mount), 0)
    return judged(result == 0, f"name_to_handle_at answered {says(error)}")


# ------------------------------------------------------------------------------------------------- from call to call


@probe
def leftovers_of_the_last_call(parameters):
    """The first call plants, the second looks: nothing of one call may be there in the next."""
    places = {"/tmp", "/var/tmp", "/dev/shm", "/run", ".", os.environ.get("HOME", "/tmp")}
    paths = [os.path.join(place, parameters["name"] + "-left") for place in places]
    if parameters["step"] == 1:
        for path in paths:
            try:
                with open(path, "w") as file:
                    file.write("left")
            except OSError:
                continue
        return blocked("planted")
    found = [path for path in paths if os.path.lexists(path)]
    for path in found:
        os.unlink(path)
    return judged(found, "files of the last call were looked for", found)


if __name__ == "__main__":
    main()
