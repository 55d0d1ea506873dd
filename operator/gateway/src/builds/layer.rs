//! Layer with the client's program, as the Dockerfile of a build with the same lock files copies it
//! into the image of its parent: `code` of the build context at `/openhands/code`.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io;
use std::path::Path;

use images::{Layer, LayerWriter, Owner};
use tar::EntryType;

use super::context::{ContextEntry, ContextFiles};

/// Directory of the program in a build context, and the parents of its place in an image.
const SOURCE: &str = "code";
const PARENTS: [&str; 2] = ["openhands", "openhands/code"];
/// File that agents may change, as the Dockerfile has it.
const OPEN_FILE: &[u8] = b"openhands/code/openhands/__init__.py";
const OPEN_MODE: u32 = 0o777;
const DIRECTORY_MODE: u32 = 0o755;
/// Names that begin so hide files of lower layers.
const WHITEOUT: &[u8] = b".wh.";

#[derive(Debug, thiserror::Error)]
pub(super) enum LayerError {
    #[error("the build context has no directory {SOURCE:?}")]
    Empty,
    #[error("{0:?} in the build context cannot be in an image")]
    Path(String),
    #[error("the layer cannot be written: {0}")]
    Disk(#[from] io::Error),
}

/// Writes the compressed layer to the file `to`. The directories of `code` replace those of the
/// parent; its files are added.
pub(super) fn write(files: &ContextFiles, owner: Owner, to: &Path) -> Result<Layer, LayerError> {
    let entries = placed(files)?;
    let mut writer = LayerWriter::new(File::create(to)?, owner);
    for parent in PARENTS {
        writer.directory(parent.as_bytes(), DIRECTORY_MODE)?;
    }
    let mut directories: HashSet<&[u8]> = PARENTS.iter().map(|parent| parent.as_bytes()).collect();
    for (path, entry) in &entries {
        let (parent, name) = split(path);
        if name.starts_with(WHITEOUT) || !directories.contains(parent) {
            return Err(path_error(path));
        }
        match entry.kind {
            EntryType::Directory => {
                writer.directory(path, entry.mode)?;
                directories.insert(path);
                if parent == PARENTS[1].as_bytes() {
                    writer.hide_lower(path)?;
                }
            }
            EntryType::Symlink => writer.link(entry.kind, path, &entry.link)?,
            // It may come before its target.
            EntryType::Link => {}
            _ => {
                let is_open = path.as_slice() == OPEN_FILE;
                let mode = if is_open { OPEN_MODE } else { entry.mode };
                writer.file(path, mode, entry.size, files.open(entry)?)?;
            }
        }
    }
    let links = entries
        .iter()
        .filter(|(_, entry)| entry.kind == EntryType::Link);
    for (path, entry) in links {
        let target = place(&entry.link).filter(|target| entries.contains_key(target));
        let target = target.ok_or_else(|| path_error(path))?;
        writer.link(entry.kind, path, &target)?;
    }
    Ok(writer.finish()?.0)
}

/// Entries by their path in the image, parents first. The last one of a path counts.
fn placed(files: &ContextFiles) -> Result<BTreeMap<Vec<u8>, &ContextEntry>, LayerError> {
    let entries = files.entries().iter();
    let placed = entries.filter_map(|entry| Some((place(&entry.path)?, entry)));
    let placed: BTreeMap<_, _> = placed.collect();
    if placed.is_empty() {
        return Err(LayerError::Empty);
    }
    Ok(placed)
}

/// Path in the image of a path in the context; `None` if it is not part of the program.
fn place(path: &[u8]) -> Option<Vec<u8>> {
    let inside = path.strip_prefix(SOURCE.as_bytes())?;
    let inside = inside.strip_prefix(b"/")?;
    Some([PARENTS[1].as_bytes(), b"/", inside].concat())
}

fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let slash = path.iter().rposition(|byte| *byte == b'/');
    slash.map_or((&[], path), |at| (&path[..at], &path[at + 1..]))
}

fn path_error(path: &[u8]) -> LayerError {
    LayerError::Path(String::from_utf8_lossy(path).chars().take(128).collect())
}

#[cfg(test)]
mod tests;
