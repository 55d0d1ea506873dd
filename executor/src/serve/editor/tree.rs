//! The command `view` on a directory: two levels of names, without what is hidden.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::error::EditError;
use super::number::{DIRECTORY_CUT, clip};
use super::path::Target;
use crate::serve::files::describe;

/// More names than can be shown, whatever their length.
const ENOUGH: usize = 16_000;

/// Device and number of a file, which tell whether a link leads back.
type Identity = (u64, u64);

pub(super) fn show(target: &Target) -> Result<String, EditError> {
    let root = target.path();
    let mut names = Names(vec![target.shown()]);
    let hidden = collect(root, &mut names).map_err(|error| EditError::System {
        error: describe(&error, root),
        what: "read",
        path: target.shown(),
    })?;
    names.shrink();
    let listed = clip(&names.0.join("\n"), DIRECTORY_CUT);
    let listed: Vec<_> = listed.split('\n').map(with_slash).collect();
    let path = target.shown();
    let note = if hidden > 0 {
        format!(
            "\n\n{hidden} hidden files/directories in this directory are excluded. You can use \
             'ls -la {path}' to see them."
        )
    } else {
        String::new()
    };
    Ok(format!(
        "Here's the files and directories up to 2 levels deep in {path}, excluding hidden \
         items:\n{}{note}",
        listed.join("\n")
    ))
}

/// Collects both levels; how many direct entries are hidden.
fn collect(root: &Path, names: &mut Names) -> std::io::Result<usize> {
    let above = fs::metadata(root).as_ref().map(identity).ok();
    let mut hidden = 0;
    for entry in fs::read_dir(root)? {
        let entry = entry?;
        if is_hidden(&entry) {
            hidden += 1;
            continue;
        }
        names.add(&entry.path());
        let back = || fs::metadata(entry.path()).as_ref().map(identity).ok() == above;
        let link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
        if link && back() {
            continue;
        }
        // What is no directory or is closed has nothing to show.
        for inner in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
            if !is_hidden(&inner) {
                names.add(&inner.path());
            }
        }
    }
    Ok(hidden)
}

fn identity(found: &Metadata) -> Identity {
    (found.dev(), found.ino())
}

fn is_hidden(entry: &fs::DirEntry) -> bool {
    entry.file_name().as_encoded_bytes().starts_with(b".")
}

fn with_slash(path: &str) -> String {
    let slash = Path::new(path).is_dir() && !path.ends_with('/');
    format!("{path}{}", if slash { "/" } else { "" })
}

/// The first names in the order of their bytes; others are dropped now and then.
struct Names(Vec<String>);

impl Names {
    fn add(&mut self, path: &Path) {
        self.0.push(path.display().to_string());
        if self.0.len() >= 2 * ENOUGH {
            self.shrink();
        }
    }

    fn shrink(&mut self) {
        self.0.sort_unstable();
        self.0.truncate(ENOUGH);
    }
}
