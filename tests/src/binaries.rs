//! Paths of the workspace's binaries, next to those of the tests.

use std::path::{Path, PathBuf};

/// Path of a binary that was built with the tests.
pub fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a path");
    // target/TRIPLE/PROFILE/deps/test-HASH
    let profile = test
        .parent()
        .and_then(Path::parent)
        .expect("cargo's layout");
    let path = profile.join(name);
    assert!(
        path.is_file(),
        "{} is missing: run `make test`",
        path.display()
    );
    path
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// CRIU, which is built if it is not there. If that fails, prints SKIPPED.
pub fn criu_or_skip() -> Option<PathBuf> {
    let built = std::process::Command::new(root().join("hack/criu/install")).output();
    let path = built
        .ok()
        .and_then(|built| String::from_utf8(built.stdout).ok());
    let path = path.map(|path| PathBuf::from(path.trim()));
    let path = path.filter(|path| path.is_file());
    if path.is_none() {
        eprintln!("SKIPPED, needs CRIU: hack/install criu");
    }
    path
}

/// Returns whether this test runs as root. If not, prints SKIPPED with its name.
pub fn is_root_or_skips() -> bool {
    let root =
        std::fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0);
    if !root {
        let thread = std::thread::current();
        eprintln!("SKIPPED, needs root: {}", thread.name().unwrap_or("a test"));
    }
    root
}
