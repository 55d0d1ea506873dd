//! Storage of the accepted init message on the Pod's memory volume, so that a restarted container
//! resumes without the controller. The message is a secret: it holds the environment.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;

use crds::contract::control::Init;
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
    /// modes do not protect it.
    pub(super) identity: PodIdentity,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot store the init message in {directory}")]
pub(super) struct InitStoreError {
    directory: PathBuf,
    source: io::Error,
}

impl InitStore {
    /// Message of an earlier run of this container.
    pub(super) fn load(&self) -> Option<Init> {
        let path = self.directory.join("init");
        match fs::read(&path).and_then(|stored| self.open(&stored)) {
            Ok(init) => Some(init),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "cannot read the init message");
                None
            }
        }
    }

    pub(super) fn save(&self, init: &Init) -> Result<(), InitStoreError> {
        self.write(init).map_err(|source| InitStoreError {
            directory: self.directory.clone(),
            source,
        })
    }

    fn open(&self, stored: &[u8]) -> io::Result<Init> {
        let id = &self.identity;
        let message = id.key.open_state(&id.pod_uid, stored);
        Ok(serde_json::from_slice(&message.map_err(io::Error::other)?)?)
    }

    fn write(&self, init: &Init) -> io::Result<()> {
        let (id, message) = (&self.identity, serde_json::to_vec(init)?);
        let stored = id.key.seal_state(&id.pod_uid, &message);
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

    use crds::contract::control::Probe;

    fn init(program: &str) -> Init {
        Init {
            command: vec![program.to_owned()],
            working_dir: "/".to_owned(),
            environment: [("TOKEN".to_owned(), "hunter2".to_owned())].into(),
            probe: Probe {
                port: None,
                path: None,
            },
            sandbox_uid: None,
            state: None,
        }
    }

    #[test]
    fn saved_init_message_is_encrypted_with_mode_0600_and_loads() {
        let directory = tempfile::tempdir().unwrap();
        let store = InitStore {
            directory: directory.path().join("deep/state"),
            identity: PodIdentity {
                key: IdentityKey::new([1; 32]),
                pod_uid: "uid".to_owned(),
                address: [10, 0, 0, 1].into(),
            },
        };
        assert_eq!(store.load(), None);
        store.save(&init("first")).unwrap();
        store.save(&init("second")).unwrap();
        assert_eq!(store.load(), Some(init("second")));
        let file = directory.path().join("deep/state/init");
        assert_eq!(
            fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let stored = fs::read(file).unwrap();
        assert!(!String::from_utf8_lossy(&stored).contains("hunter2"));
    }
}
