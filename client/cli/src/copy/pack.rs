//! Local files and trees as a tar stream.

use std::fs::{self, File, Metadata};
use std::io::{self, BufReader, Read as _, Write};
use std::path::{Path, PathBuf};

use tar::{Builder, EntryType, Header};

use super::pipe::CHUNK_BYTES;
use crate::failure::Failure;

/// A build context is at most 256 MiB as base64 text.
const MAX_CONTEXT_BYTES: usize = 180 << 20;

/// Number of bytes in the files of a tree.
pub(crate) fn size(path: &Path) -> io::Result<u64> {
    let mut total = 0;
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let found = fs::symlink_metadata(&path)?;
        if found.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        } else if found.is_file() {
            total += found.len();
        }
    }
    Ok(total)
}

/// Writes a file or tree under `name`, or the content of a directory without one. Sockets and devices
/// are left out; their paths are returned.
pub(crate) fn pack(out: impl Write, source: &Path, name: Option<&str>) -> io::Result<Vec<PathBuf>> {
    let mut archive = Builder::new(out);
    let mut skipped = Vec::new();
    let mut left = vec![(source.to_owned(), PathBuf::from(name.unwrap_or(".")))];
    while let Some((path, name)) = left.pop() {
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
        // The source itself may be a link to what is meant.
        let found = if path == source {
            fs::metadata(&path)
        } else {
            fs::symlink_metadata(&path)
        };
        let found = found.map_err(named)?;
        if !add(&mut archive, &path, &name, &found).map_err(named)? {
            skipped.push(path);
        } else if found.is_dir() {
            for entry in fs::read_dir(&path).map_err(named)? {
                let entry = entry.map_err(named)?;
                left.push((entry.path(), name.join(entry.file_name())));
            }
        }
    }
    archive.into_inner()?.flush()?;
    Ok(skipped)
}

fn add(
    archive: &mut Builder<impl Write>,
    path: &Path,
    name: &Path,
    found: &Metadata,
) -> io::Result<bool> {
    let mut header = Header::new_gnu();
    header.set_metadata(found);
    // Names and ids of users of this machine mean nothing in a sandbox.
    header.set_uid(0);
    header.set_gid(0);
    if found.is_dir() {
        header.set_size(0);
        archive.append_data(&mut header, name, io::empty())?;
    } else if found.is_symlink() {
        header.set_size(0);
        header.set_entry_type(EntryType::Symlink);
        archive.append_link(&mut header, name, fs::read_link(path)?)?;
    } else if found.is_file() {
        // A file that grows or shrinks meanwhile must not damage the rest of the archive.
        let length = found.len();
        let content = File::open(path)?
            .take(length)
            .chain(io::repeat(0))
            .take(length);
        let content = BufReader::with_capacity(CHUNK_BYTES, content);
        archive.append_data(&mut header, name, content)?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

/// A directory as the context of a build.
pub(crate) async fn context(directory: PathBuf) -> Result<Vec<u8>, Failure> {
    let packed = tokio::task::spawn_blocking(move || {
        let size = size(&directory)?;
        if size > MAX_CONTEXT_BYTES as u64 {
            return Err(io::Error::other(format!(
                "the context has {size} bytes, and the limit is {MAX_CONTEXT_BYTES}"
            )));
        }
        let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        pack(&mut out, &directory, None)?;
        out.finish()
    });
    packed
        .await
        .map_err(|error| Failure::Local(error.to_string()))?
        .map_err(Failure::from)
}
