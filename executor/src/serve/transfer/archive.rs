//! Packs a directory into an archive that is sent while it is made (spec 2.6).
//!
//! Stored, not compressed: the network inside a cluster is faster than a sandbox's share of a
//! processor. What is no file, cannot be read or vanishes meanwhile is left out.

use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use zip::write::{SimpleFileOptions, StreamWriter};
use zip::{CompressionMethod, ZipWriter};

use super::stream::Sink;
use super::time;

/// Longer files need the larger form of an entry.
const LARGE: u64 = u32::MAX as u64;

type Archive<'a> = ZipWriter<StreamWriter<&'a mut Sink>>;

/// Sends every regular file under `root`, by its path relative to it. A root that is no directory
/// gives an empty archive.
pub(in crate::serve) fn send(root: &Path, mut sink: Sink) -> io::Result<()> {
    let sent = pack(root, &mut sink).and_then(|()| sink.flush());
    if let Err(error) = &sent {
        sink.fail(io::Error::new(error.kind(), error.to_string()));
    }
    sent
}

fn pack(root: &Path, sink: &mut Sink) -> io::Result<()> {
    let mut archive = ZipWriter::new_stream(sink);
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

/// In the order of their bytes, so that archives of equal directories are equal.
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
        .last_modified_time(time::of(found.modified().ok()))
        .unix_permissions(found.permissions().mode() & 0o777)
        .large_file(large);
    match archive.start_file(relative.to_string_lossy(), options) {
        Ok(()) => {}
        Err(zip::result::ZipError::Io(error)) => return Err(error),
        // Two names that differ only in what is no Unicode.
        Err(_) => return Ok(()),
    }
    // A file that grows meanwhile must not outgrow the form of its entry.
    copy(file.take(if large { u64::MAX } else { LARGE - 1 }), archive)
}

/// What ends early is sent as far as it could be read.
fn copy(mut file: impl io::Read, archive: &mut Archive<'_>) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(length) => archive.write_all(&buffer[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => {
                tracing::warn!(%error, "a file of a download ends early");
                return Ok(());
            }
        }
    }
}

/// Links lead to files. Opening a pipe or a device must not block.
fn open(path: &Path) -> Option<(File, Metadata)> {
    // What is no file is not even opened: opening alone may have effects.
    fs::metadata(path).ok().filter(Metadata::is_file)?;
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)
        .ok()?;
    let found = file.metadata().ok().filter(Metadata::is_file)?;
    Some((file, found))
}
