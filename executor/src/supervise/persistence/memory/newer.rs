//! Saved processes of a newer format. A start changes the files that they use, so they never go on;
//! but an older supervisor does not delete them.

use std::io;

use super::meta::VERSION;
use super::{FOLDER, MAX_META_BYTES, META, mark};
use crate::supervise::persistence::format;
use crate::supervise::persistence::store::{Store, open_directory, read_file};

/// Place of the folder. The first supervisor that knows the format removes it.
const NEWER: &str = "memory.newer";

/// Sets the folder aside, in place of an earlier one, if its format is not known. Returns its
/// version.
pub(super) fn set_aside(store: &Store) -> io::Result<Option<u32>> {
    if version(store, NEWER)?.is_some_and(|version| version <= VERSION) {
        store.remove(NEWER)?;
    }
    let Some(version) = version(store, FOLDER)?.filter(|version| *version > VERSION) else {
        return Ok(None);
    };
    mark(&store.folder(FOLDER)?)?;
    store.rename(FOLDER, NEWER)?;
    store.sync()?;
    Ok(Some(version))
}

fn version(store: &Store, folder: &str) -> io::Result<Option<u32>> {
    let folder = match open_directory(store.descriptor(), folder) {
        Ok(folder) => Store::of(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let meta = read_file(folder.descriptor(), META, MAX_META_BYTES)?;
    Ok(meta.and_then(|meta| format::version(&meta)))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn newer_processes_are_marked_and_kept_until_their_format_is_known() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(directory.path()).unwrap();
        let path = |name: &str| directory.path().join("root").join(name);
        let write = |version: u32| {
            fs::create_dir_all(path("memory")).unwrap();
            // Nothing but the version can be read.
            let meta = format!(r#"{{"version": {version}, "image": []}}"#);
            fs::write(path("memory/meta.json"), meta).unwrap();
            fs::write(path("memory/archive"), version.to_string()).unwrap();
        };
        assert_eq!(set_aside(&store).unwrap(), None);
        write(VERSION);
        assert_eq!(set_aside(&store).unwrap(), None);
        assert!(path("memory/archive").exists() && !path("memory/used").exists());
        for newer in [VERSION + 1, VERSION + 2] {
            write(newer);
            assert_eq!(set_aside(&store).unwrap(), Some(newer));
            assert!(path("memory.newer/used").exists() && !path("memory").exists());
            let archive = fs::read_to_string(path("memory.newer/archive")).unwrap();
            assert_eq!(archive, newer.to_string());
            assert_eq!(set_aside(&store).unwrap(), None);
        }
        fs::write(
            path("memory.newer/meta.json"),
            format!(r#"{{"version": {VERSION}}}"#),
        )
        .unwrap();
        assert_eq!(set_aside(&store).unwrap(), None);
        assert!(!path("memory.newer").exists());
    }
}
