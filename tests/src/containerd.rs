//! A containerd of a test, whose unpacked images are what ours are compared with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// Looks for the socket, and the pause between them.
const MAX_POLLS: u32 = 1000;
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Running containerd without Kubernetes; it ends with the value, and its mounts with it.
#[derive(Debug)]
pub struct Containerd {
    directory: TempDir,
    child: Child,
    mounted: Vec<PathBuf>,
}

impl Containerd {
    /// Panics if the program is missing: `hack/install cluster` installs it.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        let config = format!(
            "version = 2\nroot = '{}'\nstate = '{}'\n\
             disabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n[grpc]\naddress = '{}'\n",
            path("root").display(),
            path("state").display(),
            path("socket").display(),
        );
        fs::write(path("config.toml"), config).expect("a file");
        let child = Command::new("containerd")
            .arg("--config")
            .arg(path("config.toml"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("containerd, of hack/install");
        let containerd = Self {
            directory,
            child,
            mounted: Vec::new(),
        };
        for _ in 0..MAX_POLLS {
            let version = containerd.ctr(&["version"]).output();
            if version.is_ok_and(|output| output.status.success()) {
                return containerd;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        panic!("containerd does not answer");
    }

    fn ctr(&self, args: &[&str]) -> Command {
        let mut command = Command::new("ctr");
        command
            .arg("--address")
            .arg(self.directory.path().join("socket"))
            .args(args);
        command
    }

    fn run(&self, args: &[&str]) {
        let output = self.ctr(args).output().expect("ctr");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "ctr {args:?}: {errors}");
    }

    /// Pulls an image over HTTP and unpacks it.
    pub fn pull(&self, reference: &str) {
        self.run(&["images", "pull", "--plain-http", reference]);
    }

    /// Mounts the files of a pulled image read-only.
    pub fn mount(&mut self, reference: &str) -> PathBuf {
        let target = self
            .directory
            .path()
            .join(format!("mount-{}", self.mounted.len()));
        fs::create_dir(&target).expect("a directory");
        self.run(&["images", "mount", reference, &target.display().to_string()]);
        self.mounted.push(target.clone());
        target
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        for target in &self.mounted {
            unmount(target);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Overlay mount of unpacked layers, topmost first; it ends with the value.
#[derive(Debug)]
pub struct LayerMount(TempDir);

impl LayerMount {
    pub fn new(layers: &[PathBuf]) -> Self {
        let target = tempfile::tempdir().expect("a directory");
        // An overlay has two layers at least.
        let empty = target.path().join("empty");
        let root = target.path().join("root");
        for directory in [&empty, &root] {
            fs::create_dir(directory).expect("a directory");
        }
        let layers = layers.iter().chain([&empty]);
        let layers: Vec<String> = layers.map(|layer| layer.display().to_string()).collect();
        let status = Command::new("mount")
            .args(["-t", "overlay", "overlay", "-o"])
            .arg(format!("ro,lowerdir={}", layers.join(":")))
            .arg(&root)
            .status()
            .expect("mount");
        assert!(status.success(), "overlay of {layers:?}");
        Self(target)
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().join("root")
    }
}

impl Drop for LayerMount {
    fn drop(&mut self) {
        unmount(&self.path());
    }
}

fn unmount(target: &Path) {
    let _ = Command::new("umount").arg(target).status();
}
