//! Packs a directory into a streamed archive (`docs/specs/executor.md`, section 2.6).
//!
//! Entries are stored, not compressed: the cluster network is faster than a sandbox's share of a
//! CPU. Special files, unreadable files and files that vanish are left out.

use std::fs::{self, File, Metadata};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, ZipWriter};

use super::stream::ArchiveWriter;
use super::zip_time;
use crate::serve::files;

/// Size from which an entry needs the zip64 format.
const LARGE: u64 = u32::MAX as u64;

type Archive<'a> = ZipWriter<StreamWriter<&'a mut ArchiveWriter>>;

/// Sends every regular file under `root` with its relative path, or `root` itself if it is a file.
pub(crate) fn send(root: &Path, mut sink: ArchiveWriter) -> io::Result<()> {
    let sent = pack(root, &mut sink).and_then(|()| sink.flush());
    if let Err(error) = &sent {
        sink.fail(io::Error::new(error.kind(), error.to_string()));
    }
    sent
}

fn pack(root: &Path, sink: &mut ArchiveWriter) -> io::Result<()> {
    let mut archive = ZipWriter::new_stream(sink);
    if let (true, Some(name)) = (root.is_file(), root.file_name()) {
        add(&mut archive, root, Path::new(name))?;
    }
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        for name in names(&root.join(&directory)) {
            let relative = directory.join(name);
            let path = root.join(&relative);
            match fs::symlink_metadata(&path) {
                Ok(found) if found.is_dir() => directories.push(relative),
                Ok(_) => add(&mut archive, &path, &relative)?,
                Err(_) => {}
            }
        }
    }
    archive.finish()?;
    Ok(())
}

/// Names in byte order, so that equal directories give equal archives.
fn names(directory: &Path) -> Vec<std::ffi::OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort_unstable();
    names
}

fn add(archive: &mut Archive<'_>, path: &Path, relative: &Path) -> io::Result<()> {
    let Some((file, found)) = open(path) else {
        return Ok(());
    };
    let large = found.len() >= LARGE;
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .last_modified_time(zip_time::of(found.modified().ok()))
        .unix_permissions(found.permissions().mode() & 0o777)
        .large_file(large);
    match archive.start_file(relative.to_string_lossy(), options) {
        Ok(()) => {}
        Err(zip::result::ZipError::Io(error)) => return Err(error),
        // A duplicate: two names that differ only in bytes that are not UTF-8.
        Err(_) => return Ok(()),
    }
    // A growing file must not exceed the format that its entry was started with.
    copy(file.take(if large { u64::MAX } else { LARGE - 1 }), archive)
}

/// Copies a file. A read error truncates the entry instead of failing the archive.
fn copy(mut file: impl io::Read, archive: &mut Archive<'_>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => archive.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "a file of a download is truncated");
                return Ok(());
            }
        }
    }
}

/// Opens a regular file, following links.
fn open(path: &Path) -> Option<(File, Metadata)> {
    // Checked first, because opening a device may have effects.
    fs::metadata(path).ok().filter(Metadata::is_file)?;
    let file = files::open(path).ok()?;
    let found = file.metadata().ok().filter(Metadata::is_file)?;
    Some((file, found))
}
