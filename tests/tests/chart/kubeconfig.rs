//! `sandbox` without URL and API key: a kubeconfig leads to the gateway, and the API key of the
//! installation is used.

use std::process::{Command, Output};

use serde_json::Value;
use tests::binaries::binary;
use tests::cli_tools::until;

use crate::release::{IMAGE, NAMESPACE};

const SESSION: &str = "by-kubeconfig";

pub(crate) fn is_enough_for_sandboxes_and_keys() {
    let started = done(
        &["run", "--name", SESSION, IMAGE, "--", "echo", "started"],
        "",
    );
    assert_eq!(started, "started\n");
    let folder = tempfile::tempdir().unwrap();
    let (sent, received) = (folder.path().join("sent"), folder.path().join("received"));
    // More than fits into buffers on the way.
    let content = b"some bytes ".repeat(1 << 20);
    std::fs::write(&sent, &content).unwrap();
    let inside = format!("{SESSION}:/workspace/file");
    done(&["cp", sent.to_str().unwrap(), &inside], "");
    done(&["cp", &inside, received.to_str().unwrap()], "");
    assert!(
        std::fs::read(&received).unwrap() == content,
        "the copy differs"
    );

    let key = done(&["keys", "create", "team", "--max-sandboxes", "1"], "");
    let key = key.trim();
    until("the gateway knows the new key", || {
        command(&["list", "-o", "name"], key).status.success()
    });
    assert_eq!(
        done(&["list", "-o", "name"], key),
        "",
        "sandboxes of another key"
    );
    let list: Vec<Value> =
        serde_json::from_str(&done(&["keys", "list", "-o", "json"], "")).unwrap();
    let names: Vec<_> = list
        .iter()
        .map(|key| key["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"team"), "{names:?}");
    done(&["keys", "revoke", "team"], "");
    until("the gateway rejects the key", || {
        !command(&["list"], key).status.success()
    });
    done(&["stop", SESSION], "");
    let wrong = command(&["list", "--release", "other"], "");
    let said = String::from_utf8_lossy(&wrong.stderr);
    assert!(
        said.contains("no Deployment other-sandbox-operator-gateway"),
        "{said}"
    );
}

fn done(args: &[&str], key: &str) -> String {
    let output = command(args, key);
    assert!(output.status.success(), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn command(args: &[&str], key: &str) -> Output {
    Command::new(binary("sandbox"))
        .args(["--operator-namespace", NAMESPACE])
        .args(args)
        .env_remove("SANDBOX_API_URL")
        .env("SANDBOX_API_KEY", key)
        .output()
        .unwrap()
}
