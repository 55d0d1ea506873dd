//! Zip archives of uploads and downloads. Archives of a sandbox are untrusted: each name must stay
//! below the destination, links are not followed, nothing but files and directories is made, and
//! the unpacked size is limited.

use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Component, Path, PathBuf};

use bytes::Bytes;
use futures::StreamExt as _;
use futures::stream;
use tempfile::NamedTempFile;
use tokio::io::AsyncReadExt as _;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipArchive, ZipWriter};

use crate::Error;

const CHUNK_BYTES: usize = 64 << 10;
/// Files from this size on need the format for large ones.
const LARGE_BYTES: u64 = 4 << 30;
/// Unpacked bytes that every archive may have, as in the server of a sandbox.
const MIN_ALLOWED_BYTES: u64 = 1 << 30;
/// Unpacked bytes of a large archive, as a multiple of its size.
const MAX_EXPANSION_RATIO: u64 = 100;

/// Form with an archive.
pub(super) struct Form {
    pub(super) body: reqwest::Body,
    pub(super) length: u64,
}

/// Packs a file or tree under `name`, on a thread for blocking work.
pub(super) async fn pack(local: &Path, name: &str) -> Result<NamedTempFile, Error> {
    let (local, name) = (local.to_owned(), name.to_owned());
    blocking(move || pack_blocking(&local, &name)).await
}

/// Unpacks an archive into `local`.
pub(super) async fn unpack(archive: NamedTempFile, local: &Path) -> Result<(), Error> {
    let local = local.to_owned();
    blocking(move || unpack_blocking(archive.as_file(), &local)).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(Error::Archive(error.to_string())))
}

/// The form of an upload, with the archive as it is on disk.
pub(super) fn form(
    path: &Path,
    length: u64,
    boundary: &str,
    report: impl Fn(u64) + Send + 'static,
) -> Result<Form, Error> {
    let head = format!(
        "--{boundary}\r\nContent-Disposition: form-data; name=\"file\"; filename=\"upload.zip\"\r\n\
         Content-Type: application/zip\r\n\r\n"
    );
    let tail = format!("\r\n--{boundary}--\r\n");
    let total = length + (head.len() + tail.len()) as u64;
    let file = File::open(path).map_err(Error::file(path))?;
    let file = tokio::fs::File::from_std(file);
    let content = stream::try_unfold((file, 0), move |(mut file, sent)| {
        report(sent);
        async move {
            let mut chunk = vec![0; CHUNK_BYTES];
            let read = file.read(&mut chunk).await?;
            chunk.truncate(read);
            let sent = sent + read as u64;
            Ok::<_, io::Error>((read > 0).then(|| (Bytes::from(chunk), (file, sent))))
        }
    });
    let part = |text: String| stream::once(async { Ok::<_, io::Error>(Bytes::from(text)) });
    let body = part(head).chain(content).chain(part(tail)).boxed();
    Ok(Form {
        body: reqwest::Body::wrap_stream(body),
        length: total,
    })
}

fn pack_blocking(local: &Path, name: &str) -> Result<NamedTempFile, Error> {
    let file = NamedTempFile::new().map_err(Error::file(&std::env::temp_dir()))?;
    let reopened = file.reopen().map_err(Error::file(file.path()))?;
    let mut archive = ZipWriter::new(BufWriter::new(reopened));
    let mut left = vec![(local.to_owned(), name.to_owned())];
    while let Some((path, name)) = left.pop() {
        add(&mut archive, &path, &name, &mut left).map_err(Error::file(&path))?;
    }
    let mut out = archive
        .finish()
        .map_err(|error| Error::Archive(error.to_string()))?;
    out.flush().map_err(Error::file(file.path()))?;
    Ok(file)
}

fn add(
    archive: &mut ZipWriter<BufWriter<File>>,
    path: &Path,
    name: &str,
    left: &mut Vec<(PathBuf, String)>,
) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    let options = SimpleFileOptions::default()
        .compression_method(CompressionMethod::Stored)
        .unix_permissions(found.permissions().mode() & 0o777)
        .large_file(found.len() >= LARGE_BYTES);
    if found.is_symlink() {
        archive.add_symlink(name, text(fs::read_link(path)?.into_os_string())?, options)?;
    } else if found.is_dir() {
        archive.add_directory(name, options)?;
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            left.push((entry.path(), format!("{name}/{}", text(entry.file_name())?)));
        }
    } else if found.is_file() {
        archive.start_file(name, options)?;
        io::copy(&mut File::open(path)?, archive)?;
    }
    Ok(())
}

fn text(name: std::ffi::OsString) -> io::Result<String> {
    let refused = |name: std::ffi::OsString| {
        let text = format!(
            "the name {} is not UTF-8, which zip archives need",
            name.display()
        );
        io::Error::new(io::ErrorKind::InvalidFilename, text)
    };
    name.into_string().map_err(refused)
}

fn unpack_blocking(archive: &File, local: &Path) -> Result<(), Error> {
    let size = archive.metadata().map_err(Error::file(local))?.len();
    let allowed = MIN_ALLOWED_BYTES.max(size.saturating_mul(MAX_EXPANSION_RATIO));
    unpack_within(archive, local, allowed)
}

/// Unpacks at most `allowed` bytes. Claimed sizes are checked before, actual ones while a file is
/// written.
fn unpack_within(archive: &File, local: &Path, allowed: u64) -> Result<(), Error> {
    let damaged = |error: zip::result::ZipError| Error::Archive(error.to_string());
    let too_large = || Error::Archive(format!("its files exceed {allowed} bytes"));
    let mut archive = ZipArchive::new(BufReader::new(archive)).map_err(damaged)?;
    let mut left = allowed;
    for index in 0..archive.len() {
        let mut entry = archive.by_index(index).map_err(damaged)?;
        let name = relative(&entry.name().map_err(damaged)?)?;
        if entry.is_symlink() {
            continue;
        }
        let target = local.join(&name);
        let is_dir = entry.is_dir();
        let parent = if is_dir {
            name.as_path()
        } else {
            name.parent().unwrap_or(Path::new(""))
        };
        make_directories(local, parent)?;
        if !is_dir {
            if entry.size() > left {
                return Err(too_large());
            }
            let mode = entry.unix_mode().unwrap_or(0o644) & 0o777;
            // One byte more shows that the file is larger.
            let mut content = entry.by_ref().take(left.saturating_add(1));
            let written = write(&target, mode, &mut content).map_err(Error::file(&target))?;
            left = left.checked_sub(written).ok_or_else(too_large)?;
        }
    }
    Ok(())
}

/// A name that stays below the destination.
fn relative(name: &str) -> Result<PathBuf, Error> {
    let path = PathBuf::from(name);
    let is_plain = path
        .components()
        .all(|part| matches!(part, Component::Normal(_)));
    if is_plain && !name.contains('\0') && path.components().next().is_some() {
        return Ok(path);
    }
    Err(Error::Archive(format!(
        "the name {name:?} leads out of the destination"
    )))
}

/// Creates the directories of a path below `root`, none of which may be a link.
fn make_directories(root: &Path, path: &Path) -> Result<(), Error> {
    fs::create_dir_all(root).map_err(Error::file(root))?;
    let mut directory = root.to_owned();
    for part in path.components() {
        directory.push(part);
        match fs::symlink_metadata(&directory) {
            Ok(found) if found.is_dir() => {}
            Ok(_) => {
                return Err(Error::Archive(format!(
                    "{} is in the way of a directory",
                    directory.display()
                )));
            }
            Err(_) => fs::create_dir(&directory).map_err(Error::file(&directory))?,
        }
    }
    Ok(())
}

/// Writes a file, replacing one of the same name instead of following it if it is a link. Returns
/// its size.
fn write(target: &Path, mode: u32, content: &mut impl io::Read) -> io::Result<u64> {
    if fs::symlink_metadata(target).is_ok_and(|found| !found.is_dir()) {
        fs::remove_file(target)?;
    }
    let mut file = File::options()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(target)?;
    io::copy(content, &mut file)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn archive(entries: &[(&str, &str)]) -> File {
        let mut writer = ZipWriter::new(tempfile::tempfile().unwrap());
        for (name, content) in entries {
            writer
                .start_file(*name, SimpleFileOptions::default())
                .unwrap();
            writer.write_all(content.as_bytes()).unwrap();
        }
        writer.finish().unwrap()
    }

    #[test]
    fn names_that_lead_out_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        for name in ["../out", "/out", "a/../../out", "."] {
            let target = root.path().join("in");
            let result = unpack_blocking(&archive(&[(name, "x")]), &target);
            assert!(
                matches!(result, Err(Error::Archive(_))),
                "{name}: {result:?}"
            );
        }
        assert!(!root.path().join("out").exists());
    }

    #[test]
    fn files_that_exceed_the_limit_together_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let archive = archive(&[("a", "four"), ("b", &"0".repeat(4000))]);
        unpack_within(&archive, &root.path().join("in"), 4004).unwrap();
        let error = unpack_within(&archive, &root.path().join("out"), 4003).unwrap_err();
        assert!(
            error.to_string().ends_with("its files exceed 4003 bytes"),
            "{error}"
        );
        assert!(!root.path().join("out/b").exists());
    }

    #[test]
    fn links_in_the_destination_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let (inside, outside) = (root.path().join("in"), root.path().join("out"));
        fs::create_dir_all(&outside).unwrap();
        fs::create_dir_all(&inside).unwrap();
        symlink(&outside, inside.join("dir")).unwrap();
        fs::write(outside.join("kept"), "kept").unwrap();
        symlink(outside.join("kept"), inside.join("file")).unwrap();
        assert!(unpack_blocking(&archive(&[("dir/f", "x")]), &inside).is_err());
        unpack_blocking(&archive(&[("file", "new")]), &inside).unwrap();
        assert_eq!(fs::read_to_string(outside.join("kept")).unwrap(), "kept");
        assert_eq!(fs::read_to_string(inside.join("file")).unwrap(), "new");
        assert!(!outside.join("f").exists());
    }

    #[test]
    fn packed_tree_unpacks_to_the_same_tree() {
        let root = tempfile::tempdir().unwrap();
        let source = root.path().join("source");
        fs::create_dir_all(source.join("empty")).unwrap();
        fs::write(source.join("name with \"quotes\"\n"), "odd").unwrap();
        let packed = pack_blocking(&source, "copy").unwrap();
        unpack_blocking(packed.as_file(), root.path()).unwrap();
        let copy = root.path().join("copy");
        assert!(copy.join("empty").is_dir());
        assert_eq!(
            fs::read_to_string(copy.join("name with \"quotes\"\n")).unwrap(),
            "odd"
        );
    }
}
