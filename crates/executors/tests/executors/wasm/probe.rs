//! What a `wasi:cli/command` guest may do, shown by a probe that tries it (`testdata/wasm/probe`).

use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use contract::envelope::CallLimits;
use kernel::ResourceEnvelope;
use tokio::time::Instant;

use super::*;

const TESTDATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/wasm");

/// The probe with these permissions.
pub(super) fn probe(permissions: &[String]) -> Arc<ToolVersion> {
    HARNESS.tool(Path::new(TESTDATA), "probe.wasm", permissions)
}

pub(super) async fn attempt(tool: &Arc<ToolVersion>, words: &[&str]) -> Result<Value, Refusal> {
    HARNESS.call(tool, json!({ "do": words })).await.map(|output| output.value)
}

#[tokio::test]
async fn each_end_of_a_command_has_the_code_it_has_for_a_process() {
    let tool = probe(&[]);
    for (words, code, message) in [
        (&["exit", "3"][..], ErrorCode::E3401, "exit code 1"),
        (&["panic"], ErrorCode::E3404, "`unreachable`"),
        (&["recurse"], ErrorCode::E3404, "crashed"),
        (&["raw", "not json"], ErrorCode::E3401, "not acceptable JSON"),
        (&["raw", "{} trailing"], ErrorCode::E3401, "not acceptable JSON"),
        (&["raw", "NaN"], ErrorCode::E3401, "not acceptable JSON"),
        (&["deep"], ErrorCode::E3401, "not acceptable JSON"),
        (&["bytes"], ErrorCode::E3401, "not acceptable JSON"),
        (&["nothing"], ErrorCode::E3401, "no result"),
        (&["flood", "stdout"], ErrorCode::E3414, "larger than 1048576 bytes"),
        (&["eat"], ErrorCode::E3403, "ran out of the memory"),
        (&["hold", "64"], ErrorCode::E3403, "ran out of the memory"),
    ] {
        let refusal = attempt(&tool, words).await.unwrap_err();
        assert_eq!(refusal.code, code, "{words:?}: {refusal}");
        assert!(refusal.message.contains(message), "{words:?}: {}", refusal.message);
        assert!(!format!("{refusal:?}").contains("the probe does"), "what a tool says on stderr is not for callers");
    }
    assert_eq!(
        attempt(&tool, &["exit", "0"]).await.unwrap_err().message,
        "the tool gave no result: it must answer with JSON"
    );
    assert_eq!(attempt(&tool, &["flood", "stderr"]).await.unwrap(), json!({ "answer": "flooded" }));
}

#[tokio::test]
async fn a_guest_that_spins_or_sleeps_is_stopped_at_its_deadline() {
    let tool = probe(&[]);
    attempt(&tool, &["raw", "1"]).await.unwrap();
    for verb in ["spin", "sleep"] {
        let mut call = call(&tool, json!({ "do": [verb] }));
        call.time_left = Duration::from_millis(200);
        let start = Instant::now();
        assert_eq!(HARNESS.executor.execute(call).await.unwrap_err().refusal.code, ErrorCode::E3402, "{verb}");
        assert!(start.elapsed() < Duration::from_secs(5), "{verb}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_guest_starts_with_nothing() {
    let tool = probe(&[]);
    assert_eq!(attempt(&tool, &["environment"]).await.unwrap(), json!({ "answer": "" }));
    assert_eq!(attempt(&tool, &["arguments"]).await.unwrap(), json!({ "answer": "" }));
    for words in
        [&["read", "/etc/passwd"][..], &["list", "/"], &["list", "."], &["write", "/tmp/x", "x"], &["read", "main.rs"]]
    {
        let answer = attempt(&tool, words).await.unwrap();
        assert!(answer["refused"].is_string(), "{words:?}: {answer}");
    }
    let answer = attempt(&tool, &["socket"]).await.unwrap();
    assert_eq!(answer, json!({ "refused": "error code 1" }), "access-denied");
}

/// A directory with a file, and beside it one that nobody has declared, with links in all directions.
struct Place {
    dir: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (open, closed) = (dir.path().join("open"), dir.path().join("closed"));
        std::fs::create_dir_all(open.join("below")).unwrap();
        std::fs::create_dir(&closed).unwrap();
        std::fs::write(open.join("file"), "open").unwrap();
        std::fs::write(open.join("below/file"), "below").unwrap();
        std::fs::write(closed.join("file"), "closed").unwrap();
        for (target, link) in [
            ("below/file", "inside"),
            ("../closed/file", "out_relative"),
            (closed.join("file").to_str().unwrap(), "out_absolute"),
            ("..", "up"),
            ("/", "root"),
            ("/proc/self/root", "magic"),
        ] {
            std::os::unix::fs::symlink(target, open.join(link)).unwrap();
        }
        Self { dir }
    }

    fn path(&self, name: &str) -> String {
        self.dir.path().join(name).to_str().unwrap().to_owned()
    }

    fn closed_is_untouched(&self) {
        let names: Vec<_> = std::fs::read_dir(self.path("closed")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, ["file"]);
        assert_eq!(std::fs::read_to_string(self.path("closed/file")).unwrap(), "closed");
    }
}

#[tokio::test]
async fn a_declared_directory_can_be_read_and_nothing_else() {
    let place = Place::new();
    let open = place.path("open");
    let tool = probe(&[format!("filesystem:read:{open}")]);
    let at = |name: &str| format!("{open}/{name}");
    for (path, text) in
        [(at("file"), "open"), (at("below/file"), "below"), (at("inside"), "below"), (at("below/../file"), "open")]
    {
        assert_eq!(attempt(&tool, &["read", &path]).await.unwrap(), json!({ "answer": text }), "{path}");
    }
    let names = attempt(&tool, &["list", &open]).await.unwrap();
    assert_eq!(names["answer"], "below file inside magic out_absolute out_relative root up");
    for path in [
        place.path("closed/file"),
        at("../closed/file"),
        at("below/../../closed/file"),
        at("out_relative"),
        at("out_absolute"),
        at("up/closed/file"),
        at("root/etc/passwd"),
        at("magic/etc/passwd"),
        "/etc/passwd".into(),
        "../../../../../../etc/passwd".into(),
        "/proc/self/environ".into(),
    ] {
        let answer = attempt(&tool, &["read", &path]).await.unwrap();
        assert!(answer["refused"].is_string(), "{path}: {answer}");
    }
    for words in [
        &["write", &at("file"), "changed"][..],
        &["write", &at("new"), "new"],
        &["remove", &at("file")],
        &["rename", &at("file"), &at("moved")],
        &["link", &at("file"), &at("second")],
    ] {
        let answer = attempt(&tool, words).await.unwrap();
        assert!(answer["refused"].is_string(), "{words:?}: {answer}");
    }
    assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "open");
    assert!(!Path::new(&at("new")).is_file() && !Path::new(&at("second")).is_file());
    place.closed_is_untouched();
}

#[tokio::test]
async fn a_directory_declared_for_writing_can_be_written_and_nothing_else() {
    let place = Place::new();
    let open = place.path("open");
    // A guest is nobody, and nobody may write where everybody may.
    for dir in [open.clone(), format!("{open}/below")] {
        std::fs::set_permissions(dir, PermissionsExt::from_mode(0o777)).unwrap();
    }
    let tool = probe(&[format!("filesystem:write:{open}")]);
    let at = |name: &str| format!("{open}/{name}");
    for (words, answer) in [
        (&["write", &at("new"), "text"][..], "written"),
        (&["read", &at("new")], "text"),
        (&["rename", &at("new"), &at("below/moved")], "renamed"),
        (&["remove", &at("below/moved")], "removed"),
    ] {
        assert_eq!(attempt(&tool, words).await.unwrap(), json!({ "answer": answer }), "{words:?}");
    }
    for words in [
        &["write", &place.path("closed/new"), "x"][..],
        &["write", &at("../closed/new"), "x"],
        &["write", &at("out_relative"), "x"],
        &["write", &at("out_absolute"), "x"],
        &["write", &at("up/closed/new"), "x"],
        &["remove", &at("up/closed/file")],
        &["rename", &at("up/closed/file"), &at("stolen")],
        &["rename", &at("file"), &at("../closed/new")],
        &["link", &at("up/closed/file"), &at("stolen")],
        &["link", &at("file"), &at("../closed/new")],
    ] {
        let answer = attempt(&tool, words).await.unwrap();
        assert!(answer["refused"].is_string(), "{words:?}: {answer}");
    }
    assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "open");
    place.closed_is_untouched();
}

#[tokio::test]
async fn in_a_declared_directory_a_guest_may_what_nobody_may() {
    if !rustix::process::geteuid().is_root() {
        // A guest of an ordinary user is that user, as a process tool is.
        return;
    }
    let place = Place::new();
    let open = place.path("open");
    let at = |name: &str| format!("{open}/{name}");
    let mode = |name: &str, mode| std::fs::set_permissions(at(name), PermissionsExt::from_mode(mode)).unwrap();
    let tool = probe(&[format!("filesystem:write:{open}")]);
    // The way to a declared directory is the server's business.
    std::fs::set_permissions(place.path(""), PermissionsExt::from_mode(0o700)).unwrap();
    assert_eq!(attempt(&tool, &["read", &at("file")]).await.unwrap(), json!({ "answer": "open" }));
    mode("file", 0o600);
    mode("below", 0o700);
    for words in [
        &["read", &at("file")][..],
        &["write", &at("file"), "changed"],
        &["write", &at("new"), "new"],
        &["remove", &at("file")],
        &["list", &at("below")],
        &["read", &at("below/file")],
        &["read", &at("inside")],
    ] {
        let answer = attempt(&tool, words).await.unwrap();
        assert!(answer["refused"].is_string(), "{words:?}: {answer}");
    }
    mode("", 0o777);
    assert_eq!(attempt(&tool, &["write", &at("new"), "new"]).await.unwrap(), json!({ "answer": "written" }));
    let owner = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(at("new")).unwrap());
    assert_eq!(owner, 65534, "what it makes is nobody's");
}

#[tokio::test]
async fn a_directory_that_cannot_be_given_as_declared_is_a_refusal() {
    let place = Place::new();
    for permission in [
        "filesystem:read:/".to_owned(),
        "filesystem:read:/proc/self".to_owned(),
        "filesystem:write:/dev".to_owned(),
        format!("filesystem:read:{}", place.path("open/file")),
        format!("filesystem:read:{}", place.path("nowhere")),
        format!("filesystem:read:{}", place.path("open/magic")),
    ] {
        let refusal = attempt(&probe(std::slice::from_ref(&permission)), &["raw", "1"]).await.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::E3405, "{permission}: {refusal}");
    }
    let harness = WasmHarness::within(
        OperatorReach { blocked_paths: vec![place.path("closed").into()], ..OperatorReach::default() },
        WasmConfig::default(),
    );
    let tool = harness.tool(Path::new(TESTDATA), "probe.wasm", &[format!("filesystem:read:{}", place.path(""))]);
    let refusal = harness.call(&tool, json!({ "do": ["raw", "1"] })).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3405, "the server's own data lies below: {refusal}");
}

#[tokio::test]
async fn a_command_has_no_way_to_be_given_credentials() {
    let refusal = attempt(&probe(&["credentials:api_key".into()]), &["raw", "1"]).await.unwrap_err();
    assert_eq!(refusal.code, ErrorCode::E3405);
    assert!(refusal.resolution().contains("`gantry:tool/tool`"), "{}", refusal.resolution());
}

#[tokio::test]
async fn what_a_call_may_use_is_the_least_that_anybody_says() {
    let tool = probe(&[]);
    for (asked, megabytes) in [(8, "16"), (1024, "64")] {
        let mut call = call(&tool, json!({ "do": ["hold", megabytes] }));
        let asked = CallLimits { memory_mb_limit: Some(asked), ..CallLimits::default() };
        call.limits = ResourceEnvelope::default().resolve(tool.manifest.resource_limits.as_ref(), &asked).unwrap();
        assert_eq!(
            HARNESS.executor.execute(call).await.unwrap_err().refusal.code,
            ErrorCode::E3403,
            "the manifest says 32"
        );
    }
}

#[tokio::test]
async fn memory_and_cpu_are_accounted() {
    let tool = probe(&[]);
    let idle = HARNESS.call(&tool, json!({ "do": ["raw", "1"] })).await.unwrap().usage;
    let held = HARNESS.call(&tool, json!({ "do": ["hold", "20"] })).await.unwrap().usage;
    assert!((21..=24).contains(&held.memory_peak_mb), "{held:?}");
    assert!(idle.memory_peak_mb <= 3, "{idle:?}");
    // Twice the work is twice the CPU. What the machine does besides can only add to it, so the least of several counts.
    let burn = async |rounds: &str| {
        let mut least = u64::MAX;
        for _ in 0..6 {
            let usage = HARNESS.call(&tool, json!({ "do": ["burn", rounds] })).await.unwrap().usage;
            least = least.min(usage.cpu_millicore_seconds);
        }
        least
    };
    let (once, twice) = (burn("100000000").await, burn("200000000").await);
    assert!(once >= 20, "{once} ms for a hundred million rounds");
    assert!(twice * 10 >= once * 15 && twice * 10 <= once * 27, "{once} ms, then {twice} ms");
}

#[tokio::test]
async fn a_share_of_a_core_is_kept() {
    let tool = probe(&[]);
    let mut rationed = call(&tool, json!({ "do": ["burn", "200000000"] }));
    rationed.limits.cpu_millicores = 250;
    let start = Instant::now();
    let usage = HARNESS.executor.execute(rationed).await.unwrap().usage;
    let cpu = Duration::from_millis(usage.cpu_millicore_seconds);
    assert!(start.elapsed() > cpu.saturating_sub(Duration::from_millis(40)) * 3, "{:?} for {cpu:?}", start.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_calls_at_once_all_succeed() {
    let tool = probe(&[]);
    let calls: Vec<_> = (0..64)
        .map(|number| {
            let call = call(&tool, json!({ "do": ["raw", number.to_string()] }));
            tokio::spawn(async move { HARNESS.executor.execute(call).await })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap().value, json!(number));
    }
}
