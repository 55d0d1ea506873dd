//! A tar stream of a sandbox as local files. The stream is untrusted: names that lead out of the target
//! end the copy, and links that lead out of it are left out.

use std::cell::Cell;
use std::io::{self, BufWriter, Read, Write as _};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use tar::{Archive, Entry, EntryType};

use super::header_limit::{CONTENT, HEADER, LimitedHeaders};
use super::pipe::CHUNK_BYTES;
use super::tree::Tree;

/// Entries that a note names.
const MAX_NOTED: usize = 10;

/// Entries that were left out: links out of the target, devices and the like.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Skipped {
    pub(crate) count: usize,
    pub(crate) first: Vec<PathBuf>,
}

impl Skipped {
    fn add(&mut self, path: &Path) {
        self.count += 1;
        if self.first.len() < MAX_NOTED {
            self.first.push(path.to_owned());
        }
    }
}

/// Unpacks into a directory. The entries are below `source`, which is replaced by `name`; without a name
/// they are those of the directory itself.
pub(crate) fn unpack(
    stream: impl Read,
    directory: &Path,
    source: Option<&str>,
    name: Option<&str>,
) -> io::Result<Skipped> {
    let mut tree = Tree::open(directory)?;
    let mut skipped = Skipped::default();
    let left = Cell::new(HEADER);
    let mut archive = Archive::new(LimitedHeaders::new(stream, &left));
    for entry in archive.entries()? {
        let mut entry = entry?;
        left.set(CONTENT);
        let original = entry.path()?.into_owned();
        let path = renamed(&original, source, name)?;
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("{:?}: {error}", original.display()))
        };
        if !add(&mut tree, &mut entry, &path, source, name).map_err(named)? {
            skipped.add(&original);
        }
        io::copy(&mut entry, &mut io::sink())?;
        left.set(HEADER);
    }
    Ok(skipped)
}

/// Adds an entry. False if it is left out.
fn add(
    tree: &mut Tree,
    entry: &mut Entry<'_, impl Read>,
    path: &Path,
    source: Option<&str>,
    name: Option<&str>,
) -> io::Result<bool> {
    let mode = entry.header().mode().unwrap_or(0o644);
    match entry.header().entry_type() {
        EntryType::Directory => tree.directory(path, mode)?,
        EntryType::Regular | EntryType::Continuous => {
            let file = tree.file(path, mode)?;
            let mut writer = BufWriter::with_capacity(CHUNK_BYTES, &file);
            io::copy(entry, &mut writer)?;
            writer.flush()?;
            drop(writer);
            if let Ok(seconds) = entry.header().mtime() {
                let modified = SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(seconds));
                // A file system may not have this time.
                let _ = modified.map(|modified| file.set_modified(modified));
            }
        }
        EntryType::Symlink => match entry.link_name()? {
            Some(target) if stays_inside(path, &target) => tree.symlink(path, &target)?,
            _ => return Ok(false),
        },
        EntryType::Link => {
            let target = entry.link_name()?;
            return match target.map(|target| renamed(&target, source, name)) {
                Some(Ok(target)) => tree.hard_link(path, &target),
                _ => Ok(false),
            };
        }
        EntryType::XGlobalHeader => {}
        // A few bytes would become as many zeros as the disk has room for.
        EntryType::GNUSparse => {
            return Err(io::Error::other("sparse files are not accepted"));
        }
        _ => return Ok(false),
    }
    Ok(true)
}

/// Path of an entry below the target.
fn renamed(path: &Path, source: Option<&str>, name: Option<&str>) -> io::Result<PathBuf> {
    let outside = || {
        io::Error::other(format!(
            "the archive has an entry outside of the source: {:?}",
            path.display()
        ))
    };
    let mut parts = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            _ => return Err(outside()),
        }
    }
    let mut parts = parts.into_iter();
    if let Some(source) = source
        && parts.next().is_none_or(|first| first != source)
    {
        return Err(outside());
    }
    Ok(name.map(AsRef::as_ref).into_iter().chain(parts).collect())
}

/// True if a link stays below the target. `..` counts only at the beginning: the directory of the link is
/// a real one, while those that its target names may be links themselves.
fn stays_inside(link: &Path, target: &Path) -> bool {
    let mut depth = link.components().count().saturating_sub(1);
    let mut descends = false;
    for part in target.components() {
        match part {
            Component::ParentDir if !descends && depth > 0 => depth -= 1,
            Component::CurDir => {}
            Component::Normal(_) => descends = true,
            _ => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests;
