//! What the user `nobody` may do with a file or folder, who is who servers run as where Gantry is root: by the bits of its mode, and
//! by its access control list where it has one, because that is how one user is let in without all others.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// The user and the group.
pub(super) const NOBODY: u32 = 65_534;
/// Entries below a folder that are looked at.
const LOOKED_AT_MAX: usize = 1_000;
/// Bytes of a list that are read; longer ones are few, and then the mode alone speaks.
const LIST_BYTES_MAX: usize = 4 << 10;
const LIST_VERSION: u32 = 2;
const LIST_NAME: &str = "system.posix_acl_access";

/// Rights, in the bits of one class of a mode.
pub(super) const READ: u32 = 0o4;
pub(super) const WRITE: u32 = 0o2;
const SEARCH: u32 = 0o1;

/// Who an entry of a list is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whom {
    Owner,
    User(u32),
    OwningGroup,
    Group(u32),
    Mask,
    Others,
}

/// May nobody do that? Whoever uses a folder has to look things up in it, too.
pub(super) fn may(path: &Path, found: &Metadata, rights: u32) -> bool {
    let needed = if found.is_dir() { rights | SEARCH } else { rights };
    let allowed = match list_of(path) {
        Some(list) => by_list(&list, found.uid(), found.gid()),
        None => by_mode(found.mode(), found.uid(), found.gid()),
    };
    allowed & needed == needed
}

/// Something below a folder that its owner writes, that everybody may read, and that nobody could not write. What is for its owner
/// alone is meant to be; links are not followed.
pub(super) fn closed_below(folder: &Path) -> Option<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let mut left = LOOKED_AT_MAX;
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
        for entry in entries {
            left = left.checked_sub(1)?;
            let Ok(found) = entry.metadata() else { continue };
            if found.is_symlink() {
                continue;
            }
            let is_written = found.mode() & 0o200 != 0;
            let is_open = found.mode() & READ != 0;
            if is_written && is_open && !may(&entry.path(), &found, READ | WRITE) {
                return Some(entry.path());
            }
            if found.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    None
}

fn by_mode(mode: u32, owner: u32, group: u32) -> u32 {
    let shift = match (owner == NOBODY, group == NOBODY) {
        (true, _) => 6,
        (false, true) => 3,
        (false, false) => 0,
    };
    (mode >> shift) & 0o7
}

/// The rules of acl(5).
fn by_list(list: &[(Whom, u32)], owner: u32, group: u32) -> u32 {
    let of = |whom: Whom| list.iter().find(|(one, _)| *one == whom).map(|(_, rights)| *rights);
    let mask = of(Whom::Mask).unwrap_or(0o7);
    if owner == NOBODY {
        return of(Whom::Owner).unwrap_or_default();
    }
    if let Some(rights) = of(Whom::User(NOBODY)) {
        return rights & mask;
    }
    let of_group = of(Whom::OwningGroup).filter(|_| group == NOBODY);
    match (of_group, of(Whom::Group(NOBODY))) {
        (None, None) => of(Whom::Others).unwrap_or_default(),
        (one, other) => (one.unwrap_or_default() | other.unwrap_or_default()) & mask,
    }
}

fn list_of(path: &Path) -> Option<Vec<(Whom, u32)>> {
    let mut bytes = vec![0; LIST_BYTES_MAX];
    let length = rustix::fs::getxattr(path, LIST_NAME, &mut bytes[..]).ok()?;
    read_list(bytes.get(..length)?)
}

/// The list as Linux keeps it: a version, then entries of a tag, rights and an id.
fn read_list(bytes: &[u8]) -> Option<Vec<(Whom, u32)>> {
    let (version, entries) = bytes.split_first_chunk::<4>()?;
    if u32::from_le_bytes(*version) != LIST_VERSION {
        return None;
    }
    let entry = |bytes: &[u8; 8]| {
        let [t0, t1, r0, r1, i0, i1, i2, i3] = *bytes;
        let id = u32::from_le_bytes([i0, i1, i2, i3]);
        let whom = match u16::from_le_bytes([t0, t1]) {
            0x01 => Whom::Owner,
            0x02 => Whom::User(id),
            0x04 => Whom::OwningGroup,
            0x08 => Whom::Group(id),
            0x10 => Whom::Mask,
            0x20 => Whom::Others,
            _ => return None,
        };
        Some((whom, u32::from(u16::from_le_bytes([r0, r1]))))
    };
    let (entries, rest) = entries.as_chunks::<8>();
    rest.is_empty().then(|| entries.iter().map(entry).collect::<Option<Vec<_>>>()).flatten()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    /// `user::rwx,user:65534:rwx,group::r-x,mask::rwx,other::---`, as `setfacl -m u:65534:rwX` leaves it.
    fn list(mask: u8) -> Vec<u8> {
        let mut bytes = LIST_VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in [
            (1u16, 7u16, u32::MAX),
            (2, 7, NOBODY),
            (4, 5, u32::MAX),
            (0x10, mask.into(), u32::MAX),
            (0x20, 0, u32::MAX),
        ] {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    #[test]
    fn a_list_lets_one_user_in_that_the_mode_does_not() {
        let open = read_list(&list(7)).unwrap();
        assert_eq!(by_list(&open, 1_000, 1_000), 7);
        assert_eq!(by_mode(0o770, 1_000, 1_000), 0);
        // The mask is above the entry.
        assert_eq!(by_list(&read_list(&list(5)).unwrap(), 1_000, 1_000), 5);
        let others =
            [(Whom::Owner, 7), (Whom::User(1_001), 7), (Whom::OwningGroup, 5), (Whom::Mask, 7), (Whom::Others, 4)];
        assert_eq!(
            (by_list(&others, 1_000, 1_000), by_list(&others, 1_000, NOBODY), by_list(&others, NOBODY, 0)),
            (4, 5, 7)
        );
        let mut odd = list(7);
        odd.pop();
        assert!(read_list(&odd).is_none() && read_list(&[]).is_none() && read_list(&[1, 0, 0, 0]).is_none());
    }

    #[test]
    fn what_others_own_is_judged_by_its_mode() {
        for (mode, owner, group, expected) in
            [(0o750, 1, 1, 0), (0o755, 1, 1, 5), (0o750, NOBODY, 1, 7), (0o750, 1, NOBODY, 5), (0o707, 1, NOBODY, 0)]
        {
            assert_eq!(by_mode(mode, owner, group), expected, "{mode:o} {owner} {group}");
        }
    }

    #[test]
    fn what_could_not_be_written_below_a_folder_is_found_and_what_is_private_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let set = |path: &Path, mode: u32| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        for name in ["private", "frozen", "open"] {
            std::fs::write(inner.join(name), name).unwrap();
        }
        set(&inner, 0o777);
        set(&inner.join("private"), 0o600);
        set(&inner.join("frozen"), 0o444);
        set(&inner.join("open"), 0o666);
        std::os::unix::fs::symlink("/etc/passwd", inner.join("link")).unwrap();
        assert_eq!(closed_below(dir.path()), None);
        std::fs::write(inner.join("list.md"), "x").unwrap();
        set(&inner.join("list.md"), 0o644);
        assert_eq!(closed_below(dir.path()), Some(inner.join("list.md")));
    }
}
