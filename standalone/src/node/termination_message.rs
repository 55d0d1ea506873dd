//! Termination message of a container run: the file at `terminationMessagePath`.

use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::mount::Mount;

/// Mount point of the file.
const TERMINATION_LOG: &str = "/dev/termination-log";

/// Maximum number of bytes read, as in the kubelet.
const MAX_MESSAGE_BYTES: u64 = 4096;

/// File of one run.
#[derive(Debug)]
pub(crate) struct TerminationMessage(PathBuf);

impl TerminationMessage {
    /// Creates an empty file in `directory` that every user of the container may write.
    pub(crate) fn create(directory: &Path) -> io::Result<Self> {
        let file = directory.join("end");
        // A new file, because a program of an earlier run may still hold the old one.
        let _ = fs::remove_file(&file);
        File::create_new(&file)?;
        fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        Ok(Self(file))
    }

    pub(crate) fn mount(&self) -> Mount {
        Mount::Bind {
            from: self.0.clone(),
            to: TERMINATION_LOG.into(),
            writable: true,
        }
    }

    /// Reads the message after the container has terminated.
    pub(crate) fn take(&self) -> String {
        let mut bytes = Vec::new();
        // An unreadable message is empty.
        let _ = File::open(&self.0)
            .and_then(|file| file.take(MAX_MESSAGE_BYTES).read_to_end(&mut bytes));
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn termination_message_is_empty_at_each_start() {
        let directory = tempfile::tempdir().unwrap();
        let first = TerminationMessage::create(directory.path()).unwrap();
        fs::write(&first.0, "no shell\u{fc}".repeat(1000)).unwrap();
        assert_eq!(first.take().find("no shell"), Some(0));
        assert!(first.take().len() as u64 <= MAX_MESSAGE_BYTES + 2);
        let second = TerminationMessage::create(directory.path()).unwrap();
        assert_eq!(second.take(), "");
    }
}
