//! Container tools: real images in real folders, under real runtimes. Needs runsc, runc and busybox.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;

use contract::error::{ErrorCode, Refusal};
use contract::manifest::{Execution, Manifest, ManifestFormat};
use gantry_executors::{
    OciExecutor, OperatorReach, RuntimePrograms, SandboxProvider, ToolConfinement, ToolDirectories,
};
use ports::executor::{ExecutionReach, Executor, ToolOutput};
use ports::secret_source::NoSecrets;
use ports::tool_version::ToolVersion;
use sandbox::egress::SystemResolver;
use sandbox::{LauncherCommand, Sandbox};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::calls::{call, version_of};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_gantry-executors-test-launcher");
const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/tools/word_stats/tool.toml");

fn tool(binding: &Value) -> Arc<ToolVersion> {
    let text = fs::read_to_string(MANIFEST).unwrap();
    let mut manifest = Manifest::read(&text, ManifestFormat::Toml).unwrap_or_else(|error| panic!("{error}"));
    manifest.execution = Some(serde_json::from_value::<Execution>(binding.clone()).unwrap());
    let limits = json!({ "cpu": "2", "memory": "64Mi", "ephemeral_storage": "1Mi" });
    manifest.resource_limits = Some(serde_json::from_value(limits).unwrap());
    version_of(manifest)
}

/// A tool's folder, and a server's cache.
struct Place {
    home: tempfile::TempDir,
    cache: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap(), cache: tempfile::tempdir().unwrap() }
    }

    fn executor(&self, tool: &ToolVersion) -> OciExecutor {
        let sandbox = Sandbox::new(LauncherCommand { program: LAUNCHER.into(), arguments: Vec::new() }, 8);
        let homes = ToolDirectories::default();
        homes.set(&tool.id, &tool.version, tool.digest, self.home.path().to_owned());
        let confinement = ToolConfinement::new(OperatorReach::default(), Arc::new(NoSecrets), Arc::new(SystemResolver));
        let walls = SandboxProvider::new(sandbox, RuntimePrograms::default());
        OciExecutor::new(walls, homes, confinement, self.cache.path().join("images"))
    }

    async fn run(&self, binding: &Value) -> Result<ToolOutput, Refusal> {
        let tool = tool(binding);
        let executor = self.executor(&tool);
        let binding = tool.manifest.execution.as_ref().unwrap();
        executor.ready(&tool, binding, binding.isolation_asked())?;
        executor.execute(call(&tool, json!({ "text": "a b" }))).await.map_err(|error| error.refusal)
    }

    async fn reach(&self, binding: &Value) -> ExecutionReach {
        let tool = tool(binding);
        self.executor(&tool).execute(call(&tool, json!({ "text": "a b" }))).await.unwrap_err().reach
    }
}

/// A root with busybox in it.
fn busybox(root: &Path) {
    fs::create_dir_all(root.join("bin")).unwrap();
    fs::set_permissions(root, fs::Permissions::from_mode(0o755)).unwrap();
    fs::copy("/bin/busybox", root.join("bin/busybox")).unwrap();
    for applet in ["sh", "cat", "id", "dd", "sleep"] {
        std::os::unix::fs::symlink("busybox", root.join("bin").join(applet)).unwrap();
    }
}

/// An image layout with one layer; gives the digest of its manifest.
fn layout(dir: &Path, config: &Value) -> String {
    let blobs = dir.join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let blob = |media_type: &str, bytes: &[u8]| {
        let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        fs::write(blobs.join(&digest), bytes).unwrap();
        json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": bytes.len() })
    };
    let scratch = tempfile::tempdir().unwrap();
    busybox(scratch.path());
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    builder.follow_symlinks(false);
    builder.append_dir_all("", scratch.path()).unwrap();
    let mut encoder = builder.into_inner().unwrap();
    encoder.flush().unwrap();
    let layer = blob("application/vnd.oci.image.layer.v1.tar+gzip", &encoder.finish().unwrap());
    let config = json!({
        "os": "linux", "architecture": if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" },
        "config": config, "rootfs": { "type": "layers", "diff_ids": [] },
    });
    let config = blob("application/vnd.oci.image.config.v1+json", config.to_string().as_bytes());
    let manifest = json!({ "schemaVersion": 2, "config": config, "layers": [layer] });
    let manifest = blob("application/vnd.oci.image.manifest.v1+json", manifest.to_string().as_bytes());
    fs::write(dir.join("index.json"), json!({ "schemaVersion": 2, "manifests": [manifest] }).to_string()).unwrap();
    fs::write(dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
    manifest.get("digest").and_then(Value::as_str).unwrap().trim_start_matches("sha256:").to_owned()
}

const ANSWER: &str = r#"read -r line; echo "{\"in\": $line, \"uid\": $(id -u), \"greeting\": \"$GREETING\"}""#;

#[tokio::test]
async fn a_root_directory_runs_under_each_isolation_that_is_to_be_had() {
    let place = Place::new();
    busybox(&place.home.path().join("image"));
    for isolation in ["process", "gvisor"] {
        let binding =
            json!({ "type": "oci", "image": "image", "command": ["/bin/sh", "-c", ANSWER], "isolation": isolation });
        let output = place.run(&binding).await.unwrap();
        assert_eq!(output.value, json!({ "in": { "text": "a b" }, "uid": 65534, "greeting": "" }), "{isolation}");
        assert!(output.usage.memory_peak_mb > 0 && output.usage.cpu_millicore_seconds > 0);
    }
    let binding = json!({ "type": "oci", "image": "image", "command": ["/bin/sh"], "isolation": "microvm" });
    let refused = place.run(&binding).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::E3405);
    assert!(refused.message.contains("KVM"), "{refused}");
}

/// A session that answers its one call with a word of its environment, as soon as it was asked.
const SESSION: &str = r#"read -r line; id=${line#*\"id\":}; id=${id%%[,\}]*}; echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"greeting\":\"$GREETING\"}}""#;

#[tokio::test]
async fn a_container_speaks_the_protocol_and_has_the_variables_of_its_manifest() {
    let place = Place::new();
    busybox(&place.home.path().join("image"));
    let binding = |script: &str, protocol: &str| {
        json!({ "type": "oci", "image": "image", "command": ["/bin/sh", "-c", script], "protocol": protocol,
            "env": { "GREETING": "declared" } })
    };
    let simple = place.run(&binding(ANSWER, "simple")).await.unwrap();
    assert_eq!(simple.value["greeting"], "declared");
    let session = place.run(&binding(SESSION, "gantry/1")).await.unwrap();
    assert_eq!(session.value, json!({ "greeting": "declared" }));
}

#[tokio::test]
async fn a_bundle_says_what_to_start_but_not_with_which_rights() {
    let place = Place::new();
    busybox(&place.home.path().join("bundle/rootfs"));
    let config = json!({
        "process": {
            "args": ["/bin/sh", "-c", ANSWER], "env": ["GREETING=bundled", "PATH=/bin"], "cwd": "/bin",
            "user": { "uid": 0, "gid": 0 }, "capabilities": { "effective": ["CAP_SYS_ADMIN"] },
        },
        "mounts": [{ "destination": "/host", "type": "bind", "source": "/", "options": ["rbind"] }],
    });
    fs::write(place.home.path().join("bundle/config.json"), config.to_string()).unwrap();
    let output = place.run(&json!({ "type": "oci", "image": "bundle" })).await.unwrap();
    assert_eq!(output.value, json!({ "in": { "text": "a b" }, "uid": 65534, "greeting": "bundled" }));
    let look =
        json!({ "type": "oci", "image": "bundle", "command": ["/bin/sh", "-c", "test -e /host && echo 1 || echo 0"] });
    assert_eq!(place.run(&look).await.unwrap().value, json!(0));
}

#[tokio::test]
async fn an_image_layout_is_unpacked_once_and_says_what_to_start() {
    let place = Place::new();
    let config = json!({ "Entrypoint": ["/bin/sh", "-c"], "Cmd": [ANSWER], "Env": ["GREETING=hello", "PATH=/bin"] });
    let digest = layout(&place.home.path().join("image"), &config);
    let binding = json!({ "type": "oci", "image": "image" });
    let tool = tool(&binding);
    let executor = place.executor(&tool);
    let input = || call(&tool, json!({ "text": "a b" }));
    // Two at once through one executor, and one through another that has the same cache.
    let outputs = tokio::join!(executor.execute(input()), executor.execute(input()), place.run(&binding));
    for output in [outputs.0.unwrap(), outputs.1.unwrap(), outputs.2.unwrap()] {
        assert_eq!(output.value, json!({ "in": { "text": "a b" }, "uid": 65534, "greeting": "hello" }));
    }
    let kept: Vec<_> = fs::read_dir(place.cache.path().join("images")).unwrap().flatten().collect();
    assert_eq!(
        kept.iter().map(|entry| entry.file_name().into_string().unwrap()).collect::<Vec<_>>(),
        [digest.as_str()]
    );
    // By its digest, and by one that it does not have.
    let pinned = json!({ "type": "oci", "image": format!("image@sha256:{digest}") });
    place.run(&pinned).await.unwrap();
    let other = json!({ "type": "oci", "image": format!("image@sha256:{}", "0".repeat(64)) });
    assert_eq!(place.run(&other).await.unwrap_err().code, ErrorCode::E3405);
}

#[tokio::test]
async fn an_image_that_was_tampered_with_is_refused() {
    let place = Place::new();
    layout(&place.home.path().join("image"), &json!({ "Cmd": ["/bin/sh", "-c", ANSWER] }));
    for blob in fs::read_dir(place.home.path().join("image/blobs/sha256")).unwrap().flatten() {
        let whole = fs::read(blob.path()).unwrap();
        let mut changed = whole.clone();
        *changed.last_mut().unwrap() ^= 1;
        fs::write(blob.path(), changed).unwrap();
        let refused = place.run(&json!({ "type": "oci", "image": "image" })).await.unwrap_err();
        assert_eq!(refused.code, ErrorCode::E3405, "{refused}");
        assert!(!refused.message.contains(place.home.path().to_str().unwrap()), "{refused}");
        fs::write(blob.path(), whole).unwrap();
    }
    let kept = fs::read_dir(place.cache.path().join("images")).map_or(0, Iterator::count);
    assert_eq!(kept, 0);
}

#[tokio::test]
async fn a_registry_and_a_folder_that_is_not_there_are_refused_with_what_to_do() {
    let place = Place::new();
    std::os::unix::fs::symlink("/", place.home.path().join("link")).unwrap();
    for (image, says) in [
        ("docker.io/library/alpine:3.20", "pulls no images"),
        ("missing", "no folder of the tool"),
        ("../other", "no folder of the tool"),
        ("link", "no folder of the tool"),
    ] {
        let refused = place.run(&json!({ "type": "oci", "image": image, "command": ["true"] })).await.unwrap_err();
        assert_eq!((refused.code, refused.retryable), (ErrorCode::E3405, Some(false)), "{image}");
        assert!(refused.message.contains(says), "{refused}");
    }
}

#[tokio::test]
async fn each_end_of_a_container_has_its_code() {
    let place = Place::new();
    busybox(&place.home.path().join("image"));
    let shell = |text: &str| json!(["/bin/sh", "-c", text]);
    for isolation in ["process", "gvisor"] {
        for (command, code, message) in [
            (shell("echo oops >&2; exit 3"), ErrorCode::E3401, "exit code 3"),
            (shell("sh -c 'kill -9 $$'; exit $?"), ErrorCode::E3404, "signal 9"),
            (shell("echo not json"), ErrorCode::E3401, "not acceptable JSON"),
            (shell("dd if=/dev/zero of=/tmp/x bs=64k count=100"), ErrorCode::E3407, "scratch"),
            (shell("dd if=/dev/zero bs=64k count=40"), ErrorCode::E3414, "larger than"),
            (shell("dd if=/dev/zero of=/dev/null bs=400M count=1"), ErrorCode::E3403, "memory"),
            (json!(["/bin/nothing"]), ErrorCode::E3401, "could not be started"),
            (json!([]), ErrorCode::E3401, "what to start"),
        ] {
            let binding = json!({ "type": "oci", "image": "image", "command": command, "isolation": isolation });
            let refused = place.run(&binding).await.unwrap_err();
            assert_eq!(refused.code, code, "{isolation} {command} {refused}");
            assert!(refused.message.contains(message), "{isolation} {command} {refused}");
        }
    }
}

#[tokio::test]
async fn each_end_of_a_container_says_how_far_the_call_came() {
    use ExecutionReach::{Answered, MayHaveRun, NotSent};
    let place = Place::new();
    busybox(&place.home.path().join("image"));
    let shell = |text: &str| json!(["/bin/sh", "-c", text]);
    for isolation in ["process", "gvisor"] {
        for (image, command, protocol, reach) in [
            ("image", shell("exit 3"), "simple", Answered),
            ("image", shell("echo not json"), "simple", Answered),
            ("image", shell("sh -c 'kill -9 $$'; exit $?"), "simple", MayHaveRun),
            ("image", shell("dd if=/dev/zero bs=64k count=40"), "simple", MayHaveRun),
            ("image", shell("dd if=/dev/zero of=/dev/null bs=400M count=1"), "simple", MayHaveRun),
            ("image", shell("read -r line; exit 3"), "gantry/1", MayHaveRun),
            ("image", json!(["/bin/nothing"]), "simple", NotSent),
            ("image", json!([]), "simple", NotSent),
            ("nowhere", shell("true"), "simple", NotSent),
        ] {
            let binding = json!({ "type": "oci", "image": image, "command": command, "protocol": protocol,
                "isolation": isolation });
            assert_eq!(place.reach(&binding).await, reach, "{isolation} {binding}");
        }
    }
}
