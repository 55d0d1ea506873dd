//! Tests of replacements: kept properties of files, and no files left behind.

use super::*;

fn names(directory: &Path) -> usize {
    fs::read_dir(directory).unwrap().count()
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
