//! Unpacks archives that strangers have made.
//!
//! Names are walked from the destination one part at a time and no link is ever followed, so
//! nothing is written outside, whatever the archive or the destination contain. Entries are read
//! one by one: memory does not grow with their number. How much may come out is bounded before
//! and while it does.

mod directory;
mod names;
#[cfg(any(test, feature = "fuzzing"))]
pub(in crate::serve) mod properties;

use std::fs::File;
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode};
use zip::ZipReadOptions;
use zip::read::{Config, ZipFile};
use zip::result::ZipError;
use zip::unstable::read::ZipIterable;

use self::directory::{create, open_root, remove};
use self::names::{parts, stays_inside};
use super::TransferError;

/// What may come out of any archive.
const FREE: u64 = 1 << 30;
/// And out of a large one, as a multiple of its size.
const RATIO: u64 = 100;
const MAX_ENTRIES: usize = 1_000_000;
/// A longer target of a link is no path.
const MAX_TARGET: u64 = 4096;

type Reader = BufReader<File>;

pub(super) fn unpack(archive: File, path: &Path, destination: &Path) -> Result<(), TransferError> {
    let size = archive.metadata().map_err(TransferError::of(path))?.len();
    let allowed = FREE.max(size.saturating_mul(RATIO));
    unpack_within(archive, path, destination, allowed)
}

fn unpack_within(
    archive: File,
    path: &Path,
    destination: &Path,
    allowed: u64,
) -> Result<(), TransferError> {
    let system = TransferError::of(path);
    let body = BufReader::new(archive.try_clone().map_err(&system)?);
    let mut entries = ZipIterable::try_new(BufReader::new(archive), Config::default())
        .map_err(|error| refused(path, error))?;
    check(&mut entries, path, allowed)?;
    let root = open_root(destination).map_err(TransferError::of(destination))?;
    let mut unpacker = Unpacker {
        path,
        destination,
        root,
        left: allowed,
    };
    // The same positions serve both readers: each seeks before it reads.
    let again = body.get_ref().try_clone().map_err(&system)?;
    unpacker.pass(&mut entries, body, Unpacker::place)?;
    unpacker.pass(&mut entries, BufReader::new(again), Unpacker::finish)
}

/// Looks at what the archive claims before anything is written.
fn check(
    entries: &mut ZipIterable<Reader>,
    path: &Path,
    allowed: u64,
) -> Result<(), TransferError> {
    if entries.len() > MAX_ENTRIES {
        return Err(too_much(path, "entries", MAX_ENTRIES as u64));
    }
    let mut claimed = 0u64;
    for entry in entries.files().map_err(|error| refused(path, error))? {
        let entry = entry.map_err(|error| refused(path, error))?;
        claimed = claimed.saturating_add(entry.size());
    }
    if claimed > allowed {
        return Err(too_much(path, "bytes", allowed));
    }
    Ok(())
}

struct Unpacker<'a> {
    path: &'a Path,
    destination: &'a Path,
    root: OwnedFd,
    /// Bytes that may still come out.
    left: u64,
}

type Entry<'a> = ZipFile<'a, Reader>;

impl Unpacker<'_> {
    fn pass(
        &mut self,
        entries: &mut ZipIterable<Reader>,
        body: Reader,
        step: fn(&mut Self, Entry<'_>, &[&str]) -> Result<(), TransferError>,
    ) -> Result<(), TransferError> {
        let refused = |error| refused(self.path, error);
        let mut entries = entries
            .files_with_reader(body, ZipReadOptions::new())
            .map_err(refused)?;
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(|error| refused_entry(self.path, error))?;
            let name = entry
                .name()
                .map_err(|error| refused_entry(self.path, error))?
                .into_owned();
            if let Some(parts) = parts(&name) {
                step(self, entry, &parts)?;
            }
        }
        Ok(())
    }

    /// First pass: directories and files.
    fn place(&mut self, entry: Entry<'_>, parts: &[&str]) -> Result<(), TransferError> {
        if entry.is_dir() {
            return self.enter(parts).map(drop);
        }
        if entry.is_symlink() {
            return Ok(());
        }
        let Some((name, parents)) = parts.split_last() else {
            return Ok(());
        };
        let parent = self.enter(parents)?;
        let path = self.shown(parts);
        let file = create(&parent, name).map_err(TransferError::of(&path))?;
        let filled = self.fill(entry, file, &path);
        if filled.is_err() {
            let _ = rustix::fs::unlinkat(&parent, *name, AtFlags::empty());
        }
        filled
    }

    fn fill(
        &mut self,
        mut entry: Entry<'_>,
        mut file: File,
        path: &Path,
    ) -> Result<(), TransferError> {
        let mode = entry.unix_mode().map(|mode| mode & 0o777);
        let mut buffer = vec![0; 64 << 10];
        loop {
            let length = entry
                .read(&mut buffer)
                .map_err(|error| self.damaged(path, &error))?;
            if length == 0 {
                break;
            }
            let left = self.left.checked_sub(length as u64);
            self.left = left.ok_or_else(|| too_much(self.path, "bytes", FREE))?;
            file.write_all(&buffer[..length])
                .map_err(TransferError::of(path))?;
        }
        if let Some(mode) = mode.filter(|mode| *mode != 0) {
            // A file system without modes has none to keep.
            let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(mode));
        }
        Ok(())
    }

    /// Second pass: links, which the first could have met, and modes, which could have closed
    /// directories to it.
    fn finish(&mut self, entry: Entry<'_>, parts: &[&str]) -> Result<(), TransferError> {
        let Some((name, parents)) = parts.split_last() else {
            return Ok(());
        };
        if entry.is_symlink() {
            return self.link(entry, parents, name);
        }
        if let Some(mode) = entry
            .unix_mode()
            .filter(|mode| entry.is_dir() && mode & 0o777 != 0)
        {
            let parent = self.enter(parents)?;
            let mode = Mode::from_raw_mode(mode & 0o777 | 0o700);
            let _ = rustix::fs::chmodat(&parent, *name, mode, AtFlags::empty());
        }
        Ok(())
    }

    fn link(&self, entry: Entry<'_>, parents: &[&str], name: &str) -> Result<(), TransferError> {
        let path = self.shown(parents).join(name);
        let mut target = Vec::new();
        entry
            .take(MAX_TARGET)
            .read_to_end(&mut target)
            .map_err(|error| self.damaged(&path, &error))?;
        let target = String::from_utf8(target).unwrap_or_default();
        if !stays_inside(&target, parents.len()) {
            tracing::warn!(link = %path.display(), "a link of an upload leads outside");
            return Ok(());
        }
        let parent = self.enter(parents)?;
        remove(&parent, name)
            .and_then(|()| rustix::fs::symlinkat(target, &parent, name))
            .map_err(|error| TransferError::of(&path)(error.into()))
    }

    fn enter(&self, parts: &[&str]) -> Result<OwnedFd, TransferError> {
        directory::enter(&self.root, parts).map_err(TransferError::of(&self.shown(parts)))
    }

    fn shown(&self, parts: &[&str]) -> PathBuf {
        self.destination.join(parts.join("/"))
    }

    fn damaged(&self, path: &Path, error: &io::Error) -> TransferError {
        TransferError::Archive {
            path: self.path.to_path_buf(),
            reason: format!("{} is damaged: {error}", path.display()),
        }
    }
}

fn refused(path: &Path, error: ZipError) -> TransferError {
    match error {
        ZipError::Io(source) if source.kind() != io::ErrorKind::UnexpectedEof => {
            TransferError::of(path)(source)
        }
        _ => TransferError::NoZip(path.to_path_buf()),
    }
}

fn refused_entry(path: &Path, error: ZipError) -> TransferError {
    match error {
        ZipError::Io(source) => TransferError::of(path)(source),
        other => TransferError::Archive {
            path: path.to_path_buf(),
            reason: other.to_string(),
        },
    }
}

fn too_much(path: &Path, what: &str, limit: u64) -> TransferError {
    TransferError::Archive {
        path: path.to_path_buf(),
        reason: format!("more than {limit} {what} would come out of it"),
    }
}
