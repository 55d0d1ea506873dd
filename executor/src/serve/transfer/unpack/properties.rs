//! Properties of unpacking for property tests and fuzzing: nothing is written outside, no link
//! leads out, the size limit holds, and all valid files exist.

mod archive_script;

use std::ffi::OsString;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Component, Path};

use rustix::fs::FileType;

use self::archive_script::ArchiveEntry;
use super::entry_names::{parts, stays_inside};
use super::unpack_within;

const ALLOWED: u64 = 64 << 10;
/// Links that exist in the destination before the upload.
const READY: [(&str, &str); 2] = [("ready", "../outside"), ("name", "../outside/file")];

/// Checks an archive, or the script of one.
pub fn archive(bytes: &[u8]) {
    let (archive, entries) = if bytes.starts_with(b"PK") {
        (bytes.to_vec(), Vec::new())
    } else {
        let entries = archive_script::parse(bytes);
        (archive_script::pack(&entries), entries)
    };
    unpacked(&archive, &[], true);
    unpacked(&archive, &entries, false);
}

fn unpacked(archive: &[u8], entries: &[ArchiveEntry], prepared: bool) {
    let jail = tempfile::tempdir().expect("a directory");
    let (outside, destination) = (jail.path().join("outside"), jail.path().join("destination"));
    fs::create_dir(&outside).expect("a directory");
    fs::create_dir(&destination).expect("a directory");
    fs::write(outside.join("file"), "kept").expect("a file");
    for (name, target) in READY.iter().filter(|_| prepared) {
        symlink(target, destination.join(name)).expect("a link");
    }
    let mut file = tempfile::tempfile_in(jail.path()).expect("a file");
    file.write_all(archive).expect("a file");
    let outcome = unpack_within(file, Path::new("x.zip"), &destination, ALLOWED);

    assert_eq!(names(jail.path()), ["destination", "outside"]);
    assert_eq!(names(&outside), ["file"]);
    assert_eq!(fs::read(outside.join("file")).expect("a file"), b"kept");
    let root = destination.canonicalize().expect("a directory");
    assert!(inside(&root, Path::new(""), prepared) <= ALLOWED);
    if outcome.is_ok() {
        for entry in entries {
            is_there(&root, entry, entries);
        }
    }
}

fn names(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).expect("a directory");
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("a name").file_name())
        .collect();
    names.sort();
    names
}

/// Checks the tree and returns the size of its files.
fn inside(root: &Path, relative: &Path, prepared: bool) -> u64 {
    let entries = fs::read_dir(root.join(relative)).expect("a directory");
    let mut bytes = 0;
    for entry in entries {
        let entry = entry.expect("a name");
        let found = entry.metadata().expect("there");
        let relative = relative.join(entry.file_name());
        let special = found.permissions().mode() & 0o7000;
        assert_eq!(special, 0, "{}", relative.display());
        if found.is_dir() {
            bytes += inside(root, &relative, prepared);
        } else if found.is_symlink() {
            leads_inside(root, &relative, prepared);
        } else {
            assert!(found.is_file(), "{}", relative.display());
            bytes += found.len();
        }
    }
    bytes
}

fn leads_inside(root: &Path, link: &Path, prepared: bool) {
    let target = fs::read_link(root.join(link)).expect("a link");
    let is = |(name, to): &(&str, &str)| link == Path::new(name) && target == Path::new(to);
    if prepared && READY.iter().any(is) {
        return;
    }
    let depth = link.components().count() - 1;
    assert!(never_above(&target, depth), "{}", target.display());
    if let Ok(found) = root.join(link).canonicalize() {
        assert!(prepared || found.starts_with(root), "{}", found.display());
    }
}

/// Returns whether a path that starts at `depth` never rises above the root, by its text alone.
fn never_above(path: &Path, depth: usize) -> bool {
    let step = |depth: usize, part| match part {
        Component::Normal(_) => Some(depth + 1),
        Component::ParentDir => depth.checked_sub(1),
        Component::CurDir => Some(depth),
        Component::RootDir | Component::Prefix(_) => None,
    };
    path.components().try_fold(depth, step).is_some()
}

/// Asserts that the file exists, unless a later entry has replaced it.
fn is_there(root: &Path, entry: &ArchiveEntry, entries: &[ArchiveEntry]) {
    let Some(path) = parts(&entry.name).filter(|_| entry.kind == FileType::RegularFile) else {
        return;
    };
    let same = |other: &&ArchiveEntry| parts(&other.name).as_ref() == Some(&path);
    let mut others = entries.iter().filter(same);
    if others.all(|other| other.kind == FileType::RegularFile) {
        let last = entries.iter().rfind(same).unwrap_or(entry);
        let found = root.join(path.join("/"));
        assert!(found.symlink_metadata().is_ok_and(|found| found.is_file()));
        assert_eq!(fs::read(&found).expect("a file"), last.content);
    }
}

/// Checks an entry name or the target of a link.
pub(crate) fn name(name: &str) {
    let path = Path::new(name);
    let plain = |part| matches!(part, Component::Normal(_));
    if let Some(parts) = parts(name) {
        let joined = parts.join("/");
        assert!(Path::new(&joined).components().all(plain) && !joined.contains('\0'));
        assert_eq!(Path::new(&joined).components().count(), parts.len());
        assert!(path.is_relative());
    } else {
        let mut components = path.components().filter(|part| *part != Component::CurDir);
        let honest = path.is_relative() && components.clone().all(plain);
        assert!(
            !honest || name.contains('\0') || components.next().is_none(),
            "{name}"
        );
    }
    for depth in 0..4 {
        let stays = stays_inside(name, depth);
        assert!(!stays || (never_above(path, depth) && !name.contains('\0') && !name.is_empty()));
        let never_up = never_above(path, 0) && !name.contains("..");
        assert!(
            stays || !never_up || name.contains('\0') || name.is_empty(),
            "{name}"
        );
    }
}
