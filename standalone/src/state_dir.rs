//! State besides the database: the API key, the secret path of the embedded API, and the lock
//! against a second process.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::{self, SystemRandom};
use rustix::fs::{FlockOperation, flock};

/// State directory, locked for this process.
#[derive(Debug)]
pub(crate) struct StateDir {
    pub(crate) path: PathBuf,
    /// Held for the life of the process.
    _lock: File,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum StateError {
    #[error("{0}: another process uses this state directory")]
    Locked(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("cannot read random bytes from the operating system")]
    Random,
}

impl StateDir {
    /// Creates the directory with mode 0700 and locks it.
    pub(crate) fn open(path: &Path) -> Result<Self, StateError> {
        let create = || {
            std::fs::create_dir_all(path)?;
            // The database contains the root key.
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o700))?;
            let path = path.canonicalize()?;
            Ok((private(&path.join("lock"))?, path))
        };
        let (lock, path) = create().map_err(at(path))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|_| StateError::Locked(path.clone()))?;
        Ok(Self { path, _lock: lock })
    }

    /// Returns the secret of this name: 32 random bytes in base64url, created on first use.
    pub(crate) fn secret(&self, name: &str) -> Result<String, StateError> {
        let path = self.path.join(name);
        let mut file = private(&path).map_err(at(&path))?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(at(&path))?;
        if text.trim().is_empty() {
            text = random()?;
            let written = writeln!(file, "{text}").and_then(|()| file.sync_all());
            written.map_err(at(&path))?;
        }
        Ok(text.trim().to_owned())
    }

    /// Replaces a file that only this user may read.
    pub(crate) fn write(&self, name: &str, content: &str) -> Result<PathBuf, StateError> {
        let path = self.path.join(name);
        let fresh = self.path.join(format!("{name}.new"));
        let write = || {
            let mut file = private(&fresh)?;
            file.set_len(0)?;
            file.write_all(content.as_bytes())?;
            std::fs::rename(&fresh, &path)
        };
        write().map_err(at(&path))?;
        Ok(path)
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> StateError {
    move |source| StateError::Io {
        path: path.to_owned(),
        source,
    }
}

/// Opens or creates a file with mode 0600.
fn private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(path)
}

fn random() -> Result<String, StateError> {
    let bytes = rand::generate::<[u8; 32]>(&SystemRandom::new());
    let bytes = bytes.map_err(|_| StateError::Random)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes.expose()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secret_survives_reopen() {
        let directory = tempfile::tempdir().unwrap();
        let first = StateDir::open(directory.path()).unwrap();
        let mode = directory.path().metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let secret = first.secret("key").unwrap();
        assert_eq!(secret.len(), 43);
        let second = StateDir::open(directory.path());
        assert!(matches!(second, Err(StateError::Locked(_))));
        drop(first);
        let second = StateDir::open(directory.path()).unwrap();
        assert_eq!(second.secret("key").unwrap(), secret);
    }
}
