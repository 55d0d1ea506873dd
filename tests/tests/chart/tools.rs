//! `helm` and `kubectl`, as people call them.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tests::binaries::root;

/// The chart, from the root of the checkout.
pub(crate) const CHART: &str = "charts/sandbox-operator";
pub(crate) const CRDS_CHART: &str = "charts/sandbox-operator-crds";

/// Runs a program in the root of the checkout.
pub(crate) fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .unwrap()
}

/// What the program prints if it succeeds.
fn good(program: &str, args: &[&str]) -> String {
    let output = run(program, args);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap()
}

pub(crate) fn helm(args: &[&str]) -> String {
    good("helm", args)
}

pub(crate) fn kubectl(args: &[&str]) -> String {
    good("kubectl", args)
}

/// An answer of kubectl in JSON.
pub(crate) fn get(args: &[&str]) -> Value {
    let text = kubectl(&[&["get", "-o", "json"], args].concat());
    serde_json::from_str(&text).unwrap()
}

/// Applies objects.
pub(crate) fn apply(objects: &str, args: &[&str]) -> String {
    let file = Scratch::new(objects);
    kubectl(&[&["apply", "-f", file.path()], args].concat())
}

/// Waits for a condition of a Sandbox.
pub(crate) fn wait(namespace: &str, condition: &str, name: &str) {
    let (condition, name) = (format!("--for={condition}"), format!("sandbox/{name}"));
    kubectl(&["wait", "-n", namespace, &condition, &name, "--timeout=120s"]);
}

/// Repeats a look until it is true; fails after a minute.
pub(crate) fn until(what: &str, mut look: impl FnMut() -> bool) {
    for _ in 0..240 {
        if look() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(250));
    }
    panic!("not within a minute: {what}");
}

/// A file that goes with its owner.
pub(crate) struct Scratch(tempfile::NamedTempFile);

impl Scratch {
    pub(crate) fn new(text: &str) -> Self {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        Self(file)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

/// A file of the checkout.
pub(crate) fn file(path: &str) -> PathBuf {
    root().join(path)
}

/// Its text.
pub(crate) fn text(path: &str) -> String {
    std::fs::read_to_string(file(path)).unwrap()
}
