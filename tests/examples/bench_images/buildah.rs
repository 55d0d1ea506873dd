//! `buildah` with a store of its own.

use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

/// An image store, removed with the value.
#[derive(Debug)]
pub(crate) struct Buildah {
    store: TempDir,
}

impl Buildah {
    pub(crate) fn new() -> Self {
        let store = tempfile::tempdir().unwrap();
        Self { store }
    }

    /// Adds an image of a registry to the store.
    pub(crate) fn pull(&self, image: &str) {
        self.run(&["pull", "--tls-verify=false", image]);
    }

    /// Makes an image of a directory with a Dockerfile, and pushes it.
    pub(crate) fn build_and_push(&self, context: &Path, target: &str) {
        let context = context.to_str().unwrap();
        let build = ["bud", "--isolation=chroot", "--tls-verify=false"];
        self.run(&[&build[..], &["--tag", target, context]].concat());
        self.run(&["push", "--tls-verify=false", target]);
    }

    /// Runs a command with mounts that end with it: the driver leaves one for each store.
    fn run(&self, args: &[&str]) {
        let path = |name: &str| self.store.path().join(name);
        let output = Command::new("unshare")
            .args(["--mount", "buildah", "--storage-driver=overlay", "--root"])
            .arg(path("root"))
            .arg("--runroot")
            .arg(path("run"))
            .args(args)
            .env("TMPDIR", self.store.path())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "buildah of hack/install: {errors}");
    }
}
