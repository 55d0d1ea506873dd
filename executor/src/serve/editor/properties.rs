//! Properties of any path of a client: normalization never changes the file it names, and a path
//! that the editor accepts is absolute and exists, or does not exist if it is created.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::Path;

use super::edit_target::{EditTarget, normalize};
use crate::serve::files::resolve;
use crate::serve::transfer::Upload;

/// Checks paths; `%` at the start stands for a directory with files, directories and links.
pub(crate) fn paths(paths: &[&str]) {
    let tree = tempfile::tempdir().expect("a directory");
    let working_dir = tree.path().join("w");
    fs::create_dir_all(working_dir.join("a/b")).expect("directories");
    fs::write(working_dir.join("file"), "").expect("a file");
    symlink("a/b", working_dir.join("link")).expect("a link");
    symlink("..", working_dir.join("a/up")).expect("a link");
    for path in paths {
        let path = match path.strip_prefix('%') {
            Some(rest) => format!("{}{rest}", working_dir.display()),
            None => (*path).to_owned(),
        };
        resolved(&path, &working_dir);
        normalized(&path, &working_dir);
        targeted(&path, &working_dir);
        uploaded(&path);
    }
}

fn resolved(path: &str, working_dir: &Path) {
    let joined = working_dir.join(path);
    let resolved = resolve(path, working_dir);
    assert!(resolved.is_absolute());
    assert!(path.starts_with('/') || resolved.starts_with(working_dir));
    let shown = resolved.to_str().expect("text");
    assert!(shown == "/" || is_normalized(&shown[1..]), "{shown}");
    let ups = |path: &str| path.split('/').filter(|part| *part == "..").count();
    assert_eq!(ups(shown), ups(joined.to_str().expect("text")));
    assert_eq!(resolve(shown, working_dir), resolved);
    same_file(&joined, &resolved);
}

fn normalized(path: &str, working_dir: &Path) {
    let normalized = normalize(path);
    assert_eq!(normalize(&normalized), normalized);
    assert_eq!(normalized.starts_with('/'), path.starts_with('/'));
    let bare = normalized.trim_start_matches('/');
    assert!(
        bare.is_empty() || normalized == "." || is_normalized(bare),
        "{normalized}"
    );
    same_file(&working_dir.join(path), &working_dir.join(&normalized));
}

fn is_normalized(path: &str) -> bool {
    path.split('/').all(|part| !part.is_empty() && part != ".")
}

/// Both paths lead to the same file.
fn same_file(given: &Path, normalized: &Path) {
    if let Ok(given) = fs::metadata(given) {
        let other = fs::metadata(normalized).expect("still there");
        assert_eq!((given.dev(), given.ino()), (other.dev(), other.ino()));
    }
}

fn targeted(path: &str, working_dir: &Path) {
    for (command, exists) in [("view", true), ("create", false), ("insert", true)] {
        if let Ok(target) = EditTarget::check(command, path, working_dir) {
            assert!(path.starts_with('/') && target.path.is_absolute());
            assert_eq!(target.path.exists(), exists, "{command} {path}");
            assert!(command == "view" || !target.is_directory());
            assert_eq!(target.given, path);
        }
    }
}

/// The name of an upload never leads out of the destination.
fn uploaded(filename: &str) {
    let upload = Upload::new("/d", filename, false);
    let path = Path::new("/d").join(&upload.name);
    let stays = path.parent() == Some(Path::new("/d")) && path.file_name().is_some();
    assert!(upload.name.is_empty() || stays, "{filename}");
    assert!(filename.ends_with(&upload.name));
}
