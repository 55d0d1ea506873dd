//! Paths of entries.

use crate::unpack::UnpackError;
use crate::unpack::entry::shown;

/// Bytes of a path, as in the kernel.
pub(super) const MAX_PATH: u64 = 4096;
const MAX_NAME: u64 = 255;
/// Parts of a path.
pub(in crate::unpack) const MAX_DEPTH: u64 = 512;

pub(super) fn within(what: &'static str, size: u64, limit: u64) -> Result<(), UnpackError> {
    if size > limit {
        return Err(UnpackError::TooLong { what, size, limit });
    }
    Ok(())
}

pub(super) fn bounded_link(target: Vec<u8>) -> Result<Vec<u8>, UnpackError> {
    within("link target", target.len() as u64, MAX_PATH - 1)?;
    if target.is_empty() || target.contains(&0) {
        return Err(UnpackError::Format("link target"));
    }
    Ok(target)
}

/// The path relative to the root, without `.`, `..` and empty parts. One that leaves the root is
/// refused; a leading `/` is that of the image.
pub(super) fn clean(path: &[u8]) -> Result<Vec<u8>, UnpackError> {
    within("path", path.len() as u64, MAX_PATH)?;
    if path.contains(&0) {
        return Err(UnpackError::Format("path"));
    }
    let mut parts: Vec<&[u8]> = Vec::new();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." => {
                let left = parts.pop();
                left.ok_or_else(|| UnpackError::Path(shown(path)))?;
            }
            _ => {
                within("name", part.len() as u64, MAX_NAME)?;
                parts.push(part);
            }
        }
    }
    within("depth of a path", parts.len() as u64, MAX_DEPTH)?;
    Ok(parts.join(&b'/'))
}
