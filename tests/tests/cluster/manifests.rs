//! Manifests in JSON for kubectl.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;
use tests::binaries::root;

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
