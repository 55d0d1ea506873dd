//! The actions `read` and `write` (`docs/specs/executor.md`, sections 6.1 and 6.3), with the rights
//! of the sandbox user. The Python server reads and writes as root.

mod binary;
mod charset;
mod directories;
mod error;
mod lines;
mod list;
mod os_error;
mod read;
mod replace;
mod text;
mod text_document;
mod unnamed_file;
mod write;

use std::path::{Component, Path, PathBuf};

pub(super) use self::binary::is_binary;
pub(super) use self::directories::make as make_directories;
pub(super) use self::error::FileError;
pub(super) use self::list::list;
pub(super) use self::os_error::{describe, is_not_found};
pub(super) use self::read::read;
pub(super) use self::replace::{Replacement, SymlinkPolicy, replace_file};
pub(super) use self::text::bytes;
pub(super) use self::text_document::TextDocument;
pub(super) use self::unnamed_file::unnamed;
pub(super) use self::write::write;

/// Joins a relative path to the directory of the shell. `..` is kept because of links.
pub(super) fn resolve(path: &str, working_dir: &Path) -> PathBuf {
    let joined = working_dir.join(path);
    let kept = joined
        .components()
        .filter(|part| *part != Component::CurDir);
    kept.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_path_is_joined_to_working_directory() {
        let resolve = |path| resolve(path, Path::new("/w")).display().to_string();
        assert_eq!(resolve("a.txt"), "/w/a.txt");
        assert_eq!(resolve("./a//b/../c"), "/w/a/b/../c");
        assert_eq!(resolve("/etc/./x"), "/etc/x");
    }
}
