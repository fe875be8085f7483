//! Archives that behave, and archives that do not.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

/// An entry of an archive, with a name that no decent program would write.
struct Item<'i> {
    name: &'i str,
    kind: EntryType,
    mode: u32,
    link: &'i str,
    contents: &'i [u8],
}

fn file<'i>(name: &'i str, contents: &'i str) -> Item<'i> {
    Item { name, kind: EntryType::Regular, mode: 0o644, link: "", contents: contents.as_bytes() }
}

fn other<'i>(name: &'i str, kind: EntryType, link: &'i str) -> Item<'i> {
    Item { name, kind, mode: 0o755, link, contents: b"" }
}

fn archive(items: &[Item<'_>]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for item in items {
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(item.kind);
        header.set_mode(item.mode);
        header.set_size(item.contents.len() as u64);
        let old = header.as_old_mut();
        old.name[..item.name.len()].copy_from_slice(item.name.as_bytes());
        old.linkname[..item.link.len()].copy_from_slice(item.link.as_bytes());
        header.set_cksum();
        builder.append(&header, item.contents).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Unpacks archives over each other; every second one compressed.
fn unpacked(archives: &[Vec<u8>]) -> (tempfile::TempDir, Result<(), LayerError>) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("layout/blobs/sha256")).unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    let layers: Vec<Layer> = archives
        .iter()
        .enumerate()
        .map(|(number, archive)| {
            let gzip = number % 2 == 1;
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(archive).unwrap();
            let blob = if gzip { encoder.finish().unwrap() } else { archive.clone() };
            let digest = lower_hex(&Sha256::digest(&blob));
            fs::write(layout::blob_path(&dir.path().join("layout"), &digest), &blob).unwrap();
            Layer { digest, size: blob.len() as u64, gzip }
        })
        .collect();
    let result = unpack_all(&dir.path().join("layout"), &layers, &dir.path().join("root"));
    (dir, result)
}

fn names(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            found.push(entry.path().strip_prefix(root).unwrap().display().to_string());
            if entry.file_type().unwrap().is_dir() {
                open.push(entry.path());
            }
        }
    }
    found.sort();
    found
}

#[test]
fn layers_lie_over_each_other_and_hide_what_they_say() {
    let (dir, result) = unpacked(&[
        archive(&[
            other("./", EntryType::Directory, ""),
            other("etc/", EntryType::Directory, ""),
            file("etc/old", "old"),
            file("etc/kept", "kept"),
            file("data/a", "a"),
            file("data/b", "b"),
            other("lib", EntryType::Symlink, "usr/lib"),
            other("usr/lib/", EntryType::Directory, ""),
            file("was-file", "x"),
        ]),
        archive(&[
            file("etc/.wh.old", ""),
            file("data/new", "new"),
            // After what the same layer brings: hides only what lies below.
            file("data/.wh..wh..opq", ""),
            // Through a link of the layer below, to where it leads inside.
            file("lib/c.so", "c"),
            file("etc/kept", "changed"),
            file("was-file/now-in-a-directory", "y"),
            other("etc/hard", EntryType::Link, "etc/kept"),
        ]),
    ]);
    result.unwrap();
    let root = dir.path().join("root");
    let expected = [
        "data",
        "data/new",
        "etc",
        "etc/hard",
        "etc/kept",
        "lib",
        "usr",
        "usr/lib",
        "usr/lib/c.so",
        "was-file",
        "was-file/now-in-a-directory",
    ];
    assert_eq!(names(&root), expected);
    assert_eq!(fs::read_to_string(root.join("etc/hard")).unwrap(), "changed");
}

#[test]
fn names_that_lead_out_refuse_the_image() {
    for hostile in [
        file("../escape", "x"),
        file("/escape", "x"),
        file("a/../../escape", "x"),
        file("../.wh.escape", ""),
        other("hard", EntryType::Link, "../../escape"),
        other("hard", EntryType::Link, "/etc/passwd"),
        file(".wh...", ""),
    ] {
        let (dir, result) = unpacked(&[archive(&[hostile])]);
        assert!(matches!(result, Err(LayerError::Escape)), "{result:?}");
        assert!(!dir.path().join("escape").try_exists().unwrap());
    }
}

#[test]
fn links_lead_nowhere_but_inside() {
    let (dir, result) = unpacked(&[
        archive(&[
            other("up", EntryType::Symlink, "../.."),
            other("absolute", EntryType::Symlink, "/outside"),
            other("outside/", EntryType::Directory, ""),
            file("absolute/file", "inside"),
            file("up/file", "inside"),
        ]),
        // Replaces the link itself, not what it points to; hides a link, not what is behind it.
        archive(&[file("up", "a file now"), file(".wh.absolute", "")]),
    ]);
    result.unwrap();
    let root = dir.path().join("root");
    assert_eq!(names(&root), ["file", "outside", "outside/file", "up"]);
    assert_eq!(names(dir.path()).iter().filter(|name| name.ends_with("/file")).count(), 2);
}

#[test]
fn devices_and_special_permissions_are_left_out() {
    let special = Item { mode: 0o6755, ..file("setuid", "x") };
    let closed = Item { mode: 0o000, ..other("closed/", EntryType::Directory, "") };
    let (dir, result) = unpacked(&[archive(&[
        special,
        closed,
        file("closed/file", "x"),
        other("null", EntryType::Char, ""),
        other("disk", EntryType::Block, ""),
        other("pipe", EntryType::Fifo, ""),
    ])]);
    result.unwrap();
    let root = dir.path().join("root");
    assert_eq!(names(&root), ["closed", "closed/file", "setuid"]);
    assert_eq!(fs::metadata(root.join("setuid")).unwrap().permissions().mode() & 0o7777, 0o755);
}

#[test]
fn a_layer_that_is_not_what_its_digest_says_makes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("layout/blobs/sha256")).unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    let blob = archive(&[file("a", "a")]);
    let layer = Layer { digest: "0".repeat(64), size: blob.len() as u64, gzip: false };
    fs::write(layout::blob_path(&dir.path().join("layout"), &layer.digest), &blob).unwrap();
    let result = unpack_all(&dir.path().join("layout"), &[layer], &dir.path().join("root"));
    assert!(matches!(result, Err(LayerError::Mismatch)), "{result:?}");
    assert!(names(&dir.path().join("root")).is_empty());
}

#[test]
fn an_archive_that_is_cut_off_or_garbage_is_an_error() {
    let whole = archive(&[file("a", &"x".repeat(5000))]);
    for blob in [whole[..1500].to_vec(), vec![0x41; 2048]] {
        let (_dir, result) = unpacked(&[blob]);
        assert!(matches!(result, Err(LayerError::Io(_))), "{result:?}");
    }
}
