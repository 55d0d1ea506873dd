use serde_json::{Value, json};

use super::*;
use crate::node::mount::Mount;

const YAML: &str = "
cdiVersion: 0.5.0
kind: vendor.com/gpu
containerEdits:
  env: [VENDOR=yes]
  hooks: []
  mounts: [{hostPath: /usr/lib/vendor.so, containerPath: /usr/lib/vendor.so, options: [ro, nosuid]}]
devices:
- name: '0'
  containerEdits: {deviceNodes: [{path: /dev/gpu0, hostPath: /dev/null, permissions: rw}], env: [GPU=0]}
- name: '1'
  containerEdits: {deviceNodes: [{path: /dev/zero}]}
- name: serial-of-0
  containerEdits: {deviceNodes: [{path: /dev/gpu0, hostPath: /dev/null}]}
- name: all
  containerEdits: {deviceNodes: [{path: /dev/zero}, {path: /dev/gpu0, hostPath: /dev/null}]}
";

fn devices(files: &[(&str, &str)]) -> (tempfile::TempDir, Arc<Devices>) {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(directory.path().join(name), text).unwrap();
    }
    let devices = Devices::read(&[directory.path().to_owned()]);
    (directory, devices)
}

/// A Pod whose containers, named by their position, have these numbers of a resource.
fn pod(resource: &str, init: &[u32], containers: &[u32]) -> PodSpec {
    let list = |prefix: &str, counts: &[u32]| -> Vec<Value> {
        let container = |(number, count): (usize, &u32)| json!({"name": format!("{prefix}{number}"), "resources": {"limits": {resource: count.to_string()}}});
        counts.iter().enumerate().map(container).collect()
    };
    let pod = json!({"initContainers": list("i", init), "containers": list("c", containers)});
    serde_json::from_value(pod).unwrap()
}

fn names(devices: &[Arc<Device>]) -> Vec<&str> {
    devices.iter().map(|device| device.name.as_str()).collect()
}

#[test]
fn device_has_the_edits_of_its_spec_and_its_own() {
    let (_directory, devices) = devices(&[("vendor.yaml", YAML)]);
    assert_eq!(
        devices.capacity().collect::<Vec<_>>(),
        [("vendor.com/gpu", 2)]
    );
    let spec = pod("vendor.com/gpu", &[], &[1]);
    let allocation = devices.allocate(&spec).unwrap();
    let [device] = &allocation.of_container(&spec, "c0")[..] else {
        panic!("one device")
    };
    let pairs = [("VENDOR", "yes"), ("GPU", "0")];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(device.environment, pairs);
    let mount = |from: &str, to: &str, bind| Mount::Host {
        from: from.into(),
        to: to.into(),
        bind,
    };
    let library = mount("/usr/lib/vendor.so", "/usr/lib/vendor.so", "--ro-bind");
    assert_eq!(
        device.mounts,
        [library, mount("/dev/null", "/dev/gpu0", "--dev-bind")]
    );
}

#[test]
fn devices_belong_to_one_pod_until_it_ends() {
    let (_directory, devices) = devices(&[("vendor.yaml", YAML)]);
    let two = pod("vendor.com/gpu", &[2], &[1, 1]);
    let allocation = devices.allocate(&two).unwrap();
    for (container, expected) in [("i0", &["0", "1"][..]), ("c0", &["0"]), ("c1", &["1"])] {
        let own = allocation.of_container(&two, container);
        assert_eq!(names(&own), expected, "{container}");
    }
    let one = pod("vendor.com/gpu", &[], &[1]);
    let message = "0/1 nodes are available: 1 Insufficient vendor.com/gpu.";
    assert_eq!(devices.allocate(&one).unwrap_err(), message);
    drop(allocation);
    assert_eq!(
        devices
            .allocate(&pod("vendor.com/gpu", &[], &[3]))
            .unwrap_err(),
        message
    );
    assert!(devices.allocate(&two).is_ok());
    assert!(devices.allocate(&pod("cpu", &[], &[900])).is_ok());
}

#[test]
fn missing_and_unusable_specs_are_named() {
    let spec = |version: &str, kind: &str, edits: &Value| {
        let device = json!({"name": "0", "containerEdits": edits});
        json!({"cdiVersion": version, "kind": kind, "devices": [device]}).to_string()
    };
    let hook = json!({"hooks": [{"hookName": "createContainer", "path": "/bin/true"}]});
    let none = json!({});
    let (directory, devices) = devices(&[
        ("a.json", &spec("0.6.0", "a.com/hooks", &hook)),
        ("b.json", &spec("0.2.0", "b.com/old", &none)),
        ("c.json", "{"),
        ("d.json", &spec("1.0.0", "d.com/good", &none)),
        ("e.txt", &spec("1.0.0", "e.com/text", &none)),
        (
            "f.json",
            &spec(
                "0.6.0",
                "f.com/path",
                &json!({"deviceNodes": [{"path": "dev/x"}]}),
            ),
        ),
    ]);
    assert_eq!(devices.capacity().collect::<Vec<_>>(), [("d.com/good", 1)]);
    let path = directory.path().display();
    let missing = format!("No CDI specification in {path} has devices of this kind.");
    let hooks = format!("{path}/a.json is not used: device \"0\": hooks are not supported.");
    for (kind, hint) in [
        ("a.com/hooks", &hooks),
        ("b.com/old", &missing),
        ("e.com/text", &missing),
    ] {
        let message = devices.allocate(&pod(kind, &[], &[1])).unwrap_err();
        let expected = format!("0/1 nodes are available: 1 Insufficient {kind}. {hint}");
        assert_eq!(message, expected);
    }
}
