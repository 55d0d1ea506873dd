//! The first session of the README on a real cluster, and the sample with kubectl.

use std::process::Command;

use crate::children::entrypoint_with_environment;
use crate::installation::{API_KEY, Installation, first_session_script, kubectl};

pub(crate) const IMAGE: &str = "localhost/sandbox-test:1";

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn the_first_session_works_on_a_real_cluster() {
    let installation = Installation::new().await;
    let output = Command::new(first_session_script())
        .env("SANDBOX_API_URL", &installation.api)
        .env("SANDBOX_API_KEY", API_KEY)
        .env("SANDBOX_IMAGE", IMAGE)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let pods = kubectl(&["get", "sbx,pods,pvc,events", "-o", "wide"]);
    assert!(output.status.success(), "{stdout}\n{stderr}\n{pods}");
    print!("{stdout}");

    sample_with_kubectl();
    refusals_of_the_real_server();
    entrypoint_with_environment();
}

fn sample_with_kubectl() {
    let sample =
        std::fs::read_to_string(tests::binaries::root().join("manifests/samples/sandbox.yaml"));
    let file = std::env::temp_dir().join(format!("sandbox-sample-{}.yaml", std::process::id()));
    std::fs::write(&file, sample.unwrap().replace("debian:12", IMAGE)).unwrap();
    kubectl(&["apply", "-f", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    kubectl(&[
        "wait",
        "--for=condition=Ready",
        "sandbox/demo",
        "--timeout=60s",
    ]);
    let table = kubectl(&["get", "sbx", "-o", "wide"]);
    assert!(
        table.contains("Running") && table.contains("True"),
        "{table}"
    );
    kubectl(&["delete", "sbx", "demo", "--timeout=60s"]);
}

/// The rules cost what a real API server allows, and say what they should.
fn refusals_of_the_real_server() {
    let manifest = r#"{"apiVersion":"openhands.dev/v1alpha1","kind":"Sandbox","metadata":{"name":"bad"},"spec":{"command":["true"]}}"#;
    let file = std::env::temp_dir().join(format!("sandbox-bad-{}.json", std::process::id()));
    std::fs::write(&file, manifest).unwrap();
    let output = Command::new("kubectl")
        .args(["create", "-f"])
        .arg(&file)
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        stderr.contains("image is required unless pool is set"),
        "{stderr}"
    );
}
