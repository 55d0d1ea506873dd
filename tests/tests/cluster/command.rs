//! kubectl, as people and tools run it.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tests::binaries::root;

/// Runs kubectl in the root of the checkout; its output if it succeeds.
pub(crate) fn kubectl(args: &[&str]) -> String {
    let (success, stdout, stderr) = try_kubectl(args);
    assert!(success, "kubectl {args:?}: {stderr}");
    stdout
}

/// As [`kubectl`], for what should be refused: what it complains of.
pub(crate) fn kubectl_fails(args: &[&str]) -> String {
    let (success, stdout, stderr) = try_kubectl(args);
    assert!(!success, "kubectl {args:?} succeeds: {stdout}");
    stderr
}

fn try_kubectl(args: &[&str]) -> (bool, String, String) {
    let output = Command::new("kubectl")
        .args(args)
        .current_dir(root())
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let success = output.status.success();
    (success, text(&output.stdout), text(&output.stderr))
}

/// `kubectl apply`; what it says.
pub(crate) fn apply(manifest: &Value) -> String {
    let (success, said) = pipe(&["apply", "-f", "-"], manifest);
    assert!(success, "{said}");
    said
}

/// Gives kubectl a manifest; whether it succeeded, and what it said.
pub(crate) fn pipe(args: &[&str], manifest: &Value) -> (bool, String) {
    let mut child = Command::new("kubectl")
        .args(args)
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(manifest.to_string().as_bytes()).unwrap();
    drop(input);
    let output = child.wait_with_output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    (output.status.success(), said)
}
