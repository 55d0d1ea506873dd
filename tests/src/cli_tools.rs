//! `helm` and `kubectl`, as people call them.

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::binaries::root;
use serde_json::Value;

/// The chart, from the root of the checkout.
pub const CHART: &str = "charts/sandbox-operator";
pub const CRDS_CHART: &str = "charts/sandbox-operator-crds";

/// Runs a program in the root of the checkout.
pub fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .unwrap()
}

/// Returns the output of a program that must succeed.
pub fn run_checked(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

pub fn helm(args: &[&str]) -> String {
    run_checked("helm", args)
}

pub fn kubectl(args: &[&str]) -> String {
    run_checked("kubectl", args)
}

/// As [`kubectl`], for what should be refused: what it complains of.
pub fn kubectl_fails(args: &[&str]) -> String {
    let output = run("kubectl", args);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let said = text(&output.stdout);
    assert!(
        !output.status.success(),
        "kubectl {args:?} succeeds: {said}"
    );
    text(&output.stderr)
}

/// Defines today's resources without Helm, and waits until they can be used.
pub fn define_resources() {
    kubectl(&["apply", "--server-side", "-f", "manifests/crds"]);
    established();
}

/// Waits until the resources that are defined can be used.
pub fn established() {
    let condition = "--for=condition=Established";
    kubectl(&["wait", condition, "crd", "--all"]);
}

/// An answer of kubectl in JSON.
pub fn get(args: &[&str]) -> Value {
    let text = kubectl(&[&["get", "-o", "json"], args].concat());
    serde_json::from_str(&text).unwrap()
}

/// Applies objects.
pub fn apply(objects: &str, args: &[&str]) -> String {
    let file = TempFile::new(objects);
    kubectl(&[&["apply", "-f", file.path()], args].concat())
}

/// Waits for a condition of a Sandbox.
pub fn wait(namespace: &str, condition: &str, name: &str) {
    let (condition, name) = (format!("--for={condition}"), format!("sandbox/{name}"));
    kubectl(&["wait", "-n", namespace, &condition, &name, "--timeout=120s"]);
}

/// Repeats a look until it is true; fails after a minute.
pub fn until(what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..240 {
        if look() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
    panic!("not within a minute: {what}");
}

/// A file that goes with its owner.
#[derive(Debug)]
pub struct TempFile(tempfile::NamedTempFile);

impl TempFile {
    pub fn new(text: &str) -> Self {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file)
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

/// The state of the test cluster.
pub fn cluster_directory() -> PathBuf {
    let directory = std::env::var_os("CLUSTER_DIR");
    directory.expect("hack/cluster env sets CLUSTER_DIR").into()
}

/// A file of the checkout.
pub fn file(path: &str) -> PathBuf {
    root().join(path)
}

/// Its text.
pub fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap()
}
