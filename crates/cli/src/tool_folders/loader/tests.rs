//! The loader on a whole kernel: what is published, what is held back, and what it says of both.

use contract::ids::TenantId;
use ports::clock::Clock as _;

use super::*;
use crate::machine::SystemClock;
use crate::manifest_file::tests::smallest;

async fn loader(dir: &Path) -> FolderLoader {
    FolderLoader {
        kernel: crate::test_kernel::kernel(&dir.join("data")).await,
        tool_homes: ToolDirectories::default(),
        wasm: None,
        processes: None,
        admin_token: crate::test_kernel::ADMIN.into(),
        tenant: TenantId::home(),
        dirs: vec![dir.join("tools")],
        homes: HashMap::new(),
        stamps: HashMap::new(),
        kept: None,
        intact: HashMap::new(),
        said: HashMap::new(),
    }
}

fn put(dir: &Path, folder: &str, text: &str) {
    let folder = dir.join("tools").join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("tool.toml"), text).unwrap();
}

#[tokio::test]
async fn what_an_earlier_release_has_published_keeps_its_folder_under_newer_rules() {
    let dir = tempfile::tempdir().unwrap();
    let text = smallest("1.0.0").replacen("tool_id", "license = 'Apache 2'\ntool_id", 1);
    put(dir.path(), "old", &text);
    let mut loader = loader(dir.path()).await;
    let (refused, _) = loader.load().await;
    assert!(refused.warnings.concat().contains("/license"), "{refused:?}");
    // As it was published when any text was a licence.
    let document = Manifest::document(&text, contract::manifest::ManifestFormat::Toml).unwrap();
    let old = Manifest::as_written(&document).unwrap();
    let (id, by) = (old.id().unwrap(), "admin".parse().unwrap());
    loader.kernel.registry().register(&TenantId::home(), old, &by).await.unwrap();
    let (round, _) = loader.load().await;
    assert_eq!(round, LoadReport::default());
    assert!(loader.homes.contains_key(&(id, "1.0.0".to_owned())));
}

#[tokio::test]
async fn what_is_new_is_published_once_and_what_is_broken_does_not_stop_it() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "good", &smallest("1.0.0"));
    put(dir.path(), "broken", "tool_id = 'x'");
    let mut loader = loader(dir.path()).await;
    let (first, _) = loader.load().await;
    assert_eq!(first.published, ["demo.word_stats 1.0.0"]);
    assert_eq!(first.warnings.len(), 1, "{first:?}");
    assert!(first.warnings[0].contains("broken") && first.warnings[0].contains("; "), "every reason: {first:?}");
    assert_eq!(loader.load().await.0, LoadReport::default(), "what was said is not said again");
    put(dir.path(), "broken", &smallest("1.1.0"));
    assert_eq!(loader.load().await.0.published, ["demo.word_stats 1.1.0"]);
}

#[tokio::test]
async fn an_edited_manifest_without_a_new_version_does_not_run_until_it_is_raised_or_put_back() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "tool", &smallest("1.0.0"));
    let mut loader = loader(dir.path()).await;
    loader.load().await;
    let snapshot = loader.kernel.registry().snapshot().clone();
    let published = Arc::clone(&snapshot.find(&TenantId::home(), "demo.word_stats").unwrap().versions()[0]);
    assert!(loader.tool_homes.of(&published).is_ok());
    put(dir.path(), "tool", &smallest("1.0.0").replace("Counts", "Really counts"));
    let (round, _) = loader.load().await;
    assert!(round.published.is_empty() && round.warnings[0].contains("is raised"), "{round:?}");
    assert!(loader.tool_homes.of(&published).is_err());
    assert_eq!(loader.load().await.0, LoadReport::default(), "what was said is not said again");
    put(dir.path(), "tool", &smallest("1.0.0"));
    loader.load().await;
    assert!(loader.tool_homes.of(&published).is_ok());
    put(dir.path(), "tool", &smallest("1.0.1").replace("Counts", "Really counts"));
    assert_eq!(loader.load().await.0.published, ["demo.word_stats 1.0.1"]);
}

#[tokio::test]
async fn a_kept_folder_that_is_changed_does_not_run_until_it_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "tool", &smallest("1.0.0"));
    let program = |text: &str| std::fs::write(dir.path().join("tools/tool/main.py"), text).unwrap();
    program("1");
    let mut loader = loader(dir.path()).await;
    loader.kept = Some(dir.path().join("tools"));
    // It is there from a release that recorded nothing.
    assert_eq!(loader.load().await.0.published, ["demo.word_stats 1.0.0"]);
    program("2");
    let (round, _) = loader.load().await;
    assert!(round.warnings.concat().contains("`gantry tool add DIR`"), "{round:?}");
    assert!(loader.homes.is_empty() && loader.report().problems.len() == 1);
    assert_eq!(loader.load().await.0, LoadReport::default(), "what was said is not said again");
    program("1");
    loader.load().await;
    assert!(loader.homes.len() == 1 && loader.report().problems.is_empty());
}

#[tokio::test]
async fn of_two_folders_with_one_version_neither_is_taken_until_one_is_gone() {
    let dir = tempfile::tempdir().unwrap();
    put(dir.path(), "a", &smallest("1.0.0"));
    put(dir.path(), "b", &smallest("1.0.0"));
    let mut loader = loader(dir.path()).await;
    let (round, _) = loader.load().await;
    assert!(round.published.is_empty() && round.warnings.len() == 2, "{round:?}");
    assert!(round.warnings.iter().all(|text| text.contains("is left out")), "{round:?}");
    assert!(loader.homes.is_empty());
    std::fs::remove_dir_all(dir.path().join("tools/a")).unwrap();
    assert_eq!(loader.load().await.0.published, ["demo.word_stats 1.0.0"]);
    let home = |loader: &FolderLoader| loader.homes.values().next().map(|home| home.file_name().unwrap().to_owned());
    assert_eq!(home(&loader).unwrap(), "b");
    // Also when one of them has been running.
    put(dir.path(), "c", &smallest("1.0.0"));
    loader.load().await;
    assert_eq!(home(&loader), None);
    put(dir.path(), "c", &smallest("1.0.1"));
    loader.load().await;
    assert_eq!(loader.homes.len(), 2);
}

/// Whoever sees a version in the registry must be able to run it: its folder is known no later than the version is.
#[tokio::test]
async fn a_version_is_never_seen_before_its_folder_is_known() {
    let dir = tempfile::tempdir().unwrap();
    let mut loader = loader(dir.path()).await;
    let (kernel, tool_homes) = (Arc::clone(&loader.kernel), loader.tool_homes.clone());
    let watcher = std::thread::spawn(move || {
        let clock = SystemClock::start();
        let start = clock.monotonic();
        loop {
            if let Some(tool) = kernel.registry().snapshot().find(&TenantId::home(), "demo.word_stats") {
                return tool_homes.of(&tool.versions()[0]).map_err(|refusal| refusal.message);
            }
            assert!((clock.monotonic() - start).as_secs() < 60, "the version never appeared");
            std::hint::spin_loop();
        }
    });
    put(dir.path(), "tool", &smallest("1.0.0"));
    loader.load().await;
    assert_eq!(watcher.join().unwrap(), Ok(dir.path().join("tools/tool")));
}

#[tokio::test]
async fn a_version_that_is_not_admitted_claims_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let mut loader = loader(dir.path()).await;
    loader.admin_token = "nobody".into();
    put(dir.path(), "tool", &smallest("1.0.0"));
    let (round, _) = loader.load().await;
    assert!(round.warnings.len() == 1 && loader.homes.is_empty(), "{round:?}");
    loader.admin_token = crate::test_kernel::ADMIN.into();
    assert_eq!(loader.load().await.0.published, ["demo.word_stats 1.0.0"]);
}

#[test]
fn a_folder_that_changes_looks_different() {
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(stamp(&dir.path().join("nowhere")), (0, 0));
    std::fs::write(dir.path().join("main.py"), "1").unwrap();
    let first = stamp(dir.path());
    assert_eq!(stamp(dir.path()), first);
    let file = std::fs::File::options().write(true).open(dir.path().join("main.py")).unwrap();
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    let older = stamp(dir.path());
    assert_ne!(older, first, "also when a file becomes older, as with a checkout");
    std::fs::write(dir.path().join("tool.toml"), "").unwrap();
    let two = stamp(dir.path());
    assert_ne!(two, older);
    std::fs::rename(dir.path().join("main.py"), dir.path().join("other.py")).unwrap();
    assert_ne!(stamp(dir.path()), two, "as many, and as old");
}

#[tokio::test]
async fn a_tool_may_stand_before_the_one_it_needs() {
    let dir = tempfile::tempdir().unwrap();
    let undoable = smallest("1.0.0").replace("word_stats", "a_first").replace("\"pure\"", "\"compensatable\"").replace(
        "[execution]",
        "compensation_tool_id = \"demo.z_last\"\nside_effects = [{ resource = \"x\", op = \"CREATE\", scope = \"y\" }]\n\
         idempotency = { key_fields = [], window_seconds = 60 }\n[execution]",
    );
    put(dir.path(), "a", &undoable);
    put(dir.path(), "z", &smallest("1.0.0").replace("word_stats", "z_last"));
    let (round, _) = loader(dir.path()).await.load().await;
    assert_eq!(round.published, ["demo.z_last 1.0.0", "demo.a_first 1.0.0"], "{round:?}");
}
