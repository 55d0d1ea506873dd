//! Files of an archive or of a directory, by name.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use tar::EntryType;
use tempfile::TempDir;

use super::LoadError;
use crate::layer_view::plain;
use crate::unpack::Limits;
use crate::{Digest, Hasher};

/// Entries of an archive.
const MAX_ENTRIES: usize = 10_000;
/// Links from name to name, as in older archives.
const MAX_LINKS: usize = 8;
const BUFFER: usize = 256 << 10;

/// Files by their names in the archive.
#[derive(Debug)]
pub(super) enum Files {
    Directory(PathBuf),
    Archive {
        directory: TempDir,
        /// Number of the file in the directory, its digest and size.
        files: BTreeMap<PathBuf, (usize, Digest, u64)>,
        links: BTreeMap<PathBuf, PathBuf>,
    },
}

impl Files {
    pub(super) fn of_directory(path: &Path) -> Self {
        Self::Directory(path.to_owned())
    }

    /// Reads an archive into files of a directory below `staging`, which is removed with the value.
    pub(super) fn of_archive(
        archive: File,
        staging: &Path,
        limits: &Limits,
    ) -> Result<Self, LoadError> {
        let directory = tempfile::tempdir_in(staging)?;
        let (mut files, mut links) = (BTreeMap::new(), BTreeMap::new());
        let mut bytes = 0;
        let mut archive = tar::Archive::new(archive);
        for (number, entry) in archive.entries()?.enumerate() {
            let mut entry = entry?;
            bytes += entry.size();
            if number >= MAX_ENTRIES {
                return Err(LoadError::TooLarge("10000 entries"));
            }
            if bytes > limits.bytes {
                return Err(LoadError::TooLarge("the size of a layer"));
            }
            let name = plain(&entry.path()?);
            match entry.header().entry_type() {
                EntryType::Regular => {
                    let path = directory.path().join(number.to_string());
                    let (digest, size) = spool(&mut entry, &path)?;
                    files.insert(name, (number, digest, size));
                }
                EntryType::Symlink | EntryType::Link => {
                    let target = entry.link_name()?.unwrap_or_default().into_owned();
                    let is_relative = entry.header().entry_type() == EntryType::Symlink;
                    let base = name.parent().filter(|_| is_relative);
                    let target = plain(&base.unwrap_or(Path::new("")).join(target));
                    links.insert(name, target);
                }
                _ => {}
            }
        }
        Ok(Self::Archive {
            directory,
            files,
            links,
        })
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).is_ok_and(|path| path.is_file())
    }

    pub(super) fn read(&self, name: &str, limit: u64) -> Result<Vec<u8>, LoadError> {
        let mut content = Vec::new();
        let file = File::open(self.path(name)?).map_err(|error| missing(name, error))?;
        file.take(limit + 1).read_to_end(&mut content)?;
        if content.len() as u64 > limit {
            return Err(LoadError::TooLarge("4 MiB for a document"));
        }
        Ok(content)
    }

    /// Digest and size of a file.
    pub(super) fn digest(&self, name: &str) -> Result<(Digest, u64), LoadError> {
        if let Self::Archive { files, .. } = self {
            let name = self.without_links(name);
            let known = files.get(&name).map(|(_, digest, size)| (*digest, *size));
            return known.ok_or_else(|| LoadError::Missing(name.display().to_string()));
        }
        let mut file = File::open(self.path(name)?).map_err(|error| missing(name, error))?;
        Ok(hash(&mut file, &mut io::sink())?)
    }

    /// Copies a file to a new name, in one step.
    pub(super) fn copy(&self, name: &str, to: &Path) -> Result<(), LoadError> {
        let from = self.path(name)?;
        if let Self::Archive { .. } = self
            && fs::hard_link(&from, to).is_ok()
        {
            return Ok(());
        }
        let part = to.with_extension("part");
        fs::copy(from, &part).map_err(|error| missing(name, error))?;
        Ok(fs::rename(part, to)?)
    }

    fn path(&self, name: &str) -> Result<PathBuf, LoadError> {
        match self {
            // The names of blobs are digests.
            Self::Directory(path) => Ok(path.join(plain(Path::new(name)))),
            Self::Archive {
                directory, files, ..
            } => {
                let name = self.without_links(name);
                let number = files.get(&name).map(|(number, ..)| number.to_string());
                let missing = || LoadError::Missing(name.display().to_string());
                Ok(directory.path().join(number.ok_or_else(missing)?))
            }
        }
    }

    fn without_links(&self, name: &str) -> PathBuf {
        let mut name = plain(Path::new(name));
        let Self::Archive { links, .. } = self else {
            return name;
        };
        for _ in 0..MAX_LINKS {
            match links.get(&name) {
                Some(target) => name.clone_from(target),
                None => break,
            }
        }
        name
    }
}

fn missing(name: &str, error: io::Error) -> LoadError {
    match error.kind() {
        io::ErrorKind::NotFound => LoadError::Missing(name.to_owned()),
        _ => LoadError::Read(error),
    }
}

fn spool(from: &mut impl Read, path: &Path) -> io::Result<(Digest, u64)> {
    let mut file = File::create(path)?;
    hash(from, &mut file)
}

/// Copies and hashes.
fn hash(from: &mut impl Read, to: &mut impl io::Write) -> io::Result<(Digest, u64)> {
    let (mut hasher, mut size, mut buffer) = (Hasher::default(), 0, vec![0; BUFFER]);
    loop {
        let read = from.read(&mut buffer)?;
        if read == 0 {
            return Ok((hasher.finish(), size));
        }
        hasher.update(&buffer[..read]);
        to.write_all(&buffer[..read])?;
        size += read as u64;
    }
}
