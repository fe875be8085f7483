//! The shipped seccomp profile and security context, in a container: an ordinary user without capabilities, who still can make
//! the sandboxes of process tools.
//!
//! The container is one of `runc`, with the profile of `deploy/seccomp` and what the manifests in `deploy/` say beside it. Its
//! root has the machine's `/usr` and the binary under test.

use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::support::{binary, open_to_all};

/// The user of the image.
const USER: u32 = 1000;

fn deploy(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(file)
}

/// The profile as a runtime takes it: without remarks.
fn profile() -> Value {
    let mut profile: Value = serde_json::from_slice(&std::fs::read(deploy("seccomp/gantry.json")).unwrap()).unwrap();
    for rule in profile["syscalls"].as_array_mut().unwrap() {
        rule.as_object_mut().unwrap().remove("comment");
    }
    profile
}

/// Runs `gantry doctor --json` in a container with this profile.
fn doctor(profile: &Value) -> Value {
    let bundle = tempfile::tempdir().unwrap();
    open_to_all(bundle.path());
    let (root, data) = (bundle.path().join("rootfs"), bundle.path().join("data"));
    for dir in ["usr", "proc", "dev", "tmp", "data"] {
        std::fs::create_dir_all(root.join(dir)).unwrap();
    }
    for link in ["bin", "lib", "lib64", "sbin"] {
        symlink(format!("usr/{link}"), root.join(link)).unwrap();
    }
    std::fs::write(root.join("gantry"), "").unwrap();
    std::fs::create_dir(&data).unwrap();
    std::os::unix::fs::chown(&data, Some(USER), Some(USER)).unwrap();
    let mount = |to: &str, kind: &str, options: &[&str]| json!({ "destination": to, "type": kind, "source": kind, "options": options });
    let bind = |from: &str, to: &str, access: &str| json!({ "destination": to, "type": "bind", "source": from, "options": ["rbind", access] });
    let nothing = json!({ "bounding": [], "effective": [], "permitted": [], "inheritable": [], "ambient": [] });
    let namespaces: Vec<Value> =
        ["pid", "network", "ipc", "uts", "mount"].iter().map(|kind| json!({ "type": kind })).collect();
    let config = json!({
        "ociVersion": "1.0.2",
        "process": {
            "user": { "uid": USER, "gid": USER }, "args": ["/gantry", "doctor", "--json"], "cwd": "/data",
            "env": ["PATH=/usr/bin:/bin", "GANTRY_DATA_DIR=/data/gantry"],
            "capabilities": nothing, "noNewPrivileges": true,
        },
        "root": { "path": "rootfs", "readonly": true },
        "mounts": [
            mount("/proc", "proc", &[]),
            mount("/dev", "tmpfs", &["nosuid", "mode=755", "size=64k"]),
            mount("/tmp", "tmpfs", &["nosuid", "nodev", "mode=1777"]),
            bind("/usr", "/usr", "ro"),
            bind(data.to_str().unwrap(), "/data", "rw"),
            bind(binary(), "/gantry", "ro"),
        ],
        // `systempaths=unconfined`, `procMount: Unmasked`: no path of /proc is masked.
        "linux": { "namespaces": namespaces, "seccomp": profile, "maskedPaths": [], "readonlyPaths": [] },
    });
    std::fs::write(bundle.path().join("config.json"), config.to_string()).unwrap();
    let name = format!("gantry-test-{}", bundle.path().file_name().unwrap().to_str().unwrap().trim_start_matches('.'));
    let mut runc = Command::new("runc");
    runc.arg("--root")
        .arg(bundle.path().join("state"))
        .args(["run", "--no-pivot", "--bundle"])
        .arg(bundle.path())
        .arg(name);
    let output = runc.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    })
}

fn check<'d>(document: &'d Value, name: &str) -> &'d Value {
    document["checks"].as_array().unwrap().iter().find(|check| check["check"] == name).unwrap()
}

#[test]
fn doctor_passes_in_a_container_with_the_shipped_profile() {
    let document = doctor(&profile());
    assert_eq!(document["healthy"], true, "{document}");
    for name in ["user namespaces", "seccomp", "sandbox", "level process"] {
        assert_eq!(check(&document, name)["status"], "ok", "{name}: {document}");
    }
}

#[test]
fn a_profile_without_namespaces_is_what_doctor_warns_of() {
    let mut without = profile();
    let rules = without["syscalls"].as_array_mut().unwrap();
    rules.retain(|rule| !rule["names"].as_array().unwrap().contains(&json!("unshare")));
    // Threads, but no namespaces: what the usual profiles of containers allow.
    let threads = json!([{ "index": 0, "value": 0x7e02_0080_u32, "op": "SCMP_CMP_MASKED_EQ" }]);
    rules.push(json!({ "names": ["clone"], "action": "SCMP_ACT_ALLOW", "args": threads }));
    rules.push(json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": 38 }));
    let document = doctor(&without);
    assert_eq!(check(&document, "sandbox")["status"], "warning", "{document}");
}

#[test]
fn the_shipped_manifests_use_the_profile_and_tls() {
    let read = |file: &str| std::fs::read_to_string(deploy(file)).unwrap();
    for (file, words) in [
        (
            "kubernetes/stateful-set.yaml",
            &[
                "localhostProfile: profiles/gantry.json",
                "procMount: Unmasked",
                "--tls-cert=",
                "--tls-key=",
                "scheme: HTTPS",
            ][..],
        ),
        (
            "compose/compose.yml",
            &[
                "seccomp:../seccomp/gantry.json",
                "systempaths=unconfined",
                "no-new-privileges:true",
                "./tls:/etc/gantry-tls:ro",
            ],
        ),
        ("container/Dockerfile", &["--tls-cert", "--tls-key", "--features kafka"]),
    ] {
        let text = read(file);
        for word in words {
            assert!(text.contains(word), "{file} lacks {word}");
        }
        assert!(!text.contains("insecure-plaintext"), "{file}");
    }
}
