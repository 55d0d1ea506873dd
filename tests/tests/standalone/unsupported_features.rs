//! Messages about features that standalone lacks: runtime classes, images, ports that are taken.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::binaries::binary;

use crate::fixture::{Fixture, standalone, text};

/// Applies a Sandbox and waits until its phase is this; the status.
fn applied(fixture: &Fixture, name: &str, spec: &Value, phase: &str) -> Value {
    fixture.apply(name, spec);
    let phase = format!("--for=jsonpath={{.status.phase}}={phase}");
    fixture.kubectl(&format!("wait {phase} sandbox/{name} --timeout=60s"));
    let object = fixture.kubectl(&format!("get sandbox {name} -o json"));
    serde_json::from_str::<Value>(&object).unwrap()["status"].take()
}

#[tokio::test]
async fn missing_runtime_class_is_reported() {
    let Some(fixture) = standalone() else { return };
    let command = json!(["sleep", "infinity"]);
    let class = json!({"image": "debian:12", "command": command, "runtimeClassName": "gvisor"});
    let status = applied(&fixture, "class", &class, "Running");
    let message = text(&status, "message");
    let class = "the runtime class gvisor is not installed; the default is used";
    assert!(message.contains(class), "{message}");

    let name = json!({"image": "Debian 12", "command": command});
    let status = applied(&fixture, "name", &name, "Failed");
    assert_eq!(status["reason"], "InvalidImageName");
    let message = text(&status, "message");
    assert!(message.contains("couldn't parse image name"), "{message}");

    let metrics = fixture.wire().get(&fixture.url("/metrics")).await.body;
    let metrics = metrics.to_string();
    for role in ["reconciles", "gateway_"] {
        assert!(metrics.contains(role), "{role}: {metrics}");
    }
}

#[test]
fn a_taken_address_names_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for (flag, other) in [("--listen", "--api-listen"), ("--api-listen", "--listen")] {
        let state = tempfile::tempdir().unwrap();
        let output = Command::new(binary("sandbox-standalone"))
            .arg("--state-dir")
            .arg(state.path())
            .args([flag, &address, other, "127.0.0.1:0"])
            .stdin(Stdio::null())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success());
        let words = format!("cannot listen on {address}, {flag} sets another address: ");
        assert!(said.contains(&words), "{said}");
    }
}
