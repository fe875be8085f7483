//! How components come from folders: only from inside, compiled once, kept on disk, and made anew when they change.

use std::path::PathBuf;

use super::text::component;
use super::*;

fn echo() -> Vec<u8> {
    component("", "(call $ok (local.get $ptr) (local.get $len))")
}

fn constant() -> Vec<u8> {
    component("", "(call $ok (i32.const 1024) (i32.const 6))")
}

fn cached(cache: &Path) -> WasmHarness {
    WasmHarness::new(WasmConfig { cache_dir: Some(cache.to_owned()), ..WasmConfig::default() })
}

fn files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn a_component_is_found_inside_its_folder_only() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("tool");
    std::fs::create_dir_all(folder.join("build")).unwrap();
    std::fs::write(dir.path().join("outside.wasm"), echo()).unwrap();
    std::fs::write(folder.join("build/inside.wasm"), echo()).unwrap();
    for (target, link) in [
        ("build/inside.wasm", "to_inside.wasm"),
        ("../outside.wasm", "to_outside.wasm"),
        (dir.path().join("outside.wasm").to_str().unwrap(), "to_absolute.wasm"),
        ("to_itself.wasm", "to_itself.wasm"),
    ] {
        std::os::unix::fs::symlink(target, folder.join(link)).unwrap();
    }
    rustix::fs::mkfifoat(rustix::fs::CWD, folder.join("pipe.wasm"), rustix::fs::Mode::RUSR).unwrap();
    let outside = dir.path().join("outside.wasm");
    for (name, expect) in [
        ("build/inside.wasm", None),
        ("to_inside.wasm", None),
        ("build/../build/inside.wasm", None),
        ("missing.wasm", Some("is not in the tool's folder")),
        ("../outside.wasm", Some("is not a file inside")),
        ("build/../../outside.wasm", Some("is not a file inside")),
        ("to_outside.wasm", Some("is not a file inside")),
        ("to_absolute.wasm", Some("is not a file inside")),
        ("to_itself.wasm", Some("is not a file inside")),
        ("build", Some("is not a file inside")),
        ("pipe.wasm", Some("is not a file inside")),
        (outside.to_str().unwrap(), Some("is not a file inside")),
    ] {
        let tool = HARNESS.tool(&folder, name, &[]);
        let outcome = HARNESS.call(&tool, json!({ "a": 1 })).await;
        match expect {
            None => assert_eq!(outcome.unwrap().value, json!({ "a": 1 }), "{name}"),
            Some(message) => {
                let refusal = outcome.unwrap_err();
                assert_eq!(refusal.code, ErrorCode::E3108, "{name}: {refusal}");
                assert!(refusal.message.contains(message), "{name}: {}", refusal.message);
            }
        }
    }
}

#[tokio::test]
async fn a_component_beyond_the_bound_is_refused_unread() {
    let harness = WasmHarness::new(WasmConfig { component_bytes_max: 1000, ..WasmConfig::default() });
    let folder = tempfile::tempdir().unwrap();
    let file = std::fs::File::create(folder.path().join("huge.wasm")).unwrap();
    file.set_len(1 << 40).unwrap();
    let tool = harness.tool(folder.path(), "huge.wasm", &[]);
    let refusal = harness.call(&tool, json!({})).await.unwrap_err();
    assert_eq!((refusal.code, &*refusal.message), (ErrorCode::E3108, "the component is larger than 1000 bytes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_first_calls_at_once_compile_once_and_the_next_start_not_at_all() {
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let cache = cache.path().join("compiled");
    std::fs::write(folder.path().join("tool.wasm"), echo()).unwrap();
    let harness = Arc::new(cached(&cache));
    let tool = harness.tool(folder.path(), "tool.wasm", &[]);
    let calls: Vec<_> = (0..16)
        .map(|number| {
            let (harness, tool) = (Arc::clone(&harness), Arc::clone(&tool));
            tokio::spawn(async move { harness.call(&tool, json!({ "n": number })).await })
        })
        .collect();
    for (number, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap().value, json!({ "n": number }));
    }
    let mut kept = files(&cache);
    kept.sort();
    assert_eq!(kept.len(), 2, "what was compiled, and its seal: {kept:?}");
    let written = kept[0].metadata().unwrap().modified().unwrap();
    let harness = cached(&cache);
    harness.executor.load(folder.path(), "tool.wasm").await.unwrap();
    let mut after = files(&cache);
    after.sort();
    assert_eq!(after, kept);
    assert_eq!(kept[0].metadata().unwrap().modified().unwrap(), written, "it was read and not written again");
}

#[tokio::test]
async fn a_damaged_cache_is_noticed_and_made_anew() {
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("tool.wasm"), echo()).unwrap();
    let dir = cache.path().join("compiled");
    cached(&dir).executor.load(folder.path(), "tool.wasm").await.unwrap();
    // What was compiled, and its seal.
    for file in files(&dir) {
        let sound = std::fs::read(&file).unwrap();
        for damaged in [sound.iter().map(|byte| byte ^ 0xff).collect(), sound[..sound.len() / 2].to_vec(), Vec::new()] {
            // Put in place of the old one, never written into it: the code of an earlier harness may still be mapped, and
            // pages that are cut off below a reader end the whole process.
            let damage = cache.path().join("damage");
            std::fs::write(&damage, &damaged).unwrap();
            std::fs::set_permissions(&damage, std::fs::metadata(&file).unwrap().permissions()).unwrap();
            std::fs::rename(&damage, &file).unwrap();
            let harness = cached(&dir);
            let tool = harness.tool(folder.path(), "tool.wasm", &[]);
            assert_eq!(harness.call(&tool, json!({ "a": 1 })).await.unwrap().value, json!({ "a": 1 }));
            assert_ne!(std::fs::read(&file).unwrap(), damaged, "{}", file.display());
        }
    }
}

#[tokio::test]
async fn a_changed_component_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tool.wasm");
    std::fs::write(&path, echo()).unwrap();
    let tool = HARNESS.tool(folder.path(), "tool.wasm", &[]);
    assert_eq!(HARNESS.call(&tool, json!({ "a": 1 })).await.unwrap().value, json!({ "a": 1 }));
    std::fs::write(folder.path().join("new"), constant()).unwrap();
    std::fs::rename(folder.path().join("new"), &path).unwrap();
    assert_eq!(HARNESS.call(&tool, json!({ "a": 1 })).await.unwrap().value, json!("text"));
    std::fs::write(&path, b"broken").unwrap();
    assert_eq!(HARNESS.call(&tool, json!({})).await.unwrap_err().code, ErrorCode::E3108);
}

#[tokio::test]
async fn more_components_than_are_kept_in_memory_all_run() {
    let harness = WasmHarness::new(WasmConfig { loaded_max: 2, ..WasmConfig::default() });
    let folder = tempfile::tempdir().unwrap();
    let tools: Vec<_> = (0..4)
        .map(|number| {
            let name = format!("{number}.wasm");
            std::fs::write(folder.path().join(&name), echo()).unwrap();
            harness.tool(folder.path(), &name, &[])
        })
        .collect();
    for tool in tools.iter().chain(&tools) {
        assert_eq!(harness.call(tool, json!({ "a": 1 })).await.unwrap().value, json!({ "a": 1 }));
    }
}

#[tokio::test]
async fn what_is_prepared_is_ready_and_what_is_broken_is_told_at_the_call() {
    let harness = WasmHarness::new(WasmConfig::default());
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tool.wasm"), echo()).unwrap();
    let tool = harness.tool(folder.path(), "tool.wasm", &[]);
    harness.executor.prepare(folder.path(), tool.manifest.execution.as_ref().unwrap());
    harness
        .executor
        .prepare(folder.path(), &Execution::Wasm { component: "missing.wasm".into(), env: BTreeMap::new() });
    harness.executor.prepare(folder.path(), &Execution::Builtin { handler: "calculator".into() });
    let loaded = harness.executor.load(folder.path(), "tool.wasm").await.unwrap();
    for _ in 0..100 {
        harness.executor.instantiate(&loaded).await.unwrap();
    }
}

#[tokio::test]
async fn a_cache_that_others_could_write_to_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let (cache, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    std::fs::set_permissions(cache.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(folder.path().join("tool.wasm"), echo()).unwrap();
    let harness = cached(cache.path());
    harness.executor.load(folder.path(), "tool.wasm").await.unwrap();
    assert!(files(cache.path()).is_empty());
}
