//! Devices by CDI specifications, which here describe harmless ones: every machine has `/dev/null`
//! and `/dev/zero`.

use serde_json::json;

use crate::fixture::{Fixture, fixture_with};

const SPEC: &str = "
cdiVersion: 0.5.0
kind: vendor.test/gpu
containerEdits: {env: [FAKE_DRIVER=on]}
devices:
- {name: '0', containerEdits: {deviceNodes: [{path: /dev/fake0, hostPath: /dev/zero}]}}
- {name: '1', containerEdits: {deviceNodes: [{path: /dev/fake1, hostPath: /dev/full}]}}
- {name: all, containerEdits: {deviceNodes: [{path: /dev/fake0, hostPath: /dev/zero}, {path: /dev/fake1, hostPath: /dev/full}]}}
";
const LACKING: &str = "0/1 nodes are available: 1 Insufficient vendor.test/gpu.";

/// A Pod that asks for so many devices of a kind.
fn pod(fixture: &Fixture, name: &str, kind: &str, count: u32) {
    let script = "echo $FAKE_DRIVER; head -c 4 /dev/fake0 | od -An -tx1; \
        test ! -e /dev/fake1 || echo both; sleep infinity";
    let limits = json!({kind: count.to_string()});
    let more = json!({"command": ["bash", "-c", script], "resources": {"limits": limits}});
    fixture.pod(name, "host", &more);
}

fn wait(fixture: &Fixture, pod: &str, condition: &str) {
    fixture.kubectl(&format!("wait --for={condition} pod/{pod} --timeout=60s"));
}

fn unschedulable(fixture: &Fixture, pod: &str) -> String {
    wait(fixture, pod, "condition=PodScheduled=False");
    let path = "{.status.conditions[?(@.type==\"PodScheduled\")].message}";
    fixture.kubectl(&format!("get pod {pod} -o jsonpath={path}"))
}

#[test]
fn devices_are_passed_in_counted_and_given_back() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("vendor.yaml"), SPEC).unwrap();
    let path = directory.path().to_str().unwrap();
    let Some(fixture) = fixture_with(&["--cdi-dirs", path]) else {
        return;
    };
    let capacity = "jsonpath={.status.allocatable.vendor\\.test/gpu}=2";
    fixture.kubectl(&format!(
        "wait node/standalone --for={capacity} --timeout=60s"
    ));
    pod(&fixture, "first", "vendor.test/gpu", 1);
    wait(&fixture, "first", "condition=Ready");
    let output = || fixture.kubectl("logs first");
    let printed = (0..100).map(|_| output()).find(|text| text.contains("00"));
    assert_eq!(printed.unwrap(), "on\n 00 00 00 00\n");

    pod(&fixture, "both", "vendor.test/gpu", 2);
    pod(&fixture, "other", "nvidia.com/gpu", 1);
    assert_eq!(unschedulable(&fixture, "both"), LACKING);
    let other = format!(
        "0/1 nodes are available: 1 Insufficient nvidia.com/gpu. \
         No CDI specification in {path} has devices of this kind."
    );
    assert_eq!(unschedulable(&fixture, "other"), other);
    fixture.kubectl("delete pod first --grace-period=0 --force");
    wait(&fixture, "both", "condition=Ready");
    assert_eq!(
        fixture.kubectl("get pod both -o jsonpath={.spec.nodeName}"),
        "standalone"
    );
    let exec = fixture.kubectl("exec both -- ls /dev/fake0 /dev/fake1");
    assert_eq!(exec, "/dev/fake0\n/dev/fake1\n");
}
