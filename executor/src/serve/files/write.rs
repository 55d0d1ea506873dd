//! The action `write` (spec 6.3).

use std::io::Write as _;
use std::path::Path;

use super::charset::Charset;
use super::{Document, FileError, Links, Replacement, lines, make_directories, put, text};
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
        make_directories(parent).map_err(|failure| FileError::System {
            path: failure.path,
            source: failure.source,
        })?;
    }
    match text::bytes(path) {
        Ok(old) => {
            let old = String::from_utf8(old)
                .map_err(|_| FileError::NotText(path.display().to_string()))?;
            let new = lines::replace(&Document::of(Charset::UTF_8, old), content, range);
            put(path, new.raw().as_bytes()).map_err(of)
        }
        Err(FileError::NotFound(_)) => create(path, content),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, content: &str) -> Result<(), FileError> {
    let of = |error| FileError::of(error, path);
    let mut file = Replacement::begin(path, Links::Follow).map_err(of)?;
    file.write_all(content.as_bytes()).map_err(of)?;
    file.write_all(b"\n").map_err(of)?;
    // The mode at creation passes through the umask.
    let mode = file.set_mode(MODE);
    file.commit().map_err(of)?;
    mode.map_err(|source| FileError::Permissions {
        path: path.display().to_string(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

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
