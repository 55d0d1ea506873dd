//! The command `view` on a directory: two levels of names, without hidden ones.

use std::collections::BinaryHeap;
use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::EditError;
use super::edit_target::EditTarget;
use super::line_numbers::{DIRECTORY_CLIPPED_NOTICE, clip};
use crate::serve::files::describe;

/// Upper bound of the names that fit into the limit of characters.
const MAX_NAMES: usize = 16_000;

/// Device and inode of a file, to recognize links back to the directory.
type FileId = (u64, u64);

pub(super) fn show(target: &EditTarget) -> Result<String, EditError> {
    let path = target.shown();
    let mut names = BinaryHeap::from([path.clone()]);
    let hidden = collect(&target.path, &mut names).map_err(|error| EditError::System {
        error: describe(&error, &target.path),
        operation: "read",
        path: path.clone(),
    })?;
    let listed = clip(
        &names.into_sorted_vec().join("\n"),
        DIRECTORY_CLIPPED_NOTICE,
    );
    let listed: Vec<_> = listed.split('\n').map(with_slash).collect();
    let listed = listed.join("\n");
    let note = match hidden {
        0 => String::new(),
        hidden => format!(
            "\n\n{hidden} hidden files/directories in this directory are excluded. You can use \
             'ls -la {path}' to see them."
        ),
    };
    Ok(format!(
        "Here's the files and directories up to 2 levels deep in {path}, excluding hidden \
         items:\n{listed}{note}"
    ))
}

/// Collects both levels and returns the number of hidden direct entries.
fn collect(root: &Path, names: &mut BinaryHeap<String>) -> std::io::Result<usize> {
    let above = fs::metadata(root).as_ref().map(file_id).ok();
    let mut hidden = 0;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if is_hidden(&entry) {
            hidden += 1;
            continue;
        }
        add(names, &entry.path());
        let back = || fs::metadata(entry.path()).as_ref().map(file_id).ok() == above;
        let link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if link && back() {
            continue;
        }
        // Entries that are no directory or cannot be read have no second level.
        for inner in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            if !is_hidden(&inner) {
                add(names, &inner.path());
            }
        }
    }
    Ok(hidden)
}

fn file_id(found: &Metadata) -> FileId {
    (found.dev(), found.ino())
}

fn is_hidden(entry: &fs::DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

fn with_slash(path: &str) -> String {
    let slash = Path::new(path).is_dir() && !path.ends_with('/');
    format!("{path}{}", if slash { "/" } else { "" })
}

/// Keeps the first names in byte order.
fn add(names: &mut BinaryHeap<String>, path: &Path) {
    names.push(path.display().to_string());
    if names.len() > MAX_NAMES {
        names.pop();
    }
}
