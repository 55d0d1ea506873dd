//! A Pod that builds an image with BuildKit, as root of a user namespace: its result is an OCI
//! layout on the host, and the log of a failed build ends with the step that failed.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use tests::binaries::{binary, root};
use tests::registry::{image_of, small_root};

use crate::fixture::{Fixture, fixture_with};

pub(crate) const NAMESPACE: &str = "builds";
const IMAGE: &str = "localhost/buildkit:1";

/// Directories of one build, which its Pod mounts.
fn directories(state: &Path, name: &str) -> PathBuf {
    let build = state.join("image-builds").join(name);
    fs::create_dir_all(build.join("context")).unwrap();
    fs::create_dir_all(build.join("image")).unwrap();
    build
}

/// Output of a command that must succeed.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// A standalone with the builder's image in its store.
fn builder() -> Option<Fixture> {
    let flags = [
        "--image-build-namespace",
        NAMESPACE,
        "--insecure-registries",
        "127.0.0.1",
    ];
    let fixture = fixture_with(&flags)?;
    fixture.kubectl(&format!("create namespace {NAMESPACE}"));
    let archive = output(Command::new(root().join("hack/image")).arg("buildkit"));
    let mut load = Command::new(binary("sandbox-standalone"));
    load.arg("--state-dir").arg(fixture.state.path());
    output(load.args(["images", "load", &archive]));
    Some(fixture)
}

/// Builds a Dockerfile with the base image `debian:12`; the log, and the directory of the build.
fn build(fixture: &Fixture, name: &str, dockerfile: &str) -> (String, PathBuf) {
    let build = directories(fixture.state.path(), name);
    fs::write(build.join("context/Dockerfile"), dockerfile).unwrap();
    fs::write(build.join("context/file"), "of the context").unwrap();
    let base = image_of(small_root().path(), &json!({}));
    let mut copy = Command::new("cp");
    output(copy.arg("-r").arg(base.path()).arg(build.join("base")));
    let digest = index(&build.join("base"))["manifests"][0]["digest"].clone();
    let pod = pod(name, &build, digest.as_str().unwrap());
    let path = build.join("pod.json");
    fs::write(&path, pod.to_string()).unwrap();
    fixture.kubectl(&format!("-n {NAMESPACE} apply -f {}", path.display()));
    let ended = "jsonpath={.status.containerStatuses[0].state.terminated.exitCode}";
    fixture.kubectl(&format!(
        "-n {NAMESPACE} wait --for={ended} pod/{name} --timeout=120s"
    ));
    (
        fixture.kubectl(&format!("-n {NAMESPACE} logs {name}")),
        build,
    )
}

fn index(layout: &Path) -> Value {
    let text = fs::read(layout.join("index.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

fn pod(name: &str, build: &Path, base: &str) -> Value {
    let volume = |name: &str| json!({"name": name, "hostPath": {"path": build.join(name)}});
    let mount = |name: &str, read_only: bool| json!({"name": name, "mountPath": format!("/build/{name}"), "readOnly": read_only});
    let state = "/home/user/.local/share/buildkit";
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "hostUsers": false,
            "containers": [{
                "name": "build", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["buildctl-daemonless.sh", "build", "--progress=plain",
                    "--frontend=dockerfile.v0", "--local=context=/build/context",
                    "--local=dockerfile=/build/context", "--oci-layout=base=/build/base",
                    format!("--opt=context:debian:12=oci-layout://base@{base}"),
                    "--output=type=oci,tar=false,dest=/build/image,rewrite-timestamp=true"],
                "env": [
                    {"name": "BUILDKITD_FLAGS", "value": format!("--rootless --root={state}")},
                    {"name": "BUILDCTL_CONNECT_RETRIES_MAX", "value": "100"},
                    {"name": "SOURCE_DATE_EPOCH", "value": "0"},
                    {"name": "TMPDIR", "value": "/tmp"},
                ],
                "securityContext": {"privileged": true, "runAsUser": 0, "runAsGroup": 0},
                "volumeMounts": [mount("context", true), mount("base", true),
                    mount("image", false), {"name": "state", "mountPath": state}],
            }],
            "volumes": [volume("context"), volume("base"), volume("image"),
                {"name": "state", "emptyDir": {}}],
        },
    })
}

#[test]
fn build_leaves_image_on_host_and_failed_one_ends_log_with_its_step() {
    let Some(fixture) = builder() else { return };
    let dockerfile = "FROM debian:12\n\
        RUN id && echo made >/made && mkdir /of-web && touch /of-web/x && rm /bin/sleep\n\
        COPY file /copied\n";
    let (log, build) = build(&fixture, "good", dockerfile);
    let image = build.join("image");
    let manifests = index(&image)["manifests"].as_array().cloned();
    assert_eq!(manifests.map(|all| all.len()), Some(1), "{log}");
    assert_eq!(fs::metadata(image.join("index.json")).unwrap().uid(), 0);
    let mut load = Command::new(binary("sandbox-standalone"));
    load.arg("--state-dir")
        .arg(fixture.state.path())
        .args(["images", "load"]);
    output(load.arg(&image).args(["--name", "localhost/built:1"]));
    let script = "cat /made /copied; ls /bin/sleep || stat -c %u /of-web";
    fixture.pod(
        "built",
        "localhost/built:1",
        &json!({"command": ["sh", "-c", script]}),
    );
    let ended = "jsonpath={.status.phase}=Succeeded";
    fixture.kubectl(&format!("wait --for={ended} pod/built --timeout=60s"));
    let printed = fixture.kubectl("logs built");
    assert!(printed.starts_with("made\nof the context"), "{printed}");
    assert!(printed.ends_with("\n0\n"), "{printed}");

    let (log, _) = self::build(&fixture, "bad", "FROM debian:12\nRUN echo why; exit 7\n");
    let last = log.trim_end().lines().last().unwrap_or_default();
    assert!(last.starts_with("error: failed to solve"), "{log}");
    assert!(last.ends_with("exit code: 7"), "{log}");
}
