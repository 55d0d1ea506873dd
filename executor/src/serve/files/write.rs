//! The action `write` (`docs/specs/executor.md`, section 6.3).

use std::io::Write as _;
use std::path::Path;

use super::charset::Charset;
use super::directories::make as make_directories;
use super::error::FileError;
use super::replace::{Replacement, SymlinkPolicy, replace_file};
use super::text_document::TextDocument;
use super::{lines, text};
use crate::serve::action::Range;

/// Mode of a new file, independent of the umask.
const MODE: u32 = 0o664;

/// Writes a whole file or replaces lines. An existing file keeps mode and owner.
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
            let new = lines::replace(&TextDocument::of(Charset::UTF_8, old), content, range);
            replace_file(path, new.raw().as_bytes()).map_err(of)
        }
        Err(FileError::NotFound(_)) => create(path, content),
        Err(error) => Err(error),
    }
}

fn create(path: &Path, content: &str) -> Result<(), FileError> {
    let of = |error| FileError::of(error, path);
    let mut file = Replacement::begin(path, SymlinkPolicy::Follow).map_err(of)?;
    file.write_all(content.as_bytes()).map_err(of)?;
    file.write_all(b"\n").map_err(of)?;
    // The umask applies to the mode at creation.
    let mode = file.set_mode(MODE);
    file.commit().map_err(of)?;
    mode.map_err(|source| FileError::Permissions {
        path: path.display().to_string(),
        source,
    })
}
