//! What holds of the folder of packages whatever an installer does.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

fn pin(version: &str) -> PackagePin {
    PackagePin {
        registry: PackageRegistry::Npm,
        name: "@a/b".into(),
        version: version.into(),
        digest: format!("sha256:{}", "ab".repeat(32)),
        written: Vec::new(),
    }
}

fn kept(cache: &PackageCache, version: &str, text: &str) -> PathBuf {
    let place = cache.begin().unwrap();
    fs::create_dir_all(place.folder.join("bin")).unwrap();
    fs::write(place.folder.join("bin/x"), text).unwrap();
    fs::set_permissions(place.folder.join("bin/x"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(place.folder.join("y"), "y").unwrap();
    fs::set_permissions(place.folder.join("y"), fs::Permissions::from_mode(0o666)).unwrap();
    std::os::unix::fs::symlink("/nowhere", place.folder.join("z")).unwrap();
    let pin = pin(version);
    cache.keep(&place, &pin, &pin.folder().unwrap(), false).unwrap()
}

fn cache() -> (tempfile::TempDir, PackageCache) {
    let dir = tempfile::tempdir().unwrap();
    let cache = PackageCache::at(dir.path().join("data/packages"));
    cache.create().unwrap();
    (dir, cache)
}

#[test]
fn what_is_kept_can_be_read_by_everybody_and_is_changed_by_nobody() {
    let (dir, cache) = cache();
    let folder = kept(&cache, "1.0.0", "first");
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&dir.path().join("data")), 0o700);
    for above in folder.ancestors().take_while(|above| !above.ends_with("data")) {
        assert_eq!(mode(above), 0o755, "{}", above.display());
    }
    assert_eq!((mode(&folder.join("bin/x")), mode(&folder.join("y"))), (0o755, 0o644));
    // Somebody else was faster: what is there stays.
    assert_eq!(kept(&cache, "1.0.0", "second"), folder);
    assert_eq!(fs::read_to_string(folder.join("bin/x")).unwrap(), "first");
    let left = fs::read_dir(&cache.root).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert_eq!(left.filter(|name| name.starts_with(FILLING)).count(), 0);
}

#[test]
fn what_was_broken_off_is_taken_away_by_the_next_and_what_is_under_way_is_not() {
    let (_dir, cache) = cache();
    let under_way = cache.begin().unwrap();
    fs::create_dir(&under_way.folder).unwrap();
    // As a process leaves it that was killed: nobody holds its lock.
    let abandoned = cache.root.join(".filling-1-0");
    fs::create_dir(&abandoned).unwrap();
    fs::write(abandoned.join("part"), "x").unwrap();
    fs::write(abandoned.with_extension("lock"), "").unwrap();
    let next = cache.begin().unwrap();
    assert_ne!(next.folder, under_way.folder);
    assert!(!abandoned.try_exists().unwrap() && !abandoned.with_extension("lock").try_exists().unwrap());
    assert!(under_way.folder.try_exists().unwrap());
    let folder = under_way.folder.clone();
    drop(under_way);
    assert!(!folder.try_exists().unwrap(), "what is broken off leaves nothing");
}

#[test]
fn an_installer_that_outlived_its_command_stops_no_other_and_is_cleared_away_later() {
    let (_dir, cache) = cache();
    // As the file system says it of a folder into which somebody writes while it is taken away.
    let busy = || Err(io::Error::from(io::ErrorKind::DirectoryNotEmpty));
    assert!(!left_to_others(busy()).unwrap());
    assert!(left_to_others(Ok(())).unwrap());
    assert!(left_to_others(Err(io::Error::from(io::ErrorKind::PermissionDenied))).is_err());
    // It wrote on after its folder and its lock had been taken away.
    let late = cache.root.join(".filling-1-0");
    fs::create_dir(&late).unwrap();
    fs::write(late.join("part"), "x").unwrap();
    let next = cache.begin().unwrap();
    assert!(!late.try_exists().unwrap());
    let failure = cache.unusable(&io::Error::from(io::ErrorKind::DirectoryNotEmpty));
    assert!(failure.hint.unwrap().contains("another installation is still at work"));
    let denied = cache.unusable(&io::Error::from(io::ErrorKind::PermissionDenied));
    assert!(denied.hint.unwrap().contains("as the user"));
    assert_eq!(cache.unusable(&io::Error::other("odd")).hint, None);
    drop(next);
}

#[test]
fn packages_are_listed_and_taken_away_with_the_folders_of_their_names() {
    let (_dir, cache) = cache();
    assert!(cache.list().unwrap().is_empty());
    kept(&cache, "1.0.0", "x");
    kept(&cache, "2.0.0", "x");
    let listed = cache.list().unwrap();
    let versions: Vec<_> = listed.iter().map(|package| package.version.as_str()).collect();
    assert_eq!(versions, ["1.0.0", "2.0.0"]);
    cache.remove(&listed[0]).unwrap();
    assert_eq!(cache.list().unwrap().len(), 1);
    cache.remove(&listed[1]).unwrap();
    assert!(!cache.root.join("npm/@a").try_exists().unwrap());
}

#[test]
fn nothing_is_taken_away_while_somebody_adds() {
    let (_dir, cache) = cache();
    let (first, second) = (cache.adding().unwrap(), cache.adding().unwrap());
    assert!(cache.alone().unwrap().is_none());
    drop((first, second));
    let alone = cache.alone().unwrap();
    assert!(alone.is_some());
}
