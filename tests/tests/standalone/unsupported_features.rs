//! Messages about features that standalone lacks: runtime classes, images, ports that are taken.

use std::process::{Command, Stdio};

use serde_json::json;
use tests::binaries::binary;

use crate::fixture::standalone;

#[tokio::test]
async fn missing_runtime_class_is_reported() {
    let Some(fixture) = standalone() else { return };
    let command = json!(["sleep", "infinity"]);
    let class = json!({"image": "debian:12", "command": command, "runtimeClassName": "gvisor"});
    fixture.apply("class", &class);
    fixture.kubectl("wait --for=jsonpath={.status.phase}=Running sandbox/class --timeout=60s");
    let message = fixture.kubectl("get sandbox class -o jsonpath={.status.message}");
    let class = "the runtime class gvisor is not installed; the default is used";
    assert!(message.contains(class), "{message}");

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
