//! Messages about features that standalone lacks: runtime classes, images, ports that are taken.

use std::process::{Command, Stdio};

use serde_json::{Value, json};
use tests::binaries::{binary, is_root_or_skips};
use tests::json_client::JsonClient;
use tests::standalone::Standalone;

/// Applies a Sandbox and waits until its phase is this; the status.
fn applied(standalone: &Standalone, name: &str, spec: &Value, phase: &str) -> Value {
    let manifest = json!({
        "apiVersion": "openhands.dev/v1alpha1", "kind": "Sandbox",
        "metadata": {"name": name}, "spec": spec,
    });
    let file = standalone.state.join(format!("{name}.json"));
    std::fs::write(&file, manifest.to_string()).unwrap();
    standalone.run("kubectl", &["apply", "-f", file.to_str().unwrap()]);
    let wanted = format!("--for=jsonpath={{.status.phase}}={phase}");
    let sandbox = format!("sandbox/{name}");
    standalone.run("kubectl", &["wait", &wanted, &sandbox, "--timeout=60s"]);
    let object = standalone.run("kubectl", &["get", &sandbox, "-o", "json"]);
    serde_json::from_str::<Value>(&object).unwrap()["status"].take()
}

#[tokio::test]
async fn missing_runtime_class_is_reported() {
    if !is_root_or_skips("kubectl against standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    let standalone = Standalone::start(state.path(), &[]);
    let spec = json!({
        "image": "debian:12", "command": ["sleep", "infinity"], "runtimeClassName": "gvisor",
    });
    let status = applied(&standalone, "class", &spec, "Running");
    let message = status["message"].as_str().unwrap();
    let class = "the runtime class gvisor is not installed; the default is used";
    assert!(message.contains(class), "{message}");

    let spec = json!({"image": "Debian 12", "command": ["sleep", "infinity"]});
    let status = applied(&standalone, "name", &spec, "Failed");
    assert_eq!(status["reason"], "InvalidImageName");
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("couldn't parse image name"), "{message}");

    let url = format!("{}/metrics", standalone.api());
    let metrics = JsonClient::with_api_key(standalone.key()).get(&url).await;
    let metrics = metrics.body.to_string();
    for role in ["reconciles", "gateway_"] {
        assert!(metrics.contains(role), "{role}: {metrics}");
    }
}

#[test]
fn a_taken_address_names_the_flag() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for flag in ["--listen", "--api-listen"] {
        let state = tempfile::tempdir().unwrap();
        let other = match flag {
            "--listen" => "--api-listen",
            _ => "--listen",
        };
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
