//! Creates directories with their parents and reports which one could not be created.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A directory that could not be created, and the cause.
#[derive(Debug)]
pub(in crate::serve) struct MakeDirError {
    pub(in crate::serve) path: PathBuf,
    pub(in crate::serve) source: io::Error,
}

pub(in crate::serve) fn make(path: &Path) -> Result<(), MakeDirError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            // Another process created it, or the path leads through `..`.
            Err(_) if directory.is_dir() => {}
            Err(source) => {
                return Err(MakeDirError {
                    path: directory.to_path_buf(),
                    source,
                });
            }
            Ok(()) => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_first_directory_that_fails() {
        let directory = tempfile::tempdir().unwrap();
        let deep = directory.path().join("a/b/c");
        make(&deep).unwrap();
        make(&deep).unwrap();
        assert!(deep.is_dir());
        fs::write(deep.join("file"), "").unwrap();
        let failure = make(&deep.join("file/x/y")).unwrap_err();
        assert_eq!(failure.path, deep.join("file/x"));
        assert_eq!(failure.source.raw_os_error(), Some(20));
    }
}
