//! Directories: lists for `/list_files` (`docs/specs/executor.md`, section 2.4), and creation.

use std::fs;
use std::path::Path;

use super::error::FileError;

/// Creates a directory with its parents. The error names the one that could not be created.
pub(crate) fn make_directories(path: &Path) -> Result<(), FileError> {
    let missing: Vec<&Path> = path.ancestors().take_while(|path| !path.exists()).collect();
    for directory in missing.into_iter().rev() {
        match fs::create_dir(directory) {
            // Another process created it, or the path leads through `..`.
            Err(source) if !directory.is_dir() => {
                let path = directory.to_path_buf();
                return Err(FileError::System { path, source });
            }
            _ => {}
        }
    }
    Ok(())
}

/// Lists directories first, each with a slash, then all other entries, sorted by lower-case name.
/// The list is empty if the path is not a directory or cannot be read.
pub(crate) fn list(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else {
        return Vec::new();
    };
    let (mut directories, mut files) = (Vec::new(), Vec::new());
    for entry in entries.map_while(Result::ok) {
        let name = entry.file_name().to_string_lossy().into_owned();
        match is_directory(&entry) {
            Some(true) => directories.push(name + "/"),
            Some(false) => files.push(name),
            None => {}
        }
    }
    sort(&mut directories);
    sort(&mut files);
    directories.append(&mut files);
    directories
}

/// Follows links; dangling ones give nothing.
fn is_directory(entry: &fs::DirEntry) -> Option<bool> {
    let kind = entry.file_type().ok()?;
    if kind.is_symlink() {
        return fs::metadata(entry.path()).ok().map(|found| found.is_dir());
    }
    Some(kind.is_dir())
}

/// Names that differ only in case are in byte order, so that responses do not vary.
fn sort(names: &mut [String]) {
    names.sort_by_cached_key(|name| (name.to_lowercase(), name.clone()));
}
