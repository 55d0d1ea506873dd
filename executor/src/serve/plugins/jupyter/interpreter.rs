//! Which Python a kernel may run in: that of an `OpenHands` image first, whose path its clients
//! know, then what a shell would find.

use std::fs;
use std::path::{Path, PathBuf};

/// Directories with an environment in each.
const ENVIRONMENTS: [&str; 2] = ["/openhands/poetry", "/openhands/micromamba/envs"];
const NAMES: [&str; 2] = ["python3", "python"];

/// Those that are there, the best first. Whether they have `ipykernel` shows when they are started.
pub(super) fn candidates(path: &str, working_dir: &Path) -> Vec<PathBuf> {
    let known = ENVIRONMENTS
        .iter()
        .flat_map(|place| environments(Path::new(place)));
    let searched = NAMES.iter().flat_map(|name| {
        let entries = std::env::split_paths(path);
        let found = entries.map(|entry| working_dir.join(entry).join(name));
        found
            .filter(|path| path.is_file())
            .take(2)
            .collect::<Vec<_>>()
    });
    let mut found: Vec<PathBuf> = Vec::new();
    for python in known.chain(searched) {
        // `python` often is `python3`; an environment's is not the one it links to.
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

fn environments(place: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    let pythons = entries.map(|entry| entry.path().join("bin/python"));
    let mut found: Vec<_> = pythons.filter(|path| path.is_file()).collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn each_is_tried_once_in_the_order_of_the_path() {
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
