//! The same attempts in a privileged container of an image build. It may do what a build needs, in
//! namespaces of its own; nothing of the host is in reach.

use std::fs;

use serde_json::json;

use super::disks;
use super::setting::{Running, setting};
use tests::escapes::attempts::{EVERYWHERE, ON_SOME_MACHINES};
use tests::escapes::program::{END, names, program};

const NAMESPACE: &str = "sandbox-builds";

/// Attempts that a build needs, or that end at its namespaces.
const ALLOWED: &[&str] = &[
    // Mounts in its own mount namespace; the files of cgroups are those of the host's root.
    "mount a tmpfs",
    "bind the root",
    "mount proc",
    "mount cgroups",
    "mount old cgroups",
    "make mounts shared",
    "open a file system",
    "open a tree of mounts",
    "unmount a cover",
    "replace the root",
    "unshare mounts",
    "unshare cgroups",
    "enter a namespace",
    "set the host name",
];

#[test]
fn image_build_reaches_nothing_outside_although_it_is_privileged() {
    let Some(setting) = setting(&["--image-builds", "full", "--registry-prefix", "127.0.0.1/x"])
    else {
        return;
    };
    let (mut victim, secret) = (Running::idle(), setting.secret());
    let fixture = &setting.fixture;
    let shared = fixture.state.path().join("image-builds/1");
    fs::create_dir_all(&shared).unwrap();
    fs::write(shared.join("file"), "of the host").unwrap();
    // Once with a read-only volume, and once with the node's own program, as what covers something.
    let script = "for cover in /shared /.sandbox-node/*; do \
        perl -e \"$0\" /tmp/escape $1 $cover $2 $3 1 || exit 1; done";
    let command = [
        "sh",
        "-c",
        script,
        &program(),
        &secret,
        &victim.0.id().to_string(),
        &disks(),
    ];
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "build"},
        "spec": {
            "restartPolicy": "Never", "hostUsers": false,
            "containers": [{"name": "main", "image": setting.image, "command": command,
                "securityContext": {"privileged": true, "runAsUser": 0},
                "volumeMounts": [{"name": "shared", "mountPath": "/shared", "readOnly": true}]}],
            "volumes": [{"name": "shared", "hostPath": {"path": &shared}}],
        },
    });
    let path = fixture.state.path().join("build.json");
    fs::write(&path, pod.to_string()).unwrap();
    fixture.kubectl(&format!("-n {NAMESPACE} apply -f {}", path.display()));
    let ended = "jsonpath={.status.phase}=Succeeded";
    fixture.kubectl(&format!(
        "-n {NAMESPACE} wait --for={ended} pod/build --timeout=60s"
    ));
    let log = fixture.kubectl(&format!("-n {NAMESPACE} logs build"));
    assert_eq!(log.lines().filter(|line| *line == END).count(), 2, "{log}");
    let attempts = [names(EVERYWHERE), names(ON_SOME_MACHINES)].concat();
    let mut worked: Vec<_> = log.lines().filter(|line| attempts.contains(line)).collect();
    worked.retain(|name| !ALLOWED.contains(name));
    assert_eq!(worked, Vec::<&str>::new());
    assert!(log.contains("mount proc"), "a build can do nothing: {log}");
    assert!(victim.is_alive());
}
