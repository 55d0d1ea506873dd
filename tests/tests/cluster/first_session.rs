//! The first session of the README on a real cluster, and the sample with kubectl.

use std::process::Command;

use crate::installation::{API_KEY, IMAGE, api, first_session_script};
use crate::test_namespace::TestNamespace;
use tests::cli_tools::kubectl;

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn the_first_session_works() {
    let _scene = TestNamespace::of_gateway().await;
    let output = Command::new(first_session_script())
        .env("SANDBOX_API_URL", api())
        .env("SANDBOX_API_KEY", API_KEY)
        .env("SANDBOX_IMAGE", IMAGE)
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    let pods = kubectl(&["get", "sbx,pods,pvc,events", "-o", "wide"]);
    assert!(output.status.success(), "{stdout}\n{stderr}\n{pods}");
}

#[tokio::test]
#[ignore = "needs a real cluster: make test-cluster"]
async fn the_sample_runs() {
    let ns = TestNamespace::new("sample").await;
    let sample = tests::binaries::root().join("manifests/samples/sandbox.yaml");
    let sample = std::fs::read_to_string(sample).unwrap();
    let file = std::env::temp_dir().join(format!("sandbox-sample-{}.yaml", std::process::id()));
    std::fs::write(&file, sample.replace("debian:12", IMAGE)).unwrap();
    let namespace = ns.namespace.as_str();
    kubectl(&["apply", "-n", namespace, "-f", file.to_str().unwrap()]);
    std::fs::remove_file(&file).unwrap();
    let wait = "--for=condition=Ready";
    kubectl(&[
        "wait",
        "-n",
        namespace,
        wait,
        "sandbox/demo",
        "--timeout=60s",
    ]);
    kubectl(&["delete", "sbx", "demo", "-n", namespace, "--timeout=60s"]);
}
