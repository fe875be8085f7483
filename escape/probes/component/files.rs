//! Files of the machine, of the server and of other tools, from a directory that was declared.
//!
//! Every path is tried in several spellings below the one given directory, and once through the library. To a component
//! `/proc/self` is the server itself, so those files are worth more here than they are to a process.

use std::fs;

use crate::host::{self, For, CREATE_NEW, DIRECTORY};
use crate::{any_of, blocked, escaped, Parameters, Report};

/// The attempt of that name, if it is one of these.
pub fn attempt(id: &str, parameters: &Parameters) -> Option<Report> {
    let file = parameters.get("file");
    let (pid, name) = (parameters.get("pid"), parameters.get("name"));
    let in_data = |name: &str| format!("{}/{name}", parameters.get("data_dir"));
    let marked = |paths: &[String]| any_of(paths.iter().map(|path| reads_marker(path, parameters)));
    let base = file.rsplit('/').next().unwrap_or_default();
    Some(match id {
        "read_shadow" => opens(&["/etc/shadow"], For::Reading),
        "list_root_home" => lists("/root"),
        "read_host_file" | "dotdot_to_host_file" | "file_lock_of_the_host" => marked(&[file.to_owned()]),
        "read_private_host_file" => marked(&[parameters.get("private_file").to_owned()]),
        "read_admin_token" => opens(&[&in_data("admin.token")], For::Reading),
        "list_data_dir" => lists(parameters.get("data_dir")),
        "write_data_dir" => makes_file(&in_data("planted")),
        "dotdot_to_other_tool" => marked(&[
            format!("{}/secret.txt", parameters.get("bystander")),
            format!("{}/../bystander/secret.txt", parameters.get("folder")),
            "../bystander/secret.txt".to_owned(),
        ]),
        "symlink_made_here" => symlink_made_here(parameters),
        "symlink_shipped_with_the_tool" => marked(&["shipped_link".to_owned()]),
        "symlinked_directory_shipped" => marked(&[format!("shipped_dir/{base}"), format!("shipped_dir/./{base}")]),
        "hardlink_to_host_file" => hardlink(parameters),
        "shared_tmp" => lists("/tmp"),
        "shared_dev_shm" => lists("/dev/shm"),
        "shared_var_tmp" => lists("/var/tmp"),
        "write_usr" => any_of(["/usr", "/usr/bin", "/usr/lib"].iter().map(|dir| makes_file(&format!("{dir}/{name}")))),
        "write_etc" => makes_file(&format!("/etc/{name}")),
        "write_root_directory" => makes_file(&format!("/{name}")),
        "write_own_folder" => makes_file(&format!("{}/planted", parameters.get("folder"))),
        "overwrite_own_program" => opens(&[&format!("{}/main.wasm", parameters.get("folder"))], For::Writing),
        "write_world_writable_host_dir" => writes_outside(&format!("{}/planted", parameters.get("open_dir"))),
        "write_library_path" => opens(&["/etc/ld.so.cache"], For::Writing),
        "inherited_descriptors" => {
            let foreign = (3..1024).filter(|fd| host::is_open(*fd) && !host::is_given(*fd)).count();
            judged(foreign > 0, "descriptors beside the given ones were looked for")
        }
        "descriptor_numbers_tried" => {
            let given = (3..1024).filter(|fd| host::is_given(*fd)).count();
            judged(given > 1 || host::is_open(9), "descriptors that nobody declared were looked for")
        }
        "descriptors_of_others" => {
            let numbers = (3..32).flat_map(|fd| [format!("/proc/self/fd/{fd}"), format!("/proc/{pid}/fd/{fd}")]);
            marked(&numbers.collect::<Vec<_>>())
        }
        "proc_root_of_others" => marked(&[format!("/proc/{pid}/root{file}"), format!("/proc/1/root{file}")]),
        "proc_cwd_of_others" => marked(&[format!("/proc/{pid}/cwd/{base}")]),
        "proc_self_root_dotdot" => marked(&[format!("/proc/self/root{file}"), format!("/proc/self/cwd/../..{file}")]),
        "proc_environ_of_others" => marked(&["/proc/self/environ".to_owned(), format!("/proc/{pid}/environ")]),
        "see_outside_processes" => opens(&["/proc/self/cmdline", &format!("/proc/{pid}/cmdline")], For::Reading),
        "proc_memory_of_others" => opens(&["/proc/self/mem", &format!("/proc/{pid}/mem")], For::Writing),
        "overwrite_program_of_others" => opens(&["/proc/self/exe", &format!("/proc/{pid}/exe")], For::Writing),
        "map_files_of_others" => any_of([lists("/proc/self/map_files"), lists(&format!("/proc/{pid}/map_files"))]),
        "immune_to_memory_killer" => opens(&["/proc/self/oom_score_adj"], For::Writing),
        "sockets_of_the_host" => opens(&["/proc/net/tcp", "/proc/self/net/tcp"], For::Reading),
        "controlling_terminal" => opens(&["/dev/tty", "/dev/console"], For::Writing),
        "tun_device" => opens(&["/dev/net/tun"], For::Writing),
        "open_block_device" => opens(&["/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/loop0"], For::Reading),
        "open_memory_device" => opens(&["/dev/mem", "/dev/kmem", "/dev/port", "/proc/kcore"], For::Reading),
        "open_kernel_log" => opens(&["/dev/kmsg", "/proc/kmsg"], For::Reading),
        "open_special_devices" => opens(&["/dev/kvm", "/dev/fuse", "/dev/loop-control", "/dev/vsock"], For::Writing),
        "write_core_pattern" => opens(&["/proc/sys/kernel/core_pattern"], For::Writing),
        "write_kernel_settings" => {
            opens(&["/proc/sys/kernel/hostname", "/proc/sys/vm/overcommit_memory"], For::Writing)
        }
        "open_sysrq" => opens(&["/proc/sysrq-trigger"], For::Writing),
        "kernel_addresses" => opens(&["/proc/kallsyms"], For::Reading),
        "sys_visible" => lists("/sys/kernel"),
        "sys_writable" => opens(&["/sys/power/state", "/sys/kernel/mm/ksm/run"], For::Writing),
        "leave_control_group" => opens(&["/sys/fs/cgroup/cgroup.procs"], For::Writing),
        "environment_of_the_server" => {
            let leaked = std::env::vars().count() + std::env::args().count();
            judged(leaked > 0, "environment and arguments were searched")
        }
        _ => return None,
    })
}

fn judged(got_it: bool, how: &str) -> Report {
    if got_it { escaped(how) } else { blocked(how) }
}

/// Ways to say a path to a host that looks it up below a directory.
fn spellings(path: &str) -> Vec<String> {
    let bare = path.trim_start_matches('/');
    let up = "../".repeat(40);
    vec![
        path.to_owned(),
        format!("/{path}"),
        format!("./{path}"),
        bare.to_owned(),
        format!("{up}{bare}"),
        format!("./.././{up}{bare}"),
        format!("below/../../{up}{bare}"),
        format!("nowhere/../{up}{bare}"),
        format!("shipped_root/{bare}"),
        format!("{path}/"),
        format!("{path}/."),
        format!("{up}{bare}\0"),
    ]
}

fn reads_marker(path: &str, parameters: &Parameters) -> Report {
    let marker = parameters.get("marker");
    let by_library = fs::File::open(path).map_err(|error| error.raw_os_error().unwrap_or(0));
    let by_host = spellings(path).into_iter().map(|path| host::open(&path, 0, For::Reading));
    any_of(by_host.chain([by_library]).map(|opened| match opened {
        Ok(mut file) => judged(host::holds(&mut file, marker), "the file was read"),
        Err(error) => blocked(format!("opening answered {error}")),
    }))
}

/// Escaped if one can be opened; nothing is read and nothing written.
fn opens(paths: &[&str], purpose: For) -> Report {
    let spelled = paths.iter().flat_map(|path| spellings(path));
    any_of(spelled.map(|path| match host::open(&path, 0, purpose) {
        Ok(_) => escaped("it can be opened"),
        Err(error) => blocked(format!("opening answered {error}")),
    }))
}

fn lists(path: &str) -> Report {
    let by_library = judged(fs::read_dir(path).is_ok(), "the library was asked for the directory");
    let by_host = spellings(path).into_iter().map(|path| match host::open(&path, DIRECTORY, For::Listing) {
        Ok(_) => escaped("the directory can be opened"),
        Err(error) => blocked(format!("opening answered {error}")),
    });
    any_of([by_library].into_iter().chain(by_host))
}

/// Only spellings that mean the place and not a file below the given directory.
fn outward(path: &str) -> impl Iterator<Item = String> {
    let bare = path.trim_start_matches('/').to_owned();
    spellings(path).into_iter().filter(move |spelling| *spelling != bare && !spelling.starts_with("./"))
}

fn makes_file(path: &str) -> Report {
    if fs::OpenOptions::new().write(true).create_new(true).open(path).is_ok() {
        let _ = fs::remove_file(path); // It has shown what it was to show.
        return escaped("the library created a file");
    }
    any_of(outward(path).map(|path| match host::open(&path, CREATE_NEW, For::Writing) {
        Ok(_) => {
            host::unlink(&path);
            escaped("a file was created")
        }
        Err(error) => blocked(format!("creating answered {error}")),
    }))
}

/// A file of one's own, brought there: created, moved and linked.
fn writes_outside(path: &str) -> Report {
    let created = makes_file(path);
    if created.escaped || host::open("own", CREATE_NEW, For::Writing).is_err() {
        return created;
    }
    let report = any_of(outward(path).map(|path| match (host::rename("own", &path), host::link("own", &path)) {
        (0, _) | (_, 0) => {
            host::unlink(&path);
            escaped("a file was brought there")
        }
        (moving, linking) => blocked(format!("moving answered {moving}, linking {linking}")),
    }));
    host::unlink("own");
    report
}

fn symlink_made_here(parameters: &Parameters) -> Report {
    any_of(spellings(parameters.get("file")).into_iter().map(|target| {
        let made = host::symlink(&target, "link");
        if made != 0 {
            return blocked(format!("making the link answered {made}"));
        }
        let report = match host::open("link", 0, For::Reading) {
            Ok(mut file) => judged(host::holds(&mut file, parameters.get("marker")), "the link was followed"),
            Err(error) => blocked(format!("following answered {error}")),
        };
        host::unlink("link");
        report
    }))
}

fn hardlink(parameters: &Parameters) -> Report {
    let sources = spellings(parameters.get("file")).into_iter().chain(["shipped_link".to_owned()]);
    any_of(sources.map(|source| {
        let made = host::link(&source, "stolen");
        if made != 0 {
            return blocked(format!("linking answered {made}"));
        }
        let report = match host::open("stolen", 0, For::Reading) {
            Ok(mut file) => judged(host::holds(&mut file, parameters.get("marker")), "the link was read"),
            Err(error) => blocked(format!("reading the link answered {error}")),
        };
        host::unlink("stolen");
        report
    }))
}
