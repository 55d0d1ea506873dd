//! Pods whose root is kept with a claim, and small images for them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use images::{ImageStore, Limits};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::ResourceExt as _;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::harness::{Machine, RunningNode, ended, exit_code};

/// Images of each kind: the host, an unpacked directory, and one of the store.
pub(super) const IMAGES: [&str; 3] = ["host", "unpacked:1", "localhost/stored:1"];

/// Image of the store, with other content.
pub(super) const OTHER: &str = "localhost/stored:2";

const PROGRAMS: &str = "cat chmod chown dd echo env grep id ln ls mkdir mv rm sh sleep stat touch";

/// Machine with a node that has all images.
pub(super) struct Fixture {
    pub machine: Machine,
    pub node: RunningNode,
    _unpacked: TempDir,
}

impl Fixture {
    /// `None` if the test is not run by root.
    pub(super) fn start() -> Option<Self> {
        if !standalone::node::NodeConfig::keeps_roots() {
            eprintln!("SKIPPED: only root keeps roots");
            return None;
        }
        let machine = Machine::new();
        let unpacked = small_root("unpacked");
        let store = standalone::node::image_store(machine.state.path());
        let store = ImageStore::open(&store).unwrap();
        for name in [IMAGES[2], OTHER] {
            load(&store, small_root(name).path(), name);
        }
        let node = machine.node_with(|config| {
            config.images.host_fallback = false;
            config.disk_interval = std::time::Duration::from_millis(50);
            let root = unpacked.path().to_owned();
            config.images.directories.insert(IMAGES[1].into(), root);
        });
        Some(Self {
            machine,
            node,
            _unpacked: unpacked,
        })
    }

    /// Runs a script once in a Pod of the claim, and deletes the Pod. Returns the log.
    pub(super) async fn run(&self, claim: &str, image: &str, script: &str) -> String {
        let spec = spec(claim, image, script);
        self.machine.create("pod", spec).await;
        let pod = self.machine.wait("pod", ended).await;
        let log = self.machine.log("pod");
        assert_eq!(exit_code(&pod), 0, "{image}: {log}");
        self.machine.delete::<Pod>("pod").await;
        log
    }
}

/// Pod whose container runs a script once, with a root kept with the claim.
pub(super) fn spec(claim: &str, image: &str, script: &str) -> Value {
    let mount =
        |path: &str, below: &str| json!({"name": "work", "mountPath": path, "subPath": below});
    let mut mounts = vec![
        mount("/workspace", "workspace"),
        mount("/run/sandbox-store", "state"),
    ];
    mounts.push(json!({"name": "bin", "mountPath": "/opt/sandbox/bin"}));
    json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": image, "command": ["/bin/sh", "-c", script],
            "volumeMounts": mounts}],
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": claim}},
            {"name": "bin", "emptyDir": {}}],
    })
}

impl Machine {
    /// Creates a claim. Returns its directory of kept roots.
    pub(super) async fn claim(&self, name: &str, size: &str) -> PathBuf {
        let claim = json!({"metadata": {"name": name}, "spec": {
            "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
        }});
        let claim = self.make::<PersistentVolumeClaim>(claim).await;
        self.path(format!("volumes/{}.root", claim.uid().unwrap()))
    }
}

/// Root with a few programs, and a file that names it.
fn small_root(name: &str) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let path = |below: &str| root.path().join(below);
    for directory in ["bin", "etc", "usr/local"] {
        fs::create_dir_all(path(directory)).unwrap();
    }
    fs::copy("/bin/busybox", path("bin/busybox")).unwrap();
    for program in PROGRAMS.split(' ') {
        symlink("busybox", path("bin").join(program)).unwrap();
    }
    fs::write(path("etc/name"), name).unwrap();
    fs::write(path("etc/debian_version"), "1\n").unwrap();
    root
}

/// Adds a root to the store, as an image of one layer.
fn load(store: &ImageStore, root: &Path, name: &str) {
    let archive = tempfile::tempdir().unwrap();
    let tar = |directory: &Path, to: &str, what: &[&str]| {
        let mut tar = Command::new("tar");
        tar.args(["--owner=0", "--group=0", "-C"]).arg(directory);
        tar.arg("-cf").arg(archive.path().join(to)).args(what);
        assert!(tar.status().unwrap().success());
    };
    tar(root, "layer.tar", &["."]);
    let layer = fs::read(archive.path().join("layer.tar")).unwrap();
    let digest = ring::digest::digest(&ring::digest::SHA256, &layer);
    let hex = digest.as_ref().iter().map(|byte| format!("{byte:02x}"));
    let diff_id = format!("sha256:{}", hex.collect::<String>());
    let architecture = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "amd64",
    };
    let config = json!({"architecture": architecture, "os": "linux", "config": {},
        "rootfs": {"type": "layers", "diff_ids": [diff_id]}});
    fs::write(archive.path().join("config.json"), config.to_string()).unwrap();
    let manifest = json!([{"Config": "config.json", "RepoTags": [name], "Layers": ["layer.tar"]}]);
    fs::write(archive.path().join("manifest.json"), manifest.to_string()).unwrap();
    let all = ["manifest.json", "config.json", "layer.tar"];
    tar(archive.path(), "image.tar", &all);
    let image = archive.path().join("image.tar");
    images::load(store, &image, None, &Limits::default()).unwrap();
}
