//! Images of `hack/image`, which keeps them in its cache.

use std::path::PathBuf;
use std::process::Command;

use crate::binaries::root;

/// Archive of the Debian image of sandboxes. Where it cannot be built, prints SKIPPED with `what`.
pub fn sandbox_archive(what: &str) -> Option<PathBuf> {
    let tool = Command::new("mmdebstrap").arg("--version").output();
    if tool.is_err() {
        eprintln!("SKIPPED, needs mmdebstrap (hack/install cluster): {what}");
        return None;
    }
    Some(archive("sandbox"))
}

/// Archive of the image of this kind.
pub fn archive(kind: &str) -> PathBuf {
    let mut script = Command::new(root().join("hack/image"));
    let built = script.arg(kind).output().expect("hack/image");
    assert!(built.status.success(), "{built:?}");
    String::from_utf8(built.stdout)
        .expect("a path")
        .trim()
        .into()
}
