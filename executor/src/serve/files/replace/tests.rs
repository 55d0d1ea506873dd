//! Tests of replacements: kept properties of files, and no files left behind.

use std::os::unix::fs::symlink;

use super::*;

fn names(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
}

#[test]
fn replacement_keeps_mode_and_links() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("a"), "old").unwrap();
    fs::set_permissions(at("a"), Permissions::from_mode(0o751)).unwrap();
    symlink("a", at("link")).unwrap();
    replace_file(&at("link"), b"new").unwrap();
    assert!(at("link").is_symlink());
    assert_eq!(fs::read(at("a")).unwrap(), b"new");
    assert_eq!(fs::metadata(at("a")).unwrap().mode() & 0o7777, 0o751);
    fs::hard_link(at("a"), at("b")).unwrap();
    replace_file(&at("b"), b"both").unwrap();
    assert_eq!(fs::read(at("a")).unwrap(), b"both");
    symlink("nothing", at("dangling")).unwrap();
    replace_file(&at("dangling"), b"made").unwrap();
    assert_eq!(fs::read(at("nothing")).unwrap(), b"made");
    assert_eq!(names(directory.path()), 5);
}

#[test]
fn dropped_replacement_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::write(&path, "old").unwrap();
    let mut replacement = Replacement::begin(&path, SymlinkPolicy::Follow).unwrap();
    replacement.file.write_all(b"half").unwrap();
    drop(replacement);
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(directory.path()), 1);
    assert!(replace_file(directory.path(), b"").is_err());
}

/// Simulates a killed process.
#[test]
fn aborted_replacement_leaves_no_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a");
    fs::write(&path, "old").unwrap();
    for name in ["a", "new"] {
        let path = directory.path().join(name);
        let mut replacement = Replacement::begin(&path, SymlinkPolicy::Follow).unwrap();
        replacement.file.write_all(b"half").unwrap();
        std::mem::forget(replacement);
    }
    assert_eq!(fs::read(&path).unwrap(), b"old");
    assert_eq!(names(directory.path()), 1);
}

/// Covers file systems without unnamed files, and files that cannot be linked.
#[test]
fn replacement_works_without_unnamed_files() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for target in ["new", "new"] {
        let (file, path) = create(&at(target), 0o640).unwrap();
        let mut replacement = Replacement {
            file,
            staging: Staging::Beside(path),
            target: at(target),
        };
        replacement.file.write_all(b"whole").unwrap();
        replacement.commit().unwrap();
    }
    for target in ["new", "copied"] {
        let mut replacement = Replacement::begin(&at(target), SymlinkPolicy::Follow).unwrap();
        replacement.file.write_all(b"more").unwrap();
        replacement.copy().unwrap();
        assert_eq!(fs::read(at(target)).unwrap(), b"more");
    }
    assert_eq!(names(directory.path()), 2);
}

#[test]
fn link_is_replaced_with_replace_policy() {
    let directory = tempfile::tempdir().unwrap();
    let (path, link) = (directory.path().join("a"), directory.path().join("l"));
    fs::write(&path, "old").unwrap();
    symlink(&path, &link).unwrap();
    let mut replacement = Replacement::begin(&link, SymlinkPolicy::Replace).unwrap();
    replacement.file.write_all(b"new").unwrap();
    replacement.commit().unwrap();
    assert_eq!(
        (fs::read(&path).unwrap(), fs::read(&link).unwrap()),
        (b"old".to_vec(), b"new".to_vec())
    );
}
