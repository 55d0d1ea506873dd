//! Layers made here: compressed archives whose bytes depend on nothing but their content (OCI image
//! specification, "Image Layer Filesystem Changeset").

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use crate::Digest;
use crate::digest::Hasher;

/// Name of the file that hides what lower layers have in its directory.
const OPAQUE: &[u8] = b".wh..wh..opq";

/// Owner of all files of a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

/// A finished layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layer {
    /// Digest of the compressed archive.
    pub digest: Digest,
    /// Digest of the archive.
    pub diff_id: Digest,
    /// Bytes of the compressed archive.
    pub size: u64,
}

/// Writes a layer. Paths are relative, without `.` and without a slash at the end: runtimes overlook
/// opaque directories otherwise. No path may come twice: some runtimes reject such a layer.
pub struct LayerWriter<W: Write> {
    archive: Builder<Hashing<GzEncoder<Hashing<W>>>>,
    owner: Owner,
}

impl<W: Write> fmt::Debug for LayerWriter<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LayerWriter")
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

impl<W: Write> LayerWriter<W> {
    pub fn new(to: W, owner: Owner) -> Self {
        let compressed = GzEncoder::new(Hashing::new(to), Compression::default());
        let archive = Builder::new(Hashing::new(compressed));
        Self { archive, owner }
    }

    pub fn directory(&mut self, path: &[u8], mode: u32) -> io::Result<()> {
        self.append(EntryType::Directory, path, mode, 0, io::empty())
    }

    /// Hides what lower layers have in a directory of this layer.
    pub fn hide_lower(&mut self, directory: &[u8]) -> io::Result<()> {
        let marker = [directory, b"/", OPAQUE].concat();
        self.append(EntryType::Regular, &marker, 0o400, 0, io::empty())
    }

    /// Writes a file of exactly `size` bytes.
    pub fn file(
        &mut self,
        path: &[u8],
        mode: u32,
        size: u64,
        content: impl Read,
    ) -> io::Result<()> {
        self.append(EntryType::Regular, path, mode, size, content)
    }

    /// Writes a symbolic or hard link.
    pub fn link(&mut self, kind: EntryType, path: &[u8], target: &[u8]) -> io::Result<()> {
        let mut header = self.header(kind, 0o777, 0);
        let (path, target) = (as_path(path), as_path(target));
        self.archive.append_link(&mut header, path, target)
    }

    /// Ends the layer, and returns what it was written to.
    pub fn finish(self) -> io::Result<(Layer, W)> {
        finish(self.archive.into_inner()?)
    }

    fn append(
        &mut self,
        kind: EntryType,
        path: &[u8],
        mode: u32,
        size: u64,
        content: impl Read,
    ) -> io::Result<()> {
        let mut header = self.header(kind, mode, size);
        let mut content = content.take(size);
        let path = as_path(path);
        self.archive.append_data(&mut header, path, &mut content)?;
        match content.limit() {
            0 => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn header(&self, kind: EntryType, mode: u32, size: u64) -> Header {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(self.owner.uid.into());
        header.set_gid(self.owner.gid.into());
        header.set_mtime(0);
        header.set_size(size);
        header
    }
}

/// Compresses an archive that is a layer already.
pub fn compress<W: Write>(mut from: impl Read, to: W) -> io::Result<(Layer, W)> {
    // A sandbox waits for it, so speed counts more than size.
    let compressed = GzEncoder::new(Hashing::new(to), Compression::fast());
    let mut plain = Hashing::new(compressed);
    io::copy(&mut from, &mut plain)?;
    finish(plain)
}

fn finish<W: Write>(plain: Hashing<GzEncoder<Hashing<W>>>) -> io::Result<(Layer, W)> {
    let diff_id = plain.hasher.finish();
    let compressed = plain.inner.finish()?;
    let layer = Layer {
        digest: compressed.hasher.finish(),
        diff_id,
        size: compressed.bytes,
    };
    Ok((layer, compressed.inner))
}

fn as_path(path: &[u8]) -> &Path {
    OsStr::from_bytes(path).as_ref()
}

/// Writer that hashes and counts what passes.
struct Hashing<W> {
    inner: W,
    hasher: Hasher,
    bytes: u64,
}

impl<W> Hashing<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Hasher::default(),
            bytes: 0,
        }
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.bytes += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use flate2::read::GzDecoder;

    use super::*;

    const OWNER: Owner = Owner {
        uid: 1000,
        gid: 1001,
    };

    fn layer() -> (Layer, Vec<u8>) {
        let mut writer = LayerWriter::new(Vec::new(), OWNER);
        let long = [b"d/".as_slice(), &[b'x'; 180]].concat();
        writer.directory(b"d", 0o755).unwrap();
        writer.hide_lower(b"d").unwrap();
        writer.file(b"d/f", 0o640, 2, &b"hi"[..]).unwrap();
        writer.file(&long, 0o644, 0, io::empty()).unwrap();
        let link = writer.link(EntryType::Symlink, b"d/l", b"../etc/f");
        link.unwrap();
        writer.finish().unwrap()
    }

    #[test]
    fn layer_has_nothing_but_its_content() {
        let (one, bytes) = layer();
        assert_eq!((one, &bytes), (layer().0, &layer().1));
        assert_eq!(one.digest, Digest::of(&bytes));
        assert_eq!(one.size, bytes.len() as u64);
        let mut plain = Vec::new();
        GzDecoder::new(&*bytes).read_to_end(&mut plain).unwrap();
        assert_eq!(one.diff_id, Digest::of(&plain));
        let mut archive = tar::Archive::new(&*plain);
        let entries = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let (header, path) = (entry.header().clone(), entry.path_bytes().into_owned());
            assert_eq!((header.uid().unwrap(), header.gid().unwrap()), (1000, 1001));
            assert_eq!(header.mtime().unwrap(), 0);
            let mut content = String::new();
            entry.read_to_string(&mut content).unwrap();
            let path = String::from_utf8(path).unwrap();
            (path, header.mode().unwrap(), content)
        });
        let entries: Vec<_> = entries.collect();
        let entry = |path: &str, mode, content: &str| (path.to_owned(), mode, content.to_owned());
        assert_eq!(entries[0], entry("d", 0o755, ""));
        assert_eq!(entries[1], entry("d/.wh..wh..opq", 0o400, ""));
        assert_eq!(entries[2], entry("d/f", 0o640, "hi"));
        assert_eq!(entries[3].0.len(), 182);
        assert_eq!(entries[4].0, "d/l");
    }

    #[test]
    fn compressed_archive_is_a_layer() {
        let plain = b"archive".repeat(1000);
        let (layer, bytes) = compress(&*plain, Vec::new()).unwrap();
        assert_eq!(layer.diff_id, Digest::of(&plain));
        assert_eq!(layer.digest, Digest::of(&bytes));
        assert_eq!(layer.size, bytes.len() as u64);
        let mut unpacked = Vec::new();
        GzDecoder::new(&*bytes).read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, plain);
    }

    #[test]
    fn file_that_is_too_short_is_an_error() {
        let mut writer = LayerWriter::new(Vec::new(), OWNER);
        assert!(writer.file(b"f", 0o644, 3, &b"hi"[..]).is_err());
    }
}
