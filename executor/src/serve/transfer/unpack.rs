//! Unpacks untrusted archives.
//!
//! Paths are walked from the destination, component by component, without following links, so that
//! nothing is written outside. Memory does not grow with the number of entries. The unpacked size
//! is limited by the claimed sizes before, and by the actual ones during, unpacking.

mod entry_names;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod properties;

use std::fs::File;
use std::io::{self, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use zip::read::{Config, ZipFile, ZipFileEntry};
use zip::result::ZipError;
use zip::unstable::read::ZipIterable;
use zip::{CompressionMethod, ZipReadOptions};

use self::entry_names::{parts, stays_inside};
use super::error::TransferError;

/// Unpacked bytes that every archive may have.
const MIN_ALLOWED_BYTES: u64 = 1 << 30;
/// Unpacked bytes of a large archive, as a multiple of its size.
const MAX_EXPANSION_RATIO: u64 = 100;
const MAX_ENTRIES: usize = 1_000_000;
/// Longest target of a link (`PATH_MAX`).
const MAX_TARGET: u64 = 4096;

/// Methods whose memory the archive cannot choose, unlike that of LZMA.
const METHODS: [CompressionMethod; 3] = [
    CompressionMethod::Stored,
    CompressionMethod::Deflated,
    CompressionMethod::Bzip2,
];

type Reader = BufReader<File>;

pub(super) fn unpack(archive: File, path: &Path, destination: &Path) -> Result<(), TransferError> {
    let size = archive.metadata().map_err(TransferError::of(path))?.len();
    let allowed = MIN_ALLOWED_BYTES.max(size.saturating_mul(MAX_EXPANSION_RATIO));
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
    // The readers may share a file position: each one seeks before it reads.
    let again = body.get_ref().try_clone().map_err(&system)?;
    unpacker.pass(&mut entries, body, Unpacker::extract)?;
    unpacker.pass(&mut entries, BufReader::new(again), Unpacker::finish)
}

/// Checks the claimed number and sizes of the entries before anything is written.
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
        if entry.encrypted() || !METHODS.contains(&entry.compression()) {
            return Err(unsupported(path, &entry));
        }
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
    /// Bytes that may still be written.
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
    fn extract(&mut self, entry: Entry<'_>, parts: &[&str]) -> Result<(), TransferError> {
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
        let filled = self.write_file(entry, file, &path);
        if filled.is_err() {
            let _ = rustix::fs::unlinkat(&parent, *name, AtFlags::empty());
        }
        filled
    }

    fn write_file(
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
            self.left = left.ok_or_else(|| too_much(self.path, "bytes", MIN_ALLOWED_BYTES))?;
            file.write_all(&buffer[..length])
                .map_err(TransferError::of(path))?;
        }
        if let Some(mode) = mode.filter(|mode| *mode != 0) {
            // Ignored on file systems without modes.
            let _ = rustix::fs::fchmod(&file, Mode::from_raw_mode(mode));
        }
        Ok(())
    }

    /// Second pass: links, which the first must not meet, and modes that could close directories.
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
            tracing::warn!(link = %path.display(), "skipped a link of an upload that leads outside");
            return Ok(());
        }
        let parent = self.enter(parents)?;
        remove(&parent, name)
            .and_then(|()| rustix::fs::symlinkat(target, &parent, name))
            .map_err(|error| TransferError::of(&path)(error.into()))
    }

    fn enter(&self, parts: &[&str]) -> Result<OwnedFd, TransferError> {
        open_directory(&self.root, parts).map_err(TransferError::of(&self.shown(parts)))
    }

    fn shown(&self, parts: &[&str]) -> PathBuf {
        self.destination.join(parts.join("/"))
    }

    fn damaged(&self, path: &Path, error: &io::Error) -> TransferError {
        let reason = format!("{} is damaged: {error}", path.display());
        TransferError::archive(self.path, reason)
    }
}

/// Opens a directory below `root`, creates missing ones, and follows no links.
fn open_directory(root: &OwnedFd, parts: &[&str]) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut directory = root.try_clone()?;
    for part in parts {
        let open = || rustix::fs::openat(&directory, *part, flags, Mode::empty());
        let next = match open() {
            Err(Errno::NOENT) => {
                rustix::fs::mkdirat(&directory, *part, Mode::from_raw_mode(0o777))?;
                open()
            }
            other => other,
        };
        directory = next?;
    }
    Ok(directory)
}

fn open_root(destination: &Path) -> io::Result<OwnedFd> {
    // Links in the destination path itself are followed: the client has chosen it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::openat(CWD, destination, flags, Mode::empty())?)
}

/// Creates a file and replaces an existing one or a link.
fn create(parent: &OwnedFd, name: &str) -> io::Result<File> {
    remove(parent, name)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::from_raw_mode(0o644))?;
    Ok(file.into())
}

fn remove(parent: &OwnedFd, name: &str) -> rustix::io::Result<()> {
    match rustix::fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(Errno::NOENT) => Ok(()),
        other => other,
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
        other => TransferError::archive(path, other.to_string()),
    }
}

fn unsupported(path: &Path, entry: &ZipFileEntry<'_>) -> TransferError {
    let name = String::from_utf8_lossy(entry.name_raw());
    let reason = match entry.compression() {
        _ if entry.encrypted() => format!("{name:?} is encrypted, which is not supported"),
        method => format!(
            "{name:?} is compressed with {method}, which is not supported: use Deflated, Bzip2 or Stored"
        ),
    };
    TransferError::archive(path, reason)
}

fn too_much(path: &Path, what: &str, limit: u64) -> TransferError {
    TransferError::archive(
        path,
        format!("more than {limit} {what} would come out of it"),
    )
}
