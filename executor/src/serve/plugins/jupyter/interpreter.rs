//! Candidates for the Python of the kernel: those of `PATH`, which begins with the one of the image
//! (`python_environment`).

use std::fs;
use std::path::{Path, PathBuf};

const NAMES: [&str; 2] = ["python3", "python"];

/// Existing interpreters, best first. A missing `ipykernel` shows only at the start.
pub(super) fn candidates(path: &str, working_dir: &Path) -> Vec<PathBuf> {
    let searched = NAMES.iter().flat_map(|name| {
        let entries = std::env::split_paths(path);
        let found = entries.map(|entry| working_dir.join(entry).join(name));
        found
            .filter(|path| path.is_file())
            .take(3)
            .collect::<Vec<_>>()
    });
    let mut found: Vec<PathBuf> = Vec::new();
    for python in searched {
        // `python` often links to `python3`. The one of a virtual environment differs from its
        // target.
        let place = |path: &Path| fs::canonicalize(path.parent()?).ok();
        let same = |other: &PathBuf| {
            place(other) == place(&python)
                && fs::canonicalize(other).ok() == fs::canonicalize(&python).ok()
        };
        if !found.iter().any(same) {
            found.push(python);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn candidates_are_unique_and_in_path_order() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| root.path().join(name);
        for name in ["a", "b", "c"] {
            fs::create_dir(place(name)).unwrap();
        }
        fs::write(place("b/python3"), "").unwrap();
        symlink("python3", place("b/python")).unwrap();
        symlink(place("b/python3"), place("c/python3")).unwrap();
        let path = std::env::join_paths([place("a"), place("b"), place("c")]).unwrap();
        let found = candidates(path.to_str().unwrap(), Path::new("/"));
        assert_eq!(found, [place("b/python3"), place("c/python3")]);
        assert!(candidates("", Path::new("/nowhere")).is_empty());
    }
}
