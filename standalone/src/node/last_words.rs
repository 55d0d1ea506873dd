//! What a container says of its own end: the file that Kubernetes mounts at its
//! `terminationMessagePath`, one per start, and what stands in it afterwards.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::bwrap::Mount;

/// Where a container finds the file.
const PLACE: &str = "/dev/termination-log";

/// Most bytes that are read of it, as by the kubelet.
const LONGEST: u64 = 4096;

/// The file of one start.
#[derive(Debug)]
pub(crate) struct LastWords(PathBuf);

impl LastWords {
    /// An empty file in `directory`, which every user of the container may write.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(crate) fn create(directory: &Path) -> io::Result<Self> {
        let file = directory.join("end");
        // Another one, not the same one emptied: the program of an earlier start may still hold it.
        let _ = fs::remove_file(&file);
        File::create_new(&file)?;
        fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        Ok(Self(file))
    }

    pub(crate) fn mount(&self) -> Mount {
        Mount::Bind {
            from: self.0.clone(),
            to: PLACE.into(),
            writable: true,
        }
    }

    /// What stands in it. The container has ended.
    pub(crate) fn take(&self) -> String {
        let mut bytes = Vec::new();
        // Whatever was not written, or cannot be read, is not said.
        let _ = File::open(&self.0).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_start_begins_with_nothing_said() {
        let directory = tempfile::tempdir().unwrap();
        let first = LastWords::create(directory.path()).unwrap();
        fs::write(&first.0, "no shell\u{fc}".repeat(1000)).unwrap();
        assert_eq!(first.take().find("no shell"), Some(0));
        assert!(first.take().len() as u64 <= LONGEST + 2);
        let second = LastWords::create(directory.path()).unwrap();
        assert_eq!(second.take(), "");
    }
}
