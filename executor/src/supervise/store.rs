//! Keeps the accepted token on the Pod's memory volume, so that a restarted container resumes
//! without the controller. The token is a secret: it carries the environment.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone)]
pub(super) struct Store {
    directory: PathBuf,
}

#[derive(Debug, thiserror::Error)]
#[error("cannot keep the initialisation in {directory}")]
pub(super) struct StoreError {
    directory: PathBuf,
    source: io::Error,
}

impl Store {
    pub(super) fn new(directory: &Path) -> Self {
        Self {
            directory: directory.to_path_buf(),
        }
    }

    /// The token of an earlier life of this container.
    pub(super) fn load(&self) -> Option<String> {
        let path = self.directory.join("init");
        match fs::read_to_string(&path) {
            Ok(token) => Some(token),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => {
                tracing::error!(%error, path = %path.display(), "cannot read the initialisation");
                None
            }
        }
    }

    pub(super) fn save(&self, token: &str) -> Result<(), StoreError> {
        self.write(token).map_err(|source| StoreError {
            directory: self.directory.clone(),
            source,
        })
    }

    fn write(&self, token: &str) -> io::Result<()> {
        fs::create_dir_all(&self.directory)?;
        let temporary = self.directory.join("init.new");
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(token.as_bytes())?;
        fs::rename(temporary, self.directory.join("init"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn what_is_saved_is_private_and_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::new(&directory.path().join("deep/state"));
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
