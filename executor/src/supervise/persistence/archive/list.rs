//! List of all files as they were before the command started. It is a file without a name on the
//! volume: it takes no memory, and the command cannot change it.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, ErrorKind, Read, Seek as _, Write};

use rustix::fs::{FileType, Stat};

use super::walk::{Found, Tree, walk};
use crate::supervise::persistence::deadline::Deadline;
use crate::supervise::persistence::error::StateError;
use crate::supervise::persistence::store::Store;

const NAME: &str = "list";
/// Bytes of a record before its path.
const FIXED: usize = 26;
const MAX_PATH: usize = 1 << 20;

/// File of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) path: Vec<u8>,
    pub(super) is_directory: bool,
    inode: u64,
    /// Time of the last change of content or metadata: seconds and nanoseconds.
    changed: (i64, u32),
}

impl Listed {
    fn new(found: &Found<'_>) -> Self {
        Self {
            path: found.path.to_vec(),
            is_directory: found.kind().is_dir(),
            inode: found.stat.st_ino,
            changed: changed(found.stat),
        }
    }

    /// Returns whether a file with the same path is another one or has changed. Numbers of
    /// directories are not compared: an overlay gives them anew.
    pub(super) fn differs_from(&self, found: &Found<'_>) -> bool {
        let is_directory = found.kind() == FileType::Directory;
        self.is_directory != is_directory
            || self.changed != changed(found.stat)
            || (!is_directory && self.inode != found.stat.st_ino)
    }

    fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let length = u32::try_from(self.path.len()).map_err(io::Error::other)?;
        to.write_all(&self.inode.to_le_bytes())?;
        to.write_all(&self.changed.0.to_le_bytes())?;
        to.write_all(&self.changed.1.to_le_bytes())?;
        to.write_all(&[u8::from(self.is_directory), 0])?;
        to.write_all(&length.to_le_bytes())?;
        to.write_all(&self.path)
    }

    /// Reads the next record; `None` at the end.
    fn read(from: &mut impl Read) -> io::Result<Option<Self>> {
        let mut fixed = [0; FIXED];
        match from.read_exact(&mut fixed[..1]) {
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(None),
            other => other?,
        }
        from.read_exact(&mut fixed[1..])?;
        let mut rest = &fixed[..];
        let inode = u64::from_le_bytes(take(&mut rest));
        let seconds = i64::from_le_bytes(take(&mut rest));
        let nanoseconds = u32::from_le_bytes(take(&mut rest));
        let [is_directory, _] = take(&mut rest);
        let length = u32::from_le_bytes(take(&mut rest)) as usize;
        if length > MAX_PATH {
            return Err(ErrorKind::InvalidData.into());
        }
        let mut path = vec![0; length];
        from.read_exact(&mut path)?;
        Ok(Some(Self {
            path,
            is_directory: is_directory != 0,
            inode,
            changed: (seconds, nanoseconds),
        }))
    }
}

/// Takes bytes of a record, which is long enough.
fn take<const N: usize>(rest: &mut &[u8]) -> [u8; N] {
    let Some((bytes, after)) = rest.split_first_chunk() else {
        return [0; N];
    };
    *rest = after;
    *bytes
}

fn changed(stat: &Stat) -> (i64, u32) {
    let nanoseconds = u32::try_from(stat.st_ctime_nsec).unwrap_or_default();
    (stat.st_ctime, nanoseconds)
}

#[derive(Debug)]
pub(super) struct FileList(File);

impl FileList {
    /// Lists all files of a tree.
    pub(super) fn create(store: &Store, tree: &Tree) -> Result<Self, StateError> {
        let failed = StateError::io::<io::Error>;
        let file = store.create(NAME).map_err(failed("create the list"))?;
        store.remove(NAME).map_err(failed("create the list"))?;
        let mut to = BufWriter::new(file);
        walk(tree, Deadline::NONE, |found| {
            let record = Listed::new(&found);
            record.write(&mut to).map_err(failed("write the list"))
        })?;
        let file = to.into_inner().map_err(StateError::io("write the list"))?;
        Ok(Self(file))
    }

    pub(super) fn records(&self) -> Result<Records, StateError> {
        let failed = StateError::io::<io::Error>;
        let mut file = self.0.try_clone().map_err(failed("read the list"))?;
        file.rewind().map_err(failed("read the list"))?;
        Ok(Records(BufReader::new(file)))
    }
}

/// Records in the order of the walk.
pub(super) struct Records(BufReader<File>);

impl Records {
    pub(super) fn next(&mut self) -> Result<Option<Listed>, StateError> {
        Listed::read(&mut self.0).map_err(StateError::io("read the list"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_round_trips() {
        let record = Listed {
            path: b"etc/with\nnewline".to_vec(),
            is_directory: true,
            inode: u64::MAX,
            changed: (-1, 999_999_999),
        };
        let mut bytes = Vec::new();
        record.write(&mut bytes).unwrap();
        assert_eq!(bytes.len(), FIXED + record.path.len());
        let mut from = &bytes[..];
        assert_eq!(Listed::read(&mut from).unwrap(), Some(record));
        assert_eq!(Listed::read(&mut from).unwrap(), None);
        assert!(Listed::read(&mut &bytes[..bytes.len() - 1]).is_err());
    }
}
