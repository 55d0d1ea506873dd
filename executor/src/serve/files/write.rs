//! The action `write` (spec 6.3).

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::{FileError, lines, text};
use crate::serve::action::Range;

/// Mode of a new file.
const MODE: u32 = 0o664;

/// Writes whole files or replaces lines. Mode and owner of an existing file stay.
pub(in crate::serve) fn write(path: &Path, content: &str, range: Range) -> Result<(), FileError> {
    let of = |error| FileError::of(error, path);
    if path.is_dir() {
        return Err(FileError::Directory(path.display().to_string()));
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(of)?;
    }
    match text::read(path) {
        Ok(old) => put(path, &lines::replace(&old, content, range), false).map_err(of),
        Err(FileError::NotFound(_)) => {
            put(path, &lines::replace("", content, range), true).map_err(of)
        }
        Err(error) => Err(error),
    }
}

fn put(path: &Path, content: &str, new: bool) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(new)
        .truncate(true)
        .open(path)?;
    file.write_all(content.as_bytes())?;
    if new {
        // The mode at creation passes through the umask.
        file.set_permissions(fs::Permissions::from_mode(MODE))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Range = Range { start: 0, end: -1 };

    #[test]
    fn parents_are_made_and_modes_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a/b.sh");
        let mode = || fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        write(&path, "one\ntwo", ALL).unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), mode()),
            ("one\ntwo\n", 0o664)
        );
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        write(&path, "TWO", Range { start: 1, end: 2 }).unwrap();
        assert_eq!(
            (fs::read_to_string(&path).unwrap().as_str(), mode()),
            ("one\nTWO\n", 0o750)
        );
    }

    #[test]
    fn directories_and_foreign_text_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let error = write(directory.path(), "", ALL).unwrap_err();
        assert!(matches!(error, FileError::Directory(_)));
        let path = directory.path().join("x");
        fs::write(&path, b"\xff").unwrap();
        assert!(matches!(write(&path, "", ALL), Err(FileError::NotText(_))));
    }
}
