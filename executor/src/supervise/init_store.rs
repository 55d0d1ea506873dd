//! Storage of the accepted init message on the Pod's memory volume, so that a restarted container
//! resumes without the controller. The message is a secret: it holds the environment.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crds::contract::identity::IdentityKey;

/// Identity key of the sandbox, and the Pod that uses it.
#[derive(Debug, Clone)]
pub(super) struct PodIdentity {
    pub(super) key: IdentityKey,
    pub(super) pod_uid: String,
    pub(super) address: IpAddr,
}

#[derive(Debug)]
pub(super) struct InitStore {
    pub(super) directory: PathBuf,
    /// Encrypts the message: processes of the command may have the same user as PID 1, so file
    /// modes do not protect it. `None` in Pods of earlier versions.
    pub(super) identity: Option<PodIdentity>,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot store the init message in {directory}")]
pub(super) struct InitStoreError {
    directory: PathBuf,
    source: io::Error,
}

impl InitStore {
    /// Message of an earlier run of this container.
    pub(super) fn load(&self) -> Option<String> {
        let path = self.directory.join("init");
        match fs::read(&path).and_then(|stored| self.open(stored)) {
            Ok(message) => Some(message),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "cannot read the init message");
                None
            }
        }
    }

    pub(super) fn save(&self, message: &str) -> Result<(), InitStoreError> {
        self.write(message).map_err(|source| InitStoreError {
            directory: self.directory.clone(),
            source,
        })
    }

    fn open(&self, stored: Vec<u8>) -> io::Result<String> {
        let message = match &self.identity {
            Some(id) => id.key.open_state(&id.pod_uid, &stored),
            None => Ok(stored),
        };
        String::from_utf8(message.map_err(io::Error::other)?).map_err(io::Error::other)
    }

    fn write(&self, message: &str) -> io::Result<()> {
        let stored = match &self.identity {
            Some(id) => id.key.seal_state(&id.pod_uid, message.as_bytes()),
            None => Ok(message.as_bytes().to_vec()),
        };
        fs::create_dir_all(&self.directory)?;
        let temporary = self.directory.join("init.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(&stored.map_err(io::Error::other)?)?;
        fs::rename(temporary, self.directory.join("init"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn saved_init_token_is_mode_0600_and_loads() {
        let directory = tempfile::tempdir().unwrap();
        let store = InitStore {
            directory: directory.path().join("deep/state"),
            identity: None,
        };
        assert_eq!(store.load(), None);
        store.save("first").unwrap();
        store.save("token").unwrap();
        assert_eq!(store.load().as_deref(), Some("token"));
        let file = directory.path().join("deep/state/init");
        assert_eq!(
            fs::metadata(file).unwrap().permissions().mode() & 0o777,
            0o600
        );
    }
}
