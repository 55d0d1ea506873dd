//! `helm` and `kubectl`, as people call them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::binaries::root;
use serde_json::{Value, json};

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

/// As [`kubectl`], with arguments that are separated by spaces.
pub fn kubectl_words(words: &str) -> String {
    kubectl(&words.split(' ').collect::<Vec<_>>())
}

/// As [`kubectl`], with an input; what it says, or what it complains of.
pub fn try_kubectl(args: &[&str], input: &str) -> Result<String, String> {
    feed(Command::new("kubectl").args(args), input)
}

/// Runs a program with this input in the root of the checkout. Returns all output as a failure if it fails.
pub fn feed(command: &mut Command, input: &str) -> Result<String, String> {
    let output = output_with(command, input);
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.success() {
        Ok(said)
    } else {
        Err(said)
    }
}

/// Runs a command with this input; all that it returns.
pub fn output_with(command: &mut Command, input: &str) -> Output {
    let mut child = command
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input.as_bytes()).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// A Sandbox or a `SandboxPool` for kubectl.
pub fn manifest(kind: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
    })
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
    let args = [&["apply", "-f", "-"], args].concat();
    try_kubectl(&args, objects).unwrap_or_else(|said| panic!("{objects}: {said}"))
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
